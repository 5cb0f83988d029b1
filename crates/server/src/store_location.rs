//! Whether this process can drive a server, given the location of that server's store.
//!
//! Invariant: the answer is yes only if the current holder of the server has confirmed the location:
//! a store that can be copied to here, or the very lease that the database of this process has. A
//! database that never had the server, or had it once, is not mistaken for its store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use legwork_store::postgres::{LEASE, LeaseInfo};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::config::{DatabaseUrl, StoreChoice};
use crate::lease::is_dead;
use crate::moving::{Origin, StoreReply, StoreRequest};
use crate::peer::{Links, Twin};

/// How long to wait for an answer, and until the next question.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(300);

/// The known location of a server's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Unknown, with the reason.
    Unknown(String),
    /// The holder does not answer. `is_free`: the database of this process has had the server, and
    /// its lease is free.
    Silent { why: String, is_free: bool },
    /// This process can drive the server.
    Here,
    /// This process cannot, with the reason.
    Elsewhere(String),
}

/// Asks the holder of the server until this process can drive it. `links` are those of an absent
/// server.
pub(crate) async fn until_here(
    links: &Arc<Links>,
    store: &StoreChoice,
    found: &watch::Sender<Found>,
) {
    let mut differs = None;
    while *found.borrow() != Found::Here {
        let now = look(links, store, &mut differs).await;
        let is_news = *found.borrow() != now;
        if let Found::Elsewhere(why) = &now
            && is_news
        {
            tracing::error!(server = %links.name, reason = why, "the server cannot move to this process");
        }
        found.send_replace(now);
        if *found.borrow() != Found::Here {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// `differs`: since when the lease names another holder than the one that answers.
async fn look(links: &Arc<Links>, store: &StoreChoice, differs: &mut Option<Instant>) -> Found {
    let mut twin = Twin::new(links.clone());
    let asked = tokio::time::timeout(PATIENCE, twin.ask(StoreRequest::Lease)).await;
    let asked = asked.map_err(|_| "it does not answer".to_owned());
    let answer = match asked.and_then(|answer| answer.map_err(|error| error.to_string())) {
        Ok(StoreReply::Lease(lease)) => Ok(lease.map(|lease| (lease.holder, lease.epoch))),
        Ok(StoreReply::NotNow(why)) => return Found::Unknown(why),
        Ok(_) => return Found::Unknown("its answer makes no sense".to_owned()),
        Err(why) => Err(why),
    };
    let url = match store {
        StoreChoice::Postgres(url) => url,
        StoreChoice::Memory | StoreChoice::Directory(_) => return in_folder(answer),
    };
    match (leases(url.clone()).await, answer) {
        (Ok(leases), Ok(lease)) => {
            let found = in_database(&links.name, &leases, lease);
            settled(found, differs, Instant::now())
        }
        (Ok(leases), Err(why)) => {
            let had = leases.iter().find(|lease| lease.server == *links.name);
            let is_free = had.is_some_and(|had| had.left.is_none() || is_dead(&had.holder));
            Found::Silent { why, is_free }
        }
        (Err(why), _) => Found::Unknown(why),
    }
}

async fn leases(url: DatabaseUrl) -> Result<Vec<LeaseInfo>, String> {
    let looked = spawn_blocking(move || url.shared()?.leases()).await;
    let leases = looked.map_err(|error| error.to_string())?;
    leases.map_err(|error| error.to_string())
}

/// Whether a server can be copied into a folder.
fn in_folder(answer: Result<Option<(String, u64)>, String>) -> Found {
    match answer {
        Ok(None) => Found::Here,
        Ok(Some(_)) => Found::Elsewhere(
            "it keeps its store in PostgreSQL, and this process in a folder; a server moves from \
             folder to folder, or between processes of one database"
                .to_owned(),
        ),
        Err(why) => Found::Silent { why, is_free: false },
    }
}

/// The state of a server's lease in a database, compared with the lease that its holder names.
enum InDatabase {
    Found(Found),
    /// Another process holds it there, or held it last: it may have been taken over just now.
    Differs,
}

fn in_database(server: &str, leases: &[LeaseInfo], lease: Option<(String, u64)>) -> InDatabase {
    let Some((holder, epoch)) = lease else {
        return InDatabase::Found(Found::Elsewhere(
            "it keeps its store in a folder, and this process in PostgreSQL; a server moves from \
             folder to folder, or between processes of one database"
                .to_owned(),
        ));
    };
    let Some(known) = leases.iter().find(|lease| lease.server == server) else {
        return InDatabase::Found(elsewhere());
    };
    if (&known.holder, known.epoch) != (&holder, epoch) {
        return InDatabase::Differs;
    }
    InDatabase::Found(if known.left.is_some() {
        Found::Here
    } else {
        Found::Unknown("its lease has run out".to_owned())
    })
}

fn elsewhere() -> Found {
    Found::Elsewhere(
        "it keeps its store in another database than this process; a server moves between processes \
         of one database"
            .to_owned(),
    )
}

/// A difference that lasts longer than a lease is not transient.
fn settled(found: InDatabase, differs: &mut Option<Instant>, now: Instant) -> Found {
    let InDatabase::Found(found) = found else {
        let since = *differs.get_or_insert(now);
        return if now.saturating_duration_since(since) > LEASE {
            elsewhere()
        } else {
            Found::Unknown("it may have changed hands".to_owned())
        };
    };
    *differs = None;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, epoch: u64, left: Option<Duration>) -> LeaseInfo {
        LeaseInfo { server: "a".to_owned(), holder: holder.to_owned(), epoch, left }
    }

    #[test]
    fn a_database_is_its_store_only_with_the_very_lease_of_who_answers() {
        let (now, mut differs) = (Instant::now(), None);
        let mut look = |known: &[LeaseInfo], answer: Option<(&str, u64)>, now| {
            let answer = answer.map(|(holder, epoch)| (holder.to_owned(), epoch));
            settled(in_database("a", known, answer), &mut differs, now)
        };
        let held = [lease("one", 3, Some(LEASE))];
        assert_eq!(look(&held, Some(("one", 3)), now), Found::Here);
        for (known, answer) in [(&held[..], None), (&[], Some(("one", 3)))] {
            let found = look(known, answer, now);
            assert!(matches!(found, Found::Elsewhere(_)), "{found:?}");
        }
        // It is there still, but its holder has not renewed.
        let found = look(&[lease("one", 3, None)], Some(("one", 3)), now);
        assert!(matches!(found, Found::Unknown(_)), "{found:?}");
        // Taken over a moment ago, or once held in this database.
        for answer in [("two", 3), ("one", 2)] {
            let found = look(&held, Some(answer), now);
            assert!(matches!(found, Found::Unknown(_)), "{found:?}");
        }
        let later = now + LEASE + PAUSE;
        let found = look(&held, Some(("one", 2)), later);
        assert!(matches!(found, Found::Elsewhere(_)), "{found:?}");
        assert_eq!(look(&held, Some(("one", 3)), later), Found::Here);
        assert!(matches!(look(&held, Some(("one", 2)), later), Found::Unknown(_)));
    }
}
