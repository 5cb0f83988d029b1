//! A logical server without its sockets, and the shared parts of a process.
//!
//! Invariant: every logical server has its own queue, drive thread, store and site; none of them
//! waits for another. When `stop` has returned, everything acknowledged is on disk and the store is
//! closed.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use legwork_site::Member;
use tokio::runtime::Handle;
use tokio::sync::{SetOnce, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::Error;
use crate::backend::{self, Opener, Slot};
use crate::clock::Clock;
use crate::config::{Config, Peering, StoreChoice};
use crate::drive::{Message, Surroundings};
use crate::executors::Executors;
use crate::files::{Fetcher, Spool};
use crate::gate::Gate;
use crate::http::App;
use crate::mail::{self, Post};
use crate::meters::Meters;
use crate::moving::{Progress, bring};
use crate::notes::Notes;
use crate::peer::{Host, Links, Place, Presence, Wish};
use crate::queue::Queue;
use crate::schedules;
use crate::status::Status;
use crate::supervise::Supervisor;

/// How often to check for a stop while the store is copied.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// How long to wait for a letter being sent when the server stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Shared by the logical servers of one process.
pub(crate) struct Process {
    pub(crate) config: Config,
    /// Its membership in a cluster; `None` if its server is alone.
    pub(crate) host: Option<Arc<Host>>,
    clock: Arc<Clock>,
    meters: Arc<Meters>,
    stopping: watch::Receiver<bool>,
    /// The links of its own server.
    front: OnceLock<Arc<Links>>,
    /// The callback address of executors: the API of this process, once it listens.
    pub(crate) callback: Arc<SetOnce<Arc<str>>>,
    /// How it mails, if it does.
    post: Option<Arc<Post>>,
    /// Requests to the guests of the process.
    pub(crate) wishes: Mutex<Option<mpsc::Receiver<Wish>>>,
}

pub(crate) struct Core {
    pub(crate) app: Arc<App>,
    queue: Arc<Queue<Message>>,
    drive: Option<thread::JoinHandle<()>>,
    dialling: Option<JoinHandle<()>>,
    mailing: Option<JoinHandle<()>>,
    /// Starts what schedules request.
    starting: Option<JoinHandle<()>>,
}

/// Links to a logical server that another process holds; closed on drop.
pub(crate) struct Away {
    pub(crate) links: Arc<Links>,
    dialling: JoinHandle<()>,
}

impl Drop for Away {
    fn drop(&mut self) {
        self.dialling.abort();
    }
}

/// How to open the store of a logical server.
pub(crate) struct Opening {
    pub(crate) opener: Opener,
    pub(crate) notes: Arc<Notes>,
    /// Opens the store for copying from another host, which is done first.
    pub(crate) copies: Option<Opener>,
}

impl Opening {
    /// For a store without a note.
    #[cfg(test)]
    pub(crate) fn new(opener: Opener) -> Self {
        Self { opener, notes: Arc::default(), copies: None }
    }

    /// For the configured store of a server.
    pub(crate) fn of(choice: &StoreChoice, name: Option<&str>) -> Result<Self, Error> {
        let notes = match choice {
            StoreChoice::Directory(folder) => Notes::beside(folder),
            StoreChoice::Memory | StoreChoice::Postgres(_) => Ok(Notes::default()),
        };
        let notes = notes.map_err(|error| Error::Start(error.to_string()))?;
        let opener = backend::opener(choice, name);
        Ok(Self { opener, notes: Arc::new(notes), copies: None })
    }
}

impl Process {
    pub(crate) fn new(config: Config, stopping: watch::Receiver<bool>) -> Result<Self, Error> {
        let clock = Arc::new(Clock::default());
        let mut wishes = None;
        let host = match &config.peering {
            Some(peering) => {
                let Peering { name, certificates, topology, .. } = peering;
                let own = topology.server_named(name).and_then(|own| topology.server(own));
                // The address in the file counts: the process listens there.
                let address = own.map(|own| own.address.clone());
                let (host, wanted) = Host::new(name.clone(), address, certificates, clock.clone())?;
                wishes = Some(wanted);
                Some(Arc::new(host))
            }
            None => None,
        };
        let (meters, front) = (Arc::new(Meters::new(config.commit)), OnceLock::new());
        let wishes = Mutex::new(wishes);
        let callback = Arc::new(SetOnce::new());
        let post = Post::open(&config)?.map(Arc::new);
        Ok(Self { config, host, clock, meters, stopping, front, callback, post, wishes })
    }

    /// The name of its own server; `None` if it is alone.
    pub(crate) fn own(&self) -> Option<Arc<str>> {
        self.config.peering.as_ref().map(|peering| peering.name.clone())
    }

    /// The links of a logical server that this process is to hold.
    fn links(&self, name: Arc<str>, queue: &Arc<Queue<Message>>) -> Option<Arc<Links>> {
        let (host, peering) = (self.host.as_ref()?, self.config.peering.as_ref()?);
        // The topology known to its own server is newer than the file.
        let own = self.front.get().map(|own| own.topology());
        let topology = own.unwrap_or_else(|| peering.topology.clone());
        Some(Arc::new(Links::new(name, host.clone(), topology, queue.clone())))
    }

    /// Links to a logical server that another process holds.
    pub(crate) fn links_away(&self, name: &Arc<str>) -> Option<Away> {
        let links = self.links(name.clone(), &Arc::new(Queue::new(0)))?;
        self.point_to_old(&links);
        links.host.let_go(&links, Presence::Away);
        let dialling = tokio::spawn(links.clone().run());
        Some(Away { links, dialling })
    }

    /// Points the links to the process that this one replaces.
    fn point_to_old(&self, links: &Links) {
        let Some(peering) = &self.config.peering else { return };
        let Some(address) = &peering.replaces else { return };
        if let Some(twin) = links.twin() {
            let (host, address) = (peering.name.clone(), address.clone());
            twin.see_at(Place { host, address });
        }
    }

    /// The store of one of its servers.
    pub(crate) fn store(&self, name: Option<&Arc<str>>) -> StoreChoice {
        match name {
            Some(name) if self.own().as_ref() != Some(name) => self.config.store.of_guest(name),
            Some(_) | None => self.config.store.clone(),
        }
    }

    /// The site configuration of one of its servers.
    fn site(&self, name: Option<&Arc<str>>) -> legwork_site::Config {
        legwork_site::Config {
            resident_max: self.config.resident_max,
            waiting_max: self.config.limits.waiting_max,
            member: name.and_then(|name| self.member(name)),
            mail: self.post.as_ref().map(|post| post.settings.tell.clone()),
            ..legwork_site::Config::default()
        }
    }

    fn member(&self, name: &Arc<str>) -> Option<Member> {
        let peering = self.config.peering.as_ref()?;
        // A guest may have been added after the file was written.
        let newer = || self.front.get().map(|own| own.topology().to_yaml().into());
        let topology = match peering.topology.server_named(name) {
            Some(_) => peering.source.clone(),
            None => newer().unwrap_or_else(|| peering.source.clone()),
        };
        Some(Member { name: name.clone(), topology })
    }
}

impl Core {
    /// Opens the store and reads what a cluster member needs; the instances are read in the
    /// background.
    pub(crate) async fn start(
        process: &Process,
        name: Option<Arc<str>>,
        opening: Opening,
    ) -> Result<Self, Error> {
        let config = &process.config;
        let Opening { opener, notes, copies } = opening;
        let is_guest = name != process.own();
        let drive_meters = match name.as_ref().filter(|_| is_guest) {
            Some(name) => process.meters.of_guest(name),
            None => process.meters.drive.clone(),
        };
        let queue = Arc::new(Queue::new(config.limits.queue_max));
        let links = name.clone().and_then(|name| process.links(name, &queue));
        let slot = Arc::new(Slot::default());
        let (starts, wanted) = mpsc::channel(schedules::WAITING_MAX);
        let mut around = Surroundings {
            queue: queue.clone(),
            clock: process.clock.clone(),
            status: Arc::new(Status::new()),
            slot: slot.clone(),
            meters: drive_meters,
            links: links.clone(),
            fetcher: None,
            executors: Arc::new(Executors::new(
                queue.clone(),
                process.clock.clone(),
                (process.callback.clone(), name.clone()),
                slot,
            )),
            starts,
            written: Arc::default(),
            notes,
        };
        around.fetcher = links.as_ref().map(|links| fetcher(links, &around));
        let app = Arc::new(app(process, &around));
        if let Some(links) = &links {
            links.serve_with(&app);
            process.point_to_old(links);
            if !is_guest {
                // Set once, before any request.
                drop(process.front.set(links.clone()));
            }
        }
        let site = process.site(name.as_ref());
        let copy = match (&links, copies) {
            (Some(links), Some(copier)) => Some(copy(links, copier, &around)),
            (Some(_) | None, Some(_) | None) => None,
        };
        let (opened, outcome) = oneshot::channel();
        let drive = thread::Builder::new()
            .name("legwork-drive".to_owned())
            .spawn(move || Supervisor { around, opener, site, is_guest, copy }.run(opened))
            .map_err(|error| Error::Start(format!("no thread: {error}")))?;
        match outcome.await {
            Ok(Ok(())) => {
                let dialling = links.map(|links| tokio::spawn(links.run()));
                let starting = Some(tokio::spawn(schedules::run(app.clone(), wanted)));
                let (drive, mailing) = (Some(drive), None);
                let mut core = Self { app, queue, drive, dialling, mailing, starting };
                match core.begin_mailing(process, !is_guest) {
                    Ok(()) => Ok(core),
                    Err(error) => {
                        core.stop().await;
                        Err(error)
                    }
                }
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Start("its drive thread died; please report it".to_owned())),
        }
    }

    /// Every server sends its own letters; replies are read once per process.
    fn begin_mailing(&mut self, process: &Process, reads: bool) -> Result<(), Error> {
        let Some(post) = process.post.clone() else { return Ok(()) };
        // Now that the folder contains a store: no letter is sent without the key.
        post.make_key()?;
        self.mailing = Some(tokio::spawn(mail::run(self.app.clone(), post, reads)));
        Ok(())
    }

    /// Whether it has ended by itself: another process holds the server.
    pub(crate) fn is_over(&self) -> bool {
        self.drive.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    pub(crate) async fn stop(mut self) {
        if let Some(mut mailing) = self.mailing.take() {
            // An interrupted letter would be sent again, but nobody waits long for it.
            let patience = if self.app.gate.is_stopping() { FAREWELL } else { Duration::ZERO };
            if tokio::time::timeout(patience, &mut mailing).await.is_err() {
                mailing.abort();
            }
        }
        if let Some(starting) = self.starting.take() {
            // Pending starts are requested again after a restart.
            starting.abort();
        }
        self.app.status.ask_to_stop();
        self.queue.push_beyond_limit(Message::Stop);
        if let Some(drive) = self.drive.take() {
            let joined = tokio::task::spawn_blocking(move || drive.join().is_ok()).await;
            if !matches!(joined, Ok(true)) {
                tracing::error!("the drive thread died");
            }
        }
        // Last: messages that were committed while stopping may still be sent.
        if let Some(links) = &self.app.links {
            links.host.let_go(links, Presence::Gone);
        }
        if let Some(dialling) = self.dialling.take() {
            dialling.abort();
            drop(dialling.await);
        }
    }
}

/// Copies the store from another host, in the drive thread, which has nothing else to do.
fn copy(
    links: &Arc<Links>,
    opener: Opener,
    around: &Surroundings,
) -> Box<dyn FnOnce() -> bool + Send> {
    let (links, runtime) = (links.clone(), Handle::current());
    let (notes, status) = (around.notes.clone(), around.status.clone());
    Box::new(move || {
        links.host.let_go(&links, Presence::Away);
        let (progress, _) = watch::channel(Progress::default());
        let bringing = bring(links, opener, notes, progress);
        let stopped = async {
            let mut looks = tokio::time::interval(STOP_LOOK);
            while !status.must_stop() {
                looks.tick().await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                _ = bringing => true,
                () = stopped => false,
            }
        })
    })
}

fn app(process: &Process, around: &Surroundings) -> App {
    let (limits, stopping) = (process.config.limits.clone(), process.stopping.clone());
    let (queue, status) = (around.queue.clone(), around.status.clone());
    let gate = Gate::new(queue, status, limits.waiting_max, stopping);
    let post = process.post.clone();
    App { post, ..App::new(gate, limits, process.meters.clone(), around.clone()) }
}

/// Fetches contents of files and notifies the drive thread.
fn fetcher(links: &Arc<Links>, around: &Surroundings) -> Arc<Fetcher<Links>> {
    let spool = Spool::beside(around.notes.folder());
    let there = links.clone();
    let tell = move |instance, blob| there.tell(Message::FileHere { instance, blob });
    Arc::new(Fetcher::new(links.clone(), around.slot.clone(), spool, Box::new(tell)))
}
