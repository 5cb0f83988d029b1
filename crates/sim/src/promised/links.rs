//! The servers' knowledge of the connections between them: closed because the peer has died or is cut off, or open
//! again.
//!
//! Invariant: a restarted server has a new connection to each peer, and the peers notice that the old one is closed
//! before.

use std::collections::BTreeMap;

use legwork_model::id::ServerId;

use super::Office;
use crate::dice::Dice;

/// The probability that a closed connection is noticed at once, in per cent per turn.
const NOTICED: u64 = 60;

#[derive(Default)]
pub(super) struct Links {
    /// The incarnation of the peer of each open connection.
    open: BTreeMap<(usize, usize), u32>,
    /// The number of crashes of each server.
    lives: BTreeMap<usize, u32>,
}

impl Links {
    pub(super) fn died(&mut self, place: usize) {
        *self.lives.entry(place).or_default() += 1;
        self.open.retain(|(at, _), _| *at != place);
    }

    /// The changes for each server that is up: the peer, and whether there is a connection now.
    pub(super) fn changes(
        &mut self,
        is_open: impl Fn(usize, usize) -> bool,
        servers: usize,
        dice: &mut Dice,
    ) -> Vec<(usize, usize, bool)> {
        let mut changes = Vec::new();
        let pairs = (0..servers).flat_map(|at| (0..servers).map(move |to| (at, to)));
        for (at, to) in pairs.filter(|(at, to)| at != to) {
            let life = is_open(at, to).then(|| self.lives.get(&to).copied().unwrap_or(0));
            let known = self.open.get(&(at, to)).copied();
            // Silence is no evidence: without a new connection it may take a moment.
            if known == life || life.is_none() && !dice.chance(NOTICED) {
                continue;
            }
            if known.is_some() {
                self.open.remove(&(at, to));
                changes.push((at, to, false));
            }
            if let Some(life) = life {
                self.open.insert((at, to), life);
                changes.push((at, to, true));
            }
        }
        changes
    }
}

impl Office {
    /// Servers that are up notice changed connections.
    pub(super) fn look_at_links(&mut self, dice: &mut Dice) {
        let (worlds, network) = (&self.worlds, &self.network);
        let server = |place: usize| ServerId(place as u16);
        let is_open = |at: usize, to: usize| {
            let are_up = !worlds[at].is_down() && !worlds[to].is_down();
            are_up && !network.is_cut(server(at), server(to))
        };
        for (at, to, is_up) in self.links.changes(is_open, worlds.len(), dice) {
            self.worlds[at].notice(self.network.name(server(to)), is_up);
        }
    }
}
