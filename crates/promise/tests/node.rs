//! Planners that promise for each other, over a network on which anything can happen to a message.

mod network;

use legwork_promise::Strategy as Asking;
use network::{BUSY, DELAY, Happened, Net, Setting};
use proptest::prelude::*;

fn asking() -> impl Strategy<Value = Asking> {
    prop_oneof![
        1 => Just(Asking::Local),
        1 => Just(Asking::Random),
        1 => Just(Asking::Focused),
        2 => Just(Asking::Bidding),
        4 => Just(Asking::Flexible),
    ]
}

fn setting() -> impl Strategy<Value = Setting> {
    let fault = (1..BUSY, 0_usize..4, 1_i64..60);
    (
        (any::<u64>(), 3_usize..=4, 1_usize..160, asking(), any::<bool>()),
        (0_u64..40, 0_u64..30, 1_u64..9, any::<bool>(), prop::collection::vec(fault, 0..4)),
    )
        .prop_map(|(first, (lost, doubled, delay_max, comes_back, faults))| {
            let (seed, nodes, tasks, strategy, removes) = first;
            Setting {
                seed,
                nodes,
                tasks,
                strategy,
                removes,
                lost,
                doubled,
                delay_max,
                comes_back,
                faults,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn everybody_is_answered_once_promises_are_kept_and_nothing_is_left(setting in setting()) {
        let mut net = Net::new(setting);
        net.run();
        net.is_over();
    }

    #[test]
    fn for_a_task_no_more_is_said_than_is_said_here(setting in setting()) {
        let (nodes, delay_max) = (setting.nodes, DELAY as u64);
        let calm = Setting { lost: 0, doubled: 0, delay_max, faults: Vec::new(), removes: false, ..setting };
        let mut net = Net::new(calm);
        net.run();
        net.is_over();
        let (others, parts) = (nodes - 1, 4);
        let [whole, apart] = net.messages();
        // That it is to be taken, that it was, and that this was heard.
        let later = 3;
        prop_assert!(whole <= 3 * others + 3 + later, "{whole}");
        prop_assert!(apart <= 3 * others + 3 + 4 * others + parts, "{apart}");
    }
}

#[test]
fn tasks_make_way_are_lost_taken_apart_and_promised_elsewhere() {
    let mut all = [0; 5];
    for seed in 0..40 {
        let (strategy, faults) = (Asking::Flexible, vec![(60, 1, 30), (140, 2, 20)]);
        let (lost, doubled, delay_max) = (10, 10, 4);
        let (nodes, tasks, removes) = (3, 140, true);
        let mut net = Net::new(Setting {
            seed,
            nodes,
            tasks,
            strategy,
            removes,
            lost,
            doubled,
            delay_max,
            comes_back: seed % 2 == 0,
            faults,
        });
        net.run();
        net.is_over();
        let Happened { removed, lost, in_parts, elsewhere, refused } = net.happened;
        for (sum, count) in all.iter_mut().zip([removed, lost, in_parts, elsewhere, refused]) {
            *sum += count;
        }
    }
    assert!(all.iter().all(|count| *count > 5), "{all:?}");
}
