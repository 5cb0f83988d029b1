//! The agents whose worklists the latest changes concern, so that no other agent's reader is woken.
//!
//! Invariant: an agent with something new to read is in the result, if they were asked about.

use legwork_model::id::AgentId;

use super::Worklists;

impl Worklists {
    /// The waiting agents whose own lists may have changed since the last call; the result may
    /// contain others. Visits all waiting or all concerned agents, whichever are fewer.
    pub fn take_concerned<'a>(
        &mut self,
        waiting: impl ExactSizeIterator<Item = &'a AgentId>,
    ) -> Vec<AgentId> {
        let Some(touched) = self.audiences.take_touched() else {
            return waiting.cloned().collect();
        };
        if waiting.len() == 0 || touched.is_empty() {
            return Vec::new();
        }
        let audiences = &self.audiences;
        let readers: Vec<(&[u32], Option<u32>)> =
            touched.iter().map(|&list| audiences.readers(list)).collect();
        let count: usize =
            readers.iter().map(|(members, holder)| members.len() + holder.iter().len()).sum();
        if count <= waiting.len() {
            let mut concerned: Vec<u32> = readers
                .iter()
                .flat_map(|(members, holder)| members.iter().chain(holder))
                .copied()
                .collect();
            concerned.sort_unstable();
            concerned.dedup();
            return concerned.into_iter().map(|number| audiences.name(number).clone()).collect();
        }
        let reads = |number: u32| {
            readers.iter().any(|(members, holder)| {
                *holder == Some(number) || members.binary_search(&number).is_ok()
            })
        };
        waiting.filter(|agent| audiences.roster.number(agent).is_some_and(reads)).cloned().collect()
    }
}
