//! A small organisation and a small process that cover all operations of people and programs.
//!
//! Invariant: both pass the check without a finding.

use anyhow::Result;
use legwork_api::instances::StartRequest;
use legwork_api::{Client, Data};
use legwork_model::id::{ActivityId, InstanceId};
use serde_json::json;

/// Bob and Dora are clerks, Carla is a manager, Ann is neither.
pub const PEOPLE: &str = "\
organisation: fixture
agents:
  ann: { name: Ann Lee }
  bob: { name: Bob Marsh, roles: [clerk] }
  dora: { name: Dora Finn, roles: [clerk] }
  carla: { name: Carla Roth, roles: [manager] }
";

/// A clerk looks at something, then a program books it.
pub const ERRAND: &str = "\
process: errand
title: Run an errand
data:
  what: string
  ok: bool
  receipt: string
start: [what]
result: [ok, receipt]
steps:
  - step: look
    title: Look at it
    who: Role(clerk)
    reads: [what]
    writes: [ok]
  - step: book
    title: Book it
    job: book
    retry: { times: 1, pause: 1h }
    reads: [what, ok]
    writes: [receipt]
";

/// Deploys both.
pub async fn deploy(client: &Client) -> Result<()> {
    client.publish_organisation(PEOPLE).await?;
    client.deploy(ERRAND).await?;
    Ok(())
}

/// Starts an errand.
pub async fn start(client: &Client, what: &str) -> Result<InstanceId> {
    let request = StartRequest {
        process: "errand".into(),
        data: Data::from([("what".to_owned(), json!(what))]),
        ..StartRequest::default()
    };
    Ok(client.start(&request, None).await?.instance)
}

/// The activity of a step of an instance.
pub fn activity(instance: InstanceId, step: &str) -> ActivityId {
    ActivityId { instance, step: step.into(), iteration: Default::default() }
}
