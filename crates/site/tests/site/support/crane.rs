//! A crane that three servers give work to.

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

use super::group::{Group, HIGH, executor};

const PACK: &str = "process: parcel\nsteps:\n  \
                    - { step: pack, job: pack, takes: 10m, timeout: 1h }\n";
const MINUTE: i64 = 60_000;

/// North-1 keeps the plan of the crane, which does one at a time.
pub(crate) fn group() -> Group {
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: PACK.to_owned() }).unwrap();
    let crane = executor("crane", &["pack"]);
    group.ask(0, Request::Executor(Concern::Register(crane))).unwrap();
    for _ in 0..5 {
        group.pass(2_000);
    }
    group
}

/// A start at a server, of something that is to be done in so many minutes, if that is said.
pub(crate) fn asked(
    group: &mut Group,
    place: usize,
    process: &str,
    minutes: Option<i64>,
) -> (Request, InstanceId) {
    let instance = group.draw(place, if place == 1 { HIGH } else { 0 });
    let deadline = minutes.map(|minutes| Wish::new(Timestamp(group.now + minutes * MINUTE)));
    let request = Request::Start(Start {
        instance,
        process: process.into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: deadline.map(Box::new),
    });
    (request, instance)
}
