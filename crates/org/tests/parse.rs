//! Organisation files, good and bad: what is read, and how each mistake is reported.
//!
//! A file with an error gives no organisation, and all of its errors at once.

use legwork_model::address::ADDRESS_BYTES_MAX;
use legwork_model::finding::{Finding, Severity};
use legwork_model::id::AgentId;
use legwork_org::{
    AGENTS_MAX, CALENDARS_MAX, CLOSED_MAX, NAMES_MAX, Organisation, REGULAR_MAX, SPANS_PER_DAY_MAX,
    UNIT_DEPTH_MAX, UNITS_MAX,
};

fn findings(source: &str) -> String {
    let (organisation, findings) = Organisation::parse(source);
    let is_error = |finding: &Finding| finding.severity == Severity::Error;
    assert_eq!(organisation.is_none(), findings.iter().any(is_error), "{findings:?}");
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_organisation_is_read_with_all_that_is_said_of_it() {
    let (organisation, findings) = Organisation::parse(
        "organisation: general-hospital
units:
  hospital: { title: General Hospital, manager: dr-weber }
  oncology: { in: hospital, manager: dr-lang }
positions:
  ward-nurse: { unit: oncology, roles: [nurse] }
agents:
  dr-weber:
  dr-lang: { name: Dr Lang }
  ann:
    name: Ann Berger
    positions: [ward-nurse]
    roles: []
    abilities: [chemotherapy]
    substitutes: [ben@example.org]
    absent:
      - { from: 2026-12-20, to: 2027-01-06 }
      - { from: 2027-05-01T12:00:00+02:00, to: 2027-05-02T08:00:00Z }
      - from: 2028-01-01
  ben@example.org: {}
",
    );
    assert!(findings.is_empty(), "{findings:?}");
    let organisation = organisation.unwrap();
    assert_eq!(&**organisation.name(), "general-hospital");
    let ids: Vec<&str> = organisation.agents().iter().map(|agent| agent.id.as_str()).collect();
    assert_eq!(ids, ["ann", "ben@example.org", "dr-lang", "dr-weber"]);
    let ann = organisation.agent(&"ann".into()).unwrap();
    assert_eq!(ann.name, "Ann Berger");
    assert_eq!(ann.substitutes, [AgentId::from("ben@example.org")]);
    let periods: Vec<String> = ann
        .absent
        .iter()
        .map(|period| {
            let to = period.to.map_or("…".to_owned(), |to| to.to_string());
            format!("{} to {to}", period.from)
        })
        .collect();
    assert_eq!(
        periods,
        [
            "2026-12-20T00:00:00.000Z to 2027-01-07T00:00:00.000Z",
            "2027-05-01T10:00:00.000Z to 2027-05-02T08:00:00.000Z",
            "2028-01-01T00:00:00.000Z to …",
        ]
    );
    assert_eq!(organisation.agent(&"dr-weber".into()).unwrap().name, "dr-weber");
    let units: Vec<&str> = organisation.units().map(|unit| &*unit.name).collect();
    assert_eq!(units, ["hospital", "oncology"]);
    assert_eq!(organisation.positions().count(), 1);
    let nurses: Vec<String> =
        organisation.roles().map(|(role, set)| format!("{role} {set:?}")).collect();
    assert_eq!(nurses, [r#"nurse {"ann"}"#]);
    assert_eq!(organisation.abilities().count(), 1);
}

#[test]
fn all_mistakes_are_told_at_once_with_their_places() {
    insta::assert_snapshot!(findings(
        "organisation: general hospital
units:
  hospital: { manger: weber }
  oncology: { in: hospitol, manager: lang }
positions:
  ward-nurse: { roles: [nurse, nurse] }
  clerk: { unit: oncolgy, roles: nurse }
agents:
  ann: { positions: [ward-nurze], substitutes: [ann, bem] }
  ben: { absent: [{ from: 2026-13-01 }, { from: 2026-02-01, to: 2026-01-01 }, { to: tomorrow }] }
  ben: {}
  7: {}
  -x: {}
"
    ), @r#"
        1:15: error Y2: the name of the organisation cannot be `general hospital`
            hint: a name begins with a letter or a digit and goes on with letters a-z, digits, `-`, `_`, `.` and `@`
        3:15: error Y2: unit `hospital` has no field `manger`
            hint: did you mean `manager`?
        4:19: error Z1: there is no unit `hospitol`
            hint: did you mean `hospital`?
        4:38: error Z1: there is no agent `lang`
            hint: add it to `agents`, or name another
        6:3: error Y2: position `ward-nurse` needs `unit`
            hint: write `unit: ` and the unit it belongs to
        6:32: error Y2: `roles` of position `ward-nurse` names `nurse` twice
            hint: keep one of them
        7:18: error Z1: there is no unit `oncolgy`
            hint: did you mean `oncology`?
        7:34: error Y2: `roles` of position `clerk` must be a list, not text
            hint: write `roles: [ … ]`
        9:22: error Z1: there is no position `ward-nurze`
            hint: did you mean `ward-nurse`?
        9:35: error Y2: agent `ann` cannot stand in for themselves
            hint: name another agent, or leave `substitutes` out
        9:54: error Z1: there is no agent `bem`
            hint: did you mean `ben`?
        10:27: error Y2: `from` of an absence of agent `ben` cannot be `2026-13-01`
            hint: write a day such as 2026-12-20, or a moment such as 2026-12-20T08:00:00Z
        10:65: error Y2: an absence of agent `ben` ends before it begins
            hint: let `to` be later than `from`
        10:79: error Y2: an absence of agent `ben` needs `from`
            hint: write `from: ` and the first day
        11:3: error Y2: `ben` is written twice, first at 10:3
            hint: keep one of them
        12:3: error Y2: a number is not the name of a field
            hint: write `field: value`
        13:3: error Y2: the name of an agent cannot be `-x`
            hint: a name begins with a letter or a digit and goes on with letters a-z, digits, `-`, `_`, `.` and `@`
        "#);
}

#[test]
fn mistakes_in_calendars_are_told_at_their_columns() {
    insta::assert_snapshot!(findings(
        "organisation: x
calendars:
  berlin: { zone: Berlin, hours: { mon: 08:00-12:00 } }
  ward: { zone: Europe/Berlni, hours: { mon-fri: '08:00-12:00 12-16', fre: '08:00-12:00' } }
  night: { zone: UTC, hours: { sun: 22:00-06:00, mon: 05:00-09:00 } }
  twice: { zone: UTC, hours: { mon-fri: 08:00-12:00, fri: 14:00-16:00 } }
  never: { zone: UTC, hours: {} }
  closed: { zone: UTC, closed: [25.12., { from: 2026-12-31, to: 2026-12-01 }, { to: 2026-01-01 }] }
  nowhere: { hours: { mon: 08:00-12:00 } }
agents:
  ann: { calendar: wart, share: 150, mail: ann at clinic }
  ben: { share: 0, reserve: 91 }
  cleo: { reserve: 10 % }
"
    ), @r#"
        3:19: error Z1: there is no time zone `Berlin`
            hint: did you mean `Europe/Berlin`?
        4:17: error Z1: there is no time zone `Europe/Berlni`
            hint: did you mean `Europe/Berlin`?
        4:63: error Y2: `hours` of calendar `ward` on `mon-fri`: `12-16` is not a stretch of hours
            hint: write hours as in `08:00-12:00`, or `22:00-06:00` if they go on past midnight
        4:71: error Y2: `hours` of calendar `ward`: `fre` is not a day
            hint: name days as in `mon`, `mon-fri` or `mon,wed`
        5:55: error Y2: `hours` of calendar `night` on `mon`: `05:00-09:00` on mon lies across `22:00-06:00` on sun
            hint: let one end before the other begins
        6:54: error Y2: `hours` of calendar `twice` on `fri`: `fri` is named twice
            hint: write all hours of a day together
        7:30: error Y2: `hours` of calendar `never` name no hours
            hint: write hours such as `mon-fri: 08:00-16:30`, or leave `hours` out: then any hour will do
        8:33: error Y2: a day in `closed` of calendar `closed` cannot be `25.12.`
            hint: write a day such as 2026-12-25
        8:65: error Y2: an entry of `closed` of calendar `closed` ends before it begins
            hint: let `to` be no earlier than `from`
        8:79: error Y2: an entry of `closed` of calendar `closed` needs `from`
            hint: write both `from` and `to`, or a single day
        9:12: error Y2: calendar `nowhere` needs `zone`
            hint: write `zone: ` and the name of a time zone, such as Europe/Berlin
        11:20: error Z1: there is no calendar `wart`
            hint: did you mean `ward`?
        11:33: error Y3: `share` of agent `ann` cannot be `150`
            hint: write a whole number from 1 to 100
        11:44: error Y2: `mail` of agent `ann` cannot be `ann at clinic`
            hint: write one address, such as ann@clinic.example
        12:17: error Y3: `share` of agent `ben` cannot be `0`
            hint: write a whole number from 1 to 100
        12:29: error Y3: `reserve` of agent `ben` cannot be `91`
            hint: write a whole number from 0 to 90
        13:20: error Y2: `reserve` of agent `cleo` must be a whole number, not text
            hint: write a whole number from 0 to 90
        "#);
}

#[test]
fn mistakes_in_regular_tasks_are_told_at_their_columns() {
    insta::assert_snapshot!(findings(
        "organisation: x
agents:
  ben:
    regularly:
      - { task: round, at: \"0 8 * * mon-fry\", takes: 1h }
      - { task: round, at: 0 25 * * *, takes: 1h }
      - { task: night, at: 0 8 * * *, takes: 25h }
      - { task: report, every: 1h, takes: 2h }
      - { task: report, every: 400d, takes: 2h }
      - { task: report, takes: soon }
      - { task: report, every: 1d, at: 0 8 * * *, takes: 0s }
      - { every: 2d, from: monday }
"
    ), @r#"
        5:41: error Y2: `at` of `round` of agent `ben`: `fry` is no day of the week
            hint: did you mean `fri`?
        6:30: error Y2: `at` of `round` of agent `ben`: `25` is no hour
            hint: write numbers from 0 to 23, as in `*`, `*/5`, `1-5` or `1,3`
        7:46: error Y3: `night` of agent `ben` takes 25h, and may take 1d at most
            hint: let it be done in the time there is
        8:43: error Y3: `report` of agent `ben` takes 2h, and may take 1h at most
            hint: let it be done in the time there is
        9:32: error Y3: `every` of `report` of agent `ben` is longer than 366d
            hint: use `at` for rarer tasks
        10:9: error Y2: `report` of agent `ben` needs `at` or `every`
            hint: write `at: "0 8 * * mon-fri"` for an appointment, or `every: 2d`
        10:32: error Y2: `takes` of `report` of agent `ben` cannot be `soon`
            hint: write a length of time such as 30m, 8h or 2d; a minute at least
        11:9: error Y2: `report` of agent `ben` has both `at` and `every`
            hint: keep one of them
        11:58: error Y2: `takes` of `report` of agent `ben` cannot be `0s`
            hint: write a length of time such as 30m, 8h or 2d; a minute at least
        12:9: error Y2: a regular task of agent `ben` needs `takes`
            hint: write `takes: ` and how long it lasts, such as 30m
        12:9: error Y2: a regular task of agent `ben` needs `task`
            hint: write `task: ` and what is done
        12:28: error Y2: `from` of a regular task of agent `ben` cannot be `monday`
            hint: write a day such as 2026-12-20, or a moment such as 2026-12-20T08:00:00Z
        "#);
}

#[test]
fn what_is_too_large_is_told_with_a_way_to_make_it_smaller() {
    let huge = "organisation: x\n#".to_owned() + &"x".repeat(2 << 20);
    insta::assert_snapshot!(findings(&huge), @"
        0:0: error Y3: the file has more than 1 MiB
            hint: split a process into several; in an organisation, leave out what no rule speaks of and give roles to positions instead of everybody
        ");
}

#[test]
fn what_is_missing_is_told() {
    insta::assert_snapshot!(findings("units: {}\n"), @r#"
        1:1: error Y2: an organisation needs `agents`
            hint: write `agents:` and, below, a name for everybody
        1:1: error Y2: an organisation needs `organisation`
            hint: begin the file with `organisation: ` and a name
        "#);
    insta::assert_snapshot!(findings("organisation: x\n"), @r#"
        1:1: error Y2: an organisation needs `agents`
            hint: write `agents:` and, below, a name for everybody
        "#);
    insta::assert_snapshot!(findings(""), @r#"
        1:1: error Y2: the file is empty
            hint: begin it with `process: NAME`, `organisation: NAME` or `topology: NAME`
        "#);
    insta::assert_snapshot!(findings("[]"), @r#"
        1:1: error Y2: an organisation must be a mapping of fields, not a list
            hint: write `field: value`, one on each line
        "#);
}

#[test]
fn units_in_a_ring_are_refused_naming_the_ring_once() {
    insta::assert_snapshot!(findings(
        "organisation: x
units:
  a: { in: b }
  b: { in: c }
  c: { in: a }
  d: { in: a }
  e: { in: e }
agents: {}
"
    ), @r#"
        3:12: error Y2: the units form a ring: `a` in `b` in `c` in `a`
            hint: let one of them be in no other
        7:12: error Y2: the units form a ring: `e` in `e`
            hint: let one of them be in no other
        "#);
}

#[test]
fn substitutes_who_stand_in_only_for_each_other_are_a_warning() {
    insta::assert_snapshot!(findings(
        "organisation: x
agents:
  ann: { substitutes: [ben] }
  ben: { substitutes: [ann] }
  cora: { substitutes: [dan] }
  dan: { substitutes: [cora, eve] }
  eve: {}
  p1: { substitutes: [p2] }
  p2: { substitutes: [p3] }
  p3: { substitutes: [p4, p1] }
  p4: { substitutes: [p5] }
  p5: { substitutes: [p6] }
  p6: { substitutes: [p1] }
  p7: { substitutes: [p6] }
"
    ), @r#"
        3:10: warning Z7: `ann` and `ben` stand in only for each other: when all of them are away, nobody does
            hint: name another agent as a further substitute of one of them
        8:9: warning Z7: `p1`, `p2`, `p3`, `p4`, `p5` and 1 more stand in only for each other: when all of them are away, nobody does
            hint: name another agent as a further substitute of one of them
        "#);
    // One mistake at a time: cycles in broken files are not reported.
    let broken = "organisation: x\nagents:\n  ann: { substitutes: [ann, zoe] }\n";
    assert!(!findings(broken).contains("Z7"));
}

#[test]
fn more_warnings_than_can_be_told_are_still_no_error() {
    let pairs: String = (0..150)
        .map(|n| {
            format!("  a{n:03}: {{ substitutes: [b{n}] }}\n  b{n}: {{ substitutes: [a{n:03}] }}\n")
        })
        .collect();
    let (organisation, findings) =
        Organisation::parse(&format!("organisation: x\nagents:\n{pairs}"));
    assert!(organisation.is_some());
    assert!(findings.iter().all(|finding| finding.severity == Severity::Warning));
    assert!(findings.iter().any(|finding| finding.message == "50 more findings are not shown"));
}

#[test]
fn hostile_yaml_is_refused_with_a_finding() {
    let nested = format!("organisation: x\nagents: {}{}", "[".repeat(10_000), "]".repeat(10_000));
    let bomb = "organisation: x\nagents: &a [*a, *a]\n";
    let tag = "organisation: !!str x\nagents: {}\n";
    let huge = format!("organisation: x\nagents: {{}}\n#{}", "x".repeat(100 * 1024 * 1024));
    let second = "organisation: x\nagents: {}\n---\norganisation: y\n";
    for source in [&nested, bomb, tag, &huge, second, "\t: :", "a: 'b", "\u{0}"] {
        assert_ne!(findings(source), "", "{:.40}", source);
    }
}

#[test]
fn every_limit_has_its_own_finding() {
    let many = |count: usize, line: &dyn Fn(usize) -> String| {
        (0..count).map(line).collect::<Vec<_>>().join("\n")
    };
    let agents = many(AGENTS_MAX + 1, &|n| format!("  a{n}:"));
    let units = many(UNITS_MAX + 1, &|n| format!("  u{n}:"));
    let deep = many(UNIT_DEPTH_MAX + 1, &|n| format!("  u{n:03}: {{ in: u{:03} }}", n + 1));
    let roles = many(NAMES_MAX + 1, &|n| format!("      - r{n}"));
    let calendars = many(CALENDARS_MAX + 1, &|n| format!("  c{n}: {{ zone: UTC }}"));
    let closed = many(CLOSED_MAX + 1, &|_| "      - 2026-12-25".to_owned());
    let spans = many(SPANS_PER_DAY_MAX + 1, &|n| format!("        {n:02}:00-{n:02}:30"));
    let regular =
        many(REGULAR_MAX + 1, &|_| "      - { task: a, every: 1d, takes: 1h }".to_owned());
    let address = format!("{}@x.org", "x".repeat(ADDRESS_BYTES_MAX));
    let long = "x".repeat(65);
    for (source, expected) in [
        (format!("organisation: x\nagents:\n{agents}\n"), "more than 20000 agents"),
        (format!("organisation: x\nunits:\n{units}\nagents: {{}}\n"), "more than 5000 units"),
        (
            format!(
                "organisation: x\nunits:\n{deep}\n  u{:03}:\nagents: {{}}\n",
                UNIT_DEPTH_MAX + 1
            ),
            "more than 32 units lie above each other",
        ),
        (format!("organisation: x\nagents:\n  a:\n    roles:\n{roles}\n"), "more than 100"),
        (format!("organisation: {long}\nagents: {{}}\n"), "longer than 64 characters"),
        (
            format!("organisation: x\ncalendars:\n{calendars}\nagents: {{}}\n"),
            "more than 1000 calendars",
        ),
        (
            format!(
                "organisation: x\ncalendars:\n  c:\n    zone: UTC\n    closed:\n{closed}\n\
                 agents: {{}}\n"
            ),
            "`closed` of calendar `c` has more than 1000 entries",
        ),
        (
            format!(
                "organisation: x\ncalendars:\n  c:\n    zone: UTC\n    hours:\n      mon:\n{spans}\n\
                 agents: {{}}\n"
            ),
            "a day has more than 12 stretches of work",
        ),
        (
            format!("organisation: x\nagents:\n  a:\n    regularly:\n{regular}\n"),
            "`regularly` of agent `a` has more than 20 entries",
        ),
        (
            format!("organisation: x\nagents: {{ a: {{ mail: {address} }} }}\n"),
            "`mail` of agent `a` is longer than 254 characters",
        ),
    ] {
        let findings = findings(&source);
        assert!(findings.contains("error Y3"), "{findings}");
        assert!(findings.contains(expected), "{findings}");
    }
}

#[test]
fn thousands_of_unknown_names_are_answered_quickly_and_counted() {
    let agents = (0..3_000)
        .map(|n| format!("  agent-number-{n}: {{ substitutes: [agnet-number-{n}] }}"))
        .collect::<Vec<_>>()
        .join("\n");
    let findings = findings(&format!("organisation: x\nagents:\n{agents}\n"));
    assert!(findings.contains("did you mean `agent-number-0`?"), "{findings:.500}");
    assert!(findings.contains("2900 more findings are not shown"), "{findings:.500}");
}

#[test]
fn what_comes_up_all_day_is_refused_for_plans_are_made_of_it() {
    let source = |regularly: &str| {
        format!("organisation: x\nagents:\n  ben: {{ regularly: [{regularly}] }}\n")
    };
    let all_day = "{ task: bell, at: '* * * * *', takes: 1m }";
    let every_minute = "{ task: look, every: 1m, takes: 1m }";
    for (regularly, times) in [
        (all_day, "1440"),
        (every_minute, "1440"),
        ("{ task: a, at: '*/15 * * * *', takes: 1m }, { task: b, every: 7d, takes: 1h }", "97"),
    ] {
        let (organisation, findings) = Organisation::parse(&source(regularly));
        assert!(organisation.is_none());
        let message = format!(
            "`regularly` of agent `ben` comes up {times} times a day, and may 96 times at most"
        );
        assert_eq!(findings[0].message, message);
    }
    let enough = source("{ task: a, at: '*/15 * * * *', takes: 1m }");
    assert!(Organisation::parse(&enough).0.is_some());
}
