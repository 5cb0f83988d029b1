//! Executors as separate services: they get tasks, die, come back, and one result counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::instances::StartRequest;
use legwork_e2e::Folder;
use legwork_e2e::wait::{until, until_ended};
use legwork_executor::{Executor, Failure, Judged, Task};
use legwork_model::id::InstanceId;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const PROCESS: &str = "
process: order
data: { amount: int, packed: string }
start: [amount]
result: [packed]
steps:
  - step: pack
    job: pack
    retry: { times: 20, pause: 50ms }
    reads: [amount]
    writes: [packed]
";
const SECRET: &str = "a secret of this test, long enough to count";

/// The work of executors, and the verdicts on it: by task.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    begun: usize,
    /// The keys of finished tasks.
    done: BTreeMap<String, String>,
    /// The tasks with positive, and with negative verdicts.
    acks: BTreeSet<String>,
    nacks: BTreeSet<String>,
}

impl Ledger {
    fn with<T>(&self, look: impl FnOnce(&mut Entries) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An executor with a fixed service time for packing, and a ledger.
    async fn executor(&self, name: &str, legwork: &str, takes: Duration) -> Result<JoinHandle<()>> {
        let (book, acks, nacks) = (self.clone(), self.clone(), self.clone());
        let own = name.to_owned();
        let executor = Executor::new(name, SECRET)
            .on("pack", move |task: Task| {
                let (book, own) = (book.clone(), own.clone());
                async move {
                    book.with(|entries| entries.begun += 1);
                    tokio::time::sleep(takes).await;
                    book.with(|entries| entries.done.insert(task.task.clone(), task.key.clone()));
                    Ok::<_, Failure>(json!({ "packed": own }))
                }
            })
            .verdict_patience(Duration::from_secs(1))
            .on_ack(move |judged: Judged| {
                let acks = acks.clone();
                async move {
                    acks.with(|entries| entries.acks.insert(judged.task));
                    Ok(())
                }
            })
            .on_nack(move |judged: Judged| {
                let nacks = nacks.clone();
                async move {
                    nacks.with(|entries| entries.nacks.insert(judged.task));
                    Ok(())
                }
            });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let legwork = legwork.to_owned();
        Ok(tokio::spawn(async move { drop(executor.serve(listener, &legwork, None).await) }))
    }
}

async fn start(client: &Client, count: usize) -> Result<Vec<InstanceId>> {
    let mut cases = Vec::new();
    for amount in 0..count {
        let data = [("amount".to_owned(), amount.into())].into();
        let request = StartRequest { process: "order".into(), data, ..Default::default() };
        cases.push(client.start(&request, Some(&format!("case-{amount}"))).await?.instance);
    }
    Ok(cases)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_go_through_executors_and_a_kill_of_the_server_loses_and_doubles_nothing()
-> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("up", &[]).await?;
    let (url, listen) = (server.url().to_owned(), server.authority().to_owned());
    server.client()?.deploy(PROCESS).await?;
    let ledger = Ledger::default();
    let takes = Duration::from_millis(300);
    let executors =
        [ledger.executor("crane", &url, takes).await?, ledger.executor("lift", &url, takes).await?];
    let cases = start(&server.client()?, 60).await?;
    let is_out = async || Ok(ledger.with(|entries| entries.begun >= entries.done.len() + 10));
    until("hardly anything is out", is_out).await?;
    server.kill()?;
    let server = folder.server("up", &["--listen", &listen]).await?;
    let client = server.client()?;
    until_ended(&client, cases.len()).await?;
    let all_judged = |entries: &mut Entries| {
        entries.done.keys().all(|task| entries.acks.contains(task) || entries.nacks.contains(task))
    };
    until("not all were told what counts", async || Ok(ledger.with(all_judged))).await?;
    ledger.with(|entries| {
        for case in &cases {
            let key = format!("{case}:pack");
            let own = entries.done.iter().filter(|(_, of)| **of == key);
            let acked = own.filter(|(task, _)| entries.acks.contains(*task)).count();
            ensure!(acked == 1, "{key}: {acked} results counted");
        }
        ensure!(entries.acks.is_disjoint(&entries.nacks), "some were told both: {entries:?}");
        ensure!(!entries.nacks.is_empty(), "what was out when the server died does not count");
        ensure!(entries.done.len() == cases.len() + entries.nacks.len(), "{entries:?}");
        Ok(())
    })?;
    let table = server.run(&["executors"])?.succeeded()?;
    ensure!(table.contains("crane") && table.contains("lift") && table.contains("pack"), "{table}");
    executors.iter().for_each(JoinHandle::abort);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_executor_that_dies_has_goes_to_another_one() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("up", &[]).await?;
    let client = server.client()?;
    client.deploy(PROCESS).await?;
    let ledger = Ledger::default();
    // Nothing listens there.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let dead = format!("http://{}", listener.local_addr()?);
    drop(listener);
    let register = ["executors", "register", "dead", "--type", "pack", "--secret", SECRET];
    server.run(&[&register[..], &["--url", &dead]].concat())?.succeeded()?;
    let good = ledger.executor("crane", server.url(), Duration::ZERO).await?;
    let cases = start(&client, 20).await?;
    until_ended(&client, cases.len()).await?;
    let shown = client.executors().await?;
    let one = shown.executors.iter().find(|one| one.name == "dead").context("it is listed")?;
    ensure!(one.types.iter().all(|of_type| of_type.answers == 0), "{one:?}");
    ensure!(one.types.iter().any(|of_type| of_type.failures > 0), "it was never tried: {one:?}");
    server.run(&["executors", "remove", "dead"])?.succeeded()?;
    ensure!(client.executors().await?.executors.len() == 1);
    good.abort();
    Ok(())
}

const SCANS: &str = "
process: scans
data: { first: file, second: file }
steps:
  - parallel: both
    branches:
      - steps: [{ step: first, job: at-once, retry: { times: 0 }, writes: [first] }]
      - steps: [{ step: second, job: later, retry: { times: 0 }, writes: [second] }]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_names_a_file_which_nobody_uploaded_is_none() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("up", &[]).await?;
    let client = server.client()?;
    client.deploy(SCANS).await?;
    let legwork = server.url().to_owned();
    let file =
        || json!({ "blob": "5f".repeat(32), "size": 7, "name": "a", "media_type": "text/plain" });
    for (kind, element, patience) in [("at-once", "first", 5), ("later", "second", 0)] {
        let executor = Executor::new(kind, SECRET)
            .patience(Duration::from_secs(patience))
            .on(kind, move |_| async move { Ok::<_, Failure>(json!({ element: file() })) });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let legwork = legwork.clone();
        tokio::spawn(async move { drop(executor.serve(listener, &legwork, None).await) });
    }
    client.start(&StartRequest { process: "scans".into(), ..Default::default() }, None).await?;
    // Each incident reports the last attempt and all attempts.
    until("both results are refused", async || {
        let told = server.run(&["incidents"])?.succeeded()?;
        let is_told = [":first", ":second"].iter().all(|step| told.contains(step));
        Ok(is_told && told.matches("was not uploaded").count() == 4)
    })
    .await
}

/// Of the only executor: its pace at its only type in milliseconds, if known, and the number of its results.
async fn learned(client: &Client) -> Result<(Option<f64>, u64)> {
    let all = client.executors().await?.executors;
    let of_type = all.first().and_then(|one| one.types.first()).context("no executor")?;
    Ok((of_type.pace_ms, of_type.answers))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_learned_of_executors_outlives_a_kill_and_a_stop() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("up", &[]).await?;
    let (url, listen) = (server.url().to_owned(), server.authority().to_owned());
    let client = server.client()?;
    client.deploy(PROCESS).await?;
    let executor = Ledger::default().executor("crane", &url, Duration::from_millis(50)).await?;
    start(&client, 3).await?;
    until_ended(&client, 3).await?;
    executor.abort();
    server.kill()?;
    let server = folder.server("up", &["--listen", &listen]).await?;
    let (pace_ms, done) = learned(&server.client()?).await?;
    ensure!(pace_ms.is_some_and(|ms| ms >= 50.0) && done >= 1, "{pace_ms:?}, {done} done");
    let shown = server.run(&["executors"])?.succeeded()?;
    ensure!(shown.contains("crane") && shown.contains(" ms"), "{shown}");
    let executor = Ledger::default().executor("crane", &url, Duration::from_millis(50)).await?;
    start(&server.client()?, 6).await?;
    until_ended(&server.client()?, 6).await?;
    executor.abort();
    let before = learned(&server.client()?).await?.1;
    ensure!(server.terminate()?.success(), "it stops in good order");
    let server = folder.server("up", &["--listen", &listen]).await?;
    let after = learned(&server.client()?).await?.1;
    ensure!((before, after) == (done + 3, done + 3), "{done}, {before}, {after}");
    Ok(())
}
