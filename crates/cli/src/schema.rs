//! `legwork schema` and `legwork completions`: for editors and shells.
//!
//! Invariant: both are printed exactly as their readers expect; with `--json` a script is text
//! within one document.

use anyhow::Result;
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

use crate::args::Cli;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to describe
    #[arg(value_enum, default_value = "definition")]
    of: Described,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Described {
    Definition,
    Organisation,
    Topology,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// Your shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let schema = match args.of {
        Described::Definition => legwork_model::json_schema::definition(),
        Described::Organisation => legwork_org::json_schema(),
        Described::Topology => legwork_placement::json_schema(),
    };
    // JSON is the output for people and programs here.
    Output { json: true }.answer(&schema, String::new)
}

pub(crate) fn completions(args: &CompletionArgs, out: Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "legwork", &mut script);
    let script = String::from_utf8(script)?;
    out.answer(&json!({"shell": args.shell.to_string(), "script": script}), || script.clone())
}
