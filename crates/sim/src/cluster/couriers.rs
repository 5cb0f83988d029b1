//! Those who bring contents of files from one site to another: slowly, and not always.
//!
//! Invariant: a content that has come stays, whatever happens; one on its way is lost when the site
//! that asked for it dies, and its site has to ask again.

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::FileWanted;

use super::network::Network;
use crate::dice::Dice;
use crate::world::World;

#[derive(Default)]
pub(crate) struct Couriers {
    /// By the moment of arrival and a number that keeps the order of equals.
    under_way: BTreeMap<(Timestamp, u64), Errand>,
    sent: u64,
}

struct Errand {
    place: usize,
    /// In which of the asker's lives it was sent.
    life: u32,
    blob: [u8; 32],
    instances: Vec<InstanceId>,
    /// Who is asked when it arrives, and who after that.
    sources: Vec<ServerId>,
}

impl Couriers {
    pub(crate) fn send(
        &mut self,
        (place, world): (usize, &World),
        (instance, file): (InstanceId, FileWanted),
        now: Timestamp,
        dice: &mut Dice,
    ) {
        let life = world.crashes;
        let same = |errand: &&mut Errand| {
            (errand.place, errand.life, errand.blob) == (place, life, file.blob)
        };
        if let Some(errand) = self.under_way.values_mut().find(same) {
            return errand.instances.push(instance);
        }
        let FileWanted { blob, sources, .. } = file;
        self.go(Errand { place, life, blob, instances: vec![instance], sources }, now, dice);
    }

    fn go(&mut self, errand: Errand, now: Timestamp, dice: &mut Dice) {
        self.sent += 1;
        let delay = if dice.chance(5) { dice.below(20_000) } else { dice.below(400) };
        self.under_way.insert((Timestamp(now.0 + 1 + delay as i64), self.sent), errand);
    }

    /// What has been brought is stored where it was asked for.
    pub(crate) fn arrive(
        &mut self,
        worlds: &mut [World],
        network: &Network,
        now: Timestamp,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let later = self.under_way.split_off(&(Timestamp(now.0 + 1), 0));
        for mut errand in std::mem::replace(&mut self.under_way, later).into_values() {
            if worlds[errand.place].crashes != errand.life || errand.sources.is_empty() {
                continue;
            }
            let source = errand.sources.remove(0);
            let here = ServerId(errand.place as u16);
            if network.is_cut(here, source) || !network.is_healed() && dice.chance(20) {
                self.go(errand, now, dice);
                continue;
            }
            if !worlds[usize::from(source.0)].has_blob(&errand.blob) {
                let instances = errand.instances;
                return Err(format!(
                    "{source:?} was asked by {here:?} for a file of {instances:?}"
                ));
            }
            worlds[errand.place].brought(errand.blob, errand.instances)?;
        }
        Ok(())
    }

    pub(crate) fn next_arrival(&self) -> Option<Timestamp> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }
}
