//! `legwork show`: an instance, once or continuously.
//!
//! Invariant: watching ends by itself when the instance has.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use legwork_api::instances::{Instance, InstanceState, Node, NodeState};

use crate::context::Context;
use crate::tree::{self, Taken};
use crate::{history, output};

/// The polling interval of a watched instance.
const INTERVAL: Duration = Duration::from_millis(500);
/// Home, and clear everything below; the scrollback is kept.
const CLEAR: &str = "\x1b[H\x1b[2J";

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
        let taken = taken(context, &instance).await?;
        return context.out.answer(&instance, || tree::render(&instance, &taken));
    }
    print(context, &instance).await?;
    while !is_over(&instance) {
        // Answers at once at the end, otherwise in time to check for changes.
        let newer = context.client.instance(id, INTERVAL).await?;
        if newer != instance {
            print(context, &newer).await?;
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

/// The taken branches, from the history: a branch without steps leaves no other trace.
async fn taken(context: &Context, instance: &Instance) -> Result<Taken> {
    let begun = |node: &Node| match node.state {
        NodeState::Completed | NodeState::Running => node.kind == "choice",
        NodeState::NotActivated
        | NodeState::Activated
        | NodeState::Claimed
        | NodeState::Answered
        | NodeState::Skipped
        | NodeState::Failed => false,
    };
    if context.out.json || !instance.nodes.iter().any(begun) {
        return Ok(Taken::default());
    }
    let history = history::read(context, instance.summary.instance).await?;
    Ok(Taken::of(history.entries))
}

async fn print(context: &Context, instance: &Instance) -> Result<()> {
    let taken = taken(context, instance).await?;
    context.out.event(instance, || {
        let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
        format!("{clear}{}", tree::render(instance, &taken))
    })?;
    if !context.out.json && !std::io::stdout().is_terminal() {
        output::write("\n")?;
    }
    Ok(())
}
