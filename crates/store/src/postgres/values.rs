//! Values on the wire: ids of streams as `uuid`, versions as `integer`.
//!
//! Invariant: ids have the same order in the database as here.

use std::error::Error as StdError;

use bytes::BytesMut;
use legwork_model::id::StreamId;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::{RECORDS_PER_STREAM_MAX, Version};

pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

type Fault = Box<dyn StdError + Sync + Send>;

// A version is an `integer` there, which has a sign.
const _: () = assert!(RECORDS_PER_STREAM_MAX <= i32::MAX as u64);

/// A `uuid` is 16 bytes that are compared from the left, as our numbers are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(pub(super) StreamId);

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        out.extend_from_slice(&self.0.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl FromSql<'_> for Id {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Fault> {
        Ok(Self(StreamId(u128::from_be_bytes(raw.try_into()?))))
    }

    accepts!(UUID);
}

/// `None` for a version that no stream can have.
pub(super) fn to_integer(version: Version) -> Option<i32> {
    i32::try_from(version.0).ok()
}

/// A negative number is no version, and never occurs.
pub(super) fn to_version(integer: i32) -> Version {
    Version(u64::try_from(integer).unwrap_or(0))
}

/// A row limit.
pub(super) fn to_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
