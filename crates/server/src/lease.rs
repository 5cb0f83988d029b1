//! A logical server in a shared database: its lease is acquired, renewed and released.
//!
//! Invariant: the store is open only under a lease of this process, and `may_answer` is true only while no
//! other process can have that lease. Another opener of the same server waits until this one is dropped,
//! has died or has not renewed for the duration of a lease.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use legwork_model::id::StreamId;
use legwork_store::postgres::{Held, Keeping, LEASE, Postgres, Shared};
use legwork_store::{
    Batch, BlobId, ClosedStream, Error, EventStore, OpenStream, Snapshot, Version,
};

use crate::backend::{Backend, Backup, Doubt};
use crate::config::DatabaseUrl;

/// Opens the store of one server repeatedly, under one lease as long as it is not lost.
pub(crate) struct Tenant {
    url: DatabaseUrl,
    server: String,
    held: Option<Lease>,
}

/// A lease with its renewal.
struct Lease {
    keeping: Keeping,
    held: Held,
    doubt: Listener,
}

/// Called when the lease has expired or was lost.
type Listener = Arc<Mutex<Option<Doubt>>>;

/// The store with its lease.
struct Leased {
    store: Postgres,
    held: Held,
    doubt: Listener,
}

impl Tenant {
    pub(crate) fn new(url: DatabaseUrl, server: &str) -> Self {
        Self { url, server: server.to_owned(), held: None }
    }

    pub(crate) fn open(&mut self) -> Result<Arc<dyn Backend>, Error> {
        let shared = self.url.shared()?;
        // A lost lease is neither renewed nor released.
        self.held.take_if(|lease| lease.held.is_lost());
        let lease = match self.held.take() {
            Some(lease) => lease,
            None => take(&shared, &self.server)?,
        };
        let (held, doubt) = (lease.held.clone(), lease.doubt.clone());
        self.held = Some(lease);
        let store = held.open()?;
        Ok(Arc::new(Leased { store, held, doubt }))
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let Some(Lease { keeping, held, .. }) = self.held.take() else { return };
        drop(keeping);
        if let Err(error) = held.release() {
            tracing::warn!(
                server = self.server,
                reason = %error,
                "the lease could not be given back; it runs out by itself"
            );
        }
    }
}

fn take(shared: &Shared, server: &str) -> Result<Lease, Error> {
    let holder = holder();
    let held = match shared.acquire(server, &holder, LEASE) {
        Err(Error::LeaseHeld { holder: other, .. }) if is_dead(&other) => {
            // It died without releasing, and on this machine that is certain.
            let leases = shared.leases()?;
            let dead = leases.iter().find(|lease| lease.server == server && lease.holder == other);
            if let Some(dead) = dead {
                shared.break_lease(server, dead.epoch)?;
            }
            shared.acquire(server, &holder, LEASE)?
        }
        other => other?,
    };
    let doubt = Listener::default();
    let listener = doubt.clone();
    let keeping = held.keep(move || {
        let doubt = listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(doubt) = doubt {
            doubt();
        }
    });
    Ok(Lease { keeping, held, doubt })
}

impl Backend for Leased {
    fn backup(&self, _: &mut dyn Write) -> Backup {
        Backup::None(
            "the store is in PostgreSQL, which has backups of its own; use pg_dump or its archive \
             of the log",
        )
    }

    fn bytes(&self) -> Result<u64, Error> {
        self.store.disk_use()
    }

    fn lease(&self) -> Option<(&str, u64)> {
        Some((self.held.holder(), self.held.epoch()))
    }

    fn may_answer(&self) -> Result<(), Error> {
        let server = || self.held.server().to_owned();
        match (self.held.is_valid(), self.held.is_lost()) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::Fenced { server: server() }),
            (false, false) => Err(Error::LeaseOver { server: server() }),
        }
    }

    fn when_in_doubt(&self, doubt: Doubt) {
        *self.doubt.lock().unwrap_or_else(PoisonError::into_inner) = Some(doubt.clone());
        // It may have happened before the callback was set.
        if self.may_answer().is_err() {
            doubt();
        }
    }
}

impl EventStore for Leased {
    fn commit(&self, batch: Batch) -> Result<(), Error> {
        self.store.commit(batch)
    }

    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.store.read(stream, from, limit)
    }

    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error> {
        self.store.snapshot(stream)
    }

    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.store.open_streams(after, visit)
    }

    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error> {
        self.store.closed_streams(before, limit)
    }

    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error> {
        self.store.put_blob(content)
    }

    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        self.store.blob(id)
    }

    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        self.store.blob_size(id)
    }
}

/// This process, for people and for others on the same machine: `HOST, process PID
/// (BOOT.NAMESPACE.START)`.
pub(crate) fn holder() -> String {
    let host = read("/proc/sys/kernel/hostname").unwrap_or_else(|| "a machine".to_owned());
    let pid = std::process::id();
    let started = started(pid).unwrap_or_default();
    match machine() {
        Some(machine) => format!("{host}, process {pid} ({machine}.{started})"),
        None => format!("{host}, process {pid}"),
    }
}

/// Whether a holder has certainly died: it ran on this machine in the same boot and the same PID
/// namespace, and is not among the processes, none of which is hidden.
pub(crate) fn is_dead(holder: &str) -> bool {
    is_dead_by(holder, read("/proc/self/mountinfo").as_deref())
}

fn is_dead_by(holder: &str, mounts: Option<&str>) -> bool {
    let parse = || {
        let (_, rest) = holder.rsplit_once(", process ")?;
        let (pid, rest) = rest.split_once(" (")?;
        let (machine, started) = rest.strip_suffix(')')?.rsplit_once('.')?;
        Some((pid.parse::<u32>().ok()?, machine, started.parse::<u64>().ok()?))
    };
    let Some((pid, there, since)) = parse() else { return false };
    let is_here = machine().is_some_and(|here| here == there);
    is_here && mounts.is_some_and(|mounts| !hides(mounts)) && started(pid) != Some(since)
}

/// Whether processes of other users may be hidden from this one: `/proc` is mounted with `hidepid`, as
/// `ProtectProc=` of systemd does.
fn hides(mounts: &str) -> bool {
    // `number parent device root place options ... - kind source options`, the last ones its own.
    let proc = mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/proc"));
    let mut options = proc.flat_map(|line| line.rsplit(' ').next().unwrap_or_default().split(','));
    options.any(|option| {
        let hidden = option.strip_prefix("hidepid=");
        hidden.is_some_and(|hidden| !["0", "off"].contains(&hidden))
    })
}

/// This boot of the machine, and the PID namespace.
fn machine() -> Option<String> {
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    let seen = fs::read_link("/proc/self/ns/pid").ok()?;
    let seen: String = seen.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}.{seen}", boot.get(..8)?))
}

/// When a process was started, in ticks since boot; `None` if it does not exist or has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // `pid (name) state ...`, and the name may contain anything.
    let (_, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    let is_over = fields.next().is_none_or(|state| ["Z", "X"].contains(&state));
    // The 22nd field: the third was the state.
    fields.nth(18).filter(|_| !is_over)?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_who_has_died_on_this_machine_is_known_to_be_dead() {
        let own = holder();
        assert!(!is_dead(&own), "{own}");
        let pid = std::process::id();
        let before = own.replace(&format!(".{})", started(pid).unwrap()), ".1)");
        assert!(is_dead(&before), "another process had this number: {before}");
        for unknown in ["", "ann", "host, process 1", "host, process 1 (00000000.1.1)"] {
            assert!(!is_dead(unknown), "{unknown}");
        }
        let mut child = Command::new("true").spawn().unwrap();
        let there = own.replace(&format!("process {pid}"), &format!("process {}", child.id()));
        child.wait().unwrap();
        assert!(is_dead(&there), "{there}");
        // Where others are hidden, an invisible process may be alive.
        for hidden in ["hidepid=2", "hidepid=invisible", "gid=4,hidepid=ptraceable"] {
            let mounts = format!(
                "22 28 0:21 / /sys rw shared:7 - sysfs sysfs rw\n\
                 24 28 0:22 / /proc rw,nosuid shared:13 - proc proc rw,{hidden}"
            );
            assert!(!is_dead_by(&there, Some(&mounts)), "{hidden}");
        }
        assert!(is_dead_by(&there, Some("24 28 0:22 / /proc rw - proc proc rw,hidepid=off")));
        assert!(!is_dead_by(&there, None));
    }

    #[test]
    fn the_servers_of_a_process_share_the_connections_that_read() {
        let database = legwork_testbed::database().unwrap();
        let url = DatabaseUrl::new(database.url());
        let mut tenants = ["one", "two", "three"].map(|name| Tenant::new(url.clone(), name));
        let open = tenants.each_mut().map(|tenant| tenant.open().unwrap());
        let count = "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'legwork'";
        // Each has one for commits and one for its lease.
        assert_eq!(database.ask(count).unwrap(), ["7"]);
        drop(open);
    }
}
