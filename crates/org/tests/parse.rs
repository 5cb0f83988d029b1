//! Organisation files, good and bad: what is read, and what every mistake is answered with.
//!
//! A file with an error gives no organisation, and all of its errors at once.

use legwork_model::id::AgentId;
use legwork_org::{AGENTS_MAX, NAMES_MAX, Organisation, UNIT_DEPTH_MAX, UNITS_MAX};

fn findings(source: &str) -> String {
    let (organisation, findings) = Organisation::parse(source);
    assert_eq!(organisation.is_some(), findings.is_empty(), "{findings:?}");
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
            hint: name somebody else, or leave `substitutes` out
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
