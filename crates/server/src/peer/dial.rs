//! The link to one other server: dialled, introduced, kept.
//!
//! Invariant: as long as the server is in the topology, a link to it is up or being tried for, with
//! growing pauses. What was under way when it broke is told to those who wait.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use legwork_placement::Server;
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
use super::links::{Links, Peer};

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Keeps the link up.
pub(crate) async fn keep(links: Arc<Links>, peer: Arc<Peer>) {
    let mut topology = links.topology_changes();
    let mut pause = PAUSE_MIN;
    loop {
        let Some(server) = links.in_use(peer.id).filter(|server| server.name == peer.name) else {
            // It may come back under its number.
            if topology.changed().await.is_err() {
                return;
            }
            continue;
        };
        let ended = once(&links, &peer, &server.address).await;
        pause = if peer.is_up() { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        links.is_down(&peer, &ended);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = peer.sign_of_life.notified() => {}
            _ = topology.changed() => {}
        }
    }
}

/// One connection, from its beginning to its end.
async fn once(links: &Links, peer: &Peer, address: &str) -> Ended {
    let stream = match timeout(INTRODUCTION, connect(links, peer, address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::Silent,
    };
    let (read, mut write) = split(stream);
    let mut incoming = Incoming::new(read);
    match timeout(INTRODUCTION, introduce(links, peer, &mut incoming, &mut write)).await {
        Ok(Ok(())) => {}
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::Silent,
    }
    peer.outlet.open();
    links.is_up(peer);
    let ended = match converse(links, peer, address, &mut incoming, write).await {
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
    address: &str,
) -> Result<TlsStream<Counted<TcpStream>>, Ended> {
    let stream = TcpStream::connect(address).await?;
    // Frames are written together: waiting to fill a packet only costs.
    stream.set_nodelay(true)?;
    let (stream, tally) = Counted::new(stream);
    tally.belongs_to(&peer.counters);
    let name = ServerName::try_from(peer.name.to_string()).map_err(|_| {
        Ended::Refused(format!("`{}` cannot stand in a certificate; name it otherwise", peer.name))
    })?;
    let connector = TlsConnector::from(links.identity.current().client.clone());
    Ok(connector.connect(name, stream).await?)
}

async fn introduce<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    links: &Links,
    peer: &Peer,
    incoming: &mut Incoming<R>,
    write: &mut W,
) -> Result<(), Ended> {
    let Some(here) = links.here() else {
        return Err(Ended::Refused(format!("`{}` is not in the topology", links.name)));
    };
    let epoch = links.topology().epoch;
    let hello = Hello { version: VERSION, name: links.name.to_string(), server: here.0, epoch };
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
    address: &str,
    incoming: &mut Incoming<R>,
    write: W,
) -> Result<(), Ended> {
    let mut topology = links.topology_changes();
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
            _ = topology.changed() => {
                let is_there =
                    |server: &Server| server.name == peer.name && &*server.address == address;
                if !links.in_use(peer.id).is_some_and(|server| is_there(&server)) {
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
        | Frame::Ping
        | Frame::Message(_)
        | Frame::Request(..)
        | Frame::FileRequest(..)
        | Frame::Cancel(_) => Err(Ended::Refused("it says what whoever dials says".to_owned())),
    }
}
