//! Conditions are untrusted: reading and evaluating them ends soon, never panics and never
//! overflows the stack, whatever the text and the values.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use legwork_model::arbitrary::cases;
use legwork_model::condition::{
    BRACKETS_MAX, Condition, ConditionError, OPERATORS_MAX, SOURCE_BYTES_MAX, WORK_MAX,
};
use legwork_model::time::Timestamp;
use legwork_model::value::{FileRef, Value, ValueType};
use proptest::prelude::*;

/// Half of the default stack of a thread.
const STACK_BYTES: usize = 1024 * 1024;
/// Far above the usual time, far below what could pass for a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads, checks and evaluates a condition on a small stack; returns how far it got.
fn survive(source: &str, values: &BTreeMap<&'static str, Value>) -> Result<bool, ConditionError> {
    let started = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let work = || {
            let condition = Condition::parse(source)?;
            let _ = condition.problems(|name| values.get(name).map(Value::kind));
            condition.holds(|name| values.get(name))
        };
        let small = std::thread::Builder::new().stack_size(STACK_BYTES);
        let worker = small.spawn_scoped(scope, work);
        worker.map(std::thread::ScopedJoinHandle::join)
    });
    let taken = started.elapsed();
    let shown: String = source.chars().take(200).collect();
    assert!(taken < PATIENCE, "{taken:?}: {shown}");
    match outcome {
        Ok(Ok(outcome)) => outcome,
        wrong => unreachable!("{wrong:?}: {shown}"),
    }
}

fn some_values() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("a", Value::Int(1)),
        ("x", Value::Bool(true)),
        ("s", Value::String("text".to_owned())),
        ("j", Value::Json(r#"{"k":[1,2,{"l":null}],"b":{"b":{}}}"#.to_owned())),
    ])
}

#[test]
fn huge_and_deep_texts_are_refused_before_they_are_parsed() {
    let many = 100_000;
    let values = some_values();
    for source in [
        "(".repeat(many) + "x" + &")".repeat(many),
        "[".repeat(many),
        "!".repeat(many) + "x",
        "-".repeat(many) + "1",
        "a".to_owned() + &".b".repeat(many),
        "x ? (".repeat(many) + "x",
        "x ? x : ".repeat(many) + "x",
        "x && ".repeat(many) + "x",
        "a".to_owned() + &" in a".repeat(many),
        "x".repeat(many),
    ] {
        let refusal = survive(&source, &values);
        assert_eq!(refusal, Err(ConditionError::TooLong { bytes: source.len() }));
    }
}

#[test]
fn texts_at_the_limits_fit_on_half_a_stack() {
    let values = some_values();
    let (deep, long) = (BRACKETS_MAX, OPERATORS_MAX);
    for (source, survives) in [
        ("(".repeat(deep) + "x" + &")".repeat(deep), true),
        ("(".repeat(deep + 1) + "x" + &")".repeat(deep + 1), false),
        ("!(".repeat(deep) + "x" + &")".repeat(deep), true),
        ("x ? (".repeat(deep) + "x" + &") : x".repeat(deep), true),
        ("!".repeat(long) + "x", true),
        ("!".repeat(long + 1) + "x", false),
        ("-".repeat(long - 1) + "1 < 2", true),
        ("x && ".repeat(long) + "x", true),
        ("x || ".repeat(long) + "x", true),
        ("x == ".repeat(long) + "x", true),
        ("x != ".repeat(long) + "x", true),
        ("1".to_owned() + &" - 1".repeat(long - 1) + " < 1", true),
        ("1".to_owned() + &" + 1".repeat(long - 1) + " < 1", false),
        ("x ? x : ".repeat(deep) + "x", true),
        ("x ? x : ".repeat(long) + "x", false),
        ("[".repeat(deep) + "1" + &"]".repeat(deep) + " == 1", true),
        ("size(".repeat(deep) + "s" + &")".repeat(deep) + " == 1", false),
        ("j".to_owned() + &".b".repeat(long - 1) + " == 1", false),
        ("j".to_owned() + &"[0]".repeat(deep) + " == 1", false),
        ("a".to_owned() + &" in a".repeat(long), false),
        ("'".to_owned() + &"(".repeat(deep) + "' == s", true),
        ("a in [".to_owned() + &"0,".repeat(SOURCE_BYTES_MAX / 2 - 10) + "1]", true),
    ] {
        let outcome = survive(&source, &values);
        assert_eq!(outcome.is_ok(), survives, "{outcome:?}: {source}");
    }
}

#[test]
fn loops_that_would_take_too_long_are_refused() {
    let list = |items: usize| Value::Json(format!("[{}1]", "1,".repeat(items - 1)));
    let text = Value::String("x".repeat(200_000));
    let values = BTreeMap::from([("long", list(120_000)), ("short", list(100)), ("text", text)]);
    for (source, admitted) in [
        ("long.all(n, n == 1)", true),
        ("size(long.filter(n, n > 0)) > 5", true),
        ("long.exists(n, n in short)", false),
        ("short.all(n, n in short)", true),
        ("short.exists(n, n in long)", false),
        ("long.all(n, n == size(text))", false),
        ("short.all(n, n == size(text))", true),
        ("long.exists(n, n in [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17])", false),
    ] {
        match survive(source, &values) {
            Ok(_) => assert!(admitted, "{source}"),
            Err(ConditionError::TooMuchWork { work }) => {
                assert!(!admitted && work > WORK_MAX, "{source}: {work}");
            }
            Err(other) => unreachable!("{source}: {other}"),
        }
    }
}

#[test]
fn moments_at_the_ends_of_time_do_not_overflow() {
    for millis in [i64::MIN, i64::MAX, -62_135_596_800_000, 253_402_300_799_999, 0] {
        let values = BTreeMap::from([("due", Value::DateTime(Timestamp(millis)))]);
        for source in [
            "due + duration('2562047h') > due",
            "due - duration('2562047h') < due",
            "due - timestamp('2026-01-01T00:00:00Z') > duration('0s')",
            "due.getDayOfYear() == 0 || due.getDayOfYear('-23:59') == 0",
            "due.getFullYear('Pacific/Kiritimati') > 0",
            "string(due) == ''",
            "int(due) > 0",
        ] {
            let _ = survive(source, &values);
        }
    }
}

/// Pieces that make expressions, and pieces that break them.
const PIECES: [&str; 64] = [
    "a",
    "x",
    "s",
    "j",
    "due",
    "money",
    "file",
    "none",
    "j.k",
    "j['k']",
    "file.size",
    "1",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "1e308",
    "'t'",
    "\"\"",
    "null",
    "true",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "?",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    " in ",
    "size(",
    "has(",
    ".all(x, ",
    ".exists(y, ",
    ".exists_one(x, ",
    ".filter(x, ",
    ".size()",
    ".contains('t')",
    "timestamp(",
    "duration('1h')",
    "duration(",
    ".getHours()",
    "int(",
    "double(",
    "string(",
    "'\\",
    "ä",
];

fn source() -> impl Strategy<Value = String> {
    let pieces = proptest::collection::vec(proptest::sample::select(&PIECES[..]), 1..24);
    let sound = proptest::sample::select(vec![
        "a < 5 && (s == 't' || x) ? money >= 1.5 : j.k.exists(y, y == a)",
        "due + duration('1h') < timestamp('2026-01-01T00:00:00Z') && file.size in [1, 2]",
        "size(j.k.filter(y, y != null && y > a)) % 2 == 0",
    ]);
    let edits = proptest::collection::vec((any::<proptest::sample::Index>(), any::<char>()), 0..4);
    let mutated = (sound, edits).prop_map(|(sound, edits)| {
        let mut text: Vec<char> = sound.chars().collect();
        for (place, with) in edits {
            let place = place.index(text.len());
            let _ = if with.is_ascii() {
                std::mem::replace(&mut text[place], with)
            } else {
                text.remove(place)
            };
        }
        text.into_iter().collect()
    });
    prop_oneof![
        4 => pieces.prop_map(|pieces| pieces.concat()),
        2 => mutated,
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (any::<i64>(), 0_u32..=28)
            .prop_map(|(digits, scale)| Value::Decimal(rust_decimal::Decimal::new(digits, scale))),
        any::<String>().prop_map(Value::String),
        any::<i64>().prop_map(|millis| Value::DateTime(Timestamp(millis))),
        prop_oneof![
            Just(r#"{"k":[1,{"l":null},"t",-2.5e300],"":{}}"#.to_owned()),
            Just("[[[]],{}]".to_owned()),
            Just("not json".to_owned()),
            any::<f64>().prop_map(|number| number.to_string()),
        ]
        .prop_map(Value::Json),
        (any::<u64>(), any::<String>()).prop_map(|(size, name)| {
            Value::File(Box::new(FileRef { blob: [7; 32], size, media_type: name.clone(), name }))
        }),
    ]
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn any_text_over_any_values_is_answered_or_refused(
        source in source(),
        given in proptest::collection::vec(proptest::option::of(value()), 8),
    ) {
        let names = ["a", "x", "s", "j", "due", "money", "file", "none"];
        let values: BTreeMap<&str, Value> =
            names.into_iter().zip(given).filter_map(|(name, value)| Some((name, value?))).collect();
        let _ = survive(&source, &values);
    }

    /// A condition that passes the check of types fails at run time only because of its values, not
    /// its types.
    #[test]
    fn a_sound_condition_yields_true_or_false_or_fails_for_its_values(source in source()) {
        let values = BTreeMap::from([
            ("a", Value::Int(3)),
            ("x", Value::Bool(true)),
            ("s", Value::String("t".to_owned())),
            ("due", Value::DateTime(Timestamp(0))),
            ("money", Value::Decimal(rust_decimal::Decimal::new(150, 2))),
        ]);
        let Ok(condition) = Condition::parse(&source) else { return Ok(()) };
        let kind_of = |name: &str| -> Option<ValueType> { values.get(name).map(Value::kind) };
        if condition.problems(kind_of).is_empty() {
            let outcome = condition.holds(|name| values.get(name));
            let not_bool = matches!(outcome, Err(ConditionError::NotBool { .. }));
            prop_assert!(!not_bool, "{}: {:?}", source, outcome);
        }
    }
}
