//! The places of steps depend on the performers of earlier ones, people and workers alike.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a wrong assumption is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId};
use legwork_sim::calm::Calm;
use legwork_site::{Activate, Answer, Job, JobLease, JobResult, Request, Start};

const TOPOLOGY: &str = r#"
topology: two
domains:
  north: { servers: { north-1: { address: "n:1", api: "http://n" } } }
  lab: { servers: { lab-1: { address: "l:1", api: "http://l" } }, executors: [scanner] }
"#;

const SCAN: &str = r"
process: scan
steps:
  - { step: take, job: take, at: north }
  - { step: read, job: read, at: Domain(Actor(take)) }
";

/// Where `read` is offered when this worker has done `take`.
fn read_is_at(worker: &str) -> Vec<u16> {
    let (topology, _) = legwork_placement::Topology::parse(TOPOLOGY);
    let organisation = "organisation: two\nagents: {}\n";
    let mut calm = Calm::new(topology.unwrap(), organisation, SCAN).unwrap();
    let start = Start {
        instance: InstanceId(1 << 80),
        process: Arc::from("scan"),
        version: None,
        data: Default::default(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: None,
    };
    ask(&mut calm, 0, Request::Start(start));
    let [job] = &jobs(&mut calm, 0, worker)[..] else { panic!("there is one job") };
    let job = JobLease { activity: job.activity.clone(), lease: job.lease };
    let jobs_done = vec![JobResult { job, data: Default::default() }];
    ask(&mut calm, 0, Request::CompleteJobs { worker: Arc::from(worker), jobs: jobs_done });
    (0..2).filter(|server| !jobs(&mut calm, *server, "reader").is_empty()).collect()
}

fn jobs(calm: &mut Calm, server: u16, worker: &str) -> Vec<Job> {
    let activate = Activate {
        worker: Arc::from(worker),
        types: vec![Arc::from("take"), Arc::from("read")],
        max: 1,
        lease: Duration::from_secs(60),
        wait_until: None,
    };
    let Answer::Jobs(jobs) = ask(calm, server, Request::Activate(activate)) else {
        panic!("jobs are answered with jobs");
    };
    jobs
}

fn ask(calm: &mut Calm, server: u16, request: Request) -> Answer {
    calm.ask(ServerId(server), request, &mut |_| {}).unwrap()
}

#[test]
fn a_step_goes_to_the_home_of_the_worker_that_did_the_one_before() {
    assert_eq!(read_is_at("scanner"), [1]);
}

#[test]
fn without_a_home_it_stays_where_the_one_before_was_controlled() {
    assert_eq!(read_is_at("somebody"), [0]);
}
