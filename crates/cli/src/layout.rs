//! The width of text, and line breaking.
//!
//! Invariant: on a terminal no line is longer than the terminal is wide, unless a single word or a command
//! is. `COLUMNS` says how wide it is; without it and without a terminal, lines are not folded, so that
//! programs can read them.

use std::io::IsTerminal;

use terminal_size::{Height, Width};

use crate::style;

/// No screen is narrower; a smaller value is a typing error.
const COLUMNS_MIN: usize = 20;
/// The additional indentation of continued lines.
const HANG: usize = 2;

/// The line width of standard output, if it is limited.
pub(crate) fn columns() -> Option<usize> {
    let size = || std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    columns_of(size)
}

/// The same for standard error.
pub(crate) fn columns_beside() -> Option<usize> {
    let stderr = std::io::stderr();
    columns_of(|| stderr.is_terminal().then(|| terminal_size::terminal_size_of(&stderr)).flatten())
}

fn columns_of(size: impl FnOnce() -> Option<(Width, Height)>) -> Option<usize> {
    if cfg!(test) {
        return None;
    }
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let columns = given.or_else(|| size().map(|(width, _)| usize::from(width.0)));
    columns.map(|columns| columns.max(COLUMNS_MIN))
}

/// The height of the terminal, if standard output is one.
pub(crate) fn rows() -> Option<usize> {
    let size = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    size.map(|(_, height)| usize::from(height.0))
}

/// Folds the text, if the width is limited. Tables fit already; commands stay whole: those in backquotes,
/// and those on a line of their own.
pub(crate) fn fold(text: String, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text };
    let mut folded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let shown = bare(line.trim_end_matches('\n'));
        if style::width(&shown) <= columns || is_command(&shown) {
            folded.push_str(line);
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        let hang = " ".repeat(indent + HANG);
        let room = columns.saturating_sub(indent + HANG).max(1);
        let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
        // The first line is not indented, and so has more room.
        let mut lines = filled(&words(text.trim_start()), room + HANG, room, false).into_iter();
        folded.push_str(&format!("{}{}", " ".repeat(indent), lines.next().unwrap_or_default()));
        lines.for_each(|line| folded.push_str(&format!("\n{hang}{line}")));
        folded.push_str(end);
    }
    folded
}

/// Whether a line is only a command.
fn is_command(line: &str) -> bool {
    line.trim_start().starts_with("legwork ") && line.starts_with("    ")
}

/// Plain text on lines of at most so many columns; longer words are cut.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    filled(&words(text), columns.max(1), columns.max(1), true)
}

/// Words with the spaces before them. Text between two backquotes is one word: a command.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let (mut spaces, mut is_quoted, mut is_inside) = (0, false, false);
    for c in text.chars() {
        if c == ' ' && !is_quoted {
            (spaces, is_inside) = (spaces + 1, false);
            continue;
        }
        is_quoted ^= c == '`';
        match words.last_mut().filter(|_| is_inside) {
            Some((_, word)) => word.push(c),
            None => words.push((spaces, c.to_string())),
        }
        (spaces, is_inside) = (0, true);
    }
    words
}

/// Fills lines with as many words as fit.
fn filled(words: &[(usize, String)], first: usize, rest: usize, cut: bool) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for (spaces, word) in words {
        let room = if lines.is_empty() { first } else { rest };
        let width = style::width(&bare(word));
        let spaces = if used == 0 && !lines.is_empty() { 0 } else { *spaces };
        if used + spaces + width <= room {
            line.push_str(&" ".repeat(spaces));
            line.push_str(word);
            used += spaces + width;
            continue;
        }
        if used > 0 {
            lines.push(std::mem::take(&mut line));
        }
        let mut pieces = if cut && width > rest { cut_up(word, rest) } else { vec![word.clone()] };
        line = pieces.pop().unwrap_or_default();
        used = style::width(&bare(&line));
        lines.extend(pieces);
    }
    lines.push(line);
    lines
}

/// Cuts a long word into pieces, at its separators if possible.
fn cut_up(word: &str, columns: usize) -> Vec<String> {
    let (mut pieces, mut piece) = (Vec::new(), String::new());
    for c in word.chars() {
        if !piece.is_empty() && style::width(&piece) + style::char_width(c) > columns {
            let joint = piece.rfind([':', '-', '/', '.', ',', '=', '_']).map(|place| place + 1);
            let place = joint.filter(|place| 3 * place >= piece.len()).unwrap_or(piece.len());
            let rest = piece.split_off(place);
            pieces.push(std::mem::replace(&mut piece, rest));
        }
        piece.push(c);
    }
    pieces.push(piece);
    pieces
}

/// Without colours.
fn bare(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{STRONG, paint};

    #[test]
    fn sentences_are_folded_between_words_and_commands_stay_whole() {
        let text = format!(
            "{} nothing is reserved; `legwork start loan` does\n  ok\n",
            paint(STRONG, "a name")
        );
        let folded = fold(text.clone(), Some(30));
        insta::assert_snapshot!(bare(&folded), @r"
        a name nothing is reserved;
          `legwork start loan` does
          ok
        ");
        assert_eq!(fold(text.clone(), None), text);
        let indented = fold("    one two three four\n".to_owned(), Some(20));
        assert_eq!(indented, "    one two three\n      four\n");
        let command = "Next:\n    legwork up --cluster cluster/north-1\n".to_owned();
        assert_eq!(fold(command.clone(), Some(20)), command);
    }

    #[test]
    fn text_in_a_column_is_cut_where_it_has_joints() {
        assert_eq!(wrap("check by ann, due soon", 10), ["check by", "ann, due", "soon"]);
        let long = wrap("inst_01:capture-the-photograph", 12);
        assert_eq!(long, ["inst_01:", "capture-the-", "photograph"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("a  b", 4), ["a  b"]);
    }
}
