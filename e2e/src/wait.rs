//! Bounded waits for a condition: a minute at most.

use std::time::Duration;

use anyhow::{Result, bail};
use legwork_api::Client;
use legwork_api::client::InstanceQuery;

/// Waits until it holds; `what` is the message if it does not.
pub async fn until(what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
    for _ in 0..3_000 {
        if holds().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("{what} within a minute")
}

/// Waits until so many cases have ended, up to 1,000.
pub async fn until_ended(client: &Client, count: usize) -> Result<()> {
    let ended = InstanceQuery { ended: true, limit: Some(1_000), ..InstanceQuery::default() };
    // The server may still be starting.
    let have =
        async || Ok(client.instances(&ended).await.is_ok_and(|page| page.instances.len() == count));
    until("not all cases have ended", have).await
}
