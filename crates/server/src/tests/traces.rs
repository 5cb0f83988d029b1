//! The log, as an operator reads it.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once};

use legwork_model::id::InstanceId;
use legwork_store::{Append, Batch, EventStore, Version};
use tracing::Dispatch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::failures::{FINE, FULL_DISK, PANIC, faulty};
use super::support::{Fixture, OFFICE, call};
use crate::backend::Opener;
use crate::config::{Config, StoreChoice};
use crate::status::Phase;

/// Collects log lines.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Kept {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The interest in a callsite is cached for all threads. With a subscriber for everything, tests on
/// other threads cannot cache "never" in between.
fn keep_interest() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
        let nowhere = everything.with_writer(io::sink).finish();
        tracing::subscriber::set_global_default(nowhere).unwrap();
    });
}

/// A subscriber for everything that `filter` admits.
fn listen(kept: &Kept, filter: &str) -> Dispatch {
    keep_interest();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(kept.clone())
        .with_ansi(false)
        .finish();
    Dispatch::new(subscriber)
}

/// The drive thread opens the store: its log is collected from then on.
fn overheard(dispatch: &Dispatch, mut opener: Opener) -> Opener {
    let dispatch = dispatch.clone();
    Box::new(move || {
        std::mem::forget(tracing::dispatcher::set_default(&dispatch));
        opener()
    })
}

#[tokio::test]
async fn the_drive_thread_speaks_of_a_request_within_its_span() {
    let kept = Kept::default();
    let dispatch = listen(&kept, "legwork_server=trace");
    let _guard = tracing::dispatcher::set_default(&dispatch);
    let (_, opener) = faulty();
    let f = Fixture::on(Config::new(StoreChoice::Memory), overheard(&dispatch, opener)).await;
    kept.take();
    f.ok(call("GET /v1/definitions")).await;
    let log = kept.take();
    let line = log.lines().find(|line| line.contains("taken up")).unwrap_or_default();
    assert!(line.contains("path=\"/v1/definitions\""), "{log}");
    f.stop().await;
}

#[tokio::test]
async fn an_instance_set_apart_is_told_of_with_the_reason() {
    let kept = Kept::default();
    let (store, opener) = faulty();
    let (instance, nonsense) = (InstanceId(7), b"nonsense".to_vec());
    let append =
        Append { stream: instance.into(), expected: Version(0), record: nonsense, close: None };
    store.commit(Batch { appends: vec![append], ..Batch::default() }).unwrap();
    let opener = overheard(&listen(&kept, "warn"), opener);
    let f = Fixture::on(Config::new(StoreChoice::Memory), opener).await;
    let log = kept.take();
    for expected in ["WARN", &format!("instance={instance}"), "reason="] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    let show = f.refused(call(&format!("GET /v1/instances/{instance}"))).await;
    assert_eq!(show, (500, "instance_broken".to_owned()));
    f.stop().await;
}

#[tokio::test]
async fn a_failure_of_the_store_and_a_fault_of_the_server_are_told_apart() {
    for (mode, said) in
        [(FULL_DISK, "the store failed; reopening"), (PANIC, "the server restarts from its store")]
    {
        let kept = Kept::default();
        let (store, opener) = faulty();
        let opener = overheard(&listen(&kept, "error"), opener);
        let f = Fixture::on(Config::new(StoreChoice::Memory), opener).await;
        store.mode.store(mode, Ordering::SeqCst);
        f.refused(call("PUT /v1/organisation").body("text/yaml", OFFICE)).await;
        store.mode.store(FINE, Ordering::SeqCst);
        f.core.app.status.until(Phase::Ready).await;
        let log = kept.take();
        assert!(log.contains(said), "{said}: {log}");
        assert_eq!(log.contains("the store failed"), mode == FULL_DISK, "{log}");
        f.stop().await;
    }
}
