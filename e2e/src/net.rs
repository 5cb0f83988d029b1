//! Sites with separate networks: a namespace each, and a virtual link between each pair.
//!
//! Invariant: everything created here is removed when the value is dropped. Links can be cut and slowed one by
//! one, and have traffic counters.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;

/// Sites that reach each other only over these links.
pub struct Net {
    prefix: String,
    size: usize,
}

/// The traffic of a link in one direction, as counted by the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// With the headers of Ethernet, IP and TCP.
    pub bytes: u64,
    pub packets: u64,
}

impl Net {
    /// `None` if the machine does not allow it.
    pub fn new(size: usize) -> Result<Option<Self>> {
        let net = Self { prefix: format!("lw{}", std::process::id()), size };
        if !allowed(&["netns", "add", &net.namespace(0)]) {
            return Ok(None);
        }
        for site in 1..size {
            ip(&["netns", "add", &net.namespace(site)])?;
        }
        for site in 0..size {
            let namespace = net.namespace(site);
            let address = format!("{}/32", net.address(site));
            net.quiet(site);
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", &namespace, "address", "add", &address, "dev", "lo"])?;
        }
        for (a, b) in net.pairs() {
            let (from, to) = (net.namespace(a), net.namespace(b));
            let (there, back) = (wire(b), wire(a));
            let peer = ["type", "veth", "peer", "name", &back, "netns", &to];
            ip(&[&["link", "add", &there, "netns", &from], &peer[..]].concat())?;
            net.mend(a, b)?;
        }
        Ok(Some(net))
    }

    pub fn address(&self, site: usize) -> String {
        format!("10.77.0.{}", site + 1)
    }

    pub fn namespace(&self, site: usize) -> String {
        format!("{}-{site}", self.prefix)
    }

    /// Drops all packets between the two, silently.
    pub fn cut(&self, a: usize, b: usize) -> Result<()> {
        ip(&["-n", &self.namespace(a), "link", "set", &wire(b), "down"])
    }

    pub fn mend(&self, a: usize, b: usize) -> Result<()> {
        for (here, there) in [(a, b), (b, a)] {
            let (namespace, device) = (self.namespace(here), wire(there));
            let (to, from) = (self.address(there), self.address(here));
            ip(&["-n", &namespace, "link", "set", &device, "up"])?;
            ip(&["-n", &namespace, "route", "replace", &to, "dev", &device, "src", &from])?;
        }
        Ok(())
    }

    /// Limits the bandwidth, e.g. `256kbit`, in both directions.
    pub fn slow(&self, a: usize, b: usize, rate: &str) -> Result<()> {
        for (here, there) in [(a, b), (b, a)] {
            let (namespace, device) = (self.namespace(here), wire(there));
            let what = ["-n", &namespace, "qdisc", "replace", "dev", &device, "root"];
            let how = ["tbf", "rate", rate, "burst", "16kbit", "latency", "2s"];
            run("tc", &[&what[..], &how].concat())?;
        }
        Ok(())
    }

    /// The traffic of one site to another.
    pub fn traffic(&self, from: usize, to: usize) -> Result<Traffic> {
        let arguments = ["-n", &self.namespace(from), "-s", "-j", "link", "show", &wire(to)];
        let output = Command::new("ip").args(arguments).output()?;
        let links: Json = serde_json::from_slice(&output.stdout)?;
        let sent = &links[0]["stats64"]["tx"];
        let number =
            |name: &str| sent[name].as_u64().with_context(|| format!("no {name}: {links}"));
        Ok(Traffic { bytes: number("bytes")?, packets: number("packets")? })
    }

    /// The number of TCP retransmissions of a site, over all its links.
    pub fn sent_again(&self, site: usize) -> Result<u64> {
        let snmp = ["netns", "exec", &self.namespace(site), "cat", "/proc/net/snmp"];
        let output = Command::new("ip").args(snmp).output()?;
        let text = String::from_utf8(output.stdout)?;
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, numbers) = (lines.next(), lines.next());
        let (names, numbers) = names.zip(numbers).with_context(|| format!("no TCP: {text}"))?;
        let mut both = names.split(' ').zip(numbers.split(' '));
        let again = both.find(|(name, _)| *name == "RetransSegs").context("not counted")?.1;
        Ok(again.parse()?)
    }

    /// Only servers send on the links: IPv6 neighbour discovery is off, if there is IPv6.
    fn quiet(&self, site: usize) {
        for which in ["all", "default"] {
            let set = format!("echo 1 > /proc/sys/net/ipv6/conf/{which}/disable_ipv6");
            allowed(&["netns", "exec", &self.namespace(site), "sh", "-c", &set]);
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let size = self.size;
        (0..size).flat_map(move |a| (a + 1..size).map(move |b| (a, b)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for site in 0..self.size {
            // The links are removed with their ends.
            allowed(&["netns", "delete", &self.namespace(site)]);
        }
    }
}

/// The interface that leads to a site.
fn wire(to: usize) -> String {
    format!("to{to}")
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    Ok(())
}

fn allowed(arguments: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
