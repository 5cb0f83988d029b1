//! Whose turn it is when more is due than anybody takes, and how much a task is.

use std::time::Duration;

use crate::support::{Harness, data_of};
use legwork_model::event::{ExecutorType, Secret};
use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::{Value, json};

/// One step for a program; `PROCESS` stands for the name.
const SCAN: &str = "
process: PROCESS
data: { pages: int, urgency: int }
start: [pages?, urgency?]
steps:
  - { step: scan, job: scan, reads: [pages?, urgency?], size: pages, priority: urgency, timeout: 1h }
";

struct Office {
    site: Harness,
    last: u128,
    /// What the executor has.
    open: Vec<Job>,
}

impl Office {
    /// With an executor that takes so many at a time.
    fn new(processes: &[&str], limit: u32) -> Self {
        Self::paced(processes, limit, None)
    }

    /// And is given so many in so long.
    fn paced(processes: &[&str], limit: u32, rate: Option<&str>) -> Self {
        let mut site = Harness::new();
        for process in processes {
            site.ask(Request::Deploy { source: SCAN.replace("PROCESS", process) }).unwrap();
        }
        let scanner = RegisterExecutor {
            name: "scanner".into(),
            url: "http://scanner.example:7001".into(),
            secret: Secret("s".repeat(32)),
            types: vec![ExecutorType { job: "scan".into(), limit: None, rate: None }],
            rate: rate.map(|rate| rate.parse().unwrap()),
            weight: None,
            limit,
            at_once: None,
            regularly: Vec::new(),
            reserve: None,
            domain: None,
            verdicts: false,
            holds: None,
        };
        site.ask(Request::Executor(Concern::Register(scanner))).unwrap();
        Self { site, last: 0, open: Vec::new() }
    }

    fn start(&mut self, process: &str, count: usize, data: &Value) {
        for _ in 0..count {
            self.last += 1;
            let start = Start {
                instance: InstanceId(self.last),
                process: process.into(),
                version: None,
                data: data_of(data.clone()),
                agent: None,
                key: None,
                wait_until: None,
                deadline: None,
            };
            self.site.ask(Request::Start(start)).unwrap();
        }
    }

    /// The tasks that were given out since this was asked last.
    fn given(&mut self) -> Vec<Job> {
        let calls = std::mem::take(&mut self.site.calls).into_iter();
        calls
            .filter_map(|call| if let Ask::Task(job) = call.ask { Some(job) } else { None })
            .collect()
    }

    /// Has what is given out done one after the other, so often; answers the processes in order.
    fn work(&mut self, times: usize) -> Vec<String> {
        let mut done = Vec::new();
        while done.len() < times {
            let given = self.given();
            self.open.extend(given);
            let job = self.open.remove(0);
            done.push(job.process.to_string());
            self.site.now.0 += 10;
            let task = JobLease { activity: job.activity, lease: job.lease };
            let outcome = Outcome::Done(data_of(json!({})));
            let report = TaskReport {
                executor: "scanner".into(),
                task,
                outcome,
                feedback: Feedback::default(),
                holds: None,
            };
            self.site.credential = Credential::Executor("scanner".into());
            self.site.ask(Request::Executor(Concern::Report(report))).unwrap();
            self.site.credential = Credential::None;
        }
        done
    }
}

#[test]
fn a_flood_of_one_process_leaves_another_its_turns() {
    let mut office = Office::new(&["flood", "other"], 1);
    office.start("flood", 100, &json!({}));
    assert_eq!(office.work(10), ["flood"; 10]);
    office.start("other", 5, &json!({}));
    office.start("flood", 1, &json!({}));
    // The one that is out was the flood's.
    let next = office.work(11);
    assert_eq!(next.iter().filter(|process| *process == "other").count(), 5, "{next:?}");
}

#[test]
fn workers_that_ask_take_turns_as_executors_do() {
    let mut office = Office::new(&["flood", "other"], 1);
    office.start("flood", 50, &json!({}));
    office.start("other", 5, &json!({}));
    let poll = Activate {
        worker: "robot".into(),
        types: vec!["scan".into()],
        max: 10,
        lease: Duration::from_secs(60),
        wait_until: None,
    };
    let Ok(Answer::Jobs(jobs)) = office.site.ask(Request::Activate(poll)) else { panic!() };
    assert_eq!(jobs.iter().filter(|job| &*job.process == "other").count(), 5);
}

#[test]
fn what_is_urgent_goes_first_and_what_has_waited_goes_before_it() {
    let mut office = Office::new(&["claim"], 1);
    let urgency =
        |office: &mut Office, urgency| office.start("claim", 1, &json!({ "urgency": urgency }));
    urgency(&mut office, 5);
    assert_eq!(office.given().len(), 1);
    for number in [0, 5, 9, 1_000_000] {
        urgency(&mut office, number);
    }
    // Nine minutes later: what was urgent then still goes first, but not what is now.
    office.site.now.0 += 10 * 60_000;
    urgency(&mut office, 9);
    let mut order = Vec::new();
    let worker = |office: &mut Office| {
        let (worker, types) = ("robot".into(), vec!["scan".into()]);
        let poll =
            Activate { worker, types, max: 1, lease: Duration::from_secs(60), wait_until: None };
        let Ok(Answer::Jobs(mut jobs)) = office.site.ask(Request::Activate(poll)) else { panic!() };
        jobs.pop().unwrap().activity.instance.0
    };
    for _ in 0..5 {
        order.push(worker(&mut office));
    }
    assert_eq!(order, [4, 5, 3, 2, 6]);
}

#[test]
fn a_task_is_as_large_and_may_take_as_long_as_its_step_says() {
    let mut office = Office::new(&["claim"], 9);
    for pages in [json!({ "pages": 40 }), json!({ "pages": -1 }), json!({})] {
        office.start("claim", 1, &pages);
    }
    let given = office.given();
    let sizes: Vec<f64> = given.iter().map(|job| job.size).collect();
    assert_eq!(sizes, [40.0, 0.001, 1.0]);
    assert_eq!(given[0].expires_at.0 - office.site.now.0, 3_600_000);
}

#[test]
fn an_executor_is_given_no_more_than_its_rate() {
    let mut office = Office::paced(&["claim"], 100, Some("2/s"));
    office.start("claim", 10, &json!({}));
    let mut given = vec![office.given().len()];
    for _ in 0..4 {
        office.site.pass(Duration::from_millis(500));
        given.push(office.given().len());
    }
    assert_eq!(given, [1; 5]);
}
