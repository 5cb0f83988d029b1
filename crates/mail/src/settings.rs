//! How a server mails: whom it speaks to, and what it tells.
//!
//! Invariant: a password is never in here, only where it is found; what is not said is not done.

use std::sync::Arc;
use std::time::Duration;

/// The most people an item may be offered to for them to be told of it. Beyond that it is a pool:
/// whoever works in one looks at the list.
pub const ACTORS_MAX: usize = 20;
/// The most letters to one person in an hour; the others are held back and come as one.
pub const LETTERS_AN_HOUR_MAX: usize = 10;

/// What `--mail` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The sender of every letter, and where replies go.
    pub from: Arc<str>,
    pub smtp: Smtp,
    /// Where replies are read; `None` if another server reads them, or nobody does.
    pub inbox: Option<Inbox>,
    /// Put into letters; `{activity}` stands for the id of the activity.
    pub link: Option<Arc<str>>,
    /// The key of the tokens, if it is not to be made in the folder of the store.
    pub key_file: Option<Arc<str>>,
    pub tell: Tell,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smtp {
    pub host: Arc<str>,
    pub port: u16,
    pub tls: Tls,
    /// Who this server is there, if it has to say so.
    pub login: Option<(Arc<str>, Password)>,
    /// A file of certificates to trust instead of those of the system.
    pub authority: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    pub host: Arc<str>,
    pub port: u16,
    pub tls: Tls,
    pub user: Arc<str>,
    pub password: Password,
    pub authority: Option<Arc<str>>,
    /// How often it is looked at.
    pub every: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Everybody on the way can read it.
    None,
    /// The connection becomes private before anything is said.
    Starttls,
    /// The connection is private from the beginning.
    Implicit,
}

/// Where a password is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    File(Arc<str>),
    /// The name of a variable of the environment.
    Environment(Arc<str>),
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    pub assignment: bool,
    pub reminder: Option<Reminder>,
    /// How long after it was offered the managers hear of an item that is not done.
    pub escalation: Option<Duration>,
    /// Whether those hear who started a case that its deadline is not promised any more, or again.
    pub promise: bool,
    /// How long after it was offered an item can be answered by a reply.
    pub answer_within: Duration,
    pub actors_max: usize,
    pub letters_an_hour_max: usize,
}

/// When somebody is reminded: once, at the first of these moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reminder {
    /// So long after they were told.
    pub after: Option<Duration>,
    /// So long before the item is due, if it has a due time.
    pub before_due: Option<Duration>,
}

impl Default for Tell {
    fn default() -> Self {
        Self {
            assignment: true,
            reminder: None,
            escalation: None,
            promise: true,
            answer_within: Duration::from_secs(14 * 86_400),
            actors_max: ACTORS_MAX,
            letters_an_hour_max: LETTERS_AN_HOUR_MAX,
        }
    }
}
