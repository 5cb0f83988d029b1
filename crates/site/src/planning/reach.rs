//! Planners that cannot be reached: their reservations still stand when they come back, but not all of them can wait for
//! that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_plan::Candidate;

use crate::Site;

/// A server that cannot be reached for so long is taken for lost. Restarts and short interruptions pass unnoticed.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// Which other servers can be reached.
#[derive(Debug, Default)]
pub(super) struct Reach {
    up: BTreeSet<ServerId>,
    down: BTreeMap<ServerId, Down>,
}

/// A server that cannot be reached.
#[derive(Clone, Copy, Debug)]
struct Down {
    since: Timestamp,
    /// The link to it is down. Else nothing was heard of it yet, and its first word tells that it is there.
    is_cut: bool,
    /// It is taken for lost.
    is_lost: bool,
}

impl Reach {
    /// Somebody counts on a server.
    pub(super) fn needs(&mut self, server: ServerId, now: Timestamp) {
        if !self.up.contains(&server) {
            let unheard = Down { since: now, is_cut: false, is_lost: false };
            self.down.entry(server).or_insert(unheard);
        }
    }

    fn cut(&mut self, server: ServerId, now: Timestamp) {
        self.up.remove(&server);
        let down = Down { since: now, is_cut: true, is_lost: false };
        self.down.entry(server).or_insert(down).is_cut = true;
    }

    /// Whether the link to a server is down.
    pub(super) fn is_cut(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|down| down.is_cut)
    }

    /// Whether a server is taken for lost.
    pub(super) fn is_lost(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|down| down.is_lost)
    }

    /// When the next server is taken for lost.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let waits = self.down.values().filter(|down| !down.is_lost);
        waits.map(|down| down.since + LOST_AFTER).min()
    }

    fn take_lost(&mut self, now: Timestamp) {
        for down in self.down.values_mut() {
            down.is_lost |= down.since + LOST_AFTER <= now;
        }
    }
}

impl Site {
    /// Another server can be reached from now on, or cannot any more.
    pub(crate) fn planner_link(&mut self, server: ServerId, is_up: bool, now: Timestamp) {
        if !is_up {
            return self.planning.reach.cut(server, now);
        }
        if !self.planning.reach.up.insert(server) {
            return;
        }
        let was_lost = self.planning.reach.down.remove(&server).is_some_and(|down| down.is_lost);
        if was_lost {
            self.planning.hurry_revoked(now);
        }
        self.planning.greet_planner(server);
        self.say_begun_to(server, now);
    }

    /// A server that speaks can be reached, unless its link is known to be down: then it has spoken before.
    pub(super) fn planner_speaks(&mut self, server: ServerId, now: Timestamp) {
        let down = self.planning.reach.down.get(&server);
        if down.is_none_or(|down| !down.is_cut) {
            self.planner_link(server, true, now);
        }
    }

    /// Takes servers for lost that could not be reached for long; what should have begun there is planned elsewhere.
    pub(super) fn lose_unreached(&mut self, now: Timestamp) {
        self.planning.reach.take_lost(now);
        if self.planning.reach.down.values().any(|down| down.is_lost) {
            self.replan_unreached(now);
        }
    }

    /// All servers that can be reached.
    pub(super) fn all_planners(&self) -> BTreeMap<ServerId, Vec<Candidate>> {
        let known =
            self.cluster.seat.iter().flat_map(|seat| seat.topology.numbered()).map(|(id, _)| id);
        let all = known.chain([self.cluster.server_here()]);
        let heard = all.filter(|server| !self.planning.reach.is_lost(*server));
        heard.map(|server| (server, Vec::new())).collect()
    }

    /// The server that plans for these, if it is lost and no other does.
    pub(super) fn unreached(&self, planners: &BTreeSet<ServerId>) -> Option<Arc<str>> {
        let reach = &self.planning.reach;
        let lost = planners.iter().find(|planner| reach.is_lost(**planner))?;
        let is_alone = planners.iter().all(|planner| reach.is_lost(*planner));
        let server = self.cluster.seat.as_ref()?.topology.server(*lost)?;
        is_alone.then(|| server.name.clone())
    }
}
