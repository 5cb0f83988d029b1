//! Commands without a server, as a shell sees them: output, exit codes, JSON.

use std::process::Command;

use serde_json::Value as Json;
use support::{check, legwork, text};

const PROCESS: &str = "\
process: claim
data: { amount: decimal }
start: [amount]
steps:
  - { step: pay, who: Role(clerk), reads: [amount] }
";
const PEOPLE: &str = "organisation: us\nagents: { ann: { roles: [clerk] } }\n";

#[test]
fn errors_are_shown_in_their_place_and_make_the_exit_code() {
    let typo = PROCESS.replace("reads: [amount]", "reads: [amont]");
    let (code, said) = check(&[("claim.yaml", &typo), ("people.yaml", PEOPLE)], &[]);
    insta::assert_snapshot!(said, @r"
    claim.yaml:5:44: error D1: there is no data element `amont`
        5 │   - { step: pay, who: Role(clerk), reads: [amont] }
          │                                            ^
          hint: did you mean `amount`?
    ✘ 1 error in 2 files
    ");
    assert_eq!(code, 1);
}

#[test]
fn a_definition_is_held_against_the_topology_it_is_checked_with() {
    let sites = "topology: us\ndomains:\n  ulm: { servers: { ulm-1: { address: \"ulm:1\", api: \"http://ulm\" } } }\n";
    let placed = PROCESS.replace("reads: [amount]", "reads: [amount], at: ulm");
    let (code, said) = check(&[("claim.yaml", &placed), ("sites.yaml", sites)], &[]);
    assert_eq!((code, said.contains("2 files")), (0, true), "{said}");
    let lost = placed.replace("at: ulm", "at: bonn");
    let (code, said) = check(&[("claim.yaml", &lost), ("sites.yaml", sites)], &[]);
    assert!(
        said.contains("claim.yaml:5:57: error Z1: the topology has no domain `bonn`"),
        "{said}"
    );
    assert_eq!(code, 1);
    let (code, said) = check(&[("sites.yaml", &sites.replace("ulm:1", "ulm"))], &[]);
    assert!(said.contains("sites.yaml:3:") && said.contains("error Y2"), "{said}");
    assert_eq!(code, 1);
}

#[test]
fn warnings_alone_are_no_failure() {
    let unused = PROCESS.replace("data: {", "data: { note: string,");
    let (code, said) = check(&[("claim.yaml", &unused)], &[]);
    assert!(said.contains("warning D5") && said.contains("1 warning in 1 file"), "{said}");
    assert_eq!(code, 0);
}

#[test]
fn a_file_that_says_nothing_may_be_meant_to_be_either() {
    let (code, said) = check(&[("people.yaml", "# nobody yet\n")], &[]);
    assert!(said.contains("the file is empty") && said.contains("`organisation: NAME`"), "{said}");
    assert_eq!(code, 1);
}

#[test]
fn people_are_those_asked_for_or_those_beside_the_definition() {
    let others = PEOPLE.replace("clerk", "cook");
    let (code, said) = check(&[("claim.yaml", PROCESS), ("people.yaml", &others)], &[]);
    assert!(said.contains("Z1"), "{said}");
    assert_eq!(code, 1);
    let apart = [("a/claim.yaml", PROCESS), ("a/people.yaml", PEOPLE), ("b/people.yaml", &others)];
    assert_eq!(check(&apart, &[]).0, 0);
    let (code, said) = check(&apart, &["--org", "b/people.yaml"]);
    assert!(said.contains("Z1"), "{said}");
    assert_eq!(code, 1);
    assert_eq!(check(&apart, &["--org", "a/claim.yaml"]).0, 1);
}

#[test]
fn findings_come_as_one_document_for_programs() {
    let (code, said) =
        check(&[("claim.yaml", "process: 1\n"), ("people.yaml", PEOPLE)], &["--json"]);
    let report: Json = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &report["ok"]), (1, &Json::Bool(false)));
    assert_eq!(report["files"][0]["file"], "claim.yaml");
    assert_eq!(report["files"][1]["kind"], "organisation");
    let findings = report["files"][0]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["line"] == 1 && finding["column"] == 10));
    let has_hint = |finding: &Json| finding["hint"].as_str().is_some_and(|hint| !hint.is_empty());
    assert!(findings.iter().all(has_hint), "{findings:?}");
}

#[test]
fn hostile_files_are_refused_soon() {
    let deep = format!("process: x\nsteps: {}", "[".repeat(100_000));
    let aliases = "process: &a [*a, *a]\nsteps: [*a]\n";
    let bomb = (0..40).fold("process: x\na0: &a0 [1]\n".to_owned(), |text, n| {
        text + &format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1)
    });
    let huge = format!("process: x\n# {}", "x".repeat(100 << 20));
    for (name, content) in
        [("deep", &*deep), ("aliases", aliases), ("bomb", &bomb), ("huge", &huge)]
    {
        let (code, said) = check(&[("it.yaml", content)], &[]);
        assert_eq!(code, 1, "{name}: {said}");
        assert!(said.contains("it.yaml") && said.len() < 100_000, "{name}: {said}");
    }
}

#[test]
fn exit_codes_tell_usage_from_failure() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code) in [
        (&["check", "gone.yaml"][..], 1),
        (&["restore", "gone.lwb", "--data", "d"], 1),
        (&["check"], 2),
        (&["frobnicate"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
    ] {
        assert_eq!(legwork(folder.path(), args).status.code(), Some(code), "{args:?}");
    }
    let output = legwork(folder.path(), &["check", "gone.yaml", "--json"]);
    let problem: Json = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(problem["code"], "failed");
    assert!(output.stdout.is_empty());
}

#[test]
fn the_usage_of_check_names_the_organisation_before_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let output = legwork(folder.path(), &["check"]);
    let said = text(&output.stderr);
    assert!(said.contains("Usage: legwork check [--org ORGANISATION] FILE..."), "{said}");
}

#[test]
fn the_version_names_the_commit_that_the_build_script_found() {
    let folder = tempfile::tempdir().unwrap();
    let said = legwork(folder.path(), &["--version"]).stdout;
    assert_eq!(text(&said), format!("legwork {}\n", env!("LEGWORK_VERSION")));
}

#[test]
fn schemas_and_completions_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let kinds =
        [("definition", "process"), ("organisation", "organisation"), ("topology", "domains")];
    for (of, key) in kinds {
        let schema: Json =
            serde_json::from_slice(&legwork(folder.path(), &["schema", of]).stdout).unwrap();
        assert!(schema["$schema"].is_string() && schema["properties"][key].is_object());
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&legwork(folder.path(), &["completions", shell]).stdout);
        assert!(script.contains("legwork") && script.contains("resolve"), "{shell}");
        let output = legwork(folder.path(), &["completions", shell, "--json"]);
        let document: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&document["shell"], &document["script"]), (&shell.into(), &script.into()));
    }
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("it.yaml"), "process: 1\n").unwrap();
    let run = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_legwork"));
        command.args(["check", "it.yaml"]).current_dir(folder.path());
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env(name, value);
        text(&command.output().unwrap().stdout)
    };
    assert!(!run("TERM", "xterm").contains('\u{1b}'));
    assert!(!run("NO_COLOR", "1").contains('\u{1b}'));
    assert!(run("CLICOLOR_FORCE", "1").contains('\u{1b}'));
}

#[cfg(test)]
mod support {
    use std::path::Path;
    use std::process::{Command, Output};

    pub(crate) fn legwork(folder: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_legwork"));
        command.args(args).current_dir(folder).env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
        command.output().unwrap()
    }

    pub(crate) fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The output of `check` for these files, and its exit code.
    pub(crate) fn check(files: &[(&str, &str)], more: &[&str]) -> (i32, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut args = vec!["check"];
        for (name, content) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
            args.push(name);
        }
        args.extend(more);
        let output = legwork(folder.path(), &args);
        (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
    }
}
