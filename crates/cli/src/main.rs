//! `legwork`, the one binary: parses the command line and calls the command.
//!
//! Invariant: every command answers through `output` and fails through `failure`, so that `--json`
//! and exit codes mean the same everywhere.

mod abbreviate;
mod args;
mod backup;
mod by;
mod check;
mod cluster;
mod compact;
mod context;
mod control;
mod deadline;
mod demo;
mod deploy;
mod deployed;
mod executors;
mod failure;
mod file;
mod findings;
mod gantt;
mod history;
mod incidents;
mod jobs;
mod layout;
mod list;
mod output;
mod progress;
mod reconfigure;
mod schedules;
mod schema;
mod show;
mod source;
mod start;
mod style;
mod table;
mod token;
mod tree;
mod up;
mod values;
mod when;
mod work;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use args::{Cli, Command, Global};
use context::Context;
use output::Output;

/// A server allocates on one thread and frees on another all the time: this allocator is made for
/// it, and saves a tenth of the CPU time of a step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::misread(&error),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, json),
    }
}

fn run(cli: Cli) -> Result<()> {
    let Cli { global, command } = cli;
    let out = Output { json: global.json };
    match command {
        // Without a server.
        Command::Check(args) => check::run(&args, out),
        Command::Schema(args) => schema::run(&args),
        Command::Restore(args) => backup::restore(&args, out),
        Command::Compact(args) => compact::run(&args, out),
        Command::Completions(args) => schema::completions(&args, out),
        // As a server.
        Command::Up(args) => up::run(args, out),
        Command::Demo(args) => demo::run(&args, out),
        // With a server.
        Command::Deploy(args) => {
            online(&global, async |context| deploy::run(&context, &args).await)
        }
        Command::Processes(args) => {
            online(&global, async |context| deployed::processes(&context, &args).await)
        }
        Command::Organisation => {
            online(&global, async |context| deployed::organisation(&context).await)
        }
        Command::File(args) => online(&global, async |context| file::run(&context, &args).await),
        Command::Start(args) => online(&global, async |context| start::run(&context, &args).await),
        Command::Deadline(args) => {
            online(&global, async |context| deadline::run(&context, &args).await)
        }
        Command::Show(args) => online(&global, async |context| show::run(&context, &args).await),
        Command::History(args) => {
            online(&global, async |context| history::run(&context, &args).await)
        }
        Command::List(args) => online(&global, async |context| list::run(&context, &args).await),
        Command::Work(args) => online(&global, async |context| work::run(&context, &args).await),
        Command::Incidents(args) => {
            online(&global, async |context| incidents::list(&context, &args).await)
        }
        Command::Resolve(args) => {
            online(&global, async |context| incidents::resolve(&context, &args).await)
        }
        Command::Suspend(args) => {
            online(&global, async |context| control::suspend(&context, &args).await)
        }
        Command::Resume(args) => {
            online(&global, async |context| control::resume(&context, &args).await)
        }
        Command::Abort(args) => {
            online(&global, async |context| control::abort(&context, &args).await)
        }
        Command::Jobs(args) => online(&global, async |context| jobs::run(&context, &args).await),
        Command::Cluster(args) => cluster(&global, out, &args.command),
        Command::Backup(args) => {
            online(&global, async |context| backup::backup(&context, &args).await)
        }
        Command::Executors(args) => {
            online(&global, async |context| executors::run(&context, &args).await)
        }
        Command::Schedules(args) => {
            online(&global, async |context| schedules::run(&context, &args).await)
        }
        Command::Token(args) => online(&global, async |context| token::run(&context, &args).await),
    }
}

fn cluster(global: &Global, out: Output, command: &cluster::Command) -> Result<()> {
    match command {
        cluster::Command::Init(args) => cluster::init(args, out),
        cluster::Command::Certify(args) => cluster::certify(args, out),
        cluster::Command::Show(args) => {
            online(global, async |context| cluster::show(&context, args).await)
        }
        cluster::Command::Publish(args) => {
            online(global, async |context| cluster::publish(&context, args).await)
        }
        cluster::Command::Status => online(global, async |context| cluster::status(&context).await),
        cluster::Command::Add(args) => {
            online(global, async |context| reconfigure::add(&context, args).await)
        }
        cluster::Command::Reweigh(args) => {
            online(global, async |context| reconfigure::reweigh(&context, args).await)
        }
        cluster::Command::Drain(args) => {
            online(global, async |context| reconfigure::drain(&context, args).await)
        }
        cluster::Command::Remove(args) => {
            online(global, async |context| reconfigure::remove(&context, args).await)
        }
        cluster::Command::Replace(args) => {
            online(global, async |context| reconfigure::replace(&context, args).await)
        }
        cluster::Command::Undo(args) => {
            online(global, async |context| reconfigure::undo(&context, args).await)
        }
        cluster::Command::Links => online(global, async |context| cluster::links(&context).await),
    }
}

/// Runs a command that calls a server. One thread suffices for waiting.
fn online(global: &Global, command: impl AsyncFnOnce(Context) -> Result<()>) -> Result<()> {
    let context = Context::new(global)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(command(context))
}
