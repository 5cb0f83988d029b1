//! Waiting requests: for a job, for a change of a worklist, for the end of an instance.
//!
//! Each has a moment at which it is answered anyway. Their number is limited.
//!
//! Invariant: an event visits only the requests it can concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::id::{AgentId, InstanceId};
use legwork_model::time::Timestamp;

use crate::input::{Activate, RequestId, Worklist};

#[derive(Debug)]
pub(crate) enum Waiting {
    Jobs(Activate),
    /// For a change of what an agent sees, including the items of absent people they stand in for.
    Worklist {
        worklist: Worklist,
        stands_in_for: Vec<AgentId>,
    },
    /// For the items of other servers, before a worklist is answered for the first time.
    Gathering(Worklist),
    /// For the end of an instance. `started` is set for a start, and says whether it was a repetition.
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
    by_instance: BTreeMap<InstanceId, BTreeSet<RequestId>>,
    by_job: BTreeMap<Arc<str>, BTreeSet<RequestId>>,
    by_agent: BTreeMap<AgentId, BTreeSet<RequestId>>,
}

impl WaitingRoom {
    pub(crate) fn park(&mut self, id: RequestId, until: Timestamp, waiting: Waiting) {
        match &waiting {
            Waiting::Jobs(Activate { types, .. }) => {
                for job in types {
                    self.by_job.entry(job.clone()).or_default().insert(id);
                }
            }
            Waiting::Worklist { worklist, stands_in_for } => {
                for agent in stands_in_for.iter().chain([&worklist.agent]) {
                    self.by_agent.entry(agent.clone()).or_default().insert(id);
                }
            }
            Waiting::Gathering(_) => {}
            Waiting::End { instance, .. } => {
                self.by_instance.entry(*instance).or_default().insert(id);
            }
        }
        self.deadlines.insert((until, id));
        self.requests.insert(id, (until, waiting));
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Waiting> {
        let (until, waiting) = self.requests.remove(&id)?;
        self.deadlines.remove(&(until, id));
        match &waiting {
            Waiting::Jobs(Activate { types, .. }) => {
                types.iter().for_each(|job| leave(&mut self.by_job, job, id));
            }
            Waiting::Worklist { worklist, stands_in_for } => {
                let agents = stands_in_for.iter().chain([&worklist.agent]);
                agents.for_each(|agent| leave(&mut self.by_agent, agent, id));
            }
            Waiting::Gathering(_) => {}
            Waiting::End { instance, .. } => leave(&mut self.by_instance, instance, id),
        }
        Some(waiting)
    }

    pub(crate) fn ids(&self) -> Vec<RequestId> {
        self.requests.keys().copied().collect()
    }

    pub(crate) fn peek(&self, id: RequestId) -> Option<&Waiting> {
        self.requests.get(&id).map(|(_, waiting)| waiting)
    }

    /// Takes a request whose time is over.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(RequestId, Waiting)> {
        let &(until, id) = self.deadlines.first()?;
        if until > now {
            return None;
        }
        self.take(id).map(|waiting| (id, waiting))
    }

    /// Takes all requests that wait for the end of an instance.
    pub(crate) fn take_for(&mut self, instance: InstanceId) -> Vec<(RequestId, Waiting)> {
        let ids = self.by_instance.get(&instance).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| Some((id, self.take(id)?))).collect()
    }

    /// The request that has waited longest for jobs of a type.
    pub(crate) fn poll_for(&self, job: &str) -> Option<RequestId> {
        self.by_job.get(job)?.first().copied()
    }

    /// The requests that wait for jobs of a type, oldest first.
    pub(crate) fn polls_for(&self, job: &str) -> impl Iterator<Item = RequestId> {
        self.by_job.get(job).into_iter().flatten().copied()
    }

    /// The agents whose items a request waits for.
    pub(crate) fn watched(&self) -> impl ExactSizeIterator<Item = &AgentId> {
        self.by_agent.keys()
    }

    /// The requests that wait for a change of what one of these agents sees, oldest first.
    pub(crate) fn watches_of<'a>(
        &self,
        agents: impl IntoIterator<Item = &'a AgentId>,
    ) -> BTreeSet<RequestId> {
        let requests = agents.into_iter().filter_map(|agent| self.by_agent.get(agent));
        requests.flatten().copied().collect()
    }

    pub(crate) fn is_watched(&self, agent: &AgentId) -> bool {
        self.by_agent.contains_key(agent)
    }

    pub(crate) fn has_watches(&self) -> bool {
        !self.by_agent.is_empty()
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

fn leave<K: Ord>(index: &mut BTreeMap<K, BTreeSet<RequestId>>, key: &K, id: RequestId) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn poll(types: &[&str]) -> Waiting {
        Waiting::Jobs(Activate {
            worker: Arc::from("robot"),
            types: types.iter().map(|job| Arc::from(*job)).collect(),
            max: 1,
            lease: Duration::from_secs(1),
            wait_until: None,
        })
    }

    fn watch(agent: &str, stands_in_for: &[&str]) -> Waiting {
        let agent = AgentId::from(agent);
        Waiting::Worklist {
            worklist: Worklist { agent, since: None, limit: 1, wait_until: None },
            stands_in_for: stands_in_for.iter().map(|name| AgentId::from(*name)).collect(),
        }
    }

    fn room(waiting: impl IntoIterator<Item = Waiting>) -> WaitingRoom {
        let mut room = WaitingRoom::default();
        for (number, waiting) in (1..).zip(waiting) {
            room.park(RequestId(number), Timestamp(100), waiting);
        }
        room
    }

    fn watches(room: &WaitingRoom, agent: &str) -> Vec<u64> {
        room.watches_of([&AgentId::from(agent)]).into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn workers_are_found_by_the_types_they_wait_for_oldest_first() {
        let mut room = room([poll(&["mail"]), poll(&["print", "mail"]), poll(&["print"])]);
        assert_eq!(room.poll_for("mail"), Some(RequestId(1)));
        assert_eq!(room.poll_for("print"), Some(RequestId(2)));
        assert_eq!(room.poll_for("other"), None);
        room.take(RequestId(1));
        assert_eq!(room.poll_for("mail"), Some(RequestId(2)));
        room.take(RequestId(2));
        assert_eq!((room.poll_for("mail"), room.poll_for("print")), (None, Some(RequestId(3))));
    }

    #[test]
    fn readers_are_found_by_the_agents_whose_items_they_see() {
        let mut room = room([watch("ann", &[]), watch("ben", &["ann", "cleo"]), watch("ann", &[])]);
        assert_eq!(watches(&room, "ann"), [1, 2, 3]);
        assert_eq!(watches(&room, "cleo"), [2]);
        assert_eq!(watches(&room, "dan"), [0; 0]);
        assert_eq!(room.watched().len(), 3);
        room.take(RequestId(2));
        assert_eq!(watches(&room, "ann"), [1, 3]);
        assert_eq!(watches(&room, "cleo"), [0; 0]);
        assert_eq!(room.watched().len(), 1, "nothing is left behind");
    }
}
