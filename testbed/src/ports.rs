//! Ports for servers that are told beforehand where to listen.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral ports of the system: there another test's connection takes a port between
/// when it was found free and when a server binds it.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

static TRIED: AtomicU16 = AtomicU16::new(0);

/// A port of this machine on which nobody listens; it is free again when the listener is dropped.
pub fn free_port() -> io::Result<TcpListener> {
    // Processes that run at the same time begin at different places.
    let begin = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + ((begin + tried) % u32::from(COUNT)) as u16;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}
