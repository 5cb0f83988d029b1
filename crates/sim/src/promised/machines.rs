//! Machines that all servers assign work to, promised or not.
//!
//! Invariant: a machine does as many tasks at a time as it says, in the order in which they came, and none takes
//! longer than its definition says, but for what the machine does regularly, by its own clock. A task assigned
//! again by a restarted server that does not know the first assignment is another task: the machine does both. It
//! accepts no more tasks from a server than its limit, and resends results until they are acknowledged.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{ExecutorType, RegularWork, Secret};
use legwork_model::id::ActivityId;
use legwork_site::{
    Answer, Ask, Call, Concern, Credential, Data, Feedback, JobLease, Outcome, RegisterExecutor,
    Request, RequestId, ResourceId, Start, TaskReport,
};
use serde_json::json;

use super::Office;
use super::material::Process;
use super::starts::draw;
use crate::dice::Dice;
use crate::material::DOMAINS;
use crate::world::World;

/// The number of cases without a deadline.
const PLAIN_MAX: u32 = 12;
/// The limit of machines on tasks of one server.
const LIMIT: u32 = 2;
/// The actual service time in per cent of the definition: the rest is for latency. The learned service time is
/// never exceeded.
const SHARE_MIN: usize = 50;
const SHARE_MORE: usize = 46;

#[derive(Default)]
pub(super) struct Machines {
    all: Vec<Machine>,
    plain: u32,
    share: Option<usize>,
    asked: Vec<(usize, RequestId)>,
    /// Unacknowledged results.
    done: Vec<Done>,
}

struct Done {
    machine: Arc<str>,
    place: usize,
    task: JobLease,
    outcome: Outcome,
    asked: Option<RequestId>,
}

struct Machine {
    name: Arc<str>,
    hands: usize,
    /// Its limit on tasks of one server.
    limit: usize,
    regular: Option<Regular>,
    /// Whether it reports all its tasks with each result.
    tells: bool,
    /// In the order of arrival.
    has: Vec<Held>,
}

/// Regular work of a machine, at some moment of every period: its tasks pause meanwhile.
struct Regular {
    work: RegularWork,
    /// Of the current period: its end, the time until the work, and the remaining work.
    until: i64,
    wait: i64,
    left: i64,
}

impl Regular {
    /// The part of some time that is left for tasks.
    fn pass(&mut self, passed: i64) -> i64 {
        let waited = self.wait.min(passed);
        let worked = self.left.min(passed - waited);
        self.wait -= waited;
        self.left -= worked;
        passed - worked
    }

    /// The next period may have begun.
    fn turn(&mut self, now: i64, dice: &mut Dice) {
        if now < self.until {
            return;
        }
        let (every, takes) = (self.work.every_ms as i64, self.work.takes_ms as i64);
        // The rest of the last period comes first: nothing is dropped, and nothing is done early.
        let left = self.left + takes;
        let wait = dice.below((every - left).max(1) as usize) as i64;
        (self.until, self.wait, self.left) = (self.until.max(now) + every, wait, left);
    }
}

struct Held {
    place: usize,
    task: JobLease,
    since: i64,
    left: i64,
}

impl Held {
    /// Whether the assigning server has died since, and does not know the task.
    fn is_forgotten(&self, office: &Office) -> bool {
        let mut down = office.troubles.iter().filter(|it| it.is_down && it.place == self.place);
        down.any(|it| it.from >= self.since)
    }
}

impl Machine {
    /// Returns a task that it refuses. Without faults and with one planner for all work, promised tasks do not
    /// queue behind anything.
    fn take(&mut self, held: Held, office: &Office) -> Result<Option<Held>, String> {
        let slot = office.slot(&held.task.activity);
        // The planner may know of an abort before the assigning server.
        let is_wanted = !office.is_aborted(&held.task.activity);
        let is_promised = slot.is_some_and(|slot| slot.is_promised && is_wanted);
        let is_calm = office.ledger.cases.get(&held.task.activity.instance);
        let is_calm = is_calm.is_some_and(|case| office.is_calm_for(case));
        let known = self.has.iter().filter(|own| !own.is_forgotten(office)).count();
        if is_promised && is_calm && office.is_firm() && known >= self.hands {
            return Err(format!("{} has no hand for {:?}", self.name, held.task));
        }
        if self.has.iter().filter(|own| own.place == held.place).count() >= self.limit {
            return Ok(Some(held));
        }
        self.has.push(held);
        Ok(None)
    }
}

/// Processes with steps for machines: alone, after a step of a person, and two located at their machine.
pub(super) fn processes(domains: usize, dice: &mut Dice) -> Vec<Process> {
    let press = |step: &str, at: &str, takes: usize| {
        format!(
            "  - {{ step: {step}, job: press, at: {at}, takes: {takes}m, timeout: 3h, retry: {{ times: 50, pause: 1s }} }}\n"
        )
    };
    let process = |name: &str, minutes: usize, steps: &str| {
        let text = format!("process: {name}\ndata: {{ n: int }}\nstart: [n]\nsteps:\n{steps}");
        Process { name: name.into(), text, minutes: minutes as i64 }
    };
    let mut drawn = || (2 + dice.below(7), DOMAINS[dice.below(domains)]);
    let ((alone, at), (second, then)) = (drawn(), drawn());
    let pressed = process("pressed", alone, &press("m", at, alone));
    let first = format!("  - {{ step: s, who: Role(clerk), at: {}, takes: 4m }}\n", DOMAINS[0]);
    let checked = process("checked", 4 + second, &(first + &press("m", then, second)));
    let ((alone, _), (second, _)) = (drawn(), drawn());
    let steps = press("m", "executor", alone) + &press("k", "executor", second);
    vec![pressed, checked, process("carried", alone + second, &steps)]
}

impl Machines {
    pub(super) fn register(
        world: &mut World,
        domains: usize,
        dice: &mut Dice,
    ) -> Result<Self, String> {
        let mut machines = Self::default();
        for (number, hands) in (0..).zip([1, 2_u32]) {
            let every_ms = 60_000 * (3 + dice.below(8)) as u64;
            let takes_ms = 5_000 + dice.below(40_000) as u64;
            let regularly = dice.chance(30).then_some(RegularWork { every_ms, takes_ms });
            let name: Arc<str> = format!("machine-{number}").into();
            // Then it has no more slots for them either.
            let of_type = dice.chance(25).then_some(1);
            let tells = dice.chance(50);
            let least = of_type.unwrap_or(LIMIT);
            let executor = RegisterExecutor {
                name: name.clone(),
                url: format!("http://{name}:7001").into(),
                secret: Secret("s".repeat(32)),
                types: vec![ExecutorType { job: "press".into(), limit: of_type, rate: None }],
                rate: None,
                weight: None,
                limit: LIMIT,
                at_once: Some(hands),
                regularly: regularly.into_iter().collect(),
                reserve: dice.chance(20).then(|| 10 + dice.below(40) as u32),
                domain: (number > 0).then(|| DOMAINS[1 % domains].into()),
                verdicts: false,
                holds: tells.then(Vec::new),
            };
            let reply = world.ask_calmly(Request::Executor(Concern::Register(executor)))?;
            reply.map_err(|refusal| refusal.to_string())?;
            let regular = regularly.map(|work| Regular { work, until: 0, wait: 0, left: 0 });
            let (hands, limit) = (hands.min(least) as usize, LIMIT.min(least) as usize);
            machines.all.push(Machine { name, hands, limit, regular, tells, has: Vec::new() });
        }
        Ok(machines)
    }

    /// Starts a case without a deadline.
    pub(super) fn start_some(&mut self, office: &mut Office, dice: &mut Dice) {
        if self.all.is_empty() || self.plain >= PLAIN_MAX || !dice.chance(2) {
            return;
        }
        let (front, spread) = (dice.below(office.worlds.len()), dice.roll() as u32);
        let is_pressed = |(it, _): &(Process, _)| &*it.name == "pressed";
        let Some(process) = office.processes.iter().position(is_pressed) else { return };
        let Some((instance, place)) = draw(office, 1_000 + self.plain, front, spread) else {
            return;
        };
        self.plain += 1;
        let mut data = Data::new();
        data.insert("n".to_owned(), json!(1));
        let start = Start {
            instance,
            process: office.processes[process].0.name.clone(),
            version: None,
            data,
            agent: None,
            key: None,
            wait_until: None,
            deadline: None,
        };
        self.asked.push((place, office.worlds[place].ask(Request::Start(start))));
        office.ledger.add(instance, place, process);
    }

    /// Machines accept tasks, and report results.
    pub(super) fn turn(&mut self, office: &mut Office, dice: &mut Dice) -> Result<(), String> {
        self.asked.retain(|(place, id)| {
            office.worlds[*place].reply(*id).is_none() && office.worlds[*place].is_asked(*id)
        });
        let share = *self.share.get_or_insert_with(|| SHARE_MIN + dice.below(SHARE_MORE));
        for place in 0..office.worlds.len() {
            for Call { executor, ask, .. } in office.worlds[place].take_calls() {
                let Some(machine) = self.all.iter_mut().find(|one| one.name == executor.name)
                else {
                    return Err(format!("{} was called and is not known", executor.name));
                };
                match ask {
                    Ask::Task(job) => {
                        let takes = takes(office, &job.activity) * share as i64 / 100;
                        let task = JobLease { activity: job.activity, lease: job.lease };
                        let held = Held { place, task, since: office.now.0, left: takes };
                        let refused = machine.take(held, office)?;
                        self.done.extend(refused.map(|Held { place, task, .. }| Done {
                            machine: machine.name.clone(),
                            place,
                            task,
                            outcome: Outcome::Busy { rest: None },
                            asked: None,
                        }));
                    }
                    // A machine that went on would be busy without any server knowing.
                    Ask::Cancel(task) => machine.has.retain(|held| held.task != task),
                    Ask::Verdict { .. } => {}
                }
            }
        }
        for machine in &mut self.all {
            let now = office.now.0;
            machine.regular.iter_mut().for_each(|regular| regular.turn(now, dice));
            let hands = machine.hands;
            let (done, has): (Vec<_>, Vec<_>) = std::mem::take(&mut machine.has)
                .into_iter()
                .enumerate()
                .partition(|(place, held)| *place < hands && held.left <= 0);
            machine.has = has.into_iter().map(|(_, held)| held).collect();
            for (_, Held { place, task, .. }) in done {
                let machine = machine.name.clone();
                let outcome = if office.calm { success() } else { draw_outcome(dice) };
                office.completions += usize::from(matches!(outcome, Outcome::Done(_)));
                self.done.push(Done { machine, place, task, outcome, asked: None });
            }
        }
        self.report(office);
        Ok(())
    }

    /// Machines report results, with resends.
    fn report(&mut self, office: &mut Office) {
        let Self { all, done, .. } = self;
        done.retain_mut(|Done { machine, place, task, outcome, asked }| {
            let world = &mut office.worlds[*place];
            if asked.is_some_and(|id| world.reply(id).is_some()) {
                return false;
            }
            if asked.is_none_or(|id| !world.is_asked(id)) && !world.is_down() {
                let own = all.iter().find(|one| one.name == *machine && one.tells);
                let report = TaskReport {
                    executor: machine.clone(),
                    task: task.clone(),
                    outcome: outcome.clone(),
                    feedback: Feedback::default(),
                    holds: own.map(|one| one.has.iter().map(|held| held.task.clone()).collect()),
                };
                let credential = Credential::Executor(machine.clone());
                let request = Request::Executor(Concern::Report(report));
                *asked = Some(world.ask_as(credential, request));
            }
            true
        });
    }

    pub(super) fn work(&mut self, passed: i64) {
        for Machine { hands, regular, has, .. } in &mut self.all {
            let worked = regular.as_mut().map_or(passed, |regular| regular.pass(passed));
            has.iter_mut().take(*hands).for_each(|held| held.left -= worked);
        }
    }

    /// When the next task is done.
    pub(super) fn next_due(&self) -> Option<i64> {
        let worked = self.all.iter().flat_map(|machine| machine.has.iter().take(machine.hands));
        worked.map(|held| held.left).min()
    }

    pub(super) fn describe(&self) -> String {
        let own = |machine: &Machine| {
            let has = machine.has.iter().map(|held| (held.place, &held.task, held.left));
            format!("{} {:?}", machine.name, has.collect::<Vec<_>>())
        };
        self.all.iter().map(own).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn names(&self) -> impl Iterator<Item = ResourceId> {
        self.all.iter().map(|machine| ResourceId::Executor(machine.name.clone()))
    }

    /// When all cases are over, no machine has a reservation.
    pub(super) fn nothing_is_left(&self, office: &mut Office) -> Result<(), String> {
        for machine in &self.all {
            let mut is_free = false;
            for world in &mut office.worlds {
                let resource = ResourceId::Executor(machine.name.clone());
                // The others do not keep its plan.
                if let Ok(Answer::Plan(plan)) = world.look(Request::Plan { resource })? {
                    is_free = plan.turns.is_empty();
                    if !is_free {
                        return Err(format!("{} has still {:?}", machine.name, plan.turns));
                    }
                }
            }
            if !is_free {
                return Err(format!("nobody keeps the plan of {}", machine.name));
            }
        }
        Ok(())
    }
}

fn success() -> Outcome {
    Outcome::Done(Data::new())
}

/// In runs with faults, machines sometimes fail as well, or are busy.
fn draw_outcome(dice: &mut Dice) -> Outcome {
    match dice.below(20) {
        0 => Outcome::Failed { error: "broken".to_owned(), retry: true },
        1 => Outcome::Busy { rest: Some(Duration::from_secs(30)) },
        _ => success(),
    }
}

/// The duration of a step by its definition.
fn takes(office: &Office, activity: &ActivityId) -> i64 {
    let case = office.ledger.cases.get(&activity.instance);
    let schema = case.map(|case| &office.processes[case.process].1);
    let node = schema.and_then(|schema| schema.node_named(&activity.step));
    let takes = node.and_then(|node| node.takes);
    takes.map_or(60_000, |takes| takes.as_millis() as i64)
}
