//! Letters about the promise of a case: its deadline is no longer promised, or it is again.
//!
//! Invariant: the last recorded letter to the starter of a case is true. A promise that is given
//! again before the starter was told of its loss needs no letter.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{AgentId, InstanceId};
use legwork_model::time::Timestamp;

use crate::letter::{Letter, line, message_id, opening, short};
use crate::rules::{Due, Kind, Told};
use crate::settings::Tell;

/// How long a promise must be stable before a letter is sent: a promise that is renewed at once is no
/// news.
const SETTLED: Duration = Duration::from_secs(5);

/// The promise of a case and the recipient of letters about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The starter of the case, who has an address.
    pub owner: AgentId,
    pub is_promised: bool,
    pub since: Timestamp,
}

/// The case of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub instance: InstanceId,
    pub kind: Kind,
    pub process: Arc<str>,
    pub step: Arc<str>,
    /// The deadline that was promised, or is again.
    pub deadline: Timestamp,
    pub since: Timestamp,
    /// A sentence without its full stop, and without data of the case.
    pub why: String,
}

pub(crate) fn due(tell: &Tell, promise: &Promise, told: &Told, now: Timestamp) -> Due {
    let mut due = Due::default();
    let Promise { owner, is_promised, since } = promise;
    let was_told = told.contains_key(&(owner.clone(), Kind::Revocation));
    let kind = match (is_promised, was_told) {
        (false, false) => Kind::Revocation,
        (true, true) => Kind::Promise,
        // The last letter is still true.
        (false, true) | (true, false) => return due,
    };
    due.add(kind, owner, tell.promise.then_some(*since + SETTLED), now);
    due
}

impl Letter<'_> {
    /// A letter about the promise of a case.
    pub fn promise(&self, turn: &Turn) -> String {
        let Turn { instance, kind, process, step, deadline, since, why } = turn;
        let (prefix, first) = opening(*kind);
        let subject = format!("{prefix}{}", short(process));
        let (at, turned_at) = (self.zone.minute_named(*deadline), self.zone.minute_named(*since));
        let text = format!(
            "{first}\n\nProcess:  {}\nStep:     {}\nCase:     {instance}\nDeadline: {at}\nSince:    \
             {turned_at}\nWhy:      {}\n\nTo see its steps, and how far they are:\n\n  legwork deadline show \
             {instance}\n",
            line(process),
            line(step),
            line(why),
        );
        // A promise may be revoked more than once.
        let id = message_id(&format!("{kind} {} {instance} {since}", self.agent), self.from);
        self.message(&id, &subject, &text)
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::zone::Zone;

    use super::*;
    use crate::mime;

    /// All letters about a case that is promised (`+`) or not (`-`) from these seconds on, as `9
    /// promise`. Letters are sent every second, but not while the sender is `away`.
    fn letters(tell: &Tell, turns: &[(i64, char)], away: std::ops::Range<i64>) -> String {
        let (mut book, mut all) = (crate::Book::default(), Vec::new());
        let subject = crate::Subject::of_case(InstanceId(1));
        for second in (0..100).filter(|second| !away.contains(second)) {
            let Some((since, is)) = turns.iter().rfind(|(since, _)| *since <= second) else {
                continue;
            };
            let (since, now) = (Timestamp(since * 1_000), Timestamp(second * 1_000));
            let promise = Promise { owner: "ann".into(), is_promised: *is == '+', since };
            let overdue = crate::Overdue::default();
            let matter = crate::Matter::Case { promise: Some(promise), overdue };
            let due = book.due(tell, &subject, &matter, now);
            assert!(due.next.is_none_or(|next| next > now));
            for (kind, agent) in due.letters {
                all.push(format!("{second} {kind}"));
                book.note(&subject.told(agent, kind, now));
            }
            // Recorded letters are known after a restart.
            let events = book.events();
            book = crate::Book::default();
            events.iter().for_each(|event| book.note(event));
        }
        all.join(", ")
    }

    #[test]
    fn the_last_letter_is_true_however_often_a_promise_turns() {
        let told = |turns: &[(i64, char)]| letters(&Tell::default(), turns, 0..0);
        assert_eq!(told(&[(0, '+')]), "");
        assert_eq!(told(&[(10, '-')]), "15 revocation");
        assert_eq!(told(&[(10, '-'), (40, '+')]), "15 revocation, 45 promise");
        assert_eq!(
            told(&[(10, '-'), (30, '+'), (50, '-'), (70, '+')]),
            "15 revocation, 35 promise, 55 revocation, 75 promise"
        );
    }

    #[test]
    fn what_is_over_before_anybody_was_told_is_not_told() {
        let told = |turns: &[(i64, char)]| letters(&Tell::default(), turns, 0..0);
        assert_eq!(told(&[(10, '-'), (12, '+')]), "");
        assert_eq!(told(&[(10, '-'), (30, '+'), (32, '-')]), "15 revocation");
        // Nor if it could not be sent meanwhile.
        let told = |turns: &[(i64, char)]| letters(&Tell::default(), turns, 12..60);
        assert_eq!(told(&[(10, '-'), (30, '+')]), "");
        assert_eq!(told(&[(1, '-'), (30, '+'), (40, '-')]), "6 revocation");
        assert_eq!(told(&[(1, '-'), (30, '+')]), "6 revocation, 60 promise");
    }

    #[test]
    fn a_person_without_promise_letters_gets_none() {
        let tell = Tell { promise: false, ..Tell::default() };
        assert_eq!(letters(&tell, &[(10, '-'), (40, '+')], 0..0), "");
    }

    fn turn(kind: Kind, why: &str) -> Turn {
        Turn {
            instance: "inst_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
            kind,
            process: "Quotation".into(),
            step: "Design it".into(),
            deadline: Timestamp(1_795_000_000_000),
            since: Timestamp(1_794_817_421_000),
            why: why.to_owned(),
        }
    }

    fn shown(turn: &Turn) -> String {
        let agent = &AgentId::from("ann");
        let (from, to) = ("legwork@example.com", "ann@example.com");
        let link = Some("https://legwork.example.com/work/{activity}");
        let zone = &Zone::named("Europe/Berlin").unwrap();
        let message = Letter { from, to, agent, at: Timestamp(0), link, zone }.promise(turn);
        assert!(message.lines().all(|line| line.len() <= 78 && line.is_ascii()), "{message}");
        let subject = message.lines().find(|line| line.starts_with("Subject:")).unwrap();
        let text = mime::read(message.as_bytes()).text.unwrap().replace("\r\n", "\n");
        format!("{subject}\n\n{text}")
    }

    #[test]
    fn the_guide_shows_a_revocation_as_it_is() {
        let guide = include_str!("../../../docs/guide/mail.md");
        let shown = shown(&turn(Kind::Revocation, "could not be done in time as planned"));
        assert!(guide.contains(&format!("```text\n{shown}```\n")), "{shown}");
    }

    #[test]
    fn a_promise_that_is_back_is_told() {
        insta::assert_snapshot!(shown(&turn(Kind::Promise, "it can be done in time again")), @"
            Subject: Promised again: Quotation

            A case that you started is promised again.

            Process:  Quotation
            Step:     Design it
            Case:     inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            Deadline: 2026-11-18 12:06 (Europe/Berlin)
            Since:    2026-11-16 09:23 (Europe/Berlin)
            Why:      it can be done in time again

            To see its steps, and how far they are:

              legwork deadline show inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            ");
    }

    #[test]
    fn each_turn_is_a_letter_of_its_own_and_the_same_one_when_it_is_sent_again() {
        let id = |turn: &Turn| {
            let agent = &AgentId::from("ann");
            let (from, to, zone) = ("a@b", "c@d", &Zone::UTC);
            let letter = Letter { from, to, agent, at: turn.since, link: None, zone };
            let message = letter.promise(turn);
            message.lines().find(|line| line.starts_with("Message-ID:")).unwrap().to_owned()
        };
        let first = turn(Kind::Revocation, "x");
        assert_eq!(id(&first), id(&first.clone()));
        assert_ne!(id(&first), id(&Turn { since: Timestamp(5), ..first.clone() }));
        assert_ne!(id(&first), id(&turn(Kind::Promise, "x")));
    }

    #[test]
    fn a_reason_cannot_begin_another_line() {
        let shown = shown(&turn(Kind::Revocation, "x\nWhy: y"));
        assert!(shown.contains("Why:      x Why: y\n"), "{shown}");
    }
}
