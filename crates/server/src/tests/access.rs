//! Authorisation, as seen from outside.

use serde_json::{Value as Json, json};

use super::support::{Fixture, call};

/// A server with tokens and a letter that ann and ben may sign.
struct Guarded {
    f: Fixture,
    admin: String,
    ann: String,
    start: String,
    worker: String,
    instance: String,
}

async fn guarded() -> Guarded {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let admin = f.token("", "root", &["admin"]).await;
    let ann = f.token(&admin, "ann", &["work:ann"]).await;
    let start = f.token(&admin, "starter", &["start"]).await;
    let worker = f.token(&admin, "robot", &["worker"]).await;
    Guarded { f, admin, ann, start, worker, instance }
}

#[tokio::test]
async fn from_the_first_token_on_nothing_goes_without() {
    let g = guarded().await;
    for line in
        ["GET /v1/instances", "GET /v1/worklist?agent=ann", "GET /v1/tokens", "GET /v1/backup"]
    {
        let answered = g.f.send(call(line)).await;
        assert_eq!((answered.status, &answered.json()["code"]), (401, &json!("unauthenticated")));
        assert_eq!(answered.headers["www-authenticate"], "Bearer");
        let wrong = g.f.refused(call(line).token("lw_wrong")).await;
        assert_eq!(wrong, (401, "unauthenticated".to_owned()), "{line}");
    }
    let basic = call("GET /v1/instances").header("authorization", "Basic YTpi");
    assert_eq!(g.f.refused(basic).await, (401, "unauthenticated".to_owned()));
    for line in ["GET /health", "GET /ready", "GET /metrics", "GET /openapi.json"] {
        assert_eq!(g.f.send(call(line)).await.status, 200, "{line}");
    }
    g.f.stop().await;
}

#[tokio::test]
async fn a_work_token_cannot_see_or_touch_the_items_of_others() {
    let g = guarded().await;
    let item = format!("{}:sign", g.instance);
    let forbidden = (403, "forbidden".to_owned());
    for line in [
        "GET /v1/worklist?agent=ben".to_owned(),
        "GET /v1/worklist/events?agent=ben".to_owned(),
        format!("GET /v1/work/{item}?agent=ben"),
        "GET /v1/instances".to_owned(),
        format!("GET /v1/instances/{}", g.instance),
        format!("GET /v1/instances/{}/history", g.instance),
        "GET /v1/incidents".to_owned(),
        "GET /v1/tokens".to_owned(),
        "GET /v1/backup".to_owned(),
    ] {
        assert_eq!(g.f.refused(call(&line).token(&g.ann)).await, forbidden, "{line}");
    }
    for (order, body) in [
        ("claim", json!({"agent": "ben"})),
        ("release", json!({"agent": "ben"})),
        ("delegate", json!({"agent": "ben", "to": "ann"})),
        ("complete", json!({"agent": "ben", "data": {"signed": true}})),
    ] {
        let line = format!("POST /v1/work/{item}/{order}");
        assert_eq!(g.f.refused(call(&line).token(&g.ann).json(body)).await, forbidden, "{order}");
    }
    let eva = g.f.token(&g.admin, "eva", &["work:eva"]).await;
    let answered = g.f.send(call(&format!("GET /v1/work/{item}")).token(&eva)).await;
    assert!(matches!(answered.status, 403 | 404), "not on her list: {answered:?}");
    g.f.stop().await;
}

#[tokio::test]
async fn a_token_for_one_agent_need_not_name_them() {
    let g = guarded().await;
    let list = g.f.ok(call("GET /v1/worklist").token(&g.ann)).await;
    let item = list["items"][0]["activity"].as_str().unwrap();
    g.f.ok(call(&format!("POST /v1/work/{item}/claim")).token(&g.ann)).await;
    let sign = json!({"data": {"signed": true}});
    g.f.ok(call(&format!("POST /v1/work/{item}/complete")).token(&g.ann).json(sign)).await;
    let missing = g.f.refused(call("GET /v1/worklist").token(&g.admin)).await;
    assert_eq!(missing, (400, "agent_missing".to_owned()));
    g.f.stop().await;
}

#[tokio::test]
async fn each_scope_opens_its_own_operations_and_no_others() {
    let g = guarded().await;
    let start = json!({"process": "plain", "data": {"n": 1}});
    let activate = json!({"worker": "w", "types": ["plain"], "max": 1, "lease_ms": 1_000});
    let deploy = json!({"source": super::support::PLAIN});
    let token = json!({"name": "x", "scopes": ["admin"]});
    let calls: [(&str, Json, [bool; 4]); 4] = [
        // Which of admin, start, worker and ann are allowed.
        ("POST /v1/instances", start, [true, true, false, false]),
        ("POST /v1/jobs/activate", activate, [true, false, true, false]),
        ("POST /v1/definitions", deploy, [true, false, false, false]),
        ("POST /v1/tokens", token, [true, false, false, false]),
    ];
    for (line, body, expected) in calls {
        for (token, may) in [&g.admin, &g.start, &g.worker, &g.ann].into_iter().zip(expected) {
            let answered = g.f.send(call(line).token(token).json(body.clone())).await;
            assert_eq!(answered.status < 300, may, "{line}: {answered:?}");
            assert!(may || answered.status == 403, "{line}: {answered:?}");
        }
    }
    g.f.stop().await;
}

#[tokio::test]
async fn a_token_is_shown_once_and_revoked_for_good() {
    let g = guarded().await;
    let listed = g.f.ok(call("GET /v1/tokens").token(&g.admin)).await;
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 4);
    assert!(!listed.to_string().contains("lw_"));
    let me = g.f.ok(call("GET /v1/whoami").token(&g.ann)).await;
    assert_eq!(me, json!({"name": "ann", "scopes": ["work:ann"]}));
    g.f.ok(call("DELETE /v1/tokens/ann").token(&g.admin)).await;
    assert_eq!(g.f.refused(call("GET /v1/whoami").token(&g.ann)).await.0, 401);
    let last = g.f.refused(call("DELETE /v1/tokens/root").token(&g.admin)).await;
    assert_eq!(last, (409, "last_admin_token".to_owned()));
    let bad = json!({"name": "x", "scopes": ["king"]});
    let bad = g.f.refused(call("POST /v1/tokens").token(&g.admin).json(bad)).await;
    assert_eq!(bad, (400, "bad_scopes".to_owned()));
    g.f.stop().await;
}

#[tokio::test]
async fn without_tokens_other_machines_are_turned_away() {
    let mut f = Fixture::new().await;
    f.peer = "192.168.1.9".parse().unwrap();
    let refused = f.refused(call("GET /v1/instances")).await;
    assert_eq!(refused, (403, "loopback_only".to_owned()));
    f.peer = "127.0.0.1".parse().unwrap();
    let rebound = call("GET /v1/instances").header("host", "evil.example:7700");
    assert_eq!(f.refused(rebound).await, (403, "foreign_host".to_owned()));
    f.token("", "root", &["admin"]).await;
    f.peer = "192.168.1.9".parse().unwrap();
    assert_eq!(f.refused(call("GET /v1/instances")).await.0, 401);
    f.stop().await;
}
