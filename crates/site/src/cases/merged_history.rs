//! One history merged from the histories of several servers, page by page.
//!
//! Invariant: an entry stands after all its predecessors, which are the earlier records of its own server and all that
//! server had received from others by then. Where this leaves a choice, the earlier entry comes first, and of
//! simultaneous ones that of the server whose name sorts first. So the order follows from the parts alone, whichever
//! server merges them and however long the pages are.
//!
//! A receipt stands after its sending, by the number of the transfer, and after the originals of all entries it
//! carried. The second rule is needed because the sender may record more between sending and offering. Whether an
//! original that a part lacks was read before follows from its time, which is compared only to times of the server
//! where it happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use legwork_model::time::Timestamp;

type Name = Arc<str>;

/// What the order of an entry depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the record at the server of this part.
    pub record: u64,
    pub at: Timestamp,
    /// The server where it happened. If this is not the server of the part, the entry is a copy that came with a
    /// transfer.
    pub server: Name,
    pub kind: Name,
    pub step: Option<Name>,
    pub iteration: Vec<u32>,
    /// Of transfers: the other server, and the number of the transfer. A part of a long history that precedes its
    /// transfer has the number of that transfer.
    pub from: Option<Name>,
    pub to: Option<Name>,
    pub number: Option<u32>,
}

type Key = (Option<Name>, Vec<u32>, Name);

impl Line {
    /// Unique, since an activity ends once.
    fn key(&self) -> Key {
        (self.step.clone(), self.iteration.clone(), self.kind.clone())
    }
}

/// A window of one server's records. If the server has more, the window ends after a record for which
/// `Frontier::is_past` holds, so never within the millisecond up to which earlier pages were read.
#[derive(Debug)]
pub struct Part<E> {
    server: Name,
    records: VecDeque<Recorded<E>>,
    /// Whether the server holds more records than these.
    has_more: bool,
    /// The record of each event that happened at this server.
    own: BTreeMap<Key, u64>,
}

#[derive(Debug)]
struct Recorded<E> {
    number: u64,
    at: Timestamp,
    lines: Vec<(Line, E)>,
}

/// How far the parts have been read: where the next page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    servers: BTreeMap<Name, Reached>,
    /// By sender and receiver.
    transfers: BTreeMap<(Name, Name), Transfers>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    records: u64,
    at: i64,
    /// Whether the server could not be asked. It stays so up to the last page, so that no entry appears twice.
    is_away: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Transfers {
    sent: u32,
    delivered: u32,
}

/// A page of the whole history.
#[derive(Debug)]
pub struct Merged<E> {
    pub entries: Vec<E>,
    /// Whether there are more entries after the page.
    pub has_more: bool,
    /// A part depends on entries that another part lacked when it was read. The parts have to be read again; if that
    /// does not help, the entries are lost.
    pub is_cut: bool,
}

impl<E> Part<E> {
    pub fn new(server: Name, entries: Vec<E>, has_more: bool, line: impl Fn(&E) -> Line) -> Self {
        let mut records: VecDeque<Recorded<E>> = VecDeque::new();
        let mut own = BTreeMap::new();
        for entry in entries {
            let line = line(&entry);
            let is_own = line.server == server;
            if is_own {
                own.insert(line.key(), line.record);
            }
            match records.back_mut().filter(|last| last.number == line.record) {
                Some(record) => {
                    record.at = line.at;
                    record.lines.push((line, entry));
                }
                None => {
                    let (number, at) = (line.record, line.at);
                    records.push_back(Recorded { number, at, lines: vec![(line, entry)] });
                }
            }
        }
        Self { server, records, has_more, own }
    }

    /// The servers named in the part.
    pub fn named(&self) -> BTreeSet<Name> {
        let lines = self.records.iter().flat_map(|record| &record.lines);
        let names = lines.flat_map(|(line, _)| {
            [Some(&line.server), line.from.as_ref(), line.to.as_ref()].into_iter().flatten()
        });
        names.cloned().collect()
    }

    /// Whether an event that happened here is still to come.
    fn is_ahead(&self, key: &Key) -> bool {
        let next = self.records.front().map(|record| record.number);
        let place = self.own.get(key);
        next.is_some_and(|next| place.is_some_and(|place| *place >= next))
    }
}

impl Frontier {
    /// Number of records read of a server.
    pub fn records(&self, server: &str) -> u64 {
        self.servers.get(server).map_or(0, |reached| reached.records)
    }

    pub fn is_begun(&self) -> bool {
        self.servers.values().any(|reached| reached.records > 0)
    }

    /// A server that cannot be asked.
    pub fn miss(&mut self, server: Name) {
        self.servers.entry(server).or_default().is_away = true;
    }

    pub fn is_missed(&self, server: &str) -> bool {
        self.servers.get(server).is_some_and(|reached| reached.is_away)
    }

    pub fn missed(&self) -> Vec<Name> {
        let missed = self.servers.iter().filter(|(_, reached)| reached.is_away);
        missed.map(|(name, _)| name.clone()).collect()
    }

    pub fn servers(&self) -> impl Iterator<Item = &Name> {
        self.servers.keys()
    }

    /// Whether a record of a server is later than all that was read there. A part that reaches such a record has all
    /// entries of the last moment read, except those read before.
    pub fn is_past(&self, server: &str, at: Timestamp) -> bool {
        at.0 > self.at(server)
    }

    fn at(&self, server: &str) -> i64 {
        self.servers.get(server).map_or(i64::MIN, |reached| reached.at)
    }

    fn sent(&self, from: &Name, to: &Name) -> u32 {
        self.transfers.get(&(from.clone(), to.clone())).map_or(0, |transfers| transfers.sent)
    }

    fn transfers(&mut self, from: &Name, to: &Name) -> &mut Transfers {
        self.transfers.entry((from.clone(), to.clone())).or_default()
    }

    /// Counts the transfers in progress up to this line.
    fn count_transfers(&mut self, line: &Line) {
        let Line { server, from, to, number, .. } = line;
        match (&*line.kind, from, to) {
            ("sent", _, Some(to)) => self.transfers(server, to).sent = number.unwrap_or(0),
            ("delivered", _, Some(to)) => {
                self.transfers(server, to).delivered = number.unwrap_or(0)
            }
            ("redirected", Some(from), to) => {
                // The numbers of redirected transfers are free again; they continue the numbers for the other server.
                let before = self.transfers(server, from);
                let waiting = before.sent.saturating_sub(before.delivered);
                before.sent = before.delivered;
                if let Some(to) = to {
                    self.transfers(server, to).sent += waiting;
                }
            }
            (_, _, _) => {}
        }
    }
}

/// The next page, of at most `limit` records. Each part begins where the page before has ended, or at the beginning if
/// a server cannot be asked, and has at least `limit` records more if its server has. `lost`: do not wait for entries
/// that no part has.
pub fn merge<E>(
    parts: Vec<Part<E>>,
    reached: &mut Frontier,
    limit: usize,
    lost: bool,
) -> Merged<E> {
    let mut merge = Merge { parts, begin: reached.clone(), reached, copies: BTreeSet::new() };
    merge.skip();
    let (mut entries, mut is_cut) = (Vec::new(), false);
    for _ in 0..limit {
        // Later records of such a part may precede those of the others.
        if merge.parts.iter().any(|part| part.has_more && part.records.is_empty()) {
            break;
        }
        let Some((place, is_ready)) = merge.next() else { break };
        if !is_ready && !lost {
            is_cut = true;
            break;
        }
        merge.take(place, &mut entries);
    }
    let has_more = merge.parts.iter().any(|part| part.has_more || !part.records.is_empty());
    Merged { entries, has_more: has_more && !is_cut, is_cut }
}

struct Merge<'r, E> {
    parts: Vec<Part<E>>,
    /// Where this page begins.
    begin: Frontier,
    reached: &'r mut Frontier,
    /// Copies that replace the entries of servers that cannot be asked.
    copies: BTreeSet<(Name, Key)>,
}

impl<E> Merge<'_, E> {
    /// Skips what earlier pages had.
    fn skip(&mut self) {
        for part in &mut self.parts {
            let read = self.reached.records(&part.server);
            while let Some(record) = part.records.pop_front_if(|record| record.number < read) {
                let copies = record.lines.into_iter().map(|(line, _)| line);
                let copies = copies.filter(|line| line.server != part.server);
                self.copies.extend(copies.map(|line| (line.server.clone(), line.key())));
            }
        }
    }

    /// The part whose record comes next, and whether that record is ready. No record is ready if a predecessor is in no
    /// part.
    fn next(&self) -> Option<(usize, bool)> {
        let heads = self.parts.iter().enumerate();
        let heads = heads.filter_map(|(place, part)| Some((place, part, part.records.front()?)));
        let mut heads: Vec<_> = heads.collect();
        heads.sort_by_key(|(_, part, record)| {
            // An acknowledgement is recorded after the arrival, even in the same millisecond.
            let is_receipt = record.lines.iter().all(|(line, _)| &*line.kind == "delivered");
            (record.at, is_receipt, &part.server)
        });
        let ready = heads.iter().find(|(_, part, record)| self.is_ready(part, record));
        ready.or(heads.first()).map(|(place, _, _)| (*place, ready.is_some()))
    }

    /// Whether all predecessors of a record at other servers were taken.
    fn is_ready(&self, part: &Part<E>, record: &Recorded<E>) -> bool {
        // The last copies are the latest, and most likely not taken yet.
        record.lines.iter().rev().all(|(line, _)| {
            if line.server != part.server { self.is_taken(line) } else { self.has_come(line) }
        })
    }

    fn part(&self, server: &str) -> Option<&Part<E>> {
        self.parts.iter().find(|part| &*part.server == server)
    }

    /// Whether the sending of a received transfer was taken, if its sender can be asked.
    fn has_come(&self, line: &Line) -> bool {
        let Some(from) = line.from.as_ref().filter(|_| &*line.kind == "received") else {
            return true;
        };
        let is_sent = self.reached.sent(from, &line.server) >= line.number.unwrap_or(0);
        is_sent || self.part(from).is_none()
    }

    /// Whether the original of a copy was taken, if its server can be asked.
    fn is_taken(&self, copy: &Line) -> bool {
        let Some(part) = self.part(&copy.server) else { return true };
        let key = copy.key();
        match part.own.contains_key(&key) {
            true => !part.is_ahead(&key),
            // Read for an earlier page, or later than what the part has.
            false => !self.begin.is_past(&part.server, copy.at),
        }
    }

    /// Takes the next record of a part, without copies whose originals are in another part.
    fn take(&mut self, place: usize, entries: &mut Vec<E>) {
        let Some(part) = self.parts.get_mut(place) else { return };
        let Some(record) = part.records.pop_front() else { return };
        let server = part.server.clone();
        for (line, entry) in record.lines {
            if line.server == server {
                self.reached.count_transfers(&line);
                entries.push(entry);
            } else if self.is_missing(&line) {
                entries.push(entry);
            }
        }
        let reached = self.reached.servers.entry(server).or_default();
        (reached.records, reached.at) = (record.number + 1, record.at.0.max(reached.at));
    }

    /// Whether the original of a copy is in no part.
    fn is_missing(&mut self, line: &Line) -> bool {
        let key = line.key();
        let has_original = self.part(&line.server).is_some_and(|part| part.own.contains_key(&key));
        let is_read = self.reached.at(&line.server) >= line.at.0;
        !has_original && !is_read && self.copies.insert((line.server.clone(), key))
    }
}

impl Display for Frontier {
    /// `north-1.12.1763499600000_south-1.3.1763499600123.away_north-1~south-1.2.2`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for (server, Reached { records, at, is_away }) in &self.servers {
            write!(f, "{gap}{server}.{records}.{at}{}", if *is_away { ".away" } else { "" })?;
            gap = "_";
        }
        for ((from, to), Transfers { sent, delivered }) in &self.transfers {
            write!(f, "{gap}{from}~{to}.{sent}.{delivered}")?;
            gap = "_";
        }
        Ok(())
    }
}

/// The cursor was not made by an earlier page.
#[derive(Debug, thiserror::Error)]
#[error("the cursor is neither 0 nor the `next` of an earlier page")]
pub struct BadCursor;

impl FromStr for Frontier {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut frontier = Self::default();
        if text == "0" {
            return Ok(frontier);
        }
        for item in text.split('_') {
            let mut fields = item.split('.');
            let name = fields.next().ok_or(BadCursor)?;
            let (first, second) =
                (fields.next().ok_or(BadCursor)?, fields.next().ok_or(BadCursor)?);
            let away = fields.next();
            match name.split_once('~') {
                Some((from, to)) => {
                    let sent = first.parse().map_err(|_| BadCursor)?;
                    let delivered = second.parse().map_err(|_| BadCursor)?;
                    *frontier.transfers(&from.into(), &to.into()) = Transfers { sent, delivered };
                }
                None => {
                    let records = first.parse().map_err(|_| BadCursor)?;
                    let at = second.parse().map_err(|_| BadCursor)?;
                    let reached = Reached { records, at, is_away: away == Some("away") };
                    frontier.servers.insert(name.into(), reached);
                }
            }
        }
        Ok(frontier)
    }
}

#[cfg(test)]
mod tests;
