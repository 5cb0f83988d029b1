//! Reads an inbox with a subset of POP3 (RFC 1939, 2595).
//!
//! Invariant: deletions take effect when the session ends well, and not if it breaks. So the session
//! goes on when the server refuses one mail: otherwise earlier mails would come again, and later ones
//! never.

use std::io;

use legwork_mail::{MESSAGE_BYTES_MAX, Tls};

use super::wire::{Place, Wire, shown};

/// How many mails are read in one session: mails that have to wait must not hide the others.
const READ_AT_ONCE: u32 = 1_000;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The server refused; the session goes on.
    #[error("{0}")]
    Refused(String),
    /// The session is broken.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// The mailbox and its server.
#[derive(Clone)]
pub(super) struct Box {
    pub(super) place: Place,
    pub(super) user: String,
    pub(super) password: String,
}

pub(super) struct Session {
    wire: Wire,
    /// The number of mails.
    count: u32,
    /// The number of the last requested mail, from 1.
    number: u32,
    /// Why the server refused to give or delete a mail, if it did.
    refused: Option<String>,
}

impl Box {
    pub(super) async fn open(&self) -> Result<Session, Error> {
        let wire = self.place.connect().await?;
        let mut session = Session { wire, count: 0, number: 0, refused: None };
        session.answer().await?;
        if self.place.tls == Tls::Starttls {
            session.ask("STLS").await?;
            session.wire = self.place.make_private(session.wire).await?;
        }
        session.ask(&format!("USER {}", self.user)).await?;
        session.ask(&format!("PASS {}", self.password)).await?;
        let state = session.ask("STAT").await?;
        let count = state.split_whitespace().next().and_then(|count| count.parse::<u32>().ok());
        let count = count.ok_or_else(|| io::Error::other("the inbox has no number of mails"))?;
        session.count = count.min(READ_AT_ONCE);
        Ok(session)
    }
}

impl Session {
    /// The next mail that the server gives; only the beginning of a long one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        while self.number < self.count {
            self.number += 1;
            match self.read().await {
                Ok(mail) => return Ok(Some(mail)),
                Err(Error::Refused(reason)) => self.refused = Some(reason),
                Err(broken @ Error::Broken(_)) => return Err(broken),
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<Vec<u8>, Error> {
        self.ask(&format!("RETR {}", self.number)).await?;
        let mut mail = Vec::new();
        loop {
            let room = MESSAGE_BYTES_MAX - mail.len();
            // Enough to recognise the end.
            let line = self.wire.bytes(room.max(8)).await?;
            match line.as_slice() {
                b".\r\n" | b".\n" => return Ok(mail),
                [b'.', rest @ ..] => mail.extend_from_slice(&rest[..rest.len().min(room)]),
                line => mail.extend_from_slice(&line[..line.len().min(room)]),
            }
        }
    }

    /// Deletes the last read mail; returns whether the server does so.
    pub(super) async fn delete(&mut self) -> Result<bool, Error> {
        match self.ask(&format!("DELE {}", self.number)).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(reason)) => {
                self.refused = Some(reason);
                Ok(false)
            }
            Err(broken @ Error::Broken(_)) => Err(broken),
        }
    }

    /// Makes deletions final. Returns the server's message if it refused a mail.
    pub(super) async fn close(mut self) -> Result<Option<String>, Error> {
        self.ask("QUIT").await?;
        Ok(self.refused)
    }

    async fn ask(&mut self, command: &str) -> Result<String, Error> {
        self.wire.say(&format!("{command}\r\n")).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<String, Error> {
        let line = self.wire.line().await?;
        match line.strip_prefix("+OK") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None if line.starts_with("-ERR") => Err(Error::Refused(shown(&line))),
            None => Err(io::Error::other("the mail server does not speak POP3").into()),
        }
    }
}
