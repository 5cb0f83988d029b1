//! Rule Z3: rules refer only to performers of steps done before.
//!
//! A case is the steps of a process, followed by all findings about it.

mod check_support;

use check_support::findings;
use insta::assert_snapshot;

const PEOPLE: &str = "data: { flag: bool }\nstart: [flag]\n";

#[test]
fn what_undoes_a_step_has_no_effect_and_is_warned_of() {
    assert_snapshot!(findings(PEOPLE, r"
- { step: a, job: pay, undo: { job: recall } }
- choice: c
  who: Role(boss)
  branches:
  - { name: yes, steps: [{ step: b, job: book, undo: { who: Role(clerk) } }] }
  - { name: no }
"), @r"
    1:37 warning Y4: `undo` of `a` has no effect yet: nothing undoes the step -- leave it out, or undo the work in a step of its own
    5:61 warning Y4: `undo` of `b` has no effect yet: nothing undoes the step -- leave it out, or undo the work in a step of its own
    ");
}

#[test]
fn rules_may_ask_for_the_performers_of_steps_done_before() {
    assert_snapshot!(findings(PEOPLE, r"
- { step: a, who: Role(clerk) }
- { step: b, who: Role(clerk) EXCEPT NodePerformingAgent(a) }
- { step: c, who: ManagerOf(NodePerformingAgent(b)) OR StartingAgent(), undo: { who: NodePerformingAgent(c) } }
"), @"3:86 warning Y4: `undo` of `c` has no effect yet: nothing undoes the step -- leave it out, or undo the work in a step of its own");
    assert_snapshot!(findings(PEOPLE, r"
- loop: l
  steps: [{ step: a, who: Role(clerk) }]
  who: OrgUnitOf(NodePerformingAgent(a))
- { step: b, who: NodePerformingAgent(l) }
"), @"");
    assert_snapshot!(findings(PEOPLE, r"
- choice: c
  who: Role(boss)
  branches:
  - { name: yes, steps: [{ step: b, who: NodePerformingAgent(c) }] }
  - { name: no }
- { step: d, who: NodePerformingAgent(c) }
"), @"");
    assert_snapshot!(findings(PEOPLE, r"
- parallel: p
  branches:
  - steps: [{ step: a, who: Role(clerk) }]
  - steps: [{ step: b, after: [a], who: NodePerformingAgent(a) }]
- { step: c, who: NodePerformingAgent(a) AND NodePerformingAgent(b) }
"), @"");
}

#[test]
fn rules_that_ask_for_performers_who_may_not_exist_are_errors_that_say_why() {
    assert_snapshot!(findings(PEOPLE, r"
- { step: a, who: NodePerformingAgent(a) }
- { step: b, who: NodePerformingAgent(c) }
- { step: c, who: Role(clerk) }
"), @r"
    1:19 error Z3: step `a` asks who performed `a`, which may not have been done by then: it is this very one -- name an earlier step, or use StartingAgent()
    2:19 error Z3: step `b` asks who performed `c`, which may not have been done by then: it comes only later -- name a step that comes before
    ");
    assert_snapshot!(findings(PEOPLE, r"
- { step: robot, job: robot }
- parallel: p
  branches:
  - steps: [{ step: a, who: NodePerformingAgent(robot) }]
  - steps: [{ step: b, who: NodePerformingAgent(a) }]
- { step: c, who: NodePerformingAgent(p) }
"), @r"
    4:29 error Z3: nobody performs step `robot`: no person works on it -- name a step with `who`, or use StartingAgent()
    5:29 error Z3: step `b` asks who performed `a`, which may not have been done by then: it runs at the same time -- wait for it with `after`, or name a step that comes before
    6:19 error Z3: nobody performs parallel `p`: no person works on it -- name a step with `who`, or use StartingAgent()
    ");
    assert_snapshot!(findings(PEOPLE, r"
- choice: c
  branches:
  - { name: yes, when: flag, steps: [{ step: a, who: Role(clerk) }] }
  - { name: no, otherwise: true, steps: [{ step: b, who: OrgUnitOf(NodePerformingAgent(a)) }] }
- { step: d, who: ManagerOf(NodePerformingAgent(a)) }
- { step: e, who: NodePerformingAgent(c) }
"), @r"
    4:58 error Z3: step `b` asks who performed `a`, which may not have been done by then: it is in another branch of the same choice -- name a step that comes before the choice
    5:19 error Z3: step `d` asks who performed `a`, which may not have been done by then: it is done only in branch `yes` of choice `c` -- name a step that is done in any case
    6:19 error Z3: nobody performs choice `c`: no person works on it -- name a step with `who`, or use StartingAgent()
    ");
    assert_snapshot!(findings(PEOPLE, r"
- loop: l
  steps: [{ step: a, who: NodePerformingAgent(l) }]
  who: Role(boss)
"), @"2:27 error Z3: step `a` asks who performed `l`, which may not have been done by then: it comes only later -- name a step that comes before");
    assert_snapshot!(findings(PEOPLE, r"
- parallel: p
  branches:
  - steps:
    - choice: c
      branches:
      - { name: yes, when: flag, steps: [{ step: a, who: Role(clerk) }] }
      - { name: no, otherwise: true }
  - steps: [{ step: b, after: [a], who: NodePerformingAgent(a) }]
"), @"8:41 error Z3: step `b` asks who performed `a`, which may not have been done by then: it is done only in branch `yes` of choice `c` -- name a step that is done in any case");
}
