//! Many, large and broken ones: what one instance does must not stop the others.

use std::sync::Arc;

use crate::support::{BANK, Harness, complete, data_of, start};
use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

#[test]
fn an_organisation_without_actors_raises_incidents_a_portion_at_a_time() {
    let mut bank = Harness::bank();
    for number in 1..=1_000 {
        bank.start(number);
    }
    let source = BANK.replace("[clerk]", "[waiter]");
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    let raised = |bank: &mut Harness| match bank
        .ask(Request::Incidents { limit: 1_000, after: None })
        .unwrap()
    {
        Answer::Incidents { incidents, .. } => incidents.len(),
        other => panic!("{other:?}"),
    };
    assert!(raised(&mut bank) < 1_000, "not all in one commit");
    while bank.site.next_timeout().is_some() {
        bank.feed(Input::Settle);
    }
    assert_eq!(raised(&mut bank), 1_000);
}

#[test]
fn holders_who_leave_the_organisation_give_back_what_they_hold_also_of_evicted_instances() {
    let mut bank = Harness::bank();
    bank.config.resident_max = 0;
    bank.restart();
    let loan = bank.start(1);
    bank.ask(crate::support::claim("ann", loan, "capture")).unwrap();
    bank.feed(Input::Settle);
    assert_eq!(bank.site.gauges().instances_resident, 0);
    let source = BANK.replace("ann:", "zoe:");
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    bank.feed(Input::Settle);
    assert_eq!(bank.items("ben"), ["capture"]);
}

#[test]
fn a_listing_of_ended_instances_of_one_process_goes_on_past_those_of_others() {
    let mut bank = Harness::bank();
    let rare = "process: rare\nsteps: []\n";
    bank.ask(Request::Deploy { source: rare.to_owned() }).unwrap();
    let Request::Start(first) = start(InstanceId(1), json!({}), None) else { unreachable!() };
    bank.ask(Request::Start(Start { process: Arc::from("rare"), ..first })).unwrap();
    for number in 2..=1_200 {
        let loan = bank.start(number);
        bank.ask(Request::Abort { instance: loan, reason: String::new() }).unwrap();
    }
    let (mut found, mut before, mut pages) = (0, None, 0);
    loop {
        let process = Some(Arc::from("rare"));
        let list = List { process, ended: true, limit: 10, before, ..List::default() };
        let Answer::Instances { instances, next } = bank.ask(Request::List(list)).unwrap() else {
            unreachable!("instances were asked for")
        };
        found += instances.len();
        pages += 1;
        before = next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (1, 2));
}

#[test]
fn a_refused_completion_by_a_substitute_leaves_the_item_with_its_holder() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(crate::support::claim("ann", loan, "capture")).unwrap();
    bank.now = "2026-02-10T08:00:00Z".parse().unwrap();
    let answer = Some("nonsense".to_owned());
    let data = data_of(json!({}));
    let wrong = Complete { answer, data, ..complete("dan", loan, "capture") };
    bank.refusal(Request::Complete(wrong));
    let Answer::History { entries, .. } =
        bank.ask(Request::History { instance: loan, from: 0, limit: 100 }).unwrap()
    else {
        unreachable!("the history was asked for")
    };
    let kinds: Vec<_> = entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, ["created", "claimed"]);
}

#[test]
fn an_instance_that_cannot_be_replayed_is_set_aside_and_the_others_go_on() {
    let mut bank = Harness::bank();
    let (one, two) = (bank.start(1), bank.start(2));
    bank.corrupt(one);
    bank.restart();
    assert_eq!(bank.site.gauges().instances_broken, 1);
    let [(instance, reason)] = bank.broken.as_slice() else { panic!("{:?}", bank.broken) };
    assert_eq!((*instance, reason.is_empty()), (one, false), "{reason}");
    let refused = bank.refusal(Request::Show { instance: one, wait_until: None });
    assert!(refused.ends_with("(instance_broken)"), "{refused}");
    bank.ask(Request::Complete(complete("ann", two, "capture"))).unwrap();
}

#[test]
fn a_state_too_large_for_a_snapshot_does_without() {
    let mut bank = Harness::bank();
    bank.config.snapshot_every = 1;
    bank.restart();
    bank.ask(Request::Deploy { source: NOTES.to_owned() }).unwrap();
    let loan = InstanceId(1);
    bank.ask(start(loan, json!({ "note": "" }), None)).unwrap();
    let text = "x".repeat(200_000);
    for round in 0..8 {
        write(&mut bank, loan, round, &text).unwrap();
    }
    assert!(bank.snapshot_bytes_max <= 1 << 20, "{} bytes", bank.snapshot_bytes_max);
    assert!(bank.snapshot_bytes_max > 0);
}

/// A loop in which a clerk writes a note until it says that it is done.
const NOTES: &str = "process: loan\ndata: { note: string }\nstart: [note]\nsteps:\n  - loop: again\n    steps:\n      - step: write\n        who: Role(clerk)\n        writes: [note]\n    until: note == \"done\"\n";

fn write(bank: &mut Harness, loan: InstanceId, round: u32, note: &str) -> Result<Answer, Refusal> {
    let mut done = complete("ann", loan, "write");
    done.activity.iteration.0 = vec![round];
    done.data = data_of(json!({ "note": note }));
    bank.ask(Request::Complete(done))
}

#[test]
fn values_beyond_what_an_instance_may_hold_are_refused_and_change_nothing() {
    let mut bank = Harness::bank();
    bank.config.data_bytes_max = 990;
    bank.restart();
    bank.ask(Request::Deploy { source: NOTES.to_owned() }).unwrap();
    let large = "x".repeat(400);
    let loan = InstanceId(1);
    let refused = bank.refusal(start(loan, json!({ "note": "x".repeat(1_000) }), None));
    assert!(refused.ends_with("(instance_data_too_large)"), "{refused}");
    bank.ask(start(loan, json!({ "note": large }), None)).unwrap();
    write(&mut bank, loan, 0, &large).unwrap();
    for _ in 0..2 {
        let refused = write(&mut bank, loan, 1, &large).unwrap_err();
        assert_eq!(refused.code, "instance_data_too_large", "{refused}");
        bank.restart();
    }
    write(&mut bank, loan, 1, "done").unwrap_err();
    bank.ask(Request::Abort { instance: loan, reason: String::new() }).unwrap();
}

#[test]
fn a_history_that_is_full_takes_nothing_but_its_end() {
    let mut bank = Harness::bank();
    bank.config.history_records_max = 3;
    bank.restart();
    bank.ask(Request::Deploy { source: NOTES.to_owned() }).unwrap();
    let (one, two) = (InstanceId(1), InstanceId(2));
    for loan in [one, two] {
        bank.ask(start(loan, json!({ "note": "" }), None)).unwrap();
        write(&mut bank, loan, 0, "a").unwrap();
        write(&mut bank, loan, 1, "b").unwrap();
        let refused = write(&mut bank, loan, 2, "c").unwrap_err();
        assert_eq!(refused.code, "history_too_long", "{refused}");
    }
    write(&mut bank, one, 2, "done").unwrap();
    bank.ask(Request::Abort { instance: two, reason: String::new() }).unwrap();
    assert_eq!(bank.site.gauges().instances_open, 0);
}

#[test]
fn jobs_that_entail_too_much_at_once_are_to_be_sent_again() {
    let mut bank = Harness::bank();
    let source = "process: loan\ndata: { note: string }\nsteps:\n  - { step: write, job: j, writes: [note] }\n";
    bank.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    for number in 1..=200 {
        bank.ask(start(InstanceId(number), json!({}), None)).unwrap();
    }
    let jobs = bank.jobs("j", 200);
    let data = data_of(json!({ "note": "x".repeat(200_000) }));
    let report = |bank: &mut Harness, jobs: &[Job]| {
        let result = |job: &Job| JobResult {
            job: JobLease { activity: job.activity.clone(), lease: job.lease },
            data: data.clone(),
        };
        let jobs = jobs.iter().map(result).collect();
        match bank.ask(Request::CompleteJobs { worker: Arc::from("robot"), jobs }).unwrap() {
            Answer::JobResults(results) => results,
            other => panic!("{other:?}"),
        }
    };
    let results = report(&mut bank, &jobs);
    let done = results.iter().take_while(|result| result.is_ok()).count();
    assert!((100..200).contains(&done), "{done} of 200");
    for refused in &results[done..] {
        assert_eq!(refused.as_ref().unwrap_err().code, "too_much_at_once");
    }
    assert!(report(&mut bank, &jobs[done..]).iter().all(Result::is_ok));
}

#[test]
fn the_open_instances_of_one_process_are_listed_without_those_of_others() {
    let mut bank = Harness::bank();
    let rare = "process: rare\nsteps: [{ step: wait, job: wait }]\n";
    bank.ask(Request::Deploy { source: rare.to_owned() }).unwrap();
    for number in 1..=6_u128 {
        match start(InstanceId(number), json!({}), None) {
            Request::Start(start) if number % 2 == 0 => {
                bank.ask(Request::Start(Start { process: "rare".into(), ..start })).unwrap();
            }
            _ => drop(bank.start(number)),
        }
    }
    let abort = Request::Abort { instance: InstanceId(4), reason: String::new() };
    bank.ask(abort).unwrap();
    for _ in 0..2 {
        let mut page = |process: &str, before| {
            let (process, before) = (Some(Arc::from(process)), before);
            let list = Request::List(List { process, limit: 2, before, ..List::default() });
            match bank.ask(list).unwrap() {
                Answer::Instances { instances, next } => {
                    let ids = instances.iter().map(|info| info.instance.0).collect::<Vec<_>>();
                    (ids, next.map(|next| next.0))
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(page("loan", None), (vec![5, 3], Some(3)));
        assert_eq!(page("loan", Some(InstanceId(3))), (vec![1], None));
        assert_eq!(page("rare", None), (vec![6, 2], None));
        assert_eq!(page("none", None), (vec![], None));
        bank.restart();
    }
}
