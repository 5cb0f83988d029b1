//! Everything acknowledged survives, however the server ended.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Data;
use legwork_api::client::{Client, InstanceQuery, WorklistQuery};
use legwork_api::instances::NodeState;
use legwork_api::jobs::{ActivateRequest, FailJobsRequest, FailedJob};
use legwork_api::work::CompleteRequest;
use legwork_e2e::fixture::{self, activity};
use legwork_e2e::{Folder, Server, contents};
use legwork_model::id::InstanceId;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Acknowledged {
    Started,
    Claimed,
    Completed,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_work_loses_nothing_acknowledged() -> Result<()> {
    let folder = Folder::new()?;
    let mut known: BTreeMap<InstanceId, Acknowledged> = BTreeMap::new();
    for round in 0..3 {
        let server = folder.server("store", &[]).await?;
        let client = server.client()?;
        fixture::deploy(&client).await?;
        verify(&client, &known).await.with_context(|| format!("before round {round}"))?;
        let (told, mut hear) = mpsc::unbounded_channel();
        let workers: Vec<_> =
            (0..8).map(|_| tokio::spawn(work(client.clone(), told.clone()))).collect();
        drop(told);
        for _ in 0..150 {
            let (instance, what) = hear.recv().await.context("the workers stopped early")?;
            known.insert(instance, what);
        }
        server.kill()?;
        // Acknowledgements before the kill was noticed count as well.
        while let Some((instance, what)) = hear.recv().await {
            known.insert(instance, what);
        }
        for worker in workers {
            worker.await?;
        }
    }
    let server = folder.server("store", &[]).await?;
    verify(&server.client()?, &known).await?;
    assert!(known.values().any(|what| *what == Acknowledged::Completed), "{known:?}");
    Ok(())
}

/// Starts, claims and completes until the server is gone.
async fn work(client: Client, told: mpsc::UnboundedSender<(InstanceId, Acknowledged)>) {
    loop {
        let Ok(instance) = fixture::start(&client, "tea").await else { return };
        let _ = told.send((instance, Acknowledged::Started));
        let item = activity(instance, "look");
        if client.claim(&item, Some("bob")).await.is_err() {
            return;
        }
        let _ = told.send((instance, Acknowledged::Claimed));
        let request = CompleteRequest {
            agent: Some("bob".into()),
            data: Data::from([("ok".to_owned(), json!(true))]),
            answer: None,
        };
        if client.complete(&item, &request, None).await.is_err() {
            return;
        }
        let _ = told.send((instance, Acknowledged::Completed));
    }
}

async fn verify(client: &Client, known: &BTreeMap<InstanceId, Acknowledged>) -> Result<()> {
    for (instance, what) in known {
        let found = client.instance(*instance, Duration::ZERO).await?;
        let look = found.nodes.iter().find(|node| &*node.name == "look").context("no look")?;
        let holds = match what {
            Acknowledged::Started => true,
            // One unacknowledged operation may have happened.
            Acknowledged::Claimed => look.state != NodeState::Activated,
            Acknowledged::Completed => look.state == NodeState::Completed,
        };
        ensure!(holds, "{instance} was {what:?}, now {:?}", look.state);
        let history = client.history(*instance, None, None).await?;
        let done = history.entries.iter().filter(|entry| entry.kind == "completed").count();
        ensure!(done <= 1, "{instance} was completed {done} times");
    }
    Ok(())
}

#[tokio::test]
async fn a_restart_keeps_worklists_claims_incidents_and_retries() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let claimed = fixture::start(&client, "claimed").await?;
    client.claim(&activity(claimed, "look"), Some("bob")).await?;
    fixture::start(&client, "offered").await?;
    let suspended = fixture::start(&client, "suspended").await?;
    client.suspend(suspended, Some("a break")).await?;
    // One attempt failed and is to be repeated in an hour.
    let retried = booked(&client, "retried").await?;
    fail(&client, true).await?;
    // One failed without a retry.
    let stuck = booked(&client, "stuck").await?;
    fail(&client, false).await?;
    let aborted = fixture::start(&client, "aborted").await?;
    client.abort(aborted, Some("enough")).await?;

    let before = everything(&client).await?;
    let state = |document: &Json, instance: InstanceId| {
        document["instances"][instance.to_string()]["nodes"][1].clone()
    };
    ensure!(state(&before, retried)["retry_at"].is_string(), "{before:#}");
    ensure!(state(&before, stuck)["incident"].is_string(), "{before:#}");
    ensure!(before["incidents"].as_array().is_some_and(|all| all.len() == 1), "{before:#}");

    server.kill()?;
    let server = folder.server("store", &[]).await?;
    assert_eq!(everything(&server.client()?).await?, before, "after a kill");
    assert!(server.terminate()?.success());
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    assert_eq!(everything(&client).await?, before, "after a stop in good order");

    // And all of it continues.
    server.run(&["resume", &suspended.to_string()])?.succeeded()?;
    server.run(&["resolve", "book", "--complete", "--set", "receipt=by hand"])?.succeeded()?;
    server
        .run(&["work", "claim", &activity(suspended, "look").to_string(), "--as", "dora"])?
        .succeeded()?;
    let ended = client.instance(stuck, Duration::from_secs(10)).await?;
    assert_eq!(ended.result.context("not ended")?["receipt"], json!("by hand"));
    Ok(())
}

/// An instance with a due job.
async fn booked(client: &Client, what: &str) -> Result<InstanceId> {
    let instance = fixture::start(client, what).await?;
    let request = CompleteRequest {
        agent: Some("dora".into()),
        data: Data::from([("ok".to_owned(), json!(true))]),
        answer: None,
    };
    client.complete(&activity(instance, "look"), &request, None).await?;
    Ok(instance)
}

/// Takes the only job, and fails.
async fn fail(client: &Client, retry: bool) -> Result<()> {
    let request = ActivateRequest {
        worker: "w1".into(),
        types: vec!["book".into()],
        max: 1,
        lease_ms: 60_000,
        wait_ms: 10_000,
    };
    let job = client.activate(&request).await?.jobs.pop().context("no job")?;
    let failed = FailedJob { job: job.job, lease: job.lease, error: "no ink".to_owned(), retry };
    let request = FailJobsRequest { worker: "w1".into(), jobs: vec![failed] };
    let results = client.fail_jobs(&request).await?.results;
    ensure!(results[0].ok, "{results:?}");
    Ok(())
}

/// All answers of a server, as one document.
async fn everything(client: &Client) -> Result<Json> {
    let mut instances = serde_json::Map::new();
    for ended in [false, true] {
        let query = InstanceQuery { ended, ..InstanceQuery::default() };
        for summary in client.instances(&query).await?.instances {
            let id = summary.instance;
            let mut whole = serde_json::to_value(client.instance(id, Duration::ZERO).await?)?;
            whole["history"] = serde_json::to_value(client.history(id, None, None).await?)?;
            instances.insert(id.to_string(), whole);
        }
    }
    let mut worklists = serde_json::Map::new();
    for agent in ["ann", "bob", "dora", "carla"] {
        let query = WorklistQuery { agent: Some(agent.to_owned()), ..WorklistQuery::default() };
        let mut items = client.worklist(&query).await?.items;
        items.sort_by(|a, b| a.activity.cmp(&b.activity));
        worklists.insert(agent.to_owned(), serde_json::to_value(items)?);
    }
    Ok(json!({
        "instances": instances,
        "worklists": worklists,
        "incidents": client.incidents(None, None).await?.incidents,
        "definitions": client.definitions().await?,
        "organisation": client.organisation().await?,
    }))
}

#[tokio::test]
async fn a_second_server_on_one_store_refuses_and_disturbs_nothing() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let said = folder.server_refused("store")?;
    assert!(said.contains("in use by another process"), "{said}");
    let instance = fixture::start(&client, "tea").await?;
    server.kill()?;
    let server = folder.server("store", &[]).await?;
    server.client()?.instance(instance, Duration::ZERO).await?;
    Ok(())
}

#[tokio::test]
async fn a_stop_in_good_order_answers_what_is_under_way() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let instance = fixture::start(&client, "tea").await?;
    // A long poll without an answer, and a stream of changes.
    let poll = {
        let client = client.clone();
        tokio::spawn(async move { client.instance(instance, Duration::from_secs(50)).await })
    };
    let mut events = client.worklist_events(Some("bob"), None).await?;
    events.next().await?.context("no list")?;
    waiting(&client).await?;
    let stopped = tokio::task::spawn_blocking(move || server.terminate());
    match poll.await? {
        Ok(found) => assert_eq!(found.summary.instance, instance),
        Err(error) => assert!(error.problem().is_some_and(|p| p.is_temporary()), "{error}"),
    }
    assert!(stopped.await??.success());
    // The stream ends, regularly or not.
    while let Ok(Some(_)) = events.next().await {}
    let server: Server = folder.server("store", &[]).await?;
    server.client()?.instance(instance, Duration::ZERO).await?;
    Ok(())
}

/// Waits until the server has a waiting request.
async fn waiting(client: &Client) -> Result<()> {
    for _ in 0..500 {
        let metrics = client.metrics().await?;
        let waits = metrics.lines().find_map(|line| line.strip_prefix("legwork_requests_waiting "));
        if waits.is_some_and(|count| count.trim().parse::<f64>().is_ok_and(|count| count >= 1.0)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    anyhow::bail!("nobody waits")
}

#[tokio::test]
async fn a_store_of_the_future_is_refused_and_left_untouched() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    fixture::start(&client, "tea").await?;
    assert!(server.terminate()?.success());
    let format = folder.path().join("store/FORMAT");
    let text = std::fs::read_to_string(&format)?;
    std::fs::write(&format, text.replace(|c: char| c.is_ascii_digit(), "999"))?;
    let before = contents(&folder.path().join("store"))?;
    let said = folder.server_refused("store")?;
    assert!(said.contains("999") && said.contains("newer"), "{said}");
    assert_eq!(contents(&folder.path().join("store"))?, before);
    std::fs::write(&format, text)?;
    let server = folder.server("store", &[]).await?;
    let open = server.client()?.instances(&InstanceQuery::default()).await?.instances;
    assert_eq!(open.len(), 1);
    Ok(())
}
