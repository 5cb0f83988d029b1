//! The log of requests, as an operator reads it with `--log debug`.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::support::{Fixture, call};

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Kept {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_request_is_logged_with_the_instances_it_is_about_and_without_their_data() {
    let f = Fixture::furnished().await;
    let kept = Kept::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("legwork_server=debug"))
        .with_writer(kept.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let start = json!({"process": "letter", "data": {"to": "Zoe"}});
    let started = f.ok(call("POST /v1/instances").json(start)).await;
    let instance = started["instance"].as_str().unwrap();
    let named = format!("instance={instance}");
    let mut whole = String::new();
    let mut logged = |expected: &[&str]| {
        let log = kept.take();
        let line = log.lines().last().unwrap_or_default();
        for expected in expected.iter().copied().chain([named.as_str()]) {
            assert!(line.contains(expected), "{expected}: {log}");
        }
        whole.push_str(&log);
    };
    logged(&["path=\"/v1/instances\"", "status=201"]);

    let job = f.take_job("writer").await;
    logged(&["path=\"/v1/jobs/activate\""]);
    f.complete_job(&job, json!({"text": "Dear Zoe"})).await;
    logged(&["path=\"/v1/jobs/complete\""]);

    let work = format!("/v1/work/{instance}:sign");
    f.ok(call(&format!("POST {work}/claim")).json(json!({"agent": "ann"}))).await;
    logged(&["activity=", ":sign"]);
    f.refused(call(&format!("POST {work}/claim")).json(json!({"agent": "ben"}))).await;
    logged(&["status=409", "code=\"held_by\""]);
    let done = json!({"agent": "ann", "data": {"signed": true}});
    f.ok(call(&format!("POST {work}/complete")).json(done)).await;
    logged(&["/complete"]);
    f.ok(call(&format!("GET /v1/instances/{instance}"))).await;
    logged(&["GET"]);
    assert!(!whole.contains("Zoe"), "{whole}");
    f.stop().await;
}
