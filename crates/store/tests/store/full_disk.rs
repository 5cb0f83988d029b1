//! A full disk: the commit fails with an error, and everything acknowledged before is kept.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use legwork_model::id::StreamId;
use legwork_store::embedded::Embedded;
use legwork_store::{Append, Error, EventStore, Version};

use crate::support::{A, append, batch};

/// Passes the directory to the child: this test binary, started again.
const DIR: &str = "LEGWORK_STORE_FULL_DIR";
const MIB: usize = 1 << 20;

/// The file size limit stands for a full disk: it needs no rights, works everywhere, and hits the
/// journal in the middle of an entry.
#[test]
fn a_commit_that_hits_a_file_size_limit_fails_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let binary = env::current_exe().unwrap();
    // The journal preallocates 64 MiB: the limit is just above, in blocks of 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", 66 * MIB / 512);
    let child = Command::new("sh")
        .args(["-c", &script])
        .arg(binary)
        .args(["--exact", "full_disk::child_that_commits_beyond_the_limit", "--nocapture"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("stopped as it should"), "{said}");
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(store.read(A, Version(0), usize::MAX).unwrap(), [b"a0", b"a1"]);
    store.commit(batch([append(A, 2, "a2")])).unwrap();
    drop(store);
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(store.read(A, Version(0), usize::MAX).unwrap(), [b"a0", b"a1", b"a2"]);
}

/// Not a separate test: the child's work under the limit.
#[test]
fn child_that_commits_beyond_the_limit() {
    let Some(dir) = env::var_os(DIR) else { return };
    let store = Embedded::open(Path::new(&dir)).unwrap();
    store.commit(batch([append(A, 0, "a0")])).unwrap();
    store.commit(batch([append(A, 1, "a1")])).unwrap();
    let large = (1..=5).map(|id| large(StreamId(id), 0, 14 * MIB));
    let failed = store.commit(batch(large.collect::<Vec<_>>())).unwrap_err();
    assert!(matches!(failed, Error::Io { .. }), "{failed}");
    let stopped = store.commit(batch([append(A, 2, "a2")])).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
    assert!(stopped.to_string().contains("then reopen it"), "{stopped}");
    assert_eq!(store.read(A, Version(0), usize::MAX).unwrap(), [b"a0", b"a1"]);
    println!("stopped as it should");
}

#[test]
fn a_full_file_system_stops_the_store_and_loses_nothing() {
    let mount = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::tmpfs(mount.path(), "24m") else { return };
    let dir = mount.path().join("store");
    let store = Embedded::open(&dir).unwrap();
    let mut acknowledged = 0;
    let failed = loop {
        match store.commit(batch([large(A, acknowledged, 50_000)])) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    println!("{acknowledged} commits, then: {failed}");
    assert!(acknowledged > 100);
    assert!(matches!(failed, Error::Io { .. } | Error::Stopped { .. }), "{failed}");
    let stopped = store.commit(batch([large(B, 0, 10)])).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
    assert!(store.put_blob(&vec![1; 30 * MIB]).is_err());
    drop(store);
    // Still full: what is there can be read.
    {
        let store = Embedded::open(&dir).unwrap();
        let found = store.read(A, Version(0), usize::MAX).unwrap().len() as u64;
        assert!((acknowledged..=acknowledged + 1).contains(&found), "{acknowledged}, {found}");
    }
    Mounted::resize(mount.path(), "200m");
    let store = Embedded::open(&dir).unwrap();
    let found = store.read(A, Version(0), usize::MAX).unwrap();
    let found = found.len() as u64;
    assert!((acknowledged..=acknowledged + 1).contains(&found), "{acknowledged}, {found}");
    store.commit(batch([large(A, found, 10)])).unwrap();
}

const B: StreamId = StreamId(0xB);

fn large(stream: StreamId, expected: u64, bytes: usize) -> Append {
    let record = vec![expected as u8; bytes];
    Append { stream, expected: Version(expected), record, close: None }
}

/// A small file system of its own, which only root may mount.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn tmpfs(at: &'a Path, size: &str) -> Option<Self> {
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output() {
            Ok(output) if output.status.success() => Some(Self(at)),
            other => {
                // Not by a macro: their output is hidden in a passing test.
                let what = "SKIPPED a_full_file_system_stops_the_store: cannot mount";
                let _ = writeln!(std::io::stderr(), "{what}: {other:?}");
                None
            }
        }
    }

    fn resize(at: &Path, size: &str) {
        let options = format!("remount,size={size}");
        let remounted = Command::new("mount").args(["-o", &options]).arg(at).status().unwrap();
        assert!(remounted.success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
        let _ = fs::remove_dir(self.0);
    }
}
