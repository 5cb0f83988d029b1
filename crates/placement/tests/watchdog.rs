//! The watchdog: when it proposes something, and what.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_placement::{Mode, Policy, Proposal, Watch, Watched};
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);

fn policy() -> Policy {
    Policy { mode: Mode::Propose, ..Policy::default() }
}

fn watched(weights: &[u32]) -> Vec<Watched> {
    let all = (0..).map(ServerId).zip(weights);
    all.map(|(server, weight)| Watched { server, weight: *weight, meant: *weight }).collect()
}

/// A domain that reports its load every minute.
struct Domain {
    servers: Vec<Watched>,
    policy: Policy,
    watch: Watch,
    now: Timestamp,
}

impl Domain {
    fn new(weights: &[u32]) -> Self {
        let (policy, now) = (policy(), Timestamp(0));
        let watch = Watch::new(&policy, now);
        Self { servers: watched(weights), policy, watch, now }
    }

    /// Runs with these loads for so many minutes; returns when it first proposes something.
    fn run(&mut self, minutes: u32, loads: impl Fn(u32) -> Vec<u64>) -> Option<(u32, Proposal)> {
        for minute in 1..=minutes {
            self.now = self.now.plus(MINUTE);
            let loads: BTreeMap<ServerId, u64> = (0..).map(ServerId).zip(loads(minute)).collect();
            if let Some(proposal) =
                self.watch.on_loads(&self.policy, &self.servers, &loads, self.now)
            {
                return Some((minute, proposal));
            }
        }
        None
    }

    fn steadily(&mut self, minutes: u32, loads: &[u64]) -> Option<(u32, Proposal)> {
        self.run(minutes, |_| loads.to_vec())
    }

    fn apply(&mut self, proposal: &Proposal) {
        for (server, weight) in proposal.weights() {
            self.servers[usize::from(server.0)].weight = weight;
        }
    }
}

fn weights(proposal: &Proposal) -> Vec<u32> {
    proposal.weights().map(|(_, weight)| weight).collect()
}

#[test]
fn load_that_is_where_it_is_meant_to_be_is_left_alone() {
    assert_eq!(Domain::new(&[20, 30, 50]).steadily(2_000, &[210, 295, 495]), None);
}

#[test]
fn a_server_with_too_much_gets_a_smaller_weight() {
    let mut domain = Domain::new(&[1, 1]);
    let (minute, proposal) = domain.steadily(2_000, &[560, 440]).unwrap();
    assert_eq!(minute, 120, "the pause of two hours");
    assert_eq!(weights(&proposal), [44_000, 56_000]);
    assert_eq!(
        proposal.changes[0].to_string(),
        "56.0 % of the load where 50.0 % is meant: weight 44000"
    );
}

#[test]
fn a_step_is_never_larger_than_the_policy_allows() {
    let (_, proposal) = Domain::new(&[1, 1]).steadily(2_000, &[900, 100]).unwrap();
    // A fifth more, a sixth less.
    assert_eq!(weights(&proposal), [40_984, 59_016]);
}

#[test]
fn what_is_off_for_less_than_the_window_is_left_alone() {
    // Ten minutes in every hour: never four parts one after the other.
    let loads = |minute: u32| match minute % 60 {
        0..10 => vec![900, 100],
        _ => vec![470, 530],
    };
    assert_eq!(Domain::new(&[1, 1]).run(2_000, loads), None);
}

#[test]
fn after_any_change_it_waits() {
    let mut domain = Domain::new(&[1, 1]);
    assert_eq!(domain.steadily(100, &[600, 400]), None);
    domain.watch.changed(&domain.policy, domain.now);
    assert_eq!(domain.steadily(119, &[600, 400]), None);
    assert!(domain.steadily(10, &[600, 400]).is_some());
    assert_eq!(domain.steadily(119, &[600, 400]), None, "its own change is to show as well");
}

#[test]
fn it_goes_on_until_the_load_is_nearly_right_and_then_allows_more_again() {
    let mut domain = Domain::new(&[1, 1]);
    assert!(domain.steadily(2_000, &[560, 440]).is_some());
    // 8 % off would not have begun a correction, but does not end one either.
    assert!(domain.steadily(2_000, &[540, 460]).is_some());
    assert_eq!(domain.steadily(2_000, &[510, 490]), None);
    assert_eq!(domain.steadily(2_000, &[540, 460]), None);
}

#[test]
fn nothing_is_concluded_while_a_server_tells_nothing() {
    let mut domain = Domain::new(&[1, 1]);
    assert_eq!(domain.steadily(2_000, &[900]), None);
    assert_eq!(domain.steadily(29, &[900, 100]), None, "a whole window from then on");
    assert!(domain.steadily(10, &[900, 100]).is_some());
}

#[test]
fn nothing_is_concluded_from_next_to_no_load() {
    assert_eq!(Domain::new(&[1, 1]).steadily(2_000, &[9, 3]), None);
}

#[test]
fn a_server_without_a_weight_and_one_alone_are_not_watched() {
    assert_eq!(Domain::new(&[1]).steadily(2_000, &[900]), None);
    assert_eq!(Domain::new(&[1, 0]).steadily(2_000, &[900, 900]), None);
    let (_, proposal) = Domain::new(&[1, 0, 1]).steadily(2_000, &[600, 900, 400]).unwrap();
    assert_eq!(proposal.weights().map(|(id, _)| id.0).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn switched_off_it_says_nothing() {
    let mut domain = Domain::new(&[1, 1]);
    domain.policy.mode = Mode::Off;
    assert_eq!(domain.steadily(2_000, &[900, 100]), None);
}

#[test]
fn a_load_that_no_weight_can_move_does_not_drive_a_weight_away() {
    let mut domain = Domain::new(&[1, 1]);
    let mut proposals = 0;
    while let Some((_, proposal)) = domain.steadily(2_000, &[900, 100]) {
        domain.apply(&proposal);
        proposals += 1;
        assert!(proposals < 20, "{:?}", domain.servers);
    }
    let share = f64::from(domain.servers[0].weight) / 100_000.0;
    assert!(share > 0.1, "{share}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn where_load_follows_weights_it_comes_to_rest_near_what_is_meant(
        meant in prop::collection::vec(1..100_u32, 2..6),
        costs in prop::collection::vec(60..160_u64, 6),
    ) {
        let mut domain = Domain::new(&meant);
        let loads = |servers: &[Watched]| -> Vec<u64> {
            let all: u64 = servers.iter().map(|each| u64::from(each.weight)).sum();
            let part = |each: &Watched| u64::from(each.weight) * 1_000_000 / all;
            servers.iter().zip(&costs).map(|(each, cost)| part(each) * cost / 100).collect()
        };
        let mut proposals = 0;
        loop {
            let now = loads(&domain.servers);
            let Some((_, proposal)) = domain.steadily(3_000, &now) else { break };
            domain.apply(&proposal);
            proposals += 1;
            prop_assert!(proposals <= 12, "{:?}", domain.servers);
        }
        let (now, all) = (loads(&domain.servers), f64::from(meant.iter().sum::<u32>()));
        let total: u64 = now.iter().sum();
        for (load, meant) in now.iter().zip(&meant) {
            let off = (*load as f64 / total as f64) / (f64::from(*meant) / all) - 1.0;
            prop_assert!(off.abs() < 0.101, "{off} in {now:?}");
        }
    }
}
