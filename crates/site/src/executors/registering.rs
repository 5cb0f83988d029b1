//! Registration and removal of executors.
//!
//! Invariant: a registration identical to the known one changes nothing, so that an executor can register at every
//! start. Only the token that has registered an executor, or an admin, may change it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use legwork_engine::Command;
use legwork_model::event::{ExecutorRegistered, RegularWork, SiteEvent};
use legwork_model::time::{Timestamp, format_duration};

use super::Executors;
use super::registry::Number;
use crate::Site;
use crate::answer::Answer;
use crate::catalog::access::Caller;
use crate::input::{Concern, RegisterExecutor};
use crate::refusal::{Kind, Refusal};

const NAME_BYTES_MAX: usize = 100;
const URL_BYTES_MAX: usize = 1_000;
const SECRET_BYTES: RangeInclusive<usize> = 32..=200;
const TYPES_MAX: usize = 100;
const TYPE_BYTES_MAX: usize = 64;
pub(crate) const LIMIT_MAX: u32 = 10_000;
const WEIGHT_MAX: u32 = 1_000_000;
/// How many regular tasks an executor may have.
const REGULARLY_MAX: usize = 20;
/// The longest interval of a regular task.
const EVERY_MS_MAX: u64 = 400 * 24 * 3_600_000;
/// The largest part of its time, in per cent, that an executor may spend on regular tasks.
const REGULAR_PART_MAX: u32 = 90;
/// The largest reserve, in per cent.
const RESERVE_MAX: u32 = 90;
/// The most types of jobs of all executors together.
const KINDS_MAX: usize = 10_000;
/// The most executors.
const EXECUTORS_MAX: usize = 10_000;

impl Executors {
    /// Refuses more types of jobs than are supported. Types are remembered as long as the server runs.
    pub(super) fn require_types<'t>(
        &self,
        types: impl Iterator<Item = &'t str>,
    ) -> Result<(), Refusal> {
        let registry = &self.registry;
        let new = types.filter(|job| registry.kind(job).is_none()).count();
        if registry.kinds() + new <= KINDS_MAX {
            return Ok(());
        }
        let message = format!("there are {KINDS_MAX} types of jobs, as many as fit");
        Err(Refusal::new(Kind::Conflict, "too_many_types", message))
    }

    /// Applies a registration recorded here or received.
    pub(crate) fn on_executor_registered(&mut self, executor: ExecutorRegistered) {
        let Executors { registry, book, assignments, holds, rests, .. } = self;
        let number = registry.register(executor);
        match number {
            Number::Same(id) => {
                book.limit(id, &registry.limits(id));
                book.on_registered(id);
                rests.forget_rates(id);
            }
            Number::New(id) => drop(book.register(&registry.limits(id))),
            // What was learned of the previous executor with this number does not apply.
            Number::Reused(id) => {
                book.replace(id, &registry.limits(id));
                assignments.forget_executor(id);
                holds.forget(id);
                rests.forget(id);
            }
        }
        self.invalidate_plan();
        self.plans_changed();
    }
}

impl Site {
    pub(crate) fn on_executor_request(
        &mut self,
        caller: &Caller,
        concern: Concern,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        match concern {
            Concern::Register(asked) => self.register_executor(caller, asked, now),
            Concern::Remove { name } => self.remove_executor(caller, name, now),
            Concern::SetPolicy { job, policy, recorded } => {
                self.set_policy(caller, (job, policy, recorded), now)
            }
            Concern::Policies => self.executors.list_policies(caller),
            Concern::List { after, limit } => self.list_executors(caller, after.as_deref(), limit),
            Concern::Figures { after, limit } => Ok(self.figures(after.as_deref(), limit)),
            Concern::Report(report) => self.on_task_report(caller, report, now),
            Concern::Confirm { executor, task } => {
                self.on_task_confirm(caller, &executor, &task, now)
            }
        }
    }

    fn register_executor(
        &mut self,
        caller: &Caller,
        asked: RegisterExecutor,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_worker()?;
        self.cluster.require_registrar()?;
        check(&asked)?;
        let RegisterExecutor {
            name,
            url,
            secret,
            types,
            limit,
            at_once,
            rate,
            weight,
            regularly,
            reserve,
            domain,
            verdicts,
            holds,
        } = asked;
        self.cluster.require_domain(domain.as_deref())?;
        let by = caller.performer();
        let next = ExecutorRegistered {
            name,
            url,
            secret,
            types,
            limit,
            domain,
            verdicts,
            by: by.clone(),
            rate,
            weight,
            at_once,
            regularly,
            // 0 is the same as no reserve.
            reserve: reserve.filter(|reserve| *reserve > 0),
        };
        let known = self.executors.registry.named(&next.name);
        let known = known.map(|(id, known)| (id, known.clone()));
        if let Some((id, known)) = &known {
            // A caller that knows the secret is the executor, whatever its token.
            if (ExecutorRegistered { by: known.by.clone(), ..next.clone() }) == **known {
                // It has just started, or was answered that it is not known: it is alive.
                self.executors.book.on_registered(*id);
                self.executors.invalidate_plan();
                if let Some(holds) = &holds {
                    self.note_holds(&next.name, holds, now);
                }
                return Ok(Answer::ExecutorRegistered { unchanged: true });
            }
            if known.by != by && !caller.is_admin() {
                let message = format!(
                    "`{}` was registered with another token; choose another name, or ask an admin",
                    next.name
                );
                return Err(Refusal::new(Kind::Conflict, "executor_exists", message));
            }
        } else if self.executors.registry.len() >= EXECUTORS_MAX {
            let message =
                format!("there are {EXECUTORS_MAX} executors, as many as fit; remove one first");
            return Err(Refusal::new(Kind::Conflict, "too_many_executors", message));
        }
        self.executors.require_types(next.types.iter().map(|own| &*own.job))?;
        let name = next.name.clone();
        self.record(SiteEvent::ExecutorRegistered(Box::new(next.clone())), now);
        self.executors.on_executor_registered(next);
        if let Some(holds) = &holds {
            self.note_holds(&name, holds, now);
        }
        Ok(Answer::ExecutorRegistered { unchanged: false })
    }

    fn remove_executor(
        &mut self,
        caller: &Caller,
        name: Arc<str>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_worker()?;
        self.cluster.require_registrar()?;
        let known = self.executors.registry.named(&name).map(|(_, known)| known.clone());
        let Some(known) = known else { return Err(no_such_executor(&name)) };
        let by = caller.performer();
        if known.by != by && !caller.is_admin() {
            return Err(Refusal::forbidden("admin"));
        }
        self.record(SiteEvent::ExecutorRemoved { name: name.clone(), by }, now);
        self.on_executor_removed(&name);
        Ok(Answer::Done)
    }

    /// Applies the removal of an executor: its jobs go to others.
    pub(crate) fn on_executor_removed(&mut self, name: &str) {
        let Some(id) = self.executors.registry.remove(name) else { return };
        self.executors.holds.forget(id);
        self.executors.invalidate_plan();
        self.executors.plans_changed();
        let own =
            self.executors.assignments.iter().filter(|(_, assignment)| assignment.executor == id);
        for key in own.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let Some(assignment) = self.executors.assignments.take(&key) else { continue };
            self.executors.book.withdrawn(assignment.id, self.clock.latest);
            let _ = self.jobs.give_back(&key, assignment.lease);
            self.withdraw_if_suspended(&key);
        }
    }

    /// Results that count of executors that are removed need no confirmation.
    pub(super) fn confirm_orphan(&mut self, lease: u64, now: Timestamp) {
        let Some(verdict) = self.executors.verdicts.confirmed(lease) else { return };
        let found = self.cases.activity(&verdict.activity).map(|(_, activity)| activity);
        if let (true, Ok(activity)) = (verdict.counts, found) {
            let instance = verdict.activity.instance;
            // It was confirmed before, or has ended otherwise.
            drop(self.command(instance, Command::Confirm { activity }, now));
        }
    }
}

fn no_such_executor(name: &str) -> Refusal {
    Refusal::not_found(
        "no_such_executor",
        format!("executor `{name}`; `legwork executors` lists them"),
    )
}

/// Whether a definition can name this type.
pub(super) fn is_type(job: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    job.len() <= TYPE_BYTES_MAX
        && job.starts_with(|c: char| c.is_ascii_lowercase())
        && job.chars().all(plain)
}

fn check(asked: &RegisterExecutor) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::new(Kind::Invalid, "bad_executor", message));
    let RegisterExecutor { name, url, secret, types, limit, at_once, weight, .. } = asked;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        return invalid(format!(
            "an executor's name has 1 to {NAME_BYTES_MAX} letters, digits, dashes, dots or underscores"
        ));
    }
    let is_web = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let is_plain = |rest: &str| !rest.is_empty() && !rest.contains(['?', '#', '@', ' ']);
    if url.len() > URL_BYTES_MAX || !is_web.is_some_and(is_plain) {
        return invalid(format!(
            "the address of an executor is like http://host:port/path, of at most {URL_BYTES_MAX} \
             bytes, without query or user"
        ));
    }
    if !SECRET_BYTES.contains(&secret.0.len()) {
        let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
        return invalid(format!("the secret has {least} to {most} bytes; draw a random one"));
    }
    let distinct: BTreeSet<&str> = types.iter().map(|own| &*own.job).collect();
    if types.is_empty() || types.len() > TYPES_MAX || distinct.len() < types.len() {
        return invalid(format!("an executor does 1 to {TYPES_MAX} different types of jobs"));
    }
    if let Some(own) = types.iter().find(|own| !is_type(&own.job)) {
        let shown: String = own.job.chars().take(TYPE_BYTES_MAX).collect();
        return invalid(format!(
            "`{shown}` is no type of job: a name begins with a letter a-z, goes on with a-z, 0-9, `-` and `_`, and \
             has at most {TYPE_BYTES_MAX} characters"
        ));
    }
    let limits = types.iter().filter_map(|own| own.limit).chain([*limit]).chain(*at_once);
    if limits.into_iter().any(|limit| limit == 0 || limit > LIMIT_MAX) {
        return invalid(format!("an executor does 1 to {LIMIT_MAX} tasks at a time"));
    }
    if weight.is_some_and(|weight| weight > WEIGHT_MAX) {
        return invalid(format!("the weight of an executor is 0 to {WEIGHT_MAX}"));
    }
    if asked.reserve.is_some_and(|reserve| reserve > RESERVE_MAX) {
        return invalid(format!(
            "the reserve of an executor is 0 to {RESERVE_MAX} per cent of its time"
        ));
    }
    check_regularly(&asked.regularly).or_else(invalid)
}

/// Regular tasks have to leave time for others.
fn check_regularly(all: &[RegularWork]) -> Result<(), String> {
    if all.len() > REGULARLY_MAX {
        return Err(format!("an executor does at most {REGULARLY_MAX} things regularly"));
    }
    let shown = |ms: u64| format_duration(Duration::from_millis(ms));
    for &RegularWork { every_ms, takes_ms } in all {
        let (every, takes) = (shown(every_ms), shown(takes_ms));
        if every_ms > EVERY_MS_MAX {
            let most = shown(EVERY_MS_MAX);
            return Err(format!("every {every} is too seldom: every {most} at the most"));
        }
        if takes_ms == 0 || takes_ms >= every_ms {
            return Err(format!(
                "what is done every {every} takes some time and less than that, not {takes}"
            ));
        }
    }
    let part = regular_part(all);
    if part > REGULAR_PART_MAX {
        return Err(format!(
            "what it does regularly takes {part} % of its time, and {REGULAR_PART_MAX} % at the most"
        ));
    }
    Ok(())
}

/// The part of its time, in per cent, that an executor spends on regular tasks; rounded up.
pub(crate) fn regular_part(all: &[RegularWork]) -> u32 {
    let of = |one: &RegularWork| {
        (u128::from(one.takes_ms) * 1_000).div_ceil(u128::from(one.every_ms.max(1)))
    };
    let thousandths: u128 = all.iter().map(of).sum();
    u32::try_from(thousandths.div_ceil(10)).unwrap_or(u32::MAX)
}
