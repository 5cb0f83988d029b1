//! Gives domains and servers their numbers, so that they go on from an earlier topology.
//!
//! Invariant: what had a number keeps it, and nothing that had one is missing; what is new gets the
//! next ones. Numbers are in the order of the text, so that a server that has nothing but a file
//! gives everybody the number that they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::finding::{Rule, Span, Spanned};
use legwork_model::id::{AgentId, DomainId, ServerId};
use legwork_model::yaml::report::Report;

use crate::place::Map;
use crate::topology::{Domain, Server, Topology, Transfer};

/// A topology as its author wrote it: by names.
pub(crate) struct Draft {
    pub(crate) name: Arc<str>,
    pub(crate) domains: Vec<DraftDomain>,
    pub(crate) links: BTreeMap<Ends, u32>,
}

/// The domains that a link lies between, the first in the alphabet first.
pub(crate) type Ends = (Arc<str>, Arc<str>);

pub(crate) struct DraftDomain {
    pub(crate) name: Spanned<Arc<str>>,
    pub(crate) transfer: Transfer,
    pub(crate) server: DraftServer,
    pub(crate) people: Vec<Arc<str>>,
    pub(crate) executors: Vec<Arc<str>>,
}

pub(crate) struct DraftServer {
    pub(crate) name: Spanned<Arc<str>>,
    pub(crate) address: Arc<str>,
    pub(crate) api: Arc<str>,
}

pub(crate) fn number(draft: Draft, previous: &Topology, report: &mut Report) -> Topology {
    refuse_missing(&draft, previous, report);
    refuse_mixed(&draft, previous, report);
    let mut next = Topology {
        name: draft.name,
        epoch: previous.epoch.saturating_add(1),
        domains: previous.domains.clone(),
        servers: previous.servers.clone(),
        ..Topology::default()
    };
    for domain in draft.domains {
        let id = add_domain(&mut next, &domain, report);
        add_server(&mut next, id, domain.server, previous, report);
        next.homes.extend(domain.people.into_iter().map(|name| (AgentId(name), id)));
        next.executors.extend(domain.executors.into_iter().map(|name| (name, id)));
    }
    for ((a, b), cost) in draft.links {
        if let (Some(a), Some(b)) = (next.domain_named(&a), next.domain_named(&b)) {
            next.costs.insert((a.min(b), a.max(b)), cost);
        }
    }
    next
}

fn add_domain(next: &mut Topology, domain: &DraftDomain, report: &mut Report) -> DomainId {
    let DraftDomain { name: Spanned { value: name, span }, transfer, .. } = domain;
    let known = next.domain_named(name);
    match known {
        Some(id) => {
            if let Some(domain) = next.domains.get_mut(usize::from(id.0)) {
                domain.transfer = *transfer;
            }
            id
        }
        None => {
            let id = DomainId(free_number(next.domains.len(), *span, report));
            next.domains.push(Domain { name: name.clone(), transfer: *transfer, is_gone: false });
            id
        }
    }
}

fn add_server(
    next: &mut Topology,
    domain: DomainId,
    server: DraftServer,
    previous: &Topology,
    report: &mut Report,
) {
    let DraftServer { name: Spanned { value: name, span }, address, api } = server;
    let Some(ServerId(number)) = previous.server_named(&name) else {
        free_number(next.servers.len(), span, report);
        return next.servers.push(Server { name, domain, address, api, is_gone: false });
    };
    if let Some(known) = next.servers.get_mut(usize::from(number)) {
        if known.domain != domain {
            let message = format!("server `{name}` was in another domain before");
            let hint = "leave it there: what it controls is known by its domain";
            report.error(span, Rule::Y2, message, hint);
        }
        (known.address, known.api) = (address, api);
    }
}

/// Numbers have 16 bits, and none is given twice.
fn free_number(len: usize, span: Span, report: &mut Report) -> u16 {
    u16::try_from(len).unwrap_or_else(|_| {
        let message = "all numbers of domains and servers are used up";
        report.error(span, Rule::Y3, message, "go on with those that there are");
        u16::MAX
    })
}

/// What there was stands before what is new, in the order it had.
fn refuse_mixed(draft: &Draft, previous: &Topology, report: &mut Report) {
    let known = |domain: &&DraftDomain| previous.domain_named(&domain.name.value).is_some();
    let kept = previous.domains.iter().filter(|domain| !domain.is_gone);
    let expected = kept.filter(|kept| draft.domains.iter().any(|d| d.name.value == kept.name));
    for (domain, expected) in draft.domains.iter().zip(expected) {
        if domain.name.value != expected.name {
            let message = format!(
                "domain `{}` stands where `{}` was before",
                domain.name.value, expected.name
            );
            let hint = if known(&domain) {
                "keep the domains in the order they had"
            } else {
                "write new domains after those that there were"
            };
            return report.error(domain.name.span, Rule::Y2, message, hint);
        }
    }
}

/// Histories speak of servers by their numbers, and cases may be there.
fn refuse_missing(draft: &Draft, previous: &Topology, report: &mut Report) {
    let hint = |what: &str| format!("keep it: a {what} cannot be taken away yet");
    for domain in previous.domains.iter().filter(|domain| !domain.is_gone) {
        if !draft.domains.iter().any(|kept| kept.name.value == domain.name) {
            let message = format!("domain `{}` is missing", domain.name);
            report.error(Span::default(), Rule::Y2, message, hint("domain"));
        }
    }
    for (_, server) in previous.in_use() {
        let domain = previous.domain(server.domain).map(|domain| &*domain.name);
        let kept = draft.domains.iter().find(|kept| Some(&*kept.name.value) == domain);
        // A domain that is missing was told already.
        if let Some(kept) = kept
            && !draft.domains.iter().any(|kept| kept.server.name.value == server.name)
        {
            let message = format!("server `{}` is missing", server.name);
            report.error(kept.server.name.span, Rule::Y2, message, hint("server"));
        }
    }
}
