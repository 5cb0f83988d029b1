//! Deadlines that are promised: with the planned times, kept over a crash, revoked and told.

use std::time::Duration;

use crate::support::office::*;
use crate::support::{Harness, activity, claim, data_of};
use legwork_model::id::{ActivityId, InstanceId, Iteration, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

#[test]
fn a_deadline_is_promised_with_planned_times_until_there_is_no_time_left() {
    let mut harness = office();
    // Both in one day: three hours of Ann's eight.
    assert_eq!(
        start(&mut harness, 1, "2026-01-16T16:00:00Z"),
        "check ann 16 08:00-11:00, approve bea 16 14:00-15:00"
    );
    // The second has to be at Ann's after the first.
    assert_eq!(
        start(&mut harness, 2, "2026-01-16T16:00:00Z"),
        "check ann 16 11:00-14:00, approve bea 16 15:00-16:00"
    );
    // A third would take until six, and nobody works then: Ann goes on with it on Monday.
    assert_eq!(
        start(&mut harness, 3, "2026-01-16T16:00:00Z"),
        "deadline_not_promised, earliest 19 10:05"
    );
    assert_eq!(
        start(&mut harness, 3, "2026-01-19T10:00:00Z"),
        "check ann 16 14:00-09:00, approve bea 19 09:00-10:00"
    );
}

#[test]
fn what_is_done_makes_room_for_others() {
    let mut harness = office();
    let first = InstanceId(1 << 80);
    start(&mut harness, 1, "2026-01-16T14:00:00Z");
    let full = start(&mut harness, 2, "2026-01-16T14:00:00Z");
    assert_eq!(full, "deadline_not_promised, earliest 16 15:05");
    harness.ask(claim("ann", first, "check")).unwrap();
    harness.now = Timestamp(harness.now.0 + 1_800_000);
    complete(&mut harness, first, "check", "ann");
    assert_eq!(
        start(&mut harness, 3, "2026-01-16T14:00:00Z"),
        "check ann 16 08:30-11:30, approve bea 16 11:30-12:30"
    );
    assert_eq!(harness.site.deadlines().refused, 1);
}

#[test]
fn promises_survive_a_crash() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    start(&mut harness, 2, "2026-01-16T16:00:00Z");
    harness.restart();
    assert_eq!(
        start(&mut harness, 3, "2026-01-16T16:00:00Z"),
        "deadline_not_promised, earliest 19 10:05"
    );
    // What is done after it is given back all the same.
    harness.ask(claim("ann", InstanceId(1 << 80), "check")).unwrap();
    complete(&mut harness, InstanceId(1 << 80), "check", "ann");
    assert_eq!(
        start(&mut harness, 3, "2026-01-16T16:00:00Z"),
        "check ann 16 08:00-11:00, approve bea 16 11:00-12:00"
    );
}

#[test]
fn a_deadline_at_the_weekend_leaves_time_to_spare_in_the_week() {
    let mut harness = office();
    // Ann has six hours for three, and Bea the rest of the day.
    let planned = start(&mut harness, 1, "2026-01-18T12:00:00Z");
    assert_eq!(planned, "check ann 16 08:00-11:00, approve bea 16 14:00-15:00");
    // That nobody begins for an hour is no reason to revoke anything.
    (0..60).for_each(|_| harness.pass(Duration::from_secs(60)));
    assert_eq!(harness.site.deadlines().revoked, 0);
}

#[test]
fn somebodys_plan_shows_what_they_do_when() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    let resource = ResourceId::Person("ann".into());
    let Ok(Answer::Plan(plan)) = harness.ask(Request::Plan { resource }) else { panic!("a plan") };
    let turns: Vec<String> = plan
        .turns
        .iter()
        .map(|turn| {
            format!(
                "{}-{} {}",
                short(turn.from),
                short(turn.to),
                turn.step.as_deref().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(turns, ["16 08:00-16 11:00 check"]);
}

#[test]
fn whoever_falls_ill_has_their_work_promised_by_others_or_it_is_told_before_it_is_late() {
    let mut harness = office();
    let two =
        OFFICE.replace("  bea:", "  abe: { roles: [clerk], share: 100, calendar: office }\n  bea:");
    harness.ask(Request::PublishOrganisation { source: two.clone() }).unwrap();
    for number in 1..=4 {
        assert!(
            start(&mut harness, number, "2026-01-16T16:00:00Z").starts_with("check a"),
            "{number}"
        );
    }
    // One clerk is gone: six of the twelve hours of work are left for the other one's eight.
    let ill = "absent: [{ from: 2026-01-16 }], ";
    let ill = two.replace("  ann: { ", &format!("  ann: {{ {ill}"));
    harness.ask(Request::PublishOrganisation { source: ill }).unwrap();
    let told: Vec<Vec<String>> =
        (1..=4).map(|number| replanned(&mut harness, InstanceId(number << 80))).collect();
    let lost: Vec<&String> = told.iter().filter_map(|changes| changes.last()).collect();
    assert_eq!(lost.len(), 2, "{told:?}");
    assert!(lost.iter().all(|text| text.contains("check is not promised any more")), "{lost:?}");
    assert_eq!(harness.site.deadlines().revoked, 2);
}

#[test]
fn who_does_not_work_is_noticed_before_the_deadline_is_missed() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T13:00:00Z");
    let id = InstanceId(1 << 80);
    // Ann should be done at a quarter to twelve, and has three hours to do.
    harness.pass(Duration::from_secs(30 * 60));
    assert_eq!(replanned(&mut harness, id), [] as [&str; 0]);
    // Then both steps get later dates: there is an hour of slack in all.
    harness.pass(Duration::from_secs(25 * 60));
    let told = replanned(&mut harness, id);
    assert!(told.iter().all(|text| text.contains("planned otherwise now")), "{told:?}");
    assert!(!told.is_empty());
    harness.pass(Duration::from_secs(10 * 60));
    let told = replanned(&mut harness, id);
    assert!(told.iter().any(|text| text.contains("not promised any more")), "{told:?}");
}

#[test]
fn what_was_begun_and_left_again_waits_like_the_rest_also_after_a_crash() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T13:00:00Z");
    let id = InstanceId(1 << 80);
    harness.ask(claim("ann", id, "check")).unwrap();
    harness.pass(Duration::from_secs(20 * 60));
    let (agent, activity) = ("ann".into(), activity(id, "check"));
    harness.ask(Request::Release { agent, activity }).unwrap();
    harness.restart();
    harness.pass(Duration::from_secs(15 * 60));
    assert_eq!(replanned(&mut harness, id), [] as [&str; 0]);
    harness.pass(Duration::from_secs(30 * 60));
    let told = replanned(&mut harness, id);
    assert!(told.iter().any(|text| text.contains("not promised any more")), "{told:?}");
}

#[test]
fn what_is_more_important_makes_others_give_way_and_they_are_told() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    start(&mut harness, 2, "2026-01-16T16:00:00Z");
    let urgent = wish(3, "2026-01-16T13:00:00Z", |wish| wish.priority = 9);
    assert!(told(harness.ask(urgent)).starts_with("check ann"), "it is promised");
    let told: Vec<Vec<String>> =
        (1..=2).map(|number| replanned(&mut harness, InstanceId(number << 80))).collect();
    assert_eq!(
        told.iter().filter(|changes| !changes.is_empty()).count(),
        1,
        "one of them: {told:?}"
    );
}

#[test]
fn a_case_tells_since_when_and_why_it_is_not_promised_any_more_and_forgets_it_when_it_is_again() {
    let mut harness = office();
    let (first, urgent) = (InstanceId(1 << 80), InstanceId(9 << 80));
    let shown = |harness: &mut Harness| {
        let show = Request::Show { instance: first, wait_until: None };
        let Ok(Answer::Instance(view)) = harness.ask(show) else { panic!("a case") };
        let deadline = view.info.deadline.unwrap();
        let told = |it: Revoked| format!("{} {}: {}", short(it.at), it.step, it.reason);
        (deadline.promised, deadline.revoked.map(told))
    };
    start(&mut harness, 1, "2026-01-16T12:30:00Z");
    assert_eq!(shown(&mut harness), (true, None));
    harness.pass(Duration::from_secs(60));
    let wanted = wish(9, "2026-01-16T12:30:00Z", |wish| wish.priority = 9);
    assert!(told(harness.ask(wanted)).starts_with("check ann"), "it is promised");
    let revoked = (false, Some("16 08:01 check: displaced by a more important case".to_owned()));
    assert_eq!(shown(&mut harness), revoked);
    harness.pass(Duration::from_secs(60));
    harness.restart();
    assert_eq!(shown(&mut harness), revoked);
    harness.ask(Request::Abort { instance: urgent, reason: String::new() }).unwrap();
    (0..90).for_each(|_| harness.pass(Duration::from_secs(1)));
    assert_eq!(shown(&mut harness), (true, None));
}

#[test]
fn an_item_says_by_when_it_is_due_and_who_has_promised_it() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    let worklist = Worklist { agent: "ann".into(), since: None, limit: 10, wait_until: None };
    let Ok(Answer::Worklist(list)) = harness.ask(Request::Worklist(worklist)) else {
        panic!("a list")
    };
    let item = &list.items[0];
    assert_eq!(item.due.map(short).as_deref(), Some("16 14:00"));
    assert_eq!(item.planned_for, Some("ann".into()));
}

#[test]
fn how_long_a_step_takes_is_learned_and_not_forgotten_in_a_crash() {
    let mut harness = office();
    for number in 1..=8 {
        start(&mut harness, number, "2026-01-30T16:00:00Z");
        let instance = InstanceId(number << 80);
        harness.ask(claim("ann", instance, "check")).unwrap();
        harness.now = Timestamp(harness.now.0 + 3_600_000);
        complete(&mut harness, instance, "check", "ann");
        harness.ask(Request::Abort { instance, reason: String::new() }).unwrap();
    }
    harness.restart();
    // An hour, not three.
    harness.now = at("2026-01-19T08:00:00Z");
    let planned = start(&mut harness, 9, "2026-01-19T10:00:00Z");
    assert_eq!(planned, "check ann 19 08:00-09:00, approve bea 19 09:00-10:00");
}

#[test]
fn what_goes_on_after_the_weekend_is_planned_for_both_days() {
    let mut harness = office();
    for (number, deadline) in [(1, "16T16"), (2, "16T16"), (3, "19T10")] {
        start(&mut harness, number, &format!("2026-01-{deadline}:00:00Z"));
    }
    let resource = ResourceId::Person("ann".into());
    let Ok(Answer::Plan(plan)) = harness.ask(Request::Plan { resource }) else { panic!("a plan") };
    let last = plan.turns.iter().filter(|turn| turn.instance == Some(InstanceId(3 << 80)));
    let last: Vec<(String, String)> = last.map(|turn| (short(turn.from), short(turn.to))).collect();
    let day = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(last, [day("16 14:00", "16 16:00"), day("19 08:00", "19 09:00")]);
}

#[test]
fn those_with_a_deadline_are_listed_also_when_they_are_not_in_memory() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    let anyway = wish(2, "2026-01-16T09:00:00Z", |wish| wish.unpromised = Unpromised::Start);
    harness.ask(anyway).unwrap();
    let Request::Start(without) = wish(3, "2026-01-16T16:00:00Z", |_| {}) else { unreachable!() };
    harness.ask(Request::Start(Start { deadline: None, ..without })).unwrap();
    let listed = |harness: &mut Harness, before: Option<InstanceId>| {
        let list = List { deadline: true, limit: 1, before, ..List::default() };
        let Ok(Answer::Instances { instances, next }) = harness.ask(Request::List(list)) else {
            panic!("a list")
        };
        let info = &instances[0];
        (info.instance.0 >> 80, info.deadline.as_ref().unwrap().promised, next)
    };
    let second = InstanceId(2 << 80);
    for _ in 0..2 {
        assert_eq!(listed(&mut harness, None), (2, false, Some(second)));
        assert_eq!(listed(&mut harness, Some(second)), (1, true, None));
        harness.restart();
    }
}

#[test]
fn a_loop_that_goes_round_again_takes_the_promise_back_and_says_so() {
    let mut harness = office();
    let source = "process: claim\ndata: { sum: int }\nstart: [sum]\nsteps:\n  - loop: until-right\n    steps:\n      \
                  - { step: check, who: Role(clerk), takes: 1h }\n    who: Role(manager)\n    takes: 30m\n";
    harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    let instance = InstanceId(1 << 80);
    let done = |step: &str, agent: &str, answer: Option<&str>| {
        Request::Complete(Complete {
            agent: agent.into(),
            activity: ActivityId { iteration: Iteration(vec![0]), ..activity(instance, step) },
            data: data_of(serde_json::json!({})),
            answer: answer.map(str::to_owned),
            request: None,
        })
    };
    harness.ask(done("check", "ann", None)).unwrap();
    harness.ask(done("until-right", "bea", Some("repeat"))).unwrap();
    let told = replanned(&mut harness, instance);
    assert!(
        told.iter().any(|text| text.contains("`check` is done once more than was planned")),
        "{told:?}"
    );
    assert_eq!(harness.site.deadlines().revoked, 1);
    // Nobody knows how often it still goes round: it is not promised again.
    harness.restart();
    (0..4).for_each(|_| harness.pass(Duration::from_secs(60)));
    assert_eq!(replanned(&mut harness, instance), told);
}

#[test]
fn after_many_promises_a_restart_reads_what_stands() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    start(&mut harness, 2, "2026-01-16T16:00:00Z");
    for number in 3..150 {
        start(&mut harness, number, "2026-01-19T16:00:00Z");
        let instance = InstanceId(number << 80);
        harness.ask(Request::Abort { instance, reason: String::new() }).unwrap();
    }
    assert!(harness.snapshot_of(StreamId::PLANS).is_some(), "what they come to is stored");
    let full = "deadline_not_promised, earliest 19 10:05";
    harness.restart();
    assert_eq!(start(&mut harness, 3, "2026-01-16T16:00:00Z"), full);
    // Without it all records are read.
    harness.corrupt_snapshot(StreamId::PLANS);
    harness.restart();
    assert_eq!(start(&mut harness, 3, "2026-01-16T16:00:00Z"), full);
}

#[test]
fn a_promise_is_one_record_and_a_question_or_a_refusal_none() {
    let mut harness = office();
    let ask = wish(1, "2026-01-16T16:00:00Z", |wish| wish.ask_only = true);
    assert!(harness.ask(ask).is_ok());
    assert!(harness.ask(wish(1, "2026-01-16T09:00:00Z", |_| {})).is_err());
    assert_eq!(harness.records(StreamId::PLANS), 0);
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    assert_eq!(harness.records(StreamId::PLANS), 1);
}

#[test]
fn what_was_done_before_a_crash_stays_done() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    harness.ask(claim("ann", InstanceId(1 << 80), "check")).unwrap();
    harness.pass(Duration::from_secs(2 * 3600));
    harness.restart();
    let resource = ResourceId::Person("ann".into());
    let Ok(Answer::Plan(plan)) = harness.ask(Request::Plan { resource }) else { panic!("a plan") };
    let turns: Vec<(String, String)> =
        plan.turns.iter().map(|turn| (short(turn.from), short(turn.to))).collect();
    assert_eq!(turns, [("16 10:00".to_owned(), "16 11:00".to_owned())]);
}

#[test]
fn whoever_takes_many_at_once_does_one_after_the_other() {
    let mut harness = office();
    for number in 1..=8 {
        start(&mut harness, number, "2026-01-30T16:00:00Z");
        harness.ask(claim("ann", InstanceId(number << 80), "check")).unwrap();
    }
    for number in 1..=8 {
        let instance = InstanceId(number << 80);
        harness.now = Timestamp(harness.now.0 + 55 * 60_000);
        complete(&mut harness, instance, "check", "ann");
        harness.ask(Request::Abort { instance, reason: String::new() }).unwrap();
    }
    harness.now = at("2026-01-19T08:00:00Z");
    let planned = start(&mut harness, 9, "2026-01-19T12:00:00Z");
    assert!(planned.starts_with("check ann 19 08:00-08:55"), "{planned}");
}

#[test]
fn a_promise_that_is_broken_is_counted_where_it_was() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    let id = InstanceId(1 << 80);
    harness.ask(claim("ann", id, "check")).unwrap();
    // It was due at two.
    harness.now = at("2026-01-16T14:20:00Z");
    complete(&mut harness, id, "check", "ann");
    harness.ask(claim("bea", id, "approve")).unwrap();
    harness.now = at("2026-01-16T16:10:00Z");
    complete(&mut harness, id, "approve", "bea");
    let counts = harness.site.deadlines();
    assert_eq!((counts.kept, counts.broken, counts.revoked), (0, 1, 0));
    let broken: Vec<_> = harness.site.broken().collect();
    let (process, step) = ("claim".into(), "check".into());
    let (domain, executor) = ("".into(), "".into());
    assert_eq!(broken, [(&BrokenAt { process, step, domain, executor }, 1)]);
}

#[test]
fn a_case_of_which_several_steps_are_not_promised_any_more_counts_once() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    let gone = "absent: [{ from: 2026-01-16 }], ";
    let gone = OFFICE.replace("{ roles", &format!("{{ {gone}roles"));
    harness.ask(Request::PublishOrganisation { source: gone }).unwrap();
    let told = replanned(&mut harness, InstanceId(1 << 80));
    let both = "check is not promised any more, approve is not promised any more";
    assert!(told.len() == 1 && told[0].ends_with(both), "{told:?}");
    assert_eq!(harness.site.deadlines().revoked, 1);
}

#[test]
fn whoever_follows_a_list_sees_that_an_item_is_planned_otherwise() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T13:00:00Z");
    let read = |harness: &mut Harness, since| {
        let list = Worklist { agent: "ann".into(), since, limit: 10, wait_until: None };
        let Ok(Answer::Worklist(list)) = harness.ask(Request::Worklist(list)) else {
            panic!("a list")
        };
        let planned: Vec<_> = list.items.into_iter().map(|item| item.planned_for).collect();
        (planned, list.cursor)
    };
    let (before, cursor) = read(&mut harness, None);
    assert_eq!(before, [Some("ann".into())]);
    let (nothing, cursor) = read(&mut harness, Some(cursor));
    assert_eq!(nothing, []);
    // Nobody begins.
    harness.pass(Duration::from_secs(70 * 60));
    assert_eq!(read(&mut harness, Some(cursor)).0, [None]);
}

#[test]
fn starts_under_one_key_that_come_together_are_promised_once() {
    let mut harness = office();
    let keyed = |number| {
        let wish = wish(number, "2026-01-16T16:00:00Z", |_| {});
        let Request::Start(start) = wish else { panic!("a start") };
        Request::Start(Start { key: crate::support::key(7, 9), ..start })
    };
    harness.hold_reads = true;
    let both = [1, 2].map(|number| harness.send(keyed(number)));
    harness.read_held();
    harness.feed(Input::Settle);
    let repeated = both.map(|id| match harness.reply(id) {
        Some(Ok(Answer::Started { instance, repeated })) => (instance.instance, repeated),
        other => panic!("{other:?}"),
    });
    let first = InstanceId(1 << 80);
    assert_eq!(repeated, [(first, false), (first, true)]);
    assert_eq!(harness.site.deadlines().promised, 1);
}
