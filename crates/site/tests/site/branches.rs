//! What is shown of branches: their names, also of those in which nothing is done.

use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

use crate::support::{Harness, start};

const MOVE: &str = "
process: move
steps:
  - parallel: prepare
    branches:
      - { name: paint, title: Paint the walls, steps: [{ step: walls, job: paint, at: executor }] }
      - { name: wait, steps: [] }
      - { name: power, steps: [{ step: sockets, job: wire }, { step: meter, job: wire }] }
  - choice: garden
    branches:
      - { name: small, when: 'false', steps: [{ step: mow, job: mow }] }
      - { name: none, otherwise: true }
";

#[test]
fn branches_keep_their_names_also_where_nothing_is_done() {
    let mut harness = Harness::new();
    harness.ask(Request::Deploy { source: MOVE.to_owned() }).unwrap();
    let Request::Start(start) = start(InstanceId(1), json!({}), None) else { panic!("a start") };
    harness.ask(Request::Start(Start { process: "move".into(), ..start })).unwrap();
    let show = Request::Show { instance: InstanceId(1), wait_until: None };
    let Ok(Answer::Instance(view)) = harness.ask(show) else { panic!("a case") };
    let told = view.nodes.iter().map(|node| {
        let branches: Vec<_> =
            node.branches.iter().map(|b| format!("{}={}", b.name, b.title)).collect();
        format!("{:?} {} {}", node.branch.as_deref().unwrap_or("-"), node.name, branches.join(" "))
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "\"-\" prepare paint=Paint the walls wait=wait power=power",
            "\"paint\" walls ",
            "\"power\" sockets ",
            "\"-\" meter ",
            "\"-\" garden small=small none=none",
            "\"small\" mow ",
        ]
    );
}
