//! Idempotency keys of starts: once, whatever happens in between, and newest first all the same.

use crate::support::{Harness, key, start};
use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

/// Starts under a key; which instance that is, and whether it had been started before.
fn started(answer: Result<Answer, Refusal>) -> (u128, bool) {
    match answer.unwrap() {
        Answer::Started { instance, repeated } => (instance.instance.0, repeated),
        other => panic!("{other:?}"),
    }
}

fn keyed(instance: u128, number: u128) -> Request {
    start(InstanceId(instance), json!({ "amount": 1 }), key(number, 1))
}

fn abort(instance: u128) -> Request {
    Request::Abort { instance: InstanceId(instance), reason: String::new() }
}

fn listed(bank: &mut Harness, ended: bool) -> Vec<u128> {
    let list = List { ended, limit: 100, ..List::default() };
    match bank.ask(Request::List(list)).unwrap() {
        Answer::Instances { instances, next: None } => {
            instances.iter().map(|info| info.instance.0).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_start_again_answers_the_first_and_another_with_its_key_is_refused() {
    let mut bank = Harness::bank();
    assert_eq!(started(bank.ask(keyed(7, 1))), (7, false));
    let other = || start(InstanceId(9), json!({ "amount": 2 }), key(1, 2));
    // While it runs, after it has ended, and each time after a restart too.
    for _ in 0..2 {
        for _ in 0..2 {
            assert_eq!(started(bank.ask(keyed(8, 1))), (7, true));
            let clash = bank.refusal(other());
            assert!(clash.ends_with("(idempotency_key_reused)"), "{clash}");
            bank.restart();
        }
        bank.ask(abort(7)).ok();
    }
    assert_eq!(bank.count_streams(), (1, 1));
}

#[test]
fn starts_that_meet_before_the_key_is_read_start_once() {
    let mut bank = Harness::bank();
    bank.hold_reads = true;
    let first = bank.send(keyed(1, 1));
    let second = bank.send(keyed(2, 1));
    let clash = bank.send(start(InstanceId(3), json!({ "amount": 2 }), key(1, 2)));
    assert!(bank.reply(first).is_none());
    bank.read_held();
    // Right after it, in the same round.
    let third = bank.send(keyed(4, 1));
    bank.feed(Input::Settle);
    assert_eq!(started(bank.reply(first).unwrap()), (1, false));
    for again in [second, third] {
        assert_eq!(started(bank.reply(again).unwrap()), (1, true));
    }
    let refused = bank.reply(clash).unwrap().unwrap_err();
    assert_eq!(refused.code, "idempotency_key_reused");
    assert_eq!(bank.count_streams(), (1, 1));
}

#[test]
fn a_refused_start_leaves_its_key_unused() {
    let mut bank = Harness::bank();
    bank.hold_reads = true;
    let wrong = bank.send(start(InstanceId(1), json!({}), key(1, 2)));
    let right = bank.send(keyed(2, 1));
    bank.read_held();
    assert_eq!(bank.reply(wrong).unwrap().unwrap_err().code, "missing_input");
    assert_eq!(started(bank.reply(right).unwrap()), (2, false));
}

#[test]
fn a_key_and_its_instance_are_appended_together() {
    let mut bank = Harness::bank();
    let request = keyed(1, 1);
    let id = RequestId(99);
    let asked =
        bank.site.handle(Input::Request { id, credential: Credential::None, request }, bank.now);
    let [Output::Load { stream, whole: false }] = asked[..] else { panic!("{asked:?}") };
    let nothing = Stream { id: stream.0, ..Stream::default() };
    let outputs = bank.site.handle(Input::Loaded(nothing), bank.now);
    let appended: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Append(append) => Some((append.stream, append.close.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(appended, [(1, false), (stream.0, true)]);
}

#[test]
fn a_key_with_an_instance_that_ended_at_its_start_answers_its_result() {
    let mut bank = Harness::bank();
    let source =
        "process: loan\ndata: { amount: int }\nstart: [amount]\nresult: [amount]\nsteps: []\n";
    bank.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    for (drawn, repeated) in [(1, false), (2, true)] {
        let answer = bank.ask(keyed(drawn, 1)).unwrap();
        let Answer::Started { instance, repeated: told } = answer else { panic!("{answer:?}") };
        assert_eq!((instance.instance.0, told), (1, repeated));
        assert_eq!((instance.lifecycle, instance.result.len()), (Lifecycle::Completed, 1));
    }
    assert_eq!(bank.site.gauges().instances_open, 0);
}

#[test]
fn a_repeated_start_may_wait_for_the_end_of_an_evicted_instance() {
    let mut bank = Harness::bank();
    bank.config.resident_max = 0;
    bank.restart();
    bank.ask(keyed(1, 1)).unwrap();
    assert_eq!(bank.site.gauges().instances_resident, 0);
    let Request::Start(again) = keyed(2, 1) else { unreachable!("a start was made") };
    let wait_until = Some(bank.now + std::time::Duration::from_secs(60));
    let waiting = bank.send(Request::Start(Start { wait_until, ..again }));
    bank.feed(Input::Settle);
    assert!(bank.reply(waiting).is_none(), "it has not ended");
    bank.ask(abort(1)).unwrap();
    assert_eq!(started(bank.reply(waiting).unwrap()), (1, true));
}

#[test]
fn listings_are_newest_first_and_hold_no_keys() {
    let mut bank = Harness::bank();
    for number in 1..=6 {
        let request = if number % 2 == 0 {
            keyed(number, 1_000 - number)
        } else {
            start(InstanceId(number), json!({ "amount": 1 }), None)
        };
        bank.ask(request).unwrap();
    }
    assert_eq!(listed(&mut bank, false), [6, 5, 4, 3, 2, 1]);
    for number in 1..=6 {
        bank.ask(abort(number)).unwrap();
    }
    assert_eq!(listed(&mut bank, true), [6, 5, 4, 3, 2, 1]);
    bank.restart();
    assert_eq!(listed(&mut bank, true), [6, 5, 4, 3, 2, 1]);
    assert_eq!(bank.count_streams(), (6, 3));
}

#[test]
fn a_key_that_cannot_be_read_starts_nothing() {
    let mut bank = Harness::bank();
    bank.ask(keyed(1, 1)).unwrap();
    bank.corrupt(key(1, 1).unwrap().stream);
    let refused = bank.refusal(keyed(2, 1));
    assert!(refused.ends_with("(idempotency_key_broken)"), "{refused}");
    assert_eq!(bank.count_streams(), (1, 1));
}
