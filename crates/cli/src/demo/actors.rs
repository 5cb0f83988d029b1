//! People and programs of the demonstration.
//!
//! Invariant: they use the public API like any other client, each at their own site.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use legwork_api::client::{Client, WorklistQuery};
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_api::work::{CompleteRequest, Item};
use legwork_api::{Data, files};
use legwork_model::id::InstanceId;
use serde_json::json;
use tokio::task::JoinSet;

const WAIT: Duration = Duration::from_secs(5);
/// The wait time of one request for the end of a case.
const STAY_MAX: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(30);
/// The interval of arriving patients.
const ARRIVALS: Duration = Duration::from_millis(1_200);
/// The shortest and the longest time that a person thinks.
const THOUGHT: (u64, u64) = (100, 900);
const SCAN_BYTES: usize = 512 << 10;
/// The number of bytes that change between two scans of a patient.
const CHANGED_BYTES: usize = 4 << 10;

/// The running cases.
#[derive(Debug, Default)]
pub(crate) struct Cases(Mutex<Count>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    pub(crate) started: usize,
    pub(crate) ended: usize,
    /// Running cases by the number of the patient, with the site where each was started.
    pub(crate) open: BTreeMap<usize, (InstanceId, usize)>,
}

impl Cases {
    /// A snapshot.
    pub(crate) fn count(&self) -> Count {
        self.change(|count| count.clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Count) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Patients come to all sites.
pub(crate) async fn patients(sites: Vec<Client>, cases: Arc<Cases>) -> Result<()> {
    let mut arrivals = tokio::time::interval(ARRIVALS);
    let mut treated: JoinSet<Result<()>> = JoinSet::new();
    loop {
        for (place, site) in sites.iter().enumerate() {
            arrivals.tick().await;
            treated.spawn(patient(site.clone(), place, cases.clone()));
            while let Some(done) = treated.try_join_next() {
                done.context("somebody fell over")??;
            }
        }
    }
}

async fn patient(site: Client, place: usize, cases: Arc<Cases>) -> Result<()> {
    let number = cases.change(|count| {
        count.started += 1;
        count.started
    });
    let data = Data::from([("patient".to_owned(), json!(format!("patient {number}")))]);
    let request = StartRequest { process: "referral".into(), data, ..StartRequest::default() };
    let started = site.start(&request, None).await?;
    cases.change(|count| count.open.insert(number, (started.instance, place)));
    let mut state = started.state;
    while state != InstanceState::Completed {
        state = site.instance(started.instance, STAY_MAX).await?.summary.state;
    }
    cases.change(|count| {
        count.ended += 1;
        count.open.remove(&number);
    });
    Ok(())
}

/// A person does one item after the other.
pub(crate) async fn person(site: Client, agent: &'static str) -> Result<()> {
    let mut since = None;
    loop {
        let query = WorklistQuery {
            agent: Some(agent.to_owned()),
            since: since.take(),
            wait: WAIT,
            ..WorklistQuery::default()
        };
        let list = site.worklist(&query).await?;
        for item in &list.items {
            tokio::time::sleep(thought()).await;
            do_item(&site, agent, item).await?;
        }
        since = Some(list.cursor);
    }
}

/// Another person may have been faster: then there is nothing to do.
async fn do_item(site: &Client, agent: &str, item: &Item) -> Result<()> {
    if site.claim(&item.activity, Some(agent)).await.is_err() {
        return Ok(());
    }
    let round = item.activity.iteration.0.last().copied().unwrap_or(0);
    let data = match &*item.activity.step {
        "admit" => Data::from([("urgency".to_owned(), json!(random() % 3))]),
        "scan" => Data::from([("scan".to_owned(), scan(site, first_scan()).await?)]),
        "scan-again" => {
            let before = scan_before(site, agent, item).await?;
            Data::from([("scan".to_owned(), scan(site, changed(before)).await?)])
        }
        "report" => Data::from([("report".to_owned(), json!("a shadow, upper left"))]),
        "plan" => Data::from([("plan".to_owned(), json!("rest, and a scan after each cycle"))]),
        "assess" => {
            let improved = round >= 4 || random().is_multiple_of(3);
            Data::from([("improved".to_owned(), json!(improved))])
        }
        _ => Data::new(),
    };
    let agent = Some(agent.into());
    let complete = CompleteRequest { agent, data, answer: None };
    site.complete(&item.activity, &complete, None).await?;
    Ok(())
}

async fn scan(site: &Client, content: Vec<u8>) -> Result<serde_json::Value> {
    let file: files::File = site.upload("scan.dcm", "image/dicom", content.into()).await?;
    Ok(serde_json::to_value(file)?)
}

/// The scan that the item reads.
async fn scan_before(site: &Client, agent: &str, item: &Item) -> Result<Vec<u8>> {
    let detail = site.item(&item.activity, Some(agent)).await?;
    let scan = detail.inputs.get("scan").context("there is no scan to compare with")?;
    let file: files::File = serde_json::from_value(scan.clone())?;
    let mut download = site.download(&file.blob).await?;
    let mut content = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

/// Incompressible noise.
fn first_scan() -> Vec<u8> {
    let words = std::iter::repeat_with(random).flat_map(u64::to_le_bytes);
    words.take(SCAN_BYTES).collect()
}

fn changed(mut scan: Vec<u8>) -> Vec<u8> {
    let last = scan.len().saturating_sub(CHANGED_BYTES).max(1);
    let place = random() as usize % last;
    scan.iter_mut().skip(place).take(CHANGED_BYTES).for_each(|byte| *byte = byte.wrapping_add(1));
    scan
}

/// A machine that counts blood cells.
pub(crate) async fn analyser(site: Client) -> Result<()> {
    let ask = ActivateRequest {
        worker: "analyser".into(),
        types: vec!["blood-count".into()],
        max: 8,
        lease_ms: u64::try_from(LEASE.as_millis())?,
        wait_ms: u64::try_from(WAIT.as_millis())?,
    };
    loop {
        let jobs = site.activate(&ask).await?.jobs;
        if jobs.is_empty() {
            continue;
        }
        tokio::time::sleep(thought()).await;
        let done = |job: legwork_api::jobs::Job| CompletedJob {
            job: job.job,
            lease: job.lease,
            data: Data::from([("blood".to_owned(), json!("normal"))]),
        };
        let jobs = jobs.into_iter().map(done).collect();
        site.complete_jobs(&CompleteJobsRequest { worker: ask.worker.clone(), jobs }).await?;
    }
}

fn thought() -> Duration {
    let (shortest, longest) = THOUGHT;
    Duration::from_millis(shortest + random() % (longest - shortest))
}

/// Good enough for a demonstration: every hasher of the standard library has random keys.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
