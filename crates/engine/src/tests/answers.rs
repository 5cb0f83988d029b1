//! Results of executors: one is accepted, and the step is done when that is acknowledged.

use insta::assert_snapshot;

use super::support::play;

const PROCESS: &str = "
process: order
data: { points: int }
steps:
  - step: score
    job: score
    writes: [points]
  - step: pay
    job: pay
";

#[test]
fn a_step_is_done_when_the_result_that_counts_is_confirmed() {
    assert_snapshot!(play(PROCESS, "
        start
        confirm score
        answer score by worker points=7
        confirm score
        confirm score
    "), @"
        > start
          score Activated
        > confirm score
          refused not_answered: no result of `score` waits to be confirmed; report one first
        > answer score by worker points=7
          score Activated -> Selected
        > confirm score
          score Selected -> Completed
          pay Activated
        > confirm score
          refused not_open: `score` is done already; nothing is left to do
        ");
}

#[test]
fn after_an_accepted_result_no_other_ends_the_step() {
    assert_snapshot!(play(PROCESS, "
        start
        answer score by worker points=high
        answer score by worker points=7
        answer score by worker points=8
        complete score by worker points=8
        fail score no paper
        suspend
        confirm score
    "), @r#"
        > start
          score Activated
        > answer score by worker points=high
          refused wrong_type: `points` must be of type int: expected a whole number of at most 64 bits, found "high"; give such a value
        > answer score by worker points=7
          score Activated -> Selected
        > answer score by worker points=8
          refused answered_already: the result of `score` was taken already; it waits for its executor to confirm it
        > complete score by worker points=8
          refused answered_already: the result of `score` was taken already; it waits for its executor to confirm it
        > fail score no paper
          refused answered_already: the result of `score` was taken already; it waits for its executor to confirm it
        > suspend
          instance Suspended
        > confirm score
          score Selected -> Completed
          pay Activated
        "#);
}

#[test]
fn an_instance_that_is_aborted_waits_for_no_confirmation() {
    assert_snapshot!(play(PROCESS, "
        start
        answer score by worker points=7
        abort enough
        confirm score
    "), @"
        > start
          score Activated
        > answer score by worker points=7
          score Activated -> Selected
        > abort enough
          aborted: enough
          score Selected -> Completed
          pay Activated
          pay Activated -> NotActivated
          instance Aborted
        > confirm score
          refused instance_ended: the instance was aborted; start another one if more is to be done
        ");
}
