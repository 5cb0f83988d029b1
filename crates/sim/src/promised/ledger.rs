//! The promises of each instance and their changes, from the histories.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::event::{Deadline, Event, Record};
use legwork_model::id::{InstanceId, NodeId, StreamId};
use legwork_model::time::Timestamp;

use crate::world::World;

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) cases: BTreeMap<InstanceId, Case>,
}

/// An instance by its history at the server that started it.
pub(super) struct Case {
    pub(super) place: usize,
    pub(super) process: usize,
    /// An abort was requested.
    pub(super) is_aborted: bool,
    /// It was suspended for a while.
    pub(super) was_suspended: bool,
    read: usize,
    pub(super) created: Option<Timestamp>,
    pub(super) deadline: Option<Deadline>,
    pub(super) was_promised: bool,
    /// The passing of the deadline was recorded.
    pub(super) has_passed: bool,
    /// The starter was told that it is promised.
    pub(super) is_answered: bool,
    pub(super) told: Vec<Told>,
    /// Since when it was promised or not, as seen by the starter.
    standings: Vec<(Timestamp, bool)>,
}

/// A change of a plan in a history.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) at: Timestamp,
    pub(super) is_promised: bool,
    pub(super) reason: String,
}

/// The plan of a step.
pub(super) struct Slot {
    pub(super) takes: i64,
    /// It is promised, by a person or a machine.
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

    /// The planned due dates in the histories.
    pub(super) fn planned(&self) -> BTreeSet<(InstanceId, Timestamp)> {
        let all = self.cases.iter().filter_map(|(id, case)| Some((id, case.deadline.as_ref()?)));
        all.flat_map(|(id, deadline)| deadline.legs.iter().map(|leg| (*id, leg.due))).collect()
    }

    /// Reads new records of the histories.
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

    /// The plan of a step, if it has a deadline.
    pub(super) fn slot(&self, node: NodeId, round: u64) -> Option<Slot> {
        let mut legs = self.deadline.as_ref()?.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (node, round))?;
        Some(Slot { takes: leg.takes_ms as i64, is_promised: leg.planned.is_some() })
    }

    /// Whether it was ever reported as no longer promised.
    pub(super) fn was_revoked(&self) -> bool {
        self.told.iter().any(|told| !told.is_promised)
    }

    /// Whether it was not promised at that moment. A promise renewed before that counts.
    pub(super) fn is_unpromised_at(&self, at: Timestamp) -> bool {
        let so_far = self.standings.iter().take_while(|(told, _)| *told <= at);
        so_far.last().is_some_and(|(_, is_promised)| !is_promised)
    }
}
