//! Servers on loopback that control cases together.
//!
//! Requests take the same path as in production; between the servers are real sockets.

use std::sync::Arc;

use legwork_placement::Topology;
use serde_json::{Value as Json, json};

use super::servers::{Cluster, Node, PATIENCE, PLAIN, TRIP, until};
use super::support::{call, send};
use crate::config::{Config, StoreChoice};
use crate::peer::Condition;
use crate::{Authority, Server};

const TWO_DOMAINS: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://north-2\" }
  south: { servers: { south-1: { address: \"127.0.0.1:PORT\", api: \"http://south\" } } }
";

#[tokio::test]
async fn a_case_moves_to_where_its_steps_are_and_the_bytes_are_counted() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    north.deploy().await;
    south.until_deployed("trip").await;
    let instance = north.start_trip().await;
    north.work("first", json!({"text": "hello"})).await;
    south.work("second", json!({})).await;
    north.work("third", json!({})).await;
    let ended = north.ended(&instance).await;
    assert_eq!(ended["state"], "completed", "{ended}");
    assert_eq!(ended["result"]["text"], "hello", "{ended}");
    // Once all transfers are acknowledged, both ends have counted the same.
    let same = |from: &Node, to: &Node| {
        let (sent, received) = (from.row(&to.name).sent, to.row(&from.name).received);
        (sent.kinds, sent.socket) == (received.kinds, received.socket)
    };
    until(|| same(&north, &south) && same(&south, &north)).await;
    let sent = north.row("south-1").sent;
    let of = |kind| sent.kinds.iter().find(|(name, _)| *name == kind).unwrap().1;
    assert!(of("history") > 0 && of("small") >= 6 && of("control") > 0, "{sent:?}");
    let metrics = north.send(call("GET /metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let line = format!(
        "legwork_link_bytes_total{{peer=\"south-1\",direction=\"out\",kind=\"history\"}} {}",
        of("history")
    );
    assert!(text.lines().any(|found| found == line), "{line} in {text}");
    let links = north.ok(call("GET /v1/cluster/links")).await;
    assert_eq!(links["server"], "north-1");
    assert_eq!(links["links"][0]["state"], "up");
    assert_eq!(links["links"][0]["sent"]["history"], of("history"));
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn the_store_of_a_member_that_is_started_alone_says_what_is_missing() {
    let cluster = Cluster::new(&["north", "south"]);
    let north = cluster.start_stored("north-1").await;
    north.deploy().await;
    north.server.stop().await;
    let store = StoreChoice::Directory(cluster.folder.path().join("north-1").join("store"));
    let mut config = Config::new(store);
    config.listen.set_port(0);
    let refused = Server::start(config).await.err().unwrap().to_string();
    assert!(
        refused.contains("(north-1, south-1)") && refused.contains("--cluster DIR"),
        "{refused}"
    );
    assert!(!refused.contains("newer"), "{refused}");
}

#[tokio::test]
async fn a_server_that_was_away_gets_what_waited_for_it_and_goes_on() {
    let cluster = Cluster::new(&["north", "south", "east"]);
    let north = cluster.start_stored("north-1").await;
    let south = cluster.start_stored("south-1").await;
    let east = cluster.start_stored("east-1").await;
    north.deploy().await;
    for node in [&south, &east] {
        node.until_deployed("trip").await;
    }
    north.until_up("south-1").await;
    let instance = north.start_trip().await;
    south.server.stop().await;
    until(|| north.row("south-1").condition != Condition::Up).await;
    north.work("first", json!({"text": "hello"})).await;
    until(|| north.row("south-1").parcels == 1).await;
    // It dies as the owner of the case, and so does the server that sent it.
    let south = cluster.start_stored("south-1").await;
    until(|| north.row("south-1").parcels == 0).await;
    south.server.stop().await;
    north.server.stop().await;
    let south = cluster.start_stored("south-1").await;
    south.work("second", json!({})).await;
    until(|| south.row("north-1").parcels == 1).await;
    let north = cluster.start_stored("north-1").await;
    north.work("third", json!({})).await;
    let ended = north.ended(&instance).await;
    assert_eq!(ended["state"], "completed", "{ended}");
    assert_eq!(ended["result"]["text"], "hello", "{ended}");
    until(|| south.row("north-1").parcels == 0).await;
    for node in [north, south, east] {
        node.server.stop().await;
    }
}

#[tokio::test]
async fn a_peer_outside_of_the_cluster_is_refused_and_told_why() {
    let cluster = Cluster::new(&["north", "south"]);
    let north = cluster.start("north-1").await;

    // Of another authority, which trusts the cluster's authority.
    let other = Authority::new().unwrap();
    cluster.certify("south-1", &other, cluster.authority.certificate());
    let stranger = cluster.start("south-1").await;
    let reason = stranger.refusal("north-1").await;
    assert!(reason.contains("UnknownCA"), "{reason}");
    let reason = north.refusal("south-1").await;
    assert!(reason.contains("UnknownIssuer"), "{reason}");
    stranger.server.stop().await;

    // Of the cluster's authority, with a name that is not in the topology of the others.
    let mut servers = cluster.topology.servers.clone();
    servers[1].name = "west-1".into();
    let topology = Arc::new(Topology { servers, ..(*cluster.topology).clone() });
    cluster.certify("west-1", &cluster.authority, cluster.authority.certificate());
    let renamed = Cluster { topology, ..cluster };
    let west = renamed.start("west-1").await;
    let reason = west.refusal("north-1").await;
    assert!(reason.contains("`west-1` is not in the topology of `north-1`"), "{reason}");
    west.server.stop().await;

    // Of the cluster's authority, with the certificate of another server.
    let folder = renamed.folder.path();
    std::fs::copy(folder.join("north-1/cert.pem"), folder.join("west-1/cert.pem")).unwrap();
    std::fs::copy(folder.join("north-1/key.pem"), folder.join("west-1/key.pem")).unwrap();
    let error = Server::start(renamed.config("west-1", StoreChoice::Memory)).await.err().unwrap();
    assert!(error.to_string().contains("not the certificate of `west-1`"), "{error}");
    north.server.stop().await;
}

#[tokio::test]
async fn certificates_are_renewed_without_a_restart() {
    let cluster = Cluster::new(&["north", "south"]);
    let north = cluster.start("north-1").await;
    // Unusable certificates do not replace usable ones.
    let folder = cluster.folder.path().join("north-1");
    let good = std::fs::read(folder.join("cert.pem")).unwrap();
    std::fs::write(folder.join("cert.pem"), "no certificate at all").unwrap();
    let south = cluster.start("south-1").await;
    south.until_up("north-1").await;
    north.until_up("south-1").await;
    south.server.stop().await;
    std::fs::write(folder.join("cert.pem"), good).unwrap();

    // Another authority: new connections trust it alone.
    let next = Authority::new().unwrap();
    cluster.certify("north-1", &next, next.certificate());
    cluster.certify("south-1", &next, next.certificate());
    let south = cluster.start("south-1").await;
    south.until_up("north-1").await;
    north.until_up("south-1").await;
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn a_request_is_passed_on_to_the_server_that_can_carry_it_out() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    south.until_up("north-1").await;
    // Only the first server changes definitions: the request is passed on there, and the definition
    // replicated from there.
    south.deploy().await;
    south.until_deployed("trip").await;
    let instance = north.start_trip().await;
    // Unknown at the other server: its id tells where it was started.
    let shown = south.ok(call(&format!("GET /v1/instances/{instance}"))).await;
    assert_eq!(shown["state"], "running");
    let suspend = format!("POST /v1/instances/{instance}/suspend");
    south.ok(call(&suspend).json(json!({"reason": "audit"}))).await;
    let shown = north.ok(call(&format!("GET /v1/instances/{instance}"))).await;
    assert_eq!(shown["state"], "suspended");
    // A refusal is passed back unchanged.
    let again = south.send(call(&suspend).json(json!({"reason": "audit"}))).await;
    assert_eq!((again.status, again.content_type()), (409, "application/problem+json"));
    let hops = call(&suspend).header("legwork-hops", "4").json(json!({}));
    let far = south.send(hops).await;
    assert_eq!((far.status, far.json()["code"].as_str()), (503, Some("too_many_hops")));
    north.server.stop().await;
    until(|| south.row("north-1").condition != Condition::Up).await;
    let away = south.send(call(&suspend).json(json!({}))).await;
    assert_eq!((away.status, away.json()["code"].as_str()), (503, Some("server_unreachable")));
    assert!(away.json()["detail"].as_str().unwrap().contains("`north-1`"), "{away:?}");
    south.server.stop().await;
}

#[tokio::test]
async fn what_is_asked_of_one_server_alone_is_not_passed_on() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    south.until_up("north-1").await;
    north.deploy().await;
    south.until_deployed("trip").await;
    let instance = north.start_trip().await;
    let path = format!("GET /v1/instances/{instance}?here=true");
    assert_eq!(north.ok(call(&path)).await["instance"], instance);
    for path in [path.clone(), format!("{path}&wait_ms=30000")] {
        let nothing = south.send(call(&path)).await;
        assert_eq!(
            (nothing.status, nothing.json()["code"].as_str().unwrap()),
            (404, "no_such_instance")
        );
    }
    let listed = south.ok(call("GET /v1/instances?here=true")).await;
    assert_eq!(listed["instances"], json!([]));
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn a_start_is_repeated_under_its_key_in_the_same_domain_and_not_in_another() {
    let cluster = Cluster::of(TWO_DOMAINS);
    let nodes = [
        cluster.start("north-1").await,
        cluster.start("north-2").await,
        cluster.start("south-1").await,
    ];
    for node in &nodes[1..] {
        nodes[0].until_known(node).await;
    }
    nodes[0].ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    let mut started = Vec::new();
    for node in &nodes {
        node.until_deployed("plain").await;
        let start = call("POST /v1/instances").json(json!({"process": "plain"}));
        let answer = node.ok(start.header("idempotency-key", "k")).await;
        started.push((answer["instance"].clone(), answer["repeated"] == true));
    }
    assert_eq!(started[1], (started[0].0.clone(), true));
    assert!(!started[2].1 && started[2].0 != started[0].0, "{started:?}");
    for node in nodes {
        node.server.stop().await;
    }
}

#[tokio::test]
async fn what_is_published_at_any_server_is_known_there_when_that_is_answered() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    south.until_up("north-1").await;
    // Too long to be sent along with its notification.
    let comment = format!("# {}\n", "much to say ".repeat(10_000));
    south.ok(call("POST /v1/definitions").body("text/yaml", comment + TRIP)).await;
    south.start_trip().await;
    let token =
        south.ok(call("POST /v1/tokens").json(json!({"name": "boss", "scopes": ["admin"]}))).await;
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    south.ok(call("GET /v1/tokens").header("authorization", &bearer)).await;
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn one_of_several_serves_other_machines_from_the_first_token_on_without_a_restart() {
    let cluster = Cluster::new(&["north", "south"]);
    let mut config = cluster.config("south-1", StoreChoice::Memory);
    config.listen = "0.0.0.0:0".parse().unwrap();
    let (north, south) =
        (cluster.start("north-1").await, cluster.start_with("south-1", config).await);
    assert_eq!((south.server.withheld(), south.server.address().ip().is_loopback()), (None, false));
    south.until_up("north-1").await;
    let elsewhere = "192.0.2.1".parse().unwrap();
    let app = &south.server.core.app;
    let early = send(app, elsewhere, call("GET /v1/topology")).await;
    assert_eq!((early.status, early.json()["code"].as_str()), (403, Some("loopback_only")));
    let token = json!({"name": "boss", "scopes": ["admin"]});
    let token = south.ok(call("POST /v1/tokens").json(token)).await;
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let known = call("GET /v1/topology").header("authorization", &bearer);
    assert_eq!(send(app, elsewhere, known).await.status, 200);
    assert_eq!(send(app, elsewhere, call("GET /v1/topology")).await.status, 401);
    let unknown = call("GET /v1/topology").header("authorization", "Bearer lw_newer");
    let unknown = send(app, elsewhere, unknown).await;
    assert_eq!(unknown.status, 401);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("may hear of it yet"));
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn a_request_is_held_against_the_rate_where_it_came_in_and_not_again() {
    let cluster = Cluster::new(&["north", "south"]);
    let mut config = cluster.config("north-1", StoreChoice::Memory);
    (config.limits.rate_per_s, config.limits.rate_burst) = (1, 2);
    let (north, south) =
        (cluster.start_with("north-1", config).await, cluster.start("south-1").await);
    south.until_up("north-1").await;
    for _ in 0..8 {
        south.deploy().await;
    }
    let statuses = async |node: &Node| {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(node.send(call("GET /v1/topology")).await.status);
        }
        statuses
    };
    assert_eq!(statuses(&north).await, [200, 200, 429]);
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn a_caller_who_goes_away_takes_a_request_passed_on_along() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    north.deploy().await;
    south.until_deployed("trip").await;
    let instance = north.start_trip().await;
    let waiting = async |count: u32| {
        loop {
            // A round of the drive thread, so that the figure is current.
            north.ok(call("GET /v1/whoami")).await;
            let metrics = north.send(call("GET /metrics")).await;
            let text = String::from_utf8(metrics.body.to_vec()).unwrap();
            if text.lines().any(|line| line == format!("legwork_requests_waiting {count}")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let ended = south.ended(&instance);
    tokio::select! {
        ended = ended => panic!("{ended}"),
        () = waiting(1) => {}
    }
    waiting(0).await;
    // Another request is answered when the case has ended.
    let ending = async {
        waiting(1).await;
        let abort = format!("POST /v1/instances/{instance}/abort");
        north.ok(call(&abort).json(json!({"reason": "enough"}))).await;
    };
    let (ended, ()) = tokio::join!(south.ended(&instance), ending);
    assert_eq!(ended["state"], "aborted", "{ended}");
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn an_instance_is_shown_with_what_all_servers_know_of_it() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    north.deploy().await;
    south.until_deployed("trip").await;
    north.until_up("south-1").await;
    let instance = north.start_trip().await;
    north.work("first", json!({"text": "hello"})).await;
    let activate = json!({"worker": "w", "types": ["second"], "max": 1, "lease_ms": 60_000, "wait_ms": 30_000});
    let jobs = south.ok(call("POST /v1/jobs/activate").json(activate)).await;
    let (job, lease) = (&jobs["jobs"][0]["job"], &jobs["jobs"][0]["lease"]);
    let failed = json!({"job": job, "lease": lease, "error": "no paper", "retry": false});
    south.ok(call("POST /v1/jobs/fail").json(json!({"worker": "w", "jobs": [failed]}))).await;

    let states = |shown: &Json| {
        let nodes = shown["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let path = format!("GET /v1/instances/{instance}");
    for node in [&north, &south] {
        let shown = node.ok(call(&path)).await;
        assert_eq!(states(&shown), ["completed", "failed", "not_activated"], "{}", node.name);
        assert_eq!(shown["incidents"], 1);
    }
    for node in [&north, &south] {
        let list = node.ok(call("GET /v1/instances?process=trip&limit=5")).await;
        let one = &list["instances"][0];
        assert_eq!((&one["instance"], &one["incidents"]), (&json!(instance), &json!(1)), "{list}");
        assert_eq!(list["instances"].as_array().unwrap().len(), 1, "{list}");
        let list = node.ok(call("GET /v1/incidents")).await;
        assert_eq!(list["incidents"][0]["activity"], *job, "{list}");
    }
    assert_eq!(north.ok(call("GET /v1/incidents?here=true")).await, json!({"incidents": []}));
    let history = north.ok(call(&format!("{path}/history"))).await;
    assert!(history.to_string().contains("control of two to south-1"), "{history}");
    let alone = north.ok(call(&format!("{path}?here=true"))).await;
    assert_eq!(states(&alone), ["completed", "activated", "not_activated"]);

    south.server.stop().await;
    until(|| north.row("south-1").condition != Condition::Up).await;
    let partly = north.ok(call(&path)).await;
    assert_eq!(partly["unreachable"], json!(["south-1"]));
    for path in ["GET /v1/instances", "GET /v1/incidents?limit=1"] {
        assert_eq!(north.ok(call(path)).await["unreachable"], json!(["south-1"]));
    }
}

#[tokio::test]
async fn a_person_works_at_any_server_on_what_any_other_has_for_them() {
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    let organisation = "organisation: o\nagents:\n  ann: { roles: [clerk] }\n";
    let process = "process: letter\nsteps:\n  - { step: sign, who: Role(clerk), at: south }\n";
    north.ok(call("PUT /v1/organisation").body("text/yaml", organisation)).await;
    north.ok(call("POST /v1/definitions").body("text/yaml", process)).await;
    south.until_deployed("letter").await;
    north.until_up("south-1").await;
    south.until_up("north-1").await;
    let empty = north.ok(call("GET /v1/worklist?agent=ann")).await;
    assert_eq!((&empty["items"], &empty["unreachable"]), (&json!([]), &Json::Null));
    let next = async |list: &Json| {
        let since = list["cursor"].as_str().unwrap();
        let wait = format!("GET /v1/worklist?agent=ann&since={since}&wait_ms=30000");
        north.ok(call(&wait)).await
    };

    north.ok(call("POST /v1/instances").json(json!({"process": "letter"}))).await;
    let offered = next(&empty).await;
    let item = &offered["items"][0];
    assert_eq!((&item["server"], &item["stale"]), (&json!("south-1"), &Json::Null), "{offered}");
    let path = format!("/v1/work/{}", item["activity"].as_str().unwrap());
    let claim = call(&format!("POST {path}/claim")).json(json!({"agent": "ann"}));
    assert_eq!(north.send(claim).await.status, 204);
    let claimed = next(&offered).await;
    assert_eq!(claimed["items"][0]["claimed_by"], "ann", "{claimed}");
    let detail = north.ok(call(&format!("GET {path}?agent=ann"))).await;
    assert_eq!(detail["server"], "south-1");

    south.server.stop().await;
    let lonely = next(&claimed).await;
    assert_eq!(lonely["items"][0]["stale"], true, "{lonely}");
    assert_eq!(lonely["unreachable"][0]["server"], "south-1");
    let complete = call(&format!("POST {path}/complete")).json(json!({"agent": "ann"}));
    let away = north.send(complete).await;
    assert_eq!((away.status, away.json()["code"].as_str()), (503, Some("server_unreachable")));
    north.server.stop().await;
}

#[tokio::test]
async fn a_topology_is_published_at_any_server_and_in_force_at_all() {
    use legwork_api::topology::Topology as Shown;
    let cluster = Cluster::new(&["north", "south"]);
    let (north, south) = (cluster.start("north-1").await, cluster.start("south-1").await);
    south.until_up("north-1").await;
    let shown = async |node: &Node, path: &str| -> Shown {
        serde_json::from_value(node.ok(call(path)).await).unwrap()
    };
    let first = shown(&north, "GET /v1/topology").await;
    assert_eq!((first.epoch, first.registrar.as_deref()), (1, Some("north-1")));
    assert_eq!(&*first.source, cluster.topology.to_yaml());
    let changed = format!("{}links: [{{ between: [north, south], cost: 7 }}]\n", first.source);
    let published = south.ok(call("PUT /v1/topology").body("text/yaml", changed.clone())).await;
    assert_eq!(published, json!({"version": 2, "unchanged": false, "warnings": []}));
    let mut second = shown(&south, "GET /v1/topology").await;
    let caught_up = async {
        while second.epoch < 2 {
            second = shown(&south, "GET /v1/topology").await;
        }
    };
    tokio::time::timeout(PATIENCE, caught_up).await.unwrap();
    assert_eq!((second.server.as_deref(), second.links[0].cost), (Some("south-1"), 7));
    assert_eq!(&*second.domains[1].servers[0].api, "http://south");
    let old = shown(&south, "GET /v1/topology?epoch=1").await;
    assert_eq!((old.epoch, &old.source, old.links.len()), (1, &first.source, 0));
    let epochs = south.ok(call("GET /v1/topology/versions?limit=1&cursor=1")).await;
    assert_eq!((&epochs["versions"][0]["version"], &epochs["next"]), (&json!(2), &Json::Null));
    // A check at a server uses its topology.
    let lost = json!({"source": TRIP.replace("at: south", "at: west")});
    let check = south.ok(call("POST /v1/check").json(lost)).await;
    assert_eq!((&check["ok"], &check["findings"][0]["rule"]), (&json!(false), &json!("Z1")));
    let broken = call("PUT /v1/topology").body("text/yaml", "topology: group\n");
    assert_eq!(south.send(broken).await.status, 422);
    north.server.stop().await;
    south.server.stop().await;
}
