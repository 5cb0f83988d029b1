//! The record of sent letters, folded from mail events.
//!
//! Invariant: letters about an item or a case are remembered as long as the case is: an item that is
//! withdrawn with a suspension and comes back is no news. The same events determine how many letters a
//! person got lately.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use legwork_model::event::{MailEvent, Owed};
use legwork_model::id::{Activity, AgentId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::overdue::{self, Overdue};
use crate::promise::{self, Promise};
use crate::rules::{self, Due, Kind, Standing, Told};
use crate::settings::Tell;

const HOUR: Duration = Duration::from_secs(3_600);
/// A letter that could not be sent for so long is dropped.
const OWED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The subject of a letter: an item, or a case, represented by its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub instance: InstanceId,
    pub activity: Activity,
}

/// The current state of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matter {
    Item(Standing),
    /// A promise that never changed needs no letter.
    Case {
        promise: Option<Promise>,
        overdue: Overdue,
    },
}

#[derive(Debug, Default)]
pub struct Book {
    told: BTreeMap<Subject, Told>,
    /// When each person got letters in the last hour, oldest first.
    lately: BTreeMap<AgentId, VecDeque<Timestamp>>,
    /// Unsent letters about ended cases.
    owed: BTreeMap<(InstanceId, AgentId), Owed>,
}

impl Subject {
    pub fn of_case(instance: InstanceId) -> Self {
        Self { instance, activity: Activity::once(Schema::START) }
    }

    pub fn is_case(&self) -> bool {
        self.activity.node == Schema::START
    }

    /// The event of a sent letter.
    pub fn told(&self, agent: AgentId, kind: Kind, at: Timestamp) -> MailEvent {
        let Self { instance, activity } = self.clone();
        MailEvent::Told { instance, activity, agent, kind: kind.number(), at }
    }
}

impl Book {
    /// Folds in one event. Letters of one moment to one person are one: a digest.
    pub fn note(&mut self, event: &MailEvent) {
        let (instance, activity, agent, kind, at) = match event {
            MailEvent::Told { instance, activity, agent, kind, at } => {
                (instance, activity, agent, kind, at)
            }
            MailEvent::Owed(owed) => {
                let key = (owed.instance, owed.agent.clone());
                return drop(self.owed.insert(key, (**owed).clone()));
            }
        };
        // A letter of a kind that only a later version knows is not sent by this one.
        let Some(kind) = Kind::numbered(*kind) else { return };
        let subject = Subject { instance: *instance, activity: activity.clone() };
        if subject.is_case() && kind == Kind::Late {
            self.owed.remove(&(*instance, agent.clone()));
        }
        let told = self.told.entry(subject).or_default();
        told.insert((agent.clone(), kind), *at);
        kind.takes_back().and_then(|other| told.remove(&(agent.clone(), other)));
        let lately = self.lately.entry(agent.clone()).or_default();
        if lately.back().is_none_or(|last| last < at) {
            lately.push_back(*at);
        }
    }

    /// The letters that are due now.
    pub fn due(&self, tell: &Tell, subject: &Subject, matter: &Matter, now: Timestamp) -> Due {
        static NOTHING: Told = Told::new();
        let told = self.told.get(subject).unwrap_or(&NOTHING);
        match matter {
            Matter::Item(item) => rules::due(tell, item, told, now),
            Matter::Case { promise, overdue } => {
                let mut due = overdue::due(tell, overdue, told, now);
                // Nobody is told that a passed deadline may be late.
                if let Some(promise) = promise.as_ref().filter(|_| !overdue.is_late) {
                    let more = promise::due(tell, promise, told, now);
                    due.letters.extend(more.letters);
                    due.next = due.next.into_iter().chain(more.next).min();
                }
                due
            }
        }
    }

    /// Forgets items of ended cases, and old letters.
    pub fn prune(&mut self, is_there: impl Fn(&Subject) -> bool, now: Timestamp) {
        self.told.retain(|subject, _| is_there(subject));
        self.owed.retain(|_, owed| now.since(owed.deadline) < OWED_FOR);
        self.lately.retain(|_, lately| lately.back().is_some_and(|last| now.since(*last) < HOUR));
    }

    /// Unsent letters about ended cases.
    pub fn owed(&self) -> impl Iterator<Item = &Owed> {
        self.owed.values()
    }

    /// When a person may get the next letter, if not now.
    pub fn held_until(
        &mut self,
        agent: &AgentId,
        tell: &Tell,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let lately = self.lately.get_mut(agent)?;
        while lately.front().is_some_and(|first| now.since(*first) >= HOUR) {
            lately.pop_front();
        }
        let over = lately.len().checked_sub(tell.letters_an_hour_max)?;
        lately.get(over).map(|first| *first + HOUR)
    }

    /// The number of letters that a person may get now.
    pub fn room(&self, agent: &AgentId, tell: &Tell, now: Timestamp) -> usize {
        let is_late = |at: &&Timestamp| now.since(**at) < HOUR;
        let lately =
            self.lately.get(agent).map_or(0, |lately| lately.iter().filter(is_late).count());
        tell.letters_an_hour_max.saturating_sub(lately)
    }

    /// The book as events.
    pub fn events(&self) -> Vec<MailEvent> {
        let all = self.told.iter().flat_map(|(subject, told)| {
            told.iter().map(move |((agent, kind), at)| (at, subject, agent, *kind))
        });
        let mut all: Vec<_> = all.collect();
        // In the order in which they were sent: the last hour is folded from it.
        all.sort_by_key(|(at, ..)| **at);
        let told = all.into_iter().map(|(at, subject, agent, kind)| {
            let agent = agent.clone();
            subject.told(agent, kind, *at)
        });
        // Earlier letters do not matter to unsent ones.
        let owed = self.owed.values().map(|owed| MailEvent::Owed(Box::new(owed.clone())));
        told.chain(owed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(item: u128, agent: &str, at: i64) -> MailEvent {
        MailEvent::Told {
            instance: InstanceId(item),
            activity: Activity::once(legwork_model::id::NodeId(1)),
            agent: AgentId::from(agent),
            kind: 0,
            at: Timestamp(at),
        }
    }

    #[test]
    fn a_person_gets_so_many_letters_an_hour_and_a_digest_is_one() {
        let tell = Tell { letters_an_hour_max: 2, ..Tell::default() };
        let (mut book, ann) = (Book::default(), AgentId::from("ann"));
        let mut held = |events: &[MailEvent], now: i64| {
            events.iter().for_each(|event| book.note(event));
            book.held_until(&ann, &tell, Timestamp(now)).map(|until| until.0)
        };
        assert_eq!(held(&[], 0), None);
        assert_eq!(held(&[told(1, "ann", 10), told(2, "ben", 11)], 20), None);
        assert_eq!(held(&[told(3, "ann", 30), told(4, "ann", 30)], 40), Some(3_600_010));
        assert_eq!(held(&[], 3_600_010), None);
        assert_eq!(held(&[told(5, "ann", 3_600_020)], 3_600_020), Some(3_600_030));
        // A letter above the limit does not make the pause shorter.
        assert_eq!(held(&[told(6, "ann", 3_600_021)], 3_600_025), Some(7_200_020));
    }

    #[test]
    fn a_book_is_made_again_from_its_events() {
        let mut book = Book::default();
        for event in [told(2, "ann", 5), told(1, "ben", 6), told(1, "ann", 7)] {
            book.note(&event);
        }
        let mut again = Book::default();
        book.events().iter().for_each(|event| again.note(event));
        assert_eq!((&again.told, &again.lately), (&book.told, &book.lately));
        book.prune(|subject| subject.instance == InstanceId(2), Timestamp(8));
        assert_eq!(book.events(), [told(2, "ann", 5)]);
    }
}
