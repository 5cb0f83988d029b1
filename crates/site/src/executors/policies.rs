//! The policy of each type of jobs.
//!
//! Invariant: where nothing is said, ours does. What is said counts for all servers, from when each has
//! heard of it; what a policy has drawn or counted is its own server's.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{Performer, PolicySet, SiteEvent};
use legwork_model::time::Timestamp;
use legwork_schedule::{KindId, Learned, NAMES, OURS, Policy, named};

use super::registering::is_type;
use crate::Site;
use crate::answer::{Answer, PolicyInfo};
use crate::catalog::access::Caller;
use crate::executors::Executors;
use crate::refusal::{Kind, Refusal};

/// Of how many types something may be said.
const TYPES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Policies {
    ours: Learned,
    /// What differs from it.
    set: BTreeMap<KindId, Chosen>,
}

#[derive(Debug)]
struct Chosen {
    said: PolicySet,
    policy: Box<dyn Policy>,
}

impl Policies {
    pub(super) fn of(&self, kind: KindId) -> &dyn Policy {
        self.set.get(&kind).map_or(&self.ours, |chosen| &*chosen.policy)
    }

    pub(super) fn of_mut(&mut self, kind: KindId) -> &mut dyn Policy {
        match self.set.get_mut(&kind) {
            Some(chosen) => &mut *chosen.policy,
            None => &mut self.ours,
        }
    }

    pub(super) fn name(&self, kind: KindId) -> &str {
        self.set.get(&kind).map_or(OURS, |chosen| &chosen.said.policy)
    }

    /// Whether the reason of each assignment is kept in the history.
    pub(super) fn is_recorded(&self, kind: KindId) -> bool {
        self.set.get(&kind).is_some_and(|chosen| chosen.said.recorded)
    }

    fn is(&self, kind: Option<KindId>, policy: &str, recorded: bool) -> bool {
        let said = kind.and_then(|kind| self.set.get(&kind)).map(|chosen| &chosen.said);
        match said {
            Some(said) => &*said.policy == policy && said.recorded == recorded,
            None => policy == OURS && !recorded,
        }
    }

    /// What it draws follows from the seed, which no other server has and no other life of this one.
    fn set(&mut self, kind: KindId, said: PolicySet, seed: u64) {
        if &*said.policy == OURS && !said.recorded {
            self.set.remove(&kind);
            return;
        }
        // A name that only a later version knows: what is known better than nothing.
        let policy = named(&said.policy, seed ^ u64::from(kind.0))
            .unwrap_or_else(|| Box::<Learned>::default());
        self.set.insert(kind, Chosen { said, policy });
    }
}

impl Executors {
    pub(super) fn list_policies(&self, caller: &Caller) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let info = |PolicySet { job, policy, recorded, by }: &PolicySet| PolicyInfo {
            job: job.clone(),
            policy: policy.clone(),
            recorded: *recorded,
            by: Performer::clone(by),
        };
        let mut policies: Vec<PolicyInfo> =
            self.policies.set.values().map(|chosen| info(&chosen.said)).collect();
        policies.sort_by(|a, b| a.job.cmp(&b.job));
        Ok(Answer::Policies(policies))
    }
}

impl Site {
    pub(super) fn set_policy(
        &mut self,
        caller: &Caller,
        (job, policy, recorded): (Arc<str>, Arc<str>, bool),
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        self.cluster.require_registrar()?;
        let policies = &self.executors.policies;
        if !is_type(&job) {
            let message = "no definition can name such a type of job: write it as after `job:`";
            return Err(Refusal::new(Kind::Invalid, "bad_policy", message));
        }
        if named(&policy, 0).is_none() {
            let message =
                format!("there is no policy `{policy}`; choose one of {}", NAMES.join(", "));
            return Err(Refusal::new(Kind::Invalid, "bad_policy", message));
        }
        if policies.is(self.executors.registry.kind(&job), &policy, recorded) {
            return Ok(Answer::Done);
        }
        if policies.set.len() >= TYPES_MAX {
            let message = format!(
                "there are policies for {TYPES_MAX} types, as many as fit; set some to `{OURS}` first"
            );
            return Err(Refusal::new(Kind::Conflict, "too_many_policies", message));
        }
        self.executors.require_types([&*job].into_iter())?;
        let said = PolicySet { job, policy, recorded, by: caller.performer() };
        self.record(SiteEvent::PolicySet(Box::new(said.clone())), now);
        self.take_policy(said);
        Ok(Answer::Done)
    }

    /// One that was set, here or elsewhere.
    pub(crate) fn take_policy(&mut self, said: PolicySet) {
        let kind = self.executors.registry.know_kind(&said.job);
        let seed = self.config.life;
        self.executors.policies.set(kind, said, seed);
        self.executors.reconsider();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(policy: &str, recorded: bool) -> PolicySet {
        let (job, by) = ("scan".into(), Performer::System);
        PolicySet { job, policy: policy.into(), recorded, by }
    }

    #[test]
    fn a_type_has_the_policy_that_was_set_last_and_ours_otherwise() {
        let mut policies = Policies::default();
        let kind = KindId(3);
        assert_eq!((policies.name(kind), policies.is_recorded(kind)), ("ours", false));
        policies.set(kind, said("oxthas-3", false), 1);
        assert_eq!((policies.name(kind), policies.name(KindId(2))), ("oxthas-3", "ours"));
        policies.set(kind, said("ours", true), 1);
        assert_eq!((policies.name(kind), policies.is_recorded(kind)), ("ours", true));
        policies.set(kind, said("ours", false), 1);
        assert!(policies.set.is_empty(), "nothing is kept of what is usual");
    }
}
