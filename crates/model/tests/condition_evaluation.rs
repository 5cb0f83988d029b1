//! The meaning of conditions over each type of data element, and the reasons for refusals.
//!
//! Each case is a condition, its elements, and the answer as text.

use std::collections::BTreeMap;

use legwork_model::condition::Condition;
use legwork_model::value::{Value, ValueType};
use serde_json::json;

/// The elements all cases share; `nothing` and `count_of_nothing` have no value.
const ELEMENTS: [(&str, ValueType); 11] = [
    ("ok", ValueType::Bool),
    ("count", ValueType::Int),
    ("amount", ValueType::Decimal),
    ("tenth", ValueType::Decimal),
    ("country", ValueType::String),
    ("due", ValueType::DateTime),
    ("order", ValueType::Json),
    ("list", ValueType::Json),
    ("report", ValueType::File),
    ("nothing", ValueType::String),
    ("count_of_nothing", ValueType::Int),
];

fn values() -> BTreeMap<&'static str, Value> {
    let order = json!({"state": "new", "total": 12.5, "lines": [{"price": 5}, {"price": 20}],
        "empty": null, "big": 9_000_000_000_000_000_000_u64, "huge": 18_000_000_000_000_000_000_u64});
    let report = json!({"blob": "00".repeat(32), "size": 2048, "name": "scan.pdf",
        "media_type": "application/pdf"});
    [
        ("ok", json!(true)),
        ("count", json!(7)),
        ("amount", json!("1000.00")),
        ("tenth", json!("0.1")),
        ("country", json!("DE")),
        ("due", json!("2026-03-01T09:30:00Z")),
        ("order", order),
        ("list", json!([3, 1, 2])),
        ("report", report),
    ]
    .into_iter()
    .filter_map(|(name, json)| Some((name, Value::from_json(kind_of(name)?, &json).ok()?)))
    .collect()
}

fn kind_of(name: &str) -> Option<ValueType> {
    ELEMENTS.iter().find(|(element, _)| *element == name).map(|(_, kind)| *kind)
}

fn answer(source: &str) -> String {
    let condition = match Condition::parse(source) {
        Ok(condition) => condition,
        Err(error) => return format!("refused: {error}"),
    };
    let problems = condition.problems(kind_of);
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return format!("unsound: {}", problems.join("; "));
    }
    let values = values();
    match condition.holds(|name| values.get(name)) {
        Ok(truth) => truth.to_string(),
        Err(error) => format!("failed: {error}"),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(answer(source), *expected, "{source}");
    }
}

#[test]
fn numbers_compare_by_value_whatever_their_type() {
    check(&[
        ("amount < 1000", "false"),
        ("amount <= 1000", "true"),
        ("amount == 1000", "true"),
        ("1000 == amount", "true"),
        ("1000.0 >= amount && 999 < amount", "true"),
        ("tenth == 0.1", "true"),
        ("tenth < 1 && tenth > 0", "true"),
        ("count > 6.5", "true"),
        ("count in [1, 7]", "true"),
        ("amount in [1, 1000]", "true"),
        ("count * 2 == 14 && count % 2 == 1 && -count < 0", "true"),
        ("amount * 2.0 > 1999.5", "true"),
        ("double(count) + tenth > 7.0", "true"),
    ]);
}

#[test]
fn other_types_compare_as_themselves() {
    check(&[
        ("ok", "true"),
        ("!ok || country == 'DE'", "true"),
        ("country in ['AT', 'CH']", "false"),
        ("country < 'E' && country.startsWith('D') && size(country) == 2", "true"),
        ("due < timestamp('2026-03-02T00:00:00Z')", "true"),
        ("due + duration('24h') > timestamp('2026-03-02T00:00:00+01:00')", "true"),
        ("due.getHours('Europe/Berlin') == 10", "true"),
        ("report.size > 1024 && report.media_type == 'application/pdf'", "true"),
        ("report.name.endsWith('.pdf')", "true"),
        ("ok ? count > 5 : false", "true"),
    ]);
}

#[test]
fn json_is_looked_into() {
    check(&[
        ("order.state == 'new'", "true"),
        ("order.total > 12", "true"),
        ("order['state'] == 'new'", "true"),
        ("has(order.state) && !has(order.missing)", "true"),
        ("order.empty == null", "true"),
        ("order.lines[1].price == 20", "true"),
        ("order.big > 5 && order.huge > order.big", "true"),
        ("order.lines.exists(line, line.price > 10)", "true"),
        ("order.lines.all(line, line.price > count)", "false"),
        ("list.exists_one(n, n > 2)", "true"),
        ("size(list.filter(n, n >= 2)) == 2", "true"),
        ("list == [3, 1, 2] && 2 in list", "true"),
    ]);
}

#[test]
fn an_element_without_a_value_is_null() {
    check(&[
        ("nothing == null", "true"),
        ("country != null", "true"),
        ("null == count_of_nothing || count_of_nothing < 5", "true"),
        ("count_of_nothing < 5 || count_of_nothing == null", "true"),
        ("count_of_nothing != null && count_of_nothing < 5", "false"),
        ("nothing == 'x'", "false"),
    ]);
}

#[test]
fn what_cannot_be_answered_is_an_error_that_says_why() {
    check(&[
        (
            "count_of_nothing < 5",
            "failed: `<` does not go with null_type and int (`count_of_nothing` without a value)",
        ),
        ("order.missing == 1", "failed: there is no field `missing`; ask with has(…) first"),
        ("list[3] == 1", "failed: the list has no item at that place"),
        ("count / 0 == 1", "failed: it divides by zero"),
        ("count % (count - 7) == 1", "failed: it divides by zero"),
        ("count + 9223372036854775807 > 0", "failed: the result of `add` is too large"),
        ("order.state", "failed: yields string, not true or false"),
        ("order.state && ok", "failed: `&&` does not go with string and bool"),
    ]);
}

#[test]
fn types_that_do_not_go_together_are_found_before_it_runs() {
    check(&[
        ("count == 'seven'", "unsound: int is compared with string"),
        ("country < 5", "unsound: string is compared with int"),
        ("due > '2026-03-01'", "unsound: date-time is compared with string"),
        ("ok == 1", "unsound: bool is compared with int"),
        ("count", "unsound: yields int, not true or false"),
        ("amount + 1.0", "unsound: yields decimal, not true or false"),
        (
            "amount * 2 > 5.0",
            "unsound: `*` does not mix decimal and int; write 2.0 for 2, or double(x) for an int x",
        ),
        ("ok && count", "unsound: a side of `&&` is int, not true or false"),
        ("!country", "unsound: a side of `!` is string, not true or false"),
        ("count ? ok : ok", "unsound: what stands before `?` is int, not true or false"),
        ("country in ['DE', 'AT'] && count in ['x']", "unsound: int is looked for among string"),
        (
            "count in 7",
            "unsound: `in` needs a list on its right side, as in x in [1, 2]; this is int",
        ),
        ("country.size > 1", "unsound: string has no field `size`"),
        (
            "report.length > 1",
            "unsound: a file has no field `length`; it has `name`, `size` and `media_type`",
        ),
        ("count.startsWith('7')", "unsound: `startsWith` does not go with int and string"),
        ("size(count) > 1", "unsound: `size` does not go with int"),
        ("null < 5", "unsound: null is compared with int"),
        (
            "[1, 2].all(n, n + 1)",
            "unsound: the condition inside of `all` is int, not true or false",
        ),
        ("country.all(c, c == 'x')", "unsound: string has no items to go through"),
        ("[1, 2].all(n, n == 'x')", "unsound: int is compared with string"),
        (
            "cuont > 1 || coutry == 'x'",
            "unsound: there is no data element `coutry`; there is no data element `cuont`",
        ),
        (
            "due > timestamp('tomorrow')",
            "unsound: `timestamp` cannot read \"tomorrow\"; write it as timestamp(\"2026-03-01T09:30:00Z\")",
        ),
        (
            "due - due > duration('3 days')",
            "unsound: `duration` cannot read \"3 days\"; write it as duration(\"36h\")",
        ),
    ]);
}

#[test]
fn what_is_not_part_of_conditions_is_refused_with_what_to_write_instead() {
    check(&[
        (
            "list.exists(a, list.exists(b, a == b))",
            "refused: a loop inside of a loop cannot be used in a condition; compute the inner one in a step before",
        ),
        (
            "size(list.filter(a, list.all(b, a >= b))) > 0",
            "refused: a loop inside of a loop cannot be used in a condition; compute the inner one in a step before",
        ),
        (
            "list.map(n, n + 1) == [4, 2, 3]",
            "refused: `map` cannot be used in a condition; use `exists` or `all` with the condition itself",
        ),
        (
            "list.filter(n, n > 1)[0] == 3",
            "refused: `filter` outside of `size(…)` cannot be used in a condition; use `exists` or `all`, or count with `size(items.filter(i, …))`",
        ),
        (
            "count == 7u",
            "refused: the unsigned number 7u cannot be used in a condition; leave out the u",
        ),
        (
            "country == b'DE'",
            "refused: bytes (b'…') cannot be used in a condition; compare text with text",
        ),
        (
            ".count == 7",
            "refused: `.count` cannot be used in a condition; write the name without the dot",
        ),
        (
            "order.lines.exists(1, true)",
            "refused: syntax error at line 1, column 20: argument must be a simple name",
        ),
        (
            "list.exists(n)",
            "refused: `exists` is called with 1 arguments; write list.exists(item, condition on the item)",
        ),
        ("size(list, list) > 1", "refused: `size` is called with 2 arguments; it takes one"),
        ("amount <", "refused: syntax error at line 1, column 9: mismatched input '<EOF>'"),
        ("amount\n  << 5", "refused: syntax error at line 2, column 4: extraneous input '<'"),
        ("", "refused: syntax error at line 1, column 1: mismatched input '<EOF>'"),
    ]);
    for source in [
        "now() > due",
        "country.matches('D.*')",
        "rand() > 1",
        "type(count) == int",
        "dyn(count) == 7",
    ] {
        let answer = answer(source);
        assert!(answer.starts_with("refused: there is no function `"), "{source}: {answer}");
    }
}

#[test]
fn it_knows_what_it_reads() {
    for (source, variables, null_tested) in [
        ("ok", &["ok"][..], &[][..]),
        ("b < a && a != null", &["a", "b"], &["a"]),
        ("null == a || list.exists(x, x == null && x.y > c)", &["a", "c", "list"], &["a"]),
        ("x.exists(x, x.y == 1)", &["x"], &[]),
        ("true", &[], &[]),
    ] {
        let condition = Condition::parse(source).unwrap();
        let names = |names: &[std::sync::Arc<str>]| -> Vec<String> {
            names.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(condition.variables()), variables, "{source}");
        assert_eq!(names(condition.null_tested()), null_tested, "{source}");
    }
}
