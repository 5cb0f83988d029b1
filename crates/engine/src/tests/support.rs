//! Plays a script of commands on one instance and writes down the results.
//!
//! After every command the state must equal the replay of the history and survive a snapshot.

use std::collections::BTreeMap;
use std::fmt::Write;

use legwork_model::compile::compile;
use legwork_model::event::{Created, Event, Incident, Performer, Record, RequestDigest};
use legwork_model::id::{Activity, AgentId, Iteration, NodeId};
use legwork_model::schema::Schema;
use legwork_model::time::{Timestamp, parse_duration};
use legwork_model::yaml;

use crate::{
    Change, Command, Decision, NodeState, Rejection, Resolution, State, create, data, decide,
    replay,
};

pub(super) fn schema(source: &str) -> Schema {
    let (definition, findings) = yaml::parse(source);
    let definition = definition.unwrap_or_else(|| panic!("{findings:?}"));
    compile(&definition, 1).unwrap()
}

/// The transcript of a script. Every line is a command:
///
/// ```text
/// start amount=12            claim STEP by ann         complete STEP by ann ok=true
/// release STEP by ann        delegate STEP by ann to bob                take STEP by bob
/// complete STEP by ann answer=yes request=7 content=1  complete STEP by worker
/// fail STEP the error        fail! STEP the error      raise STEP
/// retry STEP                 choose STEP yes           supply STEP ok=true
/// suspend   resume   abort the reason
/// wait 5s   show   reads STEP   open   results
/// ```
///
/// A step is named as outside: `give`, or `give:1` for a given iteration instead of the current
/// one.
pub(super) fn play(source: &str, script: &str) -> String {
    let mut stage = Stage { schema: schema(source), state: None, history: Vec::new(), now: 0 };
    let mut transcript = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let _ = writeln!(transcript, "> {line}");
        let lines = stage.perform(line);
        lines.iter().for_each(|line| writeln!(transcript, "  {line}").unwrap());
    }
    transcript
}

struct Stage {
    schema: Schema,
    state: Option<State>,
    history: Vec<Record<Event>>,
    now: i64,
}

impl Stage {
    fn perform(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let first = words[0];
        match first {
            "wait" => {
                self.now += parse_duration(words[1]).unwrap().as_millis() as i64;
                vec![]
            }
            "show" => vec![self.marking()],
            "open" => self.open(),
            "reads" => {
                let activity = self.activity(words[1]);
                self.values(self.state().inputs(&self.schema, &activity))
            }
            "results" => self.values(self.state().results(&self.schema)),
            _ => match self.ask(first, &words) {
                Ok(decision) => self.accept(decision),
                Err(rejection) => vec![format!("refused {}: {rejection}", rejection.code())],
            },
        }
    }

    fn ask(&self, first: &str, words: &[&str]) -> Result<Decision, Rejection> {
        let now = Timestamp(self.now);
        if first == "start" {
            let created = Created {
                process: self.schema.process.clone(),
                version: 1,
                by: performer("ann"),
                inputs: data::inputs_typed(&self.schema, &pairs(&words[1..]))?,
                deadline: None,
            };
            return create(&self.schema, created, now);
        }
        decide(&self.schema, self.state(), self.command(first, words)?, now)
    }

    fn command(&self, first: &str, words: &[&str]) -> Result<Command, Rejection> {
        let agent = |place: usize| AgentId::from(words[place]);
        let by = Performer::Agent(AgentId::from("root"));
        let rest = |from: usize| words[from..].join(" ");
        let activity = || self.activity(words[1]);
        let typed =
            |from: usize| data::typed(&self.schema, activity().node, &pairs(&words[from..]));
        Ok(match first {
            "claim" => Command::Claim { activity: activity(), by: agent(3) },
            "release" => Command::Release { activity: activity(), by: agent(3) },
            "delegate" => Command::Delegate { activity: activity(), by: agent(3), to: agent(5) },
            "take" => Command::TakeOver { activity: activity(), by: agent(3) },
            "complete" => {
                let mut pairs = pairs(&words[4..]);
                let answer = pairs.remove("answer");
                let answer = answer.map(|name| name.as_str().unwrap().to_owned());
                let node = activity().node;
                let answer = answer.map(|name| data::answer(&self.schema, node, &name));
                let mut number = |name| pairs.remove(name).and_then(|json| json.as_u64());
                let (key, content) = (number("request"), number("content").unwrap_or(0));
                let request = key.map(|key| RequestDigest::new(key as u32, content as u32));
                let outputs = data::typed(&self.schema, node, &pairs)?;
                let (activity, by) = (activity(), performer(words[3]));
                let (started_at, answer) = (Timestamp(self.now), answer.transpose()?);
                let channel = None;
                Command::Complete { activity, by, started_at, outputs, answer, request, channel }
            }
            "answer" => Command::Answer {
                activity: activity(),
                by: performer(words[3]),
                started_at: Timestamp(self.now),
                outputs: typed(4)?,
                lease: 7,
            },
            "confirm" => Command::Confirm { activity: activity() },
            "fail" | "fail!" => Command::Fail {
                activity: activity(),
                by: performer("worker"),
                error: rest(2),
                retry: first == "fail",
            },
            "raise" => Command::Raise {
                activity: activity(),
                incident: Incident::NobodyCanDoIt { rule: "Role(none)".to_owned() },
            },
            "retry" => Command::Resolve { activity: activity(), by, resolution: Resolution::Retry },
            "choose" => {
                let code = data::answer(&self.schema, activity().node, words[2]);
                let resolution = Resolution::Choose(code.unwrap_or(99));
                Command::Resolve { activity: activity(), by, resolution }
            }
            "supply" => {
                let resolution = Resolution::Complete(typed(2)?);
                Command::Resolve { activity: activity(), by, resolution }
            }
            "suspend" => Command::Suspend { by, reason: None },
            "resume" => Command::Resume { by, reason: None },
            "abort" => Command::Abort { by, reason: rest(1) },
            unknown => panic!("no such command: {unknown}"),
        })
    }

    fn accept(&mut self, decision: Decision) -> Vec<String> {
        let Decision { events, state, changes } = decision;
        let before = self.state.as_ref().map(State::lifecycle);
        let mut lines: Vec<String> = events.iter().filter_map(|e| self.tell(e)).collect();
        lines.extend(changes.iter().map(|change| self.tell_change(change)));
        if before.is_some_and(|before| before != state.lifecycle()) {
            lines.push(format!("instance {:?}", state.lifecycle()));
        }
        self.history.push(Record { at: Timestamp(self.now), events });
        assert_eq!(replay(&self.schema, self.history.iter()).as_ref(), Some(&state));
        assert_eq!(State::from_bytes(&state.to_bytes()).unwrap(), state);
        self.state = Some(state);
        lines
    }

    /// Events that have no changes.
    fn tell(&self, event: &Event) -> Option<String> {
        match event {
            Event::Decided { activity, code } => {
                let node = self.schema.node(activity.node);
                let answer = node.answers()[*code as usize].to_owned();
                Some(format!("{}: decided {answer}", self.name(activity)))
            }
            Event::IncidentRaised { activity, incident } => {
                Some(format!("{}: {incident:?}", self.name(activity)))
            }
            Event::Failed { activity, error, retry_at: Some(at), .. } => {
                Some(format!("{}: failed ({error}), again at {} ms", self.name(activity), at.0))
            }
            Event::Failed { activity, error, retry_at: None, .. } => {
                Some(format!("{}: failed ({error})", self.name(activity)))
            }
            Event::Aborted { reason, .. } => Some(format!("aborted: {reason}")),
            Event::Created(_)
            | Event::Claimed { .. }
            | Event::Released { .. }
            | Event::Delegated { .. }
            | Event::Completed(_)
            | Event::IncidentResolved { .. }
            | Event::Suspended { .. }
            | Event::Resumed { .. }
            | Event::Sent { .. }
            | Event::Delivered { .. }
            | Event::Received(_)
            | Event::Fetched { .. }
            | Event::Finished
            | Event::Redirected { .. }
            | Event::Answered(_)
            | Event::Assigned(_)
            | Event::Replanned(_)
            | Event::DeadlinePassed { .. } => None,
        }
    }

    fn tell_change(&self, Change { activity, from, to }: &Change) -> String {
        let name = self.name(activity);
        if *from == NodeState::NotActivated {
            format!("{name} {to:?}")
        } else {
            format!("{name} {from:?} -> {to:?}")
        }
    }

    fn name(&self, activity: &Activity) -> String {
        let name = &self.schema.node(activity.node).name;
        let at = &activity.iteration;
        if at.0.is_empty() { name.to_string() } else { format!("{name}:{at}") }
    }

    fn activity(&self, name: &str) -> Activity {
        let (name, counts) = name.split_once(':').unwrap_or((name, ""));
        let node = self.schema.node_named(name).map_or(NodeId(999), |node| node.id);
        if counts.is_empty() {
            return self.state().activity(&self.schema, node);
        }
        let counts = counts.split('.').map(|count| count.parse().unwrap()).collect();
        Activity { node, iteration: Iteration(counts) }
    }

    fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    fn marking(&self) -> String {
        let of = |node: &legwork_model::schema::Node| {
            let mark = match self.state().node_state(node.id) {
                NodeState::NotActivated => "·",
                NodeState::Activated => "!",
                NodeState::Selected => "*",
                NodeState::Completed => "+",
                NodeState::Skipped => "-",
                NodeState::Failed => "x",
            };
            format!("{mark}{}", node.name)
        };
        self.schema.nodes.iter().map(of).collect::<Vec<_>>().join(" ")
    }

    fn open(&self) -> Vec<String> {
        let of = |open: crate::Open<'_>| {
            let mut line = format!("{} {:?}", self.name(&open.activity), open.state);
            let offered = if open.offered { ", offered" } else { ", not offered" };
            line.push_str(offered);
            let _ = write!(line, ", since {}", open.since.0);
            if let (Some(by), Some(at)) = (open.claimed_by, open.claimed_at) {
                let _ = write!(line, ", held by {by} since {}", at.0);
            }
            if let Some(by) = open.given_by {
                let _ = write!(line, ", given by {by}");
            }
            if open.attempts > 0 {
                let _ = write!(line, ", attempts {}", open.attempts);
            }
            if let Some(at) = open.retry_at {
                let _ = write!(line, ", again at {}", at.0);
            }
            if let Some(incident) = open.incident {
                let _ = write!(line, ", {incident:?}");
            }
            line
        };
        self.state().open(&self.schema).map(of).collect()
    }

    fn values(
        &self,
        values: Vec<(legwork_model::id::ElementId, &legwork_model::value::Value)>,
    ) -> Vec<String> {
        let name = |element| self.schema.element(element).name.clone();
        values.iter().map(|(e, value)| format!("{} = {}", name(*e), value.to_json())).collect()
    }
}

fn performer(name: &str) -> Performer {
    match name {
        "system" => Performer::System,
        "worker" => Performer::Worker("w1".into()),
        agent => Performer::Agent(AgentId::from(agent)),
    }
}

/// `a=1 b=text` as JSON; what is not JSON is text.
fn pairs(words: &[&str]) -> BTreeMap<String, serde_json::Value> {
    let pair = |word: &&str| {
        let (name, value) = word.split_once('=').unwrap();
        let json = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        (name.to_owned(), json)
    };
    words.iter().map(pair).collect()
}
