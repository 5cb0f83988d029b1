//! What waits here for a change of the topology to end: starts, offers and, while this server moves to another host,
//! all inputs.
//!
//! Invariant: a locked server starts nothing and accepts no instance it does not have. A frozen one appends nothing but
//! records of the catalog. One that is gone appends nothing at all, since it continues at its new host. Waiting
//! requests are answered or carried out when the lock ends; none is lost.

use std::collections::VecDeque;
use std::time::Duration;

use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::Map;

use crate::catalog::changes::{Fate, SKEW_MS};
use crate::cluster::Cluster;
use crate::cluster::coordinate::Coordination;
use crate::input::{Input, Request, RequestId};
use crate::message::{Message, Registrar};
use crate::refusal::{Kind, Refusal};
use crate::{Held, Site};

/// The most starts that wait for a change to end.
const STARTS_MAX: usize = 10_000;
/// How often a restarted server requests the length of the catalog from others.
const PAUSE: Duration = Duration::from_secs(1);
/// After a shorter pause every id this server creates is still its own, even if it was declared down: the new weights
/// apply only to ids created this much later.
const PAUSED_MIN: Duration = Duration::from_millis(SKEW_MS);

/// Whether this site acts for its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Serving,
    /// The server moves to another host, or has come from one, and waits for the end of this change.
    Frozen {
        change: u32,
    },
    /// The server continues at another host since this change.
    Gone {
        change: u32,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Locks {
    starts: VecDeque<Held>,
    /// Inputs that arrived while this server was frozen, except those that are resent.
    deferred: VecDeque<Input>,
    deferred_requests: usize,
    /// No record of the catalog is missing here, or none that matters.
    caught_up: bool,
    /// The announcements of other servers were made before a long pause of this process.
    announced_before_pause: bool,
    ask_due: Timestamp,
    /// The change in which the store arrived at this host, or left it.
    moved_in: Option<u32>,
    given_away: Option<u32>,
    gone: Option<u32>,
    /// How many ended changes this site has processed.
    seen: u32,
    /// The change under way and the epoch this site has processed.
    followed: (Option<u32>, u32),
}

impl Cluster {
    pub(crate) fn domain_here(&self) -> Option<DomainId> {
        let seat = self.seat.as_ref()?;
        seat.topology.domain_of(seat.here)
    }

    /// Whether this server may have missed a change of its domain because it was declared down.
    fn is_catching_up(&self) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|_| !self.locks.caught_up) else {
            return false;
        };
        if seat.topology.registrar() == Some(seat.here) {
            return false;
        }
        let domain = seat.topology.domain_of(seat.here);
        domain.is_some_and(|domain| seat.topology.servers_of(domain).nth(1).is_some())
    }

    /// Whether an instance that is not here may be started or accepted here.
    pub(crate) fn belongs_here(&self, id: InstanceId) -> bool {
        let Some(seat) = &self.seat else { return true };
        let at = self.domain_here().and_then(|domain| seat.topology.server_in(domain, id));
        at.is_none_or(|at| at == seat.here)
    }

    /// The client of this request has disconnected.
    pub(crate) fn drop_held(&mut self, id: RequestId) {
        self.locks.starts.retain(|held| held.id != id);
        let is_other =
            |input: &Input| !matches!(input, Input::Request { id: other, .. } if *other == id);
        let before = self.locks.deferred.len();
        self.locks.deferred.retain(is_other);
        self.locks.deferred_requests -= before - self.locks.deferred.len();
    }

    /// This process was paused for so long that its server may have been declared down and the weights changed
    /// meanwhile. Requests the length of the catalog again. Messages sent before the pause are handled first, and do
    /// not count as answers.
    pub(crate) fn recheck_catalog(&mut self, by: Duration, now: Timestamp) {
        if by < PAUSED_MIN {
            return;
        }
        self.locks.caught_up = false;
        if self.is_catching_up() {
            self.locks.announced_before_pause = true;
            self.locks.ask_due = now.plus(PAUSE);
        }
    }

    /// Whether other servers have to answer even if they have no more records than this one.
    pub(crate) fn wants_answer(&self) -> bool {
        self.is_catching_up()
    }

    /// Whether the store has left for another host, so that records written here do not count.
    pub(crate) fn is_given_away(&self, change: u32) -> bool {
        self.locks.given_away == Some(change)
    }

    pub(crate) fn has_moved_in(&self, change: u32) -> bool {
        self.locks.moved_in == Some(change)
    }

    fn gone_refusal(&self) -> Refusal {
        let message = "this server has moved to another host; ask there";
        let here = self.seat().map(|seat| seat.here);
        Refusal::new(Kind::Conflict, "server_moved", message).at(here)
    }
}

impl Site {
    /// Whether this site acts for its server.
    pub fn mode(&self) -> Mode {
        if let Some(change) = self.cluster.locks.gone {
            return Mode::Gone { change };
        }
        // Without a seat, server numbers of the change could mean other servers.
        match (self.catalog.changes().pending(), &self.cluster.seat) {
            (Some(pending), Some(seat)) if pending.moves(seat.here) => {
                Mode::Frozen { change: pending.number }
            }
            (Some(_) | None, Some(_) | None) => Mode::Serving,
        }
    }

    /// How many starts and other requests wait for a change to end.
    pub fn held(&self) -> usize {
        self.cluster.locks.starts.len() + self.cluster.locks.deferred_requests
    }

    /// Whether this server may neither start nor accept new instances.
    pub(crate) fn is_locked(&self) -> bool {
        let pending = self.catalog.changes().pending();
        let locks = |domain| pending.is_some_and(|pending| pending.locks(domain));
        self.cluster.domain_here().is_some_and(locks) || self.cluster.is_catching_up()
    }

    /// Holds a start until this server may start instances.
    pub(crate) fn hold_start(&mut self, held: Held) {
        if self.cluster.locks.starts.len() < STARTS_MAX {
            return self.cluster.locks.starts.push_back(held);
        }
        let message = format!(
            "{STARTS_MAX} starts wait here already for a change of the topology to end; try again \
             in some seconds"
        );
        self.answer(held.id, Err(Refusal::new(Kind::Exhausted, "too_many_starts", message)));
    }

    /// Carries out held inputs, a batch at a time.
    pub(crate) fn release_held(&mut self, now: Timestamp) {
        while !self.entailed.is_enough()
            && self.mode() == Mode::Serving
            && let Some(input) = self.cluster.locks.deferred.pop_front()
        {
            self.cluster.locks.deferred_requests -=
                usize::from(matches!(input, Input::Request { .. }));
            self.act(input, now);
        }
        let starts = self.cluster.locks.starts.len();
        for _ in 0..starts {
            if self.is_locked() || self.entailed.is_enough() {
                return;
            }
            let Some(held) = self.cluster.locks.starts.pop_front() else { return };
            self.admit(held, now);
        }
    }

    /// When the next batch of held inputs is due.
    pub(crate) fn next_held_release(&self) -> Option<Timestamp> {
        let waits = !self.cluster.locks.deferred.is_empty()
            || !self.cluster.locks.starts.is_empty() && !self.is_locked();
        (waits && self.mode() == Mode::Serving).then_some(self.clock.latest)
    }

    /// When to request the length of the catalog again.
    pub(crate) fn next_catch_up(&self) -> Option<Timestamp> {
        self.awaits_catalog().then_some(self.cluster.locks.ask_due)
    }

    /// Whether this server waits for records of the catalog.
    fn awaits_catalog(&self) -> bool {
        self.cluster.is_catching_up() || matches!(self.mode(), Mode::Frozen { .. })
    }

    /// Requests the length of the catalog from the neighbours and the registrar while it is unknown, or records are
    /// awaited.
    pub(crate) fn catch_up(&mut self, now: Timestamp) {
        if !self.awaits_catalog() || self.cluster.locks.ask_due > now {
            return;
        }
        self.cluster.locks.ask_due = now.plus(PAUSE);
        if std::mem::take(&mut self.cluster.locks.announced_before_pause) {
            self.catalog.forget_announcements();
        }
        let Some(seat) = &self.cluster.seat else { return };
        let here = seat.here;
        let neighbours = self.cluster.domain_here().into_iter();
        let neighbours = neighbours.flat_map(|domain| seat.topology.servers_of(domain));
        let neighbours = neighbours.map(|(id, _)| id).filter(|id| *id != here);
        let registrar = seat.topology.registrar().filter(|id| *id != here);
        let mut all: Vec<_> = neighbours.chain(registrar).collect();
        all.sort_unstable();
        all.dedup();
        for to in all {
            self.ask_catalog(to);
        }
    }

    /// Another server has announced how many records it has.
    pub(crate) fn note_caught_up(&mut self, now: Timestamp) {
        if !self.cluster.is_catching_up() || self.cluster.locks.announced_before_pause {
            return;
        }
        let Some(seat) = &self.cluster.seat else { return };
        let knows = |id| self.catalog.has_announced_no_more(id);
        let mut neighbours = self.cluster.domain_here().into_iter().flat_map(|domain| {
            seat.topology.servers_of(domain).map(|(id, _)| id).filter(|id| *id != seat.here)
        });
        let is_caught_up = seat.topology.registrar().is_some_and(knows) || neighbours.all(knows);
        drop(neighbours);
        if is_caught_up {
            self.cluster.locks.caught_up = true;
            self.retry_held_offers(now);
        }
    }

    /// Applies changes of the topology recorded in the catalog, whether they were written here or received.
    pub(crate) fn follow_changes(&mut self, now: Timestamp) {
        let pending = self.catalog.changes().pending().map(|pending| pending.number);
        let epoch = self.catalog.topology().map_or(0, |published| published.topology.epoch);
        let (was_pending, was_epoch) =
            std::mem::replace(&mut self.cluster.locks.followed, (pending, epoch));
        self.note_fates();
        if let Mode::Gone { change } = self.mode() {
            return self.retire(change);
        }
        if pending.is_some() && pending != was_pending {
            self.change_begun(now);
        }
        if pending.is_none() {
            // The reports may hold a million ids.
            self.cluster.coordination = Coordination::default();
        }
        // A frozen server receives no answers.
        let freezes = pending != was_pending && self.mode() != Mode::Serving;
        if epoch != was_epoch || freezes {
            self.restart_key_questions();
            self.restart_case_questions(now);
        }
        if epoch != was_epoch {
            self.note_exceptions();
        }
        if epoch != was_epoch || was_pending.is_some() && pending != was_pending {
            self.migration.hurry_redirected(now);
            self.retry_held_offers(now);
        }
    }

    /// Changes that ended before this restart count as processed: the operator knows which store of a server is in
    /// force.
    pub(crate) fn note_recovered_fates(&mut self) {
        self.cluster.locks.seen = self.catalog.changes().next_number() - 1;
    }

    fn note_fates(&mut self) {
        let here = self.cluster.seat.as_ref().map(|seat| seat.here);
        let changes = self.catalog.changes();
        let new = self.cluster.locks.seen + 1..changes.next_number();
        let is_moved = |number: &u32| here.is_some_and(|here| changes.has_moved(*number, here));
        for number in new.filter(is_moved) {
            let moved_in = self.cluster.locks.moved_in == Some(number);
            let goes_on_here = match changes.fate(number) {
                Some(Fate::Published { .. }) => moved_in,
                Some(Fate::Undone) | None => !moved_in,
            };
            if !goes_on_here {
                self.cluster.locks.gone = Some(number);
            }
        }
        self.cluster.locks.seen = changes.next_number() - 1;
    }

    /// The store of a server has arrived completely at this host.
    pub(crate) fn moved_in(&mut self, change: u32, server: ServerId, now: Timestamp) {
        let is_here = self.cluster.seat.as_ref().is_some_and(|seat| seat.here == server);
        if is_here {
            self.cluster.locks.moved_in = Some(change);
        }
        match self.catalog.changes().fate(change) {
            None => self.report_moved(change, server, now),
            Some(Fate::Undone) if is_here => self.retire(change),
            Some(Fate::Undone | Fate::Published { .. }) => {}
        }
    }

    /// The store of this server leaves for another host.
    pub(crate) fn given_away(&mut self, change: u32) {
        self.cluster.locks.given_away = Some(change);
        if let Some(Fate::Published { .. }) = self.catalog.changes().fate(change) {
            self.retire(change);
        }
    }

    /// This server continues elsewhere: refuses all waiting requests.
    fn retire(&mut self, change: u32) {
        self.cluster.locks.gone = Some(change);
        let mut waiting: Vec<RequestId> = self.waiting.ids();
        waiting.extend(self.cluster.locks.starts.drain(..).map(|held| held.id));
        let request = |input| if let Input::Request { id, .. } = input { Some(id) } else { None };
        waiting.extend(self.cluster.locks.deferred.drain(..).filter_map(request));
        waiting.extend(self.cases.take_key_waiters());
        let loading = std::mem::take(&mut self.cases.loading).into_values().flatten();
        waiting.extend(loading.map(|held| held.id));
        let repeated = std::mem::take(&mut self.cases.repeated).into_values().flatten();
        waiting.extend(repeated.map(|repeated| repeated.id));
        waiting.extend(std::mem::take(&mut self.cases.histories).into_keys());
        waiting.extend(std::mem::take(&mut self.cases.listings).into_keys());
        self.cluster.locks.deferred_requests = 0;
        for id in waiting {
            drop(self.waiting.take(id));
            let refusal = self.cluster.gone_refusal();
            self.answer(id, Err(refusal));
        }
    }

    /// An input at a frozen server.
    pub(crate) fn act_frozen(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Recovered(_)
            | Input::SiteRecovered
            | Input::OwnRead { .. }
            | Input::CatalogRead { .. }
            | Input::Link { .. }
            | Input::Cancelled { .. }
            | Input::Unheard { .. }
            | Input::Jumped { .. }
            | Input::Moved { .. }
            | Input::GivenAway { .. } => self.act(input, now),
            // Nothing is appended.
            Input::Stopping => {}
            Input::Settle => self.settle_frozen(now),
            Input::Message { ref message, .. } => {
                // All other messages are resent.
                let is_of_change = matches!(
                    message,
                    Message::Catalog(_)
                        | Message::Registrar(Registrar::Report(_) | Registrar::Moved { .. })
                );
                if is_of_change {
                    self.act(input, now);
                }
            }
            Input::Request { id, request: ref asked, .. } => {
                if matches!(asked, Request::Reconfiguration | Request::Undo { .. })
                    || matches!(asked, Request::Topology { .. } | Request::TopologyVersions { .. })
                {
                    return self.act(input, now);
                }
                if self.cluster.locks.deferred_requests >= self.config.waiting_max {
                    return self.answer(id, Err(moving()));
                }
                self.cluster.locks.deferred_requests += 1;
                self.cluster.locks.deferred.push_back(input);
            }
            Input::Loaded(_)
            | Input::HistoryRead { .. }
            | Input::ClosedRead { .. }
            | Input::EntriesRead { .. }
            | Input::FilesHere { .. } => self.cluster.locks.deferred.push_back(input),
        }
    }

    /// An input at a server that is gone.
    pub(crate) fn act_gone(&mut self, input: Input) {
        if let Input::Request { id, .. } = input {
            let refusal = self.cluster.gone_refusal();
            self.answer(id, Err(refusal));
        }
    }
}

fn moving() -> Refusal {
    let message = "this server is being moved to another host, and as many requests wait for it as \
                   fit; try again in some seconds";
    Refusal::new(Kind::Exhausted, "server_moving", message)
}
