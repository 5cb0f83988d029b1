//! The screen of the demonstration: the heading and the board, within the size of the terminal.
//!
//! Invariant: on a terminal of 24 rows and 80 columns nothing scrolls.

use super::board::{Asked, Board};
use crate::layout;
use crate::style::{DIM, STRONG, paint};
use crate::table::{Cell, Table};

/// The default number of cases, if the height is unknown.
const FOLLOWED: usize = 8;
/// The lines of a small screen beside the cases.
const ROWS_BESIDE: usize = 17;
/// The height from which the full heading fits.
const ROWS_ROOMY: usize = 36;
/// Home, and clear the screen.
const CLEAR: &str = "\x1b[2J\x1b[H";
/// Home without clearing: the scrollback stays as it is.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\n";
const END: &str = "\x1b[J";

/// The number of cases that may fit.
pub(super) fn cases_max(rows: Option<usize>) -> usize {
    rows.map_or(FOLLOWED, |rows| rows.saturating_sub(ROWS_BESIDE).max(1))
}

/// Draws the text over the previous one.
pub(super) fn drawn(text: &str, is_first: bool) -> String {
    let begin = if is_first { CLEAR } else { HOME };
    format!("{begin}{}{END}", text.replace('\n', END_OF_LINE))
}

/// As much as fits on so many rows. The last row stays empty, or the screen would scroll.
pub(super) fn fitting(
    sites: &[Asked],
    board: &Board,
    rows: Option<usize>,
    columns: Option<usize>,
) -> String {
    let is_small = rows.is_some_and(|rows| rows < ROWS_ROOMY);
    let heading = if is_small { brief(sites) } else { heading(sites) };
    let shown = |cases| layout::fold(format!("{heading}{}", board.render(cases)), columns);
    let fits = |text: &String| rows.is_none_or(|rows| text.lines().count() < rows);
    (1..=board.cases.len()).rev().map(shown).find(fits).unwrap_or_else(|| shown(1))
}

/// The heading of a small screen.
fn brief(sites: &[Asked]) -> String {
    let (title, first) = (paint(STRONG, "A hospital at three sites"), first(sites));
    format!(
        "{title}, one process; look around in another terminal:\n    legwork --server {first} show last\n\n"
    )
}

fn first(sites: &[Asked]) -> &str {
    sites.first().map(|site| site.url.as_str()).unwrap_or_default()
}

/// The full heading.
pub(super) fn heading(sites: &[Asked]) -> String {
    let mut text = format!("{}\n\n", paint(STRONG, "A hospital at three sites, one process"));
    let mut table = Table::bare();
    for Asked { name, who, url, .. } in sites {
        table.row([Cell::from(name), Cell::styled(DIM, url), Cell::from(who)]);
    }
    text.push_str(&table.render("  "));
    let first = first(sites);
    text.push_str(&format!(
        "\n  Look around in another terminal:\n    \
         legwork --server {first} show last\n    \
         legwork --server {first} work list --as ann\n    \
         legwork --server {first} cluster links\n\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use legwork_api::Client;

    use super::super::board::Case;
    use super::super::board::tests::board;
    use super::*;

    fn cases(number: usize) -> Vec<Case> {
        let case = |patient| Case {
            instance: "inst_01KFZQ9Y5GB4D7T3N8XJ2M6000".to_owned(),
            patient,
            open: Vec::new(),
        };
        (0..number).map(case).collect()
    }

    fn lines(rows: usize, number: usize) -> Vec<String> {
        let url = "http://127.0.0.1:40123".to_owned();
        let client = Client::new(&url, None).unwrap();
        let sites = [Asked { name: "clinic", who: "ann, a nurse", url, client }];
        let text = fitting(&sites, &board(cases(number)), Some(rows), Some(80));
        let text = anstream::adapter::strip_str(&text).to_string();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn on_a_small_screen_nothing_scrolls_and_the_rest_is_counted() {
        let shown = lines(24, cases_max(Some(24)));
        assert_eq!(shown.len(), 23, "{shown:#?}");
        let cases = shown.iter().filter(|line| line.starts_with("8XJ2")).count();
        assert!(cases >= 4, "{shown:#?}");
        let rest = cases_max(Some(24)) + 4 - cases;
        assert!(shown.contains(&format!("and {rest} more")), "{shown:#?}");
    }

    #[test]
    fn a_large_screen_shows_more_cases() {
        let shown = lines(60, cases_max(Some(60)));
        assert!(shown.len() < 60, "{shown:#?}");
        assert!(shown.iter().filter(|line| line.starts_with("8XJ2")).count() > 20, "{shown:#?}");
        assert!(shown.contains(&"  Look around in another terminal:".to_owned()), "{shown:#?}");
    }

    #[test]
    fn what_can_be_scrolled_back_to_is_never_cleared() {
        for is_first in [true, false] {
            let text = drawn("a\nb\n", is_first);
            assert!(
                text.ends_with("a\x1b[K\nb\x1b[K\n\x1b[J") && !text.contains("[3J"),
                "{text:?}"
            );
        }
    }
}
