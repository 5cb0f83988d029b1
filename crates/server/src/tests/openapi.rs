//! The OpenAPI document compared with the real answers of the server.
//!
//! Every operation is called, with success and with refusals; status, content type and body of
//! each answer must be what the document says.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::Method;
use legwork_api::signature::{Signed, sign};
use legwork_model::id::InstanceId;
use serde_json::{Value as Json, json};

use super::support::{Answered, Call, Fixture, LETTER, OFFICE, PLAIN, call};
use crate::backend;
use crate::config::{Config, StoreChoice};
use crate::http::endpoints::ROUTES;
use crate::http::route;

/// Calls and checks the answers against the document.
struct Reader {
    f: Fixture,
    document: Json,
    /// Method, path and status of all answers.
    seen: BTreeSet<(String, String, u16)>,
}

impl Reader {
    async fn send(&mut self, call: Call) -> Answered {
        let (method, path) = (call.method.clone(), call.path.clone());
        let answered = self.f.send(call).await;
        self.hold(&method, &path, &answered);
        answered
    }

    async fn ok(&mut self, call: Call) -> Json {
        let answered = self.send(call).await;
        assert!(answered.status < 300, "{answered:?}");
        answered.json()
    }

    fn hold(&mut self, method: &str, path: &str, answered: &Answered) {
        let bare = path.split('?').next().unwrap();
        let verb = Method::from_bytes(method.as_bytes()).unwrap();
        let (route, _) = route::find(&verb, bare).unwrap();
        let operation = &self.document["paths"][route.path][method.to_lowercase()];
        let status = answered.status;
        self.seen.insert((method.to_owned(), route.path.to_owned(), status));
        let responses = &operation["responses"];
        let declared = &responses[status.to_string()];
        assert!(status >= 400 || declared.is_object(), "{method} {path}: {status} is not declared");
        let response = if declared.is_object() { declared } else { &responses["default"] };
        let media = answered.content_type().split(';').next().unwrap();
        let Some(content) = response["content"].as_object() else {
            assert!(answered.body.is_empty() && media.is_empty(), "{method} {path}: {answered:?}");
            return;
        };
        let schema = content.get(media).unwrap_or_else(|| panic!("{method} {path}: {media}"));
        if media.ends_with("json") {
            self.validate(&schema["schema"], &answered.json(), &format!("{method} {path}"));
        }
    }

    fn validate(&self, schema: &Json, body: &Json, what: &str) {
        let mut whole = json!({"allOf": [schema], "components": self.document["components"]});
        if schema.get("$ref").is_some() {
            // An undocumented field is a gap too.
            whole["unevaluatedProperties"] = json!(false);
        }
        let validator = jsonschema::validator_for(&whole).unwrap();
        let errors: Vec<String> = validator.iter_errors(body).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{what}: {errors:?}\n{body:#}");
    }
}

async fn reader(dir: &std::path::Path) -> Reader {
    let choice = StoreChoice::Directory(dir.to_path_buf());
    let f = Fixture::on(Config::new(choice.clone()), backend::opener(&choice, None)).await;
    let document = f.ok(call("GET /openapi.json")).await;
    Reader { f, document, seen: BTreeSet::new() }
}

#[test]
fn the_document_and_the_table_of_routes_name_the_same_operations() {
    let document: Json = serde_json::from_str(&crate::openapi()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut documented = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            documented.insert((method.to_uppercase(), path.clone()));
        }
    }
    let served: BTreeSet<_> =
        ROUTES.iter().map(|route| (route.verb.name().to_owned(), route.path.to_owned())).collect();
    assert_eq!(documented, served);
    // The calls of executors, whose answers are checked by the tests of the executor crate.
    let calls = legwork_api::webhooks::openapi();
    let calls = serde_json::to_value(calls).unwrap();
    assert_eq!(document["webhooks"], calls["webhooks"]);
    assert!(calls["webhooks"]["tasks"]["post"].is_object(), "{calls:#}");
    for (kind, known) in calls["components"].as_object().unwrap() {
        for (name, schema) in known.as_object().unwrap() {
            assert_eq!(document["components"][kind][name], *schema, "{name}");
        }
    }
}

#[tokio::test]
async fn every_operation_answers_what_the_document_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut r = reader(dir.path()).await;
    publish(&mut r).await;
    let instance = run_a_letter(&mut r).await;
    mend_a_letter(&mut r).await;
    promise_a_letter(&mut r).await;
    look_around(&mut r, &instance).await;
    refuse(&mut r, &instance).await;
    deal_with_executors(&mut r).await;
    start_periodically(&mut r).await;
    manage_tokens(&mut r).await;
    let Reader { f, seen, .. } = r;
    for route in ROUTES {
        let of = |good: bool| {
            seen.iter().any(|(method, path, status)| {
                method == route.verb.name() && path == route.path && (*status < 300) == good
            })
        };
        // A server alone has none, see the tests of clusters.
        let needs_others =
            route.path.starts_with("/v1/topology") || route.path.starts_with("/v1/cluster");
        assert!(of(true) || needs_others, "{} was never answered", route.path);
        assert!(of(false), "{} was never refused", route.path);
    }
    f.stop().await;
}

async fn publish(r: &mut Reader) {
    r.ok(call("PUT /v1/organisation").body("text/yaml", OFFICE)).await;
    r.ok(call("PUT /v1/organisation").json(json!({"source": OFFICE}))).await;
    r.ok(call("GET /v1/organisation")).await;
    r.ok(call("PUT /v1/organisation").body("text/yaml", format!("{OFFICE}# again\n"))).await;
    let old = r.ok(call("GET /v1/organisation?version=1")).await;
    assert_eq!((&old["source"], &old["agents"][0]["agent"]), (&json!(OFFICE), &json!("ann")));
    r.send(call("GET /v1/organisation?version=3")).await;
    let versions = r.ok(call("GET /v1/organisation/versions?limit=1")).await;
    assert_eq!((&versions["versions"][0]["version"], &versions["next"]), (&json!(1), &json!("1")));
    let versions = r.ok(call("GET /v1/organisation/versions?cursor=1")).await;
    assert_eq!((&versions["versions"][0]["version"], &versions["next"]), (&json!(2), &Json::Null));
    r.send(call("GET /v1/organisation/versions?cursor=x")).await;
    r.ok(call("POST /v1/definitions").body("text/yaml", LETTER)).await;
    r.ok(call("POST /v1/definitions").body("text/yaml", format!("{LETTER}# again\n"))).await;
    r.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    let names = |list: &Json| list["definitions"][0]["process"].clone();
    let first = r.ok(call("GET /v1/definitions?limit=1")).await;
    assert_eq!((names(&first), &first["next"]), (json!("letter"), &json!("letter")));
    let second = r.ok(call("GET /v1/definitions?limit=1&cursor=letter")).await;
    assert_eq!((names(&second), &second["next"]), (json!("plain"), &Json::Null));
    let versions = r.ok(call("GET /v1/definitions/letter/versions?limit=1&cursor=1")).await;
    assert_eq!((&versions["versions"][0]["version"], &versions["next"]), (&json!(2), &Json::Null));
    r.send(call("GET /v1/definitions/nothing/versions")).await;
    r.ok(call("GET /v1/definitions/letter?version=1")).await;
    r.ok(call("POST /v1/check").json(json!({"source": LETTER, "organisation": OFFICE}))).await;
    r.ok(call("POST /v1/check").json(json!({"source": "a: 1"}))).await;
    r.send(call("POST /v1/definitions").body("text/yaml", "process: x")).await;
    r.send(call("PUT /v1/organisation").body("text/yaml", "x: y")).await;
    r.send(call("PUT /v1/topology").body("text/yaml", "topology: t")).await;
    r.send(call("GET /v1/topology")).await;
    r.send(call("GET /v1/topology/versions?cursor=x")).await;
    r.send(call("GET /v1/cluster")).await;
    r.send(call("GET /v1/cluster/changes?x=1")).await;
    r.send(call("POST /v1/cluster/changes/undo").json(json!({}))).await;
    r.send(call("POST /v1/cluster/prepare").json(json!({"server": "a", "into": "b"}))).await;
}

async fn run_a_letter(r: &mut Reader) -> String {
    let body = json!({"process": "letter", "data": {"to": "Zoe"}});
    let start = || call("POST /v1/instances").header("idempotency-key", "k").json(body.clone());
    let started = r.ok(start()).await;
    assert_eq!(r.send(start()).await.status, 200);
    let instance = started["instance"].as_str().unwrap().to_owned();
    let activate = json!({"worker": "w", "types": ["writer"], "max": 1, "lease_ms": 60_000});
    let jobs = r.ok(call("POST /v1/jobs/activate").json(activate.clone())).await;
    let job = json!({"job": jobs["jobs"][0]["job"], "lease": jobs["jobs"][0]["lease"]});
    r.ok(call("POST /v1/jobs/return").json(json!({"worker": "w", "jobs": [job]}))).await;
    let jobs = r.ok(call("POST /v1/jobs/activate").json(activate)).await;
    let job = json!({"job": jobs["jobs"][0]["job"], "lease": jobs["jobs"][0]["lease"]});
    let extend = json!({"worker": "w", "jobs": [job], "lease_ms": 60_000});
    r.ok(call("POST /v1/jobs/extend").json(extend)).await;
    let mut done = job.clone();
    done["data"] = json!({"text": "Dear Zoe"});
    let complete = json!({"worker": "w", "jobs": [done, job]});
    let results = r.ok(call("POST /v1/jobs/complete").json(complete)).await;
    assert_eq!(results["results"][1]["ok"], false);

    r.ok(call("GET /v1/worklist?agent=ann")).await;
    let item = format!("{instance}:sign");
    r.ok(call(&format!("GET /v1/work/{item}?agent=ann"))).await;
    for (order, body) in [
        ("claim", json!({"agent": "ann"})),
        ("delegate", json!({"agent": "ann", "to": "ben"})),
        ("release", json!({"agent": "ben"})),
        ("complete", json!({"agent": "ben", "data": {"signed": true}})),
    ] {
        r.ok(call(&format!("POST /v1/work/{item}/{order}")).json(body)).await;
    }
    r.ok(call(&format!("GET /v1/work/{instance}:send?agent=ann"))).await;
    for order in ["suspend", "resume", "abort"] {
        r.ok(call(&format!("POST /v1/instances/{instance}/{order}")).json(json!({}))).await;
    }
    instance
}

/// As a holder of an item that reads it.
async fn open_a_file(r: &mut Reader, file: &Json) {
    let scan = "process: scan\ndata: { page: file }\nstart: [page]\nsteps:\n  \
                - { step: read, who: Role(clerk), reads: [page] }\n";
    r.ok(call("POST /v1/definitions").body("text/yaml", scan)).await;
    let start = json!({"process": "scan", "data": {"page": file}});
    let started = r.ok(call("POST /v1/instances").json(start)).await;
    let path = format!("GET /v1/work/{}:read/file", started["instance"].as_str().unwrap());
    let page = r.send(call(&format!("{path}?agent=ann&element=page"))).await;
    assert_eq!(&page.body[..], b"x");
    r.send(call(&path)).await;
}

async fn mend_a_letter(r: &mut Reader) {
    let body = json!({"process": "letter", "data": {"to": "Max"}});
    r.ok(call("POST /v1/instances").json(body)).await;
    let activate = json!({"worker": "w", "types": ["writer"], "max": 1, "lease_ms": 60_000});
    let jobs = r.ok(call("POST /v1/jobs/activate").json(activate)).await;
    let (job, lease) = (&jobs["jobs"][0]["job"], &jobs["jobs"][0]["lease"]);
    let fail = json!({"worker": "w",
        "jobs": [{"job": job, "lease": lease, "error": "no ink", "retry": false}]});
    r.ok(call("POST /v1/jobs/fail").json(fail)).await;
    r.ok(call("GET /v1/incidents")).await;
    let path = format!("POST /v1/activities/{}/resolve", job.as_str().unwrap());
    r.send(call(&path).json(json!({"action": "choose"}))).await;
    let complete = json!({"action": "complete", "data": {"text": "Dear Max"}});
    r.ok(call(&path).json(complete)).await;
}

async fn promise_a_letter(r: &mut Reader) {
    let note = "process: note\nsteps:\n  - { step: sign, who: Role(clerk), takes: 1h }\n";
    r.ok(call("POST /v1/definitions").body("text/yaml", note)).await;
    let by = r.f.core.app.clock.now() + Duration::from_secs(9_000);
    let body = json!({"process": "note", "deadline": {"at": by.to_string()}});
    r.ok(call("POST /v1/deadlines").json(body.clone())).await;
    r.ok(call("POST /v1/instances").json(body.clone())).await;
    let listed = r.ok(call("GET /v1/instances?deadline=true")).await;
    let path =
        format!("GET /v1/instances/{}", listed["instances"][0]["instance"].as_str().unwrap());
    r.ok(call(&path)).await;
    assert_eq!(r.ok(call("GET /v1/plans/ann")).await["turns"][0]["step"], "sign");
    // Ben does one, Ann two; a fourth cannot be done.
    for status in [201, 201, 201, 409] {
        let answered = r.send(call("POST /v1/instances").json(body.clone())).await;
        assert_eq!(answered.status, status, "{answered:?}");
    }
}

async fn look_around(r: &mut Reader, instance: &str) {
    for line in [
        "GET /v1/instances".to_owned(),
        "GET /v1/instances?state=ended&limit=1".to_owned(),
        format!("GET /v1/instances/{instance}"),
        format!("GET /v1/instances/{instance}/history"),
        "GET /openapi.json".to_owned(),
        "GET /v1/schema/definition.json".to_owned(),
        "GET /v1/schema/organisation.json".to_owned(),
        "GET /v1/schema/topology.json".to_owned(),
        "GET /health".to_owned(),
        "GET /ready".to_owned(),
    ] {
        r.ok(call(&line)).await;
    }
    let stored = r.ok(call("PUT /v1/files?name=a").body("text/plain", "x")).await;
    let file = r.send(call(&format!("GET /v1/files/{}", stored["blob"].as_str().unwrap()))).await;
    assert_eq!(&file.body[..], b"x");
    open_a_file(r, &stored).await;
    let backup = r.send(call("GET /v1/backup")).await;
    assert!(backup.body.starts_with(b"LEGWORK BACKUP"), "{}", backup.status);
    let metrics = r.send(call("GET /metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for name in [
        "legwork_http_requests_total",
        "legwork_store_commits_total",
        "legwork_store_commit_seconds_bucket",
        "legwork_instances_open",
        "legwork_store_bytes",
    ] {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
    // The stream has no end: only its head is checked.
    let head = r.f.head(call("GET /v1/worklist/events?agent=ann")).await;
    assert_eq!((head.status, head.content_type()), (200, "text/event-stream"));
    r.hold("GET", "/v1/worklist/events", &head);
}

/// Every operation can refuse.
async fn refuse(r: &mut Reader, instance: &str) {
    let filled = |path: &str| {
        path.replace("{activity}", &format!("{instance}:nothing"))
            .replace("{instance}", "inst_00000000000000000000000001")
            .replace("{process}", "nothing")
            .replace("{blob}", &"ab".repeat(32))
            .replace("{name}", "nobody")
    };
    for route in ROUTES {
        let line = format!("{} {}", route.verb.name(), filled(route.path));
        let answered = r.send(call(&line).json(json!({"agent": "ann", "to": "ben"}))).await;
        if answered.status < 300 {
            let answered = r.send(call(&format!("{line}?nonsense=1")).json(json!({}))).await;
            assert_eq!(answered.status, 400, "{line}");
        }
    }
}

async fn set_policies(r: &mut Reader) {
    let usual = json!({"policy": "round-robin", "record": true});
    r.ok(call("PUT /v1/policies/score").json(usual)).await;
    let listed = r.ok(call("GET /v1/policies")).await;
    let of_score = json!({"type": "score", "policy": "round-robin", "record": true});
    assert_eq!(listed["policies"], json!([of_score]));
    let refused = r.send(call("PUT /v1/policies/score").json(json!({"policy": "best"}))).await;
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("bad_policy")));
    assert_eq!(r.send(call("GET /v1/policies?limit=1")).await.status, 400);
}

async fn deal_with_executors(r: &mut Reader) {
    let secret = "s".repeat(32);
    let crm = json!({"url": "http://127.0.0.1:1", "secret": secret, "types": {"none": {}}, "reserve": 10});
    r.ok(call("PUT /v1/executors/crm").json(crm.clone())).await;
    let again = r.ok(call("PUT /v1/executors/crm").json(crm)).await;
    assert_eq!(again["unchanged"], true);
    let listed = r.ok(call("GET /v1/executors?limit=1")).await;
    assert_eq!(listed["executors"][0]["types"][0]["type"], "none");
    assert_eq!(listed["executors"][0]["reserve"], 10);
    assert!(!listed.to_string().contains(&secret));
    assert_eq!(r.send(call("GET /v1/executors?limit=x")).await.status, 400);
    let bad = json!({"url": "ftp://x", "secret": secret, "types": {"none": {}}});
    assert_eq!(r.send(call("PUT /v1/executors/erp").json(bad)).await.status, 422);
    let bad = json!({"url": "http://x:1", "secret": secret, "types": {"none": {}}, "reserve": 91});
    let refused = r.send(call("PUT /v1/executors/erp").json(bad)).await;
    assert!(refused.json()["detail"].to_string().contains("0 to 90 per cent"), "{refused:?}");
    let nowhere = json!({"url": "http://x:99999", "secret": secret, "types": {"none": {}}});
    let refused = r.send(call("PUT /v1/executors/erp").json(nowhere)).await;
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("bad_executor")));
    let task = format!("{}#7", InstanceId(7 << 16)).replace('#', ":pay#");
    let body = json!({"task": task, "data": {}}).to_string();
    let path = "/v1/executors/crm/results";
    let signed = Signed { method: "POST", target: path, body: body.as_bytes() };
    let signature = sign(&secret, &signed, r.f.core.app.clock.now());
    let report = || call(&format!("POST {path}")).body("application/json", body.clone());
    r.ok(report().header("legwork-signature", &signature)).await;
    assert_eq!(r.send(report()).await.status, 401);
    set_policies(r).await;
    r.ok(call("DELETE /v1/executors/crm")).await;
    assert_eq!(r.send(call("DELETE /v1/executors/crm")).await.status, 404);
}

async fn start_periodically(r: &mut Reader) {
    let put = |cron: &str| {
        let deadline = json!({"within_ms": 3_600_000});
        let data = json!({"to": "Zoe"});
        let body = json!({"process": "letter", "cron": cron, "data": data, "deadline": deadline});
        call("PUT /v1/schedules/nightly").json(body)
    };
    r.ok(put("0 2 * * *")).await;
    r.send(put("0 2")).await;
    r.ok(call("POST /v1/schedules/nightly/pause")).await;
    r.ok(call("POST /v1/schedules/nightly/resume")).await;
    r.ok(call("GET /v1/schedules/nightly")).await;
    r.ok(call("GET /v1/schedules?limit=1")).await;
    r.ok(call("DELETE /v1/schedules/nightly")).await;
    r.send(call("DELETE /v1/schedules/nightly")).await;
}

async fn manage_tokens(r: &mut Reader) {
    r.ok(call("GET /v1/whoami")).await;
    let made = json!({"name": "root", "scopes": ["admin"]});
    let admin = r.ok(call("POST /v1/tokens").json(made)).await["token"].clone();
    let admin = admin.as_str().unwrap();
    r.ok(call("GET /v1/tokens").token(admin)).await;
    let made = json!({"name": "ann", "scopes": ["work:ann"]});
    r.ok(call("POST /v1/tokens").token(admin).json(made)).await;
    let page = r.ok(call("GET /v1/tokens?limit=1").token(admin)).await;
    let next = page["next"].as_str().unwrap();
    let rest = r.ok(call(&format!("GET /v1/tokens?cursor={next}")).token(admin)).await;
    assert_eq!((rest["tokens"].as_array().unwrap().len(), &rest["next"]), (1, &Json::Null));
    r.ok(call("DELETE /v1/tokens/ann").token(admin)).await;
    for line in ["GET /v1/tokens", "GET /v1/whoami", "GET /v1/backup", "GET /v1/definitions"] {
        assert_eq!(r.send(call(line)).await.status, 401, "{line}");
    }
}
