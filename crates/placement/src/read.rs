//! Reads a topology from YAML, with all that is wrong with it.
//!
//! Whatever the text, reading ends quickly and never panics. Names count as declared also by
//! entries that turn out to be broken, so that one mistake does not make every reference another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::finding::{Finding, Rule, Spanned};
use legwork_model::yaml::fields::{self, Fields, NAME_LEN_MAX, list, quote};
use legwork_model::yaml::nearest;
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Node};

use crate::address;
use crate::number::{self, Draft, DraftDomain, DraftServer, Ends};
use crate::topology::{Topology, Transfer};

/// The most domains, and so the most servers.
pub const DOMAINS_MAX: usize = 1_000;
/// The most people, and the most executors, at home in one domain.
pub const AT_HOME_MAX: usize = 20_000;
/// The most links of which something is said.
pub const LINKS_MAX: usize = 10_000;
/// The most a byte may cost over a link.
pub const COST_MAX: u32 = 1_000_000;
/// The longest name of a server: it is a label of a host's name.
pub const SERVER_NAME_LEN_MAX: usize = 63;

pub(crate) const TOPOLOGY_FIELDS: [&str; 3] = ["topology", "domains", "links"];
pub(crate) const DOMAIN_FIELDS: [&str; 4] = ["servers", "people", "executors", "transfer"];
pub(crate) const SERVER_FIELDS: [&str; 2] = ["address", "api"];
pub(crate) const LINK_FIELDS: [&str; 2] = ["between", "cost"];

/// For how many unknown names the nearest known one is looked for: that takes time.
const GUESSES_MAX: usize = 20;

impl Topology {
    /// Reads the first topology there is.
    pub fn parse(source: &str) -> (Option<Self>, Vec<Finding>) {
        Self::succeed(source, None)
    }

    /// Reads the topology that follows another: what both have keeps its number, and nothing that
    /// there was may be missing.
    pub fn succeed(source: &str, previous: Option<&Self>) -> (Option<Self>, Vec<Finding>) {
        let mut reading = Reading::default();
        let draft = tree::read(source, &mut reading.report).and_then(|root| reading.draft(&root));
        let Reading { mut report, unreadable, .. } = reading;
        let none = Self::default();
        let topology = draft.map(|draft| {
            // What could not be read is not missing.
            let previous = previous.filter(|_| !unreadable);
            number::number(draft, previous.unwrap_or(&none), &mut report)
        });
        let whole = topology.filter(|_| report.is_clean());
        (whole, report.into_findings())
    }
}

#[derive(Default)]
struct Reading {
    report: Report,
    /// All names of domains, in the order of the text.
    domains: Vec<Arc<str>>,
    /// Not all domains are known: nothing can be said about names that are not.
    unreadable: bool,
    servers: BTreeSet<Arc<str>>,
    addresses: BTreeSet<Arc<str>>,
    people: BTreeSet<Arc<str>>,
    executors: BTreeSet<Arc<str>>,
    guesses: usize,
}

impl Reading {
    fn draft(&mut self, root: &Node) -> Option<Draft> {
        let fields = Fields::of(root, "a topology", &mut self.report)?;
        fields.refuse_unknown(&TOPOLOGY_FIELDS, &mut self.report);
        let hint = "begin the file with `topology: ` and a name";
        let name = fields.required("topology", hint, &mut self.report);
        let name = name.and_then(|node| self.name_of(node, "the name of the topology"));
        let hint = "write `domains:` and, below, a name for every domain";
        let section = fields.required("domains", hint, &mut self.report);
        self.unreadable = section.is_none();
        let domains = section.map(|node| self.domains(node)).unwrap_or_default();
        let links = fields.value("links").map(|node| self.links(node)).unwrap_or_default();
        Some(Draft { name: name.map(|name| name.value).unwrap_or_default(), domains, links })
    }

    fn domains(&mut self, node: &Node) -> Vec<DraftDomain> {
        let Some(entries) = Fields::of(node, "`domains`", &mut self.report) else {
            self.unreadable = true;
            return Vec::new();
        };
        let mut named = Vec::new();
        for (key, value) in entries.iter() {
            if named.len() == DOMAINS_MAX {
                let message = format!("there are more than {DOMAINS_MAX} domains");
                self.report.error(key.span, Rule::Y3, message, "put several places into one");
                self.unreadable = true;
                break;
            }
            match self.domain_name(key) {
                Some(name) => {
                    self.domains.push(name.value.clone());
                    named.push((name, value));
                }
                None => self.unreadable = true,
            }
        }
        if named.is_empty() && !self.unreadable {
            let hint = "write a name for every domain, and below it its server";
            self.report.error(node.span, Rule::Y2, "there is no domain", hint);
        }
        named.into_iter().filter_map(|(name, value)| self.domain(name, value)).collect()
    }

    fn domain(&mut self, name: Spanned<Arc<str>>, node: &Node) -> Option<DraftDomain> {
        let what = format!("domain `{}`", name.value);
        let Some(fields) = Fields::of(node, &what, &mut self.report) else {
            self.unreadable = true;
            return None;
        };
        fields.refuse_unknown(&DOMAIN_FIELDS, &mut self.report);
        let people = self.at_home(&fields, "people");
        let executors = self.at_home(&fields, "executors");
        let transfer = fields.value("transfer").map(|node| self.transfer(node, &what));
        let hint =
            "write `servers: { NAME: { address: \"HOST:PORT\", api: \"http://HOST:PORT\" } }`";
        let server = fields.required("servers", hint, &mut self.report);
        let server = server.and_then(|node| self.server_of(node, &what));
        self.unreadable |= server.is_none();
        let transfer = transfer.flatten().unwrap_or_default();
        Some(DraftDomain { name, transfer, server: server?, people, executors })
    }

    fn transfer(&mut self, node: &Node, what: &str) -> Option<Transfer> {
        let what = format!("`transfer` of {what}");
        let text = fields::text(node, &what, NAME_LEN_MAX, &mut self.report)?;
        let known = Transfer::ALL.into_iter().find(|transfer| transfer.word() == text.value);
        if known.is_none() {
            let message = format!("{what} cannot be {}", quote(text.value));
            let hint = format!("write one of {}", list(&Transfer::ALL.map(Transfer::word)));
            self.report.error(text.span, Rule::Y2, message, hint);
        }
        known
    }

    /// The one server of a domain.
    fn server_of(&mut self, node: &Node, domain: &str) -> Option<DraftServer> {
        let what = format!("`servers` of {domain}");
        let entries = Fields::of(node, &what, &mut self.report)?;
        let mut servers = entries.iter();
        let Some((key, value)) = servers.next() else {
            let message = format!("{domain} has no server");
            let hint = "name the server that is there, or leave the domain out";
            self.report.error(node.span, Rule::Y2, message, hint);
            return None;
        };
        if let Some((second, _)) = servers.next() {
            let message = format!("{domain} has more than one server");
            let hint = "keep one of them, or give the other a domain of its own";
            self.report.error(second.span, Rule::Y3, message, hint);
        }
        let name = self.server_name(key)?;
        let what = format!("server `{}`", name.value);
        if !self.servers.insert(name.value.clone()) {
            let message = format!("{what} is in two domains");
            self.report.error(name.span, Rule::Y2, message, "give one of them another name");
        }
        let fields = Fields::of(value, &what, &mut self.report)?;
        fields.refuse_unknown(&SERVER_FIELDS, &mut self.report);
        let hint = "write `address: \"HOST:PORT\"`: where the other servers reach it";
        let address = fields.required("address", hint, &mut self.report);
        let address = address.and_then(|node| self.reached_at(node, &what, address::peer));
        let hint = "write `api: \"http://HOST:PORT\"`: where people and programs reach it";
        let api = fields.required("api", hint, &mut self.report);
        let api = api.and_then(|node| self.reached_at(node, &what, address::api));
        Some(DraftServer { name, address: address?, api: api? })
    }

    fn reached_at(
        &mut self,
        node: &Node,
        what: &str,
        read: fn(&str) -> Result<Arc<str>, &'static str>,
    ) -> Option<Arc<str>> {
        let what = format!("where {what} is reached");
        let text = fields::text(node, &what, address::LEN_MAX, &mut self.report)?;
        match read(text.value) {
            Ok(address) => {
                if !self.addresses.insert(address.clone()) {
                    let message = format!("{} is written twice", quote(&address));
                    let hint = "every server has addresses of its own";
                    self.report.error(text.span, Rule::Y2, message, hint);
                }
                Some(address)
            }
            Err(hint) => {
                let message = format!("{what} cannot be {}", quote(text.value));
                self.report.error(text.span, Rule::Y2, message, hint);
                None
            }
        }
    }

    /// Who is at home in a domain, of people or of executors; nobody in two.
    fn at_home(&mut self, fields: &Fields<'_>, key: &'static str) -> Vec<Arc<str>> {
        let what = format!("`{key}` of {}", fields.what());
        let Some(node) = fields.value(key) else { return Vec::new() };
        let hint = format!("write `{key}: [ … ]`");
        let Some(items) = fields::items(node, &what, &hint, &mut self.report) else {
            return Vec::new();
        };
        if let Some(beyond) = items.get(AT_HOME_MAX) {
            let message = format!("{what} has more than {AT_HOME_MAX} entries");
            self.report.error(beyond.span, Rule::Y3, message, "split the domain");
            return Vec::new();
        }
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            let Some(name) = self.name_of(item, &format!("a name in {what}")) else { continue };
            let seen = if key == "people" { &mut self.people } else { &mut self.executors };
            if seen.insert(name.value.clone()) {
                names.push(name.value);
            } else {
                let message = format!("`{}` is at home twice", name.value);
                let hint = "let everybody be at home in one domain";
                self.report.error(name.span, Rule::Y2, message, hint);
            }
        }
        names
    }

    fn links(&mut self, node: &Node) -> BTreeMap<Ends, u32> {
        let mut links = BTreeMap::new();
        let hint = "write `- { between: [a, b], cost: 5 }`, one on each line";
        let Some(items) = fields::items(node, "`links`", hint, &mut self.report) else {
            return links;
        };
        if let Some(beyond) = items.get(LINKS_MAX) {
            let message = format!("there are more than {LINKS_MAX} links");
            self.report.error(beyond.span, Rule::Y3, message, "keep those that cost more than 1");
            return links;
        }
        for item in items {
            let Some((ends, cost)) = self.link(item) else { continue };
            if links.insert(ends, cost).is_some() {
                let message = "the cost between these two domains is written twice";
                self.report.error(item.span, Rule::Y2, message, "keep one of them");
            }
        }
        links
    }

    /// What a byte costs between which domains.
    fn link(&mut self, node: &Node) -> Option<(Ends, u32)> {
        let fields = Fields::of(node, "a link", &mut self.report)?;
        fields.refuse_unknown(&LINK_FIELDS, &mut self.report);
        let hint = format!("write `cost: ` and a whole number from 1 to {COST_MAX}");
        let cost = fields.required("cost", &hint, &mut self.report).and_then(|node| {
            fields::number(node, "the cost of a link", 1..=COST_MAX, &mut self.report)
        });
        let hint = "write `between: [a, b]`";
        let between = fields.required("between", hint, &mut self.report)?;
        let items = fields::items(between, "`between` of a link", hint, &mut self.report)?;
        let [a, b] = items else {
            let message = format!("a link is between two domains, not {}", items.len());
            self.report.error(between.span, Rule::Y2, message, hint);
            return None;
        };
        let (a, b) = (self.known_domain(a), self.known_domain(b));
        let (a, b) = (a?, b?);
        if a == b {
            let message = format!("a link cannot lead from `{a}` to itself");
            let hint = "within a domain nothing is paid; leave the link out";
            self.report.error(between.span, Rule::Y2, message, hint);
            return None;
        }
        Some(((a.clone().min(b.clone()), a.max(b)), cost?))
    }

    fn known_domain(&mut self, node: &Node) -> Option<Arc<str>> {
        let name = self.name_of(node, "a domain of a link")?;
        if self.domains.contains(&name.value) {
            return Some(name.value);
        }
        if !self.unreadable {
            self.guesses += 1;
            let known = self.domains.iter().map(|known| &**known);
            let near = if self.guesses <= GUESSES_MAX { nearest(&name.value, known) } else { None };
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "add it to `domains`, or name another".to_owned(),
            };
            let message = format!("there is no domain `{}`", name.value);
            self.report.error(name.span, Rule::Z1, message, hint);
        }
        None
    }

    /// As an assignment can write it.
    fn domain_name(&mut self, text: Spanned<&str>) -> Option<Spanned<Arc<str>>> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let hint = "a name begins with a letter or a digit and goes on with letters a-z, digits, \
                    `-`, `_` and `.`";
        self.checked_name(text, "the name of a domain", NAME_LEN_MAX, plain, hint)
    }

    /// As it can stand in a certificate.
    fn server_name(&mut self, text: Spanned<&str>) -> Option<Spanned<Arc<str>>> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let hint = "a name begins with a letter a-z, goes on with a-z, 0-9 and `-`, and does not \
                    end with `-`";
        let name =
            self.checked_name(text, "the name of a server", SERVER_NAME_LEN_MAX, plain, hint)?;
        if name.value.starts_with(|c: char| c.is_ascii_lowercase()) && !name.value.ends_with('-') {
            return Some(name);
        }
        let message = format!("the name of a server cannot be {}", quote(&name.value));
        self.report.error(name.span, Rule::Y2, message, hint);
        None
    }

    /// As an organisation, or a worker, writes it.
    fn name_of(&mut self, node: &Node, what: &str) -> Option<Spanned<Arc<str>>> {
        let text = fields::text(node, what, usize::MAX, &mut self.report)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        let hint = "a name begins with a letter or a digit and goes on with letters a-z, digits, \
                    `-`, `_`, `.` and `@`";
        self.checked_name(text, what, NAME_LEN_MAX, plain, hint)
    }

    fn checked_name(
        &mut self,
        text: Spanned<&str>,
        what: &str,
        len_max: usize,
        plain: impl Fn(char) -> bool,
        hint: &str,
    ) -> Option<Spanned<Arc<str>>> {
        let Spanned { value, span } = text;
        if value.chars().nth(len_max).is_some() {
            let message = format!("{what} is longer than {len_max} characters");
            self.report.error(span, Rule::Y3, message, "choose a shorter name");
            return None;
        }
        if value.starts_with(|c: char| c.is_ascii_alphanumeric()) && value.chars().all(plain) {
            return Some(Spanned::new(Arc::from(value), span));
        }
        let message = format!("{what} cannot be {}", quote(value));
        self.report.error(span, Rule::Y2, message, hint);
        None
    }
}
