//! Requests to an executor and its answers, checked against the OpenAPI document of the API.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use super::Answer;

static DOCUMENT: LazyLock<Json> =
    LazyLock::new(|| serde_json::to_value(legwork_api::webhooks::openapi()).unwrap());

/// Every answer in the document, as `tasks 200`.
pub(crate) fn all() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (call, item) in DOCUMENT["webhooks"].as_object().unwrap() {
        for status in item["post"]["responses"].as_object().unwrap().keys() {
            all.insert(format!("{call} {status}"));
        }
    }
    all
}

/// The answer in the document for this one.
pub(crate) fn declared(call: &str, status: u16) -> String {
    let exact = format!("{call} {status}");
    let range = format!("{call} {}XX", status / 100);
    let all = all();
    [exact, range].into_iter().find(|one| all.contains(one)).unwrap_or(format!("{call} default"))
}

/// Checks a request and its answer against the document.
pub(crate) fn hold(path: &str, asked: &Json, answer: &Answer) {
    let call = path.trim_start_matches('/');
    let Some(item) = DOCUMENT["webhooks"].get(call) else { return };
    let operation = &item["post"];
    if answer.status < 300 {
        validate(&operation["requestBody"], asked, path);
    }
    let named = declared(call, answer.status);
    let response = &operation["responses"][named.split(' ').nth(1).unwrap()];
    assert!(response.is_object(), "{path}: {} is not declared", answer.status);
    // Any body.
    if response.get("content").is_some() {
        validate(response, &answer.body, &named);
    }
    let says_when = response["headers"].get("Retry-After").is_some();
    assert_eq!(answer.retry_after.is_some(), says_when, "{named}: {answer:?}");
}

fn validate(described: &Json, body: &Json, what: &str) {
    let schema = &described["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{what}: {described:#}");
    let whole = json!({"allOf": [schema], "components": DOCUMENT["components"],
        "unevaluatedProperties": false});
    let validator = jsonschema::validator_for(&whole).unwrap();
    let errors: Vec<String> = validator.iter_errors(body).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{what}: {errors:?}\n{body:#}");
}
