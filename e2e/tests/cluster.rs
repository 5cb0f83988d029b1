//! Three server processes on loopback: cases migrate between them and survive kills.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Data;
use legwork_api::client::Client;
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_e2e::cluster::{init, up};
use legwork_e2e::{Folder, legwork};
use legwork_model::id::InstanceId;
use serde_json::{Value as Json, json};

const DOMAINS: [&str; 3] = ["north", "lab", "ward"];
const CASES: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

const ROUND_TRIP: &str = "
process: round-trip
data: { n: int, sample: string, finding: string }
start: [n]
result: [sample, finding]
steps:
  - { step: take, job: take, at: north, reads: [n], writes: [sample] }
  - { step: analyse, job: analyse, at: lab, reads: [sample], writes: [finding] }
  - { step: tell, job: tell, at: ward, reads: [finding] }
";

/// Waits for jobs of one type and does them; returns their instances.
async fn work(
    client: &Client,
    kind: &str,
    times: usize,
    result: impl Fn(&Data) -> Data,
) -> Result<Vec<InstanceId>> {
    let mut done = Vec::new();
    while done.len() < times {
        let request = ActivateRequest {
            worker: "w".into(),
            types: vec![kind.into()],
            max: 1,
            lease_ms: 60_000,
            wait_ms: 30_000,
        };
        let jobs = client.activate(&request).await?.jobs;
        let job = jobs.first().with_context(|| format!("no job {kind} after {done:?}"))?;
        let completed =
            CompletedJob { job: job.job.clone(), lease: job.lease, data: result(&job.data) };
        let request = CompleteJobsRequest { worker: "w".into(), jobs: vec![completed] };
        let results = client.complete_jobs(&request).await?;
        ensure!(results.results.iter().all(|result| result.ok), "{results:?}");
        done.push(job.job.instance);
    }
    Ok(done)
}

fn text(data: &Data, name: &str) -> String {
    data.get(name).and_then(Json::as_str).unwrap_or("nothing").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_move_between_processes_and_survive_a_kill_of_their_target() -> Result<()> {
    let folder = Folder::new()?;
    init(&folder, &DOMAINS)?;
    let north = up(&folder, "north-1").await?;
    let lab = up(&folder, "lab-1").await?;
    let ward = up(&folder, "ward-1").await?;
    let client = north.client()?;
    // The others get it by replication.
    client.deploy(ROUND_TRIP).await?;
    let mut cases = BTreeMap::new();
    for n in 0..CASES {
        let request = StartRequest {
            process: "round-trip".into(),
            data: Data::from([("n".to_owned(), json!(n))]),
            ..StartRequest::default()
        };
        cases.insert(client.start(&request, None).await?.instance, n);
    }
    let half = CASES as usize / 2;
    let sample = |data: &Data| {
        let n = data.get("n").cloned().unwrap_or_default();
        Data::from([("sample".to_owned(), json!(format!("sample {n}")))])
    };
    let finding = |data: &Data| {
        let finding = format!("{} is fine", text(data, "sample"));
        Data::from([("finding".to_owned(), json!(finding))])
    };
    work(&client, "take", half, sample).await?;
    let mut analysed = work(&lab.client()?, "analyse", half / 2, finding).await?;
    // With its own cases, and with others in transit to it.
    lab.kill()?;
    work(&client, "take", half, sample).await?;
    let lab = up(&folder, "lab-1").await?;
    analysed.extend(work(&lab.client()?, "analyse", CASES as usize - half / 2, finding).await?);
    let told = work(&ward.client()?, "tell", CASES as usize, |_| Data::new()).await?;
    for done in [&mut analysed, &mut told.clone()] {
        done.sort();
        done.dedup();
        ensure!(done.len() == CASES as usize, "each once: {done:?}");
    }
    for (instance, n) in &cases {
        let ended = client.instance(*instance, PATIENCE).await?;
        ensure!(ended.summary.state == InstanceState::Completed, "{ended:?}");
        let result = ended.result.context("no result")?;
        ensure!(text(&result, "finding") == format!("sample {n} is fine"), "{result:?}");
    }
    let links = lab.run(&["cluster", "links", "--json"])?.json()?;
    let states: Vec<&Json> =
        links["links"].as_array().into_iter().flatten().map(|link| &link["state"]).collect();
    ensure!(states == ["up", "up"], "{links}");
    ensure!(lab.run(&["cluster", "links"])?.succeeded()?.contains("HISTORY"), "no table");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_made_anew_is_taken_up_by_a_running_server() -> Result<()> {
    let folder = Folder::new()?;
    init(&folder, &DOMAINS)?;
    let north = up(&folder, "north-1").await?;
    let before = std::fs::read(folder.path().join("cluster/north-1/cert.pem"))?;
    let args = ["cluster", "certify", "north-1", "--dir", "cluster", "--valid-days", "7"];
    legwork(folder.path(), &args)?.succeeded()?;
    ensure!(before != std::fs::read(folder.path().join("cluster/north-1/cert.pem"))?, "the same");
    let lab = up(&folder, "lab-1").await?;
    let is_up = |links: &legwork_api::links::LinkList, name: &str| {
        let up = legwork_api::links::LinkState::Up;
        links.links.iter().any(|link| link.server == name && link.state == up)
    };
    let both = async {
        loop {
            let links = (north.client()?.links().await?, lab.client()?.links().await?);
            if is_up(&links.0, "lab-1") && is_up(&links.1, "north-1") {
                return Ok::<(), anyhow::Error>(());
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, both).await.context("the links do not come up")??;
    ensure!(north.log().contains("the new certificate is in use"), "{}", north.log());
    Ok(())
}
