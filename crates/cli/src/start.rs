//! `legwork start`: starts a case, with its data and files, and optionally waits for its end.
//!
//! Invariant: with a key, running the same command again never starts a second case.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use legwork_api::Data;
use legwork_api::client::Error;
use legwork_api::instances::{InstanceState, StartRequest, Started};
use legwork_model::time::{format_duration, parse_duration};
use tokio::time::Instant;

use crate::by::{self, By, DeadlineArgs};
use crate::context::Context;
use crate::deployed::named;
use crate::failure::Coded;
use crate::progress;
use crate::style::{DIM, GOOD, STRONG, paint};
use crate::table::{Cell, Table};
use crate::tree;
use crate::values::{FileArgs, Types, ValueArgs, types_of};

/// The longest wait of one request; longer waits take several.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// The process and the start data of a case.
#[derive(Debug, clap::Args)]
pub(crate) struct CaseArgs {
    /// The name of the process
    pub(crate) process: String,
    #[command(flatten)]
    values: ValueArgs,
    #[command(flatten)]
    files: FileArgs,
    /// The version of the process [default: the latest]
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    case: CaseArgs,
    #[command(flatten)]
    deadline: DeadlineArgs,
    /// Wait until the case has ended: 30 seconds, or a time such as 5m
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "30s", value_parser = parse_duration
    )]
    wait: Option<Duration>,
    /// Any text: the same command with the same key starts one case, however often it runs
    #[arg(long)]
    key: Option<String>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    if args.key.is_some() && matches!(args.deadline.by, Some(By::In(_))) {
        bail!("the same command again would ask for another deadline; with --key write a moment");
    }
    let mut request = args.case.request(context).await?;
    request.deadline = args.deadline.request(legwork_server::now());
    let mut started = match context.client.start(&request, args.key.as_deref()).await {
        Ok(started) => started,
        Err(error) => return Err(named(context, error, &args.case.process).await.into()),
    };
    // Before the wait: the user knows the case, whatever happens during the wait.
    context.out.people(|| begun(&started))?;
    let waited = match args.wait {
        Some(wait) => waited(context, &mut started, wait).await,
        None => Ok(()),
    };
    context.out.answer(&started, || ended(&started))?;
    waited
}

/// Waits for the end of a started case.
async fn waited(context: &Context, started: &mut Started, wait: Duration) -> Result<()> {
    let id = started.instance;
    let what = format!("waiting for {id}");
    let end = tokio::select! {
        end = progress::waiting(&what, until_ended(context, started, wait)) => end,
        _ = tokio::signal::ctrl_c() => {
            bail!("not waiting any more; the case goes on: `legwork show {id}`")
        }
    };
    match end {
        Ok(()) if is_over(started.state) => Ok(()),
        Ok(()) => {
            bail!("not ended after {}; look with `legwork show {id}`", format_duration(wait))
        }
        Err(Error::Unreachable { .. } | Error::Broken { .. } | Error::TimedOut { .. }) => {
            let text = format!(
                "the connection broke while waiting; the case goes on: `legwork show {id}`"
            );
            Err(Coded { code: "connection_broken", text }.into())
        }
        Err(error) => Err(error.into()),
    }
}

impl CaseArgs {
    /// The request to the server; files are stored there first.
    pub(crate) async fn request(&self, context: &Context) -> Result<StartRequest> {
        let types = match self.values.needs_types() {
            true => types(context, &self.process, self.version).await,
            false => Types::new(),
        };
        let mut data = self.values.data(&types)?;
        upload(context, &self.files, &mut data).await?;
        Ok(StartRequest {
            process: self.process.as_str().into(),
            version: self.version,
            data,
            agent: context.agent().map(Into::into),
            ..StartRequest::default()
        })
    }
}

/// The types of the elements, if this caller may read the definition.
pub(crate) async fn types(context: &Context, process: &str, version: Option<u32>) -> Types {
    let definition = context.client.definition(process, version).await;
    definition.map(|definition| types_of(&definition.source)).unwrap_or_default()
}

/// Stores files and puts their references into the data.
pub(crate) async fn upload(context: &Context, args: &FileArgs, data: &mut Data) -> Result<()> {
    for (element, path) in args.files() {
        let shown = path.display();
        let content = std::fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        let sending = context.client.upload(&name, media_type(&path), content.into());
        let file = progress::waiting(&format!("sending {shown}"), sending).await?;
        anyhow::ensure!(
            data.insert(element.to_owned(), serde_json::to_value(file)?).is_none(),
            "`{element}` is given twice; give it once"
        );
    }
    Ok(())
}

async fn until_ended(
    context: &Context,
    started: &mut Started,
    wait: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + wait;
    while !is_over(started.state) {
        let left = deadline.saturating_duration_since(Instant::now()).min(WAIT_MAX);
        if left.is_zero() {
            break;
        }
        let instance = context.client.instance(started.instance, left).await?;
        started.state = instance.summary.state;
        started.result = instance.result;
    }
    Ok(())
}

fn is_over(state: InstanceState) -> bool {
    matches!(state, InstanceState::Completed | InstanceState::Aborted)
}

/// The new case, and its deadline.
fn begun(started: &Started) -> String {
    let Started { instance, process, version, repeated, deadline, .. } = started;
    let word = if *repeated { "started before" } else { "started" };
    let of = format!("{process} v{version}");
    let id = paint(STRONG, instance);
    let mut out = format!("{} {word} {id} {}\n", paint(GOOD, "✔"), paint(DIM, of));
    if let Some(deadline) = deadline {
        out.push_str(&by::planned(deadline));
    }
    out
}

/// The end of the case, if it has ended.
fn ended(started: &Started) -> String {
    let mut out = match is_over(started.state) {
        true => format!("  {}\n", tree::state_name(started.state)),
        false => String::new(),
    };
    let mut table = Table::bare();
    for (name, value) in started.result.iter().flatten() {
        table.row([Cell::from(name), Cell::from(tree::value(value))]);
    }
    out.push_str(&table.render("  "));
    out
}

/// By the file extension; careful programs inspect the content.
fn media_type(path: &Path) -> &'static str {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    match end.to_ascii_lowercase().as_str() {
        "csv" => "text/csv",
        "gif" => "image/gif",
        "htm" | "html" => "text/html",
        "jpeg" | "jpg" => "image/jpeg",
        "json" => "application/json",
        "md" => "text/markdown",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "txt" => "text/plain",
        "xml" => "application/xml",
        "zip" => "application/zip",
        _ => "application/octet-stream",
    }
}
