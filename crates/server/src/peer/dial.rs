//! The link to one other server: dialled, introduced, kept.
//!
//! Invariant: as long as the server is in the topology and not in this process, a link to it is up
//! or being tried for, wherever it may be, with growing pauses. What was under way when it broke is told to those who wait.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::counters::Counted;
use super::files::{self, large};
use super::frame::{Frame, Hello, VERSION};
use super::link::{self, Ended, INTRODUCTION, Incoming, control};
use super::links::{Links, Place};
use super::other::Peer;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Keeps the link up.
pub(crate) async fn keep(links: Arc<Links>, peer: Arc<Peer>) {
    let mut topology = links.topology_changes();
    let mut nearness = peer.nearness();
    let mut pause = PAUSE_MIN;
    loop {
        let is_there = links.in_use(peer.id).is_some_and(|server| server.name == peer.name);
        if !is_there || peer.is_near() {
            // It may come back under its number, or leave this process.
            tokio::select! {
                changed = topology.changed() => if changed.is_err() { return },
                _ = nearness.changed() => {}
            }
            continue;
        }
        let (was_up, ended) = everywhere(&links, &peer).await;
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

/// Tries one place after the other, until a connection was up and has ended; whether one was, and
/// why there is none now. What is wrong at the likeliest place is told, unless that one knows that
/// the server is elsewhere.
async fn everywhere(links: &Links, peer: &Peer) -> (bool, Ended) {
    let mut why = None;
    for place in links.places(peer) {
        let ended = once(links, peer, &place).await;
        if peer.is_up() {
            return (true, ended);
        }
        if why.is_none() || matches!(why, Some(Ended::NotHere(_))) {
            why = Some(ended);
        }
    }
    (false, why.unwrap_or(Ended::Changed))
}

/// One connection, from its beginning to its end.
async fn once(links: &Links, peer: &Peer, place: &Place) -> Ended {
    let stream = match timeout(INTRODUCTION, connect(links, peer, place)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::Silent,
    };
    let (read, mut write) = split(stream);
    let mut incoming = Incoming::new(read);
    match timeout(INTRODUCTION, introduce(links, peer, place, &mut incoming, &mut write)).await {
        Ok(Ok(())) => {}
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::Silent,
    }
    peer.see_at(&place.host);
    peer.outlet.open();
    links.is_up(peer);
    let ended = match converse(links, peer, place, &mut incoming, write).await {
        Ok(()) => Ended::Changed,
        Err(ended) => ended,
    };
    peer.outlet.close();
    // Those who wait for answers hear that there will be none.
    peer.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
    peer.files.lock().unwrap_or_else(PoisonError::into_inner).clear();
    ended
}

async fn connect(
    links: &Links,
    peer: &Peer,
    Place { host, address }: &Place,
) -> Result<TlsStream<Counted<TcpStream>>, Ended> {
    let stream = TcpStream::connect(&**address).await?;
    // Frames are written together: waiting to fill a packet only costs.
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
    let Some(here) = links.here() else {
        return Err(Ended::Refused(format!("`{}` is not in the topology", links.name)));
    };
    let hello = Hello {
        version: VERSION,
        name: links.name.to_string(),
        server: here.0,
        epoch: links.topology().epoch,
        to: peer.name.to_string(),
        host: links.host.name.to_string(),
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
        | Frame::Unknown => {
            Err(Ended::Refused(format!("it does not speak version {VERSION} of the protocol")))
        }
    }
}

/// Until the server is elsewhere, or gone.
async fn converse<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    links: &Links,
    peer: &Peer,
    place: &Place,
    incoming: &mut Incoming<R>,
    write: W,
) -> Result<(), Ended> {
    let mut topology = links.topology_changes();
    let mut nearness = peer.nearness();
    let mut looks = link::looks();
    let mut writing = pin!(link::write(&peer.outlet, write, &peer.counters));
    loop {
        tokio::select! {
            next = incoming.next() => {
                let (frame, bytes) = next?;
                let is_file = matches!(frame, Frame::FileReply(..));
                let spent = if is_file { large(bytes) } else { control(bytes) };
                peer.counters.received.add(&spent);
                hear(peer, frame)?;
            }
            ended = &mut writing => return ended,
            _ = looks.tick() => {
                incoming.look()?;
                let ping = Frame::Ping.to_bytes();
                peer.outlet.put_beyond_limit(&ping, &control(ping.len() as u64));
            }
            () = links.until_closed() => return Err(Ended::Left),
            _ = nearness.changed() => return Ok(()),
            _ = topology.changed() => {
                // The process is where it was, and the server is still one that there is.
                let is_there = links.in_use(peer.id).is_some_and(|server| server.name == peer.name);
                if !is_there || !links.places(peer).contains(place) {
                    return Ok(());
                }
            }
        }
    }
}

fn hear(peer: &Peer, frame: Frame) -> Result<(), Ended> {
    match frame {
        Frame::Response(id, answered) => {
            let asked = peer.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some(asked) = asked {
                // Whoever asked may have gone.
                drop(asked.send(answered));
            }
            Ok(())
        }
        Frame::FileReply(id, reply) => {
            files::answered(peer, id, reply);
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
        | Frame::Cancel(_) => Err(Ended::Refused("it says what whoever dials says".to_owned())),
    }
}
