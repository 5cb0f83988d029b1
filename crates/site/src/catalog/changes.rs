//! Changes of the topology as recorded in the catalog: the one under way, and how the others ended.
//!
//! Invariant: one change at a time, numbered from 1. The records hold all that is needed to continue a change; other
//! state in memory is gathered again after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::event::{Method, Performer, Validity};
use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Change, Layout, Map, Rule, Topology};

/// Bound on the difference between clocks: ids created by a server that is declared down may be ahead by this much.
pub(crate) const SKEW_MS: u64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Changes {
    pending: Option<Pending>,
    /// How each change so far ended, by its number.
    fates: Vec<Fate>,
    /// The servers moved by each change that moved any.
    moved: BTreeMap<u32, BTreeSet<ServerId>>,
    /// Why the last undone change was undone, and the duration of the last published change that moved no server.
    /// Moving a server takes as long as its store is large.
    why: Option<Arc<str>>,
    took_ms: Option<u64>,
    /// All divisions of each domain, oldest first, without repetitions. An idempotency key may have been used under any
    /// of them.
    divisions: BTreeMap<DomainId, Vec<Division>>,
    /// Servers declared down in the last change of their domain.
    declared_down: BTreeSet<ServerId>,
}

/// How a domain is divided among its servers.
#[derive(Debug)]
pub(crate) struct Division {
    pub(crate) layout: Arc<Layout>,
    /// Instances created after this moment were not started under an earlier division.
    pub(crate) earlier_ms: u64,
}

/// A change under way.
#[derive(Debug)]
pub struct Pending {
    pub number: u32,
    pub source: Arc<str>,
    pub method: Method,
    pub by: Performer,
    /// Servers declared down for good: the change does not wait for them.
    pub without: BTreeSet<ServerId>,
    pub begun_at: Timestamp,
    /// The topology the change leads to. The moment its weights take effect is recorded at the end of the change.
    pub next: Arc<Topology>,
    /// The domains and servers the change affects.
    pub change: Change,
    /// Number of records in the catalog including the beginning of this change.
    pub(crate) records: u64,
    excepted: BTreeMap<DomainId, BTreeSet<InstanceId>>,
}

/// How a change ended.
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

    /// How a change ended; `None` if it has not, or was never begun.
    pub(crate) fn fate(&self, number: u32) -> Option<Fate> {
        self.fates.get((number as usize).checked_sub(1)?).copied()
    }

    /// Whether a change moved this server.
    pub(crate) fn has_moved(&self, number: u32, server: ServerId) -> bool {
        self.moved.get(&number).is_some_and(|moved| moved.contains(&server))
    }

    /// The last change that has ended: its number, how it ended, and why if it was undone.
    pub(crate) fn last(&self) -> Option<(u32, Fate, Option<Arc<str>>)> {
        let fate = *self.fates.last()?;
        let why = self.why.clone().filter(|_| fate == Fate::Undone);
        Some((self.fates.len() as u32, fate, why))
    }

    /// Duration of the last published change that moved no server.
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

    /// From when on the weights of each domain apply, with the recorded exceptions.
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

    /// A topology is in force, and the change that led to it, if any, has ended.
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

    /// All divisions of a domain, oldest first.
    pub(crate) fn divisions(&self, domain: DomainId) -> &[Division] {
        self.divisions.get(&domain).map_or(&[], Vec::as_slice)
    }

    /// Whether a server was declared down and has not reported since. Changes do not wait for such a server.
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

    /// Whether a domain is locked: its servers start nothing and accept no instance they do not have.
    pub fn locks(&self, domain: DomainId) -> bool {
        self.change.domains.contains(&domain)
    }

    /// Whether a server is being moved to another host.
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
