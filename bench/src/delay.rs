//! A TCP proxy with latency: every byte is delayed.
//!
//! Invariant: bytes are forwarded unchanged and in order, and none earlier than the delay.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

const PORTION_BYTES: usize = 64 << 10;

/// Closed on drop.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Wire {
    /// A proxy to this address, with a delay in each direction.
    pub(crate) async fn to(address: SocketAddr, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(connect(near, address, delay));
            }
        });
        Ok(Self { address: own, accepting })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connect(near: TcpStream, address: SocketAddr, delay: Duration) {
    // If the target is not up yet, the client retries.
    let Ok(far) = TcpStream::connect(address).await else { return };
    if near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).is_err() {
        return;
    }
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    tokio::join!(carry(from_near, to_far, delay), carry(from_far, to_near, delay));
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (put, mut take) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async move {
        let mut portion = vec![0; PORTION_BYTES];
        while let Ok(bytes) = from.read(&mut portion).await {
            let due = Instant::now() + delay;
            if bytes == 0 || put.send((due, portion[..bytes].to_vec())).is_err() {
                break;
            }
        }
    };
    let writing = async move {
        while let Some((due, bytes)) = take.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(reading, writing);
}
