//! `legwork deploy`: deploys files, the organisation first.
//!
//! Invariant: nothing is sent unless everything passes the check here, so that a mistake in the
//! last file does not leave the first ones deployed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use legwork_api::Problem;
use legwork_api::client::Error;
use legwork_api::definitions::{Deployed, Finding, Published};
use serde::Serialize;

use crate::check::check_all;
use crate::context::Context;
use crate::failure::Told;
use crate::findings;
use crate::output::{self, remark};
use crate::progress::Progress;
use crate::source::{self, Kind, Source};
use crate::style::{BAD, DIM, GOOD, paint};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Definitions, and at most one organisation; the content tells which is which
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    organisation: Option<Published>,
    definitions: Vec<Deployed>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let mut sources = source::read_all(&args.files)?;
    sources.sort_by_key(|source| source.kind != Kind::Organisation);
    refuse_second_organisation(&sources)?;
    refuse_topology(&sources)?;
    refuse_wrong(context, &sources)?;
    let mut answer = Answer::default();
    let mut progress = Progress::things_of(sources.len(), "deploying");
    for source in &sources {
        match source.kind {
            Kind::Organisation => {
                let published = context.client.publish_organisation(&source.text).await;
                let published = published.map_err(|error| refused(context, source, error))?;
                tell(context, source, &published.warnings, || organisation(&published))?;
                answer.organisation = Some(published);
            }
            Kind::Definition => {
                let deployed = context.client.deploy(&source.text).await;
                let deployed = deployed.map_err(|error| refused(context, source, error))?;
                tell(context, source, &deployed.warnings, || definition(&deployed))?;
                answer.definitions.push(deployed);
            }
            // Refused above.
            Kind::Topology => {}
        }
        progress.advance(1);
    }
    drop(progress);
    context.out.answer(&answer, String::new)
}

fn refuse_second_organisation(sources: &[Source]) -> Result<()> {
    let organisations: Vec<String> = sources
        .iter()
        .filter(|source| source.kind == Kind::Organisation)
        .map(|source| source.path.display().to_string())
        .collect();
    match organisations.len() {
        0 | 1 => Ok(()),
        _ => bail!("a server has one organisation; deploy one of {}", organisations.join(", ")),
    }
}

fn refuse_topology(sources: &[Source]) -> Result<()> {
    match sources.iter().find(|source| source.kind == Kind::Topology) {
        None => Ok(()),
        Some(source) => {
            let path = source.path.display();
            bail!("{path} is a topology; publish it with `legwork cluster publish {path}`")
        }
    }
}

fn refuse_wrong(context: &Context, sources: &[Source]) -> Result<()> {
    let found = check_all(sources, None);
    let (errors, warnings) = findings::tally(found.iter().flatten());
    if errors == 0 {
        return Ok(());
    }
    if context.out.json {
        // As the server would have reported it.
        let detail = "the check found errors, nothing was deployed; mend them and try again";
        let mut problem = Problem::new(422, "check_failed", detail);
        problem.findings = found.into_iter().flatten().collect();
        return Err(Error::Problem(Box::new(problem)).into());
    }
    for (source, findings) in sources.iter().zip(&found) {
        render(source, findings).iter().for_each(|text| remark(text));
    }
    remark(findings::summary(sources.len(), errors, warnings).trim_end());
    remark(&format!("{} nothing was deployed; mend the errors first", paint(BAD, "error:")));
    Err(Told.into())
}

/// The server's findings, with excerpts of their text.
pub(crate) fn refused(context: &Context, source: &Source, error: Error) -> anyhow::Error {
    let findings = error.problem().map(|problem| problem.findings.clone()).unwrap_or_default();
    if context.out.json || findings.is_empty() {
        return error.into();
    }
    render(source, &findings).iter().for_each(|text| remark(text));
    let path = source.path.display();
    remark(&format!("{} the server refused {path}; mend the errors first", paint(BAD, "error:")));
    Told.into()
}

fn tell(
    context: &Context,
    source: &Source,
    warnings: &[Finding],
    text: impl FnOnce() -> String,
) -> Result<()> {
    if context.out.json {
        return Ok(());
    }
    render(source, warnings).iter().for_each(|warning| remark(warning));
    output::write(&text())
}

fn render(source: &Source, findings: &[Finding]) -> Vec<String> {
    let text = |finding| findings::render(&source.path, &source.text, finding);
    findings.iter().map(|finding| text(finding).trim_end().to_owned()).collect()
}

fn organisation(published: &Published) -> String {
    let Published { version, unchanged, .. } = published;
    format!("{} organisation, version {version}{}\n", paint(GOOD, "✔"), known(*unchanged))
}

fn definition(deployed: &Deployed) -> String {
    let Deployed { process, version, unchanged, .. } = deployed;
    format!("{} process {process}, version {version}{}\n", paint(GOOD, "✔"), known(*unchanged))
}

fn known(unchanged: bool) -> String {
    if unchanged { paint(DIM, " (there already)") } else { String::new() }
}
