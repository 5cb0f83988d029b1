//! The inside of `crates/site`: a shell around organs.
//!
//! Invariant: what has been taken apart does not grow together again. The numbers here go down only.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

const FILES_AT_TOP_MAX: usize = 15;
const FIELDS_MAX: usize = 15;
/// Structs with more fields than that, and how many they have.
const LARGE: [(&str, usize); 2] = [("Executors", 17), ("Planning", 24)];
/// Methods of the site itself: what is not an organ's yet, and what composes organs.
const SITE_METHODS_MAX: usize = 477;
/// Folders whose files know neither the site nor other organs, but for what a context shows.
const SEPARATE: [&str; 1] = ["schedules"];

#[test]
fn the_files_at_the_top_can_be_taken_in_at_a_glance() {
    let top = read_dir(source()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = top.filter(|path| path.is_file()).collect();
    assert!(files.len() <= FILES_AT_TOP_MAX, "put these into folders by organ: {files:#?}");
}

#[test]
fn no_struct_has_more_fields_than_one_can_hold_in_mind() {
    let large: Vec<(String, usize)> = files()
        .iter()
        .flat_map(|path| structs(&read_to_string(path).unwrap()))
        .filter(|(_, fields)| *fields > FIELDS_MAX)
        .collect();
    for (name, fields) in &large {
        let known = LARGE.iter().find(|(known, _)| known == name);
        let most = known.map_or(FIELDS_MAX, |(_, most)| *most);
        assert!(*fields <= most, "`{name}` has {fields} fields: group those that belong together");
    }
    assert_eq!(large.len(), LARGE.len(), "take those from `LARGE` that are small now: {large:?}");
}

#[test]
fn the_site_itself_does_less_and_less() {
    let count: usize =
        files().iter().map(|path| methods_of("Site", &read_to_string(path).unwrap())).sum();
    assert!(count > 0, "the site has methods");
    assert!(count <= SITE_METHODS_MAX, "{count} methods of `Site`: make them an organ's");
}

#[test]
fn an_organ_that_was_separated_stays_so() {
    for folder in SEPARATE {
        let inside = source().join(folder);
        for path in files().iter().filter(|path| path.starts_with(&inside)) {
            let text = read_to_string(path).unwrap();
            let names_site = text.contains("crate::Site") || text.contains("impl Site");
            assert!(!names_site, "{}: read the context and return effects", path.display());
        }
    }
}

/// The structs of a file with how many fields they have.
fn structs(text: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("struct ").filter(|_| line.ends_with(" {")) {
            let name = name.trim_end_matches(" {").split('<').next().unwrap_or_default();
            found.push((name.to_owned(), 0));
            is_inside = !line.starts_with(' ');
        } else if line.starts_with('}') {
            is_inside = false;
        } else if is_inside && line.starts_with("    ") && line.ends_with(',') {
            let is_field = line.contains(": ") && !line.trim_start().starts_with("//");
            found.last_mut().unwrap().1 += usize::from(is_field);
        }
    }
    found
}

fn methods_of(name: &str, text: &str) -> usize {
    let mut is_inside = false;
    let mut count = 0;
    for line in text.lines() {
        match line {
            _ if line == format!("impl {name} {{") => is_inside = true,
            "}" => is_inside = false,
            _ => {
                let is_method = line.starts_with("    fn ") || line.starts_with("    pub");
                count += usize::from(is_inside && is_method && line.contains("fn "));
            }
        }
    }
    count
}

fn files() -> Vec<PathBuf> {
    let mut folders = vec![source()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    assert!(files.len() > 50, "the site has files");
    files
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/site/src")
}
