//! Weights changed by the API while cases run.

use serde_json::{Value as Json, json};

use super::servers::{Cluster, Node, until, until_some};
use super::support::call;

const TWO: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://one\", weight: 1 }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://two\", weight: 1 }
";
const ONE_STEP: &str = "process: one\nsteps: [{ step: do, job: do }]\n";
const CASES: usize = 40;

impl Node {
    async fn start_cases(&self) {
        for _ in 0..CASES {
            self.ok(call("POST /v1/instances").json(json!({"process": "one"}))).await;
        }
    }

    /// The number of cases at each of the two servers.
    async fn open(&self) -> (u64, u64) {
        let cluster = self.ok(call("GET /v1/cluster")).await;
        let open = |place: usize| cluster["servers"][place]["told"]["instances_open"].as_u64();
        (open(0).unwrap(), open(1).unwrap())
    }

    /// Publishes a topology and waits for the end of the reconfiguration.
    async fn change(&self, query: &str, source: &str) -> Json {
        let put = format!("PUT /v1/topology?{query}");
        let begun = self.ok(call(&put).body("text/yaml", source.to_owned())).await;
        let last = until_some(async || {
            let changes = self.changes().await;
            changes["under_way"].is_null().then(|| changes["last"].clone())
        });
        json!({"begun": begun, "last": last.await})
    }
}

/// Divided by the weights, not randomly: off by one at most for each series of starts.
fn assert_near(open: (u64, u64), meant: (u64, u64)) {
    assert!(open.0.abs_diff(meant.0) <= 2 && open.0 + open.1 == meant.0 + meant.1, "{open:?}");
}

#[tokio::test]
async fn weights_change_for_all_but_the_cases_that_are_there_and_nothing_else_moves() {
    let cluster = Cluster::of(TWO);
    let (one, two) = (cluster.start("north-1").await, cluster.start("north-2").await);
    one.until_known(&two).await;
    one.ok(call("POST /v1/definitions").body("text/yaml", ONE_STEP)).await;
    two.until_deployed("one").await;
    one.start_cases().await;
    assert_near(one.open().await, (20, 20));
    let before = one.open().await;

    let other =
        cluster.topology.to_yaml().replace("api: \"http://one\"", "api: \"http://one\", weight: 3");
    let put = "PUT /v1/topology?method=except&dry_run=true";
    let dry_run = two.ok(call(put).body("text/yaml", other.clone())).await["dry_run"].clone();
    assert_eq!(dry_run["domains"], json!(["north"]));
    assert_eq!((&dry_run["instances_open"], &dry_run["moved"]), (&json!(40), &json!(0)));
    let excepted = dry_run["excepted"].as_u64().unwrap();
    assert!((9..=11).contains(&excepted), "a quarter of all would change hands: {excepted}");
    // Asked at the server that does not coordinate.
    let changed = two.change("method=except", &other).await;
    let last = &changed["last"];
    assert_eq!((&last["epoch"], &last["excepted"]), (&json!(2), &json!(excepted)));
    assert_eq!(one.open().await, before, "running cases stay");
    until(|| two.row("north-1").sent.socket > 0).await;
    two.start_cases().await;
    assert_near(two.open().await, (50, 30));
    let shares = one.ok(call("GET /v1/cluster")).await;
    assert_eq!(shares["servers"][0]["share_permille"], 750);

    let again = two.change("method=except", &other).await;
    assert_eq!(again["begun"]["unchanged"], true, "what is in force is not changed again");
    let nothing = two.send(call("POST /v1/cluster/changes/undo").json(json!({}))).await;
    assert_eq!(nothing.status, 409, "{nothing:?}");
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test]
async fn a_start_under_a_key_is_repeated_at_any_server_after_the_weights_have_changed() {
    let cluster = Cluster::of(TWO);
    let (one, two) = (cluster.start("north-1").await, cluster.start("north-2").await);
    one.until_known(&two).await;
    one.ok(call("POST /v1/definitions").body("text/yaml", ONE_STEP)).await;
    two.until_deployed("one").await;
    let start = |key: usize| {
        let start = call("POST /v1/instances").json(json!({"process": "one"}));
        start.header("idempotency-key", &key.to_string())
    };
    let mut started = Vec::new();
    for key in 0..8 {
        started.push(one.ok(start(key)).await["instance"].clone());
    }
    // Each direction once, so that the server that started a case starts nothing new.
    for (server, other) in [("one", "two"), ("two", "one")] {
        let text = cluster.topology.to_yaml();
        let api = |name: &str| format!("api: \"http://{name}\"");
        let text = text.replace(&api(server), &format!("{}, weight: 0", api(server)));
        one.change("", &text).await;
        until(|| two.epoch() == one.epoch()).await;
        for (key, instance) in started.iter().enumerate() {
            for node in [&one, &two] {
                let again = node.ok(start(key)).await;
                assert_eq!(
                    (&again["instance"], &again["repeated"]),
                    (instance, &json!(true)),
                    "{other}"
                );
            }
        }
    }
    one.server.stop().await;
    two.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_where_new_weights_have_not_come_yet_waits_for_them() {
    let text = TWO.replace("two\", weight: 1", "two\", weight: 0");
    let south = "  south:\n    servers:\n      south-1: { address: \"127.0.0.1:PORT\", api: \"http://south\" }\n";
    let cluster = Cluster::of(&(text + south));
    let one = cluster.start("north-1").await;
    let (store, two) = cluster.start_faulty("north-2").await;
    let (slow, three) = cluster.start_faulty("south-1").await;
    one.until_known(&two).await;
    one.until_known(&three).await;
    one.ok(call("POST /v1/definitions").body("text/yaml", ONE_STEP)).await;
    two.until_deployed("one").await;
    // A server of another domain delays the end of the reconfiguration for a while.
    slow.hang(true);
    let text = cluster.topology.to_yaml();
    let other = text.replace(", weight: 0", "");
    let other = other.replace("api: \"http://one\"", "api: \"http://one\", weight: 0");
    one.publish(&other).await;
    until_some(async || {
        let changes = one.changes().await;
        assert!(!changes["under_way"].is_null(), "{changes}");
        (changes["under_way"]["reported"] == json!(["north-1", "north-2"])).then_some(())
    })
    .await;
    // Everything belongs to the second server from then on, and the first is not told.
    store.hang(true);
    until(|| one.epoch() == 2).await;
    assert_eq!(two.epoch(), 1);
    let start = || call("POST /v1/instances").json(json!({"process": "one"}));
    let (started, ()) = tokio::join!(two.send(start()), async { store.hang(false) });
    assert_eq!(started.status, 201, "{started:?}");
    slow.hang(false);
    for node in [one, two, three] {
        node.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_a_server_of_the_domain_does_not_hear_of_is_undone_by_word() {
    let cluster = Cluster::of(TWO);
    let one = cluster.start("north-1").await;
    let (store, two) = cluster.start_faulty("north-2").await;
    one.until_up("north-2").await;
    store.hang(true);
    let other =
        cluster.topology.to_yaml().replace("api: \"http://one\"", "api: \"http://one\", weight: 3");
    let begun = one.ok(call("PUT /v1/topology").body("text/yaml", other.clone())).await;
    assert_eq!(begun["change"]["missing"], json!(["north-2"]));
    let status = one.ok(call("GET /v1/cluster")).await;
    assert_eq!(status["servers"][1]["told"], Json::Null, "it has said nothing");
    assert_eq!(status["changes"]["under_way"]["phase"], "locking");
    let undone = one.ok(call("POST /v1/cluster/changes/undo").json(json!({"reason": "no"}))).await;
    assert_eq!((&undone["under_way"], &undone["last"]["undone"]), (&Json::Null, &json!("no")));
    // Declared down for good, it is not waited for.
    let changed = one.change("without=north-2", &other).await;
    assert_eq!(changed["last"]["epoch"], 2, "{changed}");
    store.hang(false);
    one.server.stop().await;
    two.server.stop().await;
}
