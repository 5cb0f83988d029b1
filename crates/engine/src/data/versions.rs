//! The data history of an instance: every value ever written, with its writer and time.
//!
//! Versions are immutable and shared between copies of a state, so copying a state never copies a
//! value. A reader gets the version of the last writer before it, which need not be the newest one:
//! a writer running parallel to the reader does not count. The value of a version that was written
//! at another server may still be there.

use std::sync::Arc;

use legwork_model::event::FetchedValue;
use legwork_model::id::{Activity, ElementId, Iteration, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use minicbor::{Decode, Decoder, Encode, Encoder};

use super::precedence::Before;

#[derive(Clone, Default)]
pub(crate) struct Versions {
    /// For every written element its newest version; ordered by element.
    newest: Vec<Arc<Link>>,
    /// Values that arrived later than their versions, if any.
    fetched: Option<Arc<Vec<Arc<FetchedValue>>>>,
    /// The size of all versions together.
    bytes: u64,
}

/// One version of a data element; its value may be at another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// `None` if it is still at `server`.
    pub(crate) value: Option<&'a Value>,
    pub(crate) writer: Activity,
    pub(crate) at: Timestamp,
    /// The server that controlled the writer; `None` for this server.
    pub(crate) server: Option<ServerId>,
}

/// A version to write.
pub(crate) struct Written<'a> {
    pub(crate) element: ElementId,
    pub(crate) value: Option<Value>,
    pub(crate) writer: &'a Activity,
    pub(crate) at: Timestamp,
    pub(crate) server: Option<ServerId>,
}

/// The approximate memory of a version besides its value.
const LINK_BYTES: u64 = 64;

/// The approximate memory of a version.
pub(crate) fn version_bytes(value: Option<&Value>) -> u64 {
    LINK_BYTES + value.map_or(0, Value::content_bytes) as u64
}

/// A version and, through it, all older ones of the same element.
struct Link {
    value: Option<Value>,
    older: Option<Arc<Link>>,
    at: Timestamp,
    element: ElementId,
    writer: NodeId,
    server: Option<ServerId>,
    /// `None` outside of loops, to keep the common case small.
    iteration: Option<Box<Iteration>>,
}

impl Versions {
    pub(crate) fn write(&mut self, written: Written<'_>) {
        let Written { element, value, writer, at, server } = written;
        self.bytes += version_bytes(value.as_ref());
        let iteration =
            (!writer.iteration.0.is_empty()).then(|| Box::new(writer.iteration.clone()));
        let writer = writer.node;
        let link = |older| Arc::new(Link { value, older, at, element, writer, server, iteration });
        match self.place(element) {
            Ok(place) => {
                let older = self.newest[place].clone();
                self.newest[place] = link(Some(older));
            }
            Err(place) => {
                self.newest.reserve_exact(1);
                self.newest.insert(place, link(None));
            }
        }
    }

    /// Adds the value of a version that was at another server.
    pub(crate) fn fetched(&mut self, value: FetchedValue) {
        self.bytes += value.value.content_bytes() as u64;
        Arc::make_mut(self.fetched.get_or_insert_default()).push(Arc::new(value));
    }

    /// The version valid for a reader: that of the last writer before it.
    pub(crate) fn valid(&self, before: &Before<'_>, element: ElementId) -> Option<Found<'_>> {
        let mut links = self.newest_first(element);
        links.find(|link| before.contains(&link.activity())).map(|link| self.found(link))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All versions of an element, newest first.
    pub(crate) fn of(&self, element: ElementId) -> impl Iterator<Item = Found<'_>> {
        self.newest_first(element).map(|link| self.found(link))
    }

    /// The version of an element written by an activity.
    pub(crate) fn by(&self, element: ElementId, writer: &Activity) -> Option<Found<'_>> {
        let mut links = self.newest_first(element);
        links.find(|link| link.activity() == *writer).map(|link| self.found(link))
    }

    /// The newest local value of each element.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Value> {
        self.newest.iter().filter_map(|link| self.found(link).value)
    }

    fn found<'a>(&'a self, link: &'a Link) -> Found<'a> {
        let writer = link.activity();
        let is_it =
            |value: &&Arc<FetchedValue>| value.element == link.element && value.writer == writer;
        let fetched =
            || self.fetched.as_ref()?.iter().rev().find(is_it).map(|fetched| &fetched.value);
        let value = link.value.as_ref().or_else(fetched);
        Found { value, writer, at: link.at, server: link.server }
    }

    fn newest_first(&self, element: ElementId) -> impl Iterator<Item = &Link> {
        let newest = self.place(element).ok().map(|place| &*self.newest[place]);
        std::iter::successors(newest, |link| link.older.as_deref())
    }

    fn place(&self, element: ElementId) -> Result<usize, usize> {
        self.newest.binary_search_by_key(&element, |link| link.element)
    }
}

impl Link {
    fn activity(&self) -> Activity {
        let iteration = self.iteration.as_deref().cloned().unwrap_or_default();
        Activity { node: self.writer, iteration }
    }
}

/// Drops a chain link by link: recursion could exhaust the stack after a loop of many thousand
/// iterations.
impl Drop for Link {
    fn drop(&mut self) {
        let mut older = self.older.take();
        while let Some(mut link) = older.and_then(Arc::into_inner) {
            older = link.older.take();
        }
    }
}

impl PartialEq for Versions {
    fn eq(&self, other: &Self) -> bool {
        let alike = |a: &Link, b: &Link| {
            (a.element, a.writer, a.at, &a.iteration, &a.value, a.server)
                == (b.element, b.writer, b.at, &b.iteration, &b.value, b.server)
        };
        self.newest.len() == other.newest.len()
            && self.fetched == other.fetched
            && self.newest.iter().zip(&other.newest).all(|(mine, theirs)| {
                Arc::ptr_eq(mine, theirs) || {
                    let mine = std::iter::successors(Some(&**mine), |l| l.older.as_deref());
                    let mut theirs = std::iter::successors(Some(&**theirs), |l| l.older.as_deref());
                    mine.into_iter().all(|a| theirs.next().is_some_and(|b| alike(a, b)))
                        && theirs.next().is_none()
                }
            })
    }
}

impl Eq for Versions {}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.newest.iter().flat_map(|newest| self.of(newest.element));
        f.debug_list().entries(all).finish()
    }
}

/// A version in a snapshot.
#[derive(Decode)]
struct Stored {
    #[n(0)]
    element: ElementId,
    #[n(1)]
    writer: Activity,
    #[n(2)]
    at: Timestamp,
    #[n(3)]
    value: Option<Value>,
    #[n(4)]
    server: Option<ServerId>,
}

/// The versions, as one list with the older ones of an element before the newer ones; then the
/// values that arrived later.
impl<C> Encode<C> for Versions {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.array(2)?.begin_array()?;
        for newest in &self.newest {
            let mut links: Vec<&Link> = self.newest_first(newest.element).collect();
            links.reverse();
            for link in links {
                e.array(5)?;
                link.element.encode(e, ctx)?;
                link.activity().encode(e, ctx)?;
                link.at.encode(e, ctx)?;
                link.value.encode(e, ctx)?;
                link.server.encode(e, ctx)?;
            }
        }
        let fetched = self.fetched.as_ref().map_or(&[][..], |fetched| fetched);
        e.end()?.array(fetched.len() as u64)?;
        fetched.iter().try_for_each(|value| value.encode(e, ctx))
    }
}

impl<'b, C> Decode<'b, C> for Versions {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        let mut versions = Self::default();
        if d.array()? != Some(2) {
            return Err(minicbor::decode::Error::message("not the versions of a state"));
        }
        for stored in d.array_iter_with::<C, Stored>(ctx)? {
            let Stored { element, writer, at, value, server } = stored?;
            versions.write(Written { element, value, writer: &writer, at, server });
        }
        for value in d.array_iter_with::<C, FetchedValue>(ctx)? {
            versions.fetched(value?);
        }
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_came_later_is_not_copied_with_the_state() {
        let mut versions = Versions::default();
        let writer = |node| Activity::once(NodeId(node));
        for node in [1, 2] {
            versions.write(Written {
                element: ElementId(0),
                value: None,
                writer: &writer(node),
                at: Timestamp(1),
                server: Some(ServerId(3)),
            });
        }
        let fetched = |node| FetchedValue {
            element: ElementId(0),
            writer: writer(node),
            value: Value::String("long".to_owned()),
        };
        versions.fetched(fetched(1));
        let mut next = versions.clone();
        next.fetched(fetched(2));
        let value = |of: &Versions, node| {
            of.by(ElementId(0), &writer(node)).and_then(|found| found.value).map(std::ptr::from_ref)
        };
        assert_eq!(value(&next, 1), value(&versions, 1));
        assert!(value(&next, 2).is_some() && value(&versions, 2).is_none());
        assert!(minicbor::decode::<Versions>(&minicbor::to_vec(&next).unwrap()).unwrap() == next);
    }

    #[test]
    fn a_very_long_history_is_dropped_and_copied_without_recursion() {
        let mut versions = Versions::default();
        let writer = Activity { node: NodeId(1), iteration: Iteration(vec![0]) };
        for count in 0..200_000 {
            versions.write(Written {
                element: ElementId(0),
                value: Some(Value::Int(count)),
                writer: &writer,
                at: Timestamp(count),
                server: None,
            });
        }
        let bytes = minicbor::to_vec(&versions).unwrap();
        let copy: Versions = minicbor::decode(&bytes).unwrap();
        assert!(copy == versions);
        assert_eq!(copy.of(ElementId(0)).count(), 200_000);
        drop(versions);
        drop(copy);
    }
}
