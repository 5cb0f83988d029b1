//! Servers move between processes of one database, and into no other.

use std::collections::BTreeSet;
use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_testbed::{Database, database};
use serde_json::json;

use super::servers::{Cluster, Node, until};
use super::support::{Answered, call};
use crate::DatabaseUrl;
use crate::config::StoreChoice;
use crate::status::Phase;

const TWO: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://north-2\" }
";

const PLAIN: &str = "process: plain\nsteps:\n  - { step: one, job: one }\n";

fn shared(database: &Database) -> StoreChoice {
    StoreChoice::Postgres(DatabaseUrl::new(database.url()))
}

async fn start(cluster: &Cluster, name: &str, store: StoreChoice) -> Node {
    cluster.start_with(name, cluster.config(name, store)).await
}

/// Instances of both servers.
async fn begin(one: &Node, two: &Node) -> Vec<InstanceId> {
    one.until_up("north-2").await;
    two.until_up("north-1").await;
    one.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    let mut instances: Vec<InstanceId> = Vec::new();
    while instances.iter().map(|id| id.server()).collect::<BTreeSet<_>>().len() < 2 {
        let started = one.ok(call("POST /v1/instances").json(json!({"process": "plain"}))).await;
        instances.push(started["instance"].as_str().unwrap().parse().unwrap());
    }
    instances
}

async fn finish(node: &Node, instances: &[InstanceId]) {
    for _ in instances {
        node.work("one", json!({})).await;
    }
    for instance in instances {
        let ended = node.ended(&instance.to_string()).await;
        assert_eq!(ended["state"], "completed", "{ended}");
    }
}

/// The text of the topology with a server that is a guest of another.
fn with_guest(cluster: &Cluster, guest: &str, host: &str) -> String {
    let text = cluster.topology.to_yaml();
    let lines = text.lines().map(|old| {
        let is_it = old.trim_start().starts_with(&format!("{guest}:"));
        if is_it { format!("      {guest}: {{ host: {host} }}") } else { old.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// What is said of a move when there is something to say.
async fn prepare(node: &Node, server: &str, into: &str) -> Answered {
    let asked = json!({"server": server, "into": into});
    let mut looks = tokio::time::interval(Duration::from_millis(2));
    loop {
        looks.tick().await;
        let told = node.send(call("POST /v1/cluster/prepare").json(asked.clone())).await;
        let is_waiting = told.status == 503 || (told.status == 200 && told.json()["ready"] != true);
        if !is_waiting {
            return told;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_does_not_move_into_a_process_that_keeps_its_store_elsewhere() {
    for (ours, theirs, why) in [
        (true, true, "in another database"),
        (true, false, "in a folder, and this process in PostgreSQL"),
        (false, true, "in PostgreSQL, and this process in a folder"),
    ] {
        let (cluster, databases) = (Cluster::of(TWO), [database().unwrap(), database().unwrap()]);
        let store = |name: &str, is_shared, database| {
            let folder = cluster.folder.path().join(name).join("store");
            if is_shared { shared(database) } else { StoreChoice::Directory(folder) }
        };
        let one = start(&cluster, "north-1", store("north-1", ours, &databases[0])).await;
        let two = start(&cluster, "north-2", store("north-2", theirs, &databases[1])).await;
        let instances = begin(&one, &two).await;
        let refused = prepare(&one, "north-2", "north-1").await;
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (409, &json!("not_movable")),
            "{why}"
        );
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains(why), "{detail}");
        // Whoever begins it all the same waits, and has lost nothing.
        let text = with_guest(&cluster, "north-2", "north-1");
        one.ok(call("PUT /v1/topology").body("text/yaml", text)).await;
        assert_eq!(prepare(&one, "north-2", "north-1").await.status, 409);
        one.ok(call("POST /v1/cluster/changes/undo").json(json!({}))).await;
        finish(&one, &instances).await;
        assert_eq!((one.held(), two.held()), (vec!["north-1".into()], vec!["north-2".into()]));
        one.server.stop().await;
        two.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn within_one_database_a_server_moves_without_being_copied() {
    let database = database().unwrap();
    let cluster = Cluster::of(TWO);
    let one = start(&cluster, "north-1", shared(&database)).await;
    let two = start(&cluster, "north-2", shared(&database)).await;
    let instances = begin(&one, &two).await;
    // The one that keeps the catalog: nobody else can tell that the move is over.
    assert_eq!(prepare(&two, "north-1", "north-2").await.status, 200);
    let text = with_guest(&cluster, "north-1", "north-2");
    two.ok(call("PUT /v1/topology").body("text/yaml", text)).await;
    let is_away = || one.server.core.app.status.phase() == Phase::Away && one.held().is_empty();
    let is_over = || two.server.core.app.links.as_ref().unwrap().topology().epoch == 2;
    until(|| is_over() && two.held() == ["north-1", "north-2"] && is_away()).await;
    let guest = two.server.core.app.links.as_ref().unwrap().host.held("north-1").unwrap();
    guest.app().unwrap().status.until(Phase::Ready).await;
    two.until_up("north-1").await;
    one.server.stop().await;
    finish(&two, &instances).await;
    two.server.stop().await;
}
