//! Servers that follow the items of people at this server.
//!
//! Invariant: a follower is sent, in order, every change for the followed person, substitutes and absences included,
//! until the follow expires. Follows are volatile: a follower that misses an answer or receives none asks again from
//! its own cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::{AgentId, ServerId};
use legwork_model::time::Timestamp;
use legwork_org::{Cursor, Delta};

use crate::Site;
use crate::message::{self, Follow, Item, Items, Mark, Message};
use crate::output::Output;
use crate::work::Work;
use crate::work::items::{info, public_name};

/// The most items, and the most removals, in one message.
const PAGE: usize = 200;
/// The longest that a follower is sent changes without renewing its follow.
const FOLLOW_MAX: Duration = Duration::from_secs(600);
/// Beyond this number new follows are refused; the asking server shows this one as not responding.
const FOLLOWERS_MAX: usize = 100_000;
/// Question numbers of one incarnation of a server lie closer together than this.
const QUESTION_WINDOW: u64 = 1 << 32;

#[derive(Debug, Default)]
pub(crate) struct Followers {
    follows: BTreeMap<(AgentId, ServerId), Follower>,
    ends: BTreeSet<(Timestamp, AgentId, ServerId)>,
    /// The agents that followed agents stand in for.
    stands_in_for: BTreeMap<AgentId, Vec<AgentId>>,
    /// For each agent: the followed agents whose lists show its items.
    seen_by: BTreeMap<AgentId, BTreeSet<AgentId>>,
    /// Followers to answer at the next `Settle`.
    unanswered: BTreeSet<(AgentId, ServerId)>,
}

#[derive(Debug)]
struct Follower {
    question: u64,
    /// The number of the next answer.
    number: u32,
    /// The cursor of the last answer.
    sent_cursor: Option<Cursor>,
    /// The cursor read so far; no change was found between the last answer and here.
    read: Option<Cursor>,
    until: Timestamp,
    /// There are more items than were sent: the follower requests them when it is ready.
    has_more: bool,
}

impl Followers {
    pub(crate) fn is_empty(&self) -> bool {
        self.follows.is_empty()
    }

    /// The agents whose items followers see.
    pub(crate) fn watched(&self) -> impl ExactSizeIterator<Item = &AgentId> {
        self.seen_by.keys()
    }

    /// The follows affected by changes for these agents.
    fn affected<'a>(
        &self,
        agents: impl IntoIterator<Item = &'a AgentId>,
    ) -> BTreeSet<(AgentId, ServerId)> {
        let followed = agents.into_iter().filter_map(|agent| self.seen_by.get(agent)).flatten();
        let follows = followed.flat_map(|agent| self.follows_of(agent));
        follows.map(|(agent, server)| (agent.clone(), *server)).collect()
    }

    fn follows_of(&self, agent: &AgentId) -> impl Iterator<Item = &(AgentId, ServerId)> {
        let all = (agent.clone(), ServerId(0))..=(agent.clone(), ServerId(u16::MAX));
        self.follows.range(all).map(|(key, _)| key)
    }

    fn begin(&mut self, from: ServerId, follow: Follow, now: Timestamp) {
        let Follow { agent, question, since, seconds } = follow;
        let key = (agent.clone(), from);
        let before = self.follows.get(&key);
        // Late, or a duplicate: question numbers increase.
        let is_late = |before: &Follower| {
            before.question.checked_sub(question).is_some_and(|by| by < QUESTION_WINDOW)
        };
        if before.is_some_and(is_late) {
            return;
        }
        if before.is_none() && self.follows.len() >= FOLLOWERS_MAX {
            return;
        }
        self.end(&key);
        if seconds == 0 {
            return;
        }
        let until = now.plus(Duration::from_secs(seconds.into()).min(FOLLOW_MAX));
        self.ends.insert((until, agent.clone(), from));
        self.seen_by.entry(agent.clone()).or_default().insert(agent);
        let sent_cursor = since.map(Cursor::from);
        let follower = Follower {
            question,
            number: 0,
            sent_cursor,
            read: sent_cursor,
            until,
            has_more: false,
        };
        self.follows.insert(key.clone(), follower);
        self.unanswered.insert(key);
    }

    fn end(&mut self, key: &(AgentId, ServerId)) {
        let Some(follower) = self.follows.remove(key) else { return };
        self.unanswered.remove(key);
        self.ends.remove(&(follower.until, key.0.clone(), key.1));
        if self.follows_of(&key.0).next().is_none() {
            let stands_in_for = self.stands_in_for.remove(&key.0).unwrap_or_default();
            for seen in stands_in_for.iter().chain([&key.0]) {
                self.remove_reader(seen, &key.0);
            }
        }
    }

    fn remove_reader(&mut self, agent: &AgentId, reader: &AgentId) {
        if let Some(all) = self.seen_by.get_mut(agent) {
            all.remove(reader);
            if all.is_empty() {
                self.seen_by.remove(agent);
            }
        }
    }

    /// Sets the agents a followed agent stands in for now.
    fn set_stands_in_for(&mut self, agent: &AgentId, stands_in_for: Vec<AgentId>) {
        let before = self.stands_in_for.get(agent).cloned().unwrap_or_default();
        if before == stands_in_for {
            return;
        }
        for seen in before.iter().filter(|seen| !stands_in_for.contains(seen)) {
            self.remove_reader(seen, agent);
        }
        for seen in &stands_in_for {
            self.seen_by.entry(seen.clone()).or_default().insert(agent.clone());
        }
        self.stands_in_for.insert(agent.clone(), stands_in_for);
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some((_, agent, server)) = self.ends.first().filter(|(end, ..)| *end <= now) {
            let key = (agent.clone(), *server);
            self.end(&key);
        }
    }
}

impl Work {
    /// Another server asks to follow the items of a person.
    pub(crate) fn on_follow(&mut self, from: ServerId, follow: Follow, now: Timestamp) {
        self.followers.begin(from, follow, now);
    }
}

impl Site {
    /// Answers new questions, and sends the other followers what has changed for these agents, or, if `None`, possibly
    /// for anyone.
    pub(crate) fn notify_followers(&mut self, concerned: Option<&[AgentId]>, now: Timestamp) {
        self.work.followers.expire(now);
        let unanswered = std::mem::take(&mut self.work.followers.unanswered);
        let changed = match concerned {
            Some(agents) => self.work.followers.affected(agents),
            None => self.work.followers.follows.keys().cloned().collect(),
        };
        for key in &unanswered {
            self.notify_follower(key, true, now);
        }
        for key in changed.difference(&unanswered) {
            self.notify_follower(key, false, now);
        }
    }

    fn notify_follower(&mut self, key: &(AgentId, ServerId), is_unanswered: bool, now: Timestamp) {
        let Some(follower) = self.work.followers.follows.get_mut(key) else { return };
        if follower.has_more && !is_unanswered {
            return;
        }
        let (agent, to) = key;
        let org = self.catalog.organisation();
        let Delta { cursor, reset, items, removed, more } =
            self.work.worklists.list(org, agent, now, follower.read, PAGE);
        let stands_in_for = org.may_stand_in_for(agent, now);
        follower.read = Some(cursor);
        follower.has_more = more;
        let is_news = reset || more || !items.is_empty() || !removed.is_empty();
        if is_unanswered || is_news {
            let items = Items {
                agent: agent.clone(),
                question: follower.question,
                number: follower.number,
                after: follower.sent_cursor.filter(|_| !reset).map(Mark::from),
                cursor: cursor.into(),
                more,
                items: items
                    .iter()
                    .map(|view| Item::from(info(view, &self.cases.instances)))
                    .collect(),
                removed: removed
                    .iter()
                    .map(|gone| public_name(&gone.schema, &gone.key).into())
                    .collect(),
            };
            follower.number += 1;
            follower.sent_cursor = Some(cursor);
            self.out.push(Output::Send {
                to: *to,
                message: Message::Worklist(message::Worklist::Items(Box::new(items))),
            });
        }
        self.work.followers.set_stands_in_for(agent, stands_in_for);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_agents_without_followers() {
        let mut followers = Followers::default();
        let ann = AgentId::from("ann");
        let follow =
            |question, seconds| Follow { agent: ann.clone(), question, since: None, seconds };
        for server in [1, 2] {
            followers.begin(ServerId(server), follow(1, 60), Timestamp(0));
        }
        followers.set_stands_in_for(&ann, vec![AgentId::from("ben")]);
        assert_eq!(followers.watched().count(), 2);
        followers.begin(ServerId(1), follow(2, 0), Timestamp(0));
        assert_eq!(followers.watched().count(), 2, "one is left");
        followers.set_stands_in_for(&ann, vec![AgentId::from("cleo")]);
        followers.expire(Timestamp(60_000_000));
        assert!(followers.is_empty());
        assert_eq!(followers.watched().count(), 0);
        assert!(followers.stands_in_for.is_empty());
    }
}
