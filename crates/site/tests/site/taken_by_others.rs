//! What somebody has taken is promised by them, or by nobody: whoever promised it before would wait for it in vain.

use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_site::*;

use crate::support::group::Group;
use crate::support::tour::*;

/// Another manager, at home in the north.
const MANAGERS: &str = "organisation: o\nagents: { ann: { roles: [clerk], share: 100 }, \
                        bob: { roles: [clerk], share: 100 }, sam: { roles: [manager], share: 100 }, tom: { roles: [manager], share: 100 } }\n";

fn claim(group: &mut Group, place: usize, instance: InstanceId, step: &str, agent: &str) {
    let activity = activity(instance, step);
    group.ask(place, Request::Claim { agent: agent.into(), activity }).unwrap();
    run(group, 5);
}

/// Who has promised a step, as the server knows that has started its case.
fn promised_by(group: &mut Group, instance: InstanceId, step: &str) -> Option<String> {
    let legs = shown(group, 1, instance).legs;
    let leg = legs.into_iter().find(|leg| &*leg.step == step).unwrap();
    leg.by.map(|by| match by {
        Performer::Agent(agent) => agent.0.to_string(),
        other => panic!("{other:?}"),
    })
}

fn other(clerk: &str) -> (&'static str, usize) {
    if clerk == "ann" { ("bob", 2) } else { ("ann", 0) }
}

/// A tour that a manager has to sign now, at another server than the one that has started it.
fn checked() -> (Group, InstanceId) {
    let mut group = group();
    publish_people(&mut group, MANAGERS);
    let (instance, _) = start(&mut group, 8);
    let clerk = promised_by(&mut group, instance, "check").unwrap();
    group.ask(1, done(instance, "check", &clerk)).unwrap();
    run(&mut group, 5);
    (group, instance)
}

#[test]
fn what_somebody_else_has_taken_is_promised_by_them() {
    let mut group = group();
    let (instance, _) = start(&mut group, 8);
    let clerk = promised_by(&mut group, instance, "check").unwrap();
    let (other, planner) = other(&clerk);
    claim(&mut group, 1, instance, "check", other);
    assert_eq!(promised_by(&mut group, instance, "check").as_deref(), Some(other));
    assert_eq!(turns(&mut group, planner, other), 1);
    assert_eq!(turns(&mut group, 2 - planner, &clerk), 0);
    assert!(shown(&mut group, 1, instance).promised);
}

#[test]
fn what_somebody_has_taken_who_has_no_time_for_it_is_not_promised_any_more() {
    let mut group = group();
    let (instance, _) = start(&mut group, 5);
    start(&mut group, 5);
    let clerk = promised_by(&mut group, instance, "check").unwrap();
    let (other, planner) = other(&clerk);
    claim(&mut group, 1, instance, "check", other);
    assert_eq!(promised_by(&mut group, instance, "check"), None);
    let told = replanned(&mut group, instance);
    assert!(told[0].starts_with("claimed by another person; check is not"), "{told:?}");
    assert_eq!(turns(&mut group, planner, other), 1, "what they have promised stays promised");
    // Now it can be done by whom it suits.
    let activity = activity(instance, "check");
    group.ask(1, Request::Release { agent: other.into(), activity }).unwrap();
    (0..30).for_each(|_| group.pass(5_000));
    assert!(promised_by(&mut group, instance, "check").is_some());
}

#[test]
fn who_has_taken_a_step_elsewhere_is_known_where_it_is_asked_for_also_after_a_restart() {
    let (mut group, instance) = checked();
    let before = promised_by(&mut group, instance, "sign").unwrap();
    let other = if before == "sam" { "tom" } else { "sam" };
    claim(&mut group, 2, instance, "sign", other);
    assert_eq!(promised_by(&mut group, instance, "sign").as_deref(), Some(other));
    for place in [1, 2] {
        group.open(place);
        run(&mut group, 5);
        assert_eq!(promised_by(&mut group, instance, "sign").as_deref(), Some(other));
    }
}

#[test]
fn what_nobody_had_promised_is_tried_again_only_with_who_has_taken_it_elsewhere() {
    for begins_anew in [None, Some(1), Some(2)] {
        let (mut group, instance) = checked();
        // Nobody is there, so nobody promises it; then Tom is, and has it, and Sam is as well.
        let away = |name: &str| format!("{name}: {{ absent: [{{ from: 1970-01-01 }}], ");
        let without =
            |source: &str, name: &str| source.replace(&format!("{name}: {{"), &away(name));
        publish_people(&mut group, &without(&without(MANAGERS, "sam"), "tom"));
        assert_eq!(promised_by(&mut group, instance, "sign"), None);
        claim(&mut group, 2, instance, "sign", "tom");
        if let Some(place) = begins_anew {
            group.open(place);
            run(&mut group, 5);
        }
        publish_people(&mut group, MANAGERS);
        (0..30).for_each(|_| group.pass(5_000));
        assert_eq!(promised_by(&mut group, instance, "sign").as_deref(), Some("tom"));
    }
}
