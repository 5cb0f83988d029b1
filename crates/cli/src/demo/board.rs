//! The state of the sites of the demonstration: the place of each case, and the traffic between the
//! sites.
//!
//! Invariant: every figure is available to any operator of a server: its cases, its links and its
//! metrics. A case is counted once, however many sites have a part in it.

use std::time::Duration;

use anyhow::Result;
use legwork_api::client::Client;
use legwork_api::instances::{Instance, Node, NodeState};
use legwork_api::links::{LinkBytes, LinkList};
use serde::Serialize;

use super::actors::{Cases, Count};
use crate::abbreviate::short;
use crate::style::{ACTIVE, DIM, GOOD, STRONG, bytes, count, paint};
use crate::table::{Cell, Table};

/// The width for the name of a step: fixed columns make migrations visible.
const STEP_CHARS: usize = 10;

/// A snapshot of all sites.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Board {
    pub(crate) seconds: u64,
    pub(crate) started: usize,
    pub(crate) ended: usize,
    pub(crate) cases: Vec<Case>,
    pub(crate) sites: Vec<Site>,
    /// Case data sent between the sites: histories, small and large values.
    pub(crate) bytes_sent: u64,
    /// The other messages: control, and worklists.
    pub(crate) bytes_messages: u64,
    /// The bytes if each migration sent the whole case; without other messages.
    pub(crate) bytes_whole: u64,
}

/// The place of a case.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Case {
    pub(crate) instance: String,
    pub(crate) patient: usize,
    /// Its open steps, with their sites.
    pub(crate) open: Vec<Open>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Open {
    pub(crate) site: &'static str,
    pub(crate) step: String,
    /// The round of the therapy, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round: Option<u32>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) items: u64,
    pub(crate) jobs: u64,
    pub(crate) entries_sent: u64,
    pub(crate) entries_spared: u64,
    pub(crate) bytes_whole: u64,
    pub(crate) sent: LinkBytes,
}

/// The client of a site.
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    /// Its residents.
    pub(crate) who: &'static str,
    pub(crate) url: String,
    pub(crate) client: Client,
}

impl Board {
    /// With at most so many cases: the first ones, so that they keep their lines.
    pub(crate) async fn read(
        sites: &[Asked],
        cases: &Cases,
        since: Duration,
        cases_max: usize,
    ) -> Result<Self> {
        let mut read = Vec::new();
        for Asked { name, url, client, .. } in sites {
            let (links, metrics) = (client.links().await?, client.metrics().await?);
            let gauge = |name: &str| gauge(&metrics, name);
            read.push(Site {
                name,
                url: url.clone(),
                items: gauge("legwork_items_open"),
                jobs: gauge("legwork_jobs_queued") + gauge("legwork_jobs_leased"),
                entries_sent: links.entries_sent,
                entries_spared: links.entries_spared,
                bytes_whole: links.bytes_whole,
                sent: sent(&links),
            });
        }
        let Count { started, ended, open } = cases.count();
        let mut followed = Vec::new();
        for (patient, (instance, place)) in open.into_iter().take(cases_max) {
            let Some(site) = sites.get(place) else { continue };
            let whole = site.client.instance(instance, Duration::ZERO).await?;
            let (instance, open) = (instance.to_string(), ahead(&whole, sites));
            followed.push(Case { instance, patient, open });
        }
        Ok(Self {
            seconds: since.as_secs(),
            started,
            ended,
            cases: followed,
            bytes_sent: read.iter().map(Site::bytes_of_cases).sum(),
            bytes_messages: read.iter().map(Site::bytes_of_messages).sum(),
            bytes_whole: read.iter().map(|site| site.bytes_whole).sum(),
            sites: read,
        })
    }

    /// With so many of its cases.
    pub(crate) fn render(&self, cases: usize) -> String {
        let Self { seconds, started, ended, bytes_messages, .. } = self;
        let treated = started.saturating_sub(*ended);
        let sent = self.bytes_sent + bytes_messages;
        let whole = self.bytes_whole + bytes_messages;
        let share = 100 * whole.saturating_sub(sent) / whole.max(1);
        let note = |text: &str| format!("{}\n\n", paint(DIM, text));
        format!(
            "After {seconds} s: {} came, {ended} went home, {treated} in treatment.\n\n{}{}{}{}\
             Sent in all: {}, of which {} are messages. If each move took the whole case \
             along, it would be {} with the same messages: {}.\n",
            count(*started, "patient"),
            self.cases(cases),
            note("A case moves to the site where its next step is done."),
            self.sites(),
            note(
                "Items wait for people, jobs for the machine. The rest is what a site has sent: \
                 histories, values and files of cases, and the messages around them."
            ),
            bytes(sent),
            bytes(*bytes_messages),
            bytes(whole),
            paint(GOOD, format!("{share} % saved")),
        )
    }

    /// A line for each case, a column for each site: its open steps there.
    fn cases(&self, most: usize) -> String {
        let mut table = Table::new(&["CASE", "PATIENT", "ROUND", "CLINIC", "IMAGING", "LAB"])
            .steady(STEP_CHARS);
        for case in self.cases.iter().take(most) {
            let at = |site: &Site| {
                let here = case.open.iter().filter(|open| open.site == site.name);
                let steps: Vec<&str> = here.map(|open| &*open.step).collect();
                Cell::styled(ACTIVE, steps.join(", "))
            };
            let name = Cell::styled(STRONG, short(&case.instance));
            let patient = Cell::from(case.patient.to_string());
            let round = case.open.iter().find_map(|open| open.round);
            let round = Cell::from(round.map_or_else(String::new, |round| round.to_string()));
            table.row([name, patient, round].into_iter().chain(self.sites.iter().map(at)));
        }
        let treated = self.started.saturating_sub(self.ended);
        let more = match treated.saturating_sub(self.cases.len().min(most)) {
            0 => String::new(),
            more => format!("{}\n", paint(DIM, format!("and {more} more"))),
        };
        table.render("") + &more
    }

    fn sites(&self) -> String {
        let mut table =
            Table::new(&["SITE", "ITEMS", "JOBS", "HISTORY", "VALUES", "FILES", "MESSAGES"]);
        for site in &self.sites {
            let LinkBytes { history, small, large, .. } = site.sent;
            let name = [Cell::styled(STRONG, site.name)];
            let counts = [site.items, site.jobs].map(|count| Cell::from(count.to_string()));
            let sent = [history, small, large, site.bytes_of_messages()];
            table.row(name.into_iter().chain(counts).chain(sent.map(|n| Cell::from(bytes(n)))));
        }
        table.render("")
    }
}

impl Site {
    fn bytes_of_cases(&self) -> u64 {
        self.sent.history + self.sent.small + self.sent.large
    }

    fn bytes_of_messages(&self) -> u64 {
        self.sent.control + self.sent.worklist
    }
}

/// The open steps of a case, with their sites.
fn ahead(instance: &Instance, sites: &[Asked]) -> Vec<Open> {
    let is_open = |node: &&Node| match node.state {
        NodeState::Activated | NodeState::Claimed | NodeState::Answered | NodeState::Failed => true,
        NodeState::NotActivated
        | NodeState::Running
        | NodeState::Completed
        | NodeState::Skipped => false,
    };
    let open = |node: &Node| {
        // Servers are named like their sites, with a number.
        let server = node.server.as_deref()?;
        let site = sites.iter().find(|site| server.strip_prefix(site.name) == Some("-1"))?;
        let round = node.activity.iteration.0.last().map(|round| round + 1);
        Some(Open { site: site.name, step: node.name.to_string(), round })
    };
    instance.nodes.iter().filter(is_open).filter_map(open).collect()
}

/// The bytes sent by one server.
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

/// A gauge without labels; 0 if it is missing.
fn gauge(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse::<f64>().ok()).map_or(0, |value| value as u64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn site(name: &'static str) -> Site {
        let sent = LinkBytes {
            history: 900,
            small: 100,
            large: 2_000_000,
            control: 300_000,
            worklist: 200_000,
            ..LinkBytes::default()
        };
        let (items, jobs, entries_sent, entries_spared) = (2, 1, 20, 100);
        let (url, bytes_whole) = (String::new(), 3_000_000);
        Site { name, url, items, jobs, entries_sent, entries_spared, bytes_whole, sent }
    }

    /// Some cases, and four more that are not shown.
    pub(crate) fn board(cases: Vec<Case>) -> Board {
        let sites = vec![site("clinic"), site("imaging"), site("lab")];
        Board {
            seconds: 9,
            started: cases.len() + 7,
            ended: 3,
            cases,
            bytes_sent: sites.iter().map(Site::bytes_of_cases).sum(),
            bytes_messages: sites.iter().map(Site::bytes_of_messages).sum(),
            bytes_whole: 18_500_000,
            sites,
        }
    }

    #[test]
    fn a_case_has_one_line_and_messages_count_on_both_sides() {
        let open = |site, step: &str, round| Open { site, step: step.to_owned(), round };
        let case = |end: &str, patient, open| Case {
            instance: format!("inst_01KFZQ9Y5GB4D7T3N8XJ2{end}000"),
            patient,
            open,
        };
        let cases = vec![
            case("M6", 3, vec![open("imaging", "scan", None), open("lab", "analyse", None)]),
            case("M7", 4, vec![open("clinic", "treat", Some(2))]),
        ];
        let board = board(cases);
        insta::assert_snapshot!(anstream::adapter::strip_str(&board.render(8)).to_string(), @r"
        After 9 s: 9 patients came, 3 went home, 6 in treatment.

        CASE        PATIENT     ROUND       CLINIC      IMAGING     LAB
        8XJ2M6      3                                   scan        analyse
        8XJ2M7      4           2           treat
        and 4 more
        A case moves to the site where its next step is done.

        SITE     ITEMS  JOBS  HISTORY  VALUES  FILES   MESSAGES
        clinic   2      1     900 B    100 B   2.0 MB  500 kB
        imaging  2      1     900 B    100 B   2.0 MB  500 kB
        lab      2      1     900 B    100 B   2.0 MB  500 kB
        Items wait for people, jobs for the machine. The rest is what a site has sent: histories, values and files of cases, and the messages around them.

        Sent in all: 7.5 MB, of which 1.5 MB are messages. If each move took the whole case along, it would be 20 MB with the same messages: 62 % saved.
        ");
    }

    #[test]
    fn a_gauge_is_found_by_its_whole_name() {
        let metrics = "legwork_items_open_max 7\nlegwork_items_open 3\n";
        assert_eq!(gauge(metrics, "legwork_items_open"), 3);
        assert_eq!(gauge(metrics, "legwork_items"), 0);
    }
}
