//! Deploying definitions, publishing organisations, issuing tokens: records of the site's own stream.
//!
//! Invariant: of several servers only the registrar writes this stream; see `replicate`.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{Performer, Record, SiteEvent, TokenIssued};
use legwork_model::finding::Severity;
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;
use legwork_org::Organisation;

use crate::answer::{AgentInfo, Answer};
use crate::bounds::Limits;
use crate::catalog::Catalog;
use crate::catalog::Deployed;
use crate::catalog::access::{Caller, Scope};
use crate::catalog::changes::Pending;
use crate::input::RequestId;
use crate::output::{Append, Output};
use crate::refusal::{Kind, Refusal};
use crate::{Site, page};

const NAME_BYTES_MAX: usize = 64;

impl Catalog {
    pub(crate) fn definitions(
        &self,
        caller: &Caller,
        after: Option<Arc<str>>,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let (definitions, more) = page(self.list(after.as_deref()), limit);
        Ok(Answer::Definitions { definitions, more })
    }

    pub(crate) fn definition_versions(
        &self,
        caller: &Caller,
        process: &str,
        after: u32,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let deployed = self.versions(process);
        if deployed.is_empty() {
            return Err(Refusal::not_found("no_such_process", format!("process `{process}`")));
        }
        let all = deployed.iter().skip(after as usize).map(Deployed::version_info);
        let (versions, more) = page(all, limit);
        Ok(Answer::Versions { versions, more })
    }

    pub(crate) fn definition(
        &self,
        caller: &Caller,
        process: &str,
        version: Option<u32>,
    ) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let deployed = self.find(process, version).ok_or_else(|| {
            let version = version.map(|number| format!(" version {number}")).unwrap_or_default();
            Refusal::not_found("no_such_process", format!("process `{process}`{version}"))
        })?;
        Ok(Answer::Definition { info: deployed.info(), source: deployed.source.clone() })
    }

    pub(crate) fn organisation_versions(
        &self,
        caller: &Caller,
        after: u32,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let (versions, more) = page(self.editions(after), limit);
        Ok(Answer::Versions { versions, more })
    }

    fn organisation_now(&self) -> Result<Answer, Refusal> {
        self.organisation_in_force()?;
        let published = self.published();
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

    pub(crate) fn list_tokens(
        &self,
        caller: &Caller,
        after: Option<String>,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let (tokens, more) = page(self.tokens.list(after.as_deref()), limit);
        Ok(Answer::Tokens { tokens, more })
    }
}

impl Site {
    /// Deploys a definition if it passes the check. Deploying the latest version again changes nothing.
    pub(crate) fn deploy(
        &mut self,
        caller: &Caller,
        source: &str,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        self.cluster.require_registrar()?;
        let (checked, warnings) = self.catalog.check(source).map_err(Refusal::check_failed)?;
        let process = checked.schema.process.clone();
        let versions = self.catalog.versions(&process);
        if let Some(latest) = versions.last().filter(|latest| &*latest.source == source) {
            let version = latest.version;
            return Ok(Answer::Deployed { process, version, unchanged: true, warnings });
        }
        self.require_place(versions.len(), source)?;
        let version = checked.schema.version;
        let event = SiteEvent::DefinitionDeployed {
            process: process.clone(),
            version,
            source: source.to_owned(),
            by: caller.performer(),
        };
        self.record(event, now);
        self.catalog.deploy(checked, source, now);
        Ok(Answer::Deployed { process, version, unchanged: false, warnings })
    }

    /// Refuses a definition beyond the limits; `versions` is the number of versions its process has.
    fn require_place(&self, versions: usize, source: &str) -> Result<(), Refusal> {
        let Limits { processes, versions: versions_max, definition_bytes, .. } = self.config.limits;
        let message = if versions == 0 && self.catalog.len() >= processes {
            format!(
                "there are {processes} processes, as many as fit; deploy this one as a version of \
                 another process, or on another server"
            )
        } else if versions >= versions_max {
            format!(
                "there are {versions} versions of this process, as many as fit; give it another \
                 name"
            )
        } else if self.catalog.source_bytes() + source.len() as u64 > definition_bytes {
            format!(
                "the texts of all definitions take {} bytes, at most {definition_bytes} fit; \
                 shorten this one, or deploy it on another server",
                self.catalog.source_bytes()
            )
        } else {
            return Ok(());
        };
        Err(Refusal::new(Kind::Conflict, "too_many_definitions", message))
    }

    /// Puts an organisation in force and offers open items anew.
    pub(crate) fn publish(
        &mut self,
        caller: &Caller,
        source: &str,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        self.cluster.require_registrar()?;
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
        let most = self.config.limits.organisations;
        if version as usize >= most {
            let message = format!(
                "the organisation has been published {version} times, the most allowed; publish \
                 less often, and continue with a new server"
            );
            return Err(Refusal::new(Kind::Conflict, "too_many_organisations", message));
        }
        findings.extend(self.catalog.check_all(&organisation));
        let version = version + 1;
        let event = SiteEvent::OrganisationPublished {
            version,
            source: source.to_owned(),
            by: caller.performer(),
        };
        self.catalog.publish(organisation, source, self.catalog.log.version, now);
        self.record(event, now);
        self.reoffer_all(now);
        Ok(Answer::Published { version, unchanged: false, warnings: findings })
    }

    /// The organisation in force, or another version read from the store.
    pub(crate) fn organisation(&mut self, id: RequestId, caller: &Caller, version: Option<u32>) {
        let answer = match caller.require_any() {
            Err(refusal) => Err(refusal),
            Ok(()) if version.is_none_or(|asked| asked == self.catalog.published().version) => {
                self.catalog.organisation_now()
            }
            Ok(()) => match version.and_then(|asked| self.catalog.edition(asked)) {
                Some(edition) => {
                    return self.out.push(Output::ReadOwn { id, record: edition.record });
                }
                None => Err(no_edition(version)),
            },
        };
        self.answer(id, answer);
    }

    pub(crate) fn own_read(&mut self, id: RequestId, record: Option<&[u8]>) {
        let read = record.and_then(|bytes| Record::<SiteEvent>::from_bytes(bytes).ok());
        let found =
            read.into_iter().flat_map(|record| record.events).find_map(|event| match event {
                SiteEvent::OrganisationPublished { version, source, .. } => {
                    Some(Answer::OrganisationText { version, source: source.into() })
                }
                SiteEvent::TopologyPublished { epoch, source, .. } => {
                    Some(Answer::TopologyText { epoch, source: source.into() })
                }
                SiteEvent::DefinitionDeployed { .. }
                | SiteEvent::TokenIssued(_)
                | SiteEvent::TokenRevoked { .. }
                | SiteEvent::ChangeBegun { .. }
                | SiteEvent::Excepted { .. }
                | SiteEvent::ChangeUndone { .. }
                | SiteEvent::Unexcepted { .. }
                | SiteEvent::ExecutorRegistered(_)
                | SiteEvent::ExecutorRemoved { .. }
                | SiteEvent::PolicySet(_)
                | SiteEvent::SchedulePut(_)
                | SiteEvent::ScheduleRemoved { .. }
                | SiteEvent::SchedulePaused { .. } => None,
            });
        self.answer(id, found.ok_or_else(|| no_edition(None)));
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
        self.cluster.require_registrar()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
            let message = format!(
                "a token's name has 1 to {NAME_BYTES_MAX} letters, digits, dashes, dots or underscores"
            );
            return Err(Refusal::new(Kind::Invalid, "bad_token_name", message));
        }
        if self.catalog.tokens.contains(&name) {
            let message =
                format!("there is a token `{name}` already; revoke it or choose another name");
            return Err(Refusal::new(Kind::Conflict, "token_exists", message));
        }
        if self.catalog.tokens.len() >= self.config.limits.tokens {
            let message = format!(
                "there are {} tokens, as many as fit; revoke an unused token",
                self.catalog.tokens.len()
            );
            return Err(Refusal::new(Kind::Conflict, "too_many_tokens", message));
        }
        if self.catalog.tokens.len() == 0 && !scopes.contains(&Scope::Admin) {
            let message = "the first token must have the scope admin, or nobody could make others";
            return Err(Refusal::new(Kind::Invalid, "first_token_not_admin", message));
        }
        let scopes = scopes.iter().map(ToString::to_string).collect();
        let token = TokenIssued { name, hash, scopes, by: caller.performer() };
        self.catalog.tokens.issue(&token, now);
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
        self.cluster.require_registrar()?;
        if !self.catalog.tokens.contains(&name) {
            return Err(Refusal::not_found(
                "no_such_token",
                format!("token `{name}`; see `legwork token list`"),
            ));
        }
        if self.catalog.tokens.is_last_admin(&name) && self.catalog.tokens.len() > 1 {
            let message =
                format!("`{name}` is the last token with the scope admin; revoke the others first");
            return Err(Refusal::new(Kind::Conflict, "last_admin_token", message));
        }
        self.catalog.tokens.revoke(&name);
        self.record(SiteEvent::TokenRevoked { name, by: caller.performer() }, now);
        Ok(Answer::Done)
    }

    pub(crate) fn record(&mut self, event: SiteEvent, now: Timestamp) {
        let record = Record { at: now, events: vec![event] }.to_bytes();
        self.append_own(record.clone());
        self.push_record(record);
    }

    /// Appends a record to the site's own stream.
    pub(crate) fn append_own(&mut self, record: Vec<u8>) {
        self.catalog.log.chain.push(&record);
        let expected = self.catalog.log.version;
        self.catalog.log.version += 1;
        let append = Append { stream: StreamId::SITE.0, expected, record, close: None };
        self.out.push(Output::Append(append));
    }

    /// Folds one stored event of the site's own stream; `record` is the number of its record. An event that cannot be
    /// folded changes nothing.
    pub(crate) fn replay_site_event(
        &mut self,
        event: SiteEvent,
        record: u64,
        at: Timestamp,
    ) -> Result<(), String> {
        match event {
            SiteEvent::DefinitionDeployed { process, version, source, by: _ } => {
                if self.catalog.versions(&process).len() as u32 + 1 != version {
                    return Err(format!("process `{process}` version {version} is out of order"));
                }
                self.catalog.redeploy(process, &source, at);
            }
            SiteEvent::OrganisationPublished { version, source, by: _ } => {
                if self.catalog.published().version + 1 != version {
                    return Err(format!("organisation version {version} is out of order"));
                }
                self.catalog.republish(&source, record, at);
            }
            SiteEvent::TopologyPublished { epoch, source, by: _, rules } => {
                let rules = self.catalog.changes().rules(&rules)?;
                let topology = self.catalog.next_topology(&source, &rules).0;
                let topology = topology.filter(|next| next.epoch == epoch).ok_or_else(|| {
                    format!("epoch {epoch} of the topology is unreadable or out of order")
                })?;
                self.catalog.publish_topology(topology, &source, record, at);
            }
            SiteEvent::TokenIssued(token) => self.catalog.tokens.issue(&token, at),
            SiteEvent::TokenRevoked { name, by: _ } => self.catalog.tokens.revoke(&name),
            SiteEvent::ChangeBegun { number, source, method, by, without } => {
                let change =
                    self.catalog.next_topology(&source, &BTreeMap::new()).0.and_then(|next| {
                        let change = self.catalog.topology()?.topology.change_to(&next);
                        Some((next, change))
                    });
                let change = change.ok_or_else(|| format!("change {number} is unreadable"))?;
                let asked = (source.into(), method, by);
                let without = without.into_iter().collect();
                let pending = Pending::new(number, asked, without, change, (record + 1, at));
                self.catalog.begin_change(pending)?;
            }
            SiteEvent::Excepted { domain, ids } => self.catalog.except(domain, ids)?,
            SiteEvent::ChangeUndone { number, why, by: _ } => {
                self.catalog.undo_change(number, &why)?;
            }
            SiteEvent::ExecutorRegistered(executor) => {
                self.executors.on_executor_registered(*executor)
            }
            SiteEvent::ExecutorRemoved { name, by: _ } => self.on_executor_removed(&name),
            SiteEvent::PolicySet(setting) => self.on_policy_set(*setting),
            SiteEvent::SchedulePut(put) => self.schedules.on_put(*put, at)?,
            SiteEvent::ScheduleRemoved { name, by: _ } => self.schedules.on_removed(&name),
            SiteEvent::SchedulePaused { name, is_paused, by: _ } => {
                self.schedules.on_paused(&name, is_paused, at);
            }
            SiteEvent::Unexcepted { domain, ids } => {
                self.cluster.note_recorded_over(domain, &ids);
                self.catalog.unexcept(domain, ids);
            }
        }
        Ok(())
    }
}

fn no_edition(version: Option<u32>) -> Refusal {
    let version = version.map(|number| format!(" version {number}")).unwrap_or_default();
    let what = format!("organisation{version}; `GET /v1/organisation/versions` lists them");
    Refusal::not_found("no_organisation", what)
}

/// The performer recorded for an agent, or for the caller if no agent is named.
pub(crate) fn as_performer(
    agent: Option<&legwork_model::id::AgentId>,
    caller: &Caller,
) -> Performer {
    agent.map_or_else(|| caller.performer(), |agent| Performer::Agent(agent.clone()))
}
