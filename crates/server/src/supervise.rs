//! The supervisor of the drive thread: open, recover, drive, and restart after a failure.
//!
//! Invariant: after a failure every caller gets an answer at once, and reopening the store is retried with
//! back-off until it succeeds or the server stops.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;
use legwork_site::{Input, Site, Stream};
use legwork_store::{OpenStream, Version};
use tokio::sync::oneshot;

use crate::Error;
use crate::backend::{Backend, Opener};
use crate::drive::{Broken, Driver, Failure, Message, Round, Surroundings, guarded, load};
use crate::ids::draw_life;
use crate::notes::Note;
use crate::peer::Presence;
use crate::status::Phase;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The polling interval of another process's lease.
const LEASE_PAUSE: Duration = Duration::from_millis(200);
/// Records of the site's own stream read at a time; each may contain a text of 1 MiB.
const OWN_RECORDS_AT_ONCE: usize = 64;
/// Records of plans, and of periodic starts, read at a time; most are a promise or two, or a start.
const SMALL_RECORDS_AT_ONCE: usize = 4_096;
/// How often the number of recovered instances is published.
const TOLD_EVERY: u64 = 4_096;

pub(crate) struct Supervisor {
    pub(crate) around: Surroundings,
    pub(crate) opener: Opener,
    pub(crate) site: legwork_site::Config,
    /// Not the process's own server: its store is not waited for.
    pub(crate) is_guest: bool,
    /// Copies the store from another host before it is first opened; returns false if the server is to stop.
    pub(crate) copy: Option<Box<dyn FnOnce() -> bool + Send>>,
}

/// Told when the store is open and its tokens are known.
pub(crate) type Opened = oneshot::Sender<Result<(), Error>>;

impl Supervisor {
    /// Runs until the server stops.
    pub(crate) fn run(mut self, opened: Opened) {
        let mut backlog = VecDeque::new();
        let Some(mut driver) = self.begin(opened, &mut backlog) else { return };
        loop {
            let broken = loop {
                match driver.round(&mut backlog) {
                    Ok(Round::GoOn) => {}
                    Ok(Round::Stop) => return self.stop(driver, &mut backlog),
                    Ok(Round::Gone) => return self.leave(Some(driver), &mut backlog),
                    Err(broken) => break broken,
                }
            };
            let Some(next) = self.begin_again(driver, &broken, &mut backlog) else { return };
            driver = next;
        }
    }

    /// The server has moved to another host: its store is closed for good. The process's own server stays, to
    /// pass requests on.
    fn leave(&mut self, driver: Option<Driver>, backlog: &mut VecDeque<Message>) {
        let note = match self.around.notes.last() {
            // The store arrived, and the change was undone: the local copy is outdated.
            Note::Whole { .. } | Note::Coming => Note::Coming,
            Note::Held | Note::Given { .. } | Note::Gone => Note::Gone,
        };
        if let Err(error) = self.around.notes.set(note) {
            tracing::error!(reason = %error, "cannot write the note that the server has moved");
        }
        let reason: Arc<str> = "this server has moved to another host".into();
        self.around.status.go_away(&reason);
        self.around.slot.set(None);
        self.around.written.forget();
        if let Some(links) = &self.around.links {
            links.host.let_go(links, Presence::Away);
        }
        if let Some(driver) = driver {
            driver.refuse_all(&reason);
        }
        // In a shared store the lease is released with it.
        let gone = || legwork_store::Error::Stopped { cause: "the server has moved".to_owned() };
        self.opener = Box::new(move || Err(gone()));
        if self.is_guest {
            return;
        }
        tracing::warn!(
            "this server has moved to another host; this process passes on what it is asked, and \
             can be stopped (Ctrl-C, SIGTERM) as soon as nobody asks here any more"
        );
        while refuse(backlog, &reason).is_continue() {
            self.around.queue.take_all(backlog, None);
        }
    }

    /// The first incarnation. `None` if the store cannot be opened, which the starting task is told, or if the
    /// server is to stop.
    fn begin(&mut self, opened: Opened, backlog: &mut VecDeque<Message>) -> Option<Driver> {
        let is_among_others = self.around.links.is_some();
        if let Some(copy) = self.copy.take() {
            self.around.status.go_away("the store is being copied from another host");
            drop(opened.send(Ok(())));
            return if copy() { self.open_again("it has come".into(), backlog) } else { None };
        }
        if matches!(self.around.notes.last(), Note::Gone | Note::Coming) {
            drop(opened.send(Ok(())));
            self.leave(None, backlog);
            return None;
        }
        let (driver, opened) = match self.open_first(&opened) {
            Ok(driver) => (driver, opened),
            Err(error) if is_held(&error) && !self.is_guest && is_among_others => {
                self.go_away(&error);
                drop(opened.send(Ok(())));
                return self.open_again(chain(&error).into(), backlog);
            }
            Err(error) => {
                drop(opened.send(Err(error)));
                return None;
            }
        };
        drop(opened.send(Ok(())));
        let mut driver = driver;
        match guarded(|| self.recover(&mut driver)) {
            // Told to stop during recovery.
            Ok(()) if self.around.status.phase() == Phase::Recovering => {
                self.around.slot.set(None);
                None
            }
            Ok(()) if driver.is_gone() => {
                self.leave(Some(driver), backlog);
                None
            }
            Ok(()) => Some(driver),
            Err(broken) => self.begin_again(driver, &broken, backlog),
        }
    }

    /// A server that is alone waits while another process holds its lease, unless its starter is gone.
    fn open_first(&mut self, opened: &Opened) -> Result<Driver, Error> {
        let mut is_told = false;
        loop {
            let error = match self.open() {
                Err(error) if is_held(&error) && self.around.links.is_none() => error,
                other => return other,
            };
            if opened.is_closed() || self.around.status.must_stop() {
                return Err(error);
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!(reason = %error, "another process holds this server's lease; waiting");
            }
            self.around.status.fail(&chain(&error));
            thread::sleep(LEASE_PAUSE);
        }
    }

    /// Another process holds this server: requests are passed on there. A server that is alone does not know
    /// that process, and can only name it.
    fn go_away(&self, why: &Error) {
        let Some(links) = &self.around.links else {
            return self.around.status.fail(&chain(why));
        };
        if self.around.status.phase() != Phase::Away {
            tracing::warn!(reason = %why, "another process holds this server's lease; asking for it");
        }
        self.around.status.go_away(&chain(why));
        links.host.let_go(links, Presence::Away);
    }

    /// Opens the store and reads the site's own stream and that of the plans: promises made without the
    /// earlier ones would be wrong.
    fn open(&mut self) -> Result<Driver, Error> {
        let store = (self.opener)().map_err(Error::Store)?;
        let queue = self.around.queue.clone();
        store.when_in_doubt(Arc::new(move || queue.push_beyond_limit(Message::LeaseInDoubt)));
        let life = draw_life().map_err(|error| Error::Start(error.to_string()))?;
        let config = legwork_site::Config { life, ..self.site.clone() };
        let site = Site::new(config);
        let mut driver = Driver::new(self.around.clone(), site, store.clone());
        recover_own(&mut driver, &*store)
            .and_then(|()| recover_plans(&mut driver, &*store))
            .map_err(|broken| match broken {
                Broken::Store(error) => Error::Store(error),
                Broken::Panic(_) => Error::Start(broken.to_string()),
            })?;
        if let Some(topology) = driver.site().member_alone() {
            let (topology, servers) = (topology.name.to_string(), topology.servers.iter());
            let servers = servers.map(|server| server.name.to_string()).collect();
            return Err(Error::MemberAlone { topology, servers });
        }
        if !driver.site().faults().is_empty() {
            return Err(Error::Unreadable { faults: driver.site().faults().to_vec() });
        }
        driver.show();
        self.around.slot.set(Some(store));
        if let Some(links) = &self.around.links {
            links.host.take_in(links);
        }
        Ok(driver)
    }

    /// Reads the instances. From here on the server takes requests, unless it was told to stop meanwhile: then
    /// the incomplete state is dropped.
    fn recover(&self, driver: &mut Driver) -> Result<(), Broken> {
        self.around.status.enter(Phase::Recovering);
        let Some(store) = self.around.slot.borrow() else { return Ok(()) };
        let mut instances = 0;
        let mut result = Ok(());
        store.open_streams(Some(StreamId::SITE), &mut |open| {
            if self.around.status.must_stop() {
                return ControlFlow::Break(());
            }
            if open.stream == StreamId::PLANS {
                return ControlFlow::Continue(());
            }
            instances += 1;
            if instances % TOLD_EVERY == 0 {
                self.around.status.count_recovered(instances);
            }
            result = driver.recover(stream(open));
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        if self.around.status.must_stop() {
            return Ok(());
        }
        // The snapshot was written by another version, or is damaged.
        if driver.takes_back_load(StreamId::SCHEDULES) {
            recover_all(driver, &*store, StreamId::SCHEDULES, SMALL_RECORDS_AT_ONCE)?;
        }
        driver.show();
        self.around.clock.advance_to(driver.site().latest());
        driver.recall();
        driver.tell_links();
        tracing::info!(instances, "the store is read");
        self.around.status.enter(Phase::Ready);
        Ok(())
    }

    /// Drops everything in memory, and opens the store until that succeeds.
    fn begin_again(
        &mut self,
        driver: Driver,
        broken: &Broken,
        backlog: &mut VecDeque<Message>,
    ) -> Option<Driver> {
        match broken {
            Broken::Store(error) => {
                tracing::error!(reason = %chain(error), "the store failed; reopening");
            }
            Broken::Panic(_) => {
                tracing::error!(reason = %broken, "the server restarts from its store");
            }
        }
        self.around.meters.failed();
        let reason: Arc<str> = chain(broken).into();
        self.around.status.fail(&reason);
        self.around.slot.set(None);
        driver.refuse_all(&reason);
        self.open_again(reason, backlog)
    }

    /// Opens the store until that succeeds. `None` if the server is to stop, or if it is no guest of this
    /// process any more.
    fn open_again(
        &mut self,
        mut reason: Arc<str>,
        backlog: &mut VecDeque<Message>,
    ) -> Option<Driver> {
        let mut pause = PAUSE_MIN;
        loop {
            if backlog.is_empty() {
                self.around.queue.take_all(backlog, Some(pause));
            }
            if refuse(backlog, &reason).is_break() {
                return None;
            }
            let error = match self.open_and_recover() {
                Ok(Some(driver)) if driver.is_gone() => {
                    self.leave(Some(driver), backlog);
                    return None;
                }
                Ok(Some(driver)) => {
                    tracing::info!("the server works again");
                    return Some(driver);
                }
                Ok(None) => return None,
                Err(error) => error,
            };
            reason = chain(&error).into();
            if !is_held(&error) {
                tracing::warn!(reason = %reason, "the server cannot recover yet; retrying");
                self.around.status.fail(&reason);
                pause = (pause * 2).min(PAUSE_MAX);
            } else if self.is_guest {
                tracing::warn!(reason = %reason, "a guest is held by another process now");
                self.around.status.fail(&reason);
                return None;
            } else {
                self.go_away(&error);
                pause = LEASE_PAUSE;
            }
        }
    }

    /// `None` if the server was told to stop during recovery.
    fn open_and_recover(&mut self) -> Result<Option<Driver>, Error> {
        let mut driver = self.open()?;
        let broken = match guarded(|| self.recover(&mut driver)) {
            Ok(()) if self.around.status.phase() == Phase::Recovering => {
                self.around.slot.set(None);
                return Ok(None);
            }
            Ok(()) => return Ok(Some(driver)),
            Err(broken) => broken,
        };
        self.around.slot.set(None);
        driver.refuse_all(&chain(&broken).into());
        Err(match broken {
            Broken::Store(error) => Error::Store(error),
            Broken::Panic(_) => Error::Start(broken.to_string()),
        })
    }

    /// No new requests come: the queued ones are carried out, the waiters are told.
    fn stop(self, mut driver: Driver, backlog: &mut VecDeque<Message>) {
        self.around.status.enter(Phase::Stopping);
        self.around.queue.push_beyond_limit(Message::Stop);
        loop {
            match driver.round(backlog) {
                Ok(Round::Stop) if backlog.is_empty() => break,
                Ok(Round::Stop | Round::GoOn) => {}
                Ok(Round::Gone) => break,
                Err(broken) => {
                    tracing::error!(reason = %chain(&broken), "failed while the server stopped");
                    break;
                }
            }
        }
        self.around.slot.set(None);
        driver.refuse_all(&"the server is stopping".into());
    }
}

/// Answers all waiters that there is no answer; breaks if the server is to stop.
fn refuse(backlog: &mut VecDeque<Message>, reason: &Arc<str>) -> ControlFlow<()> {
    while let Some(message) = backlog.pop_front() {
        match message {
            Message::Ask { reply, .. } => {
                drop(reply.send(Err(Failure::Unavailable(reason.clone()))));
            }
            // The next incarnation is told which links are up; missed messages are resent or requested again.
            Message::Cancel(_)
            | Message::Undelivered(_)
            | Message::FromPeer { .. }
            | Message::Link { .. }
            | Message::ReportLink { .. }
            | Message::FileHere { .. }
            | Message::Executor { .. }
            | Message::GiveAway { .. }
            | Message::MovedIn { .. }
            | Message::LeaseInDoubt => {}
            Message::Stop => return ControlFlow::Break(()),
        }
    }
    ControlFlow::Continue(())
}

/// Whether another process has the lease.
fn is_held(error: &Error) -> bool {
    matches!(error, Error::Store(legwork_store::Error::LeaseHeld { .. }))
}

/// Reads the site's own stream: it has every text ever published.
fn recover_own(driver: &mut Driver, store: &dyn Backend) -> Result<(), Broken> {
    recover_all(driver, store, StreamId::SITE, OWN_RECORDS_AT_ONCE)?;
    driver.handle(Input::SiteRecovered, Timestamp::default());
    Ok(())
}

/// Reads the snapshot of the plans; all their records if another version wrote it.
fn recover_plans(driver: &mut Driver, store: &dyn Backend) -> Result<(), Broken> {
    driver.recover(load(store, StreamId::PLANS, false)?)?;
    if driver.takes_back_load(StreamId::PLANS) {
        recover_all(driver, store, StreamId::PLANS, SMALL_RECORDS_AT_ONCE)?;
    }
    Ok(())
}

/// Reads a whole stream, a portion at a time.
fn recover_all(
    driver: &mut Driver,
    store: &dyn Backend,
    stream: StreamId,
    at_once: usize,
) -> Result<(), Broken> {
    let mut from = 0;
    loop {
        let records = store.read(stream, Version(from), at_once)?;
        if records.is_empty() {
            return Ok(());
        }
        from += records.len() as u64;
        driver.recover(Stream { id: stream.0, snapshot: None, records })?;
    }
}

fn stream(open: OpenStream) -> Stream {
    let snapshot = open.snapshot.map(|snapshot| (snapshot.version.0, snapshot.bytes));
    Stream { id: open.stream.0, snapshot, records: open.records }
}

/// An error with its causes: "writing x failed: no space left on device".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
