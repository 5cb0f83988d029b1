//! The dialled link to one other server: connected, introduced, maintained.
//!
//! Invariant: as long as the server is in the topology and not in this process, a link to it is up or being
//! dialled, with back-off, wherever the server may be. When it breaks, waiting requests are told.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::counters::Counted;
use super::files::{self, large};
use super::frame::{Frame, Hello, VERSION};
use super::link::{self, Ended, INTRODUCTION, Incoming, control};
use super::links::{Links, Place};
use super::other::{Near, Peer};
use super::outlet::Outlet;
use super::stores;
use crate::drive;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Maintains the link.
pub(crate) async fn keep(links: Arc<Links>, peer: Arc<Peer>) {
    let mut topology = links.topology_changes();
    let mut nearness = peer.nearness();
    let mut pause = PAUSE_MIN;
    loop {
        let is_there = links.has_server(&peer.name);
        if !is_there || peer.is_near() {
            // The server may return to the topology, or leave this process.
            tokio::select! {
                changed = topology.changed() => if changed.is_err() { return },
                _ = nearness.changed() => {}
            }
            continue;
        }
        let (was_up, ended) = everywhere(&links, &peer, nearness.clone()).await;
        if peer.is_near() {
            continue;
        }
        pause = if was_up { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        links.is_down(&peer, &ended);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = peer.sign_of_life.notified() => {}
            _ = topology.changed() => {}
            _ = nearness.changed() => {}
        }
    }
}

/// Tries one place after the other, until a connection was up and has ended; returns whether one was, and why there
/// is none now. The error of the likeliest place is reported, unless that place knows that the server is elsewhere.
async fn everywhere(
    links: &Links,
    peer: &Peer,
    mut nearness: watch::Receiver<Option<Near>>,
) -> (bool, Ended) {
    let mut why = None;
    let mut sightings = peer.sightings();
    let mut places = VecDeque::from(links.places(peer));
    while let Some(place) = places.pop_front() {
        let opened = tokio::select! {
            opened = open(links, peer, &place) => opened,
            _ = nearness.changed() => return (false, Ended::Changed),
            // Another process speaks for the server, and the dialled one may be paused: waiting for it would be in
            // vain.
            _ = sightings.wait_for(|[last, _]| last.as_ref().is_some_and(|last| *last != place)),
                if peer.seen_at()[0].as_ref().is_none_or(|last| *last == place) =>
            {
                places = links.places(peer).into();
                continue;
            }
        };
        match opened {
            Ok(connection) => return (true, once(links, peer, &place, connection).await),
            Err(ended) if why.is_none() || matches!(why, Some(Ended::NotHere(_))) => {
                why = Some(ended);
            }
            Err(_) => {}
        }
    }
    (false, why.unwrap_or(Ended::Changed))
}

/// Maintains a second link while another process speaks for the same server: both get every message, and know which
/// one is the server. If that process is this one, the previous process may still wait for word of that.
pub(crate) async fn keep_second(links: Arc<Links>, peer: Arc<Peer>) {
    let (mut sightings, mut nearness) = (peer.sightings(), peer.nearness());
    let other = |peer: &Peer| {
        let [last, before] = peer.seen_at();
        if peer.is_near() { last } else { before }
    };
    loop {
        sightings.mark_unchanged();
        nearness.mark_unchanged();
        if let Some(place) = other(&peer)
            && let Ok(connection) = open(&links, &peer, &place).await
            && other(&peer).as_ref() == Some(&place)
        {
            let _open = Opened::new(&peer.second);
            // Earlier messages did not get there. If the first link is down, the second takes its place.
            if peer.is_up() {
                links.tell(drive::Message::Link { to: peer.name.clone(), is_up: true });
            }
            drop(converse(&links, &peer, &peer.second, &place, connection).await);
        }
        // The process is gone, or another one speaks now.
        tokio::select! {
            changed = sightings.changed() => if changed.is_err() { return },
            changed = nearness.changed() => if changed.is_err() { return },
        }
    }
}

/// Opens an outlet until it is dropped.
struct Opened<'o>(&'o Outlet);

impl<'o> Opened<'o> {
    fn new(outlet: &'o Outlet) -> Self {
        outlet.open();
        Self(outlet)
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// One connection, to its end; returns the reason.
async fn once(links: &Links, peer: &Peer, place: &Place, connection: Connection) -> Ended {
    peer.see_at(place.clone());
    let mut up = Up::new(links, peer);
    let ended = converse(links, peer, &peer.outlet, place, connection).await;
    up.has_ended = true;
    ended.err().unwrap_or(Ended::Changed)
}

/// The link is up as long as this exists: the maintaining task may be stopped at any time.
struct Up<'l> {
    links: &'l Links,
    peer: &'l Peer,
    /// Ended by itself: the maintaining task reports the reason.
    has_ended: bool,
}

impl<'l> Up<'l> {
    fn new(links: &'l Links, peer: &'l Peer) -> Self {
        peer.outlet.open();
        links.is_up(peer);
        Self { links, peer, has_ended: false }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.peer.give_up();
        if !self.has_ended && !self.peer.is_near() {
            self.links.is_down(self.peer, &Ended::Left);
        }
    }
}

type Connection = (Incoming<ReadHalf<Stream>>, WriteHalf<Stream>);
type Stream = TlsStream<Counted<TcpStream>>;

async fn open(links: &Links, peer: &Peer, place: &Place) -> Result<Connection, Ended> {
    let opening = async {
        let (read, mut write) = split(connect(links, peer, place).await?);
        let mut incoming = Incoming::new(read);
        introduce(links, peer, place, &mut incoming, &mut write).await?;
        Ok((incoming, write))
    };
    timeout(INTRODUCTION, opening).await.unwrap_or(Err(Ended::Silent))
}

async fn connect(
    links: &Links,
    peer: &Peer,
    Place { host, address }: &Place,
) -> Result<Stream, Ended> {
    let stream = TcpStream::connect(&**address).await?;
    // Frames are written together: Nagle's algorithm only costs.
    stream.set_nodelay(true)?;
    let (stream, tally) = Counted::new(stream);
    tally.belongs_to(&peer.counters);
    let name = ServerName::try_from(host.to_string()).map_err(|_| {
        Ended::Refused(format!("`{host}` cannot stand in a certificate; name it otherwise"))
    })?;
    let connector = TlsConnector::from(links.host.identity.current().client.clone());
    Ok(connector.connect(name, stream).await?)
}

async fn introduce<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    links: &Links,
    peer: &Peer,
    place: &Place,
    incoming: &mut Incoming<R>,
    write: &mut W,
) -> Result<(), Ended> {
    let topology = links.topology();
    if topology.server_named(&links.name).is_none() {
        return Err(Ended::Refused(format!("`{}` is not in the topology", links.name)));
    }
    let own = links.host.place(&topology);
    let seat = links.seat();
    let hello = Hello {
        version: VERSION,
        name: links.name.to_string(),
        server: seat.as_ref().map_or(0, |seat| seat.here.0),
        epoch: seat.map_or(Hello::NOT_JOINED, |seat| seat.topology.epoch),
        to: peer.name.to_string(),
        host: own.host.to_string(),
        address: own.address.to_string(),
    };
    peer.counters.sent.add(&link::say(write, &Frame::Hello(hello)).await?);
    let (answer, bytes) = incoming.next().await?;
    peer.counters.received.add(&control(bytes));
    match answer {
        Frame::Welcome(welcome) if welcome.version == VERSION => {
            tracing::debug!(peer = %peer.name, epoch = welcome.epoch, "welcome");
            incoming.is_known = true;
            Ok(())
        }
        Frame::Refused(reason) => Err(Ended::Refused(reason)),
        Frame::NotHere => Err(Ended::NotHere(place.host.clone())),
        Frame::Welcome(_)
        | Frame::Hello(_)
        | Frame::Ping
        | Frame::Pong
        | Frame::Message(_)
        | Frame::Request(..)
        | Frame::Response(..)
        | Frame::Cancel(_)
        | Frame::FileRequest(..)
        | Frame::FileReply(..)
        | Frame::StoreRequest(..)
        | Frame::StoreReply(..)
        | Frame::Unknown => {
            Err(Ended::Refused(format!("it does not speak version {VERSION} of the protocol")))
        }
    }
}

/// Until the server is elsewhere, or gone.
async fn converse(
    links: &Links,
    peer: &Peer,
    outlet: &Outlet,
    place: &Place,
    (mut incoming, write): Connection,
) -> Result<(), Ended> {
    let mut topology = links.topology_changes();
    let mut nearness = peer.nearness();
    let mut sightings = peer.sightings();
    let mut looks = link::looks();
    let mut writing = pin!(link::write(outlet, write, &peer.counters));
    loop {
        tokio::select! {
            next = incoming.next() => {
                let (frame, bytes) = next?;
                let is_file = matches!(frame, Frame::FileReply(..) | Frame::StoreReply(..));
                let spent = if is_file { large(bytes) } else { control(bytes) };
                peer.counters.received.add(&spent);
                on_frame(peer, frame)?;
            }
            ended = &mut writing => return ended,
            _ = looks.tick() => {
                incoming.look()?;
                let ping = Frame::Ping.to_bytes();
                outlet.put_beyond_limit(&ping, &control(ping.len() as u64));
            }
            _ = nearness.changed() => return Ok(()),
            // Another process speaks for the server now: the first link becomes the second.
            _ = sightings.changed() => return Ok(()),
            _ = topology.changed() => {
                // The process is at the same address, and the server still exists.
                let is_there = links.has_server(&peer.name);
                if !is_there || !links.places(peer).contains(place) {
                    return Ok(());
                }
            }
        }
    }
}

fn on_frame(peer: &Peer, frame: Frame) -> Result<(), Ended> {
    match frame {
        Frame::Response(id, answered) => {
            let asked = peer.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(asked) = asked {
                // The requester may be gone.
                drop(asked.send(answered));
            } else if let Some(late) = peer.take_late(id) {
                late(answered);
            }
            Ok(())
        }
        Frame::FileReply(id, reply) => {
            files::answered(peer, id, reply);
            Ok(())
        }
        Frame::StoreReply(id, reply) => {
            stores::answered(peer, id, reply);
            Ok(())
        }
        Frame::Refused(reason) => Err(Ended::Refused(reason)),
        Frame::Pong | Frame::Unknown => Ok(()),
        Frame::Hello(_)
        | Frame::Welcome(_)
        | Frame::NotHere
        | Frame::Ping
        | Frame::Message(_)
        | Frame::Request(..)
        | Frame::FileRequest(..)
        | Frame::StoreRequest(..)
        | Frame::Cancel(_) => {
            Err(Ended::Refused("the dialled server sent a frame of a dialling one".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::id::ServerId;
    use tokio::net::TcpListener;

    use super::*;
    use crate::peer::links::tests::{links, server};

    #[tokio::test]
    async fn who_is_being_dialled_and_hangs_is_left_when_another_process_speaks_for_the_server() {
        let stopped = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let successor = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let mut lab = server("lab");
        lab.address = address(&stopped).into();
        let (_folder, _, links) = links(vec![server("north"), lab]);
        let peer = links.peer(ServerId(1)).unwrap();
        let keeping = tokio::spawn(keep(links, peer.clone()));
        // It accepts the connection, and sends nothing.
        let silent = stopped.accept().await.unwrap();
        peer.see_at(Place { host: "lab-2".into(), address: address(&successor).into() });
        let dialled = timeout(INTRODUCTION / 2, successor.accept()).await;
        assert!(dialled.is_ok(), "the silent one is still waited for");
        drop(silent);
        keeping.abort();
    }
}
