//! The servers a client may speak to: any one of them will do.
//!
//! Invariant: the one that was reached last is used until it cannot be reached.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hyper::Uri;
use hyper::header::HeaderValue;

use super::Error;
use super::pool::Pool;

const PORT: u16 = 7700;
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

#[derive(Debug)]
pub(super) struct Base {
    /// Host and port to connect to.
    pub(super) authority: Arc<str>,
    pub(super) host: HeaderValue,
    /// What every path begins with; empty unless a proxy adds one.
    pub(super) prefix: String,
}

impl Base {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let bad = |reason| Error::BadAddress { url: url.chars().take(200).collect(), reason };
        let text = url.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|_| bad("write it like http://127.0.0.1:7700"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(bad(
                    "this client does not speak TLS yet; use http:// on a trusted network, \
                     or run a TLS-terminating tunnel beside it",
                ));
            }
            Some(_) | None => return Err(bad("only http:// is spoken")),
        }
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("give a token instead of a user and a password"));
        }
        if uri.query().is_some() {
            return Err(bad("leave out everything from the question mark on"));
        }
        let port = authority.port_u16().unwrap_or(PORT);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("no such host"))?;
        Ok(Self {
            authority: Arc::from(format!("{}:{port}", authority.host())),
            host,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
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

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, authority, prefix) in [
            ("http://127.0.0.1:7700", "127.0.0.1:7700", ""),
            ("localhost", "localhost:7700", ""),
            ("http://wf.example:80/legwork/", "wf.example:80", "/legwork"),
            ("[::1]:9000", "[::1]:9000", ""),
        ] {
            let base = Base::parse(text).unwrap();
            assert_eq!((&*base.authority, base.prefix.as_str()), (authority, prefix), "{text}");
        }
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_with_the_reason() {
        for (text, reason) in [
            ("https://wf.example", "does not speak TLS yet"),
            ("ftp://wf.example", "only http://"),
            ("http://ann:pw@wf.example", "give a token"),
            ("http://wf.example/?a=b", "question mark"),
            ("http://", "write it like"),
            ("", "write it like"),
        ] {
            let refusal = Base::parse(text).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
    }
}
