//! Steps that may be done anywhere and follow each other are promised at one place, and the case stays there with its data.
//!
//! Such a case is a task that can be taken apart: its steps are the parts. Those on the longest path go together, others
//! beside them where there is less to do (`paths`). Whoever has promised the first of them is asked first for the
//! rest; who has no time for it is not waited for: then all are asked.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::ServerId;
use legwork_model::schema::{NodeKind, Schema};
use legwork_promise::{Leg, Part, ResourceId, Work, paths};

use super::who::Who;
use crate::Site;

/// What it takes to bring a case from one place to another, in milliseconds for each unit of what a byte costs there.
const CARRY_MS: i64 = 1;

impl Site {
    /// For every leg the cluster to which it belongs; `None` if it is done where the definition says, or there is only one
    /// place.
    pub(super) fn clusters(
        &self,
        schema: &Schema,
        legs: &[Leg],
        costs: &[Work],
    ) -> Vec<Option<usize>> {
        let is_free = |leg: &&Leg| is_anywhere(schema, leg);
        let jobs = legs.iter().filter(is_free).filter_map(|leg| schema.node(leg.node).job());
        let doing = jobs.flat_map(|job| self.executors_doing(job));
        let places: BTreeSet<ServerId> = doing.map(|one| self.planner_of(&one)).collect();
        if places.len() < 2 {
            return vec![None; legs.len()];
        }
        let carry = self.way_between(&places);
        in_clusters(legs, costs, |leg| is_anywhere(schema, leg), places.len(), carry)
    }

    /// The most it takes to bring a case from one of these to another.
    fn way_between(&self, places: &BTreeSet<ServerId>) -> Work {
        let Some(seat) = &self.seat else { return Work(0) };
        let pairs = places.iter().flat_map(|a| places.range(..a).map(move |b| (*a, *b)));
        let costs = pairs.map(|(a, b)| seat.topology.cost(a, b));
        Work(i64::from(costs.max().unwrap_or(0)) * CARRY_MS)
    }

    /// Those of them whose plans are kept at one place; `None` if that is nobody, or all.
    pub(super) fn at_place(&self, who: &Who, place: ServerId) -> Option<Who> {
        let is_there = |one: &&ResourceId| self.planner_of(one) == place;
        let all: Vec<ResourceId> = who.all.iter().filter(is_there).cloned().collect();
        let some = !all.is_empty() && all.len() < who.all.len();
        some.then_some(Who { all, only: Vec::new() })
    }
}

/// Whether a step goes where its executor is.
fn is_anywhere(schema: &Schema, leg: &Leg) -> bool {
    let step = schema.node(leg.node);
    matches!(schema.entry_of(step).kind, NodeKind::Locate)
}

/// Those that are free in clusters, at most so many.
fn in_clusters(
    legs: &[Leg],
    costs: &[Work],
    is_free: impl Fn(&Leg) -> bool,
    places: usize,
    carry: Work,
) -> Vec<Option<usize>> {
    let free: Vec<usize> = (0..legs.len()).filter(|leg| is_free(&legs[*leg])).collect();
    let number: BTreeMap<usize, u16> = free.iter().copied().zip(0..).collect();
    let part = |leg: &usize| {
        let after = next_before(legs, *leg, &free).into_iter().filter_map(|leg| number.get(&leg));
        Part { service: costs[*leg], after: after.copied().collect(), carry }
    };
    let parts: Vec<Part> = free.iter().map(part).collect();
    let cluster = paths(&parts, places);
    let of = |leg: usize| number.get(&leg).map(|number| cluster[usize::from(*number)]);
    (0..legs.len()).map(of).collect()
}

/// Those of some legs, in their order, that a leg waits for, without those that are waited for by others of them.
fn next_before(legs: &[Leg], leg: usize, some: &[usize]) -> Vec<usize> {
    let before = legs[leg].after.iter().copied().filter(|it| some.binary_search(it).is_ok());
    let mut before: Vec<usize> = before.collect();
    before.sort_unstable();
    // Whoever is waited for stands before who waits; there may be hundreds, round after round.
    let mut is_waited_for = vec![false; legs.len()];
    let mut next = Vec::new();
    for one in before.into_iter().rev() {
        if !is_waited_for[one] {
            next.push(one);
            legs[one].after.iter().for_each(|it| is_waited_for[*it] = true);
        }
    }
    next.reverse();
    next
}

#[cfg(test)]
mod tests {
    use legwork_model::id::{Iteration, NodeId};

    use super::*;

    fn leg(number: u32, after: &[usize]) -> Leg {
        let iteration = Iteration::default();
        Leg { node: NodeId(number), iteration, after: after.to_vec(), takes: None }
    }

    #[test]
    fn those_that_follow_each_other_stay_together_and_those_beside_them_go_elsewhere() {
        // One begins, a person looks at it, two go on beside each other, one ends.
        let legs =
            [leg(0, &[]), leg(1, &[0]), leg(2, &[0, 1]), leg(3, &[0, 1]), leg(4, &[0, 1, 2, 3])];
        let costs = [2, 9, 5, 6, 1].map(Work);
        let found = in_clusters(&legs, &costs, |leg| leg.node != NodeId(1), 2, Work(1));
        assert_eq!(found[1], None, "whoever looks at it is where they are");
        assert!(found[0] == found[3] && found[3] == found[4], "{found:?}");
        assert!(found[2].is_some() && found[2] != found[3], "{found:?}");
    }

    #[test]
    fn a_leg_waits_for_the_nearest_before_it() {
        let legs = [leg(0, &[]), leg(1, &[0]), leg(2, &[0, 1])];
        assert_eq!(next_before(&legs, 2, &[0, 1, 2]), [1]);
        assert_eq!(next_before(&legs, 2, &[0, 2]), [0]);
    }
}
