//! Alerts and dashboard (`docs/monitoring`) use only metrics that `/metrics` shows.

use std::collections::BTreeSet;

use legwork_mail::Settings;
use serde_json::{Value as Json, json};

use super::servers::{Cluster, until_some};
use super::support::{Answered, Fixture, call};
use crate::config::{Config, StoreChoice};

const ALERTS: &str = include_str!("../../../../docs/monitoring/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../../docs/monitoring/dashboard.json");

/// The names of all series.
fn shown(metrics: &Answered) -> BTreeSet<String> {
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let name = |line: &str| line.split(['{', ' ']).next().unwrap().to_owned();
    series.map(name).collect()
}

/// The names of metrics in expressions.
fn asked(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("legwork_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

/// The expressions of the dashboard, at any depth.
fn expressions(json: &Json, found: &mut Vec<String>) {
    match json {
        Json::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Json::String(text) if ["expr", "query"].contains(&name.as_str()) => {
                        found.push(text.clone());
                    }
                    Json::String(_)
                    | Json::Object(_)
                    | Json::Array(_)
                    | Json::Null
                    | Json::Bool(_)
                    | Json::Number(_) => expressions(value, found),
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The metrics of a server with an answering executor, mail, and a link to another server.
async fn all_shown() -> BTreeSet<String> {
    let source = "from: lw@office.example\nsmtp: { host: localhost, port: 1, tls: none }\n";
    let config = Config { mail: Settings::parse(source).0, ..Config::new(StoreChoice::Memory) };
    let alone = Fixture::with(config).await;
    let text = "process: a\nsteps: [{ step: one, job: mail }, { step: two, job: paint }]\n";
    alone.ok(call("POST /v1/definitions").body("text/yaml", text)).await;
    let body =
        json!({"url": "http://127.0.0.1:1", "secret": "s".repeat(32), "types": {"mail": {}}});
    alone.ok(call("PUT /v1/executors/crm").json(body)).await;
    for _ in 0..2 {
        alone.ok(call("POST /v1/instances").json(json!({"process": "a"}))).await;
    }
    let (mut names, wanted) = (BTreeSet::new(), "legwork_executor_failures_total");
    until_some(async || {
        names.extend(shown(&alone.send(call("GET /metrics")).await));
        names.contains(wanted).then_some(())
    })
    .await;
    alone.ok(call("DELETE /v1/executors/crm")).await;
    until_some(async || {
        names.extend(shown(&alone.send(call("GET /metrics")).await));
        names.contains("legwork_jobs_waiting").then_some(())
    })
    .await;
    alone.stop().await;
    let cluster = Cluster::new(&["north", "south"]);
    let north = cluster.start("north-1").await;
    names.extend(shown(&north.send(call("GET /metrics")).await));
    north.server.stop().await;
    names
}

#[tokio::test]
async fn alerts_and_the_dashboard_ask_for_what_there_is() {
    let mut known = all_shown().await;
    // The pace of an executor shows once it has answered.
    known.insert(crate::figures::PACE.to_owned());
    let mut found = Vec::new();
    expressions(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    for (file, text) in [("dashboard", found.join("\n")), ("alerts", ALERTS.to_owned())] {
        let asked = asked(&text);
        assert!(asked.len() > 10, "{file}: {asked:?}");
        let unknown: Vec<&String> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}, and there is\n{known:#?}");
    }
}

#[tokio::test]
async fn the_program_says_what_it_was_built_from_and_what_it_takes() {
    let config = Config { commit: "0123456789ab", ..Config::new(StoreChoice::Memory) };
    let f = Fixture::with(config).await;
    let metrics = f.send(call("GET /metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let line = "legwork_build_info{version=\"0.1.0\",commit=\"0123456789ab\"} 1";
    assert!(text.lines().any(|known| known == line), "{text}");
    let names = shown(&metrics);
    for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds"] {
        assert!(names.contains(&format!("process_{name}")), "{name} in {text}");
    }
    f.stop().await;
}
