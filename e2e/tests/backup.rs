//! Backups of a running server, and their restores.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use legwork_api::client::{Client, InstanceQuery};
use legwork_e2e::fixture;
use legwork_e2e::{Folder, cluster, legwork};
use legwork_model::id::InstanceId;
use serde_json::{Value as Json, json};

/// Everything about all instances.
async fn answers(client: &Client) -> Result<Json> {
    let mut all = Vec::new();
    for summary in client.instances(&InstanceQuery::default()).await?.instances {
        let id = summary.instance;
        let instance = client.instance(id, Duration::ZERO).await?;
        all.push(json!([instance, client.history(id, None, None).await?]));
    }
    Ok(json!([all, client.definitions().await?, client.organisation().await?]))
}

#[tokio::test]
async fn a_restored_backup_gives_the_same_answers() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    for what in ["tea", "coffee", "milk"] {
        fixture::start(&client, what).await?;
    }
    let content = vec![42_u8; 100_000];
    let file = client.upload("a.bin", "application/x-test", content.clone().into()).await?;
    let before = answers(&client).await?;
    let saved = server.run(&["backup", "monday.lwb", "--json"])?.json()?;
    assert!(saved["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{saved}");
    let again = server.run(&["backup", "monday.lwb"])?.refused()?;
    assert!(again.contains("there already"), "{again}");

    legwork(folder.path(), &["restore", "monday.lwb", "--data", "copy"])?.succeeded()?;
    let copy = folder.server("copy", &[]).await?;
    let restored = copy.client()?;
    assert_eq!(answers(&restored).await?, before);
    let mut download = restored.download(&file.blob).await?;
    let mut found = Vec::new();
    while let Some(chunk) = download.chunk().await? {
        found.extend_from_slice(&chunk);
    }
    assert!(found == content);
    // The two stores diverge.
    fixture::start(&restored, "sugar").await?;
    assert_eq!(answers(&client).await?, before);
    Ok(())
}

#[tokio::test]
async fn the_store_of_a_member_is_restored_and_started_as_one() -> Result<()> {
    let folder = Folder::new()?;
    cluster::init(&folder, &["north"])?;
    let member = cluster::up(&folder, "north-1").await?;
    member.run(&["backup", "member.lwb"])?.succeeded()?;
    let restored = legwork(folder.path(), &["restore", "member.lwb", "--data", "copy"])?;
    let said = restored.succeeded()?;
    assert!(said.contains("start it with `legwork up --cluster DIR --data copy`"), "{said}");
    member.kill()?;
    let copy = folder.server("copy", &["--cluster", "cluster/north-1"]).await?;
    copy.run(&["cluster", "status"])?.succeeded()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_holds_all_that_was_acknowledged_before_it() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let mut before = BTreeSet::new();
    for _ in 0..50 {
        before.insert(fixture::start(&client, "before").await?);
    }
    let enough = Arc::new(AtomicBool::new(false));
    let load = {
        let (client, enough) = (client.clone(), enough.clone());
        tokio::spawn(async move {
            let mut started = BTreeSet::new();
            while !enough.load(Ordering::Relaxed) {
                started.insert(fixture::start(&client, "meanwhile").await?);
            }
            anyhow::Ok(started)
        })
    };
    let saved = tokio::task::spawn_blocking({
        let url = server.url().to_owned();
        let path = folder.path().to_owned();
        move || legwork(&path, &["--server", &url, "backup", "busy.lwb"])
    });
    saved.await??.succeeded()?;
    enough.store(true, Ordering::Relaxed);
    let meanwhile = load.await??;

    legwork(folder.path(), &["restore", "busy.lwb", "--data", "copy"])?.succeeded()?;
    let copy = folder.server("copy", &[]).await?;
    let found = ids(&copy.client()?).await?;
    assert!(found.is_superset(&before), "something acknowledged is missing");
    let known: BTreeSet<InstanceId> = before.union(&meanwhile).copied().collect();
    assert!(found.is_subset(&known), "something was never acknowledged");
    Ok(())
}

async fn ids(client: &Client) -> Result<BTreeSet<InstanceId>> {
    let mut found = BTreeSet::new();
    let mut query = InstanceQuery { limit: Some(1_000), ..InstanceQuery::default() };
    loop {
        let page = client.instances(&query).await?;
        found.extend(page.instances.iter().map(|summary| summary.instance));
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(found);
        }
    }
}

#[tokio::test]
async fn a_damaged_backup_restores_nothing() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    fixture::deploy(&server.client()?).await?;
    server.run(&["backup", "whole.lwb"])?.succeeded()?;
    let whole = std::fs::read(folder.path().join("whole.lwb"))?;
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let cut = whole[..whole.len() - 1].to_vec();
    for (name, content) in [("flipped", flipped), ("cut", cut), ("empty", Vec::new())] {
        let file = folder.file(name, content)?;
        let restore = legwork(folder.path(), &["restore", &file, "--data", "copy"])?;
        let said = restore.refused()?;
        assert!(said.contains("not a usable backup"), "{name}: {said}");
        assert!(!folder.path().join("copy").exists(), "{name} left something behind");
    }
    let over = legwork(folder.path(), &["restore", "whole.lwb", "--data", "store"])?.refused()?;
    assert!(over.contains("not empty"), "{over}");
    Ok(())
}
