//! Letters about items: who gets them, when, and never twice.

use std::collections::BTreeSet;
use std::time::Duration;

use legwork_mail::{Reminder, Tell};
use legwork_model::id::{AgentId, InstanceId, StreamId};
use legwork_site::*;
use serde_json::json;

use crate::support::mailer::{as_mailer, next};
use crate::support::{Harness, LOAN, activity, claim, complete};

const BANK: &str = r#"
organisation: bank
units:
  desk: { manager: eva }
positions:
  teller: { unit: desk, roles: [clerk] }
agents:
  ann: { mail: ann@bank, positions: [teller], substitutes: [dan, eva], absent: [{ from: 2026-02-01, to: 2026-02-28 }] }
  ben: { mail: ben@bank, positions: [teller] }
  bob: { positions: [teller] }
  dan: { mail: dan@bank, roles: [guard] }
  eva: { mail: eva@bank }
"#;

const DAY: Duration = Duration::from_secs(86_400);

fn bank_with(tell: Tell) -> Harness {
    let mut bank = Harness::new();
    bank.config.mail = Some(tell);
    bank.site = Site::new(bank.config.clone());
    bank.ask(Request::PublishOrganisation { source: BANK.to_owned() }).unwrap();
    bank.ask(Request::Deploy { source: LOAN.to_owned() }).unwrap();
    bank
}

fn bank() -> Harness {
    let reminder = Some(Reminder { after: Some(DAY), before_due: None });
    bank_with(Tell { reminder, escalation: Some(2 * DAY), ..Tell::default() })
}

/// As `assignment capture ann`.
fn shown(letter: &Letter) -> String {
    let agent = &letter.notice.agent;
    assert_eq!(&*letter.address, format!("{agent}@bank"));
    match &letter.content {
        Content::Item { about, .. } => format!("{} {} {agent}", about.kind, about.step),
        Content::Case(turn) => format!("{} {} {agent}", turn.kind, turn.step),
        Content::Deadline(passing) => format!("{} {agent}", passing.kind),
        Content::Digest { .. } => format!("{} items {agent}", letter.notice.about.len()),
    }
}

/// All letters that are due now, each told.
fn told(bank: &mut Harness) -> String {
    let mut all = Vec::new();
    while let Some(letter) = next(bank) {
        all.push(shown(&letter));
        as_mailer(bank, Mailing::Told(letter.notice));
        assert!(all.len() < 1_000, "{all:?}");
    }
    all.join(", ")
}

/// Scores what was captured.
fn score(bank: &mut Harness) {
    let job = bank.jobs("credit-score", 1).remove(0);
    bank.report(&job, json!({ "risk": 3 })).unwrap();
}

#[test]
fn those_who_see_an_item_are_told_then_reminded_then_their_manager_hears() {
    let mut bank = bank();
    assert_eq!(told(&mut bank), "");
    bank.start(1);
    assert_eq!(told(&mut bank), "assignment capture ann, assignment capture ben");
    assert_eq!(told(&mut bank), "");
    bank.pass(DAY);
    assert_eq!(told(&mut bank), "reminder capture ann, reminder capture ben");
    bank.pass(DAY);
    assert_eq!(told(&mut bank), "escalation capture eva");
    bank.pass(30 * DAY);
    // In February somebody else sees it.
    assert_eq!(told(&mut bank), "assignment capture dan");
}

#[test]
fn what_was_told_outlives_the_site_and_what_was_on_its_way_comes_again() {
    let mut bank = bank();
    bank.start(1);
    let first = next(&mut bank).unwrap();
    as_mailer(&mut bank, Mailing::Told(first.notice));
    let second = next(&mut bank).unwrap();
    bank.restart();
    assert_eq!(next(&mut bank).unwrap(), second);
    assert_eq!(told(&mut bank), "assignment capture ben");
    bank.restart();
    assert_eq!(told(&mut bank), "");
    bank.pass(DAY);
    assert_eq!(told(&mut bank), "reminder capture ann, reminder capture ben");
}

#[test]
fn nobody_is_told_of_what_is_gone_by_then() {
    let mut bank = bank();
    let id = bank.start(1);
    assert_eq!(shown(&next(&mut bank).unwrap()), "assignment capture ann");
    bank.ask(Request::Abort { instance: id, reason: "no".to_owned() }).unwrap();
    assert_eq!(told(&mut bank), "");
}

#[test]
fn who_takes_an_item_is_reminded_and_the_others_hear_no_more() {
    let mut bank = bank();
    let id = bank.start(1);
    told(&mut bank);
    bank.pass(Duration::from_secs(3_600));
    bank.ask(claim("ben", id, "capture")).unwrap();
    bank.pass(DAY);
    assert_eq!(told(&mut bank), "reminder capture ben");
    // Who is given it by somebody else did not know.
    let (agent, to, activity) = ("ben".into(), "dan".into(), activity(id, "capture"));
    bank.ask(Request::Delegate { agent, activity, to }).unwrap();
    assert_eq!(told(&mut bank), "assignment capture dan");
}

#[test]
fn nobody_is_told_of_an_item_that_a_rule_keeps_from_them() {
    let mut bank = bank();
    bank.pass(25 * DAY);
    let id = bank.start(1);
    // Ann is away, and Dan stands in for her.
    assert_eq!(told(&mut bank), "assignment capture ben, assignment capture dan");
    bank.ask(Request::Complete(complete("dan", id, "capture"))).unwrap();
    score(&mut bank);
    // Dan has done the first step and must not decide for Ann, so it is Eva's turn.
    assert_eq!(told(&mut bank), "assignment verdict ben, assignment verdict eva");
}

#[test]
fn a_manager_who_is_away_is_not_told_through_somebody_whom_the_rule_keeps_out() {
    let mut bank = bank_with(Tell { escalation: Some(DAY), ..Tell::default() });
    let away = "eva: { mail: eva@bank, substitutes: [ben, dan], absent: [{ from: 2025-12-01 }] }";
    let source = BANK.replace("eva: { mail: eva@bank }", away);
    bank.ask(Request::PublishOrganisation { source }).unwrap();
    // Ben stands in for Eva, but not where he has done the step before.
    for (number, captured_by, hears) in [(1, "ben", "dan"), (2, "bob", "ben")] {
        let instance = bank.start(number);
        bank.ask(Request::Complete(complete(captured_by, instance, "capture"))).unwrap();
        score(&mut bank);
        told(&mut bank);
        bank.pass(DAY);
        assert_eq!(told(&mut bank), format!("escalation verdict {hears}"));
        bank.ask(Request::Abort { instance, reason: "enough".to_owned() }).unwrap();
    }
}

#[test]
fn a_letter_names_the_words_that_answer_it_as_long_as_they_count() {
    let mut bank = bank_with(Tell { answer_within: DAY, ..Tell::default() });
    let words = |letter: &Letter| match &letter.content {
        Content::Item { about, .. } => {
            about.words.iter().map(|(word, _)| &**word).collect::<Vec<_>>().join(" ")
        }
        Content::Case(_) | Content::Deadline(_) | Content::Digest { .. } => panic!(),
    };
    let id = bank.start(1);
    let letter = next(&mut bank).unwrap();
    assert_eq!(words(&letter), "done");
    bank.pass(2 * DAY);
    assert_eq!(words(&next(&mut bank).unwrap()), "");
    bank.ask(Request::Complete(complete("ann", id, "capture"))).unwrap();
    score(&mut bank);
    assert_eq!(words(&next(&mut bank).unwrap()), "approve reject");
}

/// A question that names one of the two elements that it reads.
const PAY: &str = "
process: pay
data: { amount: { type: decimal, title: Amount }, secret: string }
start: [amount, secret]
steps:
  - choice: pay
    title: Pay it?
    who: Role(clerk)
    reads: [amount, secret]
    mail: [amount]
    branches: [{ name: pay }, { name: refuse }]
";

#[test]
fn a_letter_shows_what_the_definition_names_also_if_the_case_has_left_memory_before() {
    let mut bank = bank();
    bank.config.resident_max = 0;
    bank.restart();
    bank.ask(Request::Deploy { source: PAY.to_owned() }).unwrap();
    let data = serde_json::json!({ "amount": "12.50", "secret": "no one" });
    let mut request = crate::support::start(InstanceId(9), data, None);
    if let Request::Start(start) = &mut request {
        start.process = "pay".into();
    }
    bank.ask(request).unwrap();
    let mut letter = next(&mut bank);
    while letter.is_none() {
        bank.pass(Duration::from_millis(200));
        letter = next(&mut bank);
    }
    let Some(Letter { content: Content::Item { about, .. }, .. }) = letter else { panic!() };
    let shown: Vec<_> = about.shown.iter().map(|(title, _)| &**title).collect();
    assert_eq!(shown, ["Amount"]);
}

#[test]
fn the_history_says_that_an_answer_came_by_mail() {
    let mut bank = bank();
    let id = bank.start(1);
    bank.credential = Credential::Reply("ann".into());
    bank.ask(Request::Complete(complete("ann", id, "capture"))).unwrap();
    bank.credential = Credential::None;
    score(&mut bank);
    let verdict = Complete { answer: Some("approve".into()), ..complete("ben", id, "verdict") };
    bank.ask(Request::Complete(verdict)).unwrap();
    let history = bank.ask(Request::History { instance: id, from: 0, limit: 100 }).unwrap();
    let Answer::History { entries, .. } = history else { panic!("{history:?}") };
    let by_mail = entries.iter().filter(|entry| entry.channel.is_some());
    let by_mail: Vec<_> = by_mail.map(|entry| (entry.kind, entry.step.as_deref())).collect();
    assert_eq!(by_mail, [("completed", Some("capture"))]);
}

#[test]
fn nobody_of_a_pool_is_told() {
    let mut bank = bank_with(Tell { actors_max: 2, escalation: Some(DAY), ..Tell::default() });
    bank.start(1);
    assert_eq!(told(&mut bank), "");
    bank.pass(2 * DAY);
    assert_eq!(told(&mut bank), "");
}

#[test]
fn who_is_given_an_item_of_a_pool_is_told_and_who_takes_one_is_not() {
    let mut bank = bank_with(Tell { actors_max: 2, ..Tell::default() });
    let (first, second) = (bank.start(1), bank.start(2));
    assert_eq!(told(&mut bank), "");
    bank.ask(claim("ben", first, "capture")).unwrap();
    assert_eq!(told(&mut bank), "");
    let (agent, to, activity) = ("ann".into(), "ben".into(), activity(second, "capture"));
    bank.ask(Request::Delegate { agent, activity, to }).unwrap();
    // Found again in the history.
    bank.restart();
    assert_eq!(told(&mut bank), "assignment capture ben");
}

#[test]
fn who_is_given_an_item_is_told_also_if_the_case_has_left_memory_before() {
    let mut bank = bank_with(Tell { actors_max: 2, ..Tell::default() });
    bank.config.resident_max = 0;
    bank.restart();
    let (first, second) = (bank.start(1), bank.start(2));
    bank.ask(claim("ben", first, "capture")).unwrap();
    let (agent, activity) = (AgentId::from("ann"), activity(second, "capture"));
    let give = |to: &str| Request::Delegate {
        agent: agent.clone(),
        activity: activity.clone(),
        to: to.into(),
    };
    bank.ask(give("ben")).unwrap();
    assert_eq!(bank.site.gauges().instances_resident, 0);
    let letter = next(&mut bank).unwrap();
    assert_eq!(shown(&letter), "assignment capture ben");
    // Found again in the history, and sent when the mail server takes it.
    bank.restart();
    let until = bank.now + Duration::from_secs(60);
    as_mailer(&mut bank, Mailing::PutOff { agent: letter.notice.agent, until });
    assert_eq!(told(&mut bank), "");
    bank.pass(Duration::from_secs(60));
    assert_eq!(told(&mut bank), "assignment capture ben");
    // Who takes what was given to somebody before is not told.
    bank.ask(Request::Release { agent: "ben".into(), activity: activity.clone() }).unwrap();
    bank.ask(claim("ann", second, "capture")).unwrap();
    assert_eq!(bank.site.gauges().instances_resident, 0);
    assert_eq!(told(&mut bank), "");
}

#[test]
fn who_stands_in_and_takes_an_item_of_a_pool_is_not_told() {
    let mut bank = bank_with(Tell { actors_max: 2, ..Tell::default() });
    bank.pass(25 * DAY);
    let id = bank.start(1);
    bank.ask(claim("dan", id, "capture")).unwrap();
    assert_eq!(told(&mut bank), "");
}

#[test]
fn a_case_that_was_suspended_is_no_news_when_it_goes_on() {
    let mut bank = bank();
    let instance = bank.start(1);
    told(&mut bank);
    bank.ask(Request::Suspend { instance, reason: None }).unwrap();
    assert_eq!(told(&mut bank), "");
    bank.ask(Request::Resume { instance, reason: None }).unwrap();
    assert_eq!(told(&mut bank), "");
}

#[test]
fn who_gets_too_many_letters_gets_one_for_the_rest() {
    let mut bank = bank_with(Tell { letters_an_hour_max: 2, ..Tell::default() });
    for number in 1..=6 {
        bank.start(number);
    }
    let both = "assignment capture ann, assignment capture ben";
    assert_eq!(told(&mut bank), format!("{both}, {both}"));
    bank.ask(claim("ann", InstanceId(6), "capture")).unwrap();
    bank.pass(Duration::from_secs(3_500));
    assert_eq!(told(&mut bank), "");
    bank.pass(Duration::from_secs(200));
    assert_eq!(told(&mut bank), "3 items ann, 3 items ben");
    bank.pass(DAY);
    assert_eq!(told(&mut bank), "");
}

#[test]
fn more_than_one_digest_can_stand_for_comes_with_the_next() {
    let mut bank = bank_with(Tell { letters_an_hour_max: 1, ..Tell::default() });
    for number in 1..=1_100 {
        bank.start(number);
    }
    let hour = Duration::from_secs(3_601);
    assert_eq!(told(&mut bank), "assignment capture ann, assignment capture ben");
    bank.pass(hour);
    assert_eq!(told(&mut bank), "1000 items ann, 1000 items ben");
    bank.pass(hour);
    assert_eq!(told(&mut bank), "99 items ann, 99 items ben");
    bank.pass(hour);
    assert_eq!(told(&mut bank), "");
}

#[test]
fn what_comes_as_one_comes_as_one_also_if_that_does_not_get_there_at_once() {
    let mut bank = bank_with(Tell { letters_an_hour_max: 2, ..Tell::default() });
    for number in 1..=6 {
        bank.start(number);
    }
    told(&mut bank);
    bank.pass(Duration::from_secs(3_601));
    let digest = next(&mut bank).unwrap();
    assert_eq!(shown(&digest), "4 items ann");
    // The mail server is away, or takes nothing for Ann.
    assert_eq!(shown(&next(&mut bank).unwrap()), "4 items ben");
    assert_eq!(next(&mut bank), Some(digest));
    let until = bank.now + Duration::from_secs(60);
    as_mailer(&mut bank, Mailing::PutOff { agent: "ann".into(), until });
    assert_eq!(told(&mut bank), "4 items ben");
    bank.pass(Duration::from_secs(60));
    // What was done meanwhile is left out.
    bank.ask(claim("ben", InstanceId(5), "capture")).unwrap();
    assert_eq!(told(&mut bank), "3 items ann");
    bank.pass(DAY);
    assert_eq!(told(&mut bank), "");
}

#[test]
fn the_limit_of_an_hour_holds_also_for_a_site_that_came_up_again() {
    let mut bank = bank_with(Tell { letters_an_hour_max: 1, ..Tell::default() });
    let both = "assignment capture ann, assignment capture ben";
    for number in 1..=2 {
        bank.start(number);
    }
    assert_eq!(told(&mut bank), both);
    bank.restart();
    assert_eq!(told(&mut bank), "");
    bank.pass(Duration::from_secs(3_601));
    // One letter fits, and one letter there is.
    assert_eq!(told(&mut bank), both);
}

#[test]
fn nothing_is_sent_to_whoever_could_not_be_reached_until_it_is_time() {
    let mut bank = bank();
    bank.start(1);
    let letter = next(&mut bank).unwrap();
    let until = bank.now + Duration::from_secs(60);
    as_mailer(&mut bank, Mailing::PutOff { agent: letter.notice.agent.clone(), until });
    assert_eq!(told(&mut bank), "assignment capture ben");
    bank.pass(Duration::from_secs(60));
    assert_eq!(next(&mut bank), Some(letter));
}

#[test]
fn what_was_told_is_stored_as_a_whole_now_and_then() {
    let mut bank = bank_with(Tell { letters_an_hour_max: 1_000, ..Tell::default() });
    for number in 1..=150 {
        bank.start(number);
    }
    assert_eq!(told(&mut bank).matches("assignment").count(), 300);
    assert!(bank.has_snapshot(StreamId::MAIL));
    bank.restart();
    assert_eq!(told(&mut bank), "");
}

#[test]
fn only_the_mailer_hears_of_letters_and_only_if_there_is_one() {
    let mut bank = bank();
    assert_eq!(bank.ask(Request::Mail(Mailing::Next)).unwrap_err().code, "forbidden");
    let mut silent = Harness::bank();
    silent.credential = Credential::Mailer;
    assert_eq!(silent.ask(Request::Mail(Mailing::Next)).unwrap_err().code, "no_mail");
    let instance = InstanceId(1);
    let abort = Request::Abort { instance, reason: String::new() };
    assert_eq!(silent.ask(abort).unwrap_err().code, "forbidden");
}

/// Numbers as good as random, the same every time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Whatever people do and whenever the site goes down, a letter is about what its reader sees, comes
/// once, and none is missing.
#[test]
fn no_letter_is_lost_doubled_or_about_what_nobody_sees() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let mut bank = bank_with(Tell { letters_an_hour_max: 10_000, ..Tell::default() });
        let (mut heard, mut took) = (BTreeSet::new(), BTreeSet::new());
        let mut started = 0_u64;
        for _ in 0..120 {
            // One of the latest.
            let id = InstanceId(u128::from((started - dice.throw(6).min(started)).max(1)));
            let agent = ["ann", "ben", "dan"][dice.throw(3) as usize];
            let step = ["capture", "verdict"][dice.throw(2) as usize];
            match dice.throw(12) {
                0..=2 => {
                    started += 1;
                    bank.start(u128::from(started));
                }
                3 => {
                    if bank.ask(claim(agent, id, step)).is_ok() {
                        took.insert((agent.to_owned(), activity(id, step).to_string()));
                    }
                }
                4 => {
                    let answer = (step == "verdict").then(|| "reject".to_owned());
                    let done = Complete { answer, ..complete(agent, id, step) };
                    drop(bank.ask(Request::Complete(done)));
                }
                5 => {
                    let jobs = bank.jobs("credit-score", 1);
                    jobs.iter().for_each(|job| drop(bank.report(job, json!({ "risk": 3 }))));
                }
                6 => drop(bank.ask(Request::Suspend { instance: id, reason: None })),
                7 => drop(bank.ask(Request::Resume { instance: id, reason: None })),
                8 => {
                    drop(bank.ask(Request::Release {
                        agent: agent.into(),
                        activity: activity(id, step),
                    }))
                }
                // The letter that was on its way is not told.
                9 => {
                    drop(next(&mut bank));
                    bank.restart();
                }
                10 => bank.pass(Duration::from_secs(3_600 * 12)),
                _ => {
                    if let Some(letter) = next(&mut bank) {
                        hear(&mut bank, &mut heard, letter);
                    }
                }
            }
        }
        while let Some(letter) = next(&mut bank) {
            hear(&mut bank, &mut heard, letter);
        }
        let absent = bank.now >= "2026-02-01T00:00:00Z".parse().unwrap();
        for agent in ["ann", "ben", "dan"].into_iter().filter(|agent| *agent != "ann" || !absent) {
            for item in bank.activities(agent) {
                let item = (agent.to_owned(), item);
                assert!(heard.contains(&item) || took.contains(&item), "seed {seed}: {item:?}");
            }
        }
    }
}

/// Whoever gets a letter sees what it is about, and has not heard of it.
fn hear(bank: &mut Harness, heard: &mut BTreeSet<(String, String)>, letter: Letter) {
    let agent = letter.notice.agent.to_string();
    let Content::Item { about, .. } = &letter.content else { panic!("{letter:?}") };
    let activity = about.activity.to_string();
    assert!(bank.activities(&agent).contains(&activity), "{agent} does not see {activity}");
    assert!(heard.insert((agent, activity)), "{letter:?} comes twice");
    as_mailer(bank, Mailing::Told(letter.notice));
}
