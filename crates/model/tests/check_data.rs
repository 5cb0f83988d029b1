//! Rules D1 to D5: every read element has a value, and no write is lost.
//!
//! A case is the steps of a process, followed by all findings about it.

mod check_support;

use check_support::findings;
use insta::assert_snapshot;

const DATA: &str = "data: { x: int, flag: bool }\nstart: [flag]\n";
const MORE_DATA: &str = "data: { x: int, y: int, flag: bool }\nstart: [flag]\n";

#[test]
fn reads_of_what_is_certainly_written_are_fine() {
    assert_snapshot!(findings(DATA, r"
- { step: w, job: w, writes: [x] }
- { step: r, job: r, reads: [x] }
"), @"");
    assert_snapshot!(findings(DATA, r"
- choice: c
  branches:
  - { when: flag, steps: [{ step: w1, job: w, writes: [x] }] }
  - { otherwise: true, steps: [{ step: w2, job: w, writes: [x] }] }
- { step: r, job: r, reads: [x] }
"), @"");
    assert_snapshot!(findings(MORE_DATA, r"
- parallel: p
  branches:
  - steps: [{ step: w, job: w, writes: [x] }]
  - steps: [{ step: r, job: r, after: [w], reads: [x] }, { step: w2, job: w, writes: [y] }]
- { step: last, job: r, reads: [x, y] }
"), @"");
    assert_snapshot!(findings(MORE_DATA, r"
- loop: l
  steps: [{ step: w, job: w, writes: [x] }]
  until: x > 3
- { step: r, job: r, reads: [x, y?] }
"), @"head warning D4: `y` is read, but nothing ever writes it -- let `start` or a step write it");
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps:
    - choice: c
      branches:
      - { when: flag, steps: [{ step: w, job: w, writes: [x] }] }
      - { otherwise: true }
  - steps: [{ step: r, job: r, requires: [w], reads: [x] }]
"), @"8:43 warning K4: when `w` is skipped, `r` is skipped too, and with it everything that follows up to the end of the process -- write `after: [w]` if `r` shall go ahead without `w`");
}

#[test]
fn reads_of_what_may_be_missing_are_errors_that_say_why() {
    assert_snapshot!(findings(DATA, r"
- { step: r, job: r, reads: [x] }
"), @"1:30 error D1: step `r` reads `x`, which may have no value: nothing writes it -- add `x` to `start`, let an earlier step write it, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- { step: r, job: r, reads: [x] }
- { step: w, job: w, writes: [x] }
"), @"1:30 error D1: step `r` reads `x`, which may have no value: step `w` writes it only later -- let an earlier step write `x`, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- { step: r, job: r, reads: [x], writes: [x] }
"), @"1:30 error D1: step `r` reads `x`, which may have no value: step `r` itself is what writes it -- let an earlier step write `x`, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- choice: c
  branches:
  - { name: yes, when: flag, steps: [{ step: w, job: w, writes: [x] }] }
  - { name: no, otherwise: true }
- { step: r, job: r, reads: [x] }
"), @"5:30 error D1: step `r` reads `x`, which may have no value: step `w` writes it only in branch `yes` of choice `c` -- write it in every branch, or before, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- { step: w, job: w, writes: [x?] }
- { step: r, job: r, reads: [x] }
"), @"2:30 error D1: step `r` reads `x`, which may have no value: step `w` need not write it -- write `x` without `?` there, or read `x?`");
}

#[test]
fn reads_beside_or_around_their_writer_are_errors_that_say_why() {
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps: [{ step: w, job: w, writes: [x] }]
  - steps: [{ step: r, job: r, reads: [x] }]
"), @"4:40 error D1: step `r` reads `x`, which may have no value: step `w` writes it at the same time -- wait for it with `after`, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps:
    - choice: c
      branches:
      - { name: yes, when: flag, steps: [{ step: w, job: w, writes: [x] }] }
      - { name: no, otherwise: true }
  - steps: [{ step: r, job: r, after: [w], reads: [x] }]
"), @"8:52 error D1: step `r` reads `x`, which may have no value: step `w` writes it only in branch `yes` of choice `c` -- write it in every branch, or before, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- loop: l
  steps: [{ step: r, job: r, reads: [x] }, { step: w, job: w, writes: [x] }]
  until: x > 3
"), @"2:38 error D1: step `r` reads `x`, which may have no value: step `w` writes it only later -- let an earlier step write `x`, or read `x?`");
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps:
    - choice: c
      branches:
      - { name: yes, when: flag, steps: [{ step: a, job: a }] }
      - { name: no, otherwise: true }
  - steps: [{ step: w, job: w, requires: [a], writes: [x] }]
  - steps: [{ step: r, job: r, after: [w], reads: [x] }]
"), @r"
    8:43 warning K4: when `a` is skipped, `w` is skipped too, and with it everything that follows up to the end of the process -- write `after: [a]` if `w` shall go ahead without `a`
    9:52 error D1: step `r` reads `x`, which may have no value: step `w` may be skipped -- let the step wait with `requires` instead of `after`, or read `x?`
    ");
}

#[test]
fn conditions_are_mandatory_reads_unless_they_ask_for_null() {
    assert_snapshot!(findings(MORE_DATA, r#"
- choice: c
  branches:
  - { name: high, when: "x > 5" }
  - { name: low, when: "x <= 5" }
- loop: l
  steps: [{ step: w, job: w, writes: [x?] }]
  until: y > 5
"#), @r"
    3:25 error D1: choice `c` depends on `x`, which may have no value: step `w` writes it only later -- let an earlier step write `x`, or ask for `x == null` in the condition
    4:24 error D1: choice `c` depends on `x`, which may have no value: step `w` writes it only later -- let an earlier step write `x`, or ask for `x == null` in the condition
    7:10 error D1: loop `l` depends on `y`, which may have no value: nothing writes it -- add `y` to `start`, let an earlier step write it, or ask for `y == null` in the condition
    7:10 warning K3: no step of loop `l` writes `y`, so that its condition never changes -- let a step of the loop write it
    ");
    assert_snapshot!(findings(DATA, r#"
- { step: w, job: w, writes: [x?] }
- choice: c
  branches:
  - { name: none, when: "x == null" }
  - { name: high, when: "x != null && x > 5" }
  - { name: low, when: "x != null && x <= 5" }
"#), @"");
    assert_snapshot!(findings(DATA, r#"
- { step: w, job: w, writes: [x?] }
- choice: c
  branches:
  - { name: none, when: "x == null" }
  - { name: high, when: "x > 5" }
  - { name: low, otherwise: true }
"#), @"5:25 error D1: choice `c` depends on `x`, which may have no value: step `w` need not write it -- write `x` without `?` there, or ask for `x == null` in the condition");
    assert_snapshot!(findings(DATA, r#"
- { step: w, job: w, writes: [x] }
- choice: c
  branches:
  - { name: none, when: "x == null" }
  - { name: some, when: "x != null" }
"#), @"4:25 warning K3: branch `none` is never taken -- its condition cannot be true; change or remove it");
}

#[test]
fn results_must_be_certainly_written() {
    assert_snapshot!(findings("data: { x: int, flag: bool }\nstart: [flag]\nresult: [x, flag]\n", r"
- choice: c
  branches:
  - { name: yes, when: flag, steps: [{ step: w, job: w, writes: [x] }] }
  - { name: no, otherwise: true }
"), @"head error D1: `result` reads `x`, which may have no value: step `w` writes it only in branch `yes` of choice `c` -- write it in every branch, or before, or read `x?`");
    assert_snapshot!(findings("data: { x: int, flag: bool }\nstart: [flag]\nresult: [x?, flag]\n", r"
- choice: c
  branches:
  - { name: yes, when: flag, steps: [{ step: w, job: w, writes: [x] }] }
  - { name: no, otherwise: true }
"), @"");
}

#[test]
fn parallel_writes_are_errors_unless_something_orders_them() {
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a, writes: [x] }]
  - steps: [{ step: b, job: b, writes: [x?] }]
"), @"4:41 error D2: step `a` and step `b` of parallel `p` may write `x` at the same time -- let one wait for the other with `after`, or write different elements");
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a, writes: [x] }, { step: read-a, job: a, reads: [x] }]
  - steps: [{ step: b, job: b, after: [read-a], writes: [x] }]
- { step: read-b, job: r, reads: [x] }
"), @"");
    assert_snapshot!(findings(DATA, r"
- choice: c
  branches:
  - { when: flag, steps: [{ step: a, job: a, writes: [x] }] }
  - { otherwise: true, steps: [{ step: b, job: b, writes: [x] }] }
- { step: r, job: r, reads: [x] }
"), @"");
    assert_snapshot!(findings(DATA, r"
- parallel: p
  branches:
  - steps: [{ step: a, job: a, writes: [x] }]
  - steps:
    - choice: c
      branches:
      - { when: flag, steps: [{ step: between, job: b, after: [a] }] }
      - { otherwise: true }
  - steps: [{ step: z, job: z, after: [between], writes: [x] }]
"), @"9:59 error D2: step `a` and step `z` of parallel `p` may write `x` at the same time; what they wait for may be skipped, and then nothing orders them -- let one wait for the other with `after`, or write different elements");
}

#[test]
fn conditions_whose_types_do_not_go_together_are_errors() {
    assert_snapshot!(findings("data: { x: int, name: string }\nstart: [x, name]\n", r#"
- choice: c
  branches:
  - { when: "x == 'one'" }
  - { when: "name" }
  - { otherwise: true }
- loop: l
  steps: [{ step: a, job: a, writes: [x] }]
  until: name > 5
"#), @r"
    3:13 error D3: in `x == 'one'`: int is compared with string -- `x` is int
    4:13 error D3: in `name`: yields string, not true or false -- `name` is string
    8:10 error D3: in `name > 5`: string is compared with int -- `name` is string
    ");
}

#[test]
fn values_that_nobody_can_see_are_warnings() {
    assert_snapshot!(findings(DATA, r"
- { step: a, job: a, writes: [x] }
- { step: b, job: b, writes: [x] }
- { step: r, job: r, reads: [x] }
"), @"1:31 warning D5: `x` of step `a` is overwritten by step `b` before anybody reads it -- remove one of the two writes, or write another element");
    assert_snapshot!(findings(DATA, r"
- { step: a, job: a, writes: [x] }
- { step: b, job: b, writes: [x?] }
- { step: c, job: c, reads: [x], writes: [x] }
- choice: d
  branches:
  - { when: flag, steps: [{ step: e, job: e, writes: [x] }] }
  - { otherwise: true }
- { step: r, job: r, reads: [x] }
"), @"");
    assert_snapshot!(findings(MORE_DATA, r"
- loop: l
  steps:
  - { step: a, job: a, reads: [x?], writes: [x] }
  - { step: b, job: b, reads: [y?] }
  until: x > 1
"), @"head warning D4: `y` is read, but nothing ever writes it -- let `start` or a step write it");
    assert_snapshot!(findings(DATA, r"
- { step: a, job: a, writes: [x] }
- parallel: p
  branches:
  - steps: [{ step: b, job: b, writes: [x] }]
  - steps: [{ step: r, job: r, reads: [x] }]
- { step: s, job: s, reads: [x] }
"), @"");
}

#[test]
fn elements_nobody_uses_or_writes_are_warnings() {
    assert_snapshot!(findings("data: { unused: int, never: int }\n", r"
- { step: a, job: a, reads: [never?] }
"), @r"
    head warning D5: `unused` is never used -- remove it from `data`
    head warning D4: `never` is read, but nothing ever writes it -- let `start` or a step write it
    ");
}

#[test]
fn a_size_or_a_priority_is_a_number_that_the_step_reads() {
    let data = "data: { pages: int, scan: file, fee: decimal, name: string }\n\
                start: [pages, scan, fee, name]\n";
    assert_snapshot!(findings(data, r"
- { step: a, job: j, reads: [pages], size: pages, priority: pages }
- { step: b, job: j, reads: [scan], size: scan }
- { step: c, job: j, reads: [fee, name?], size: fee }
"), @"");
    assert_snapshot!(findings(data, r"
- { step: a, job: j, size: pages, reads: [fee, scan, name] }
- { step: b, job: j, reads: [name], size: name }
- { step: c, job: j, reads: [fee, pages], priority: fee }
"), @r#"
        1:28 error D1: the size of `a` is `pages`, which it does not read -- add `pages` to its `reads`
        2:43 error D3: the size of `b` cannot be `name`: it is string -- name an element that is int, decimal or file, or write a number
        3:53 error D3: the priority of `c` cannot be `fee`: it is decimal -- name an element that is int, or write a number
        "#);
}

#[test]
fn letters_show_what_a_step_reads_and_fits_into_a_line() {
    const DATA: &str = "data: { x: int, paper: file, any: json }\nstart: [x, paper, any]\n";
    assert_snapshot!(findings(DATA, r"
- { step: a, who: Role(r), reads: [x, paper], mail: [x] }
- { choice: c, who: Role(r), reads: [x?], mail: [x], branches: [{ name: n }, { name: m }] }
- { step: b, job: b, reads: [any] }
"), @"");
    assert_snapshot!(findings(DATA, r"
- { step: a, who: Role(r), reads: [x], mail: [y] }
- { step: b, who: Role(r), reads: [x, any, paper], mail: [paper, any, x] }
- { choice: c, who: Role(r), mail: [x], branches: [{ name: n }, { name: m }] }
- { step: d, job: d, reads: [x], mail: [x] }
"), @r"
1:47 error D1: the letters of `a` are to show `y`, which it does not read -- add `y` to its `reads`
2:59 error D3: the letters of `b` cannot show `paper`: it is file -- name elements that are bool, int, decimal, string or date-time
2:66 error D3: the letters of `b` cannot show `any`: it is json -- name elements that are bool, int, decimal, string or date-time
3:37 error D1: the letters of `c` are to show `x`, which it does not read -- add `x` to its `reads`
4:41 error Y2: nobody gets letters about `d`: a program does it -- leave `mail` out
");
}
