//! Up to which size values travel with the entry of their writer: what the topology says.

use legwork_model::event::Method;
use legwork_model::id::{ActivityId, InstanceId, Iteration};
use legwork_site::*;

use crate::support::group::{Group, topology};

const LETTER: &str = "
process: letter
data: { text: string }
start: [text]
steps:
  - { step: read, who: Agent(ann), at: south, reads: [text] }
";

fn start(group: &mut Group) -> InstanceId {
    let instance = group.draw(0, 0);
    let start = Start {
        instance,
        process: "letter".into(),
        version: None,
        data: [("text".to_owned(), "x".repeat(2_000).into())].into(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: None,
    };
    group.ask(0, Request::Start(start)).unwrap();
    group.pass(0);
    instance
}

fn read(group: &mut Group, instance: InstanceId) -> Result<Answer, Refusal> {
    let activity = ActivityId { instance, step: "read".into(), iteration: Iteration::default() };
    let (agent, data) = ("ann".into(), Data::new());
    group.ask(2, Request::Complete(Complete { agent, activity, data, answer: None, request: None }))
}

#[test]
fn the_topology_says_up_to_which_size_a_value_travels_with_its_step() {
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: LETTER.to_owned() }).unwrap();
    group.pass(2_000);
    // Nothing that is fetched arrives.
    group.is_lost =
        |message| matches!(message, Message::Migration(message::Migration::Want { .. }));
    let before = start(&mut group);
    assert!(read(&mut group, before).is_err(), "its text is at the other server");
    let larger = topology(1, 1) + "small_value_bytes: 4000\n";
    group.publish(&larger, Method::Since).unwrap();
    group.pass(2_000);
    let after = start(&mut group);
    read(&mut group, after).unwrap();
    // A case from before the change goes on as it began.
    group.is_lost = |_| false;
    (0..4).for_each(|_| group.pass(60_000));
    read(&mut group, before).unwrap();
    // And back: what was small is large again, for whoever sends it from now on.
    group.publish(&topology(1, 1), Method::Since).unwrap();
    group.pass(2_000);
    group.is_lost =
        |message| matches!(message, Message::Migration(message::Migration::Want { .. }));
    let last = start(&mut group);
    assert!(read(&mut group, last).is_err());
}
