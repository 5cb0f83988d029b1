//! The data history of an instance: every value ever written, by whom and when.
//!
//! Versions are immutable and shared between copies of a state, so that copying a state never
//! copies a value. A reader gets the version of the last writer before it, which need not be the
//! newest one: a writer running parallel to the reader does not count.

use std::sync::Arc;

use legwork_model::id::{Activity, ElementId, Iteration, NodeId};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use minicbor::{Decode, Decoder, Encode, Encoder};

use super::precedence::Before;

#[derive(Clone, Default)]
pub(crate) struct Versions {
    /// For every element that was written, its newest version; ordered by element.
    newest: Vec<Arc<Link>>,
    /// Of all versions together.
    bytes: u64,
}

/// What a version takes in memory besides its value, about.
const LINK_BYTES: u64 = 64;

/// A version and, through it, all older ones of the same element.
struct Link {
    value: Value,
    older: Option<Arc<Link>>,
    at: Timestamp,
    element: ElementId,
    writer: NodeId,
    /// `None` outside of loops, to keep the common case small.
    iteration: Option<Box<Iteration>>,
}

impl Versions {
    pub(crate) fn write(
        &mut self,
        element: ElementId,
        value: Value,
        writer: &Activity,
        at: Timestamp,
    ) {
        self.bytes += LINK_BYTES + value.content_bytes() as u64;
        let iteration =
            (!writer.iteration.0.is_empty()).then(|| Box::new(writer.iteration.clone()));
        let link =
            |older| Arc::new(Link { value, older, at, element, writer: writer.node, iteration });
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

    /// The version valid for a reader: that of the last writer before it.
    pub(crate) fn valid(&self, before: &Before<'_>, element: ElementId) -> Option<&Value> {
        self.newest_first(element)
            .find(|link| before.contains(&link.activity()))
            .map(|link| &link.value)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All versions of an element, newest first.
    pub(crate) fn of(
        &self,
        element: ElementId,
    ) -> impl Iterator<Item = (&Value, Activity, Timestamp)> {
        self.newest_first(element).map(|link| (&link.value, link.activity(), link.at))
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

/// Takes a chain apart link by link: dropping it recursively could exhaust the stack after a loop
/// of many thousand iterations.
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
            (a.element, a.writer, a.at, &a.iteration, &a.value)
                == (b.element, b.writer, b.at, &b.iteration, &b.value)
        };
        self.newest.len() == other.newest.len()
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

/// A version as it stands in a snapshot.
#[derive(Decode)]
struct Stored {
    #[n(0)]
    element: ElementId,
    #[n(1)]
    writer: Activity,
    #[n(2)]
    at: Timestamp,
    #[n(3)]
    value: Value,
}

/// As one list, the older versions of an element before the newer ones.
impl<C> Encode<C> for Versions {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.begin_array()?;
        for newest in &self.newest {
            let mut links: Vec<&Link> = self.newest_first(newest.element).collect();
            links.reverse();
            for link in links {
                e.array(4)?;
                link.element.encode(e, ctx)?;
                link.activity().encode(e, ctx)?;
                link.at.encode(e, ctx)?;
                link.value.encode(e, ctx)?;
            }
        }
        e.end()?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Versions {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        let mut versions = Self::default();
        for stored in d.array_iter_with::<C, Stored>(ctx)? {
            let Stored { element, writer, at, value } = stored?;
            versions.write(element, value, &writer, at);
        }
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_long_history_is_dropped_and_copied_without_recursion() {
        let mut versions = Versions::default();
        let writer = Activity { node: NodeId(1), iteration: Iteration(vec![0]) };
        for count in 0..200_000 {
            versions.write(ElementId(0), Value::Int(count), &writer, Timestamp(count));
        }
        let bytes = minicbor::to_vec(&versions).unwrap();
        let copy: Versions = minicbor::decode(&bytes).unwrap();
        assert!(copy == versions);
        assert_eq!(copy.of(ElementId(0)).count(), 200_000);
        drop(versions);
        drop(copy);
    }
}
