//! Periodic starts: each moment once, whatever is killed in between, and what came of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::support::{Harness, data_of};
use legwork_model::event::{Fired, Performer, Period, ScheduleEvent, Within};
use legwork_model::id::{InstanceId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

/// A loan every minute.
fn loans() -> PutSchedule {
    PutSchedule {
        name: "loans".into(),
        process: "loan".into(),
        period: Period::Every { ms: 60_000 },
        data: data_of(json!({ "amount": 5 })),
        agent: None,
        within: None,
    }
}

fn put(asked: PutSchedule) -> Request {
    Request::Schedule(Recurring::Put(asked))
}

fn pause(is_paused: bool) -> Request {
    Request::Schedule(Recurring::Pause { name: "loans".into(), is_paused })
}

fn cron(text: &str, zone: &str) -> Period {
    Period::Cron { text: text.into(), zone: zone.into() }
}

fn hashed(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A bank, and whoever starts what its schedules want.
struct Clockwork {
    bank: Harness,
    /// Which instance was started for which key.
    started: BTreeMap<String, InstanceId>,
    last: u128,
}

impl Clockwork {
    fn new() -> Self {
        Self { bank: Harness::bank(), started: BTreeMap::new(), last: 0 }
    }

    /// Starts what is due, as a driver does; what came of it is not told yet.
    fn start(&mut self, due: &Due) -> Result<(InstanceId, Option<bool>), Refusal> {
        self.last += 1;
        let deadline = due.deadline.map(|(at, priority)| {
            let mut wish = Wish::new(at);
            (wish.unpromised, wish.priority) = (Unpromised::Start, priority);
            Box::new(wish)
        });
        let key = Key { stream: StreamId::of_key(hashed(&due.key).into()), request: 1 };
        let request = Request::Start(Start {
            instance: InstanceId(self.last),
            process: due.process.clone(),
            version: None,
            data: due.data.clone(),
            agent: due.agent.clone(),
            key: Some(Box::new(key)),
            wait_until: None,
            deadline,
        });
        let Answer::Started { instance, .. } = self.ask_as(&due.schedule, request)? else {
            panic!()
        };
        let (id, promised) = (instance.instance, instance.deadline.map(|one| one.promised));
        let before = self.started.insert(due.key.clone(), id);
        assert!(before.is_none_or(|before| before == id), "{} is started twice", due.key);
        Ok((id, promised))
    }

    fn ask_as(&mut self, schedule: &str, request: Request) -> Result<Answer, Refusal> {
        let before =
            std::mem::replace(&mut self.bank.credential, Credential::Schedule(schedule.into()));
        let answer = self.bank.ask(request);
        self.bank.credential = before;
        answer
    }

    fn tell(&mut self, due: &Due, came: Result<(InstanceId, Option<bool>), Refusal>) {
        let outcome = match came {
            Ok((instance, promised)) => Fired::Started { instance, promised },
            Err(refusal) => {
                Fired::Refused { code: refusal.code.to_owned(), message: refusal.message }
            }
        };
        let (name, moment) = (due.schedule.clone(), due.moment);
        let event = ScheduleEvent::Fired { name, moment, outcome };
        self.ask_as(&due.schedule, Request::Schedule(Recurring::Fired(event))).unwrap();
    }

    /// Time passes, and what comes up is started and told. Answers the moments.
    fn pass(&mut self, time: Duration) -> Vec<String> {
        self.bank.pass(time);
        let mut moments = Vec::new();
        while !self.bank.due.is_empty() {
            for due in std::mem::take(&mut self.bank.due) {
                let came = self.start(&due);
                self.tell(&due, came);
                moments.push(due.moment.to_string()[11..19].to_owned());
            }
            self.bank.pass(Duration::ZERO);
        }
        moments
    }

    fn shown(&mut self) -> ScheduleInfo {
        let show = Request::Schedule(Recurring::Show { name: "loans".into() });
        match self.bank.ask(show).unwrap() {
            Answer::Schedule(info) => *info,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_moment_is_started_once_by_the_schedule() {
    let mut clock = Clockwork::new();
    let Answer::SchedulePut { unchanged: false, next } = clock.bank.ask(put(loans())).unwrap()
    else {
        panic!()
    };
    assert_eq!(next, Some(clock.bank.now + MINUTE));
    assert!(clock.pass(MINUTE / 2).is_empty());
    assert_eq!(clock.pass(MINUTE / 2), ["08:01:00"]);
    assert!(clock.pass(MINUTE / 2).is_empty());
    assert_eq!(clock.pass(MINUTE), ["08:02:00"]);
    let shown = clock.shown();
    assert_eq!(shown.next, Some(shown.put_at + 3 * MINUTE));
    let started = Fired::Started { instance: InstanceId(2), promised: None };
    assert_eq!(shown.last, Some((shown.put_at + 2 * MINUTE, started)));
    // The driver sleeps until the next one.
    assert_eq!(clock.bank.site.next_timeout(), shown.next);
    let history = Request::History { instance: InstanceId(2), from: 0, limit: 1 };
    let Answer::History { entries, .. } = clock.bank.ask(history).unwrap() else { panic!() };
    assert_eq!(entries[0].by, Performer::Agent("schedule:loans".into()));
}

#[test]
fn a_start_that_was_not_told_before_a_crash_is_the_same_start_afterwards() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    clock.bank.pass(MINUTE);
    let due = clock.bank.due.pop().unwrap();
    let (first, _) = clock.start(&due).unwrap();
    clock.bank.restart();
    clock.bank.pass(Duration::ZERO);
    assert_eq!(clock.bank.due, [due], "asked for again");
    assert_eq!(clock.pass(Duration::ZERO), ["08:01:00"]);
    assert_eq!(clock.started.len(), 1);
    assert!(
        matches!(clock.shown().last, Some((_, Fired::Started { instance, .. })) if instance == first)
    );
    // What was told is not asked for again.
    clock.bank.restart();
    assert!(clock.pass(Duration::ZERO).is_empty());
    assert!(clock.shown().last.is_some());
    assert_eq!(clock.pass(MINUTE), ["08:02:00"]);
}

#[test]
fn of_what_was_missed_the_latest_is_started_and_the_grid_stays() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    clock.pass(MINUTE);
    clock.bank.now = clock.bank.now + 10 * MINUTE + MINUTE / 2;
    clock.bank.restart();
    assert_eq!(clock.pass(Duration::ZERO), ["08:11:00"]);
    assert_eq!(clock.pass(MINUTE / 2), ["08:12:00"]);
}

#[test]
fn a_schedule_goes_by_the_clock_on_the_wall_of_its_zone() {
    let mut clock = Clockwork::new();
    let nightly = PutSchedule { period: cron("30 10 * * *", "Europe/Berlin"), ..loans() };
    clock.bank.ask(put(nightly)).unwrap();
    assert_eq!(clock.pass(90 * MINUTE), ["09:30:00"]);
    assert_eq!(clock.shown().next, Some("2026-01-11T09:30:00Z".parse().unwrap()));
}

#[test]
fn nothing_is_started_while_it_is_paused_nor_for_that_time() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    clock.bank.ask(pause(true)).unwrap();
    assert!(clock.pass(5 * MINUTE + MINUTE / 2).is_empty());
    assert_eq!((clock.shown().next, clock.bank.site.next_timeout()), (None, None));
    clock.bank.restart();
    assert!(clock.shown().is_paused);
    clock.bank.ask(pause(false)).unwrap();
    clock.bank.restart();
    assert!(clock.pass(Duration::ZERO).is_empty(), "that is over");
    assert_eq!(clock.pass(MINUTE / 2), ["08:06:00"]);
    clock.bank.ask(Request::Schedule(Recurring::Remove { name: "loans".into() })).unwrap();
    assert!(clock.pass(5 * MINUTE).is_empty());
    let gone = clock.bank.refusal(pause(true));
    assert!(gone.ends_with("(no_such_schedule)"), "{gone}");
}

#[test]
fn a_refused_start_is_told_and_the_next_moment_is_tried() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    let stricter = crate::support::LOAN.replace("start: [amount]", "start: [amount, risk]");
    clock.bank.ask(Request::Deploy { source: stricter }).unwrap();
    assert_eq!(clock.pass(MINUTE), ["08:01:00"]);
    let Some((_, Fired::Refused { code, message })) = clock.shown().last else { panic!() };
    assert!(code == "missing_input" && message.contains("risk"), "{code}: {message}");
    clock.bank.restart();
    assert!(clock.pass(Duration::ZERO).is_empty(), "it is not tried again");
    clock.bank.ask(Request::Deploy { source: crate::support::LOAN.to_owned() }).unwrap();
    assert_eq!(clock.pass(MINUTE), ["08:02:00"]);
    // The newest version is started.
    let show = Request::Show {
        instance: clock.started.values().next().copied().unwrap(),
        wait_until: None,
    };
    let Answer::Instance(view) = clock.bank.ask(show).unwrap() else { panic!() };
    assert_eq!(view.info.version, 3);
}

#[test]
fn what_does_not_come_through_is_tried_again_until_the_next_moment_has_come() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    clock.bank.pass(MINUTE);
    let due = clock.bank.due.pop().unwrap();
    let (moment, reason) = (due.moment, "north-2 is away".to_owned());
    let put_off = || {
        let (name, reason) = ("loans".into(), reason.clone());
        Request::Schedule(Recurring::PutOff { name, moment, reason })
    };
    clock.ask_as("loans", put_off()).unwrap();
    clock.bank.pass(Duration::from_secs(1));
    assert_eq!(clock.bank.due.pop(), Some(due));
    clock.ask_as("loans", put_off()).unwrap();
    clock.bank.pass(MINUTE);
    // The first of the two is over, and leaves a trace.
    let missed = Some((moment, Fired::Missed { reason }));
    assert_eq!(
        (clock.shown().last, clock.bank.site.gauges().schedules_missed),
        (missed.clone(), 1)
    );
    clock.bank.due.clear();
    clock.bank.restart();
    assert_eq!(clock.shown().last, missed);
    assert_eq!(clock.pass(Duration::ZERO), ["08:02:00"]);
    assert_eq!(clock.pass(MINUTE), ["08:03:00"]);
}

#[test]
fn what_waits_to_be_started_is_not_wanted_any_more_once_its_schedule_is_paused() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    clock.bank.pass(MINUTE);
    let due = clock.bank.due.pop().unwrap();
    let begin = |clock: &mut Clockwork| {
        let begin = Recurring::Begin { name: "loans".into(), moment: due.moment };
        let answer = clock.ask_as("loans", Request::Schedule(begin)).unwrap();
        matches!(answer, Answer::Wanted(true))
    };
    assert!(begin(&mut clock));
    clock.bank.ask(pause(true)).unwrap();
    assert!(!begin(&mut clock));
    clock.bank.ask(pause(false)).unwrap();
    assert!(!begin(&mut clock), "that is over");
    let hourly = PutSchedule { period: Period::Every { ms: 3_600_000 }, ..loans() };
    clock.bank.ask(put(hourly)).unwrap();
    assert!(!begin(&mut clock), "that was another one");
    clock.bank.ask(Request::Schedule(Recurring::Remove { name: "loans".into() })).unwrap();
    assert!(!begin(&mut clock));
}

#[test]
fn what_cannot_be_started_now_is_refused_with_what_to_do() {
    let mut bank = Harness::bank();
    for (asked, expected) in [
        (PutSchedule { name: "a b".into(), ..loans() }, "bad_schedule"),
        (PutSchedule { process: "lone".into(), ..loans() }, "no_such_process"),
        (PutSchedule { data: Data::new(), ..loans() }, "missing_input"),
        (PutSchedule { data: data_of(json!({ "amount": "x" })), ..loans() }, "wrong_type"),
        (PutSchedule { period: Period::Every { ms: 999 }, ..loans() }, "bad_schedule"),
        (PutSchedule { period: cron("0 25 * * *", "UTC"), ..loans() }, "bad_schedule"),
        (PutSchedule { period: cron("0 2 * * *", "berlin"), ..loans() }, "bad_schedule"),
        (PutSchedule { agent: Some("eve".into()), ..loans() }, "no_such_agent"),
        (PutSchedule { within: Some(Within { ms: 5, priority: 5 }), ..loans() }, "bad_schedule"),
    ] {
        let refusal = bank.refusal(put(asked));
        assert!(refusal.ends_with(&format!("({expected})")), "{refusal}");
    }
    let zone = bank.refusal(put(PutSchedule { period: cron("0 2 * * *", "berlin"), ..loans() }));
    assert!(zone.starts_with("`zone`: ") && zone.contains("`Europe/Berlin`"), "{zone}");
    let both = bank.refusal(put(PutSchedule { period: cron("0 25 * * *", "berlin"), ..loans() }));
    assert!(both.starts_with("`cron`: "), "{both}");
    let minutes = vec!["5"; 200].join(",") + " * * * *";
    let long = bank.refusal(put(PutSchedule { period: cron(&minutes, "UTC"), ..loans() }));
    assert!(long.starts_with("`cron` has 407 bytes, at most 256"), "{long}");
}

#[test]
fn the_same_again_changes_nothing_and_others_may_not_change_it() {
    let mut bank = Harness::bank();
    let token = |name: &str, scopes: &[Scope]| Request::IssueToken {
        name: name.to_owned(),
        hash: [name.len() as u8; 32],
        scopes: scopes.to_vec(),
    };
    bank.ask(token("boss", &[Scope::Admin])).unwrap();
    bank.credential = Credential::Token([4; 32]);
    bank.ask(token("a", &[Scope::Start])).unwrap();
    bank.ask(token("bb", &[Scope::Start])).unwrap();
    bank.ask(token("ccc", &[Scope::Worker])).unwrap();
    bank.credential = Credential::Token([1; 32]);
    bank.ask(put(loans())).unwrap();
    let changed = || PutSchedule { period: Period::Every { ms: 5_000 }, ..loans() };
    bank.credential = Credential::Token([2; 32]);
    let again = bank.ask(put(loans())).unwrap();
    assert!(matches!(again, Answer::SchedulePut { unchanged: true, .. }), "{again:?}");
    assert_eq!(bank.ask(put(changed())).unwrap_err().code, "schedule_exists");
    let refused = bank.ask(put(changed())).unwrap_err();
    assert_eq!(bank.ask(pause(true)).unwrap_err(), refused);
    let remove = Request::Schedule(Recurring::Remove { name: "loans".into() });
    assert_eq!(bank.ask(remove).unwrap_err(), refused);
    let list = || Request::Schedule(Recurring::List { after: None, limit: 10 });
    assert!(bank.ask(list()).is_ok());
    bank.credential = Credential::Token([3; 32]);
    assert_eq!(bank.ask(list()).unwrap_err().code, "forbidden");
    assert_eq!(bank.ask(put(changed())).unwrap_err().code, "forbidden");
    bank.credential = Credential::Token([4; 32]);
    assert!(bank.ask(put(changed())).is_ok());
    // Nobody but the schedule itself says what came of it.
    let outcome = Fired::Started { instance: InstanceId(1), promised: None };
    let event = ScheduleEvent::Fired { name: "loans".into(), moment: Timestamp(0), outcome };
    let told = Request::Schedule(Recurring::Fired(event));
    assert_eq!(bank.ask(told).unwrap_err().code, "forbidden");
}

#[test]
fn a_start_in_time_is_promised_if_somebody_can_and_started_all_the_same() {
    let mut clock = Clockwork::new();
    let takes = |step: &str| format!("  - step: {step}\n    who: Role(clerk)\n    takes: 30m\n");
    let source = format!(
        "process: loan\ndata: {{ amount: int }}\nstart: [amount]\nsteps:\n{}",
        takes("look")
    );
    clock.bank.ask(Request::Deploy { source }).unwrap();
    let within = |ms| Some(Within { ms, priority: 5 });
    let hourly = PutSchedule {
        period: Period::Every { ms: 3_600_000 },
        within: within(3_600_000),
        ..loans()
    };
    clock.bank.ask(put(hourly.clone())).unwrap();
    clock.pass(60 * MINUTE);
    let Some((_, Fired::Started { promised, .. })) = clock.shown().last else { panic!() };
    assert_eq!(promised, Some(true));
    clock.bank.ask(put(PutSchedule { within: within(60_000), ..hourly.clone() })).unwrap();
    clock.pass(60 * MINUTE);
    let Some((_, Fired::Started { promised, .. })) = clock.shown().last else { panic!() };
    assert_eq!(promised, Some(false), "nobody does that in a minute");
    // Missed for longer than it may take.
    clock.bank.now = clock.bank.now + 90 * MINUTE;
    clock.bank.restart();
    clock.pass(Duration::ZERO);
    let Some((_, Fired::Started { promised, .. })) = clock.shown().last else { panic!() };
    assert_eq!(promised, Some(false), "it is late already");
}

#[test]
fn what_came_of_starts_is_stored_as_a_whole_now_and_then() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(PutSchedule { period: Period::Every { ms: 1_000 }, ..loans() })).unwrap();
    for _ in 0..260 {
        assert_eq!(clock.pass(Duration::from_secs(1)).len(), 1);
    }
    assert!(clock.bank.has_snapshot(StreamId::SCHEDULES));
    let last = clock.shown().last;
    clock.bank.restart();
    assert_eq!(clock.shown().last, last);
    clock.bank.corrupt_snapshot(StreamId::SCHEDULES);
    clock.bank.restart();
    assert_eq!(clock.shown().last, last, "made of the records");
    assert_eq!(clock.pass(Duration::from_secs(1)).len(), 1);
    assert_eq!(clock.started.len(), 261);
}

#[test]
fn a_moment_that_was_asked_for_is_not_one_of_a_schedule_put_anew_after_the_clock_fell_back() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(loans())).unwrap();
    let begin = clock.shown().put_at;
    clock.bank.pass(MINUTE);
    // It is on its way, maybe to another server, when this one is killed.
    let before = clock.bank.due.pop().unwrap();
    assert_eq!(before.moment, begin + MINUTE);
    clock.bank.now = begin + MINUTE / 2;
    clock.bank.restart();
    let changed = || PutSchedule {
        period: Period::Every { ms: 30_000 },
        data: data_of(json!({ "amount": 6 })),
        ..loans()
    };
    let Answer::SchedulePut { next, .. } = clock.bank.ask(put(changed())).unwrap() else {
        panic!()
    };
    assert_eq!(next, Some(begin + 3 * MINUTE / 2), "the minute is what was put before");
    clock.bank.due.clear();
    clock.bank.pass(MINUTE / 2);
    assert!(clock.bank.due.iter().all(|due| due.key != before.key));
}

#[test]
fn a_snapshot_of_what_came_of_starts_says_how_late_it_was() {
    let mut clock = Clockwork::new();
    clock.bank.ask(put(PutSchedule { period: Period::Every { ms: 1_000 }, ..loans() })).unwrap();
    let begin = clock.bank.now;
    while !clock.bank.has_snapshot(StreamId::SCHEDULES) {
        clock.bank.pass(Duration::from_secs(1));
        // Nothing else is stored.
        for due in std::mem::take(&mut clock.bank.due) {
            let outcome = Fired::Missed { reason: "away".to_owned() };
            let event = ScheduleEvent::Fired { name: "loans".into(), moment: due.moment, outcome };
            clock.ask_as("loans", Request::Schedule(Recurring::Fired(event))).unwrap();
        }
    }
    let until = std::mem::replace(&mut clock.bank.now, begin);
    clock.bank.restart();
    assert_eq!(clock.bank.site.latest(), until);
}

#[test]
fn moments_that_are_asked_for_together_are_stored_with_one_record() {
    let mut clock = Clockwork::new();
    for name in ["loans", "others", "more"] {
        clock.bank.ask(put(PutSchedule { name: name.into(), ..loans() })).unwrap();
    }
    let records = |clock: &Clockwork| clock.bank.records(StreamId::SCHEDULES);
    clock.bank.pass(MINUTE);
    assert_eq!((clock.bank.due.len(), records(&clock)), (3, 1));
    // Nothing is heard of them, so they are asked for again.
    clock.bank.due.clear();
    clock.bank.restart();
    clock.bank.pass(Duration::ZERO);
    assert_eq!((clock.bank.due.len(), records(&clock)), (3, 1));
}
