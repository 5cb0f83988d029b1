//! The executor protocol over real sockets: answers, callbacks and memory of an executor.

#[cfg(test)]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use legwork_api::signature;
use legwork_executor::{Executor, Failure, Judged, Task};
use legwork_model::time::Timestamp;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use support::{Answer, SECRET, World, document, executor, now, soon};

/// The patience where a missing verdict is tested.
const SHORT: Duration = Duration::from_millis(10);

/// Counts its calls, and returns seven points.
fn scoring(count: &Arc<AtomicUsize>) -> Executor {
    let count = count.clone();
    executor().on("score", move |task: Task| {
        count.fetch_add(1, Ordering::Relaxed);
        async move { Ok(json!({"points": 7, "of": task.inputs["amount"]})) }
    })
}

/// Waits for a permit; every result is sent by callback.
fn waiting(gate: &Arc<Semaphore>) -> Executor {
    let gate = gate.clone();
    executor().patience(Duration::ZERO).on("score", move |task: Task| {
        let gate = gate.clone();
        async move {
            gate.acquire().await?.forget();
            Ok(json!({"for": task.task}))
        }
    })
}

fn points() -> Answer {
    Answer { status: 200, retry_after: None, body: json!({"data": {"points": 7, "of": 1200}}) }
}

#[tokio::test]
async fn it_registers_until_it_is_heard() {
    let executor = executor()
        .on("score", |_| async { Ok(json!({})) })
        .on("mail", |_| async { Ok(json!({})) })
        .limit_of("score", 4)
        .at_once(2)
        .regularly("1h", "5m")
        .reserve(10)
        .domain("north");
    let mut world = World::answering(executor, &[503, 401], &[]).await;
    for _ in 0..3 {
        let call = world.registration().await;
        assert_eq!(call.path, "/v1/executors/crm");
        assert_eq!(call.body["secret"], SECRET);
        assert_eq!(call.body["types"], json!({"score": {"limit": 4}, "mail": {}}));
        assert_eq!((&call.body["limit"], &call.body["domain"]), (&json!(16), &json!("north")));
        assert_eq!((&call.body["verdicts"], &call.body["at_once"]), (&json!(true), &json!(2)));
        assert_eq!(call.body["regularly"], json!([{"every": "1h", "takes": "5m"}]));
        assert_eq!(call.body["reserve"], json!(10));
    }
    world.gone().await;
}

#[tokio::test]
async fn what_is_not_signed_well_does_nothing() {
    let count = Arc::default();
    let world = World::new(scoring(&count)).await;
    let task = world.task("t1", "score");
    let old = Timestamp(now().0 - 301_000);
    let other = "another secret of 32 characters!!";
    for (answer, reason) in [
        (world.post("/tasks", &task, |_| None).await, "not signed"),
        (world.post("/tasks", &task, |_| Some("t=1".to_owned())).await, "cannot be read"),
        (world.post("/tasks", &task, |s| Some(signature::sign(SECRET, s, old))).await, "clocks"),
        (world.post("/tasks", &task, |s| Some(signature::sign(other, s, now()))).await, "secret"),
        (world.post("/verdicts", &task, |_| None).await, "not signed"),
        (world.post("/cancellations", &task, |_| None).await, "not signed"),
    ] {
        assert_eq!(answer.status, 401);
        assert!(answer.refusal().1.contains(reason), "{answer:?}");
    }
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(world.give("t1", "score").await, points());
}

#[tokio::test]
async fn a_quick_task_is_answered_at_once_and_a_repetition_begins_nothing() {
    let count = Arc::default();
    let world = World::new(scoring(&count)).await;
    assert_eq!(world.give("t1", "score").await, points());
    assert_eq!(world.give("t1", "score").await, points());
    assert_eq!(count.load(Ordering::Relaxed), 1);
    assert_eq!(world.give("t2", "score").await, points());
    assert_eq!(count.load(Ordering::Relaxed), 2);
    world.gone().await;
}

#[tokio::test]
async fn failures_say_whether_to_try_again() {
    let executor = executor()
        .on("again", |_| async { Err(Failure::again("no answer from the bank")) })
        .on("forever", |_| async { Err(Failure::forever("no such customer")) })
        .on("panic", |task: Task| async move { Ok(json!({"x": task.inputs["missing"]})) })
        .on("list", |_| async { Ok(json!([1])) });
    let world = World::new(executor).await;
    for _ in 0..2 {
        assert_eq!(world.give("a", "again").await.refusal(), (500, "no answer from the bank"));
        assert_eq!(world.give("f", "forever").await.refusal(), (422, "no such customer"));
    }
    assert_eq!(world.give("p", "panic").await.status, 500);
    assert_eq!(world.give("l", "list").await.status, 422);
    assert_eq!(world.give("o", "other").await.status, 404);
    assert_eq!(world.say("/tasks", &json!({"task": "x"})).await.status, 400);
    assert_eq!(world.say("/other", &json!({})).await.status, 404);
    let long = "x".repeat(401);
    assert_eq!(world.give(&long, "again").await.status, 400);
    assert_eq!(world.cancel(&long).await.status, 400);
    assert_eq!(world.judge(&long, "ack").await.status, 400);
}

#[tokio::test]
async fn a_late_result_is_sent_until_it_is_received() {
    let gate = Arc::new(Semaphore::new(0));
    let mut world = World::answering(waiting(&gate), &[], &[503, 200]).await;
    world.registration().await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    assert_eq!(world.give("t1", "score").await.status, 202);
    gate.add_permits(1);
    for _ in 0..3 {
        assert_eq!(world.result().await, json!({"task": "t1", "data": {"for": "t1"}}));
    }
    assert_eq!(world.give("t1", "score").await.status, 202, "like the first time");
    world.gone().await;
}

#[tokio::test]
async fn a_late_failure_is_sent_too() {
    let gate = Arc::new(Semaphore::new(0));
    let hold = gate.clone();
    let executor = executor().patience(Duration::ZERO).on("score", move |_| {
        let gate = hold.clone();
        async move {
            gate.acquire().await?.forget();
            Err(Failure::forever("no such customer"))
        }
    });
    let mut world = World::new(executor).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    gate.add_permits(1);
    let wire = json!({"task": "t1", "error": "no such customer", "retry": false});
    assert_eq!(world.result().await, wire);
    world.gone().await;
}

#[tokio::test]
async fn it_registers_again_when_it_is_not_known() {
    let gate = Arc::new(Semaphore::new(0));
    let mut world = World::answering(waiting(&gate), &[], &[404]).await;
    world.registration().await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    gate.add_permits(1);
    world.registration().await;
    for _ in 0..2 {
        assert_eq!(world.result().await["task"], "t1");
    }
    world.gone().await;
}

#[tokio::test]
async fn verdicts_are_passed_on_and_confirmed() {
    let (ack, mut acks) = mpsc::unbounded_channel::<Judged>();
    let (nack, mut nacks) = mpsc::unbounded_channel::<Judged>();
    let executor = scoring(&Arc::default())
        .on_ack(move |judged| {
            let sent = ack.send(judged);
            async move { Ok(sent?) }
        })
        .on_nack(move |judged| {
            let sent = nack.send(judged);
            async move { Ok(sent?) }
        });
    let world = World::new(executor).await;
    world.give("t1", "score").await;
    world.give("t2", "score").await;
    for _ in 0..2 {
        assert_eq!(world.judge("t1", "ack").await.status, 200);
        assert_eq!(world.judge("t2", "nack").await.status, 200);
        assert_eq!(world.judge("t3", "nack").await.status, 200, "nobody knows it");
    }
    let judged = acks.recv().await.unwrap();
    assert_eq!((judged.task.as_str(), judged.key.as_deref()), ("t1", Some("case/step")));
    assert_eq!(judged.data.unwrap()["points"], 7);
    assert_eq!(nacks.recv().await.unwrap().task, "t2");
    let unknown = nacks.recv().await.unwrap();
    assert_eq!(unknown, Judged { task: "t3".to_owned(), key: None, data: None });
    assert!(acks.try_recv().is_err() && nacks.try_recv().is_err(), "each once");
    world.gone().await;
}

#[tokio::test]
async fn a_verdict_whose_hook_fails_is_not_confirmed() {
    let count = Arc::new(AtomicUsize::new(0));
    let executor = scoring(&Arc::default()).on_nack(move |_| {
        let turn = count.fetch_add(1, Ordering::Relaxed);
        async move { if turn == 0 { Err(Failure::again("locked")) } else { Ok(()) } }
    });
    let world = World::new(executor).await;
    world.give("t1", "score").await;
    assert_eq!(world.judge("t1", "nack").await.refusal(), (500, "locked"));
    assert_eq!(world.judge("t1", "nack").await.status, 200);
    assert_eq!(world.judge("t2", "ack").await.status, 200, "without a hook there is nothing to do");
}

#[tokio::test]
async fn a_result_without_a_verdict_is_sent_again_until_it_has_one() {
    let gate = Arc::new(Semaphore::new(0));
    let executor = waiting(&gate).verdict_patience(SHORT).on_nack(|judged| async move {
        if judged.task == "t1" { Err(Failure::again("locked")) } else { Ok(()) }
    });
    let mut world = World::answering(executor, &[], &[202, 503]).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    gate.add_permits(1);
    for _ in 0..3 {
        assert_eq!(world.result().await, json!({"task": "t1", "data": {"for": "t1"}}));
    }
    assert_eq!(world.judge("t1", "nack").await.status, 500, "but it was heard");
    world.forget_results();
    assert_eq!(world.give("t2", "score").await.status, 202);
    gate.add_permits(1);
    let mut on_their_way = 0;
    for _ in 0..6 {
        while world.result().await["task"] != "t2" {
            on_their_way += 1;
        }
    }
    assert!(on_their_way <= 1, "it is sent after its verdict");
    assert_eq!(world.judge("t2", "nack").await.status, 200);
}

#[tokio::test]
async fn a_result_that_was_answered_at_once_is_sent_again_too_and_a_failure_is_not() {
    let executor = scoring(&Arc::default())
        .on("fail", |_| async { Err(Failure::again("no answer from the bank")) })
        .verdict_patience(SHORT);
    let mut world = World::new(executor).await;
    assert_eq!(world.give("f1", "fail").await.status, 500);
    assert_eq!(world.give("t1", "score").await, points());
    for _ in 0..3 {
        let wire = json!({"task": "t1", "data": {"points": 7, "of": 1200}});
        assert_eq!(world.result().await, wire);
    }
    assert_eq!(world.give("t1", "score").await, points(), "like the first time");
}

#[tokio::test]
async fn without_verdicts_nothing_is_sent_again_that_was_received() {
    let gate = Arc::new(Semaphore::new(0));
    let executor = waiting(&gate).verdicts(false).verdict_patience(SHORT);
    let mut world = World::answering(executor, &[], &[202, 503, 503]).await;
    for (task, times) in [("t1", 1), ("t2", 3)] {
        assert_eq!(world.give(task, "score").await.status, 202);
        gate.add_permits(1);
        for _ in 0..times {
            assert_eq!(world.result().await["task"], task);
        }
    }
    world.gone().await;
}

#[tokio::test]
async fn a_cancelled_task_is_dropped() {
    struct Dropped(mpsc::UnboundedSender<String>, String);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(std::mem::take(&mut self.1));
        }
    }
    let (tell, mut dropped) = mpsc::unbounded_channel();
    let executor = executor().patience(Duration::ZERO).limit(1).on("score", move |task: Task| {
        let guard = Dropped(tell.clone(), task.task);
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok(json!({}))
        }
    });
    let world = World::new(executor).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    for _ in 0..2 {
        assert_eq!(world.cancel("t1").await.status, 200);
    }
    assert_eq!(soon(dropped.recv()).await.as_deref(), Some("t1"));
    assert_eq!(world.give("t1", "score").await.status, 202, "like the first time");
    assert_eq!(world.cancel("t2").await.status, 200, "it comes before its task");
    assert_eq!(world.give("t2", "score").await.status, 409);
    world.gone().await;
    assert!(dropped.try_recv().is_err(), "nothing else was begun");
}

#[tokio::test]
async fn no_more_is_begun_than_the_limit_allows() {
    let gate = Arc::new(Semaphore::new(0));
    let mut world = World::new(waiting(&gate).limit(2)).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    assert_eq!(world.give("t2", "score").await.status, 202);
    let busy = world.give("t3", "score").await;
    assert_eq!((busy.status, busy.retry_after.as_deref()), (429, Some("1")));
    assert_eq!(world.give("t1", "score").await.status, 202, "a repetition begins nothing");
    gate.add_permits(1);
    world.result().await;
    assert_eq!(world.give("t3", "score").await.status, 202);
    gate.add_permits(2);
    world.result().await;
    world.result().await;
    world.gone().await;
}

#[tokio::test]
async fn what_it_has_beyond_its_hands_waits_for_its_turn() {
    let (tell, mut begun) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let executor = executor().patience(Duration::ZERO).at_once(1).on("score", move |task: Task| {
        tell.send(task.task).unwrap();
        let opened = opened.clone();
        async move {
            opened.acquire().await?.forget();
            Ok(json!({}))
        }
    });
    let mut world = World::new(executor).await;
    for name in ["t1", "t2", "t3"] {
        assert_eq!(world.give(name, "score").await.status, 202);
    }
    assert_eq!(world.cancel("t2").await.status, 200);
    for name in ["t1", "t3"] {
        assert_eq!(soon(begun.recv()).await.as_deref(), Some(name));
        assert!(begun.try_recv().is_err(), "one at a time");
        gate.add_permits(1);
        assert_eq!(world.result().await["task"], name);
    }
    world.gone().await;
}

#[tokio::test]
async fn what_a_second_server_gives_waits_beyond_the_limit_and_both_hear_how_much_there_is() {
    let gate = Arc::new(Semaphore::new(0));
    let mut world = World::new(waiting(&gate).limit(1)).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    assert_eq!((world.told().has, world.told().took_ms), (Some(1), None));
    let mut other = world.task("t2", "score");
    // Another name of the same Legwork: results reach both.
    other["callback"] =
        other["callback"].as_str().unwrap().replace("127.0.0.1", "localhost").into();
    assert_eq!(world.say("/tasks", &other).await.status, 202, "it waits for its turn");
    assert_eq!((world.told().has, world.told().holds), (Some(2), Some(json!(["t1", "t2"]))));
    assert_eq!(world.give("t3", "score").await.status, 429, "one of each server");
    assert_eq!(world.told().has, Some(2), "also who is refused hears it");
    assert_eq!(world.told().holds, Some(json!(["t1", "t2"])));
    for (name, left) in [("t1", json!(["t2"])), ("t2", json!([]))] {
        gate.add_permits(1);
        assert_eq!(world.result().await["task"], name);
        assert_eq!(world.told().has, left.as_array().map(|left| left.len() as u64));
        assert_eq!(world.told().holds, Some(left));
        assert!(world.told().took_ms.is_some());
    }
    world.gone().await;
}

#[tokio::test]
async fn a_stopping_executor_finishes_begun_tasks_and_begins_no_others() {
    let gate = Arc::new(Semaphore::new(0));
    let mut world = World::new(waiting(&gate).limit(1_000)).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    world.stop();
    let mut begun = 1;
    // Waits until the executor notices the shutdown.
    while world.give(&format!("u{begun}"), "score").await.status != 503 {
        begun += 1;
    }
    gate.add_permits(begun);
    for _ in 0..begun {
        world.result().await;
    }
    world.gone().await;
}

#[tokio::test]
async fn the_time_of_grace_has_an_end() {
    let gate = Arc::new(Semaphore::new(0));
    let world = World::new(waiting(&gate).grace(Duration::ZERO)).await;
    assert_eq!(world.give("t1", "score").await.status, 202);
    world.gone().await;
}

/// `World::post` checks each answer against the document; here every answer of the document must
/// occur.
#[tokio::test]
async fn every_answer_that_the_document_has_is_given() {
    let executor = scoring(&Arc::default())
        .on("again", |_| async { Err(Failure::again("no answer from the bank")) })
        .on("forever", |_| async { Err(Failure::forever("no such customer")) })
        .on_nack(|_| async { Err(Failure::again("locked")) });
    let world = World::new(executor).await;
    let mut seen = BTreeSet::new();
    let mut note = |call: &str, answer: Answer| {
        seen.insert(document::declared(call, answer.status));
        answer.status
    };
    for (task, kind) in [("t1", "score"), ("t2", "again"), ("t3", "forever"), ("t4", "other")] {
        note("tasks", world.give(task, kind).await);
    }
    note("tasks", world.post("/tasks", &world.task("t5", "score"), |_| None).await);
    note("cancellations", world.cancel("t6").await);
    note("tasks", world.give("t6", "score").await);
    note("cancellations", world.cancel(&"x".repeat(401)).await);
    note("verdicts", world.judge("t1", "ack").await);
    note("verdicts", world.judge("t7", "nack").await);

    let gate = Arc::new(Semaphore::new(0));
    let mut world = World::new(waiting(&gate).limit(1)).await;
    note("tasks", world.give("t1", "score").await);
    note("tasks", world.give("t2", "score").await);
    world.stop();
    while note("tasks", world.give("t3", "score").await) != 503 {}
    gate.add_permits(1);
    world.result().await;
    world.gone().await;
    assert_eq!(seen, document::all());
}
