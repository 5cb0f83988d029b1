//! The process of section 6: thirty activities, then ten rounds of fifteen at three servers.

use std::fmt::Write as _;
use std::sync::Arc;

use legwork_model::id::{DomainId, ServerId};
use legwork_placement::{Domain, Server, Topology, Transfer};

/// The number of loop iterations.
pub(crate) const ROUNDS: u32 = 10;
/// Large elements of the process, and their size.
pub(crate) const LARGE: usize = 5;
pub(crate) const LARGE_BYTES: u64 = 5_000_000;

/// Where `a`, `b`, `c` and `d` are controlled: servers 1 to 4 of the paper.
pub(crate) const DOMAINS: [&str; 4] = ["clinic", "ward", "imaging", "lab"];
/// The servers of `M2`, by their place in `DOMAINS`.
pub(crate) const SOURCE: u16 = 1;
pub(crate) const TARGET: u16 = 2;

/// The performers by server.
pub(crate) const AGENTS: [&str; 4] = ["ann", "ben", "cleo", "dan"];

/// Before the loop five scans are made. `c` reads three of these, and in every round `b` and `d`
/// replace one of the three.
pub(crate) fn definition() -> String {
    let mut text = String::from("process: treatment\ndata:\n  round: int\n");
    for scan in 1..=LARGE {
        let _ = writeln!(text, "  scan{scan}: file");
    }
    text.push_str("steps:\n");
    for number in 1..=30 {
        let writes = if number <= LARGE { format!("scan{number}") } else { String::new() };
        step(&mut text, 2, "a", number, "", &writes);
    }
    text.push_str("  - loop: cycle\n    steps:\n");
    for number in 1..=5 {
        step(&mut text, 6, "b", number, "", if number == 1 { "scan1" } else { "" });
    }
    for number in 1..=5 {
        let reads = if number <= 3 { format!("scan{number}") } else { String::new() };
        step(&mut text, 6, "c", number, &reads, "");
    }
    for number in 1..=5 {
        let writes = [("scan2", 1), ("round", 5)];
        let written = writes.iter().find(|(_, step)| *step == number);
        step(&mut text, 6, "d", number, "", written.map_or("", |(element, _)| element));
    }
    let _ = writeln!(text, "    until: round >= {ROUNDS}\n    max: {ROUNDS}");
    text
}

/// The same without the scans: then a link carries only the case itself.
pub(crate) fn definition_without_scans() -> String {
    let all = definition();
    let kept = all.lines().filter(|line| !line.contains("scan"));
    kept.map(|line| format!("{line}\n")).collect()
}

fn step(text: &mut String, indent: usize, group: &str, number: usize, reads: &str, writes: &str) {
    let place = ["a", "b", "c", "d"].iter().position(|name| *name == group).unwrap_or_default();
    let (domain, pad) = (DOMAINS[place], " ".repeat(indent));
    let _ = writeln!(
        text,
        "{pad}- step: {group}{number}\n{pad}  who: Role(staff)\n{pad}  at: {domain}"
    );
    if !reads.is_empty() {
        let _ = writeln!(text, "{pad}  reads: [{reads}]");
    }
    if !writes.is_empty() {
        let _ = writeln!(text, "{pad}  writes: [{writes}]");
    }
}

pub(crate) fn organisation() -> String {
    let agent = |name: &str| format!("  {name}: {{ name: {name}, roles: [staff] }}\n");
    let agents: String = AGENTS.iter().map(|name| agent(name)).collect();
    format!("organisation: hospital\nagents:\n{agents}")
}

pub(crate) fn topology(transfer: Transfer) -> Topology {
    let domain = |(number, name): (u16, &str)| {
        let domain = Domain::new(Arc::from(name), ServerId(number));
        Domain { transfer, ..domain }
    };
    let server = |(number, name): (u16, &str)| {
        let (address, api) = (format!("{name}:7710"), format!("http://{name}:7700"));
        Server::new(format!("{name}-1").into(), DomainId(number), address.into(), api.into())
    };
    Topology {
        name: Arc::from("hospital"),
        epoch: 1,
        domains: (0..).zip(DOMAINS).map(domain).collect(),
        servers: (0..).zip(DOMAINS).map(server).collect(),
        ..Topology::default()
    }
}
