//! `legwork list`: instances, newest first.
//!
//! Invariant: never more than requested, and a remark if there are more.

use anyhow::Result;
use legwork_api::client::InstanceQuery;
use legwork_api::instances::{InstanceList, InstanceSummary};

use crate::abbreviate::short;
use crate::context::Context;
use crate::output::remark;
use crate::progress;
use crate::style::{self, BAD, DIM, STRONG, paint};
use crate::table::{Cell, Table};
use crate::tree;
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only instances of this process
    #[arg(long, value_name = "PROCESS")]
    process: Option<String>,
    /// Those that have ended, instead of those that have not
    #[arg(long)]
    ended: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All there are
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let query = InstanceQuery {
        process: args.process.clone(),
        ended: args.ended,
        ..InstanceQuery::default()
    };
    // One more than requested shows whether there are more.
    let most = if args.all { usize::MAX } else { args.limit as usize };
    let reading = context.instances(&query, most.saturating_add(1));
    let mut list: InstanceList = progress::waiting("reading the list", reading).await?;
    let more = list.instances.len() > most;
    list.instances.truncate(most);
    context.out.answer(&list, || {
        render(&list.instances, args.ended) + &tree::unreachable(&list.unreachable)
    })?;
    if more && !context.out.json {
        remark(&paint(DIM, "there are more; see them with --all or a larger --limit"));
    }
    Ok(())
}

pub(crate) fn render(instances: &[InstanceSummary], ended: bool) -> String {
    if instances.is_empty() {
        return match ended {
            true => "no instance has ended yet\n".to_owned(),
            false => "no instance is running; ended ones are listed with --ended\n".to_owned(),
        };
    }
    let head = if ended { "ENDED" } else { "INCIDENTS" };
    let mut table = Table::new(&["INSTANCE", "PROCESS", "STATE", "STARTED", head]);
    for one in instances {
        let incidents = match one.incidents {
            0 => String::new(),
            number => style::count(number as usize, "incident"),
        };
        let last = match one.ended_at {
            Some(ended) => Cell::styled(DIM, when::minute(ended)),
            None => Cell::styled(BAD, incidents),
        };
        table.row([
            Cell::styled(STRONG, short(&one.instance.to_string())),
            Cell::from(format!("{} v{}", one.process, one.version)),
            tree::state(one.state),
            Cell::styled(DIM, when::minute(one.started_at)),
            last,
        ]);
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::summary;
    use legwork_api::instances::InstanceState;

    #[test]
    fn instances_are_listed_by_the_end_of_their_ids() {
        let stuck = InstanceSummary { incidents: 2, ..summary(InstanceState::Running) };
        let text = render(&[stuck, summary(InstanceState::Suspended)], false);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r"
        INSTANCE  PROCESS  STATE      STARTED            INCIDENTS
        8XJ2M6    loan v2  running    2026-03-01 09:30Z  2 incidents
        8XJ2M6    loan v2  suspended  2026-03-01 09:30Z
        ");
    }

    #[test]
    fn an_empty_list_says_where_to_look() {
        assert!(render(&[], false).contains("--ended"));
        assert!(render(&[], true).contains("no instance has ended"));
    }
}
