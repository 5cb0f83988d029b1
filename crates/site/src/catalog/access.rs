//! Callers, tokens and their scopes.
//!
//! While there is no token, every caller may do everything (the server then listens on loopback only). With the first
//! token, every request needs one. Only hashes of tokens are kept.

use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use legwork_model::event::{Channel, Performer, TokenIssued};
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;
use rustc_hash::FxHashMap;

use crate::answer::{Answer, TokenInfo};
use crate::input::Credential;
use crate::refusal::Refusal;

/// A right. In text `admin`, `start`, `work:ann` (`work:*` for anybody), `worker`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everything.
    Admin,
    /// Start instances and look at them.
    Start,
    /// Act as this agent; `None`: as any agent.
    Work(Option<AgentId>),
    /// Take and report jobs.
    Worker,
}

/// Prefix of a schedule's name as a performer.
const SCHEDULE: &str = "schedule:";

/// A caller whose credential was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) scopes: Arc<[Scope]>,
    /// The channel of the request, if known.
    pub(crate) channel: Option<Channel>,
}

/// All tokens in force.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    by_name: std::collections::BTreeMap<String, Token>,
    /// Looked up by hash on every request; never iterated.
    by_hash: FxHashMap<[u8; 32], Caller>,
    /// How often the tokens have changed.
    revision: u64,
}

#[derive(Debug)]
struct Token {
    hash: [u8; 32],
    scopes: Arc<[Scope]>,
    issued_at: Timestamp,
}

impl Tokens {
    pub(crate) fn caller(&self, credential: &Credential) -> Result<Caller, Refusal> {
        match credential {
            Credential::None if self.by_name.is_empty() => Ok(Caller::itself()),
            Credential::Anybody => Ok(Caller::anybody()),
            // The signature identifies the executor; it has no scopes.
            Credential::Executor(name) => Ok(Caller::executor(name)),
            Credential::Reply(agent) => Ok(Caller::replying(agent)),
            Credential::Mailer => Ok(Caller::mailer()),
            Credential::Schedule(name) => Ok(Caller::schedule(name)),
            Credential::None => Err(Refusal::unauthenticated("no token was given")),
            Credential::Token(hash) => self
                .by_hash
                .get(hash)
                .cloned()
                .ok_or_else(|| Refusal::unauthenticated("the token is not known here")),
        }
    }

    pub(crate) fn issue(&mut self, token: &TokenIssued, at: Timestamp) {
        let scopes: Arc<[Scope]> =
            token.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
        let name: Arc<str> = Arc::from(token.name.as_str());
        let caller = Caller { name: Some(name), scopes: scopes.clone(), channel: None };
        self.revision += 1;
        self.by_hash.insert(token.hash, caller);
        let entry = Token { hash: token.hash, scopes, issued_at: at };
        self.by_name.insert(token.name.clone(), entry);
    }

    pub(crate) fn revoke(&mut self, name: &str) {
        if let Some(token) = self.by_name.remove(name) {
            self.revision += 1;
            self.by_hash.remove(&token.hash);
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether this is the only token with the scope admin. Without such a token nobody can administer the site.
    pub(crate) fn is_last_admin(&self, name: &str) -> bool {
        let admins = |token: &Token| token.scopes.contains(&Scope::Admin);
        self.by_name.get(name).is_some_and(admins)
            && self.by_name.iter().filter(|(other, token)| *other != name && admins(token)).count()
                == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn hashes(&self) -> impl Iterator<Item = [u8; 32]> {
        self.by_name.values().map(|token| token.hash)
    }

    /// Tokens after the given name, in order of name.
    pub(crate) fn list(&self, after: Option<&str>) -> impl Iterator<Item = TokenInfo> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tokens = self.by_name.range::<str, _>((from, Bound::Unbounded));
        tokens.map(|(name, token)| TokenInfo {
            name: name.clone(),
            scopes: token.scopes.to_vec(),
            issued_at: token.issued_at,
        })
    }
}

impl Caller {
    /// Name and scopes of the caller, as an answer.
    pub(crate) fn as_answer(&self) -> Answer {
        let name = self.name.as_deref().map(str::to_owned);
        Answer::Caller { name, scopes: self.scopes.to_vec() }
    }

    /// The site acting by itself, and every caller while no token exists.
    pub(crate) fn itself() -> Self {
        Self { name: None, scopes: Arc::from([Scope::Admin]), channel: None }
    }

    /// A caller without any scope.
    fn anybody() -> Self {
        Self { name: None, scopes: Arc::from([]), channel: None }
    }

    /// An executor, which may only report on its own tasks. No token can have such a name.
    fn executor(name: &str) -> Self {
        let name = Some(Arc::from(format!("executor:{name}")));
        Self { name, scopes: Arc::from([]), channel: None }
    }

    /// A person replying to a mail.
    fn replying(agent: &AgentId) -> Self {
        let scopes = Arc::from([Scope::Work(Some(agent.clone()))]);
        Self { name: None, scopes, channel: Some(Channel::MAIL) }
    }

    /// The sender of mail, which has no other rights.
    fn mailer() -> Self {
        Self { name: Some(Arc::from("mail:")), scopes: Arc::from([]), channel: None }
    }

    /// A schedule, which starts cases. In whose name was checked when the schedule was put. No token can have such a
    /// name.
    fn schedule(name: &str) -> Self {
        let name = Arc::from(format!("{SCHEDULE}{name}"));
        let scopes = Arc::from([Scope::Start, Scope::Work(None)]);
        Self { name: Some(name), scopes, channel: None }
    }

    /// The watch-dog when it puts weights in force.
    pub(crate) fn watchdog() -> Self {
        Self { name: Some(Arc::from("watchdog")), ..Self::itself() }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    pub(crate) fn require_admin(&self) -> Result<(), Refusal> {
        self.require("admin", |_| false)
    }

    pub(crate) fn require_start(&self) -> Result<(), Refusal> {
        self.require("start", |scope| *scope == Scope::Start)
    }

    pub(crate) fn require_worker(&self) -> Result<(), Refusal> {
        self.require("worker", |scope| *scope == Scope::Worker)
    }

    pub(crate) fn require_executor(&self, name: &str) -> Result<(), Refusal> {
        match *self == Self::executor(name) {
            true => Ok(()),
            false => Err(Refusal::forbidden(&format!("executor:{name}"))),
        }
    }

    pub(crate) fn require_schedule(&self, name: &str) -> Result<(), Refusal> {
        match *self == Self::schedule(name) {
            true => Ok(()),
            false => Err(Refusal::forbidden(&format!("{SCHEDULE}{name}"))),
        }
    }

    /// Whether the request is a periodic start and was made by no person or program.
    pub(crate) fn is_schedule(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name.starts_with(SCHEDULE))
    }

    pub(crate) fn require_mailer(&self) -> Result<(), Refusal> {
        match *self == Self::mailer() {
            true => Ok(()),
            false => Err(Refusal::forbidden("mail:")),
        }
    }

    /// Answers a request that only asks for permission.
    pub(crate) fn may_ask(&self) -> Result<Answer, Refusal> {
        self.require_any().map(|()| Answer::Done)
    }

    /// Requires any scope at all.
    pub(crate) fn require_any(&self) -> Result<(), Refusal> {
        self.require("any", |_| true)
    }

    pub(crate) fn require_work_as(&self, agent: &AgentId) -> Result<(), Refusal> {
        self.require(&format!("work:{agent}"), |scope| match scope {
            Scope::Work(None) => true,
            Scope::Work(Some(own)) => own == agent,
            Scope::Admin | Scope::Start | Scope::Worker => false,
        })
    }

    fn require(&self, needed: &str, has: impl Fn(&Scope) -> bool) -> Result<(), Refusal> {
        if self.is_admin() || self.scopes.iter().any(has) {
            Ok(())
        } else {
            Err(Refusal::forbidden(needed))
        }
    }

    /// The performer recorded in the history if no agent is named.
    pub(crate) fn performer(&self) -> Performer {
        self.name.as_ref().map_or(Performer::System, |name| {
            let name =
                if self.is_schedule() { name.clone() } else { format!("token:{name}").into() };
            Performer::Agent(AgentId(name))
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Start => f.write_str("start"),
            Self::Work(None) => f.write_str("work:*"),
            Self::Work(Some(agent)) => write!(f, "work:{agent}"),
            Self::Worker => f.write_str("worker"),
        }
    }
}

/// A text that is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a scope; use admin, start, work:AGENT (or work:*) or worker")]
pub struct UnknownScope(pub String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        match text {
            "admin" => Ok(Self::Admin),
            "start" => Ok(Self::Start),
            "worker" => Ok(Self::Worker),
            "work:*" => Ok(Self::Work(None)),
            other => match other.strip_prefix("work:") {
                Some(agent) if !agent.is_empty() => Ok(Self::Work(Some(AgentId::from(agent)))),
                Some(_) | None => Err(UnknownScope(text.chars().take(80).collect())),
            },
        }
    }
}
