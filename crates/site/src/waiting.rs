//! Requests that wait: for a job, for a change of a worklist, for the end of an instance.
//!
//! Each has a moment at which it is answered anyway. Their number is limited.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;

use crate::input::{Activate, RequestId, Worklist};

#[derive(Debug)]
pub(crate) enum Waiting {
    Jobs(Activate),
    Worklist(Worklist),
    /// For the end of an instance. `started` is set when the question was a start, and tells
    /// whether it was a repetition.
    End {
        instance: InstanceId,
        started: Option<bool>,
    },
}

/// The waiting requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom {
    requests: BTreeMap<RequestId, (Timestamp, Waiting)>,
    deadlines: BTreeSet<(Timestamp, RequestId)>,
    by_instance: BTreeMap<InstanceId, Vec<RequestId>>,
    polls: BTreeSet<RequestId>,
    watches: BTreeSet<RequestId>,
}

impl WaitingRoom {
    pub(crate) fn park(&mut self, id: RequestId, until: Timestamp, waiting: Waiting) {
        match &waiting {
            Waiting::Jobs(_) => {
                self.polls.insert(id);
            }
            Waiting::Worklist(_) => {
                self.watches.insert(id);
            }
            Waiting::End { instance, .. } => {
                self.by_instance.entry(*instance).or_default().push(id);
            }
        }
        self.deadlines.insert((until, id));
        self.requests.insert(id, (until, waiting));
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Waiting> {
        let (until, waiting) = self.requests.remove(&id)?;
        self.deadlines.remove(&(until, id));
        self.polls.remove(&id);
        self.watches.remove(&id);
        if let Waiting::End { instance, .. } = &waiting
            && let Some(ids) = self.by_instance.get_mut(instance)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_instance.remove(instance);
            }
        }
        Some(waiting)
    }

    pub(crate) fn peek(&self, id: RequestId) -> Option<&Waiting> {
        self.requests.get(&id).map(|(_, waiting)| waiting)
    }

    /// Takes a request whose moment has come.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(RequestId, Waiting)> {
        let &(until, id) = self.deadlines.first()?;
        if until > now {
            return None;
        }
        self.take(id).map(|waiting| (id, waiting))
    }

    /// Takes all that wait for the end of an instance.
    pub(crate) fn take_for(&mut self, instance: InstanceId) -> Vec<(RequestId, Waiting)> {
        let ids = self.by_instance.get(&instance).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| Some((id, self.take(id)?))).collect()
    }

    /// Requests for jobs, oldest first.
    pub(crate) fn polls(&self) -> Vec<RequestId> {
        self.polls.iter().copied().collect()
    }

    pub(crate) fn watches(&self) -> Vec<(RequestId, &Worklist)> {
        self.watches
            .iter()
            .filter_map(|id| match self.requests.get(id) {
                Some((_, Waiting::Worklist(worklist))) => Some((*id, worklist)),
                Some((_, Waiting::Jobs(_) | Waiting::End { .. })) | None => None,
            })
            .collect()
    }

    pub(crate) fn has_watches(&self) -> bool {
        !self.watches.is_empty()
    }

    pub(crate) fn awaits_end_of(&self, instance: InstanceId) -> bool {
        self.by_instance.contains_key(&instance)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }
}
