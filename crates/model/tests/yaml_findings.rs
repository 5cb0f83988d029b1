//! Every mistake in a definition is reported at its place, with its rule and a hint.

use insta::assert_snapshot;
use legwork_model::yaml;

/// All findings of a text, each in one line.
fn findings(source: &str) -> String {
    let (definition, findings) = yaml::parse(source);
    assert!(definition.is_some() || !findings.is_empty(), "neither a definition nor a reason");
    let line = |f: &legwork_model::finding::Finding| {
        format!("{} {} {} -- {}", f.span, f.rule, f.message, f.hint)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// All findings of a process whose steps are given.
fn in_steps(steps: &str) -> String {
    findings(&format!("process: p\ndata: {{ amount: int, done: bool }}\nsteps:\n{steps}"))
}

#[test]
fn yaml_that_cannot_be_read_is_told_with_its_place() {
    assert_snapshot!(findings(""), @"1:1 Y2 the file is empty -- begin it with `process: NAME`, `organisation: NAME` or `topology: NAME`");
    assert_snapshot!(findings("# only a comment\n"), @"1:1 Y2 the file is empty -- begin it with `process: NAME`, `organisation: NAME` or `topology: NAME`");
    assert_snapshot!(findings("process: [a\nsteps: []"), @"2:6 Y1 this is not YAML: illegal placement of ':' indicator -- look for a missing quote, a tab, a missing space after `:` or a line that is not indented like its neighbours");
    assert_snapshot!(findings("process: a\n\tsteps: []"), @"2:1 Y1 this line is indented with a tab, which YAML does not allow -- replace each tab with spaces");
    assert_snapshot!(findings("process: a\nsteps:\n  - step: b\n  \twho: c"), @"4:3 Y1 this line is indented with a tab, which YAML does not allow -- replace each tab with spaces");
    assert_snapshot!(findings("process: \"a\nsteps: []"), @"1:10 Y1 this is not YAML: invalid indentation in quoted scalar -- look for a missing quote, a tab, a missing space after `:` or a line that is not indented like its neighbours");
    assert_snapshot!(findings("process: a\nsteps: }"), @"2:8 Y1 this is not YAML: misplaced bracket -- look for a missing quote, a tab, a missing space after `:` or a line that is not indented like its neighbours");
    assert_snapshot!(findings("process: a\nsteps: \0"), @"2:8 Y1 this is not YAML: found unprintable character -- look for a missing quote, a tab, a missing space after `:` or a line that is not indented like its neighbours");
}

#[test]
fn a_tab_is_reported_only_where_it_is_the_fault() {
    let unprintable = "process: \0\ntitle: |\n  a\n  \tb\nsteps: []";
    assert_snapshot!(findings(unprintable), @"1:10 Y1 this is not YAML: found unprintable character -- look for a missing quote, a tab, a missing space after `:` or a line that is not indented like its neighbours");
    assert_snapshot!(findings("process: a\n\t\n\t# b\n\tsteps: []"), @"4:1 Y1 this line is indented with a tab, which YAML does not allow -- replace each tab with spaces");
    assert_snapshot!(findings("process: a\n  b\n\tsteps: []"), @"3:1 Y1 this line is indented with a tab, which YAML does not allow -- replace each tab with spaces");
    assert_snapshot!(findings("process: a\ntitle: |\n\tb\n  \tc"), @"3:1 Y1 this line is indented with a tab, which YAML does not allow -- replace each tab with spaces");
    assert_snapshot!(findings("process: a\nsteps:\n  - step: 'a\n\tb'"), @"4:1 Y1 this line is indented with a tab, which YAML does not allow -- replace each tab with spaces");
}

#[test]
fn anchors_aliases_tags_and_further_documents_are_refused() {
    assert_snapshot!(findings("process: &a p\nsteps: []"), @"1:10 Y3 anchors (`&name`) and aliases (`*name`) are not read -- write the content out at each place; quote text that begins with `&` or `*`");
    assert_snapshot!(findings("process: p\nsteps: *a"), @"2:8 Y3 anchors (`&name`) and aliases (`*name`) are not read -- write the content out at each place; quote text that begins with `&` or `*`");
    assert_snapshot!(findings("a: &x [*x]\n"), @"1:4 Y3 anchors (`&name`) and aliases (`*name`) are not read -- write the content out at each place; quote text that begins with `&` or `*`");
    assert_snapshot!(findings("process: !!str p\nsteps: []"), @"1:10 Y2 tags are not read -- leave the tag (`!…`) out; the field itself says what it holds");
    assert_snapshot!(findings("process: p\nsteps: []\n---\nprocess: q\n"), @"3:1 Y2 a second document begins here -- keep one document and move the others into files of their own");
}

#[test]
fn fields_that_are_missing_unknown_or_written_twice_are_told() {
    assert_snapshot!(findings("- a\n"), @"1:1 Y2 a definition must be a mapping of fields, not a list -- write `field: value`, one on each line");
    assert_snapshot!(findings("{}"), @r"
    1:1 Y2 a definition needs `process` -- begin the file with `process: ` and a name
    1:1 Y2 a definition needs `steps` -- write `steps:` and, below, a list of `- step: …`
    ");
    assert_snapshot!(findings("proces: p\nstesp: []\nbanana: 1\n"), @r"
    1:1 Y2 a definition has no field `proces` -- did you mean `process`?
    2:1 Y2 a definition has no field `stesp` -- did you mean `steps`?
    3:1 Y2 a definition has no field `banana` -- fields of a definition are `process`, `title`, `availability`, `late`, `data`, `start`, `result` and `steps`
    ");
    assert_snapshot!(findings("process: p\nprocess: q\nsteps: []\n1: 2\n[a]: b"), @r"
    2:1 Y2 `process` is written twice, first at 1:1 -- keep one of them
    4:1 Y2 a number is not the name of a field -- write `field: value`
    5:1 Y2 a list is not the name of a field -- write `field: value`
    ");
    assert_snapshot!(findings("process: p\ntitle:\nsteps:\n"), @r"
    2:1 Y2 the title must be text, not nothing -- write a text after the `:`, or leave the field out
    3:1 Y2 `steps` of the process must be a list, not nothing -- write a list of `- step: …`, or `[]` for nothing to do
    ");
    assert_snapshot!(findings("process: 2026\ntitle: 1.5\nsteps: yes\n"), @r#"
    1:10 Y2 the name of the process must be text, not a number -- put it into quotes: "2026"
    2:8 Y2 the title must be text, not a number -- put it into quotes: "1.5"
    3:8 Y2 `steps` of the process must be a list, not text -- write a list of `- step: …`, or `[]` for nothing to do
    "#);
    assert_snapshot!(findings("process: p\ntitle: \"a\\e[31mb\"\nsteps: []\n"), @"2:8 Y2 the title holds control characters -- write it as one line of plain text");
}

#[test]
fn availability_is_one_of_two_words() {
    for word in ["normal", "high"] {
        assert_eq!(findings(&format!("process: p\navailability: {word}\nsteps: []\n")), "");
    }
    assert_snapshot!(findings("process: p\navailability: always\nsteps: []\n"), @"2:15 Y2 `availability` cannot be `always` -- write one of `normal` and `high`");
}

#[test]
fn late_is_a_word_or_how_much_later_the_deadline_becomes() {
    let findings = |late: &str| findings(&format!("process: p\nlate: {late}\nsteps: []\n"));
    for late in ["tell", "abort", "{ extend: 2d }"] {
        assert_eq!(findings(late), "");
    }
    assert_snapshot!(findings("never"), @"2:7 Y2 `late` cannot be `never` -- write `tell`, `abort` or `{ extend: 2d }`");
    assert_snapshot!(findings("2"), @"2:7 Y2 `late` cannot be a number -- write `tell`, `abort` or `{ extend: 2d }`");
    assert_snapshot!(findings("{ extend: 2 }"), @"2:17 Y2 `extend` of `late` is not a length of time: `2` -- write a number and its unit: 500ms, 30s, 15m, 8h or 2d");
    assert_snapshot!(findings("{ extend: 0d }"), @"2:17 Y2 `extend` of `late` has no length -- write how much later the deadline becomes, such as 2d; or `late: tell`");
    assert_snapshot!(findings("{ extend: 40000d }"), @"2:17 Y3 `extend` of `late` is longer than a hundred years -- write a shorter one");
    assert_snapshot!(findings("{ extent: 2d }"), @"2:9 Y2 `late` has no field `extent` -- did you mean `extend`?");
}

#[test]
fn names_are_plain_short_and_unique() {
    assert_snapshot!(findings("process: My Process\nsteps: []\n"), @"1:10 Y2 the name of the process cannot be `My Process` -- a name begins with a letter a-z and goes on with a-z, 0-9, `-` and `_`");
    assert_snapshot!(
        findings(&format!("process: {}\nsteps: []\n", "p".repeat(65))), @"1:10 Y3 the name of the process is longer than 64 characters -- choose a shorter name and tell the rest in `title`");
    assert_snapshot!(in_steps(
        "  - { step: start, job: j }\n  - { step: a/join, job: j }\n  - { step: b.c, job: j }\n  \
         - { step: x, job: j }\n  - loop: x\n    steps: [{ step: end, job: J }]\n    until: done\n"
    ), @r"
    4:13 Y2 `start` is the name of the process's own node -- choose another name
    5:13 Y2 the name of a step cannot be `a/join` -- a name begins with a letter a-z and goes on with a-z, 0-9, `-` and `_`
    6:13 Y2 the name of a step cannot be `b.c` -- a name begins with a letter a-z and goes on with a-z, 0-9, `-` and `_`
    8:11 Y2 the step at 7:13 is named `x` too -- rename one of them: steps, parallels, choices and loops share their names
    9:21 Y2 `end` is the name of the process's own node -- choose another name
    9:31 Y2 `job` of step `end` cannot be `J` -- a name begins with a letter a-z and goes on with a-z, 0-9, `-` and `_`
    ");
}

#[test]
fn data_elements_have_known_types_and_names_that_conditions_can_use() {
    assert_snapshot!(findings(
        "process: p\ndata:\n  a: integer\n  b: strng\n  c:\n  d: [int]\n  e: { title: E }\n  \
         f: { type: Bool, titel: F }\n  g-h: int\n  in: int\n  i: int\n  i: bool\nsteps: []\n"
    ), @r"
    3:6 D3 element `a`: there is no type `integer` -- did you mean `int`?
    4:6 D3 element `b`: there is no type `strng` -- did you mean `string`?
    5:3 D3 element `c` needs a type -- types are `bool`, `int`, `decimal`, `string`, `date-time`, `json` and `file`
    6:6 D3 element `d` must have a type, not a list -- types are `bool`, `int`, `decimal`, `string`, `date-time`, `json` and `file`
    7:6 Y2 element `e` needs `type` -- types are `bool`, `int`, `decimal`, `string`, `date-time`, `json` and `file`
    8:14 D3 element `f`: there is no type `Bool` -- did you mean `bool`?
    8:20 Y2 element `f` has no field `titel` -- did you mean `title`?
    9:3 Y2 the name of a data element cannot be `g-h` -- write `g_h`: in a condition `-` would be minus
    10:3 Y2 `in` is a word of the condition language -- choose another name
    12:3 Y2 `i` is written twice, first at 11:3 -- keep one of them
    ");
    assert_snapshot!(findings("process: p\ndata: [a, b]\nstart: [a]\nsteps: []\n"), @"2:7 Y2 `data` must be a mapping of fields, not a list -- write `field: value`, one on each line");
}

#[test]
fn references_to_nothing_are_told_with_what_may_be_meant() {
    assert_snapshot!(findings(
        "process: p\ndata: { amount: int }\nstart: [amonut, amount, amount?]\nresult: total\n\
         steps:\n  - step: capture\n    who: Role(clerk)\n    reads: [12, customer?]\n"
    ), @r#"
    3:9 D1 there is no data element `amonut` -- did you mean `amount`?
    3:25 Y2 `start` of process `p` names `amount` twice, first at 3:17 -- keep one of them
    4:9 Y2 `result` of process `p` must be a list, not text -- write `result: [total]`
    8:13 Y2 an entry of `reads` of step `capture` must be text, not a number -- put it into quotes: "12"
    8:17 D1 there is no data element `customer` -- declare it under `data:`, with its type
    "#);
    assert_snapshot!(in_steps(
        "  - parallel: par\n    branches:\n      - steps:\n          - { step: one, job: j }\n      \
         - steps:\n          - step: two\n            job: j\n            after: [onee, par]\n            \
         requires: [nowhere, two, two]\n"
    ), @r"
    11:21 K4 there is no step `onee` -- did you mean `one`?
    11:27 K4 `par` is a parallel, not a step -- name a step inside of it
    12:24 K4 there is no step `nowhere` -- write the name that stands after `step:` there
    12:38 Y2 `after` or `requires` of step `two` names `two` twice, first at 12:33 -- keep one of them
    ");
    assert_snapshot!(in_steps(
        "  - { step: capture, who: Agent() }\n  \
         - { step: check, who: Role(clerk) EXCEPT NodePerformingAgent(captrue) }\n"
    ), @"5:25 Z1 the rule speaks of `captrue`, which is no step -- did you mean `capture`?");
}

#[test]
fn a_definition_is_answered_only_if_nothing_of_it_is_missing() {
    for (whole, source) in [
        (true, "process: p\ntitel: T\nsteps: []"),
        (true, "process: p\ntitle: 7\nsteps: [{ step: s, job: j, takes: soon }]"),
        (false, "process: p\ndata:\nstart: [a]\nsteps: []"),
        (false, "process: p\nstart: a\nsteps: []"),
        (false, "process: p\nsteps: [{ step: s }, { step: t, job: j }]"),
        (false, "process: p\nsteps: [{ step: s, job: j }, { step: s, job: j }]"),
        (false, "process: p\nsteps: [{ step: s, who: NodePerformingAgent(t) }]"),
        (false, "process: p\nsteps: [{ parallel: s, branches: [{}] }]"),
    ] {
        let (definition, findings) = yaml::parse(source);
        assert!(!findings.is_empty(), "{source}");
        assert_eq!(definition.is_some(), whole, "{source}");
    }
}

#[test]
fn a_block_is_one_of_four() {
    assert_snapshot!(in_steps(
        "  - name: x\n  - stpe: y\n  - step: a\n    loop: b\n  - just text\n  -\n"
    ), @r"
    4:5 Y2 this is neither a step nor a parallel, a choice or a loop -- begin it with `step:`, `parallel:`, `choice:` or `loop:`
    5:5 Y2 this is neither a step nor a parallel, a choice or a loop -- did you mean `step`?
    6:5 Y2 a block cannot be `step` and `loop` -- make them two blocks, each with its own `-`
    8:5 Y2 a block must be a mapping of fields, not text -- write `field: value`, one on each line
    9:4 Y2 a block must be a mapping of fields, not nothing -- write `field: value`, one on each line
    ");
}

#[test]
fn a_demand_of_a_job_is_a_number_or_an_element() {
    assert_snapshot!(in_steps(
        "  - { step: a, who: Agent(), size: 3, priority: 1, timeout: 1s }\n  \
         - { step: b, job: j, size: 0, priority: 10, timeout: soon }\n  \
         - { step: c, job: j, size: 1.5, priority: [1], undo: { job: k, size: 2 } }\n"
    ), @r#"
        4:30 Y2 step `a` is done by a person: `size` is for jobs -- leave `size` out, or write `job:` instead of `who:`
        4:39 Y2 step `a` is done by a person: `priority` is for jobs -- leave `priority` out, or write `job:` instead of `who:`
        4:52 Y2 step `a` is done by a person: `timeout` is for jobs -- leave `timeout` out, or write `job:` instead of `who:`
        5:30 Y3 `size` of step `b` cannot be `0` -- write a whole number from 1 to 1000000000
        5:43 Y3 `priority` of step `b` cannot be `10` -- write a whole number from 0 to 9
        5:56 Y2 `timeout` of step `b` is not a length of time: `soon` -- write a number and its unit: 500ms, 30s, 15m, 8h or 2d
        6:30 Y2 `size` of step `c` cannot be a number -- write a whole number, or the name of an element that it reads
        6:45 Y2 `priority` of step `c` cannot be a list -- write a whole number, or the name of an element that it reads
        6:66 Y2 `undo` of step `c` has no field `size` -- fields of `undo` of step `c` are `who`, `job` and `retry`
        "#);
}

#[test]
fn a_step_is_done_by_a_person_or_by_a_program() {
    assert_snapshot!(in_steps(
        "  - step: a\n  - { step: b, who: Agent(), job: j }\n  \
         - { step: c, who: Agent(), retry: { times: 1 } }\n  \
         - { step: d, job: j, retry: { times: -1, pause: 10, often: 3 } }\n  \
         - { step: e, job: j, retry: often, takes: 15, undo: { step: x } }\n  \
         - { step: f, job: j, takes: 90000d, undo: cancel, at: 7 }\n"
    ), @r#"
    4:5 Y2 nobody does step `a` -- write `who:` if a person does it (`who: Role(clerk)`), `job:` if a program does
    5:35 Y2 step `b` has both `who` and `job` -- keep `who` if a person does it, `job` if a program does
    6:30 Y2 step `c` is done by a person: `retry` is for jobs -- leave `retry` out, or write `job:` instead of `who:`
    7:40 Y3 `times` of `retry` of step `d` cannot be `-1` -- write a whole number from 0 to 1000
    7:51 Y2 `pause` of `retry` of step `d` is not a length of time: `10` -- write a number and its unit: 500ms, 30s, 15m, 8h or 2d
    7:55 Y2 `retry` of step `d` has no field `often` -- fields of `retry` of step `d` are `times` and `pause`
    8:31 Y2 `retry` of step `e` must be a mapping of fields, not text -- write `field: value`, one on each line
    8:45 Y2 `takes` of step `e` is not a length of time: `15` -- write a number and its unit: 500ms, 30s, 15m, 8h or 2d
    8:55 Y2 nobody does `undo` of step `e` -- write `who:` if a person does it (`who: Role(clerk)`), `job:` if a program does
    8:57 Y2 `undo` of step `e` has no field `step` -- fields of `undo` of step `e` are `who`, `job` and `retry`
    9:31 Y3 `takes` of step `f` is longer than a hundred years -- write a shorter one
    9:45 Y2 `undo` of step `f` must be a mapping of fields, not text -- write `field: value`, one on each line
    9:57 Y2 `at` of step `f` must be text, not a number -- put it into quotes: "7"
    "#);
}

#[test]
fn assignment_rules_are_read_and_their_mistakes_placed() {
    assert_snapshot!(in_steps(
        "  - { step: a, who: Role clerk }\n  - { step: b, who: \"Role(clerk) AND\" }\n  \
         - step: c\n    who: Rol(clerk)\n  - step: d\n    who: Role(a) EXCEPT Role(b) EXCEPT Role(c)\n  \
         - step: e\n    who: 'OrgUnitOf(clerk)'\n  - step: f\n    who: banana\n  \
         - step: g\n    who: |\n      Role(a)\n      OR OR\n"
    ), @r"
    4:26 Z1 `who` of step `a`: at column 6: expected `(`, found `clerk` -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    5:37 Z1 `who` of step `b`: at column 16: expected a form such as Role(…), or `(`, found the end -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    7:10 Z1 `who` of step `c`: at column 1: there is no form `Rol`; did you mean `Role`? -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    9:33 Z1 `who` of step `d`: at column 24: put parentheses around what stands before the second EXCEPT -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    11:21 Z1 `who` of step `e`: at column 11: expected NodePerformingAgent(…), found `clerk` -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    13:10 Z1 `who` of step `f`: at column 1: expected a form: Agent, Role, OrgUnit, OrgPosition, Ability, NodePerformingAgent, OrgUnitOf, ManagerOf or StartingAgent, found `banana` -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    16:7 Z1 `who` of step `g`: at column 12: expected a form such as Role(…), or `(`, found `OR` -- write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` or `Role(manager) EXCEPT NodePerformingAgent(capture)`
    ");
}

#[test]
fn parallels_and_choices_have_branches_each_with_its_name_and_guard() {
    assert_snapshot!(in_steps(
        "  - parallel: a\n  - { parallel: b, branches: [] }\n  - { parallel: c, branches: [{}] }\n  \
         - { parallel: d, branches: [{ when: done }, { name: x }, { name: x }] }\n  \
         - { parallel: e, branches: { x: 1 } }\n"
    ), @r"
    4:5 K1 parallel `a` has no branches -- write `branches:` with at least two branches
    5:30 K1 parallel `b` has no branches -- add a branch (it may be without steps), or write the steps without it
    6:30 K1 parallel `c` has only one branch -- add a branch (it may be without steps), or write the steps without it
    7:33 K6 branch 1 of parallel `d` cannot have `when` -- all branches of a parallel run; use a `choice`
    7:68 K6 two branches of parallel `d` are named `x`, one at 7:55 -- rename one of them
    8:30 Y2 `branches` of parallel `e` must be a list, not a mapping -- write a list: `- name: …` with `steps:` below
    ");
    assert_snapshot!(in_steps(
        "  - choice: a\n    branches:\n      - name: x\n      - when: amount <\n      \
         - { when: done, otherwise: true }\n      - otherwise: false\n      - when:\n"
    ), @r"
    6:9 K6 nothing says when branch `x` of choice `a` is taken -- write `when:` with a condition, or `otherwise: true`; if a person decides, write `who:` at the choice
    7:23 K6 `when` of branch 2 of choice `a`: syntax error at line 1, column 9: mismatched input '<EOF>' -- write, for example, `amount < 1000 && !approved`
    8:34 K6 branch 3 of choice `a` has both `when` and `otherwise` -- keep one of them
    9:20 Y2 `otherwise` of branch 4 of choice `a` can only be true -- write `otherwise: true`, or a condition after `when:`
    10:9 Y2 `when` of branch 5 of choice `a` must be text, not nothing -- write a text after the `:`, or leave the field out
    ");
    assert_snapshot!(in_steps(
        "  - choice: a\n    reads: [amount]\n    branches:\n      - { name: x, when: done }\n      \
         - { name: x, otherwise: true }\n      - { name: y, otherwise: true }\n"
    ), @r"
    5:5 Y2 choice `a` has `reads`, but nobody to decide -- leave it out (conditions name what they read), or write `who:`
    8:17 K6 two branches of choice `a` are named `x`, one at 7:17 -- rename one of them
    9:31 K6 a choice can have one `otherwise` only -- write `when:` with a condition instead
    ");
    assert_snapshot!(in_steps(
        "  - choice: a\n    who: Role(clerk)\n    branches:\n      - { title: X }\n      \
         - { name: y, when: done, step: [] }\n"
    ), @r"
    7:9 K6 branch 1 of choice `a` has no name -- write `name:`; it is what the person answers
    8:20 K6 branch `y` of choice `a` cannot have `when` -- here a person decides; leave the condition out
    8:32 Y2 branch `y` of choice `a` has no field `step` -- did you mean `steps`?
    ");
}

#[test]
fn a_loop_has_a_body_and_one_way_to_end() {
    assert_snapshot!(in_steps(
        "  - loop: a\n    steps: []\n  - loop: b\n    until: done\n    who: Agent()\n    steps:\n      \
         - { step: x, job: j }\n  - loop: c\n    until: done\n    max: 0\n    takes: 1h\n  \
         - loop: d\n    until: done &&\n    max: many\n    steps: x\n"
    ), @r"
    4:5 K5 nothing says when loop `a` ends -- write `until:` with a condition, or `who:` if a person decides
    5:12 Y2 loop `a` repeats nothing -- write at least one step
    8:10 K5 loop `b` has both `until` and `who` -- keep one of them
    11:5 Y2 loop `c` needs `steps` -- write `steps:` and, below, what is repeated
    13:10 Y3 `max` of loop `c` cannot be `0` -- write a whole number from 1 to 1000000
    14:5 Y2 loop `c` has `takes`, but nobody to decide -- leave it out, or write `who:`
    16:19 K5 `until` of loop `d`: syntax error at line 1, column 8: mismatched input '<EOF>' -- write, for example, `amount < 1000 && !approved`
    17:10 Y2 `max` of loop `d` must be a whole number, not text -- write a whole number from 1 to 1000000
    18:12 Y2 `steps` of loop `d` must be a list, not text -- write a list of `- step: …`, or `[]` for nothing to do
    ");
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once() {
    assert_snapshot!(findings(
        "process: Loan\ndata:\n  amount: decimel\n  approved: bool\nstart: [amount, applicant]\n\
         steps:\n  - step: capture\n    whom: Role(clerk)\n    reads: [amuont]\n  \
         - choice: route\n    branches:\n      - when: approved\n        steps:\n          \
         - step: capture\n            job: pay\n            takes: soon\n"
    ), @r"
    1:10 Y2 the name of the process cannot be `Loan` -- a name begins with a letter a-z and goes on with a-z, 0-9, `-` and `_`
    3:11 D3 element `amount`: there is no type `decimel` -- did you mean `decimal`?
    5:17 D1 there is no data element `applicant` -- declare it under `data:`, with its type
    8:5 Y2 step `capture` has no field `whom` -- did you mean `who`?
    9:13 D1 there is no data element `amuont` -- did you mean `amount`?
    12:7 K1 choice `route` has only one branch -- add a branch (it may be without steps), or write the steps without it
    14:19 Y2 the step at 7:11 is named `capture` too -- rename one of them: steps, parallels, choices and loops share their names
    16:20 Y2 `takes` of step `capture` is not a length of time: `soon` -- write a number and its unit: 500ms, 30s, 15m, 8h or 2d
    ");
}
