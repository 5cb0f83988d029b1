//! What was promised for each instance and what was told of it, read from the histories.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::event::{Deadline, Event, Record};
use legwork_model::id::{InstanceId, NodeId, StreamId};
use legwork_model::time::Timestamp;

use crate::world::World;

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) cases: BTreeMap<InstanceId, Case>,
}

/// An instance as its history at the server that started it tells.
pub(super) struct Case {
    pub(super) place: usize,
    pub(super) process: usize,
    /// Somebody wanted it aborted.
    pub(super) is_aborted: bool,
    /// Somebody has held it up.
    pub(super) was_suspended: bool,
    read: usize,
    pub(super) created: Option<Timestamp>,
    pub(super) deadline: Option<Deadline>,
    pub(super) was_promised: bool,
    /// It was told that the deadline has passed.
    pub(super) has_passed: bool,
    /// Whoever has started it was told that it is promised.
    pub(super) is_answered: bool,
    pub(super) told: Vec<Told>,
    /// From when on it was promised or not, as whoever has started it could see.
    standings: Vec<(Timestamp, bool)>,
}

/// A change of a plan, as it stands in a history.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) at: Timestamp,
    pub(super) is_promised: bool,
    pub(super) reason: String,
}

/// What is planned for a step.
pub(super) struct Slot {
    pub(super) takes: i64,
    /// Somebody has promised it, or a machine has.
    pub(super) is_promised: bool,
}

impl Ledger {
    pub(super) fn add(&mut self, id: InstanceId, place: usize, process: usize) {
        let case = Case {
            place,
            process,
            is_aborted: false,
            was_suspended: false,
            read: 0,
            created: None,
            deadline: None,
            was_promised: false,
            has_passed: false,
            is_answered: false,
            told: Vec::new(),
            standings: Vec::new(),
        };
        self.cases.insert(id, case);
    }

    /// By when what is to be done, as the histories tell.
    pub(super) fn planned(&self) -> BTreeSet<(InstanceId, Timestamp)> {
        let all = self.cases.iter().filter_map(|(id, case)| Some((id, case.deadline.as_ref()?)));
        all.flat_map(|(id, deadline)| deadline.legs.iter().map(|leg| (*id, leg.due))).collect()
    }

    /// Reads on in the histories.
    pub(super) fn read_on(&mut self, worlds: &[World]) -> Result<(), String> {
        for (id, case) in &mut self.cases {
            for bytes in worlds[case.place].records(StreamId::from(*id), case.read)? {
                case.read += 1;
                let record = Record::<Event>::from_bytes(&bytes).map_err(|it| it.to_string())?;
                let Record { at, events } = record;
                events.into_iter().for_each(|event| case.take_in(event, at));
            }
        }
        Ok(())
    }
}

impl Case {
    fn take_in(&mut self, event: Event, at: Timestamp) {
        if let Event::Created(created) = event {
            self.created = Some(at);
            self.deadline = created.deadline.map(|it| *it);
            self.was_promised = self.deadline.as_ref().is_some_and(Deadline::is_promised);
        } else if let Event::DeadlinePassed { .. } = event {
            self.has_passed = true;
        } else if let Event::Replanned(replanned) = event {
            self.told.extend(replanned.legs.iter().map(|leg| Told {
                at,
                is_promised: leg.planned.is_some(),
                reason: replanned.reason.clone(),
            }));
            if let Some(deadline) = &mut self.deadline {
                deadline.replan(&replanned, at);
                self.standings.push((at, deadline.is_promised()));
            }
        }
    }

    /// What is planned for a step, if it has a deadline.
    pub(super) fn slot(&self, node: NodeId, round: u64) -> Option<Slot> {
        let mut legs = self.deadline.as_ref()?.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (node, round))?;
        Some(Slot { takes: leg.takes_ms as i64, is_promised: leg.planned.is_some() })
    }

    /// Whether it was told at some time that it is not promised any more.
    pub(super) fn was_revoked(&self) -> bool {
        self.told.iter().any(|told| !told.is_promised)
    }

    /// Whether it stood as not promised then. What was promised anew before counts as promised.
    pub(super) fn is_unpromised_at(&self, at: Timestamp) -> bool {
        let so_far = self.standings.iter().take_while(|(told, _)| *told <= at);
        so_far.last().is_some_and(|(_, is_promised)| !is_promised)
    }
}
