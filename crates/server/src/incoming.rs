//! Servers that a change of the topology moves to this process.
//!
//! Invariant: an incoming server is copied until its store is complete; its arrival is reported
//! repeatedly until the change is over. A store that is here already is not copied, nor one in the
//! very database of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use legwork_model::id::ServerId;
use legwork_placement::Topology;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Error;
use crate::config::StoreChoice;
use crate::core::{Away, Opening, Process};
use crate::drive::Message;
use crate::moving::{Progress, bring};
use crate::notes::{Note, Notes};
use crate::peer::{Links, Moving, Unprepared};
use crate::store_location::{Found, until_here};

/// How often an arrival is reported.
const SAYING: Duration = Duration::from_secs(3);
/// How long an early copy is kept up to date after the last request for it.
const PREPARED: Duration = Duration::from_secs(60);

/// The copies in progress.
#[derive(Default)]
pub(crate) struct IncomingServers {
    coming: BTreeMap<Arc<str>, IncomingServer>,
    said: Said,
    /// The logged reasons why stores cannot be copied to here.
    told: BTreeMap<Arc<str>, String>,
}

/// When the arrival of each server was last reported, in the change under way.
#[derive(Default)]
struct Said {
    change: u32,
    at: BTreeMap<ServerId, Instant>,
}

impl Said {
    /// Whether a report is due now: a new arrival does not wait for the others' turn.
    fn is_due(&mut self, change: u32, server: ServerId, now: Instant) -> bool {
        if std::mem::replace(&mut self.change, change) != change {
            self.at.clear();
        }
        let last = self.at.get(&server);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(*last) >= SAYING);
        if is_due {
            self.at.insert(server, now);
        }
        is_due
    }
}

struct IncomingServer {
    notes: Arc<Notes>,
    /// It stays in its database.
    is_shared: bool,
    task: JoinHandle<()>,
    found: watch::Receiver<Found>,
    progress: watch::Receiver<Progress>,
    /// When it was last requested ahead of a change.
    asked: Option<Instant>,
}

impl Drop for IncomingServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl IncomingServers {
    /// Handles the servers that a change moves here.
    pub(crate) fn follow(&mut self, process: &Process, own: &Links, moving: Option<&Moving>) {
        let expected = moving.map(|moving| expected(own, moving)).unwrap_or_default();
        self.coming.retain(|name, incoming_server| {
            let is_asked = incoming_server.asked.is_some_and(|asked| asked.elapsed() < PREPARED);
            is_asked || expected.values().any(|expected| expected == name)
        });
        let Some(moving) = moving else { return self.told.clear() };
        for (server, name) in expected {
            let change = moving.change;
            let there = own.host.held(&name);
            if there.is_none() && name == own.name {
                // It is being opened, and knows by itself that it has arrived.
                continue;
            }
            let has_come = there.is_some()
                || process.config.store != StoreChoice::Memory
                    && self.has_come(process, own, &name, change);
            if !has_come || !self.said.is_due(change, server, Instant::now()) {
                continue;
            }
            own.tell(Message::MovedIn { change, server });
            // It goes on where it is.
            if let Some(there) = there.filter(|there| there.name != own.name) {
                there.tell(Message::MovedIn { change, server });
            }
        }
    }

    /// Copies as much as possible before the change begins that moves a server here; returns the
    /// progress.
    pub(crate) fn prepare(
        &mut self,
        process: &Process,
        own: &Links,
        name: &Arc<str>,
    ) -> Result<Progress, Unprepared> {
        if process.config.store == StoreChoice::Memory {
            let why = "that one keeps everything in memory; start it with a folder (--data)";
            return Err(Unprepared::Never(why.to_owned()));
        }
        self.drop_undone(own, name);
        if !self.coming.contains_key(name) {
            let incoming_server = begin(process, own, name);
            let incoming_server =
                incoming_server.map_err(|error| Unprepared::Never(error.to_string()))?;
            let incoming_server =
                incoming_server.ok_or_else(|| "this server is alone".to_owned())?;
            self.coming.insert(name.clone(), incoming_server);
        }
        let incoming_server = self.coming.get_mut(name).ok_or_else(|| "it has gone".to_owned())?;
        incoming_server.asked = Some(Instant::now());
        let found = incoming_server.found.borrow().clone();
        match found {
            Found::Elsewhere(why) => Err(Unprepared::Never(why)),
            Found::Unknown(why) | Found::Silent { why, .. } => {
                Ok(Progress { reason: Some(why.into()), ..Progress::default() })
            }
            // Nothing is copied within a database.
            Found::Here if incoming_server.is_shared => {
                Ok(Progress { is_close: true, ..Progress::default() })
            }
            Found::Here => Ok(incoming_server.progress.borrow().clone()),
        }
    }

    /// Whether the store of an incoming server may be opened before the change is over: in a database
    /// only if the database has the server, or had it last.
    pub(crate) fn may_open(&self, process: &Process, name: &str) -> bool {
        let is_known = |incoming_server: &IncomingServer| match &*incoming_server.found.borrow() {
            Found::Here => true,
            Found::Silent { is_free, .. } => *is_free,
            Found::Unknown(_) | Found::Elsewhere(_) => false,
        };
        !process.config.store.is_shared() || self.coming.get(name).is_some_and(is_known)
    }

    /// A store that arrived by an undone change is copied again.
    fn drop_undone(&mut self, own: &Links, name: &Arc<str>) {
        let is_over = |incoming_server: &IncomingServer| {
            incoming_server.task.is_finished() && is_of_before(own, &incoming_server.notes)
        };
        if self.coming.get(name).is_some_and(is_over) {
            self.coming.remove(name);
        }
    }

    /// Whether a server has arrived by this change; otherwise its copy begins.
    fn has_come(&mut self, process: &Process, own: &Links, name: &Arc<str>, change: u32) -> bool {
        self.drop_undone(own, name);
        if !self.coming.contains_key(name) {
            match begin(process, own, name) {
                Ok(incoming_server) => self
                    .coming
                    .extend(incoming_server.map(|incoming_server| (name.clone(), incoming_server))),
                Err(error) => self.tell_once(name, &error),
            }
        }
        self.coming.get(name).is_some_and(|incoming_server| incoming_server.has_come(change))
    }

    /// Copying is retried as long as the change lasts; the same error is logged once.
    fn tell_once(&mut self, name: &Arc<str>, error: &Error) {
        let reason = error.to_string();
        if self.told.get(name) != Some(&reason) {
            tracing::error!(server = %name, reason, "cannot copy the server's store");
            self.told.insert(name.clone(), reason);
        }
    }
}

/// Whether a server arrived by a change that was undone later: it went on where it was, and the local
/// copy is outdated.
fn is_of_before(own: &Links, notes: &Notes) -> bool {
    match notes.last() {
        Note::Whole { change, .. } => own.is_undone(change),
        Note::Held | Note::Coming | Note::Given { .. } | Note::Gone => false,
    }
}

impl IncomingServer {
    fn has_come(&self, by: u32) -> bool {
        if self.is_shared {
            return *self.found.borrow() == Found::Here;
        }
        matches!(self.notes.last(), Note::Whole { change, .. } if change == by)
    }
}

fn begin(process: &Process, own: &Links, name: &Arc<str>) -> Result<Option<IncomingServer>, Error> {
    let store = process.store(Some(name));
    let is_shared = store.is_shared();
    let Opening { opener, notes, .. } = Opening::of(&store, Some(name))?;
    let Some(away) = process.links_away(name) else { return Ok(None) };
    let (progress, receiver) = watch::channel(Progress::default());
    if !is_shared {
        own.host.follow_copy(name.clone(), receiver.clone());
    }
    let (find, found) = watch::channel(Found::Unknown("it is being asked".to_owned()));
    let task = {
        let notes = notes.clone();
        // A complete copy stays complete, unless its change was undone.
        let is_here = matches!(notes.last(), Note::Whole { .. }) && !is_of_before(own, &notes);
        tokio::spawn(async move {
            if is_here {
                find.send_replace(Found::Here);
                return;
            }
            let Away { links, .. } = &away;
            until_here(links, &store, &find).await;
            if !is_shared {
                bring(links.clone(), opener, notes, progress).await;
            }
        })
    };
    Ok(Some(IncomingServer { notes, is_shared, task, found, progress: receiver, asked: None }))
}

/// The servers that a change moves to this process, or leaves here.
fn expected(own: &Links, moving: &Moving) -> BTreeMap<ServerId, Arc<str>> {
    let Moving { servers, next, .. } = moving;
    let Some(here) = next.server_named(&own.name) else { return BTreeMap::new() };
    // A server that moves itself is where its file says, or it is another process.
    let is_here = !servers.contains(&here) || address(next, here) == own.host.address();
    let all = servers.iter().filter(|id| is_here && next.host_of(**id) == here);
    all.filter_map(|id| Some((*id, next.server(*id)?.name.clone()))).collect()
}

fn address(topology: &Topology, id: ServerId) -> Option<&str> {
    topology.address_of(id).map(|address| &**address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_server_that_has_come_it_is_said_at_once_and_then_now_and_again() {
        let (mut said, now) = (Said::default(), Instant::now());
        let (one, two) = (ServerId(1), ServerId(2));
        assert!(said.is_due(7, one, now));
        assert!(said.is_due(7, two, now), "it does not wait because the other has come before");
        assert!(!said.is_due(7, one, now) && !said.is_due(7, two, now));
        assert!(said.is_due(7, one, now + SAYING));
        assert!(said.is_due(8, one, now + SAYING), "another change is another matter");
    }
}
