//! `legwork processes` and `legwork organisation`: what is deployed.
//!
//! Invariant: a source is printed as it was deployed, to the letter, so that it can be checked,
//! changed and deployed again.

use anyhow::Result;
use legwork_api::client::Error;
use legwork_api::definitions::DefinitionSummary;
use legwork_model::yaml::nearest;

use crate::context::Context;
use crate::output;
use crate::style::{DIM, STRONG, paint};
use crate::table::{Cell, Table};
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Print the definition of this process instead of the list
    process: Option<String>,
    /// Its version [default: the latest]
    #[arg(long, value_name = "N", requires = "process")]
    version: Option<u32>,
}

pub(crate) async fn processes(context: &Context, args: &ProcessArgs) -> Result<()> {
    let Some(process) = &args.process else {
        let list = context.client.definitions().await?;
        return context.out.answer(&list, || render(&list.definitions));
    };
    match context.client.definition(process, args.version).await {
        Ok(definition) => context.out.verbatim(&definition, || definition.source.to_string()),
        Err(error) => Err(named(context, error, process).await.into()),
    }
}

pub(crate) async fn organisation(context: &Context) -> Result<()> {
    let organisation = context.client.organisation().await?;
    if context.out.json {
        return context.out.answer(&organisation, String::new);
    }
    output::write(&organisation.source)?;
    output::remark(&paint(DIM, format!("version {}", organisation.version)));
    Ok(())
}

/// Adds a suggestion to the error, if there is no such process.
pub(crate) async fn named(context: &Context, mut error: Error, process: &str) -> Error {
    if let Error::Problem(problem) = &mut error
        && problem.code == "no_such_process"
    {
        let known = context.client.definitions().await.ok();
        let known = known.iter().flat_map(|list| &list.definitions);
        let names = known.map(|definition| &*definition.process).filter(|name| *name != process);
        let next = match nearest(process, names) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => "; list what is deployed with `legwork processes`".to_owned(),
        };
        problem.detail.push_str(&next);
    }
    error
}

fn render(definitions: &[DefinitionSummary]) -> String {
    if definitions.is_empty() {
        return "nothing is deployed yet; deploy a definition with `legwork deploy FILE`\n".into();
    }
    let mut table = Table::new(&["PROCESS", "VERSION", "DEPLOYED", "TITLE"]);
    for one in definitions {
        table.row([
            Cell::styled(STRONG, &one.process),
            Cell::from(one.version.to_string()),
            Cell::styled(DIM, when::minute(one.deployed_at)),
            Cell::from(&*one.title),
        ]);
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_model::time::Timestamp;

    #[test]
    fn processes_are_listed_with_their_latest_version() {
        let one = DefinitionSummary {
            process: "loan".into(),
            version: 2,
            title: "A loan with four eyes".into(),
            deployed_at: Timestamp(1_772_357_405_000),
        };
        insta::assert_snapshot!(anstream::adapter::strip_str(&render(&[one])).to_string(), @r"
        PROCESS  VERSION  DEPLOYED           TITLE
        loan     2        2026-03-01 09:30Z  A loan with four eyes
        ");
        assert!(render(&[]).contains("legwork deploy"));
    }
}
