//! Invariants at the end: the histories of the servers compared with the executors.
//!
//! Invariant checked: an activity was completed at most once; the executor of an accepted result
//! was told so, every other one that its result does not count, and nothing is awaited.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{Event, Performer, Record, RequestDigest};
use legwork_model::id::{Activity, ActivityId, InstanceId, StreamKind};
use legwork_model::schema::Schema;
use legwork_site::{Answer, Concern, Request};

use super::executor::{Executor, State, Task};
use super::staff::Staff;
use crate::world::World;

/// The contents of the histories.
#[derive(Default)]
pub(crate) struct Histories {
    /// The performer of each activity: one completion each.
    completed: BTreeMap<String, Performer>,
    /// The accepted result of each activity, and its executor.
    counted: BTreeMap<String, (u64, Performer)>,
}

impl Histories {
    pub(crate) fn read(
        worlds: &[World],
        schema: &dyn Fn(InstanceId) -> Arc<Schema>,
    ) -> Result<Self, String> {
        let mut histories = Self::default();
        for world in worlds {
            for (stream, records) in world.streams()? {
                let StreamKind::Instance(id) = stream.kind() else { continue };
                let named = |activity: &Activity| named(&schema(id), id, activity);
                for record in records {
                    let record = Record::<Event>::from_bytes(&record);
                    let record = record.map_err(|error| error.to_string())?;
                    for event in record.events {
                        histories.note(&event, &named)?;
                    }
                }
            }
        }
        Ok(histories)
    }

    fn note(&mut self, event: &Event, named: &dyn Fn(&Activity) -> String) -> Result<(), String> {
        if let Event::Answered(answered) = event {
            let activity = named(&answered.activity);
            return self.count(activity, answered.lease, &answered.by);
        }
        let Event::Completed(done) = event else { return Ok(()) };
        let activity = named(&done.activity);
        if self.completed.insert(activity.clone(), done.by.clone()).is_some() {
            return Err(format!("{activity} was completed twice"));
        }
        match (done.request, self.counted.get(&activity)) {
            (Some(RequestDigest(lease)), _) => self.count(activity, lease, &done.by),
            (None, None) => Ok(()),
            (None, Some(by)) => Err(format!("{activity} counted from {by:?} and was done anew")),
        }
    }

    fn count(&mut self, activity: String, lease: u64, by: &Performer) -> Result<(), String> {
        let counts = (lease, by.clone());
        match self.counted.insert(activity.clone(), counts.clone()) {
            Some(other) if other != counts => {
                Err(format!("of {activity} both {other:?} and {counts:?} have counted"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn completions(&self) -> usize {
        self.completed.len()
    }

    /// Compares them with the executors.
    pub(crate) fn compare(&self, staff: &Staff) -> Result<(), String> {
        for (activity, (lease, by)) in &self.counted {
            let gave = |one: &&Executor| {
                let own = one.tasks.get(lease);
                *by == Performer::Executor(one.name.clone())
                    && own.is_some_and(|task| task.task.activity.to_string() == *activity)
            };
            if !self.completed.contains_key(activity) {
                return Err(format!("{activity} counts and was not completed"));
            }
            if staff.executors.iter().find(gave).is_none() {
                return Err(format!("{activity} was done by {by:?}, who knows nothing of it"));
            }
        }
        for one in &staff.executors {
            for (lease, task) in &one.tasks {
                self.compare_task(one, *lease, task)?;
            }
        }
        Ok(())
    }

    fn compare_task(&self, one: &Executor, lease: u64, task: &Task) -> Result<(), String> {
        let activity = task.task.activity.to_string();
        let by = Performer::Executor(one.name.clone());
        let counts = self.counted.get(&activity) == Some(&(lease, by));
        let agrees = match task.state {
            State::Acked => counts,
            // An executor without verdicts need not be told.
            State::Done => true,
            State::Nacked | State::Failed { .. } | State::Dropped | State::Open => !counts,
        };
        if agrees {
            return Ok(());
        }
        let state = task.state;
        Err(format!("{activity} of {}: {state:?}, and counts: {counts}", one.name))
    }
}

/// A server's view of an executor: tasks, and verdicts to tell.
pub(crate) fn outstanding(world: &mut World) -> Result<Option<String>, String> {
    let (kept, gauges) = (world.site().jobs_kept(), world.gauges());
    if kept + gauges.jobs_queued + gauges.jobs_leased > 0 {
        return Ok(Some(format!("a server that keeps {kept} jobs in mind, {gauges:?}")));
    }
    let list = Concern::List { after: None, limit: 1_000 };
    let answer = world.ask_calmly(Request::Executor(list))?;
    let Ok(Answer::Executors { executors, .. }) = answer else {
        return Err(format!("no list of executors: {answer:?}"));
    };
    Ok(executors.into_iter().find_map(|one| {
        let has: u32 = one.types.iter().map(|of_type| of_type.outstanding).sum();
        let (name, unconfirmed) = (&one.name, one.unconfirmed);
        let is_over = has == 0 && unconfirmed == 0;
        (!is_over).then(|| format!("{name}, which has {has} and {unconfirmed} to confirm"))
    }))
}

fn named(schema: &Schema, instance: InstanceId, activity: &Activity) -> String {
    let step = schema.node(activity.node).name.clone();
    ActivityId { instance, step, iteration: activity.iteration.clone() }.to_string()
}
