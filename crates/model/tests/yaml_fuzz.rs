//! No text makes the reader panic, and what it accepts can be compiled.

use legwork_model::arbitrary::{Options, cases, definition};
use legwork_model::compile::{CompileError, compile};
use legwork_model::finding::Severity;
use legwork_model::yaml::{self, report::FINDINGS_MAX};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Reads a text and checks the result against the contract of `yaml::parse`.
fn read(source: &str) -> Result<(), TestCaseError> {
    let (definition, findings) = yaml::parse(source);
    let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    prop_assert!(definition.is_some() || errors, "neither a definition nor a reason");
    // The count of unlisted findings comes last.
    let told = &findings[..findings.len().min(FINDINGS_MAX)];
    prop_assert!(told.is_sorted(), "findings are not in order: {:#?}", told);
    for finding in &findings {
        prop_assert!(!finding.message.is_empty() && !finding.hint.is_empty());
        prop_assert!(!finding.message.contains(char::is_control), "{:?}", finding.message);
    }
    if let Some(definition) = definition {
        let compiled = compile(&definition, 1);
        prop_assert!(
            matches!(compiled, Ok(_) | Err(CompileError::Cycle { .. })),
            "{:?}",
            compiled.err()
        );
    }
    Ok(())
}

/// One change to a text, at a place given as a fraction of its length.
#[derive(Clone, Debug)]
enum Change {
    Delete(Index, usize),
    Insert(Index, String),
    Repeat(Index, usize, usize),
    Swap(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let words = prop_oneof![
        Just("\n".to_owned()),
        Just("  ".to_owned()),
        Just("- ".to_owned()),
        Just(": ".to_owned()),
        Just("?".to_owned()),
        Just("&a ".to_owned()),
        Just("*a".to_owned()),
        Just("!!x ".to_owned()),
        Just("|\n".to_owned()),
        Just("---\n".to_owned()),
        Just("until: true\n".to_owned()),
        Just("who: Role(".to_owned()),
        any::<char>().prop_map(String::from),
        "[\\[\\]{}\"'#,%@`\\\\]{1,3}",
    ];
    prop_oneof![
        (any::<Index>(), 1..40_usize).prop_map(|(at, count)| Change::Delete(at, count)),
        (any::<Index>(), words).prop_map(|(at, text)| Change::Insert(at, text)),
        (any::<Index>(), 1..60_usize, 1..20_usize)
            .prop_map(|(at, count, times)| Change::Repeat(at, count, times)),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Change::Swap(a, b)),
    ]
}

fn apply(source: &str, changes: &[Change]) -> String {
    let mut text: Vec<char> = source.chars().collect();
    for change in changes {
        let place = |at: &Index| at.index(text.len() + 1);
        match change {
            Change::Delete(at, count) => {
                let at = place(at);
                text.drain(at..(at + count).min(text.len()));
            }
            Change::Insert(at, word) => {
                let at = place(at);
                text.splice(at..at, word.chars());
            }
            Change::Repeat(at, count, times) => {
                let at = place(at);
                let part: Vec<char> = text[at..(at + count).min(text.len())].to_vec();
                text.splice(at..at, part.repeat(*times));
            }
            Change::Swap(a, b) if !text.is_empty() => {
                let (a, b) = (a.index(text.len()), b.index(text.len()));
                text.swap(a, b);
            }
            Change::Swap(..) => {}
        }
    }
    text.into_iter().collect()
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..400)) {
        read(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn any_text_of_yaml_characters_is_answered(
        text in "([a-z]{1,3}|: |- |\\[|\\]|\\{|\\}|\n|\n  |\n    |\"|'|,|#|\\||>|&|\\*|!|%|\\?|~|\t|ä){0,60}"
    ) {
        read(&text)?;
    }

    #[test]
    fn changed_definitions_are_answered(
        definition in definition(Options { details: true, ..Options::default() }),
        changes in vec(change(), 1..6),
    ) {
        read(&apply(&yaml::write(&definition), &changes))?;
    }
}

#[test]
fn a_size_that_names_no_element_is_found() {
    let source = "process: p\ndata: { count: int }\nstart: [count]\nsteps:\n  \
                  - { step: a, job: book, size: tount, reads: [count] }\n";
    let (definition, findings) = yaml::parse(source);
    assert!(definition.is_none());
    let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(messages, ["there is no data element `tount`"]);
}
