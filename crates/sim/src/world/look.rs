//! Observes a site from outside, and crashes it on request.

use legwork_model::id::StreamId;
use legwork_site::{Credential, Due, Input, Output, Request, RequestId};
use legwork_store::{EventStore, Version};

use super::{Crash, Reply, World};
use crate::dice::Dice;

impl World {
    /// A number unique to the incarnation, also between hosts.
    pub(crate) fn incarnation(&self) -> u64 {
        self.config.life
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm
    }

    /// Due starts of schedules since the last call.
    pub(crate) fn take_due(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.due)
    }

    /// One batch that ends in a crash, and the process is down until it comes up.
    pub(crate) fn cycle_and_stop(&mut self, dice: &mut Dice) -> Result<(), String> {
        let crash = if dice.chance(50) { Crash::BeforeCommit } else { Crash::AfterCommit };
        self.cycle_with(crash, dice)?;
        self.is_down = true;
        Ok(())
    }

    /// A request that is answered at once, from memory.
    pub(crate) fn look(&mut self, request: Request) -> Result<Reply, String> {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let input = Input::Request { id, credential: Credential::None, request };
        let outputs = self.site.handle(input, self.now);
        let reply = self.carry_out(outputs)?.remove(&id);
        reply.ok_or_else(|| format!("{id:?} is not answered at once"))
    }

    /// The same as a pure observation: its other outputs are dropped.
    pub(crate) fn glance(&mut self, request: Request) -> Result<Reply, String> {
        let id = RequestId(u64::MAX);
        let input = Input::Request { id, credential: Credential::None, request };
        let outputs = self.site.handle(input, self.now);
        let answer = outputs.into_iter().find_map(|output| {
            let Output::Answer { id: of, answer } = output else { return None };
            (of == id).then_some(answer)
        });
        answer.ok_or_else(|| "nothing is answered at once".to_owned())
    }

    /// The records of a stream from one on.
    pub(crate) fn records(&self, of: StreamId, from: usize) -> Result<Vec<Vec<u8>>, String> {
        let records = self.store.read(of, Version(from as u64), usize::MAX);
        records.map_err(|error| format!("read: {error}"))
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }
}
