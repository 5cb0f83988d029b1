//! Writes a topology as its file.
//!
//! The file reads as the same topology, except for removed entries, which are left out.

use std::fmt::Write;

use legwork_model::id::DomainId;

use crate::topology::{Server, SmallValues, Topology, WEIGHT_DEFAULT};
use crate::watchdog::Policy;

impl Topology {
    pub fn to_yaml(&self) -> String {
        let mut text = format!("topology: \"{}\"\ndomains:\n", self.name);
        for (number, domain) in (0..=u16::MAX).zip(&self.domains) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  \"{}\":", domain.name);
            let _ = writeln!(text, "    transfer: {}", domain.transfer.word());
            let _ = writeln!(text, "    store: {}", domain.store.word());
            let at_home = |home: &&DomainId| home.0 == number;
            let people = self.homes.iter().filter(|(_, home)| at_home(home));
            write_names(&mut text, "people", people.map(|(agent, _)| agent.as_str()));
            let executors = self.executors.iter().filter(|(_, home)| at_home(home));
            write_names(&mut text, "executors", executors.map(|(name, _)| &**name));
            text.push_str("    servers:\n");
            for (_, server) in self.servers_of(DomainId(number)) {
                let _ = writeln!(text, "      {}: {{ {} }}", server.name, self.fields_of(server));
            }
        }
        if !self.costs.is_empty() {
            text.push_str("links:\n");
        }
        for ((a, b), cost) in &self.costs {
            if let (Some(a), Some(b)) = (self.domain(*a), self.domain(*b)) {
                let (a, b) = (&a.name, &b.name);
                let _ = writeln!(text, "  - {{ between: [\"{a}\", \"{b}\"], cost: {cost} }}");
            }
        }
        if self.watchdog != Policy::default() {
            let mut watchdog = self.watchdog.clone();
            let _ = write!(text, "watchdog: {{ mode: {}", watchdog.mode.word());
            for (field, _, number) in watchdog.numbers() {
                let _ = write!(text, ", {field}: {number}");
            }
            text.push_str(" }\n");
        }
        if self.small_values != SmallValues::default() {
            let _ = writeln!(text, "small_value_bytes: {}", self.small_values.0);
        }
        text
    }

    fn fields_of(&self, server: &Server) -> String {
        let mut fields = match server.host.and_then(|host| self.server(host)) {
            Some(host) => format!("host: {}", host.name),
            None => format!("address: \"{}\", api: \"{}\"", server.address, server.api),
        };
        if server.weight != WEIGHT_DEFAULT {
            let _ = write!(fields, ", weight: {}", server.weight);
        }
        if let Some(intended) = server.intended {
            let _ = write!(fields, ", intended: {intended}");
        }
        fields
    }
}

fn write_names<'n>(text: &mut String, field: &str, names: impl Iterator<Item = &'n str>) {
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    if !names.is_empty() {
        let _ = writeln!(text, "    {field}: [{}]", names.join(", "));
    }
}
