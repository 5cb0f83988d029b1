//! Items at other servers for people who ask for their lists here.
//!
//! Invariant: soft state. A person's items at another server are followed while their list is requested here, and for
//! some time after. A lost message is detected by its number or by a timeout, and items are requested again from the
//! last cursor. A server that does not answer is shown as unreachable, with its last known items. People and items are
//! bounded: the lists requested least recently are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::{ActivityId, AgentId, ServerId};
use legwork_model::time::Timestamp;
use legwork_org::Elsewhere;

use crate::Site;
use crate::input::{RequestId, Worklist};
use crate::message::{self, Follow, Item, Items, Mark, Message};
use crate::output::Output;
use crate::retries::Backoff;
use crate::waiting::Waiting;
use crate::work::Work;

/// How long the first request for a list waits for the other servers.
const GATHERING_MAX: Duration = Duration::from_secs(1);
/// How often a follow is renewed.
const RENEWAL: Duration = Duration::from_secs(60);
/// After this time without a request for the list the person is not followed any more.
const IDLE_AFTER: Duration = Duration::from_secs(180);
/// Back-off before a question is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// A server that has left this many questions unanswered counts as unreachable.
const ATTEMPTS_MAX: u32 = 3;
/// How many people are followed at a time; beyond that the lists requested least recently are dropped.
const PEOPLE_MAX: usize = 10_000;
/// The most items of a person kept for one server, oldest first.
const PART_ITEMS_MAX: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Following {
    people: BTreeMap<AgentId, Person>,
    due: BTreeSet<(Timestamp, AgentId)>,
    /// Servers that are known to be unreachable, and since when.
    down: BTreeMap<ServerId, Timestamp>,
    /// Number of items in all lists, and whether it has grown since the bound was last checked.
    items: usize,
    has_grown: bool,
    /// People whose lists have changed since waiting requests were last served.
    changed: BTreeSet<AgentId>,
    /// Requests that need not wait for other servers any longer.
    gathered: Vec<RequestId>,
    question: u64,
    begun: u64,
}

#[derive(Debug)]
pub(crate) struct Person {
    pub(crate) elsewhere: Elsewhere<Item>,
    parts: BTreeMap<ServerId, Part>,
    /// Number of items of all lists that are theirs.
    items: usize,
    asked_at: Timestamp,
    due: Timestamp,
    /// The list was not requested for long: other servers are not asked. Their last items are kept in case they are
    /// unreachable at the next request.
    is_dormant: bool,
    gathering_until: Timestamp,
    /// Requests that wait until all servers have answered.
    waiting: Vec<RequestId>,
}

/// One server's part of a list.
#[derive(Debug, Default)]
struct Part {
    /// The first and last question asked from the same cursor.
    questions: (u64, u64),
    /// The number of the next answer to the last question; `None` before the first answer.
    next: Option<u32>,
    cursor: Option<Mark>,
    /// When the first unanswered question was sent, and how many were sent since.
    silent_since: Timestamp,
    attempts: u32,
    asked_at: Timestamp,
    due: Timestamp,
    /// All its items were received at some time.
    is_whole: bool,
    /// It is sending all items again.
    is_resetting: bool,
    /// It has more items than are kept here.
    is_cut: bool,
}

impl Following {
    pub(crate) fn new(incarnation: u64) -> Self {
        Self {
            people: BTreeMap::new(),
            due: BTreeSet::new(),
            down: BTreeMap::new(),
            items: 0,
            has_grown: false,
            changed: BTreeSet::new(),
            gathered: Vec::new(),
            // Questions count up from here, as leases do: those of two incarnations do not meet.
            question: incarnation >> 1,
            begun: 0,
        }
    }

    pub(crate) fn person(&self, agent: &AgentId) -> Option<&Person> {
        self.people.get(agent)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The people whose lists have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<AgentId> {
        std::mem::take(&mut self.changed)
    }

    /// Begins to follow a person whose list was not requested recently.
    fn follow(&mut self, agent: &AgentId, now: Timestamp) -> &mut Person {
        let Self { people, due, begun, changed, down, .. } = self;
        let person = people.entry(agent.clone()).or_insert_with(|| {
            *begun += 1;
            // A client that waits with a cursor from before other servers joined gets the whole list.
            changed.insert(agent.clone());
            due.insert((now, agent.clone()));
            Person {
                elsewhere: Elsewhere::new(*begun),
                parts: BTreeMap::new(),
                items: 0,
                asked_at: now,
                due: now,
                is_dormant: false,
                gathering_until: now.plus(GATHERING_MAX),
                waiting: Vec::new(),
            }
        });
        person.asked_at = now;
        if std::mem::take(&mut person.is_dormant) {
            person.wake(down, now);
            due.insert((now, agent.clone()));
        }
        person
    }

    /// Updates counts and due times after a person's parts have changed.
    fn refresh(&mut self, agent: &AgentId, revision: u64) {
        let Some(person) = self.people.get_mut(agent) else { return };
        if person.elsewhere.revision() != revision {
            self.changed.insert(agent.clone());
        }
        let items = person.elsewhere.len();
        self.has_grown |= items > person.items;
        self.items = self.items.saturating_sub(person.items).saturating_add(items);
        person.items = items;
        if person.is_gathered() {
            self.gathered.append(&mut person.waiting);
        }
        if person.is_dormant {
            return;
        }
        let due = person.parts.values().map(|part| part.due).min();
        let due = due.unwrap_or(person.asked_at.plus(IDLE_AFTER));
        if due != person.due {
            self.due.remove(&(person.due, agent.clone()));
            self.due.insert((due, agent.clone()));
            person.due = due;
        }
    }

    fn drop_person(&mut self, agent: &AgentId) -> Option<Person> {
        let person = self.people.remove(agent)?;
        self.due.remove(&(person.due, agent.clone()));
        self.items = self.items.saturating_sub(person.items);
        Some(person)
    }
}

impl Person {
    /// Asks all servers for changes since their last answer, as at a first request.
    fn wake(&mut self, down: &BTreeMap<ServerId, Timestamp>, now: Timestamp) {
        (self.due, self.gathering_until) = (now, now.plus(GATHERING_MAX));
        for (server, part) in &mut self.parts {
            (part.due, part.attempts, part.is_whole) = (now, 0, false);
            if !down.contains_key(server) {
                // It was unreachable, and is reachable again.
                self.elsewhere.mark(*server, None);
            }
        }
    }

    /// Whether all reachable servers have sent their items.
    fn is_gathered(&self) -> bool {
        let is_there = |(server, part): (&ServerId, &Part)| {
            part.is_whole || self.elsewhere.is_unreachable(*server)
        };
        !self.parts.is_empty() && self.parts.iter().all(is_there)
    }
}

impl Part {
    /// The next question, from the cursor of the last answer.
    fn next_question(&mut self, question: &mut u64, now: Timestamp) -> (u64, Option<Mark>) {
        *question += 1;
        self.questions.1 = *question;
        if self.next.take().is_some() || self.attempts == 0 {
            (self.questions.0, self.silent_since, self.attempts) = (*question, now, 0);
        }
        (self.asked_at, self.due) = (now, now.plus(BACKOFF.after(self.attempts)));
        self.attempts += 1;
        (*question, self.cursor)
    }

    /// Whether this is the expected answer.
    fn accept(&mut self, items: &Items, now: Timestamp) -> bool {
        let (first, last) = self.questions;
        let fits = items.after.is_none() || items.after == self.cursor;
        match self.next {
            None if fits && (first..=last).contains(&items.question) && items.number == 0 => {
                // Any of the questions may be answered: all were asked from the same cursor.
                self.questions = (items.question, items.question);
                self.due = self.asked_at.plus(RENEWAL);
                self.next = Some(1);
            }
            // It is asked again before long.
            None => return false,
            Some(next) if fits && items.question == last && items.number == next => {
                self.next = Some(next + 1);
            }
            Some(next) if items.question == last && items.number < next => return false,
            Some(_) => {
                // A message was lost, or this one answers an older question.
                self.due = self.due.min(self.asked_at.plus(BACKOFF.after(0)).max(now));
                return false;
            }
        }
        self.attempts = 0;
        true
    }
}

impl Work {
    /// The server that has an item on the merged list of a person.
    pub(crate) fn remote_item(&self, agent: &AgentId, activity: &ActivityId) -> Option<ServerId> {
        self.following.person(agent)?.elsewhere.server_of(activity)
    }

    /// Another server sends a person's items.
    pub(crate) fn on_items(&mut self, from: ServerId, items: Items, now: Timestamp) {
        let agent = items.agent.clone();
        if self.following.down.contains_key(&from) {
            self.on_link(from, true, now);
        }
        let Some(person) = self.following.people.get_mut(&agent) else { return };
        let Some(part) = person.parts.get_mut(&from) else { return };
        let revision = person.elsewhere.revision();
        if part.accept(&items, now) {
            person.elsewhere.mark(from, None);
            if items.more {
                part.due = now;
            }
            apply_items(part, &mut person.elsewhere, from, items);
        }
        self.following.refresh(&agent, revision);
    }

    /// A server can be reached again, or cannot any more.
    pub(crate) fn on_link(&mut self, to: ServerId, is_up: bool, now: Timestamp) {
        if is_up {
            self.following.down.remove(&to);
        } else {
            self.following.down.entry(to).or_insert(now);
        }
        let agents: Vec<AgentId> = self.following.people.keys().cloned().collect();
        for agent in agents {
            let Some(person) = self.following.people.get_mut(&agent) else { continue };
            let Some(part) = person.parts.get_mut(&to) else { continue };
            let revision = person.elsewhere.revision();
            if is_up {
                // Its messages sent meanwhile are lost. It stays marked unreachable until it answers.
                (part.due, part.attempts) = (now, 0);
            } else {
                person.elsewhere.mark(to, Some(now));
            }
            self.following.refresh(&agent, revision);
        }
    }
}

impl Site {
    /// Lets the first request for a list wait until the other servers have sent their items. Returns the request if it
    /// need not wait.
    pub(crate) fn gather(
        &mut self,
        id: RequestId,
        worklist: Worklist,
        now: Timestamp,
    ) -> Option<Worklist> {
        self.make_room(&worklist.agent);
        let has_room = self.waiting.len() < self.config.waiting_max;
        let person = self.work.following.follow(&worklist.agent, now);
        if person.is_gathered() || person.gathering_until <= now || !has_room {
            return Some(worklist);
        }
        let until = worklist
            .wait_until
            .map_or(person.gathering_until, |until| until.min(person.gathering_until));
        person.waiting.push(id);
        self.waiting.park(id, until, Waiting::Gathering(worklist));
        None
    }

    /// Sends all due questions, and answers the requests that need not wait any longer.
    pub(crate) fn renew_follows(&mut self, now: Timestamp) {
        while let Some((_, agent)) =
            self.work.following.due.first().filter(|(due, _)| *due <= now).cloned()
        {
            self.renew_follow(&agent, now);
        }
        for id in std::mem::take(&mut self.work.following.gathered) {
            if let Some(Waiting::Gathering(worklist)) = self.waiting.take(id) {
                self.worklist_or_wait(id, worklist, now);
            }
        }
        self.bound_items();
    }

    fn renew_follow(&mut self, agent: &AgentId, now: Timestamp) {
        let others: BTreeSet<ServerId> = self.cluster.other_servers().collect();
        let is_awaited = self.waiting.is_watched(agent);
        let Some(person) = self.work.following.people.get_mut(agent) else { return };
        if is_awaited || !person.waiting.is_empty() {
            person.asked_at = now;
        } else if person.asked_at.plus(IDLE_AFTER) <= now {
            return self.make_dormant(agent);
        }
        let revision = person.elsewhere.revision();
        let gone: Vec<ServerId> =
            person.parts.keys().filter(|server| !others.contains(server)).copied().collect();
        for server in gone {
            person.parts.remove(&server);
            person.elsewhere.forget(server);
        }
        for server in others {
            let part = person.parts.entry(server).or_default();
            if part.due > now {
                continue;
            }
            if part.is_cut && person.elsewhere.len_at(server) < PART_ITEMS_MAX {
                (part.is_cut, part.cursor) = (false, None);
            }
            let (question, since) = part.next_question(&mut self.work.following.question, now);
            if part.attempts >= ATTEMPTS_MAX {
                self.work.following.down.entry(server).or_insert(part.silent_since);
            }
            if let Some(&down_since) = self.work.following.down.get(&server) {
                person.elsewhere.mark(server, Some(down_since));
            }
            let seconds = IDLE_AFTER.as_secs() as u32;
            let follow = Follow { agent: agent.clone(), question, since, seconds };
            self.out.push(Output::Send {
                to: server,
                message: Message::Worklist(message::Worklist::Follow(follow)),
            });
        }
        self.work.following.refresh(agent, revision);
    }

    fn make_room(&mut self, agent: &AgentId) {
        let people = &self.work.following.people;
        if people.len() >= PEOPLE_MAX && !people.contains_key(agent) {
            self.drop_least_recent(|_| true);
        }
    }

    /// Drops lists while there are too many items, but never the only list.
    fn bound_items(&mut self) {
        let mut is_over = std::mem::take(&mut self.work.following.has_grown);
        while is_over {
            let all = self.work.following.items;
            is_over = all > self.config.followed_items_max
                && self.drop_least_recent(|person| person.items > 0 && person.items < all);
        }
    }

    /// Drops the list requested least recently, among those without a waiting request.
    fn drop_least_recent(&mut self, counts: impl Fn(&Person) -> bool) -> bool {
        let without_asking = self.work.following.people.iter().filter(|(agent, person)| {
            let is_awaited = !person.waiting.is_empty() || self.waiting.is_watched(agent);
            !is_awaited && counts(person)
        });
        let longest = without_asking.min_by_key(|(_, person)| person.asked_at);
        let Some(agent) = longest.map(|(agent, _)| agent.clone()) else { return false };
        self.unfollow(&agent);
        true
    }

    fn unfollow(&mut self, agent: &AgentId) {
        let Some(person) = self.work.following.drop_person(agent) else { return };
        if !person.is_dormant {
            self.end_follows(agent, person.parts.into_keys().collect());
        }
    }

    /// The list was not requested for long: ends the follows at other servers.
    fn make_dormant(&mut self, agent: &AgentId) {
        let Some(person) = self.work.following.people.get_mut(agent) else { return };
        person.is_dormant = true;
        let (due, servers) = (person.due, person.parts.keys().copied().collect());
        self.work.following.due.remove(&(due, agent.clone()));
        self.end_follows(agent, servers);
    }

    fn end_follows(&mut self, agent: &AgentId, servers: Vec<ServerId>) {
        for server in servers {
            self.work.following.question += 1;
            let question = self.work.following.question;
            let follow = Follow { agent: agent.clone(), question, since: None, seconds: 0 };
            self.out.push(Output::Send {
                to: server,
                message: Message::Worklist(message::Worklist::Follow(follow)),
            });
        }
    }
}

/// Stores the items a server has sent.
fn apply_items(part: &mut Part, elsewhere: &mut Elsewhere<Item>, from: ServerId, items: Items) {
    let Items { after, cursor, more, items, removed, .. } = items;
    part.cursor = Some(cursor);
    if after.is_none() {
        part.is_resetting = true;
        elsewhere.begin(from);
    }
    for named in removed {
        elsewhere.remove(from, &named.into());
    }
    for item in items {
        let activity = ActivityId::from(item.activity.clone());
        let is_known = elsewhere.server_of(&activity) == Some(from);
        if is_known || elsewhere.len_at(from) < PART_ITEMS_MAX {
            elsewhere.put(from, activity, item.offered_at, item);
        } else {
            part.is_cut = true;
        }
    }
    if !more {
        part.is_whole = true;
        if std::mem::take(&mut part.is_resetting) {
            elsewhere.end(from);
        }
    }
}
