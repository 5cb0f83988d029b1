//! A crane that three servers give work to, and what it was given.

use legwork_model::event::ExecutorType;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

use super::group::{Group, HIGH, executor};

pub(crate) const PACK: &str = "process: parcel\nsteps:\n  \
                    - { step: pack, job: pack, takes: 10m, timeout: 1h }\n";
/// Somebody works for five minutes before something is packed.
pub(crate) const CHECKED: &str = "process: checked\nsteps:\n  - { step: check, who: Role(clerk), takes: 5m }\n  \
                       - { step: pack, job: pack, takes: 10m, timeout: 1h }\n";
pub(crate) const MINUTE: i64 = 60_000;

/// North-1 keeps the plan of the crane, which does one at a time.
pub(crate) fn group() -> Group {
    group_with(1, None)
}

/// The same with a crane that takes so many and works on so many of them at a time.
pub(crate) fn group_with(limit: u32, at_once: Option<u32>) -> Group {
    let mut group = Group::new(1, 1);
    for source in [PACK, CHECKED] {
        group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    }
    register(&mut group, "crane", limit, at_once);
    group
}

pub(crate) fn register(group: &mut Group, name: &str, limit: u32, at_once: Option<u32>) {
    let asked = RegisterExecutor { limit, at_once, ..executor(name, &["pack"]) };
    group.ask(0, Request::Executor(Concern::Register(asked))).unwrap();
    for _ in 0..5 {
        group.pass(2_000);
    }
}

/// The same of a crane that takes so many of its type.
pub(crate) fn register_of_type(
    group: &mut Group,
    limit: u32,
    at_once: Option<u32>,
    of_type: Option<u32>,
) {
    let mut asked = RegisterExecutor { limit, at_once, ..executor("crane", &["pack"]) };
    asked.types = vec![ExecutorType { job: "pack".into(), limit: of_type, rate: None }];
    group.ask(0, Request::Executor(Concern::Register(asked))).unwrap();
    (0..5).for_each(|_| group.pass(2_000));
}

/// A start at a server, of something that is to be done in so many minutes, if that is said.
pub(crate) fn asked(
    group: &mut Group,
    place: usize,
    process: &str,
    minutes: Option<i64>,
) -> (Request, InstanceId) {
    let instance = group.draw(place, if place == 1 { HIGH } else { 0 });
    let deadline = minutes.map(|minutes| Wish::new(Timestamp(group.now + minutes * MINUTE)));
    let request = Request::Start(Start {
        instance,
        process: process.into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: deadline.map(Box::new),
    });
    (request, instance)
}

pub(crate) fn start(
    group: &mut Group,
    place: usize,
    process: &str,
    minutes: Option<i64>,
) -> (InstanceId, Result<Answer, Refusal>) {
    let (request, instance) = asked(group, place, process, minutes);
    let id = group.send(place, request);
    for _ in 0..100 {
        if group.answers.contains_key(&id) {
            break;
        }
        group.pass(50);
    }
    group.pass(1);
    (instance, group.answers.remove(&id).expect("an answer"))
}

/// What the crane was given since this was asked last: by which server, and for what.
pub(crate) fn given(group: &mut Group) -> Vec<(usize, JobLease)> {
    let calls = std::mem::take(&mut group.calls).into_iter();
    let tasks = calls.filter_map(|(place, call)| match call.ask {
        Ask::Task(job) => Some((place, JobLease { activity: job.activity, lease: job.lease })),
        Ask::Verdict { .. } | Ask::Cancel(_) => None,
    });
    tasks.collect()
}

pub(crate) fn cases(given: &[(usize, JobLease)]) -> Vec<(usize, InstanceId)> {
    given.iter().map(|(place, task)| (*place, task.activity.instance)).collect()
}

pub(crate) fn done(group: &mut Group, given: &(usize, JobLease)) {
    report(group, given, Outcome::Done(Data::new()));
}

pub(crate) fn report(group: &mut Group, given: &(usize, JobLease), outcome: Outcome) {
    report_of(group, "crane", given, outcome);
}

pub(crate) fn report_of(
    group: &mut Group,
    name: &str,
    (place, task): &(usize, JobLease),
    outcome: Outcome,
) {
    let (executor, task) = (name.into(), task.clone());
    let report =
        Concern::Report(TaskReport { executor, task, outcome, feedback: Feedback::default() });
    group.last += 1;
    let (id, credential) = (RequestId(group.last), Credential::Executor(name.into()));
    group.feed(*place, Input::Request { id, credential, request: Request::Executor(report) });
    group.answers.remove(&id).unwrap().unwrap();
    (0..5).for_each(|_| group.pass(100));
}

pub(crate) fn deadlines(group: &Group) -> (u64, u64, u64) {
    let all = group.servers.iter().map(|server| server.site.deadlines());
    all.fold((0, 0, 0), |(kept, broken, revoked), it| {
        (kept + it.kept, broken + it.broken, revoked + it.revoked)
    })
}

/// In how many minutes something can be promised that takes ten.
pub(crate) fn earliest(group: &mut Group) -> i64 {
    earliest_of(group, "parcel")
}

pub(crate) fn earliest_of(group: &mut Group, process: &str) -> i64 {
    let is_promised = |minutes: &i64| {
        let (mut request, _) = asked(group, 0, process, Some(*minutes));
        if let Request::Start(Start { deadline: Some(wish), .. }) = &mut request {
            wish.ask_only = true;
        }
        let id = group.send(0, request);
        while !group.answers.contains_key(&id) {
            group.pass(50);
        }
        group.answers.remove(&id).unwrap().is_ok()
    };
    (10..150).find(is_promised).expect("a date")
}
