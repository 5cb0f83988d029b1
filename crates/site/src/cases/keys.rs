//! Idempotency keys of starts: what a key was used for stands in a stream of its own.
//!
//! Invariant: under one key at most one instance is ever started. The key's only record is appended
//! together with the first one of the instance, and the two are committed together or not at all.
//! Requests with one key wait until the key's stream is read and are then looked at one after the
//! other; whoever comes later asks for the stream again, which is read after that commit. So no key
//! is kept in memory. While it is found out whether a start can be promised, others with its key wait for that.

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
    /// Whether a start under a key waits for nothing but to be carried out.
    fn is_found_for(&self, key: StreamId) -> bool {
        let waiting = self.loading.get(&key).into_iter().flatten();
        waiting.into_iter().any(|held| matches!(&held.request, Request::Start(it) if is_found(it)))
    }
}

impl Site {
    /// The stream of a key has come: the first of those who waited for it starts, the others find
    /// what it did.
    pub(crate) fn key_loaded(&mut self, key: StreamId, stream: &Stream, now: Timestamp) {
        let mut used = used_for(stream);
        let mut waiting = self.cases.loading.remove(&key).unwrap_or_default();
        // What was promised meanwhile has its time reserved: nobody else would get it.
        let is_found = |held: &Held| matches!(&held.request, Request::Start(it) if is_found(it));
        waiting.sort_by_key(|held| !is_found(held));
        for held in waiting {
            let id = held.id;
            match self.start_or_repeat(held, &used, now) {
                Ok(None) => {}
                Ok(Some(use_now)) => used = Ok(Some(use_now)),
                Err(refusal) => self.answer(id, Err(refusal)),
            }
        }
        // What cannot be read was used: whoever asks is sent here, and hears why.
        self.answer_key_questions(key, !matches!(used, Ok(None)));
    }

    /// Carries out a start under a key; what the key is used for from now on, if that is new.
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
            // Whether it was used where the case would have begun before the weights changed has to
            // be found out, and may change until the weights are settled.
            Ok(None) if self.is_locked() => {
                self.hold_start(Held { id, caller, request: Request::Start(start) });
                Ok(None)
            }
            Ok(None) if !self.is_unused_elsewhere(stream, start.instance) => {
                self.cluster.require_placed_now(start.instance)?;
                let instance = start.instance;
                let held = Held { id, caller, request: Request::Start(start) };
                self.ask_earlier(stream, instance, held, now);
                Ok(None)
            }
            // What it asks for is being looked for: it would stand in its own way.
            Ok(None) if self.planning.is_sought(stream) && !is_found(&start) => {
                self.planning
                    .wait_for_search(stream, Held { id, caller, request: Request::Start(start) });
                Ok(None)
            }
            // It was found at once, and is about to be started.
            Ok(None) if self.cases.is_found_for(stream) && !is_found(&start) => {
                self.load(stream, Held { id, caller, request: Request::Start(start) });
                Ok(None)
            }
            Ok(None) if self.planning.seeks_promise(&start) => {
                self.cluster.require_placed_now(start.instance)?;
                self.seek_promise(id, caller, start, now);
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
        // Listings never come to it: there is nothing to summarise.
        let close = Some(Vec::new());
        self.out.push(Output::Append(Append { stream: key.0, expected: 0, record, close }));
    }

    /// Answers what became of the instance, as soon as it is in memory.
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

/// Whether it was found out if a start can be promised.
fn is_found(start: &Start) -> bool {
    start.deadline.as_ref().is_some_and(|wish| wish.found.is_some())
}

fn used_for(stream: &Stream) -> Result<Option<Use>, String> {
    let Some(bytes) = stream.records.first() else { return Ok(None) };
    let record = Record::<KeyEvent>::from_bytes(bytes).map_err(|error| error.to_string())?;
    match record.events.first() {
        Some(&KeyEvent::Started { instance, request }) => Ok(Some(Use { instance, request })),
        None => Err("it says nothing".to_owned()),
    }
}

fn unreadable(reason: &str) -> Refusal {
    let message = format!(
        "what this idempotency key was used for cannot be read ({reason}); look whether the case \
         is there before you start it under another key, and report this"
    );
    Refusal::new(Kind::Broken, "idempotency_key_broken", message)
}
