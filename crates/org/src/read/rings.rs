//! Finds cycles of substitutes who stand in only for each other.
//!
//! A cycle by itself is harmless, and two colleagues who stand in for each other are common. But if
//! no member has a substitute outside, no substitute is left once all of them are absent.

use std::collections::BTreeMap;

use legwork_model::finding::{Rule, Span};
use legwork_model::id::AgentId;
use legwork_model::yaml::fields::list;

use super::Reading;
use crate::organisation::Agent;

/// How many members of a cycle are named.
const NAMED_MAX: usize = 5;

impl Reading {
    /// Requires that all names are known to exist.
    pub(super) fn warn_of_rings(&mut self, agents: &BTreeMap<AgentId, Agent>) {
        let numbers: BTreeMap<&AgentId, usize> = agents.keys().zip(0..).collect();
        let edges: Vec<Vec<usize>> = agents
            .values()
            .map(|agent| {
                agent.substitutes.iter().filter_map(|id| numbers.get(id).copied()).collect()
            })
            .collect();
        let names: Vec<&AgentId> = agents.keys().collect();
        for ring in closed_rings(&edges) {
            let names: Vec<&str> = ring.iter().map(|&number| names[number].as_str()).collect();
            let span = names.first().and_then(|name| self.substitutes.get(*name)).copied();
            let shown = match names.len().checked_sub(NAMED_MAX) {
                None | Some(0) => list(&names),
                Some(more) => format!("`{}` and {more} more", names[..NAMED_MAX].join("`, `")),
            };
            let message = format!(
                "{shown} stand in only for each other: when all of them are away, nobody does"
            );
            let hint = "name another agent as a further substitute of one of them";
            self.report.warning(span.unwrap_or(Span::default()), Rule::Z7, message, hint);
        }
    }
}

/// The groups of two and more that all reach each other and nobody else, ascending.
fn closed_rings(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        entered: vec![None; edges.len()],
        lowest: vec![0; edges.len()],
        component: vec![None; edges.len()],
        open: Vec::new(),
        found: Vec::new(),
    };
    let mut count = 0;
    for start in 0..edges.len() {
        if search.entered[start].is_none() {
            search.from(start, &mut count);
        }
    }
    let Search { component, found, .. } = search;
    let is_closed = |number: usize, ring: &[usize]| {
        ring.iter().flat_map(|&member| &edges[member]).all(|&to| component[to] == Some(number))
    };
    let closed = found.into_iter().enumerate();
    let closed = closed.filter(|(number, ring)| ring.len() > 1 && is_closed(*number, ring));
    let mut rings: Vec<Vec<usize>> = closed.map(|(_, ring)| ring).collect();
    rings.iter_mut().for_each(|ring| ring.sort_unstable());
    rings.sort_unstable();
    rings
}

/// Tarjan's algorithm for strongly connected components, with an explicit stack.
struct Search<'e> {
    edges: &'e [Vec<usize>],
    /// The order of first visits.
    entered: Vec<Option<usize>>,
    /// The earliest visit that each can reach.
    lowest: Vec<usize>,
    component: Vec<Option<usize>>,
    open: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn from(&mut self, start: usize, count: &mut usize) {
        let mut path = vec![(start, 0)];
        while let Some((place, next)) = path.pop() {
            if next == 0 {
                self.entered[place] = Some(*count);
                self.lowest[place] = *count;
                *count += 1;
                self.open.push(place);
            }
            let Some(&to) = self.edges[place].get(next) else {
                self.leave(place);
                if let Some(&(before, _)) = path.last() {
                    self.lowest[before] = self.lowest[before].min(self.lowest[place]);
                }
                continue;
            };
            path.push((place, next + 1));
            match (self.entered[to], self.component[to]) {
                (None, _) => path.push((to, 0)),
                (Some(order), None) => self.lowest[place] = self.lowest[place].min(order),
                (Some(_), Some(_)) => {}
            }
        }
    }

    /// All edges of a place were followed: if it reaches no earlier place, the open places above it
    /// on the stack are one component.
    fn leave(&mut self, place: usize) {
        if self.entered[place] != Some(self.lowest[place]) {
            return;
        }
        let start = self.open.iter().rposition(|&open| open == place).unwrap_or(0);
        let members = self.open.split_off(start);
        members.iter().for_each(|&member| self.component[member] = Some(self.found.len()));
        self.found.push(members);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn reachable(edges: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = edges[from].clone();
        while let Some(place) = open.pop() {
            if found.insert(place) {
                open.extend(&edges[place]);
            }
        }
        found
    }

    #[test]
    fn a_ring_with_a_way_out_is_not_closed() {
        assert_eq!(closed_rings(&[vec![1], vec![0]]), [[0, 1]]);
        assert!(closed_rings(&[vec![1], vec![0, 2], vec![]]).is_empty());
        // Agents who lead into a cycle are not part of it.
        assert_eq!(closed_rings(&[vec![1], vec![2], vec![1]]), [[1, 2]]);
        // A long chain needs no deep stack.
        let chain: Vec<Vec<usize>> = (0..100_000).map(|n| vec![(n + 1) % 100_000]).collect();
        assert_eq!(closed_rings(&chain).len(), 1);
    }

    proptest! {
        #[test]
        fn in_a_closed_ring_everybody_leads_to_all_and_to_nobody_else(
            edges in prop::collection::vec(prop::collection::vec(0..9_usize, 0..3), 9)
        ) {
            let all: Vec<BTreeSet<usize>> = (0..9).map(|from| reachable(&edges, from)).collect();
            let mut expected: Vec<Vec<usize>> = (0..9)
                .filter(|&from| all[from].len() > 1)
                .filter(|&from| all[from].iter().all(|&to| all[to] == all[from]))
                .filter(|&from| all[from].contains(&from))
                .map(|from| all[from].iter().copied().collect())
                .collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(closed_rings(&edges), expected);
        }
    }
}
