//! Letters about the deadline of a case: it has passed, or it is in danger.
//!
//! Invariant: each recipient is told of a deadline once. An extended deadline is a new one.

use std::sync::Arc;

use legwork_model::event::Then;
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::time::Timestamp;

use crate::letter::{Letter, line, message_id, short};
use crate::rules::{Due, Kind, Told};
use crate::settings::Tell;

/// The deadline of a case and the recipients of letters about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// The last deadline that passed.
    pub passed: Option<Timestamp>,
    /// The recipients of that: the starter of the case, and the holders of open steps; all with
    /// addresses.
    pub whom: Vec<AgentId>,
    /// It passed without an extension: no danger is reported any more.
    pub is_late: bool,
    /// From when on it is in danger, and the recipient of that.
    pub danger: Option<(Timestamp, AgentId)>,
}

/// The contents of a letter about a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passing {
    pub instance: InstanceId,
    /// `Late` or `Danger`.
    pub kind: Kind,
    pub process: Arc<str>,
    /// The titles of the open steps: all for the starter of the case, their own for others.
    pub steps: Vec<Arc<str>>,
    /// The deadline that passed, or will pass.
    pub deadline: Timestamp,
    /// The reaction of the process.
    pub then: Then,
    /// The recipient started the case.
    pub is_own: bool,
}

pub(crate) fn due(tell: &Tell, overdue: &Overdue, told: &Told, now: Timestamp) -> Due {
    let mut due = Due::default();
    if !tell.promise {
        return due;
    }
    let is_told = |kind: Kind, agent: &AgentId| {
        // Earlier letters were about the deadline before.
        let is_this = |at: &Timestamp| overdue.passed.is_none_or(|passed| *at > passed);
        told.get(&(agent.clone(), kind)).is_some_and(is_this)
    };
    for agent in overdue.whom.iter().filter(|agent| !is_told(Kind::Late, agent)) {
        due.add(Kind::Late, agent, overdue.passed, now);
    }
    if let Some((from, agent)) = overdue.danger.as_ref().filter(|_| !overdue.is_late)
        && !is_told(Kind::Danger, agent)
    {
        due.add(Kind::Danger, agent, Some(*from), now);
    }
    due
}

impl Letter<'_> {
    /// A letter about the deadline of a case.
    pub fn deadline(&self, passing: &Passing) -> String {
        let Passing { instance, kind, process, steps, deadline, then, is_own } = passing;
        let (prefix, first) = opening(*kind, *is_own);
        let subject = format!("{prefix}{}", short(process));
        let at = self.zone.minute_named(*deadline);
        let mut text = format!("{first}\n\nProcess:  {}\n", line(process));
        for step in steps {
            text.push_str(&format!("Step:     {}\n", line(step)));
        }
        text.push_str(&format!("Case:     {instance}\nDeadline: {at}\n"));
        let next = format!(
            "\nTo see its steps, and how far they are:\n\n  legwork deadline show {instance}\n"
        );
        match then {
            Then::Tell => text.push_str(&next),
            Then::Extend { to } => {
                let to = self.zone.minute_named(*to);
                text.push_str(&format!("Extended: {to}\n{next}"));
            }
            Then::Abort => text.push_str(&format!(
                "\nIt was aborted, as its process says. To see what was done:\n\n  legwork history \
                 {instance}\n"
            )),
        }
        let id = message_id(&format!("{kind} {} {instance} {deadline}", self.agent), self.from);
        self.message(&id, &subject, &text)
    }
}

/// The subject and the first sentence of a letter.
pub(crate) fn opening(kind: Kind, is_own: bool) -> (&'static str, &'static str) {
    if kind == Kind::Danger {
        (
            "In danger: ",
            "A case that you started may be late: what is left to do takes longer than there is time.",
        )
    } else if is_own {
        ("Late: ", "The deadline of a case that you started has passed.")
    } else {
        ("Late: ", "The deadline of a case has passed in which you have something to do.")
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::zone::Zone;

    use super::*;
    use crate::mime;
    use crate::{Book, Matter, Subject};

    fn agent(name: &str) -> AgentId {
        AgentId::from(name)
    }

    #[test]
    fn everybody_is_told_of_each_deadline_once_also_after_a_restart() {
        let (mut book, mut all) = (Book::default(), Vec::new());
        let subject = Subject::of_case(InstanceId(1));
        for second in 0..40 {
            let passed = [10, 30].into_iter().rfind(|at| *at < second);
            let overdue = Overdue {
                passed: passed.map(|at| Timestamp(at * 1_000)),
                whom: passed.map_or(Vec::new(), |_| vec![agent("ann"), agent("eva")]),
                is_late: passed == Some(30),
                danger: Some((Timestamp(if second <= 10 { 5_000 } else { 25_000 }), agent("eva"))),
            };
            let matter = Matter::Case { promise: None, overdue };
            let now = Timestamp(second * 1_000);
            for (kind, whom) in book.due(&Tell::default(), &subject, &matter, now).letters {
                all.push(format!("{second} {kind} {whom}"));
                book.note(&subject.told(whom, kind, now));
            }
            let events = book.events();
            book = Book::default();
            events.iter().for_each(|event| book.note(event));
        }
        assert_eq!(
            all.join(", "),
            "5 danger eva, 11 late ann, 11 late eva, 25 danger eva, 31 late ann, 31 late eva"
        );
    }

    fn shown(kind: Kind, then: Then, is_own: bool) -> String {
        let passing = Passing {
            instance: "inst_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
            kind,
            process: "Quotation".into(),
            steps: vec!["Design it".into()],
            deadline: Timestamp(1_795_000_000_000),
            then,
            is_own,
        };
        let agent = &agent("ann");
        let (from, to) = ("legwork@example.com", "ann@example.com");
        let zone = &Zone::named("Europe/Berlin").unwrap();
        let message =
            Letter { from, to, agent, at: Timestamp(0), link: None, zone }.deadline(&passing);
        assert!(message.lines().all(|line| line.len() <= 78 && line.is_ascii()), "{message}");
        let subject = message.lines().find(|line| line.starts_with("Subject:")).unwrap();
        let text = mime::read(message.as_bytes()).text.unwrap().replace("\r\n", "\n");
        format!("{subject}\n\n{text}")
    }

    #[test]
    fn the_guide_shows_a_deadline_that_has_passed_as_it_is() {
        let guide = include_str!("../../../docs/guide/mail.md");
        let shown = shown(Kind::Late, Then::Extend { to: Timestamp(1_795_172_800_000) }, true);
        assert!(guide.contains(&format!("```text\n{shown}```\n")), "{shown}");
    }

    #[test]
    fn a_letter_says_what_has_happened_and_where_to_look() {
        insta::assert_snapshot!(shown(Kind::Danger, Then::Tell, true), @"
            Subject: In danger: Quotation

            A case that you started may be late: what is left to do takes longer than there is time.

            Process:  Quotation
            Step:     Design it
            Case:     inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            Deadline: 2026-11-18 12:06 (Europe/Berlin)

            To see its steps, and how far they are:

              legwork deadline show inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            ");
        insta::assert_snapshot!(shown(Kind::Late, Then::Abort, false), @"
            Subject: Late: Quotation

            The deadline of a case has passed in which you have something to do.

            Process:  Quotation
            Step:     Design it
            Case:     inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            Deadline: 2026-11-18 12:06 (Europe/Berlin)

            It was aborted, as its process says. To see what was done:

              legwork history inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            ");
    }
}
