//! Changes of the topology as the catalog tells them: the one under way, and how the others ended.
//!
//! Invariant: one change at a time, numbered from 1. All that is needed to go on with it follows from
//! the records; what is here in memory besides is gathered anew after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::event::{Method, Performer, Validity};
use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Change, Layout, Map, Rule, Topology};

/// Clocks differ by less than this: so far the instances of a server that cannot be asked may be
/// ahead.
pub(crate) const SKEW_MS: u64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Changes {
    pending: Option<Pending>,
    /// How each change so far has ended, by its number.
    fates: Vec<Fate>,
    /// Which servers those have moved that have moved any.
    moved: BTreeMap<u32, BTreeSet<ServerId>>,
    /// Why the last one that was undone was, and how long the last one has taken that was not and
    /// that moved no server: a store takes as long as it is large.
    why: Option<Arc<str>>,
    took_ms: Option<u64>,
    /// All divisions that a domain has had, the first one first, none twice in a row: an idempotency
    /// key may have been used under any of them.
    divisions: BTreeMap<DomainId, Vec<Division>>,
    /// Servers that were declared down in the last change of their domain.
    declared_down: BTreeSet<ServerId>,
}

/// How a domain was divided among its servers.
#[derive(Debug)]
pub(crate) struct Division {
    pub(crate) layout: Arc<Layout>,
    /// An instance that was created later began under no division before this one.
    pub(crate) earlier_ms: u64,
}

/// A change under way.
#[derive(Debug)]
pub struct Pending {
    pub number: u32,
    pub source: Arc<str>,
    pub method: Method,
    pub by: Performer,
    /// Servers that are down for good and not waited for.
    pub without: BTreeSet<ServerId>,
    pub begun_at: Timestamp,
    /// The topology that it leads to. From when its weights count is told at the end.
    pub next: Arc<Topology>,
    /// What it concerns.
    pub change: Change,
    /// How many records the catalog has with its beginning.
    pub(crate) records: u64,
    excepted: BTreeMap<DomainId, BTreeSet<InstanceId>>,
}

/// How a change has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Published { epoch: u32 },
    Undone,
}

impl Changes {
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref()
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.fates.len() as u32 + 1
    }

    /// How a change has ended; `None` if it has not, or was not begun.
    pub(crate) fn fate(&self, number: u32) -> Option<Fate> {
        self.fates.get((number as usize).checked_sub(1)?).copied()
    }

    /// Whether a change was about moving a server.
    pub(crate) fn has_moved(&self, number: u32, server: ServerId) -> bool {
        self.moved.get(&number).is_some_and(|moved| moved.contains(&server))
    }

    /// The last change that has ended, how, and why if it was undone.
    pub(crate) fn last(&self) -> Option<(u32, Fate, Option<Arc<str>>)> {
        let fate = *self.fates.last()?;
        let why = self.why.clone().filter(|_| fate == Fate::Undone);
        Some((self.fates.len() as u32, fate, why))
    }

    /// How long the last change of weights alone took that came to its end.
    pub(crate) fn took_ms(&self) -> Option<u64> {
        self.took_ms
    }

    pub(crate) fn begin(&mut self, pending: Pending) -> Result<(), String> {
        if self.pending.is_some() || pending.number != self.next_number() {
            return Err(format!("change {} of the topology is out of order", pending.number));
        }
        if !pending.change.servers.is_empty() {
            self.moved.insert(pending.number, pending.change.servers.clone());
        }
        self.pending = Some(pending);
        Ok(())
    }

    pub(crate) fn except(&mut self, domain: DomainId, ids: Vec<InstanceId>) -> Result<(), String> {
        let Some(pending) = &mut self.pending else {
            return Err("exceptions belong to no change of the topology".to_owned());
        };
        pending.excepted.entry(domain).or_default().extend(ids);
        Ok(())
    }

    pub(crate) fn undo(&mut self, number: u32, why: &str) -> Result<(), String> {
        match self.pending.take_if(|pending| pending.number == number) {
            None => Err(format!("change {number} of the topology is not under way")),
            Some(_) => {
                self.fates.push(Fate::Undone);
                self.why = Some(why.into());
                Ok(())
            }
        }
    }

    /// From when the weights count, with the exceptions that were recorded.
    pub(crate) fn rules(
        &self,
        recorded: &[(DomainId, Validity)],
    ) -> Result<BTreeMap<DomainId, Rule>, String> {
        let none = BTreeMap::new();
        let excepted = self.pending.as_ref().map_or(&none, |pending| &pending.excepted);
        let rule = |(domain, validity): &(DomainId, Validity)| {
            let ids = excepted.get(domain).into_iter().flatten().copied();
            let rule = Rule::restored(*validity, ids);
            rule.map(|rule| (*domain, rule))
                .ok_or_else(|| format!("exceptions of domain {} are missing", domain.0))
        };
        recorded.iter().map(rule).collect()
    }

    /// A topology is in force, and the change that led to it, if one did, is over.
    pub(crate) fn published(&mut self, topology: &Topology, at: Timestamp) {
        if let Some(pending) = self.pending.take() {
            self.fates.push(Fate::Published { epoch: topology.epoch });
            if pending.change.servers.is_empty() {
                self.took_ms = Some(at.0.saturating_sub(pending.begun_at.0).unsigned_abs());
            }
            let is_locked =
                |id: &ServerId| topology.domain_of(*id).is_some_and(|id| pending.locks(id));
            self.declared_down.retain(|id| !is_locked(id));
            self.declared_down.extend(&pending.without);
        }
        let earlier_ms = u64::try_from(at.0).unwrap_or_default().saturating_add(SKEW_MS);
        for (id, domain) in (0..).map(DomainId).zip(&topology.domains) {
            let divisions = self.divisions.entry(id).or_default();
            let newest = domain.chain.versions().map(|version| &version.layout).next();
            let last = divisions.last().map(|last| &last.layout);
            let changed = newest.filter(|newest| last != Some(*newest)).cloned();
            divisions.extend(changed.map(|layout| Division { layout, earlier_ms }));
        }
    }

    /// All divisions that a domain has had.
    pub(crate) fn divisions(&self, domain: DomainId) -> &[Division] {
        self.divisions.get(&domain).map_or(&[], Vec::as_slice)
    }

    /// Whether nobody waits for a server any more: it was declared down, and has not reported since.
    pub(crate) fn is_declared_down(&self, server: ServerId) -> bool {
        self.declared_down.contains(&server)
    }
}

impl Pending {
    pub(crate) fn new(
        number: u32,
        (source, method, by): (Arc<str>, Method, Performer),
        without: BTreeSet<ServerId>,
        (next, change): (Topology, Change),
        (records, begun_at): (u64, Timestamp),
    ) -> Self {
        let (next, excepted) = (Arc::new(next), BTreeMap::new());
        Self { number, source, method, by, without, begun_at, next, change, records, excepted }
    }

    /// Whether a domain is locked: its servers start nothing, and take nothing that is new to them.
    pub fn locks(&self, domain: DomainId) -> bool {
        self.change.domains.contains(&domain)
    }

    /// Whether a server is on its way to another host.
    pub fn moves(&self, server: ServerId) -> bool {
        self.change.servers.contains(&server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
topology: two
domains:
  north:
    servers:
      north-1: { address: "n:1", api: "http://n" }
      north-2: { address: "m:2", api: "http://m" }
"#;

    #[test]
    fn a_server_that_was_declared_down_counts_again_when_it_has_reported() {
        let topology = Topology::parse(TWO).0.unwrap();
        let mut changes = Changes::default();
        for (number, without) in [(1, vec![ServerId(1)]), (2, vec![])] {
            let change = Change { domains: [DomainId(0)].into(), servers: BTreeSet::new() };
            let begun = ("".into(), Method::Since, Performer::System);
            let (changed, at) = ((topology.clone(), change), Timestamp(0));
            let without: BTreeSet<ServerId> = without.into_iter().collect();
            let pending = Pending::new(number, begun, without.clone(), changed, (1, at));
            changes.begin(pending).unwrap();
            changes.published(&topology, at);
            assert_eq!(changes.declared_down, without);
        }
    }
}
