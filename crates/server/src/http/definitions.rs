//! Operations on definitions and on the organisation.
//!
//! Invariant: checking changes nothing and is done here, beside the drive thread; it finds what a
//! deployment would find.

use std::sync::Arc;

use legwork_api::definitions::{
    Agent, CheckAnswer, CheckRequest, Definition, DefinitionList, Deployed, Organisation,
    Published, VersionList,
};
use legwork_placement::{Domains, Topology};
use legwork_site::{Answer, Request};

use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;

pub(super) async fn deploy(x: Exchange<'_>) -> Result {
    let answer = x.ask(Request::Deploy { source: x.source()? }).await?;
    let Answer::Deployed { process, version, unchanged, warnings } = answer else {
        return strange();
    };
    let warnings = convert::findings(&warnings);
    Reply::json(&Deployed { process, version, unchanged, warnings })
}

pub(super) async fn list(x: Exchange<'_>) -> Result {
    let (after, limit) = (x.query.text("cursor").map(Into::into), x.query.limit()?);
    let answer = x.ask(Request::Definitions { after, limit }).await?;
    let Answer::Definitions { definitions, more } = answer else { return strange() };
    let next = definitions.last().filter(|_| more).map(|last| last.process.to_string());
    let definitions = definitions.into_iter().map(convert::definition_summary).collect();
    Reply::json(&DefinitionList { definitions, next })
}

pub(super) async fn definition_versions(x: Exchange<'_>) -> Result {
    let process = x.name()?.into();
    let (after, limit) = (x.query.parsed("cursor")?.unwrap_or(0), x.query.limit()?);
    versions(&x, Request::DefinitionVersions { process, after, limit }).await
}

pub(super) async fn show(x: Exchange<'_>) -> Result {
    let process = x.name()?.into();
    let version = x.query.parsed("version")?;
    let answer = x.ask(Request::Definition { process, version }).await?;
    let Answer::Definition { info, source } = answer else { return strange() };
    Reply::json(&Definition { summary: convert::definition_summary(info), source })
}

pub(super) async fn publish_organisation(x: Exchange<'_>) -> Result {
    let answer = x.ask(Request::PublishOrganisation { source: x.source()? }).await?;
    let Answer::Published { version, unchanged, warnings } = answer else { return strange() };
    Reply::json(&Published { version, unchanged, warnings: convert::findings(&warnings) })
}

pub(super) async fn organisation(x: Exchange<'_>) -> Result {
    let version = x.query.parsed("version")?;
    let answer = x.ask(Request::Organisation { version }).await?;
    if let Answer::Organisation { version, source, agents } = answer {
        let agents = convert::agents(agents);
        return Reply::json(&Organisation { version, source, agents });
    }
    let Answer::OrganisationText { version, source } = answer else { return strange() };
    // Nothing is kept of a version of the past but its text.
    let read = tokio::task::spawn_blocking(move || (agents_in(&source), source)).await;
    let (agents, source) = read.map_err(|error| Refused::fault(&error))?;
    Reply::json(&Organisation { version, source, agents })
}

fn agents_in(source: &str) -> Vec<Agent> {
    let organisation = legwork_org::Organisation::parse(source).0.unwrap_or_default();
    let agents = organisation.agents().iter();
    agents.map(|agent| Agent { agent: agent.id.0.clone(), name: agent.name.clone() }).collect()
}

pub(super) async fn organisation_versions(x: Exchange<'_>) -> Result {
    let after = x.query.parsed("cursor")?.unwrap_or(0);
    versions(&x, Request::OrganisationVersions { after, limit: x.query.limit()? }).await
}

pub(super) async fn versions(x: &Exchange<'_>, request: Request) -> Result {
    let Answer::Versions { versions, more } = x.ask(request).await? else { return strange() };
    let next = versions.last().filter(|_| more).map(|last| last.version.to_string());
    Reply::json(&VersionList {
        versions: versions.into_iter().map(convert::version).collect(),
        next,
    })
}

pub(super) async fn check(x: Exchange<'_>) -> Result {
    x.order(Request::RequireFiles).await?;
    let CheckRequest { source, organisation } = x.json()?;
    let in_force = match organisation {
        Some(_) => None,
        None => in_force(&x).await?,
    };
    let topology = topology(&x).await?;
    // A large text takes a while: it must not hold up the others on this thread.
    let found = tokio::task::spawn_blocking(move || match (&organisation, &in_force) {
        (Some(organisation), _) => find(&source, Some(organisation), topology.as_deref(), true),
        (None, in_force) => find(&source, in_force.as_deref(), topology.as_deref(), false),
    });
    Reply::json(&found.await.map_err(|error| Refused::fault(&error))?)
}

/// The organisation that a deployment would be checked against.
async fn in_force(x: &Exchange<'_>) -> Result<Option<Arc<str>>> {
    match x.ask(Request::Organisation { version: None }).await {
        Ok(Answer::Organisation { source, .. }) => Ok(Some(source)),
        Ok(_) => strange(),
        Err(refused) if refused.code() == "no_organisation" => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// The topology that a deployment would be checked against.
async fn topology(x: &Exchange<'_>) -> Result<Option<Arc<Topology>>> {
    match x.ask(Request::Topology { epoch: None }).await {
        Ok(Answer::Topology { topology, .. }) => Ok(Some(topology)),
        Ok(_) => strange(),
        Err(refused) if refused.code() == "no_topology" => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// As a deployment would find it; `told` if the organisation too is in question.
fn find(
    source: &str,
    organisation: Option<&str>,
    topology: Option<&Topology>,
    told: bool,
) -> CheckAnswer {
    use legwork_model::finding::Severity;
    let (parsed, mut organisation_findings) = match organisation {
        Some(text) => legwork_org::Organisation::parse(text),
        None => (None, Vec::new()),
    };
    if !told {
        organisation_findings.clear();
    }
    let (checked, mut findings) = legwork_org::check_text(source, parsed.as_ref());
    if let (Some(checked), Some(topology)) = (checked, topology) {
        findings.extend(Domains::of(&checked.definition).check(topology));
        findings.sort();
    }
    let mut all = findings.iter().chain(&organisation_findings);
    CheckAnswer {
        ok: all.all(|finding| finding.severity != Severity::Error),
        findings: convert::findings(&findings),
        organisation_findings: convert::findings(&organisation_findings),
    }
}
