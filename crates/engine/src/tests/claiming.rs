//! The holder of a work item, and the right to complete it.

use insta::assert_snapshot;

use super::support::play;

const STEP: &str = "
process: p
data: { sum: decimal, note: string }
steps:
  - { step: approve, who: Agent(), writes: [sum, note?] }
  - { step: book, job: j }
";

#[test]
fn second_claim_is_rejected_naming_the_holder() {
    assert_snapshot!(play(STEP, "
        start
        claim approve by ann
        claim approve by bob
        claim approve by ann
        wait 2s
        open
    "), @"
    > start
      approve Activated
    > claim approve by ann
      approve Activated -> Selected
    > claim approve by bob
      refused held_by: held by ann; ask them to release or delegate it
    > claim approve by ann
      refused held_by: held by ann; ask them to release or delegate it
    > wait 2s
    > open
      approve Selected, not offered, since 0, held by ann since 0
    ");
}

#[test]
fn a_released_item_can_be_claimed_by_another_person() {
    assert_snapshot!(play(STEP, "
        start
        release approve by ann
        claim approve by ann
        release approve by bob
        release approve by ann
        claim approve by bob
    "), @"
    > start
      approve Activated
    > release approve by ann
      refused not_held: nobody holds `approve`; there is nothing to release
    > claim approve by ann
      approve Activated -> Selected
    > release approve by bob
      refused held_by: held by ann; ask them to release or delegate it
    > release approve by ann
      approve Selected -> Activated
    > claim approve by bob
      approve Activated -> Selected
    ");
}

#[test]
fn a_delegated_item_is_held_by_the_delegate() {
    assert_snapshot!(play(STEP, "
        start
        claim approve by ann
        delegate approve by bob to eve
        delegate approve by ann to ann
        delegate approve by ann to bob
        complete approve by ann sum=1
        complete approve by bob sum=1
    "), @"
    > start
      approve Activated
    > claim approve by ann
      approve Activated -> Selected
    > delegate approve by bob to eve
      refused held_by: held by ann; ask them to release or delegate it
    > delegate approve by ann to ann
      refused held_by: held by ann; ask them to release or delegate it
    > delegate approve by ann to bob
      approve Selected -> Selected
    > complete approve by ann sum=1
      refused held_by: held by bob; ask them to release or delegate it
    > complete approve by bob sum=1
      approve Selected -> Completed
      book Activated
    ");
}

#[test]
fn an_unclaimed_item_can_be_delegated() {
    assert_snapshot!(play(STEP, "
        start
        delegate approve by ann to bob
        open
    "), @"
    > start
      approve Activated
    > delegate approve by ann to bob
      approve Activated -> Selected
    > open
      approve Selected, not offered, since 0, held by bob since 0, given by ann
    ");
}

#[test]
fn only_the_holder_completes_a_claimed_item() {
    assert_snapshot!(play(STEP, "
        start
        claim approve by ann
        complete approve by bob sum=1
        complete approve by worker sum=1
        complete approve by ann sum=1
    "), @"
    > start
      approve Activated
    > claim approve by ann
      approve Activated -> Selected
    > complete approve by bob sum=1
      refused held_by: held by ann; ask them to release or delegate it
    > complete approve by worker sum=1
      refused agent_missing: `approve` is for a person; say which agent did it
    > complete approve by ann sum=1
      approve Selected -> Completed
      book Activated
    ");
}

#[test]
fn an_unclaimed_item_can_be_completed_directly() {
    assert_snapshot!(play(STEP, "
        start
        complete approve by ann sum=1
    "), @"
    > start
      approve Activated
    > complete approve by ann sum=1
      approve Activated -> Completed
      book Activated
    ");
}

#[test]
fn a_second_completion_is_refused_and_a_repeated_request_is_told_apart() {
    assert_snapshot!(play(STEP, "
        start
        complete approve by ann sum=1 request=7
        complete approve by bob sum=2
        complete approve by bob sum=2 request=8
        complete approve by ann sum=1 request=7
        complete approve by ann sum=1 request=7 content=1
        complete approve by bob sum=1 request=7 content=1
        complete book by worker request=9
        complete book by worker request=9
        complete book by worker request=9 content=1
        complete book by worker request=10
    "), @"
    > start
      approve Activated
    > complete approve by ann sum=1 request=7
      approve Activated -> Completed
      book Activated
    > complete approve by bob sum=2
      refused not_open: `approve` is done already; nothing is left to do
    > complete approve by bob sum=2 request=8
      refused not_open: `approve` is done already; nothing is left to do
    > complete approve by ann sum=1 request=7
      refused already_done: this request was carried out before; nothing is left to do
    > complete approve by ann sum=1 request=7 content=1
      refused idempotency_key_reused: this idempotency key was used for another request; use a fresh one
    > complete approve by bob sum=1 request=7 content=1
      refused not_open: `approve` is done already; nothing is left to do
    > complete book by worker request=9
      book Activated -> Completed
      instance Completed
    > complete book by worker request=9
      refused already_done: this request was carried out before; nothing is left to do
    > complete book by worker request=9 content=1
      refused idempotency_key_reused: this idempotency key was used for another request; use a fresh one
    > complete book by worker request=10
      refused instance_ended: the instance was completed; start another one if more is to be done
    ");
}

#[test]
fn a_request_repeated_after_its_loop_went_on_is_recognised() {
    let process = "
process: p
steps:
  - { loop: again, who: Agent(), steps: [{ step: a, job: j }] }
";
    assert_snapshot!(play(process, "
        start
        complete a by worker request=1
        complete again by ann answer=repeat
        complete a:0 by worker request=1
        complete a:0 by worker request=2
        complete a:1 by worker request=3
        complete a:2 by worker request=3
    "), @"
    > start
      a:0 Activated
    > complete a by worker request=1
      a:0 Activated -> Completed
      again:0 Activated
    > complete again by ann answer=repeat
      again:0 Activated -> Completed
      a:1 Activated
    > complete a:0 by worker request=1
      refused already_done: this request was carried out before; nothing is left to do
    > complete a:0 by worker request=2
      refused iteration_over: this iteration of `a` is over, its loop has gone on to 1; act on `a:1`
    > complete a:1 by worker request=3
      a:1 Activated -> Completed
      again:1 Activated
    > complete a:2 by worker request=3
      refused no_such_activity: there is no such activity; list the open ones and pick one of them
    ");
}

#[test]
fn people_and_workers_keep_to_their_own() {
    assert_snapshot!(play(STEP, "
        start
        fail approve no time
        complete book by worker
        complete approve by ann sum=1
        claim book by ann
        claim nothing by ann
        claim start by ann
        complete book by worker answer=yes
    "), @"
    > start
      approve Activated
    > fail approve no time
      refused not_a_job: `approve` is for a person, not for a worker; release it, or raise it with its owner
    > complete book by worker
      refused not_open: `book` is not due yet; wait for the steps before it
    > complete approve by ann sum=1
      approve Activated -> Completed
      book Activated
    > claim book by ann
      refused not_a_work_item: `book` is a job for a worker, not a work item; activate it by its job type
    > claim nothing by ann
      refused no_such_activity: there is no such activity; list the open ones and pick one of them
    > claim start by ann
      refused no_such_activity: there is no such activity; list the open ones and pick one of them
    > complete book by worker answer=yes
      refused answer_unexpected: `book` is not a decision; leave the answer out
    ");
}

#[test]
fn a_substitute_takes_over_an_item_of_another_holder() {
    assert_snapshot!(play(STEP, "
        start
        take approve by bob
        claim approve by ann
        take approve by ann
        suspend
        take approve by bob
        complete approve by ann sum=1
        complete approve by bob sum=1
    "), @"
    > start
      approve Activated
    > take approve by bob
      refused not_held: nobody holds `approve`; there is nothing to release
    > claim approve by ann
      approve Activated -> Selected
    > take approve by ann
      refused held_by: held by ann; ask them to release or delegate it
    > suspend
      instance Suspended
    > take approve by bob
      approve Selected -> Selected
    > complete approve by ann sum=1
      refused held_by: held by bob; ask them to release or delegate it
    > complete approve by bob sum=1
      approve Selected -> Completed
      book Activated
    ");
}
