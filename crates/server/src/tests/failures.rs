//! Failing stores, vanishing callers, clock jumps, and stops.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use legwork_model::id::StreamId;
use legwork_store::memory::Memory;
use legwork_store::{
    Batch, BlobId, ClosedStream, Error, EventStore, Listing, OpenStream, Snapshot, Version,
};
use serde_json::{Value as Json, json};

use super::support::{Fixture, call};
use crate::backend::{Backend, Backup, Opener};
use crate::config::{Config, StoreChoice};
use crate::status::Phase;
use crate::{Server, backend};

pub(super) const FINE: u8 = 0;
pub(super) const FULL_DISK: u8 = 1;
pub(super) const PANIC: u8 = 2;
const CANNOT_OPEN: u8 = 3;
/// The disk use that it reports.
pub(super) const FAULTY_BYTES: u64 = 7_000;

/// A store that fails or hangs when told to.
pub(super) struct Faulty {
    inner: Memory,
    pub(super) mode: AtomicU8,
    /// The streams of commits that the full disk refused.
    pub(super) refused: Mutex<Vec<StreamId>>,
    hangs: (Mutex<bool>, Condvar),
    /// Called while a file is stored.
    meanwhile: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Faulty {
    /// Makes the driver on it hang, or go on.
    pub(super) fn hang(&self, hangs: bool) {
        *self.hangs.0.lock().unwrap() = hangs;
        self.hangs.1.notify_all();
    }
}

impl EventStore for Faulty {
    fn commit(&self, batch: Batch) -> Result<(), Error> {
        match self.mode.load(Ordering::SeqCst) {
            FULL_DISK => {
                let streams = batch.appends.iter().map(|append| append.stream);
                self.refused.lock().unwrap().extend(streams);
                Err(Error::Stopped { cause: "no space left on device".into() })
            }
            PANIC => panic!("a bug"),
            _ => self.inner.commit(batch),
        }
    }
    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.read(stream, from, limit)
    }
    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error> {
        self.inner.snapshot(stream)
    }
    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.inner.open_streams(after, visit)
    }
    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error> {
        self.inner.closed_streams(before, limit)
    }
    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error> {
        if let Some(meanwhile) = &*self.meanwhile.lock().unwrap() {
            meanwhile();
        }
        self.inner.put_blob(content)
    }
    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        self.inner.blob(id)
    }
    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        self.inner.blob_size(id)
    }
}

impl Backend for Faulty {
    fn backup(&self, _: &mut dyn std::io::Write) -> Backup {
        Backup::None("there is none")
    }
    fn bytes(&self) -> Result<u64, Error> {
        Ok(FAULTY_BYTES)
    }
    fn listing(&self) -> Option<&dyn Listing> {
        Some(&self.inner)
    }
    fn may_answer(&self) -> Result<(), Error> {
        let hangs = self.hangs.0.lock().unwrap();
        drop(self.hangs.1.wait_while(hangs, |hangs| *hangs).unwrap());
        Ok(())
    }
}

pub(super) fn faulty() -> (Arc<Faulty>, Opener) {
    let (inner, mode) = (Memory::default(), AtomicU8::new(FINE));
    let (refused, hangs, meanwhile) = Default::default();
    let store = Arc::new(Faulty { inner, mode, refused, hangs, meanwhile });
    let opened = store.clone();
    let opener: Opener = Box::new(move || match opened.mode.load(Ordering::SeqCst) {
        CANNOT_OPEN => Err(Error::Stopped { cause: "still no space".into() }),
        _ => Ok(opened.clone()),
    });
    (store, opener)
}

fn memory() -> Config {
    Config::new(StoreChoice::Memory)
}

fn start(n: i64) -> super::support::Call {
    call("POST /v1/instances").json(json!({"process": "plain", "data": {"n": n}}))
}

async fn instances(f: &Fixture) -> Vec<Json> {
    let list = f.ok(call("GET /v1/instances")).await;
    list["instances"].as_array().unwrap().iter().map(|i| i["instance"].clone()).collect()
}

#[tokio::test]
async fn a_failing_commit_is_told_and_nothing_acknowledged_is_lost() {
    for mode in [FULL_DISK, PANIC] {
        let (store, opener) = faulty();
        let f = Fixture::on(memory(), opener).await;
        f.furnish().await;
        let kept = f.ok(start(1)).await["instance"].clone();
        store.mode.store(mode, Ordering::SeqCst);
        let answered = f.send(start(2)).await;
        assert_eq!(
            (answered.status, &answered.json()["code"]),
            (503, &json!("storage_unavailable"))
        );
        assert_eq!(answered.headers["retry-after"], "1");
        store.mode.store(FINE, Ordering::SeqCst);
        f.core.app.status.until(Phase::Ready).await;
        assert_eq!(instances(&f).await, std::slice::from_ref(&kept), "what failed is not there");
        let next = f.ok(start(3)).await["instance"].clone();
        assert_eq!(instances(&f).await, [next, kept]);
        f.stop().await;
    }
}

#[tokio::test]
async fn a_file_that_is_stored_while_the_server_begins_to_move_is_not_acknowledged() {
    let (store, opener) = faulty();
    let f = Fixture::on(memory(), opener).await;
    let upload = || call("PUT /v1/files?name=paper").body("text/plain", "a paper");
    let status = f.core.app.status.clone();
    *store.meanwhile.lock().unwrap() = Some(Box::new(move || status.set_frozen(Some(7))));
    assert_eq!(f.refused(upload()).await, (503, "moving".to_owned()));
    *store.meanwhile.lock().unwrap() = None;
    f.core.app.status.set_frozen(None);
    f.ok(upload()).await;
    f.stop().await;
}

#[tokio::test]
async fn while_the_store_cannot_be_opened_readiness_says_why_and_health_goes_on() {
    let (store, opener) = faulty();
    let f = Fixture::on(memory(), opener).await;
    f.furnish().await;
    let waiting =
        json!({"worker": "w", "types": ["x"], "max": 1, "lease_ms": 100, "wait_ms": 60_000});
    let break_it = async {
        f.until_waiting(1).await;
        store.mode.store(FULL_DISK, Ordering::SeqCst);
        let refused = f.refused(start(1)).await;
        store.mode.store(CANNOT_OPEN, Ordering::SeqCst);
        refused
    };
    let (parked, refused) =
        tokio::join!(f.refused(call("POST /v1/jobs/activate").json(waiting)), break_it);
    assert_eq!(
        parked,
        (503, "storage_unavailable".to_owned()),
        "each waiting caller gets an answer"
    );
    assert_eq!(refused, (503, "storage_unavailable".to_owned()));
    let ready = f.send(call("GET /ready")).await;
    if ready.status != 200 {
        assert!(ready.json()["detail"].as_str().unwrap().contains("no space"), "{ready:?}");
    }
    assert_eq!(f.send(call("GET /health")).await.status, 200);
    store.mode.store(FINE, Ordering::SeqCst);
    f.core.app.status.until(Phase::Ready).await;
    f.ok(start(2)).await;
    f.stop().await;
}

#[tokio::test]
async fn a_caller_who_hangs_up_while_waiting_gets_no_job() {
    let f = Fixture::furnished().await;
    let wait = json!({"worker": "gone", "types": ["plain"], "max": 1, "lease_ms": 60_000,
        "wait_ms": 60_000});
    tokio::select! {
        biased;
        answered = f.send(call("POST /v1/jobs/activate").json(wait)) => panic!("{answered:?}"),
        () = f.until_waiting(1) => {}
    }
    f.until_waiting(0).await;
    f.ok(start(1)).await;
    assert_eq!(f.take_job("plain").await["attempt"], 1, "it was free");
    f.stop().await;
}

#[tokio::test]
async fn a_stopping_server_answers_those_who_wait() {
    let f = Fixture::furnished().await;
    let instance = f.letter_to_sign().await;
    let cursor = f.ok(call("GET /v1/worklist?agent=ann")).await["cursor"].clone();
    let cursor = cursor.as_str().unwrap();
    let poll = json!({"worker": "w", "types": ["x"], "max": 1, "lease_ms": 100, "wait_ms": 60_000});
    let begin = json!({"process": "plain", "data": {"n": 1}, "wait_ms": 60_000});
    let list = format!("GET /v1/worklist?agent=ann&since={cursor}&wait_ms=60000");
    let show = format!("GET /v1/instances/{instance}?wait_ms=60000");
    let stop = async {
        f.until_waiting(4).await;
        f.stop.send(true).unwrap();
    };
    let (jobs, started, list, shown, ()) = tokio::join!(
        f.ok(call("POST /v1/jobs/activate").json(poll)),
        f.ok(call("POST /v1/instances").json(begin)),
        f.ok(call(&list)),
        f.ok(call(&show)),
        stop,
    );
    assert_eq!(jobs, json!({"jobs": []}));
    assert_eq!(started["state"], "running");
    assert_eq!((&list["items"], &list["reset"]), (&json!([]), &json!(false)));
    assert_eq!(shown["state"], "running");
    f.stop().await;
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let choice = StoreChoice::Directory(dir.path().to_path_buf());
    let config = Config::new(choice.clone());
    let f = Fixture::on(config.clone(), backend::opener(&choice, None)).await;
    f.furnish().await;
    let instance = f.letter_to_sign().await;
    let item = format!("{instance}:sign");
    f.ok(call(&format!("POST /v1/work/{item}/claim")).json(json!({"agent": "ann"}))).await;
    let admin = f.token("", "root", &["admin"]).await;
    f.stop().await;

    let f = Fixture::on(config, backend::opener(&choice, None)).await;
    assert_eq!(f.refused(call("GET /v1/instances")).await.0, 401);
    let list = f.ok(call("GET /v1/worklist?agent=ann").token(&admin)).await;
    assert_eq!(list["items"][0]["claimed_by"], "ann");
    let sign = json!({"agent": "ann", "data": {"signed": true}});
    f.ok(call(&format!("POST /v1/work/{item}/complete")).token(&admin).json(sign)).await;
    f.stop().await;
}

#[tokio::test]
async fn a_second_server_on_the_same_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(StoreChoice::Directory(dir.path().to_path_buf()));
    config.listen = "127.0.0.1:0".parse().unwrap();
    let first = Server::start(config.clone()).await.unwrap();
    let second = Server::start(config.clone()).await.err().unwrap().to_string();
    assert!(second.contains("in use by another process"), "{second}");
    first.stop().await;
    Server::start(config).await.unwrap().stop().await;
}

#[tokio::test]
async fn time_never_goes_back_behind_what_was_recorded() {
    let store = Arc::new(Memory::default());
    let opener = || -> Opener {
        let store = store.clone();
        Box::new(move || Ok(store.clone()))
    };
    let f = Fixture::on(memory(), opener()).await;
    let ahead = f.core.app.clock.now() + std::time::Duration::from_secs(86_400);
    f.core.app.clock.advance_to(ahead);
    f.furnish().await;
    let instance = f.ok(start(1)).await["instance"].clone();
    f.stop().await;

    let f = Fixture::on(memory(), opener()).await;
    assert!(f.core.app.clock.now() >= ahead);
    let path = format!("GET /v1/instances/{}/history", instance.as_str().unwrap());
    let before = f.ok(call(&path)).await["entries"][0]["at"].clone();
    let job = f.take_job("plain").await;
    f.complete_job(&job, json!({})).await;
    let after = f.ok(call(&path)).await["entries"][1]["at"].clone();
    assert!(after.as_str().unwrap() >= before.as_str().unwrap(), "{before} {after}");
    f.stop().await;
}

#[tokio::test]
async fn a_poll_ends_and_a_lease_runs_out_although_the_clock_was_set_back() {
    let f = Fixture::furnished().await;
    // The same to the server: its clock has shown a later time than the machine's does now.
    let ahead = f.core.app.clock.now() + std::time::Duration::from_secs(3_600);
    f.core.app.clock.advance_to(ahead);
    let poll = |types: &str, wait_ms: u64| {
        let body = json!({"worker": "w", "types": [types], "max": 1, "lease_ms": 100,
            "wait_ms": wait_ms});
        call("POST /v1/jobs/activate").json(body)
    };
    assert_eq!(f.ok(poll("nothing", 20)).await, json!({"jobs": []}));
    f.ok(start(1)).await;
    let first = f.ok(poll("plain", 0)).await;
    let second = f.ok(poll("plain", 60_000)).await;
    assert_eq!(first["jobs"][0]["job"], second["jobs"][0]["job"]);
    f.stop().await;
}
