//! Servers that move between hosts: the part of the operator.
//!
//! The store is copied while its server is frozen; the copy is opened at the new host before the change
//! has ended or after it, and the old host may come up again at any point. Invariant: an old host
//! stores nothing of any instance once its store was copied and given away.

use legwork_model::id::{ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_placement::Map;
use legwork_site::{Fate, Message, Mode, message};

use super::Cluster;
use super::network::Envelope;
use crate::dice::Dice;
use crate::world::{Mark, World};

#[derive(Default)]
pub(crate) struct Moves {
    arriving: Vec<Arriving>,
    retired: Vec<Retired>,
    pub(crate) moved: usize,
}

/// A copied store at the new host, before the server serves there.
struct Arriving {
    place: usize,
    change: u32,
    /// From this epoch on messages for the server go there.
    epoch: u32,
    world: World,
    /// The server that reports the arrival; the store is opened when that server knows the end of the
    /// change.
    herald: Option<usize>,
}

/// A host that a server has left.
struct Retired {
    place: usize,
    epoch: u32,
    world: World,
    /// The digest of its store when it was left.
    digest: u64,
}

impl Moves {
    /// All new and old hosts of moving servers.
    pub(crate) fn worlds(&mut self) -> impl Iterator<Item = &mut World> {
        let arriving = self.arriving.iter_mut().map(|arriving| &mut arriving.world);
        arriving.chain(self.retired.iter_mut().map(|retired| &mut retired.world))
    }
}

impl Cluster {
    /// Copies the stores of frozen servers to their new hosts.
    pub(crate) fn move_servers(&mut self, dice: &mut Dice) -> Result<(), String> {
        for place in 0..self.worlds.len() {
            let Mode::Frozen { change } = self.worlds[place].site().mode() else { continue };
            let is_under_way = |arriving: &Arriving| arriving.change == change;
            if self.moves.arriving.iter().any(is_under_way) || !self.calm && !dice.chance(15) {
                continue;
            }
            let mark = Mark::GivenAway { change };
            if !self.worlds[place].is_marked(mark) {
                self.worlds[place].mark(mark);
            } else {
                self.arrive(place, change, dice)?;
            }
        }
        self.settle_moves()
    }

    /// The store has arrived at the new host.
    fn arrive(&mut self, place: usize, change: u32, dice: &mut Dice) -> Result<(), String> {
        let mut world = self.worlds[place].copy(dice)?;
        let server = ServerId(place as u16);
        let mark = Mark::Moved { change, server };
        let topology = self.worlds[place].topology().cloned();
        let epoch = topology.as_ref().map_or(0, |topology| topology.epoch + 1);
        let domain = topology.as_ref().and_then(|topology| topology.domain_of(server));
        let neighbours: Vec<usize> = (0..self.worlds.len())
            .filter(|other| *other != place)
            // Old hosts send no messages.
            .filter(|other| self.worlds[*other].site().mode() == Mode::Serving)
            .filter(|other| {
                let other = ServerId(*other as u16);
                topology.as_ref().and_then(|topology| topology.domain_of(other)) == domain
            })
            .collect();
        // The registrar can only report to itself.
        let herald = dice.pick(&neighbours).copied().filter(|_| place > 0 && dice.chance(50));
        match herald {
            Some(herald) => self.worlds[herald].mark(mark),
            None => world.mark(mark),
        }
        self.moves.arriving.push(Arriving { place, change, epoch, world, herald });
        Ok(())
    }

    /// Servers go on at their new hosts, or where they were.
    fn settle_moves(&mut self) -> Result<(), String> {
        for mut arriving in std::mem::take(&mut self.moves.arriving) {
            let Arriving { place, change, epoch, .. } = arriving;
            if let Some(herald) = arriving.herald {
                match self.worlds[herald].site().fate(change) {
                    Some(Fate::Published { .. }) => {
                        let server = ServerId(place as u16);
                        arriving.world.mark(Mark::Moved { change, server });
                        arriving.herald = None;
                    }
                    Some(Fate::Undone) => continue,
                    None => {}
                }
            }
            let has_come = match arriving.world.site().mode() {
                Mode::Gone { .. } => continue,
                Mode::Serving => true,
                // The next change moves it on; it has received that together with the end of this one.
                Mode::Frozen { change: by } => by != change,
            };
            if !has_come {
                self.moves.arriving.push(arriving);
                continue;
            }
            let mut old = std::mem::replace(&mut self.worlds[place], arriving.world);
            let asked = old.take_asked();
            self.worlds[place].lose(asked);
            let digest = instances_digest(&old)?;
            self.moves.moved += 1;
            self.moves.retired.push(Retired { place, epoch, world: old, digest });
        }
        Ok(())
    }

    /// Delivers a message to the host where its sender believes the receiver to be. Catalog messages
    /// reach both hosts: servers try each other's last known places.
    pub(crate) fn deliver(&mut self, envelope: Envelope) {
        let Envelope { from, to, message, epoch } = envelope;
        let from = self.network.name(from);
        let place = usize::from(to.0);
        let is_catalog = matches!(
            message,
            Message::Catalog(message::Catalog::Records { .. })
                | Message::Catalog(message::Catalog::Wanted { .. })
        );
        let arriving = self.moves.arriving.iter_mut();
        let arriving = arriving.filter(|arriving| arriving.herald.is_none());
        for arriving in arriving.filter(|arriving| arriving.place == place) {
            if is_catalog || epoch >= arriving.epoch {
                arriving.world.on_message(from.clone(), message.clone());
            }
            if epoch >= arriving.epoch && !is_catalog {
                return;
            }
        }
        let retired = self.moves.retired.iter_mut().rev();
        if let Some(retired) =
            retired.filter(|retired| retired.place == place).find(|old| epoch < old.epoch)
        {
            retired.world.on_message(from.clone(), message.clone());
            if !is_catalog {
                return;
            }
        }
        self.worlds[place].on_message(from, message);
    }

    /// New and old hosts take their turns.
    pub(crate) fn turn_of_moves(&mut self, dice: &mut Dice) -> Result<(), String> {
        let mut moves = std::mem::take(&mut self.moves);
        let arriving = moves.arriving.iter_mut().filter(|arriving| arriving.herald.is_none());
        let arriving = arriving.map(|arriving| (arriving.place, &mut arriving.world));
        let retired = moves.retired.iter_mut().map(|old| (old.place, &mut old.world));
        for (place, world) in arriving.chain(retired) {
            world.set_now(Timestamp(self.now.0 + self.skews[place]));
            world.cycle(dice)?;
            self.network.send_all(place, world, self.now, dice);
            drop(world.take_wanted());
            drop(world.take_lost());
            // A server that has just begun to serve is in its place with the next turn.
            if world.site().mode() != Mode::Serving
                && let Some(call) = world.take_calls().pop()
            {
                return Err(format!("{place} calls {call:?} from a host that it is not at"));
            }
        }
        self.moves = moves;
        Ok(())
    }

    /// Whether new or old hosts have anything to do.
    pub(crate) fn is_moving(&self) -> bool {
        !self.moves.arriving.is_empty()
    }

    /// No host that a server has left has stored anything since.
    pub(crate) fn left_alone(&self) -> Result<(), String> {
        for Retired { place, world, digest, .. } in &self.moves.retired {
            if instances_digest(world)? != *digest {
                return Err(format!("the host that {place} has left has gone on with instances"));
            }
        }
        Ok(())
    }
}

/// A digest of everything stored, without the catalog.
fn instances_digest(world: &World) -> Result<u64, String> {
    let mut digest = 0xCBF2_9CE4_8422_2325_u64;
    for (id, records) in world.streams()? {
        if id == StreamId::SITE {
            continue;
        }
        let bytes = id.0.to_be_bytes().into_iter().chain(records.into_iter().flatten());
        for byte in bytes {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    Ok(digest)
}
