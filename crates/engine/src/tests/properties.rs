//! Properties of every process and every run.

use std::collections::BTreeMap;

use legwork_model::arbitrary::cases;
use legwork_model::event::{Event, Record};
use legwork_model::id::{Activity, ElementId};
use legwork_model::value::Value;
use proptest::prelude::*;

use super::oracle::{Knowledge, check_end, check_marking};
use super::random::{Dice, Moment, dice, lively, schemas, steady, wild};
use crate::evolve::{apply, begin};
use crate::{Lifecycle, NodeState, State, decide, evolve, replay};

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn the_order_in_which_the_rules_are_applied_does_not_matter(
        schema in schemas(), dice in dice(40), seed in any::<u64>(),
    ) {
        let mut order = Dice(seed);
        let mut next = |waiting: &mut Vec<_>| {
            let place = order.roll(waiting.len());
            (!waiting.is_empty()).then(|| waiting.swap_remove(place))
        };
        let mut state: Option<State> = None;
        for Moment { record, state: expected, .. } in lively(&schema, &dice) {
            for event in &record.events {
                let (changes, undecided) = (&mut Vec::new(), &mut Vec::new());
                match (&mut state, event) {
                    (None, Event::Created(created)) => {
                        let at = record.at;
                        state = Some(begin(&schema, created, at, changes, undecided, &mut next));
                    }
                    (None, _) => panic!("begins with {event:?}"),
                    (Some(state), event) => {
                        apply(&schema, state, event, record.at, changes, undecided, &mut next);
                    }
                }
            }
            prop_assert_eq!(state.as_ref(), Some(&expected));
        }
    }

    #[test]
    fn replaying_every_prefix_of_the_history_rebuilds_the_state(
        schema in schemas(), dice in dice(40),
    ) {
        let moments = lively(&schema, &dice);
        let history: Vec<&Record<Event>> = moments.iter().map(|moment| &moment.record).collect();
        for (length, moment) in moments.iter().enumerate() {
            let rebuilt = replay(&schema, history[..=length].iter().copied());
            prop_assert_eq!(rebuilt.as_ref(), Some(&moment.state));
        }
        prop_assert_eq!(replay(&schema, history[1..].iter().copied()), None);
    }

    #[test]
    fn every_reachable_state_is_a_fixpoint_of_the_rules_and_something_is_open_until_the_end(
        schema in schemas(), dice in dice(60),
    ) {
        for Moment { state, .. } in lively(&schema, &dice) {
            match state.lifecycle() {
                Lifecycle::Aborted => prop_assert_eq!(state.open(&schema).count(), 0),
                Lifecycle::Completed => check_end(&schema, &state),
                Lifecycle::Running | Lifecycle::Suspended => {
                    check_marking(&schema, &state);
                    prop_assert!(state.open(&schema).count() > 0);
                }
            }
        }
    }

    #[test]
    fn whatever_is_done_in_whatever_order_the_instance_ends_properly(
        schema in schemas(), dice in dice(400),
    ) {
        let moments = steady(&schema, &dice);
        let state = &moments[moments.len() - 1].state;
        if state.lifecycle() == Lifecycle::Completed {
            check_marking(&schema, state);
            check_end(&schema, state);
            prop_assert_eq!(state.ended_at(), Some(state.latest()));
        } else {
            prop_assert_eq!(moments.len(), dice.len());
        }
    }

    #[test]
    fn a_reader_gets_the_version_of_its_last_preceding_writer(
        schema in schemas(), dice in dice(60),
    ) {
        let mut knowledge = Knowledge::new(&schema);
        let mut state: Option<State> = None;
        for Moment { record, state: after, .. } in lively(&schema, &dice) {
            for event in &record.events {
                knowledge.learn(state.as_ref(), event);
                match &mut state {
                    None => state = replay(&schema, [&record].into_iter()),
                    Some(state) => evolve(&schema, state, event, record.at, &mut Vec::new()),
                }
            }
            let ended = after.lifecycle() == Lifecycle::Completed;
            let end = ended.then(|| Activity::once(schema.end()));
            let readers = after.open(&schema).map(|open| open.activity).chain(end);
            for reader in readers {
                for element in (0..schema.elements.len()).map(|place| ElementId(place as u32)) {
                    let expected = knowledge.value(&after, reader.node, element);
                    prop_assert_eq!(after.value_for(&schema, &reader, element), expected);
                }
            }
        }
    }

    #[test]
    fn what_an_open_activity_reads_does_not_change(schema in schemas(), dice in dice(60)) {
        let mut seen: BTreeMap<Activity, Vec<(ElementId, Value)>> = BTreeMap::new();
        for Moment { state, .. } in lively(&schema, &dice) {
            let mut now = BTreeMap::new();
            for open in state.open(&schema) {
                let inputs = state.inputs(&schema, &open.activity);
                let inputs = inputs.into_iter().map(|(e, value)| (e, value.clone())).collect();
                if let Some(before) = seen.get(&open.activity) {
                    prop_assert_eq!(before, &inputs);
                }
                now.insert(open.activity, inputs);
            }
            seen = now;
        }
    }

    #[test]
    fn following_the_changes_tells_what_is_open(schema in schemas(), dice in dice(60)) {
        let mut open: BTreeMap<Activity, NodeState> = BTreeMap::new();
        for Moment { state, changes, .. } in lively(&schema, &dice) {
            for change in changes {
                let known = open.remove(&change.activity);
                prop_assert_eq!(known.unwrap_or(NodeState::NotActivated), change.from);
                if change.to.is_pending() {
                    open.insert(change.activity, change.to);
                }
            }
            let told = state.open(&schema).map(|open| (open.activity, open.state)).collect();
            prop_assert_eq!(&open, &told);
        }
    }

    #[test]
    fn a_snapshot_reads_as_the_state_it_was_taken_of(schema in schemas(), dice in dice(40)) {
        for Moment { state, .. } in lively(&schema, &dice) {
            let bytes = state.to_bytes();
            let mut copy = State::from_bytes(&bytes).unwrap();
            prop_assert_eq!(&copy, &state);
            copy.intern(|name| name.clone());
            prop_assert_eq!(&copy, &state);
            let torn = State::from_bytes(&bytes[..bytes.len() - 1]);
            prop_assert!(torn.is_err());
        }
    }

    #[test]
    fn no_command_whatsoever_upsets_the_engine(
        schema in schemas(), dice in dice(30), nonsense in dice(60),
    ) {
        let moments = lively(&schema, &dice);
        for Moment { state, record, .. } in &moments {
            for seed in &nonsense {
                let command = wild(&schema, &mut Dice(*seed));
                if let Ok(decision) = decide(&schema, state, command, record.at) {
                    prop_assert!(!decision.events.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_foreign_history_does_not_upset_the_engine(
        mine in schemas(), other in schemas(), dice in dice(40),
    ) {
        let moments = lively(&other, &dice);
        let state = replay(&mine, moments.iter().map(|moment| &moment.record)).unwrap();
        for open in state.open(&mine) {
            state.inputs(&mine, &open.activity);
        }
        state.results(&mine);
        prop_assert_eq!(State::from_bytes(&state.to_bytes()).unwrap(), state);
    }
}
