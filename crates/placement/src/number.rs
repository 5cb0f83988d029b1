//! Numbers domains and servers such that numbers of an earlier topology stay.
//!
//! Invariant: numbers are kept, and nothing numbered is missing; new entries get the next numbers,
//! in the order of the text. Domains stay in the order of their numbers, and the first server stays
//! first, so that a server with nothing but a file knows which server has the catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::finding::{self, Span, Spanned};
use legwork_model::id::{AgentId, DomainId, ServerId};
use legwork_model::yaml::nearest;
use legwork_model::yaml::report::Report;

use crate::chain::{Chain, Rule};
use crate::layout::{Layout, Weighted};
use crate::place::Map;
use crate::topology::{Domain, Server, SmallValues, Store, Topology, Transfer};
use crate::watchdog::Policy;

/// A topology by names, as its author wrote it.
pub(crate) struct Draft {
    pub(crate) name: Arc<str>,
    pub(crate) domains: Vec<DraftDomain>,
    pub(crate) links: BTreeMap<Ends, u32>,
    pub(crate) watchdog: Policy,
    pub(crate) small_values: SmallValues,
}

/// The domains at the ends of a link, in alphabetical order.
pub(crate) type Ends = (Arc<str>, Arc<str>);

pub(crate) struct DraftDomain {
    pub(crate) name: Spanned<Arc<str>>,
    pub(crate) transfer: Transfer,
    pub(crate) store: Store,
    pub(crate) servers: Vec<DraftServer>,
    pub(crate) people: Vec<Arc<str>>,
    pub(crate) executors: Vec<Arc<str>>,
}

pub(crate) struct DraftServer {
    pub(crate) name: Spanned<Arc<str>>,
    pub(crate) weight: u32,
    pub(crate) intended: Option<u32>,
    pub(crate) reached: Reached,
}

/// How a server is reached.
pub(crate) enum Reached {
    Itself {
        address: Arc<str>,
        api: Arc<str>,
    },
    /// At its host, as a guest.
    Host(Spanned<Arc<str>>),
}

pub(crate) fn number(
    draft: Draft,
    previous: &Topology,
    rules: &BTreeMap<DomainId, Rule>,
    report: &mut Report,
) -> Topology {
    refuse_missing(&draft, previous, report);
    refuse_mixed(&draft, previous, report);
    let mut next = Topology {
        name: draft.name,
        epoch: previous.epoch.saturating_add(1),
        domains: previous.domains.clone(),
        servers: previous.servers.clone(),
        watchdog: draft.watchdog,
        small_values: draft.small_values,
        ..Topology::default()
    };
    for domain in draft.domains {
        let id = add_domain(&mut next, &domain, report);
        let hosts = hosts_of(&domain, report);
        for server in domain.servers {
            add_server(&mut next, id, server, previous, report);
        }
        settle_guests(&mut next, &hosts);
        divide(&mut next, id, previous, rules);
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
    let DraftDomain { name: Spanned { value: name, span }, transfer, store, .. } = domain;
    let known = next.domain_named(name);
    match known {
        Some(id) => {
            if let Some(domain) = next.domains.get_mut(usize::from(id.0)) {
                (domain.transfer, domain.store) = (*transfer, *store);
            }
            id
        }
        None => {
            let id = DomainId(free_number(next.domains.len(), *span, report));
            // Its layout is set as soon as its servers have their numbers.
            let domain = Domain::new(name.clone(), ServerId::default());
            next.domains.push(Domain { transfer: *transfer, store: *store, ..domain });
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
    let DraftServer { name: Spanned { value: name, span }, weight, intended, reached } = server;
    // A guest gets the addresses of its host as soon as the host has them.
    let (address, api) = match reached {
        Reached::Itself { address, api } => (address, api),
        Reached::Host(_) => Default::default(),
    };
    let drafted = Server { weight, intended, ..Server::new(name, domain, address, api) };
    let Some(ServerId(number)) = previous.server_named(&drafted.name) else {
        free_number(next.servers.len(), span, report);
        return next.servers.push(drafted);
    };
    if let Some(known) = next.servers.get_mut(usize::from(number)) {
        if known.domain != domain {
            let message = format!("server `{}` was in another domain before", known.name);
            let hint = "leave it there: what it controls is known by its domain";
            report.error(span, finding::Rule::Y2, message, hint);
        }
        *known = Server { domain: known.domain, ..drafted };
    }
}

/// The host of each guest of a domain. A host runs in its own process, and in the same domain.
fn hosts_of(domain: &DraftDomain, report: &mut Report) -> Vec<(Arc<str>, Arc<str>)> {
    let mut hosts = Vec::new();
    for guest in &domain.servers {
        let Reached::Host(host) = &guest.reached else { continue };
        let (name, place) = (&guest.name.value, &domain.name.value);
        let found = domain.servers.iter().find(|server| server.name.value == host.value);
        let (message, hint) = match found.map(|server| &server.reached) {
            Some(Reached::Itself { .. }) => {
                hosts.push((name.clone(), host.value.clone()));
                continue;
            }
            Some(Reached::Host(_)) if host.value == *name => (
                format!("server `{name}` cannot be its own host"),
                "name the server whose process it is in, or give it addresses".to_owned(),
            ),
            Some(Reached::Host(further)) => (
                format!("the host of `{name}` is `{}`, which is a guest itself", host.value),
                format!("name the server that runs by itself, such as `{}`", further.value),
            ),
            None => {
                let known = domain.servers.iter().map(|server| &*server.name.value);
                let hint = match nearest(&host.value, known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "a host is in the same domain as its guest".to_owned(),
                };
                (
                    format!(
                        "the host of `{name}` is `{}`, which domain `{place}` does not have",
                        host.value
                    ),
                    hint,
                )
            }
        };
        report.error(host.span, finding::Rule::Y2, message, hint);
    }
    hosts
}

/// Guests get the addresses of their hosts.
fn settle_guests(next: &mut Topology, hosts: &[(Arc<str>, Arc<str>)]) {
    for (guest, host) in hosts {
        let (Some(guest), Some(host)) = (next.server_named(guest), next.server_named(host)) else {
            continue;
        };
        let Some(Server { address, api, .. }) = next.server(host).cloned() else { continue };
        if let Some(guest) = next.servers.get_mut(usize::from(guest.0)) {
            (guest.address, guest.api, guest.host) = (address, api, Some(host));
        }
    }
}

/// Divides a domain by its weights; if they changed, as few spreads as possible move.
fn divide(
    next: &mut Topology,
    id: DomainId,
    previous: &Topology,
    rules: &BTreeMap<DomainId, Rule>,
) {
    let weights: Vec<Weighted> =
        next.servers_of(id).map(|(id, server)| (id, server.weight)).collect();
    let before = previous.domain(id).map(|domain| &domain.chain);
    let chain = match before {
        None => Layout::first(&weights).map(Chain::new),
        Some(chain) => chain
            .newest()
            .next(&weights)
            .filter(|layout| layout != chain.newest())
            .map(|layout| chain.then(layout, rules.get(&id).cloned().unwrap_or_default())),
    };
    // Without a layout the shares stay as they were; a domain without weights was reported before.
    if let (Some(chain), Some(domain)) = (chain, next.domains.get_mut(usize::from(id.0))) {
        domain.chain = chain;
    }
}

/// Numbers have 16 bits, and none is given twice.
fn free_number(len: usize, span: Span, report: &mut Report) -> u16 {
    u16::try_from(len).unwrap_or_else(|_| {
        let message = "all numbers of domains and servers are used up";
        report.error(span, finding::Rule::Y3, message, "go on with those that there are");
        u16::MAX
    })
}

/// Existing entries come before new ones, in their old order: so the first server is the first one
/// also for a server with nothing but a file.
fn refuse_mixed(draft: &Draft, previous: &Topology, report: &mut Report) {
    let domains: Vec<&Spanned<Arc<str>>> = draft.domains.iter().map(|each| &each.name).collect();
    let before: Vec<&Arc<str>> = previous.domains.iter().map(|domain| &domain.name).collect();
    refuse_out_of_order("domain", &domains, &before, report);
    for domain in &draft.domains {
        let Some(id) = previous.domain_named(&domain.name.value) else { continue };
        let servers: Vec<_> = domain.servers.iter().map(|server| &server.name).collect();
        let before: Vec<_> = previous.servers_of(id).map(|(_, server)| &server.name).collect();
        refuse_out_of_order("server", &servers, &before, report);
    }
}

fn refuse_out_of_order(
    what: &str,
    names: &[&Spanned<Arc<str>>],
    before: &[&Arc<str>],
    report: &mut Report,
) {
    let is_kept = |name: &&&Arc<str>| names.iter().any(|kept| kept.value == ***name);
    for (name, expected) in names.iter().zip(before.iter().filter(is_kept)) {
        if name.value != **expected {
            let message = format!("{what} `{}` stands where `{expected}` was before", name.value);
            let hint = match before.contains(&&name.value) {
                true => format!("keep the {what}s in the order they had"),
                false => format!("write new {what}s after those that there were"),
            };
            return report.error(name.span, finding::Rule::Y2, message, hint);
        }
    }
}

/// Histories refer to servers by number, and cases may be there.
fn refuse_missing(draft: &Draft, previous: &Topology, report: &mut Report) {
    for domain in &previous.domains {
        if !draft.domains.iter().any(|kept| kept.name.value == domain.name) {
            let message = format!("domain `{}` is missing", domain.name);
            let hint = "keep it: a domain cannot be taken away";
            report.error(Span::default(), finding::Rule::Y2, message, hint);
        }
    }
    for (_, server) in previous.numbered() {
        let domain = previous.domain(server.domain).map(|domain| &*domain.name);
        let kept = draft.domains.iter().find(|kept| Some(&*kept.name.value) == domain);
        // A missing domain was reported before; a server in another domain is reported there.
        let mut all = draft.domains.iter().flat_map(|kept| &kept.servers);
        if let Some(kept) = kept
            && !all.any(|kept| kept.name.value == server.name)
        {
            let message = format!("server `{}` is missing", server.name);
            let hint = "keep it, with `weight: 0` and a `host` if it is no longer to work";
            let first = kept.servers.first().map_or(kept.name.span, |server| server.name.span);
            report.error(first, finding::Rule::Y2, message, hint);
        }
    }
}
