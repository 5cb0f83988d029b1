//! The mail settings of a server: its mail servers, and the letters it sends.
//!
//! Invariant: a password is never in the settings, only its location; nothing is done by default.

use std::sync::Arc;
use std::time::Duration;

/// The most actors of an item who are told of it. With more it is a pool: its members look at the
/// list.
pub const ACTORS_MAX: usize = 20;
/// The most letters to one person in an hour; further ones are held back and come as one.
pub const LETTERS_AN_HOUR_MAX: usize = 10;

/// The contents of the file of `--mail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The sender of every letter, and the address of replies.
    pub from: Arc<str>,
    pub smtp: Smtp,
    /// The mailbox of replies; `None` if another server reads it, or no server does.
    pub inbox: Option<Inbox>,
    /// A link in letters; `{activity}` stands for the id of the activity.
    pub link: Option<Arc<str>>,
    /// The key of the tokens, if it is not created in the folder of the store.
    pub key_file: Option<Arc<str>>,
    pub tell: Tell,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smtp {
    pub host: Arc<str>,
    pub port: u16,
    pub tls: Tls,
    /// The login of this server, if the mail server requires one.
    pub login: Option<(Arc<str>, Password)>,
    /// A file of trusted certificates instead of those of the system.
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
    /// The polling interval.
    pub every: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Plain text, readable on the network.
    None,
    /// STARTTLS: encrypted before anything is sent.
    Starttls,
    /// Implicit TLS: encrypted from the beginning.
    Implicit,
}

/// The location of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    File(Arc<str>),
    /// The name of an environment variable.
    Environment(Arc<str>),
}

/// The letters to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    pub assignment: bool,
    pub reminder: Option<Reminder>,
    /// How long after the offer the managers are told of an open item.
    pub escalation: Option<Duration>,
    /// Whether starters are told when their deadline is no longer promised, or is again.
    pub promise: bool,
    /// How long after the offer an item can be answered by a reply.
    pub answer_within: Duration,
    pub actors_max: usize,
    pub letters_an_hour_max: usize,
}

/// When a person is reminded: once, at the first of these moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reminder {
    /// So long after the assignment letter.
    pub after: Option<Duration>,
    /// So long before the due date of the item, if it has one.
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
