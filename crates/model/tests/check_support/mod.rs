//! Shared by all cases of the check: from the steps of a process to its findings.

use legwork_model::finding::Finding;
use legwork_model::{check, yaml};

/// All findings of a process, each in one line; the lines are those of the steps.
pub(crate) fn findings(head: &str, steps: &str) -> String {
    let text = format!("process: p\n{head}steps:{steps}");
    let (definition, unread) = yaml::parse(&text);
    assert!(unread.is_empty(), "{text}\n{unread:?}");
    let before = head.lines().count() as u32 + 2;
    let line = |f: Finding| {
        let line = f.span.line.saturating_sub(before);
        let at = if line == 0 { "head".to_owned() } else { format!("{line}:{}", f.span.column) };
        format!("{at} {} {}: {} -- {}", f.severity, f.rule, f.message, f.hint)
    };
    definition.iter().flat_map(check::check).map(line).collect::<Vec<_>>().join("\n")
}
