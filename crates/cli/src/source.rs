//! Definitions, organisations and topologies as files.
//!
//! Invariant: a file is read once and never more of it than a definition may have, whatever its
//! size; its kind is determined by its content, not by its name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use legwork_model::yaml::tree::SOURCE_BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Definition,
    Organisation,
    Topology,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Organisation => "organisation",
            Self::Topology => "topology",
        }
    }
}

/// Reads the files, each named one once.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    for path in paths {
        if sources.iter().all(|known| known.path != *path) {
            sources.push(read(path)?);
        }
    }
    Ok(sources)
}

pub(crate) fn read(path: &Path) -> Result<Source> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let mut bytes = Vec::new();
    // One more than allowed, so that the parser reports the limit.
    let room = SOURCE_BYTES_MAX as u64 + 1;
    file.take(room).read_to_end(&mut bytes).map_err(|error| match path.is_dir() {
        true => anyhow!("{shown} is a folder; name the files in it ({shown}/*.yaml)"),
        false => anyhow!(error).context(format!("cannot read {shown}")),
    })?;
    // A file that is cut in the middle of a character is too long in any case.
    let whole = bytes.len() <= SOURCE_BYTES_MAX;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if whole => {
            let place = error.utf8_error().valid_up_to();
            bail!("{shown} is not text in UTF-8: byte {place} cannot be read; save it as UTF-8");
        }
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    Ok(Source { path: path.to_owned(), kind: kind(&text), text })
}

/// By the first of the three keys at the left margin.
fn kind(text: &str) -> Kind {
    let key = |line: &str| {
        let line = line.trim_start_matches(['\u{feff}', '{', '"', '\'']);
        let words = [
            ("process", Kind::Definition),
            ("organisation", Kind::Organisation),
            ("topology", Kind::Topology),
        ];
        words.into_iter().find_map(|(word, kind)| {
            let rest = line.strip_prefix(word)?.trim_start_matches(['"', '\'']).trim_start();
            rest.starts_with(':').then_some(kind)
        })
    };
    text.lines().find_map(key).unwrap_or(Kind::Definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_tells_what_a_file_holds() {
        for (text, expected) in [
            ("process: loan\n", Kind::Definition),
            ("# ours\norganisation: bank\nagents: {}\n", Kind::Organisation),
            ("\"organisation\": bank", Kind::Organisation),
            ("{organisation: bank}", Kind::Organisation),
            ("# ours\ntopology: group\ndomains: {}\n", Kind::Topology),
            ("title: x\nprocess : loan\norganisation: y", Kind::Definition),
            ("data:\n  organisation: string\n", Kind::Definition),
            ("", Kind::Definition),
        ] {
            assert_eq!(kind(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_huge_file_is_read_no_further_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge.yaml");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path).unwrap().text.len(), SOURCE_BYTES_MAX + 1);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| format!("{:#}", read(path).unwrap_err());
        assert!(error(&dir.path().join("gone.yaml")).contains("gone.yaml"));
        assert!(error(dir.path()).contains("is a folder"));
        let path = dir.path().join("latin1.yaml");
        std::fs::write(&path, b"process: caf\xe9\n").unwrap();
        assert!(error(&path).contains("byte 12"), "{}", error(&path));
    }
}
