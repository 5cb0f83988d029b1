//! What servers find out about the connections between them: that one is closed because the other server has died or is
//! cut off, and that there is one again.
//!
//! Invariant: whoever begins anew has a new connection to each other, and the others find the old one closed before.

use std::collections::BTreeMap;

use legwork_model::id::ServerId;

use super::Office;
use crate::dice::Dice;

/// How likely it is that a closed connection is found out at once, in per cent for each turn.
const NOTICED: u64 = 60;

#[derive(Default)]
pub(super) struct Links {
    /// To which life of which other server each has a connection.
    open: BTreeMap<(usize, usize), u32>,
    /// How often each server has died.
    lives: BTreeMap<usize, u32>,
}

impl Links {
    pub(super) fn died(&mut self, place: usize) {
        *self.lives.entry(place).or_default() += 1;
        self.open.retain(|(at, _), _| *at != place);
    }

    /// What has changed for each server that is up: to whom, and whether there is a connection now.
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
            // Silence says nothing: without a new connection it may take a moment.
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
    /// Servers that are up find out to whom they have a connection.
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
