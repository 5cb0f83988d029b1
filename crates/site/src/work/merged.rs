//! A person's list as answered by this server: its own items and those received from other servers.
//!
//! Invariant: the list is merged on request and never stored. Every item names the server that has it.

use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;
use legwork_org::{Cursor, MergedCursor, MergedDelta, MergedItem, MergedRead, There};

use crate::Site;
use crate::answer::{Answer, ItemInfo, Unreachable, WorklistView};
use crate::message;
use crate::refusal::Refusal;
use crate::work::items::{bad_cursor, info, public_name};

impl Site {
    /// The merged list of a person, if there are other servers.
    pub(crate) fn merged_read<'a>(
        &'a self,
        agent: &'a AgentId,
        now: Timestamp,
    ) -> Option<MergedRead<'a, message::Item>> {
        let here = self.cluster.seat.as_ref()?.here;
        let elsewhere = &self.work.following.person(agent)?.elsewhere;
        let organisation = self.catalog.organisation();
        Some(MergedRead { organisation, agent, now, here, elsewhere })
    }

    pub(crate) fn merged_now(
        &self,
        read: &MergedRead<'_, message::Item>,
        since: Option<&str>,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        let since = match since.map(|text| (text.parse::<MergedCursor>(), text)) {
            None => None,
            Some((Ok(cursor), _)) => Some(cursor),
            // A cursor from before other servers joined.
            Some((Err(_), text)) if text.parse::<Cursor>().is_ok() => None,
            Some((Err(_), _)) => return Err(bad_cursor()),
        };
        let MergedDelta { cursor, reset, items, removed, removed_there, more } =
            self.work.worklists.list_merged(read, since, limit);
        let removed = removed.iter().map(|gone| public_name(&gone.schema, &gone.key));
        let items = items.into_iter().map(|item| match item {
            MergedItem::Here(view) => ItemInfo {
                server: self.cluster.server_name(read.here),
                ..info(&view, &self.cases.instances)
            },
            MergedItem::There(There { activity, server, stale, item, .. }) => {
                item.info(activity, self.cluster.server_name(server), stale)
            }
        });
        let unreachable = read.elsewhere.unreachable().filter_map(|(server, since)| {
            Some(Unreachable { server: self.cluster.server_name(server)?, since })
        });
        Ok(Answer::Worklist(WorklistView {
            cursor: cursor.to_string(),
            reset,
            items: items.collect(),
            removed: removed.chain(removed_there.into_iter().cloned()).collect(),
            more,
            unreachable: unreachable.collect(),
        }))
    }
}

/// Two iterators in sequence.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl<T, A: Iterator<Item = T>, B: Iterator<Item = T>> Iterator for Both<A, B> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next().or_else(|| self.1.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (first, second) = (self.0.size_hint(), self.1.size_hint());
        (first.0 + second.0, first.1.zip(second.1).map(|(first, second)| first + second))
    }
}

impl<T, A, B> ExactSizeIterator for Both<A, B>
where
    A: ExactSizeIterator<Item = T>,
    B: ExactSizeIterator<Item = T>,
{
}
