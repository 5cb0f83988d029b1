//! How a domain's instances are divided among its servers: intervals of spreads.
//!
//! Invariant: each of the 2^32 spreads has exactly one server. Of a total weight `W`, a server of
//! weight `w` has `2^32 * w / W` spreads, to within one. A layout that follows another one moves as
//! few spreads as the weights allow: half of the sum of the share differences.
//!
//! Part of the persistent format: all servers compute layouts from the published topologies, one after
//! the other, so the same weights must give the same intervals for ever.

use std::collections::BTreeMap;

use legwork_model::id::ServerId;

/// The number of spreads.
pub const SPREADS: u64 = 1 << 32;

/// The server of each spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The begin of each interval: ascending, the first at 0.
    starts: Box<[u32]>,
    /// The server of each interval. Neighbours differ.
    owners: Box<[ServerId]>,
    /// The interval of every 2^shift-th spread, so that a lookup inspects few intervals: about as many
    /// entries as intervals, and one for the end.
    index: Box<[u32]>,
    /// The number of spread bits within an entry of the index.
    shift: u32,
}

/// A server and its weight in its domain.
pub type Weighted = (ServerId, u32);

impl Layout {
    /// One server has all spreads.
    pub fn whole(server: ServerId) -> Self {
        let mut intervals = Intervals::default();
        intervals.push(0, server, SPREADS);
        intervals.into_layout()
    }

    /// One interval per server with a weight, lowest number first. `None` without any weight.
    pub fn first(weights: &[Weighted]) -> Option<Self> {
        let mut intervals = Intervals::default();
        let mut begin = 0;
        for (server, len) in quotas(weights, &BTreeMap::new())? {
            intervals.push(begin, server, len);
            begin += len;
        }
        Some(intervals.into_layout())
    }

    /// The layout for other weights that moves the fewest spreads. A server with too many keeps its
    /// lowest spreads and gives up the others. These go, in ascending order, to the servers with too
    /// few, lowest number first. `None` without any weight.
    pub fn next(&self, weights: &[Weighted]) -> Option<Self> {
        let had = self.shares();
        let mut kept = quotas(weights, &had)?;
        // The quota of each server less its kept spreads: to be filled up.
        let lacking = kept.clone().into_iter().map(|(server, quota)| {
            let had = had.get(&server).copied().unwrap_or(0);
            (server, quota.saturating_sub(had))
        });
        let mut takers = lacking.filter(|(_, lack)| *lack > 0);
        let mut taker = takers.next();
        let mut intervals = Intervals::default();
        for (begin, len, server) in self.intervals() {
            let left = kept.entry(server).or_default();
            let own = len.min(*left);
            *left -= own;
            intervals.push(begin, server, own);
            let mut given = own;
            while given < len {
                // The missing spreads are together as many as the surplus ones.
                let Some((server, lack)) = &mut taker else { break };
                let part = (len - given).min(*lack);
                intervals.push(begin + given, *server, part);
                given += part;
                *lack -= part;
                if *lack == 0 {
                    taker = takers.next();
                }
            }
        }
        Some(intervals.into_layout())
    }

    /// The server of a spread.
    pub fn server(&self, spread: u32) -> ServerId {
        let entry = (u64::from(spread) >> self.shift) as usize;
        let Some([from, to]) = self.index.get(entry..).and_then(<[u32]>::first_chunk) else {
            return ServerId::default();
        };
        // It is in the interval at the start of the entry, or in one that begins within the entry.
        let (from, to) = (*from as usize, *to as usize);
        let within = self.starts.get(from + 1..=to).unwrap_or_default();
        let place = from + within.partition_point(|start| *start <= spread);
        self.owners.get(place).copied().unwrap_or_default()
    }

    /// All intervals: begin, length, server.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, u64, ServerId)> {
        let ends = self.starts.iter().skip(1).map(|start| u64::from(*start)).chain([SPREADS]);
        let starts = self.starts.iter().map(|start| u64::from(*start));
        starts
            .zip(ends)
            .zip(&self.owners)
            .map(|((begin, end), server)| (begin, end - begin, *server))
    }

    /// The number of spreads of each server with spreads.
    pub fn shares(&self) -> BTreeMap<ServerId, u64> {
        let mut shares = BTreeMap::new();
        for (_, len, server) in self.intervals() {
            *shares.entry(server).or_default() += len;
        }
        shares
    }

    /// Whether a server has any spreads.
    pub fn has_part(&self, server: ServerId) -> bool {
        self.owners.contains(&server)
    }

    /// The spread of a server that is as far into its spreads as `position` is into all. `None` if the
    /// server has none.
    pub fn within(&self, server: ServerId, position: u32) -> Option<u32> {
        let own = self.intervals().filter(|(_, _, owner)| *owner == server);
        let share: u64 = own.map(|(_, len, _)| len).sum();
        let mut offset = ((u128::from(share) * u128::from(position)) >> 32) as u64;
        for (begin, len, owner) in self.intervals() {
            if owner == server {
                if offset < len {
                    return u32::try_from(begin + offset).ok();
                }
                offset -= len;
            }
        }
        None
    }

    /// The number of spreads that have another server in another layout.
    pub fn moved(&self, other: &Self) -> u64 {
        let (mut ours, mut theirs) = (self.intervals(), other.intervals());
        let (mut our, mut their) = (ours.next(), theirs.next());
        let (mut at, mut moved) = (0, 0);
        while let (Some((a, a_len, a_owner)), Some((b, b_len, b_owner))) = (our, their) {
            let end = (a + a_len).min(b + b_len);
            moved += if a_owner == b_owner { 0 } else { end - at };
            at = end;
            our = if a + a_len == end { ours.next() } else { our };
            their = if b + b_len == end { theirs.next() } else { their };
        }
        moved
    }
}

/// The number of spreads of each server with a weight; together they are all. Of a total weight `W`,
/// weight `w` has `2^32 * w / W`, rounded down. The remaining spreads go, one each, to servers whose
/// quota was rounded: first to those that have more already, then to the others, lowest number first.
fn quotas(weights: &[Weighted], had: &BTreeMap<ServerId, u64>) -> Option<BTreeMap<ServerId, u64>> {
    let mut by_server: BTreeMap<ServerId, u64> = BTreeMap::new();
    for (server, weight) in weights.iter().filter(|(_, weight)| *weight > 0) {
        *by_server.entry(*server).or_default() += u64::from(*weight);
    }
    let all: u128 = by_server.values().map(|weight| u128::from(*weight)).sum();
    if all == 0 {
        return None;
    }
    let mut rounded: Vec<(bool, ServerId)> = Vec::new();
    for (server, quota) in &mut by_server {
        let exact = u128::from(*quota) << 32;
        *quota = (exact / all) as u64;
        if exact % all > 0 {
            rounded.push((had.get(server).is_none_or(|had| *had <= *quota), *server));
        }
    }
    rounded.sort_unstable();
    let left = SPREADS - by_server.values().sum::<u64>();
    for (_, server) in rounded.into_iter().take(left as usize) {
        *by_server.entry(server).or_default() += 1;
    }
    Some(by_server)
}

/// Intervals under construction.
#[derive(Default)]
struct Intervals {
    starts: Vec<u32>,
    owners: Vec<ServerId>,
}

impl Intervals {
    fn push(&mut self, begin: u64, server: ServerId, len: u64) {
        if len > 0 && self.owners.last() != Some(&server) {
            // A nonempty interval begins below the end.
            self.starts.push(begin as u32);
            self.owners.push(server);
        }
    }

    fn into_layout(self) -> Layout {
        let entries = self.starts.len().next_power_of_two();
        let shift = u32::BITS - entries.trailing_zeros();
        let mut index = Vec::with_capacity(entries + 1);
        let mut place = 0;
        for entry in 0..entries as u64 {
            let begin = entry << shift;
            while self.starts.get(place + 1).is_some_and(|start| u64::from(*start) <= begin) {
                place += 1;
            }
            index.push(place as u32);
        }
        index.push(self.starts.len().saturating_sub(1) as u32);
        Layout {
            starts: self.starts.into(),
            owners: self.owners.into(),
            index: index.into(),
            shift,
        }
    }
}
