//! A site's knowledge of the others: by name, as a server has it.
//!
//! Invariant: numbers are resolved when the site receives or sends a message, not before and not
//! after: when it joins, others get other numbers than in the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_placement::Topology;
use legwork_site::{Input, Message, Output};

use super::World;

/// Unhandled input.
pub(super) enum Incoming {
    Input(Input),
    /// From another site.
    Heard {
        from: Arc<str>,
        message: Message,
    },
    /// The link to another site is up, or down.
    Link {
        to: Arc<str>,
        is_up: bool,
    },
}

impl From<Input> for Incoming {
    fn from(input: Input) -> Self {
        Self::Input(input)
    }
}

/// The process's knowledge of the others.
#[derive(Default)]
pub(super) struct Others {
    /// The last noticed state of each link.
    links: BTreeMap<Arc<str>, bool>,
    /// The topology whose numbers the site was given.
    topology: Option<Arc<Topology>>,
}

impl World {
    /// The name of the site; empty if it is alone.
    pub(crate) fn name(&self) -> Arc<str> {
        self.config.member.as_ref().map(|member| member.name.clone()).unwrap_or_default()
    }

    /// A message from another site.
    pub(crate) fn on_message(&mut self, from: Arc<str>, message: Message) {
        self.inbox.push(Incoming::Heard { from, message });
    }

    /// The link to another site is up, or down.
    pub(crate) fn notice(&mut self, to: Arc<str>, is_up: bool) {
        self.others.links.insert(to.clone(), is_up);
        self.inbox.push(Incoming::Link { to, is_up });
    }

    pub(crate) fn take_said(&mut self) -> Vec<(Arc<str>, Message)> {
        std::mem::take(&mut self.said)
    }

    /// Passes unhandled input to the site.
    pub(super) fn handle(
        &mut self,
        incoming: Incoming,
        outputs: &mut Vec<Output>,
        said: &mut Vec<(Arc<str>, Message)>,
    ) {
        let input = match incoming {
            Incoming::Input(input) => Some(input),
            Incoming::Heard { from, message } => {
                let from = self.site.server_named(&from);
                from.map(|from| Input::Message { from, message })
            }
            Incoming::Link { to, is_up } => {
                self.site.server_named(&to).map(|to| Input::Link { to, is_up })
            }
        };
        let Some(input) = input else { return };
        for output in self.site.handle(input, self.now) {
            if let Output::Send { to, message } = output {
                said.extend(self.site.name_of(to).map(|name| (name, message)));
            } else {
                outputs.push(output);
            }
        }
    }

    /// The site knows links by number: those with a new number are reported again.
    pub(super) fn follow_numbers(&mut self) {
        let Some(topology) = self.site.joined().map(|seat| &seat.topology) else { return };
        if self.others.topology.as_ref().is_some_and(|known| Arc::ptr_eq(known, topology)) {
            return;
        }
        let before = self.others.topology.replace(topology.clone());
        for (id, server) in topology.numbered() {
            let known = before.as_ref().and_then(|before| before.server(id));
            if known.is_none_or(|known| known.name != server.name)
                && let Some(&is_up) = self.others.links.get(&server.name)
            {
                self.inbox.push(Incoming::Link { to: server.name.clone(), is_up });
            }
        }
    }
}
