//! `legwork show`: an instance as it is, or as it goes on.
//!
//! Invariant: watching ends by itself when the instance has.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use legwork_api::instances::{Instance, InstanceState};

use crate::context::Context;
use crate::output;
use crate::tree;

/// How often a watched instance is looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// Back to the top, and everything below gone.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The instance: its id, the end of it, or `last`
    instance: String,
    /// Show it again whenever it has changed, until it has ended
    #[arg(long, short)]
    watch: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let id = context.instance(&args.instance).await?;
    let mut instance = context.client.instance(id, Duration::ZERO).await?;
    if !args.watch {
        return context.out.answer(&instance, || tree::render(&instance));
    }
    print(context, &instance)?;
    while !is_over(&instance) {
        // Answers at once when it ends, and else in time for a look at what has changed.
        let newer = context.client.instance(id, INTERVAL).await?;
        if newer != instance {
            print(context, &newer)?;
        }
        instance = newer;
    }
    Ok(())
}

fn is_over(instance: &Instance) -> bool {
    match instance.summary.state {
        InstanceState::Completed | InstanceState::Aborted => true,
        InstanceState::Running | InstanceState::Suspended => false,
    }
}

fn print(context: &Context, instance: &Instance) -> Result<()> {
    context.out.event(instance, || {
        let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
        format!("{clear}{}", tree::render(instance))
    })?;
    if !context.out.json && !std::io::stdout().is_terminal() {
        output::write("\n")?;
    }
    Ok(())
}
