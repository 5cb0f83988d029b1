//! Colours and text measures for the terminal.
//!
//! Invariant: external text passes [`plain`] before it is shown, so that no process and no worker
//! can send escape sequences to a user's terminal. Whether colours are shown at all is decided
//! where the text is written (`NO_COLOR`, pipes), never here.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const ACTIVE: Style = AnsiColor::Cyan.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const STRONG: Style = Style::new().bold();

/// The text in a style.
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The text without control characters, on one line.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(shown).collect()
}

/// At most `max` characters of the text.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `512 B`, `1.2 kB`, `12 kB`, `3.0 MB`: two digits suffice.
pub(crate) fn bytes(number: u64) -> String {
    if number < 1_000 {
        return format!("{number} B");
    }
    let (mut value, mut unit) = (number as f64 / 1e3, "kB");
    for larger in ["MB", "GB", "TB"] {
        if value >= 999.5 {
            (value, unit) = (value / 1e3, larger);
        }
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {unit}")
}

/// The approximate width of the text in columns: East Asian wide characters take two, combining
/// marks none.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

pub(crate) fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1FAFF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_of_others_never_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}c\nd"), "a [2Jb c d");
    }

    #[test]
    fn bytes_are_told_with_two_digits() {
        let told =
            [7, 999, 1_000, 9_949, 9_950, 12_400, 999_499, 999_500, 3_000_000, 7_200_000_000];
        let told = told.map(bytes).join(", ");
        let all = "7 B, 999 B, 1.0 kB, 9.9 kB, 10 kB, 12 kB, 999 kB, 1.0 MB, 3.0 MB, 7.2 GB";
        assert_eq!(told, all);
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(width("日本"), 4);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(shorten("abcdef", 4), "abc…");
    }
}
