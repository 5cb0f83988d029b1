//! Several logical servers in one process, invisible to callers.

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use serde_json::{Value as Json, json};

use super::servers::{Cluster, Node};
use super::support::call;
use crate::Server;
use crate::config::StoreChoice;
use crate::peer::Condition;

/// Four servers of one domain in one process.
const ONE: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north\", weight: 1 }
      north-2: { host: north-1, weight: 2 }
      north-3: { host: north-1, weight: 3 }
      north-4: { host: north-1, weight: 4 }
";

/// A server in its own process, and two in another.
const TWO: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north\" }
  south:
    servers:
      south-1: { address: \"127.0.0.1:PORT\", api: \"http://south\", weight: 0 }
      south-2: { host: south-1 }
";

const LETTER: &str = "
process: letter
data: { to: string, text: string }
start: [to]
result: [text]
steps:
  - { step: write, job: writer, reads: [to], writes: [text] }
  - { step: sign, who: Role(clerk), reads: [text] }
";

const CLERKS: &str = "organisation: o\nagents:\n  ann: { roles: [clerk] }\n";

impl Node {
    async fn furnish(&self) {
        self.ok(call("PUT /v1/organisation").body("text/yaml", CLERKS)).await;
        self.ok(call("POST /v1/definitions").body("text/yaml", LETTER)).await;
    }

    async fn start_letter(&self, to: &str) -> String {
        let start = json!({"process": "letter", "data": {"to": to}});
        let started = self.ok(call("POST /v1/instances").json(start)).await;
        started["instance"].as_str().unwrap().to_owned()
    }

    /// The names of the servers that this process holds.
    pub(super) fn held(&self) -> Vec<String> {
        let host = &self.server.core.app.links.as_ref().unwrap().host;
        host.all().iter().map(|links| links.name.to_string()).collect()
    }
}

#[tokio::test]
async fn one_question_brings_the_jobs_of_all_servers_and_one_report_takes_them_back() {
    let cluster = Cluster::of(ONE);
    let north = cluster.start("north-1").await;
    north.furnish().await;
    for number in 0..40 {
        north.start_letter(&format!("{number}")).await;
    }
    let take = async |max: usize| {
        let activate = json!({"worker": "w", "types": ["writer"], "max": max, "lease_ms": 60_000});
        let jobs = north.ok(call("POST /v1/jobs/activate").json(activate)).await;
        jobs["jobs"].as_array().unwrap().clone()
    };
    let few = take(3).await;
    assert_eq!(few.len(), 3, "as many as were asked for");
    let all = take(1_000).await;
    assert_eq!(all.len(), 37, "those of every server");
    let done =
        |job: &Json| json!({"job": job["job"], "lease": job["lease"], "data": {"text": "t"}});
    let done: Vec<Json> = few.iter().chain(&all).map(done).collect();
    let report = json!({"worker": "w", "jobs": done});
    let results = north.ok(call("POST /v1/jobs/complete").json(report)).await;
    let results = results["results"].as_array().unwrap();
    assert_eq!(results.len(), 40);
    assert!(results.iter().all(|result| result["ok"] == true), "{results:?}");
    north.server.stop().await;
}

#[tokio::test]
async fn one_process_holds_four_servers_and_its_callers_see_one() {
    let cluster = Cluster::of(ONE);
    let north = cluster.start_stored("north-1").await;
    assert_eq!(north.held(), ["north-1", "north-2", "north-3", "north-4"]);
    north.furnish().await;
    let mut instances = Vec::new();
    for number in 0..40 {
        instances.push(north.start_letter(&format!("{number}")).await);
    }
    let mut shares = BTreeMap::new();
    for instance in &instances {
        *shares.entry(instance.parse::<InstanceId>().unwrap().server().0).or_insert(0) += 1;
    }
    for (server, share) in [(0, 4), (1, 8), (2, 12), (3, 16_i32)] {
        assert!((shares[&server] - share).abs() <= 2, "as the weights say: {shares:?}");
    }

    let list = north.ok(call("GET /v1/instances?limit=100")).await;
    assert_eq!(list["instances"].as_array().unwrap().len(), 40, "{list}");
    assert_eq!(list["unreachable"], Json::Null);
    for _ in &instances {
        north.work("writer", json!({"text": "dear"})).await;
    }
    let work = async |node: &Node| node.ok(call("GET /v1/worklist?agent=ann&limit=100")).await;
    let mut merged = work(&north).await;
    while merged["items"].as_array().unwrap().len() < 40 {
        let since = merged["cursor"].as_str().unwrap();
        let wait = format!("GET /v1/worklist?agent=ann&since={since}&wait_ms=30000");
        north.ok(call(&wait)).await;
        merged = work(&north).await;
    }
    for item in merged["items"].as_array().unwrap() {
        let path = format!("/v1/work/{}", item["activity"].as_str().unwrap());
        let act = json!({"agent": "ann"});
        let claim = call(&format!("POST {path}/claim")).json(act.clone());
        assert_eq!(north.send(claim).await.status, 204);
        let complete = call(&format!("POST {path}/complete")).json(act);
        assert_eq!(north.send(complete).await.status, 204);
    }
    for instance in &instances {
        let ended = north.ended(instance).await;
        assert_eq!(
            (&ended["state"], &ended["result"]["text"]),
            (&json!("completed"), &json!("dear"))
        );
        let history = north.ok(call(&format!("GET /v1/instances/{instance}/history"))).await;
        assert!(history["entries"].as_array().unwrap().len() >= 4, "{history}");
    }

    // No message went over a socket; the metrics of the guests have their names.
    let row = north.row("north-4");
    assert_eq!((row.condition, row.sent.socket), (Condition::Up, 0));
    assert!(row.sent.local > 0 && row.received.local > 0, "{row:?}", row = north.row("north-4"));
    let metrics = north.send(call("GET /metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(text.contains("legwork_instances_open{server=\"north-3\"} 0"), "{text}");
    assert!(text.lines().any(|line| line == "legwork_instances_open 0"), "{text}");
    north.server.stop().await;

    // Everything is there again.
    let north = cluster.start_stored("north-1").await;
    let list = north.ok(call("GET /v1/instances?state=ended&limit=100")).await;
    assert_eq!(list["instances"].as_array().unwrap().len(), 40, "{list}");
    north.server.stop().await;
}

#[tokio::test]
async fn a_start_with_a_key_happens_once_whichever_server_it_belongs_to() {
    let cluster = Cluster::of(ONE);
    let north = cluster.start("north-1").await;
    north.furnish().await;
    for number in 0..12 {
        let start = || {
            let start = json!({"process": "letter", "data": {"to": "Zoe"}});
            call("POST /v1/instances").header("idempotency-key", &format!("k{number}")).json(start)
        };
        let first = north.send(start()).await;
        let again = north.send(start()).await;
        assert_eq!((first.status, again.status), (201, 200));
        assert_eq!(first.json()["instance"], again.json()["instance"]);
    }
    // Only servers choose the id of a start.
    let id = "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC";
    let start = json!({"process": "letter", "data": {"to": "Zoe"}});
    let forged = call("POST /v1/instances").header("legwork-instance", id).json(start);
    assert_ne!(north.ok(forged).await["instance"], id);
    north.server.stop().await;
}

#[tokio::test]
async fn a_guest_is_not_started_by_itself() {
    let cluster = Cluster::of(TWO);
    let config = cluster.config("south-2", StoreChoice::Memory);
    let error = Server::start(config).await.err().unwrap();
    assert!(error.to_string().contains("start `south-1`"), "{error}");
}

#[tokio::test]
async fn new_cases_start_at_those_that_can_be_reached() {
    let text = ONE.replace(
        "{ host: north-1, weight: 4 }",
        "{ address: \"127.0.0.1:PORT\", \
        api: \"http://away\", weight: 1000000 }",
    );
    let cluster = Cluster::of(&text);
    let north = cluster.start("north-1").await;
    north.furnish().await;
    for _ in 0..10 {
        let id: InstanceId = north.start_letter("Zoe").await.parse().unwrap();
        assert!(id.server().0 < 3, "{id} is not where nobody is");
    }
    north.server.stop().await;
}

#[tokio::test]
async fn a_guest_is_reached_at_its_host_by_servers_of_other_processes() {
    let cluster = Cluster::of(TWO);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    assert_eq!(south.held(), ["south-1", "south-2"]);
    north.until_up("south-2").await;
    let process = "process: trip\nsteps:\n  - { step: one, job: one, at: south }\n  \
                   - { step: two, job: two, at: north }\n";
    north.ok(call("POST /v1/definitions").body("text/yaml", process)).await;
    south.until_deployed("trip").await;
    let started = north.ok(call("POST /v1/instances").json(json!({"process": "trip"}))).await;
    south.work("one", json!({})).await;
    north.work("two", json!({})).await;
    let ended = north.ended(started["instance"].as_str().unwrap()).await;
    assert_eq!(ended["state"], "completed", "{ended}");
    let step =
        ended["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "one").unwrap();
    assert_eq!(step["server"], "south-2", "the one without weight has nothing");
    assert_eq!(north.row("south-2").address, north.row("south-1").address);
    north.server.stop().await;
    south.server.stop().await;
}
