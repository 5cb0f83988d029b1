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
    down: BTreeMap<ServerId, Down>,
    /// Who can be reached again, and was not asked yet what it still wants.
    back: BTreeSet<ServerId>,
}

/// A server that cannot be reached.
#[derive(Clone, Copy, Debug)]
struct Down {
    since: Timestamp,
    /// The link to it is down. Else nothing was heard of it yet, and its first word tells that it is there.
    is_cut: bool,
    /// It is taken for lost, and the planner here knows it.
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

    pub(super) fn is_somebody_back(&self) -> bool {
        !self.back.is_empty()
    }

    /// Whether the link to a server is down.
    pub(super) fn is_cut(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|down| down.is_cut)
    }

    /// Whether a server is taken for lost.
    pub(super) fn is_lost(&self, server: ServerId) -> bool {
        self.down.get(&server).is_some_and(|down| down.is_lost)
    }

    /// Since when a server cannot be reached, if it cannot.
    pub(super) fn down_since(&self, server: ServerId) -> Option<Timestamp> {
        self.down.get(&server).map(|down| down.since)
    }

    /// When the next server is taken for lost.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let waits = self.down.values().filter(|down| !down.is_lost);
        waits.map(|down| down.since + LOST_AFTER).min()
    }

    fn take_lost(&mut self, now: Timestamp) -> Vec<ServerId> {
        let mut lost = Vec::new();
        for (server, down) in &mut self.down {
            if !down.is_lost && down.since + LOST_AFTER <= now {
                down.is_lost = true;
                lost.push(*server);
            }
        }
        lost
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
        if self.executors.registry.len() > 0 {
            self.planning.opening.greet(server);
        }
        let reach = &mut self.planning.reach;
        let was_lost = reach.down.remove(&server).is_some_and(|down| down.is_lost);
        if was_lost {
            self.plan(now, |node| node.find(server, now));
            self.go_on_with_all(now);
        }
        self.planning.reach.back.insert(server);
        self.say_begun_to(server, now);
    }

    /// Whoever speaks can be reached, unless it is known that the link is down: what comes then was said before.
    pub(super) fn planner_speaks(&mut self, server: ServerId, now: Timestamp) {
        let down = self.planning.reach.down.get(&server);
        if down.is_none_or(|down| !down.is_cut) {
            self.planner_link(server, true, now);
        }
    }

    /// Who can be reached again may have begun anew before it could say that it does not want what is promised here, and
    /// may not know what was taken back.
    pub(super) fn ask_whether_wanted(&mut self, now: Timestamp) {
        for server in std::mem::take(&mut self.planning.reach.back) {
            let ledger = &self.planning.ledger;
            let is_told = ledger.taken.values().any(|taken| taken.asker == server);
            if is_told || ledger.held().any(|it| it.asker == server) {
                self.plan(now, |node| node.ask_again(server, now));
            }
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
