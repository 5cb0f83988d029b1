//! Question: what does one offered item cost, in bytes and in time, among a million?
//!
//! One million items offered to a role of a thousand people, half of them under four eyes; then claims, completions
//! and reads. Bytes are resident memory as the kernel counts it (Linux), in total; times are of the processor, so
//! that other processes do not count. `cargo run --release -p legwork-org --example memory -- [items] [people]`

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::compile::compile;
use legwork_model::id::{Activity, AgentId, InstanceId, NodeId};
use legwork_model::rule::Rule;
use legwork_model::time::Timestamp;
use legwork_org::{ItemKey, Organisation, Performers, Worklists};

struct Did(AgentId);

impl Performers for Did {
    fn performer(&self, _: &str) -> Option<AgentId> {
        Some(self.0.clone())
    }

    fn starter(&self) -> Option<AgentId> {
        None
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let items = arguments.next().transpose()?.unwrap_or(1_000_000);
    let people = arguments.next().transpose()?.unwrap_or(1_000);

    let mut source = "organisation: o\nagents:\n".to_owned();
    for number in 0..people {
        writeln!(source, "  a{number}: {{ roles: [clerk] }}")?;
    }
    let (organisation, findings) = Organisation::parse(&source);
    let organisation = organisation.ok_or_else(|| format!("{findings:?}"))?;
    let (definition, _) =
        legwork_model::yaml::parse("process: p\nsteps: [{ step: a, who: Role(clerk) }]\n");
    let schema = Arc::new(compile(&definition.ok_or("no definition")?, 1)?);
    let plain: Rule = "Role(clerk)".parse()?;
    let four_eyes: Rule = "Role(clerk) EXCEPT NodePerformingAgent(a)".parse()?;
    let keys: Vec<ItemKey> = (0..items).map(key).collect();
    let agent = |number: u32| AgentId::from(&*format!("a{}", number % people));
    let agents: Vec<AgentId> = (0..people).map(agent).collect();
    let by = |place: usize| &agents[place % agents.len()];
    let at = Timestamp(1_800_000_000_000);

    let mut lists = Worklists::new(1, &organisation);
    let before = resident_bytes()?;
    let offered = timed(&keys, |place, key| {
        let rule = if place % 2 == 0 { &plain } else { &four_eyes };
        let resolved = organisation.resolve(rule, &Did(by(place).clone()));
        lists.offer(key, &schema, &resolved, at);
    })?;
    let bytes = (resident_bytes()? - before) / f64::from(items);

    let reading = processor_time()?;
    let (mut cursor, mut read, mut pages) = (None, 0, 0_u32);
    loop {
        let page = lists.list(&organisation, by(7), at, cursor, 100);
        read += page.items.len();
        pages += 1;
        cursor = Some(page.cursor);
        if !page.more {
            break;
        }
    }
    let page = (processor_time()? - reading) / pages;
    let polled = timed(&keys, |place, _| {
        let changed = cursor.is_some_and(|c| lists.changed_since(&organisation, by(7), at, c));
        assert!(!changed, "nothing has happened at {place}");
    })?;

    let half = &keys[..keys.len() / 2];
    let claimed = timed(half, |place, key| {
        lists.claim(key, by(place), at);
    })?;
    let after_claims = (resident_bytes()? - before) / f64::from(items);
    let withdrawn = timed(&keys, |_, key| {
        lists.withdraw(key);
    })?;
    let left = (resident_bytes()? - before) / 1024.0 / 1024.0;

    println!("{items} items, {people} people, result {read}-{}", lists.revision());
    println!("bytes per item          {bytes:9.1}  (after half are claimed {after_claims:.1})");
    println!("resolve and offer       {:9} ns", offered.as_nanos());
    println!("claim                   {:9} ns", claimed.as_nanos());
    println!("withdraw                {:9} ns", withdrawn.as_nanos());
    println!("page of 100             {:9} ns", page.as_nanos());
    println!("changed_since           {:9} ns", polled.as_nanos());
    println!("kept when empty         {left:9.1} MiB");
    Ok(())
}

fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
}

/// The mean time of one operation.
fn timed(
    keys: &[ItemKey],
    mut operation: impl FnMut(usize, &ItemKey),
) -> Result<Duration, Box<dyn Error>> {
    let start = processor_time()?;
    keys.iter().enumerate().for_each(|(place, key)| operation(place, key));
    Ok((processor_time()? - start) / u32::try_from(keys.len().max(1))?)
}

/// CPU time of this thread.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = schedule.split(' ').next().ok_or("no schedstat")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

/// Ids as a server generates them: the time in the high bits, noise in the low bits.
fn key(number: u32) -> ItemKey {
    let noise = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835) >> 48;
    let instance = InstanceId((0x0195_0000_0000 + u128::from(number / 8)) << 80 | noise);
    ItemKey { instance, activity: Activity::once(NodeId(3)) }
}
