//! Servers on PostgreSQL: killed, paused past their lease, without their database for a while.

use anyhow::{Context, Result, bail, ensure};
use legwork_api::Client;
use legwork_api::client::InstanceQuery;
use legwork_e2e::wait::until;
use legwork_e2e::{Folder, Server, fixture, send_signal};
use legwork_testbed::{Cluster, database};
use tokio::task::JoinHandle;

async fn instances(client: &Client) -> Result<usize> {
    Ok(client.instances(&InstanceQuery::default()).await?.instances.len())
}

/// A server that may have to wait for another one. Its log is in `NAME.log`.
fn starting(folder: &'static Folder, name: &'static str, url: &str) -> JoinHandle<Result<Server>> {
    let url = url.to_owned();
    tokio::spawn(async move { folder.server(name, &["--store", &url]).await })
}

/// Kept until the process ends: tasks use it.
fn folder() -> Result<&'static Folder> {
    Ok(Box::leak(Box::new(Folder::new()?)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_killed_goes_on_at_once_on_the_same_machine() -> Result<()> {
    let (database, folder) = (database()?, Folder::new()?);
    let args = ["--store", database.url()];
    for kill in 0..5 {
        let server = folder.server("up", &args).await?;
        let client = server.client()?;
        fixture::deploy(&client).await?;
        assert_eq!(instances(&client).await?, kill);
        fixture::start(&client, "tea").await?;
        server.kill()?;
    }
    let held = "SELECT count(*) FROM legwork.lease WHERE expires > now()";
    let server = folder.server("up", &args).await?;
    assert_eq!(database.ask(held)?, ["1"]);
    ensure!(server.terminate()?.success());
    assert_eq!(database.ask(held)?, ["0"], "the lease is given back");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_second_server_waits_says_for_whom_and_goes_on_when_the_first_has_stopped() -> Result<()>
{
    let (database, folder) = (database()?, folder()?);
    let first = folder.server("first", &["--store", database.url()]).await?;
    fixture::deploy(&first.client()?).await?;
    fixture::start(&first.client()?, "tea").await?;
    let second = starting(folder, "second", database.url());
    let log = || std::fs::read_to_string(folder.path().join("second.log")).unwrap_or_default();
    let pid = format!("process {}", first.pid());
    until("it does not say whom it waits for", async || Ok(log().contains(&pid))).await?;
    assert!(log().contains("another process holds this server's lease; waiting"), "{}", log());
    assert_eq!(instances(&first.client()?).await?, 1);
    ensure!(first.terminate()?.success());
    let second = second.await??;
    assert_eq!(instances(&second.client()?).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_waits_can_be_told_to_stop() -> Result<()> {
    let (database, folder) = (database()?, Folder::new()?);
    let first = folder.server("first", &["--store", database.url()]).await?;
    let log = folder.path().join("second.log");
    let mut second = legwork_e2e::command::prepared()?
        .args(["up", "--store", database.url(), "--listen", "127.0.0.1:0"])
        .stderr(std::fs::File::create(&log)?)
        .spawn()?;
    let waits = async || Ok(std::fs::read_to_string(&log)?.contains("waiting"));
    until("it does not wait", waits).await?;
    send_signal("TERM", &second.id().to_string())?;
    ensure!(second.wait()?.success());
    drop(first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_was_stopped_past_its_lease_answers_nothing_stale() -> Result<()> {
    let (database, folder) = (database()?, folder()?);
    let first = folder.server("first", &["--store", database.url()]).await?;
    let stale = first.client()?;
    fixture::deploy(&stale).await?;
    fixture::start(&stale, "tea").await?;
    first.signal("STOP")?;
    // Requested while it is paused, so that it finds the request when it resumes.
    let asked = tokio::spawn({
        let stale = stale.clone();
        async move { instances(&stale).await }
    });
    let second = starting(folder, "second", database.url()).await??;
    let client = second.client()?;
    fixture::start(&client, "coffee").await?;
    assert_eq!(instances(&client).await?, 2);
    first.signal("CONT")?;
    ensure!(asked.await?.is_err(), "what it knew was no longer true");
    ensure!(fixture::start(&stale, "lost").await.is_err(), "it can store nothing");
    let holder = format!("process {}", second.pid());
    let names_the_other = async || match stale.ready().await {
        Ok(_) => bail!("it is not this server any more"),
        Err(not_ready) => Ok(not_ready.to_string().contains(&holder)),
    };
    until("it does not say who is this server now", names_the_other).await?;
    assert_eq!(instances(&client).await?, 2);
    // When the other one stops, this one takes over, with all changes since.
    ensure!(second.terminate()?.success());
    until("it does not go on", async || Ok(stale.ready().await.is_ok())).await?;
    assert_eq!(instances(&stale).await?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_database_heals_by_itself() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let database = cluster.database("kept")?;
    let folder = Folder::new()?;
    let server = folder.server("up", &["--store", database.url()]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    for round in 0..3 {
        fixture::start(&client, "tea").await?;
        if round % 2 == 0 {
            cluster.kill()?
        } else {
            cluster.stop()?
        }
        ensure!(fixture::start(&client, "lost").await.is_err());
        let why = client.ready().await.err().context("it has no store")?.to_string();
        assert!(why.contains("postgres://"), "{why}");
        cluster.run()?;
        until("it does not heal", async || Ok(client.ready().await.is_ok())).await?;
        assert_eq!(instances(&client).await?, round + 1);
    }
    Ok(())
}

#[tokio::test]
async fn what_a_database_does_itself_is_left_to_it_and_its_password_is_not_shown() -> Result<()> {
    let (database, folder) = (database()?, Folder::new()?);
    let url = database.url().replace("legwork@", "legwork:s3cret@");
    let server = folder.server("up", &["--store", &url]).await?;
    let client = server.client()?;
    let file = client.upload("a.bin", "application/x-test", vec![7; 100_000].into()).await?;
    let mut download = client.download(&file.blob).await?;
    assert!(download.chunk().await?.is_some());
    let said = server.run(&["backup", "monday.lwb"])?.refused()?;
    assert!(said.contains("use pg_dump"), "{said}");
    assert!(!server.log().contains("s3cret"));
    let refused = legwork_e2e::legwork(folder.path(), &["up", "--store", "mysql://a:s3cret@b/c"])?;
    let refused = refused.refused()?;
    assert!(refused.contains("it does not begin with postgres://"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    Ok(())
}
