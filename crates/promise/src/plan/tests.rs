//! The timeline is mended, not made anew: it has to come to the same, also with a backlog. And what is late is known without
//! looking at everything each time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::timeline::Timeline;

/// What a plan has, without the way in which it has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// From when on, by when and how much.
    waiting: BTreeMap<Ticket, (i64, i64, i64)>,
    /// What was begun and cannot be put aside, and how much is left.
    at_hand: Vec<(Ticket, i64)>,
    begun: Vec<Ticket>,
    /// What is done regularly, by when and how much.
    regular: BTreeSet<(i64, i64)>,
}

impl Image {
    pub(crate) fn tickets(&self) -> BTreeSet<Ticket> {
        self.waiting.keys().copied().chain(self.at_hand.iter().map(|(it, _)| *it)).collect()
    }

    pub(crate) fn without(mut self, tickets: &BTreeSet<Ticket>) -> Self {
        self.waiting.retain(|ticket, _| !tickets.contains(ticket));
        self.begun.retain(|ticket| !tickets.contains(ticket));
        self
    }
}

impl Plan {
    pub(crate) fn image(&self) -> Image {
        let (regular, waiting): (Vec<Piece>, Vec<Piece>) =
            self.entries.values().partition(|piece| self.loads.is_job(piece.number));
        let piece =
            |it: &Piece| (Ticket(it.number), (it.release.max(self.now), it.deadline, it.cost));
        Image {
            waiting: waiting.iter().map(piece).collect(),
            at_hand: self.at_hand().map(|(it, _)| (Ticket(it.number), it.cost)).collect(),
            begun: self.begun().collect(),
            regular: regular.iter().map(|it| (it.deadline, it.cost)).collect(),
        }
    }

    /// All that it keeps agrees, and what it remembers is what it would find out anew.
    pub(crate) fn is_sound(&self) {
        let costs: i64 = self.entries.values().map(|piece| piece.cost).sum();
        assert_eq!(costs, self.tree.cost());
        assert_eq!(self.ready.len() + self.coming.len(), self.entries.len());
        let all: BTreeSet<u64> = self.entries.keys().copied().collect();
        if let Some(sequence) = &self.sequence {
            assert_eq!(sequence.numbers().collect::<BTreeSet<_>>(), all);
        }
        assert!(all.last().is_none_or(|last| *last <= self.last));
        assert!(self.aside.is_empty());
        let (mut kept, mut anew) = (self.clone(), self.clone());
        (anew.safe_until, anew.later) = (i64::MIN, None);
        assert_eq!(kept.late(), anew.late());
    }
}

#[derive(Clone, Debug)]
enum Happening {
    /// Released so much later, due so much after that, so much work.
    Asked(i64, i64, i64),
    /// The same, whether it fits or not: it was promised before somebody fell ill.
    Restored(i64, i64, i64),
    /// Somebody works on what is first for so long, on something else, or on nothing.
    Works(i64),
    WorksOn(usize, i64),
    Idles(i64),
    Over(usize),
    /// Taken out to see whether something fits, and put back in.
    Aside(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0_i64..30, 0_i64..40, 1_i64..6).prop_map(|(a, b, c)| Happening::Asked(a, b, c)),
        1 => (0_i64..30, 0_i64..40, 1_i64..6).prop_map(|(a, b, c)| Happening::Restored(a, b, c)),
        3 => (1_i64..5).prop_map(Happening::Works),
        1 => (0_usize..20, 1_i64..5).prop_map(|(which, time)| Happening::WorksOn(which, time)),
        1 => (1_i64..4).prop_map(Happening::Idles),
        2 => (0_usize..20).prop_map(Happening::Over),
        1 => (0_usize..20).prop_map(Happening::Aside),
    ]
}

fn happens(plan: &mut Plan, happening: Happening) {
    let now = plan.now;
    let any = |plan: &Plan, which: usize| {
        let count = plan.entries.len().max(1);
        plan.entries.keys().nth(which % count).map(|number| Ticket(*number))
    };
    match happening {
        Happening::Asked(release, time, cost) => {
            let (release, deadline) = (now + release, now + release + time);
            let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
            plan.reserve(window, Work(cost));
        }
        Happening::Restored(release, time, cost) => {
            let (release, deadline) = (now + release, now + release + time);
            let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
            plan.restore(window, Work(cost), None);
        }
        Happening::Works(time) => {
            if let Some(ticket) = plan.next() {
                plan.begin_with(ticket);
            }
            plan.pass(Timestamp(now + time));
            if let Some(ticket) = plan.running().filter(|it| plan.left(*it) == Some(Work(0))) {
                plan.end(ticket);
            }
        }
        Happening::WorksOn(which, time) => {
            if let Some(ticket) = any(plan, which) {
                plan.begin_with(ticket);
            }
            plan.pass(Timestamp(now + time));
        }
        Happening::Idles(time) => {
            plan.stop();
            plan.pass(Timestamp(now + time));
        }
        Happening::Over(which) => {
            if let Some(ticket) = any(plan, which) {
                plan.end(ticket);
            }
        }
        Happening::Aside(which) => {
            if let Some(ticket) = any(plan, which).filter(|it| plan.set_aside(*it)) {
                is_as_anew(plan);
                if !plan.put_back(ticket) {
                    plan.put_all_back();
                }
            }
        }
    }
}

fn is_as_anew(plan: &Plan) {
    let Some(mended) = plan.later.as_ref().and_then(|later| later.kept_line()) else { return };
    let later = plan.entries.values().filter(|piece| piece.release > plan.now).copied();
    let anew = Timeline::new(later, plan.now, Discipline::Preemptive);
    let turns = |line: &Timeline| -> Vec<(i64, i64, u64)> {
        line.turns().map(|(from, turn)| (from, turn.to, turn.piece.number)).collect()
    };
    assert_eq!(turns(mended), turns(&anew), "at {}", plan.now);
}

/// Who is late if everything is done as the plan shows it, and what is being worked on now before all else. What takes longer
/// than was said and cannot be put aside is not done before now.
fn late_by_turns(plan: &Plan) -> Vec<Ticket> {
    let mut ends = std::collections::BTreeMap::new();
    for turn in plan.turns() {
        ends.extend(turn.ticket.map(|ticket| (ticket, turn.to.0)));
    }
    let running = plan.running.map(|piece| (Ticket(piece.number), plan.now + piece.cost));
    if plan.discipline == Discipline::Preemptive {
        ends.extend(running.filter(|(ticket, _)| ends.contains_key(ticket)));
    }
    let begun = plan.at_hand().map(|(piece, _)| (piece.number, piece));
    let all: Pieces = plan.entries.clone().into_iter().chain(begun).collect();
    let goes_on = |piece: &Piece| plan.goes_on_with(Ticket(piece.number));
    let piece =
        |ticket: &Ticket| all.get(&ticket.0).filter(|piece| piece.cost > 0 || goes_on(piece));
    let late = ends
        .iter()
        .filter_map(|(ticket, end)| piece(ticket).filter(|piece| *end > piece.deadline).map(key));
    let late: BTreeSet<Key> = late.collect();
    late.into_iter().map(|key| Ticket(key.number)).collect()
}

/// When each is done if at every hour the most urgent is worked on that can be, with one more perhaps.
fn ends_by_hours(plan: &Plan, more: Option<Piece>) -> Vec<(u64, i64)> {
    let mut left: Pieces = plan.entries.clone();
    left.extend(more.map(|piece| (piece.number, piece)));
    left.retain(|_, piece| piece.cost > 0);
    let (mut ends, mut hour) = (Vec::new(), plan.now);
    while !left.is_empty() {
        let now = hour;
        hour += 1;
        let ready = left.values_mut().filter(|piece| piece.release <= now);
        if let Some(first) = ready.min_by_key(|piece| key(piece)) {
            first.cost -= 1;
            let number = first.number;
            if first.cost == 0 {
                left.remove(&number);
                ends.push((number, hour));
            }
        }
    }
    ends.sort_unstable();
    ends
}

/// Whether all are in time then.
fn is_in_time(plan: &Plan, more: Option<Piece>) -> bool {
    let of =
        |number: u64| more.filter(|it| it.number == number).or(plan.entries.get(&number).copied());
    let is_late = |(number, end): (u64, i64)| of(number).is_some_and(|it| it.deadline < end);
    !ends_by_hours(plan, more).into_iter().any(is_late)
}

/// Answers to questions are those that working hour by hour gives.
fn answers_as_by_hours(plan: &mut Plan, (release, time, cost): (i64, i64, i64)) {
    let from = plan.now + release;
    let until = |deadline| Window { release: Timestamp(from), deadline: Timestamp(deadline) };
    let fits = plan.fits(until(from + time), Work(cost));
    let earliest = plan.earliest(Timestamp(from), Work(cost)).unwrap().0;
    let number = plan.last + 1;
    let by_hours = |plan: &Plan, deadline| {
        is_in_time(plan, Some(Piece { number, release: from, deadline, idle: 0, cost }))
    };
    assert_eq!(fits, by_hours(plan, from + time), "for {from} to {} {cost}", from + time);
    assert!(by_hours(plan, earliest), "from {from} {cost} by {earliest}");
    assert!(!by_hours(plan, earliest - 1), "from {from} {cost} before {earliest}");
}

/// What is released later is planned for when it is done in the order of deadlines.
fn is_planned_as_by_hours(plan: &mut Plan) {
    for (number, end) in ends_by_hours(plan, None) {
        let Some(piece) = plan.entries.get(&number).copied() else { continue };
        if piece.release > plan.now {
            let end = end.min(piece.deadline);
            let times = plan.times(Ticket(number)).map(|times| times.end);
            assert_eq!(times, Some(Timestamp(end)), "{piece:?} at {}", plan.now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_late_is_what_the_plan_shows_to_be_late(
        happenings in prop::collection::vec(happening(), 1..40),
        regular in prop::collection::vec((0_i64..60, 1_i64..12, 1_i64..4), 0..4),
        can_put_aside: bool,
    ) {
        let start = Timestamp(0);
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let mut plan = Plan::new(Supply::always(start), discipline, start);
        for (release, time, cost) in regular {
            let window = Window { release: Timestamp(release), deadline: Timestamp(release + time) };
            plan.occupy(window, Work(cost));
        }
        for happening in happenings {
            happens(&mut plan, happening);
            prop_assert_eq!(plan.endangered(), late_by_turns(&plan), "at {}", plan.now);
            if can_put_aside {
                let line = Timeline::new(plan.entries.values().copied(), plan.now, discipline);
                let mut ends: Vec<(u64, i64)> =
                    line.ends().into_iter().map(|(piece, end)| (piece.number, end)).collect();
                ends.sort_unstable();
                prop_assert_eq!(ends, ends_by_hours(&plan, None));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_mended_timeline_is_as_if_made_anew_and_answers_as_working_by_the_hour_does(
        backlog in prop::collection::vec((1_i64..90, 1_i64..5), 0..30),
        happenings in prop::collection::vec((happening(), (0_i64..40, 0_i64..20, 1_i64..5)), 1..40),
        regular in prop::option::of((6_i64..12, 1_i64..3, any::<bool>())),
    ) {
        let start = Timestamp(0);
        let mut plan = Plan::new(Supply::always(start), Discipline::Preemptive, start);
        if let Some((period, cost, is_attended)) = regular {
            let load = Load { period: Work(period), cost: Work(cost), is_attended };
            prop_assert!(plan.regularly(load));
        }
        for (time, cost) in backlog {
            happens(&mut plan, Happening::Asked(0, time, cost));
        }
        for (happening, asked) in happenings {
            happens(&mut plan, happening);
            is_as_anew(&plan);
            is_planned_as_by_hours(&mut plan);
            if is_in_time(&plan, None) {
                answers_as_by_hours(&mut plan, asked);
            }
            let ready = plan.entries.values().filter(|piece| piece.release <= plan.now);
            let first = ready.min_by_key(|piece| key(piece)).map(|piece| Ticket(piece.number));
            prop_assert_eq!(plan.next(), first);
        }
    }
}

#[test]
fn what_takes_longer_and_waits_for_something_else_is_not_done_before_that_is() {
    let start = Timestamp(0);
    let mut plan = Plan::new(Supply::always(start), Discipline::NonPreemptive, start);
    let window = |deadline| Window { release: start, deadline: Timestamp(deadline) };
    let (longer, _) = plan.reserve(window(5), Work(2)).unwrap();
    let (other, _) = plan.reserve(window(20), Work(9)).unwrap();
    plan.begin_with(longer);
    plan.pass(Timestamp(2));
    // Nothing is left of it, but it is not done; then it is begun again behind the other.
    plan.stop();
    plan.begin_with(other);
    plan.begin_with(longer);
    assert_eq!(plan.endangered(), [longer]);
}

#[test]
fn what_is_given_up_and_goes_on_takes_its_own_time_and_nothing_elses() {
    let start = Timestamp(0);
    let mut plan = Plan::new(Supply::always(start), Discipline::NonPreemptive, start);
    let mut reserve = |deadline, cost| {
        let window = Window { release: Timestamp(0), deadline: Timestamp(deadline) };
        plan.reserve(window, Work(cost)).unwrap().0
    };
    let (running, behind, waits) = (reserve(50, 10), reserve(60, 5), reserve(70, 5));
    plan.begin_with(running);
    plan.begin_with(behind);
    assert_eq!(plan.times(waits).unwrap().end, Timestamp(20));
    assert!(plan.give_up(behind));
    assert_eq!(plan.times(waits).unwrap().end, Timestamp(20));
}

#[test]
fn what_cannot_be_put_aside_and_takes_longer_is_late_when_its_resource_is_not_free_in_time() {
    let start = Timestamp(0);
    let mut plan = Plan::new(Supply::always(start), Discipline::NonPreemptive, start);
    let window = Window { release: Timestamp(0), deadline: Timestamp(20) };
    let (ticket, _) = plan.reserve(window, Work(10)).unwrap();
    plan.begin_with(ticket);
    plan.pass(Timestamp(12));
    assert!(plan.endangered().is_empty(), "it may be done in the next moment");
    plan.occupy_until(Some(Timestamp(20)));
    assert!(plan.endangered().is_empty());
    plan.occupy_until(Some(Timestamp(23)));
    assert_eq!(plan.late(), [(ticket, 3)]);
}
