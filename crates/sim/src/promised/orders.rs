//! Administrative orders on running cases: some are aborted, some are suspended for a while.

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use legwork_site::{Request, RequestId};

use super::Office;
use crate::dice::Dice;

/// The longest suspension of a case.
const SUSPENDED_MAX: usize = 10 * 60_000;

#[derive(Default)]
pub(super) struct Orders {
    /// Due orders with their start, and their unanswered requests.
    due: BTreeMap<(InstanceId, Order), (i64, Option<RequestId>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Abort,
    Resume,
}

impl Order {
    fn request(self, instance: InstanceId) -> Request {
        match self {
            Self::Abort => Request::Abort { instance, reason: String::new() },
            Self::Resume => Request::Resume { instance, reason: None },
        }
    }
}

impl Orders {
    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    pub(super) fn give_some(&mut self, office: &mut Office, dice: &mut Dice) {
        self.go_on(office);
        let running = office.ledger.cases.iter().filter(|(_, case)| case.created.is_some());
        let running: Vec<InstanceId> = running.map(|(id, _)| *id).collect();
        let aborts = dice.roll().is_multiple_of(2_000);
        // A suspended case is late by itself: only in runs with faults.
        let suspends = dice.roll().is_multiple_of(2_000) && !office.calm;
        let Some(id) = dice.pick(&running).copied().filter(|_| aborts || suspends) else { return };
        let Some(case) = office.ledger.cases.get_mut(&id) else { return };
        if aborts {
            case.is_aborted = true;
            self.due.insert((id, Order::Abort), (office.now.0, None));
        } else {
            case.was_suspended = true;
            let place = case.place;
            office.worlds[place].ask(Request::Suspend { instance: id, reason: None });
            let until = office.now.0 + dice.below(SUSPENDED_MAX) as i64;
            self.due.insert((id, Order::Resume), (until, None));
        }
    }

    /// Lost requests are repeated.
    fn go_on(&mut self, office: &mut Office) {
        self.due.retain(|(id, order), (at, asked)| {
            let Some(place) = office.ledger.cases.get(id).map(|case| case.place) else {
                return false;
            };
            let world = &mut office.worlds[place];
            let is_answered = asked.is_some_and(|id| world.reply(id).is_some());
            let waits = asked.is_some_and(|id| world.is_asked(id));
            if !is_answered && !waits && office.now.0 >= *at && !world.is_down() {
                *asked = Some(world.ask(order.request(*id)));
            }
            !is_answered
        });
    }
}
