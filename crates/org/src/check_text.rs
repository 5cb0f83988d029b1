//! The one way to find all mistakes in the text of a definition.
//!
//! Invariant: a definition that passes here can be deployed and run; every check of a text,
//! wherever it runs, has the same findings.

use legwork_model::definition::Definition;
use legwork_model::finding::{Finding, Rule, Severity, Span};
use legwork_model::schema::Schema;
use legwork_model::{check, compile, yaml};

use crate::check::Assignments;
use crate::organisation::Organisation;

const VERSION: u32 = 1;

/// A definition that passed.
#[derive(Debug)]
pub struct Checked {
    /// Version 1 until the definition is deployed.
    pub schema: Schema,
    pub assignments: Assignments,
    pub definition: Definition,
}

/// All findings, in the order of the text; and the definition if none of them is an error. Without
/// an organisation, names of people are not checked.
pub fn check_text(
    text: &str,
    organisation: Option<&Organisation>,
) -> (Option<Checked>, Vec<Finding>) {
    let (definition, mut findings) = yaml::parse(text);
    let Some(definition) = definition else { return (None, findings) };
    findings.extend(check::check(&definition));
    let assignments = Assignments::of(&definition);
    if let Some(organisation) = organisation {
        findings.extend(assignments.check(organisation));
    }
    findings.sort();
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return (None, findings);
    }
    let compiled = compile::compile(&definition, VERSION).map_err(|error| error.to_string());
    let runs = compiled.and_then(|schema| match check::graph(&schema).into_iter().next() {
        None => Ok(schema),
        Some(fault) => Err(fault),
    });
    match runs {
        Ok(schema) => (Some(Checked { schema, assignments, definition }), findings),
        Err(fault) => {
            findings.push(not_runnable(fault));
            (None, findings)
        }
    }
}

/// A definition that passed the check and cannot run: a gap in the check.
fn not_runnable(message: String) -> Finding {
    Finding {
        span: Span::default(),
        severity: Severity::Error,
        rule: Rule::Y2,
        message,
        hint: "correct the step or the sync edges it speaks of, and report this gap in the check"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "\
process: ask
data: { reply: string }
result: [reply]
steps:
  - step: ask
    who: Role(clerk)
    writes: [reply]
";

    fn rules(text: &str, organisation: Option<&str>) -> (bool, Vec<Rule>) {
        let organisation = organisation.map(|text| Organisation::parse(text).0.unwrap());
        let (checked, findings) = check_text(text, organisation.as_ref());
        (checked.is_some(), findings.into_iter().map(|finding| finding.rule).collect())
    }

    #[test]
    fn a_text_passes_or_says_why_not() {
        let clerks = "organisation: office\nagents: { ann: { name: Ann, roles: [clerk] } }\n";
        let nobody = "organisation: office\nagents: { ann: { name: Ann } }\n";
        let unread = PROCESS.replace("result: [reply]", "result: [reply, other]");
        for (text, organisation, passes) in [
            (PROCESS, None, true),
            (PROCESS, Some(clerks), true),
            (PROCESS, Some(nobody), false),
            (&unread, None, false),
            ("process: [", None, false),
            ("", None, false),
        ] {
            let (passed, rules) = rules(text, organisation);
            assert_eq!(passed, passes, "{text}: {rules:?}");
            assert_eq!(rules.is_empty(), passes, "{text}: {rules:?}");
        }
    }
}
