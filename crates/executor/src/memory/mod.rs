//! The tasks that the executor was given, and their outcomes: why a resent task begins nothing.
//!
//! Invariant: pure except for the channels to waiting requests. A task has one answer, and keeps it; at most
//! `TASKS_MAX` tasks and `BYTES_MAX` bytes of results are remembered. An outcome that Legwork has not acknowledged
//! is never forgotten: if only those are left, new tasks wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use legwork_api::Data;
use legwork_api::executors::{HOLDS_MAX, TASK_CHARS_MAX};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::{Failure, Judged, Task};

/// The most remembered tasks; the oldest are forgotten first.
const TASKS_MAX: usize = 10_000;
/// The most bytes of remembered results.
const BYTES_MAX: usize = 64 << 20;

pub(crate) type Outcome = Result<Data, Failure>;
pub(crate) type Waiting = watch::Receiver<Option<Answer>>;

/// The answer to a task, the first time and ever after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The result comes by callback.
    Taken,
    Finished(Arc<Outcome>),
    /// It was cancelled or has its verdict: no answer is needed.
    Over,
}

pub(crate) enum Admission {
    /// It was given before.
    Known(Waiting),
    /// It must be begun.
    New(Waiting),
    /// The limit is reached.
    Busy,
    /// The executor stops, or its memory is full.
    Closed,
}

/// The tasks of the executor, including queued ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) has: u32,
    /// Their names, up to a limit.
    pub(crate) holds: Vec<String>,
}

/// What to do about a verdict.
pub(crate) enum Judgement {
    /// Call the hook, then `judged`.
    Call(Judged),
    /// The hook was called and succeeded.
    Confirmed,
    /// The hook is being called.
    Later,
}

#[derive(Debug)]
pub(crate) struct Memory {
    tasks: HashMap<Arc<str>, Entry>,
    /// The tasks that may be forgotten, in the order in which that became so.
    forgettable: BTreeMap<u64, Arc<str>>,
    turn: u64,
    bytes: usize,
    tasks_max: usize,
    bytes_max: usize,
    /// The names of begun tasks that have not ended.
    held: BTreeSet<Arc<str>>,
    /// Their number by server, and by type and server.
    working_of: BTreeMap<(String, Option<String>), u32>,
    /// The number of results being sent and hooks being called.
    open: usize,
    stopping: bool,
}

#[derive(Debug)]
struct Entry {
    phase: Phase,
    answer: watch::Sender<Option<Answer>>,
    key: Option<String>,
    work: Option<AbortHandle>,
    /// Dropped with the first verdict: until then the result is resent.
    unjudged: Option<oneshot::Sender<()>>,
    /// Its service time, in milliseconds, once it has ended.
    took_ms: Option<u64>,
    bytes: usize,
    /// Its position among the forgettable.
    turn: Option<u64>,
}

#[derive(Clone, Debug)]
enum Phase {
    Working,
    /// Sent by callback, and not acknowledged yet.
    Sending(Arc<Outcome>),
    /// Legwork has acknowledged the result.
    Told(Arc<Outcome>),
    /// The hook is being called.
    Judging(Option<Arc<Outcome>>),
    /// Cancelled or judged: only the name is kept.
    Over,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(TASKS_MAX, BYTES_MAX)
    }
}

impl Memory {
    fn new(tasks_max: usize, bytes_max: usize) -> Self {
        Self {
            tasks: HashMap::new(),
            forgettable: BTreeMap::new(),
            turn: 0,
            bytes: 0,
            tasks_max,
            bytes_max,
            held: BTreeSet::new(),
            working_of: BTreeMap::new(),
            open: 0,
            stopping: false,
        }
    }

    /// A new task counts as begun from here on. Limits are per server: tasks of other servers do not count.
    pub(crate) fn admit(&mut self, task: &Task, limit: u32, limit_of: Option<u32>) -> Admission {
        if let Some(entry) = self.tasks.get(&*task.task) {
            return Admission::Known(entry.answer.subscribe());
        }
        if self.stopping {
            return Admission::Closed;
        }
        let [of_server, of_kind] = counted(&giver(task), &task.kind);
        let working = |of| self.working_of.get(of).copied().unwrap_or_default();
        if working(&of_server) >= limit || limit_of.is_some_and(|most| working(&of_kind) >= most) {
            return Admission::Busy;
        }
        if !self.make_room() {
            return Admission::Closed;
        }
        for of in [of_server, of_kind] {
            *self.working_of.entry(of).or_default() += 1;
        }
        let entry = Entry::new(Phase::Working, Some(task.key.clone()));
        let waiting = entry.answer.subscribe();
        let name: Arc<str> = task.task.as_str().into();
        self.held.insert(name.clone());
        self.tasks.insert(name, entry);
        Admission::New(waiting)
    }

    /// Sets the handle to cancel it.
    pub(crate) fn begun(&mut self, task: &str, work: AbortHandle) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.work = Some(work);
        }
    }

    /// It takes long: waiting requests are told that the result comes later.
    pub(crate) fn taken(&mut self, task: &str) {
        if let Some(entry) = self.tasks.get(task) {
            entry.answer_once(Answer::Taken);
        }
    }

    /// The handler has ended, in any way: its slot is free.
    pub(crate) fn ended(&mut self, task: &str, giver: &str, kind: &str) {
        self.held.remove(task);
        for of in counted(giver, kind) {
            let Some(count) = self.working_of.get_mut(&of) else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.working_of.remove(&of);
            }
        }
    }

    /// Sets its service time.
    pub(crate) fn took(&mut self, task: &str, took_ms: Option<u64>) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.took_ms = took_ms;
        }
    }

    /// The load reported with every answer: the current tasks of all servers.
    pub(crate) fn load(&self) -> Load {
        let holds = self.held.iter().take(HOLDS_MAX).map(ToString::to_string).collect();
        Load { has: u32::try_from(self.held.len()).unwrap_or(u32::MAX), holds }
    }

    /// The service time of a task, once it has ended.
    pub(crate) fn took_ms(&self, task: &str) -> Option<u64> {
        self.tasks.get(task).and_then(|entry| entry.took_ms)
    }

    /// Returns whether the result has to be sent: no request waits for it any more.
    pub(crate) fn finished(&mut self, task: &str, outcome: &Arc<Outcome>, bytes: usize) -> bool {
        let Some(entry) = self.tasks.get_mut(task) else { return false };
        if !matches!(entry.phase, Phase::Working) {
            return false;
        }
        entry.work = None;
        entry.bytes = bytes;
        self.bytes += bytes;
        let is_open = entry.answer.borrow().is_none();
        if is_open && entry.answer.receiver_count() > 0 {
            entry.answer_once(Answer::Finished(outcome.clone()));
            self.shift(task, Phase::Told(outcome.clone()));
            return false;
        }
        entry.answer_once(Answer::Taken);
        self.shift(task, Phase::Sending(outcome.clone()));
        true
    }

    /// Whether the result is still to be sent: a verdict implies its receipt.
    pub(crate) fn is_sending(&self, task: &str) -> bool {
        self.tasks.get(task).is_some_and(|entry| matches!(entry.phase, Phase::Sending(_)))
    }

    pub(crate) fn sent(&mut self, task: &str) {
        if let Some(Phase::Sending(outcome)) = self.phase(task) {
            self.shift(task, Phase::Told(outcome));
        }
    }

    /// For a result without a verdict: a receiver that ends with the verdict, or when the result is forgotten.
    pub(crate) fn unjudged(&mut self, task: &str) -> Option<oneshot::Receiver<()>> {
        let entry = self.tasks.get_mut(task)?;
        match &entry.phase {
            Phase::Told(outcome) if outcome.is_ok() => {
                let (until, judged) = oneshot::channel();
                entry.unjudged = Some(until);
                Some(judged)
            }
            Phase::Told(_)
            | Phase::Working
            | Phase::Sending(_)
            | Phase::Judging(_)
            | Phase::Over => None,
        }
    }

    /// The task is no longer wanted. A finished one stays done, and gets its verdict.
    pub(crate) fn cancel(&mut self, task: &str) {
        match self.phase(task) {
            Some(Phase::Working) => self.shift(task, Phase::Over),
            // The task itself may come later: it must not be begun.
            None if self.make_room() => {
                self.tasks.insert(task.into(), Entry::new(Phase::Working, None));
                self.shift(task, Phase::Over);
            }
            None | Some(Phase::Sending(_) | Phase::Told(_) | Phase::Judging(_) | Phase::Over) => {}
        }
    }

    pub(crate) fn judge(&mut self, task: &str) -> Judgement {
        let outcome = match self.phase(task) {
            Some(Phase::Over) => return Judgement::Confirmed,
            Some(Phase::Judging(_)) => return Judgement::Later,
            Some(Phase::Sending(outcome) | Phase::Told(outcome)) => Some(outcome),
            // The result is from an earlier incarnation of this executor.
            Some(Phase::Working) => None,
            None if self.make_room() => {
                self.tasks.insert(task.into(), Entry::new(Phase::Working, None));
                None
            }
            None => return Judgement::Later,
        };
        let data = outcome.as_deref().and_then(|outcome| outcome.as_ref().ok()).cloned();
        self.shift(task, Phase::Judging(outcome));
        let key = self.tasks.get(task).and_then(|entry| entry.key.clone());
        Judgement::Call(Judged { task: task.to_owned(), key, data })
    }

    /// The hook succeeded, or the verdict is delivered again.
    pub(crate) fn judged(&mut self, task: &str, well: bool) {
        match self.phase(task) {
            Some(Phase::Judging(_)) if well => self.shift(task, Phase::Over),
            Some(Phase::Judging(Some(outcome))) => self.shift(task, Phase::Told(outcome)),
            Some(Phase::Judging(None)) => self.forget(task),
            None | Some(Phase::Working | Phase::Sending(_) | Phase::Told(_) | Phase::Over) => {}
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// No task is running, all outcomes are acknowledged, and no hook is being called.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.open == 0
    }

    fn phase(&self, task: &str) -> Option<Phase> {
        self.tasks.get(task).map(|entry| entry.phase.clone())
    }

    fn shift(&mut self, task: &str, phase: Phase) {
        let Some((name, _)) = self.tasks.get_key_value(task) else { return };
        let name = name.clone();
        let Some(entry) = self.tasks.get_mut(task) else { return };
        if let Some(work) = entry.work.take() {
            work.abort();
        }
        entry.unjudged = None;
        if let Some(turn) = entry.turn.take() {
            self.forgettable.remove(&turn);
        }
        self.open -= usize::from(entry.phase.is_open());
        self.open += usize::from(phase.is_open());
        let forgettable = match phase {
            Phase::Told(_) => true,
            Phase::Over => {
                self.bytes -= std::mem::take(&mut entry.bytes);
                entry.end();
                true
            }
            Phase::Working | Phase::Sending(_) | Phase::Judging(_) => false,
        };
        entry.phase = phase;
        if forgettable {
            self.turn += 1;
            entry.turn = Some(self.turn);
            self.forgettable.insert(self.turn, name);
        }
    }

    /// Forgets the oldest until there is room for one more.
    fn make_room(&mut self) -> bool {
        while self.tasks.len() >= self.tasks_max || self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.forgettable.pop_first() else { return false };
            self.forget(&oldest);
        }
        true
    }

    fn forget(&mut self, task: &str) {
        if let Some(entry) = self.tasks.remove(task) {
            self.bytes -= entry.bytes;
            self.open -= usize::from(entry.phase.is_open());
            if let Some(turn) = entry.turn {
                self.forgettable.remove(&turn);
            }
        }
    }
}

/// The counters of a task: of its server, and of its type at its server.
fn counted(giver: &str, kind: &str) -> [(String, Option<String>); 2] {
    [(giver.to_owned(), None), (giver.to_owned(), Some(kind.to_owned()))]
}

/// The server of a task. Servers of one process share a callback, and older ones send no name.
pub(crate) fn giver(task: &Task) -> String {
    format!("{} {}", task.callback, task.server.as_deref().unwrap_or_default())
}

impl Phase {
    /// Whether the task is still in use apart from the handler.
    fn is_open(&self) -> bool {
        match self {
            Self::Sending(_) | Self::Judging(_) => true,
            Self::Working | Self::Told(_) | Self::Over => false,
        }
    }
}

impl Entry {
    fn new(phase: Phase, key: Option<String>) -> Self {
        let (answer, _) = watch::channel(None);
        let (work, unjudged, took_ms, bytes, turn) = (None, None, None, 0, None);
        Self { phase, answer, key, work, unjudged, took_ms, bytes, turn }
    }

    /// The first answer stands.
    fn answer_once(&self, answer: Answer) {
        self.answer.send_if_modified(|now| {
            let is_first = now.is_none();
            if is_first {
                *now = Some(answer);
            }
            is_first
        });
    }

    /// Drops the result. Requests that were told to wait are told so again.
    fn end(&mut self) {
        self.key = None;
        self.answer.send_if_modified(|now| {
            let keeps = matches!(now, Some(Answer::Taken));
            if !keeps {
                *now = Some(Answer::Over);
            }
            !keeps
        });
    }
}

/// A name longer than any from Legwork.
pub(crate) fn is_too_long(task: &str) -> bool {
    task.chars().nth(TASK_CHARS_MAX).is_some()
}

#[cfg(test)]
mod tests;
