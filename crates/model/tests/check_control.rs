//! Rules K1 to K6: blocks, branches, conditions and sync edges.
//!
//! A case is the steps of a process, followed by all findings about it.

mod check_support;

use check_support::findings;
use insta::assert_snapshot;

const GIVEN: &str = "data: { amount: decimal, count: int, ok: bool, country: string, \
                     due: date-time, note: json }\n\
                     start: [amount, count, ok, country, due, note]\n";

#[test]
fn a_parallel_branch_without_steps_is_a_warning() {
    assert_snapshot!(findings(GIVEN, r"
- parallel: inspect
  branches:
  - { name: left, steps: [{ step: a, job: a }] }
  - { name: right }
"), @"4:13 warning K3: branch `right` of parallel `inspect` does nothing -- give it steps, or remove it");
    assert_snapshot!(findings(GIVEN, r"
- parallel: inspect
  branches:
  - { name: left, steps: [{ step: a, job: a }] }
  - { name: right, steps: [{ step: b, job: b }] }
"), @"");
}

#[test]
fn sync_edges_join_branches_of_one_parallel_only() {
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a }]
  - steps: [{ step: b, job: b, after: [a] }]
"), @"");
    assert_snapshot!(findings(GIVEN, r"
- { step: a, job: a }
- { step: b, job: b, after: [a] }
- { step: c, job: c, after: [d] }
- { step: d, job: d }
"), @r"
    2:30 error K4: `b` and `a` are not in different branches of a parallel -- remove it: one comes after the other anyway
    3:30 error K4: `c` and `d` are not in different branches of a parallel -- move the step: the order of the steps cannot be turned round
    ");
    assert_snapshot!(findings(GIVEN, r"
- choice: c
  branches:
  - { when: ok, steps: [{ step: a, job: a }] }
  - { otherwise: true, steps: [{ step: b, job: b, after: [a] }] }
"), @"4:59 error K4: `b` and `a` are in different branches of choice `c` -- only one of the two will run; remove it");
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps:
    - loop: l
      steps: [{ step: a, job: a, writes: [ok] }]
      until: ok
  - steps: [{ step: b, job: b, after: [a] }]
"), @"7:40 error K4: `b` waits for `a` across the border of a loop -- `a` may run several times; let the two be in the same loop");
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a }]
  - steps:
    - parallel: q
      branches:
      - steps: [{ step: b, job: b, after: [b] }]
      - steps: [{ step: c, job: c, after: [a] }]
"), @"7:44 error K4: `b` waits for itself -- remove it");
}

#[test]
fn sync_edges_that_close_a_cycle_are_named_step_by_step() {
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a, after: [c] }]
  - steps: [{ step: b, job: b, after: [a] }]
  - steps: [{ step: c, job: c, requires: [b] }]
"), @"3:40 error K4: steps wait for each other: c -> a -> b -> c -- remove `c` from what `a` waits for");
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps: [{ step: a1, job: a, after: [b2] }, { step: a2, job: a }]
  - steps: [{ step: b1, job: b, after: [a2] }, { step: b2, job: b }]
"), @"3:41 error K4: steps wait for each other: b2 -> a1 -> a2 -> b1 -> b2 -- remove `b2` from what `a1` waits for");
}

#[test]
fn sync_edges_without_effect_or_with_too_much_are_warnings() {
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a }]
  - steps: [{ step: b, job: b, after: [a] }]
  - steps: [{ step: c, job: c, after: [a, b] }]
"), @"5:40 warning K4: `c` comes after `a` in any case -- remove `a` from `after`");
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps:
    - choice: c
      branches:
      - { when: ok, steps: [{ step: a, job: a }] }
      - { otherwise: true }
  - steps: [{ step: b, job: b, requires: [a] }, { step: after-b, job: b }]
  - steps: [{ step: d, job: d, after: [b] }]
"), @"8:43 warning K4: when `a` is skipped, `b` is skipped too, and with it everything that follows up to the end of the process -- write `after: [a]` if `b` shall go ahead without `a`");
    // A step that waits for it does so before its place is found.
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps:
    - { step: a, job: a }
    - choice: c
      branches:
      - { when: ok, steps: [{ step: b, job: b }] }
      - { otherwise: true }
    - { step: z, job: a }
  - steps: [{ step: d, job: d, at: executor, requires: [b] }]
  - steps: [{ step: e, job: d, at: executor, after: [a, z] }]
"), @"
    10:57 warning K4: when `b` is skipped, `d` is skipped too, and with it everything that follows up to the end of the process -- write `after: [b]` if `d` shall go ahead without `b`
    11:54 warning K4: `e` comes after `a` in any case -- remove `a` from `after`
    ");
    assert_snapshot!(findings(GIVEN, r"
- parallel: p
  branches:
  - steps: [{ step: first, job: a }]
  - steps:
    - choice: c
      branches:
      - { when: ok, steps: [{ step: maybe, job: a, after: [first] }] }
      - { otherwise: true }
  - steps: [{ step: last, job: d, after: [maybe, first] }]
"), @"");
}

#[test]
fn conditions_of_a_choice_that_overlap_are_an_error_with_an_example() {
    assert_snapshot!(findings(GIVEN, r#"
- choice: size
  branches:
  - { name: small, when: "amount <= 1000" }
  - { name: large, when: "amount >= 1000" }
"#), @"4:26 error K6: amount = 1000 satisfies both `small` and `large` -- narrow one of the two conditions, so that one branch matches only");
    assert_snapshot!(findings(GIVEN, r#"
- choice: size
  branches:
  - { name: small, when: "amount < 1000" }
  - { name: large, when: "amount >= 1000" }
"#), @"");
    assert_snapshot!(findings(GIVEN, r#"
- choice: where
  branches:
  - { name: home, when: "country == 'DE'" }
  - { name: near, when: "country in ['AT', 'CH', 'DE'] && amount > 5" }
  - { name: far, otherwise: true }
"#), @r#"4:25 error K6: amount = 6, country = "DE" satisfies both `home` and `near` -- narrow one of the two conditions, so that one branch matches only"#);
    assert_snapshot!(findings(GIVEN, r#"
- choice: when
  branches:
  - { name: early, when: "due < timestamp('2026-01-01T00:00:00Z')" }
  - { name: late, when: "due >= timestamp('2025-12-31T23:59:59.999Z')" }
"#), @"4:25 error K6: due = 2025-12-31T23:59:59.999Z satisfies both `early` and `late` -- narrow one of the two conditions, so that one branch matches only");
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: one, when: "count > 1.5" }
  - { name: two, when: "count < 2" }
"#), @"");
}

#[test]
fn a_value_that_no_branch_matches_is_an_error_with_an_example() {
    assert_snapshot!(findings(GIVEN, r#"
- choice: size
  branches:
  - { name: small, when: "amount < 1000" }
  - { name: large, when: "amount > 1000" }
"#), @"1:11 error K6: no branch of choice `size` matches amount = 1000 -- add a branch with `otherwise: true`, or widen a condition");
    assert_snapshot!(findings(GIVEN, r#"
- choice: where
  branches:
  - { name: home, when: "country == 'DE' || country == 'AT'" }
  - { name: near, when: "country == 'CH' && ok" }
"#), @r#"1:11 error K6: no branch of choice `where` matches country = "CH", ok = false -- add a branch with `otherwise: true`, or widen a condition"#);
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: yes, when: "ok" }
  - { name: no, when: "!ok" }
"#), @"");
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: low, when: "count <= 2" }
  - { name: high, when: "count >= 3" }
"#), @"");
}

#[test]
fn a_branch_that_is_never_taken_is_a_warning() {
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: low, when: "count < 5 && count > 4" }
  - { name: high, when: "count >= 5" }
  - { name: rest, when: "count < 5" }
"#), @"3:24 warning K3: branch `low` is never taken -- its condition cannot be true; change or remove it");
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: yes, when: "ok" }
  - { name: no, when: "ok == false" }
  - { name: other, otherwise: true }
"#), @"5:31 warning K3: branch `other` is never taken -- the other branches cover everything; remove it");
}

#[test]
fn what_cannot_be_proven_about_a_choice_is_a_warning() {
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: low, when: "note.level < 5" }
  - { name: high, when: "note.level >= 5" }
"#), @"1:11 warning K6: that exactly one branch of choice `c` matches cannot be proven: `note.level < 5` does more than compare elements with literals -- where none or several match, the case stops with an incident; a single `when` beside `otherwise: true` is always safe");
    assert_snapshot!(findings(GIVEN, r#"
- choice: c
  branches:
  - { name: low, when: "amount < double(count)" }
  - { name: rest, otherwise: true }
"#), @"");
}

#[test]
fn a_loop_that_its_condition_cannot_end_is_a_warning() {
    assert_snapshot!(findings(GIVEN, r"
- loop: l
  steps: [{ step: a, job: a, writes: [count] }]
  until: count > 5 && count < 6
"), @"3:10 warning K3: loop `l` never ends by its condition -- the condition cannot be true; only `max` ends the loop, with an incident");
    assert_snapshot!(findings(GIVEN, r"
- loop: l
  steps: [{ step: a, job: a, writes: [count] }]
  until: count > 5 || count < 6
"), @"3:10 warning K3: loop `l` never goes round a second time -- the condition is always true; change it, or write the steps without a loop");
    assert_snapshot!(findings(GIVEN, r"
- loop: l
  steps: [{ step: a, job: a, writes: [amount] }]
  until: count > 5
"), @"3:10 warning K3: no step of loop `l` writes `count`, so that its condition never changes -- let a step of the loop write it");
    assert_snapshot!(findings(GIVEN, r"
- loop: l
  steps: [{ step: a, job: a, writes: [count] }]
  until: count > 5
"), @"");
}

#[test]
fn a_loop_is_planned_for_as_many_rounds_as_it_may_go_and_as_can_be_promised() {
    assert_snapshot!(findings(GIVEN, r"
- loop: l
  steps: [{ step: a, job: a, writes: [count] }]
  until: count > 5
  max: 3
  rounds: 3
"), @"");
    assert_snapshot!(findings(GIVEN, r"
- loop: l
  steps: [{ step: a, job: a, writes: [count] }]
  until: count > 5
  max: 3
  rounds: 4
"), @"1:9 error K5: loop `l` is planned for 4 rounds, but goes round 3 times at most -- lower `rounds:`, or raise `max:`");
    assert_snapshot!(findings(GIVEN, r"
- loop: outer
  steps:
    - loop: inner
      steps: [{ step: a, job: a, writes: [count] }]
      until: count > 5
      rounds: 20
    - { step: b, job: b }
  who: Role(clerk)
  rounds: 30
"), @"1:9 error K5: the planned rounds of the loops are 657 steps more to promise; 500 are allowed -- lower `rounds:`, first of this loop or of those within it");
    let mut nested = "- { step: a, job: a }".to_owned();
    for depth in 0..9 {
        let inside: Vec<String> = nested.lines().map(|line| format!("    {line}")).collect();
        let rounds = if depth == 5 { 2 } else { 1 };
        let inside = inside.join("\n");
        nested =
            format!("- loop: l{depth}\n  who: Role(c)\n  rounds: {rounds}\n  steps:\n{inside}");
    }
    assert_snapshot!(findings("", &format!("\n{nested}\n")), @"13:21 error K5: loop `l5` is planned for 2 rounds, but is one of 9 loops inside each other -- leave `rounds:` out, or nest at most 8 loops");
}
