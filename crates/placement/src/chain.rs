//! Which server of a domain controls an instance there: one division after the other, newest first.
//!
//! Invariant: it follows from the id alone, which never changes. So every branch of an instance
//! comes to the same server of a domain, before, during and after a change of weights, and clocks
//! that differ shift load, never the answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::event::Validity;
use legwork_model::id::{InstanceId, ServerId};

use crate::exceptions::Exceptions;
use crate::layout::Layout;

/// For which instances a division counts; the others have the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// For all.
    #[default]
    Always,
    /// For those created later than this, in milliseconds since 1970: Algorithm 3.
    Since(u64),
    /// For all but these: Algorithm 4.
    Except(Exceptions),
}

/// All divisions of a domain that an instance may still have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    newest: Version,
    /// Newest first; the last one counts for all that come to it.
    older: Vec<Version>,
}

/// One division of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub layout: Arc<Layout>,
    pub rule: Rule,
}

impl Rule {
    pub fn applies(&self, id: InstanceId) -> bool {
        match self {
            Self::Always => true,
            Self::Since(moment) => id.created_ms() > *moment,
            Self::Except(ids) => !ids.contains(id),
        }
    }

    /// As it is recorded, where the ids stand in records of their own.
    pub fn recorded(&self) -> Option<Validity> {
        match self {
            Self::Always => None,
            Self::Since(moment) => Some(Validity::Since { ms: *moment }),
            Self::Except(ids) => Some(Validity::Except { ids: ids.len() as u32 }),
        }
    }

    /// From what was recorded. `None` if there are not as many ids as there should be.
    pub fn restored(recorded: Validity, ids: impl IntoIterator<Item = InstanceId>) -> Option<Self> {
        match recorded {
            Validity::Since { ms } => Some(Self::Since(ms)),
            Validity::Except { ids: count } => {
                let ids = Exceptions::new(ids);
                (ids.len() == count as usize).then_some(Self::Except(ids))
            }
        }
    }
}

impl Default for Chain {
    /// Everything is with the first server there is.
    fn default() -> Self {
        Self::whole(ServerId::default())
    }
}

impl Chain {
    pub fn new(layout: Layout) -> Self {
        let newest = Version { layout: Arc::new(layout), rule: Rule::Always };
        Self { newest, older: Vec::new() }
    }

    /// One server has everything.
    pub fn whole(server: ServerId) -> Self {
        Self::new(Layout::whole(server))
    }

    /// This chain with a newer division.
    #[must_use]
    pub fn then(&self, layout: Layout, rule: Rule) -> Self {
        let older =
            if rule == Rule::Always { Vec::new() } else { self.versions().cloned().collect() };
        Self { newest: Version { layout: Arc::new(layout), rule }, older }
    }

    /// The server of the domain that controls an instance.
    pub fn server(&self, id: InstanceId) -> ServerId {
        self.version(id).layout.server(id.spread())
    }

    /// The division that counts for an instance.
    pub fn version(&self, id: InstanceId) -> &Version {
        match self.older.split_last() {
            Some((last, between)) if !self.newest.rule.applies(id) => {
                between.iter().find(|version| version.rule.applies(id)).unwrap_or(last)
            }
            Some(_) | None => &self.newest,
        }
    }

    /// The division that counts for new instances.
    pub fn newest(&self) -> &Layout {
        &self.newest.layout
    }

    /// All divisions, newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    /// The latest moment that any rule names. Whoever knows it creates nothing before it any more.
    pub fn latest_since(&self) -> Option<u64> {
        let moment = |version: &Version| match version.rule {
            Rule::Since(moment) => Some(moment),
            Rule::Always | Rule::Except(_) => None,
        };
        self.versions().filter_map(moment).max()
    }

    /// Forgets instances that have ended: nobody asks for their server any more.
    pub fn forget(&mut self, ended: &BTreeSet<InstanceId>) {
        for version in std::iter::once(&mut self.newest).chain(&mut self.older) {
            if let Rule::Except(ids) = &mut version.rule {
                *ids = ids.retain(|id| !ended.contains(&id));
            }
        }
        self.prune();
    }

    /// Drops the divisions that no instance can have any more. How old the oldest instance is that
    /// may still come nobody knows, so that what stands behind a time stamp is kept.
    fn prune(&mut self) {
        let mut coming = Coming { from_ms: 0, to_ms: Some(u64::MAX), among: None };
        let mut kept = Vec::new();
        for version in self.versions() {
            let passed = coming.pass(&version.rule);
            if passed.any {
                let rule = if coming.is_nobody() { Rule::Always } else { passed.rule };
                kept.push(Version { layout: version.layout.clone(), rule });
            }
            if coming.is_nobody() {
                break;
            }
        }
        let mut kept = kept.into_iter();
        if let Some(newest) = kept.next() {
            (self.newest, self.older) = (newest, kept.collect());
        }
    }
}

/// The active instances that no division so far counts for.
struct Coming {
    /// When they were created: in this time, both ends included.
    from_ms: u64,
    to_ms: Option<u64>,
    /// Once there were exceptions: who they are.
    among: Option<Exceptions>,
}

/// What has become of those that came to a division.
struct Passed {
    /// It counts for some of them.
    any: bool,
    /// Its rule, as far as it matters to them.
    rule: Rule,
}

impl Coming {
    fn is_nobody(&self) -> bool {
        self.to_ms.is_none_or(|to_ms| to_ms < self.from_ms)
            || self.among.as_ref().is_some_and(Exceptions::is_empty)
    }

    fn pass(&mut self, rule: &Rule) -> Passed {
        let came = self.among.take();
        let before = came.as_ref().map(Exceptions::len);
        let rule = match rule {
            Rule::Always => {
                self.to_ms = None;
                Rule::Always
            }
            Rule::Since(moment) => {
                self.to_ms = self.to_ms.map(|to_ms| to_ms.min(*moment));
                self.among = came;
                Rule::Since(*moment)
            }
            Rule::Except(ids) => {
                let ids = ids.retain(|id| came.as_ref().is_none_or(|came| came.contains(id)));
                self.among = Some(ids.clone());
                Rule::Except(ids)
            }
        };
        let (from_ms, to_ms) = (self.from_ms, self.to_ms);
        let is_left = |id: InstanceId| {
            from_ms <= id.created_ms() && to_ms.is_some_and(|to_ms| id.created_ms() <= to_ms)
        };
        self.among = self.among.take().map(|ids| ids.retain(is_left));
        let after = self.among.as_ref().map_or(0, Exceptions::len);
        Passed { any: before.is_none_or(|before| after < before), rule }
    }
}
