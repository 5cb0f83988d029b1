//! Which server of a domain an instance has: shares, moved spreads, chains of layouts.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::event::Validity;
use legwork_model::id::{InstanceId, ServerId};
use legwork_placement::{Chain, Exceptions, Layout, Rule, SPREADS, Weighted};
use proptest::prelude::*;

fn weights(of: &[u32]) -> Vec<Weighted> {
    (0..).map(ServerId).zip(of.iter().copied()).collect()
}

fn first(of: &[u32]) -> Layout {
    Layout::first(&weights(of)).unwrap()
}

fn then(layout: &Layout, of: &[u32]) -> Layout {
    layout.next(&weights(of)).unwrap()
}

fn text(layout: &Layout) -> String {
    let intervals = layout.intervals();
    let intervals = intervals.map(|(begin, _, server)| format!("{begin:08x}:{}", server.0));
    intervals.collect::<Vec<_>>().join(" ")
}

fn id(created_ms: u64, spread: u32) -> InstanceId {
    InstanceId::new(created_ms, spread.rotate_left(7), spread, ServerId(0))
}

/// The exact shares by weights, of `SPREADS`.
fn exact(of: &[u32]) -> Vec<f64> {
    let all: u64 = of.iter().map(|weight| u64::from(*weight)).sum();
    of.iter().map(|weight| f64::from(*weight) / all as f64 * SPREADS as f64).collect()
}

// Every server computes these from the published topologies: other values would divide a domain in
// two ways.
#[test]
fn layouts_stay_what_they_were_bit_for_bit() {
    let paper = first(&[20, 30, 50]);
    assert_eq!(text(&paper), "00000000:0 33333334:1 80000000:2");
    let changed = then(&paper, &[50, 30, 20]);
    assert_eq!(text(&changed), "00000000:0 33333334:1 80000000:2 b3333334:0");
    let added = then(&changed, &[50, 30, 20, 100]);
    assert_eq!(
        text(&added),
        "00000000:0 33333334:1 5999999b:3 80000000:2 99999999:3 b3333334:0 c0000000:3"
    );
    assert_eq!(text(&first(&[3, 2])), "00000000:0 9999999a:1");
    assert_eq!(text(&first(&[1, 1000])), "00000000:0 00417875:1");
    assert_eq!(text(&first(&[1, 0, 1])), "00000000:0 80000000:2");
    assert_eq!(text(&then(&first(&[1, 1]), &[0, 1])), "00000000:1");
}

#[test]
fn a0_4_a_thousand_equal_steps_give_exactly_the_shares() {
    let mut servers = [0; 3];
    for step in 0..1_000_u64 {
        let spread = ((2 * step + 1) * SPREADS / 2_000) as u32;
        servers[usize::from(first(&[20, 30, 50]).server(spread).0)] += 1;
    }
    assert_eq!(servers, [200, 300, 500]);
}

#[test]
fn the_last_spread_before_an_interval_is_not_in_it() {
    let paper = first(&[20, 30, 50]);
    for (spread, server) in [
        (0, 0),
        (0x3333_3333, 0),
        (0x3333_3334, 1),
        (0x7FFF_FFFF, 1),
        (0x8000_0000, 2),
        (u32::MAX, 2),
    ] {
        assert_eq!(paper.server(spread), ServerId(server), "{spread:08x}");
    }
}

#[test]
fn without_a_weight_there_is_no_layout() {
    assert_eq!(Layout::first(&[]), None);
    assert_eq!(Layout::first(&weights(&[0, 0])), None);
    assert_eq!(first(&[1]).next(&weights(&[0])), None);
}

#[test]
fn from_20_30_50_to_50_30_20_three_tenths_move_and_not_six() {
    let paper = first(&[20, 30, 50]);
    let moved = |layout: &Layout| paper.moved(layout) as f64 / SPREADS as f64;
    assert!((moved(&then(&paper, &[50, 30, 20])) - 0.3).abs() < 1e-9);
    // As the paper lays them out, one after the other.
    assert!((moved(&first(&[50, 30, 20])) - 0.6).abs() < 1e-9);
}

#[test]
fn a_chain_of_changes_leaves_every_instance_where_it_was() {
    let (old, mid, new) = (first(&[1, 0]), first(&[0, 1]), Layout::whole(ServerId(2)));
    let excepted = id(150, 7);
    let chain = Chain::new(old)
        .then(mid, Rule::Since(100))
        .then(new, Rule::Except(Exceptions::new([excepted, id(50, 1)])));
    // Not excepted: the newest, however old the instance is.
    assert_eq!(chain.server(id(50, 2)), ServerId(2));
    assert_eq!(chain.server(id(500, 7)), ServerId(2));
    // Excepted: the layout before applies to instances created after 100.
    assert_eq!(chain.server(excepted), ServerId(1));
    assert_eq!(chain.server(id(50, 1)), ServerId(0));
    assert_eq!(chain.latest_since(), Some(100));
}

#[test]
fn the_moment_of_a_change_belongs_to_what_was_before() {
    let chain = Chain::whole(ServerId(0)).then(Layout::whole(ServerId(1)), Rule::Since(100));
    let servers = [99, 100, 101].map(|moment| chain.server(id(moment, 5)));
    assert_eq!(servers, [ServerId(0), ServerId(0), ServerId(1)]);
}

#[test]
fn exceptions_shrink_as_instances_end_and_divisions_go_with_the_last_one() {
    let (a, b) = (id(1, 1), id(2, 2));
    let exceptions = Exceptions::new([a, b, a]);
    assert_eq!(exceptions.len(), 2);
    let mut chain =
        Chain::whole(ServerId(0)).then(Layout::whole(ServerId(1)), Rule::Except(exceptions));
    chain.forget(&BTreeSet::from([a]));
    assert_eq!((chain.server(b), chain.versions().count()), (ServerId(0), 2));
    chain.forget(&BTreeSet::from([b]));
    assert_eq!(chain, Chain::whole(ServerId(1)));
}

#[test]
fn divisions_that_no_instance_can_have_any_more_are_dropped() {
    let whole = |server| Layout::whole(ServerId(server));
    let since =
        Chain::new(whole(0)).then(whole(1), Rule::Since(100)).then(whole(2), Rule::Since(200));
    // Only excepted instances go on to earlier layouts: their ids decide.
    let excepted = Exceptions::new([id(50, 1), id(150, 3), id(250, 2)]);
    let mut mixed = since.then(whole(3), Rule::Except(excepted));
    mixed.forget(&BTreeSet::from([id(150, 3)]));
    let kept: Vec<u16> = mixed.versions().map(|version| version.layout.server(0).0).collect();
    assert_eq!(kept, [3, 2, 0]);
    assert_eq!([id(50, 1), id(250, 2), id(150, 3)].map(|id| mixed.server(id).0), [0, 2, 3]);
}

#[test]
fn a_rule_is_recorded_and_restored() {
    let ids: Vec<InstanceId> = (1..=9_000).map(|n| id(n, n as u32)).collect();
    let rule = Rule::Except(Exceptions::new(ids.iter().rev().copied()));
    let portions = Exceptions::new(ids.iter().copied()).portions();
    assert_eq!(portions.iter().map(Vec::len).collect::<Vec<_>>(), [4_000, 4_000, 1_000]);
    assert_eq!(portions.concat(), ids);
    let recorded = rule.recorded().unwrap();
    assert_eq!(recorded, Validity::Except { ids: 9_000 });
    assert_eq!(Rule::restored(recorded, portions.concat()), Some(rule));
    assert_eq!(Rule::restored(recorded, portions[..2].concat()), None);
    assert_eq!(Rule::restored(Validity::Since { ms: 7 }, []), Some(Rule::Since(7)));
    assert_eq!(Rule::Always.recorded(), None);
}

/// Weights, at least one of them not zero.
fn some_weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![Just(0), 1..10_u32, Just(1_000_000), 0..1_000_000_u32];
    prop::collection::vec(weight, 1..12)
        .prop_filter("nobody would work", |all| all.iter().any(|weight| *weight > 0))
}

#[derive(Clone, Debug)]
enum Method {
    Since(u64),
    /// Exceptions for the active instances that would move, as in Algorithm 4.
    Except,
}

fn some_changes() -> impl Strategy<Value = Vec<(Vec<u32>, Method)>> {
    let method = prop_oneof![(0..1_000_u64).prop_map(Method::Since), Just(Method::Except)];
    prop::collection::vec((some_weights(), method), 0..8)
}

fn build(first_weights: &[u32], changes: &[(Vec<u32>, Method)], active: &[InstanceId]) -> Chain {
    changes.iter().fold(Chain::new(first(first_weights)), |chain, (of, method)| {
        let layout = then(chain.newest(), of);
        let rule = match method {
            Method::Since(moment) => Rule::Since(*moment),
            Method::Except => {
                let moves = |id: &&InstanceId| chain.server(**id) != layout.server(id.spread());
                Rule::Except(Exceptions::new(active.iter().filter(moves).copied()))
            }
        };
        chain.then(layout, rule)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn shares_are_those_of_the_weights(all in prop::collection::vec(some_weights(), 1..6)) {
        let mut layout = first(&all[0]);
        for of in &all {
            layout = then(&layout, of);
            let shares = layout.shares();
            prop_assert_eq!(shares.values().sum::<u64>(), SPREADS);
            for (server, exact) in (0..).map(ServerId).zip(exact(of)) {
                let share = shares.get(&server).copied().unwrap_or(0) as f64;
                prop_assert!((share - exact).abs() < 1.001, "{server:?}: {share} for {exact}");
            }
            // Neighbours differ: no interval is longer than it looks.
            let owners: Vec<ServerId> = layout.intervals().map(|(_, _, server)| server).collect();
            prop_assert!(owners.windows(2).all(|pair| pair[0] != pair[1]));
        }
    }

    #[test]
    fn a_change_moves_half_of_what_the_shares_differ_by(
        all in prop::collection::vec(some_weights(), 2..6),
    ) {
        let mut layout = first(&all[0]);
        for of in &all[1..] {
            let next = then(&layout, of);
            let (before, after) = (layout.shares(), next.shares());
            let servers: BTreeSet<ServerId> = before.keys().chain(after.keys()).copied().collect();
            let share = |shares: &BTreeMap<ServerId, u64>, server| {
                shares.get(server).copied().unwrap_or(0)
            };
            let differ: u64 =
                servers.iter().map(|s| share(&before, s).abs_diff(share(&after, s))).sum();
            prop_assert_eq!(layout.moved(&next) * 2, differ);
            prop_assert_eq!(next.moved(&layout) * 2, differ);
            prop_assert_eq!(then(&next, of), next.clone());
            layout = next;
        }
    }

    #[test]
    fn every_spread_is_in_the_interval_that_names_its_server(
        all in prop::collection::vec(some_weights(), 1..6), spreads in prop::collection::vec(any::<u32>(), 32),
    ) {
        let layout = all[1..].iter().fold(first(&all[0]), |layout, of| then(&layout, of));
        for spread in spreads {
            let at = u64::from(spread);
            let within = |(begin, len, _): &(u64, u64, ServerId)| (*begin..begin + len).contains(&at);
            let found: Vec<ServerId> =
                layout.intervals().filter(within).map(|(_, _, server)| server).collect();
            prop_assert_eq!(found, [layout.server(spread)]);
            for server in layout.shares().into_keys() {
                let own = layout.within(server, spread).unwrap();
                prop_assert_eq!(layout.server(own), server);
            }
        }
    }

    #[test]
    fn a_chain_answers_as_its_definition_says(
        start in some_weights(), changes in some_changes(),
        ids in prop::collection::vec((0..1_000_u64, any::<u32>()), 1..40),
    ) {
        let ids: Vec<InstanceId> = ids.into_iter().map(|(ms, spread)| id(ms, spread)).collect();
        let (active, others) = ids.split_at(ids.len() / 2);
        let chain = build(&start, &changes, active);
        prop_assert_eq!(&build(&start, &changes, active), &chain);
        for id in active.iter().chain(others) {
            let applies = |rule: &Rule| match rule {
                Rule::Always => true,
                Rule::Since(moment) => id.created_ms() > *moment,
                Rule::Except(ids) => !ids.iter().any(|other| other == *id),
            };
            let version = chain.versions().find(|version| applies(&version.rule)).unwrap();
            prop_assert_eq!(chain.server(*id), version.layout.server(id.spread()));
        }
    }

    #[test]
    fn a_change_by_exceptions_moves_no_active_instance(
        start in some_weights(), changes in prop::collection::vec(some_weights(), 1..6),
        ids in prop::collection::vec((0..1_000_u64, any::<u32>()), 1..40),
    ) {
        let active: Vec<InstanceId> = ids.into_iter().map(|(ms, spread)| id(ms, spread)).collect();
        let before = Chain::new(first(&start));
        let changes: Vec<_> = changes.into_iter().map(|of| (of, Method::Except)).collect();
        let after = build(&start, &changes, &active);
        for id in active {
            prop_assert_eq!(after.server(id), before.server(id));
        }
    }

    #[test]
    fn what_is_forgotten_changes_no_active_instance(
        start in some_weights(), changes in some_changes(),
        ids in prop::collection::vec((0..1_000_u64, any::<u32>(), any::<bool>()), 1..40),
    ) {
        let all: Vec<InstanceId> = ids.iter().map(|(ms, spread, _)| id(*ms, *spread)).collect();
        let ended = ids.iter().filter(|(_, _, ended)| *ended);
        let ended: BTreeSet<InstanceId> = ended.map(|(ms, spread, _)| id(*ms, *spread)).collect();
        let active: Vec<InstanceId> = all.iter().filter(|id| !ended.contains(id)).copied().collect();
        let chain = build(&start, &changes, &all);
        let mut smaller = chain.clone();
        smaller.forget(&ended);
        for id in &active {
            prop_assert_eq!(smaller.server(*id), chain.server(*id));
        }
        for version in smaller.versions() {
            if let Rule::Except(ids) = &version.rule {
                prop_assert!(ids.iter().all(|id| !ended.contains(&id)));
            }
        }
        // New instances have the newest layout as before.
        prop_assert_eq!(smaller.newest(), chain.newest());
    }

    #[test]
    fn a_set_of_exceptions_has_what_was_put_in(
        ids in prop::collection::vec((0..1_000_u64, any::<u32>()), 0..200),
        others in prop::collection::vec((0..2_000_u64, any::<u32>()), 0..50),
    ) {
        let ids: BTreeSet<InstanceId> = ids.into_iter().map(|(ms, spread)| id(ms, spread)).collect();
        let set = Exceptions::new(ids.iter().copied());
        prop_assert_eq!(set.len(), ids.len());
        prop_assert!(ids.iter().all(|id| set.contains(*id)));
        for (ms, spread) in others {
            let id = id(ms, spread);
            prop_assert_eq!(set.contains(id), ids.contains(&id));
        }
    }
}
