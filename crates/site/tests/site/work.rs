//! People and programs at one site: who sees what, who may do what, and what a second one is told.

use std::time::Duration;

use crate::support::{Harness, activate, activity, claim, complete, data_of, start};
use legwork_model::event::RequestDigest;
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

#[test]
fn a_case_goes_from_start_to_result_by_several_hands() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    assert_eq!(bank.items("ann"), ["capture"]);
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    let score = bank.jobs("credit-score", 10).remove(0);
    bank.report(&score, json!({ "risk": 20 })).unwrap();
    assert_eq!(bank.items("ann"), [""; 0], "four eyes: not the one who captured it");
    let verdict = Complete { answer: Some("approve".into()), ..complete("ben", loan, "verdict") };
    bank.ask(Request::Complete(verdict)).unwrap();
    let show = bank.send(Request::Show { instance: loan, wait_until: Some(Timestamp(i64::MAX)) });
    let pay = bank.jobs("payment", 10).remove(0);
    assert!(bank.reply(show).is_none(), "it waits for the end");
    bank.report(&pay, json!({ "approved": true })).unwrap();
    assert!(bank.reply(show).is_some(), "it is told of the end");
    insta::assert_snapshot!(
        bank.states(loan),
        @"Completed: capture=Completed score=Completed verdict=Completed pay=Completed"
    );
}

#[test]
fn a_case_that_ends_with_its_start_is_answered_with_its_result() {
    let mut bank = Harness::bank();
    let source =
        "process: loan\ndata: { amount: int }\nstart: [amount]\nresult: [amount]\nsteps: []\n";
    bank.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    let started = bank.ask(start(InstanceId(1), json!({ "amount": 1 }), None)).unwrap();
    let Answer::Started { instance, repeated: false } = started else { panic!("{started:?}") };
    assert_eq!((instance.lifecycle, instance.result.len()), (Lifecycle::Completed, 1));
    assert_eq!(bank.site.gauges().instances_open, 0);
}

#[test]
fn a_second_claim_is_rejected_naming_the_holder() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(claim("ann", loan, "capture")).unwrap();
    insta::assert_snapshot!(
        bank.refusal(claim("ben", loan, "capture")),
        @"held by ann; ask them to release or delegate it (held_by)"
    );
    assert_eq!(bank.items("ben"), [""; 0]);
    let release =
        Request::Release { agent: AgentId::from("ann"), activity: activity(loan, "capture") };
    bank.ask(release).unwrap();
    assert_eq!(bank.items("ben"), ["capture"]);
}

#[test]
fn an_item_done_without_a_claim_began_when_it_was_offered() {
    let mut bank = Harness::bank();
    let mut began = |claims: bool| {
        let (loan, offered) = (bank.start(if claims { 1 } else { 2 }), bank.now);
        bank.pass(Duration::from_secs(60));
        if claims {
            bank.ask(claim("ann", loan, "capture")).unwrap();
        }
        bank.pass(Duration::from_secs(5));
        bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
        let Ok(Answer::History { entries, .. }) =
            bank.ask(Request::History { instance: loan, from: 0, limit: 100 })
        else {
            panic!("no history")
        };
        let done = entries.iter().find(|entry| entry.kind == "completed").unwrap();
        done.started_at.unwrap().0 - offered.0
    };
    assert_eq!((began(true), began(false)), (60_000, 0));
}

#[test]
fn who_may_not_do_a_step_does_not_learn_of_it() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    let refused = bank.refusal(claim("cleo", loan, "capture"));
    assert!(refused.ends_with("(no_such_item)"), "{refused}");
    let unknown = bank.refusal(claim("zoe", loan, "capture"));
    assert!(unknown.ends_with("(no_such_agent)"), "{unknown}");
}

#[test]
fn a_wrong_or_missing_output_changes_nothing() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    let data = data_of(json!({ "amount": "much" }));
    let wrong = Complete { data, ..complete("ann", loan, "capture") };
    let refused = bank.refusal(Request::Complete(wrong));
    assert!(refused.ends_with("(wrong_type)"), "{refused}");
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    let score = bank.jobs("credit-score", 1).remove(0);
    let missing = bank.report(&score, json!({})).unwrap_err();
    assert!(missing.ends_with("(missing_output)"), "{missing}");
    bank.report(&score, json!({ "risk": 1 })).unwrap();
}

#[test]
fn a_substitute_sees_and_takes_over_what_the_absent_holds_but_four_eyes_stay_four() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(claim("ann", loan, "capture")).unwrap();
    assert_eq!(bank.items("dan"), [""; 0]);
    bank.now = "2026-02-10T08:00:00Z".parse().unwrap();
    assert_eq!(bank.items("dan"), ["capture"], "ann is away, dan stands in");
    bank.ask(Request::Complete(complete("dan", loan, "capture"))).unwrap();
    let score = bank.jobs("credit-score", 1).remove(0);
    bank.report(&score, json!({ "risk": 1 })).unwrap();
    assert_eq!(bank.items("dan"), [""; 0], "he captured it: he must not decide, for ann either");
    assert_eq!(bank.items("ben"), ["verdict"]);
}

#[test]
fn when_the_first_substitute_is_barred_the_next_one_does_it() {
    let mut bank = Harness::bank();
    let source = crate::support::BANK.replace("substitutes: [dan]", "substitutes: [dan, cleo]");
    let source = source.replace("ben: { name: Ben, roles: [clerk] }", "ben: { name: Ben }");
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    bank.now = "2026-02-10T08:00:00Z".parse().unwrap();
    let loan = bank.start(1);
    let list = |since, wait_until| {
        Request::Worklist(Worklist { agent: "cleo".into(), since, limit: 9, wait_until })
    };
    let Answer::Worklist(first) = bank.ask(list(None, None)).unwrap() else { panic!("a list") };
    assert!(first.items.is_empty(), "dan comes before her");
    let until = bank.now + Duration::from_secs(30);
    let watch = bank.send(list(Some(first.cursor), Some(until)));
    bank.ask(Request::Complete(complete("dan", loan, "capture"))).unwrap();
    let score = bank.jobs("credit-score", 1).remove(0);
    bank.report(&score, json!({ "risk": 1 })).unwrap();
    // He asked: he must not decide, for ann either, and so it is cleo's turn.
    let Some(Ok(Answer::Worklist(seen))) = bank.reply(watch) else { panic!("she is told") };
    assert_eq!(seen.items[0].on_behalf_of, Some("ann".into()));
    assert_eq!(bank.items("dan"), [""; 0]);
    assert!(bank.refusal(claim("dan", loan, "verdict")).ends_with("(no_such_item)"));
    // Also of what ann has claimed already.
    bank.ask(claim("ann", loan, "verdict")).unwrap();
    let verdict = Complete { answer: Some("reject".into()), ..complete("cleo", loan, "verdict") };
    bank.ask(Request::Complete(verdict)).unwrap();
    assert!(bank.states(loan).starts_with("Completed"), "{}", bank.states(loan));
}

#[test]
fn a_job_whose_lease_ran_out_is_offered_again_and_a_second_completion_is_refused() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    let first = bank.jobs("credit-score", 1).remove(0);
    assert!(bank.jobs("credit-score", 1).is_empty());
    bank.pass(Duration::from_secs(61));
    let second = bank.jobs("credit-score", 1).remove(0);
    let lost = bank.report(&first, json!({ "risk": 1 })).unwrap_err();
    assert!(lost.ends_with("(lease_lost)"), "{lost}");
    bank.report(&second, json!({ "risk": 2 })).unwrap();
    let again = bank.report(&second, json!({ "risk": 2 })).unwrap_err();
    assert!(again.ends_with("(job_not_open)"), "{again}");
}

#[test]
fn a_waiting_worker_is_served_as_soon_as_a_job_comes_up() {
    let mut bank = Harness::bank();
    let until = bank.now + Duration::from_secs(30);
    let poll = bank.send(activate("credit-score", 5, Some(until)));
    bank.feed(Input::Settle);
    assert!(bank.reply(poll).is_none());
    assert_eq!(bank.site.next_timeout(), Some(until));
    let loan = bank.start(1);
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    assert!(matches!(bank.reply(poll), Some(Ok(Answer::Jobs(jobs))) if jobs.len() == 1));
    let empty = bank.send(activate("payment", 5, Some(until)));
    bank.pass(Duration::from_secs(30));
    assert!(matches!(bank.reply(empty), Some(Ok(Answer::Jobs(jobs))) if jobs.is_empty()));
}

#[test]
fn retries_back_off_and_end_in_an_incident_that_can_be_resolved() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    for _ in 0..2 {
        let job = bank.jobs("credit-score", 1).remove(0);
        let job = JobLease { activity: job.activity.clone(), lease: job.lease };
        let jobs = vec![JobFailure { job, error: "no line".into(), retry: true }];
        bank.ask(Request::FailJobs { worker: "robot".into(), jobs }).unwrap();
        assert!(bank.jobs("credit-score", 1).is_empty(), "not before its time");
        bank.pass(Duration::from_secs(10));
    }
    let Answer::Incidents { incidents, .. } =
        bank.ask(Request::Incidents { limit: 10, after: None }).unwrap()
    else {
        unreachable!("incidents were asked for")
    };
    insta::assert_snapshot!(incidents[0].message, @"failed 2 times, at last with: no line");
    bank.restart();
    let resolution = Resolution::Complete(data_of(json!({ "risk": 3 })));
    let activity = activity(loan, "score");
    bank.ask(Request::Resolve { activity, resolution }).unwrap();
    assert_eq!(bank.items("ben"), ["verdict"]);
}

#[test]
fn a_step_nobody_can_do_raises_an_incident_naming_the_rule_until_somebody_can() {
    let mut bank = Harness::bank();
    let source = crate::support::BANK.replace("[clerk]", "[waiter]");
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    bank.start(1);
    let Answer::Incidents { incidents, .. } =
        bank.ask(Request::Incidents { limit: 10, after: None }).unwrap()
    else {
        unreachable!("incidents were asked for")
    };
    insta::assert_snapshot!(
        incidents[0].message,
        @"nobody in the organisation fits the rule `Role(clerk)`"
    );
    let source = format!("{}# changed\n", crate::support::BANK);
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    assert_eq!(bank.items("ann"), ["capture"]);
}

#[test]
fn what_nobody_can_do_any_more_when_it_is_resumed_raises_an_incident() {
    let mut bank = Harness::bank();
    let instance = bank.start(1);
    bank.ask(Request::Suspend { instance, reason: None }).unwrap();
    let source = crate::support::BANK.replace("[clerk]", "[waiter]");
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    bank.ask(Request::Resume { instance, reason: None }).unwrap();
    let Answer::Incidents { incidents, .. } =
        bank.ask(Request::Incidents { limit: 10, after: None }).unwrap()
    else {
        unreachable!("incidents were asked for")
    };
    assert_eq!(
        incidents.iter().map(|incident| incident.kind).collect::<Vec<_>>(),
        ["nobody_can_do_it"]
    );
}

#[test]
fn a_repeated_completion_with_its_key_succeeds_even_after_the_end() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    let keyed = |key, content| Complete {
        request: Some(RequestDigest::new(key, content)),
        ..complete("ann", loan, "capture")
    };
    let capture = || keyed(5, 1);
    bank.ask(Request::Complete(capture())).unwrap();
    bank.ask(Request::Complete(capture())).unwrap();
    bank.ask(Request::Abort { instance: loan, reason: String::new() }).unwrap();
    bank.restart();
    bank.ask(Request::Complete(capture())).unwrap();
    let clash = bank.refusal(Request::Complete(keyed(5, 2)));
    assert!(clash.ends_with("(idempotency_key_reused)"), "{clash}");
    let refused = bank.refusal(Request::Complete(keyed(6, 1)));
    assert!(refused.ends_with("(instance_ended)"), "{refused}");
}

#[test]
fn a_restart_keeps_worklists_claims_and_jobs() {
    let mut bank = Harness::bank();
    let (one, two) = (bank.start(1), bank.start(2));
    bank.ask(claim("ann", one, "capture")).unwrap();
    bank.ask(Request::Complete(complete("ben", two, "capture"))).unwrap();
    let job = bank.jobs("credit-score", 1).remove(0);
    bank.restart();
    assert_eq!(bank.items("ann"), ["capture"]);
    assert_eq!(bank.items("ben"), [""; 0]);
    bank.report(&job, json!({ "risk": 1 })).unwrap();
    assert_eq!(bank.items("ann"), ["capture", "verdict"]);
}

#[test]
fn time_goes_on_from_a_snapshot_that_covers_all_records() {
    let mut bank = Harness::bank();
    bank.config.snapshot_every = 1;
    bank.restart();
    let loan = bank.start(1);
    bank.pass(Duration::from_secs(60));
    bank.ask(claim("ann", loan, "capture")).unwrap();
    bank.restart();
    assert_eq!(bank.site.latest(), bank.now);
}

#[test]
fn a_lease_of_an_earlier_life_is_not_taken_for_one_of_now_though_the_clock_was_set_back() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    let first = bank.jobs("credit-score", 1).remove(0);
    for back in [0, 3_600_000] {
        bank.now = Timestamp(bank.now.0 - back);
        bank.restart();
        assert_eq!(bank.jobs("credit-score", 1).len(), 1);
        let lost = bank.report(&first, json!({ "risk": 1 })).unwrap_err();
        assert!(lost.ends_with("(lease_lost)"), "{lost}");
    }
}

#[test]
fn evicted_instances_come_back_when_they_are_needed() {
    let mut bank = Harness::bank();
    bank.config.resident_max = 0;
    bank.restart();
    let loans: Vec<InstanceId> = (1..=5).map(|number| bank.start(number)).collect();
    assert_eq!(bank.site.gauges().instances_resident, 0);
    for loan in loans {
        bank.ask(Request::Complete(complete("ann", loan, "capture"))).unwrap();
    }
    assert_eq!(bank.site.gauges().jobs_queued, 5);
    assert_eq!(bank.site.gauges().instances_resident, 5, "workers may ask at any moment");
}

#[test]
fn a_suspended_instance_offers_nothing_new_and_finishes_what_is_begun() {
    let mut bank = Harness::bank();
    let (one, two) = (bank.start(1), bank.start(2));
    bank.ask(claim("ann", one, "capture")).unwrap();
    for instance in [one, two] {
        bank.ask(Request::Suspend { instance, reason: None }).unwrap();
    }
    assert_eq!(bank.items("ann"), ["capture"], "the one she holds");
    bank.ask(Request::Complete(complete("ann", one, "capture"))).unwrap();
    assert!(bank.jobs("credit-score", 1).is_empty());
    bank.restart();
    assert!(bank.jobs("credit-score", 1).is_empty());
    bank.ask(Request::Resume { instance: one, reason: None }).unwrap();
    assert_eq!(bank.jobs("credit-score", 1).len(), 1);
}

#[test]
fn the_history_tells_why_an_instance_was_suspended_and_resumed() {
    let mut bank = Harness::bank();
    let instance = bank.start(1);
    let reason = |text: &str| Some(text.to_owned());
    bank.ask(Request::Suspend { instance, reason: reason("audit") }).unwrap();
    bank.ask(Request::Resume { instance, reason: reason("all is well") }).unwrap();
    bank.ask(Request::Suspend { instance, reason: None }).unwrap();
    let long = "x".repeat(5_000);
    let refused = bank.refusal(Request::Resume { instance, reason: reason(&long) });
    assert!(refused.ends_with("(text_too_long)"), "{refused}");
    let Answer::History { entries, .. } =
        bank.ask(Request::History { instance, from: 1, limit: 10 }).unwrap()
    else {
        unreachable!("the history was asked for")
    };
    let told: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.detail.as_deref())).collect();
    let expected =
        [("suspended", Some("audit")), ("resumed", Some("all is well")), ("suspended", None)];
    assert_eq!(told, expected);
}

#[test]
fn an_organisation_is_held_against_the_latest_version_of_every_process() {
    let mut bank = Harness::bank();
    let credit = crate::support::LOAN.replace("process: loan", "process: credit");
    let loan = crate::support::LOAN.replace("Role(clerk)", "(Agent(ben) OR Agent(cleo))");
    for source in [credit, loan] {
        bank.ask(Request::Deploy { source }).unwrap();
    }
    let complaints = |bank: &mut Harness, source: String| match bank
        .ask(Request::PublishOrganisation { source })
        .unwrap()
    {
        Answer::Published { warnings, .. } => {
            let of_process = |message: &str| message.split('`').nth(1).map(str::to_owned);
            let all = warnings.iter().filter_map(|warning| of_process(&warning.message));
            all.collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let no_clerks = crate::support::BANK.replace("[clerk]", "[waiter]");
    assert_eq!(complaints(&mut bank, no_clerks), ["credit", "credit"]);
    bank.restart();
    let no_ben = crate::support::BANK.replace("ben:", "bob:");
    assert_eq!(complaints(&mut bank, no_ben), ["loan", "loan"]);
}

#[test]
fn a_deployment_is_refused_with_what_the_check_finds() {
    let mut bank = Harness::bank();
    let unknown = crate::support::LOAN.replace("Role(clerk)", "Role(waiter)");
    let source = unknown.replace("    writes: [risk]\n", "");
    let organisation = legwork_org::Organisation::parse(crate::support::BANK).0;
    let (_, found) = legwork_org::check_text(&source, organisation.as_ref());
    assert!(found.len() > 1 && found.is_sorted(), "{found:?}");
    let refused = bank.ask(Request::Deploy { source }).unwrap_err();
    assert_eq!((refused.code, refused.findings), ("check_failed", found));
}

#[test]
fn a_history_is_read_in_pages() {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    for _ in 0..2 {
        bank.ask(claim("ann", loan, "capture")).unwrap();
        let agent = AgentId::from("ann");
        bank.ask(Request::Release { agent, activity: activity(loan, "capture") }).unwrap();
    }
    let page = |bank: &mut Harness, from| {
        let history = Request::History { instance: loan, from, limit: 2 };
        match bank.ask(history).unwrap() {
            Answer::History { entries, next } => {
                let told = entries.iter().map(|entry| format!("{} {}", entry.record, entry.kind));
                (told.collect::<Vec<_>>().join(", "), next)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page(&mut bank, 0), ("0 created, 1 claimed".to_owned(), Some(2)));
    assert_eq!(page(&mut bank, 2), ("2 released, 3 claimed".to_owned(), Some(4)));
    assert_eq!(page(&mut bank, 4), ("4 released".to_owned(), None));
    for beyond in [5, u64::MAX] {
        assert_eq!(page(&mut bank, beyond), (String::new(), None));
    }
    let nobody = Request::History { instance: InstanceId(99), from: 0, limit: 2 };
    assert!(bank.refusal(nobody).ends_with("(no_such_instance)"));
}

#[test]
fn a_worklist_is_followed_by_its_cursor() {
    let mut bank = Harness::bank();
    let list = |bank: &mut Harness, since: Option<String>| {
        let agent = AgentId::from("ben");
        let worklist = Worklist { agent, since, limit: 10, wait_until: None };
        match bank.ask(Request::Worklist(worklist)).unwrap() {
            Answer::Worklist(view) => view,
            other => panic!("{other:?}"),
        }
    };
    let first = list(&mut bank, None);
    let loan = bank.start(1);
    let second = list(&mut bank, Some(first.cursor.clone()));
    assert_eq!((second.reset, second.items.len()), (false, 1));
    bank.ask(claim("ann", loan, "capture")).unwrap();
    let third = list(&mut bank, Some(second.cursor));
    assert_eq!(third.removed, [activity(loan, "capture")]);
    bank.ask(Request::Abort { instance: loan, reason: String::new() }).unwrap();
    let fourth = list(&mut bank, Some(first.cursor));
    assert_eq!(fourth.removed, [activity(loan, "capture")], "also of an instance that is gone");
    let bad = Worklist { agent: "ben".into(), since: Some("x".into()), limit: 1, wait_until: None };
    assert!(bank.refusal(Request::Worklist(bad)).ends_with("(bad_cursor)"));
}
