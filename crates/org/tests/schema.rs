//! The JSON Schema of organisation files agrees with the reader.
//!
//! The schema accepts what the reader accepts, and refuses what is wrong in form. Only the reader
//! checks whether names exist.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use legwork_model::finding::{Finding, Rule, Severity};
use legwork_model::time::Timestamp;
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Content, Node, ScalarKind};
use legwork_org::{Organisation, json_schema};
use proptest::prelude::*;
use serde_json::Value;

fn to_json(node: &Node) -> Value {
    match &node.content {
        Content::Scalar(scalar) => match scalar.kind {
            ScalarKind::Null => Value::Null,
            ScalarKind::Bool => Value::Bool(scalar.text.to_lowercase() == "true"),
            ScalarKind::Int | ScalarKind::Float => {
                serde_json::from_str(&scalar.text).unwrap_or(Value::from(0))
            }
            ScalarKind::Text => Value::from(scalar.text.as_str()),
        },
        Content::List(items) => items.iter().map(to_json).collect(),
        Content::Mapping(entries) => {
            let text = |node: &Node| node.scalar().map(|key| key.text.clone()).unwrap_or_default();
            entries.iter().map(|(key, value)| (text(key), to_json(value))).collect()
        }
    }
}

/// Whether the reader and the schema find nothing wrong in form.
fn judge(source: &str) -> (bool, bool) {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let root = tree::read(source, &mut Report::default()).unwrap();
    let (_, findings) = Organisation::parse(source);
    let sound = findings.iter().all(|finding| finding.rule == Rule::Z1);
    (sound, schema.is_valid(&to_json(&root)))
}

#[test]
fn schema_and_reader_agree_on_agents() {
    for (good, agents) in [
        (true, "{}"),
        (true, "{ ann: , ben@x.org: {}, 'C.3': { name: C } }"),
        (true, "{ ann: { positions: [p], roles: [r], abilities: [a], substitutes: [ben] } }"),
        (true, "{ ann: { absent: [{ from: 2026-01-01 }] } }"),
        (true, "{ ann: { absent: [{ from: 2026-01-01, to: 2026-02-01T08:00:00Z }] } }"),
        (true, "{ ann: { calendar: c, share: 50, mail: ann@clinic.example } }"),
        (true, "{ ann: { regularly: [{ task: round, at: 0 8 * * mon-fri, takes: 1h }] } }"),
        (true, "{ ann: { regularly: [{ task: t, every: 2d, takes: 30m, from: 2026-01-05 }] } }"),
        (false, "{ ann: { share: 0 } }"),
        (false, "{ ann: { share: 101 } }"),
        (false, "{ ann: { share: half } }"),
        (true, "{ ann: { reserve: 0 } }"),
        (true, "{ ann: { share: 80, reserve: 90 } }"),
        (false, "{ ann: { reserve: 91 } }"),
        (false, "{ ann: { reserve: 10 % } }"),
        (true, "{ ann: { mail: o'neil.b+c@mail-1.clinic.example } }"),
        (false, "{ ann: { mail: ann } }"),
        (false, "{ ann: { mail: ann@-x } }"),
        (false, "{ ann: { mail: ann@x- } }"),
        (false, "{ ann: { mail: a..b@x } }"),
        (false, "{ ann: { mail: ann@x..y } }"),
        (false, "{ ann: { mail: 'ann@b, ben@c' } }"),
        (false, "{ ann: { regularly: [{ task: t, at: 0 8 * *, takes: 1h }] } }"),
        (false, "{ ann: { regularly: [{ task: t, every: often, takes: 1h }] } }"),
        (false, "{ ann: { regularly: [{ task: t, every: 1d }] } }"),
        (false, "{ ann: { regularly: [{ task: t, takes: 1h }] } }"),
        (false, "{ ann: { regularly: [{ every: 1d, takes: 1h }] } }"),
        (false, "{ ann: { regularly: [{ task: t, at: 0 8 * * *, every: 1d, takes: 1h }] } }"),
        (
            false,
            "{ ann: { regularly: [{ task: t, at: 0 8 * * *, from: 2026-01-01, takes: 1h }] } }",
        ),
        (false, "[]"),
        (false, "{ 'a b': {} }"),
        (false, "{ -a: {} }"),
        (false, "{ ann: [] }"),
        (false, "{ ann: { title: x } }"),
        (false, "{ ann: { name: '' } }"),
        (false, "{ ann: { roles: r } }"),
        (false, "{ ann: { roles: [1] } }"),
        (false, "{ ann: { roles: [r, r] } }"),
        (false, "{ ann: { absent: [{ to: 2026-01-01 }] } }"),
        (false, "{ ann: { absent: [{ from: tomorrow }] } }"),
        (false, "{ ann: { absent: [{ from: 2026-01-01, until: 2026-02-01 }] } }"),
    ] {
        let source = format!("organisation: x\nagents: {agents}\n");
        assert_eq!(judge(&source), (good, good), "{source}");
    }
}

#[test]
fn schema_and_reader_agree_on_what_is_not_of_an_agent() {
    for (good, rest) in [
        (true, "units: { u: , v: { in: u, manager: m, title: V } }"),
        (true, "positions: { p: { unit: u, roles: [r], title: P } }"),
        (true, "calendars: { c: { zone: Europe/Berlin } }"),
        (true, "calendars: { c: { zone: UTC, hours: { mon-fri: '08:00-12:00 12:30-16:30' } } }"),
        (true, "calendars: { c: { zone: UTC, hours: { 'mon, Wed': '22:00-6:00' } } }"),
        (true, "calendars: { c: { zone: UTC, closed: [2026-12-25] } }"),
        (true, "calendars: { c: { zone: UTC, closed: [{ from: 2026-12-25, to: 2026-12-26 }] } }"),
        (false, "calendars: { c: }"),
        (false, "calendars: { c: {} }"),
        (false, "calendars: { c: { zone: UTC, hours: {} } }"),
        (false, "calendars: { c: { zone: UTC, hours: { mo-fr: '08:00-12:00' } } }"),
        (false, "calendars: { c: { zone: UTC, hours: { mon: 8-12 } } }"),
        (false, "calendars: { c: { zone: UTC, closed: [2026-12-25T00:00:00Z] } }"),
        (false, "calendars: { c: { zone: UTC, closed: [{ from: 2026-12-25 }] } }"),
        (false, "calendars: { c: { zone: UTC, open: always } }"),
        (false, "positions: { p: }"),
        (false, "units: { u: { unit: v } }"),
        (false, "people: {}"),
    ] {
        let source = format!("organisation: x\nagents: {{}}\n{rest}\n");
        assert_eq!(judge(&source), (good, good), "{source}");
    }
    assert_eq!(judge("organisation: x\n"), (false, false));
    assert_eq!(judge("agents: {}\n"), (false, false));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        noise in "[ \\na-z:{}\\[\\],'\"&*!/@0-9-]{0,60}",
        cut in 0..600_usize,
    ) {
        let whole = "organisation: x\nunits:\n  u: { in: v, manager: ann }\n  v: {}\npositions:\n  \
                     p: { unit: u, roles: [r] }\ncalendars:\n  c: { zone: Europe/Berlin, hours: { \
                     mon-fri: '08:00-12:00 12:30-16:30', sat: '22:00-02:00' }, closed: [2026-12-25, \
                     { from: 2026-12-31, to: 2027-01-01 }] }\nagents:\n  ann: { positions: [p], \
                     calendar: c, share: 50, mail: ann@x.org, regularly: [{ task: a, at: '0 8 * * \
                     mon-fri', takes: 1h }, { task: b, every: 2d, takes: 30m, from: 2026-01-05 }], \
                     substitutes: [ben], absent: [{ from: 2026-01-01, to: 2026-02-01 }] }\n  ben:\n";
        let cut = cut.min(whole.len());
        let source = format!("{}{noise}{}", &whole[..cut], &whole[cut..]);
        let (organisation, findings) = Organisation::parse(&source);
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        prop_assert_eq!(organisation.is_none(), findings.iter().any(is_error));
        let known = organisation.as_ref().and_then(|known| known.working_time(&"ann".into()));
        if let Some(time) = known {
            let (from, to) = (Timestamp(1_700_000_000_000), Timestamp(1_701_000_000_000));
            prop_assert!(time.spans_between_appointments(from, to).count() < 1_000);
            prop_assert!(time.occurrences(from, to).count() < 50_000);
        }
    }
}
