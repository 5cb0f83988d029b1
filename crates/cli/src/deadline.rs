//! `legwork deadline`: questions about deadlines, promises, and plans.
//!
//! Invariant: no command here starts or promises a case. A question leaves only the files of `--file`, which are
//! stored first, and an offer that the server holds for five minutes.

mod list;
mod show;

use anyhow::{Result, anyhow};
use legwork_api::client;
use legwork_api::deadlines::{Deadline, DeadlineRequest, PlanKind};
use legwork_api::instances::{InstanceState, InstanceSummary};
use legwork_model::time::Timestamp;
use serde::Serialize;

use crate::by::{self, By};
use crate::context::Context;
use crate::deployed::named;
use crate::start::CaseArgs;
use crate::style::{DIM, GOOD, STRONG, paint};
use crate::{gantt, layout, when};

/// Without a terminal.
const WIDTH: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Ask whether a case could be promised, without starting it
    Ask(AskArgs),
    /// List cases with a deadline: promised or not, what is next and by whom
    List(list::Args),
    /// Show the steps on the way to a deadline, as planned and as they went
    Show {
        /// The instance: its id, the end of it, or `last`
        instance: String,
    },
    /// Draw what a person or an executor is to do when
    ///
    /// It ends with the last task; █ is worked on for half of its time or more, ▏ for less. With --json the same time is
    /// printed.
    Plan(PlanArgs),
}

#[derive(Debug, clap::Args)]
struct AskArgs {
    #[command(flatten)]
    case: CaseArgs,
    /// By when: a moment with its zone, or a time from now such as 3d
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    by: By,
}

#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// The person or the executor
    name: String,
    /// The executor, where a person has the same name
    #[arg(long)]
    executor: bool,
    /// How wide the chart may be [default: as wide as the terminal]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Ask(args) => ask(context, args).await,
        Command::List(args) => list::list(context, args).await,
        Command::Show { instance } => show::show(context, instance).await,
        Command::Plan(args) => plan(context, args).await,
    }
}

async fn ask(context: &Context, args: &AskArgs) -> Result<()> {
    let mut request = args.case.request(context).await?;
    let at = args.by.moment(legwork_server::now());
    request.deadline = Some(DeadlineRequest::new(at));
    let deadline = match context.client.ask_deadline(&request).await {
        Ok(deadline) => deadline,
        Err(error) => return Err(named(context, error, &args.case.process).await.into()),
    };
    context.out.answer(&deadline, || asked(&args.case.process, &deadline))
}

fn asked(process: &str, deadline: &Deadline) -> String {
    let (mark, at) = (paint(GOOD, "✔"), paint(STRONG, when::minute(deadline.at)));
    let start = format!("legwork start {process} --by {}", deadline.at);
    let next = format!("held for five minutes from when it was first offered; `{start}` takes it");
    format!("{mark} can be promised for {at}\n{}{}\n", by::steps(&deadline.steps), paint(DIM, next))
}

/// The state of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    Promised,
    /// It could not be promised at the start.
    NotPromised,
    /// The promise was revoked.
    Revoked,
    /// It is not promised, and the remaining work takes longer than the remaining time.
    InDanger,
    /// It has passed, and the case has not ended or ended later.
    Late,
    /// The case ended in time.
    InTime,
    Aborted,
}

fn standing(summary: &InstanceSummary, deadline: &Deadline, now: Timestamp) -> Standing {
    match (summary.state, summary.ended_at) {
        (InstanceState::Aborted, _) => Standing::Aborted,
        (InstanceState::Completed, Some(ended))
            if ended <= deadline.at && deadline.passed.is_none() =>
        {
            Standing::InTime
        }
        (InstanceState::Completed, _) => Standing::Late,
        (InstanceState::Running | InstanceState::Suspended, _) if now > deadline.at => {
            Standing::Late
        }
        (InstanceState::Running | InstanceState::Suspended, _)
            if deadline.in_danger_from.is_some_and(|from| from <= now) =>
        {
            Standing::InDanger
        }
        (InstanceState::Running | InstanceState::Suspended, _) if deadline.promised => {
            Standing::Promised
        }
        (InstanceState::Running | InstanceState::Suspended, _) => match deadline.revoked {
            Some(_) => Standing::Revoked,
            None => Standing::NotPromised,
        },
    }
}

async fn plan(context: &Context, args: &PlanArgs) -> Result<()> {
    let kind = args.executor.then_some(PlanKind::Executor);
    let mut plan = match context.client.plan(&args.name, kind).await {
        Ok(plan) => plan,
        Err(error) => return Err(instead(context, error, args).await),
    };
    gantt::cut(&mut plan);
    let width = args.width.map(usize::from).or_else(layout::columns).unwrap_or(WIDTH);
    context.out.verbatim(&plan, || gantt::render(&plan, width))
}

/// If there is no such executor, but a person with this name, a hint for people; programs get the server's answer.
async fn instead(context: &Context, error: client::Error, args: &PlanArgs) -> anyhow::Error {
    let is_unknown = error.code() == Some("no_such_resource");
    let name = &args.name;
    if args.executor
        && is_unknown
        && !context.out.json
        && context.client.plan(name, Some(PlanKind::Person)).await.is_ok()
    {
        return anyhow!(
            "there is no executor `{name}`; there is a person of that name: leave out --executor"
        );
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use legwork_api::Problem;
    use legwork_api::client::Client;
    use legwork_api::deadlines::Plan;
    use legwork_api::instances::{Instance, Performer};

    use super::*;
    use crate::by::tests::deadline;
    use crate::output::Output;
    use crate::tree::tests::{node, summary};

    pub(super) fn with_deadline(state: InstanceState) -> InstanceSummary {
        InstanceSummary { deadline: Some(deadline()), ..summary(state) }
    }

    pub(super) fn instance(nodes: &[&str]) -> Instance {
        Instance {
            summary: with_deadline(InstanceState::Running),
            title: "Loan".into(),
            started_by: Performer::System,
            result: None,
            data: Vec::new(),
            nodes: nodes.iter().map(|text| node(text)).collect(),
            elsewhere: Vec::new(),
            unreachable: Vec::new(),
        }
    }

    pub(super) fn bare(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    /// A server that knows the person ann, and no executor; returns its address.
    fn office() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
                let is_executor = lines.next().unwrap().contains("kind=executor");
                lines.by_ref().find(String::is_empty);
                let unknown = Problem::new(404, "no_such_resource", "there is no `ann`");
                let (name, at) = ("ann".into(), Timestamp(0));
                let plan = Plan { name, kind: PlanKind::Person, at, turns: Vec::new() };
                let (status, kind, body) = match is_executor {
                    true => ("404 Not Found", "problem+json", serde_json::to_string(&unknown)),
                    false => ("200 OK", "json", serde_json::to_string(&plan)),
                };
                let body = body.unwrap();
                let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/{kind}");
                let length = format!("content-length: {}\r\nconnection: close", body.len());
                write!(stream, "{head}\r\n{length}\r\n\r\n{body}").unwrap();
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn a_person_who_was_taken_for_an_executor_is_pointed_out_to_people_and_not_to_programs() {
        let address = office();
        let refused = async |json: bool| {
            let client = Client::new(&address, None).unwrap();
            let context = Context { client, out: Output { json }, agent: None };
            let args = PlanArgs { name: "ann".to_owned(), executor: true, width: None };
            plan(&context, &args).await.unwrap_err()
        };
        let told = refused(false).await.to_string();
        assert!(told.contains("there is a person of that name: leave out --executor"), "{told}");
        let as_it_came = refused(true).await;
        let code = as_it_came.downcast_ref::<client::Error>().and_then(client::Error::code);
        assert_eq!(code, Some("no_such_resource"), "{as_it_came}");
    }

    #[test]
    fn an_answer_to_a_question_says_how_to_go_on() {
        insta::assert_snapshot!(bare(&asked("loan", &deadline())), @r"
        ✔ can be promised for 2026-03-02 16:00Z
          STEP   WHO           PLANNED
          check  ann           2026-03-01 08:00–11:00Z
          book   executor crm  2026-03-01 11:00Z
        held for five minutes from when it was first offered; `legwork start loan --by 2026-03-02T16:00:00.000Z` takes it
        ");
    }
}
