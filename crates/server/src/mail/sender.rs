//! Sends letters, one after the other, in the order of the site.
//!
//! Invariant: the site is told of a letter when the mail server has accepted it, and no other letter is sent before
//! the site has recorded that. A letter that a mail server refuses, or does not answer, is retried with exponential
//! back-off, and nothing else waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_mail::{Grant, Letter as Written, Token};
use legwork_model::id::AgentId;
use legwork_site::{Answer, Content, Credential, Letter, Mailing, Notice, Request};

use super::meters::MailMeters;
use super::post::Post;
use super::smtp::{NotSent, Server, Session};
use crate::http::App;

/// How often the site is asked when there was no letter.
const LOOK: Duration = Duration::from_secs(1);
/// The back-off after an unreachable mail server, at first and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The longest pause before the site is told again of a sent letter that it could not record.
const UNTOLD_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The same for an agent whose letters are refused.
const REFUSED_PAUSE_MIN: Duration = Duration::from_secs(60);
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(6 * 3_600);

pub(super) struct Sender {
    pub(super) app: Arc<App>,
    pub(super) post: Arc<Post>,
    pub(super) meters: Arc<MailMeters>,
    /// Open as long as there are letters.
    pub(super) session: Option<Session>,
    /// The current back-off of agents whose letters were refused.
    pub(super) refused: BTreeMap<AgentId, Duration>,
    pub(super) pause: Duration,
    /// Agents during whose last letter the connection broke.
    pub(super) broken_off: BTreeSet<AgentId>,
    /// A sent letter that the site has not recorded. Until it has, it gives the same letter again.
    pub(super) untold: Option<Notice>,
    pub(super) untold_pause: Duration,
}

/// The next action.
enum Next {
    Another,
    Wait(Duration),
}

impl Sender {
    pub(super) fn new(app: Arc<App>, post: Arc<Post>, meters: Arc<MailMeters>) -> Self {
        Self {
            app,
            post,
            meters,
            session: None,
            refused: BTreeMap::new(),
            pause: Duration::ZERO,
            broken_off: BTreeSet::new(),
            untold: None,
            untold_pause: Duration::ZERO,
        }
    }

    /// Runs until the server stops.
    pub(super) async fn run(mut self) {
        while !self.app.gate.is_stopping() {
            let Next::Wait(pause) = self.step().await else { continue };
            if let Some(session) = self.session.take() {
                session.close().await;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.app.gate.until_stopping() => {}
            }
        }
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }

    async fn step(&mut self) -> Next {
        if let Some(notice) = self.untold.take() {
            return self.tell(notice).await;
        }
        let letter = match self.ask(Mailing::Next).await {
            Some(Answer::Letter { letter: Some(letter), .. }) => *letter,
            Some(Answer::Letter { letter: None, more: true }) => return Next::Another,
            // The server is coming up, or going away.
            Some(_) | None => return Next::Wait(LOOK),
        };
        let agent = letter.notice.agent.clone();
        match self.send(&letter).await {
            Ok(()) => {
                if self.pause > Duration::ZERO {
                    tracing::info!("the mail server accepts mail again");
                }
                self.pause = Duration::ZERO;
                self.refused.remove(&agent);
                self.broken_off.remove(&agent);
                tracing::debug!(%agent, items = letter.notice.about.len(), "sent mail");
                self.tell(letter.notice).await
            }
            Err(NotSent::Refused(reason)) => self.put_off(agent, reason).await,
            // Once may be a mail server that goes down. Twice it is this letter, and the others must not wait for
            // it.
            Err(NotSent::BrokenOff(reason)) => {
                let is_first = !self.refused.contains_key(&agent);
                match is_first && self.broken_off.insert(agent.clone()) {
                    true => self.pause(&reason),
                    false => self.put_off(agent, reason).await,
                }
            }
            Err(NotSent::Unreachable(reason)) => self.pause(&reason),
        }
    }

    /// Pauses all letters.
    fn pause(&mut self, reason: &str) -> Next {
        self.meters.failed();
        if self.pause == Duration::ZERO {
            tracing::warn!(reason, "the mail server accepts no mail; retrying");
        }
        self.pause = grown(self.pause, PAUSE_MIN, PAUSE_MAX);
        Next::Wait(self.pause)
    }

    /// Pauses the letters to an agent.
    async fn put_off(&mut self, agent: AgentId, reason: String) -> Next {
        self.meters.failed();
        self.broken_off.remove(&agent);
        let pause = self.refused.entry(agent.clone()).or_default();
        *pause = grown(*pause, REFUSED_PAUSE_MIN, REFUSED_PAUSE_MAX);
        tracing::warn!(%agent, reason, again_s = pause.as_secs(), "a letter was refused");
        let until = self.app.clock.now() + *pause;
        match self.ask(Mailing::PutOff { agent, until }).await {
            Some(_) => Next::Another,
            None => Next::Wait(LOOK),
        }
    }

    /// Makes the site record a sent letter. A disk may be full for hours: asking for the next letter meanwhile
    /// would give this one again, and send it each time.
    async fn tell(&mut self, notice: Notice) -> Next {
        if self.ask(Mailing::Told(notice.clone())).await.is_some() {
            if self.untold_pause > Duration::ZERO {
                tracing::info!("recorded the sent mail; sending resumes");
            }
            self.untold_pause = Duration::ZERO;
            self.meters.sent();
            return Next::Another;
        }
        if self.untold_pause == Duration::ZERO {
            let agent = &notice.agent;
            tracing::warn!(%agent, "cannot record sent mail; pausing");
        }
        self.untold = Some(notice);
        self.untold_pause = grown(self.untold_pause, LOOK, UNTOLD_PAUSE_MAX);
        Next::Wait(self.untold_pause)
    }

    async fn ask(&self, errand: Mailing) -> Option<Answer> {
        self.app.gate.ask(Credential::Mailer, Request::Mail(errand)).await.ok()
    }

    async fn send(&mut self, letter: &Letter) -> Result<(), NotSent> {
        let text = written(&self.post, letter, self.app.clock.now());
        let (from, to) = (&*self.post.settings.from, &*letter.address);
        send_over(&mut self.session, &self.post.smtp, from, to, &text).await
    }
}

/// Sends one letter over the open connection, or a new one. The connection is kept for the next letter if possible.
pub(super) async fn send_over(
    kept: &mut Option<Session>,
    server: &Server,
    from: &str,
    to: &str,
    text: &str,
) -> Result<(), NotSent> {
    let is_kept = kept.is_some();
    let mut session = match kept.take() {
        Some(session) => session,
        None => server.open(own_name(from)).await?,
    };
    let mut sent = session.send(from, to, text).await;
    if is_kept && matches!(sent, Err(NotSent::Unreachable(_))) {
        // An idle connection may have been closed, which shows with the first command; a new connection may work.
        session = server.open(own_name(from)).await?;
        sent = session.send(from, to, text).await;
    }
    let is_usable = match &sent {
        Ok(()) => true,
        Err(NotSent::Refused(_)) => session.reset().await,
        Err(NotSent::Unreachable(_) | NotSent::BrokenOff(_)) => false,
    };
    *kept = is_usable.then_some(session);
    sent
}

/// Sends one letter over a connection of its own.
pub(super) async fn send_alone(post: &Post, to: &str, text: &str) -> Result<(), NotSent> {
    let from = &*post.settings.from;
    let mut session = post.smtp.open(own_name(from)).await?;
    session.send(from, to, text).await?;
    session.close().await;
    Ok(())
}

/// The own name in SMTP: the domain of the sender address.
fn own_name(from: &str) -> &str {
    from.rsplit_once('@').map_or("localhost", |(_, domain)| domain)
}

fn written(post: &Post, letter: &Letter, now: legwork_model::time::Timestamp) -> String {
    let agent = &letter.notice.agent;
    let (from, to) = (&*post.settings.from, &*letter.address);
    let (link, zone) = (post.settings.link.as_deref(), &letter.zone);
    let written = Written { from, to, agent, at: now, link, zone };
    match &letter.content {
        Content::Digest { turned_at } => {
            let about = &letter.notice.about;
            let named = format!("{about:?} {turned_at:?}");
            written.digest(about.iter().map(|(_, kind)| *kind), &named)
        }
        Content::Case(turn) => written.promise(turn),
        Content::Deadline(passing) => written.deadline(passing),
        Content::Item { about, expires_at } => {
            let (activity, kind) = (about.activity.clone(), about.kind);
            let grant = Grant { activity, agent: agent.clone(), kind, expires_at: *expires_at };
            let key = post.key().filter(|_| !about.words.is_empty());
            written.about(about, key.map(|key| Token::new(key, &grant, to)).as_ref())
        }
    }
}

/// Doubles a pause, within bounds.
pub(super) fn grown(pause: Duration, least: Duration, most: Duration) -> Duration {
    (2 * pause).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut pause = Duration::ZERO;
        let mut all = Vec::new();
        for _ in 0..12 {
            pause = grown(pause, PAUSE_MIN, PAUSE_MAX);
            all.push(pause.as_secs());
        }
        assert_eq!(all, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(own_name("legwork@mail.example"), "mail.example");
    }
}
