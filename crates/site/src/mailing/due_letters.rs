//! Finding the next letter: checks of items and of the deadlines of cases.
//!
//! Invariant: the recipient of a letter about an item sees the item on their list at that moment, or is a manager of
//! the people it was offered to. The substitute of an absent person gets the letter instead.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use legwork_mail::{About, DONE, Due, Kind, Matter, Standing, Subject, Tell, same_address};
use legwork_model::address::is_address;
use legwork_model::id::{AgentId, ElementId};
use legwork_model::schema::{Node, Schema};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use legwork_org::ItemKey;

use super::Mailings;
use crate::Site;
use crate::answer::{Answer, Content, Letter};
use crate::cases::Cases;
use crate::cases::view;
use crate::catalog::Catalog;
use crate::input::Notice;
use crate::planning::leg_of;
use crate::work::items as work;

/// How many items are checked for one letter before other inputs have a turn.
const CHECKS_MAX: usize = 500;
/// The most items in one digest; further ones come with the next.
const DIGEST_ITEMS_MAX: usize = 1_000;
/// When an item whose case is not in memory is checked again.
const LOADED: Duration = Duration::from_millis(200);

impl Mailings {
    /// An item whose next check is due.
    fn take_due(&mut self, now: Timestamp) -> Option<ItemKey> {
        let rechecks = &mut self.rechecks;
        if rechecks.first().is_some_and(|(at, _)| *at <= now) {
            rechecks.pop_first().map(|(_, key)| key)
        } else {
            None
        }
    }

    /// Until when no letter is sent to an agent.
    pub(super) fn held_until(
        &mut self,
        tell: &Tell,
        agent: &AgentId,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let put_off = self.put_off.get(agent).copied().filter(|until| *until > now);
        put_off.max(self.book.held_until(agent, tell, now))
    }
}

impl Cases {
    /// The values that letters about an item show, by the definition.
    fn shown(&self, schema: &Schema, key: &ItemKey) -> Vec<(Arc<str>, Value)> {
        let node = schema.node(key.activity.node);
        if node.mail.is_empty() {
            return Vec::new();
        }
        let Some((_, state)) = self.instances.state(key.instance) else { return Vec::new() };
        let inputs = state.inputs(schema, &key.activity);
        let value = |element: &ElementId| {
            let (_, value) = inputs.iter().find(|(known, _)| known == element)?;
            let known = schema.element(*element);
            let title = known.title.as_deref().map_or_else(|| known.name.clone(), Arc::from);
            Some((title, (*value).clone()))
        };
        node.mail.iter().filter_map(value).collect()
    }

    /// By when an item has to be done, if its instance has a deadline.
    fn due_of(&self, key: &ItemKey) -> Option<Timestamp> {
        let (schema, state) = self.instances.state(key.instance)?;
        leg_of(schema, state, &key.activity).map(|leg| leg.due)
    }
}

impl Catalog {
    /// The mail address of an agent.
    pub(super) fn address_of(&self, agent: &AgentId) -> Option<Arc<str>> {
        let agent = self.organisation().agent(agent)?;
        agent.mail.as_deref().filter(|mail| is_address(mail)).map(Arc::from)
    }

    /// The agent with an address; the first if there are several.
    pub(super) fn person_at(&self, address: &str) -> Option<(AgentId, Arc<str>)> {
        let mut agents = self.organisation().agents().iter();
        let has_it = |mail: &&str| same_address(mail, address) && is_address(mail);
        agents.find_map(|agent| {
            let mail = agent.mail.as_deref().filter(has_it)?;
            Some((agent.id.clone(), mail.into()))
        })
    }
}

impl Site {
    /// The letter that is due next.
    pub(super) fn next_letter(&mut self, tell: &Tell, now: Timestamp) -> Answer {
        self.note_holders();
        let moved = self.catalog.organisation().next_absence_change(self.mailings.checked_at);
        self.mailings.checked_at = now;
        if moved.is_some_and(|moment| moment <= now) {
            // An absence began or ended: other people see the items now.
            self.work.worklists.note_all();
        }
        if let Some(letter) = self.next_held(tell, now) {
            return Answer::Letter { letter: Some(Box::new(letter)), more: true };
        }
        if let Some(letter) = self.next_owed(tell, now) {
            return Answer::Letter { letter: Some(Box::new(letter)), more: true };
        }
        for _ in 0..CHECKS_MAX {
            let Some(key) = self.mailings.take_due(now).or_else(|| self.work.worklists.take_news())
            else {
                return Answer::Letter { letter: None, more: false };
            };
            if let Some(letter) = self.check_item(tell, &key, now) {
                return Answer::Letter { letter: Some(Box::new(letter)), more: true };
            }
        }
        Answer::Letter { letter: None, more: true }
    }

    /// The first letter about an item that may be sent now; others are held or scheduled.
    fn check_item(&mut self, tell: &Tell, key: &ItemKey, now: Timestamp) -> Option<Letter> {
        self.mailings.awaited.remove(&key.instance);
        let subject = subject(key);
        let matter = self.matter_of(tell, key, now)?;
        let due = self.mailings.book.due(tell, &subject, &matter, now);
        if subject.is_case() && due == Due::default() {
            self.mailings.cases.remove(&key.instance);
        }
        self.mailings.rechecks.extend(due.next.map(|next| (next, key.clone())));
        for (kind, agent) in due.letters {
            if let Some(until) = self.mailings.held_until(tell, &agent, now) {
                let held = self.mailings.held.entry(agent.clone()).or_default();
                if held.is_empty() {
                    self.mailings.held_until.insert((until, agent));
                }
                held.insert((key.clone(), kind));
                continue;
            }
            if self.lacks_shown(key, now) {
                return None;
            }
            // There may be another letter about it, or this one may not be delivered.
            self.mailings.rechecks.insert((now, key.clone()));
            return match &matter {
                Matter::Item(standing) => self.letter(tell, key, standing, &agent, kind, now),
                Matter::Case { .. } if matches!(kind, Kind::Late | Kind::Danger) => {
                    self.letter_of_deadline(key.instance, &agent, kind, now)
                }
                Matter::Case { .. } => self.letter_of_case(key.instance, &agent, kind),
            };
        }
        None
    }

    /// The next letter to an agent whose letters were held.
    fn next_held(&mut self, tell: &Tell, now: Timestamp) -> Option<Letter> {
        loop {
            let (until, agent) = self.mailings.held_until.pop_first()?;
            if until > now {
                self.mailings.held_until.insert((until, agent));
                return None;
            }
            if let Some(until) = self.mailings.held_until(tell, &agent, now) {
                self.mailings.held_until.insert((until, agent));
                continue;
            }
            let held = self.mailings.held.get(&agent).into_iter().flatten();
            let held: Vec<(ItemKey, Kind)> = held.take(DIGEST_ITEMS_MAX).cloned().collect();
            if held.is_empty() {
                continue;
            }
            // There may be more items than fit into one digest, or this one may not be delivered.
            self.mailings.held_until.insert((now, agent.clone()));
            let is_due = |site: &Self, (key, kind): &(ItemKey, Kind)| {
                let matter = site.matter_of(tell, key, now);
                let due =
                    matter.map(|matter| site.mailings.book.due(tell, &subject(key), &matter, now));
                due.is_some_and(|due| due.letters.contains(&(*kind, agent.clone())))
            };
            let (about, over): (Vec<_>, Vec<_>) =
                held.into_iter().partition(|held| is_due(self, held));
            self.mailings.unhold(&agent, over, now);
            let is_digest = about.len() > self.mailings.book.room(&agent, tell, now);
            let Some(address) = self.catalog.address_of(&agent).filter(|_| is_digest) else {
                self.mailings.unhold(&agent, about, now);
                continue;
            };
            let cases = about.iter().filter(|(key, _)| subject(key).is_case());
            let turned_at = cases.filter_map(|(key, _)| self.cases.turned_at(key.instance)).max();
            let about = about.iter().map(|(key, kind)| (subject(key), *kind)).collect();
            let zone = self.catalog.organisation().zone_of(&agent);
            let notice = Notice { agent, about };
            return Some(Letter { address, zone, notice, content: Content::Digest { turned_at } });
        }
    }

    /// The present state of what a letter would be about.
    fn matter_of(&self, tell: &Tell, key: &ItemKey, now: Timestamp) -> Option<Matter> {
        match subject(key).is_case() {
            true => {
                let case = self.case_of(key.instance, now);
                case.map(|(promise, overdue)| Matter::Case { promise, overdue })
            }
            false => self.standing_of(tell, key, now).map(Matter::Item),
        }
    }

    fn letter(
        &self,
        tell: &Tell,
        key: &ItemKey,
        standing: &Standing,
        agent: &AgentId,
        kind: Kind,
        now: Timestamp,
    ) -> Option<Letter> {
        let item = self.work.worklists.item(key)?;
        let node = item.schema.node(key.activity.node);
        let expires_at = item.offered_at + tell.answer_within;
        let is_answerable = kind.is_answerable() && expires_at > now;
        // Only those who are to do the item may see what it reads; a manager may not.
        let shown =
            if kind.is_answerable() { self.cases.shown(&item.schema, key) } else { Vec::new() };
        let about = About {
            activity: work::public_name(&item.schema, key),
            kind,
            process: item.schema.title.clone(),
            step: node.title.clone(),
            due: standing.due,
            shown,
            words: if is_answerable { words(node) } else { Vec::new() },
        };
        let notice = Notice { agent: agent.clone(), about: vec![(subject(key), kind)] };
        let content = Content::Item { about, expires_at };
        let zone = self.catalog.organisation().zone_of(agent);
        Some(Letter { address: self.catalog.address_of(agent)?, zone, notice, content })
    }

    /// Whether the values a letter has to show are not in memory. If so, they are loaded, and the item is checked
    /// again.
    fn lacks_shown(&mut self, key: &ItemKey, now: Timestamp) -> bool {
        let Some(item) = self.work.worklists.item(key) else { return false };
        let shows = !item.schema.node(key.activity.node).mail.is_empty();
        let is_broken = self.cases.instances.broken(key.instance).is_some();
        let lacks = shows && !is_broken && self.cases.instances.state(key.instance).is_none();
        if lacks {
            self.mailings.awaited.insert(key.instance);
            self.ask_for(key.instance.into(), false);
            self.mailings.rechecks.insert((now + LOADED, key.clone()));
        }
        lacks
    }

    /// The people an item concerns now.
    fn standing_of(&self, tell: &Tell, key: &ItemKey, now: Timestamp) -> Option<Standing> {
        let (item, resolved) = (self.work.worklists.item(key)?, self.work.worklists.resolved(key)?);
        let org = self.catalog.organisation();
        let is_pool = resolved.actors.len() > tell.actors_max;
        let actors: Vec<&AgentId> =
            if is_pool { Vec::new() } else { resolved.actors.iter().collect() };
        let (concerned, is_news) = match &item.claimed_by {
            // A person who claimed it from the list knows of it; one to whom it was delegated, and a substitute, do
            // not.
            Some(holder) => (vec![holder], item.is_given || org.is_absent(holder, now)),
            None => (actors.clone(), true),
        };
        // The agent, or their substitute who is not barred from the item.
        let does_it = |agent: &AgentId| match org.is_absent(agent, now) {
            true => org.stand_in_at(agent, resolved, now),
            false => Some(agent.clone()),
        };
        let seen_by = concerned.iter().filter_map(|agent| does_it(agent));
        let sees = |agent: &AgentId| self.work.worklists.sees(org, agent, key, now);
        let has_address = |agent: &AgentId| self.catalog.address_of(agent).is_some();
        let seen_by: BTreeSet<AgentId> =
            seen_by.filter(|agent| sees(agent) && has_address(agent)).collect();
        let above: BTreeSet<AgentId> = actors
            .iter()
            .flat_map(|agent| org.managers_of(agent).iter().cloned().collect::<Vec<_>>())
            .filter_map(|manager| does_it(&manager))
            .filter(has_address)
            .collect();
        Some(Standing {
            offered_at: item.offered_at,
            claimed_at: item.claimed_at,
            due: self.cases.due_of(key),
            seen_by: seen_by.into_iter().collect(),
            is_news,
            above: above.into_iter().collect(),
        })
    }

    /// Notes which items were delegated: the case may be evicted before the letter is sent.
    pub(crate) fn note_holders(&mut self) {
        let instances = &self.cases.instances;
        self.work.worklists.note_given(|key| {
            let open = instances
                .state(key.instance)
                .and_then(|(schema, state)| state.open_at(schema, key.activity.node));
            open.is_some_and(|open| open.given_by.is_some())
        });
    }
}

/// The words that answer a step by mail, if a word is enough.
fn words(node: &Node) -> Vec<(Arc<str>, Arc<str>)> {
    if node.writes.iter().any(|write| !write.optional) {
        Vec::new()
    } else if node.is_decision() {
        view::answers(node)
    } else {
        vec![(DONE.into(), DONE.into())]
    }
}

impl Mailings {
    /// Removes letters from the held ones, because they were sent or need not be sent together. Their items are checked
    /// again, since there may be other letters about them.
    pub(super) fn unhold(
        &mut self,
        agent: &AgentId,
        about: impl IntoIterator<Item = (ItemKey, Kind)>,
        now: Timestamp,
    ) {
        let Some(held) = self.held.get_mut(agent) else { return };
        for one in about {
            if held.remove(&one) {
                self.rechecks.insert((now, one.0));
            }
        }
        if held.is_empty() {
            self.held.remove(agent);
        }
    }
}

fn subject(key: &ItemKey) -> Subject {
    Subject { instance: key.instance, activity: key.activity.clone() }
}
