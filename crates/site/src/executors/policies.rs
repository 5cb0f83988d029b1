//! The policy of each type of jobs.
//!
//! Invariant: a type without a setting has the default policy. A setting applies to every server as soon as it has the
//! record; the state of a policy belongs to its server.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{Performer, PolicySet, SiteEvent};
use legwork_model::time::Timestamp;
use legwork_schedule::{ADAPTIVE, Adaptive, KindId, NAMES, Policy, current_name, named};

use super::registering::is_type;
use crate::Site;
use crate::answer::{Answer, PolicyInfo};
use crate::catalog::access::Caller;
use crate::executors::Executors;
use crate::refusal::{Kind, Refusal};

/// The most types with a setting.
const TYPES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Policies {
    adaptive: Adaptive,
    /// Types that differ from the default.
    set: BTreeMap<KindId, Chosen>,
}

#[derive(Debug)]
struct Chosen {
    setting: PolicySet,
    policy: Box<dyn Policy>,
}

impl Policies {
    pub(super) fn of(&self, kind: KindId) -> &dyn Policy {
        self.set.get(&kind).map_or(&self.adaptive, |chosen| &*chosen.policy)
    }

    pub(super) fn of_mut(&mut self, kind: KindId) -> &mut dyn Policy {
        match self.set.get_mut(&kind) {
            Some(chosen) => &mut *chosen.policy,
            None => &mut self.adaptive,
        }
    }

    pub(super) fn name(&self, kind: KindId) -> &str {
        self.set.get(&kind).map_or(ADAPTIVE, |chosen| &chosen.setting.policy)
    }

    /// Whether the reason of each assignment is recorded in the history.
    pub(super) fn is_recorded(&self, kind: KindId) -> bool {
        self.set.get(&kind).is_some_and(|chosen| chosen.setting.recorded)
    }

    fn is(&self, kind: Option<KindId>, policy: &str, recorded: bool) -> bool {
        let setting = kind.and_then(|kind| self.set.get(&kind)).map(|chosen| &chosen.setting);
        match setting {
            Some(setting) => &*setting.policy == policy && setting.recorded == recorded,
            None => policy == ADAPTIVE && !recorded,
        }
    }

    /// Random choices of the policy follow from the seed, which differs between servers and incarnations.
    fn set(&mut self, kind: KindId, mut setting: PolicySet, seed: u64) {
        if current_name(&setting.policy) != &*setting.policy {
            setting.policy = current_name(&setting.policy).into();
        }
        if &*setting.policy == ADAPTIVE && !setting.recorded {
            self.set.remove(&kind);
            return;
        }
        // A policy of a later version is replaced by the default.
        let policy = named(&setting.policy, seed ^ u64::from(kind.0))
            .unwrap_or_else(|| Box::<Adaptive>::default());
        self.set.insert(kind, Chosen { setting, policy });
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
            self.policies.set.values().map(|chosen| info(&chosen.setting)).collect();
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
        let policy: Arc<str> = match current_name(&policy) {
            current if current == &*policy => policy,
            current => current.into(),
        };
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
                "there are policies for {TYPES_MAX} types, as many as fit; set some to `{ADAPTIVE}` first"
            );
            return Err(Refusal::new(Kind::Conflict, "too_many_policies", message));
        }
        self.executors.require_types([&*job].into_iter())?;
        let setting = PolicySet { job, policy, recorded, by: caller.performer() };
        self.record(SiteEvent::PolicySet(Box::new(setting.clone())), now);
        self.on_policy_set(setting);
        Ok(Answer::Done)
    }

    /// Applies a setting recorded here or received.
    pub(crate) fn on_policy_set(&mut self, setting: PolicySet) {
        let kind = self.executors.registry.kind_or_new(&setting.job);
        let seed = self.config.life;
        self.executors.policies.set(kind, setting, seed);
        self.executors.invalidate_plan();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(policy: &str, recorded: bool) -> PolicySet {
        let (job, by) = ("scan".into(), Performer::System);
        PolicySet { job, policy: policy.into(), recorded, by }
    }

    #[test]
    fn a_type_has_the_policy_that_was_set_last_and_adaptive_by_default() {
        let mut policies = Policies::default();
        let kind = KindId(3);
        assert_eq!((policies.name(kind), policies.is_recorded(kind)), ("adaptive", false));
        policies.set(kind, setting("oxthas-3", false), 1);
        assert_eq!((policies.name(kind), policies.name(KindId(2))), ("oxthas-3", "adaptive"));
        policies.set(kind, setting("adaptive", true), 1);
        assert_eq!((policies.name(kind), policies.is_recorded(kind)), ("adaptive", true));
        policies.set(kind, setting("adaptive", false), 1);
        assert!(policies.set.is_empty(), "the default is not stored");
    }

    #[test]
    fn a_record_with_the_former_name_of_adaptive_sets_adaptive() {
        let mut policies = Policies::default();
        let kind = KindId(3);
        policies.set(kind, setting("ours", true), 1);
        assert_eq!((policies.name(kind), policies.is_recorded(kind)), ("adaptive", true));
        policies.set(kind, setting("random", false), 1);
        policies.set(kind, setting("ours", false), 1);
        assert!(policies.set.is_empty(), "the default is not stored");
    }
}
