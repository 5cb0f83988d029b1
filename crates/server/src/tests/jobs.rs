//! Jobs of several servers: fetched at one, reported at another.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::failures::Faulty;
use super::servers::{Cluster, Node};
use super::support::call;

/// A job of each of two domains at the same time.
const BOTH: &str = "
process: both
steps:
  - parallel: both
    branches:
      - steps: [{ step: here, job: here, at: north }]
      - steps: [{ step: there, job: there, at: south }]
";

/// Two servers of one domain, of which one has nothing to do.
const PAIR: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://one\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://two\", weight: 0 }
";

impl Node {
    async fn take(&self, kind: &str) -> Json {
        let activate = json!({"worker": "w", "types": [kind], "max": 1, "lease_ms": 60_000,
            "wait_ms": 30_000});
        let jobs = self.ok(call("POST /v1/jobs/activate").json(activate)).await;
        json!({"job": jobs["jobs"][0]["job"], "lease": jobs["jobs"][0]["lease"]})
    }

    async fn report(&self, jobs: &[&Json]) -> Json {
        let done = json!({"worker": "w", "jobs": jobs});
        self.ok(call("POST /v1/jobs/complete").json(done)).await["results"].clone()
    }
}

/// The pair with so many jobs of one of them; the store of the other one hangs.
async fn hanging_pair(jobs: usize) -> (Cluster, Node, Node, Arc<Faulty>) {
    let cluster = Cluster::of(PAIR);
    let one = cluster.start("north-1").await;
    let (store, two) = cluster.start_faulty("north-2").await;
    one.until_known(&two).await;
    let process = "process: plain\nsteps: [{ step: here, job: here }]\n";
    one.ok(call("POST /v1/definitions").body("text/yaml", process)).await;
    two.until_deployed("plain").await;
    for _ in 0..jobs {
        one.ok(call("POST /v1/instances").json(json!({"process": "plain"}))).await;
    }
    store.hang(true);
    (cluster, one, two, store)
}

#[tokio::test]
async fn jobs_are_reported_at_any_server_and_each_is_answered_in_its_place() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    north.ok(call("POST /v1/definitions").body("text/yaml", BOTH)).await;
    south.until_deployed("both").await;
    let start = json!({"process": "both"});
    let started = north.ok(call("POST /v1/instances").json(start)).await;
    let (here, there) = (north.take("here").await, south.take("there").await);
    let results = north.report(&[&there, &here, &there]).await;
    assert_eq!(results[0], json!({"ok": true}), "given out by the other server");
    assert_eq!(results[1], json!({"ok": true}));
    assert_eq!(results[2]["problem"]["code"], "job_not_open", "reported before");
    let ended = north.ended(started["instance"].as_str().unwrap()).await;
    assert_eq!(ended["state"], "completed", "{ended}");
    let unknown = json!({"job": here["job"], "lease": u64::MAX.to_string()});
    assert_eq!(south.report(&[&unknown]).await[0]["ok"], false, "a lease that nobody gave");
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_worker_that_hangs_up_while_others_are_asked_go_to_the_next_one() {
    let (_cluster, one, two, store) = hanging_pair(1).await;
    let both = json!({"worker": "w", "types": ["here"], "max": 2, "lease_ms": 3_600_000});
    let asked = one.ok(call("POST /v1/jobs/activate").json(both));
    // One has answered by then, and the other one does not.
    assert!(tokio::time::timeout(Duration::from_millis(50), asked).await.is_err());
    let job = one.take("here").await;
    assert_eq!(one.report(&[&job]).await, json!([{"ok": true}]));
    store.hang(false);
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_does_not_keep_workers_from_the_jobs_of_others() {
    let (_cluster, one, two, store) = hanging_pair(2).await;
    // Whichever of the two is asked first.
    for _ in 0..2 {
        let job = one.take("here").await;
        assert_eq!(one.report(&[&job]).await, json!([{"ok": true}]));
    }
    store.hang(false);
    one.server.stop().await;
    two.server.stop().await;
}
