//! Two planners that hear each other at once: nothing gets lost, and nobody has to wait.

use std::collections::VecDeque;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Effect, Message, Node, Policy, ResourceId, Setup, Task, TaskId, Window, Work,
};

use crate::works::always;

pub(crate) struct Two {
    pub(crate) nodes: [Node; 2],
    told: Vec<Effect>,
    /// What was offered by one of them to the other.
    pub(crate) offered: Vec<TaskId>,
}

pub(crate) const NOW: Timestamp = Timestamp(0);

impl Two {
    pub(crate) fn new() -> Self {
        Self::with(1, &Policy::default())
    }

    /// Each with somebody who does so much at a time.
    pub(crate) fn with(at_once: usize, policy: &Policy) -> Self {
        let node = |number: u16| {
            let setup = Setup { at_once, ..always(Discipline::Preemptive) };
            let mut desk = Desk::default();
            assert!(desk.add(one(number), &setup, NOW));
            let mut node = Node::new(ServerId(number), desk, policy.clone(), 1);
            (0..2).for_each(|other| node.know(one(other), ServerId(other)));
            node
        };
        Self { nodes: [node(0), node(1)], told: Vec::new(), offered: Vec::new() }
    }

    /// The first does something, and both what follows; answers what the first tells.
    pub(crate) fn does(&mut self, act: impl FnOnce(&mut Node) -> Vec<Effect>) -> Vec<Effect> {
        let effects = act(&mut self.nodes[0]);
        let mut open: VecDeque<(usize, Effect)> = effects.into_iter().map(|it| (0, it)).collect();
        while let Some((from, effect)) = open.pop_front() {
            match effect {
                Effect::Say(said) => {
                    let to = usize::from(said.to.0);
                    if let Message::Offer(offer) = &said.message {
                        self.offered.extend(offer.tasks.iter().map(|task| task.id));
                    }
                    let heard = self.nodes[to].hear(ServerId(from as u16), said, NOW);
                    open.extend(heard.into_iter().map(|it| (to, it)));
                }
                told @ (Effect::Promised { .. }
                | Effect::Refused { .. }
                | Effect::Removed { .. }
                | Effect::Lost { .. }) => self.told.push(told),
            }
        }
        std::mem::take(&mut self.told)
    }
}

pub(crate) fn one(number: u16) -> ResourceId {
    ResourceId::Executor(format!("node-{number}").into())
}

pub(crate) fn task(number: u128, deadline: i64, priority: u8, who: &[u16]) -> Task {
    let window = Window { release: NOW, deadline: Timestamp(deadline) };
    let who = who.iter().map(|number| one(*number)).collect();
    let mut task = Task::new(TaskId::new(InstanceId(number), 0), window, Work(1_000), who);
    (task.priority, task.may_abort) = (priority, true);
    task
}

pub(crate) fn is_promised_at(told: &[Effect], id: TaskId, at: u16) -> bool {
    let is_it = |effect: &Effect| match effect {
        Effect::Promised { at: by, promise } => (promise.task, *by) == (id, ServerId(at)),
        Effect::Say(_) | Effect::Refused { .. } | Effect::Removed { .. } | Effect::Lost { .. } => {
            false
        }
    };
    told.iter().any(is_it)
}
