//! The server over real connections, called by the typed client.

use std::time::Duration;

use legwork_api::Client;
use legwork_api::client::{Error, WorklistQuery};
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_api::tokens::TokenRequest;
use legwork_api::work::CompleteRequest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{LETTER, OFFICE, PLAIN};
use crate::Server;
use crate::config::{Config, StoreChoice};

fn config() -> Config {
    let mut config = Config::new(StoreChoice::Memory);
    config.listen = "127.0.0.1:0".parse().unwrap();
    config
}

async fn furnished() -> (Server, Client) {
    let server = Server::start(config()).await.unwrap();
    server.until_ready().await;
    let client = Client::new(&format!("http://{}", server.address()), None).unwrap();
    client.publish_organisation(OFFICE).await.unwrap();
    client.deploy(LETTER).await.unwrap();
    client.deploy(PLAIN).await.unwrap();
    (server, client)
}

fn letter() -> StartRequest {
    let data = [("to".to_owned(), json!("Zoe"))].into();
    StartRequest { process: "letter".into(), data, ..StartRequest::default() }
}

async fn write(client: &Client, wait_ms: u64) {
    let activate = ActivateRequest {
        worker: "w".into(),
        types: vec!["writer".into()],
        max: 10,
        lease_ms: 60_000,
        wait_ms,
    };
    let jobs = client.activate(&activate).await.unwrap().jobs;
    assert!(!jobs.is_empty());
    let done = jobs.into_iter().map(|job| CompletedJob {
        job: job.job,
        lease: job.lease,
        data: [("text".to_owned(), json!("Dear Zoe"))].into(),
    });
    let request = CompleteJobsRequest { worker: "w".into(), jobs: done.collect() };
    let results = client.complete_jobs(&request).await.unwrap().results;
    assert!(results.iter().all(|result| result.ok), "{results:?}");
}

#[tokio::test]
async fn the_client_carries_a_case_through() {
    let (server, client) = furnished().await;
    let letter = letter();
    let (started, ()) = tokio::join!(client.start(&letter, Some("k")), write(&client, 60_000));
    let started = started.unwrap();
    assert!(client.start(&letter, Some("k")).await.unwrap().repeated);
    let query = WorklistQuery { agent: Some("ann".into()), ..WorklistQuery::default() };
    let list = client.worklist(&query).await.unwrap();
    let item = &list.items[0].activity;
    assert_eq!(item.instance, started.instance);
    client.claim(item, Some("ann")).await.unwrap();
    let refused = client.claim(item, Some("ben")).await.unwrap_err();
    assert_eq!(refused.code(), Some("held_by"));
    assert_eq!(client.item(item, Some("ann")).await.unwrap().outputs[0].kind, "bool");
    let complete = CompleteRequest {
        agent: Some("ann".into()),
        data: [("signed".to_owned(), json!(true))].into(),
        answer: None,
    };
    client.complete(item, &complete, None).await.unwrap();
    let shown = client.instance(started.instance, Duration::ZERO).await.unwrap();
    assert_eq!(shown.summary.state, InstanceState::Running);
    client.abort(started.instance, Some("enough")).await.unwrap();
    let history = client.history(started.instance, None, None).await.unwrap();
    assert_eq!(history.entries.last().unwrap().detail.as_deref(), Some("enough"));
    server.stop().await;
}

#[tokio::test]
async fn a_worklist_is_pushed_and_goes_on_after_a_break() {
    let (server, client) = furnished().await;
    let mut events = client.worklist_events(Some("ann"), None).await.unwrap();
    let first = events.next().await.unwrap().unwrap();
    assert!(first.reset && first.items.is_empty());
    let started = client.start(&letter(), None).await.unwrap();
    write(&client, 0).await;
    let second = events.next().await.unwrap().unwrap();
    assert_eq!(second.items[0].activity.instance, started.instance);
    let last = events.last_id().unwrap().to_owned();
    assert_eq!(last, second.cursor);
    drop(events);

    let other = client.start(&letter(), None).await.unwrap();
    write(&client, 0).await;
    let mut events = client.worklist_events(Some("ann"), Some(&last)).await.unwrap();
    let third = loop {
        let event = events.next().await.unwrap().unwrap();
        if !event.items.is_empty() {
            break event;
        }
    };
    assert!(!third.reset);
    assert_eq!(third.items.len(), 1);
    assert_eq!(third.items[0].activity.instance, other.instance);
    server.stop().await;
    assert!(matches!(events.next().await, Ok(None) | Err(Error::Broken { .. })));
}

#[tokio::test]
async fn refusals_and_broken_connections_are_told_apart() {
    let (server, client) = furnished().await;
    let nobody = StartRequest { process: "nothing".into(), ..StartRequest::default() };
    let refused = client.start(&nobody, None).await.unwrap_err();
    assert_eq!(
        refused.problem().map(|p| (p.status, p.code.as_str())),
        Some((404, "no_such_process"))
    );
    server.stop().await;
    let gone = client.whoami().await.unwrap_err();
    assert!(matches!(gone, Error::Unreachable { .. } | Error::Broken { .. }), "{gone}");
    assert!(matches!(client.whoami().await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_client_finds_a_server_that_came_back() {
    let (server, client) = furnished().await;
    client.whoami().await.unwrap();
    let address = server.address();
    server.stop().await;
    let server = Server::start(Config { listen: address, ..config() }).await.unwrap();
    server.until_ready().await;
    // A connection that the old server closed is noticed before a request is sent on it.
    client.whoami().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_body_of_100_megabytes_is_refused_and_the_server_goes_on() {
    let (server, client) = furnished().await;
    let huge = bytes::Bytes::from(vec![b'x'; 100 << 20]);
    let refused = client.upload("huge", "text/plain", huge.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Some("body_too_large"), "{refused}");
    let refused = client.post_raw("/v1/instances", huge, Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.code(), Some("body_too_large"), "{refused}");
    client.whoami().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_http_does_no_harm() {
    let (server, client) = furnished().await;
    for garbage in [&b"\0\0\0\0\0"[..], b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b""] {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        stream.writable().await.unwrap();
        let _ = stream.try_write(garbage);
    }
    client.whoami().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_is_begun_and_never_ends_loses_its_connection() {
    let mut config = config();
    config.limits.head_wait = Duration::from_millis(20);
    let server = Server::start(config).await.unwrap();
    server.until_ready().await;
    let ask = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut patient = TcpStream::connect(server.address()).await.unwrap();
    let mut answer = [0; 15];
    patient.write_all(ask).await.unwrap();
    patient.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");

    let mut stalled = TcpStream::connect(server.address()).await.unwrap();
    stalled.write_all(&ask[..30]).await.unwrap();
    let read = stalled.read(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await.expect("it is cut off");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");

    // A connection that is quiet between two requests is kept.
    let last = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    patient.write_all(last).await.unwrap();
    let mut rest = String::new();
    patient.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("HTTP/1.1 200 OK"), "{rest}");
    server.stop().await;
}

#[tokio::test]
async fn more_connections_than_allowed_are_turned_away_with_a_reason() {
    let mut config = config();
    config.limits.connections_max = 1;
    let server = Server::start(config).await.unwrap();
    server.until_ready().await;
    let url = format!("http://{}", server.address());
    let first = Client::new(&url, None).unwrap();
    first.whoami().await.unwrap();
    let second = Client::new(&url, None).unwrap();
    assert_eq!(second.whoami().await.unwrap_err().code(), Some("too_many_connections"));
    first.whoami().await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn an_address_is_withheld_until_there_is_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(StoreChoice::Directory(dir.path().to_path_buf()));
    config.listen = "0.0.0.0:0".parse().unwrap();
    let server = Server::start(config.clone()).await.unwrap();
    server.until_ready().await;
    assert_eq!(server.withheld(), Some(config.listen));
    assert!(server.address().ip().is_loopback());
    let client = Client::new(&format!("http://{}", server.address()), None).unwrap();
    let token = TokenRequest { name: "root".into(), scopes: vec!["admin".into()] };
    let token = client.create_token(&token).await.unwrap().token;
    assert_eq!(client.whoami().await.unwrap_err().code(), Some("unauthenticated"));
    server.stop().await;

    let server = Server::start(config).await.unwrap();
    server.until_ready().await;
    assert_eq!(server.withheld(), None);
    let url = format!("http://127.0.0.1:{}", server.address().port());
    let client = Client::new(&url, Some(&token)).unwrap();
    assert_eq!(client.whoami().await.unwrap().name.as_deref(), Some("root"));
    server.stop().await;
}

#[tokio::test]
async fn a_client_goes_on_with_another_server_when_one_cannot_be_reached() {
    let (first, second) =
        (Server::start(config()).await.unwrap(), Server::start(config()).await.unwrap());
    first.until_ready().await;
    second.until_ready().await;
    let urls = format!("http://{},http://{}", first.address(), second.address());
    let client = Client::new(&urls, None).unwrap();
    client.deploy(PLAIN).await.unwrap();
    assert_eq!(client.definitions().await.unwrap().definitions.len(), 1);
    first.stop().await;
    assert_eq!(client.definitions().await.unwrap().definitions.len(), 0, "the other one's");
    second.stop().await;
    let away = client.definitions().await.unwrap_err().to_string();
    assert!(away.contains("cannot reach a server"), "{away}");
}

#[tokio::test]
async fn a_backup_taken_while_the_server_runs_restores_the_cases() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config();
    config.store = StoreChoice::Directory(dir.path().join("store"));
    let server = Server::start(config.clone()).await.unwrap();
    server.until_ready().await;
    let client = Client::new(&format!("http://{}", server.address()), None).unwrap();
    client.deploy(PLAIN).await.unwrap();
    let data = [("n".to_owned(), json!(1))].into();
    let start = StartRequest { process: "plain".into(), data, ..StartRequest::default() };
    let started = client.start(&start, None).await.unwrap();
    let mut download = client.backup(None).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = download.chunk().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    server.stop().await;

    let restored = dir.path().join("restored");
    legwork_store::embedded::restore(&mut &bytes[..], &restored, &mut |_| {}).unwrap();
    config.store = StoreChoice::Directory(restored);
    let server = Server::start(config).await.unwrap();
    server.until_ready().await;
    let client = Client::new(&format!("http://{}", server.address()), None).unwrap();
    let shown = client.instance(started.instance, Duration::ZERO).await.unwrap();
    assert_eq!(shown.summary.state, InstanceState::Running);
    server.stop().await;
}
