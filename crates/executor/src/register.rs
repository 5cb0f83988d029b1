//! Registers the executor, at the start and whenever Legwork does not know it.
//!
//! Invariant: the registration is resent with exponential back-off until it is acknowledged.

use std::time::Duration;

use legwork_api::Client;
use legwork_api::executors::ExecutorRequest;

use crate::serve::{Pauses, Shared};

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn keep(shared: &Shared, client: &Client, request: &ExecutorRequest) {
    let name = &shared.executor.name;
    loop {
        let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let holds = Some(shared.memory().load().holds);
            let request = ExecutorRequest { holds, ..request.clone() };
            let Err(error) = client.register_executor(name, &request).await else { break };
            tracing::warn!(executor = name, %error, "retrying the registration");
            pauses.wait().await;
        }
        tracing::info!(executor = name, url = request.url, "registered");
        shared.unknown.notified().await;
        tracing::info!(executor = name, "Legwork does not know this executor: registering again");
    }
}
