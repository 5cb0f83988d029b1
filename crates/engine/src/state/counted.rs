//! Accepted results of executors in earlier iterations.
//!
//! All are kept, as executors may ask for as long as they live. Copies of a state share them: a step
//! may have run many thousand times.

use std::fmt;
use std::sync::Arc;

use legwork_model::event::{Performer, RequestDigest};
use minicbor::{Decode, Decoder, Encode, Encoder};

#[derive(Clone, Default)]
pub(crate) struct Counted(Option<Arc<Link>>);

/// The result of one iteration and, through it, those of all earlier ones.
struct Link {
    result: Outcome,
    older: Option<Arc<Link>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct Outcome {
    #[n(0)]
    by: Performer,
    /// The assignment, in the place of the request.
    #[n(1)]
    request: RequestDigest,
}

impl Counted {
    pub(crate) fn push(&mut self, by: Performer, request: RequestDigest) {
        let result = Outcome { by, request };
        self.0 = Some(Arc::new(Link { result, older: self.0.take() }));
    }

    /// Whether that result of an executor was accepted, whether it is recorded as an executor or as a
    /// worker.
    pub(crate) fn contains(&self, executor: &str, request: RequestDigest) -> bool {
        let is_own = |by: &Performer| by.program().is_some_and(|name| **name == *executor);
        self.newest_first().any(|result| result.request == request && is_own(&result.by))
    }

    fn newest_first(&self) -> impl Iterator<Item = &Outcome> {
        let links = std::iter::successors(self.0.as_deref(), |link| link.older.as_deref());
        links.map(|link| &link.result)
    }
}

/// Drops a chain link by link: recursion could exhaust the stack.
impl Drop for Link {
    fn drop(&mut self) {
        let mut older = self.older.take();
        while let Some(mut link) = older.and_then(Arc::into_inner) {
            older = link.older.take();
        }
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same || self.newest_first().eq(other.newest_first())
    }
}

impl Eq for Counted {}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.newest_first()).finish()
    }
}

/// A list, oldest first.
impl<C> Encode<C> for Counted {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let all: Vec<&Outcome> = self.newest_first().collect();
        e.array(all.len() as u64)?;
        all.into_iter().rev().try_for_each(|result| result.encode(e, ctx))
    }
}

impl<'b, C> Decode<'b, C> for Counted {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, minicbor::decode::Error> {
        let mut counted = Self::default();
        for result in d.array_iter_with::<C, Outcome>(ctx)? {
            let Outcome { by, request } = result?;
            counted.push(by, request);
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counted_is_known_after_any_number_of_rounds_and_from_a_snapshot() {
        let (crm, erp) = (Performer::Worker("crm".into()), Performer::Executor("erp".into()));
        let mut counted = Counted::default();
        (0..200_000).for_each(|lease| counted.push(crm.clone(), RequestDigest(lease)));
        let has = |of: &Counted, by, lease| of.contains(by, RequestDigest(lease));
        assert!(has(&counted, "crm", 0) && has(&counted, "crm", 199_999));
        assert!(!has(&counted, "erp", 7) && !has(&counted, "crm", 200_000));
        let before = counted.clone();
        counted.push(erp.clone(), RequestDigest(200_000));
        assert!(has(&counted, "erp", 200_000) && !has(&before, "erp", 200_000));
        let read: Counted = minicbor::decode(&minicbor::to_vec(&counted).unwrap()).unwrap();
        assert!(read == counted && read != before);
    }
}
