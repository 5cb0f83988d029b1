//! Merges the views of several servers: an instance that they control in parts, and lists.
//!
//! Invariant: progress is never lost. Of each step the most advanced view counts, of each data
//! element the one with the most versions, whichever server has it. A page of a list has no gap
//! between its first entry and the start of the next page.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use legwork_api::instances::{
    Elsewhere, Incident, IncidentList, Instance, InstanceList, InstanceState, InstanceSummary,
    Node, NodeState,
};
use legwork_model::id::{InstanceId, ServerId};

type Account = (Arc<str>, Instance);

/// Merges the views of several servers; the result does not depend on the server that merges.
pub(crate) fn together(starter: Option<&Arc<str>>, own: Account, others: Vec<Account>) -> Instance {
    let rank = |name: &Arc<str>| (starter != Some(name), name.clone());
    let mut first = own;
    let mut rest = Vec::new();
    for account in others {
        let later = if rank(&account.0) < rank(&first.0) {
            std::mem::replace(&mut first, account)
        } else {
            account
        };
        rest.push(later);
    }
    rest.sort_by_key(|(name, _)| rank(name));
    let (_, mut all) = first;
    rest.into_iter().for_each(|(server, account)| add(&mut all, account, &server));
    // An instance has always been at the server where it was started.
    all.elsewhere.retain(|one| Some(&one.server) != starter || one.waiting > 0);
    all.elsewhere.sort_by(|a, b| a.server.cmp(&b.server));
    all
}

/// Merges the view of another server. If both know equally much of a step, the server that controls
/// it knows best; else the present view stays.
fn add(all: &mut Instance, other: Instance, server: &str) {
    if other.summary.process != all.summary.process || other.nodes.len() != all.nodes.len() {
        // Of another version of this software, or another instance: nothing to merge.
        return;
    }
    let ends = |state: InstanceState| match state {
        InstanceState::Completed | InstanceState::Aborted => true,
        InstanceState::Running | InstanceState::Suspended => false,
    };
    if ends(other.summary.state) && !ends(all.summary.state) {
        (all.summary.state, all.summary.ended_at) = (other.summary.state, other.summary.ended_at);
    }
    for (mine, theirs) in all.nodes.iter_mut().zip(other.nodes) {
        let is_better = match progress(&theirs, mine) {
            Ordering::Greater => true,
            Ordering::Equal => theirs.server.as_deref() == Some(server),
            Ordering::Less => false,
        };
        if is_better {
            *mine = theirs;
        } else if mine.server.is_none() {
            mine.server = theirs.server;
        }
    }
    for (mine, theirs) in all.data.iter_mut().zip(other.data) {
        let more =
            (theirs.versions, theirs.value.is_some()) > (mine.versions, mine.value.is_some());
        if more {
            *mine = theirs;
        }
    }
    all.summary.deadline = all.summary.deadline.take().or(other.summary.deadline);
    all.result = all.result.take().or(other.result);
    for Elsewhere { server, waiting } in other.elsewhere {
        match all.elsewhere.iter_mut().find(|known| known.server == server) {
            Some(known) => known.waiting += waiting,
            None => all.elsewhere.push(Elsewhere { server, waiting }),
        }
    }
    all.summary.incidents = count_incidents(&all.nodes);
}

/// The servers that a view names.
pub(crate) fn named(account: &Instance) -> impl Iterator<Item = Arc<str>> {
    account.elsewhere.iter().map(|elsewhere| elsewhere.server.clone())
}

/// One page of the instances of all servers, newest first. Of an instance at several servers, the
/// view of the server that started it counts, with the incidents of all.
pub(crate) fn instances(pages: Vec<(ServerId, InstanceList)>, limit: usize) -> InstanceList {
    // Each server has listed everything down to the start of its next page.
    let cut: Option<InstanceId> = pages.iter().filter_map(|(_, page)| next(&page.next)).max();
    let all = pages.into_iter().flat_map(|(server, page)| {
        let account = move |one: InstanceSummary| (one.instance.server() != server, one);
        page.instances.into_iter().map(account)
    });
    let mut all: Vec<(bool, InstanceSummary)> = all.collect();
    all.sort_by_key(|(is_foreign, one)| (Reverse(one.instance), *is_foreign));
    let mut instances: Vec<InstanceSummary> = Vec::new();
    for (_, one) in all.into_iter().filter(|(_, one)| cut.is_none_or(|cut| one.instance >= cut)) {
        match instances.last_mut().filter(|last| last.instance == one.instance) {
            Some(last) => last.incidents += one.incidents,
            None => instances.push(one),
        }
    }
    let more = instances.len() > limit;
    instances.truncate(limit);
    let next = if more { instances.last().map(|last| last.instance) } else { cut };
    InstanceList { instances, next: next.map(|id| id.to_string()), unreachable: Vec::new() }
}

/// One page of the incidents of all servers, in the order of their instances; no instance is
/// divided between two pages.
pub(crate) fn incidents(pages: Vec<(ServerId, IncidentList)>, limit: usize) -> IncidentList {
    let cut: Option<InstanceId> = pages.iter().filter_map(|(_, page)| next(&page.next)).min();
    let all = pages.into_iter().flat_map(|(_, page)| page.incidents);
    let mut incidents: Vec<Incident> =
        all.filter(|one| cut.is_none_or(|cut| one.activity.instance <= cut)).collect();
    incidents.sort_by(|a, b| a.activity.cmp(&b.activity));
    incidents.dedup_by(|b, a| a.activity == b.activity);
    let instance = |one: &Incident| one.activity.instance;
    let last = incidents.get(limit.saturating_sub(1)).map(instance);
    let beyond = last.and_then(|last| incidents.iter().position(|one| instance(one) > last));
    incidents.truncate(beyond.unwrap_or(incidents.len()));
    let next = if beyond.is_some() { last } else { cut };
    IncidentList { incidents, next: next.map(|id| id.to_string()), unreachable: Vec::new() }
}

/// The start of the next page.
fn next(cursor: &Option<String>) -> Option<InstanceId> {
    cursor.as_ref()?.parse().ok()
}

fn count_incidents(nodes: &[Node]) -> u32 {
    nodes.iter().filter(|node| node.incident.is_some()).count() as u32
}

/// Compares the progress of two views of a step.
fn progress(a: &Node, b: &Node) -> Ordering {
    let rank = |node: &Node| match node.state {
        NodeState::NotActivated => 0,
        NodeState::Activated => 1,
        NodeState::Claimed | NodeState::Answered | NodeState::Running => 2,
        NodeState::Failed => 3,
        NodeState::Completed | NodeState::Skipped => 4,
    };
    let rounds = a.activity.iteration.0.cmp(&b.activity.iteration.0);
    rounds.then(rank(a).cmp(&rank(b)))
}

#[cfg(test)]
mod tests {
    use legwork_api::instances::{Element, InstanceSummary, Performer};
    use legwork_model::time::Timestamp;
    use serde_json::json;

    use super::*;

    /// `step:state` or `step:state:round`, at the server of that name.
    fn seen(server: &str, nodes: &[&str], elsewhere: &[&str]) -> Instance {
        let instance = "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC";
        let node = |text: &&str| {
            let mut parts = text.split(':');
            let (name, state) = (parts.next().unwrap(), parts.next().unwrap());
            let round = parts.next().map(|round| format!(":{round}")).unwrap_or_default();
            Node {
                name: name.into(),
                title: name.into(),
                kind: "manual".to_owned(),
                depth: 0,
                branch: None,
                branches: Vec::new(),
                state: serde_json::from_value(json!(state)).unwrap(),
                activity: format!("{instance}:{name}{round}").parse().unwrap(),
                holder: None,
                performer: None,
                attempts: 0,
                retry_at: None,
                incident: (state == "failed").then(|| "broken".to_owned()),
                incident_kind: None,
                failures: Vec::new(),
                server: Some(server.into()),
            }
        };
        let named = |server: &&str| Elsewhere { server: (*server).into(), waiting: 1 };
        Instance {
            summary: InstanceSummary {
                instance: instance.parse().unwrap(),
                process: "loan".into(),
                version: 1,
                state: InstanceState::Running,
                incidents: 0,
                started_at: Timestamp(0),
                ended_at: None,
                deadline: None,
            },
            title: "Loan".into(),
            started_by: Performer::System,
            result: None,
            data: Vec::new(),
            nodes: nodes.iter().map(node).collect(),
            elsewhere: elsewhere.iter().map(named).collect(),
            unreachable: Vec::new(),
        }
    }

    fn states(instance: &Instance) -> String {
        let state = |node: &Node| {
            let state = serde_json::to_value(node.state).unwrap();
            format!("{}:{}", node.name, state.as_str().unwrap())
        };
        instance.nodes.iter().map(state).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_each_step_the_account_that_is_furthest_along_counts() {
        let mut all = seen("north", &["a:completed", "b:not_activated", "c:not_activated"], &[]);
        add(&mut all, seen("lab", &["a:completed", "b:completed", "c:failed"], &[]), "lab");
        add(&mut all, seen("ward", &["a:completed", "b:activated", "c:activated"], &[]), "ward");
        assert_eq!(states(&all), "a:completed b:completed c:failed");
        assert_eq!(all.summary.incidents, 1);
    }

    #[test]
    fn a_later_round_counts_however_little_was_done_in_it() {
        let mut all = seen("north", &["a:completed:0", "b:completed:0"], &[]);
        add(&mut all, seen("lab", &["a:activated:1", "b:not_activated:1"], &[]), "lab");
        assert_eq!(states(&all), "a:activated b:not_activated");
    }

    #[test]
    fn of_each_element_the_newest_version_counts() {
        let element = |versions, value: Option<&str>| Element {
            element: "note".into(),
            kind: "string".to_owned(),
            value: value.map(|value| json!(value)),
            versions,
        };
        let mut all = Instance { data: vec![element(1, Some("old"))], ..seen("north", &[], &[]) };
        add(
            &mut all,
            Instance { data: vec![element(2, Some("new"))], ..seen("lab", &[], &[]) },
            "lab",
        );
        add(&mut all, Instance { data: vec![element(2, None)], ..seen("ward", &[], &[]) }, "ward");
        assert_eq!(all.data, [element(2, Some("new"))]);
    }

    #[test]
    fn the_same_comes_out_whichever_server_puts_it_together() {
        let tried = |server: &str, controller: &str, attempts| {
            let mut account = seen(server, &["a:completed", "b:activated"], &["lab", "north"]);
            for node in &mut account.nodes {
                (node.server, node.attempts) = (Some(controller.into()), attempts);
            }
            (Arc::from(server), account)
        };
        // The lab controls the steps, and only it knows the number of attempts.
        let [north, lab, ward] =
            [tried("north", "lab", 0), tried("lab", "lab", 2), tried("ward", "lab", 0)];
        let starter = Some(&north.0);
        let all = together(starter, north.clone(), vec![lab.clone(), ward.clone()]);
        assert_eq!(all.nodes[1].attempts, 2);
        assert_eq!(named(&all).collect::<Vec<_>>(), ["lab".into(), "north".into()]);
        for (own, others) in [(&lab, [&ward, &north]), (&ward, [&north, &lab])] {
            let others = others.map(Clone::clone).to_vec();
            assert_eq!(together(starter, own.clone(), others), all);
        }
    }

    /// A page of a server: instances by number, and the start of the next page.
    fn page(server: u16, numbers: &[u128], next: Option<u128>) -> (ServerId, InstanceList) {
        let one = |number: &u128| InstanceSummary {
            instance: InstanceId(*number),
            version: u32::from(server),
            incidents: 1,
            ..seen("north", &[], &[]).summary
        };
        let instances = numbers.iter().map(one).collect();
        let next = next.map(|number| InstanceId(number).to_string());
        (ServerId(server), InstanceList { instances, next, unreachable: Vec::new() })
    }

    fn numbers(list: &InstanceList) -> (Vec<u128>, Option<u128>) {
        let next = list.next.as_ref().map(|next| next.parse::<InstanceId>().unwrap().0);
        (list.instances.iter().map(|one| one.instance.0).collect(), next)
    }

    #[test]
    fn a_page_of_all_servers_ends_where_one_of_them_has_not_told_further() {
        let all = || vec![page(0, &[9, 5], Some(5)), page(1, &[8, 7, 1], None)];
        assert_eq!(numbers(&instances(all(), 10)), (vec![9, 8, 7, 5], Some(5)));
        assert_eq!(numbers(&instances(all(), 2)), (vec![9, 8], Some(8)));
        let last = vec![page(0, &[3], None), page(1, &[1], None)];
        assert_eq!(numbers(&instances(last, 2)), (vec![3, 1], None));
        // An empty page that goes on.
        let none = vec![page(0, &[], Some(4)), page(1, &[6, 2], None)];
        assert_eq!(numbers(&instances(none, 2)), (vec![6], Some(4)));
    }

    #[test]
    fn an_instance_of_two_servers_is_listed_once_as_the_one_that_started_it_says() {
        let started_by_one = (7 << InstanceId::SERVER_BITS) + 1;
        let all = vec![page(0, &[started_by_one], None), page(1, &[started_by_one], None)];
        let list = instances(all, 10).instances;
        assert_eq!((list.len(), list[0].version, list[0].incidents), (1, 1, 2));
    }

    #[test]
    fn incidents_of_one_instance_are_on_one_page() {
        let page = |steps: &[(u128, &str)], next: Option<u128>| {
            let incidents = steps.iter().map(|(number, step)| Incident {
                activity: format!("{}:{step}", InstanceId(*number)).parse().unwrap(),
                process: "loan".into(),
                kind: "retries_exhausted".to_owned(),
                message: "broken".to_owned(),
                at: Timestamp(0),
                failures: Vec::new(),
            });
            let incidents = incidents.collect();
            let next = next.map(|number| InstanceId(number).to_string());
            (ServerId(0), IncidentList { incidents, next, unreachable: Vec::new() })
        };
        let all = || vec![page(&[(1, "a"), (3, "a")], Some(3)), page(&[(1, "b"), (4, "a")], None)];
        let names = |list: &IncidentList| {
            let next = list.next.as_ref().map(|next| next.parse::<InstanceId>().unwrap().0);
            let name = |one: &Incident| format!("{}{}", one.activity.instance.0, one.activity.step);
            (list.incidents.iter().map(name).collect::<Vec<_>>().join(" "), next)
        };
        assert_eq!(names(&incidents(all(), 1)), ("1a 1b".to_owned(), Some(1)));
        assert_eq!(names(&incidents(all(), 9)), ("1a 1b 3a".to_owned(), Some(3)));
        let last = vec![page(&[(3, "a")], None), page(&[(4, "a")], None)];
        assert_eq!(names(&incidents(last, 2)), ("3a 4a".to_owned(), None));
    }
}
