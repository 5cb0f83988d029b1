//! Deadlines over the API: promised, refused with the earliest date, asked for, listed, planned.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;
use legwork_store::memory::Memory;
use legwork_store::{Append, Batch, EventStore, Snapshot, Version};
use serde_json::{Value as Json, json};

use super::servers::Cluster;
use super::support::{Answered, Fixture, OFFICE, call, on};
use crate::Server;
use crate::config::{Config, StoreChoice};
use crate::core::Opening;

/// Ann alone can do it, at any hour.
const REPORT: &str = "
process: report
steps:
  - { step: draft, who: Agent(ann), takes: 2h }
  - { step: read, who: Agent(ben), takes: 1h }
";

const HOUR: u64 = 3_600;

async fn furnished() -> Fixture {
    let f = Fixture::furnished().await;
    f.ok(call("POST /v1/definitions").body("text/yaml", REPORT)).await;
    f
}

impl Fixture {
    /// So many hours from now.
    fn hours(&self, hours: u64) -> Timestamp {
        self.core.app.clock.now() + Duration::from_secs(hours * HOUR)
    }

    async fn report(&self, deadline: Json) -> Answered {
        let body = json!({"process": "report", "deadline": deadline});
        self.send(call("POST /v1/instances").json(body)).await
    }
}

fn text(moment: Timestamp) -> Json {
    json!(moment.to_string())
}

#[tokio::test]
async fn a_start_is_promised_or_refused_with_the_earliest_date() {
    let f = furnished().await;
    let by = f.hours(4);
    let started = f.report(json!({"at": text(by)})).await;
    assert_eq!(started.status, 201, "{started:?}");
    let deadline = &started.json()["deadline"];
    assert_eq!((&deadline["at"], &deadline["promised"]), (&text(by), &json!(true)));
    let steps = deadline["steps"].as_array().unwrap();
    let told: Vec<_> = steps.iter().map(|step| (&step["step"], &step["by"]["agent"])).collect();
    assert_eq!(told, [(&json!("draft"), &json!("ann")), (&json!("read"), &json!("ben"))]);
    assert!(steps.iter().all(|step| step["end"].as_str() <= step["due"].as_str()), "{steps:?}");

    let refused = f.report(json!({"at": text(by)})).await;
    let problem = refused.json();
    assert_eq!((refused.status, &problem["code"]), (409, &json!("deadline_not_promised")));
    assert!(problem["earliest"].as_str() > text(by).as_str(), "{problem}");
    let steps = problem["steps"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["due"], problem["earliest"], "{problem}");
    let again = f.report(json!({"at": problem["earliest"]})).await;
    assert_eq!((again.status, &again.json()["deadline"]["promised"]), (201, &json!(true)));

    let anyway = f.report(json!({"at": text(by), "unpromised": "start"})).await;
    let view = anyway.json();
    assert_eq!((anyway.status, &view["deadline"]["promised"]), (201, &json!(false)));
    assert!(view["deadline"].get("steps").is_none(), "{view}");
    for (deadline, code) in [
        (json!({"at": text(by), "priority": 10}), "unexpected_json"),
        (json!({"at": "friday"}), "unexpected_json"),
        (json!({"at": text(f.core.app.clock.now())}), "deadline_past"),
    ] {
        assert_eq!(f.report(deadline).await.json()["code"], code);
    }
    f.stop().await;
}

#[tokio::test]
async fn what_workers_promise_is_best_effort() {
    let f = furnished().await;
    let scored = "process: scored\nsteps:\n  - { step: score, job: score, takes: 1h }\n";
    f.ok(call("POST /v1/definitions").body("text/yaml", scored)).await;
    let ask = async || {
        let body = json!({"process": "scored", "deadline": {"at": text(f.hours(4))}});
        f.send(call("POST /v1/deadlines").json(body)).await
    };
    let refused = ask().await.json();
    let why = refused["detail"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("no worker has asked"), "{refused}");
    let poll =
        json!({"worker": "w", "types": ["score"], "max": 1, "lease_ms": 60_000, "wait_ms": 0});
    f.ok(call("POST /v1/jobs/activate").json(poll)).await;
    let promised = ask().await.json();
    assert_eq!((&promised["promised"], &promised["best_effort"]), (&json!(true), &json!(true)));
    let step = &promised["steps"][0];
    assert_eq!((&step["by"], &step["best_effort"]), (&json!({"worker": "score"}), &json!(true)));
    f.stop().await;
}

#[tokio::test]
async fn a_caller_who_asks_gets_the_plan_and_an_offer() {
    let f = furnished().await;
    let ask = async |hours: u64| {
        let body = json!({"process": "report", "deadline": {"at": text(f.hours(hours))}});
        f.send(call("POST /v1/deadlines").json(body)).await
    };
    for _ in 0..3 {
        let answered = ask(4).await;
        assert_eq!((answered.status, &answered.json()["promised"]), (200, &json!(true)));
    }
    let refused = ask(1).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("deadline_not_promised")));
    assert!(refused.json()["earliest"].is_string());
    let nothing = f.send(call("POST /v1/deadlines").json(json!({"process": "report"}))).await;
    assert_eq!((nothing.status, &nothing.json()["code"]), (400, &json!("unexpected_json")));
    let plan = f.ok(call("GET /v1/plans/ann")).await;
    let turns = plan["turns"].as_array().unwrap();
    // The same case asked about again has one offer.
    assert_eq!((&plan["kind"], turns.len()), (&json!("person"), 1));
    assert_eq!((&turns[0]["what"], turns[0].get("instance")), (&json!("offered"), None));
    assert_eq!(f.ok(call("GET /v1/instances")).await["instances"], json!([]));
    f.stop().await;
}

#[tokio::test]
async fn those_with_a_deadline_are_listed_and_stand_in_plans() {
    let f = furnished().await;
    f.ok(call("POST /v1/instances").json(json!({"process": "report"}))).await;
    let by = f.hours(4);
    let started = f.report(json!({"at": text(by)})).await.json();
    let instance = &started["instance"];
    let list = f.ok(call("GET /v1/instances?deadline=true")).await;
    assert_eq!(list["instances"].as_array().unwrap().len(), 1);
    let listed = &list["instances"][0];
    assert_eq!(&listed["instance"], instance);
    assert_eq!(listed["deadline"], json!({"at": text(by), "promised": true}));
    let other = f.ok(call("GET /v1/instances?deadline=true&process=letter")).await;
    assert_eq!(other["instances"], json!([]));
    assert_eq!(f.ok(call("GET /v1/instances")).await["instances"].as_array().unwrap().len(), 2);
    let path = format!("/v1/instances/{}", instance.as_str().unwrap());
    let shown = f.ok(call(&format!("GET {path}"))).await;
    assert_eq!(shown["deadline"], started["deadline"]);

    let plan = f.ok(call("GET /v1/plans/ann?kind=person")).await;
    let turn = &plan["turns"][0];
    assert_eq!((&turn["instance"], &turn["step"]), (instance, &json!("draft")));
    for (query, status) in [("nobody", 404), ("ann?kind=executor", 404), ("ann?kind=robot", 400)] {
        assert_eq!(f.send(call(&format!("GET /v1/plans/{query}"))).await.status, status, "{query}");
    }

    // An ended case still shows that it had one.
    f.ok(call(&format!("POST {path}/abort")).json(json!({}))).await;
    let open = f.ok(call("GET /v1/instances?deadline=true")).await;
    assert_eq!(open["instances"], json!([]));
    let ended = f.ok(call("GET /v1/instances?deadline=true&state=ended")).await;
    assert_eq!(ended["instances"][0]["deadline"]["at"], text(by));
    assert_eq!(f.ok(call("GET /v1/plans/ann")).await["turns"], json!([]));
    f.stop().await;
}

#[tokio::test]
async fn a_repetition_with_another_deadline_is_another_request() {
    let f = furnished().await;
    let by = f.hours(4);
    let start = async |deadline: Json| {
        let body = json!({"process": "report", "deadline": deadline});
        f.send(call("POST /v1/instances").header("idempotency-key", "k").json(body)).await
    };
    let first = start(json!({"at": text(by)})).await.json();
    let again = start(json!({"at": text(by), "priority": 5})).await;
    assert_eq!((again.status, &again.json()["instance"]), (200, &first["instance"]));
    assert_eq!(again.json()["deadline"], first["deadline"]);
    for other in [json!({"at": text(f.hours(9))}), json!({"at": text(by), "priority": 6})] {
        assert_eq!(start(other).await.json()["code"], "idempotency_key_reused");
    }
    f.stop().await;
}

#[tokio::test]
async fn what_becomes_of_deadlines_is_counted() {
    let f = furnished().await;
    let by = f.hours(4);
    let started = f.report(json!({"at": text(by)})).await.json();
    f.report(json!({"at": text(by)})).await;
    f.report(json!({"at": text(by), "unpromised": "start"})).await;
    for (step, agent) in [("draft", "ann"), ("read", "ben")] {
        let item = format!("/v1/work/{}:{step}", started["instance"].as_str().unwrap());
        f.ok(call(&format!("POST {item}/claim")).json(json!({"agent": agent}))).await;
        f.ok(call(&format!("POST {item}/complete")).json(json!({"agent": agent}))).await;
    }
    let metrics = f.send(call("GET /metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for (name, count) in [
        ("promised", 1),
        ("refused", 1),
        ("unpromised", 1),
        ("kept", 1),
        ("broken", 0),
        ("revoked", 0),
    ] {
        let line = format!("legwork_deadlines_{name}_total {count}\n");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    f.stop().await;
}

/// Ann is at home in the south, Ben in the north.
const SITES: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
    people: [ben]
  south:
    servers:
      south-1: { address: \"127.0.0.1:PORT\", api: \"http://south-1\" }
    people: [ann]
";

#[tokio::test]
async fn a_plan_is_asked_for_anywhere_and_answered_by_the_server_that_keeps_it() {
    let cluster = Cluster::of(SITES);
    let north = cluster.start("north-1").await;
    let south = cluster.start("south-1").await;
    north.until_up("south-1").await;
    north.ok(call("PUT /v1/organisation").body("text/yaml", OFFICE)).await;
    north.ok(call("POST /v1/definitions").body("text/yaml", REPORT)).await;
    south.until_deployed("report").await;
    let by = crate::now() + Duration::from_secs(5 * HOUR);
    let body = json!({"process": "report", "deadline": {"at": text(by)}});
    for node in [&north, &south] {
        let asked = node.ok(call("POST /v1/deadlines").json(body.clone())).await;
        assert_eq!(asked["promised"], true, "{asked}");
    }
    let started = north.ok(call("POST /v1/instances").json(body.clone())).await;
    for node in [&north, &south] {
        for (name, step) in [("ann", "draft"), ("ben", "read")] {
            let plan = node.ok(call(&format!("GET /v1/plans/{name}"))).await;
            assert_eq!(
                (&plan["turns"][0]["instance"], &plan["name"]),
                (&started["instance"], &json!(name))
            );
            // The server of the plan need not know the case.
            assert_eq!(plan["turns"][0]["step"], step, "{plan}");
        }
        let refused = node.send(call("POST /v1/instances").json(body.clone())).await;
        assert_eq!(refused.json()["code"], "deadline_not_promised");
        let listed = node.ok(call("GET /v1/instances?deadline=true")).await;
        assert_eq!(listed["instances"][0]["deadline"]["promised"], true, "{listed}");
    }
    north.server.stop().await;
    south.server.stop().await;
}

#[tokio::test]
async fn plans_that_cannot_be_read_keep_the_server_from_starting() {
    let store = Arc::new(Memory::default());
    let (expected, record) = (Version(0), b"of a newer version".to_vec());
    let appends = vec![Append { stream: StreamId::PLANS, expected, record, close: None }];
    store.commit(Batch { appends, snapshots: Vec::new() }).unwrap();
    let mut config = Config::new(StoreChoice::Memory);
    config.listen = "127.0.0.1:0".parse().unwrap();
    let refused = Server::start_on(config, Opening::new(on(&store))).await.err();
    let refused = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("record 1 of the plans"), "{refused}");
    assert!(refused.contains("use a newer legwork"), "{refused}");
}

#[tokio::test]
async fn without_a_readable_snapshot_promises_are_read_from_their_records() {
    let store = Arc::new(Memory::default());
    let config = Config::new(StoreChoice::Memory);
    let f = Fixture::on(config.clone(), on(&store)).await;
    f.furnish().await;
    f.ok(call("POST /v1/definitions").body("text/yaml", REPORT)).await;
    let deadline = json!({"at": text(f.hours(4))});
    assert_eq!(f.report(deadline.clone()).await.status, 201);
    f.stop().await;
    let version = Version(store.read(StreamId::PLANS, Version(0), 100).unwrap().len() as u64);
    let snapshot = Snapshot { stream: StreamId::PLANS, version, bytes: b"another's".to_vec() };
    store.commit(Batch { appends: Vec::new(), snapshots: vec![snapshot] }).unwrap();

    let f = Fixture::on(config, on(&store)).await;
    assert_eq!(f.report(deadline).await.status, 409, "somebody's time is promised already");
    f.stop().await;
}

#[tokio::test]
async fn where_a_promise_was_broken_is_counted() {
    let f = furnished().await;
    let (begun, started) = (f.hours(0), f.report(json!({"at": text(f.hours(4))})).await.json());
    // The draft was due after two hours and forty minutes.
    for (step, agent, minutes) in [("draft", "ann", 165), ("read", "ben", 241)] {
        let item = format!("/v1/work/{}:{step}", started["instance"].as_str().unwrap());
        f.ok(call(&format!("POST {item}/claim")).json(json!({"agent": agent}))).await;
        f.core.app.clock.advance_to(begun + Duration::from_secs(minutes * 60));
        f.ok(call(&format!("POST {item}/complete")).json(json!({"agent": agent}))).await;
    }
    let metrics = f.send(call("GET /metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let place = r#"{process="report",step="draft",domain="",executor=""} 1"#;
    let line = format!("legwork_deadlines_broken_by_step_total{place}\n");
    assert!(text.contains(&line), "{line} is missing in\n{text}");
    f.stop().await;
}
