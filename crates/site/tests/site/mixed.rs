//! Workers that ask for jobs of types that executors do as well: both take part in one choice.

use std::time::Duration;

use crate::support::depot::{Depot, SECOND, registration};
use crate::support::{data_of, start};
use legwork_model::event::ExecutorType;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

const LEASE: Duration = Duration::from_secs(30);

/// An executor called `crane`, and workers that ask.
struct Yard {
    depot: Depot,
    last: u128,
}

impl Yard {
    /// The executor takes so many at a time.
    fn new(limit: u32) -> Self {
        let mut depot = Depot::with(&[]);
        let crane = RegisterExecutor { limit, verdicts: false, ..registration("crane") };
        depot.site.ask(Request::Executor(Concern::Register(crane))).unwrap();
        Self { depot, last: 0 }
    }

    /// So many cases, all at once.
    fn start(&mut self, count: usize) {
        for _ in 0..count {
            self.last += 1;
            let data = json!({ "amount": 3 });
            self.depot.site.send(start(InstanceId(self.last), data, None));
        }
        self.depot.site.feed(Input::Settle);
    }

    fn poll(&mut self, worker: &str, max: usize) -> RequestId {
        let wait_until = Some(self.depot.site.now + 3_600 * SECOND);
        let (worker, types) = (worker.into(), vec!["pack".into()]);
        let activate = Activate { worker, types, max, lease: LEASE, wait_until };
        let id = self.depot.site.send(Request::Activate(activate));
        self.depot.site.feed(Input::Settle);
        id
    }

    /// What the answer to a poll brought, if there is one yet.
    fn got(&mut self, poll: RequestId) -> Option<Vec<JobLease>> {
        let Answer::Jobs(jobs) = self.depot.site.reply(poll)?.unwrap() else { panic!() };
        let lease = |job: Job| JobLease { activity: job.activity, lease: job.lease };
        Some(jobs.into_iter().map(lease).collect())
    }

    /// The tasks that the executor was given since this was asked last.
    fn called(&mut self) -> Vec<JobLease> {
        self.depot.said().1.into_iter().map(|(_, task)| task).collect()
    }

    fn complete(&mut self, worker: &str, job: &JobLease) -> Result<(), Refusal> {
        let data = data_of(json!({ "packed": worker }));
        let jobs = vec![JobResult { job: job.clone(), data }];
        let request = Request::CompleteJobs { worker: worker.into(), jobs };
        let Answer::JobResults(results) = self.depot.site.ask(request).unwrap() else { panic!() };
        results.into_iter().next().unwrap()
    }

    fn fail(&mut self, worker: &str, job: &JobLease) {
        let (job, error, retry) = (job.clone(), "no paper".to_owned(), true);
        let jobs = vec![JobFailure { job, error, retry }];
        let request = Request::FailJobs { worker: worker.into(), jobs };
        let Answer::JobResults(results) = self.depot.site.ask(request).unwrap() else { panic!() };
        results.into_iter().for_each(|result| result.unwrap());
    }

    fn list(&mut self, after: Option<String>, limit: usize) -> (Vec<ExecutorInfo>, bool) {
        let list = Concern::List { after: after.map(Into::into), limit };
        match self.depot.site.ask(Request::Executor(list)).unwrap() {
            Answer::Executors { executors, more } => (executors, more),
            other => panic!("{other:?}"),
        }
    }

    /// What is shown of a worker: how many it has, has done, has let run out and has failed at.
    fn shown(&mut self, worker: &str) -> Option<(u32, u64, u64, u64)> {
        let (all, _) = self.list(None, 100);
        let one = all.into_iter().find(|one| one.registered.is_none() && &*one.name == worker)?;
        let seen = &one.types[0];
        Some((seen.outstanding, seen.answers, seen.timeouts, seen.failures))
    }

    /// One case after the other for each of which there is time; both wait for something to do. Answers how
    /// many of the last half the worker and the executor have done.
    fn work(&mut self, cases: usize, (worker_ms, executor_ms): (i64, i64)) -> (usize, usize) {
        let mut poll = Some(self.poll("robot", 1));
        let mut doing: Vec<(Timestamp, bool, JobLease)> = Vec::new();
        let mut done = Vec::new();
        for number in 0.. {
            if number % 100 == 0 && number / 100 < cases {
                self.start(1);
            }
            let now = self.depot.site.now;
            let calls = self.called().into_iter();
            doing.extend(calls.map(|task| (Timestamp(now.0 + executor_ms), false, task)));
            if let Some(jobs) = poll.and_then(|poll| self.got(poll)) {
                poll = None;
                let jobs = jobs.into_iter();
                doing.extend(jobs.map(|job| (Timestamp(now.0 + worker_ms), true, job)));
            }
            let (over, open) = doing.into_iter().partition(|(due, ..)| *due <= now);
            doing = open;
            for (_, is_worker, task) in over {
                match is_worker {
                    true => {
                        self.complete("robot", &task).unwrap();
                        poll = Some(self.poll("robot", 1));
                    }
                    false => self.depot.done("crane", &task),
                }
                done.push(is_worker);
            }
            if done.len() == cases {
                break;
            }
            self.depot.site.pass(Duration::from_millis(1));
        }
        let last = &done[cases / 2..];
        let by_worker = last.iter().filter(|is_worker| **is_worker).count();
        (by_worker, last.len() - by_worker)
    }
}

#[test]
fn a_fast_worker_is_preferred_to_a_slow_executor() {
    assert_eq!(Yard::new(16).work(60, (5, 40)), (30, 0));
}

#[test]
fn a_fast_executor_is_preferred_to_a_slow_worker() {
    assert_eq!(Yard::new(16).work(60, (40, 5)), (0, 30));
}

#[test]
fn a_worker_that_is_not_known_gets_a_few() {
    let mut yard = Yard::new(100);
    for _ in 0..5 {
        yard.start(1);
        let task = yard.called().remove(0);
        yard.depot.site.now.0 += 10;
        yard.depot.done("crane", &task);
    }
    let poll = yard.poll("robot", 10);
    yard.start(20);
    assert_eq!((yard.got(poll).unwrap().len(), yard.called().len()), (2, 18));
    assert_eq!(yard.shown("robot"), Some((2, 0, 0, 0)));
}

#[test]
fn what_executors_have_no_room_for_goes_to_whoever_asks_in_one_answer() {
    let mut yard = Yard::new(2);
    let poll = yard.poll("robot", 10);
    yard.start(9);
    assert_eq!((yard.called().len(), yard.got(poll).unwrap().len()), (2, 7));
    yard.start(3);
    let poll = yard.poll("robot", 2);
    assert_eq!(yard.got(poll).unwrap().len(), 2, "no more than it asked for");
    let (first, second) = (yard.poll("robot", 1), yard.poll("other", 1));
    assert_eq!(yard.got(first).unwrap().len(), 1);
    assert_eq!(yard.got(second), None, "nothing is left");
    let jobs_queued = yard.depot.site.site.gauges().jobs_queued;
    assert_eq!(jobs_queued, 0);
}

#[test]
fn everybody_that_asks_is_served_however_many_there_are() {
    let mut yard = Yard::new(1);
    yard.start(1);
    let polls: Vec<RequestId> = (0..250).map(|n| yard.poll(&format!("robot-{n}"), 1)).collect();
    yard.start(250);
    assert!(polls.into_iter().all(|poll| yard.got(poll).is_some()));
}

#[test]
fn a_worker_that_is_forgotten_keeps_its_job() {
    let mut yard = Yard::new(1);
    let poll = yard.poll("first", 1);
    yard.start(1_101);
    let job = yard.got(poll).unwrap().remove(0);
    for number in 0..1_099 {
        yard.poll(&format!("robot-{number}"), 1);
    }
    assert_eq!(yard.depot.site.site.gauges().jobs_leased, 1_101);
    assert_eq!((yard.shown("first"), yard.depot.site.site.jobs_kept()), (None, 1_001));
    yard.complete("first", &job).unwrap();
    assert_eq!((yard.shown("first"), yard.depot.site.site.jobs_kept()), (None, 1_001));
}

#[test]
fn the_next_attempt_goes_to_a_worker_if_the_executor_has_had_it() {
    let mut yard = Yard::new(2);
    assert_eq!(yard.work(20, (40, 1)), (0, 10), "the worker, slow and known, waits for more");
    yard.start(1);
    let task = yard.called().remove(0);
    let outstanding = |yard: &mut Yard| yard.shown("robot").unwrap().0;
    assert_eq!(outstanding(&mut yard), 0);
    let error = "no paper".to_owned();
    yard.depot.report("crane", &task, Outcome::Failed { error, retry: true });
    yard.depot.site.pass(2 * SECOND);
    assert_eq!((yard.called().len(), outstanding(&mut yard)), (0, 1));
}

#[test]
fn the_next_attempt_goes_to_an_executor_if_the_worker_has_had_it() {
    let mut yard = Yard::new(2);
    assert_eq!(yard.work(20, (1, 40)), (10, 0));
    yard.depot.site.pass(SECOND);
    // To the request that waits, and to another one.
    yard.start(2);
    let poll = yard.poll("robot", 1);
    assert_eq!(yard.called().len(), 1);
    yard.start(1);
    let job = yard.got(poll).unwrap().remove(0);
    yard.poll("robot", 1);
    yard.fail("robot", &job);
    assert_eq!(yard.called().len(), 0);
    yard.depot.site.pass(2 * SECOND);
    assert_eq!(yard.called().len(), 1);
    assert_eq!(yard.shown("robot").map(|(has, _, _, failures)| (has, failures)), Some((1, 1)));
}

#[test]
fn a_lease_is_the_one_that_was_asked_for_and_what_runs_out_goes_elsewhere() {
    let mut yard = Yard::new(1);
    yard.start(2);
    let task = yard.called().remove(0);
    let poll = yard.poll("robot", 1);
    let job = yard.got(poll).unwrap().remove(0);
    yard.depot.done("crane", &task);
    assert!(yard.called().is_empty());
    yard.depot.site.pass(LEASE - SECOND);
    assert!(yard.called().is_empty(), "silence is not held against a worker");
    let waiting = yard.poll("robot", 1);
    yard.depot.site.pass(SECOND);
    assert_eq!((yard.called().len(), yard.got(waiting)), (1, None));
    assert_eq!(yard.shown("robot"), Some((0, 0, 1, 0)));
    let refused = yard.complete("robot", &job).unwrap_err();
    assert_eq!(refused.code, "lease_lost");
    assert_eq!(yard.shown("robot"), Some((0, 1, 1, 0)), "late, and known to be alive");
}

#[test]
fn what_is_given_back_or_does_not_fit_is_counted_right() {
    let mut yard = Yard::new(1);
    yard.start(2);
    let poll = yard.poll("robot", 1);
    let job = yard.got(poll).unwrap().remove(0);
    let data = data_of(json!({ "packed": 7 }));
    let jobs = vec![JobResult { job: job.clone(), data }];
    let request = Request::CompleteJobs { worker: "robot".into(), jobs };
    let Answer::JobResults(results) = yard.depot.site.ask(request).unwrap() else { panic!() };
    assert!(results[0].is_err());
    assert_eq!(yard.shown("robot"), Some((1, 0, 0, 0)), "it still has it");
    yard.depot.site.ask(Request::ReturnJobs { jobs: vec![job] }).unwrap();
    assert_eq!(yard.shown("robot"), None);
    let poll = yard.poll("robot", 1);
    let job = yard.got(poll).unwrap().remove(0);
    yard.complete("robot", &job).unwrap();
    assert_eq!(yard.shown("robot"), Some((0, 1, 0, 0)));
    assert_eq!(yard.depot.site.site.jobs_kept(), 1, "what the executor has");
}

#[test]
fn a_worker_that_only_fails_gets_what_nobody_else_takes_and_nothing_else() {
    let mut yard = Yard::new(1);
    yard.start(1);
    let task = yard.called().remove(0);
    yard.start(5);
    for _ in 0..5 {
        let poll = yard.poll("robot", 1);
        let job = yard.got(poll).unwrap().remove(0);
        yard.fail("robot", &job);
    }
    let (listed, _) = yard.list(None, 10);
    let robot = listed.iter().find(|one| &*one.name == "robot").unwrap();
    assert!(robot.types[0].is_failing, "{robot:?}");
    let poll = yard.poll("robot", 1);
    yard.depot.done("crane", &task);
    yard.depot.site.pass(2 * SECOND);
    assert_eq!(yard.called().len(), 1, "the executor is preferred");
    assert_eq!(yard.got(poll).unwrap().len(), 1);
}

#[test]
fn executors_that_only_fail_get_nothing_that_somebody_asks_for() {
    let mut yard = Yard::new(100);
    for _ in 0..4 {
        yard.start(1);
        let task = yard.called().remove(0);
        let outcome = Outcome::Failed { error: "no paper".to_owned(), retry: false };
        yard.depot.report("crane", &task, outcome);
    }
    let poll = yard.poll("robot", 10);
    yard.start(9);
    assert_eq!((yard.called().len(), yard.got(poll).unwrap().len()), (0, 9));
    let poll = yard.poll("robot", 10);
    yard.depot.site.pass(600 * SECOND);
    let tried = (yard.called().len(), yard.got(poll).unwrap().len());
    assert_eq!(tried, (1, 8), "the leases have run out; one is to see whether it is back");
}

#[test]
fn the_history_says_why_a_worker_got_it_where_that_is_wanted() {
    let mut yard = Yard::new(1);
    let (job, policy) = ("pack".into(), "adaptive".into());
    let set = Concern::SetPolicy { job, policy, recorded: true };
    yard.depot.site.ask(Request::Executor(set)).unwrap();
    yard.start(2);
    let poll = yard.poll("robot", 1);
    let job = yard.got(poll).unwrap().remove(0);
    let history = Request::History { instance: job.activity.instance, from: 0, limit: 100 };
    let Answer::History { entries, .. } = yard.depot.site.ask(history).unwrap() else { panic!() };
    let told = entries.into_iter().filter(|entry| entry.kind == "assigned");
    let told: Vec<String> = told.map(|entry| entry.detail.unwrap()).collect();
    assert_eq!(told, ["to robot; adaptive: not known yet, has 0.0 ms to do, one of 1"]);
}

#[test]
fn types_that_no_executor_does_are_given_out_as_ever_and_leave_no_trace() {
    let mut depot = Depot::with(&[]);
    let types = vec![ExecutorType { job: "score".into(), limit: None, rate: None }];
    let other = RegisterExecutor { types, ..registration("crane") };
    depot.site.ask(Request::Executor(Concern::Register(other))).unwrap();
    let mut yard = Yard { depot, last: 0 };
    yard.start(10);
    let poll = yard.poll("robot", 6);
    let jobs = yard.got(poll).unwrap();
    assert_eq!(jobs.len(), 6);
    yard.complete("robot", &jobs[0]).unwrap();
    yard.fail("robot", &jobs[1]);
    yard.depot.site.pass(2 * LEASE);
    let (listed, more) = yard.list(None, 10);
    let names: Vec<&str> = listed.iter().map(|one| &*one.name).collect();
    assert_eq!((names, more), (vec!["crane"], false));
    assert_eq!(yard.depot.site.site.jobs_kept(), 0);
}

#[test]
fn who_asks_for_types_with_and_without_executors_gets_both_in_turn() {
    let mut yard = Yard::new(1);
    let source = "{ process: note, steps: [{ step: note, job: note }] }".to_owned();
    yard.depot.site.ask(Request::Deploy { source }).unwrap();
    yard.start(6);
    for number in 100..105 {
        let Request::Start(start) = start(InstanceId(number), json!({}), None) else { panic!() };
        let start = Start { process: "note".into(), ..start };
        yard.depot.site.ask(Request::Start(start)).unwrap();
    }
    let (worker, types) = ("robot".into(), vec!["note".into(), "pack".into()]);
    let poll = Activate { worker, types, max: 8, lease: LEASE, wait_until: None };
    let answer = yard.depot.site.ask(Request::Activate(poll)).unwrap();
    let Answer::Jobs(jobs) = answer else { panic!("{answer:?}") };
    let notes = jobs.iter().filter(|job| &*job.process == "note").count();
    assert!(jobs.len() == 8 && (3..=5).contains(&notes), "{notes} of {}", jobs.len());
    assert_eq!(yard.shown("robot").unwrap().0 as usize, 8 - notes);
}

#[test]
fn executors_are_listed_before_workers_page_by_page_whatever_their_names() {
    let mut yard = Yard::new(1);
    yard.start(1);
    for worker in ["crane", "a robot", "zebra"] {
        yard.start(1);
        yard.poll(worker, 1);
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let (page, more) = yard.list(after, 1);
        listed.extend(page.iter().map(|one| (one.name.to_string(), one.registered.is_none())));
        after = page.last().map(ExecutorInfo::cursor);
        if !more {
            break;
        }
    }
    let told: Vec<(&str, bool)> = listed.iter().map(|(name, polls)| (&**name, *polls)).collect();
    assert_eq!(told, [("crane", false), ("a robot", true), ("crane", true), ("zebra", true)]);
}
