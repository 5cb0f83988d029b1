//! Bad input: each limit has its code, and a refused request has changed nothing.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame};
use serde_json::json;
use tokio::sync::Notify;

use super::support::{Fixture, call};
use crate::config::{Config, StoreChoice};
use crate::http::serve;

#[tokio::test]
async fn what_cannot_be_understood_is_refused_by_code() {
    let f = Fixture::furnished().await;
    let json_type = "application/json";
    let deep = format!(
        "{{\"process\":\"plain\",\"data\":{{\"n\":{}1{}}}}}",
        "[".repeat(100),
        "]".repeat(100)
    );
    for (call, status, code) in [
        (call("POST /v1/instances").body(json_type, "{\"process\":"), 400, "malformed_json"),
        (
            call("POST /v1/instances").json(json!({"process": "plain", "x": 1})),
            400,
            "unknown_field",
        ),
        (call("POST /v1/instances").json(json!({"process": 1})), 400, "unexpected_json"),
        (call("POST /v1/instances").body(json_type, deep), 400, "too_deep"),
        (call("POST /v1/instances").body("text/plain", "{}"), 415, "wrong_content_type"),
        (
            call("POST /v1/instances?x=1").json(json!({"process": "plain"})),
            400,
            "unknown_parameter",
        ),
        (call("POST /v1/instances").json(json!({"process": "nope"})), 404, "no_such_process"),
        (call("POST /v1/instances").json(json!({"process": "plain"})), 422, "missing_input"),
        (
            call("POST /v1/instances").json(json!({"process": "plain", "wait_ms": 60_001})),
            400,
            "wait_too_long",
        ),
        (
            call("POST /v1/instances")
                .header("idempotency-key", "")
                .json(json!({"process": "plain"})),
            400,
            "bad_idempotency_key",
        ),
        (call("GET /v1/instances?limit=0"), 400, "bad_parameter"),
        (call("GET /v1/instances?state=lost"), 400, "bad_parameter"),
        (call("GET /v1/instances?cursor=x"), 400, "bad_parameter"),
        (call("GET /v1/instances/inst_1"), 400, "bad_id"),
        (call("GET /v1/instances/%FF"), 400, "bad_id"),
        (call("GET /v1/instances/inst_00000000000000000000000001"), 404, "no_such_instance"),
        (call("GET /v1/work/inst_00000000000000000000000001:a?agent=ann"), 404, "no_such_item"),
        (call("POST /v1/definitions").body("text/yaml", vec![0xff]), 400, "not_utf8"),
        (call("POST /v1/definitions").body("text/yaml", "a: ["), 422, "check_failed"),
        (call("GET /v1/files/abc"), 400, "bad_id"),
        (call("GET /v1/nothing"), 404, "no_such_path"),
        (call("DELETE /v1/instances"), 405, "wrong_method"),
        (call("GET /v1/backup"), 409, "no_backups"),
    ] {
        let answered = f.send(call).await;
        assert_eq!(
            (answered.status, &answered.json()["code"]),
            (status, &json!(code)),
            "{answered:?}"
        );
        assert_eq!(answered.content_type(), "application/problem+json");
        assert_eq!(answered.json()["type"], format!("urn:legwork:problem:{code}"));
    }
    assert_eq!(f.ok(call("GET /v1/instances")).await["instances"], json!([]));
    f.stop().await;
}

#[tokio::test]
async fn large_bodies_are_refused_without_being_kept() {
    let f = Fixture::new().await;
    let limits = [
        ("POST /v1/instances", 1 << 20),
        ("POST /v1/definitions", 1 << 20),
        ("PUT /v1/files", 64 << 20),
    ];
    for (line, limit) in limits {
        let large = vec![b' '; limit + 1];
        let refused = f.refused(call(line).body("application/json", large)).await;
        assert_eq!(refused, (413, "body_too_large".to_owned()), "{line}");
    }
    f.stop().await;
}

#[tokio::test]
async fn large_headers_are_refused() {
    let f = Fixture::new().await;
    let large = call("GET /health").header("x-filler", &"x".repeat(20_000));
    assert_eq!(f.refused(large).await, (431, "header_too_large".to_owned()));
    f.stop().await;
}

#[tokio::test]
async fn the_refusal_of_a_wrong_path_names_the_right_one() {
    let f = Fixture::new().await;
    let answered = f.send(call("GET /v1/instance")).await;
    assert!(answered.json()["detail"].as_str().unwrap().contains("/v1/instances"));
    let answered = f.send(call("PUT /v1/tokens")).await;
    assert_eq!(answered.headers["allow"], "POST, GET");
    f.stop().await;
}

#[tokio::test]
async fn a_lease_that_is_too_short_or_too_long_is_refused_and_not_changed() {
    let f = Fixture::furnished().await;
    for lease_ms in [0, 99, 86_400_001_u64] {
        let poll = json!({"worker": "w", "types": ["plain"], "max": 1, "lease_ms": lease_ms});
        let refused = f.refused(call("POST /v1/jobs/activate").json(poll)).await;
        assert_eq!(refused, (422, "bad_lease".to_owned()), "{lease_ms}");
        let extend = json!({"worker": "w", "lease_ms": lease_ms,
            "jobs": [{"job": "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:one", "lease": "1"}]});
        let refused = f.refused(call("POST /v1/jobs/extend").json(extend)).await;
        assert_eq!(refused, (422, "bad_lease".to_owned()), "{lease_ms}");
    }
    f.stop().await;
}

#[tokio::test]
async fn a_made_up_token_gives_no_new_allowance_and_takes_none_from_others() {
    let mut config = Config::new(StoreChoice::Memory);
    config.limits.rate_per_s = 1;
    config.limits.rate_burst = 5;
    let f = Fixture::with(config).await;
    let admin = f.token("", "admin", &["admin"]).await;
    let mut codes = Vec::new();
    for n in 0..20 {
        let made_up = call("GET /v1/whoami").token(&format!("lw_{n}"));
        codes.push(f.refused(made_up).await);
    }
    let basic = call("GET /v1/whoami").header("authorization", "Basic YTpi");
    codes.push(f.refused(basic).await);
    assert!(codes.contains(&(429, "rate_limited".to_owned())), "{codes:?}");
    f.ok(call("GET /v1/whoami").token(&admin)).await;
    f.stop().await;
}

#[tokio::test]
async fn a_caller_over_the_rate_is_told_when_to_come_back() {
    let mut config = Config::new(StoreChoice::Memory);
    config.limits.rate_per_s = 1;
    config.limits.rate_burst = 2;
    let f = Fixture::with(config).await;
    f.ok(call("GET /health")).await;
    f.ok(call("GET /health")).await;
    let answered = f.send(call("GET /health")).await;
    assert_eq!((answered.status, &answered.json()["code"]), (429, &json!("rate_limited")));
    assert_eq!(answered.headers["retry-after"], "1");
    f.stop().await;
}

#[tokio::test]
async fn a_full_queue_and_a_full_waiting_room_are_told_apart() {
    let mut config = Config::new(StoreChoice::Memory);
    config.limits.queue_max = 0;
    let f = Fixture::with(config).await;
    let answered = f.send(call("GET /v1/instances")).await;
    assert_eq!((answered.status, &answered.json()["code"]), (503, &json!("overloaded")));
    assert_eq!(answered.headers["retry-after"], "1");
    f.stop().await;

    let mut config = Config::new(StoreChoice::Memory);
    config.limits.waiting_max = 0;
    let f = Fixture::with(config).await;
    let body = json!({"worker": "w", "types": ["a"], "max": 1, "lease_ms": 100, "wait_ms": 1000});
    let refused = f.refused(call("POST /v1/jobs/activate").json(body)).await;
    // Refused by the site, which has a limit of its own.
    assert_eq!(refused, (429, "too_many_waiting".to_owned()));
    f.stop().await;
}

/// A body that never comes, and signals when it is read.
struct Endless(Arc<Notify>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.notify_one();
        Poll::Pending
    }
}

#[tokio::test]
async fn more_uploads_than_there_are_places_for_are_to_be_tried_again() {
    let mut config = Config::new(StoreChoice::Memory);
    config.limits.uploads_max = 1;
    let f = Fixture::with(config).await;
    let reading = Arc::new(Notify::new());
    let endless = Request::put("/v1/files").body(Endless(reading.clone())).unwrap();
    let (app, peer) = (f.core.app.clone(), f.peer);
    let first = tokio::spawn(async move { serve(&app, peer, endless).await });
    reading.notified().await;
    let upload = || call("PUT /v1/files?name=a.txt").body("text/plain", "a");
    let answered = f.send(upload()).await;
    assert_eq!((answered.status, &answered.json()["code"]), (429, &json!("too_many_uploads")));
    assert_eq!(answered.headers["retry-after"], "1");
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    f.ok(upload()).await;
    f.ok(upload()).await;
    f.stop().await;
}
