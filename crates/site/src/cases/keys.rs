//! Idempotency keys of starts: the use of a key is stored in a stream of its own.
//!
//! Invariant: at most one instance is ever started under a key. The only record of the key is appended together with
//! the first record of the instance, and both are committed or neither is. Requests with the same key wait until the
//! stream of the key is read, and are then handled one after the other. A later request reads the stream again, after
//! that commit, so no key is kept in memory. During an admission search for a start, other requests with its key wait
//! for the result.

use legwork_engine::Rejection;
use legwork_model::event::{KeyEvent, Record};
use legwork_model::id::{InstanceId, StreamId};
use legwork_model::time::Timestamp;

use crate::cases::Cases;
use crate::cases::Repeated;
use crate::input::{Key, Request, Start, Stream};
use crate::output::{Append, Output};
use crate::refusal::{Kind, Refusal};
use crate::{Held, Site};

/// What a key was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    instance: InstanceId,
    request: u64,
}

impl Cases {
    /// Whether a start with this key has finished its admission search and waits to be carried out.
    fn is_search_done_for(&self, key: StreamId) -> bool {
        let waiting = self.loading.get(&key).into_iter().flatten();
        waiting
            .into_iter()
            .any(|held| matches!(&held.request, Request::Start(it) if is_search_done(it)))
    }
}

impl Site {
    /// The stream of a key has been read: the first waiting request starts an instance, the others get the same
    /// instance.
    pub(crate) fn key_loaded(&mut self, key: StreamId, stream: &Stream, now: Timestamp) {
        let mut used = used_for(stream);
        let mut waiting = self.cases.loading.remove(&key).unwrap_or_default();
        // A start with a promise comes first: the time reserved for it would be lost to other starts.
        let is_search_done =
            |held: &Held| matches!(&held.request, Request::Start(it) if is_search_done(it));
        waiting.sort_by_key(|held| !is_search_done(held));
        for held in waiting {
            let id = held.id;
            match self.start_or_repeat(held, &used, now) {
                Ok(None) => {}
                Ok(Some(use_now)) => used = Ok(Some(use_now)),
                Err(refusal) => self.answer(id, Err(refusal)),
            }
        }
        // An unreadable key counts as used: the client is sent here and gets the reason.
        self.answer_key_questions(key, !matches!(used, Ok(None)));
    }

    /// Carries out a start with a key. Returns the new use of the key, if there is one.
    fn start_or_repeat(
        &mut self,
        held: Held,
        used: &Result<Option<Use>, String>,
        now: Timestamp,
    ) -> Result<Option<Use>, Refusal> {
        let Held { id, caller, request } = held;
        let Request::Start(start) = request else { return Ok(None) };
        let Some(&Key { stream, request }) = start.key.as_deref() else { return Ok(None) };
        self.require_room()?;
        self.may_start(&caller, &start)?;
        match used {
            Err(reason) => Err(unreadable(reason)),
            Ok(Some(used)) if used.request != request => Err(Refusal::from(&Rejection::KeyReused)),
            Ok(Some(used)) => {
                self.answer_repeated(Repeated { id, wait_until: start.wait_until }, *used, now);
                Ok(None)
            }
            // The servers of earlier weights have to be asked first, and they may change until the change of the
            // topology ends.
            Ok(None) if self.is_locked() => {
                self.hold_start(Held { id, caller, request: Request::Start(start) });
                Ok(None)
            }
            Ok(None) if !self.is_unused_elsewhere(stream, start.instance) => {
                self.cluster.require_placed_now(start.instance)?;
                let instance = start.instance;
                let held = Held { id, caller, request: Request::Start(start) };
                self.ask_earlier_servers(stream, instance, held, now);
                Ok(None)
            }
            // An admission search for the same key is under way and has reserved time: a second one would compete with
            // it.
            Ok(None) if self.planning.is_in_admission(stream) && !is_search_done(&start) => {
                self.planning
                    .wait_for_search(stream, Held { id, caller, request: Request::Start(start) });
                Ok(None)
            }
            // Its search ended at once, and it is about to be started.
            Ok(None) if self.cases.is_search_done_for(stream) && !is_search_done(&start) => {
                self.load(stream, Held { id, caller, request: Request::Start(start) });
                Ok(None)
            }
            Ok(None) if self.planning.needs_admission(&start) => {
                self.cluster.require_placed_now(start.instance)?;
                self.start_admission(id, caller, start, now);
                Ok(None)
            }
            Ok(None) => {
                self.cluster.require_placed_now(start.instance)?;
                self.start_now(&caller, &start, now)?;
                let used = Use { instance: start.instance, request };
                self.record_use(stream, used, now);
                self.answer_or_wait(id, start.instance, start.wait_until, Some(false), now);
                Ok(Some(used))
            }
        }
    }

    fn record_use(&mut self, key: StreamId, used: Use, now: Timestamp) {
        let event = KeyEvent::Started { instance: used.instance, request: used.request };
        let record = Record { at: now, events: vec![event] }.to_bytes();
        // No listing shows the stream, so it has no summary.
        let close = Some(Vec::new());
        self.out.push(Output::Append(Append { stream: key.0, expected: 0, record, close }));
    }

    /// Answers with the state of the instance, as soon as the instance is in memory.
    fn answer_repeated(&mut self, repeated: Repeated, used: Use, now: Timestamp) {
        let instance = used.instance;
        let known = self.cases.instances.state(instance).is_some()
            || self.cases.instances.broken(instance).is_some();
        if known {
            self.answer_or_wait(repeated.id, instance, repeated.wait_until, Some(true), now);
        } else {
            self.cases.repeated.entry(instance).or_default().push(repeated);
            self.ask_for(instance.into(), false);
        }
    }
}

/// Whether the admission search is done.
fn is_search_done(start: &Start) -> bool {
    start.deadline.as_ref().is_some_and(|wish| wish.found.is_some())
}

fn used_for(stream: &Stream) -> Result<Option<Use>, String> {
    let Some(bytes) = stream.records.first() else { return Ok(None) };
    let record = Record::<KeyEvent>::from_bytes(bytes).map_err(|error| error.to_string())?;
    match record.events.first() {
        Some(&KeyEvent::Started { instance, request }) => Ok(Some(Use { instance, request })),
        None => Err("the record has no event".to_owned()),
    }
}

fn unreadable(reason: &str) -> Refusal {
    let message = format!(
        "what this idempotency key was used for cannot be read ({reason}); check whether the case \
         is there before you start it under another key, and report this"
    );
    Refusal::new(Kind::Broken, "idempotency_key_broken", message)
}
