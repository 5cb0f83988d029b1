//! A server: its start, its stop, and the requests in between.
//!
//! Invariant: when `stop` has returned, everything acknowledged is on disk and the store is
//! closed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backend::{self, Opener};
use crate::config::{Config, Peering, StoreChoice};
use crate::core::{Core, Opening, Process};
use crate::guests::Guests;
use crate::http::App;
use crate::notes::{Note, Notes};
use crate::status::Phase;
use crate::{Error, listen};

/// How often histograms are folded.
const FOLD_EVERY: Duration = Duration::from_secs(1);
/// How often a slow start is reported.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A running server.
pub struct Server {
    address: SocketAddr,
    /// The requested address, if it is not used because there is no token.
    withheld: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    folding: JoinHandle<()>,
    /// The address for other servers.
    peer_address: Option<SocketAddr>,
    peering: Option<JoinHandle<()>>,
    guests: Option<Guests>,
    pub(crate) core: Core,
}

/// Progress of a start.
#[derive(Clone, Copy)]
pub enum News<'a> {
    /// Reported every second, with the current phase.
    Starting(&'a str),
    /// It listens, has read its store and takes requests.
    Ready(&'a Server),
}

/// Runs a server until the process is told to stop (SIGTERM or SIGINT).
pub fn run(config: Config, mut tell: impl FnMut(News<'_>)) -> Result<(), Error> {
    let threads = match config.threads {
        // The drive thread and the callers need CPUs too.
        0 => thread::available_parallelism().map_or(1, |n| n.get() / 2).clamp(1, 16),
        threads => threads,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("legwork-http")
        .enable_all()
        .build()
        .map_err(|error| Error::Start(format!("no threads: {error}")))?;
    runtime.block_on(async {
        let mut signals = pin!(signals()?);
        let opening = || "the store is being opened".to_owned();
        let server = tokio::select! {
            biased;
            server = telling(&mut tell, opening, Server::start(config)) => server?,
            // It may have to wait for another process without limit.
            () = &mut signals => return Ok(()),
        };
        let ready = telling(&mut tell, || server.state(), server.until_ready());
        let is_ready = tokio::select! {
            biased;
            () = ready => true,
            // The wait can be interrupted.
            () = &mut signals => false,
        };
        if is_ready {
            tell(News::Ready(&server));
            signals.await;
        }
        tracing::info!("stopping: requests under way are finished");
        server.stop().await;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Waits, and reports the phase every second.
async fn telling<T>(
    tell: &mut impl FnMut(News<'_>),
    state: impl Fn() -> String,
    future: impl Future<Output = T>,
) -> T {
    let mut future = pin!(future);
    loop {
        match tokio::time::timeout(TELL_EVERY, &mut future).await {
            Ok(done) => return done,
            Err(_) => tell(News::Starting(&state())),
        }
    }
}

impl Server {
    /// Opens the store and listens. The instances are read in the background: see `until_ready`.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let name = config.peering.as_ref().map(|peering| &*peering.name);
        let mut opening = Opening::of(&config.store, name)?;
        if config.peering.as_ref().is_some_and(|peering| peering.replaces.is_some()) {
            opening.copies = copies(&config.store, &opening.notes).await?;
        }
        Self::start_on(config, opening).await
    }

    pub(crate) async fn start_on(config: Config, opening: Opening) -> Result<Self, Error> {
        let (stop, stopping) = watch::channel(false);
        // Before anything is opened: a failure leaves nothing to undo.
        let peers = match &config.peering {
            Some(peering) => Some(peer_listener(peering).await?),
            None => None,
        };
        let process = Arc::new(Process::new(config, stopping.clone())?);
        let config = &process.config;
        let core = Core::start(&process, process.own(), opening).await?;
        // A cluster member may receive the first token at any moment: until then it refuses every
        // remote caller, request by request.
        let is_open = core.app.status.has_tokens() || config.peering.is_some();
        let address = permitted(config.listen, is_open);
        let withheld = (address != config.listen).then_some(config.listen);
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(why) => {
                core.stop().await;
                return Err(Error::Listen { address, why });
            }
        };
        let address = listener.local_addr().unwrap_or(address);
        if let Some(withheld) = withheld {
            tracing::warn!(
                asked = %withheld,
                used = %address,
                "there is no token yet, so the server listens on this machine alone; make one \
                 with `legwork token create NAME --scope admin` and start the server again"
            );
        }
        tracing::info!(%address, "listening");
        let (callback, is_anywhere) = callback(config, address);
        if is_anywhere {
            tracing::warn!(
                used = %callback,
                "executors on other machines cannot send their results to the address that the \
                 server listens on; say how they reach it with `--public-url URL`"
            );
        }
        // Set once, before any call.
        drop(process.callback.set(callback));
        let accepting =
            tokio::spawn(listen::accept(listener, core.app.clone(), stopping, config.grace));
        let folding = tokio::spawn(fold(core.app.clone()));
        let peer_address = peers.as_ref().and_then(|peers| peers.local_addr().ok());
        let own = core.app.links.clone();
        let guests = own.map(|own| Guests::keep(process.clone(), own));
        let host = process.host.clone();
        let peering = host.zip(peers).map(|(host, peers)| tokio::spawn(host.run(peers)));
        Ok(Self {
            address,
            withheld,
            stop,
            accepting,
            folding,
            peer_address,
            peering,
            guests,
            core,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requested address that is not used: without any token a server serves only the machine
    /// it runs on.
    pub fn withheld(&self) -> Option<SocketAddr> {
        self.withheld
    }

    /// Its name in the cluster, and its address for other servers; `None` if it is alone.
    pub fn among_others(&self) -> Option<(&str, SocketAddr)> {
        let links = self.core.app.links.as_ref()?;
        Some((&links.name, self.peer_address?))
    }

    /// Whether there are tokens; without any, every local caller may do everything.
    pub fn has_tokens(&self) -> bool {
        self.core.app.status.has_tokens()
    }

    /// Waits until the store is read and requests are served.
    pub async fn until_ready(&self) {
        // A server that another process has taken over passes requests on until it is back.
        self.core.app.status.until_any(&[Phase::Ready, Phase::Away]).await;
        if let Some(guests) = &self.guests {
            guests.until_ready().await;
        }
    }

    /// The phase, in words.
    pub fn state(&self) -> String {
        self.core.app.status.reason()
    }

    /// Finishes requests in progress, commits and closes the store.
    pub async fn stop(self) {
        // There is no receiver if all connections are gone.
        let _ = self.stop.send(true);
        let _ = self.accepting.await;
        self.folding.abort();
        if let Some(guests) = self.guests {
            guests.stop().await;
        }
        self.core.stop().await;
        // Last: messages that were committed while stopping may still be sent.
        if let Some(peering) = self.peering {
            peering.abort();
            let _ = peering.await;
        }
    }
}

/// The opener of a store to be copied from another host, unless the copy is complete.
async fn copies(store: &StoreChoice, notes: &Arc<Notes>) -> Result<Option<Opener>, Error> {
    let (mut opener, notes) = (backend::opener(store, None), notes.clone());
    let path = match store {
        StoreChoice::Directory(folder) => folder.clone(),
        StoreChoice::Memory | StoreChoice::Postgres(_) => return Err(Error::NotCopied),
    };
    let look = move || match (notes.is_new(), notes.last()) {
        (false, Note::Coming) => Ok(Some(opener)),
        (false, Note::Held | Note::Whole { .. } | Note::Given { .. } | Note::Gone) => Ok(None),
        (true, _) => {
            let found = opener().and_then(|store| match store.listing() {
                Some(listing) => listing.streams(None, 1),
                None => Ok(Vec::new()),
            });
            let is_empty = found.map_err(Error::Store)?.is_empty();
            if is_empty { Ok(Some(opener)) } else { Err(Error::NotEmpty { path }) }
        }
    };
    let looked = tokio::task::spawn_blocking(look).await;
    looked.map_err(|error| Error::Start(error.to_string()))?
}

/// The listener for other servers.
async fn peer_listener(peering: &Peering) -> Result<TcpListener, Error> {
    let Peering { name, topology, listen, .. } = peering;
    let own = topology.server_named(name).and_then(|own| topology.server(own));
    let own = own.ok_or_else(|| Error::NotInTopology { name: name.to_string() })?;
    if let Some(host) = own.host.and_then(|host| topology.server(host)) {
        let host = host.name.to_string();
        return Err(Error::Guest { name: name.to_string(), host });
    }
    let address = listen.map_or_else(|| own.address.to_string(), |address| address.to_string());
    let bound = TcpListener::bind(&address).await;
    bound.map_err(|why| Error::PeerListen { address, why })
}

/// Without tokens, loopback.
fn permitted(asked: SocketAddr, is_open: bool) -> SocketAddr {
    if is_open || asked.ip().is_loopback() {
        return asked;
    }
    let ip = match asked.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, asked.port())
}

async fn fold(app: Arc<App>) {
    let mut ticks = tokio::time::interval(FOLD_EVERY);
    loop {
        ticks.tick().await;
        app.meters.fold();
    }
}

/// Set up before the server starts: a signal during the start counts too.
fn signals() -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let fail = |error: std::io::Error| Error::Start(format!("no signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The callback address of executors: the configured one, that of the topology, or the listening
/// one; and whether it cannot be reached from other machines.
fn callback(config: &Config, address: SocketAddr) -> (Arc<str>, bool) {
    let own = config.peering.as_ref().and_then(|peering| {
        let own = peering.topology.server_named(&peering.name)?;
        Some(peering.topology.server(own)?.api.trim_end_matches('/').into())
    });
    let own = config.public_url.clone().or(own).filter(|url: &Arc<str>| !url.is_empty());
    let is_anywhere = own.is_none() && address.ip().is_unspecified();
    (own.unwrap_or_else(|| format!("http://{address}").into()), is_anywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_told_of_every_second() {
        let mut told = Vec::new();
        let mut tell = |news: News<'_>| match news {
            News::Starting(state) => told.push(state.to_owned()),
            News::Ready(_) => {}
        };
        let long = tokio::time::sleep(TELL_EVERY * 5 / 2);
        telling(&mut tell, || "reading".to_owned(), long).await;
        telling(&mut tell, || "nothing".to_owned(), std::future::ready(())).await;
        assert_eq!(told, ["reading", "reading"]);
    }

    #[test]
    fn where_executors_send_results_is_somewhere() {
        let mut config = Config::new(StoreChoice::Memory);
        for (listens, is_anywhere) in
            [("0.0.0.0:7700", true), ("[::]:7700", true), ("127.0.0.1:7700", false)]
        {
            let url = format!("http://{listens}");
            let (callback, found) = callback(&config, listens.parse().unwrap());
            assert_eq!((&*callback, found), (url.as_str(), is_anywhere));
        }
        config.public_url = Some("https://legwork.example".into());
        let (callback, is_anywhere) = callback(&config, "0.0.0.0:7700".parse().unwrap());
        assert_eq!((&*callback, is_anywhere), ("https://legwork.example", false));
    }

    #[test]
    fn without_tokens_only_loopback_is_listened_on() {
        for (asked, tokens, used) in [
            ("0.0.0.0:7700", false, "127.0.0.1:7700"),
            ("[::]:7700", false, "[::1]:7700"),
            ("192.168.1.5:80", false, "127.0.0.1:80"),
            ("127.0.0.1:7700", false, "127.0.0.1:7700"),
            ("0.0.0.0:7700", true, "0.0.0.0:7700"),
        ] {
            let permitted = permitted(asked.parse().unwrap(), tokens);
            assert_eq!(permitted, used.parse().unwrap(), "{asked} {tokens}");
        }
    }
}
