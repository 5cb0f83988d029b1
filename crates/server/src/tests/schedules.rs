//! Periodic starts as callers see them. They depend on the clock, so these tests wait for a second or two.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_store::memory::Memory;
use legwork_store::{Batch, EventStore, Snapshot, Version};
use serde_json::{Value as Json, json};

use super::servers::{Cluster, PLAIN, TWO, until_some};
use super::support::{Fixture, call, on};
use crate::config::{Config, StoreChoice};

const PAPER: &str = "
process: paper
data: { draft: file }
start: [draft]
steps:
  - { step: review, job: review, reads: [draft] }
";

fn put(process: &str, data: Json) -> super::support::Call {
    let body = json!({"process": process, "every_ms": 1_000, "data": data});
    call("PUT /v1/schedules/often").json(body)
}

#[tokio::test]
async fn a_schedule_starts_cases_where_nothing_goes_without_a_token() {
    let f = Fixture::furnished().await;
    let admin = f.token("", "root", &["admin"]).await;
    let starter = f.token(&admin, "desk", &["start"]).await;
    let answered = f.ok(put("plain", json!({"n": 7})).token(&starter)).await;
    assert_eq!(answered["unchanged"], false);
    let started = until_some(async || {
        let shown = f.ok(call("GET /v1/schedules/often").token(&starter)).await;
        shown["last"]["instance"].as_str().map(str::to_owned)
    })
    .await;
    let shown = f.ok(call("GET /v1/schedules/often").token(&admin)).await;
    assert_eq!(shown["by"], json!({"agent": "token:desk"}));
    let history = format!("GET /v1/instances/{started}/history");
    let history = f.ok(call(&history).token(&admin)).await;
    assert_eq!(history["entries"][0]["by"], json!({"agent": "schedule:often"}));
    let metrics = f.send(call("GET /metrics")).await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("legwork_schedules 1"), "{metrics}");
    assert!(metrics.contains("legwork_schedules_started_total"), "{metrics}");
    // A caller cannot impersonate a schedule.
    let forged = call("POST /v1/instances").json(json!({"process": "plain", "data": {"n": 1}}));
    let forged = forged.header("authorization", "Schedule often");
    assert_eq!(f.refused(forged).await, (401, "unauthenticated".to_owned()));
    // Nor use the key of its next start.
    let taken = call("POST /v1/instances").json(json!({"process": "plain", "data": {"n": 1}}));
    let taken = taken.header("idempotency-key", "schedule:often@2030-01-01T00:00:00.000Z");
    let reserved = (400, "reserved_idempotency_key".to_owned());
    assert_eq!(f.refused(taken.token(&starter)).await, reserved);
    f.stop().await;
}

#[tokio::test]
async fn without_a_readable_snapshot_what_came_of_starts_is_read_from_its_records() {
    let store = Arc::new(Memory::default());
    let config = Config::new(StoreChoice::Memory);
    let f = Fixture::on(config.clone(), on(&store)).await;
    f.furnish().await;
    f.ok(put("plain", json!({"n": 7}))).await;
    let last = async |f: &Fixture| {
        until_some(async || {
            let shown = f.ok(call("GET /v1/schedules/often")).await;
            shown["last"]["instance"].as_str().map(str::to_owned)
        })
        .await
    };
    last(&f).await;
    f.ok(call("POST /v1/schedules/often/pause")).await;
    f.stop().await;
    let version = Version(store.read(StreamId::SCHEDULES, Version(0), 100).unwrap().len() as u64);
    let snapshot = Snapshot { stream: StreamId::SCHEDULES, version, bytes: b"another's".to_vec() };
    store.commit(Batch { appends: Vec::new(), snapshots: vec![snapshot] }).unwrap();

    let f = Fixture::on(config, on(&store)).await;
    let before = last(&f).await;
    f.ok(call("POST /v1/schedules/often/resume")).await;
    until_some(async || (last(&f).await != before).then_some(())).await;
    f.stop().await;
}

#[tokio::test]
async fn mistakes_say_what_to_write() {
    let f = Fixture::furnished().await;
    let bad = (422, "bad_schedule".to_owned());
    for when in [
        json!({}),
        json!({"cron": "0 2 * * *", "every_ms": 1_000}),
        json!({"every_ms": 1_000, "zone": "UTC"}),
        json!({"every_ms": 10}),
        json!({"cron": "0 25 * * *"}),
        json!({"cron": "0 2 * * *", "zone": "Berlin"}),
    ] {
        let mut body = json!({"process": "plain", "data": {"n": 1}});
        body.as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
        let refused = f.refused(call("PUT /v1/schedules/often").json(body)).await;
        assert_eq!(refused, bad, "{when}");
    }
    let gone = f.refused(call("POST /v1/schedules/often/pause")).await;
    assert_eq!(gone, (404, "no_such_schedule".to_owned()));
    // A schedule whose starts would be refused is refused.
    f.ok(call("POST /v1/definitions").body("text/yaml", PAPER)).await;
    let draft = json!({"blob": "ab".repeat(32), "size": 7});
    let unstored = f.refused(put("paper", json!({"draft": draft}))).await;
    assert_eq!(unstored, (404, "no_such_file".to_owned()));
    f.stop().await;
}

/// The key of a moment determines the server of its case: the registrar passes the start on.
#[tokio::test]
async fn cases_are_spread_over_servers_and_each_moment_is_started_once() {
    let cluster = Cluster::of(TWO);
    let (first, second) = (cluster.start("north-1").await, cluster.start("north-2").await);
    first.until_known(&second).await;
    first.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    second.until_deployed("plain").await;
    let token = call("POST /v1/tokens").json(json!({"name": "root", "scopes": ["admin"]}));
    let token = first.ok(token).await["token"].as_str().unwrap().to_owned();
    until_some(async || {
        let whoami = call("GET /v1/whoami").token(&token);
        (second.send(whoami).await.status == 200).then_some(())
    })
    .await;
    // Put and listed at a server that does not carry it out.
    second.ok(put("plain", json!({})).token(&token)).await;
    let (mut moments, mut servers) = (BTreeSet::new(), BTreeSet::new());
    until_some(async || {
        let shown = second.ok(call("GET /v1/schedules/often").token(&token)).await;
        assert!(shown["last"]["code"].is_null(), "{shown}");
        if let Some(started) = shown["last"]["instance"].as_str() {
            moments.insert((shown["last"]["at"].to_string(), started.to_owned()));
            servers.insert(started.parse::<InstanceId>().unwrap().server());
        }
        (servers.len() == 2).then_some(())
    })
    .await;
    assert_eq!(servers, BTreeSet::from([ServerId(0), ServerId(1)]));
    let distinct: BTreeSet<&str> = moments.iter().map(|(moment, _)| &**moment).collect();
    assert_eq!(distinct.len(), moments.len(), "{moments:?}");
    second.ok(call("DELETE /v1/schedules/often").token(&token)).await;
    first.server.stop().await;
    second.server.stop().await;
}
