//! The history of a case at several servers: the same, whichever server is asked.

use serde_json::{Value as Json, json};

use super::servers::{Cluster, Node, until};
use super::support::call;
use crate::peer::Condition;

/// Through three domains and back; each step overwrites the output of the one before. The taken branch has
/// no steps: only the history shows it.
const RELAY: &str = "
process: relay
data: { n: int, text: string }
start: [n]
result: [n]
steps:
  - { step: one, job: first, at: north, reads: [n], writes: [text] }
  - { step: two, job: second, at: south, retry: { times: 2, pause: 1s }, reads: [n], writes: [text] }
  - { step: three, job: third, at: east, reads: [n], writes: [text] }
  - choice: route
    branches:
      - { name: detour, when: n > 100, steps: [{ step: extra, job: extra, at: south, reads: [n] }] }
      - { name: straight, otherwise: true }
  - { step: four, job: fourth, at: north, reads: [n], writes: [n] }
";

struct Relay {
    nodes: [Node; 3],
    instance: String,
}

impl Relay {
    async fn start(cluster: &Cluster) -> Self {
        let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
        let east = cluster.start("east-1").await;
        north.ok(call("POST /v1/definitions").body("text/yaml", RELAY)).await;
        for (one, other) in [(&north, &south), (&north, &east), (&south, &east)] {
            one.until_known(other).await;
        }
        south.until_deployed("relay").await;
        east.until_deployed("relay").await;
        let start = json!({"process": "relay", "data": {"n": 7}});
        let instance = north.start_one(start).await.to_string();
        Self { nodes: [north, south, east], instance }
    }

    async fn settle(&self) {
        let names: Vec<&str> = self.nodes.iter().map(|node| &*node.name).collect();
        let is_empty = |node: &Node| {
            let others = names.iter().filter(|name| **name != node.name);
            others.into_iter().all(|name| node.row(name).parcels == 0)
        };
        until(|| self.nodes.iter().all(is_empty)).await;
    }

    /// The common answer of all of them.
    async fn all_say(&self, nodes: &[Node], rest: &str) -> Json {
        let path = format!("GET /v1/instances/{}{rest}", self.instance);
        let mut said: Option<Json> = None;
        for node in nodes {
            let says = node.ok(call(&path)).await;
            if let Some(said) = &said {
                assert_eq!(*said, says, "{} about {rest}", node.name);
            }
            said = Some(says);
        }
        said.unwrap()
    }

    async fn run(&self) {
        let [north, south, east] = &self.nodes;
        north.work("first", json!({"text": "of one"})).await;
        fail_once(south).await;
        south.work("second", json!({"text": "of two"})).await;
        east.work("third", json!({"text": "of three"})).await;
        north.work("fourth", json!({"n": 8})).await;
        let ended = north.ended(&self.instance).await;
        assert_eq!(ended["state"], "completed", "{ended}");
        self.settle().await;
    }

    async fn stop(self) {
        for node in self.nodes {
            node.server.stop().await;
        }
    }
}

async fn fail_once(node: &Node) {
    let activate = json!({"worker": "w", "types": ["second"], "max": 1, "lease_ms": 60_000, "wait_ms": 30_000});
    let jobs = node.ok(call("POST /v1/jobs/activate").json(activate)).await;
    let (job, lease) = (&jobs["jobs"][0]["job"], &jobs["jobs"][0]["lease"]);
    let failed = json!({"job": job, "lease": lease, "error": "no paper"});
    node.ok(call("POST /v1/jobs/fail").json(json!({"worker": "w", "jobs": [failed]}))).await;
}

fn lines(history: &Json) -> Vec<String> {
    let line = |entry: &Json| {
        let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
        let writes = entry["writes"].as_object().map_or_else(String::new, |writes| {
            writes.iter().map(|(name, value)| format!(" {name}={value}")).collect()
        });
        format!("{} {} {}{writes}", text("server"), text("kind"), text("step"))
    };
    history["entries"].as_array().unwrap().iter().map(line).collect()
}

/// The source of `took` in `legwork show`.
fn taken(history: &Json) -> Vec<&str> {
    let entries = history["entries"].as_array().unwrap().iter();
    let decided = entries.filter(|entry| entry["kind"] == "decided" && entry["step"] == "route");
    decided.map(|entry| entry["detail"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_server_tells_the_one_complete_history_of_a_case_that_has_ended() {
    let cluster = Cluster::new(&["north", "south", "east"]);
    let relay = Relay::start(&cluster).await;
    relay.run().await;
    let history = relay.all_say(&relay.nodes, "/history").await;
    let told = lines(&history);
    let of_activities: Vec<&String> = told
        .iter()
        .filter(|line| {
            !["sent", "delivered", "received"].contains(&line.split(' ').nth(1).unwrap())
        })
        .collect();
    let expected = [
        "north-1 created - n=7",
        "north-1 completed one text=\"of one\"",
        "south-1 failed two",
        "south-1 completed two text=\"of two\"",
        "east-1 completed three text=\"of three\"",
        "east-1 decided route",
        "north-1 completed four n=8",
        "north-1 finished -",
    ];
    assert_eq!(of_activities, expected, "{told:#?}");
    assert_eq!(history["next"], Json::Null);
    assert_eq!(taken(&history), ["straight"]);
    // Page by page it is the same.
    for limit in [1, 4] {
        let (mut paged, mut from) = (Vec::new(), "0".to_owned());
        loop {
            let page = format!("/history?from={from}&limit={limit}");
            let page = relay.all_say(&relay.nodes, &page).await;
            paged.extend(page["entries"].as_array().unwrap().clone());
            let Some(next) = page["next"].as_str() else { break };
            from = next.to_owned();
        }
        assert_eq!(json!(paged), history["entries"], "{limit}");
    }
    let shown = relay.all_say(&relay.nodes, "").await;
    assert_eq!(
        (&shown["data"][1]["value"], &shown["data"][1]["versions"]),
        (&json!("of three"), &json!(3))
    );
    let bad = call(&format!("GET /v1/instances/{}/history?from=7", relay.instance));
    let bad = relay.nodes[0].send(bad).await;
    assert_eq!((bad.status, bad.json()["code"].as_str()), (400, Some("bad_parameter")));
    // `here` still shows the local part.
    let path = format!("GET /v1/instances/{}/history?here=true&limit=1", relay.instance);
    let here = relay.nodes[2].ok(call(&path)).await;
    assert_eq!(
        (lines(&here)[0].as_str(), here["next"].as_str()),
        ("north-1 created - n=7", Some("1"))
    );
    relay.stop().await;
}

#[tokio::test]
async fn of_a_server_that_is_away_what_others_were_told_is_shown_and_it_is_named() {
    let cluster = Cluster::new(&["north", "south", "east"]);
    let relay = Relay::start(&cluster).await;
    relay.run().await;
    let Relay { nodes: [north, south, east], instance } = relay;
    south.server.stop().await;
    let nodes = [north, east];
    until(|| nodes.iter().all(|node| node.row("south-1").condition != Condition::Up)).await;
    let mut said: Vec<Json> = Vec::new();
    for node in &nodes {
        said.push(node.ok(call(&format!("GET /v1/instances/{instance}/history"))).await);
    }
    assert_eq!(said[0], said[1]);
    let told = lines(&said[0]);
    assert_eq!(said[0]["unreachable"], json!(["south-1"]));
    assert_eq!(taken(&said[0]), ["straight"]);
    let of_south: Vec<&String> = told.iter().filter(|line| line.starts_with("south-1")).collect();
    assert_eq!(of_south.len(), 1, "{told:#?}");
    let place = |line: &str| told.iter().position(|told| told.starts_with(line)).unwrap();
    assert!(place("north-1 completed one") < place("south-1 completed two"), "{told:#?}");
    assert!(place("south-1 completed two") < place("east-1 completed three"), "{told:#?}");
    let (mut paged, mut from) = (Vec::new(), "0".to_owned());
    loop {
        let page = format!("GET /v1/instances/{instance}/history?from={from}&limit=2");
        let page = nodes[1].ok(call(&page)).await;
        paged.extend(page["entries"].as_array().unwrap().clone());
        assert_eq!(page["unreachable"], json!(["south-1"]));
        let Some(next) = page["next"].as_str() else { break };
        from = next.to_owned();
    }
    assert_eq!(json!(paged), said[0]["entries"]);
    for node in nodes {
        node.server.stop().await;
    }
}

#[tokio::test]
async fn a_running_case_is_shown_alike_by_all_servers() {
    let cluster = Cluster::new(&["north", "south", "east"]);
    let relay = Relay::start(&cluster).await;
    let [north, south, east] = &relay.nodes;
    north.work("first", json!({"text": "of one"})).await;
    fail_once(south).await;
    relay.settle().await;
    // The third server does not know it; it asks where the case was started.
    let shown = relay.all_say(&relay.nodes, "").await;
    assert_eq!(
        (&shown["nodes"][1]["attempts"], &shown["nodes"][1]["server"]),
        (&json!(1), &json!("south-1"))
    );
    relay.all_say(&relay.nodes, "/history").await;
    south.work("second", json!({"text": "of two"})).await;
    east.work("third", json!({"text": "of three"})).await;
    relay.settle().await;
    let shown = relay.all_say(&relay.nodes, "").await;
    let states = shown["nodes"].as_array().unwrap().iter();
    let states = states.map(|node| node["state"].as_str().unwrap());
    let expected = ["completed", "completed", "completed", "completed", "skipped", "activated"];
    assert!(states.eq(expected), "{shown}");
    assert_eq!(shown["data"][1]["versions"], 3);
    let history = relay.all_say(&relay.nodes, "/history").await;
    assert_eq!(taken(&history), ["straight"]);
    let told = lines(&history);
    assert!(told.contains(&"south-1 failed two".to_owned()), "{told:#?}");
    relay.stop().await;
}
