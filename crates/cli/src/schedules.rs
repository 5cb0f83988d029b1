//! `legwork schedules`: periodic starts.
//!
//! Invariant: the outcome of the last start is shown with its reason, so that a start that fails every night is
//! noticed.

use std::time::Duration;

use anyhow::Result;
use legwork_api::instances::InstanceState;
use legwork_api::schedules::{LastStart, Schedule, ScheduleRequest, Within};
use legwork_model::event::Deadline;
use legwork_model::time::{format_duration, parse_duration};
use serde_json::json;

use crate::abbreviate::short;
use crate::context::Context;
use crate::deployed::named;
use crate::start::types;
use crate::style::{BAD, DIM, GOOD, STRONG, WARN, paint, plain};
use crate::table::{Cell, Table};
use crate::tree;
use crate::values::{Types, ValueArgs};
use crate::when;

/// The outcome of a start that was retried until the next moment came.
const MISSED: &str = "missed";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List schedules: when each starts what, and what came of the last start (the default)
    List,
    /// Show one schedule, with its data and what became of the last case
    Show {
        /// The name of the schedule
        name: String,
    },
    /// Start a process again and again from now on; the same again changes nothing
    Put(Put),
    /// Start nothing until it is resumed
    Pause {
        /// The name of the schedule
        name: String,
    },
    /// Go on with the next moment; those that have passed meanwhile are not started
    Resume {
        /// The name of the schedule
        name: String,
    },
    /// Take a schedule out; what it has started goes on
    Remove {
        /// The name of the schedule
        name: String,
    },
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["cron", "every"]))]
struct Put {
    /// What it is called
    name: String,
    /// The process; each time its newest version
    process: String,
    /// In local time: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "\"M H D M W\"")]
    cron: Option<String>,
    /// The zone of that clock, such as Europe/Berlin [default: UTC]
    #[arg(long, conflicts_with = "every")]
    zone: Option<String>,
    /// Each time after so long, such as 15m, from now on
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,
    #[command(flatten)]
    values: ValueArgs,
    /// How long after its moment each start is to be done, such as 4h. It is promised if it can be,
    /// and started all the same
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    by: Option<Duration>,
    /// From 0 to 9: a case that is promised can be displaced by a more important one
    #[arg(
        long, value_name = "N", requires = "by", default_value_t = Deadline::PRIORITY_DEFAULT,
        value_parser = clap::value_parser!(u8).range(0..=i64::from(Deadline::PRIORITY_MAX))
    )]
    priority: u8,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        None | Some(Command::List) => list(context).await,
        Some(Command::Show { name }) => show(context, name).await,
        Some(Command::Put(asked)) => put(context, asked).await,
        Some(Command::Pause { name }) => {
            context.client.pause_schedule(name).await?;
            tell(context, name, "paused", "is paused: it starts nothing until it is resumed")
        }
        Some(Command::Resume { name }) => {
            context.client.resume_schedule(name).await?;
            tell(context, name, "resumed", "goes on with its next moment")
        }
        Some(Command::Remove { name }) => {
            context.client.remove_schedule(name).await?;
            tell(context, name, "removed", "is taken out; what it has started goes on")
        }
    }
}

fn tell(context: &Context, name: &str, word: &str, said: &str) -> Result<()> {
    context.out.answer(&json!({word: name}), || {
        format!("{} {} {said}\n", paint(GOOD, "✔"), paint(STRONG, name))
    })
}

async fn put(context: &Context, asked: &Put) -> Result<()> {
    let types = match asked.values.needs_types() {
        true => types(context, &asked.process, None).await,
        false => Types::new(),
    };
    let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let within = |by| Within { within_ms: millis(by), priority: asked.priority };
    let request = ScheduleRequest {
        process: asked.process.as_str().into(),
        cron: asked.cron.as_deref().map(Into::into),
        zone: asked.zone.as_deref().map(Into::into),
        every_ms: asked.every.map(millis),
        data: asked.values.data(&types)?,
        agent: context.agent().map(Into::into),
        deadline: asked.by.map(within),
    };
    let put = match context.client.put_schedule(&asked.name, &request).await {
        Ok(put) => put,
        Err(error) => return Err(named(context, error, &asked.process).await.into()),
    };
    context.out.answer(&put, || {
        let (mark, name) = (paint(GOOD, "✔"), paint(STRONG, &asked.name));
        let before = if put.unchanged { paint(DIM, " (as before)") } else { String::new() };
        let next = match put.next_at {
            Some(next) => format!("starts {} next at {}", asked.process, when::minute(next)),
            None => "is paused".to_owned(),
        };
        format!("{mark} {name} {next}{before}\n")
    })
}

async fn list(context: &Context) -> Result<()> {
    let list = context.client.schedules().await?;
    context.out.answer(&list, || {
        if list.schedules.is_empty() {
            return "nothing is started periodically; `legwork schedules put` begins\n".to_owned();
        }
        table(&list.schedules)
    })
}

fn table(schedules: &[Schedule]) -> String {
    let mut table = Table::new(&["NAME", "PROCESS", "WHEN", "NEXT", "LAST", "CAME OF IT"]);
    for schedule in schedules {
        let last = schedule.last.as_ref();
        table.row([
            Cell::styled(STRONG, &schedule.name),
            Cell::from(&schedule.process),
            Cell::from(when(schedule)),
            next(schedule),
            Cell::styled(DIM, last.map_or_else(String::new, |last| when::minute(last.at))),
            last.map_or_else(|| Cell::from(""), outcome),
        ]);
    }
    table.render("")
}

fn when(schedule: &Schedule) -> String {
    match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => format!("{cron} {}", schedule.zone.as_deref().unwrap_or("UTC")),
        (None, Some(ms)) => format!("every {}", format_duration(Duration::from_millis(ms))),
        (None, None) => String::new(),
    }
}

fn next(schedule: &Schedule) -> Cell {
    match schedule.next_at {
        _ if schedule.paused => Cell::styled(WARN, "paused"),
        Some(next) => Cell::from(when::minute(next)),
        None => Cell::styled(WARN, "never"),
    }
}

fn outcome(last: &LastStart) -> Cell {
    match (&last.instance, last.promised) {
        (Some(id), None) => Cell::from(short(&id.to_string())),
        (Some(id), Some(true)) => Cell::from(format!("{} promised", short(&id.to_string()))),
        (Some(id), Some(false)) => {
            Cell::styled(WARN, format!("{} not promised", short(&id.to_string())))
        }
        (None, _) => match last.code.as_deref().unwrap_or_default() {
            MISSED => Cell::styled(BAD, MISSED),
            code => Cell::styled(BAD, format!("refused: {code}")),
        },
    }
}

async fn show(context: &Context, name: &str) -> Result<()> {
    let schedule = context.client.schedule(name).await?;
    let id = schedule.last.as_ref().and_then(|last| last.instance);
    let state = match id.filter(|_| !context.out.json) {
        Some(id) => context.client.instance(id, Duration::ZERO).await.ok(),
        None => None,
    };
    let state = state.map(|instance| instance.summary.state);
    context.out.answer(&schedule, || one(&schedule, state))
}

fn one(schedule: &Schedule, state: Option<InstanceState>) -> String {
    let mut lines = vec![("process", schedule.process.to_string()), ("when", when(schedule))];
    lines.extend(schedule.deadline.map(|deadline| {
        let within = format_duration(Duration::from_millis(deadline.within_ms));
        ("deadline", format!("within {within}, priority {}", deadline.priority))
    }));
    lines.extend(schedule.agent.as_ref().map(|agent| ("as", agent.to_string())));
    lines.push(("since", when::minute(schedule.put_at)));
    let by = Some(tree::performer(&schedule.by)).filter(|by| !by.is_empty());
    lines.extend(by.map(|by| ("by", by)));
    let next = match schedule.next_at {
        _ if schedule.paused => "paused; `legwork schedules resume` goes on".to_owned(),
        next => next.map_or_else(|| "never".to_owned(), when::minute),
    };
    lines.push(("next", next));
    if let Some(last) = &schedule.last {
        lines.push(("last", last_start(last, state)));
    }
    let line = |(what, is): &(&str, String)| {
        format!("{} {}\n", paint(DIM, format!("{what:9}")), plain(is))
    };
    let mut data = Table::bare();
    for (name, value) in &schedule.data {
        data.row([Cell::from(name), Cell::from(tree::value(value))]);
    }
    lines.iter().map(line).collect::<String>() + &data.render("  ")
}

fn last_start(last: &LastStart, state: Option<InstanceState>) -> String {
    let LastStart { at, instance, promised, code, detail } = last;
    let at = when::minute(*at);
    let Some(instance) = instance else {
        let (code, detail) = (code.as_deref(), detail.as_deref());
        return match (code.unwrap_or_default(), detail.unwrap_or_default()) {
            (MISSED, detail) => format!("{at} missed: {detail}"),
            (code, detail) => format!("{at} refused: {detail} ({code})"),
        };
    };
    let promised = match promised {
        None => "",
        Some(true) => ", promised",
        Some(false) => ", not promised",
    };
    let state = state.map(|state| format!(", {}", tree::state_name(state))).unwrap_or_default();
    format!("{at} started {instance}{promised}{state}")
}

#[cfg(test)]
mod tests {
    use legwork_api::instances::Performer;

    use super::*;
    use crate::by::tests::at;

    fn nightly() -> Schedule {
        Schedule {
            name: "nightly".into(),
            process: "report".into(),
            cron: Some("0 2 * * mon-fri".into()),
            zone: Some("Europe/Berlin".into()),
            every_ms: None,
            data: [("customer".to_owned(), json!("Ada"))].into(),
            agent: None,
            deadline: Some(Within { within_ms: 14_400_000, priority: 7 }),
            paused: false,
            by: Performer::Agent("token:desk".into()),
            put_at: at("2026-11-16T09:00:00Z"),
            next_at: Some(at("2026-11-18T01:00:00Z")),
            last: Some(LastStart {
                at: at("2026-11-17T01:00:00Z"),
                instance: Some("inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC".parse().unwrap()),
                promised: Some(false),
                code: None,
                detail: None,
            }),
        }
    }

    fn often() -> Schedule {
        let last = LastStart {
            at: at("2026-11-16T09:15:00Z"),
            instance: None,
            promised: None,
            code: Some("missing_input".to_owned()),
            detail: Some("`sum` is missing".to_owned()),
        };
        Schedule {
            name: "often".into(),
            process: "import".into(),
            cron: None,
            every_ms: Some(900_000),
            deadline: None,
            paused: true,
            by: Performer::System,
            next_at: None,
            last: Some(last),
            ..nightly()
        }
    }

    fn missed() -> Schedule {
        let (code, detail) = (Some("missed".to_owned()), Some("north-2 is away".to_owned()));
        let last = often().last.map(|last| LastStart { code, detail, ..last });
        Schedule { last, ..often() }
    }

    fn plainly(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn schedules_are_listed_with_what_came_of_them() {
        insta::assert_snapshot!(plainly(&table(&[nightly(), often(), missed()])), @r"
        NAME     PROCESS  WHEN                           NEXT               LAST               CAME OF IT
        nightly  report   0 2 * * mon-fri Europe/Berlin  2026-11-18 01:00Z  2026-11-17 01:00Z  8XJ2M6 not promised
        often    import   every 15m                      paused             2026-11-16 09:15Z  refused: missing_input
        often    import   every 15m                      paused             2026-11-16 09:15Z  missed
        ");
    }

    #[test]
    fn one_is_shown_with_its_data_and_what_became_of_its_case() {
        insta::assert_snapshot!(plainly(&one(&nightly(), Some(InstanceState::Running))), @r"
        process   report
        when      0 2 * * mon-fri Europe/Berlin
        deadline  within 4h, priority 7
        since     2026-11-16 09:00Z
        by        token:desk
        next      2026-11-18 01:00Z
        last      2026-11-17 01:00Z started inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC, not promised, running
          customer  Ada
        ");
        insta::assert_snapshot!(plainly(&one(&often(), None)), @r"
        process   import
        when      every 15m
        since     2026-11-16 09:00Z
        next      paused; `legwork schedules resume` goes on
        last      2026-11-16 09:15Z refused: `sum` is missing (missing_input)
          customer  Ada
        ");
        let missed = plainly(&one(&missed(), None));
        assert!(missed.contains("2026-11-16 09:15Z missed: north-2 is away\n"), "{missed}");
    }
}
