//! `legwork incidents` and `legwork resolve`: incidents and their resolutions.
//!
//! Invariant: a resolution is chosen by a person, never guessed: exactly one must be given.

use anyhow::Result;
use legwork_api::instances::{Incident, IncidentList, ResolveAction, ResolveRequest};
use serde_json::json;

use crate::context::Context;
use crate::start;
use crate::style::{BAD, DIM, GOOD, STRONG, paint, plain};
use crate::tree;
use crate::values::{Types, ValueArgs};
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("way").required(true))]
pub(crate) struct ResolveArgs {
    /// The activity: its id, the end of it, or `last`
    activity: String,
    /// Try again
    #[arg(long, group = "way")]
    retry: bool,
    /// At a decision that failed: take this branch
    #[arg(long, value_name = "BRANCH", group = "way")]
    choose: Option<String>,
    /// At a step that failed: it is done, its outputs are given with --set or --data
    #[arg(long, group = "way")]
    complete: bool,
    #[command(flatten)]
    values: ValueArgs,
}

pub(crate) async fn list(context: &Context, args: &ListArgs) -> Result<()> {
    let list: IncidentList = context.incidents(args.limit as usize).await?;
    context.out.answer(&list, || render(&list.incidents) + &tree::unreachable(&list.unreachable))
}

pub(crate) async fn resolve(context: &Context, args: &ResolveArgs) -> Result<()> {
    anyhow::ensure!(
        args.complete || args.values.is_empty(),
        "values are given with --complete only"
    );
    let activity = context.incident(&args.activity).await?;
    let (action, word) = match (&args.choose, args.complete) {
        (Some(_), _) => (ResolveAction::Choose, "choose"),
        (None, true) => (ResolveAction::Complete, "complete"),
        (None, false) => (ResolveAction::Retry, "retry"),
    };
    let types = match args.values.needs_types() {
        true => {
            let instance =
                context.client.instance(activity.instance, std::time::Duration::ZERO).await?;
            let summary = instance.summary;
            start::types(context, &summary.process, Some(summary.version)).await
        }
        false => Types::new(),
    };
    let data = args.complete.then(|| args.values.data(&types)).transpose()?;
    let request = ResolveRequest { action, answer: args.choose.clone(), data };
    context.client.resolve(&activity, &request).await?;
    let document = json!({"activity": activity.to_string(), "action": word});
    context.out.answer(&document, || {
        format!("{} {} goes on\n", paint(GOOD, "✔"), paint(STRONG, &activity))
    })
}

pub(crate) fn render(incidents: &[Incident]) -> String {
    if incidents.is_empty() {
        return "no incidents\n".to_owned();
    }
    let mut out = String::new();
    for incident in incidents {
        let Incident { activity, process, kind, message, at, failures } = incident;
        let about = format!("{process} · {kind} · {}", when::minute(*at));
        let head = format!("{} {}", paint(BAD, "✘"), paint(STRONG, activity));
        out.push_str(&format!("{head}  {}\n    {}\n", paint(DIM, about), plain(message)));
        out.push_str(&tree::failures(failures));
        out.push_str(&way_out(kind));
    }
    out
}

/// The command that resolves it.
pub(crate) fn way_out(kind: &str) -> String {
    format!("    {} {}\n", paint(DIM, "way out:"), options(kind))
}

fn options(kind: &str) -> &'static str {
    match kind {
        "nobody_can_do_it" => {
            "deploy an organisation in which somebody can, or --complete with its outputs; at a \
             decision --choose BRANCH"
        }
        "no_branch_matches" | "several_branches_match" => "--choose BRANCH",
        "condition_failed" => "--choose BRANCH, or --retry",
        "too_many_iterations" => "--choose leave, or --choose repeat",
        "retries_exhausted" => "--retry, or --complete with its outputs",
        _ => "--retry",
    }
}

#[cfg(test)]
mod tests {
    use legwork_api::instances::{Failure, Performer};
    use legwork_model::time::Timestamp;

    use super::*;

    #[test]
    fn an_incident_tells_when_and_where_each_attempt_failed_and_why() {
        let failure = |seconds: i64, executor: &str, error: &str| Failure {
            at: Timestamp(1_772_357_405_123 + 1_000 * seconds),
            by: Performer::Executor(executor.into()),
            error: error.to_owned(),
        };
        let incident = Incident {
            activity: "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:score".parse().unwrap(),
            process: "loan".into(),
            kind: "retries_exhausted".to_owned(),
            message: "failed 2 times, at last with: no such customer".to_owned(),
            at: Timestamp(1_772_357_405_123),
            failures: vec![
                failure(1, "crm", "no answer\nin time"),
                failure(9, "erp", "no such customer"),
            ],
        };
        let shown = anstream::adapter::strip_str(&render(&[incident])).to_string();
        insta::assert_snapshot!(shown, @r"
        ✘ inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:score  loan · retries_exhausted · 2026-03-01 09:30Z
            failed 2 times, at last with: no such customer
              2026-03-01 09:30:06Z executor crm: no answer in time
              2026-03-01 09:30:14Z executor erp: no such customer
            way out: --retry, or --complete with its outputs
        ");
    }
}
