//! The layers of a request that have no test of their own beside their subject.

use std::sync::Arc;

use http_body_util::Full;
use hyper::Request;

use super::support::{Fixture, OFFICE, call};
use crate::http::serve;
use crate::peer::From;

/// Sends a request as another server relays it: its status, and the length of the catalog in the answer.
async fn passed_on(f: &Fixture, line: &str, body: &str, catalog: u64) -> (u16, Option<u64>) {
    let (method, path) = line.split_once(' ').unwrap();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "text/yaml")
        .header("legwork-catalog", catalog)
        .extension(From { server: Arc::from("north-1"), is_near: false })
        .body(Full::from(body.to_owned()))
        .unwrap();
    let response = serve(&f.core.app, f.peer, request).await;
    let told = response.headers().get("legwork-catalog").map(|value| value.to_str().unwrap());
    (response.status().as_u16(), told.map(|told| told.parse().unwrap()))
}

#[tokio::test]
async fn the_sender_of_a_catalog_change_is_told_how_long_the_catalog_is() {
    let f = Fixture::new().await;
    let publish = "PUT /v1/organisation";
    assert_eq!(passed_on(&f, publish, OFFICE, 0).await, (200, Some(f.core.app.status.catalog())));
    assert_eq!(passed_on(&f, "GET /v1/organisation", "", 0).await, (200, None));
    let from_outside = f.send(call(publish).body("text/yaml", OFFICE)).await;
    assert!(!from_outside.headers.contains_key("legwork-catalog"));
    f.stop().await;
}

#[tokio::test]
async fn a_relayed_request_waits_for_the_catalog_of_its_sender() {
    let f = Fixture::new().await;
    let next = f.core.app.status.catalog() + 1;
    let shown = passed_on(&f, "GET /v1/organisation", "", next);
    let publish = f.send(call("PUT /v1/organisation").body("text/yaml", OFFICE));
    let (shown, published) = tokio::join!(shown, publish);
    assert_eq!((shown.0, published.status), (200, 200));
    // The header of another caller is ignored; otherwise this would wait for seconds.
    let begun = tokio::time::Instant::now();
    f.ok(call("GET /v1/organisation").header("legwork-catalog", "1000000")).await;
    assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
    f.stop().await;
}

#[tokio::test]
async fn a_process_whose_server_moved_away_answers_only_for_itself() {
    let f = Fixture::new().await;
    f.core.app.status.go_away("it is elsewhere");
    for line in ["GET /health", "GET /metrics", "GET /openapi.json"] {
        assert_eq!(f.send(call(line)).await.status, 200, "{line}");
    }
    for line in ["GET /ready", "GET /v1/instances", "POST /v1/instances"] {
        let refused = f.refused(call(line)).await;
        assert_eq!(refused, (503, "server_unreachable".to_owned()), "{line}");
    }
    f.stop().await;
}

#[tokio::test]
async fn unknown_credentials_are_refused_and_a_single_server_gives_no_hint_of_others() {
    let f = Fixture::furnished().await;
    f.token("", "root", &["admin"]).await;
    for shown in ["Mail x", "Schedule often", "Basic YTpi", "Bearer", "Bearer lw_other"] {
        let start = call("POST /v1/instances").json(serde_json::json!({"process": "plain"}));
        let refused = f.send(start.header("authorization", shown)).await;
        assert_eq!(refused.status, 401, "{shown}: {refused:?}");
        let detail = refused.json()["detail"].to_string();
        assert!(!detail.contains("may hear of it yet"), "{shown}: {detail}");
    }
    f.stop().await;
}
