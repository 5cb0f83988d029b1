//! Checking ends soon for the largest definitions, and reports where it gives up.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use legwork_model::check::{self, ERRORS_MAX, POINTS_MAX, WARNINGS_MAX};
use legwork_model::finding::{Finding, Rule, Severity};
use legwork_model::yaml;

/// Far above the usual time, far below what could pass for a hang.
const PATIENCE: Duration = Duration::from_secs(60);

fn check(text: &str) -> Vec<Finding> {
    let (definition, unread) = yaml::parse(text);
    assert!(unread.is_empty(), "{unread:?}");
    let started = Instant::now();
    let findings = definition.iter().flat_map(check::check).collect();
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    findings
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// Two branches of many steps that write the same elements, each waiting for its neighbour.
fn ladder(rungs: usize, synced: bool) -> String {
    let names: Vec<String> = (0..20).map(|number| format!("e{number}")).collect();
    let elements = names.join(", ");
    let mut text = format!("process: p\ndata: {{ {} }}\n", names.join(": int, ") + ": int");
    text += "steps:\n- parallel: p\n  branches:\n";
    for (side, other) in [("a", "b"), ("b", "a")] {
        text += "  - steps:\n";
        for rung in 0..rungs {
            let before = if side == "a" { rung.checked_sub(1) } else { Some(rung) };
            let after = match before {
                Some(before) if synced => format!(", after: [{other}{before}]"),
                Some(_) | None => String::new(),
            };
            let writes =
                if rung % 10 == 0 { format!(", writes: [{elements}]") } else { String::new() };
            let _ = writeln!(text, "    - {{ step: {side}{rung}, job: j{after}{writes} }}");
        }
    }
    text
}

#[test]
fn the_largest_definitions_are_checked_in_time() {
    let findings = check(&ladder(950, true));
    assert_eq!(count(&findings, Severity::Error), 0, "{:?}", findings.first());
}

/// Every step of one branch waits for every step of the other; the last closes a cycle.
fn web(steps: usize, cycle: bool) -> String {
    let mut text = "process: p\nsteps:\n- parallel: p\n  branches:\n  - steps:\n".to_owned();
    for step in 0..steps {
        let after =
            if cycle && step == 0 { format!(", after: [b{}]", steps - 1) } else { String::new() };
        let _ = writeln!(text, "    - {{ step: a{step}, job: j{after} }}");
    }
    let all: Vec<String> = (0..steps).map(|step| format!("a{step}")).collect();
    let all = all.join(", ");
    text += "  - steps:\n";
    for step in 0..steps {
        let _ = writeln!(text, "    - {{ step: b{step}, job: j, after: [{all}] }}");
    }
    text
}

#[test]
fn definitions_full_of_sync_edges_are_checked_in_time() {
    let findings = check(&web(300, false));
    assert_eq!(count(&findings, Severity::Error), 0);
    assert_eq!(count(&findings, Severity::Warning), WARNINGS_MAX + 1);
    let findings = check(&web(300, true));
    let cycles = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    assert!((1..=10).contains(&cycles), "{cycles}");
    assert!(findings[0].message.starts_with("steps wait for each other: b299 -> a0 -> "));
}

#[test]
fn a_definition_full_of_choices_is_checked_in_time() {
    let mut text =
        "process: p\ndata: { x: decimal, y: decimal, z: decimal }\nstart: [x, y, z]\nsteps:\n"
            .to_owned();
    let literals = (1..20).map(|number| format!("{number}")).collect::<Vec<_>>().join(", ");
    for choice in 0..400 {
        let all = format!("x in [{literals}] && y in [{literals}] && z in [{literals}]");
        let _ = write!(
            text,
            "- choice: c{choice}\n  branches:\n  - {{ when: \"{all}\" }}\n  - {{ otherwise: true }}\n"
        );
    }
    let findings = check(&text);
    assert_eq!(count(&findings, Severity::Error), 0);
}

#[test]
fn no_more_findings_are_told_than_anybody_would_read() {
    let findings = check(&ladder(400, false));
    assert_eq!(count(&findings, Severity::Error), ERRORS_MAX + 1);
    assert!(count(&findings, Severity::Warning) <= WARNINGS_MAX + 1);
    let last = findings.iter().find(|finding| finding.rule == Rule::Y3);
    assert!(last.is_some_and(|last| last.message.ends_with("more errors are not shown")));
}

#[test]
fn choices_with_too_many_combinations_are_not_decided_but_warned_about() {
    let choice = |elements: usize| {
        let names: Vec<String> = (0..elements).map(|number| format!("e{number}")).collect();
        let all = |rest: &str| names.iter().map(|name| format!("{name}{rest}")).collect::<Vec<_>>();
        format!(
            "process: p\ndata: {{ {} }}\nstart: [{}]\nsteps:\n- choice: c\n  branches:\n  \
             - {{ name: in, when: \"{}\" }}\n  - {{ name: out, when: \"{}\" }}\n",
            all(": decimal").join(", "),
            names.join(", "),
            all(" < 5").join(" && "),
            all(" >= 5").join(" || "),
        )
    };
    // Three values for each element.
    assert!(3_usize.pow(9) <= POINTS_MAX && 3_usize.pow(10) > POINTS_MAX);
    assert_eq!(check(&choice(9)), []);
    let findings = check(&choice(10));
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("there are too many combinations to try"));
}
