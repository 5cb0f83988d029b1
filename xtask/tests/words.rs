//! Words that comments and identifiers must not use, with the term to use instead.
//!
//! A comment names its actor and uses the term of the field: readers search for the terms of books.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Words to avoid, in lower case, and what to write instead.
const AVOIDED: [(&str, &str); 27] = [
    (
        "whoever",
        "the actor: the worker, the executor, the planner, the server, the peer, the caller",
    ),
    ("somebody", "the actor: an agent, a person, a performer, a caller, another server"),
    ("someone", "the actor: an agent, a person, a performer, a caller, another server"),
    ("that which", "the thing itself"),
    ("of what that", "the thing itself"),
    ("said again", "resent"),
    ("says again", "resends"),
    ("say again", "resend"),
    ("told anew", "resent"),
    ("retold", "resent"),
    ("growing pause", "back-off"),
    ("growing pauses", "back-off"),
    ("longer each time before", "back-off"),
    ("making way", "displaced"),
    ("makes way", "is displaced"),
    ("in suspense", "displaced"),
    ("took the room", "reserved"),
    ("of whom nothing is expected", "presumed dead; its circuit is open"),
    ("tried again now and then", "probed (half-open)"),
    ("now and then", "sometimes, or the interval"),
    ("over and over", "repeatedly"),
    ("time to spare", "slack"),
    ("can be put aside", "preemptible"),
    ("earlier life", "earlier incarnation"),
    ("another life", "another incarnation"),
    ("dwelling", "store location"),
    ("clock on the wall", "local time"),
];

/// Files whose words are not checked yet.
const NOT_COVERED: [&str; 4] =
    ["crates/api/src/", "crates/server/src/http/", "crates/site/tests/", "xtask/tests/words.rs"];

#[test]
fn comments_and_identifiers_use_the_terms_of_the_field() {
    let found: Vec<String> = rust_files()
        .iter()
        .flat_map(|path| {
            let words = words(&std::fs::read_to_string(root().join(path)).unwrap());
            let avoided = AVOIDED.iter().flat_map(|(phrase, instead)| {
                uses(&words, phrase).into_iter().map(move |line| (line, *phrase, *instead))
            });
            let told = |(line, phrase, instead)| {
                format!("{}:{line}: instead of `{phrase}` write {instead}", path.display())
            };
            avoided.map(told).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "use the terms of the field: {found:#?}");
}

#[test]
fn phrases_are_found_across_lines_of_comments_and_in_identifiers_but_not_in_text() {
    let source = "/// A message is said\n/// again.\nfn whoever_asks<'a>() {}\n// \"Whoever\"\n\
        let x = (\"whoever\\\"whoever\", '\"', r#\"whoever\"whoever\"#);\nlet whoever = 1;\n";
    let words = words(source);
    assert_eq!(uses(&words, "said again"), [1]);
    assert_eq!(uses(&words, "whoever"), [3, 4, 6]);
}

/// The words of comments and of identifiers in lower case, each with its line.
fn words(source: &str) -> Vec<(String, usize)> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut rest, mut line, mut is_comment) = (source, 1, false);
    while let Some(c) = rest.chars().next() {
        let literal = if is_comment { 0 } else { literal_bytes(rest, word.is_empty()) };
        is_comment = c != '\n' && (is_comment || rest.starts_with("//"));
        match c {
            c if literal == 0 && c.is_alphanumeric() => word.extend(c.to_lowercase()),
            _ if !word.is_empty() => words.push((std::mem::take(&mut word), line)),
            _ => {}
        }
        let (passed, further) = rest.split_at(literal.max(c.len_utf8()));
        line += passed.matches('\n').count();
        rest = further;
    }
    words
}

/// The length of the text or character literal at the beginning of this code; 0 without one.
fn literal_bytes(code: &str, is_word_start: bool) -> usize {
    let raw = code.strip_prefix('b').unwrap_or(code).strip_prefix('r').filter(|_| is_word_start);
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(text) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = code.len() - text.len();
            return text.find(&end).map_or(code.len(), |place| begin + place + end.len());
        }
    }
    let quote = match code.as_bytes() {
        [b'"', ..] => '"',
        // Not a lifetime.
        [b'\'', b'\\', ..] => '\'',
        [b'\'', ..] if code.chars().nth(2) == Some('\'') => '\'',
        _ => return 0,
    };
    let mut escaped = false;
    for (place, c) in code.char_indices().skip(1) {
        if c == quote && !escaped {
            return place + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    code.len()
}

/// The lines in which a phrase begins.
fn uses(words: &[(String, usize)], phrase: &str) -> Vec<usize> {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    let is_used = |window: &&[(String, usize)]| window.iter().map(|(word, _)| word).eq(&phrase);
    words.windows(phrase.len()).filter(is_used).map(|window| window[0].1).collect()
}

fn rust_files() -> Vec<PathBuf> {
    let mut list = Command::new("git");
    let output = list.args(["ls-files", "*.rs"]).current_dir(root()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Without files the rule would hold.
    assert!(!text.is_empty(), "git lists no files");
    let covered = |path: &&str| !NOT_COVERED.iter().any(|start| path.starts_with(start));
    let files = text.lines().filter(covered).map(PathBuf::from);
    files.filter(|path| root().join(path).exists()).collect()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
