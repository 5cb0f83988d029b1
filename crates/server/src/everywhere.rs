//! An instance that several servers control, put together from what each of them knows.
//!
//! Invariant: what happened is never taken back. Of each step the account that is furthest along
//! counts, of each data element the one with the most versions, whoever gave it.

use std::cmp::Ordering;
use std::sync::Arc;

use legwork_api::instances::{Elsewhere, Instance, InstanceState, Node, NodeState};

/// Adds what another server knows. The account that is there already wins where both know as much:
/// begin with the server where the instance was started.
pub(crate) fn add(all: &mut Instance, other: Instance) {
    if other.summary.process != all.summary.process || other.nodes.len() != all.nodes.len() {
        // Of another version of this software, or another instance: nothing to learn from it.
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
        if progress(&theirs, mine) == Ordering::Greater {
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
    all.result = all.result.take().or(other.result);
    for Elsewhere { server, waiting } in other.elsewhere {
        match all.elsewhere.iter_mut().find(|known| known.server == server) {
            Some(known) => known.waiting += waiting,
            None => all.elsewhere.push(Elsewhere { server, waiting }),
        }
    }
    all.summary.incidents = count_incidents(&all.nodes);
}

/// The servers that have been named and not been asked.
pub(crate) fn unasked(all: &Instance, asked: &[Arc<str>]) -> Vec<Arc<str>> {
    let named = all.elsewhere.iter().map(|elsewhere| &elsewhere.server);
    named.filter(|server| !asked.contains(server)).cloned().collect()
}

fn count_incidents(nodes: &[Node]) -> u32 {
    nodes.iter().filter(|node| node.incident.is_some()).count() as u32
}

/// Which of two accounts of a step is further along.
fn progress(a: &Node, b: &Node) -> Ordering {
    let rank = |node: &Node| match node.state {
        NodeState::NotActivated => 0,
        NodeState::Activated => 1,
        NodeState::Claimed | NodeState::Running => 2,
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
                state: serde_json::from_value(json!(state)).unwrap(),
                activity: format!("{instance}:{name}{round}").parse().unwrap(),
                holder: None,
                performer: None,
                attempts: 0,
                retry_at: None,
                incident: (state == "failed").then(|| "broken".to_owned()),
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
        add(&mut all, seen("lab", &["a:completed", "b:completed", "c:failed"], &[]));
        add(&mut all, seen("ward", &["a:completed", "b:activated", "c:activated"], &[]));
        assert_eq!(states(&all), "a:completed b:completed c:failed");
        assert_eq!(all.summary.incidents, 1);
    }

    #[test]
    fn a_later_round_counts_however_little_was_done_in_it() {
        let mut all = seen("north", &["a:completed:0", "b:completed:0"], &[]);
        add(&mut all, seen("lab", &["a:activated:1", "b:not_activated:1"], &[]));
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
        add(&mut all, Instance { data: vec![element(2, Some("new"))], ..seen("lab", &[], &[]) });
        add(&mut all, Instance { data: vec![element(2, None)], ..seen("ward", &[], &[]) });
        assert_eq!(all.data, [element(2, Some("new"))]);
    }

    #[test]
    fn servers_that_were_named_are_asked_once() {
        let mut all = seen("north", &["a:completed"], &["lab"]);
        let asked: Vec<Arc<str>> = vec!["north".into()];
        assert_eq!(unasked(&all, &asked), ["lab".into()]);
        add(&mut all, seen("lab", &["a:completed"], &["north", "ward"]));
        let asked: Vec<Arc<str>> = vec!["north".into(), "lab".into()];
        assert_eq!(unasked(&all, &asked), ["ward".into()]);
    }
}
