//! Activities that cannot go on by themselves.

use insta::assert_snapshot;

use super::support::play;

const JOB: &str = "
process: p
data: { n: int }
steps:
  - { step: book, job: j, retry: { times: 2, pause: 10s }, writes: [n] }
";

#[test]
fn a_failed_job_is_repeated_with_back_off_and_is_then_an_incident() {
    assert_snapshot!(play(JOB, "
        start
        fail book no paper
        open
        wait 10s
        fail book no ink
        wait 20s
        fail book broken
        open
        complete book by worker n=1
        fail book again
    "), @r#"
    > start
      book Activated
    > fail book no paper
      book: failed (no paper), again at 10000 ms
      book Activated -> Activated
    > open
      book Activated, offered, since 0, attempts 1, again at 10000
    > wait 10s
    > fail book no ink
      book: failed (no ink), again at 30000 ms
      book Activated -> Activated
    > wait 20s
    > fail book broken
      book: failed (broken)
      book: RetriesExhausted { attempts: 3, error: "broken" }
      book Activated -> Failed
    > open
      book Failed, not offered, since 0, attempts 3, RetriesExhausted { attempts: 3, error: "broken" }
    > complete book by worker n=1
      refused not_open: `book` has an incident; resolve it first
    > fail book again
      refused not_open: `book` has an incident; resolve it first
    "#);
}

#[test]
fn a_job_that_must_not_be_repeated_is_an_incident_at_once() {
    assert_snapshot!(play(JOB, "
        start
        fail! book hopeless
    "), @r#"
    > start
      book Activated
    > fail! book hopeless
      book: failed (hopeless)
      book: RetriesExhausted { attempts: 1, error: "hopeless" }
      book Activated -> Failed
    "#);
}

#[test]
fn retrying_counts_attempts_anew() {
    assert_snapshot!(play(JOB, "
        start
        fail! book hopeless
        retry book
        fail book once more
        complete book by worker n=1
    "), @r#"
    > start
      book Activated
    > fail! book hopeless
      book: failed (hopeless)
      book: RetriesExhausted { attempts: 1, error: "hopeless" }
      book Activated -> Failed
    > retry book
      book Failed -> Activated
    > fail book once more
      book: failed (once more), again at 10000 ms
      book Activated -> Activated
    > complete book by worker n=1
      book Activated -> Completed
      instance Completed
    "#);
}

#[test]
fn the_outputs_of_a_failed_step_can_be_supplied_by_hand() {
    assert_snapshot!(play(JOB, "
        start
        retry book
        fail! book hopeless
        supply book
        supply book n=5
    "), @r#"
    > start
      book Activated
    > retry book
      refused no_incident: `book` has no incident; there is nothing to resolve
    > fail! book hopeless
      book: failed (hopeless)
      book: RetriesExhausted { attempts: 1, error: "hopeless" }
      book Activated -> Failed
    > supply book
      refused missing_output: `book` must write `n`; give its value
    > supply book n=5
      book Failed -> Completed
      instance Completed
    "#);
}

#[test]
fn only_what_fits_resolves_an_incident() {
    assert_snapshot!(play(JOB, "
        start
        fail! book hopeless
        choose book yes
    "), @r#"
    > start
      book Activated
    > fail! book hopeless
      book: failed (hopeless)
      book: RetriesExhausted { attempts: 1, error: "hopeless" }
      book Activated -> Failed
    > choose book yes
      refused resolution_unfit: the incident of `book` cannot be resolved that way; retry it or supply its outputs
    "#);
}

const CHOICE: &str = "
process: p
data: { n: int }
start: [n?]
steps:
  - choice: size
    branches:
      - { name: small, when: n < 10, steps: [{ step: a, job: j }] }
      - { name: large, when: n > 5, steps: [] }
";

#[test]
fn several_true_conditions_are_an_incident_never_a_guess() {
    assert_snapshot!(play(CHOICE, "
        start n=7
        open
        retry size
        supply size
        choose size huge
        choose size small
    "), @r#"
    > start n=7
      size: SeveralBranchesMatch { branches: ["small", "large"] }
      size Failed
    > open
      size Failed, not offered, since 0, SeveralBranchesMatch { branches: ["small", "large"] }
    > retry size
      size: SeveralBranchesMatch { branches: ["small", "large"] }
      size Failed -> NotActivated
      size Failed
    > supply size
      refused resolution_unfit: the incident of `size` cannot be resolved that way; retry it or choose an answer
    > choose size huge
      refused answer_unknown: that is no answer to `size`; answer with one of `small`, `large`
    > choose size small
      size Failed -> Completed
      a Activated
    "#);
}

#[test]
fn a_condition_without_its_data_is_an_incident() {
    let transcript = play(CHOICE, "start\nchoose size large");
    assert!(transcript.contains("size: ConditionFailed { condition: \"n < 10\""), "{transcript}");
    assert!(transcript.ends_with("size Failed -> Completed\n  instance Completed\n"));
}

#[test]
fn a_value_matching_no_branch_is_an_incident_that_shows_the_values() {
    let process = CHOICE.replace("n > 5", "n > 20");
    assert_snapshot!(play(&process, "
        start n=12
    "), @r#"
    > start n=12
      size: NoBranchMatches { values: "n = 12" }
      size Failed
    "#);
}

#[test]
fn a_step_nobody_can_do_waits_for_a_resolution() {
    let process = "
process: p
steps:
  - { step: a, who: Role(none) }
  - choice: c
    who: Role(none)
    branches: [{ name: yes, steps: [] }, { name: no, steps: [] }]
";
    assert_snapshot!(play(process, "
        start
        claim a by ann
        raise a
        claim a by bob
        raise a
        retry a
        raise a
        supply a
        raise c
        retry c
        raise c
        choose c no
    "), @r#"
    > start
      a Activated
    > claim a by ann
      a Activated -> Selected
    > raise a
      a: NobodyCanDoIt { rule: "Role(none)" }
      a Selected -> Failed
    > claim a by bob
      refused not_open: `a` has an incident; resolve it first
    > raise a
      refused not_open: `a` has an incident; resolve it first
    > retry a
      a Failed -> Activated
    > raise a
      a: NobodyCanDoIt { rule: "Role(none)" }
      a Activated -> Failed
    > supply a
      a Failed -> Completed
      c Activated
    > raise c
      c: NobodyCanDoIt { rule: "Role(none)" }
      c Activated -> Failed
    > retry c
      c Failed -> Activated
    > raise c
      c: NobodyCanDoIt { rule: "Role(none)" }
      c Activated -> Failed
    > choose c no
      c Failed -> Completed
      instance Completed
    "#);
}

const LOOP: &str = "
process: p
steps:
  - { loop: again, who: Agent(), steps: [{ step: a, job: j }], max: 2 }
";

#[test]
fn a_person_repeating_a_loop_too_often_raises_an_incident() {
    assert_snapshot!(play(LOOP, "
        start
        complete a by worker
        complete again by ann answer=repeat
        complete a by worker
        complete again by ann answer=repeat
        retry again
        complete again by ann answer=leave
    "), @"
    > start
      a:0 Activated
    > complete a by worker
      a:0 Activated -> Completed
      again:0 Activated
    > complete again by ann answer=repeat
      again:0 Activated -> Completed
      a:1 Activated
    > complete a by worker
      a:1 Activated -> Completed
      again:1 Activated
    > complete again by ann answer=repeat
      again:1: TooManyIterations { limit: 2 }
      again:1 Activated -> Failed
    > retry again
      again:1 Failed -> Activated
    > complete again by ann answer=leave
      again:1 Activated -> Completed
      instance Completed
    ");
}

#[test]
fn an_incident_of_a_loop_can_be_resolved_by_one_more_round() {
    let process = LOOP.replace("who: Agent()", "until: 'false'");
    assert_snapshot!(play(&process, "
        start
        complete a by worker
        complete a by worker
        retry again
        choose again repeat
        complete a by worker
        choose again leave
    "), @"
    > start
      a:0 Activated
    > complete a by worker
      again:0: decided repeat
      a:0 Activated -> Completed
      a:1 Activated
    > complete a by worker
      again:1: TooManyIterations { limit: 2 }
      a:1 Activated -> Completed
      again:1 Failed
    > retry again
      again:1: TooManyIterations { limit: 2 }
      again:1 Failed -> NotActivated
      again:1 Failed
    > choose again repeat
      again:1 Failed -> Completed
      a:2 Activated
    > complete a by worker
      again:2: TooManyIterations { limit: 2 }
      a:2 Activated -> Completed
      again:2 Failed
    > choose again leave
      again:2 Failed -> Completed
      instance Completed
    ");
}
