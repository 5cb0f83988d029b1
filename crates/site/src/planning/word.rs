//! How far steps are: sent to the planner of a step and to the server that started the instance, and resent with back-off until
//! acknowledged.
//!
//! The server that controls a step numbers each change; the server that started the instance passes it on as it is. A change
//! that is older than what is known of a step does not count, and the same one counts once. That a step is over always
//! counts: nothing comes after it, and several servers may know it, by clocks that differ.
//!
//! Invariant: nothing here is stored. After a restart the stage of every step is sent anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_engine::{Here, NodeState};
use legwork_model::event::{Leg, TaskKey};
use legwork_model::id::{AgentId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::TaskId;

use super::cases::steps_of;
use super::steps::{Told, is_now, task_of};
use super::{key, task_id};
use crate::Site;
use crate::cases::Cases;
use crate::message::{self, Message, Stage};
use crate::output::Output;
use crate::planning::Planning;
use crate::retries::{Backoff, Retries};

/// Back-off before a change is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How many are sent at a time, and of how many instances after a restart: there may be many.
const SAID_AT_ONCE: usize = 256;
const FOLLOWED_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Word {
    /// What servers have not acknowledged.
    unheard: Retries<(TaskId, ServerId), News>,
    /// The last change that is known of steps that are planned here, or of instances started here.
    heard: BTreeMap<TaskId, (u64, Stage)>,
    /// Instances that were there at the start and of which nobody was told anything since.
    recovered: BTreeSet<InstanceId>,
    last: u64,
}

/// How far a step is, since when, who has claimed it, and how long it took if it is over.
#[derive(Clone, Debug)]
pub(super) struct News {
    pub(super) stage: Stage,
    pub(super) since: Timestamp,
    pub(super) holder: Option<AgentId>,
    pub(super) took_ms: Option<u64>,
    /// 0: it gets one when it is told.
    pub(super) number: u64,
}

impl News {
    pub(super) fn new(stage: Stage, since: Timestamp) -> Self {
        Self { stage, since, holder: None, took_ms: None, number: 0 }
    }
}

impl Default for Word {
    fn default() -> Self {
        Self {
            unheard: Retries::new(BACKOFF),
            heard: BTreeMap::new(),
            recovered: BTreeSet::new(),
            last: 0,
        }
    }
}

impl Word {
    /// Whether it is not known whether anybody has heard how far an instance is.
    pub(super) fn is_awaited(&self, id: InstanceId) -> bool {
        self.recovered.contains(&id)
    }

    /// How far a step is, as another server told.
    pub(super) fn stage(&self, task: TaskId) -> Option<Stage> {
        self.heard.get(&task).map(|(_, stage)| *stage)
    }

    pub(super) fn recover(&mut self, id: InstanceId) {
        self.recovered.insert(id);
    }

    /// Nobody says anything of a step any more that counts here.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.heard.remove(&task);
    }

    /// An instance is not here any more.
    pub(super) fn forget_all(&mut self, id: InstanceId) {
        self.heard.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }

    /// Whether that is news, which counts from now on.
    fn is_news(&mut self, task: TaskId, news: &News) -> bool {
        let News { stage, number, .. } = *news;
        let is_over = |stage: Stage| stage == Stage::Over;
        let is_known = self.heard.get(&task).is_some_and(|(last, before)| {
            number != 0 && number <= *last && (!is_over(stage) || is_over(*before))
        });
        if !is_known {
            self.heard.insert(task, (number, stage));
        }
        !is_known
    }

    /// A number that is higher than all before, also than those from before a restart.
    fn numbered(&mut self, news: News, now: Timestamp) -> News {
        if news.number != 0 {
            return news;
        }
        self.last = (self.last + 1).max(now.0.unsigned_abs());
        News { number: self.last, ..news }
    }
}

impl Planning {
    /// Another server acknowledges how far a step is.
    pub(crate) fn on_step_ack(&mut self, from: ServerId, task: TaskKey, number: u64) {
        let (word, at) = (&mut self.word, (task_id(task), from));
        if word.unheard.get(&at).is_some_and(|news| news.number == number) {
            word.unheard.remove(&at);
        }
    }
}

impl Cases {
    /// The planner of a step of an instance that was started here.
    fn planner_now(&self, task: TaskKey) -> Option<ServerId> {
        let (_, state) = self.instances.state(task.instance)?;
        let deadline = state.deadline().filter(|_| state.started_elsewhere().is_none())?;
        let mut legs = deadline.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (task.node, task.round))?;
        leg.planned.as_ref().map(|planned| planned.planner)
    }
}

impl Site {
    /// Tells the planner of a step how far it is, and the server that asked for it.
    pub(super) fn tell_step(
        &mut self,
        task: TaskId,
        news: News,
        others: [Option<ServerId>; 2],
        now: Timestamp,
    ) {
        let here = self.cluster.server_here();
        let others: BTreeSet<ServerId> = others.into_iter().flatten().collect();
        let word = &mut self.planning.word;
        let news = word.numbered(news, now);
        for to in others.into_iter().filter(|to| *to != here) {
            self.out.push(Output::Send { to, message: step(task, &news, now) });
            word.unheard.insert_sent((task, to), news.clone(), now);
        }
    }

    /// Resends what is not acknowledged and is due.
    pub(super) fn resend_steps(&mut self, now: Timestamp) {
        let servers: BTreeSet<ServerId> = self.cluster.other_servers().collect();
        let word = &mut self.planning.word;
        for _ in 0..SAID_AT_ONCE {
            let Some(((task, to), news)) = word.unheard.attempt_next(now) else { return };
            let message = step(task, news, now);
            // A server that has left the topology needs no word.
            match servers.contains(&to) {
                true => self.out.push(Output::Send { to, message }),
                false => drop(word.unheard.remove(&(task, to))),
            }
        }
    }

    /// When something is resent.
    pub(super) fn next_word(&self) -> Option<Timestamp> {
        let Word { unheard, recovered, .. } = &self.planning.word;
        let recovered = (!recovered.is_empty()).then_some(self.clock.latest);
        unheard.next_due().into_iter().chain(recovered).min()
    }

    /// Another server tells how far a step is. It may not know which planner has it meanwhile.
    pub(super) fn on_step(&mut self, from: ServerId, task: TaskKey, news: News, now: Timestamp) {
        let News { stage, since, took_ms, number, .. } = news;
        // The instance is not read yet: without an acknowledgement this is resent.
        if self.cases.unread.contains(&task.instance) {
            return;
        }
        // Whoever started it may have heard of the end before, on another way.
        let told = self.planning.stages.get(&task_id(task));
        let is_past = stage != Stage::Over && told.is_some_and(|it| it.stage == Stage::Over);
        if !is_past && self.planning.word.is_news(task_id(task), &news) {
            self.step_told(task, (stage, since), now);
            self.took(task, took_ms, now);
            let planner = self.cases.planner_now(task).filter(|planner| *planner != from);
            let has_changed = self.note_holder(task_id(task), news.holder.clone());
            self.tell_step(task_id(task), news, [planner, None], now);
            self.follow_holder(task_id(task), has_changed, now);
        }
        if self.cases.instances.get(task.instance).is_none() && !self.planning.ledger.holds(task) {
            self.planning.word.forget(task_id(task));
        }
        // Others of before say it once, and wait for no answer.
        if number != 0 {
            self.out.push(Output::Send {
                to: from,
                message: Message::Deadline(message::Deadline::StepAck { task, number }),
            });
        }
    }

    /// A server that can be reached again may have restarted, and it keeps only in memory which steps are begun.
    pub(super) fn say_begun_to(&mut self, server: ServerId, now: Timestamp) {
        let is_begun = |told: &Told| told.stage == Stage::Begun || told.holder.is_some();
        let begun = self.planning.stages.iter().filter(|(_, told)| is_begun(told));
        let is_starter = |id: InstanceId| {
            let starter = self.cases.instances.state(id).and_then(|(_, it)| it.started_elsewhere());
            starter == Some(server)
        };
        let own =
            begun.filter(|(id, told)| told.planner == Some(server) || is_starter(id.instance));
        let own: Vec<(TaskId, News)> = own
            .map(|(id, told)| {
                let holder = told.holder.clone();
                (*id, News { holder, ..News::new(told.stage, told.since) })
            })
            .collect();
        let word = &mut self.planning.word;
        for (task, news) in own {
            let news = word.numbered(news, now);
            word.unheard.insert((task, server), news, now);
        }
    }

    /// After a restart it is not known what others have acknowledged: the plans are brought in line once more, some at a time.
    pub(super) fn follow_recovered(&mut self, now: Timestamp) {
        for _ in 0..FOLLOWED_AT_ONCE {
            let Some(id) = self.planning.word.recovered.pop_first() else { return };
            self.follow_plan(id, now);
            self.say_waiting(id, now);
        }
    }

    /// Somebody may have left a step just before the restart.
    fn say_waiting(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let starter = state.started_elsewhere();
        let waiting = deadline.legs.iter().filter(|leg| {
            let is_open = is_now(schema, state, leg)
                && matches!(state.node_state(leg.node), NodeState::Activated | NodeState::Failed);
            let is_a_persons = || schema.node(leg.node).who().is_some();
            is_open && is_a_persons() && self.standing(id).controls(schema, state, leg.node)
        });
        // A starter that has a step replanned may think that somebody still has it.
        let planner = |leg: &Leg| leg.planned.as_ref().map(|planned| planned.planner);
        let waiting: Vec<(TaskId, Option<ServerId>)> =
            waiting.map(|leg| (task_of(id, leg), planner(leg))).collect();
        for (task, planner) in waiting {
            self.tell_step(task, News::new(Stage::Waiting, now), [planner, starter], now);
            self.step_told(key(task), (Stage::Waiting, now), now);
        }
    }
}

fn step(task: TaskId, news: &News, now: Timestamp) -> Message {
    let News { stage, since, holder, took_ms, number } = news.clone();
    let ago_ms = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
    Message::Deadline(message::Deadline::Step {
        task: key(task),
        stage,
        took_ms,
        number,
        ago_ms,
        holder,
    })
}
