//! What is remembered, for how long, and how much of it.

use serde_json::json;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

fn task(name: &str) -> Task {
    serde_json::from_value(json!({
        "task": name, "key": "case/step", "attempt": 1, "type": "score", "size": 1.0,
        "process": "loan", "inputs": {}, "deadline": "2026-11-16T02:30:00Z", "callback": "http://a",
    }))
    .unwrap()
}

fn done() -> Arc<Outcome> {
    Arc::new(Ok(Data::from([("points".to_owned(), json!(7))])))
}

fn is_new(memory: &mut Memory, name: &str) -> bool {
    matches!(memory.admit(&task(name), 16, None), Admission::New(_))
}

fn known(memory: &mut Memory, name: &str) -> Option<Answer> {
    match memory.admit(&task(name), 16, None) {
        Admission::Known(waiting) => waiting.borrow().clone(),
        Admission::New(_) | Admission::Busy | Admission::Closed => panic!("{name} is not known"),
    }
}

/// Begun and answered at once.
fn quick(memory: &mut Memory, name: &str, bytes: usize) {
    let Admission::New(_waiting) = memory.admit(&task(name), 16, None) else {
        panic!("{name} is not new")
    };
    memory.ended(name, "http://a ", "score");
    assert!(!memory.finished(name, &done(), bytes), "it is told at once");
}

/// Begun, taken and done, but not acknowledged yet.
fn slow(memory: &mut Memory, name: &str) {
    assert!(is_new(memory, name));
    memory.taken(name);
    memory.ended(name, "http://a ", "score");
    assert!(memory.finished(name, &done(), 10), "it is to be sent");
}

#[test]
fn a_repetition_is_answered_like_the_first_time() {
    let mut memory = Memory::default();
    quick(&mut memory, "a", 10);
    assert_eq!(known(&mut memory, "a"), Some(Answer::Finished(done())));
    slow(&mut memory, "b");
    assert_eq!(known(&mut memory, "b"), Some(Answer::Taken));
    memory.sent("b");
    assert_eq!(known(&mut memory, "b"), Some(Answer::Taken));
}

#[test]
fn a_result_that_nobody_waited_for_is_sent() {
    let mut memory = Memory::default();
    assert!(is_new(&mut memory, "a"), "and the request is gone at once");
    memory.ended("a", "http://a ", "score");
    assert!(memory.finished("a", &done(), 10));
    assert!(memory.is_sending("a") && !memory.is_idle());
    memory.sent("a");
    assert!(!memory.is_sending("a") && memory.is_idle());
}

#[test]
fn a_verdict_is_passed_on_once_and_leaves_only_the_name() {
    let mut memory = Memory::default();
    quick(&mut memory, "a", 10);
    let Judgement::Call(judged) = memory.judge("a") else { panic!("it is not judged") };
    assert_eq!(judged.key.as_deref(), Some("case/step"));
    assert_eq!(judged.data, done().as_ref().clone().ok());
    assert!(matches!(memory.judge("a"), Judgement::Later));
    memory.judged("a", false);
    assert!(matches!(memory.judge("a"), Judgement::Call(_)), "a hook that failed is called again");
    memory.judged("a", true);
    assert!(matches!(memory.judge("a"), Judgement::Confirmed));
    assert_eq!(known(&mut memory, "a"), Some(Answer::Over));
    assert_eq!(memory.bytes, 0);
}

#[test]
fn a_verdict_for_what_is_not_known_is_passed_on_too() {
    let mut memory = Memory::default();
    let nothing = Judged { task: "x".to_owned(), key: None, data: None };
    let Judgement::Call(judged) = memory.judge("x") else { panic!("it is not judged") };
    assert_eq!(judged, nothing);
    memory.judged("x", false);
    assert!(memory.tasks.is_empty() && memory.is_idle());
    assert!(matches!(memory.judge("x"), Judgement::Call(_)));
    memory.judged("x", true);
    assert!(matches!(memory.judge("x"), Judgement::Confirmed));
}

#[test]
fn a_verdict_ends_the_sending() {
    let mut memory = Memory::default();
    slow(&mut memory, "a");
    assert!(matches!(memory.judge("a"), Judgement::Call(_)));
    assert!(!memory.is_sending("a") && !memory.is_idle(), "a hook is being called");
    memory.sent("a");
    memory.judged("a", true);
    assert!(memory.is_idle());
    assert!(matches!(memory.judge("a"), Judgement::Confirmed));
}

#[test]
fn a_result_is_unjudged_from_when_it_is_told_until_its_verdict_or_it_is_forgotten() {
    let mut memory = Memory::new(1, 1_000);
    let failed = Arc::new(Err(Failure::again("no answer")));
    assert!(is_new(&mut memory, "a"));
    assert!(memory.unjudged("a").is_none(), "it is not done");
    memory.ended("a", "http://a ", "score");
    memory.finished("a", &failed, 10);
    memory.sent("a");
    assert!(memory.unjudged("a").is_none(), "failures are not judged");
    slow(&mut memory, "b");
    assert!(memory.unjudged("b").is_none(), "it is not told");
    memory.sent("b");
    let mut judged = memory.unjudged("b").unwrap();
    memory.cancel("b");
    assert_eq!(judged.try_recv(), Err(TryRecvError::Empty), "it will be judged");
    assert!(matches!(memory.judge("b"), Judgement::Call(_)));
    assert_eq!(judged.try_recv(), Err(TryRecvError::Closed));
    memory.judged("b", true);
    quick(&mut memory, "c", 10);
    let mut judged = memory.unjudged("c").unwrap();
    quick(&mut memory, "d", 10);
    assert_eq!(judged.try_recv(), Err(TryRecvError::Closed), "it is forgotten");
    assert!(memory.unjudged("c").is_none());
}

#[test]
fn what_is_cancelled_is_not_begun_even_if_it_comes_after() {
    let mut memory = Memory::default();
    memory.cancel("a");
    assert_eq!(known(&mut memory, "a"), Some(Answer::Over));
    assert!(is_new(&mut memory, "b"));
    memory.cancel("b");
    memory.ended("b", "http://a ", "score");
    assert!(!memory.finished("b", &done(), 10), "nobody waits for it");
    assert!(memory.is_idle());
    slow(&mut memory, "c");
    memory.cancel("c");
    assert!(memory.is_sending("c"), "what is done is told, and will be judged");
}

#[test]
fn what_one_server_gives_refuses_nothing_of_another_and_both_are_told_of_all() {
    let mut memory = Memory::default();
    // Servers of one process share a callback.
    let other = |name: &str| Task { server: Some("east-2".to_owned()), ..task(name) };
    assert!(matches!(memory.admit(&task("a"), 1, Some(1)), Admission::New(_)));
    assert!(matches!(memory.admit(&task("b"), 1, None), Admission::Busy));
    assert!(matches!(memory.admit(&other("b"), 1, Some(1)), Admission::New(_)));
    let load =
        |has, holds: &[&str]| Load { has, holds: holds.iter().map(ToString::to_string).collect() };
    assert_eq!((memory.load(), memory.took_ms("b")), (load(2, &["a", "b"]), None));
    memory.ended("b", "http://a east-2", "score");
    memory.took("b", Some(7));
    assert_eq!((memory.load(), memory.took_ms("b")), (load(1, &["a"]), Some(7)));
    assert!(matches!(memory.admit(&other("c"), 1, None), Admission::New(_)));
}

#[test]
fn of_many_tasks_not_all_names_are_told() {
    let mut memory = Memory::default();
    for number in 0..=HOLDS_MAX {
        let admission = memory.admit(&task(&format!("t{number}")), u32::MAX, None);
        assert!(matches!(admission, Admission::New(_)));
    }
    let Load { has, holds } = memory.load();
    assert_eq!((has as usize, holds.len()), (HOLDS_MAX + 1, HOLDS_MAX));
}

#[test]
fn no_more_are_begun_than_fit() {
    let mut memory = Memory::default();
    let admit = |memory: &mut Memory, name: &str| memory.admit(&task(name), 3, Some(2));
    assert!(matches!(admit(&mut memory, "a"), Admission::New(_)));
    assert!(matches!(admit(&mut memory, "b"), Admission::New(_)));
    assert!(matches!(admit(&mut memory, "c"), Admission::Busy), "two of the type");
    assert!(matches!(memory.admit(&task("c"), 2, None), Admission::Busy), "two in all");
    assert!(matches!(admit(&mut memory, "a"), Admission::Known(_)), "nothing is begun for it");
    memory.ended("a", "http://a ", "score");
    assert!(matches!(admit(&mut memory, "c"), Admission::New(_)));
    memory.stop();
    memory.ended("b", "http://a ", "score");
    assert!(matches!(admit(&mut memory, "d"), Admission::Closed));
    assert!(matches!(admit(&mut memory, "a"), Admission::Known(_)));
}

#[test]
fn the_oldest_that_is_told_is_forgotten_first() {
    let mut memory = Memory::new(3, 1_000);
    slow(&mut memory, "a");
    quick(&mut memory, "b", 10);
    quick(&mut memory, "c", 10);
    quick(&mut memory, "d", 10);
    assert!(memory.is_sending("a"), "what is not told yet is kept");
    assert!(known(&mut memory, "c").is_some());
    slow(&mut memory, "b");
    slow(&mut memory, "e");
    assert!(matches!(memory.admit(&task("f"), 16, None), Admission::Closed), "all wait to be told");
    memory.sent("e");
    assert!(is_new(&mut memory, "f"));
    assert_eq!(memory.tasks.len(), 3);
}

#[test]
fn large_results_are_forgotten_sooner() {
    let mut memory = Memory::new(100, 1_000);
    quick(&mut memory, "a", 600);
    quick(&mut memory, "b", 600);
    quick(&mut memory, "c", 10);
    assert!(is_new(&mut memory, "a"), "forgotten to make room for c");
    assert_eq!(memory.bytes, 610);
    assert!(known(&mut memory, "b").is_some());
}

#[test]
fn names_have_an_end() {
    assert!(!is_too_long(&"ü".repeat(TASK_CHARS_MAX)));
    assert!(is_too_long(&"ü".repeat(TASK_CHARS_MAX + 1)));
}
