//! Sends letters with a subset of SMTP (RFC 5321, 3207, 4954).
//!
//! Invariant: a letter counts as sent when the server has accepted it, not before. A password is sent over
//! an encrypted connection, or to this machine.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use legwork_mail::Tls;

use super::wire::{PATIENCE, Place, Wire, shown};

/// The most lines of an answer.
const LINES_MAX: usize = 100;
/// How long a server may take (RFC 5321, 4.5.3.2): it may check a recipient for a long time, and a client
/// that hangs up sooner never sends the letter.
const COMMAND_PATIENCE: Duration = Duration::from_secs(300);
const DATA_PATIENCE: Duration = Duration::from_secs(120);
const BLOCK_PATIENCE: Duration = Duration::from_secs(180);
/// How long accepting the letter may take. A client that hangs up sooner sends an accepted letter again
/// and again.
const TAKING_PATIENCE: Duration = Duration::from_secs(600);

/// Why a letter was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSent {
    /// No session with the server: the same for every letter.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke after the recipient was named. Letters to others may be accepted.
    #[error("{0}")]
    BrokenOff(String),
    /// The server refused this letter.
    #[error("{0}")]
    Refused(String),
}

/// A mail server, and the login of this one.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) place: Place,
    pub(super) login: Option<(String, String)>,
}

/// A session with a mail server.
pub(super) struct Session {
    wire: Wire,
}

struct Answer {
    code: u16,
    lines: Vec<String>,
}

impl Server {
    pub(super) async fn open(&self, own: &str) -> Result<Session, NotSent> {
        let mut session = Session { wire: self.place.connect().await? };
        let greeting = session.answer_within(COMMAND_PATIENCE).await?;
        greeting.expect(220)?;
        let mut can = session.greet(own).await?;
        if self.place.tls == Tls::Starttls {
            session.order("STARTTLS", 220).await?;
            session.wire = self.place.make_private(session.wire).await?;
            // The answer before STARTTLS counts no more.
            can = session.greet(own).await?;
        }
        if let Some((user, password)) = &self.login {
            session.log_in(&can, user, password).await?;
        }
        Ok(session)
    }
}

impl Session {
    /// Sends one letter. The session can be used for another letter afterwards; after a refusal, with a
    /// reset.
    pub(super) async fn send(&mut self, from: &str, to: &str, letter: &str) -> Result<(), NotSent> {
        let answer = self.ask_within(COMMAND_PATIENCE, &format!("MAIL FROM:<{from}>")).await?;
        answer.expect(250)?;
        let given = self.give(to, letter).await;
        let given = given.map_err(|error| NotSent::BrokenOff(error.to_string()))?;
        given.map_err(|answer| NotSent::Refused(answer.text()))
    }

    /// The server's answer if it does not accept a letter.
    async fn give(&mut self, to: &str, letter: &str) -> io::Result<Result<(), Answer>> {
        let answer = self.ask_within(COMMAND_PATIENCE, &format!("RCPT TO:<{to}>")).await?;
        if !matches!(answer.code, 250 | 251) {
            return Ok(Err(answer));
        }
        let answer = self.ask_within(DATA_PATIENCE, "DATA").await?;
        if answer.code != 354 {
            return Ok(Err(answer));
        }
        self.wire.say_within(BLOCK_PATIENCE, &stuffed(letter)).await?;
        let answer = self.answer_within(TAKING_PATIENCE).await?;
        Ok(if answer.code == 250 { Ok(()) } else { Err(answer) })
    }

    /// Resets after a refused letter. Returns whether the session can be used again: some servers hang up
    /// on a refusal.
    pub(super) async fn reset(&mut self) -> bool {
        self.order("RSET", 250).await.is_ok()
    }

    pub(super) async fn close(mut self) {
        // The answer to the farewell does not matter.
        drop(self.ask("QUIT").await);
    }

    async fn greet(&mut self, own: &str) -> Result<Answer, NotSent> {
        let answer = self.ask(&format!("EHLO {own}")).await?;
        if answer.code == 250 { Ok(answer) } else { Err(NotSent::Unreachable(answer.text())) }
    }

    async fn log_in(&mut self, can: &Answer, user: &str, password: &str) -> Result<(), NotSent> {
        let ways = can.lines.iter().find(|line| line.to_ascii_uppercase().starts_with("AUTH"));
        let ways = ways.map(|line| line.to_ascii_uppercase()).unwrap_or_default();
        let has = |way: &str| ways.split([' ', '=']).any(|known| known == way);
        if has("PLAIN") {
            let secret = BASE64.encode(format!("\0{user}\0{password}"));
            return self.order(&format!("AUTH PLAIN {secret}"), 235).await;
        }
        if has("LOGIN") {
            self.order("AUTH LOGIN", 334).await?;
            self.order(&BASE64.encode(user), 334).await?;
            return self.order(&BASE64.encode(password), 235).await;
        }
        let why = "the mail server takes no password (neither AUTH PLAIN nor AUTH LOGIN)";
        Err(NotSent::Unreachable(why.to_owned()))
    }

    /// A command with one acceptable answer.
    async fn order(&mut self, command: &str, code: u16) -> Result<(), NotSent> {
        self.ask(command).await?.expect(code)
    }

    async fn ask(&mut self, command: &str) -> Result<Answer, NotSent> {
        Ok(self.ask_within(PATIENCE, command).await?)
    }

    async fn ask_within(&mut self, patience: Duration, command: &str) -> io::Result<Answer> {
        self.wire.say(&format!("{command}\r\n")).await?;
        self.answer_within(patience).await
    }

    /// `250-…` goes on, `250 …` ends.
    async fn answer_within(&mut self, patience: Duration) -> io::Result<Answer> {
        let mut line = self.wire.line_within(patience).await?;
        let mut lines = Vec::new();
        while lines.len() < LINES_MAX {
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let Some(code) = code else { break };
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(Answer { code, lines });
            }
            line = self.wire.line().await?;
        }
        Err(io::Error::other("the mail server does not speak SMTP"))
    }
}

impl Answer {
    /// Any other answer here is the same for every letter.
    fn expect(&self, code: u16) -> Result<(), NotSent> {
        if self.code == code { Ok(()) } else { Err(NotSent::Unreachable(self.text())) }
    }

    fn text(&self) -> String {
        let line = self.lines.first().map(String::as_str).unwrap_or_default();
        format!("{} {}", self.code, shown(line))
    }
}

impl From<io::Error> for NotSent {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// Dot-stuffing: a line with a single dot would end the letter.
fn stuffed(letter: &str) -> String {
    let mut text = String::with_capacity(letter.len() + 8);
    for line in letter.lines() {
        if line.starts_with('.') {
            text.push('.');
        }
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str(".\r\n");
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_may_think_for_minutes_about_each_part_of_a_letter_but_not_for_ever() {
        let think = |before: [u64; 3], taking: u64| async move {
            let (near, far) = tokio::io::duplex(1 << 10);
            let server = tokio::spawn(async move {
                let mut far = tokio::io::BufReader::new(far);
                let answers = ["250 ok\r\n", "250 ok\r\n", "354 go on\r\n"];
                for (answer, seconds) in answers.into_iter().zip(before) {
                    far.read_line(&mut String::new()).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    // A client out of patience is gone.
                    drop(far.write_all(answer.as_bytes()).await);
                }
                let mut line = String::new();
                while line != ".\r\n" {
                    line.clear();
                    if far.read_line(&mut line).await.unwrap() == 0 {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_secs(taking)).await;
                drop(far.write_all(b"250 taken\r\n").await);
            });
            let mut session = Session { wire: Wire::over(near) };
            let sent = session.send("a@x", "b@x", "Subject: x\r\n").await;
            drop(session);
            server.await.unwrap();
            sent
        };
        assert!(think([290, 290, 110], 590).await.is_ok());
        assert!(matches!(think([310, 1, 1], 1).await, Err(NotSent::Unreachable(_))));
        for (before, taking) in [([1, 310, 1], 1), ([1, 1, 130], 1), ([1, 1, 1], 610)] {
            assert!(matches!(think(before, taking).await, Err(NotSent::BrokenOff(_))));
        }
    }

    #[test]
    fn a_dot_in_a_letter_does_not_end_it() {
        assert_eq!(stuffed("a\r\n.\r\n..b\n"), "a\r\n..\r\n...b\r\n.\r\n");
    }
}
