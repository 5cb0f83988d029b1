//! Reads the servers of a domain, and the settings of the watchdog.
//!
//! An unreadable server is still declared: it is not reported as missing.

use legwork_model::finding::{Rule, Spanned};
use legwork_model::yaml::fields::{self, Fields};
use legwork_model::yaml::tree::Node;

use crate::address;
use crate::number::{DraftServer, Reached};
use crate::read::{Reading, SERVERS_MAX};
use crate::topology::WEIGHT_DEFAULT;
use crate::watchdog::{Mode, Policy};

/// The greatest weight of a server.
pub const WEIGHT_MAX: u32 = 1_000_000;

pub(crate) const SERVER_FIELDS: [&str; 5] = ["address", "api", "weight", "intended", "host"];
pub(crate) const WATCHDOG_FIELDS: [&str; 5] =
    ["mode", "deviation_pct", "window_minutes", "pause_minutes", "step_pct"];

impl Reading {
    /// The servers of a domain. `None` if not all of them could be read.
    pub(crate) fn servers_of(&mut self, node: &Node, domain: &str) -> Option<Vec<DraftServer>> {
        let what = format!("`servers` of {domain}");
        let entries = Fields::of(node, &what, &mut self.report)?;
        let mut servers = Vec::new();
        let mut all = true;
        for (key, value) in entries.iter() {
            if self.servers.len() == SERVERS_MAX {
                let message = format!("there are more than {SERVERS_MAX} servers");
                self.report.error(key.span, Rule::Y3, message, "put more on each of them");
                return None;
            }
            match self.server(key, value) {
                Some(server) => servers.push(server),
                None => all = false,
            }
        }
        if servers.is_empty() && all {
            let message = format!("{domain} has no server");
            let hint = "name the server that is there, or leave the domain out";
            self.report.error(node.span, Rule::Y2, message, hint);
            return None;
        }
        if all && servers.iter().all(|server| server.weight == 0) {
            let message = format!("no server of {domain} has a weight");
            let hint = "give one of them a weight: a server has to do the work";
            self.report.error(node.span, Rule::Y2, message, hint);
        }
        all.then_some(servers)
    }

    fn server(&mut self, key: Spanned<&str>, value: &Node) -> Option<DraftServer> {
        let name = self.server_name(key)?;
        let what = format!("server `{}`", name.value);
        if !self.servers.insert(name.value.clone()) {
            let message = format!("{what} is in two domains");
            self.report.error(name.span, Rule::Y2, message, "give one of them another name");
        }
        let fields = Fields::of(value, &what, &mut self.report)?;
        fields.refuse_unknown(&SERVER_FIELDS, &mut self.report);
        let weight = self.weight(&fields, "weight").unwrap_or(WEIGHT_DEFAULT);
        let intended = self.weight(&fields, "intended");
        let reached = match fields.value("host") {
            Some(node) => self.guest(node, &fields),
            None => self.own_place(&fields),
        };
        Some(DraftServer { name, weight, intended, reached: reached? })
    }

    fn weight(&mut self, fields: &Fields<'_>, key: &str) -> Option<u32> {
        let what = format!("`{key}` of {}", fields.what());
        let node = fields.value(key)?;
        fields::number(node, &what, 0..=WEIGHT_MAX, &mut self.report)
    }

    fn own_place(&mut self, fields: &Fields<'_>) -> Option<Reached> {
        let what = fields.what();
        let hint = "write `address: \"HOST:PORT\"`: where the other servers reach it";
        let address = fields.required("address", hint, &mut self.report);
        let address = address.and_then(|node| self.reached_at(node, what, address::peer));
        let hint = "write `api: \"http://HOST:PORT\"`: where people and programs reach it";
        let api = fields.required("api", hint, &mut self.report);
        let api = api.and_then(|node| self.reached_at(node, what, address::api));
        Some(Reached::Itself { address: address?, api: api? })
    }

    /// It runs in the process of another server.
    fn guest(&mut self, node: &Node, fields: &Fields<'_>) -> Option<Reached> {
        for key in ["address", "api"] {
            if let Some((span, _)) = fields.get(key) {
                let message =
                    format!("{} has a host, so it has no `{key}` of its own", fields.what());
                let hint = "leave out one of them: a guest is reached where its host is";
                self.report.error(span, Rule::Y2, message, hint);
            }
        }
        let text = fields::text(node, "the name of a host", usize::MAX, &mut self.report)?;
        self.server_name(text).map(Reached::Host)
    }

    pub(crate) fn watchdog(&mut self, node: &Node) -> Policy {
        let mut policy = Policy::default();
        let Some(fields) = Fields::of(node, "`watchdog`", &mut self.report) else { return policy };
        fields.refuse_unknown(&WATCHDOG_FIELDS, &mut self.report);
        if let Some(node) = fields.value("mode") {
            let mode = self.word(node, "`mode` of `watchdog`", Mode::ALL, Mode::word);
            policy.mode = mode.unwrap_or_default();
        }
        for (key, range, field) in policy.numbers() {
            if let Some(node) = fields.value(key) {
                let what = format!("`{key}` of `watchdog`");
                let number = fields::number(node, &what, range, &mut self.report);
                *field = number.unwrap_or(*field);
            }
        }
        policy
    }
}
