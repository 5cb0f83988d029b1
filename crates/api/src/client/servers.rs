//! The servers a client may speak to: any one of them will do.
//!
//! Invariant: the one that was reached last is used until it cannot be reached.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::Error;
use super::pool::Pool;
use super::url::Base;

/// More are not tried.
const SERVERS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) base: Base,
    pub(super) pool: Pool,
}

#[derive(Debug)]
pub(super) struct Servers {
    known: RwLock<Arc<[Arc<Server>]>>,
    current: AtomicUsize,
}

impl Server {
    fn parse(url: &str) -> Result<Arc<Self>, Error> {
        let base = Base::parse(url)?;
        let pool = Pool::new(base.authority.clone());
        Ok(Arc::new(Self { base, pool }))
    }
}

impl Servers {
    /// Addresses with commas between them.
    pub(super) fn parse(urls: &str) -> Result<Self, Error> {
        let known: Vec<_> = urls.split(',').map(Server::parse).collect::<Result<_, _>>()?;
        Ok(Self { known: RwLock::new(known.into()), current: AtomicUsize::new(0) })
    }

    /// All of them, the one used last first.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, Arc<Server>)> + use<> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        let first = self.current.load(Ordering::Relaxed);
        (0..known.len()).map(move |turn| {
            let place = (first + turn) % known.len();
            (place, known[place].clone())
        })
    }

    /// The one used last.
    pub(super) fn current(&self) -> Option<Arc<Server>> {
        self.in_turn().next().map(|(_, server)| server)
    }

    /// From now on this one is used first.
    pub(super) fn prefer(&self, place: usize) {
        if self.current.load(Ordering::Relaxed) != place {
            self.current.store(place, Ordering::Relaxed);
        }
    }

    /// Learns of further addresses; what is no address is left out.
    pub(super) fn add(&self, urls: impl Iterator<Item = impl AsRef<str>>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<Server>> = known.to_vec();
        for server in urls.filter_map(|url| Server::parse(url.as_ref()).ok()) {
            let is_new = all.iter().all(|known| known.base.authority != server.base.authority);
            if is_new && all.len() < SERVERS_MAX {
                all.push(server);
            }
        }
        *known = all.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_turn(servers: &Servers) -> Vec<String> {
        servers.in_turn().map(|(_, server)| server.base.authority.to_string()).collect()
    }

    #[test]
    fn the_one_that_was_reached_last_comes_first_and_new_ones_last() {
        let servers = Servers::parse("http://a:1, http://b:2").unwrap();
        assert_eq!(in_turn(&servers), ["a:1", "b:2"]);
        servers.prefer(1);
        servers.add(["http://c:3", "https://no", "http://a:1"].iter());
        assert_eq!(in_turn(&servers), ["b:2", "c:3", "a:1"]);
    }

    #[test]
    fn one_address_that_cannot_work_is_refused_with_all() {
        assert!(Servers::parse("http://a:1,ftp://b").is_err());
        assert!(Servers::parse("http://a:1,").is_err());
    }
}
