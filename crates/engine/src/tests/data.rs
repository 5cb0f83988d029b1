//! Outputs of steps, and the values that each reader sees.

use insta::assert_snapshot;

use super::support::play;

const STEP: &str = "
process: p
data: { sum: decimal, note: string, flag: bool }
start: [flag, note?]
result: [sum, note?]
steps:
  - { step: approve, who: Agent(), writes: [sum, note?] }
";

#[test]
fn outputs_that_do_not_fit_are_refused_one_by_one() {
    assert_snapshot!(play(STEP, "
        start flag=true
        complete approve by ann
        complete approve by ann sum=1 flag=true
        complete approve by ann sum=1 sun=2
        complete approve by ann sum=many
        complete approve by ann sum=1 note=7
        complete approve by ann sum=1.50
        results
    "), @r#"
    > start flag=true
      approve Activated
    > complete approve by ann
      refused missing_output: `approve` must write `sum`; give its value
    > complete approve by ann sum=1 flag=true
      refused not_written: `approve` does not write `flag`; it writes `sum`, `note`
    > complete approve by ann sum=1 sun=2
      refused unknown_element: there is no data element `sun`; `approve` writes `sum`, `note`
    > complete approve by ann sum=many
      refused wrong_type: `sum` must be of type decimal: expected a decimal number, as a number or as text such as "12.50", found "many"; give such a value
    > complete approve by ann sum=1 note=7
      refused wrong_type: `note` must be of type string: expected text, found 7; give such a value
    > complete approve by ann sum=1.50
      approve Activated -> Completed
      instance Completed
    > results
      sum = "1.5"
    "#);
}

#[test]
fn inputs_that_do_not_fit_start_nothing() {
    assert_snapshot!(play(STEP, "
        start
        start flag=1
        start flag=true sum=1
        start flag=true other=1
        start flag=true note=hello
        results
    "), @r#"
    > start
      refused missing_input: starting needs `flag`; give its value
    > start flag=1
      refused wrong_type: `flag` must be of type bool: expected true or false, found 1; give such a value
    > start flag=true sum=1
      refused not_written: `start` does not write `sum`; it writes `flag`, `note`
    > start flag=true other=1
      refused unknown_element: there is no data element `other`; `start` writes `flag`, `note`
    > start flag=true note=hello
      approve Activated
    > results
      note = "hello"
    "#);
}

const PARALLEL: &str = "
process: p
data: { n: int }
start: [n]
result: [n]
steps:
  - { step: before, job: j, writes: [n?] }
  - parallel: both
    branches:
      - steps: [{ step: writer, job: j, writes: [n] }]
      - steps:
          - { step: reader, job: j, reads: [n] }
          - { step: waiting, job: j, reads: [n], after: [writer] }
  - { step: last, job: j, reads: [n] }
";

#[test]
fn a_reader_does_not_see_what_a_parallel_step_writes_later() {
    assert_snapshot!(play(PARALLEL, "
        start n=1
        complete before by worker n=2
        complete writer by worker n=3
        reads reader
        complete reader by worker
        reads waiting
        complete waiting by worker
        reads last
        complete last by worker
        results
    "), @"
    > start n=1
      before Activated
    > complete before by worker n=2
      before Activated -> Completed
      writer Activated
      reader Activated
    > complete writer by worker n=3
      writer Activated -> Completed
    > reads reader
      n = 2
    > complete reader by worker
      reader Activated -> Completed
      waiting Activated
    > reads waiting
      n = 3
    > complete waiting by worker
      waiting Activated -> Completed
      last Activated
    > reads last
      n = 3
    > complete last by worker
      last Activated -> Completed
      instance Completed
    > results
      n = 3
    ");
}

#[test]
fn an_optional_write_left_out_leaves_the_older_version_valid() {
    assert_snapshot!(play(PARALLEL, "
        start n=1
        complete before by worker
        reads reader
    "), @"
    > start n=1
      before Activated
    > complete before by worker
      before Activated -> Completed
      writer Activated
      reader Activated
    > reads reader
      n = 1
    ");
}

#[test]
fn every_iteration_reads_what_the_one_before_wrote() {
    let process = "
process: p
data: { n: int }
start: [n]
steps:
  - loop: again
    who: Agent()
    reads: [n]
    steps:
      - parallel: both
        branches:
          - steps: [{ step: count, job: j, reads: [n], writes: [n] }]
          - steps: [{ step: beside, job: j, reads: [n] }]
";
    assert_snapshot!(play(process, "
        start n=0
        complete count by worker n=1
        reads beside
        complete beside by worker
        reads again
        complete again by ann answer=repeat
        reads count
        reads beside
        complete count by worker n=2
        reads beside
        reads beside:0
    "), @"
    > start n=0
      count:0 Activated
      beside:0 Activated
    > complete count by worker n=1
      count:0 Activated -> Completed
    > reads beside
      n = 0
    > complete beside by worker
      beside:0 Activated -> Completed
      again:0 Activated
    > reads again
      n = 1
    > complete again by ann answer=repeat
      again:0 Activated -> Completed
      count:1 Activated
      beside:1 Activated
    > reads count
      n = 1
    > reads beside
      n = 1
    > complete count by worker n=2
      count:1 Activated -> Completed
    > reads beside
      n = 1
    > reads beside:0
      n = 0
    ");
}

#[test]
fn a_step_after_a_skipped_one_does_not_see_what_the_skipped_one_would_have_waited_for() {
    let process = "
process: p
data: { n: int, go: bool }
start: [n, go]
steps:
  - parallel: both
    branches:
      - steps: [{ step: writer, job: j, writes: [n] }]
      - steps:
          - choice: maybe
            branches:
              - { name: do, when: go, steps: [{ step: waiting, job: j, after: [writer] }] }
              - { name: not, otherwise: true, steps: [] }
          - { step: reader, job: j, reads: [n] }
";
    assert_snapshot!(play(process, "
        start n=1 go=false
        reads reader
        complete writer by worker n=2
        reads reader
    "), @"
    > start n=1 go=false
      maybe: decided not
      writer Activated
      reader Activated
    > reads reader
      n = 1
    > complete writer by worker n=2
      writer Activated -> Completed
    > reads reader
      n = 1
    ");
    assert_snapshot!(play(process, "
        start n=1 go=true
        complete writer by worker n=2
        complete waiting by worker
        reads reader
    "), @"
    > start n=1 go=true
      maybe: decided do
      writer Activated
    > complete writer by worker n=2
      writer Activated -> Completed
      waiting Activated
    > complete waiting by worker
      waiting Activated -> Completed
      reader Activated
    > reads reader
      n = 2
    ");
}
