//! Rules Z4 and Z5: places depend on steps done before, and all paths into a node agree on them.
//!
//! A case is the steps of a process, followed by all findings about it.

mod check_support;

use check_support::findings;
use insta::assert_snapshot;

#[test]
fn places_may_depend_on_steps_done_before() {
    assert_snapshot!(findings("", r"
- { step: a, who: Role(clerk), at: ulm }
- { step: b, job: book, at: Domain(Actor(a)) }
- parallel: p
  branches:
  - steps: [{ step: c, job: book, at: Server(b) }]
  - steps: [{ step: d, job: book, at: bonn }, { step: e, job: book, after: [c], at: Server(a) }]
- { step: f, job: book, at: Domain(Actor(a)) WITH ulm = bonn }
- { step: g, job: book, at: Server(e) }
- { step: h, job: book, at: Domain(Actor(g)) }
"), @"");
}

#[test]
fn places_that_depend_on_what_may_not_be_done_are_errors_that_say_why() {
    assert_snapshot!(findings("", r"
- { step: a, job: book, at: Server(b) }
- { step: b, job: book, at: Domain(Actor(b)) }
- choice: c
  who: Role(boss)
  at: Server(c)
  branches:
  - { name: yes, steps: [{ step: d, job: book }] }
  - { name: no, steps: [{ step: e, job: book, at: Server(d) }] }
- { step: f, job: book, at: Server(d) }
- parallel: p
  branches: [{ steps: [] }, { steps: [{ step: g, job: book }] }]
- { step: h, job: book, at: Server(p) }
"), @"
    1:29 error Z4: where step `a` is controlled depends on `b`, which may not have been done by then: it comes only later -- name a step that comes before
    2:29 error Z4: where step `b` is controlled depends on `b`, which may not have been done by then: it is this very one -- name an earlier step
    5:7 error Z4: where choice `c` is controlled depends on `c`, which may not have been done by then: it is this very one -- name an earlier step
    8:51 error Z4: where step `e` is controlled depends on `d`, which may not have been done by then: it is in another branch of the same choice -- name a step that comes before the choice
    9:11 error Z5: where step `f` is controlled depends on `d`, which is not known at the end of step `e`: branches that come together must agree on the place -- depend on a step before the branches part, or name a domain
    9:29 error Z4: where step `f` is controlled depends on `d`, which may not have been done by then: it is done only in branch `yes` of choice `c` -- name a step that is done in any case
    11:14 warning K3: branch `1` of parallel `p` does nothing -- give it steps, or remove it
    12:29 error Z4: parallel `p` itself is controlled nowhere -- name a step inside of it or before it
    ");
}

#[test]
fn nobody_performs_what_a_condition_decides() {
    assert_snapshot!(findings("data: { amount: int }\nstart: [amount]\n", r"
- choice: c
  branches:
  - { name: much, when: amount > 100, steps: [{ step: a, job: book }] }
  - { name: little, otherwise: true, steps: [{ step: b, job: book }] }
- { step: d, job: book, at: Domain(Actor(c)) }
- { step: e, job: book, at: Server(c) }
"), @"5:29 error Z4: nobody performs choice `c`: a condition decides -- name a step with `who` or `job`, or write Server(step)");
}

#[test]
fn branches_that_come_together_must_agree_on_the_place() {
    assert_snapshot!(findings("", r"
- parallel: p
  branches:
  - steps: [{ step: a, who: Role(clerk) }, { step: b, job: book }]
  - steps: [{ step: c, job: book }]
- { step: d, job: book, at: Domain(Actor(a)) }
"), @"5:11 error Z5: where step `d` is controlled depends on `a`, which is not known at the end of step `c`: branches that come together must agree on the place -- depend on a step before the branches part, or name a domain");
    assert_snapshot!(findings("", r"
- parallel: p
  branches:
  - steps: [{ step: a, job: book }]
  - steps: [{ step: b, job: book }, { step: c, job: book, after: [a], at: Server(b) }]
"), @"4:45 error Z5: where step `c` is controlled depends on `b`, which is not known at the end of step `a`: branches that come together must agree on the place -- depend on a step before the branches part, or name a domain");
    assert_snapshot!(findings("", r"
- parallel: p
  branches:
  - steps: [{ step: a, job: book }]
  - steps: [{ step: b, job: book, at: ulm }, { step: c, job: book, at: Server(b) }, { step: d, job: book, after: [a] }]
"), @"4:93 error Z5: where step `d` is controlled depends on `b`, which is not known at the end of step `a`: branches that come together must agree on the place -- depend on a step before the branches part, or name a domain");
}

#[test]
fn a_step_for_programs_may_be_where_its_executor_is() {
    assert_snapshot!(findings("", r"
- { step: a, job: j, at: executor }
- parallel: p
  branches:
  - steps: [{ step: b, job: j }]
  - steps: [{ step: c, job: j, at: executor WITH ulm = bonn, after: [b] }]
- { step: d, job: j, at: Server(a) }
"), @"");
    assert_snapshot!(findings("", r"
- { step: a, who: Agent(), at: executor }
- choice: c
  who: Agent()
  at: executor
  branches: [{ name: x }, { name: y }]
"), @r#"
        1:32 error Z4: step `a` is done by a person, not by an executor -- name a domain, or write Domain(Actor(step)) for the home of its performer
        4:7 error Z4: choice `c` is done by a person, not by an executor -- name a domain, or write Domain(Actor(step)) for the home of its performer
        "#);
}

#[test]
fn the_place_of_an_executor_is_spoken_of_by_the_name_of_its_step() {
    // The step after it is at its place, but a sender at `a` cannot know that place.
    assert_snapshot!(findings("", r"
- parallel: p
  branches:
  - steps: [{ step: a, job: j }]
  - steps: [{ step: b, job: j, at: executor }, { step: c, job: j, after: [a] }]
"), @"4:56 error Z5: where step `c` is controlled depends on `b`, which is not known at the end of step `a`: branches that come together must agree on the place -- depend on a step before the branches part, or name a domain");
    // The place of the search for `c`'s executor depends on the place of `b`.
    assert_snapshot!(findings("", r"
- parallel: p
  branches:
  - steps: [{ step: a, job: j }]
  - steps: [{ step: b, job: j, at: executor }, { step: c, job: j, at: executor, after: [a] }]
"), @"4:56 error Z5: where the executor of step `c` is looked for depends on `b`, which is not known at the end of step `a`: branches that come together must agree on the place -- name a domain for step `c`, or for the step before it");
}
