//! The text of an instance.

use super::*;
use legwork_api::instances::{Branch, Element, Elsewhere};
use legwork_model::time::Timestamp;
use serde_json::json;

/// A node as `depth|branch|kind|name|state|more`, more being `by ann`, `held ann`, `×2`, `!why` or
/// `round 3`. A block also has its branches, such as `|yes, no`.
pub(crate) fn node(text: &str) -> Node {
    let parts: Vec<&str> = text.split('|').map(str::trim).collect();
    let more = parts.get(5).copied().unwrap_or_default();
    let rounds = more.strip_prefix("round ").map(|round| round.parse::<u32>().unwrap() - 1);
    let activity = format!("inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:{}", parts[3]);
    let activity = rounds.map_or(activity.clone(), |round| format!("{activity}:{round}"));
    let attempts = more.strip_prefix('×').map_or(0, |times| times.parse().unwrap());
    Node {
        name: parts[3].into(),
        title: format!("Title of {}", parts[3]).into(),
        kind: parts[2].to_owned(),
        depth: parts[0].parse().unwrap(),
        branch: Some(parts[1]).filter(|branch| !branch.is_empty()).map(Into::into),
        branches: parts.get(6).map_or_else(Vec::new, |names| {
            let branch = |name: &str| Branch { name: name.into(), title: name.into() };
            names.split(", ").map(branch).collect()
        }),
        state: serde_json::from_value(json!(parts[4])).unwrap(),
        activity: activity.parse().unwrap(),
        holder: more.strip_prefix("held ").map(Into::into),
        performer: more.strip_prefix("by ").map(|by| match by.split_once(' ') {
            Some(("executor", name)) => Performer::Executor(name.into()),
            Some((_, name)) => Performer::Worker(name.into()),
            None => Performer::Agent(by.into()),
        }),
        attempts,
        retry_at: (attempts > 0).then_some(Timestamp(1_772_357_465_000)),
        incident: more.strip_prefix('!').map(str::to_owned),
        incident_kind: more.starts_with('!').then(|| "retries_exhausted".to_owned()),
        failures: Vec::new(),
        server: None,
    }
}

pub(crate) fn summary(state: InstanceState) -> InstanceSummary {
    InstanceSummary {
        instance: "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC".parse().unwrap(),
        process: "loan".into(),
        version: 2,
        state,
        incidents: 0,
        started_at: Timestamp(1_772_357_405_123),
        ended_at: None,
        deadline: None,
    }
}

fn shown(nodes: &[&str]) -> String {
    let instance = Instance {
        summary: summary(InstanceState::Running),
        title: "Loan with \x1b[31mfour eyes".into(),
        started_by: Performer::Agent("ann".into()),
        result: None,
        data: Vec::new(),
        nodes: nodes.iter().map(|text| node(text)).collect(),
        elsewhere: Vec::new(),
        unreachable: Vec::new(),
    };
    anstream::adapter::strip_str(&render(&instance, &Taken::default())).to_string()
}

#[test]
fn blocks_nest_and_branches_are_named() {
    insta::assert_snapshot!(shown(&[
        "0||manual|capture|completed|by ann",
        "0||parallel|checks|running||bank, pay",
        "1|bank|automatic|bureau|completed|by worker w1",
        "1||automatic|score|activated|×2",
        "1|pay|choice|salary|completed||employed, none, free",
        "2|employed|manual|payslip|claimed|held bob",
        "2|free|loop|accounts|skipped",
        "3||manual|year|skipped",
        "3||manual|sum|skipped",
        "1||manual|note|not_activated",
        "0||manual|approve|not_activated",
    ]), @r"
    Loan with  [31mfour eyes · loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
    running · started 2026-03-01 09:30Z by ann

    ✔ capture               Title of capture   by ann
    ▶ checks                Title of checks
    ├─ bank
    │  ├─ ✔ bureau          Title of bureau    by worker w1
    │  └─ ↻ score           Title of score     failed 2×, again at 2026-03-01 09:31:05Z
    └─ pay
       ├─ ✔ salary          Title of salary
       │  ├─ employed
       │  │  └─ ▶ payslip   Title of payslip   claimed by bob
       │  ├─ none                              nothing to do
       │  └─ free
       │     └─ – accounts  Title of accounts  skipped
       │        ├─ – year   Title of year      skipped
       │        └─ – sum    Title of sum       skipped
       └─ ○ note            Title of note
    ○ approve               Title of approve
    ");
}

#[test]
fn a_due_job_waits_for_a_worker_or_an_executor() {
    let text = shown(&["0||automatic|score|activated"]);
    assert!(text.contains("waits for a worker or an executor to do it"), "{text}");
}

#[test]
fn an_instance_at_several_servers_tells_which_step_is_where() {
    let at = |text: &str, server: &str| Node { server: Some(server.into()), ..node(text) };
    let instance = Instance {
        summary: summary(InstanceState::Running),
        title: "Loan".into(),
        started_by: Performer::System,
        result: None,
        data: Vec::new(),
        nodes: vec![
            at("0||manual|capture|completed|by ann", "north-1"),
            at("0||manual|score|activated", "lab-1"),
            node("0||manual|approve|not_activated"),
        ],
        elsewhere: vec![Elsewhere { server: "lab-1".into(), waiting: 1 }],
        unreachable: vec!["lab-1".into()],
    };
    let shown = render(&instance, &Taken::default());
    insta::assert_snapshot!(anstream::adapter::strip_str(&shown).to_string(), @r"
    Loan · loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
    running · started 2026-03-01 09:30Z

    ✔ capture  Title of capture  by ann, at north-1
    ● score    Title of score    offered, at lab-1
    ○ approve  Title of approve

    1 parcel on the way to lab-1
    lab-1 cannot be reached: what happened there since is not shown
    ");
}

#[test]
fn a_choice_tells_which_branch_was_taken_even_if_it_is_empty() {
    let decided = |step: &str, iteration: &[u32], kind: &str, branch: &str| HistoryEntry {
        record: 0,
        at: Timestamp(0),
        kind: kind.to_owned(),
        step: Some(step.into()),
        iteration: iteration.to_vec(),
        by: Performer::System,
        started_at: None,
        writes: legwork_api::Data::new(),
        detail: Some(branch.to_owned()),
        channel: None,
        server: None,
        from: None,
        to: None,
        number: None,
    };
    let taken = Taken::of(vec![
        decided("route", &[0], "completed", "long"),
        decided("route", &[1], "completed", "none"),
        decided("cycle", &[1], "decided", "leave"),
    ]);
    let rows = [
        "0||loop|cycle|completed|round 2",
        "1||choice|route|completed|round 2|long, none",
        "2|long|manual|walk|skipped",
    ];
    let lines = nodes(&rows.map(node), &taken);
    insta::assert_snapshot!(anstream::adapter::strip_str(&lines).to_string(), @r"
    ✔ cycle          Title of cycle  round 2
    └─ ✔ route       Title of route  took none
       ├─ long
       │  └─ – walk  Title of walk   skipped
       └─ none                       nothing to do
    ");
}

#[test]
fn loops_tell_their_round_and_incidents_their_reason() {
    insta::assert_snapshot!(shown(&[
        "0||loop|cycle|running|round 3",
        "1||manual|give-drug|activated",
        "1||automatic|weigh|answered|by executor scales",
        "1||automatic|lab|failed|!failed 4 times, at last with: no answer",
    ]), @r"
    Loan with  [31mfour eyes · loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
    running · started 2026-03-01 09:30Z by ann

    ▶ cycle         Title of cycle      round 3
    ├─ ● give-drug  Title of give-drug  offered
    ├─ ▶ weigh      Title of weigh      answered by executor scales, not confirmed yet
    └─ ✘ lab        Title of lab        incident

    Incidents (`legwork resolve ACTIVITY` with a way out)
      ✘ inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:lab
        failed 4 times, at last with: no answer
        way out: --retry, or --complete with its outputs
    ");
}

#[test]
fn data_is_shown_on_one_line_each() {
    let element = |name: &str, kind: &str, value, versions| Element {
        element: name.into(),
        kind: kind.to_owned(),
        value,
        versions,
    };
    let instance = Instance {
        summary: InstanceSummary {
            ended_at: Some(Timestamp(1_772_358_000_000)),
            ..summary(InstanceState::Completed)
        },
        title: "loan".into(),
        started_by: Performer::System,
        result: None,
        data: vec![
            element("amount", "decimal", Some(json!("12.50")), 2),
            element("note", "string", Some(json!("two\nlines \u{1b}[2J")), 1),
            element("lines", "json", Some(json!({"a": [1, 2]})), 1),
            element("offer", "file", Some(json!({"blob": "ab", "size": 3, "name": "o.pdf"})), 1),
            element("never", "bool", None, 0),
        ],
        nodes: Vec::new(),
        elsewhere: Vec::new(),
        unreachable: Vec::new(),
    };
    let text = anstream::adapter::strip_str(&render(&instance, &Taken::default())).to_string();
    insta::assert_snapshot!(text, @r#"
    loan · loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
    completed · started 2026-03-01 09:30Z · ended 2026-03-01 09:40Z


    Data
      amount  decimal  12.50                   (version 2)
      note    string   "two\nlines \u001b[2J"
      lines   json     {"a":[1,2]}
      offer   file     o.pdf (3 bytes)
    "#);
}

#[test]
fn a_deadline_is_mentioned() {
    let deadline = crate::by::tests::deadline();
    let promised = InstanceSummary { deadline: Some(deadline), ..summary(InstanceState::Running) };
    let text = anstream::adapter::strip_str(&super::deadline(&promised)).to_string();
    assert_eq!(
        text,
        "promised for 2026-03-02 16:00Z · see `legwork deadline show inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC`\n"
    );
    assert_eq!(super::deadline(&summary(InstanceState::Running)), "");
}
