//! A person's list over all servers: the local items merged with the known items of other servers.
//!
//! Invariant: oldest first, whatever the server; of the same moment the lower server number first.
//! Both parts are read with one cursor and start over together.

use std::fmt;
use std::str::FromStr;

use legwork_model::id::{ActivityId, AgentId, ParseError, ServerId};
use legwork_model::time::Timestamp;

use super::Worklists;
use super::cursor::Cursor;
use super::elsewhere::{Aged, Elsewhere, Position, There};
use super::read::{ItemView, PAGE_MAX, Removed};
use crate::organisation::Organisation;

/// A position in a merged list. Displays as text for clients to hand back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MergedCursor {
    here: Cursor,
    there: Position,
}

/// Like `Delta`, over all servers.
#[derive(Debug)]
pub struct MergedDelta<'e, T> {
    pub cursor: MergedCursor,
    pub reset: bool,
    /// Oldest first.
    pub items: Vec<MergedItem<'e, T>>,
    /// Removed items of this server.
    pub removed: Vec<Removed>,
    /// Removed items of other servers.
    pub removed_there: Vec<&'e ActivityId>,
    pub more: bool,
}

#[derive(Debug)]
pub enum MergedItem<'e, T> {
    Here(Box<ItemView>),
    There(There<'e, T>),
}

/// The parameters of a read.
#[derive(Debug)]
pub struct MergedRead<'e, T> {
    pub organisation: &'e Organisation,
    pub agent: &'e AgentId,
    pub now: Timestamp,
    /// The number of this server.
    pub here: ServerId,
    pub elsewhere: &'e Elsewhere<T>,
}

impl Worklists {
    /// The agent's list at all servers since the cursor, at most `limit` items; from the beginning
    /// without a cursor or with one that no longer fits.
    pub fn list_merged<'e, T>(
        &self,
        read: &MergedRead<'e, T>,
        since: Option<MergedCursor>,
        limit: usize,
    ) -> MergedDelta<'e, T> {
        let limit = limit.clamp(1, PAGE_MAX);
        let MergedRead { organisation, agent, now, here, elsewhere } = *read;
        let reader = self.reader(organisation, agent, now);
        let fitting = since
            .filter(|cursor| self.fits(&cursor.here, &reader) && elsewhere.fits(&cursor.there));
        let mut there = fitting.map_or_else(|| elsewhere.beginning(), |cursor| cursor.there);
        let (changed, removed_there) = elsewhere.read_changes(&mut there, limit.div_ceil(2), limit);
        let rest = limit - changed.len();
        // A local item comes after older items of other servers.
        let position = there;
        let mut others = elsewhere.items_after(&position).peekable();
        let mut ahead = 0;
        let own = self.page(&reader, fitting.map(|cursor| cursor.here), rest, |at| {
            while ahead < rest && others.next_if(|other| (other.0, other.1) < (at, here)).is_some()
            {
                ahead += 1;
            }
            ahead
        });
        let new = elsewhere.read_items(&mut there, rest.saturating_sub(own.items.len()));
        let told = changed.into_iter().chain(new);
        let mut items: Vec<_> = told
            .map(|(Aged(at, server, _), item)| (at, server, MergedItem::There(item)))
            .chain(
                own.items
                    .into_iter()
                    .map(|view| (view.item.offered_at, here, MergedItem::Here(Box::new(view)))),
            )
            .collect();
        items.sort_by_key(|(at, server, _)| (*at, *server));
        MergedDelta {
            cursor: MergedCursor { here: own.cursor, there },
            reset: fitting.is_none(),
            items: items.into_iter().map(|(_, _, item)| item).collect(),
            removed: own.removed,
            removed_there,
            more: own.more || elsewhere.has_more(&there),
        }
    }

    /// Whether `list_merged` may have news since the cursor. False positives are possible, false
    /// negatives are not.
    pub fn merged_changed_since<T>(&self, read: &MergedRead<'_, T>, cursor: MergedCursor) -> bool {
        let MergedRead { organisation, agent, now, elsewhere, .. } = *read;
        self.changed_since(organisation, agent, now, cursor.here)
            || !elsewhere.fits(&cursor.there)
            || elsewhere.has_more(&cursor.there)
    }
}

impl fmt::Display for MergedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { number, aged: Aged(Timestamp(at), ServerId(server), order), changed } =
            self.there;
        write!(f, "{}-{number:x}-{at:x}-{server:x}-{order:x}-{changed:x}", self.here)
    }
}

impl FromStr for MergedCursor {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let numbers = super::cursor::numbers(text)?;
        let [epoch, fingerprint, aged, order, changed, there @ ..] = numbers.as_slice() else {
            return Err(super::cursor::wrong(text));
        };
        let here = Cursor::from_numbers([*epoch, *fingerprint, *aged, *order, *changed]);
        let &[number, at, server, order, changed] = there else {
            return Err(super::cursor::wrong(text));
        };
        let server = u16::try_from(server).map_err(|_| super::cursor::wrong(text))?;
        let aged = Aged(Timestamp(at.cast_signed()), ServerId(server), order);
        Ok(Self { here, there: Position { number, aged, changed } })
    }
}
