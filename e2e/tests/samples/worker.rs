//! The worker of docs/guide/workers.md, as it is printed there.
//!
//! Invariant: a test compares both.

use legwork_api::client::Error;
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_api::{Client, Data};

/// Does the open jobs, once: `Client::new("http://127.0.0.1:7700", Some(token))?` is the client.
pub async fn work(client: &Client) -> Result<(), Error> {
    let request = ActivateRequest {
        worker: "mailer-1".into(),
        types: vec!["send-letter".into()],
        max: 16,
        lease_ms: 30_000,
        wait_ms: 30_000,
    };
    let mut done = Vec::new();
    for job in client.activate(&request).await?.jobs {
        // Here the letter goes out; the job's id keeps it from going out twice.
        let data = Data::from([("tracking".to_owned(), format!("RR-{}", job.attempt).into())]);
        done.push(CompletedJob { job: job.job, lease: job.lease, data });
    }
    let report = CompleteJobsRequest { worker: request.worker, jobs: done };
    for result in client.complete_jobs(&report).await?.results {
        if let Some(problem) = result.problem {
            eprintln!("{problem}");
        }
    }
    Ok(())
}
