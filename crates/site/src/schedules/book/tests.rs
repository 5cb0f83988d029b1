//! Moments come up once, the latest of those missed, and none of a pause.

use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use proptest::prelude::*;

use super::*;

const BEGIN: Timestamp = Timestamp(1_000_000_000);

fn every(name: &str, ms: u64) -> SchedulePut {
    SchedulePut {
        name: name.into(),
        process: "report".into(),
        period: Period::Every { ms },
        data: "{}".to_owned(),
        by: Performer::System,
        agent: None,
        within: None,
    }
}

fn book(ms: u64) -> Book {
    let mut book = Book::default();
    book.put(every("r", ms), BEGIN).unwrap();
    book
}

fn after(ms: i64) -> Timestamp {
    Timestamp(BEGIN.0 + ms)
}

fn fired(moment: Timestamp) -> ScheduleEvent {
    let outcome = Fired::Started { instance: InstanceId(1), promised: None };
    ScheduleEvent::Fired { name: "r".into(), moment, outcome }
}

fn due(book: &mut Book, now: Timestamp) -> Option<Timestamp> {
    book.take_due(now).map(|taken| taken.moment)
}

#[test]
fn a_moment_is_due_once_and_the_next_one_after_a_period() {
    let mut book = book(10_000);
    assert_eq!(book.next_look(), Some(after(10_000)));
    assert_eq!(due(&mut book, after(9_999)), None);
    assert_eq!(due(&mut book, after(10_005)), Some(after(10_000)));
    assert_eq!(due(&mut book, after(10_005)), None, "it is under way");
    assert!(book.note(&fired(after(10_000))));
    assert_eq!(book.next_look(), Some(after(20_000)));
    assert!(!book.note(&fired(after(10_000))), "told again");
}

#[test]
fn the_key_of_a_start_follows_from_the_schedule_and_the_moment() {
    assert_eq!(key("r", Timestamp(0)), "schedule:r@1970-01-01T00:00:00.000Z");
    assert_ne!(key("r", Timestamp(0)), key("r", Timestamp(1)));
    assert_ne!(key("r", Timestamp(0)), key("s", Timestamp(0)));
}

#[test]
fn of_what_was_missed_the_latest_alone_is_due() {
    let mut book = book(10_000);
    assert_eq!(due(&mut book, after(75_000)), Some(after(70_000)));
    book.note(&fired(after(70_000)));
    assert_eq!(due(&mut book, after(75_000)), None);
    assert_eq!(book.next_look(), Some(after(80_000)));
}

#[test]
fn a_start_that_nothing_is_heard_of_is_asked_for_again() {
    let mut book = book(86_400_000);
    let (day, minute) = (after(86_400_000), 60_000);
    assert_eq!(due(&mut book, day), Some(day));
    assert_eq!(book.next_look(), Some(Timestamp(day.0 + minute)));
    assert_eq!(due(&mut book, Timestamp(day.0 + minute)), Some(day));
}

#[test]
fn a_start_that_does_not_come_through_is_retried_with_back_off() {
    let mut book = book(86_400_000);
    let mut now = after(86_400_000);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert_eq!(due(&mut book, now), Some(after(86_400_000)));
        book.put_off("r", after(86_400_000), "away", now);
        let next = book.next_look().unwrap();
        pauses.push((next.0 - now.0) / 1_000);
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn what_is_said_of_an_older_moment_leaves_the_one_under_way_alone() {
    let mut book = book(10_000);
    assert_eq!(due(&mut book, after(10_000)), Some(after(10_000)));
    // Nothing is heard of it, so a later one is under way.
    let taken = book.take_due(after(70_000)).unwrap();
    assert_eq!(taken.moment, after(70_000));
    let Some(ScheduleEvent::Fired { moment, outcome: Fired::Missed { reason }, .. }) = taken.missed
    else {
        panic!("it leaves no trace")
    };
    assert_eq!((moment, &*reason), (after(10_000), "nothing was heard of it for 60 s"));
    let waits = Some(after(130_000));
    book.put_off("r", after(10_000), "away", after(71_000));
    assert_eq!(book.next_look(), waits);
    assert!(book.note(&fired(after(10_000))), "it is told late, and is so");
    assert_eq!((book.next_look(), due(&mut book, after(80_000))), (waits, None));
    assert!(book.is_wanted("r", after(70_000)) && !book.is_wanted("r", after(10_000)));
    // Nor does it come any sooner after it was put off.
    book.put_off("r", after(70_000), "away", after(80_000));
    assert_eq!(book.next_look(), Some(after(81_000)));
    assert!(!book.is_wanted("r", after(70_000)));
    assert!(book.note(&fired(after(60_000))));
    assert_eq!(book.next_look(), Some(after(81_000)));
}

#[test]
fn a_moment_that_was_given_up_and_is_told_after_all_was_started() {
    let mut book = book(10_000);
    due(&mut book, after(10_000));
    let missed = book.take_due(after(70_000)).unwrap().missed.unwrap();
    assert!(book.note(&missed) && !book.note(&missed));
    assert!(book.note(&fired(after(10_000))) && !book.note(&missed));
}

#[test]
fn only_so_many_are_under_way_and_those_nothing_is_heard_of_make_room() {
    let mut book = Book::default();
    let count = STARTS_MAX + 10;
    for number in 0..count {
        book.put(every(&format!("r{number:03}"), 600_000), BEGIN).unwrap();
    }
    let now = after(600_000);
    let all = |book: &mut Book, now| -> Vec<Arc<str>> {
        let name = |book: &mut Book| Some(book.take_due(now)?.schedule.said.name.clone());
        std::iter::from_fn(|| name(book)).collect()
    };
    let first = all(&mut book, now);
    assert_eq!(first.len(), STARTS_MAX);
    let minute = Timestamp(now.0 + 60_000);
    assert_eq!(book.next_look(), Some(minute), "nobody wakes for nothing");
    let outcome = Fired::Started { instance: InstanceId(1), promised: None };
    book.note(&ScheduleEvent::Fired { name: first[0].clone(), moment: now, outcome });
    assert!(book.next_look().unwrap() <= now, "there is room");
    let second = all(&mut book, now);
    assert_eq!(second.len(), 1);
    // Of none of them anything is heard.
    let (third, later) = (all(&mut book, minute), Timestamp(minute.0 + 60_000));
    let seen: BTreeSet<Arc<str>> =
        [first, second, third, all(&mut book, later)].into_iter().flatten().collect();
    assert_eq!(seen.len(), count, "all have their turn");
}

#[test]
fn what_passes_during_a_pause_is_over() {
    let mut book = book(10_000);
    book.pause("r", true, after(5_000));
    assert_eq!((book.next_look(), due(&mut book, after(25_000))), (None, None));
    book.pause("r", false, after(25_000));
    assert_eq!(due(&mut book, after(29_000)), None);
    // The grid is the one from before.
    assert_eq!(book.next_look(), Some(after(30_000)));
}

#[test]
fn one_that_is_put_again_begins_anew_and_stays_paused() {
    let mut book = book(10_000);
    assert_eq!(due(&mut book, after(10_000)), Some(after(10_000)));
    book.put(every("r", 60_000), after(12_000)).unwrap();
    assert!(!book.note(&fired(after(10_000))), "that was another one");
    assert_eq!(book.next_look(), Some(after(72_000)));
    book.pause("r", true, after(13_000));
    book.put(every("r", 1_000), after(14_000)).unwrap();
    assert_eq!(book.next_look(), None);
    book.remove("r");
    assert_eq!((book.len(), book.next_look()), (0, None));
}

#[test]
fn what_is_kept_makes_the_same_again() {
    let mut book = book(10_000);
    assert_eq!(due(&mut book, after(31_000)), Some(after(30_000)));
    book.note(&fired(after(30_000)));
    let mut again = self::book(10_000);
    assert!(again.events().is_empty());
    for event in book.events() {
        assert!(again.note(&event));
    }
    assert_eq!(due(&mut again, after(31_000)), None);
    assert_eq!(again.next_look(), book.next_look());
}

/// What may happen to a schedule.
#[derive(Clone, Debug)]
enum Step {
    Pass(i64),
    /// What was taken up last is told, or lost.
    Tell(bool),
    Pause(bool),
    /// All is forgotten but what was told and kept.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_i64..40_000).prop_map(Step::Pass),
        4 => any::<bool>().prop_map(Step::Tell),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Each moment that was told is never due again, moments ascend, and none comes from a pause.
    #[test]
    fn no_moment_that_is_over_comes_up_again(period in 1_000_u64..30_000, steps in steps()) {
        let (mut book, mut now) = (book(period), BEGIN);
        let (mut kept, mut taken, mut told) = (Vec::new(), None, BTreeSet::new());
        let mut paused = (false, BEGIN);
        for step in steps {
            match step {
                Step::Pass(ms) => now = Timestamp(now.0 + ms),
                Step::Tell(true) => if let Some(moment) = taken.take() {
                    prop_assert!(book.note(&fired(moment)));
                    told.insert(moment);
                    kept = book.events();
                },
                Step::Tell(false) => if let Some(moment) = taken.take() {
                    book.put_off("r", moment, "away", now);
                },
                Step::Pause(is_paused) => {
                    book.pause("r", is_paused, now);
                    paused = (is_paused, now);
                }
                Step::Restart => {
                    book = self::book(period);
                    book.pause("r", paused.0, paused.1);
                    for event in &kept {
                        book.note(event);
                    }
                    taken = None;
                }
            }
            if let Some(moment) = due(&mut book, now) {
                prop_assert!(moment <= now && !paused.0);
                prop_assert!(moment > paused.1, "it has passed before the pause or during it");
                prop_assert!(told.last().is_none_or(|last| *last < moment));
                prop_assert_eq!((moment.0 - BEGIN.0).rem_euclid(period as i64), 0);
                prop_assert!(now.0 - moment.0 < period as i64, "the latest");
                taken = Some(moment);
            }
            // Otherwise a site that sleeps until then wakes at once, for nothing.
            prop_assert!(book.next_look().is_none_or(|look| look > now));
        }
    }
}
