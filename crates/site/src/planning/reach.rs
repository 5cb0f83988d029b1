//! Reachability of planners: reservations of an unreachable planner still stand when it comes back, but not every case
//! can wait for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_plan::Candidate;

use crate::Site;

/// How long a server has to be unreachable to be presumed dead. Restarts and short interruptions go unnoticed.
const DEAD_AFTER: Duration = Duration::from_secs(10);

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
    /// The link to it is down. Otherwise it has sent nothing yet, and its first message shows that it is up.
    is_cut: bool,
    /// It is presumed dead.
    is_presumed_dead: bool,
}

impl Reach {
    /// A reservation depends on a server.
    pub(super) fn needs(&mut self, server: ServerId, now: Timestamp) {
        if !self.up.contains(&server) {
            let silent = Down { since: now, is_cut: false, is_presumed_dead: false };
            self.down.entry(server).or_insert(silent);
        }
    }

    fn cut(&mut self, server: ServerId, now: Timestamp) {
        self.up.remove(&server);
        let down = Down { since: now, is_cut: true, is_presumed_dead: false };
        self.down.entry(server).or_insert(down).is_cut = true;
    }

    /// Whether the link to a server is down.
    pub(super) fn is_cut(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|down| down.is_cut)
    }

    /// Whether a server is presumed dead.
    pub(super) fn is_presumed_dead(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|down| down.is_presumed_dead)
    }

    /// When the next server will be presumed dead.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let waits = self.down.values().filter(|down| !down.is_presumed_dead);
        waits.map(|down| down.since + DEAD_AFTER).min()
    }

    fn expire(&mut self, now: Timestamp) {
        for down in self.down.values_mut() {
            down.is_presumed_dead |= down.since + DEAD_AFTER <= now;
        }
    }
}

impl Site {
    /// Another server can be reached, or cannot any more.
    pub(crate) fn on_planner_link(&mut self, server: ServerId, is_up: bool, now: Timestamp) {
        if !is_up {
            return self.planning.reach.cut(server, now);
        }
        if !self.planning.reach.up.insert(server) {
            return;
        }
        let was_presumed_dead =
            self.planning.reach.down.remove(&server).is_some_and(|down| down.is_presumed_dead);
        if was_presumed_dead {
            self.planning.hurry_revoked(now);
        }
        self.planning.on_planner_reachable(server);
        self.report_begun_to(server, now);
    }

    /// A server that sends a message can be reached, unless its link is known to be down: then the message is older.
    pub(super) fn on_planner_message(&mut self, server: ServerId, now: Timestamp) {
        let down = self.planning.reach.down.get(&server);
        if down.is_none_or(|down| !down.is_cut) {
            self.on_planner_link(server, true, now);
        }
    }

    /// Presumes servers dead that could not be reached for long, and replans steps that should have begun there.
    pub(super) fn presume_dead(&mut self, now: Timestamp) {
        self.planning.reach.expire(now);
        if self.planning.reach.down.values().any(|down| down.is_presumed_dead) {
            self.replan_unreached(now);
        }
    }

    /// All servers that are not presumed dead.
    pub(super) fn all_planners(&self) -> BTreeMap<ServerId, Vec<Candidate>> {
        let known =
            self.cluster.seat.iter().flat_map(|seat| seat.topology.numbered()).map(|(id, _)| id);
        let all = known.chain([self.cluster.server_here()]);
        let alive = all.filter(|server| !self.planning.reach.is_presumed_dead(*server));
        alive.map(|server| (server, Vec::new())).collect()
    }

    /// The name of a dead planner among these, if all of them are presumed dead.
    pub(super) fn unreached(&self, planners: &BTreeSet<ServerId>) -> Option<Arc<str>> {
        let reach = &self.planning.reach;
        let lost = planners.iter().find(|planner| reach.is_presumed_dead(**planner))?;
        let is_alone = planners.iter().all(|planner| reach.is_presumed_dead(*planner));
        let server = self.cluster.seat.as_ref()?.topology.server(*lost)?;
        is_alone.then(|| server.name.clone())
    }
}
