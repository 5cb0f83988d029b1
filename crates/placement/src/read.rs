//! Reads a topology from YAML and reports all mistakes.
//!
//! Invariant: reading ends quickly and never panics, whatever the text. Names of broken entries
//! count as declared, so that one mistake does not make every reference another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::assignment::EXECUTOR;
use legwork_model::finding::{Finding, Rule, Spanned};
use legwork_model::id::DomainId;
use legwork_model::yaml::fields::{self, Fields, NAME_LEN_MAX, list, quote};
use legwork_model::yaml::nearest;
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Node};

use crate::address;
use crate::chain;
use crate::number::{self, Draft, DraftDomain, Ends};
use crate::topology::{SmallValues, Store, Topology, Transfer};

/// The most domains.
pub const DOMAINS_MAX: usize = 1_000;
/// The most people, and the most executors, at home in one domain.
pub const AT_HOME_MAX: usize = 20_000;
/// The most links with a cost.
pub const LINKS_MAX: usize = 10_000;
/// The highest cost of a byte over a link.
pub const COST_MAX: u32 = 1_000_000;
/// The longest name of a server: it is a label of a host name.
pub const SERVER_NAME_LEN_MAX: usize = 63;

/// The most servers in all domains together.
pub const SERVERS_MAX: usize = 4_000;

pub(crate) const TOPOLOGY_FIELDS: [&str; 5] =
    ["topology", "domains", "links", "watchdog", "small_value_bytes"];
pub(crate) const DOMAIN_FIELDS: [&str; 5] = ["servers", "people", "executors", "transfer", "store"];
pub(crate) const LINK_FIELDS: [&str; 2] = ["between", "cost"];

/// For how many unknown names the nearest known one is searched: that takes time.
const GUESSES_MAX: usize = 20;

impl Topology {
    /// Reads a first topology.
    pub fn parse(source: &str) -> (Option<Self>, Vec<Finding>) {
        Self::succeed(source, None, &BTreeMap::new())
    }

    /// Reads the topology that follows another: shared names keep their numbers, and nothing may be
    /// missing. Where the weights of a domain change, `rules` says to which instances the new
    /// layout applies: to all by default.
    pub fn succeed(
        source: &str,
        previous: Option<&Self>,
        rules: &BTreeMap<DomainId, chain::Rule>,
    ) -> (Option<Self>, Vec<Finding>) {
        let mut reading = Reading::default();
        let draft = tree::read(source, &mut reading.report).and_then(|root| reading.draft(&root));
        let Reading { mut report, unreadable, .. } = reading;
        let none = Self::default();
        let topology = draft.map(|draft| {
            // An unreadable entry is not missing.
            let previous = previous.filter(|_| !unreadable);
            number::number(draft, previous.unwrap_or(&none), rules, &mut report)
        });
        let whole = topology.filter(|_| !report.has_errors());
        (whole, report.into_findings())
    }
}

#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) report: Report,
    /// All names of domains, in the order of the text.
    domains: Vec<Arc<str>>,
    /// Some domains are unknown: unknown names cannot be reported.
    pub(crate) unreadable: bool,
    pub(crate) servers: BTreeSet<Arc<str>>,
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
        let watchdog = fields.value("watchdog").map(|node| self.watchdog(node));
        let small_values = fields.value("small_value_bytes").and_then(|node| {
            let what = "`small_value_bytes`";
            fields::number(node, what, 0..=SmallValues::MAX, &mut self.report).map(SmallValues)
        });
        Some(Draft {
            name: name.map(|name| name.value).unwrap_or_default(),
            domains,
            links,
            watchdog: watchdog.unwrap_or_default(),
            small_values: small_values.unwrap_or_default(),
        })
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
            let hint = "write a name for every domain, and below it its servers";
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
        let transfer = fields.value("transfer").and_then(|node| {
            self.word(node, &format!("`transfer` of {what}"), Transfer::ALL, Transfer::word)
        });
        let store = fields.value("store").and_then(|node| {
            self.word(node, &format!("`store` of {what}"), Store::ALL, Store::word)
        });
        let hint =
            "write `servers: { NAME: { address: \"HOST:PORT\", api: \"http://HOST:PORT\" } }`";
        let servers = fields.required("servers", hint, &mut self.report);
        let servers = servers.and_then(|node| self.servers_of(node, &what));
        self.unreadable |= servers.is_none();
        let (transfer, store) = (transfer.unwrap_or_default(), store.unwrap_or_default());
        Some(DraftDomain { name, transfer, store, servers: servers?, people, executors })
    }

    /// One of some words.
    pub(crate) fn word<T: Copy, const N: usize>(
        &mut self,
        node: &Node,
        what: &str,
        all: [T; N],
        word: fn(T) -> &'static str,
    ) -> Option<T> {
        let text = fields::text(node, what, NAME_LEN_MAX, &mut self.report)?;
        let known = all.into_iter().find(|each| word(*each) == text.value);
        if known.is_none() {
            let message = format!("{what} cannot be {}", quote(text.value));
            let hint = format!("write one of {}", list(&all.map(word)));
            self.report.error(text.span, Rule::Y2, message, hint);
        }
        known
    }

    pub(crate) fn reached_at(
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

    /// The people or the executors at home in a domain; each in one domain at most.
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

    /// The cost of a byte between two domains.
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

    /// A name that an assignment can write.
    fn domain_name(&mut self, text: Spanned<&str>) -> Option<Spanned<Arc<str>>> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let hint = "a name begins with a letter or a digit and goes on with letters a-z, digits, \
                    `-`, `_` and `.`";
        let name = self.checked_name(text, "the name of a domain", NAME_LEN_MAX, plain, hint)?;
        if &*name.value != EXECUTOR {
            return Some(name);
        }
        let message = format!("the name of a domain cannot be `{EXECUTOR}`");
        let hint = "choose another name: after `at:` it means where the executor of a step is";
        self.report.error(name.span, Rule::Y2, message, hint);
        None
    }

    /// A name that a certificate can hold.
    pub(crate) fn server_name(&mut self, text: Spanned<&str>) -> Option<Spanned<Arc<str>>> {
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

    /// A name as an organisation, or a worker, writes it.
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
