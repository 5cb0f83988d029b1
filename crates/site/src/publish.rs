//! Deploying definitions, publishing organisations, issuing tokens: the site's own stream.

use legwork_model::event::{Performer, Record, SiteEvent, TokenIssued};
use legwork_model::finding::Severity;
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_org::{Assignments, Organisation};

use crate::Site;
use crate::access::{Caller, Scope};
use crate::answer::{AgentInfo, Answer};
use crate::catalog::{PROCESSES_MAX, VERSIONS_MAX};
use crate::output::{Append, Output};
use crate::refusal::{Kind, Refusal};

const TOKENS_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 64;

impl Site {
    /// Takes a definition into service if it passes the check. Deploying the latest version once
    /// more changes nothing.
    pub(crate) fn deploy(
        &mut self,
        caller: &Caller,
        source: &str,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let (checked, warnings) = self.catalog.check(source).map_err(Refusal::check_failed)?;
        let process = checked.schema.process.clone();
        let versions = self.catalog.versions(&process);
        if let Some(latest) = versions.last().filter(|latest| &*latest.source == source) {
            let version = latest.schema.version;
            return Ok(Answer::Deployed { process, version, unchanged: true, warnings });
        }
        if versions.len() >= VERSIONS_MAX || self.catalog.len() >= PROCESSES_MAX {
            let message =
                format!("a site takes {PROCESSES_MAX} processes with {VERSIONS_MAX} versions each");
            return Err(Refusal::new(Kind::Exhausted, "too_many_definitions", message));
        }
        let version = checked.schema.version;
        let event = SiteEvent::DefinitionDeployed {
            process: process.clone(),
            version,
            source: source.to_owned(),
            by: caller.performer(),
        };
        self.record(event, now);
        self.catalog.deploy(checked.schema, checked.assignments, source, now);
        Ok(Answer::Deployed { process, version, unchanged: false, warnings })
    }

    pub(crate) fn definitions(&self) -> Answer {
        Answer::Definitions(self.catalog.list())
    }

    pub(crate) fn definition(
        &self,
        process: &str,
        version: Option<u32>,
    ) -> Result<Answer, Refusal> {
        let deployed = self.catalog.find(process, version).ok_or_else(|| {
            let version = version.map(|number| format!(" version {number}")).unwrap_or_default();
            Refusal::not_found("no_such_process", format!("process `{process}`{version}"))
        })?;
        Ok(Answer::Definition { info: deployed.info(), source: deployed.source.clone() })
    }

    /// Puts an organisation in force. Open items are offered anew under it.
    pub(crate) fn publish(
        &mut self,
        caller: &Caller,
        source: &str,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let (organisation, mut findings) = Organisation::parse(source);
        let has_errors = findings.iter().any(|finding| finding.severity == Severity::Error);
        let organisation = match organisation {
            Some(organisation) if !has_errors => organisation,
            Some(_) | None => return Err(Refusal::check_failed(findings)),
        };
        let version = self.catalog.published().version;
        if &*self.catalog.published().source == source {
            return Ok(Answer::Published { version, unchanged: true, warnings: findings });
        }
        findings.extend(self.catalog.check_all(&organisation));
        let version = version + 1;
        let event = SiteEvent::OrganisationPublished {
            version,
            source: source.to_owned(),
            by: caller.performer(),
        };
        self.record(event, now);
        self.catalog.publish(organisation, version, source);
        self.offer_anew(now);
        Ok(Answer::Published { version, unchanged: false, warnings: findings })
    }

    pub(crate) fn organisation(&self) -> Result<Answer, Refusal> {
        self.organisation_in_force()?;
        let published = self.catalog.published();
        let agents = published
            .organisation
            .agents()
            .iter()
            .map(|agent| AgentInfo { agent: agent.id.clone(), name: agent.name.clone() })
            .collect();
        Ok(Answer::Organisation {
            version: published.version,
            source: published.source.clone(),
            agents,
        })
    }

    pub(crate) fn issue_token(
        &mut self,
        caller: &Caller,
        name: String,
        hash: [u8; 32],
        scopes: &[Scope],
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
            let message = format!(
                "a token's name has 1 to {NAME_BYTES_MAX} letters, digits, dashes, dots or underscores"
            );
            return Err(Refusal::new(Kind::Invalid, "bad_token_name", message));
        }
        if self.tokens.contains(&name) {
            let message =
                format!("there is a token `{name}` already; revoke it or choose another name");
            return Err(Refusal::new(Kind::Conflict, "token_exists", message));
        }
        if self.tokens.len() >= TOKENS_MAX {
            let message = format!("a site keeps {TOKENS_MAX} tokens; revoke some");
            return Err(Refusal::new(Kind::Exhausted, "too_many_tokens", message));
        }
        if self.tokens.len() == 0 && !scopes.contains(&Scope::Admin) {
            let message = "the first token must have the scope admin, or nobody could make others";
            return Err(Refusal::new(Kind::Invalid, "first_token_not_admin", message));
        }
        let scopes = scopes.iter().map(ToString::to_string).collect();
        let token = TokenIssued { name, hash, scopes, by: caller.performer() };
        self.tokens.issue(&token, now);
        self.record(SiteEvent::TokenIssued(token), now);
        Ok(Answer::Done)
    }

    pub(crate) fn revoke_token(
        &mut self,
        caller: &Caller,
        name: String,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        if !self.tokens.contains(&name) {
            return Err(Refusal::not_found("no_such_token", format!("token `{name}`")));
        }
        if self.tokens.is_last_admin(&name) && self.tokens.len() > 1 {
            let message = "it is the last token with the scope admin; revoke the others first";
            return Err(Refusal::new(Kind::Conflict, "last_admin_token", message));
        }
        self.tokens.revoke(&name);
        self.record(SiteEvent::TokenRevoked { name, by: caller.performer() }, now);
        Ok(Answer::Done)
    }

    fn record(&mut self, event: SiteEvent, now: Timestamp) {
        let record = Record { at: now, events: vec![event] }.to_bytes();
        let append =
            Append { stream: StreamId::SITE.0, expected: self.version, record, close: None };
        self.version += 1;
        self.out.push(Output::Append(append));
    }

    /// Folds one stored event of the site's own stream.
    pub(crate) fn replay_site_event(
        &mut self,
        event: SiteEvent,
        at: Timestamp,
    ) -> Result<(), String> {
        match event {
            SiteEvent::DefinitionDeployed { process, version, source, by: _ } => {
                // Not checked again: what ran under an older check goes on running.
                let (definition, _) = yaml::parse(&source);
                let definition = definition.ok_or_else(|| {
                    format!("process `{process}` version {version} is unreadable")
                })?;
                let schema = legwork_model::compile::compile(&definition, version)
                    .map_err(|error| format!("process `{process}` version {version}: {error}"))?;
                self.catalog.deploy(schema, Assignments::of(&definition), &source, at);
            }
            SiteEvent::OrganisationPublished { version, source, by: _ } => {
                let (organisation, _) = Organisation::parse(&source);
                let organisation = organisation
                    .ok_or_else(|| format!("organisation version {version} is unreadable"))?;
                self.catalog.publish(organisation, version, &source);
                // The site's own stream comes first: there are no items yet to carry over.
                self.worklists = Self::empty_worklists(&self.config, &self.catalog);
            }
            SiteEvent::TokenIssued(token) => self.tokens.issue(&token, at),
            SiteEvent::TokenRevoked { name, by: _ } => self.tokens.revoke(&name),
        }
        Ok(())
    }
}

/// A person's name in the history.
pub(crate) fn as_performer(
    agent: Option<&legwork_model::id::AgentId>,
    caller: &Caller,
) -> Performer {
    agent.map_or_else(|| caller.performer(), |agent| Performer::Agent(agent.clone()))
}
