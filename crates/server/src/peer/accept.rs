//! Accepted links: authentication of the peer, its messages and its requests.
//!
//! Invariant: a peer is rejected, with the reason, unless its certificate is of this cluster and of
//! the domain of the server it speaks for, and its name is in the topology. Excess messages of a
//! peer wait in its own connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::counters::{Counted, Tally};
use super::files::{self, QUESTIONS_MAX, large};
use super::frame::{Answered, Frame, Hello, Passed, VERSION, Welcome};
use super::host::Host;
use super::link::{self, Ended, INTRODUCTION, Incoming, control};
use super::links::{Links, Place};
use super::other::Peer;
use super::outlet::Outlet;
use super::passing::{self, From};
use super::stores;
use super::tls::is_for;
use crate::drive;
use crate::files::{FileReply, FileRequest};
use crate::moving::{StoreReply, StoreRequest};

/// Accepted connections, unauthenticated ones included.
const CONNECTIONS_MAX: usize = 1_024;
/// Concurrent requests of one connection, and their bytes.
const REQUESTS_MAX: usize = 10_000;
const REQUESTS_BYTES_MAX: u64 = 64 << 20;
/// The pause after an error that is not the caller's, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn accept(host: Arc<Host>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => {
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let host = host.clone();
                connections.spawn(async move {
                    serve(&host, stream, from).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of a server could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(host: &Host, stream: TcpStream, from: SocketAddr) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (stream, tally) = Counted::new(stream);
    let acceptor = TlsAcceptor::from(host.identity.current().server.clone());
    let stream = match timeout(INTRODUCTION, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return host.refused(from, &Ended::from(error));
        }
        Err(_) => return,
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate =
        certificates.and_then(|all| all.first()).map(|first| first.clone().into_owned());
    let (read, mut write) = split(stream);
    let mut incoming = Incoming::new(read);
    let admitted = admit(host, &tally, certificate.as_ref(), &mut incoming, &mut write);
    match timeout(INTRODUCTION, admitted).await {
        Ok(Ok((links, peer))) => {
            peer.sign_of_life.notify_one();
            let ended = converse(&links, &peer, &mut incoming, write).await;
            tracing::debug!(peer = %peer.name, ?ended, "a link from another server has ended");
        }
        Ok(Err(ended)) => {
            if ended.is_refusal() {
                host.refused(from, &ended);
            }
            // The reason must be read before the end of the connection.
            drop(timeout(INTRODUCTION, write.shutdown()).await);
        }
        Err(_) => {}
    }
}

/// Authenticates the peer and determines the target server. A rejected peer is told the reason.
async fn admit<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    host: &Host,
    tally: &Tally,
    certificate: Option<&CertificateDer<'static>>,
    incoming: &mut Incoming<R>,
    write: &mut W,
) -> Result<(Arc<Links>, Arc<Peer>), Ended> {
    let (frame, bytes) = incoming.next().await?;
    let known = if let Frame::Hello(hello) = &frame {
        match host.held(&hello.to) {
            Some(links) => recognise(&links, hello, certificate).map(|peer| (links, peer)),
            None => {
                link::say(write, &Frame::NotHere).await?;
                return Err(Ended::NotHere(host.name.clone()));
            }
        }
    } else {
        Err("the first word is not hello".to_owned())
    };
    match known {
        Ok((links, peer)) => {
            tally.belongs_to(&peer.counters);
            peer.counters.received.add(&control(bytes));
            let welcome = Welcome { version: VERSION, epoch: links.topology().epoch };
            peer.counters.sent.add(&link::say(write, &Frame::Welcome(welcome)).await?);
            incoming.is_known = true;
            Ok((links, peer))
        }
        Err(reason) => {
            link::say(write, &Frame::Refused(reason.clone())).await?;
            Err(Ended::Refused(reason))
        }
    }
}

fn recognise(
    links: &Links,
    hello: &Hello,
    certificate: Option<&CertificateDer<'static>>,
) -> Result<Arc<Peer>, String> {
    let Hello { version, name, server, epoch, to: here, host, address } = hello;
    if *version != VERSION {
        return Err(format!(
            "`{name}` speaks version {version} of the protocol, `{here}` version {VERSION}; \
             run the same release"
        ));
    }
    if !certificate.is_some_and(|certificate| is_for(certificate, host)) {
        return Err(format!("the certificate is not for `{host}`; take the one made for it"));
    }
    let topology = links.topology();
    let found = |name: &str| {
        let number = topology.server_named(name)?;
        Some((number, topology.server(number)?.domain))
    };
    let unknown = |name: &str| {
        let theirs = match *epoch {
            Hello::NOT_JOINED => "none yet".to_owned(),
            epoch => epoch.to_string(),
        };
        format!(
            "`{name}` is not in the topology of `{here}` (epoch {}, there {theirs}); publish one \
             that names it",
            topology.epoch
        )
    };
    let (number, domain) = found(name).ok_or_else(|| unknown(name))?;
    let (_, domain_of_host) = found(host).ok_or_else(|| unknown(host))?;
    if domain_of_host != domain {
        return Err(format!("`{host}` is of another domain than `{name}` and cannot speak for it"));
    }
    // Numbers from the file do not count, on either side.
    let seat = links.seat().filter(|seat| seat.topology.epoch == *epoch);
    if seat.is_some() && number.0 != *server {
        return Err(format!(
            "`{name}` is server {server} there and {} at `{here}`; these are not the same cluster",
            number.0
        ));
    }
    let place = Place { host: host.as_str().into(), address: address.as_str().into() };
    let peer = links.peer_named(name).filter(|_| place != links.host.place(&topology));
    let peer = peer.ok_or_else(|| format!("`{name}` is the name of this server"))?;
    peer.see_at(place);
    Ok(peer)
}

/// The activity on one connection.
struct Session<'a> {
    links: &'a Links,
    peer: &'a Peer,
    outlet: &'a Outlet,
    requests: JoinSet<(u64, Answered)>,
    /// Requests for contents of files, and about the store.
    files: JoinSet<(u64, FileReply)>,
    stores: JoinSet<(u64, StoreReply)>,
    /// Requests in progress, each with its bytes, and the sum of these.
    handles: FxHashMap<u64, (AbortHandle, u64)>,
    bytes: u64,
}

async fn converse<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    links: &Links,
    peer: &Peer,
    incoming: &mut Incoming<R>,
    write: W,
) -> Result<(), Ended> {
    let mut topology = links.topology_changes();
    let mut looks = link::looks();
    let outlet = Outlet::default();
    outlet.open();
    let mut session = Session {
        links,
        peer,
        outlet: &outlet,
        requests: JoinSet::new(),
        files: JoinSet::new(),
        stores: JoinSet::new(),
        handles: FxHashMap::default(),
        bytes: 0,
    };
    let mut writing = pin!(link::write(&outlet, write, &peer.counters));
    loop {
        tokio::select! {
            next = next(&outlet, incoming) => {
                let (frame, bytes) = next?;
                session.on_frame(frame, bytes).await?;
            }
            Some(done) = session.requests.join_next() => {
                // Cancelled requests have no answer.
                if let Ok((id, answered)) = done {
                    session.end(id);
                    session.answer(&Frame::Response(id, answered));
                }
            }
            Some(done) = session.files.join_next() => {
                if let Ok((id, reply)) = done {
                    session.answer_large(&Frame::FileReply(id, reply));
                }
            }
            Some(done) = session.stores.join_next() => {
                if let Ok((id, reply)) = done {
                    session.answer_large(&Frame::StoreReply(id, reply));
                }
            }
            ended = &mut writing => return ended,
            () = links.until_let_go() => return Err(Ended::Left),
            _ = looks.tick() => incoming.look()?,
            _ = topology.changed() => {
                if !links.has_server(&peer.name) {
                    return Err(Ended::Changed);
                }
            }
        }
    }
}

/// The next frame; a peer that does not read its answers is not read either.
async fn next<R: AsyncRead + Unpin>(
    outlet: &Outlet,
    incoming: &mut Incoming<R>,
) -> Result<(Frame, u64), Ended> {
    outlet.until_room().await;
    incoming.next().await
}

impl Session<'_> {
    async fn on_frame(&mut self, frame: Frame, bytes: u64) -> Result<(), Ended> {
        if let Frame::Message(content) = frame {
            return self.on_message(&content, bytes).await;
        }
        let is_file = matches!(frame, Frame::FileRequest(..) | Frame::StoreRequest(..));
        let spent = if is_file { large(bytes) } else { control(bytes) };
        self.peer.counters.received.add(&spent);
        match frame {
            Frame::Request(id, passed) => self.begin(id, passed, bytes),
            Frame::Cancel(id) => {
                if let Some(handle) = self.end(id) {
                    handle.abort();
                }
            }
            Frame::FileRequest(id, request) => self.look_for(id, request),
            Frame::StoreRequest(id, request) => return self.tell_store(id, request),
            Frame::Ping => self.answer(&Frame::Pong),
            Frame::Unknown | Frame::Message(_) => {}
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(_)
            | Frame::NotHere
            | Frame::Pong
            | Frame::FileReply(..)
            | Frame::StoreReply(..)
            | Frame::Response(..) => {
                return Err(Ended::Refused(
                    "the dialling server sent a frame of a dialled one".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Decoded here, so that the drive thread has less to do.
    async fn on_message(&self, content: &[u8], bytes: u64) -> Result<(), Ended> {
        let received = &self.peer.counters.received;
        let message = match legwork_site::Message::from_bytes(content) {
            Ok(message) => message,
            Err(error) => {
                // Of a later release, perhaps: other messages may be decodable.
                tracing::warn!(peer = %self.peer.name, reason = %error, "a message was dropped");
                received.add(&control(bytes));
                received.drop_one();
                return Ok(());
            }
        };
        received.add(&message.shares(bytes));
        // Another process for the same server sends no messages.
        if self.is_twin() {
            return Ok(());
        }
        let Some(room) = self.peer.room(bytes).await else { return Err(Ended::Closed) };
        self.links.tell(drive::Message::FromPeer { from: self.peer.name.clone(), message, room });
        Ok(())
    }

    fn begin(&mut self, id: u64, passed: Passed, bytes: u64) {
        let Some(app) = self.links.app() else { return };
        let is_full =
            self.requests.len() >= REQUESTS_MAX || self.bytes + bytes > REQUESTS_BYTES_MAX;
        if is_full || self.handles.contains_key(&id) {
            return self.answer(&Frame::Response(id, passing::overloaded()));
        }
        let from = From { server: self.peer.name.clone(), is_near: false };
        let carry_out = async move { (id, passing::carry_out(&app, from, passed).await) };
        self.handles.insert(id, (self.requests.spawn(carry_out), bytes));
        self.bytes += bytes;
    }

    /// A request has ended.
    fn end(&mut self, id: u64) -> Option<AbortHandle> {
        let (handle, bytes) = self.handles.remove(&id)?;
        self.bytes -= bytes;
        Some(handle)
    }

    fn look_for(&mut self, id: u64, request: FileRequest) {
        let Some(app) = self.links.app() else { return };
        if self.files.len() >= QUESTIONS_MAX {
            return self.answer_large(&Frame::FileReply(id, FileReply::NotHere));
        }
        self.files.spawn(async move { (id, files::answer(app, request).await) });
    }

    /// Whether the peer is another process for the very server that it addresses.
    fn is_twin(&self) -> bool {
        self.peer.name == self.links.name
    }

    fn tell_store(&mut self, id: u64, request: StoreRequest) -> Result<(), Ended> {
        if !self.is_twin() {
            return Err(Ended::Refused("it asks for the store of another server".to_owned()));
        }
        let Some(app) = self.links.app() else { return Ok(()) };
        if self.stores.len() >= QUESTIONS_MAX {
            let busy = StoreReply::NotNow("too much is asked at once".to_owned());
            self.answer_large(&Frame::StoreReply(id, busy));
            return Ok(());
        }
        self.stores.spawn(async move { (id, stores::answer(app, request).await) });
        Ok(())
    }

    fn answer_large(&self, frame: &Frame) {
        let bytes = frame.to_bytes();
        self.outlet.put_beyond_limit(&bytes, &large(bytes.len() as u64));
    }

    fn answer(&self, frame: &Frame) {
        let bytes = frame.to_bytes();
        self.outlet.put_beyond_limit(&bytes, &control(bytes.len() as u64));
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::id::DomainId;
    use legwork_placement::Topology;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::peer::links::tests::{links, server};

    #[test]
    fn who_introduces_themselves_is_recognised_or_told_why_not() {
        let mut servers = ["north", "lab", "ward", "far"].map(server).to_vec();
        servers[3].domain = DomainId(1);
        let (_folder, authority, links) = links(servers);
        let topology = Topology { epoch: 3, ..(*links.topology()).clone() };
        links.follow(&Arc::new(topology), true);
        let certified = |name: &str| authority.certify(name, Duration::from_secs(60)).unwrap();
        let said = |epoch, version, name: &str, host: &str, server, certificate: &str| {
            let pem = certified(certificate).certificate;
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let (to, host) = ("north".to_owned(), host.to_owned());
            let hello = Hello {
                version,
                name: name.to_owned(),
                server,
                epoch,
                to,
                host,
                address: "127.0.0.1:1".to_owned(),
            };
            recognise(&links, &hello, Some(&certificate)).map(|peer| peer.name.to_string())
        };
        let held = |version, name: &str, host: &str, server, certificate: &str| {
            said(3, version, name, host, server, certificate)
        };
        let known = |version, name: &str, server, certificate: &str| {
            held(version, name, name, server, certificate)
        };
        assert_eq!(known(VERSION, "lab", 1, "lab").as_deref(), Ok("lab"));
        // A server that has not joined has no number, and one that is behind may use an older one.
        for epoch in [Hello::NOT_JOINED, 2] {
            let joining = said(epoch, VERSION, "lab", "lab", 2, "lab");
            assert_eq!(joining.as_deref(), Ok("lab"));
        }
        // In the process of another server of its domain.
        assert_eq!(held(VERSION, "lab", "ward", 1, "ward").as_deref(), Ok("lab"));
        for (result, reason) in [
            (known(VERSION + 1, "lab", 1, "lab"), "speaks version 4 of the protocol"),
            (known(VERSION, "lab", 1, "north"), "the certificate is not for `lab`"),
            (held(VERSION, "lab", "far", 1, "far"), "`far` is of another domain than `lab`"),
            (held(VERSION, "lab", "ward", 1, "lab"), "the certificate is not for `ward`"),
            (known(VERSION, "attic", 1, "attic"), "`attic` is not in the topology of `north`"),
            (known(VERSION, "lab", 2, "lab"), "these are not the same cluster"),
            (known(VERSION, "north", 0, "north"), "`north` is the name of this server"),
        ] {
            let said = result.unwrap_err();
            assert!(said.contains(reason), "{said}");
        }
    }
}
