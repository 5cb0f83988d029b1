//! Slow and unreliable transfer of file contents between sites.
//!
//! Invariant: an arrived content stays; one in transit is lost when the requesting site dies or
//! moves to another host, and has to be requested again.

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::FileWanted;

use super::network::Network;
use crate::dice::Dice;
use crate::world::World;

#[derive(Default)]
pub(crate) struct Couriers {
    /// By the moment of arrival and a number that orders equal ones.
    under_way: BTreeMap<(Timestamp, u64), Errand>,
    sent: u64,
}

struct Errand {
    place: usize,
    /// The incarnation of the site that asked. A count of crashes would not suffice: the host that
    /// a server has moved to counts from zero, and would get contents in transit to the old one.
    incarnation: u64,
    blob: [u8; 32],
    instances: Vec<InstanceId>,
    /// The remaining sources, in order.
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
        let incarnation = world.incarnation();
        let same = |errand: &&mut Errand| {
            (errand.place, errand.incarnation, errand.blob) == (place, incarnation, file.blob)
        };
        if let Some(errand) = self.under_way.values_mut().find(same) {
            return errand.instances.push(instance);
        }
        let FileWanted { blob, sources, .. } = file;
        let instances = vec![instance];
        self.go(Errand { place, incarnation, blob, instances, sources }, now, dice);
    }

    fn go(&mut self, errand: Errand, now: Timestamp, dice: &mut Dice) {
        self.sent += 1;
        let delay = if dice.chance(5) { dice.below(20_000) } else { dice.below(400) };
        self.under_way.insert((Timestamp(now.0 + 1 + delay as i64), self.sent), errand);
    }

    /// Stores arrived contents at the requesting sites.
    pub(crate) fn arrive(
        &mut self,
        worlds: &mut [World],
        network: &Network,
        now: Timestamp,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let later = self.under_way.split_off(&(Timestamp(now.0 + 1), 0));
        for mut errand in std::mem::replace(&mut self.under_way, later).into_values() {
            let incarnation = worlds[errand.place].incarnation();
            if incarnation != errand.incarnation || errand.sources.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const LATER: Timestamp = Timestamp(2_000_000);

    #[test]
    fn what_was_on_its_way_to_the_old_host_of_a_server_does_not_come_to_the_new_one() {
        let mut dice = Dice::new(0);
        let mut worlds = [World::new(&mut dice), World::new(&mut dice)];
        let (instance, blob) = (InstanceId(1), [7; 32]);
        worlds[1].upload(blob);
        let file = FileWanted { blob, size: 1, similar: Vec::new(), sources: vec![ServerId(1)] };
        let mut couriers = Couriers::default();
        couriers.send((0, &worlds[0]), (instance, file), NOW, &mut dice);
        // The server moves; no host has crashed, so both have counted as many crashes.
        worlds[0] = worlds[0].copy(&mut dice).unwrap();

        let mut network = Network::default();
        network.heal();
        couriers.arrive(&mut worlds, &network, LATER, &mut dice).unwrap();

        assert!(!worlds[0].has_blob(&blob), "brought to a host that has not asked for it");
    }
}
