//! Checks whether a database can be a store, and creates or migrates its tables.
//!
//! Invariant: tables are changed under a lock of the whole database and in one transaction: of several
//! servers that start at once one does it, and the others find it done.

use std::path::PathBuf;

use super::place::Place;
use super::session::{Failure, Session};
use crate::Error;

/// The format that this program writes, and the newest one it opens.
pub const FORMAT: u32 = STEPS.len() as u32;

/// The migration from each format to the next.
const STEPS: [&str; 1] = [include_str!("1.sql")];

/// The oldest PostgreSQL that the statements are tested with.
const SERVER_MIN: i32 = 15;
/// An arbitrary constant: "legwork" in ASCII.
const LOCK: i64 = 0x006c_6567_776f_726b;

pub(super) fn prepare(place: &Place, session: &mut Session) -> Result<(), Error> {
    let failed = |failure: Failure| failure.told("preparing", place);
    check(place, session)?;
    if format(session).map_err(failed)? == Some(FORMAT) {
        return Ok(());
    }
    let found = session.transaction(|| update(session)).map_err(failed)?;
    if found > FORMAT {
        let path = PathBuf::from(place.name());
        return Err(Error::NewerFormat { path, found, known: FORMAT });
    }
    Ok(())
}

/// Refuses a database that could lose acknowledged commits, or is read-only.
fn check(place: &Place, session: &Session) -> Result<(), Error> {
    const SQL: &str = "SELECT current_setting('server_version_num')::integer / 10000, \
                       current_setting('fsync') = 'on', pg_is_in_recovery()";
    let rows = session.query(SQL, &[]).map_err(|failure| failure.told("checking", place))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let unsuitable = |reason: String| Error::Unsuitable { place: place.name().to_owned(), reason };
    let (version, synced, copies): (i32, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if version < SERVER_MIN {
        let reason = format!("it is PostgreSQL {version}; use PostgreSQL {SERVER_MIN} or newer");
        return Err(unsuitable(reason));
    }
    if !synced {
        let reason = "its fsync is off, so that a crash could take back what was acknowledged; \
                      set fsync=on in postgresql.conf and restart it";
        return Err(unsuitable(reason.to_owned()));
    }
    if copies {
        let reason = "it copies another server and cannot be written; name the primary, or several \
                      hosts with target_session_attrs=read-write";
        return Err(unsuitable(reason.to_owned()));
    }
    Ok(())
}

/// `None` if the tables do not exist. Queries the catalogs directly: functions that look up names use
/// the session's snapshot, which may be older.
fn format(session: &Session) -> Result<Option<u32>, Failure> {
    const IS_MADE: &str = "SELECT 1 FROM pg_class JOIN pg_namespace ON \
         pg_namespace.oid = relnamespace WHERE nspname = 'legwork' AND relname = 'format'";
    const NEWEST: &str = "SELECT coalesce(max(version), 0) FROM legwork.format";
    if session.query(IS_MADE, &[])?.is_empty() {
        return Ok(None);
    }
    let rows = session.query(NEWEST, &[])?;
    let newest: i32 = rows.first().map_or(0, |row| row.get(0));
    Ok(Some(u32::try_from(newest).unwrap_or(0)))
}

/// The format before the migration. In a transaction.
fn update(session: &Session) -> Result<u32, Failure> {
    const IS_THERE: &str = "SELECT 1 FROM pg_namespace WHERE nspname = 'legwork'";
    session.execute(&format!("SELECT pg_advisory_xact_lock({LOCK})"))?;
    let found = format(session)?.unwrap_or(0);
    if found == 0 && session.query(IS_THERE, &[])?.is_empty() {
        session.execute("CREATE SCHEMA legwork")?;
    }
    for (number, step) in (1..).zip(STEPS).skip(found as usize) {
        session.execute(step)?;
        session.execute(&format!("INSERT INTO legwork.format (version) VALUES ({number})"))?;
    }
    Ok(found)
}
