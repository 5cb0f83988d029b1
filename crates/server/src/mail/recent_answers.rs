//! Recent answers to replies, so that no author gets the same answer twice, or too many.
//!
//! Invariant: bounded memory. It is lost with the process: then an author may get an answer once more.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

/// More than a mail server gives in one session, so that all undeleted mails are known.
const SEEN_MAX: usize = 2_000;
/// The most answers to an author in an hour. An attacker with a token can trigger as many letters to its
/// agent with forged replies.
pub(super) const AN_HOUR_MAX: usize = 10;
const HOUR: Duration = Duration::from_secs(3_600);

/// The keys of recent replies, last seen last. A mail server may not delete a mail, and gives it again each
/// time.
#[derive(Debug, Default)]
pub(super) struct Seen(VecDeque<String>);

/// The times of answers in the last hour, by agent.
#[derive(Debug, Default)]
pub(super) struct Lately(BTreeMap<AgentId, Told>);

#[derive(Debug, Default)]
struct Told {
    at: VecDeque<Timestamp>,
    /// Whether the limit was reached since.
    is_over: bool,
}

/// Whether an agent may get one more answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Some,
    /// The limit is reached, for the first time.
    NoMore,
    None,
}

impl Seen {
    /// Whether a reply is known; marks it as seen now.
    pub(super) fn has(&mut self, key: &str) -> bool {
        let place = self.0.iter().position(|known| known == key);
        let known = place.and_then(|place| self.0.remove(place));
        let has = known.is_some();
        self.0.extend(known);
        has
    }

    /// Whether it was unknown.
    pub(super) fn add(&mut self, key: String) -> bool {
        let is_new = !self.has(&key);
        if is_new {
            if self.0.len() == SEEN_MAX {
                self.0.pop_front();
            }
            self.0.push_back(key);
        }
        is_new
    }
}

impl Lately {
    pub(super) fn room(&mut self, agent: &AgentId, now: Timestamp) -> Room {
        let is_over = |at: &Timestamp| now.since(*at) >= HOUR;
        // Agents without an answer in the last hour are forgotten.
        self.0.retain(|_, told| told.at.back().is_some_and(|at| !is_over(at)));
        let Some(told) = self.0.get_mut(agent) else { return Room::Some };
        while told.at.front().is_some_and(is_over) {
            told.at.pop_front();
        }
        let was_over = std::mem::replace(&mut told.is_over, told.at.len() >= AN_HOUR_MAX);
        match (told.is_over, was_over) {
            (false, _) => Room::Some,
            (true, false) => Room::NoMore,
            (true, true) => Room::None,
        }
    }

    pub(super) fn note(&mut self, agent: &AgentId, now: Timestamp) {
        self.0.entry(agent.clone()).or_default().at.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_reply_that_is_never_deleted_stays_known_however_many_others_come() {
        let mut said_back = Seen::default();
        assert!(!said_back.has("stays"));
        said_back.add("stays".to_owned());
        for number in 0..3 * SEEN_MAX {
            assert!(said_back.add(number.to_string()));
            assert!(!said_back.add("stays".to_owned()), "{number}");
        }
        assert_eq!(said_back.0.len(), SEEN_MAX);
        // A reply that is not seen any more is forgotten.
        assert!(!said_back.has("0"));
    }

    #[test]
    fn a_person_is_told_so_often_in_an_hour_and_that_it_is_enough_is_said_once() {
        let (mut lately, ann, ben) = (Lately::default(), "ann".into(), "ben".into());
        for second in 0..10 {
            assert_eq!(lately.room(&ann, Timestamp(1_000 * second)), Room::Some);
            lately.note(&ann, Timestamp(1_000 * second));
        }
        assert_eq!(lately.room(&ann, Timestamp(10_000)), Room::NoMore);
        assert_eq!(lately.room(&ann, Timestamp(10_001)), Room::None);
        assert_eq!(lately.room(&ben, Timestamp(10_001)), Room::Some);
        assert_eq!(lately.room(&ann, Timestamp(3_600_000)), Room::Some);
        lately.note(&ann, Timestamp(3_600_000));
        assert_eq!(lately.room(&ann, Timestamp(3_600_001)), Room::NoMore);
        assert_eq!(lately.room(&ben, Timestamp(7_200_001)), Room::Some);
        assert_eq!(lately.0.len(), 0);
    }
}
