//! Whatever is asked for, however odd, is answered: nothing is counted beyond what can be.

mod two;
mod works;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Discipline, Displaces, Message, Offer, Plan, Said, Span, Supply, Task, Window, Work,
};
use proptest::prelude::*;
use two::{NOW, Two, is_promised_at, task};

/// A moment at which people live.
const TODAY: i64 = 1_700_000_000_000;

/// Moments and amounts near the ends of what can be counted, and usual ones.
fn odd() -> impl Strategy<Value = i64> {
    prop_oneof![
        (0_i64..3).prop_map(|more| i64::MIN + more),
        (0_i64..3).prop_map(|less| i64::MAX - less),
        (0_i64..3).prop_map(|less| i64::MAX / 200 - less),
        -2_i64..100,
        (0_i64..100).prop_map(|more| TODAY + more),
    ]
}

fn window((release, deadline): (i64, i64)) -> Window {
    Window { release: Timestamp(release), deadline: Timestamp(deadline) }
}

fn plan(can_put_aside: bool, has_nights: bool) -> Plan {
    let days = (0..5).map(|day| TODAY + day * 50);
    let days = days.map(|from| Span { from: Timestamp(from), to: Timestamp(from + 30), share: 70 });
    let supply = match has_nights {
        true => Supply::new(days),
        false => Supply::always(Timestamp(TODAY)),
    };
    let discipline = if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
    Plan::new(supply, discipline, Timestamp(TODAY))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_plan_answers_whatever_is_asked(
        asked in prop::collection::vec(((odd(), odd()), odd()), 1..20),
        can_put_aside: bool,
        has_nights: bool,
    ) {
        let mut plan = plan(can_put_aside, has_nights);
        for (times, cost) in asked {
            let fits = plan.fits(window(times), Work(cost));
            prop_assert_eq!(plan.reserve(window(times), Work(cost)).is_some(), fits);
            if let Some(earliest) = plan.earliest(Timestamp(times.0), Work(cost)) {
                prop_assert!(plan.fits(window((times.0, earliest.0)), Work(cost)));
            }
            prop_assert_eq!(plan.endangered(), vec![]);
        }
    }

    #[test]
    fn a_planner_answers_whatever_another_asks(
        asked in prop::collection::vec(((odd(), odd()), odd(), any::<bool>()), 1..10),
    ) {
        let mut two = Two::new();
        let minor = Task { service: Work(4_000), ..task(1, 5_000, 1, &[0]) };
        prop_assert!(is_promised_at(&two.does(|node| node.submit(minor.clone(), NOW)), minor.id, 0));
        for (number, (times, cost, is_offered)) in (2..).zip(asked) {
            let task = task(number, 0, 5, &[0, 1]);
            let task = Task { window: window(times), service: Work(cost), ..task };
            let task = Task { displaces: Displaces::WhenTold, ..task };
            let (reply_to, asker, until) = (ServerId(1), ServerId(1), Timestamp(times.1));
            let message = match is_offered {
                true => Message::Offer(Offer {
                    tasks: vec![task.clone()],
                    asker,
                    attempt: 1,
                    next: Vec::new(),
                    bids_until: None,
                    earliest: None,
                }),
                false => Message::Request { task: Box::new(task.clone()), reply_to, until },
            };
            let said = Said { to: ServerId(0), surplus: cost, message };
            let answers = two.nodes[0].hear(ServerId(1), said, NOW);
            prop_assert_eq!(answers.len(), 1, "{:?}", answers);
            // Nor is anything beyond what can be counted if it is asked for here.
            two.does(|node| node.submit(task, NOW));
        }
    }
}

#[test]
fn nothing_is_promised_for_more_work_than_can_be_counted() {
    let mut desk = Two::new().nodes[0].desk.clone();
    let endless = Task { service: Work(i64::MAX), ..task(1, i64::MAX, 1, &[0]) };
    assert_eq!((desk.could(&endless), desk.earliest(&endless)), (false, None));
    let over = Task { service: Work(1), ..task(1, i64::MIN, 1, &[0]) };
    assert_eq!((desk.could(&over), desk.earliest(&over)), (false, Some(Timestamp(1))));
}
