//! A written definition reads as the same one; generated definitions keep their invariants.

use legwork_model::arbitrary::{Options, cases, definition};
use legwork_model::compile::compile;
use legwork_model::definition::Definition;
use legwork_model::yaml;
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn a_definition_reads_back_from_its_yaml(definition in definition(detailed())) {
        let text = yaml::write(&definition);
        let (read, findings) = yaml::parse(&text);
        prop_assert_eq!(findings, vec![], "{}", text);
        let read = read.ok_or_else(|| TestCaseError::fail("nothing was read"))?;
        prop_assert_eq!(without_places(&read), without_places(&definition), "{}", text);
    }

    #[test]
    fn generated_definitions_compile(definition in definition(Options::default())) {
        let schema = compile(&definition, 1);
        prop_assert!(schema.is_ok(), "{:?}\n{}", schema.err(), yaml::write(&definition));
    }
}

fn detailed() -> Options {
    Options { details: true, data_rules: false, ..Options::default() }
}

/// A definition as text, without places.
fn without_places(definition: &Definition) -> String {
    let text = format!("{definition:#?}");
    let is_place = |line: &str| ["line:", "column:"].iter().any(|f| line.trim().starts_with(f));
    text.lines().filter(|line| !is_place(line)).collect::<Vec<_>>().join("\n")
}
