//! Reads a page of the guide as a script: files to write, commands to run, lines to expect.
//!
//! Invariant: everything outside of a marked block is prose without effect.
//!
//! - ```` ```yaml name.yaml ```` is a file of that name
//! - ```` ```sh ```` is a piece of shell
//! - ```` ```text ```` after it has lines that its output must have, in this order; `…` stands for
//!   anything, and a line that is only `…` for any lines

use std::fmt::Write;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    File { line: usize, name: String, text: String },
    Shell { line: usize, text: String, expected: Vec<String> },
}

/// One fenced block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of the fence, counted from 1.
    pub line: usize,
    /// The text after the fence: the language first.
    pub info: String,
    pub text: String,
}

/// All fenced blocks, in order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let info = info.trim().to_owned();
                open = Some(Block { line: number + 1, info, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The executable parts of a page.
pub fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for Block { line, info, text } in blocks(page) {
        match info.split_once(' ').unwrap_or((&info, "")) {
            ("sh", _) => parts.push(Part::Shell { line, text, expected: Vec::new() }),
            ("yaml", name) if name.contains('.') => {
                parts.push(Part::File { line, name: name.to_owned(), text });
            }
            ("text", _) => {
                if let Some(Part::Shell { expected, .. }) = parts.last_mut() {
                    expected.extend(text.lines().map(str::to_owned));
                }
            }
            (_, _) => {}
        }
    }
    parts
}

/// Returns the expected line that the output lacks.
pub fn compare(expected: &[String], output: &str) -> Result<(), String> {
    let mut rest = output.lines();
    for line in expected.iter().map(|line| line.trim()).filter(|line| !matches!(*line, "" | "…"))
    {
        if !rest.any(|found| matches(line, found.trim())) {
            let mut report = format!("the line\n  {line}\nis not in the output, in this order:\n");
            for found in output.lines() {
                // Writing to memory cannot fail.
                let _ = writeln!(report, "  {found}");
            }
            return Err(report);
        }
    }
    Ok(())
}

/// Whether the line matches: runs of spaces are alike, `…` stands for anything.
fn matches(expected: &str, found: &str) -> bool {
    let normal = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, found) = (normal(expected), normal(found));
    let mut pieces = expected.split('…').map(str::trim);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = found.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_files_commands_and_what_they_print() {
        let page = "# T\n```yaml a.yaml\nprocess: a\n```\nprose\n```sh\nlegwork up &\n```\n\
                    ```text\nready\n```\n```json\n{}\n```\n";
        assert_eq!(
            parts(page),
            [
                Part::File { line: 2, name: "a.yaml".into(), text: "process: a\n".into() },
                Part::Shell {
                    line: 6,
                    text: "legwork up &\n".into(),
                    expected: vec!["ready".into()]
                },
            ]
        );
    }

    #[test]
    fn dots_stand_for_anything_and_lines_keep_their_order() {
        let output = "started inst_01K as v1\n\n  a   b\nend\n";
        let check = |lines: &[&str]| {
            compare(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), output)
        };
        assert_eq!(check(&["started … as v1", "…", "a b", "end"]), Ok(()));
        assert_eq!(check(&["started …"]), Ok(()));
        assert_eq!(check(&["… v1"]), Ok(()));
        assert!(check(&["end", "a b"]).is_err());
        assert!(check(&["started … as v2"]).is_err());
        assert!(check(&["en"]).is_err());
    }
}
