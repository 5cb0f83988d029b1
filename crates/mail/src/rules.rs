//! Which letters about an item are due now, and when to look at it again.
//!
//! Invariant: one person gets one letter of a kind about an item; letters about the promise of a case
//! alternate. A person who is not on the list that the site gives is never told, whatever was sent
//! before.

use std::collections::BTreeMap;
use std::fmt;

use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

use crate::settings::{Reminder, Tell};

/// The reason of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An item was offered or given to the recipient.
    Assignment,
    /// The item is still open.
    Reminder,
    /// The item of another person is still open.
    Escalation,
    /// The deadline of a case is no longer promised.
    Revocation,
    /// It is promised again.
    Promise,
    /// The deadline of a case has passed.
    Late,
    /// The remaining work of a case takes longer than the remaining time.
    Danger,
}

/// The state of an item and the recipients of letters about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub offered_at: Timestamp,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// Its due date.
    pub due: Option<Timestamp>,
    /// The agents who see it and have an address; empty for a pool.
    pub seen_by: Vec<AgentId>,
    /// Whether it is new to them: none of them claimed it themselves.
    pub is_news: bool,
    /// The managers, or their substitutes, with addresses; empty for a pool.
    pub above: Vec<AgentId>,
}

/// Sent letters about an item: recipient, kind and time.
pub(crate) type Told = BTreeMap<(AgentId, Kind), Timestamp>;

/// The due letters about an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    pub letters: Vec<(Kind, AgentId)>,
    /// When more letters may be due, if the item does not change.
    pub next: Option<Timestamp>,
}

pub(crate) fn due(tell: &Tell, item: &Standing, told: &Told, now: Timestamp) -> Due {
    let mut due = Due::default();
    let when = |kind: Kind, agent: &AgentId| told.get(&(agent.clone(), kind)).copied();
    for agent in &item.seen_by {
        let heard = when(Kind::Assignment, agent);
        if tell.assignment && item.is_news && heard.is_none() {
            due.letters.push((Kind::Assignment, agent.clone()));
            // A reminder follows only an assignment letter.
            continue;
        }
        if let Some(reminder) = tell.reminder
            && when(Kind::Reminder, agent).is_none()
        {
            due.add(Kind::Reminder, agent, reminder_at(reminder, item, heard), now);
        }
    }
    if let Some(after) = tell.escalation {
        for agent in item.above.iter().filter(|agent| when(Kind::Escalation, agent).is_none()) {
            due.add(Kind::Escalation, agent, Some(item.offered_at + after), now);
        }
    }
    due
}

/// The first moment at which a person is reminded.
fn reminder_at(reminder: Reminder, item: &Standing, heard: Option<Timestamp>) -> Option<Timestamp> {
    let had = item.claimed_at.unwrap_or(item.offered_at).max(heard.unwrap_or(item.offered_at));
    let after = reminder.after.map(|after| had + after);
    let before = item.due.zip(reminder.before_due).map(|(due, before)| {
        let millis = i64::try_from(before.as_millis()).unwrap_or(i64::MAX);
        Timestamp(due.0.saturating_sub(millis))
    });
    after.into_iter().chain(before).min()
}

impl Due {
    /// Adds a letter at a moment, if there is one.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        agent: &AgentId,
        at: Option<Timestamp>,
        now: Timestamp,
    ) {
        match at {
            Some(at) if at <= now => self.letters.push((kind, agent.clone())),
            Some(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
            None => {}
        }
    }
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Assignment,
        Self::Reminder,
        Self::Escalation,
        Self::Revocation,
        Self::Promise,
        Self::Late,
        Self::Danger,
    ];

    /// Its number in the store and in tokens.
    pub fn number(self) -> u8 {
        match self {
            Self::Assignment => 0,
            Self::Reminder => 1,
            Self::Escalation => 2,
            Self::Revocation => 3,
            Self::Promise => 4,
            Self::Late => 5,
            Self::Danger => 6,
        }
    }

    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Whether its recipient may reply.
    pub fn is_answerable(self) -> bool {
        match self {
            Self::Assignment | Self::Reminder => true,
            Self::Escalation | Self::Revocation | Self::Promise | Self::Late | Self::Danger => {
                false
            }
        }
    }

    /// The kind that this one invalidates.
    pub(crate) fn takes_back(self) -> Option<Self> {
        match self {
            Self::Revocation => Some(Self::Promise),
            Self::Promise => Some(Self::Revocation),
            Self::Assignment | Self::Reminder | Self::Escalation | Self::Late | Self::Danger => {
                None
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Assignment => "assignment",
            Self::Reminder => "reminder",
            Self::Escalation => "escalation",
            Self::Revocation => "revocation",
            Self::Promise => "promise",
            Self::Late => "late",
            Self::Danger => "danger",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3600)
    }

    fn tell() -> Tell {
        let reminder = Some(Reminder { after: Some(hours(24)), before_due: Some(hours(4)) });
        Tell { reminder, escalation: Some(hours(48)), ..Tell::default() }
    }

    fn item(seen_by: &[&str]) -> Standing {
        Standing {
            seen_by: seen_by.iter().map(|name| AgentId::from(*name)).collect(),
            is_news: true,
            above: vec![AgentId::from("boss")],
            ..Standing::default()
        }
    }

    /// All letters of some days if the item does not change, computed whenever `next` says so.
    fn letters(tell: &Tell, item: &Standing) -> String {
        let (mut told, mut now, mut all) = (Told::new(), Timestamp(0), Vec::new());
        loop {
            let due = due(tell, item, &told, now);
            for (kind, agent) in &due.letters {
                all.push(format!("{}h {kind} {agent}", now.0 / HOUR));
                assert_eq!(told.insert((agent.clone(), *kind), now), None);
            }
            if due.letters.is_empty() {
                let Some(next) = due.next else { return all.join(", ") };
                assert!(next > now);
                now = next;
            }
        }
    }

    #[test]
    fn everybody_who_sees_it_is_told_then_reminded_then_the_manager_hears() {
        assert_eq!(
            letters(&tell(), &item(&["ann", "ben"])),
            "0h assignment ann, 0h assignment ben, 24h reminder ann, 24h reminder ben, \
             48h escalation boss"
        );
        assert_eq!(letters(&Tell::default(), &item(&["ann"])), "0h assignment ann");
        assert_eq!(letters(&tell(), &Standing::default()), "");
    }

    #[test]
    fn a_person_who_claimed_the_item_is_only_reminded() {
        let held = Standing {
            is_news: false,
            claimed_at: Some(Timestamp(10 * HOUR)),
            above: Vec::new(),
            ..item(&["ann"])
        };
        assert_eq!(letters(&tell(), &held), "34h reminder ann");
    }

    #[test]
    fn an_item_with_a_due_time_is_reminded_of_before_it() {
        let due = |hours: i64| Standing { due: Some(Timestamp(hours * HOUR)), ..item(&["ann"]) };
        assert!(letters(&tell(), &due(10)).contains("6h reminder ann"));
        assert!(letters(&tell(), &due(100)).contains("24h reminder ann"));
        // Due before a reminder was possible: told and reminded, not reminded alone.
        assert!(letters(&tell(), &due(2)).starts_with("0h assignment ann, 0h reminder ann"));
    }

    #[test]
    fn who_is_told_late_is_reminded_late() {
        let told = Told::from([((AgentId::from("ann"), Kind::Assignment), Timestamp(30 * HOUR))]);
        let due = due(&tell(), &item(&["ann"]), &told, Timestamp(31 * HOUR));
        assert_eq!((due.letters, due.next), (Vec::new(), Some(Timestamp(48 * HOUR))));
    }

    proptest! {
        #[test]
        fn nobody_hears_the_same_twice_or_without_seeing_it(
            looks in prop::collection::vec((0i64..96, any::<u8>(), any::<bool>()), 0..40),
        ) {
            let names = ["ann", "ben", "cora"];
            let (mut told, mut now) = (Told::new(), 0);
            for (later, seen, is_news) in looks {
                now += later;
                let seen: Vec<&str> =
                    (0..3).filter(|n| seen >> n & 1 == 1).map(|n| names[n]).collect();
                let item = Standing { is_news, ..item(&seen) };
                let due = due(&tell(), &item, &told, Timestamp(now * HOUR));
                prop_assert!(due.next.is_none_or(|next| next > Timestamp(now * HOUR)));
                for (kind, agent) in due.letters {
                    let group = if kind == Kind::Escalation { &item.above } else { &item.seen_by };
                    prop_assert!(group.contains(&agent));
                    prop_assert_eq!(told.insert((agent, kind), Timestamp(now * HOUR)), None);
                }
            }
        }
    }
}
