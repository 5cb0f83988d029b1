//! What the sites of the demonstration are doing, as a table.
//!
//! Invariant: every figure is one that any operator can read at a server: its links and its metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use legwork_api::client::Client;
use legwork_api::links::{LinkBytes, LinkList};
use serde::Serialize;

use super::actors::Cases;
use crate::style::{DIM, GOOD, STRONG, paint};
use crate::table::{Cell, Table};

/// All sites at one moment.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Board {
    pub(crate) seconds: u64,
    pub(crate) started: usize,
    pub(crate) ended: usize,
    pub(crate) sites: Vec<Site>,
    /// What of the cases went between the sites: histories, small and large values.
    pub(crate) bytes_sent: u64,
    /// What the cases would have taken as a whole, sent with every move.
    pub(crate) bytes_whole: u64,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) url: String,
    /// Instances it has a part in.
    pub(crate) instances: u64,
    pub(crate) items: u64,
    pub(crate) jobs: u64,
    pub(crate) entries_sent: u64,
    pub(crate) entries_spared: u64,
    pub(crate) bytes_whole: u64,
    pub(crate) sent: LinkBytes,
}

/// Where a site is asked.
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) client: Client,
}

impl Board {
    pub(crate) async fn read(sites: &[Asked], cases: &Arc<Cases>, since: Duration) -> Result<Self> {
        let mut read = Vec::new();
        for Asked { name, url, client } in sites {
            let (links, metrics) = (client.links().await?, client.metrics().await?);
            let gauge = |name: &str| gauge(&metrics, name);
            read.push(Site {
                name: name.clone(),
                url: url.clone(),
                instances: gauge("legwork_instances_open"),
                items: gauge("legwork_items_open"),
                jobs: gauge("legwork_jobs_queued") + gauge("legwork_jobs_leased"),
                entries_sent: links.entries_sent,
                entries_spared: links.entries_spared,
                bytes_whole: links.bytes_whole,
                sent: sent(&links),
            });
        }
        Ok(Self {
            seconds: since.as_secs(),
            started: cases.started.load(Ordering::Relaxed),
            ended: cases.ended.load(Ordering::Relaxed),
            bytes_sent: read.iter().map(Site::bytes_sent).sum(),
            bytes_whole: read.iter().map(|site| site.bytes_whole).sum(),
            sites: read,
        })
    }

    pub(crate) fn render(&self) -> String {
        let Self { seconds, started, ended, sites, .. } = self;
        let head = [
            "SITE", "CASES", "ITEMS", "JOBS", "HISTORY", "SMALL", "LARGE", "LISTS", "CONTROL",
            "ENTRIES", "SPARED",
        ];
        let mut table = Table::new(&head);
        for site in sites {
            let LinkBytes { history, small, large, worklist, control, .. } = site.sent;
            let bytes = [history, small, large, worklist, control].map(|n| Cell::from(bytes(n)));
            let counts = [site.instances, site.items, site.jobs].map(|n| Cell::from(n.to_string()));
            let entries = [
                Cell::from(site.entries_sent.to_string()),
                Cell::styled(GOOD, site.entries_spared.to_string()),
            ];
            let name = [Cell::styled(STRONG, &site.name)];
            table.row(name.into_iter().chain(counts).chain(bytes).chain(entries));
        }
        let (sent, whole) = (self.bytes_sent, self.bytes_whole);
        let share = 100 * whole.saturating_sub(sent) / whole.max(1);
        format!(
            "{started} patients came, {ended} went home · {seconds} s\n\n{}\n\
             the cases took {} between the sites; sent as a whole with every move it would have \
             been {}: {}\n",
            table.render(""),
            bytes(sent),
            bytes(whole),
            paint(GOOD, format!("{share} % saved")),
        )
    }
}

impl Site {
    fn bytes_sent(&self) -> u64 {
        self.sent.history + self.sent.small + self.sent.large
    }
}

/// All that one server has sent.
fn sent(links: &LinkList) -> LinkBytes {
    links.links.iter().fold(LinkBytes::default(), |sum, link| LinkBytes {
        history: sum.history + link.sent.history,
        small: sum.small + link.sent.small,
        large: sum.large + link.sent.large,
        worklist: sum.worklist + link.sent.worklist,
        control: sum.control + link.sent.control,
        socket: sum.socket + link.sent.socket,
        dropped: sum.dropped + link.sent.dropped,
    })
}

/// A gauge without labels; 0 if it is not there.
fn gauge(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse::<f64>().ok()).map_or(0, |value| value as u64)
}

/// `512 B`, `12.4 kB`, `3.0 MB`
fn bytes(number: u64) -> String {
    let number = number as f64;
    match number {
        ..1e3 => format!("{number} B"),
        1e3..1e6 => format!("{:.1} kB", number / 1e3),
        _ => format!("{:.1} MB", number / 1e6),
    }
}

/// What stands above the table all the time.
pub(crate) fn heading(sites: &[Asked]) -> String {
    let mut text = format!("{}\n\n", paint(STRONG, "Three sites, one process model"));
    for site in sites {
        text.push_str(&format!("  {:<8} {}\n", site.name, paint(DIM, &site.url)));
    }
    let first = sites.first().map(|site| site.url.as_str()).unwrap_or_default();
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
    use super::*;

    #[test]
    fn the_table_tells_what_went_and_what_was_saved() {
        let site = |name: &str, sent, spared| Site {
            name: name.to_owned(),
            url: String::new(),
            instances: 3,
            items: 2,
            jobs: 1,
            entries_sent: sent,
            entries_spared: spared,
            bytes_whole: 8_000_000,
            sent: LinkBytes { history: 900, small: 100, large: 2_000_000, ..LinkBytes::default() },
        };
        let sites = vec![site("clinic", 20, 100), site("lab", 10, 0)];
        let bytes_sent = sites.iter().map(Site::bytes_sent).sum();
        let (started, ended, bytes_whole) = (5, 2, 16_000_000);
        let board = Board { seconds: 9, started, ended, sites, bytes_sent, bytes_whole };
        insta::assert_snapshot!(anstream::adapter::strip_str(&board.render()).to_string(), @r"
        5 patients came, 2 went home · 9 s

        SITE    CASES  ITEMS  JOBS  HISTORY  SMALL  LARGE   LISTS  CONTROL  ENTRIES  SPARED
        clinic  3      2      1     900 B    100 B  2.0 MB  0 B    0 B      20       100
        lab     3      2      1     900 B    100 B  2.0 MB  0 B    0 B      10       0

        the cases took 4.0 MB between the sites; sent as a whole with every move it would have been 16.0 MB: 74 % saved
        ");
    }

    #[test]
    fn a_gauge_is_found_by_its_whole_name() {
        let metrics = "legwork_items_open_max 7\nlegwork_items_open 3\n";
        assert_eq!(gauge(metrics, "legwork_items_open"), 3);
        assert_eq!(gauge(metrics, "legwork_items"), 0);
    }
}
