//! The plan of one resource: what it is to do, and whether more can be promised.
//!
//! Invariant: as long as nothing takes longer than it was said to, and the resource works in the order of
//! deadlines, everything in the plan is done in time. A task is taken in only if this holds with it:
//! the test is exact, so a refusal means that no order would do, but where [`Discipline`] and the lag say otherwise.

mod begun;
mod busy;
mod fit;
mod lag;
mod pass;
#[cfg(test)]
mod tests;
mod twin;
mod view;

use std::collections::{BTreeSet, VecDeque};

use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::later::Later;
use crate::periodic::{Load, Loads};
use crate::sequence::{Change, Pieces, Sequence};
use crate::supply::{Supply, Work};
use crate::timeline::Piece;
use crate::tree::{Key, Tree};

/// Whether work that has begun can be put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// It can: people do that.
    Preemptive,
    /// What has begun is finished first: programs do that. Where tasks are released later and there are more than a few,
    /// not every order is tried: that is beyond anybody's time. There a refusal may be wrong, a promise never.
    NonPreemptive,
}

/// A reservation in one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// From when on something can be done, and by when it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    #[n(0)]
    pub release: Timestamp,
    #[n(1)]
    pub deadline: Timestamp,
}

impl Window {
    /// How much two windows have in common; the less below nothing, the nearer they are.
    pub fn common(self, other: Self) -> i64 {
        let from = self.release.max(other.release).0;
        self.deadline.min(other.deadline).0.saturating_sub(from)
    }
}

/// The times a task is planned for, at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Times {
    #[n(0)]
    pub start: Timestamp,
    #[n(1)]
    pub end: Timestamp,
}

/// A turn in the plan: who works on what, when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// `None`: what the resource does regularly, or besides what it has promised.
    pub ticket: Option<Ticket>,
    pub is_regular: bool,
    pub from: Timestamp,
    pub to: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Plan {
    supply: Supply,
    discipline: Discipline,
    /// The working time that has passed.
    now: i64,
    /// Everything but, where it cannot be put aside, what was begun.
    tree: Tree,
    entries: Pieces,
    /// What can be worked on, in the order of deadlines.
    ready: BTreeSet<Key>,
    /// What is not released yet.
    coming: BTreeSet<(i64, u64)>,
    running: Option<Piece>,
    /// When the last was done or put aside that was being worked on: what was worked before is known.
    free_since: i64,
    /// What was begun as well and cannot be put aside: it comes next.
    behind: VecDeque<Piece>,
    /// Until when something that is not in the plan takes the resource.
    busy: i64,
    /// Deadlines in the plan are earlier by the lag than those that were promised.
    lag: i64,
    /// What can be put aside and was begun: of those the one that is due first is being worked on.
    begun: BTreeSet<Key>,
    loads: Loads,
    /// Taken out for a while to see whether something else fits then.
    aside: Pieces,
    /// The order from before the first of them was taken out.
    before: Option<Sequence>,
    /// The latest deadline since there was nothing to do.
    furthest: i64,
    /// Up to this point nothing becomes late, whoever works or does not.
    safe_until: i64,
    /// What can be put aside and is not released yet, as if there were nothing else. Made when somebody asks for it,
    /// because after a restart all that was promised comes in one by one.
    later: Option<Later>,
    /// In which order they are worked on that cannot be put aside, while some are not released; or by deadlines, from
    /// when somebody asked for it until something changes.
    sequence: Option<Sequence>,
    last: u64,
}

impl Plan {
    pub fn new(supply: Supply, discipline: Discipline, now: Timestamp) -> Self {
        let now = supply.until(now).0;
        Self {
            supply,
            discipline,
            now,
            tree: Tree::default(),
            entries: Pieces::new(),
            ready: BTreeSet::new(),
            coming: BTreeSet::new(),
            running: None,
            free_since: i64::MIN,
            behind: VecDeque::new(),
            busy: i64::MIN,
            lag: 0,
            begun: BTreeSet::new(),
            loads: Loads::default(),
            aside: Pieces::new(),
            before: None,
            furthest: now,
            safe_until: i64::MIN,
            later: None,
            sequence: None,
            last: 0,
        }
    }

    /// How many tasks it has promised, without what is done regularly.
    pub fn len(&self) -> usize {
        self.entries.len() + self.at_hand().count() - self.loads.jobs()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the resource does again and again, from now on. False if that leaves it too little time.
    pub fn regularly(&mut self, load: Load) -> bool {
        if !self.loads.add(load, self.now) {
            return false;
        }
        self.cover(self.now, self.now, Work(0));
        !self.is_endangered()
    }

    /// Something the resource does anyway, at some time in a window; nobody tells when it is done.
    pub fn occupy(&mut self, window: Window, cost: Work) {
        let mut piece = self.piece(window, cost);
        piece.cost = piece.cost.min(piece.deadline - piece.release);
        // By the plan, not by the clock: no list says by when.
        piece.idle = 0;
        if piece.cost > 0 {
            self.last += 1;
            piece.number = self.last;
            self.loads.once(piece);
            self.put_in(piece);
        }
    }

    /// Takes in what was promised before, whether it fits or not. What was begun has less left.
    pub fn restore(&mut self, window: Window, cost: Work, begun: Option<Timestamp>) -> Ticket {
        let piece = self.piece(window, cost);
        self.cover(piece.release, piece.deadline, cost);
        self.restore_as(Ticket(self.last + 1), window, cost, begun)
    }

    /// The same under a ticket that is new here.
    pub(crate) fn restore_as(
        &mut self,
        ticket: Ticket,
        window: Window,
        cost: Work,
        begun: Option<Timestamp>,
    ) -> Ticket {
        debug_assert!(ticket.0 > self.last, "{ticket:?} is not new");
        self.last = self.last.max(ticket.0);
        let mut piece = Piece { number: ticket.0, ..self.piece(window, cost) };
        let since = |begun| self.supply.until(begun).0.max(self.free_since);
        let worked = begun.map_or(0, |begun| self.now - since(begun));
        piece.cost = (piece.cost - worked).max(0);
        self.furthest = self.furthest.max(piece.deadline);
        if self.needs_order(piece) {
            self.restore_in_order(piece);
        } else {
            self.sequence = None;
        }
        self.take_in(piece);
        if begun.is_some() {
            self.begin_with(ticket);
        }
        ticket
    }

    /// Reserves so much in the window, if it fits.
    pub fn reserve(&mut self, window: Window, cost: Work) -> Option<(Ticket, Times)> {
        let mut piece = self.piece(window, cost);
        if !self.piece_fits(piece) {
            return None;
        }
        self.last += 1;
        piece.number = self.last;
        self.furthest =
            if self.is_empty() { piece.deadline } else { self.furthest.max(piece.deadline) };
        self.put_in(piece);
        let ticket = Ticket(piece.number);
        Some((ticket, self.times(ticket)?))
    }

    /// Takes a reservation out for a while; false if it is being worked on, or not in the plan.
    pub(crate) fn set_aside(&mut self, ticket: Ticket) -> bool {
        let Some(piece) = self.entries.get(&ticket.0).copied() else { return false };
        if self.is_begun(ticket) {
            return false;
        }
        if self.aside.is_empty() {
            self.before.clone_from(&self.sequence);
        }
        self.aside.insert(ticket.0, piece);
        self.take_out(ticket.0)
    }

    /// Puts one back in that was taken out for a while; false if no order is found any more in which all
    /// are in time.
    pub(crate) fn put_back(&mut self, ticket: Ticket) -> bool {
        let Some(piece) = self.aside.get(&ticket.0).copied() else { return false };
        if self.needs_order(piece) && self.change_for(piece).is_none() {
            return false;
        }
        self.aside.remove(&ticket.0);
        self.put_in(piece);
        true
    }

    /// Puts all back in, as they were.
    pub(crate) fn put_all_back(&mut self) {
        if self.aside.is_empty() {
            return;
        }
        for piece in std::mem::take(&mut self.aside).into_values() {
            self.put_in(piece);
        }
        self.sequence = self.before.take();
    }

    /// The first that is to be worked on now, if there is something.
    pub fn next(&self) -> Option<Ticket> {
        let next = match &self.sequence {
            Some(sequence) => sequence.first().filter(|next| {
                self.entries.get(next).is_some_and(|piece| piece.release <= self.now)
            }),
            None => self.ready.first().map(|key| key.number),
        };
        next.map(Ticket)
    }

    /// When the next one is released that cannot be begun yet.
    pub fn next_release(&self) -> Option<Timestamp> {
        self.coming.first().and_then(|(release, _)| self.supply.begin(Work(*release)))
    }

    /// Whether it is one of the tasks that are done regularly.
    pub fn is_regular(&self, ticket: Ticket) -> bool {
        self.loads.is_job(ticket.0)
    }

    /// All tasks that have been promised and not begun.
    pub fn waiting(&self) -> impl Iterator<Item = Ticket> {
        let own = self.entries.keys().filter(|number| !self.loads.is_job(**number));
        own.map(|number| Ticket(*number)).filter(|ticket| !self.is_begun(*ticket))
    }

    fn piece(&self, window: Window, cost: Work) -> Piece {
        let release = self.supply.until(window.release).0.max(self.now);
        let until = self.supply.until(window.deadline);
        let idle = self.supply.moment(until);
        let idle = idle.map_or(0, |end| window.deadline.0.saturating_sub(end.0));
        let deadline = until.0 - self.lag;
        Piece { number: self.last + 1, release, deadline, idle, cost: cost.0 }
    }

    /// Sees to it that all that is done regularly is in the plan as far as it matters for a window.
    fn cover(&mut self, from: i64, deadline: i64, more: Work) {
        let busy = self.tree.cost() - self.loads.repeated_cost() + more.0;
        for piece in self.loads.cover(self.now, (from, deadline), busy, &mut self.last) {
            self.put_in(piece);
        }
    }

    /// Whether the order of deadlines alone would not do, with one more.
    fn needs_order(&self, piece: Piece) -> bool {
        let is_coming = piece.release > self.now || !self.coming.is_empty();
        self.discipline == Discipline::NonPreemptive && is_coming
    }

    /// Takes one more into the order that was promised before: behind the others, as they are restored in the order in
    /// which they were to be worked on when they were promised; at another place if somebody would be late.
    fn restore_in_order(&mut self, piece: Piece) {
        let begin = self.begin();
        let is_good = self.ordered().spare_with(piece, begin) >= 0;
        let found = if is_good { None } else { self.change_for(piece) };
        self.ordered().insert(piece, found.unwrap_or(Change::Before(None)));
    }

    /// The order in which everything that waits is worked on, as far as there is one that has to be kept.
    pub(crate) fn order(&self) -> Vec<Ticket> {
        let numbers: Vec<u64> = match &self.sequence {
            Some(sequence) => sequence.numbers().collect(),
            None => self.ready.iter().map(|key| key.number).collect(),
        };
        let known: BTreeSet<u64> = numbers.iter().copied().collect();
        let rest: Vec<u64> =
            self.entries.keys().filter(|number| !known.contains(number)).copied().collect();
        numbers.into_iter().chain(rest).map(Ticket).collect()
    }

    fn put_in(&mut self, piece: Piece) {
        if self.needs_order(piece) {
            match self.change_for(piece) {
                Some(change) => self.ordered().insert(piece, change),
                None => {
                    let all = self.entries.values().copied().chain([piece]);
                    self.sequence = Some(Sequence::by_deadline(all, self.begin()));
                }
            }
        } else {
            self.sequence = None;
        }
        self.take_in(piece);
    }

    fn take_in(&mut self, piece: Piece) {
        self.safe_until = i64::MIN;
        self.tree.insert(key(&piece), piece.cost);
        self.entries.insert(piece.number, piece);
        if piece.release > self.now {
            self.coming.insert((piece.release, piece.number));
            if let Some(later) = &mut self.later {
                later.insert(piece);
            }
        } else {
            self.ready.insert(key(&piece));
        }
    }

    fn take_out(&mut self, number: u64) -> bool {
        let Some(piece) = self.entries.remove(&number) else { return false };
        let is_coming = self.coming.remove(&(piece.release, number));
        if let Some(later) = self.later.as_mut().filter(|_| is_coming) {
            later.remove(piece);
        }
        self.ready.remove(&key(&piece));
        self.begun.remove(&key(&piece));
        self.tree.remove(key(&piece));
        match &mut self.sequence {
            Some(sequence) if !self.coming.is_empty() => sequence.remove(number),
            Some(_) | None => self.sequence = None,
        }
        true
    }
}

fn key(piece: &Piece) -> Key {
    piece.key()
}
