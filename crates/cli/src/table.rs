//! Aligned rows of cells, for any width.
//!
//! Invariant: the last column is never padded, so that lines end where their text ends. Nothing is left
//! out: if a row is too wide its widest cells are wrapped, the first column last, which has the text to
//! type.

use anstyle::Style;

use crate::layout;
use crate::style::{self, DIM, paint, plain};

/// The gap between two columns.
const GAP: usize = 2;
/// Columns are not narrowed below this width as long as there are wider ones.
const READABLE: usize = 12;

#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// The minimal width of every column.
    least: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    /// The prefix of its first line, and of the others.
    lead: [String; 2],
}

impl Cell {
    pub(crate) fn styled(style: Style, text: impl AsRef<str>) -> Self {
        Self { text: plain(text.as_ref()), style, lead: Default::default() }
    }

    /// With the branches of a tree as prefix.
    pub(crate) fn led(self, first: impl Into<String>, others: impl Into<String>) -> Self {
        Self { lead: [first.into(), others.into()], ..self }
    }

    fn width(&self) -> usize {
        style::width(&self.lead[0]) + style::width(&self.text)
    }

    /// Its lines, each with its width.
    fn lines(&self, columns: usize) -> Vec<(String, usize)> {
        let lead = style::width(&self.lead[0]);
        let texts = layout::wrap(&self.text, columns.saturating_sub(lead));
        let line = |(place, text): (usize, String)| {
            let lead = &self.lead[place.min(1)];
            let width = style::width(lead) + style::width(&text);
            let lead = if lead.is_empty() { String::new() } else { paint(DIM, lead) };
            (lead + &paint(self.style, text), width)
        };
        texts.into_iter().enumerate().map(line).collect()
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(Style::new(), text)
    }
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), ..Self::default() }
    }

    /// Without column names.
    pub(crate) fn bare() -> Self {
        Self::default()
    }

    /// With stable columns when it is drawn again.
    pub(crate) fn steady(self, least: usize) -> Self {
        Self { least, ..self }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, each with `indent`.
    pub(crate) fn render(&self, indent: &str) -> String {
        self.render_within(indent, layout::columns())
    }

    fn render_within(&self, indent: &str, columns: Option<usize>) -> String {
        let head: Vec<Cell> = self.head.iter().map(|name| Cell::styled(DIM, name)).collect();
        let rows = || std::iter::once(&head).filter(|head| !head.is_empty()).chain(&self.rows);
        let mut widths: Vec<usize> = Vec::new();
        for (place, cell) in rows().flat_map(|row| row.iter().enumerate()) {
            match widths.get_mut(place) {
                Some(widest) => *widest = cell.width().max(*widest),
                None => widths.push(cell.width().max(self.least)),
            }
        }
        if let Some(columns) = columns {
            fit(&mut widths, columns.saturating_sub(style::width(indent)));
        }
        rows().map(|row| render_row(row, &widths, indent)).collect()
    }
}

/// Narrows the widest columns until all fit.
fn fit(widths: &mut [usize], room: usize) {
    let filled = widths.iter().filter(|width| **width > 0).count();
    let room = room.saturating_sub(GAP * filled.saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        let wider_than = |least: usize, skip: usize| {
            let places = (skip..widths.len()).filter(|place| widths[*place] > least);
            // Of several equally wide columns the last one.
            places.max_by_key(|place| widths[*place])
        };
        let found = wider_than(READABLE, 1).or_else(|| wider_than(READABLE, 0));
        let Some(place) = found.or_else(|| wider_than(1, 0)) else { return };
        widths[place] -= 1;
    }
}

fn render_row(cells: &[Cell], widths: &[usize], indent: &str) -> String {
    let cells: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| cell.lines(*width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for place in 0..height {
        // A gap only before text.
        let (mut line, mut gap) = (String::new(), 0);
        for (lines, width) in cells.iter().zip(widths) {
            let (shown, used) = lines.get(place).map_or(("", 0), |(text, used)| (text, *used));
            if used > 0 {
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(shown);
                gap = 0;
            }
            // An empty column takes no space.
            gap += if *width == 0 { 0 } else { width.saturating_sub(used) + GAP };
        }
        text.push_str(&format!("{indent}{line}\n"));
    }
    text
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

    fn narrow(table: &Table, columns: usize) -> String {
        let text =
            anstream::adapter::strip_str(&table.render_within("  ", Some(columns))).to_string();
        assert!(text.lines().all(|line| style::width(line) <= columns), "{text}");
        text
    }

    #[test]
    fn where_there_is_no_room_the_widest_cells_go_on_below() {
        let mut table = Table::new(&["ITEM", "PROCESS", "TITLE", ""]);
        let title = "Look at the photographs of the roof";
        table.row(["8XJ2M6:assess".into(), "claim".into(), title.into(), "takes 15m".into()]);
        table.row(["8XJ2M7:pay".into(), "claim".into(), "Pay".into(), "".into()]);
        insta::assert_snapshot!(narrow(&table, 56), @r"
        ITEM           PROCESS  TITLE
        8XJ2M6:assess  claim    Look at the          takes 15m
                                photographs of the
                                roof
        8XJ2M7:pay     claim    Pay
        ");
        insta::assert_snapshot!(narrow(&table, 30), @r"
        ITEM    PROCES  TITLE
                S
        8XJ2M6  claim   Look   takes
        :asses          at     15m
        s               the
                        photo
                        graph
                        s of
                        the
                        roof
        8XJ2M7  claim   Pay
        :pay
        ");
    }

    #[test]
    fn any_table_fits() {
        let mut table = Table::new(&["A", "LONGER", "C", "D", "E"]);
        let long = "with-a-very-long-name/and.no:spaces_in=it";
        table.row([long.into(), long.into(), "1".into(), long.into(), "some words".into()]);
        for columns in 20..120 {
            narrow(&table, columns);
        }
    }

    #[test]
    fn a_tree_goes_on_beside_what_is_wrapped() {
        let mut table = Table::bare();
        let long = Cell::from("find-the-customer-record");
        table.row([long.led("├─ ", "│  "), "Find the record of the customer".into()]);
        table.row([Cell::from("end").led("└─ ", "   "), "End".into()]);
        insta::assert_snapshot!(narrow(&table, 30), @r"
        ├─ find-the-    Find the
        │  customer-    record of
        │  record       the customer
        └─ end          End
        ");
    }
}
