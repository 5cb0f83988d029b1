//! Huge, deep and hostile texts are refused quickly, each with its own reason.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use legwork_model::compile::compile;
use legwork_model::finding::{Finding, Rule};
use legwork_model::yaml::{self, report, tree};

/// Far above the usual time, and far below exponential behaviour.
const PATIENCE: Duration = Duration::from_secs(20);

/// The findings of a text, all of which must be about limits or the kind of the text.
fn refusal(source: &str) -> Vec<Finding> {
    let began = Instant::now();
    let (definition, findings) = yaml::parse(source);
    assert!(began.elapsed() < PATIENCE, "took {:?}", began.elapsed());
    assert!(definition.is_none(), "was read");
    assert!(!findings.is_empty(), "without a reason");
    assert!(findings.len() <= report::FINDINGS_MAX + 1);
    findings
}

#[track_caller]
fn check(source: &str, rule: Rule, message: &str) {
    let findings = refusal(source);
    let found = findings.iter().any(|f| f.rule == rule && f.message.contains(message));
    assert!(found, "expected {rule} {message}, found {:#?}", &findings[..findings.len().min(3)]);
}

#[test]
fn a_hundred_megabytes_are_refused_by_their_size() {
    let huge = "process: p\n# ".to_owned() + &"x".repeat(100 * 1024 * 1024);
    check(&huge, Rule::Y3, "the file has more than 1 MiB");
}

#[test]
fn a_file_of_the_largest_size_is_read() {
    let mut source = "process: p\nsteps: []\n# ".to_owned();
    source.push_str(&"x".repeat(tree::SOURCE_BYTES_MAX - source.len()));
    assert!(yaml::parse(&source).0.is_some());
    source.push('x');
    check(&source, Rule::Y3, "the file has more than 1 MiB");
}

#[test]
fn a_million_levels_are_refused_by_their_depth_or_size() {
    for opening in ["[", "{a: ", "- ", "? ", "a: {b: ["] {
        let levels = 1_000_000;
        check(&opening.repeat(levels), Rule::Y3, "");
        // As deep as possible in a file within the size limit.
        let levels = (tree::SOURCE_BYTES_MAX - 64) / opening.len();
        check(&opening.repeat(levels), Rule::Y3, "nested deeper than");
        refusal(&format!("process: p\nsteps: {}", opening.repeat(levels)));
    }
    let mut indented = String::new();
    for level in 0..1_400 {
        let _ = writeln!(indented, "{:level$}a:", "");
    }
    check(&indented, Rule::Y3, "nested deeper than");
}

#[test]
fn blocks_nest_up_to_the_limit_and_no_deeper() {
    let nested = |levels: usize| {
        let mut source = "process: p\nsteps:\n".to_owned();
        for level in 0..levels {
            let pad = " ".repeat(level * 4);
            let _ = write!(
                source,
                "{pad}- parallel: p{level}\n{pad}  branches:\n{pad}  - {{}}\n{pad}  - steps:\n"
            );
        }
        let _ = writeln!(source, "{}- {{ step: s, job: j }}", " ".repeat(levels * 4));
        source
    };
    let (definition, findings) = yaml::parse(&nested(yaml::BLOCK_DEPTH_MAX - 1));
    assert_eq!(findings, vec![]);
    assert!(compile(&definition.unwrap(), 1).is_ok());
    check(&nested(yaml::BLOCK_DEPTH_MAX), Rule::Y3, "blocks nest deeper than 32 levels");
}

#[test]
fn nodes_elements_and_branches_are_counted() {
    let steps = |count| {
        (0..count).fold("process: p\nsteps:\n".to_owned(), |mut source, n| {
            let _ = writeln!(source, "- {{ step: s{n}, job: j }}");
            source
        })
    };
    let (definition, findings) = yaml::parse(&steps(yaml::NODES_MAX - 2));
    assert_eq!(findings, vec![]);
    assert_eq!(compile(&definition.unwrap(), 1).unwrap().nodes.len(), yaml::NODES_MAX);
    check(&steps(yaml::NODES_MAX - 1), Rule::Y3, "more than 2000 nodes");

    let elements = |count| {
        (0..count).fold("process: p\nsteps: []\ndata:\n".to_owned(), |mut source, n| {
            let _ = writeln!(source, "  e{n}: int");
            source
        })
    };
    assert!(yaml::parse(&elements(yaml::ELEMENTS_MAX)).0.is_some());
    check(&elements(yaml::ELEMENTS_MAX + 1), Rule::Y3, "more than 500 data elements");

    let branches = |count| {
        format!("process: p\nsteps:\n- {{ parallel: a, branches: [{}] }}\n", "{},".repeat(count))
    };
    assert!(yaml::parse(&branches(yaml::BRANCHES_MAX)).0.is_some());
    check(&branches(yaml::BRANCHES_MAX + 1), Rule::Y3, "more than 200 entries");
}

#[test]
fn a_file_may_hold_only_so_many_values() {
    let many = format!("process: p\nsteps: []\nx: [{}]", "a,".repeat(tree::YAML_NODES_MAX));
    check(&many, Rule::Y3, "the file holds more than 300000 values");
}

#[test]
fn names_and_texts_have_their_lengths() {
    let long = |count| "x".repeat(count);
    for (source, message) in [
        (format!("process: {}\nsteps: []", long(65)), "longer than 64 characters"),
        (format!("process: p\ntitle: {}\nsteps: []", long(501)), "longer than 500 characters"),
        (
            format!("process: p\nsteps: [{{ step: s, who: Role({}) }}]", long(2_000)),
            "longer than 2000 characters",
        ),
        (
            format!("process: p\nsteps: [{{ loop: l, steps: [], until: {} }}]", long(2_001)),
            "longer than 2000 characters",
        ),
        (format!("process: p\nstart: [{}]\nsteps: []", long(66)), "longer than 65 characters"),
    ] {
        let (_, findings) = yaml::parse(&source);
        let found = findings.iter().any(|f| f.rule == Rule::Y3 && f.message.contains(message));
        assert!(found, "expected {message}, found {findings:#?}");
    }
}

#[test]
fn many_mistakes_are_told_up_to_a_number_and_then_counted() {
    let mut source = "process: p\nsteps: []\n".to_owned();
    for n in 0..20_000 {
        let _ = writeln!(source, "wrong{n}: 1");
    }
    let (_, findings) = yaml::parse(&source);
    assert_eq!(findings.len(), report::FINDINGS_MAX + 1);
    let last = findings.last().unwrap();
    assert_eq!(last.message, "19900 more findings are not shown");
}

/// Texts that make careless readers quadratic or worse.
#[test]
fn hostile_texts_of_the_largest_size_are_answered_in_time() {
    let most = tree::SOURCE_BYTES_MAX - 64;
    let fill = |unit: &str| unit.repeat(most / unit.len());
    for source in [
        format!("process: p\nstart: [{}]\nsteps: []", fill("a, ")),
        format!("process: p\nsteps: [{}]", fill("{}, ")),
        format!("process: p\nsteps: [{}]", fill("a: b, ")),
        format!("process: p\ndata: {{{}}}\nsteps: []", fill("a: b, ")),
        format!("process: \"{}\"\nsteps: []", fill("\\u00e4")),
        format!("process: >\n{}\nsteps: []", fill(" \n")),
        fill("a: b\n"),
        fill("- a\n"),
        fill("? a\n"),
        fill("%TAG ! x\n"),
        fill("---\n"),
        fill("\u{feff}"),
        fill("&a "),
        fill("!a "),
        fill("'"),
        fill("\""),
        fill("|\n"),
        fill("\t"),
        fill("\r"),
        fill("#"),
        fill("[]"),
        fill("[a, [b, "),
        fill("\u{85}\u{2028}"),
    ] {
        refusal(&source);
    }
}
