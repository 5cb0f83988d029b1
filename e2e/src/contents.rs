//! The contents of a folder, to check that they are unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

/// Every file below a folder, with its bytes.
pub fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(contents(&path)?);
        } else {
            files.insert(path.display().to_string(), std::fs::read(&path)?);
        }
    }
    Ok(files)
}
