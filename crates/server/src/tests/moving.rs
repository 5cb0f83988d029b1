//! Servers move from one process to another, with all they have, while cases run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_placement::Topology;
use serde_json::json;

use super::failures::FAULTY_BYTES;
use super::servers::{Cluster, Node, PATIENCE, until};
use super::support::call;
use crate::Server;
use crate::config::{Config, StoreChoice};
use crate::notes::{Note, Notes};
use crate::status::Phase;

const TWO: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://north-2\" }
";

const THREE: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://north-2\" }
      north-3: { address: \"127.0.0.1:PORT\", api: \"http://north-3\", weight: 0 }
";

const PLAIN: &str = "process: plain\ndata: { paper: file }\nstart: [paper]\nresult: [paper]\nsteps:\n  \
                     - { step: one, job: one, reads: [paper] }\n";

impl Node {
    async fn start_with_file(&self, number: usize) -> InstanceId {
        let upload = call("PUT /v1/files?name=paper").body("text/plain", format!("paper {number}"));
        let paper = self.ok(upload).await;
        let start = json!({"process": "plain", "data": {"paper": paper}});
        let started = self.ok(call("POST /v1/instances").json(start)).await;
        started["instance"].as_str().unwrap().parse().unwrap()
    }

    /// Does all there is to do, wherever it is.
    async fn finish_all(&self, instances: &[InstanceId]) {
        for _ in instances {
            self.work("one", json!({})).await;
        }
        for instance in instances {
            let ended = self.ended(&instance.to_string()).await;
            assert_eq!(ended["state"], "completed", "{ended}");
        }
    }

    fn is_away(&self) -> bool {
        self.server.core.app.status.phase() == Phase::Away && self.held().is_empty()
    }

    /// Both sides know that it can be reached.
    async fn until_known(&self, other: &Self) {
        self.until_up(&other.name).await;
        other.until_up(&self.name).await;
    }

    async fn publish(&self, text: &str) {
        self.ok(call("PUT /v1/topology").body("text/yaml", text.to_owned())).await;
    }

    /// Has a server copied into the process of this one until little is left, whoever is asked.
    async fn prepare(&self, server: &str, into: &str) {
        let asked = json!({"server": server, "into": into});
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        let preparing = async {
            while self.ok(call("POST /v1/cluster/prepare").json(asked.clone())).await["ready"]
                != true
            {
                looks.tick().await;
            }
        };
        tokio::time::timeout(PATIENCE, preparing).await.unwrap();
    }

    fn epoch(&self) -> u32 {
        self.server.core.app.links.as_ref().unwrap().topology().epoch
    }
}

async fn begin(one: &Node, two: &Node) -> Vec<InstanceId> {
    one.until_known(two).await;
    one.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    let mut instances = Vec::new();
    for number in 0..10 {
        instances.push(one.start_with_file(number).await);
    }
    let servers: BTreeSet<u16> = instances.iter().map(|id| id.server().0).collect();
    assert_eq!(servers.len(), 2, "{instances:?}");
    instances
}

/// The text of the topology with one line changed.
fn with(cluster: &Cluster, server: &str, line: &str) -> String {
    changed(&cluster.topology.to_yaml(), server, line)
}

fn changed(text: &str, server: &str, line: &str) -> String {
    let lines = text.lines().map(|old| {
        let is_it = old.trim_start().starts_with(&format!("{server}:"));
        if is_it { format!("      {server}: {{ {line} }}") } else { old.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_becomes_the_guest_of_another_with_all_it_has() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let mut instances = begin(&one, &two).await;
    two.prepare("north-2", "north-1").await;
    one.publish(&with(&cluster, "north-2", "host: north-1")).await;
    until(|| one.held() == ["north-1", "north-2"] && two.is_away()).await;
    assert_eq!(one.epoch(), 2);
    // Whoever asks at its old place is answered.
    let path = format!("GET /v1/instances/{}", instances[0]);
    assert_eq!(two.ok(call(&path)).await["state"], "running");
    instances.push(two.start_with_file(99).await);
    two.server.stop().await;
    one.server.stop().await;

    // It is where it went after a restart, and its old place knows that it is gone.
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
    let cluster = Cluster::of(THREE);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let three = cluster.start_stored("north-3").await;
    one.until_known(&three).await;
    let mut instances = begin(&one, &two).await;
    // The third one finds its place taken.
    let guests = cluster.folder.path().join("north-1").join("store").join("guests");
    std::fs::create_dir_all(&guests).unwrap();
    std::fs::write(guests.join("north-3"), "in the way").unwrap();
    let next = with(&cluster, "north-2", "host: north-1");
    let both = changed(&next, "north-3", "host: north-1, weight: 0");
    one.publish(&both).await;
    let note = || Notes::beside(&guests.join("north-2")).unwrap().last();
    until(|| matches!(note(), Note::Whole { .. })).await;
    one.ok(call("POST /v1/cluster/changes/undo").json(json!({}))).await;
    // It goes on where it was, and what it does from now on is not in the copy.
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
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let instances = begin(&one, &two).await;
    let ask = json!({"worker": "w", "types": ["one"], "max": 100, "lease_ms": 60_000});
    let (mut jobs, mut looks) = (Vec::new(), tokio::time::interval(Duration::from_millis(2)));
    while jobs.len() < instances.len() {
        let given = two.ok(call("POST /v1/jobs/activate").json(ask.clone())).await;
        let given = given["jobs"].as_array().unwrap().iter();
        jobs.extend(given.map(|job| json!({"job": job["job"], "lease": job["lease"], "data": {}})));
        looks.tick().await;
    }
    // It stands still until there is a process that takes its place.
    let (next, config, text) = successor(&cluster, "north-2");
    one.publish(&text).await;
    loop {
        let changes = one.ok(call("GET /v1/cluster/changes")).await;
        let stored = changes["under_way"]["acknowledged"].as_array().unwrap();
        if stored.iter().any(|server| server == "north-2") {
            break;
        }
        looks.tick().await;
    }
    // Jobs of both, reported where one of them is on the point of leaving, by somebody who repeats
    // what is not possible at present and nothing else.
    let reporting = async {
        while !jobs.is_empty() {
            let report = call("POST /v1/jobs/complete").json(json!({"worker": "w", "jobs": jobs}));
            let results = two.ok(report).await;
            let mut results = results["results"].as_array().unwrap().iter();
            jobs.retain(|_| {
                let result = results.next().unwrap();
                assert!(result["ok"] == true || result["problem"]["status"] == 503, "{result}");
                result["ok"] != true
            });
            looks.tick().await;
        }
    };
    let taking_over = async {
        let new = next.start_with("north-2", config).await;
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
    let instances = begin(&one, &two).await;
    let next = with(&cluster, "north-2", "host: north-1");
    let asked = call("PUT /v1/topology?dry_run=true").body("text/yaml", next.clone());
    let dry_run = one.ok(asked).await["dry_run"].clone();
    assert_eq!(dry_run["servers"], json!(["north-2"]));
    assert_eq!(dry_run["bytes"], FAULTY_BYTES, "what the store of the one has that moves");
    two.prepare("north-2", "north-1").await;
    // It does not get to give its store away.
    store.hang(true);
    one.publish(&next).await;
    let changes = one.ok(call("GET /v1/cluster/changes")).await;
    assert_eq!(changes["under_way"]["missing"], json!(["north-2"]), "{changes}");
    assert!(changes["under_way"]["estimate_ms"].as_u64() >= Some(1_000), "{changes}");
    store.hang(false);
    until(|| one.held() == ["north-1", "north-2"] && two.is_away()).await;
    one.finish_all(&instances).await;
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_store_does_not_come_is_told_to_whoever_has_it_copied() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start("north-2").await;
    one.until_known(&two).await;
    let prepare = |server: &str, into: &str| {
        call("POST /v1/cluster/prepare").json(json!({"server": server, "into": into}))
    };
    let never = two.send(prepare("north-1", "north-2")).await;
    assert_eq!((never.status, &never.json()["code"]), (409, &json!("not_movable")));
    one.prepare("north-2", "north-1").await;
    two.server.stop().await;
    let looking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        loop {
            looks.tick().await;
            let told = one.ok(prepare("north-2", "north-1")).await;
            if let Some(reason) = told["reason"].as_str() {
                assert_eq!(told["ready"], false, "all is compared anew: {told}");
                return reason.to_owned();
            }
        }
    };
    let reason = tokio::time::timeout(PATIENCE, looking).await.unwrap();
    assert!(reason.starts_with("the old host does not answer"), "{reason}");
    one.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_added_later_becomes_the_guest_of_one_whose_file_does_not_know_it() {
    let (head, _) = TWO.split_once("      north-2").unwrap();
    let cluster = Cluster::of(head);
    let one = cluster.start_stored("north-1").await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = |place: &str| {
        format!("{}      north-2: {{ {place}, weight: 0 }}\n", cluster.topology.to_yaml())
    };
    let text = line(&format!("address: \"{port}\", api: \"http://north-2\""));
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
    one.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    let mut instances = Vec::new();
    for number in 0..10 {
        instances.push(one.start_with_file(number).await);
    }
    let servers: BTreeSet<u16> = instances.iter().map(|id| id.server().0).collect();
    assert_eq!(servers.len(), 2, "{instances:?}");
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

/// Another process for a server, at a new address, and the topology that says so.
fn successor(cluster: &Cluster, server: &str) -> (Cluster, Config, String) {
    let old = cluster.topology.server_named(server).unwrap();
    let old = cluster.topology.server(old).unwrap().address.clone();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = with(cluster, server, &format!("address: \"{port}\", api: \"http://{server}\""));
    let topology = Arc::new(Topology::parse(&text).0.unwrap());
    let next = cluster.with(topology);
    let folder = cluster.folder.path().join(server).join("new");
    let mut config = next.config(server, StoreChoice::Directory(folder));
    config.peering.as_mut().unwrap().replaces = Some(old);
    (next, config, text)
}

async fn replacement(cluster: &Cluster, server: &str) -> (Cluster, Node, String) {
    let (next, config, text) = successor(cluster, server);
    let node = next.start_with(server, config).await;
    (next, node, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_takes_the_place_of_another() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let instances = begin(&one, &two).await;
    let (_next, new, text) = replacement(&cluster, "north-2").await;
    assert!(new.is_away(), "the old one still works");
    let path = format!("GET /v1/instances/{}", instances[0]);
    assert_eq!(new.ok(call(&path)).await["state"], "running", "what it is asked it passes on");
    one.publish(&text).await;
    until(|| new.held() == ["north-2"] && two.is_away() && new.epoch() == 2).await;
    two.server.stop().await;
    new.finish_all(&instances).await;
    new.server.stop().await;
    one.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_that_keeps_the_catalog_moves_too() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let instances = begin(&one, &two).await;
    let (_next, new, text) = replacement(&cluster, "north-1").await;
    two.publish(&text).await;
    until(|| new.held() == ["north-1"] && one.is_away() && two.epoch() == 2).await;
    one.server.stop().await;
    // What is published from now on is published there.
    two.ok(call("POST /v1/definitions").body("text/yaml", PLAIN.replace("plain", "other"))).await;
    new.finish_all(&instances).await;
    new.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_gone_on_with_after_either_side_was_stopped() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start_stored("north-1").await;
    let two = cluster.start_stored("north-2").await;
    let instances = begin(&one, &two).await;
    let (next, new, text) = replacement(&cluster, "north-2").await;
    new.server.stop().await;
    two.server.stop().await;
    one.publish(&text).await;
    let two = cluster.start_stored("north-2").await;
    let folder = cluster.folder.path().join("north-2").join("new");
    let config = || {
        let mut config = next.config("north-2", StoreChoice::Directory(folder.clone()));
        let old = cluster.topology.servers[1].address.clone();
        config.peering.as_mut().unwrap().replaces = Some(old);
        config
    };
    let new = next.start_with("north-2", config()).await;
    until(|| new.held() == ["north-2"] && two.is_away()).await;
    new.server.stop().await;
    // Told once more to take its place, it knows that it has.
    let new = next.start_with("north-2", config()).await;
    assert_eq!(new.held(), ["north-2"]);
    let notes = Notes::beside(&folder).unwrap();
    assert_eq!(notes.last(), Note::Held);
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
