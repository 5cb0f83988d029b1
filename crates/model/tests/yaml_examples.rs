//! The examples are correct, and their numbering never changes.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::path::PathBuf;

use insta::assert_snapshot;
use legwork_model::compile::compile;
use legwork_model::definition::Definition;
use legwork_model::schema::{Node, NodeKind, Schema};
use legwork_model::yaml;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The folders of `examples/`.
fn examples() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> =
        folders.map(|folder| folder.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn source(example: &str) -> String {
    std::fs::read_to_string(folder().join(example).join("process.yaml")).unwrap()
}

fn definition(example: &str) -> Definition {
    let (definition, findings) = yaml::parse(&source(example));
    assert_eq!(findings, vec![], "{example}");
    definition.unwrap()
}

fn schema(example: &str) -> Schema {
    compile(&definition(example), 1).unwrap()
}

/// One line for every node: number, name, kind.
fn numbering(schema: &Schema) -> String {
    let line = |node: &Node| format!("{} {} {}", node.id.0, node.name, kind(node));
    schema.nodes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn kind(node: &Node) -> &'static str {
    match &node.kind {
        NodeKind::Start => "start",
        NodeKind::End => "end",
        NodeKind::Manual { .. } => "manual",
        NodeKind::Automatic { .. } => "automatic",
        NodeKind::Locate => "locate",
        NodeKind::AndSplit { .. } => "and-split",
        NodeKind::AndJoin => "and-join",
        NodeKind::XorSplit { .. } => "xor-split",
        NodeKind::XorJoin => "xor-join",
        NodeKind::LoopStart => "loop-start",
        NodeKind::LoopEnd { .. } => "loop-end",
    }
}

#[test]
fn examples_are_named_by_their_folders_and_tell_their_story() {
    for example in examples() {
        assert_eq!(*definition(&example).process.value, *example);
    }
    for example in ["chemotherapy", "insurance-claim", "loan"] {
        for file in ["process.yaml", "organisation.yaml", "README.md"] {
            assert!(folder().join(example).join(file).exists(), "{example}/{file}");
        }
    }
}

#[test]
fn examples_show_everything_of_a_definition_that_has_an_effect() {
    let all: String = examples().iter().map(|example| source(example)).collect();
    for word in [
        "title:",
        "start:",
        "result:",
        "who:",
        "job:",
        "retry:",
        "reads:",
        "writes:",
        "after:",
        "requires:",
        "at:",
        "takes:",
        "parallel:",
        "choice:",
        "loop:",
        "when:",
        "otherwise:",
        "until:",
        "max:",
    ] {
        assert!(all.contains(word), "no example has {word}");
    }
}

#[test]
fn examples_are_written_and_read_back() {
    for example in examples() {
        let text = yaml::write(&definition(&example));
        let (again, findings) = yaml::parse(&text);
        assert_eq!(findings, vec![], "{text}");
        let again = again.unwrap();
        assert_eq!(yaml::write(&again), text);
        assert_eq!(numbering(&compile(&again, 1).unwrap()), numbering(&schema(&example)));
    }
}

// The numbers are in stored histories. A difference here means that running cases can no longer be
// read: correct the numbering, not the snapshot.

#[test]
fn nodes_of_chemotherapy_keep_their_numbers() {
    assert_snapshot!(numbering(&schema("chemotherapy")), @r"
    0 start start
    1 plan-course manual
    2 open-course automatic
    3 cycle/start loop-start
    4 draw-blood manual
    5 lab-check automatic
    6 approval xor-split
    7 order manual
    8 make-ready and-split
    9 prepare manual
    10 verify manual
    11 premedicate manual
    12 make-ready/join and-join
    13 give manual
    14 count automatic
    15 reschedule manual
    16 give-reason manual
    17 approval/join xor-join
    18 cycle loop-end
    19 write-letter manual
    20 end end
    ");
}

#[test]
fn nodes_of_insurance_claim_keep_their_numbers() {
    assert_snapshot!(numbering(&schema("insurance-claim")), @r"
    0 start start
    1 register automatic
    2 inspect and-split
    3 appoint-expert manual
    4 inspect-car manual
    5 calculate automatic
    6 collect-papers manual
    7 screen automatic
    8 doubts xor-split
    9 investigate manual
    10 doubts/join xor-join
    11 request-police-report automatic
    12 assess-liability manual
    13 inspect/join and-join
    14 settle xor-split
    15 decline automatic
    16 settle-small automatic
    17 propose manual
    18 approval xor-split
    19 approve manual
    20 approval/join xor-join
    21 settle/join xor-join
    22 payment xor-split
    23 pay-out automatic
    24 payment/join xor-join
    25 inform automatic
    26 end end
    ");
}

#[test]
fn nodes_of_loan_keep_their_numbers() {
    assert_snapshot!(numbering(&schema("loan")), @r"
    0 start start
    1 capture manual
    2 score automatic
    3 route xor-split
    4 approve-by-rule automatic
    5 assess manual
    6 verdict xor-split
    7 release automatic
    8 explain manual
    9 verdict/join xor-join
    10 route/join xor-join
    11 outcome xor-split
    12 sign manual
    13 pay automatic
    14 write-refusal manual
    15 outcome/join xor-join
    16 end end
    ");
}
