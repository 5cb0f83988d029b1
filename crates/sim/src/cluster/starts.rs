//! Cases are requested at any site, and start at the server that their id determines; some with a
//! key.
//!
//! Invariant: the site that receives a request generates the id and looks its server up, as a server
//! does. A key is used repeatedly, from all sites of a domain, and starts one case.

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_placement::Map;
use legwork_site::{Answer, Key, Refusal, Seat, Start};

use super::{Cluster, oracle};
use crate::dice::Dice;

/// The number of keys in a domain.
const KEYS: usize = 2;
/// How often a request is passed on.
const HOPS_MAX: u32 = 6;

/// A start with a key, which may be repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    pub(crate) key: StreamId,
    pub(crate) instance: InstanceId,
    pub(crate) hops: u32,
}

/// The state of the keys.
#[derive(Default)]
pub(crate) struct Keys {
    /// All ids generated for a key.
    pub(crate) drawn: BTreeMap<StreamId, Vec<InstanceId>>,
    answered: BTreeMap<StreamId, InstanceId>,
}

impl Cluster {
    /// An id for a start that is requested at a site, and the site that starts it.
    pub(crate) fn draw_placed(
        &mut self,
        number: u64,
        front: usize,
        spread: u32,
        dice: &mut Dice,
    ) -> Option<(InstanceId, usize)> {
        let world = &self.worlds[front];
        let now = world.now();
        let Some(Seat { here, topology }) = world.site().joined() else {
            // As if it were alone, as the numbers of its file place nothing; its site refuses the
            // start.
            let instance =
                InstanceId::new(now.0 as u64, number as u32, spread, ServerId::default());
            self.note_version(instance, dice);
            return Some((instance, front));
        };
        // A server that knows from when weights apply generates no earlier id.
        let domain = topology.domain_of(*here).and_then(|domain| topology.domain(domain))?;
        let since = domain.chain.latest_since().map_or(0, |since| since + 1);
        let created = since.max(now.0 as u64);
        let id = |server| InstanceId::new(created, number as u32, spread, server);
        let server = topology.starter(*here, id(*here))?;
        let instance = id(server);
        self.note_version(instance, dice);
        Some((instance, usize::from(server.0)))
    }

    /// A key of the domain of a site.
    pub(crate) fn draw_key(&self, front: usize, dice: &mut Dice) -> Option<StreamId> {
        // By its own number, which is a different one in its file as long as it has no catalog.
        let Seat { here, topology } = self.worlds[front].site().seat()?;
        let domain = topology.domain_of(*here)?;
        let number = (usize::from(domain.0) * KEYS + dice.below(KEYS)) as u64;
        let hash = Dice::new(self.seed ^ number << 20).roll();
        Some(StreamId::of_key(u128::from(hash)))
    }

    /// A start of the instance, with a key if it has one.
    pub(crate) fn start_of(&self, instance: InstanceId, key: Option<StreamId>) -> Start {
        let schema = self.schema(instance);
        Start {
            instance,
            process: schema.process.clone(),
            version: Some(schema.version),
            data: oracle::start_data(&schema, instance),
            agent: None,
            // The request of a repetition is not compared: each has its own data.
            key: key.map(|stream| Box::new(Key { stream, request: 7 })),
            wait_until: None,
            deadline: None,
        }
    }
}

impl Keys {
    pub(crate) fn note(&mut self, keyed: Keyed) {
        self.drawn.entry(keyed.key).or_default().push(keyed.instance);
    }

    /// A key is always answered with the same case.
    pub(crate) fn answered(
        &mut self,
        key: StreamId,
        answer: &Answer,
    ) -> Result<InstanceId, String> {
        let Answer::Started { instance, .. } = answer else {
            return Err(format!("a start is answered with {answer:?}"));
        };
        let instance = instance.instance;
        match self.answered.insert(key, instance) {
            Some(other) if other != instance => {
                Err(format!("a key was answered with {other} and with {instance}"))
            }
            Some(_) | None => Ok(instance),
        }
    }
}

impl Keyed {
    /// Where a start is passed on that was refused at a site: to the known server, or to that of a
    /// newly generated id.
    pub(crate) fn passed_on(
        self,
        cluster: &mut Cluster,
        (at, number): (usize, u64),
        refusal: &Refusal,
        dice: &mut Dice,
    ) -> Option<(Self, usize)> {
        let next = refusal.at.filter(|_| self.hops < HOPS_MAX)?;
        let passed_on = Self { hops: self.hops + 1, ..self };
        if refusal.code != "placed_elsewhere" {
            return Some((passed_on, usize::from(next.0)));
        }
        let spread = self.key.0 as u32;
        let (instance, place) = cluster.draw_placed(number, at, spread, dice)?;
        Some((Self { instance, ..passed_on }, place))
    }
}
