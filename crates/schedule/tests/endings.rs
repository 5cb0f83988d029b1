//! `adaptive` comes to an end however long executors queue out of sight; a fixed time-out does not.
//!
//! Each executor first works off tasks of other engines: `hidden` ms before each of our tasks. Dead
//! executors never answer. An abandoned attempt is answered all the same, late, and takes the executor's
//! time.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::time::Timestamp;
use legwork_schedule::{
    Adaptive, AssignmentId, Book, Candidate, Dice, ExecutorId, KindId, Oxthas, Policy, Task,
};
use proptest::prelude::*;

const KINDS: u32 = 2;
/// No task takes more attempts.
const ATTEMPTS_MAX: u32 = 200;

#[derive(Clone, Debug)]
struct World {
    /// The work of other engines before each of our tasks, in milliseconds; `None` for the dead.
    hidden: Vec<Option<i64>>,
    /// Type, size and arrival time of our tasks.
    tasks: Vec<(u32, u32, i64)>,
    usual_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival(usize),
    Answer(AssignmentId),
    TimeOut(AssignmentId),
    Look,
}

struct Run<'a> {
    world: &'a World,
    book: Book,
    events: BTreeSet<(i64, u64, Happening)>,
    made: u64,
    free_at: Vec<i64>,
    awaited: BTreeMap<AssignmentId, usize>,
    attempts: Vec<u32>,
    tried: Vec<Vec<ExecutorId>>,
}

impl Run<'_> {
    fn put(&mut self, at: i64, happening: Happening) {
        self.made += 1;
        self.events.insert((at, self.made, happening));
    }

    fn assign(&mut self, policy: &mut dyn Policy, number: usize, now: i64) {
        let (kind, size, _) = self.world.tasks[number];
        let task =
            Task { kind: KindId(kind), size: f64::from(size), attempt: self.attempts[number] };
        let all = || (0..self.world.hidden.len() as u32).map(|id| Candidate::near(ExecutorId(id)));
        let tried = &mut self.tried[number];
        if tried.len() == self.world.hidden.len() {
            tried.clear();
        }
        let among: Vec<Candidate> = all().filter(|to| !tried.contains(&to.executor)).collect();
        let executor = policy.choose(&self.book, &task, &among, Timestamp(now)).unwrap();
        tried.push(executor);
        self.attempts[number] += 1;
        let to = Candidate::near(executor);
        let patience =
            policy.timeout_ms(&self.book, to, &task, self.world.usual_ms, Timestamp(now));
        let id = self.book.assigned(to, task, Timestamp(now));
        self.awaited.insert(id, number);
        self.put(now.saturating_add(patience), Happening::TimeOut(id));
        let place = executor.0 as usize;
        if let Some(hidden) = self.world.hidden[place] {
            let done = self.free_at[place].max(now) + hidden + i64::from(size);
            self.free_at[place] = done;
            self.put(done, Happening::Answer(id));
        }
    }

    fn abandon(&mut self, policy: &mut dyn Policy, id: AssignmentId, now: i64) {
        let Some(number) = self.awaited.remove(&id) else { return };
        self.book.timed_out(id, Timestamp(now));
        if self.attempts[number] < ATTEMPTS_MAX {
            self.assign(policy, number, now);
        }
    }
}

/// The number of attempts of each task that was accepted.
fn run(world: &World, policy: &mut dyn Policy) -> Vec<Option<u32>> {
    let count = world.tasks.len();
    let mut run = Run {
        world,
        book: Book::new(world.hidden.len()),
        events: BTreeSet::new(),
        made: 0,
        free_at: vec![0; world.hidden.len()],
        awaited: BTreeMap::new(),
        attempts: vec![0; count],
        tried: vec![Vec::new(); count],
    };
    let mut accepted = vec![None; count];
    for (number, (_, _, at)) in world.tasks.iter().enumerate() {
        run.put(*at, Happening::Arrival(number));
    }
    run.put(0, Happening::Look);
    while let Some((now, _, happening)) = run.events.pop_first() {
        match happening {
            Happening::Arrival(number) => run.assign(policy, number, now),
            Happening::Answer(id) => {
                run.book.answered(id, Timestamp(now));
                if let Some(number) = run.awaited.remove(&id) {
                    accepted[number] = Some(run.attempts[number]);
                }
            }
            Happening::TimeOut(id) => run.abandon(policy, id, now),
            Happening::Look => {
                let ids: Vec<AssignmentId> = run.awaited.keys().copied().collect();
                for id in ids {
                    let entry = run.book.entry(id).copied();
                    if entry.is_some_and(|one| policy.is_abandoned(&run.book, &one, Timestamp(now)))
                    {
                        run.abandon(policy, id, now);
                    }
                }
                let is_open = accepted.iter().zip(&run.attempts);
                if is_open.clone().any(|(one, tried)| one.is_none() && *tried < ATTEMPTS_MAX) {
                    run.put(now + 1 + now / 64, Happening::Look);
                }
            }
        }
    }
    accepted
}

fn worlds() -> impl Strategy<Value = World> {
    // Queues of 50 ms to a minute, time-outs of 1 to 40 ms: no first attempt is ever in time.
    let living = prop::collection::vec(50..60_000_i64, 1..4);
    let dead = 0..3_usize;
    let tasks = prop::collection::vec((0..KINDS, 1..30_u32, 0..5_000_i64), 1..12);
    (living, dead, tasks, 1..40_i64, any::<u64>()).prop_map(
        |(living, dead, tasks, usual_ms, seed)| {
            let mut hidden: Vec<Option<i64>> = living.into_iter().map(Some).collect();
            let mut dice = Dice::new(seed);
            (0..dead).for_each(|_| hidden.insert(dice.below(hidden.len() + 1), None));
            World { hidden, tasks, usual_ms }
        },
    )
}

proptest! {
    /// An attempt at a living executor is accepted as soon as twice the first timeout, as often as it was
    /// doubled, exceeds everything that can be queued before it. In every round there is at most one
    /// attempt at each dead executor in between.
    #[test]
    fn some_attempt_of_adaptive_is_accepted_however_long_the_queues_are(world in worlds()) {
        let accepted = run(&world, &mut Adaptive);
        let executors = world.hidden.len() as u32;
        let longest = world.hidden.iter().flatten().max().copied().unwrap_or(0) + 30;
        let bound_of = |attempts: u32| {
            // Everything that was ever assigned may be queued before it.
            let ahead = longest * world.tasks.len() as i64 * i64::from(attempts);
            ahead.ilog2() + 1 + 2 * executors
        };
        // The smallest number of attempts that satisfies its own bound.
        let bound = (1..ATTEMPTS_MAX).find(|attempts| bound_of(*attempts) <= *attempts).unwrap();
        for attempts in &accepted {
            prop_assert!(attempts.is_some_and(|count| count <= bound), "{accepted:?} {bound}");
        }
    }
}

#[test]
fn a_constant_time_out_abandons_everything_for_ever() {
    let world =
        World { hidden: vec![Some(100), Some(200)], tasks: vec![(0, 10, 0); 4], usual_ms: 50 };
    let printed = run(&world, &mut Oxthas::new(3, Dice::new(1)));
    assert!(printed.iter().all(Option::is_none), "{printed:?}");
    let adaptive = run(&world, &mut Adaptive);
    assert!(
        adaptive.iter().all(|attempts| attempts.is_some_and(|count| count < 10)),
        "{adaptive:?}"
    );
}
