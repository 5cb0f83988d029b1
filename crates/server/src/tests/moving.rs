//! Servers move from one process to another, with all their data, while cases run.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use legwork_model::id::InstanceId;
use legwork_placement::Topology;
use serde_json::json;

use super::failures::FAULTY_BYTES;
use super::servers::{Cluster, Node, TWO, changed, prepare, until, until_some};
use super::support::call;
use crate::Server;
use crate::config::{Config, StoreChoice};
use crate::notes::{Note, Notes};

const THIRD: &str =
    "      north-3: { address: \"127.0.0.1:PORT\", api: \"http://north-3\", weight: 0 }\n";

const PLAIN: &str = "process: plain\ndata: { paper: file }\nstart: [paper]\nresult: [paper]\nsteps:\n  \
                     - { step: one, job: one, reads: [paper] }\n";

impl Node {
    async fn start_with_file(&self, number: usize) -> InstanceId {
        let upload = call("PUT /v1/files?name=paper").body("text/plain", format!("paper {number}"));
        let paper = self.ok(upload).await;
        self.start_one(json!({"process": "plain", "data": {"paper": paper}})).await
    }

    /// Starts cases with files at both of two servers.
    async fn start_some(&self) -> Vec<InstanceId> {
        self.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
        let mut instances = Vec::new();
        for number in 0..10 {
            instances.push(self.start_with_file(number).await);
        }
        let servers: BTreeSet<u16> = instances.iter().map(|id| id.server().0).collect();
        assert_eq!(servers.len(), 2, "{instances:?}");
        instances
    }

    /// Copies a server into the process of another until little is left, asked at any server.
    async fn prepare(&self, server: &str, into: &str) {
        let ready = async || self.ok(prepare(server, into)).await["ready"] == true;
        until_some(async || ready().await.then_some(())).await;
    }
}

/// Two servers with stores on disk, and cases at both.
async fn begin() -> (Cluster, Node, Node, Vec<InstanceId>) {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    one.until_known(&two).await;
    let instances = one.start_some().await;
    (cluster, one, two, instances)
}

/// An address without a listener.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_becomes_the_guest_of_another_with_all_it_has() {
    let (cluster, one, two, mut instances) = begin().await;
    two.prepare("north-2", "north-1").await;
    one.publish(&cluster.changed("north-2", "host: north-1")).await;
    until(|| one.held() == ["north-1", "north-2"] && two.is_away()).await;
    assert_eq!(one.epoch(), 2);
    // Requests to its old place are answered.
    let path = format!("GET /v1/instances/{}", instances[0]);
    assert_eq!(two.ok(call(&path)).await["state"], "running");
    instances.push(two.start_with_file(99).await);
    two.server.stop().await;
    one.server.stop().await;

    // After a restart it is at its new place, and its old place knows that it is gone.
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    assert_eq!(one.held(), ["north-1", "north-2"]);
    assert!(two.is_away());
    assert_eq!(two.server.core.app.status.reason(), "this server has moved to another host");
    two.finish_all(&instances).await;
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_had_come_when_its_change_was_undone_comes_again_by_the_next() {
    let cluster = Cluster::of(&[TWO, THIRD].concat());
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let three = cluster.start_stored("north-3").await;
    one.until_known(&three).await;
    one.until_known(&two).await;
    let mut instances = one.start_some().await;
    // The third server finds its place taken.
    let guests = cluster.folder.path().join("north-1").join("store").join("guests");
    std::fs::create_dir_all(&guests).unwrap();
    std::fs::write(guests.join("north-3"), "in the way").unwrap();
    let next = cluster.changed("north-2", "host: north-1");
    let both = changed(&next, "north-3", "host: north-1, weight: 0");
    one.publish(&both).await;
    let note = || Notes::beside(&guests.join("north-2")).unwrap().last();
    until(|| matches!(note(), Note::Whole { .. })).await;
    one.ok(call("POST /v1/cluster/changes/undo").json(json!({}))).await;
    // It goes on where it was, and its later work is not in the copy.
    for number in 20..24 {
        instances.push(two.start_with_file(number).await);
    }
    two.prepare("north-2", "north-1").await;
    one.publish(&next).await;
    until(|| one.held() == ["north-1", "north-2"] && two.is_away()).await;
    two.finish_all(&instances).await;
    for node in [one, two, three] {
        node.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_reported_to_a_server_that_is_about_to_move_are_reported() {
    let (cluster, one, two, instances) = begin().await;
    let ask = json!({"worker": "w", "types": ["one"], "max": 100, "lease_ms": 60_000});
    let mut jobs = Vec::new();
    until_some(async || {
        let given = two.ok(call("POST /v1/jobs/activate").json(ask.clone())).await;
        let given = given["jobs"].as_array().unwrap().iter();
        jobs.extend(given.map(|job| json!({"job": job["job"], "lease": job["lease"], "data": {}})));
        (jobs.len() >= instances.len()).then_some(())
    })
    .await;
    // It is frozen until there is a process that takes its place.
    let successor = Successor::of(&cluster, "north-2");
    one.publish(&successor.text).await;
    until_some(async || {
        let changes = one.changes().await;
        let stored = changes["under_way"]["acknowledged"].as_array().unwrap();
        stored.iter().any(|server| server == "north-2").then_some(())
    })
    .await;
    // Jobs of both, reported where one of them is about to leave, by a client that repeats only
    // temporary failures.
    let reporting = until_some(async || {
        let report = call("POST /v1/jobs/complete").json(json!({"worker": "w", "jobs": jobs}));
        let results = two.ok(report).await;
        let mut results = results["results"].as_array().unwrap().iter();
        jobs.retain(|_| {
            let result = results.next().unwrap();
            assert!(result["ok"] == true || result["problem"]["status"] == 503, "{result}");
            result["ok"] != true
        });
        jobs.is_empty().then_some(())
    });
    let taking_over = async {
        let new = successor.start().await;
        until(|| new.held() == ["north-2"]).await;
        new
    };
    let ((), new) = tokio::join!(reporting, taking_over);
    for node in [one, two, new] {
        node.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_move_takes_is_told_before_and_while_it_is_made() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let (store, two) = cluster.start_faulty("north-2").await;
    one.until_known(&two).await;
    let instances = one.start_some().await;
    let next = cluster.changed("north-2", "host: north-1");
    let asked = call("PUT /v1/topology?dry_run=true").body("text/yaml", next.clone());
    let dry_run = one.ok(asked).await["dry_run"].clone();
    assert_eq!(dry_run["servers"], json!(["north-2"]));
    assert_eq!(dry_run["bytes"], FAULTY_BYTES, "what the store of the one has that moves");
    two.prepare("north-2", "north-1").await;
    // It does not get to give its store away.
    store.hang(true);
    one.publish(&next).await;
    let changes = one.changes().await;
    assert_eq!(changes["under_way"]["missing"], json!(["north-2"]), "{changes}");
    assert!(changes["under_way"]["estimate_ms"].as_u64() >= Some(1_000), "{changes}");
    store.hang(false);
    until(|| one.held() == ["north-1", "north-2"] && two.is_away()).await;
    one.finish_all(&instances).await;
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_of_a_failed_copy_is_reported_to_its_requester() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start("north-2").await;
    one.until_known(&two).await;
    let never = two.send(prepare("north-1", "north-2")).await;
    assert_eq!((never.status, &never.json()["code"]), (409, &json!("not_movable")));
    one.prepare("north-2", "north-1").await;
    two.server.stop().await;
    let reason = until_some(async || {
        let told = one.ok(prepare("north-2", "north-1")).await;
        let reason = told["reason"].as_str()?;
        assert_eq!(told["ready"], false, "all is compared anew: {told}");
        Some(reason.to_owned())
    })
    .await;
    assert!(reason.starts_with("the old host does not answer"), "{reason}");
    one.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_added_later_becomes_the_guest_of_one_whose_file_does_not_know_it() {
    let (head, _) = TWO.split_once("      north-2").unwrap();
    let cluster = Cluster::of(head);
    let one = cluster.start_stored("north-1").await;
    let line = |place: &str| {
        format!("{}      north-2: {{ {place}, weight: 0 }}\n", cluster.topology.to_yaml())
    };
    let text = line(&format!("address: \"{}\", api: \"http://north-2\"", free()));
    one.publish(&text).await;
    let next = cluster.with(Arc::new(Topology::parse(&text).0.unwrap()));
    let two = next.start_stored("north-2").await;
    one.until_known(&two).await;
    until(|| two.epoch() == 2).await;
    one.publish(&line("host: north-1")).await;
    until(|| one.held() == ["north-1", "north-2"] && two.is_away()).await;
    two.server.stop().await;
    one.server.stop().await;
    let one = cluster.start_stored("north-1").await;
    until(|| one.held() == ["north-1", "north-2"]).await;
    one.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_is_saved_by_itself_and_restored_beside_its_host() {
    let text = TWO
        .replace("{ address: \"127.0.0.1:PORT\", api: \"http://north-2\" }", "{ host: north-1 }");
    let cluster = Cluster::of(&text);
    let one = cluster.start_stored("north-1").await;
    until(|| one.held() == ["north-1", "north-2"]).await;
    let instances = one.start_some().await;
    let folder = cluster.folder.path().join("restored");
    for (path, data) in [("", folder.clone()), ("?server=north-2", folder.join("guests/north-2"))] {
        let saved = one.send(call(&format!("GET /v1/backup{path}"))).await;
        assert_eq!(saved.status, 200, "{path}");
        legwork_store::embedded::restore(&mut &saved.body[..], &data, &mut |_| {}).unwrap();
    }
    let nobody = one.send(call("GET /v1/backup?server=north-3")).await;
    assert_eq!((nobody.status, &nobody.json()["code"]), (404, &json!("no_such_server")));
    one.server.stop().await;

    let config = cluster.config("north-1", StoreChoice::Directory(folder));
    let one = cluster.start_with("north-1", config).await;
    until(|| one.held() == ["north-1", "north-2"]).await;
    one.finish_all(&instances).await;
    one.server.stop().await;
}

/// Another process for a server, at a new address.
struct Successor {
    cluster: Cluster,
    server: String,
    config: Config,
    /// The topology with that address.
    text: String,
}

impl Successor {
    fn of(cluster: &Cluster, server: &str) -> Self {
        let old = cluster.topology.server_named(server).unwrap();
        let old = cluster.topology.server(old).unwrap().address.clone();
        let line = format!("address: \"{}\", api: \"http://{server}\"", free());
        let text = cluster.changed(server, &line);
        let store = StoreChoice::Directory(cluster.folder.path().join(server).join("new"));
        let cluster = cluster.with(Arc::new(Topology::parse(&text).0.unwrap()));
        let mut config = cluster.config(server, store);
        config.peering.as_mut().unwrap().replaces = Some(old);
        Self { cluster, server: server.to_owned(), config, text }
    }

    async fn start(&self) -> Node {
        self.cluster.start_with(&self.server, self.config.clone()).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_takes_the_place_of_another() {
    let (cluster, one, two, instances) = begin().await;
    let successor = Successor::of(&cluster, "north-2");
    let new = successor.start().await;
    assert!(new.is_away(), "the old one still works");
    let path = format!("GET /v1/instances/{}", instances[0]);
    assert_eq!(new.ok(call(&path)).await["state"], "running", "what it is asked it passes on");
    one.publish(&successor.text).await;
    until(|| new.held() == ["north-2"] && two.is_away() && new.epoch() == 2).await;
    two.server.stop().await;
    new.finish_all(&instances).await;
    new.server.stop().await;
    one.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_that_keeps_the_catalog_moves_too() {
    let (cluster, one, two, instances) = begin().await;
    let successor = Successor::of(&cluster, "north-1");
    let new = successor.start().await;
    two.publish(&successor.text).await;
    until(|| new.held() == ["north-1"] && one.is_away() && two.epoch() == 2).await;
    one.server.stop().await;
    // Later publications go there.
    two.ok(call("POST /v1/definitions").body("text/yaml", PLAIN.replace("plain", "other"))).await;
    new.finish_all(&instances).await;
    new.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_gone_on_with_after_either_side_was_stopped() {
    let (cluster, one, two, instances) = begin().await;
    let successor = Successor::of(&cluster, "north-2");
    successor.start().await.server.stop().await;
    two.server.stop().await;
    one.publish(&successor.text).await;
    let two = cluster.start_stored("north-2").await;
    let new = successor.start().await;
    until(|| new.held() == ["north-2"] && two.is_away()).await;
    new.server.stop().await;
    // Told again to take the place, it knows that it has.
    let new = successor.start().await;
    assert_eq!(new.held(), ["north-2"]);
    let folder = cluster.folder.path().join("north-2").join("new");
    assert_eq!(Notes::beside(&folder).unwrap().last(), Note::Held);
    new.finish_all(&instances).await;
    for node in [one, two, new] {
        node.server.stop().await;
    }
}

#[tokio::test]
async fn a_process_that_takes_a_place_begins_with_an_empty_folder() {
    let cluster = Cluster::of(TWO);
    cluster.start_stored("north-1").await.server.stop().await;
    let folder = cluster.folder.path().join("north-1").join("store");
    let config = |store| {
        let mut config = cluster.config("north-1", store);
        config.peering.as_mut().unwrap().replaces = Some("127.0.0.1:1".into());
        config
    };
    let refused = Server::start(config(StoreChoice::Directory(folder))).await.err().unwrap();
    assert!(refused.to_string().contains("choose one with --data"), "{refused}");
    let refused = Server::start(config(StoreChoice::Memory)).await.err().unwrap();
    assert!(refused.to_string().contains("only a store in a folder"), "{refused}");
}
