//! Reads an inbox: POP3, as far as that needs it (RFC 1939, 2595).
//!
//! Invariant: what is deleted is deleted when the conversation ends well, and not if it breaks.

use std::io;

use legwork_mail::{MESSAGE_BYTES_MAX, Tls};

use super::wire::{Place, Wire};

/// Whose inbox it is, and where.
#[derive(Clone)]
pub(super) struct Box {
    pub(super) place: Place,
    pub(super) user: String,
    pub(super) password: String,
}

pub(super) struct Session {
    wire: Wire,
    /// How many mails there are.
    pub(super) count: u32,
}

impl Box {
    pub(super) async fn open(&self) -> io::Result<Session> {
        let mut session = Session { wire: self.place.connect().await?, count: 0 };
        session.answer().await?;
        if self.place.tls == Tls::Starttls {
            session.ask("STLS").await?;
            session.wire = self.place.make_private(session.wire).await?;
        }
        session.ask(&format!("USER {}", self.user)).await?;
        session.ask(&format!("PASS {}", self.password)).await?;
        let state = session.ask("STAT").await?;
        let count = state.split_whitespace().next().and_then(|count| count.parse().ok());
        session.count =
            count.ok_or_else(|| io::Error::other("the inbox has no number of mails"))?;
        Ok(session)
    }
}

impl Session {
    /// A mail by its number, from 1 on; of a long one the beginning.
    pub(super) async fn read(&mut self, number: u32) -> io::Result<Vec<u8>> {
        self.ask(&format!("RETR {number}")).await?;
        let mut mail = Vec::new();
        loop {
            let room = MESSAGE_BYTES_MAX - mail.len();
            // Enough to know the end by.
            let line = self.wire.bytes(room.max(8)).await?;
            match line.as_slice() {
                b".\r\n" | b".\n" => return Ok(mail),
                [b'.', rest @ ..] => mail.extend_from_slice(&rest[..rest.len().min(room)]),
                line => mail.extend_from_slice(&line[..line.len().min(room)]),
            }
        }
    }

    pub(super) async fn delete(&mut self, number: u32) -> io::Result<()> {
        self.ask(&format!("DELE {number}")).await.map(drop)
    }

    /// From here on what was deleted is gone.
    pub(super) async fn close(mut self) -> io::Result<()> {
        self.ask("QUIT").await.map(drop)
    }

    async fn ask(&mut self, command: &str) -> io::Result<String> {
        self.wire.say(&format!("{command}\r\n")).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<String> {
        let line = self.wire.line().await?;
        match line.strip_prefix("+OK") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => {
                let plain: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
                Err(io::Error::other(plain))
            }
        }
    }
}
