//! Which process may open which directory, and the errors for the others.

use std::fs;

use legwork_store::embedded::Embedded;
use legwork_store::{Error, EventStore, Version};

use crate::support::{A, append, batch, files, scratch, write_files};

#[test]
fn a_second_opener_is_told_which_directory_is_in_use() {
    let dir = scratch();
    let first = Embedded::open(dir.path()).unwrap();
    first.commit(batch([append(A, 0, "a0")])).unwrap();
    let second = Embedded::open(dir.path()).err().unwrap();
    assert!(matches!(second, Error::Locked { .. }), "{second}");
    assert_eq!(
        second.to_string(),
        format!(
            "the store at {} is in use by another process; stop that server, \
             or start this one on another directory",
            dir.path().display()
        )
    );
    first.commit(batch([append(A, 1, "a1")])).unwrap();
    drop(first);
    let third = Embedded::open(dir.path()).unwrap();
    assert_eq!(third.read(A, Version(0), usize::MAX).unwrap().len(), 2);
}

#[test]
fn a_newer_format_is_refused_and_every_byte_stays() {
    let dir = scratch();
    Embedded::open(dir.path()).unwrap().commit(batch([append(A, 0, "a0")])).unwrap();
    fs::write(dir.path().join("FORMAT"), "legwork store format 2\n").unwrap();
    let before = files(dir.path());
    let refused = Embedded::open(dir.path()).err().unwrap();
    assert!(matches!(refused, Error::NewerFormat { found: 2, known: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("use a newer legwork; nothing was changed"), "{refused}");
    assert_eq!(files(dir.path()), before);
}

#[test]
fn a_newer_format_is_not_even_locked() {
    let dir = scratch();
    fs::write(dir.path().join("FORMAT"), "legwork store format 7\n").unwrap();
    assert!(matches!(Embedded::open(dir.path()), Err(Error::NewerFormat { found: 7, .. })));
    let names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["FORMAT"]);
}

#[test]
fn a_format_that_cannot_be_read_is_refused() {
    for format in ["", "1\n", "legwork store format 1", "legwork store format 0\n", "x\u{fffd}"] {
        let dir = scratch();
        Embedded::open(dir.path()).unwrap();
        fs::write(dir.path().join("FORMAT"), format).unwrap();
        let before = files(dir.path());
        let refused = Embedded::open(dir.path()).err().unwrap();
        assert!(matches!(refused, Error::Damaged { .. }), "{format:?}: {refused}");
        assert_eq!(files(dir.path()), before);
    }
}

#[test]
fn a_directory_with_other_things_is_not_made_a_store() {
    let dir = scratch();
    fs::write(dir.path().join("thesis.tex"), "dear reader").unwrap();
    let refused = Embedded::open(dir.path()).err().unwrap();
    assert!(matches!(refused, Error::NotAStore { .. }), "{refused}");
    assert!(refused.to_string().contains("thesis.tex"), "{refused}");
    assert_eq!(files(dir.path()).len(), 1);
}

#[test]
fn creation_that_was_cut_off_is_done_again_or_finished() {
    let whole = scratch();
    Embedded::open(whole.path()).unwrap();
    let whole = files(whole.path());
    for (named, marked) in [(false, false), (true, false), (true, true)] {
        let dir = scratch();
        // All files were created in `data.new`; then FORMAT was written; then it was renamed.
        let moved = whole.iter().filter(|(path, _)| marked || !path.ends_with("FORMAT"));
        let moved = moved.map(|(path, bytes)| match path.strip_prefix("data") {
            Ok(below) => (std::path::Path::new("data.new").join(below), bytes.clone()),
            Err(_) => (path.clone(), bytes.clone()),
        });
        if named {
            write_files(dir.path(), &moved.collect());
        } else {
            fs::create_dir(dir.path().join("data.new")).unwrap();
        }
        let store = Embedded::open(dir.path()).unwrap();
        store.commit(batch([append(A, 0, "a0")])).unwrap();
        drop(store);
        let store = Embedded::open(dir.path()).unwrap();
        assert_eq!(store.read(A, Version(0), usize::MAX).unwrap(), [b"a0"]);
    }
}

#[test]
fn missing_parts_are_refused_and_not_made_anew() {
    let gone = ["FORMAT", "data", "data/WATERMARK", "data/engine/version", "data/engine/0.jnl"];
    let keyspaces = (0..4).map(|number| format!("data/engine/keyspaces/{number}"));
    for gone in gone.into_iter().map(String::from).chain(keyspaces) {
        let dir = scratch();
        Embedded::open(dir.path()).unwrap().commit(batch([append(A, 0, "a0")])).unwrap();
        let path = dir.path().join(&gone);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        let before = files(dir.path());
        let refused = Embedded::open(dir.path()).err().unwrap_or_else(|| panic!("{gone}"));
        println!("{gone}: {refused}");
        assert_eq!(files(dir.path()), before, "{gone}");
    }
}
