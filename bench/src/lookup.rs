//! `place`: how long does it take to find the server of an instance, and its address?
//!
//! A domain of 1, 16 and 1,000 servers whose weights have changed nine times: by a moment and by
//! exceptions in turn, 10,000 of them each. Every other looked-up instance is an exception from
//! before all changes, so that all ten versions are visited; the others are new. Invariant: the
//! answers are part of the persistent format; the hash shows that they do not change.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result};
use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_placement::{Exceptions, Map, Rule, Sequence, Topology, Weighted};

use crate::report::{Row, rounded};
use crate::usage::load_average;

/// The sizes of domains that are measured.
pub const SERVERS: [(usize, &str); 3] = [(1, "place-1"), (16, "place-16"), (1_000, "place-1000")];

const VERSIONS: u64 = 10;
const EXCEPTIONS: u64 = 10_000;
/// The looked-up ids, used repeatedly: more than fit into a small cache.
const IDS: usize = 1 << 14;
const DOMAIN: DomainId = DomainId(0);

pub fn measure((servers, workload): (usize, &'static str), lookups: usize) -> Result<Row> {
    let load_average = load_average();
    let (topology, ids) = (topology(servers)?, ids());
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for id in &ids {
        let server = topology.server_in(DOMAIN, *id).map_or(0, |server| server.0);
        hash = (hash ^ u64::from(server)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    let begun = Instant::now();
    for lookup in 0..lookups {
        let server = topology.server_in(DOMAIN, black_box(ids[lookup % IDS]));
        black_box(server.and_then(|server| topology.address_of(server)));
    }
    let ns = begun.elapsed().as_secs_f64() * 1e9 / lookups as f64;
    Ok(Row {
        workload,
        cases: lookups,
        ns_per_lookup: Some(rounded(ns, 1)),
        hash: Some(format!("{hash:016x}")),
        load_average,
        ..Row::default()
    })
}

/// Moments at which weights changed lie 1,000 apart.
fn topology(servers: usize) -> Result<Topology> {
    let mut text = "topology: t\ndomains:\n  d:\n    servers:\n".to_owned();
    for number in 0..servers {
        let address = format!("address: \"h{number}:1\", api: \"http://h{number}\"");
        writeln!(text, "      s{number}: {{ {address} }}")?;
    }
    let (topology, findings) = Topology::parse(&text);
    let mut topology = topology.with_context(|| format!("{findings:?}"))?;
    let domain = topology.domains.first_mut().context("there is no domain")?;
    for version in 1..VERSIONS {
        let weight = |number: u16| 1 + (u32::from(number) * 7 + version as u32 * 13) % 50;
        let weights: Vec<Weighted> =
            (0..servers as u16).map(|number| (ServerId(number), weight(number))).collect();
        let rule = match version % 2 {
            1 => Rule::Since(version * 1_000),
            _ => Rule::Except(Exceptions::new((0..EXCEPTIONS).map(old))),
        };
        let layout = domain.chain.newest().next(&weights).context("nobody has a weight")?;
        domain.chain = domain.chain.then(layout, rule);
    }
    Ok(topology)
}

/// From before the first change.
fn old(number: u64) -> InstanceId {
    let mut sequence = Sequence::new((number as u32).wrapping_mul(0x85EB_CA6B));
    InstanceId::new(number % 1_000, number as u32, sequence.draw(), ServerId(0))
}

fn ids() -> Vec<InstanceId> {
    let mut sequence = Sequence::new(0);
    let id = |number: u64| match number % 2 {
        0 => old((number * 7_919) % EXCEPTIONS),
        _ => InstanceId::new(1_000_000 + number, 0, sequence.draw(), ServerId(0)),
    };
    (0..IDS as u64).map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_the_server_of_an_instance_is_measured() {
        let hashes = ["9c1bda7f8c872325", "bc924df975d4ede8", "8682ecdf2ed1c5e8"];
        for (size, hash) in SERVERS.into_iter().zip(hashes) {
            let row = measure(size, 100).unwrap();
            assert!(row.ns_per_lookup.is_some_and(|ns| ns > 0.0), "{row:?}");
            assert_eq!(row.hash.as_deref(), Some(hash), "{size:?}");
        }
    }
}
