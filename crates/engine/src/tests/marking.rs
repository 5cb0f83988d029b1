//! How the end of one node enables or skips others.

use insta::assert_snapshot;

use super::support::play;

#[test]
fn a_sequence_offers_one_step_after_the_other_and_then_ends() {
    let process = "
process: p
steps:
  - { step: a, job: j }
  - { step: b, who: Agent() }
";
    assert_snapshot!(play(process, "
        start
        complete a by worker
        complete b by ann
        show
    "), @"
    > start
      a Activated
    > complete a by worker
      a Activated -> Completed
      b Activated
    > complete b by ann
      b Activated -> Completed
      instance Completed
    > show
      +start +a +b +end
    ");
}

#[test]
fn branches_of_a_parallel_run_at_once_and_the_join_waits_for_all() {
    let process = "
process: p
steps:
  - parallel: both
    branches:
      - steps: [{ step: a, job: j }]
      - steps: [{ step: b, job: j }]
      - steps: []
  - { step: c, job: j }
";
    assert_snapshot!(play(process, "
        start
        complete b by worker
        show
        complete a by worker
    "), @"
    > start
      a Activated
      b Activated
    > complete b by worker
      b Activated -> Completed
    > show
      +start +both !a +b ·both/join ·c ·end
    > complete a by worker
      a Activated -> Completed
      c Activated
    ");
}

const CHOICE: &str = "
process: p
data: { n: int }
start: [n]
steps:
  - choice: size
    branches:
      - { name: small, when: n < 10, steps: [{ step: a, job: j }, { step: b, job: j }] }
      - { name: none, when: n == 10, steps: [] }
      - { name: large, otherwise: true, steps: [{ step: c, job: j }] }
  - { step: d, job: j }
";

#[test]
fn a_choice_takes_one_branch_and_skips_the_others_with_all_that_is_in_them() {
    assert_snapshot!(play(CHOICE, "
        start n=3
        show
        complete a by worker
        complete b by worker
        show
    "), @"
    > start n=3
      size: decided small
      a Activated
    > show
      +start +size !a ·b -c ·size/join ·d ·end
    > complete a by worker
      a Activated -> Completed
      b Activated
    > complete b by worker
      b Activated -> Completed
      d Activated
    > show
      +start +size +a +b -c +size/join !d ·end
    ");
}

#[test]
fn an_empty_branch_leads_straight_to_the_join() {
    assert_snapshot!(play(CHOICE, "
        start n=10
        show
    "), @"
    > start n=10
      size: decided none
      d Activated
    > show
      +start +size -a -b -c +size/join !d ·end
    ");
}

#[test]
fn a_person_chooses_by_answering() {
    let process = "
process: p
steps:
  - choice: approve
    who: Agent()
    branches:
      - { name: yes, steps: [{ step: pay, job: j }] }
      - { name: no, steps: [] }
";
    assert_snapshot!(play(process, "
        start
        complete approve by ann
        complete approve by ann answer=maybe
        complete approve by ann answer=no
        show
    "), @"
    > start
      approve Activated
    > complete approve by ann
      refused answer_missing: `approve` is a decision; answer with one of `yes`, `no`
    > complete approve by ann answer=maybe
      refused answer_unknown: that is no answer to `approve`; answer with one of `yes`, `no`
    > complete approve by ann answer=no
      approve Activated -> Completed
      instance Completed
    > show
      +start +approve -pay +approve/join +end
    ");
}

const LOOP: &str = "
process: p
data: { ok: bool }
steps:
  - loop: again
    steps:
      - { step: a, job: j, writes: [ok] }
      - choice: fine
        branches:
          - { name: yes, when: ok, steps: [] }
          - { name: no, otherwise: true, steps: [{ step: mend, job: j }] }
    until: ok
    max: 3
  - { step: b, job: j }
";

#[test]
fn a_loop_starts_over_with_the_next_iteration_until_its_condition_holds() {
    assert_snapshot!(play(LOOP, "
        start
        complete a by worker ok=false
        complete mend by worker
        show
        complete a by worker ok=true
        show
    "), @"
    > start
      a:0 Activated
    > complete a by worker ok=false
      fine:0: decided no
      a:0 Activated -> Completed
      mend:0 Activated
    > complete mend by worker
      again:0: decided repeat
      mend:0 Activated -> Completed
      a:1 Activated
    > show
      +start +again/start !a ·fine ·mend ·fine/join ·again ·b ·end
    > complete a by worker ok=true
      fine:1: decided yes
      again:1: decided leave
      a:1 Activated -> Completed
      b Activated
    > show
      +start +again/start +a +fine -mend +fine/join +again !b ·end
    ");
}

#[test]
fn an_inner_loop_counts_from_zero_in_every_round_of_the_outer_one() {
    let process = "
process: p
steps:
  - loop: outer
    who: Agent()
    steps:
      - loop: inner
        who: Agent()
        steps: [{ step: a, job: j }]
";
    assert_snapshot!(play(process, "
        start
        complete a by worker
        complete inner by ann answer=repeat
        complete a by worker
        complete inner by ann answer=leave
        complete outer by ann answer=repeat
        complete a by worker
        complete inner:1.0 by ann answer=leave
        complete outer by ann answer=leave
    "), @"
    > start
      a:0.0 Activated
    > complete a by worker
      a:0.0 Activated -> Completed
      inner:0.0 Activated
    > complete inner by ann answer=repeat
      inner:0.0 Activated -> Completed
      a:0.1 Activated
    > complete a by worker
      a:0.1 Activated -> Completed
      inner:0.1 Activated
    > complete inner by ann answer=leave
      inner:0.1 Activated -> Completed
      outer:0 Activated
    > complete outer by ann answer=repeat
      outer:0 Activated -> Completed
      a:1.0 Activated
    > complete a by worker
      a:1.0 Activated -> Completed
      inner:1.0 Activated
    > complete inner:1.0 by ann answer=leave
      inner:1.0 Activated -> Completed
      outer:1 Activated
    > complete outer by ann answer=leave
      outer:1 Activated -> Completed
      instance Completed
    ");
}

#[test]
fn a_loop_of_decisions_that_never_ends_by_itself_is_stopped() {
    let process = "
process: p
data: { ok: bool }
start: [ok]
steps:
  - loop: forever
    steps:
      - choice: either
        branches:
          - { name: one, when: ok, steps: [] }
          - { name: other, otherwise: true, steps: [] }
    until: ok
    max: 1000000
";
    let transcript = play(process, "start ok=false\nopen");
    assert_eq!(transcript.matches("forever:498: decided repeat").count(), 1);
    assert!(transcript.contains("forever:499: TooManyIterations { limit: 1000 }"));
    assert_eq!(transcript.matches("decided").count(), 999);
}

fn synced(kind: &str) -> String {
    format!(
        "
process: p
data: {{ n: int }}
start: [n]
steps:
  - parallel: both
    branches:
      - steps:
          - choice: maybe
            branches:
              - {{ name: do, when: n > 0, steps: [{{ step: a, job: j }}] }}
              - {{ name: not, otherwise: true, steps: [] }}
      - steps:
          - {{ step: b, job: j }}
          - {{ step: c, job: j, {kind}: [a] }}
      - steps:
          - {{ step: long, job: j }}
          - {{ step: longer, job: j }}
  - {{ step: last, job: j }}
"
    )
}

#[test]
fn a_step_waits_for_what_it_comes_after() {
    assert_snapshot!(play(&synced("after"), "
        start n=1
        complete b by worker
        complete a by worker
    "), @"
    > start n=1
      maybe: decided do
      b Activated
      long Activated
      a Activated
    > complete b by worker
      b Activated -> Completed
    > complete a by worker
      a Activated -> Completed
      c Activated
    ");
}

#[test]
fn a_step_goes_ahead_once_what_it_comes_after_was_skipped() {
    assert_snapshot!(play(&synced("after"), "
        start n=0
        complete b by worker
    "), @"
    > start n=0
      maybe: decided not
      b Activated
      long Activated
    > complete b by worker
      b Activated -> Completed
      c Activated
    ");
}

#[test]
fn a_step_runs_once_what_it_requires_is_done() {
    assert_snapshot!(play(&synced("requires"), "
        start n=1
        complete a by worker
        complete b by worker
    "), @"
    > start n=1
      maybe: decided do
      b Activated
      long Activated
      a Activated
    > complete a by worker
      a Activated -> Completed
    > complete b by worker
      b Activated -> Completed
      c Activated
    ");
}

#[test]
fn skipping_what_a_step_requires_skips_all_that_depends_on_it_but_not_what_runs_beside() {
    assert_snapshot!(play(&synced("requires"), "
        start n=0
        show
        complete b by worker
        complete long by worker
        complete longer by worker
        show
    "), @"
    > start n=0
      maybe: decided not
      b Activated
      long Activated
    > show
      +start +both +maybe -a +maybe/join !b ·c !long ·longer ·both/join ·last ·end
    > complete b by worker
      b Activated -> Completed
    > complete long by worker
      long Activated -> Completed
      longer Activated
    > complete longer by worker
      longer Activated -> Completed
      instance Completed
    > show
      +start +both +maybe -a +maybe/join +b -c +long +longer -both/join -last -end
    ");
}
