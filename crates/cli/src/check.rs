//! `legwork check`: mistakes in definitions, organisations and topologies, without a server.
//!
//! Invariant: a text that passes here is not refused by a server, as both apply the same rules.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use legwork_api::definitions::Finding;
use legwork_model::finding;
use legwork_org::Organisation;
use legwork_placement::{Domains, Topology};
use serde::Serialize;

use crate::failure::Told;
use crate::findings;
use crate::output::{self, Output};
use crate::source::{self, Kind, Source};

#[derive(Debug, clap::Args)]
#[command(override_usage = "legwork check [--org ORGANISATION] FILE...")]
pub(crate) struct Args {
    /// Definitions, organisations and topologies: a file that begins with `organisation:` or
    /// `topology:` is one
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The organisation whose people do the work [default: the one among the files]
    #[arg(long, value_name = "ORGANISATION")]
    org: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report<'s> {
    ok: bool,
    errors: usize,
    warnings: usize,
    files: Vec<FileReport<'s>>,
}

#[derive(Debug, Serialize)]
struct FileReport<'s> {
    file: &'s Path,
    kind: &'static str,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let mut sources = source::read_all(&args.files)?;
    let own = args.org.as_deref().map(source::read).transpose()?;
    if let Some(own) = own {
        if own.kind != Kind::Organisation {
            let path = own.path.display();
            bail!("{path} does not begin with `organisation:`; give an organisation with --org");
        }
        sources.retain(|source| source.path != own.path);
        sources.push(own);
    }
    let findings = check_all(&sources, args.org.as_deref());
    let (errors, warnings) = findings::tally(findings.iter().flatten());
    if out.json {
        let files = sources.iter().zip(findings).map(|(source, findings)| FileReport {
            file: &source.path,
            kind: source.kind.name(),
            findings,
        });
        let files = files.collect();
        out.answer(&Report { ok: errors == 0, errors, warnings, files }, String::new)?;
    } else {
        for (source, findings) in sources.iter().zip(&findings) {
            for finding in findings {
                output::write(&findings::render(&source.path, &source.text, finding))?;
            }
        }
        output::write(&findings::summary(sources.len(), errors, warnings))?;
    }
    if errors == 0 { Ok(()) } else { Err(Told.into()) }
}

/// The findings of every source, in order.
pub(crate) fn check_all(sources: &[Source], own: Option<&Path>) -> Vec<Vec<Finding>> {
    let people: Vec<People> = sources
        .iter()
        .filter(|source| source.kind == Kind::Organisation)
        .map(|source| {
            let (organisation, findings) = Organisation::parse(&source.text);
            People { path: &source.path, organisation, findings }
        })
        .collect();
    let sites = sites(sources);
    let check = |source: &Source| match source.kind {
        Kind::Definition => {
            check_definition(&source.text, people_of(source, &people, own), sites.as_ref())
        }
        Kind::Topology => Topology::parse(&source.text).1,
        Kind::Organisation => {
            let own = people.iter().find(|people| people.path == source.path);
            own.map(|own| own.findings.clone()).unwrap_or_default()
        }
    };
    sources.iter().map(|source| check(source).iter().map(Finding::from).collect()).collect()
}

struct People<'s> {
    path: &'s Path,
    organisation: Option<Organisation>,
    findings: Vec<finding::Finding>,
}

/// The organisation for a definition: the requested one, else the only one, else one in the same
/// folder.
fn people_of<'p>(
    source: &Source,
    people: &'p [People<'_>],
    own: Option<&Path>,
) -> Option<&'p Organisation> {
    let fits = |one: &&People<'_>| match own {
        Some(own) => one.path == own,
        None => people.len() == 1 || one.path.parent() == source.path.parent(),
    };
    people.iter().find(fits)?.organisation.as_ref()
}

/// The only topology, if it is valid.
fn sites(sources: &[Source]) -> Option<Topology> {
    let mut all = sources.iter().filter(|source| source.kind == Kind::Topology);
    match (all.next(), all.next()) {
        (Some(only), None) => Topology::parse(&only.text).0,
        (_, _) => None,
    }
}

fn check_definition(
    text: &str,
    people: Option<&Organisation>,
    sites: Option<&Topology>,
) -> Vec<finding::Finding> {
    let (checked, mut findings) = legwork_org::check_text(text, people);
    if let (Some(checked), Some(sites)) = (checked, sites) {
        findings.extend(Domains::of(&checked.definition).check(sites));
        findings.sort();
    }
    findings
}
