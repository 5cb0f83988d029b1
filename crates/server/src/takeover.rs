//! Servers of a shared store with free leases: when this process tries to take them over.
//!
//! Invariant: only attempts are scheduled here. The lease decides who gets a server; turns only avoid
//! useless attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use legwork_model::id::DomainId;
use legwork_placement::{Store, Topology};
use legwork_store::postgres::{LeaseInfo, Shared};
use tokio::sync::watch;

use crate::config::{DatabaseUrl, StoreChoice};
use crate::lease::{holder, is_dead};

/// How often the leases are read.
const LOOK: Duration = Duration::from_millis(300);
/// How long a free lease is left to the server's own process.
const FIRST: Duration = Duration::from_millis(250);
/// The additional delay per rank of a process, by the number of servers it holds.
const NEXT: Duration = Duration::from_millis(500);
/// A server that had to be given back repeatedly is given back later each time.
const DOUBLINGS_MAX: u32 = 5;
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Reads the leases of a database periodically, in its own thread and over its own connection, which no
/// long read delays, until the receiver is dropped.
pub(crate) fn watch(url: DatabaseUrl) -> watch::Receiver<Arc<Vec<LeaseInfo>>> {
    let (sender, receiver) = watch::channel(Arc::default());
    let look = move || {
        let (mut shared, mut is_told) = (None, false);
        while !sender.is_closed() {
            match look(&url, &mut shared) {
                Ok(leases) => {
                    is_told = false;
                    sender.send_replace(Arc::new(leases));
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(reason = %error, "cannot read the leases");
                    }
                }
            }
            thread::sleep(LOOK);
        }
    };
    // Without the thread nothing is taken over; held servers are not affected.
    if let Err(error) = thread::Builder::new().name("legwork-leases".to_owned()).spawn(look) {
        tracing::error!(reason = %error, "cannot start the thread that reads the leases");
    }
    receiver
}

fn look(
    url: &DatabaseUrl,
    shared: &mut Option<Shared>,
) -> Result<Vec<LeaseInfo>, legwork_store::Error> {
    let open = match shared {
        Some(open) => open,
        None => shared.insert(Shared::connect(url.as_str())?),
    };
    open.leases()
}

/// The takeover state of servers that others held.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Since when their leases are free.
    free: BTreeMap<Arc<str>, Instant>,
    /// How often they were given back recently, and when last.
    given_back: BTreeMap<Arc<str>, (u32, Instant)>,
    /// When failed takeovers are retried.
    again: BTreeMap<Arc<str>, Instant>,
}

impl Turns {
    /// The servers with free leases that this process should try to take over now. `leases` are those of
    /// the domain.
    pub(crate) fn due(
        &mut self,
        leases: &[LeaseInfo],
        mine: &BTreeSet<Arc<str>>,
        now: Instant,
    ) -> Vec<Arc<str>> {
        let is_free = |lease: &&LeaseInfo| lease.left.is_none() || is_dead(&lease.holder);
        let free: BTreeSet<&str> =
            leases.iter().filter(is_free).map(|lease| &*lease.server).collect();
        self.free.retain(|name, _| mine.contains(name) && free.contains(&**name));
        for name in mine.iter().filter(|name| free.contains(&***name)) {
            self.free.entry(name.clone()).or_insert(now);
        }
        let wait = FIRST + NEXT * rank(leases, &holder());
        let is_due = |since: Instant| now.saturating_duration_since(since) >= wait;
        self.free
            .iter()
            .filter(|(name, since)| is_due(**since) && !self.is_paused(name, now))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// A server that cannot be held is left alone until then.
    pub(crate) fn pause(&mut self, name: &Arc<str>, until: Instant) {
        self.again.insert(name.clone(), until);
    }

    pub(crate) fn is_paused(&self, name: &str, now: Instant) -> bool {
        self.again.get(name).is_some_and(|again| *again > now)
    }

    /// It is held now.
    pub(crate) fn go_on(&mut self, name: &str) {
        self.again.remove(name);
    }

    /// The shortest time that a taken-over server is held before it is given back.
    pub(crate) fn hold(&self, name: &str, hold: Duration, now: Instant) -> Duration {
        match self.given_back.get(name) {
            Some((times, last)) if now.saturating_duration_since(*last) < FORGOTTEN => {
                hold * 2_u32.pow((*times).min(DOUBLINGS_MAX))
            }
            Some(_) | None => hold,
        }
    }

    pub(crate) fn give_back(&mut self, name: &Arc<str>, now: Instant) {
        let (times, last) = self.given_back.entry(name.clone()).or_insert((0, now));
        let is_recent = now.saturating_duration_since(*last) < FORGOTTEN;
        (*times, *last) = (if is_recent { *times + 1 } else { 1 }, now);
    }
}

/// The servers that a process may take over: those of its domain, if their store is shared.
pub(crate) fn candidates(topology: &Topology, own: &str) -> BTreeSet<Arc<str>> {
    let domain = shared_domain(topology, own);
    let servers = domain.into_iter().flat_map(|domain| topology.servers_of(domain));
    servers.map(|(_, server)| server.name.clone()).filter(|name| **name != *own).collect()
}

/// The domain of a server, if its servers share a store by the topology.
fn shared_domain(topology: &Topology, own: &str) -> Option<DomainId> {
    let domain = topology.server_named(own).and_then(|own| Some(topology.server(own)?.domain))?;
    topology.domain(domain).filter(|it| it.store == Store::Shared).map(|_| domain)
}

/// The leases of the servers that may be taken over here, and of the process's own: holders of other
/// servers do not matter.
pub(crate) fn leases_of(
    leases: &[LeaseInfo],
    candidates: &BTreeSet<Arc<str>>,
    own: &str,
) -> Vec<LeaseInfo> {
    let is_ours = |lease: &&LeaseInfo| lease.server == own || candidates.contains(&*lease.server);
    leases.iter().filter(is_ours).cloned().collect()
}

/// Whether no process can take over from this one, although its topology says so.
pub(crate) fn is_apart(topology: &Topology, own: &str, store: &StoreChoice) -> bool {
    !store.is_shared() && shared_domain(topology, own).is_some()
}

/// The number of processes that hold fewer servers than this one, or as many with a smaller name.
fn rank(leases: &[LeaseInfo], own: &str) -> u32 {
    let mut held: BTreeMap<&str, u32> = BTreeMap::new();
    for lease in leases.iter().filter(|lease| lease.left.is_some() && !is_dead(&lease.holder)) {
        *held.entry(&lease.holder).or_default() += 1;
    }
    let mine = (held.remove(own).unwrap_or_default(), own);
    let before = held.into_iter().filter(|(name, count)| (*count, *name) < mine).count();
    u32::try_from(before).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(server: &str, holder: &str, left: Option<u64>) -> LeaseInfo {
        let left = left.map(Duration::from_secs);
        LeaseInfo { server: server.to_owned(), holder: holder.to_owned(), epoch: 1, left }
    }

    #[test]
    fn the_process_with_the_fewest_servers_tries_first() {
        let leases = [
            lease("a", "one", Some(3)),
            lease("b", "one", Some(3)),
            lease("c", "two", Some(3)),
            lease("d", "three", None),
        ];
        let ranks = ["zero", "two", "one"].map(|own| rank(&leases, own));
        assert_eq!(ranks, [0, 0, 1]);
        let even = [lease("a", "one", Some(3)), lease("b", "two", Some(3))];
        assert_eq!(["one", "two"].map(|own| rank(&even, own)), [0, 1]);
    }

    #[test]
    fn a_process_with_servers_of_another_domain_only_is_not_waited_for() {
        let leases = [
            lease("north-1", "one", Some(3)),
            lease("north-2", "two", None),
            lease("south-1", "a-south", Some(3)),
            lease("south-2", "b-south", Some(3)),
        ];
        let candidates = BTreeSet::from(["north-2".into()]);
        assert_eq!(rank(&leases, "one"), 2);
        assert_eq!(rank(&leases_of(&leases, &candidates, "north-1"), "one"), 0);
    }

    #[test]
    fn one_that_cannot_be_opened_is_left_alone_for_a_while() {
        let (mut turns, begun) = (Turns::default(), Instant::now());
        let name: Arc<str> = "a".into();
        let (mine, free) = (BTreeSet::from([name.clone()]), [lease("a", "", None)]);
        turns.due(&free, &mine, begun);
        let tried = begun + FIRST;
        assert_eq!(turns.due(&free, &mine, tried), ["a".into()]);
        turns.pause(&name, tried + NEXT);
        assert!(turns.due(&free, &mine, tried + NEXT / 2).is_empty());
        assert_eq!(turns.due(&free, &mine, tried + NEXT), [name]);
    }

    #[test]
    fn a_process_with_a_store_of_its_own_is_told_apart_from_those_that_share_one() {
        let text = "topology: t\ndomains:\n  north:\n    store: shared\n    servers:\n      \
            a: { address: \"h:1\", api: \"http://h\" }\n      \
            b: { address: \"h:2\", api: \"http://i\" }\n";
        let topology = |text: &str| Topology::parse(text).0.unwrap();
        let folder = StoreChoice::Directory("data".into());
        let database = StoreChoice::Postgres(DatabaseUrl::new("postgres://h/db"));
        assert!(is_apart(&topology(text), "a", &folder));
        assert!(!is_apart(&topology(text), "a", &database));
        let embedded = text.replace("shared", "embedded");
        assert!(!is_apart(&topology(&embedded), "a", &folder));
    }

    #[test]
    fn a_free_lease_is_tried_for_when_it_has_been_free_for_a_while() {
        let (mut turns, begun) = (Turns::default(), Instant::now());
        let mine: BTreeSet<Arc<str>> = ["a", "b"].map(Arc::from).into();
        let free = [lease("a", "", None), lease("b", "one", Some(3)), lease("c", "", None)];
        assert!(turns.due(&free, &mine, begun).is_empty());
        let later = begun + FIRST + NEXT;
        assert_eq!(turns.due(&free, &mine, later), ["a".into()]);
        // Its own process was faster; when that dies too, its delay begins again.
        let held = [lease("a", "one", Some(5))];
        assert!(turns.due(&held, &mine, later).is_empty());
        assert!(turns.due(&free, &mine, later).is_empty());
    }

    #[test]
    fn a_server_given_back_repeatedly_is_held_longer_each_time() {
        let (mut turns, now, hold) = (Turns::default(), Instant::now(), Duration::from_secs(10));
        let name: Arc<str> = "a".into();
        let holds = [0, 1, 2].map(|_| {
            let least = turns.hold(&name, hold, now);
            turns.give_back(&name, now);
            least.as_secs()
        });
        assert_eq!(holds, [10, 20, 40]);
        assert_eq!(turns.hold(&name, hold, now + FORGOTTEN), hold);
    }
}
