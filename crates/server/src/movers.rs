//! Servers that a change of the topology brings to this process.
//!
//! Invariant: what is to come is copied until it is here as a whole; that it is here is said again and
//! again until the change is over. What is here already need not be copied, nor what is in the very
//! database of this process.

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
use crate::dwelling::{Found, until_here};
use crate::moving::{Progress, bring};
use crate::notes::{Note, Notes};
use crate::peer::{Links, Moving, Unprepared};

/// How often it is said that a server has come.
const SAYING: Duration = Duration::from_secs(3);
/// How long a copy is kept up to date that was made ahead and that nobody asks for any more.
const PREPARED: Duration = Duration::from_secs(60);

/// The copies in the making.
#[derive(Default)]
pub(crate) struct Movers {
    coming: BTreeMap<Arc<str>, Mover>,
    said: Said,
    /// Why stores cannot be copied to here, as it was told.
    told: BTreeMap<Arc<str>, String>,
}

/// When it was last said of each server that it has come, by the change under way.
#[derive(Default)]
struct Said {
    change: u32,
    at: BTreeMap<ServerId, Instant>,
}

impl Said {
    /// Whether it is to be said now: one that has just come does not wait for the others' turn.
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

struct Mover {
    notes: Arc<Notes>,
    /// It stays in the database where it is.
    is_shared: bool,
    task: JoinHandle<()>,
    found: watch::Receiver<Found>,
    progress: watch::Receiver<Progress>,
    /// When it was last asked for ahead of a change.
    asked: Option<Instant>,
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Movers {
    /// Sees to what a change brings here.
    pub(crate) fn follow(&mut self, process: &Process, own: &Links, moving: Option<&Moving>) {
        let expected = moving.map(|moving| expected(own, moving)).unwrap_or_default();
        self.coming.retain(|name, mover| {
            let is_asked = mover.asked.is_some_and(|asked| asked.elapsed() < PREPARED);
            is_asked || expected.values().any(|expected| expected == name)
        });
        let Some(moving) = moving else { return self.told.clear() };
        for (server, name) in expected {
            let change = moving.change;
            let there = own.host.held(&name);
            if there.is_none() && name == own.name {
                // It is being opened, and knows by itself that it has come.
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

    /// Copies what can be copied before the change begins that brings a server here: how far it is.
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
            let mover = begin(process, own, name);
            let mover = mover.map_err(|error| Unprepared::Never(error.to_string()))?;
            let mover = mover.ok_or_else(|| "this server is alone".to_owned())?;
            self.coming.insert(name.clone(), mover);
        }
        let mover = self.coming.get_mut(name).ok_or_else(|| "it has gone".to_owned())?;
        mover.asked = Some(Instant::now());
        let found = mover.found.borrow().clone();
        match found {
            Found::Elsewhere(why) => Err(Unprepared::Never(why)),
            Found::Unknown(why) | Found::Silent { why, .. } => {
                Ok(Progress { reason: Some(why.into()), ..Progress::default() })
            }
            // Nothing is copied within a database.
            Found::Here if mover.is_shared => {
                Ok(Progress { is_close: true, ..Progress::default() })
            }
            Found::Here => Ok(mover.progress.borrow().clone()),
        }
    }

    /// Whether the store of a server that a change brings here may be opened before that is over: in
    /// a database only if it is the one that has the server, or had it last.
    pub(crate) fn may_open(&self, process: &Process, name: &str) -> bool {
        let is_known = |mover: &Mover| match &*mover.found.borrow() {
            Found::Here => true,
            Found::Silent { is_free, .. } => *is_free,
            Found::Unknown(_) | Found::Elsewhere(_) => false,
        };
        !process.config.store.is_shared() || self.coming.get(name).is_some_and(is_known)
    }

    /// What has come by a change that was undone is brought anew.
    fn drop_undone(&mut self, own: &Links, name: &Arc<str>) {
        let is_over = |mover: &Mover| mover.task.is_finished() && is_of_before(own, &mover.notes);
        if self.coming.get(name).is_some_and(is_over) {
            self.coming.remove(name);
        }
    }

    /// Whether a server has come by this change; else it is being brought from now on.
    fn has_come(&mut self, process: &Process, own: &Links, name: &Arc<str>, change: u32) -> bool {
        self.drop_undone(own, name);
        if !self.coming.contains_key(name) {
            match begin(process, own, name) {
                Ok(mover) => self.coming.extend(mover.map(|mover| (name.clone(), mover))),
                Err(error) => self.tell_once(name, &error),
            }
        }
        self.coming.get(name).is_some_and(|mover| mover.has_come(change))
    }

    /// It is tried again as long as the change lasts, and says the same each time.
    fn tell_once(&mut self, name: &Arc<str>, error: &Error) {
        let reason = error.to_string();
        if self.told.get(name) != Some(&reason) {
            tracing::error!(server = %name, reason, "its store cannot be copied to here");
            self.told.insert(name.clone(), reason);
        }
    }
}

/// Whether a server came by a change that was undone then: it went on where it was, and what is here
/// is a copy of before.
fn is_of_before(own: &Links, notes: &Notes) -> bool {
    match notes.last() {
        Note::Whole { change, .. } => own.is_undone(change),
        Note::Held | Note::Coming | Note::Given { .. } | Note::Gone => false,
    }
}

impl Mover {
    fn has_come(&self, by: u32) -> bool {
        if self.is_shared {
            return *self.found.borrow() == Found::Here;
        }
        matches!(self.notes.last(), Note::Whole { change, .. } if change == by)
    }
}

fn begin(process: &Process, own: &Links, name: &Arc<str>) -> Result<Option<Mover>, Error> {
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
        // What has come as a whole stays so, unless the change that brought it was undone.
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
    Ok(Some(Mover { notes, is_shared, task, found, progress: receiver, asked: None }))
}

/// The servers that a change brings to this process, or leaves here.
fn expected(own: &Links, moving: &Moving) -> BTreeMap<ServerId, Arc<str>> {
    let Moving { servers, next, .. } = moving;
    let Some(here) = next.server_named(&own.name) else { return BTreeMap::new() };
    // One that moves itself is where its file says, or it is another process.
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
