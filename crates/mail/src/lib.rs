//! WHAT people are told by mail: who hears of an item, or of the deadline of a case, and when, what a
//! letter says, and how a reply is understood.
//!
//! Invariant: pure. The time and the key are arguments; the same items, organisation and letters
//! before give the same letters. A letter holds no data of a case, and whatever comes as a reply is
//! read to its end without a panic.

mod address;
mod book;
mod digest;
mod letter;
mod mime;
mod overdue;
mod promise;
mod read;
mod reply;
mod rules;
mod settings;
mod token;

pub use address::same_address;
pub use book::{Book, Matter, Subject};
pub use letter::{About, Letter, Outcome, is_message_id, message_id, refused_because};
pub use mime::MESSAGE_BYTES_MAX;
pub use overdue::{Overdue, Passing};
pub use promise::{Promise, Turn};
pub use reply::{DONE, Reply, Unquoted, Unread, Word, read as read_reply};
pub use rules::{Due, Kind, Standing};
pub use settings::{
    ACTORS_MAX, Inbox, LETTERS_AN_HOUR_MAX, Password, Reminder, Settings, Smtp, Tell, Tls,
};
pub use token::{Grant, KEY_BYTES, Key, NotGranted, TOKEN_CHARS_MAX, Token};
