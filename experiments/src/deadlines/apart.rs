//! Separable tasks: the assignment of their parts to nodes, and the window of each part.
//!
//! Parts that wait for each other gain nothing at different nodes: linear clustering keeps the longest paths
//! together.

use super::drawn::{Arrival, UNIT};

/// The cost of passing data between two parts at different nodes, besides the message.
const CARRY: i64 = UNIT / 2;

/// A part of a task.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) cost: i64,
    /// Its predecessors, by index; all smaller.
    pub(super) after: Vec<usize>,
}

/// A task that was split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) count: usize,
    /// The numbers of unreserved and of unfinished parts.
    pub(super) open: usize,
    pub(super) left: usize,
}

/// The parts of a task; empty if it is not separable.
pub(super) fn parts(arrival: &Arrival) -> Vec<Part> {
    if arrival.middle.is_empty() || !arrival.is_global {
        return Vec::new();
    }
    let cost = (arrival.service - arrival.middle.iter().sum::<i64>()) / 2;
    let count = arrival.middle.len();
    let middle = arrival.middle.iter().map(|cost| Part { cost: *cost, after: vec![0] });
    let first = Part { cost, after: Vec::new() };
    let last = Part { cost, after: (1..=count).collect() };
    std::iter::once(first).chain(middle).chain([last]).collect()
}

/// The node of every part, below `count`: the longest paths stay together, and each goes to the node with the least
/// work.
pub(super) fn paths(parts: &[Part], count: usize) -> Vec<usize> {
    let cost = |path: &Vec<usize>| path.iter().map(|place| parts[*place].cost).sum::<i64>();
    let mut paths = longest_paths(parts);
    paths.sort_by_key(|path| std::cmp::Reverse(cost(path)));
    let (mut loads, mut places) = (vec![0_i64; count.max(1)], vec![0; parts.len()]);
    for path in &paths {
        let least = (0..loads.len()).min_by_key(|at| loads[*at]).unwrap_or(0);
        loads[least] += cost(path);
        path.iter().for_each(|part| places[*part] = least);
    }
    places
}

/// Takes out the longest path until nothing is left.
fn longest_paths(parts: &[Part]) -> Vec<Vec<usize>> {
    let mut left = vec![true; parts.len()];
    let mut paths = Vec::new();
    while left.contains(&true) {
        let mut length = vec![0_i64; parts.len()];
        let mut before: Vec<Option<usize>> = vec![None; parts.len()];
        for (place, part) in parts.iter().enumerate().filter(|(place, _)| left[*place]) {
            let sooner = part.after.iter().copied().filter(|at| left[*at]);
            let longest = sooner.map(|at| (length[at] + CARRY, at)).max();
            length[place] = part.cost + longest.map_or(0, |(length, _)| length);
            before[place] = longest.map(|(_, at)| at);
        }
        let open = (0..parts.len()).filter(|place| left[*place]);
        let mut at = open.max_by_key(|place| (length[*place], std::cmp::Reverse(*place)));
        let mut path = Vec::new();
        while let Some(place) = at {
            left[place] = false;
            path.push(place);
            at = before[place];
        }
        paths.push(path);
    }
    paths
}

/// The release time and due date of each part, so that all are done between two moments: every path is stretched by
/// the same factor, and a backward pass gives the due dates. `None` if there is too little time. `delay` is that of
/// a message.
pub(super) fn windows(
    parts: &[Part],
    places: &[usize],
    delay: i64,
    (release, due): (i64, i64),
) -> Option<Vec<(i64, i64)>> {
    let gap = |from: usize, to: usize| if places[from] == places[to] { 0 } else { CARRY + delay };
    let mut ends: Vec<i64> = Vec::with_capacity(parts.len());
    for (to, part) in parts.iter().enumerate() {
        let begin = part.after.iter().map(|from| ends[*from] + gap(*from, to)).max();
        ends.push(begin.unwrap_or(0) + part.cost);
    }
    let (length, time) = (ends.into_iter().max()?, due - release);
    if time < length {
        return None;
    }
    let stretched = |amount: i64| amount * time / length.max(1);
    let mut dues = vec![due; parts.len()];
    for (to, part) in parts.iter().enumerate().rev() {
        for from in &part.after {
            let latest = dues[to] - stretched(part.cost) - stretched(gap(*from, to));
            dues[*from] = dues[*from].min(latest);
        }
    }
    let begin = |to: usize| {
        let sooner = parts[to].after.iter().map(|from| dues[*from] + gap(*from, to));
        sooner.max().unwrap_or(release)
    };
    Some((0..parts.len()).map(|to| (begin(to), dues[to])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_stays_together_and_windows_follow_each_other() {
        let part = |cost, after: &[usize]| Part { cost, after: after.to_vec() };
        let parts = [part(2, &[]), part(6, &[0]), part(5, &[0]), part(1, &[1, 2])];
        assert_eq!(paths(&parts, 1), [0; 4]);
        let places = paths(&parts, 2);
        assert_eq!(places, [0, 0, 1, 0]);
        let least = 2 + 5 + 1 + 2 * (CARRY + 1);
        assert!(windows(&parts, &places, 1, (100, 100 + least - 1)).is_none());
        for time in [least, 2 * least, 2 * least + 1] {
            let windows = windows(&parts, &places, 1, (100, 100 + time)).unwrap();
            for (to, part) in parts.iter().enumerate() {
                let (release, due) = windows[to];
                assert!(release >= 100 && due - release >= part.cost && due <= 100 + time);
                for from in &part.after {
                    let gap = if places[*from] == places[to] { 0 } else { CARRY + 1 };
                    assert!(windows[*from].1 + gap <= release);
                }
            }
        }
    }
}
