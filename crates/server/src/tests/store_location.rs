//! Servers move between processes of one database, and into no other.

use legwork_testbed::database;
use serde_json::json;

use super::servers::{Cluster, Node, TWO, prepare, shared, until, until_some};
use super::support::{Answered, call};
use crate::config::StoreChoice;
use crate::status::Phase;

async fn start(cluster: &Cluster, name: &str, store: StoreChoice) -> Node {
    cluster.start_with(name, cluster.config(name, store)).await
}

/// The answer to a prepared move, once there is one.
async fn prepared(node: &Node, server: &str, into: &str) -> Answered {
    until_some(async || {
        let told = node.send(prepare(server, into)).await;
        let is_waiting = told.status == 503 || (told.status == 200 && told.json()["ready"] != true);
        (!is_waiting).then_some(told)
    })
    .await
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
        one.until_known(&two).await;
        let instances = one.start_plain(2).await;
        let refused = prepared(&one, "north-2", "north-1").await;
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (409, &json!("not_movable")),
            "{why}"
        );
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains(why), "{detail}");
        // If the move is begun nevertheless, it waits, and nothing is lost.
        one.publish(&cluster.changed("north-2", "host: north-1")).await;
        assert_eq!(prepared(&one, "north-2", "north-1").await.status, 409);
        one.ok(call("POST /v1/cluster/changes/undo").json(json!({}))).await;
        one.finish_all(&instances).await;
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
    one.until_known(&two).await;
    let instances = one.start_plain(2).await;
    // The registrar: only it can record that the move is over.
    assert_eq!(prepared(&two, "north-1", "north-2").await.status, 200);
    two.publish(&cluster.changed("north-1", "host: north-2")).await;
    until(|| two.epoch() == 2 && two.held() == ["north-1", "north-2"] && one.is_away()).await;
    let guest = two.server.core.app.links.as_ref().unwrap().host.held("north-1").unwrap();
    guest.app().unwrap().status.until(Phase::Ready).await;
    two.until_up("north-1").await;
    one.server.stop().await;
    two.finish_all(&instances).await;
    two.server.stop().await;
}
