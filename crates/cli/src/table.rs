//! Rows of cells, aligned.
//!
//! Invariant: the last column is never padded, so that lines end where their text ends.

use anstyle::Style;

use crate::style::{self, DIM, paint, plain};

#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(style: Style, text: impl AsRef<str>) -> Self {
        Self { text: plain(text.as_ref()), style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(Style::new(), text)
    }
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Without a line of column names.
    pub(crate) fn bare() -> Self {
        Self::default()
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, each with `indent` before it.
    pub(crate) fn render(&self, indent: &str) -> String {
        let head: Vec<Cell> = self.head.iter().map(|name| Cell::styled(DIM, name)).collect();
        let lines = || std::iter::once(&head).filter(|head| !head.is_empty()).chain(&self.rows);
        let mut widths: Vec<usize> = Vec::new();
        for line in lines() {
            for (place, cell) in line.iter().enumerate() {
                let width = style::width(&cell.text);
                match widths.get_mut(place) {
                    Some(widest) => *widest = width.max(*widest),
                    None => widths.push(width),
                }
            }
        }
        lines().map(|line| format!("{indent}{}\n", render_line(line, &widths))).collect()
    }
}

fn render_line(cells: &[Cell], widths: &[usize]) -> String {
    // Trailing empty cells would only leave spaces behind.
    let filled = cells.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
    let mut line = String::new();
    for (place, (cell, width)) in cells.iter().zip(widths).take(filled).enumerate() {
        line.push_str(&paint(cell.style, &cell.text));
        if place + 1 < filled {
            let gap = width.saturating_sub(style::width(&cell.text)) + 2;
            line.extend(std::iter::repeat_n(' ', gap));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_text() {
        let mut table = Table::new(&["NAME", "STATE", "BY"]);
        table.row(["capture".into(), "done".into(), "ann".into()]);
        table.row(["日本".into(), "open".into(), "".into()]);
        let text = anstream::adapter::strip_str(&table.render("  ")).to_string();
        insta::assert_snapshot!(text, @r"
          NAME     STATE  BY
          capture  done   ann
          日本     open
        ");
    }
}
