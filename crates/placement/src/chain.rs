//! Which server of a domain controls an instance: one layout after the other, newest first.
//!
//! Invariant: the answer follows from the id alone, which never changes. So every branch of an
//! instance gets the same server of a domain, before, during and after a change of weights. Clock
//! skew shifts load, never the answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::event::Validity;
use legwork_model::id::{InstanceId, ServerId};

use crate::exceptions::Exceptions;
use crate::layout::Layout;

/// The instances to which a layout applies; the others have the layout before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// To all.
    #[default]
    Always,
    /// To instances created later than this, in milliseconds since 1970: Algorithm 3.
    Since(u64),
    /// To all but these: Algorithm 4.
    Except(Exceptions),
}

/// All layouts of a domain that an instance may still have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    newest: Version,
    /// Newest first; the last one applies to all remaining instances.
    older: Vec<Version>,
}

/// One layout of a domain, with its rule.
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

    /// The recorded form; the ids are in records of their own.
    pub fn recorded(&self) -> Option<Validity> {
        match self {
            Self::Always => None,
            Self::Since(moment) => Some(Validity::Since { ms: *moment }),
            Self::Except(ids) => Some(Validity::Except { ids: ids.len() as u32 }),
        }
    }

    /// From the recorded form. `None` if the number of ids does not match.
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
    /// The first server controls everything.
    fn default() -> Self {
        Self::whole(ServerId::default())
    }
}

impl Chain {
    pub fn new(layout: Layout) -> Self {
        let newest = Version { layout: Arc::new(layout), rule: Rule::Always };
        Self { newest, older: Vec::new() }
    }

    /// A chain of one server.
    pub fn whole(server: ServerId) -> Self {
        Self::new(Layout::whole(server))
    }

    /// This chain with a newer layout.
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

    /// The layout that applies to an instance.
    pub fn version(&self, id: InstanceId) -> &Version {
        match self.older.split_last() {
            Some((last, between)) if !self.newest.rule.applies(id) => {
                between.iter().find(|version| version.rule.applies(id)).unwrap_or(last)
            }
            Some(_) | None => &self.newest,
        }
    }

    /// The layout of new instances.
    pub fn newest(&self) -> &Layout {
        &self.newest.layout
    }

    /// All layouts, newest first.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    /// The latest moment that any rule names. A server that knows it creates no instance before
    /// that moment any more.
    pub fn latest_since(&self) -> Option<u64> {
        let moment = |version: &Version| match version.rule {
            Rule::Since(moment) => Some(moment),
            Rule::Always | Rule::Except(_) => None,
        };
        self.versions().filter_map(moment).max()
    }

    /// Forgets ended instances: their server is never asked for again.
    pub fn forget(&mut self, ended: &BTreeSet<InstanceId>) {
        for version in std::iter::once(&mut self.newest).chain(&mut self.older) {
            if let Rule::Except(ids) = &mut version.rule {
                *ids = ids.retain(|id| !ended.contains(&id));
            }
        }
        self.prune();
    }

    /// Drops layouts that no instance can have any more. The age of the oldest instance that may
    /// still arrive is unknown, so layouts behind a `Since` rule are kept.
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

/// The active instances to which no newer layout applies.
struct Coming {
    /// The interval of their creation times, both ends included.
    from_ms: u64,
    to_ms: Option<u64>,
    /// Behind a rule with exceptions: the excepted instances.
    among: Option<Exceptions>,
}

/// How a layout splits the remaining instances.
struct Passed {
    /// Whether it applies to some of them.
    any: bool,
    /// Its rule, reduced to these instances.
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
