//! The plan of one slot of a resource: its entries, and for when more can be promised.
//!
//! A slot does one task at a time. Its plan is a list of entries and nothing else: every question is answered from
//! the list in one pass. The work of people is preemptible: earliest due date first. Executors finish what they
//! have begun, and work in the order of the list.
//!
//! Invariant: if nothing takes longer than planned and the performer works by the plan, every entry is done by its
//! due date, unless it was late when it was added. A new entry makes no other entry late if its due date is not
//! before [`Plan::earliest`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::ControlFlow;
use std::sync::Arc;

use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::supply::{Supply, Work};

/// Whether work that has begun is preemptible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// People. The test is exact: a refused task fits in no order.
    Preemptive,
    /// Executors finish what they have begun. A new entry is tried at every place of the list, which keeps its
    /// order otherwise: a refusal can be too careful, a promise is always kept.
    NonPreemptive,
}

/// The release time and the due date of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Window {
    #[n(0)]
    pub release: Timestamp,
    #[n(1)]
    pub due: Timestamp,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Promised,
    /// A regular task of a person. Nobody reports its end: it counts as done by the plan.
    Regular,
    /// Unpromised work of an executor. It has no due date.
    Other,
}

/// How much of the working time can be planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// All but the reserve.
    #[default]
    Normal,
    /// All: a promise failed elsewhere.
    Reserve,
}

/// A stretch of a plan: an entry is worked on from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub key: u64,
    pub kind: Kind,
    pub from: Timestamp,
    pub to: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u64,
    release: i64,
    due: i64,
    cost: i64,
    left: i64,
    /// The time by which it has exceeded its planned length.
    over: i64,
    is_begun: bool,
    /// Only held: its performer does not see it yet.
    is_held: bool,
    kind: Kind,
}

/// All points and lengths are working time of the slot, in milliseconds.
#[derive(Clone, Debug)]
pub struct Plan {
    supply: Arc<Supply>,
    discipline: Discipline,
    /// In per cent: what planning leaves free, except after a fault.
    reserve: u8,
    /// How far the performer can fall behind although nothing takes longer than planned. Every entry is planned to
    /// be done so much earlier.
    lag: i64,
    now: i64,
    /// Of people by due date; of executors in the order of work, begun entries first.
    entries: Vec<Entry>,
}

/// Later than every due date, and small enough not to overflow when added to.
const NEVER: i64 = i64::MAX / 4;
/// An executor's overrun is extended by this part of the task's length each time.
pub(crate) const OVERRUN_PART: i64 = 4;

impl Plan {
    pub fn new(supply: Supply, discipline: Discipline, reserve: u8, now: Timestamp) -> Self {
        let (now, supply) = (supply.until(now).0, Arc::new(supply));
        Self { supply, discipline, reserve: reserve.min(90), lag: 0, now, entries: Vec::new() }
    }

    /// Sets the lag.
    #[must_use]
    pub fn with_lag(mut self, lag: Work) -> Self {
        self.lag = lag.0;
        self
    }

    /// The planned work that is promised or held.
    pub fn load(&self) -> Work {
        let own = self.entries.iter().filter(|entry| entry.kind != Kind::Regular);
        Work(own.map(|entry| entry.left).sum())
    }

    /// The same plan without any work until a moment.
    #[must_use]
    pub fn idle_until(&self, moment: Timestamp) -> Self {
        let mut idle = self.clone();
        idle.now = self.now.max(self.supply.until(moment).0);
        idle
    }

    /// The earliest time at which new work can be done without making an entry late; `None` beyond the known
    /// working time.
    pub fn earliest(&self, release: Timestamp, cost: Work, depth: Depth) -> Option<Timestamp> {
        let release = self.supply.until(release).0.max(self.now);
        let end = match (depth, self.reserve) {
            (Depth::Normal, 1..) => self.without_reserve().end_of(release, self.stretched(cost.0)),
            (Depth::Normal, 0) | (Depth::Reserve, _) => self.end_of(release, cost.0),
        };
        self.supply.moment(Work(end).plus(Work(self.lag)))
    }

    fn end_of(&self, release: i64, cost: i64) -> i64 {
        match self.discipline {
            Discipline::Preemptive => self.earliest_between(release, cost),
            Discipline::NonPreemptive => self.place(release, cost).1,
        }
    }

    /// The plan with every length stretched, so that the reserve stays free.
    fn without_reserve(&self) -> Self {
        let mut stretched = self.clone();
        stretched.entries.iter_mut().for_each(|it| it.left = self.stretched(it.left));
        stretched
    }

    fn stretched(&self, length: i64) -> i64 {
        let part = 100 - i64::from(self.reserve);
        length.saturating_mul(100).saturating_add(part - 1) / part
    }

    /// Adds an entry, whether it fits or not.
    pub fn add(&mut self, key: u64, window: Window, cost: Work) {
        self.put(key, window, (cost.0, cost.0), false);
    }

    /// Adds a begun entry with its remaining work.
    pub fn add_begun(&mut self, key: u64, window: Window, (cost, left): (Work, Work)) {
        self.put(key, window, (cost.0, left.0), true);
    }

    fn put(&mut self, key: u64, window: Window, (cost, left): (i64, i64), is_begun: bool) {
        let release = self.supply.until(window.release).0;
        let release = if is_begun { release.min(self.now) } else { release };
        let due = self.supply.until(window.due).0.min(NEVER).saturating_sub(self.lag);
        let kind = Kind::Promised;
        let entry =
            Entry { key, release, due, cost, left, over: 0, is_begun, is_held: false, kind };
        let at = match self.discipline {
            Discipline::Preemptive => self.by_due(&entry),
            Discipline::NonPreemptive if is_begun => self.begun(),
            Discipline::NonPreemptive => {
                let release = release.max(self.now);
                let (place, end) = self.place(release, left);
                if end <= due { place } else { self.by_due(&entry).max(self.begun()) }
            }
        };
        self.entries.insert(at, entry);
    }

    /// Adds an entry that was in the plan before, at the end: so an executor keeps its order.
    pub fn add_again(&mut self, key: u64, window: Window, cost: Work) {
        self.put(key, window, (cost.0, cost.0), false);
        if self.discipline == Discipline::NonPreemptive
            && let Some(at) = self.find(key)
        {
            let entry = self.entries.remove(at);
            self.entries.push(entry);
        }
    }

    /// The index of an entry in the list.
    pub fn place_of(&self, key: u64) -> Option<usize> {
        self.find(key)
    }

    /// The working time between two moments.
    pub fn work_between(&self, from: Timestamp, to: Timestamp) -> Work {
        Work((self.supply.until(to).0 - self.supply.until(from).0).max(0))
    }

    fn by_due(&self, entry: &Entry) -> usize {
        // Among equal due dates, people finish begun entries first.
        let rank = |it: &Entry| (it.due, !it.is_begun, it.key);
        self.entries.partition_point(|it| rank(it) <= rank(entry))
    }

    /// Adds a regular task of a person.
    pub fn add_regular(&mut self, key: u64, window: Window, cost: Work) {
        let release = self.supply.until(window.release).0;
        let due = self.supply.until(window.due).0;
        // How much of it is done already is unknown; a part that cannot be done does not count.
        let left = cost.0.min(due - release.max(self.now));
        if left > 0 {
            let (is_begun, is_held, kind) = (false, false, Kind::Regular);
            let cost = left;
            let entry = Entry { key, release, due, cost, left, over: 0, is_begun, is_held, kind };
            self.entries.insert(self.by_due(&entry), entry);
        }
    }

    /// Adds unpromised work of an executor.
    pub fn add_other(&mut self, key: u64, left: Work) {
        let (release, due, left) = (self.now, NEVER, left.0.max(1));
        let (cost, is_begun, is_held, kind) = (left, true, false, Kind::Other);
        let entry = Entry { key, release, due, cost, left, over: 0, is_begun, is_held, kind };
        self.entries.insert(self.begun(), entry);
    }

    /// Returns the remaining work.
    pub fn remove(&mut self, key: u64) -> Option<Work> {
        let at = self.find(key)?;
        Some(Work(self.entries.remove(at).left))
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }

    pub fn holds(&self, key: u64) -> bool {
        self.find(key).is_some()
    }

    pub fn is_begun(&self, key: u64) -> bool {
        self.find(key).is_some_and(|at| self.entries[at].is_begun)
    }

    pub fn left(&self, key: u64) -> Option<Work> {
        self.find(key).map(|at| Work(self.entries[at].left))
    }

    /// Marks an entry as held or firm. A held entry does not delay the work on others.
    pub fn set_held(&mut self, key: u64, is_held: bool) {
        if let Some(at) = self.find(key) {
            self.entries[at].is_held = is_held;
        }
    }

    /// Work on the entry has begun, at a moment that may be past: the time since then counts as work on the entry,
    /// unless another entry was known to be begun.
    pub fn begin(&mut self, key: u64, since: Timestamp) {
        let since = self.supply.until(since).0;
        let Some(at) = self.find(key) else { return };
        if self.entries[at].is_begun {
            return;
        }
        let is_alone = !self.entries.iter().any(|entry| entry.is_begun);
        let entry = &mut self.entries[at];
        entry.is_begun = true;
        // Its predecessor was done sooner than planned.
        entry.release = entry.release.min(since);
        if is_alone {
            entry.left = (entry.left - (self.now - since).max(0)).max(1.min(entry.left));
        }
        let entry = self.entries.remove(at);
        let at = match self.discipline {
            Discipline::Preemptive => self.by_due(&entry),
            Discipline::NonPreemptive => self.begun(),
        };
        self.entries.insert(at, entry);
    }

    /// The entry was given back and starts over.
    pub fn leave(&mut self, key: u64) {
        if let Some(at) = self.find(key) {
            let mut entry = self.entries.remove(at);
            (entry.is_begun, entry.left) = (false, entry.cost);
            let at = self.by_due(&entry).max(self.begun());
            self.entries.insert(at, entry);
        }
    }

    /// The number of begun entries of an executor. They come first.
    fn begun(&self) -> usize {
        match self.discipline {
            Discipline::Preemptive => 0,
            Discipline::NonPreemptive => {
                self.entries.iter().take_while(|entry| entry.is_begun).count()
            }
        }
    }

    /// Whether an executor may begin this entry now, or other work of this length, without making another entry
    /// late.
    pub fn may_begin(&self, key: Option<u64>, cost: Work) -> bool {
        if self.begun() > 0 {
            return false;
        }
        // An entry that is late already must not become later.
        let ends = self.ends_in_order(&self.entries);
        let rest = self.entries.iter().copied().zip(ends);
        let (rest, ends): (Vec<Entry>, Vec<i64>) =
            rest.filter(|(entry, _)| Some(entry.key) != key).unzip();
        let at = key.and_then(|key| self.find(key));
        let cost = at.map_or(cost.0, |at| self.entries[at].left);
        let latest = latest_starts(&rest, &ends);
        latest.first().is_none_or(|latest| self.now.saturating_add(cost) <= *latest)
    }

    /// Entries whose planned end exceeds the due date by more than the lag and a leeway: a part of their length, at
    /// most `most`.
    pub fn late(&self, part: i64, most: Work) -> Vec<u64> {
        let ends = self.ends();
        let all = self.entries.iter().zip(ends);
        let late = all.filter(|(entry, end)| {
            let leeway = (entry.cost / part).min(most.0);
            entry.kind == Kind::Promised && *end > entry.due + self.lag + leeway
        });
        late.map(|(entry, _)| entry.key).collect()
    }

    /// When an entry is planned to begin and to end.
    pub fn times(&self, key: u64) -> Option<(Timestamp, Timestamp)> {
        let at = self.find(key)?;
        let (mut start, mut end, mut left) = (None, self.now, self.entries[at].left);
        self.run(NEVER, |one, from, to| {
            if one == at {
                start.get_or_insert(from);
                (end, left) = (to, left - (to - from));
            }
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let end = self.supply.moment(Work(end))?;
        Some((self.supply.begin(Work(start.unwrap_or(self.now))).unwrap_or(end).min(end), end))
    }

    /// All turns of the plan, in order.
    pub fn turns(&self) -> Vec<Turn> {
        let mut turns: Vec<(usize, i64, i64)> = Vec::new();
        self.run(NEVER, |one, from, to| {
            match turns.last_mut() {
                Some((before, _, until)) if *before == one && *until == from => *until = to,
                Some(_) | None => turns.push((one, from, to)),
            }
            ControlFlow::Continue(())
        });
        let turn = |(one, from, to): (usize, i64, i64)| {
            let Entry { key, kind, .. } = self.entries[one];
            let (from, to) = (self.supply.begin(Work(from))?, self.supply.moment(Work(to))?);
            Some(Turn { key, kind, from: from.min(to), to })
        };
        turns.into_iter().filter_map(turn).collect()
    }

    /// Advances the plan to a moment: begun entries were worked on.
    pub fn pass(&mut self, now: Timestamp) {
        let to = self.supply.until(now).0;
        if to <= self.now {
            return;
        }
        match self.discipline {
            Discipline::Preemptive => self.work_by_due(to),
            Discipline::NonPreemptive => {
                let passed = to - self.now;
                if let Some(entry) = self.entries.first_mut().filter(|entry| entry.is_begun) {
                    let left = entry.left - passed;
                    entry.over += (-left).max(0);
                    // Other work may have delayed it by as much as the lag.
                    entry.left = match (left > 0, entry.over >= self.lag) {
                        (true, _) => left,
                        (false, true) => (entry.cost / OVERRUN_PART).max(1),
                        (false, false) => 1,
                    };
                }
            }
        }
        self.now = to;
        self.entries.retain(|it| it.kind != Kind::Regular || it.left > 0 && it.due > to);
    }

    /// Advances the plan of a person: the entry due first was worked on, if it is begun or regular. As long as the
    /// entry due first is not begun, no progress is assumed.
    fn work_by_due(&mut self, to: i64) {
        let mut at = self.now;
        while at < to {
            let coming = self.entries.iter().filter(|it| it.left > 0 && it.release > at);
            let next = coming.map(|it| it.release).min().unwrap_or(to).min(to);
            let is_known = |it: &&mut Entry| it.is_begun || !it.is_held;
            let mut known = self.entries.iter_mut().filter(is_known);
            let head = known.find(|it| it.left > 0 && it.release <= at);
            at = match head {
                Some(head) if head.is_begun || head.kind == Kind::Regular => {
                    let until = next.min(at + head.left);
                    head.left -= until - at;
                    until
                }
                Some(_) | None => next,
            };
        }
    }

    /// The planned end of each entry.
    fn ends(&self) -> Vec<i64> {
        let mut ends = vec![self.now; self.entries.len()];
        self.run(NEVER, |one, _, to| {
            ends[one] = to;
            ControlFlow::Continue(())
        });
        ends
    }

    /// Runs the plan up to a point and reports each stretch of work, until `tell` breaks.
    fn run(&self, until: i64, mut tell: impl FnMut(usize, i64, i64) -> ControlFlow<()>) {
        let mut at = self.now;
        if self.discipline == Discipline::NonPreemptive {
            for (one, entry) in self.entries.iter().enumerate() {
                let from = if entry.is_begun { at } else { at.max(entry.release) };
                at = from + entry.left;
                if tell(one, from, at).is_break() {
                    return;
                }
            }
            return;
        }
        let open = self.entries.iter().enumerate().filter(|(_, entry)| entry.left > 0);
        let (now, later): (Vec<_>, Vec<_>) = open.partition(|(_, entry)| entry.release <= at);
        // Earliest due date first: entries released at the outset are sorted; later ones are put into order on
        // their release.
        let mut here = now.into_iter().map(|(one, entry)| (one, entry.left));
        let mut first = here.next();
        let mut come: BinaryHeap<Reverse<(usize, i64)>> = BinaryHeap::new();
        let later = later.into_iter().filter(|(_, entry)| entry.release < until);
        let mut coming: Vec<(i64, usize)> = later.map(|(one, it)| (it.release, one)).collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        while at < until {
            while let Some((_, one)) = coming.pop_if(|(release, _)| *release <= at) {
                come.push(Reverse((one, self.entries[one].left)));
            }
            let next = coming.last().map_or(until, |(release, _)| *release);
            let top = come.peek().map(|Reverse(top)| *top);
            let top = top.filter(|(one, _)| first.is_none_or(|(first, _)| *one < first));
            let Some((one, left)) = top.or(first) else {
                if coming.is_empty() {
                    return;
                }
                at = next;
                continue;
            };
            let to = next.min(at + left);
            if tell(one, at, to).is_break() {
                return;
            }
            let rest = left - (to - at);
            match come.peek_mut().filter(|_| top.is_some()) {
                Some(top) if rest == 0 => drop(PeekMut::pop(top)),
                Some(mut top) => top.0.1 = rest,
                None if rest == 0 => first = here.next(),
                None => first = Some((one, rest)),
            }
            at = to;
        }
    }

    /// When a person can have done so much work from a point on, if every other entry is done as late as possible.
    fn earliest_between(&self, release: i64, cost: i64) -> i64 {
        let idle = self.idle_from(release, &[]);
        // An entry that is late already counts as due at its planned end: new work does not delay it more.
        let idle = idle.or_else(|| self.idle_from(release, &self.ends()));
        let mut missing = cost;
        for (from, to) in idle.into_iter().flatten().rev() {
            if to - from >= missing {
                return from + missing;
            }
            missing -= to - from;
        }
        NEVER
    }

    /// When a person is idle from a point on if every entry is done as late as possible, latest stretch first;
    /// before that point by due dates. No other order leaves more time until any later point. `None` if an entry is
    /// late already; `ends` are the dates that count as due dates then.
    fn idle_from(&self, release: i64, ends: &[i64]) -> Option<Vec<(i64, i64)>> {
        let mut left: Vec<i64> = self.entries.iter().map(|entry| entry.left).collect();
        if release > self.now {
            self.run(release, |one, from, to| {
                left[one] -= to - from;
                ControlFlow::Continue(())
            });
        }
        let due = |one: usize| match ends.get(one) {
            Some(end) => self.entries[one].due.max(*end),
            None => self.entries[one].due,
        };
        let mut order: Vec<usize> = (0..self.entries.len()).filter(|one| left[*one] > 0).collect();
        if !ends.is_empty() {
            order.sort_by_key(|one| due(*one));
        }
        let mut at = order.last().map_or(release, |one| due(*one)).max(release);
        let mut idle = vec![(at, NEVER)];
        // Backwards: the latest release first. Among entries released at the outset the order does not matter.
        let (mut ready, mut at_once): (BinaryHeap<(i64, i64)>, i64) = (BinaryHeap::new(), 0);
        loop {
            while let Some(one) = order.pop_if(|one| due(*one) >= at) {
                match self.entries[one].release {
                    begin if begin > release => ready.push((begin, left[one])),
                    _ => at_once += left[one],
                }
            }
            let next = order.last().map_or(i64::MIN, |one| due(*one));
            let (begin, length) = match ready.peek() {
                Some(last) => *last,
                None if at_once > 0 => (release, std::mem::take(&mut at_once)),
                None if next == i64::MIN => break,
                None => {
                    idle.push((next.max(release), at));
                    at = next;
                    continue;
                }
            };
            let from = (at - length).max(next);
            if from < begin {
                return None;
            }
            let rest = length - (at - from);
            match ready.peek_mut() {
                Some(last) if rest == 0 => drop(PeekMut::pop(last)),
                Some(mut last) => last.1 = rest,
                None => at_once = rest,
            }
            at = from;
        }
        if at > release {
            idle.push((release, at));
        }
        Some(idle)
    }

    /// The first place in the list of an executor where a new entry makes no other late, and its end there.
    fn place(&self, release: i64, cost: i64) -> (usize, i64) {
        let ends = self.ends_in_order(&self.entries);
        let latest = latest_starts(&self.entries, &ends);
        for at in self.begun()..=self.entries.len() {
            let free = at.checked_sub(1).map_or(self.now, |before| ends[before]);
            let end = free.max(release).saturating_add(cost);
            if latest.get(at).is_none_or(|latest| end <= *latest) {
                return (at, end);
            }
        }
        (self.entries.len(), NEVER)
    }

    fn ends_in_order(&self, entries: &[Entry]) -> Vec<i64> {
        let mut at = self.now;
        let ends = entries.iter().map(|entry| {
            at = if entry.is_begun { at } else { at.max(entry.release) } + entry.left;
            at
        });
        ends.collect()
    }
}

/// The latest start of each entry of a list such that it and its successors are in time, or no later than now.
fn latest_starts(entries: &[Entry], ends: &[i64]) -> Vec<i64> {
    let mut latest = vec![0; entries.len()];
    let mut next = i64::MAX;
    for (at, entry) in entries.iter().enumerate().rev() {
        next = next.min(entry.due.max(ends[at])) - entry.left;
        latest[at] = next;
    }
    latest
}
