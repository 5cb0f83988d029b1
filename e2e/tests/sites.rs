//! Five sites, each a process with a separate network: links are cut and slowed, servers killed,
//! and every case has the same result as without.
//!
//! On a machine without namespaces the servers are on loopback, and no link is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_e2e::net::{Net, Traffic};
use legwork_e2e::{Folder, Server, legwork};
use legwork_testbed::free_port;
use serde_json::Value as Json;

const SITES: usize = 5;
const CASES: usize = 10;
const PEER_PORT: u16 = 7710;
const PATIENCE: Duration = Duration::from_secs(120);
/// Ethernet, IPv4 and TCP with timestamps.
const HEADER_BYTES: u64 = 14 + 20 + 32;
/// The TCP segment size on Ethernet.
const SEGMENT_BYTES_MAX: u64 = 1_448;

/// Through all five sites, two of them in parallel, with a document from one to another.
const TOUR: &str = "
process: tour
data: { n: int, sum: int, document: file, verdict: string }
start: [n]
result: [sum, verdict]
steps:
  - { step: open, who: Role(staff), at: s1, reads: [n], writes: [sum] }
  - parallel: apart
    branches:
      - steps:
          - { step: write, who: Role(staff), at: s2, reads: [n], writes: [document] }
          - { step: read, who: Role(staff), at: s4, reads: [document] }
      - steps:
          - { step: judge, who: Role(staff), at: s3, reads: [sum], writes: [verdict] }
  - { step: close, who: Role(staff), at: Domain(Actor(open)), reads: [verdict, document] }
";
const STEPS: [&str; 5] = ["close", "judge", "open", "read", "write"];

struct Sites {
    folder: Folder,
    net: Option<Net>,
    servers: Vec<Option<Server>>,
    /// The id of each case, by number.
    cases: BTreeMap<usize, String>,
}

impl Sites {
    async fn new() -> Result<Self> {
        let (folder, net) = (Folder::new()?, Net::new(SITES)?);
        let addresses = match &net {
            Some(net) => (0..SITES).map(|s| format!("{}:{PEER_PORT}", net.address(s))).collect(),
            None => free_addresses()?,
        };
        let mut topology = "topology: group\ndomains:\n".to_owned();
        let mut organisation = "organisation: group\nagents:\n".to_owned();
        for (site, address) in addresses.iter().enumerate() {
            topology.push_str(&format!(
                "  s{site}:\n    servers:\n      s{site}-1: {{ address: \"{address}\", api: \
                 \"http://s{site}.example:7700\" }}\n    people: [p{site}]\n"
            ));
            organisation.push_str(&format!("  p{site}: {{ name: P{site}, roles: [staff] }}\n"));
        }
        folder.file("topology.yaml", topology)?;
        folder.file("organisation.yaml", organisation)?;
        folder.file("tour.yaml", TOUR)?;
        folder.file("document.txt", "word by word\n".repeat(20_000))?;
        legwork(folder.path(), &["cluster", "init", "topology.yaml", "--out", "cluster"])?
            .succeeded()?;
        let servers = (0..SITES).map(|_| None).collect();
        let mut sites = Self { folder, net, servers, cases: BTreeMap::new() };
        for site in 0..SITES {
            sites.up(site).await?;
        }
        // At one of them; the others get it by replication.
        sites.server(3)?.run(&["deploy", "organisation.yaml", "tour.yaml"])?.succeeded()?;
        Ok(sites)
    }

    async fn up(&mut self, site: usize) -> Result<()> {
        let (name, cluster) = (format!("s{site}-1"), format!("cluster/s{site}-1"));
        let args = ["--cluster", &cluster];
        let server = match &self.net {
            Some(net) => self.folder.server_in(&net.namespace(site), &name, &args).await?,
            None => self.folder.server(&name, &args).await?,
        };
        self.servers[site] = Some(server);
        Ok(())
    }

    fn kill(&mut self, site: usize) -> Result<()> {
        self.servers[site].take().context("it does not run")?.kill()
    }

    fn server(&self, site: usize) -> Result<&Server> {
        self.servers[site].as_ref().with_context(|| format!("s{site} does not run"))
    }

    fn start(&mut self, number: usize) -> Result<()> {
        let server = self.server(number % SITES)?;
        let n = format!("n={number}");
        let started = server.run(&["start", "tour", "--set", &n, "--json"])?.json()?;
        let id = started["instance"].as_str().context("no id")?.to_owned();
        self.cases.insert(number, id);
        Ok(())
    }

    /// Everybody does the items visible at a site, wherever they are controlled; returns their
    /// number.
    fn work(&self, turn: usize) -> Result<usize> {
        let mut done = 0;
        for person in 0..SITES {
            let entry = (person + turn) % SITES;
            let Some(server) = &self.servers[entry] else { continue };
            let agent = format!("p{person}");
            let list = server.run(&["--as", &agent, "work", "list", "--json"])?;
            // A site that just came up may not have the organisation yet.
            let Ok(list) = list.json() else { continue };
            for item in list["items"].as_array().into_iter().flatten() {
                done += usize::from(complete(server, &agent, item)?);
            }
        }
        Ok(done)
    }

    /// Works until every case has ended.
    fn finish(&self) -> Result<()> {
        let begun = Instant::now();
        let mut turn = 0;
        while !self.have_ended()? {
            ensure!(begun.elapsed() < PATIENCE, "still open: {}", self.describe());
            self.work(turn)?;
            turn += 1;
        }
        Ok(())
    }

    fn have_ended(&self) -> Result<bool> {
        for (number, id) in &self.cases {
            if self.shown(*number, id)?["state"] != "completed" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn shown(&self, number: usize, id: &str) -> Result<Json> {
        self.server(number % SITES)?.run(&["show", id, "--json"])?.json()
    }

    /// Every case has the results of its own data, and did every step once.
    fn check(&self) -> Result<()> {
        for (number, id) in &self.cases {
            let shown = self.shown(*number, id)?;
            ensure!(shown["result"]["sum"] == 2 * number, "{shown}");
            ensure!(shown["result"]["verdict"] == format!("fine {}", 2 * number), "{shown}");
            let server = self.server(number % SITES)?;
            let history = server.run(&["history", id, "--json"])?.json()?;
            let entries = history["entries"].as_array().context("no entries")?;
            let mut steps: Vec<&str> = entries
                .iter()
                .filter(|entry| entry["kind"] == "completed")
                .filter_map(|entry| entry["step"].as_str())
                .collect();
            steps.sort_unstable();
            ensure!(steps == STEPS, "{id}: {steps:?}\n{history:#}");
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (number, id) in &self.cases {
            let shown = self.shown(*number, id).unwrap_or_default();
            let state = |node: &Json| format!("{}:{}", node["name"], node["state"]);
            let nodes = shown["nodes"].as_array().into_iter().flatten().map(state);
            let nodes: Vec<String> = nodes.collect();
            text.push_str(&format!("\n{number} {id} {} {nodes:?}", shown["state"]));
        }
        for (site, server) in self.servers.iter().enumerate() {
            let log = server.as_ref().map(Server::log).unwrap_or_default();
            text.push_str(&format!("\n--- s{site}\n{log}"));
        }
        text
    }
}

/// Completes an item; a late completion, or one for an unreachable server, is left out.
fn complete(server: &Server, agent: &str, item: &Json) -> Result<bool> {
    let activity = item["activity"].as_str().context("an item without a name")?;
    let step = activity.rsplit(':').next().unwrap_or_default();
    let detail = server.run(&["--as", agent, "work", "show", activity, "--json"])?;
    let Ok(detail) = detail.json() else { return Ok(false) };
    let mut args = vec!["--as", agent, "work", "complete", activity];
    let value = match step {
        "open" => format!("sum={}", 2 * detail["inputs"]["n"].as_u64().context("no n")?),
        "judge" => format!("verdict=fine {}", detail["inputs"]["sum"]),
        "write" => "document=document.txt".to_owned(),
        _ => String::new(),
    };
    match step {
        "open" | "judge" => args.extend(["--set", &value]),
        "write" => args.extend(["--file", &value]),
        _ => {}
    }
    Ok(server.run(&args)?.code == Some(0))
}

/// On loopback, all different.
fn free_addresses() -> Result<Vec<String>> {
    let held: Vec<TcpListener> = (0..SITES).map(|_| free_port()).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}

/// The bytes sent by each server to each other one, by its socket counters.
fn counted(sites: &Sites) -> Result<BTreeMap<(usize, usize), u64>> {
    let mut counted = BTreeMap::new();
    for from in 0..SITES {
        let links = sites.server(from)?.run(&["cluster", "links", "--json"])?.json()?;
        for link in links["links"].as_array().context("no links")? {
            let name = link["server"].as_str().unwrap_or_default();
            let to = name.trim_start_matches('s').trim_end_matches("-1").parse()?;
            let bytes = link["sent"]["socket"].as_u64().context("no bytes")?;
            counted.insert((from, to), bytes);
        }
    }
    Ok(counted)
}

/// The counters of the servers agree with those of the links, except for packet headers.
fn compare(sites: &Sites, net: &Net) -> Result<()> {
    let before = counted(sites)?;
    let mut wires = BTreeMap::new();
    for &(from, to) in before.keys() {
        wires.insert((from, to), net.traffic(from, to)?);
    }
    let after = counted(sites)?;
    let again: Vec<u64> = (0..SITES).map(|site| net.sent_again(site)).collect::<Result<_>>()?;
    for (way, Traffic { bytes, packets }) in wires {
        let content = bytes.saturating_sub(packets * HEADER_BYTES);
        // Between two reads of a counter keep-alives pass; a handshake has longer headers.
        let slack = 600 + content / 50;
        let least = before[&way].saturating_sub(slack);
        // Retransmissions were on the link twice and are counted once.
        let most = after[&way] + slack + again[way.0] * SEGMENT_BYTES_MAX;
        ensure!(
            (least..=most).contains(&content),
            "{way:?}: {content} on the wire, {} to {} counted",
            before[&way],
            after[&way]
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_go_through_five_sites_whatever_happens_to_wires_and_servers() -> Result<()> {
    let mut sites = Sites::new().await?;
    for number in 0..CASES / 2 {
        until_known(&sites, number % SITES)?;
        sites.start(number)?;
    }
    sites.finish()?;
    if let Some(net) = &sites.net {
        compare(&sites, net)?;
    }

    for number in CASES / 2..CASES {
        sites.start(number)?;
    }
    if let Some(net) = &sites.net {
        net.cut(1, 2)?;
        net.cut(0, 3)?;
        net.slow(1, 3, "256kbit")?;
        net.slow(2, 4, "1mbit")?;
    }
    for turn in 0..4 {
        sites.work(turn)?;
    }
    sites.kill(3)?;
    sites.work(1)?;
    sites.up(3).await?;
    sites.kill(2)?;
    sites.work(3)?;
    sites.up(2).await?;
    if let Some(net) = &sites.net {
        net.mend(1, 2)?;
        net.mend(0, 3)?;
    }
    sites.finish()?;
    sites.check()?;
    let ids: BTreeSet<&String> = sites.cases.values().collect();
    ensure!(ids.len() == CASES, "two cases have one id");
    Ok(())
}

/// Waits until the definition is replicated.
fn until_known(sites: &Sites, site: usize) -> Result<()> {
    let begun = Instant::now();
    while sites.server(site)?.run(&["processes", "tour", "--json"])?.code != Some(0) {
        ensure!(begun.elapsed() < PATIENCE, "s{site} does not get the definition");
    }
    Ok(())
}
