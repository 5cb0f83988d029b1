//! A backlog without a pause, into which tasks come that are released later: what a server has. The plan against brute
//! force, while time passes; and a large one of what can wait for long against somebody who works by the hour.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

mod small;

use legwork_model::time::Timestamp;
use legwork_promise::{Discipline, Plan, Supply, Ticket, Work};
use proptest::prelude::*;
use small::{Small, has_preemptive_plan, window};

const START: Timestamp = Timestamp(0);

#[derive(Clone, Copy, Debug)]
enum Happening {
    /// Released and due so much later.
    Asked(Small),
    /// Somebody works on what is first for so long.
    Hours(i64),
    /// Or for an hour on something else, also before its time, or on nothing: where there is the time for that.
    Other(usize),
    Idle,
    /// What is being worked on is done, sooner than said.
    Sooner,
    Cancelled(usize),
    /// All that is released within some hours from then on is not wanted any more.
    Stretch(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let at_once = (0_i64..1, 1_i64..50, 1_i64..4);
    let later = (1_i64..40, 1_i64..12, 1_i64..4);
    let asked =
        |(release, more, cost)| Happening::Asked(Small { release, deadline: release + more, cost });
    prop_oneof![
        2 => at_once.prop_map(asked),
        4 => later.prop_map(asked),
        3 => (1_i64..8).prop_map(Happening::Hours),
        1 => (0_usize..30).prop_map(Happening::Other),
        1 => Just(Happening::Idle),
        1 => Just(Happening::Sooner),
        1 => (0_usize..30).prop_map(Happening::Cancelled),
    ]
}

/// Where much is released later and can wait for long: more than an order of work is kept for.
fn far_ahead() -> impl Strategy<Value = Happening> {
    let asked =
        |(release, more, cost)| Happening::Asked(Small { release, deadline: release + more, cost });
    prop_oneof![
        4 => (40_i64..100, 1_i64..120, 1_i64..6).prop_map(asked),
        2 => (60_i64..140, 1_i64..60, 5_i64..30).prop_map(asked),
        2 => (40_i64..100).prop_map(Happening::Stretch),
        1 => (1_i64..8).prop_map(Happening::Hours),
        1 => (0_usize..60).prop_map(Happening::Other),
        1 => (0_usize..60).prop_map(Happening::Cancelled),
    ]
}

/// Whether all are in time if at every hour the most urgent is worked on that can be: if any order does it, that does.
fn is_done_by_the_hour(tasks: &[Small], now: i64) -> bool {
    let mut left: Vec<Small> = tasks.iter().copied().filter(|task| task.cost > 0).collect();
    left.sort_by_key(|task| task.deadline);
    let mut hour = now;
    while !left.is_empty() {
        if let Some(next) = left.iter().position(|task| task.release <= hour) {
            left[next].cost -= 1;
            if left[next].deadline <= hour {
                return false;
            }
        }
        left.retain(|task| task.cost > 0);
        hour += 1;
    }
    true
}

/// Somebody with a plan, and what was promised in it.
#[derive(Clone)]
struct Worker {
    plan: Plan,
    has_plan: fn(&[Small], i64) -> bool,
    now: i64,
    promised: Vec<(Ticket, Small)>,
}

impl Worker {
    fn new(has_plan: fn(&[Small], i64) -> bool) -> Self {
        let plan = Plan::new(Supply::always(START), Discipline::Preemptive, START);
        Self { plan, has_plan, now: 0, promised: Vec::new() }
    }

    fn can_do(&self, more: Option<Small>) -> bool {
        let left = |ticket: &Ticket| self.plan.left(*ticket).map_or(0, |left| left.0);
        let own = self.promised.iter().map(|(ticket, task)| Small { cost: left(ticket), ..*task });
        (self.has_plan)(&own.chain(more).collect::<Vec<_>>(), self.now)
    }

    fn ask(&mut self, task: Small) {
        let there_is = self.can_do(Some(task));
        assert_eq!(self.plan.fits(window(task), Work(task.cost)), there_is, "{task:?}");
        let earliest = self.plan.earliest(Timestamp(task.release), Work(task.cost)).unwrap().0;
        assert!(self.can_do(Some(Small { deadline: earliest, ..task })), "{task:?} at {earliest}");
        let sooner = Small { deadline: earliest - 1, ..task };
        assert!(!self.can_do(Some(sooner)), "{task:?} before {earliest}");
        let reserved = self.plan.reserve(window(task), Work(task.cost));
        assert_eq!(reserved.is_some(), there_is, "{task:?}");
        if let Some((ticket, times)) = reserved {
            assert!(task.release <= times.start.0 && times.end.0 <= task.deadline, "{times:?}");
            assert!(times.end.0 - times.start.0 >= task.cost, "{times:?}");
            self.promised.push((ticket, task));
        }
    }

    fn hour(&mut self) {
        self.now += 1;
        self.plan.pass(Timestamp(self.now));
        if let Some(done) = self.plan.running().filter(|it| self.plan.left(*it) == Some(Work(0))) {
            self.end(done);
        }
    }

    fn end(&mut self, ticket: Ticket) {
        assert!(self.plan.end(ticket));
        self.promised.retain(|(of, _)| *of != ticket);
    }

    /// Does something if all can be kept after it as well.
    fn dare(&mut self, does: impl FnOnce(&mut Self)) {
        let mut after = self.clone();
        does(&mut after);
        if after.can_do(None) {
            *self = after;
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Asked(Small { release, deadline, cost }) => {
                let (release, deadline) = (self.now + release, self.now + deadline);
                self.ask(Small { release, deadline, cost });
            }
            Happening::Hours(hours) => (0..hours).for_each(|_| {
                self.plan.next().into_iter().for_each(|next| self.plan.begin_with(next));
                self.hour();
            }),
            Happening::Other(which) => {
                let ticket = self.promised.get(which).map(|(ticket, _)| *ticket);
                self.dare(|worker| {
                    worker.plan.stop();
                    ticket.into_iter().for_each(|ticket| worker.plan.begin_with(ticket));
                    worker.hour();
                });
            }
            Happening::Idle => self.dare(|worker| {
                worker.plan.stop();
                worker.hour();
            }),
            Happening::Sooner => {
                self.plan.running().into_iter().for_each(|ticket| self.end(ticket));
            }
            Happening::Cancelled(which) => {
                let ticket = self.promised.get(which).map(|(ticket, _)| *ticket);
                ticket.into_iter().for_each(|ticket| self.end(ticket));
            }
            Happening::Stretch(from) => {
                let from = self.now + from;
                let gone = |task: &Small| (from..from + 6).contains(&task.release);
                let gone = self.promised.iter().filter(|(_, task)| gone(task));
                for ticket in gone.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
                    self.end(ticket);
                }
            }
        }
        assert_eq!(self.plan.endangered(), [], "at {}", self.now);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_released_later_is_refused_only_if_no_plan_does_it_with_the_backlog(
        backlog in prop::collection::vec((1_i64..90, 1_i64..5), 5..40),
        happenings in prop::collection::vec(happening(), 1..30),
    ) {
        let mut worker = Worker::new(has_preemptive_plan);
        for (deadline, cost) in backlog {
            worker.ask(Small { release: 0, deadline, cost });
        }
        for happening in happenings {
            worker.happens(happening);
        }
    }

    #[test]
    fn of_much_that_can_wait_for_long_and_is_released_later_only_that_is_refused_which_makes_something_late(
        backlog in prop::collection::vec((40_i64..100, 10_i64..120, 1_i64..6), 40..60),
        happenings in prop::collection::vec(far_ahead(), 1..25),
    ) {
        let mut worker = Worker::new(is_done_by_the_hour);
        for (release, more, cost) in backlog {
            worker.ask(Small { release, deadline: release + more, cost });
        }
        for happening in happenings {
            worker.happens(happening);
        }
    }
}
