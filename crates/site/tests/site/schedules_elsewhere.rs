//! Periodic starts where there are several servers: one starts them, and all know them.

use crate::support::group::Group;
use legwork_model::event::Period;
use legwork_model::id::ServerId;
use legwork_site::*;

fn visits() -> Request {
    Request::Schedule(Recurring::Put(PutSchedule {
        name: "visits".into(),
        process: "visit".into(),
        period: Period::Every { ms: 60_000 },
        data: Data::new(),
        agent: None,
        within: None,
    }))
}

fn places(group: &mut Group) -> Vec<usize> {
    std::mem::take(&mut group.due).into_iter().map(|(place, _)| place).collect()
}

#[test]
fn the_registrar_alone_starts_what_is_due() {
    let mut group = Group::new(1, 1);
    let elsewhere = group.ask(1, visits()).unwrap_err();
    assert_eq!((elsewhere.code, elsewhere.at), ("not_registrar", Some(ServerId(0))));
    group.ask(0, visits()).unwrap();
    for server in &group.servers {
        assert_eq!(server.site.gauges().schedules, 1, "all know it");
    }
    group.pass(61_000);
    assert_eq!(places(&mut group), [0]);
    // Nobody else does while it is away, and what it missed it starts once.
    group.away.insert(0);
    group.pass(180_000);
    assert_eq!(places(&mut group), [0; 0]);
    group.away.remove(&0);
    group.open(0);
    group.pass(0);
    assert_eq!(places(&mut group), [0]);
}

#[test]
fn a_list_is_asked_of_the_registrar() {
    let mut group = Group::new(1, 1);
    let list = || Request::Schedule(Recurring::List { after: None, limit: 10 });
    assert_eq!(group.ask(2, list()).unwrap_err().at, Some(ServerId(0)));
    assert!(group.ask(0, list()).is_ok());
}
