//! WHAT people are told by mail: the recipients and times of letters about items and deadlines, their
//! text, and the parsing of replies.
//!
//! Invariant: pure. The time and the key are arguments; the same items, organisation and earlier
//! letters give the same letters. A letter contains no data of a case, and parsing a reply ends
//! without a panic whatever its bytes.

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
