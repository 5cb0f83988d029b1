//! The example processes are correct, without so much as a warning.

use std::path::Path;

use legwork_model::{check, yaml};

#[test]
fn every_example_passes_without_a_finding() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut checked = 0;
    for example in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(example.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            if !text.lines().any(|line| line.starts_with("process:")) {
                continue;
            }
            let (definition, unread) = yaml::parse(&text);
            assert_eq!(unread, [], "{}", path.display());
            assert_eq!(check::check(&definition.unwrap()), [], "{}", path.display());
            checked += 1;
        }
    }
    assert!(checked >= 3, "{checked} examples");
}
