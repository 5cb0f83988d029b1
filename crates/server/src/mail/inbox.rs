//! Reads replies and has them carried out, as if they had come by the API.
//!
//! Invariant: a mail is deleted when its answer is committed, or nothing will ever come of it. Handled
//! twice it changes nothing, and whoever wrote it hears of it once, also if it cannot be deleted. What is
//! said back goes to the address in the organisation alone.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use legwork_api::problem::Problem;
use legwork_api::work::CompleteRequest;
use legwork_mail::{
    DONE, Grant, Letter as Written, NotGranted, Outcome, Reply, Token, Word, read_reply,
    refused_because, same_address,
};
use legwork_site::{Answer, Credential, Mailing, Request};

use super::meters::MailMeters;
use super::pop3;
use super::post::Post;
use super::sender::{grown, send_alone};
use super::smtp::NotSent;
use crate::http::{App, serve};

/// How many mails are dealt with over one connection: what was deleted is gone when it ends.
const DELETED_AT_ONCE: u32 = 50;
const PAUSE_MAX: Duration = Duration::from_secs(300);
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// More than a mail server gives in one conversation, so that all that it does not delete are known.
const SEEN_MAX: usize = 2_000;

/// A request that the inbox makes for somebody whose token it has read; goes with the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromInbox;

pub(super) struct Inbox {
    pub(super) app: Arc<App>,
    pub(super) post: Arc<Post>,
    pub(super) meters: Arc<MailMeters>,
    /// Replies whose authors were told that they have changed nothing.
    pub(super) said_back: Seen,
    /// Those of which the mail server did not hear that to its end.
    pub(super) broken_off: Seen,
}

/// The keys of some replies, the one that was seen last behind all others. A mail server may not delete a
/// mail, and is asked again each time.
#[derive(Debug, Default)]
pub(super) struct Seen(VecDeque<String>);

/// What becomes of a mail.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Delete,
    /// It is read again later.
    Keep,
}

/// What came of a look into the inbox.
#[derive(Debug, Default)]
struct Looked {
    /// Whether there is more.
    more: bool,
    /// What the mail server said when it refused a mail.
    refused: Option<String>,
}

/// What came of an answer.
enum Done {
    Taken,
    Refused {
        code: String,
    },
    /// Nobody could say yet.
    Later,
}

impl Inbox {
    pub(super) fn new(app: Arc<App>, post: Arc<Post>, meters: Arc<MailMeters>) -> Self {
        Self { app, post, meters, said_back: Seen::default(), broken_off: Seen::default() }
    }

    /// Until the server stops.
    pub(super) async fn run(mut self, inbox: pop3::Box, every: Duration) {
        let mut pause = every;
        let mut is_well = true;
        while !self.app.gate.is_stopping() {
            match self.look(&inbox).await {
                Ok(Looked { more, refused }) => {
                    match &refused {
                        Some(reason) if is_well => {
                            tracing::warn!(reason, "a mail cannot be read or deleted; others are");
                        }
                        None if !is_well => tracing::info!("the inbox can be read again"),
                        Some(_) | None => {}
                    }
                    (is_well, pause) = (refused.is_none(), every);
                    if more {
                        continue;
                    }
                }
                Err(reason) => {
                    if is_well {
                        tracing::warn!(%reason, "the inbox cannot be read; it is tried again");
                    }
                    (is_well, pause) = (false, grown(pause, every, PAUSE_MAX.max(every)));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.app.gate.until_stopping() => {}
            }
        }
    }

    /// Reads what has come.
    async fn look(&mut self, inbox: &pop3::Box) -> Result<Looked, pop3::Error> {
        if self.app.gate.check_ready().is_err() {
            return Ok(Looked::default());
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
        Ok(Looked { more: deleted == DELETED_AT_ONCE, refused })
    }

    async fn handle(&mut self, mail: &[u8]) -> Fate {
        let reply = match read_reply(mail) {
            Ok(reply) => reply,
            Err(reason) => {
                self.meters.ignored();
                tracing::debug!(%reason, "a mail is nobody's answer");
                return Fate::Delete;
            }
        };
        let (now, Some(key)) = (self.app.clock.now(), self.post.key()) else { return Fate::Keep };
        let granted = |token: &Token| match token.granted(key, now) {
            Ok(grant) => Some((token.clone(), grant, false)),
            Err(NotGranted::Expired(grant)) => Some((token.clone(), *grant, true)),
            Err(NotGranted::Forged) => None,
        };
        let Some((token, grant, has_expired)) = reply.tokens.iter().find_map(granted) else {
            self.meters.ignored();
            tracing::warn!("a reply with a token that is none of ours was dropped");
            return Fate::Delete;
        };
        // What was refused stays refused, for its author has heard so.
        if self.said_back.has(&reply.key()) {
            return Fate::Delete;
        }
        let address = match self.address(&grant).await {
            Ok(Some(address)) => address,
            Ok(None) => {
                self.meters.refused();
                return Fate::Delete;
            }
            Err(()) => return Fate::Keep,
        };
        let refused = match word(&reply, &address, has_expired) {
            Err(code) => Some((code.to_owned(), String::new())),
            Ok(word) => match self.answer(&token, &grant, &word, &reply).await {
                Done::Taken => None,
                Done::Refused { code } => Some((code, word)),
                Done::Later => return Fate::Keep,
            },
        };
        let Grant { activity, agent, .. } = &grant;
        let Some((code, word)) = refused else {
            self.meters.answered();
            tracing::info!(%agent, %activity, "answered by mail");
            return Fate::Delete;
        };
        tracing::info!(%agent, %activity, code, "an answer by mail was refused");
        let fate = self.say_back(&grant, &address, &reply, refused_because(&code, &word)).await;
        if fate == Fate::Delete {
            self.said_back.add(reply.key());
        }
        fate
    }

    /// Where the agent is written to.
    async fn address(&self, grant: &Grant) -> Result<Option<Arc<str>>, ()> {
        let asked = Request::Mail(Mailing::Address { agent: grant.agent.clone() });
        match self.app.gate.ask(Credential::Mailer, asked).await {
            Ok(Answer::Address(address)) => Ok(address),
            Ok(_) | Err(_) => Err(()),
        }
    }

    /// Decides, or says that a step is done that is no decision.
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
        let request = hyper::Request::post(format!("/v1/work/{}/complete", grant.activity))
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

    /// Tells somebody that their reply has changed nothing.
    async fn say_back(&mut self, grant: &Grant, address: &str, reply: &Reply, why: String) -> Fate {
        let written = Written {
            from: &self.post.settings.from,
            to: address,
            agent: &grant.agent,
            at: self.app.clock.now(),
            link: None,
        };
        let outcome = Outcome { activity: grant.activity.clone(), why };
        let text = written.outcome(&outcome, &reply.id);
        match send_alone(&self.post, address, &text).await {
            Ok(()) => {
                self.meters.refused();
                self.meters.sent();
                Fate::Delete
            }
            Err(NotSent::BrokenOff(reason)) if self.broken_off.add(reply.key()) => {
                self.meters.failed();
                tracing::warn!(agent = %grant.agent, reason, "what came of a reply waits");
                Fate::Keep
            }
            Err(NotSent::Refused(reason) | NotSent::BrokenOff(reason)) => {
                // It has changed nothing; that they do not hear of it is their mail server's doing.
                self.meters.refused();
                self.meters.failed();
                tracing::warn!(agent = %grant.agent, reason, "what came of a reply was refused");
                Fate::Delete
            }
            Err(NotSent::Unreachable(reason)) => {
                self.meters.failed();
                tracing::warn!(agent = %grant.agent, reason, "what came of a reply waits");
                Fate::Keep
            }
        }
    }
}

impl Seen {
    /// Whether a reply is among them; it is seen now.
    fn has(&mut self, key: &str) -> bool {
        let place = self.0.iter().position(|known| known == key);
        let known = place.and_then(|place| self.0.remove(place));
        let has = known.is_some();
        self.0.extend(known);
        has
    }

    /// Whether it was none of them.
    fn add(&mut self, key: String) -> bool {
        let is_new = !self.has(&key);
        if is_new {
            if self.0.len() == SEEN_MAX {
                self.0.pop_front();
            }
            self.0.push_back(key);
        }
        is_new
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

/// Whether a word was refused because the step takes none. Once it is done the same mail is told that its
/// key was used for something else: for this very answer, without the word.
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
        // Whoever is not told that they are somebody else learns nothing of the rest.
        assert_eq!(check("eve@x", Word::OnlyHtml, true), Err("another_address"));
        assert_eq!(check("ann@x", Word::OnlyHtml, false), Err("only_html"));
        assert_eq!(check("ann@x", Word::Nothing, false), Err("no_word"));
        let nobody = Reply { from: None, ..reply("", done()) };
        assert_eq!(word(&nobody, "ann@x", false), Err("another_address"));
    }

    #[test]
    fn a_refused_reply_that_is_never_deleted_stays_known_however_many_others_come() {
        let mut said_back = Seen::default();
        assert!(!said_back.has("stays"));
        said_back.add("stays".to_owned());
        for number in 0..3 * SEEN_MAX {
            assert!(!said_back.has(&number.to_string()));
            said_back.add(number.to_string());
            assert!(said_back.has("stays"), "{number}");
        }
        assert_eq!(said_back.0.len(), SEEN_MAX);
        // What is not seen any more is forgotten.
        assert!(!said_back.has("0"));
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
