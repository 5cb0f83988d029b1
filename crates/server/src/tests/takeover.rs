//! Servers of one database: when one stops, another takes over its instances.

use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_store::postgres::Shared;
use legwork_testbed::{Database, database};
use serde_json::Value as Json;

use super::servers::{Cluster, Node, shared, until, until_some};
use super::support::call;
use crate::status::Phase;

const SHARED: &str = "
topology: group
domains:
  north:
    store: shared
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://north-2\" }
      north-3: { address: \"127.0.0.1:PORT\", api: \"http://north-3\" }
";

async fn start(cluster: &Cluster, database: &Database, name: &str, hold: Duration) -> Node {
    let mut config = cluster.config(name, shared(database));
    config.takeover_hold = hold;
    cluster.start_with(name, config).await
}

impl Node {
    /// As soon as its holder can answer.
    async fn show(&self, instance: &InstanceId) -> Json {
        let path = format!("GET /v1/instances/{instance}");
        until_some(async || {
            let shown = self.send(call(&path)).await;
            (shown.status != 503).then(|| shown.json())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_server_stops_another_goes_on_with_it_and_gives_it_back() {
    let (cluster, database) = (Cluster::of(SHARED), database().unwrap());
    let hold = Duration::ZERO;
    let one = start(&cluster, &database, "north-1", hold).await;
    let two = start(&cluster, &database, "north-2", hold).await;
    one.until_known(&two).await;
    let instances = one.start_plain(2).await;
    assert!(instances.iter().all(|id| id.server().0 < 2), "nobody has ever been the third");

    two.server.stop().await;
    until(|| one.held() == ["north-1", "north-2"]).await;
    let theirs = instances.iter().find(|id| id.server().0 == 1).unwrap();
    assert_eq!(one.show(theirs).await["state"], "running");

    // Requests to the process of the second are answered until it has its server back.
    let two = start(&cluster, &database, "north-2", hold).await;
    assert_eq!(two.show(theirs).await["state"], "running");
    until(|| two.phase() == Phase::Ready && two.held() == ["north-2"]).await;
    until(|| one.held() == ["north-1"]).await;
    one.until_up("north-2").await;
    two.finish_all(&instances).await;
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_lost_its_lease_writes_nothing_more_and_passes_on_what_it_is_asked() {
    let (cluster, database) = (Cluster::of(SHARED), database().unwrap());
    let hold = Duration::from_secs(3_600);
    let one = start(&cluster, &database, "north-1", hold).await;
    let two = start(&cluster, &database, "north-2", hold).await;
    one.until_known(&two).await;
    let instances = one.start_plain(2).await;
    // As if it had been paused for longer than its lease lasts.
    let url = database.url().to_owned();
    let take = move || {
        let shared = Shared::connect(&url).unwrap();
        loop {
            let leases = shared.leases().unwrap();
            let lease = leases.into_iter().find(|lease| lease.server == "north-2").unwrap();
            shared.break_lease("north-2", lease.epoch).unwrap();
            if let Ok(held) = shared.acquire("north-2", "somebody", Duration::from_secs(60)) {
                return held;
            }
        }
    };
    let held = tokio::task::spawn_blocking(take).await.unwrap();
    until(|| two.is_away()).await;
    tokio::task::spawn_blocking(move || held.release().unwrap()).await.unwrap();
    let is_held = |node: &Node| node.held().iter().any(|name| name == "north-2");
    until(|| is_held(&one) || is_held(&two)).await;
    for instance in &instances {
        assert_eq!(two.show(instance).await["state"], "running");
    }
    two.finish_all(&instances).await;
    let list: Json = two.ok(call("GET /v1/instances?state=ended&limit=100")).await;
    assert_eq!(list["instances"].as_array().unwrap().len(), instances.len());
    one.server.stop().await;
    two.server.stop().await;
}
