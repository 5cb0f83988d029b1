//! The table of endpoints, held against the scopes that the site checks and against the client.
//!
//! The tests of the OpenAPI document hold the table against the document.

use legwork_api::Client;
use legwork_api::client::{InstanceQuery, WorklistQuery};
use legwork_api::cluster::TopologyOptions;
use legwork_model::id::{ActivityId, InstanceId};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::support::{Call, Fixture, LETTER, call};
use crate::Server;
use crate::config::{Config, StoreChoice};
use crate::http::endpoints::{Operation, ROUTES};
use crate::http::route::Needs;

/// Executors report with `Client::post_signed`, to the address in their task.
const NOT_FOR_THE_CLIENT: [Operation; 1] = [Operation::REPORT_TASK];

/// Bodies that are valid, so that a request gets as far as the check of its scope.
const BODIES: &str = r#"
ACTIVATE_JOBS {"worker": "w", "types": ["x"], "max": 1, "lease_ms": 1000}
ASK_DEADLINE {"process": "plain", "data": {"n": 1}, "deadline": {"at": "2999-01-01T00:00:00Z"}}
CLAIM COMPLETE RELEASE {"agent": "ann"}
CREATE_TOKEN {"name": "x", "scopes": ["start"]}
DELEGATE {"agent": "ann", "to": "ben"}
CHECK DEPLOY PUBLISH_ORGANISATION PUBLISH_TOPOLOGY {"source": "process: x"}
EXTEND_JOBS {"worker": "w", "jobs": [], "lease_ms": 1000}
PREPARE_MOVE {"server": "a", "into": "b"}
PUT_SCHEDULE {"process": "plain", "every_ms": 60000, "data": {"n": 1}}
REGISTER_EXECUTOR {"url": "http://127.0.0.1:1", "secret": "0123456789012345678901234567890123", "types": {"x": {}}}
RESOLVE {"action": "complete", "data": {}}
COMPLETE_JOBS FAIL_JOBS RETURN_JOBS {"worker": "w", "jobs": []}
SET_POLICY {"policy": "round-robin"}
START {"process": "plain", "data": {"n": 1}}
"#;

fn body(operation: Operation) -> Json {
    let name = ROUTES[operation as usize].name;
    let mut bodies = BODIES.lines().filter_map(|line| Some(line.split_at(line.find('{')?)));
    let body = bodies.find(|(names, _)| names.split(' ').any(|known| known == name));
    serde_json::from_str(body.map_or("{}", |(_, body)| body)).unwrap()
}

#[tokio::test]
async fn every_endpoint_needs_the_scope_that_the_table_says() {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let admin = f.token("", "root", &["admin"]).await;
    let start = f.token(&admin, "starter", &["start"]).await;
    let worker = f.token(&admin, "robot", &["worker"]).await;
    let ann = f.token(&admin, "ann", &["work:ann"]).await;
    for route in ROUTES {
        let path = route
            .path
            .replace("{activity}", &format!("{instance}:sign"))
            .replace("{instance}", &instance)
            .replace("{process}", "letter")
            .replace("{blob}", &"ab".repeat(32))
            .replace("{name}", "ann");
        let known = route.parameters.iter().map(|parameter| parameter.name);
        let named = known.filter(|name| ["agent", "element"].contains(name));
        let query: Vec<String> = named.map(|name| format!("{name}=ann")).collect();
        let line = format!("{} {path}?{}", route.verb.name(), query.join("&"));
        let asked = || -> Call { call(&line).json(body(route.operation)) };
        let told = async |token: &str| f.head(asked().token(token)).await.status;
        let needed = |needs: &[Needs]| needs.contains(&route.needs);
        let open = needed(&[Needs::Open, Needs::Signature]);
        let without = f.head(asked()).await;
        assert_eq!(without.status == 401, !open, "{line}: {without:?}");
        for (token, may) in [
            (&start, open || needed(&[Needs::Any, Needs::Start])),
            (&worker, open || needed(&[Needs::Any, Needs::Worker])),
            (&ann, open || needed(&[Needs::Any, Needs::Work, Needs::Plan])),
        ] {
            let status = told(token).await;
            assert_eq!(status == 403, !may, "{line}: {status}");
        }
    }
    f.stop().await;
}

#[tokio::test]
async fn the_client_reaches_every_endpoint_that_is_for_it() {
    let mut config = Config::new(StoreChoice::Memory);
    config.listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(config).await.unwrap();
    server.until_ready().await;
    let client = Client::new(&format!("http://{}", server.address()), None).unwrap();
    ask_for_everything(&client).await;
    let counted = client.metrics().await.unwrap();
    for route in ROUTES {
        let label = format!("method=\"{}\",path=\"{}\"", route.verb.name(), route.path);
        let is_for_it = !NOT_FOR_THE_CLIENT.contains(&route.operation);
        assert_eq!(counted.contains(&label), is_for_it, "{label}");
    }
    assert!(!counted.contains("path=\"none\""), "{counted}");
    server.stop().await;
}

/// Calls every method once; the answers do not matter.
async fn ask_for_everything(client: &Client) {
    fn read<T: DeserializeOwned>(operation: Operation) -> T {
        serde_json::from_value(body(operation)).unwrap()
    }
    macro_rules! ask {
        ($($call:ident($($argument:expr),*);)+) => { $(drop(client.$call($($argument),*).await);)+ };
    }
    use Operation::*;
    let wait = std::time::Duration::ZERO;
    let instance = InstanceId(1);
    let activity: ActivityId = format!("{instance}:a").parse().unwrap();
    ask! {
        deploy(LETTER); definitions(); definition("x", None); definition_versions("x", None, None);
        publish_organisation(""); organisation(); organisation_versions(None, None);
        publish_topology("", &TopologyOptions::default()); topology(None); topology_versions(None, None);
        cluster(); changes(); undo_change(None); prepare_move("a", "b"); links(); check(&read(CHECK));
        start(&read(START), Some("k")); ask_deadline(&read(ASK_DEADLINE)); plan("ann", None);
        instances(&InstanceQuery::default()); instance(instance, wait); history(instance, None, None);
        suspend(instance, None); resume(instance, None); abort(instance, None);
        incidents(None, None); resolve(&activity, &read(RESOLVE));
        worklist(&WorklistQuery::default()); worklist_events(Some("ann"), None);
        item(&activity, None); item_file(&activity, "x", None);
        claim(&activity, None); release(&activity, None); delegate(&activity, None, "ben");
        complete(&activity, &read(COMPLETE), None);
        activate(&read(ACTIVATE_JOBS)); complete_jobs(&read(COMPLETE_JOBS)); fail_jobs(&read(FAIL_JOBS));
        extend_jobs(&read(EXTEND_JOBS)); return_jobs(&read(RETURN_JOBS));
        register_executor("x", &read(REGISTER_EXECUTOR)); executors(); remove_executor("x");
        set_policy("x", &read(SET_POLICY)); policies();
        put_schedule("x", &read(PUT_SCHEDULE)); schedule("x"); schedules(); pause_schedule("x");
        resume_schedule("x"); remove_schedule("x");
        upload("x", "text/plain", "x".into()); download("x");
        tokens(); revoke_token("x"); whoami(); backup(None);
        openapi(); definition_schema(); organisation_schema(); topology_schema();
        metrics(); health(); ready();
        // Nothing goes without one from here on.
        create_token(&read(CREATE_TOKEN));
    }
}
