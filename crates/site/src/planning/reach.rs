//! Planners that cannot be reached: what they have promised is still promised when they come back, but not all of it can
//! wait for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::ResourceId;

use crate::Site;

/// A server that cannot be reached for so long is taken for lost. Restarts and short interruptions pass unnoticed.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// Which other servers can be reached.
#[derive(Debug, Default)]
pub(super) struct Reach {
    up: BTreeSet<ServerId>,
    /// Since when they cannot be reached, and that the planner here knows it.
    down: BTreeMap<ServerId, (Timestamp, bool)>,
}

impl Reach {
    /// Somebody counts on a server.
    pub(super) fn needs(&mut self, server: ServerId, now: Timestamp) {
        if !self.up.contains(&server) {
            self.down.entry(server).or_insert((now, false));
        }
    }

    /// Whether a server is taken for lost.
    pub(super) fn is_lost(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|(_, is_known)| *is_known)
    }

    /// When the next server is taken for lost.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let waits = self.down.values().filter(|(_, is_known)| !is_known);
        waits.map(|(since, _)| *since + LOST_AFTER).min()
    }

    fn take_lost(&mut self, now: Timestamp) -> Vec<ServerId> {
        let mut lost = Vec::new();
        for (server, (since, is_known)) in &mut self.down {
            if !*is_known && *since + LOST_AFTER <= now {
                *is_known = true;
                lost.push(*server);
            }
        }
        lost
    }
}

impl Site {
    /// Another server can be reached from now on, or cannot any more.
    pub(crate) fn planner_link(&mut self, server: ServerId, is_up: bool, now: Timestamp) {
        let reach = &mut self.planning.reach;
        if !is_up {
            reach.up.remove(&server);
            reach.down.entry(server).or_insert((now, false));
            return;
        }
        if !reach.up.insert(server) {
            return;
        }
        // It may have begun anew, and not know which executors are kept here.
        self.planning.opening.tell_again();
        let reach = &mut self.planning.reach;
        let was_lost = reach.down.remove(&server).is_some_and(|(_, is_known)| is_known);
        if was_lost {
            self.plan(now, |node| node.find(server, now));
            self.go_on_with_all(now);
        }
    }

    /// The server that plans for these, if it is lost and no other does.
    pub(super) fn unreached_planner(&self, who: &[ResourceId]) -> Option<Arc<str>> {
        let node = self.planning.node.as_ref()?;
        let planners: BTreeSet<ServerId> = who.iter().map(|one| self.planner_of(one)).collect();
        let lost = planners.iter().find(|planner| node.is_lost(**planner))?;
        let is_alone = planners.iter().all(|planner| node.is_lost(*planner));
        let server = self.seat.as_ref()?.topology.server(*lost)?;
        is_alone.then(|| server.name.clone())
    }

    /// Takes servers for lost that could not be reached for long, if anybody here plans with them.
    pub(super) fn lose_unreached(&mut self, now: Timestamp) {
        if self.planning.node.is_none() {
            return;
        }
        for server in self.planning.reach.take_lost(now) {
            self.plan(now, |node| node.lose(server, now));
            self.go_on_with_all(now);
        }
    }
}
