//! Executors as services of their own: they get tasks, die, come back, and one result counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::client::InstanceQuery;
use legwork_api::instances::StartRequest;
use legwork_e2e::Folder;
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

/// What executors have done, and what they were told of it: by the key of a step.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    done: BTreeMap<String, usize>,
    /// By task: 1 for each ACK, and for each NACK.
    acks: BTreeMap<String, (String, usize)>,
    nacks: BTreeMap<String, (String, usize)>,
}

impl Ledger {
    fn with<T>(&self, look: impl FnOnce(&mut Entries) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An executor that packs, and writes down what it did.
    async fn executor(&self, name: &str, legwork: &str) -> Result<JoinHandle<()>> {
        let (book, acks, nacks) = (self.clone(), self.clone(), self.clone());
        let count = |entries: &mut BTreeMap<String, (String, usize)>, judged: Judged| {
            entries.entry(judged.task).or_insert_with(|| (judged.key.unwrap_or_default(), 0)).1 +=
                1;
        };
        let own = name.to_owned();
        let executor = Executor::new(name, SECRET)
            .on("pack", move |task: Task| {
                let (book, own) = (book.clone(), own.clone());
                async move {
                    book.with(|entries| *entries.done.entry(task.key.clone()).or_default() += 1);
                    Ok::<_, Failure>(json!({ "packed": own }))
                }
            })
            .on_ack(move |judged| {
                let acks = acks.clone();
                async move {
                    acks.with(|entries| count(&mut entries.acks, judged));
                    Ok(())
                }
            })
            .on_nack(move |judged| {
                let nacks = nacks.clone();
                async move {
                    nacks.with(|entries| count(&mut entries.nacks, judged));
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

async fn until_all_ended(client: &Client, count: usize) -> Result<()> {
    let ended = InstanceQuery { ended: true, limit: Some(1_000), ..InstanceQuery::default() };
    for _ in 0..600 {
        if client.instances(&ended).await.is_ok_and(|page| page.instances.len() == count) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("not all cases have ended")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_go_through_executors_and_a_kill_of_the_server_loses_and_doubles_nothing()
-> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("up", &[]).await?;
    let (url, listen) = (server.url().to_owned(), server.authority().to_owned());
    server.client()?.deploy(PROCESS).await?;
    let ledger = Ledger::default();
    let executors = [ledger.executor("crane", &url).await?, ledger.executor("lift", &url).await?];
    let cases = start(&server.client()?, 60).await?;
    server.kill()?;
    let server = folder.server("up", &["--listen", &listen]).await?;
    let client = server.client()?;
    until_all_ended(&client, cases.len()).await?;
    ledger.with(|entries| {
        for case in &cases {
            let key = format!("{case}:pack");
            let acked = entries.acks.values().filter(|(of, _)| *of == key).count();
            ensure!(acked == 1, "{key}: {acked} results counted");
            ensure!(entries.done.contains_key(&key), "{key} was never done");
        }
        let both = entries.acks.keys().find(|task| entries.nacks.contains_key(*task));
        ensure!(both.is_none(), "{both:?} was told both");
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
    // Nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let dead = format!("http://{}", listener.local_addr()?);
    drop(listener);
    let register = ["executors", "register", "dead", "--type", "pack", "--secret", SECRET];
    server.run(&[&register[..], &["--url", &dead]].concat())?.succeeded()?;
    let good = ledger.executor("crane", server.url()).await?;
    let cases = start(&client, 20).await?;
    until_all_ended(&client, cases.len()).await?;
    let shown = client.executors().await?;
    let one = shown.executors.iter().find(|one| one.name == "dead").context("it is listed")?;
    ensure!(one.types.iter().all(|of_type| of_type.answers == 0), "{one:?}");
    ensure!(one.types.iter().any(|of_type| of_type.failures > 0), "it was never tried: {one:?}");
    server.run(&["executors", "remove", "dead"])?.succeeded()?;
    ensure!(client.executors().await?.executors.len() == 1);
    good.abort();
    Ok(())
}
