//! Decides commands: events, or a rejection that changed nothing.
//!
//! Each command has its module. They share the `Draft`: a copy of the state into which every event is
//! folded as it is written, so that a decision always returns the state after its events, and decisions
//! by condition see the data of the step that made them due.

mod abort;
mod answer;
mod automatic;
mod claim;
mod complete;
mod create;
mod delegate;
mod fail;
mod pass;
mod raise;
mod release;
mod replan;
mod resolve;
mod suspend;
mod take_over;
mod travel;

use legwork_model::event::{Answered, Event, Performer};
use legwork_model::id::{Activity, DomainId, NodeId};
use legwork_model::schema::{Node, Schema};
use legwork_model::time::Timestamp;

use crate::command::Command;
use crate::evolve;
use crate::marking::has_outside_work;
use crate::rejection::Rejection;
use crate::state::{Change, Lifecycle, NodeState, State};

pub use create::{create, create_at};
pub use travel::receive_first;

/// The most stored bytes of an error or a reason; longer texts are cut.
pub(crate) const TEXT_BYTES_MAX: usize = 4 * 1024;

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub events: Vec<Event>,
    /// The state after the events.
    pub state: State,
    /// The changes by the events that matter outside, in order of occurrence.
    pub changes: Vec<Change>,
}

/// The server of a decision.
pub trait Here {
    /// Whether it controls a node.
    fn controls(&self, schema: &Schema, state: &State, node: NodeId) -> bool;

    /// The home of a performer, if not the domain of this server.
    fn home(&self, performer: &Performer) -> Option<DomainId>;

    /// The home of the executor that is expected to do this step best, if not the domain of this server.
    fn home_of_executor(&self, schema: &Schema, state: &State, node: NodeId) -> Option<DomainId>;
}

/// One server controls everything.
#[derive(Clone, Copy, Debug)]
pub struct Everywhere;

impl Here for Everywhere {
    fn controls(&self, _: &Schema, _: &State, _: NodeId) -> bool {
        true
    }

    fn home(&self, _: &Performer) -> Option<DomainId> {
        None
    }

    fn home_of_executor(&self, _: &Schema, _: &State, _: NodeId) -> Option<DomainId> {
        None
    }
}

/// Decides a command on a running instance that one server controls.
pub fn decide(
    schema: &Schema,
    state: &State,
    command: Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    decide_at(&Everywhere, schema, state, command, now)
}

/// Decides a command on a running instance at one of its servers.
pub fn decide_at(
    here: &dyn Here,
    schema: &Schema,
    state: &State,
    command: Command,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let case = Case { here, schema, state, now };
    match command {
        Command::Claim { activity, by } => claim::claim(case, activity, by),
        Command::Release { activity, by } => release::release(case, activity, by),
        Command::Delegate { activity, by, to } => delegate::delegate(case, activity, by, to),
        Command::TakeOver { activity, by } => take_over::take_over(case, activity, by),
        Command::Complete { activity, by, started_at, outputs, answer, request, channel } => {
            let done =
                complete::Done { activity, by, started_at, outputs, answer, request, channel };
            complete::complete(case, done)
        }
        Command::Answer { activity, by, started_at, outputs, lease } => {
            let writes = outputs;
            answer::answer(case, Answered { activity, by, started_at, writes, lease })
        }
        Command::Assign(assigned) => answer::assign(case, assigned),
        Command::Confirm { activity } => answer::confirm(case, &activity),
        Command::Fail { activity, by, error, retry } => {
            fail::fail(case, activity, by, &error, retry)
        }
        Command::Raise { activity, incident } => raise::raise(case, activity, incident),
        Command::Resolve { activity, by, resolution } => {
            resolve::resolve(case, activity, by, resolution)
        }
        Command::Suspend { by, reason } => suspend::suspend(case, by, reason.as_deref()),
        Command::Resume { by, reason } => suspend::resume(case, by, reason.as_deref()),
        Command::Abort { by, reason } => abort::abort(case, by, &reason),
        Command::Send { to, parcel } => travel::send(case, to, parcel),
        Command::Deliver { to, number } => travel::deliver(case, to, number),
        Command::Receive(received) => travel::receive(case, received),
        Command::Fetch { values } => travel::fetch(case, values),
        Command::Finish => travel::finish(case),
        Command::Redirect { from, to } => travel::redirect(case, from, to),
        Command::Replan(replanned) => replan::replan(case, replanned),
        Command::PassDeadline { at, then } => pass::pass(case, at, then),
    }
}

/// The instance of a command.
#[derive(Clone, Copy)]
struct Case<'a> {
    here: &'a dyn Here,
    schema: &'a Schema,
    state: &'a State,
    now: Timestamp,
}

impl<'a> Case<'a> {
    /// Refuses orders for the instance as a whole, except where it was started.
    fn gives_orders(self) -> Result<(), Rejection> {
        match self.state.started_elsewhere() {
            Some(_) => Err(Rejection::StartedElsewhere),
            None => Ok(()),
        }
    }

    /// Refuses everything once the instance has ended.
    fn alive(self) -> Result<(), Rejection> {
        let lifecycle = self.state.lifecycle();
        if lifecycle.has_ended() { Err(Rejection::Ended { lifecycle }) } else { Ok(()) }
    }

    /// Finds the node of an activity of the current iteration.
    fn node(self, activity: &Activity) -> Result<&'a Node, Rejection> {
        let known = self.schema.nodes.get(activity.node.0 as usize);
        let node = known.ok_or(Rejection::NoSuchActivity)?;
        match self.state.compare_iteration(node, &activity.iteration) {
            std::cmp::Ordering::Equal => Ok(node),
            std::cmp::Ordering::Less if activity.iteration.0.len() == node.loops.len() => {
                Err(Rejection::IterationOver {
                    step: node.name.to_string(),
                    current: self.state.activity(self.schema, node.id).iteration,
                })
            }
            std::cmp::Ordering::Less | std::cmp::Ordering::Greater => {
                Err(Rejection::NoSuchActivity)
            }
        }
    }

    /// Finds an open node with outside work.
    fn open(self, activity: &Activity) -> Result<&'a Node, Rejection> {
        let node = self.node(activity)?;
        if !has_outside_work(node) {
            return Err(Rejection::NoSuchActivity);
        }
        if !self.here.controls(self.schema, self.state, node.id) {
            return Err(Rejection::Elsewhere { step: node.name.to_string() });
        }
        match self.state.node_state(node.id) {
            NodeState::Activated | NodeState::Selected => Ok(node),
            state @ (NodeState::NotActivated
            | NodeState::Completed
            | NodeState::Skipped
            | NodeState::Failed) => Err(Rejection::NotOpen { step: node.name.to_string(), state }),
        }
    }

    /// Finds an open node with work for a person.
    fn work_item(self, activity: &Activity) -> Result<&'a Node, Rejection> {
        let node = self.open(activity)?;
        match node.who() {
            Some(_) => Ok(node),
            None => Err(Rejection::NotAWorkItem { step: node.name.to_string() }),
        }
    }

    /// Refuses any other end of a step whose result was accepted.
    fn not_answered(self, node: &Node) -> Result<(), Rejection> {
        match self.state.answer(node.id) {
            Some(_) => Err(Rejection::Answered { step: node.name.to_string() }),
            None => Ok(()),
        }
    }

    /// Refuses new work while the instance is suspended.
    fn not_suspended(self) -> Result<(), Rejection> {
        match self.state.lifecycle() {
            Lifecycle::Suspended => Err(Rejection::Suspended),
            Lifecycle::Running | Lifecycle::Completed | Lifecycle::Aborted => Ok(()),
        }
    }

    /// Answers with one event and its consequences.
    fn answer(self, event: Event) -> Result<Decision, Rejection> {
        let mut draft = Draft::of(self);
        draft.record(event);
        Ok(draft.finish())
    }
}

/// A decision under construction.
struct Draft<'a> {
    here: &'a dyn Here,
    schema: &'a Schema,
    state: State,
    now: Timestamp,
    events: Vec<Event>,
    changes: Vec<Change>,
    undecided: Vec<NodeId>,
}

impl<'a> Draft<'a> {
    fn of(Case { here, schema, state, now }: Case<'a>) -> Self {
        Self {
            here,
            schema,
            state: state.clone(),
            now,
            events: Vec::with_capacity(1),
            changes: Vec::with_capacity(2),
            undecided: Vec::new(),
        }
    }

    /// Records an event and folds it in.
    fn record(&mut self, event: Event) {
        let Self { schema, state, now, changes, undecided, .. } = self;
        evolve::apply(schema, state, &event, *now, changes, undecided, Vec::pop);
        self.events.push(event);
    }

    /// Decides all conditions that became due.
    fn finish(mut self) -> Decision {
        automatic::decide_all(&mut self);
        Decision { events: self.events, state: self.state, changes: self.changes }
    }
}

/// Cuts a text to the stored length, at a character boundary.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}
