//! Taking a task apart: which parts go together, and by when each has to be done.
//!
//! Parts that wait for each other gain nothing from being apart: *linear clustering* keeps the longest paths
//! together. What is left is spread so that nobody has much more than others (Efe's second phase), moving
//! first what costs the least to carry.

use crate::task::Part;

/// How much more than the mean somebody may have, in per cent, at first.
const TOLERANCE: i64 = 10;

/// For every part the number of its cluster, below `count`.
pub(crate) fn clusters(parts: &[Part], count: usize) -> Vec<usize> {
    let mut cluster = paths(parts, count);
    balance(parts, &mut cluster, count.max(1));
    cluster
}

/// For every part the number of its place, below `count`: those on a path stay together, and beside them others go
/// where the least is done. Nothing is moved so that places are even: who comes after another gains nothing by it.
pub fn paths(parts: &[Part], count: usize) -> Vec<usize> {
    spread(parts, &longest_paths(parts), count.max(1))
}

/// Takes the longest path out, cost and carrying counted, until nothing is left.
fn longest_paths(parts: &[Part]) -> Vec<Vec<usize>> {
    let mut left: Vec<bool> = vec![true; parts.len()];
    let mut groups = Vec::new();
    while left.contains(&true) {
        let mut length = vec![0_i64; parts.len()];
        let mut before: Vec<Option<usize>> = vec![None; parts.len()];
        for (place, part) in parts.iter().enumerate().filter(|(place, _)| left[*place]) {
            let sooner = part.after.iter().map(|at| usize::from(*at)).filter(|at| left[*at]);
            let longest = sooner.map(|at| (length[at] + parts[at].carry.0, at)).max();
            length[place] = part.service.0 + longest.map_or(0, |(length, _)| length);
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
        groups.push(path);
    }
    groups
}

/// What would have to be carried between two groups.
fn carried(parts: &[Part], a: &[usize], b: &[usize]) -> i64 {
    let from_to = |from: &[usize], to: &[usize]| -> i64 {
        let waits = |to: usize, from: usize| parts[to].after.contains(&(from as u16));
        from.iter()
            .map(|from| {
                parts[*from].carry.0 * to.iter().filter(|to| waits(**to, *from)).count() as i64
            })
            .sum()
    };
    from_to(a, b) + from_to(b, a)
}

/// The largest group first, each to whoever has the least.
fn spread(parts: &[Part], groups: &[Vec<usize>], count: usize) -> Vec<usize> {
    let cost = |group: &Vec<usize>| group.iter().map(|place| parts[*place].service.0).sum::<i64>();
    let mut order: Vec<&Vec<usize>> = groups.iter().collect();
    order.sort_by_key(|group| std::cmp::Reverse(cost(group)));
    let (mut loads, mut cluster) = (vec![0_i64; count], vec![0; parts.len()]);
    for group in order {
        let least = (0..count).min_by_key(|at| (loads[*at], *at)).unwrap_or(0);
        loads[least] += cost(group);
        group.iter().for_each(|place| cluster[*place] = least);
    }
    cluster
}

/// Moves parts from those with too much to those with too little while that is possible, first those that
/// it costs the least to move.
fn balance(parts: &[Part], cluster: &mut [usize], count: usize) {
    let total: i64 = parts.iter().map(|part| part.service.0).sum();
    let most = total * (100 + TOLERANCE) / (100 * count as i64);
    loop {
        let mut loads = vec![0_i64; count];
        for (part, at) in parts.iter().zip(&*cluster) {
            loads[*at] += part.service.0;
        }
        let over = (0..parts.len()).filter(|place| loads[cluster[*place]] > most);
        let moves = over.flat_map(|place| (0..count).map(move |to| (place, to)));
        // A move must not make the other the one with too much.
        let better = moves.filter(|(place, to)| {
            loads[*to] + parts[*place].service.0 <= most
                && loads[*to] + parts[*place].service.0 < loads[cluster[*place]]
        });
        let members = |of: usize, but: usize| -> Vec<usize> {
            (0..parts.len()).filter(|place| cluster[*place] == of && *place != but).collect()
        };
        let price = |(place, to): (usize, usize)| {
            carried(parts, &[place], &members(cluster[place], place))
                - carried(parts, &[place], &members(to, place))
        };
        let Some((place, to)) =
            better.min_by_key(|it| (price(*it), -parts[it.0].service.0, it.0, it.1))
        else {
            return;
        };
        cluster[place] = to;
    }
}

/// When each part can begin and has to be done so that all are done between two moments: every path gets its part
/// of the time that there is to spare. A pass backward from the end; `None` if there is too little time.
/// `wait` is what has to pass besides between two parts that are done at different places.
pub(crate) fn windows(
    parts: &[Part],
    cluster: &[usize],
    wait: i64,
    release: i64,
    deadline: i64,
) -> Option<Vec<(i64, i64)>> {
    let gap = |from: usize, to: usize| {
        if cluster[from] == cluster[to] { 0 } else { parts[from].carry.0 + wait }
    };
    let longest =
        (0..parts.len()).fold(Vec::with_capacity(parts.len()), |mut ends: Vec<i64>, to| {
            let sooner = parts[to].after.iter().map(|from| usize::from(*from));
            let begin = sooner.map(|from| ends[from] + gap(from, to)).max().unwrap_or(0);
            ends.push(begin + parts[to].service.0);
            ends
        });
    let (length, time) = (longest.into_iter().max()?, deadline - release);
    if time < length {
        return None;
    }
    let stretched =
        |amount: i64| (i128::from(amount) * i128::from(time) / i128::from(length.max(1))) as i64;
    let mut ends = vec![deadline; parts.len()];
    for to in (0..parts.len()).rev() {
        for from in parts[to].after.iter().map(|from| usize::from(*from)) {
            let latest = ends[to] - stretched(parts[to].service.0) - stretched(gap(from, to));
            ends[from] = ends[from].min(latest);
        }
    }
    let begin = |to: usize| {
        let sooner = parts[to].after.iter().map(|from| usize::from(*from));
        sooner.map(|from| ends[from] + gap(from, to)).max().unwrap_or(release)
    };
    Some((0..parts.len()).map(|place| (begin(place), ends[place])).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::supply::Work;

    fn part(service: i64, after: &[u16], carry: i64) -> Part {
        Part { service: Work(service), after: after.to_vec(), carry: Work(carry) }
    }

    #[test]
    fn the_longest_path_stays_together_and_branches_part() {
        // One begins, two go on beside each other, one ends.
        let parts = [part(2, &[], 1), part(6, &[0], 1), part(5, &[0], 1), part(1, &[1, 2], 0)];
        let cluster = clusters(&parts, 2);
        assert_eq!(cluster[1], cluster[3]);
        assert_ne!(cluster[1], cluster[2]);
        assert_eq!(clusters(&parts, 1), [0; 4]);
    }

    fn graph() -> impl Strategy<Value = Vec<Part>> {
        let part = (1_i64..9, prop::collection::vec(any::<prop::sample::Index>(), 0..3), 0_i64..3);
        prop::collection::vec(part, 1..9).prop_map(|parts| {
            let make = |(place, (service, after, carry)): (
                usize,
                (i64, Vec<prop::sample::Index>, i64),
            )| {
                let mut after: Vec<u16> = if place == 0 {
                    Vec::new()
                } else {
                    after.iter().map(|at| at.index(place) as u16).collect()
                };
                after.sort_unstable();
                after.dedup();
                Part { service: Work(service), after, carry: Work(carry) }
            };
            parts.into_iter().enumerate().map(make).collect()
        })
    }

    proptest! {
        #[test]
        fn every_part_has_time_enough_between_those_before_and_behind_it(
            parts in graph(),
            count in 1_usize..4,
            wait in 0_i64..3,
            time in 1_i64..120,
        ) {
            let cluster = clusters(&parts, count);
            prop_assert!(cluster.iter().all(|at| *at < count));
            let Some(windows) = windows(&parts, &cluster, wait, 100, 100 + time) else {
                let least: i64 = parts.iter().map(|part| part.service.0).max().unwrap_or(0);
                let most: i64 = parts.iter().map(|it| it.service.0 + it.carry.0 + wait).sum();
                prop_assert!(time < most && least > 0);
                return Ok(());
            };
            for (part, (begin, end)) in parts.iter().zip(&windows) {
                prop_assert!(end - begin >= part.service.0);
                prop_assert!(*begin >= 100 && *end <= 100 + time);
            }
            for (to, part) in parts.iter().enumerate() {
                for from in part.after.iter().map(|from| usize::from(*from)) {
                    let apart = cluster[from] != cluster[to];
                    let gap = if apart { parts[from].carry.0 + wait } else { 0 };
                    prop_assert!(windows[to].0 >= windows[from].1 + gap);
                }
            }
        }
    }
}
