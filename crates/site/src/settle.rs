//! The end of a batch of inputs: time passes, and everything that is due is handled.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use legwork_engine::{Command, Resolution};
use legwork_model::event::{Incident, Performer};
use legwork_model::id::{Activity, InstanceId};
use legwork_model::rule::Rule;
use legwork_model::time::Timestamp;
use legwork_org::ItemKey;

use crate::Site;
use crate::answer::Answer;
use crate::cases::step::History;
use crate::cluster::locks::Mode;
use crate::waiting::Waiting;

/// How many instances are offered again, or loaded for that, at a time.
const REOFFERED_AT_ONCE: usize = 256;
/// How long all timeouts are suspended after a jump of time.
const GRACE: Duration = Duration::from_secs(15);

/// A duty of the site at the end of each batch, and when it is due if no input arrives.
struct Duty {
    settle: fn(&mut Site, Timestamp),
    next_due: fn(&Site) -> Option<Timestamp>,
    when_frozen: bool,
}

impl Duty {
    const fn new(
        settle: fn(&mut Site, Timestamp),
        next_due: fn(&Site) -> Option<Timestamp>,
    ) -> Self {
        Self { settle, next_due, when_frozen: false }
    }

    /// A duty without a due time of its own.
    const fn untimed(settle: fn(&mut Site, Timestamp)) -> Self {
        Self::new(settle, |_| None)
    }

    /// A duty that is also carried out while the server is frozen.
    const fn also_frozen(self) -> Self {
        Self { when_frozen: true, ..self }
    }
}

/// All duties. Their order matters: each sees the effects of those before it.
const DUTIES: [Duty; 26] = [
    Duty::new(Site::release_held, Site::next_held_release),
    Duty::new(Site::expire_leases, |site| site.jobs.next_due()),
    Duty::untimed(Site::follow_executors),
    Duty::new(Site::expire_requests, |site| site.migration.arrivals.next_due()),
    // Before jobs are dispatched: a verdict may complete a step and open the next jobs.
    Duty::new(Site::resend_verdicts, |site| site.executors.next_due()),
    Duty::untimed(Site::serve_polls),
    Duty::new(Site::assign_tasks, Site::next_assignment),
    Duty::new(Site::renew_follows, |site| site.work.following.next_due()),
    Duty::new(Site::serve_watches, Site::next_absence).also_frozen(),
    Duty::new(Site::answer_due, |site| site.waiting.next_due()).also_frozen(),
    Duty::new(Site::reoffer_some, Site::next_reoffer),
    Duty::new(Site::pass_deadlines, Site::next_alarm),
    Duty::new(Site::settle_plans, Site::next_plan),
    Duty::new(Site::settle_schedules, Site::next_start),
    Duty::new(Site::resend_offers, |site| site.migration.outbox.next_due()),
    Duty::new(Site::retry_fetches, |site| site.migration.fetching.next_due()),
    Duty::new(Site::retry_content_fetches, |site| site.migration.contents.next_due()),
    Duty::new(Site::resend_key_questions, |site| site.cases.earlier.next_due()),
    Duty::new(Site::report_over, Site::next_over_report),
    Duty::new(Site::report_load, |site| site.cluster.next_watch()),
    Duty::new(Site::announce_catalog, Site::next_announcement).also_frozen(),
    Duty::new(Site::catch_up, Site::next_catch_up).also_frozen(),
    Duty::new(Site::report, Site::next_report).also_frozen(),
    Duty::untimed(Site::coordinate).also_frozen(),
    Duty::untimed(Site::store_learned_if_due),
    Duty::untimed(|site, _| site.evict()),
];

impl Site {
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.clock.latest = now;
        if std::mem::take(&mut self.work.recovering) {
            self.work.worklists.start_afresh();
        }
        DUTIES.iter().for_each(|duty| (duty.settle)(self, now));
    }

    /// When `Input::Settle` is due even if no other input arrives.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let due = |duty: &Duty| (duty.next_due)(self);
        match self.mode() {
            Mode::Serving if self.cluster.is_joining() => self.next_announcement(),
            Mode::Serving => DUTIES.iter().filter_map(due).min(),
            Mode::Frozen { .. } => DUTIES.iter().filter(|it| it.when_frozen).filter_map(due).min(),
            Mode::Gone { .. } => None,
        }
    }

    fn expire_leases(&mut self, now: Timestamp) {
        let expired = self.jobs.expire(now);
        self.on_leases_expired(expired, now);
    }

    /// Readers of a worklist see other items when an absence begins or ends.
    fn next_absence(&self) -> Option<Timestamp> {
        let org = self.catalog.organisation();
        self.has_readers().then(|| org.next_absence_change(self.clock.latest)).flatten()
    }

    fn next_reoffer(&self) -> Option<Timestamp> {
        (!self.work.stale.is_empty()).then_some(self.clock.latest)
    }

    /// Extends leases by the unseen time and suspends all timeouts for `GRACE`, so that peers and executors can report
    /// first.
    pub(crate) fn jumped(&mut self, by: Duration, now: Timestamp) {
        self.cluster.recheck_catalog(by, now);
        let until = now.plus(GRACE);
        // A second jump within the grace period, or as long after it, is ignored; otherwise a server that is always
        // slow would never time anyone out.
        if now < self.clock.grace_until.plus(GRACE) {
            return;
        }
        self.clock.grace_until = until;
        self.jobs.prolong(by);
        self.executors.grant_grace(by, until);
        self.planning.grant_grace(until);
        self.cluster.restart_watch(now);
    }

    /// The duties of a frozen server.
    pub(crate) fn settle_frozen(&mut self, now: Timestamp) {
        self.clock.latest = now;
        DUTIES.iter().filter(|it| it.when_frozen).for_each(|duty| (duty.settle)(self, now));
    }

    /// Answers the requests whose time is over.
    fn answer_due(&mut self, now: Timestamp) {
        while let Some((id, waiting)) = self.waiting.take_due(now) {
            match waiting {
                Waiting::Jobs(_) => self.answer(id, Ok(Answer::Jobs(Vec::new()))),
                Waiting::Worklist { mut worklist, .. } => {
                    worklist.wait_until = None;
                    let answer = self.worklist_now(&worklist, now);
                    self.answer(id, answer);
                }
                Waiting::Gathering(worklist) => self.worklist_or_wait(id, worklist, now),
                Waiting::End { .. } => self.answer_end(id, &waiting),
            }
        }
    }

    /// Evicts states from memory, except those in use; notes before what letters have to know.
    pub(crate) fn evict(&mut self) {
        self.note_holders();
        let Self { waiting, migration, executors, planning, mailings, .. } = self;
        let is_in_use = |id| {
            waiting.awaits_end_of(id)
                || migration.concerns(id)
                || executors.concerns(id)
                || planning.concerns(id)
                || mailings.concerns(id)
        };
        self.cases.instances.evict(self.config.resident_max, is_in_use);
    }

    /// Offers all open items again because the organisation has changed, and retries activities that nobody could do. A
    /// rule that depends on the history needs the instance's state: items of instances that are not in memory are
    /// hidden until these are loaded.
    pub(crate) fn reoffer_all(&mut self, now: Timestamp) {
        self.refit(now);
        self.mailings.recheck_cases(now);
        let (instances, org) = (&self.cases.instances, self.catalog.organisation());
        let stale = RefCell::new(BTreeSet::new());
        let reoffered = self.work.worklists.reoffer(org, |key, item| {
            let nobody = Rule::Any(Vec::new());
            let who = item.schema.node(key.activity.node).who().unwrap_or(&nobody);
            let state = instances.state(key.instance).map(|(_, state)| state);
            if state.is_none() && who.depends_on_history() {
                stale.borrow_mut().insert(key.instance);
            }
            org.resolve(who, &History { schema: &item.schema, state })
        });
        let mut stale = stale.into_inner();
        let left = reoffered.without_actors.iter().chain(&reoffered.without_holder);
        stale.extend(left.map(|key| key.instance));
        stale.extend(self.cases.instances.with_incidents(None).map(|(id, _)| id));
        self.work.stale = stale.into_iter().collect();
        self.reoffer_some(now);
    }

    /// Continues with instances that need a decision under the new organisation, a batch at a time, since one commit
    /// takes only so many records.
    fn reoffer_some(&mut self, now: Timestamp) {
        if self.mode() != Mode::Serving {
            return;
        }
        for _ in 0..REOFFERED_AT_ONCE {
            if self.work.reoffering.len() >= REOFFERED_AT_ONCE || self.entailed.is_enough() {
                return;
            }
            let Some(id) = self.work.stale.pop_front() else { return };
            if self.cases.instances.state(id).is_some() {
                self.reoffer(id, now);
            } else if self.cases.instances.get(id).is_some() {
                self.work.reoffering.insert(id);
                self.ask_for(id.into(), false);
            }
        }
    }

    /// Offers the items of an instance to the agents who may do them now, releases those whose holder is gone, and
    /// raises incidents for those that nobody can do.
    pub(crate) fn reoffer(&mut self, id: InstanceId, now: Timestamp) {
        self.retry_no_performer(id, now);
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let schema = schema.clone();
        let (mut undoable, mut abandoned) = (Vec::new(), Vec::new());
        for open in state.open(&schema) {
            let resolved = self.catalog.resolved(&schema, state, &open.activity);
            let key = ItemKey { instance: id, activity: open.activity };
            let Some(item) = self.work.worklists.item(&key) else { continue };
            self.work.worklists.offer(&key, &schema, &resolved, item.offered_at);
            match item.claimed_by {
                Some(holder) if self.catalog.organisation().contains(&holder) => {
                    let at = item.claimed_at.unwrap_or(item.offered_at);
                    self.work.worklists.claim(&key, &holder, at);
                }
                Some(holder) => abandoned.push((key, holder)),
                None if resolved.actors.is_empty() => undoable.push(key),
                None => {}
            }
        }
        for (key, holder) in abandoned {
            let release = Command::Release { activity: key.activity.clone(), by: holder };
            self.site_command(id, release, now);
            let nobody =
                self.work.worklists.resolved(&key).is_some_and(|who| who.actors.is_empty());
            undoable.extend(nobody.then_some(key));
        }
        undoable.iter().for_each(|key| self.raise_no_performer(key, now));
    }

    fn raise_no_performer(&mut self, key: &ItemKey, now: Timestamp) {
        let Some(slot) = self.cases.instances.get(key.instance) else { return };
        let who = slot.schema.node(key.activity.node).who();
        let incident =
            Incident::NobodyCanDoIt { rule: who.map(ToString::to_string).unwrap_or_default() };
        let raise = Command::Raise { activity: key.activity.clone(), incident };
        self.site_command(key.instance, raise, now);
    }

    /// Retries the activities that nobody could do; if that is still so, the same incident is raised in the same
    /// record.
    fn retry_no_performer(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let stuck: Vec<Activity> = state
            .incidents(schema)
            .filter(|(_, incident)| matches!(incident, Incident::NobodyCanDoIt { .. }))
            .filter(|(activity, _)| {
                !self.catalog.resolved(schema, state, activity).actors.is_empty()
            })
            .map(|(activity, _)| activity)
            .collect();
        for activity in stuck {
            let by = Performer::System;
            let retry = Command::Resolve { activity, by, resolution: Resolution::Retry };
            self.site_command(id, retry, now);
        }
    }

    /// Carries out a command of the site itself, without a client. A rejection means that it is no longer needed, and
    /// has no other effect.
    fn site_command(&mut self, id: InstanceId, command: Command, now: Timestamp) {
        drop(self.command(id, command, now));
    }
}
