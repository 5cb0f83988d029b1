//! Executors and waiting jobs in `/metrics`.

use std::time::Duration;

use serde_json::json;

use super::support::{Fixture, call};

impl Fixture {
    async fn metrics(&self) -> Vec<String> {
        let metrics = self.send(call("GET /metrics")).await;
        assert_eq!(metrics.status, 200);
        let text = String::from_utf8(metrics.body.to_vec()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the metrics have this line.
    async fn until_metric(&self, line: &str) {
        let seen = async {
            while !self.metrics().await.iter().any(|known| known == line) {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(60), seen).await;
        assert!(in_time.is_ok(), "{line} is missing in\n{:#?}", self.metrics().await);
    }

    async fn register(&self, name: &str) {
        // Nothing listens there: every task fails.
        let body = json!({"url": "http://127.0.0.1:1", "secret": "s".repeat(32),
            "types": {"mail": {}, "score": {}}});
        self.ok(call(&format!("PUT /v1/executors/{name}")).json(body)).await;
    }
}

#[tokio::test]
async fn executors_are_metered_by_the_types_they_had_to_do_with() {
    let f = Fixture::new().await;
    for (process, job) in [("a", "score"), ("b", "paint")] {
        let text = format!("process: {process}\nsteps: [{{ step: one, job: {job} }}]\n");
        f.ok(call("POST /v1/definitions").body("text/yaml", text)).await;
        f.ok(call("POST /v1/instances").json(json!({"process": process}))).await;
    }
    f.until_metric("legwork_jobs_waiting{type=\"score\"} 1").await;
    f.register("crm").await;
    f.until_metric("legwork_executor_failures_total{executor=\"crm\",type=\"score\"} 1").await;
    let lines = f.metrics().await;
    for line in [
        "legwork_executors 1",
        "legwork_executor_state{executor=\"crm\",state=\"ready\"} 1",
        "legwork_executor_state{executor=\"crm\",state=\"resting\"} 0",
        "legwork_executor_state{executor=\"crm\",state=\"silent\"} 0",
        "legwork_executor_verdicts_unconfirmed{executor=\"crm\"} 0",
        "legwork_executor_tasks_outstanding{executor=\"crm\",type=\"score\"} 0",
        "legwork_executor_answers_total{executor=\"crm\",type=\"score\"} 0",
        "legwork_executor_timeouts_total{executor=\"crm\",type=\"score\"} 0",
        "legwork_jobs_waiting{type=\"paint\"} 1",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line} is missing in\n{lines:#?}");
    }
    let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
    assert!(!has(&lines, "mail"), "a type that it never had to do with has no series");
    // A scraper has no token.
    f.ok(call("POST /v1/tokens").json(json!({"name": "root", "scopes": ["admin"]}))).await;
    assert_eq!(f.send(call("GET /v1/executors")).await.status, 401);
    assert!(has(&f.metrics().await, "executor=\"crm\""));
    f.stop().await;
}

#[tokio::test]
async fn of_an_executor_that_was_taken_out_nothing_is_shown() {
    let f = Fixture::new().await;
    f.register("crm").await;
    f.register("erp").await;
    f.until_metric("legwork_executors 2").await;
    f.ok(call("DELETE /v1/executors/crm")).await;
    f.until_metric("legwork_executors 1").await;
    let lines = f.metrics().await;
    assert!(lines.iter().all(|line| !line.contains("crm")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("executor=\"erp\"")), "{lines:#?}");
    f.stop().await;
}

#[tokio::test]
async fn however_many_executors_there_are_a_thousand_are_shown() {
    let f = Fixture::new().await;
    for number in 0..1_010 {
        f.register(&format!("pod-{number:04}")).await;
    }
    f.until_metric("legwork_executors 1010").await;
    let lines = f.metrics().await;
    let unconfirmed = "legwork_executor_verdicts_unconfirmed{";
    let shown: Vec<_> = lines.iter().filter(|line| line.starts_with(unconfirmed)).collect();
    assert_eq!(shown.len(), 1_000);
    assert!(shown.iter().any(|line| line.contains("pod-0999")));
    f.stop().await;
}
