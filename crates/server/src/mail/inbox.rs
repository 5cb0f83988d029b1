//! Reads replies and carries them out, as if they had come by the API.
//!
//! Invariant: a mail is deleted when its answer is committed, or it never can be. Handled twice it has no
//! further effect, and its author is told once, even if it cannot be deleted. Answers go only to the
//! address in the organisation.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use legwork_api::endpoints;
use legwork_api::problem::Problem;
use legwork_api::work::CompleteRequest;
use legwork_mail::{
    DONE, Grant, Letter as Written, NotGranted, Outcome, Reply, Token, Unquoted, Unread, Word,
    is_message_id, read_reply, refused_because, same_address,
};
use legwork_model::id::AgentId;
use legwork_model::zone::Zone;
use legwork_site::{Answer, Credential, Mailing, Request};

use super::meters::MailMeters;
use super::pop3;
use super::post::Post;
use super::recent_answers::{AN_HOUR_MAX, Lately, Room, Seen};
use super::sender::{grown, send_alone};
use super::smtp::NotSent;
use crate::http::{App, serve};

/// How many mails are handled per connection: deletions take effect when it ends.
const DELETED_AT_ONCE: u32 = 50;
const PAUSE_MAX: Duration = Duration::from_secs(300);
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Marks a request of the inbox on behalf of the agent of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromInbox;

pub(crate) struct Inbox {
    app: Arc<App>,
    post: Arc<Post>,
    meters: Arc<MailMeters>,
    /// Replies whose authors were told that they had no effect.
    said_back: Seen,
    /// Replies for which the answer to the author was interrupted.
    broken_off: Seen,
    /// Recent answers by agent.
    lately: Lately,
}

/// The author of a mail, as the organisation knows them.
struct Author {
    agent: AgentId,
    address: Arc<str>,
    /// The key of the mail.
    key: String,
}

/// The permission of a reply.
struct Granted<'r> {
    token: &'r Token,
    grant: Grant,
    has_expired: bool,
    author: Author,
}

/// What to do with a mail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delete,
    /// Read again later.
    Keep,
}

/// The result of reading the inbox.
#[derive(Debug)]
enum Looked {
    /// The server was not ready to carry out replies.
    NotReady,
    Read {
        /// Whether there are more mails.
        more: bool,
        /// The message of the mail server that refused a mail.
        refused: Option<String>,
    },
}

/// The progress of reading.
#[derive(Debug)]
struct Course {
    every: Duration,
    pause: Duration,
    is_well: bool,
}

/// The outcome of an answer.
enum Done {
    Taken,
    Refused {
        code: String,
    },
    /// Unknown as yet.
    Later,
}

impl Inbox {
    pub(crate) fn new(app: Arc<App>, post: Arc<Post>, meters: Arc<MailMeters>) -> Self {
        let (said_back, broken_off, lately) = Default::default();
        Self { app, post, meters, said_back, broken_off, lately }
    }

    /// Runs until the server stops.
    pub(super) async fn run(mut self, inbox: pop3::Box, every: Duration) {
        let mut course = Course { every, pause: every, is_well: true };
        while !self.app.gate.is_stopping() {
            if course.goes_on(self.look(&inbox).await) {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(course.pause) => {}
                () = self.app.gate.until_stopping() => {}
            }
        }
    }

    /// Reads the new mails.
    async fn look(&mut self, inbox: &pop3::Box) -> Result<Looked, pop3::Error> {
        if self.app.gate.check_ready().is_err() {
            return Ok(Looked::NotReady);
        }
        let mut session = inbox.open().await?;
        let mut deleted = 0;
        while deleted < DELETED_AT_ONCE && !self.app.gate.is_stopping() {
            let Some(mail) = session.next().await? else { break };
            if self.handle(&mail).await == Fate::Delete && session.delete().await? {
                deleted += 1;
            }
        }
        let refused = session.close().await?;
        Ok(Looked::Read { more: deleted == DELETED_AT_ONCE, refused })
    }

    pub(crate) async fn handle(&mut self, mail: &[u8]) -> Fate {
        let reply = match read_reply(mail) {
            Ok(reply) => reply,
            Err(Unread::Unquoted(reply)) if self.is_ours(&reply) => {
                return self.handle_unquoted(&reply).await;
            }
            Err(reason) => {
                self.meters.ignored();
                tracing::debug!(%reason, "ignoring a mail that is no reply");
                return Fate::Delete;
            }
        };
        let Granted { token, grant, has_expired, author } = match self.granted(&reply).await {
            Ok(Some(granted)) => granted,
            Ok(None) => {
                self.meters.ignored();
                tracing::warn!("dropping a reply with a foreign token");
                return Fate::Delete;
            }
            Err(()) => return Fate::Keep,
        };
        // The author of a refused reply was told already.
        if self.said_back.has(&reply.key()) {
            return Fate::Delete;
        }
        let Grant { activity, agent, .. } = &grant;
        let refused = match word(&reply, &author.address, has_expired) {
            Err(code) => Some((code.to_owned(), String::new())),
            Ok(word) => match self.answer(token, &grant, &word, &reply).await {
                Done::Taken => None,
                Done::Refused { code } => Some((code, word)),
                Done::Later => return Fate::Keep,
            },
        };
        let Some((code, word)) = refused else {
            self.meters.answered();
            tracing::info!(%agent, %activity, "answered by mail");
            return Fate::Delete;
        };
        tracing::info!(%agent, %activity, code, "an answer by mail was refused");
        let why = refused_because(&code, &word);
        let outcome = Outcome { activity: activity.clone(), why };
        self.say_back(&author, |written| written.outcome(&outcome, &reply.id)).await
    }

    /// The first token that is valid, or was until it expired. An agent without an address has none.
    async fn granted<'r>(&self, reply: &'r Reply) -> Result<Option<Granted<'r>>, ()> {
        let (now, Some(key)) = (self.app.clock.now(), self.post.key()) else { return Err(()) };
        for token in &reply.tokens {
            let Some(agent) = token.claimed_by() else { continue };
            let Some(author) = self.author(&agent, reply).await? else { continue };
            let (grant, has_expired) = match token.granted(key, &author.address, now) {
                Ok(grant) => (grant, false),
                Err(NotGranted::Expired(grant)) => (*grant, true),
                Err(NotGranted::Forged) => continue,
            };
            return Ok(Some(Granted { token, grant, has_expired, author }));
        }
        Ok(None)
    }

    /// Whether a mail replies to a letter that may be from this server.
    fn is_ours(&self, reply: &Unquoted) -> bool {
        reply.answers.iter().any(|id| is_message_id(id, &self.post.settings.from))
    }

    /// A reply without the quoted letter: without an answer its author would wait forever.
    async fn handle_unquoted(&mut self, reply: &Unquoted) -> Fate {
        if self.said_back.has(&reply.key()) {
            return Fate::Delete;
        }
        let asked = Request::Mail(Mailing::Whose { address: reply.from.clone() });
        let (agent, address) = match self.app.gate.ask(Credential::Mailer, asked).await {
            Ok(Answer::Person(Some(person))) => person,
            Ok(Answer::Person(None)) => {
                self.meters.ignored();
                return Fate::Delete;
            }
            Ok(_) | Err(_) => return Fate::Keep,
        };
        tracing::info!(%agent, "a reply does not quote its letter");
        let author = Author { agent, address, key: reply.key() };
        self.say_back(&author, |written| written.unquoted(&reply.id)).await
    }

    /// The agent of a reply, if they have an address.
    async fn author(&self, agent: &AgentId, reply: &Reply) -> Result<Option<Author>, ()> {
        let asked = Request::Mail(Mailing::Address { agent: agent.clone() });
        let (agent, key) = (agent.clone(), reply.key());
        match self.app.gate.ask(Credential::Mailer, asked).await {
            Ok(Answer::Address(address)) => {
                Ok(address.map(|address| Author { agent, address, key }))
            }
            Ok(_) | Err(_) => Err(()),
        }
    }

    /// Answers a decision, or completes a step that is none.
    async fn answer(&self, token: &Token, grant: &Grant, word: &str, reply: &Reply) -> Done {
        let decided = self.complete(token, grant, Some(word), reply).await;
        match word == DONE && may_be_no_decision(&decided) {
            true => self.complete(token, grant, None, reply).await,
            false => decided,
        }
    }

    async fn complete(
        &self,
        token: &Token,
        grant: &Grant,
        answer: Option<&str>,
        reply: &Reply,
    ) -> Done {
        let completion = CompleteRequest {
            agent: Some(grant.agent.0.clone()),
            answer: answer.map(str::to_owned),
            ..CompleteRequest::default()
        };
        let Ok(body) = serde_json::to_vec(&completion) else { return Done::Later };
        let request = hyper::Request::post(endpoints::COMPLETE.at(&grant.activity).text())
            .header(AUTHORIZATION, format!("Mail {}", token.as_str()))
            .header(CONTENT_TYPE, "application/json")
            // The same reply is the same request, however often it is read.
            .header("idempotency-key", reply.key())
            .extension(FromInbox)
            .body(Full::new(Bytes::from(body)));
        let Ok(request) = request else { return Done::Later };
        let response = serve(&self.app, IpAddr::V4(Ipv4Addr::LOCALHOST), request).await;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        done(head.status, &body)
    }

    /// Tells the author that their reply had no effect.
    async fn say_back(&mut self, author: &Author, text: impl Fn(&Written<'_>) -> String) -> Fate {
        let Author { agent, address, key } = author;
        let now = self.app.clock.now();
        let room = self.lately.room(agent, now);
        if room == Room::NoMore {
            let most = AN_HOUR_MAX;
            tracing::warn!(%agent, most, "the limit of answers to this agent is reached for this hour");
        }
        if room != Room::Some {
            self.meters.refused();
            self.said_back.add(key.clone());
            return Fate::Delete;
        }
        let from = &*self.post.settings.from;
        // It contains no time.
        let zone = &Zone::UTC;
        let text = text(&Written { from, to: address, agent, at: now, link: None, zone });
        match send_alone(&self.post, address, &text).await {
            Ok(()) => {
                self.meters.sent();
                self.lately.note(agent, now);
            }
            Err(NotSent::Unreachable(reason)) => return self.wait(agent, &reason),
            Err(NotSent::BrokenOff(reason)) if self.broken_off.add(key.clone()) => {
                return self.wait(agent, &reason);
            }
            Err(NotSent::Refused(reason) | NotSent::BrokenOff(reason)) => {
                // The reply had no effect; that the author is not told is due to their mail server.
                self.meters.failed();
                tracing::warn!(%agent, reason, "the answer to a reply was refused");
            }
        }
        self.meters.refused();
        self.said_back.add(key.clone());
        Fate::Delete
    }

    fn wait(&self, agent: &AgentId, reason: &str) -> Fate {
        self.meters.failed();
        tracing::warn!(%agent, reason, "the answer to a reply is delayed");
        Fate::Keep
    }
}

impl Course {
    /// Evaluates the result; returns whether to read again at once.
    fn goes_on(&mut self, looked: Result<Looked, pop3::Error>) -> bool {
        match looked {
            Ok(Looked::NotReady) => false,
            Ok(Looked::Read { more, refused }) => {
                match &refused {
                    Some(reason) if self.is_well => {
                        tracing::warn!(
                            reason,
                            "cannot read or delete a mail; continuing with the others"
                        );
                    }
                    None if !self.is_well => tracing::info!("the inbox can be read again"),
                    Some(_) | None => {}
                }
                (self.is_well, self.pause) = (refused.is_none(), self.every);
                more
            }
            Err(reason) => {
                if self.is_well {
                    tracing::warn!(%reason, "cannot read the inbox; retrying");
                }
                self.is_well = false;
                self.pause = grown(self.pause, self.every, PAUSE_MAX.max(self.every));
                false
            }
        }
    }
}

/// The word of an answer that may be carried out, or why not.
fn word(reply: &Reply, address: &str, has_expired: bool) -> Result<String, &'static str> {
    let is_theirs = reply.from.as_deref().is_some_and(|from| same_address(from, address));
    match (&reply.word, is_theirs, has_expired) {
        (_, false, _) => Err("another_address"),
        (_, true, true) => Err("expired"),
        (Word::OnlyHtml, true, false) => Err("only_html"),
        (Word::Nothing, true, false) => Err("no_word"),
        (Word::Said(word), true, false) => Ok(word.clone()),
    }
}

/// Whether a word was refused because the step takes none. Once the step is done, the same mail is refused
/// as a reused key: by this very answer, without the word.
fn may_be_no_decision(decided: &Done) -> bool {
    match decided {
        Done::Refused { code } => {
            matches!(code.as_str(), "answer_unexpected" | "idempotency_key_reused")
        }
        Done::Taken | Done::Later => false,
    }
}

fn done(status: StatusCode, body: &[u8]) -> Done {
    if status.is_success() {
        return Done::Taken;
    }
    let problem: Option<Problem> = serde_json::from_slice(body).ok();
    let code = problem.map_or_else(String::new, |problem| problem.code);
    match status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || code.is_empty() {
        true => Done::Later,
        false => Done::Refused { code },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(from: &str, said: Word) -> Reply {
        Reply { from: Some(from.to_owned()), id: "1".to_owned(), tokens: Vec::new(), word: said }
    }

    #[test]
    fn only_a_word_of_theirs_that_is_in_time_is_carried_out() {
        let done = || Word::Said("done".to_owned());
        let check = |from, said, has_expired| word(&reply(from, said), "ann@x", has_expired);
        assert_eq!(check("Ann@X", done(), false).as_deref(), Ok("done"));
        assert_eq!(check("ann@x", done(), true), Err("expired"));
        assert_eq!(check("eve@x", done(), false), Err("another_address"));
        // A sender with a wrong address learns nothing else.
        assert_eq!(check("eve@x", Word::OnlyHtml, true), Err("another_address"));
        assert_eq!(check("ann@x", Word::OnlyHtml, false), Err("only_html"));
        assert_eq!(check("ann@x", Word::Nothing, false), Err("no_word"));
        let nobody = Reply { from: None, ..reply("", done()) };
        assert_eq!(word(&nobody, "ann@x", false), Err("another_address"));
    }

    #[test]
    fn an_inbox_that_was_not_looked_into_is_as_well_as_before() {
        let every = Duration::from_secs(10);
        let mut course = Course { every, pause: every, is_well: true };
        let broken = || Err(pop3::Error::Refused("-ERR".to_owned()));
        let read = |more| Ok(Looked::Read { more, refused: None });
        assert!(!course.goes_on(broken()));
        assert_eq!((course.is_well, course.pause), (false, 2 * every));
        assert!(!course.goes_on(Ok(Looked::NotReady)));
        assert_eq!((course.is_well, course.pause), (false, 2 * every));
        assert!(course.goes_on(read(true)) && !course.goes_on(read(false)));
        assert_eq!((course.is_well, course.pause), (true, every));
        assert!(!course.goes_on(Ok(Looked::NotReady)) && course.is_well);
    }

    #[test]
    fn a_reply_waits_only_for_what_may_go_through_later() {
        let problem = |code: &str| serde_json::to_vec(&Problem::new(409, code, "")).unwrap();
        let later = |status, body: &[u8]| matches!(done(status, body), Done::Later);
        assert!(later(StatusCode::SERVICE_UNAVAILABLE, &problem("recovering")));
        assert!(later(StatusCode::TOO_MANY_REQUESTS, &problem("rate_limited")));
        assert!(later(StatusCode::BAD_GATEWAY, b"?"));
        assert!(!later(StatusCode::CONFLICT, &problem("held_by")));
        assert!(matches!(done(StatusCode::NO_CONTENT, b""), Done::Taken));
    }
}
