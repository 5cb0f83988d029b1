//! `legwork suspend`, `resume` and `abort`.
//!
//! Invariant: each prints the full id of the instance, since it may have been abbreviated.

use anyhow::Result;
use legwork_api::instances::InstanceState;
use legwork_model::id::InstanceId;
use serde_json::json;

use crate::context::Context;
use crate::style::{GOOD, STRONG, paint};
use crate::tree;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The instance: its id, the end of it, or `last`
    instance: String,
    /// Why; it stands in the history
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) async fn suspend(context: &Context, args: &Args) -> Result<()> {
    let id = context.instance(&args.instance).await?;
    context.client.suspend(id, args.reason.as_deref()).await?;
    tell(context, id, InstanceState::Suspended)
}

pub(crate) async fn resume(context: &Context, args: &Args) -> Result<()> {
    let id = context.instance(&args.instance).await?;
    context.client.resume(id, args.reason.as_deref()).await?;
    tell(context, id, InstanceState::Running)
}

pub(crate) async fn abort(context: &Context, args: &Args) -> Result<()> {
    let id = context.instance(&args.instance).await?;
    context.client.abort(id, args.reason.as_deref()).await?;
    tell(context, id, InstanceState::Aborted)
}

fn tell(context: &Context, instance: InstanceId, state: InstanceState) -> Result<()> {
    let document = json!({"instance": instance.to_string(), "state": state});
    context.out.answer(&document, || {
        let word = tree::state_name(state);
        format!("{} {} is {word}\n", paint(GOOD, "✔"), paint(STRONG, instance))
    })
}
