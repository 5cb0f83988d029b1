//! `legwork jobs work`: a worker made of a shell command.
//!
//! Invariant: a job is reported once: completed with the output of the command, or failed with the
//! reason. While a command runs its lease is extended, so that no other worker does the same job.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use legwork_api::client::Error;
use legwork_api::jobs::{
    ActivateRequest, CompleteJobsRequest, CompletedJob, ExtendJobsRequest, FailJobsRequest,
    FailedJob, Job, JobResults, LeasedJob,
};
use legwork_api::{Data, Problem};
use legwork_model::time::parse_duration;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, Command as Process};
use tokio::time::Instant;

use crate::context::Context;
use crate::output::remark;
use crate::start;
use crate::style::{BAD, DIM, GOOD, STRONG, WARN, paint, plain, shorten};
use crate::values::{Types, ValueArgs};

/// The wait time of one request for a job.
const WAIT: Duration = Duration::from_secs(30);
/// The pause before an unreachable server is asked again.
const PAUSE: Duration = Duration::from_millis(500);
/// The length of the error output that is sent as the reason of a failure.
const ERROR_CHARS: usize = 1_000;
/// The length of the error output that is searched for the reason.
const TAIL_BYTES_MAX: usize = 8 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Take jobs of a type, run a command for each, and report what came of it
    Work(WorkArgs),
}

#[derive(Debug, clap::Args)]
struct WorkArgs {
    /// The type of jobs, as `job:` of the steps says
    #[arg(value_name = "TYPE")]
    kind: String,
    /// A shell command. It gets the job's data as a JSON object on its input, and what it prints,
    /// a JSON object, is the result; another exit code than 0 is a failure. The variables
    /// LEGWORK_JOB, LEGWORK_TYPE, LEGWORK_PROCESS and LEGWORK_ATTEMPT tell about the job
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["set", "data"])]
    exec: Option<String>,
    #[command(flatten)]
    values: ValueArgs,
    /// End after so many jobs
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after one job
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// The name of this worker in the history
    #[arg(long, default_value = "shell")]
    name: String,
    /// How long a job is ours without a sign of life
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    lease: Duration,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let Command::Work(args) = &args.command;
    let mut left = if args.once { Some(1) } else { args.count };
    let mut reached = false;
    while left != Some(0) {
        let taken = tokio::select! {
            taken = take(context, args) => taken,
            // No job is held: nothing is lost.
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let job = match taken {
            Ok(job) => job,
            // A server that was reached comes back; one that never was has a wrong address.
            Err(error) if reached && passes(&error) => {
                remark(&paint(WARN, format!("{error}; trying again")));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if !reached {
            // A failure only costs the failover when this server goes away.
            drop(context.client.discover().await);
        }
        reached = true;
        let Some(job) = job else { continue };
        work(context, args, &job).await?;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

async fn take(context: &Context, args: &WorkArgs) -> Result<Option<Job>, Error> {
    let request = ActivateRequest {
        worker: args.name.as_str().into(),
        types: vec![args.kind.as_str().into()],
        max: 1,
        lease_ms: millis(args.lease),
        wait_ms: millis(WAIT),
    };
    Ok(context.client.activate(&request).await?.jobs.pop())
}

async fn work(context: &Context, args: &WorkArgs, job: &Job) -> Result<()> {
    let outcome = match &args.exec {
        Some(command) => tokio::select! {
            outcome = execute(command, job) => outcome,
            error = keep(context, args, job) => Err(error),
        },
        None => {
            let types = match args.values.needs_types() {
                true => start::types(context, &job.process, None).await,
                false => Types::new(),
            };
            args.values.data(&types)
        }
    };
    let done = outcome.is_ok();
    let outcome = outcome.map_err(|error| shorten(&format!("{error:#}"), ERROR_CHARS));
    match report(context, args, job, &outcome).await? {
        None => tell(context, job, &outcome),
        // Another worker has the job now, or it is done: nothing is lost.
        Some(problem)
            if !done || matches!(problem.code.as_str(), "lease_lost" | "job_not_open") =>
        {
            remark(&paint(WARN, problem));
            Ok(())
        }
        // The result is invalid: the person responsible is told by the retries.
        Some(problem) => {
            let outcome = Err(shorten(&problem.detail, ERROR_CHARS));
            match report(context, args, job, &outcome).await? {
                None => tell(context, job, &outcome),
                Some(problem) => {
                    remark(&paint(WARN, problem));
                    Ok(())
                }
            }
        }
    }
}

fn tell(context: &Context, job: &Job, outcome: &Result<Data, String>) -> Result<()> {
    let id = job.job.to_string();
    let document = match outcome {
        Ok(data) => json!({"job": id, "done": "completed", "data": data}),
        Err(error) => json!({"job": id, "done": "failed", "error": error}),
    };
    context.out.event(&document, || match outcome {
        Ok(_) => format!("{} {}\n", paint(GOOD, "✔"), paint(STRONG, id)),
        Err(error) => {
            format!("{} {} {}\n", paint(BAD, "✘"), paint(STRONG, id), paint(DIM, plain(error)))
        }
    })
}

/// Reports the outcome of the job, with retries; returns the refusal.
async fn report(
    context: &Context,
    args: &WorkArgs,
    job: &Job,
    outcome: &Result<Data, String>,
) -> Result<Option<Problem>> {
    let worker: Arc<str> = args.name.as_str().into();
    let (id, lease) = (job.job.clone(), job.lease);
    let deadline = Instant::now() + args.lease;
    loop {
        let (worker, job) = (worker.clone(), id.clone());
        let reported = match outcome.clone() {
            Ok(data) => {
                let jobs = vec![CompletedJob { job, lease, data }];
                context.client.complete_jobs(&CompleteJobsRequest { worker, jobs }).await
            }
            Err(error) => {
                let jobs = vec![FailedJob { job, lease, error, retry: true }];
                context.client.fail_jobs(&FailJobsRequest { worker, jobs }).await
            }
        };
        match reported {
            Ok(results) => return Ok(refusal(results)),
            Err(error) if passes(&error) && Instant::now() < deadline => {
                remark(&paint(WARN, format!("{error}; trying again")));
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs the command and reads its result.
async fn execute(command: &str, job: &Job) -> Result<Data> {
    let mut child = Process::new("sh")
        .args(["-c", command])
        .env("LEGWORK_JOB", job.job.to_string())
        .env("LEGWORK_TYPE", &*job.kind)
        .env("LEGWORK_PROCESS", &*job.process)
        .env("LEGWORK_ATTEMPT", job.attempt.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run sh")?;
    let input = serde_json::to_vec(&job.data)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command need not read its input; a broken pipe is no failure.
            let _ = stdin.write_all(&input).await;
        }
    };
    let (output, (), last) = tokio::join!(child.wait_with_output(), feed, pass_on(stderr));
    let output = output.context("the command cannot be waited for")?;
    if !output.status.success() {
        match last.as_str() {
            "" => bail!("the command ended with {}", output.status),
            last => bail!("{last}"),
        }
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(Data::new());
    }
    serde_json::from_slice(&output.stdout).context("the command did not print a JSON object")
}

/// Passes the error output on; returns its last nonempty line.
async fn pass_on(stderr: Option<ChildStderr>) -> String {
    let (mut stderr, mut tail, mut piece) = match stderr {
        Some(stderr) => (stderr, Vec::new(), [0; 4_096]),
        None => return String::new(),
    };
    while let Ok(bytes @ 1..) = stderr.read(&mut piece).await {
        let piece = &piece[..bytes];
        // The error output may be closed; the job goes on nevertheless.
        let _ = std::io::stderr().write_all(piece);
        tail.extend_from_slice(piece);
        let surplus = tail.len().saturating_sub(TAIL_BYTES_MAX);
        tail.drain(..surplus);
    }
    let said = String::from_utf8_lossy(&tail);
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// Extends the lease until dropped; returns why it cannot.
async fn keep(context: &Context, args: &WorkArgs, job: &Job) -> anyhow::Error {
    let pause = (args.lease / 3).max(Duration::from_millis(100));
    loop {
        tokio::time::sleep(pause).await;
        let request = ExtendJobsRequest {
            worker: args.name.as_str().into(),
            jobs: vec![LeasedJob { job: job.job.clone(), lease: job.lease }],
            lease_ms: millis(args.lease),
        };
        // An unreachable server may be back before the lease expires.
        if let Ok(results) = context.client.extend_jobs(&request).await
            && let Some(problem) = refusal(results)
        {
            return problem.into();
        }
    }
}

fn refusal(results: JobResults) -> Option<Problem> {
    results.results.into_iter().find_map(|result| result.problem)
}

/// Whether the same request may succeed later.
fn passes(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::Broken { .. } | Error::TimedOut { .. } => true,
        Error::Problem(problem) => problem.is_temporary(),
        Error::BadAddress { .. }
        | Error::BadToken
        | Error::BadArgument { .. }
        | Error::Unexpected { .. } => false,
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
