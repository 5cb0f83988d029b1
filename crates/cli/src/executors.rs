//! `legwork executors`: the services that do automatic steps, and their learned speeds.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use legwork_api::executors::{
    ExecutorCondition, ExecutorRequest, ExecutorState, ExecutorTypeState, LIMIT, PolicyRequest,
    Regularly, TypeLimit,
};
use serde_json::json;

use crate::context::Context;
use crate::style::{BAD, DIM, GOOD, STRONG, WARN, paint, plain};
use crate::table::{Cell, Table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List executors: how fast each is at what, what it has, how it is (the default)
    List,
    /// Show one executor: where it is, its limits, and how it is at what it does
    Show {
        /// The name of the executor, or of a worker
        name: String,
    },
    /// Register an executor; most register themselves when they start
    Register(Registration),
    /// Take an executor out; what it has is given to others
    Remove {
        /// The name of the executor
        name: String,
    },
    /// Say who chooses the executors of a type of jobs; without a type, show what was said
    Policy {
        /// The type of jobs
        #[arg(requires = "policy", value_name = "TYPE")]
        kind: Option<String>,
        /// adaptive (the default, by what was learned of each), random, round-robin, weighted,
        /// least-outstanding, two-choices, oxthas-1 to oxthas-6: see docs/guide/executors.md
        policy: Option<String>,
        /// Have the history say of each assignment why it went where it went
        #[arg(long, requires = "kind")]
        record: bool,
    },
}

#[derive(clap::Args)]
struct Registration {
    /// What it is called; results come in under this name
    name: String,
    /// Where it is called
    #[arg(long, value_name = "URL")]
    url: String,
    /// The secret with which it signs its results, and Legwork its calls: 32 to 200 characters
    #[arg(long, env = "LEGWORK_EXECUTOR_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// A type of jobs that it does, how many at a time and in so long (10/s); may be repeated
    #[arg(long = "type", value_name = "TYPE[=LIMIT][@RATE]", required = true, value_parser = of_type)]
    types: Vec<(String, TypeLimit)>,
    /// How many tasks it takes at a time, in all
    #[arg(long, default_value_t = LIMIT)]
    limit: u32,
    /// On how many it works at a time; what it has beyond waits there [default: on all]
    #[arg(long, value_name = "N")]
    at_once: Option<u32>,
    /// How many it is given in so long, such as 10/s, 600/m or 1000/h
    #[arg(long)]
    rate: Option<String>,
    /// Its part of the tasks where they are given out by weights
    #[arg(long)]
    weight: Option<u32>,
    /// What it does again and again beside its tasks, such as 5m/1h: five minutes in every hour; may be repeated
    #[arg(long, value_name = "TAKES/EVERY", value_parser = regularly)]
    regularly: Vec<Regularly>,
    /// The per cent of its time that is promised only after a fault, such as the loss of another executor
    #[arg(long, value_name = "PERCENT")]
    reserve: Option<u32>,
    /// The domain where it is at home
    #[arg(long)]
    domain: Option<String>,
    /// Its results count at once, without ACK, NACK and confirmation
    #[arg(long)]
    no_verdicts: bool,
}

/// Secrets stay out of logs.
impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        None | Some(Command::List) => list(context).await,
        Some(Command::Show { name }) => show(context, name).await,
        Some(Command::Register(registration)) => register(context, registration).await,
        Some(Command::Policy { kind: Some(kind), policy: Some(policy), record }) => {
            set_policy(context, kind, PolicyRequest { policy: policy.clone(), record: *record })
                .await
        }
        Some(Command::Policy { .. }) => policies(context).await,
        Some(Command::Remove { name }) => {
            context.client.remove_executor(name).await?;
            context.out.answer(&json!({"removed": name}), || {
                format!("{} {} is taken out\n", paint(GOOD, "✔"), paint(STRONG, name))
            })
        }
    }
}

async fn register(context: &Context, asked: &Registration) -> Result<()> {
    let Some(secret) = asked.secret.clone() else {
        bail!("say its secret: --secret SECRET, or set LEGWORK_EXECUTOR_SECRET");
    };
    let request = ExecutorRequest {
        url: asked.url.clone(),
        secret,
        types: asked.types.iter().cloned().collect::<BTreeMap<_, _>>(),
        limit: asked.limit,
        at_once: asked.at_once,
        rate: asked.rate.clone(),
        weight: asked.weight,
        regularly: asked.regularly.clone(),
        reserve: asked.reserve,
        domain: asked.domain.clone(),
        verdicts: !asked.no_verdicts,
        holds: None,
    };
    let registered = context.client.register_executor(&asked.name, &request).await?;
    context.out.answer(&registered, || {
        let known = if registered.unchanged { paint(DIM, " (as before)") } else { String::new() };
        format!("{} {} is registered{known}\n", paint(GOOD, "✔"), paint(STRONG, &asked.name))
    })
}

async fn set_policy(context: &Context, kind: &str, request: PolicyRequest) -> Result<()> {
    context.client.set_policy(kind, &request).await?;
    context.out.answer(&json!({"type": kind, "policy": request.policy}), || {
        let by = paint(STRONG, &request.policy);
        format!("{} executors of {} are chosen by {by}\n", paint(GOOD, "✔"), paint(STRONG, kind))
    })
}

async fn policies(context: &Context) -> Result<()> {
    let list = context.client.policies().await?;
    context.out.answer(&list, || {
        if list.policies.is_empty() {
            return "all executors are chosen by what was learned of them (adaptive)\n".to_owned();
        }
        let mut table = Table::new(&["TYPE", "POLICY", "REASONS"]);
        for of_type in &list.policies {
            let reasons = if of_type.record { "in the history" } else { "in the log" };
            table.row([
                Cell::styled(STRONG, &of_type.kind),
                Cell::from(of_type.policy.clone()),
                Cell::from(reasons.to_owned()),
            ]);
        }
        table.render("")
    })
}

async fn list(context: &Context) -> Result<()> {
    let list = context.client.executors().await?;
    context.out.answer(&list, || {
        if list.executors.is_empty() {
            return "no executors: automatic steps wait for workers that ask for jobs\n".to_owned();
        }
        table(&list.executors)
    })
}

async fn show(context: &Context, name: &str) -> Result<()> {
    let list = context.client.executors().await?;
    let known = list.executors.into_iter().find(|one| one.name == name);
    let executor =
        known.with_context(|| format!("no executor `{name}`; `legwork executors` lists them"))?;
    context.out.answer(&executor, || one(&executor))
}

/// Everything about one: its registration, and below its observations.
fn one(executor: &ExecutorState) -> String {
    let mut said = Vec::new();
    said.extend(executor.url.clone().map(|url| ("address", url)));
    said.extend(executor.domain.clone().map(|domain| ("domain", domain)));
    said.extend(executor.limit.map(|limit| ("at a time", limit.to_string())));
    said.extend(executor.at_once.map(|at_once| ("works on", at_once.to_string())));
    said.extend(executor.rate.clone().map(|rate| ("rate", rate)));
    said.extend(executor.weight.map(|weight| ("weight", weight.to_string())));
    let regularly = executor.regularly.iter();
    said.extend(regularly.map(|it| ("regularly", format!("{} every {}", it.takes, it.every))));
    said.extend(executor.reserve.map(|reserve| ("reserve", format!("{reserve} %"))));
    let (what, is) = match (executor.polls, executor.verdicts) {
        (true, _) => ("worker", "asks for jobs under this name"),
        (false, true) => ("verdicts", "told and confirmed"),
        (false, false) => ("verdicts", "not wanted"),
    };
    said.push((what, is.to_owned()));
    let line = |(what, is): &(&str, String)| {
        format!("{}  {}\n", paint(DIM, format!("{what:9}")), plain(is))
    };
    let said: String = said.iter().map(line).collect();
    format!("{said}\n{}", table(std::slice::from_ref(executor)))
}

fn table(executors: &[ExecutorState]) -> String {
    let mut table = Table::new(&["EXECUTOR", "STATE", "TYPE", "HAS", "PACE", "DONE", "TROUBLE"]);
    for executor in executors {
        for (place, of_type) in executor.types.iter().enumerate() {
            table.row(row(executor, of_type, place == 0));
        }
    }
    table.render("")
}

fn row(executor: &ExecutorState, of_type: &ExecutorTypeState, is_first: bool) -> [Cell; 7] {
    let state = match (executor.condition, executor.polls) {
        (ExecutorCondition::Ready, _) if of_type.failing => Cell::styled(BAD, "failing"),
        (ExecutorCondition::Ready, false) => Cell::styled(GOOD, "ready"),
        (ExecutorCondition::Ready, true) => Cell::styled(GOOD, "polls"),
        (ExecutorCondition::Resting, _) => Cell::styled(WARN, "resting"),
        (ExecutorCondition::Suspected, false) => Cell::styled(BAD, "silent"),
        (ExecutorCondition::Suspected, true) => Cell::styled(BAD, "polls, silent"),
    };
    let limit = of_type.limit.map_or_else(String::new, |limit| format!("/{limit}"));
    let blank = || Cell::from(String::new());
    let name = Cell::styled(STRONG, &executor.name);
    let pace = of_type.pace_ms.map_or_else(|| "not known".to_owned(), pace);
    [
        if is_first { name } else { blank() },
        if is_first || of_type.failing { state } else { blank() },
        Cell::from(of_type.kind.clone()),
        Cell::from(format!("{}{limit}", of_type.outstanding)),
        Cell::from(pace),
        Cell::from(of_type.answers.to_string()),
        Cell::styled(WARN, trouble(executor, of_type, is_first)),
    ]
}

/// Problems; cases wait for unacknowledged verdicts.
fn trouble(executor: &ExecutorState, of_type: &ExecutorTypeState, is_first: bool) -> String {
    let unconfirmed = if is_first { executor.unconfirmed.to_string() } else { String::new() };
    let counts = [
        (of_type.timeouts.to_string(), "timed out"),
        (of_type.failures.to_string(), "failed"),
        (unconfirmed, "not confirmed"),
    ];
    let some = counts.iter().filter(|(count, _)| !matches!(count.as_str(), "" | "0"));
    some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// The service time of a task of size 1, in words.
fn pace(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1_000.0) }
}

fn of_type(text: &str) -> Result<(String, TypeLimit), String> {
    let wrong = || format!("`{text}` is not of the form TYPE[=LIMIT][@RATE], such as score=4@10/s");
    let (rest, rate) = match text.split_once('@') {
        Some((rest, rate)) => (rest, Some(rate.to_owned())),
        None => (text, None),
    };
    let (kind, limit) = match rest.split_once('=') {
        Some((kind, limit)) => (kind, Some(limit.parse().map_err(|_| wrong())?)),
        None => (rest, None),
    };
    if kind.is_empty() { Err(wrong()) } else { Ok((kind.to_owned(), TypeLimit { limit, rate })) }
}

fn regularly(text: &str) -> Result<Regularly, String> {
    let wrong = || format!("`{text}` is not of the form TAKES/EVERY, such as 5m/1h");
    let (takes, every) = text.split_once('/').ok_or_else(wrong)?;
    Ok(Regularly { every: every.to_owned(), takes: takes.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_may_have_a_limit_and_a_rate() {
        let rate = |text: &str| Some(text.to_owned());
        for (text, limit, rate) in [
            ("score", None, None),
            ("score=4", Some(4), None),
            ("score@10/s", None, rate("10/s")),
            ("score=4@600/m", Some(4), rate("600/m")),
        ] {
            assert_eq!(of_type(text), Ok(("score".to_owned(), TypeLimit { limit, rate })));
        }
        assert!(of_type("=4").is_err() && of_type("score=many").is_err());
    }

    #[test]
    fn one_executor_is_shown_with_all_it_said_and_all_that_was_seen() {
        let of_type = ExecutorTypeState {
            kind: "score".to_owned(),
            limit: Some(4),
            outstanding: 3,
            pace_ms: Some(41.0),
            answers: 1_204,
            timeouts: 0,
            failures: 2,
            failing: false,
        };
        let executor = ExecutorState {
            name: "crm".to_owned(),
            polls: false,
            url: Some("http://crm.example:7001/legwork".to_owned()),
            domain: Some("north".to_owned()),
            limit: Some(16),
            at_once: Some(2),
            rate: Some("10/s".to_owned()),
            weight: None,
            regularly: vec![regularly("5m/1h").unwrap()],
            reserve: Some(10),
            verdicts: true,
            condition: ExecutorCondition::Suspected,
            unconfirmed: 7,
            types: vec![of_type],
        };
        insta::assert_snapshot!(anstream::adapter::strip_str(&one(&executor)).to_string(), @r"
        address    http://crm.example:7001/legwork
        domain     north
        at a time  16
        works on   2
        rate       10/s
        regularly  5m every 1h
        reserve    10 %
        verdicts   told and confirmed

        EXECUTOR  STATE   TYPE   HAS  PACE     DONE  TROUBLE
        crm       silent  score  3/4  41.0 ms  1204  2 failed, 7 not confirmed
        ");
    }

    #[test]
    fn workers_and_those_that_fail_are_told_apart_in_the_table() {
        let own = |name: &str, polls: bool, condition: &str, limit: Option<u32>| {
            let of_type = json!({"type": "score", "outstanding": 1, "limit": limit,
                "answers": 7, "timeouts": 0, "failures": 2, "failing": name == "erp"});
            let wire = json!({"name": name, "polls": polls, "verdicts": !polls,
                "condition": condition, "unconfirmed": 0, "types": [of_type]});
            serde_json::from_value::<ExecutorState>(wire).unwrap()
        };
        let crm = own("crm", false, "ready", Some(16));
        let (robot, drone) =
            (own("robot", true, "ready", None), own("drone", true, "suspected", None));
        let erp = own("erp", false, "ready", Some(16));
        let told = anstream::adapter::strip_str(&table(&[crm, erp, robot, drone])).to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows: Vec<String> = told.lines().skip(1).map(words).collect();
        assert_eq!(
            rows,
            [
                "crm ready score 1/16 not known 7 2 failed",
                "erp failing score 1/16 not known 7 2 failed",
                "robot polls score 1 not known 7 2 failed",
                "drone polls, silent score 1 not known 7 2 failed",
            ]
        );
    }

    #[test]
    fn executors_are_shown_with_what_they_have_not_confirmed() {
        let of_type = |kind: &str, failures| ExecutorTypeState {
            kind: kind.to_owned(),
            limit: Some(16),
            outstanding: 3,
            pace_ms: Some(41.0),
            answers: 1_204,
            timeouts: 0,
            failures,
            failing: kind == "mail",
        };
        let executor = |name: &str, condition, unconfirmed, types| ExecutorState {
            name: name.to_owned(),
            polls: false,
            url: Some("http://crm.example".to_owned()),
            domain: None,
            limit: Some(16),
            at_once: None,
            rate: None,
            weight: None,
            regularly: Vec::new(),
            reserve: None,
            verdicts: true,
            condition,
            unconfirmed,
            types,
        };
        let all = [
            executor("crm", ExecutorCondition::Ready, 0, vec![of_type("score", 2)]),
            executor(
                "erp",
                ExecutorCondition::Ready,
                7,
                vec![of_type("score", 0), of_type("mail", 3)],
            ),
        ];
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&all)).to_string(), @r"
        EXECUTOR  STATE    TYPE   HAS   PACE     DONE  TROUBLE
        crm       ready    score  3/16  41.0 ms  1204  2 failed
        erp       ready    score  3/16  41.0 ms  1204  7 not confirmed
                  failing  mail   3/16  41.0 ms  1204  3 failed
        ");
    }
}
