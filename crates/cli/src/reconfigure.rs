//! `legwork cluster add | reweigh | drain | remove | replace | undo`: reconfigurations of a cluster
//! while cases run.
//!
//! Invariant: every command only requests a topology, so it can be repeated: completed parts are not
//! done twice, and a change under way is continued.

mod foresee;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use legwork_api::client::Error;
use legwork_api::cluster::{
    Change, Changes, Cluster, DryRun, Method, Phase, Prepared, TopologyAnswer, TopologyOptions,
};
use legwork_placement::{Edit, Topology};
use serde_json::json;

use crate::context::Context;
use crate::output::remark;
use crate::progress::Spinner;
use crate::style::{DIM, GOOD, STRONG, WARN, paint};

/// How often the servers are asked for the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long to wait for servers that cannot be reached yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an error of a copy is not shown.
const HELD_BACK: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// What it is called
    #[arg(id = "name", value_name = "SERVER")]
    server: String,
    /// The domain it joins
    #[arg(long)]
    domain: String,
    /// Where the other servers reach it
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// Where people and programs reach it
    #[arg(long, value_name = "URL")]
    api: String,
    /// Its part of the work, once it has joined; 0 keeps it as a stand-by
    #[arg(long, default_value_t = 1)]
    weight: u32,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReweighArgs {
    /// The new weights; servers that are not named keep theirs
    #[arg(value_name = "SERVER=WEIGHT", required = true, value_parser = weighed)]
    weights: Vec<(String, u32)>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// The server that gets nothing new
    #[arg(id = "name", value_name = "SERVER")]
    server: String,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// The server whose process is to go
    #[arg(id = "name", value_name = "SERVER")]
    server: String,
    /// The server in whose process it goes on
    #[arg(long, value_name = "SERVER")]
    into: String,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceArgs {
    /// The server that moves to another process
    #[arg(id = "name", value_name = "SERVER")]
    server: String,
    /// Where the other servers reach the new process
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// Where people and programs reach it, if that changes
    #[arg(long, value_name = "URL")]
    api: Option<String>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UndoArgs {
    /// Why, for those who look at it later
    #[arg(long)]
    reason: Option<String>,
}

/// How a change is made.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// Whom new weights count for: cases started from now on (since), or all but those that are in
    /// the domain already (except) [default: since]
    #[arg(long, value_name = "since|except", value_parser = method)]
    method: Option<Method>,
    /// Only tell what would be locked, moved and sent
    #[arg(long)]
    dry_run: bool,
    /// A server that is down for good: nobody waits for it
    #[arg(long, value_name = "SERVER")]
    without: Vec<String>,
}

pub(crate) async fn add(context: &Context, args: &AddArgs) -> Result<()> {
    let server = args.server.as_str();
    if in_force(context).await?.server_named(server).is_none() {
        let edit = Edit::Add {
            server: server.into(),
            domain: args.domain.as_str().into(),
            address: args.address.as_str().into(),
            api: args.api.as_str().into(),
        };
        if !change(context, &edit, &args.how).await? {
            return Ok(());
        }
        remark(&format!(
            "{server} is in the topology, without a part of the work yet. Next, where the ca-key.pem \
             of the cluster is (here: cluster):\n    \
             legwork cluster show --source > topology.yaml\n    \
             legwork cluster init topology.yaml --out cluster\n    \
             legwork up --cluster cluster/{server} --data {server}"
        ));
    }
    if args.weight == 0 || args.how.dry_run {
        return Ok(());
    }
    until_joined(context, server).await?;
    let weights = vec![(server.into(), args.weight)];
    change(context, &Edit::Weigh { weights }, &args.how).await.map(drop)
}

pub(crate) async fn reweigh(context: &Context, args: &ReweighArgs) -> Result<()> {
    foresee::drained(&in_force(context).await?, &args.weights)?;
    let weights = args.weights.iter().map(|(server, weight)| (server.as_str().into(), *weight));
    let edit = Edit::Weigh { weights: weights.collect() };
    change(context, &edit, &args.how).await.map(drop)
}

pub(crate) async fn drain(context: &Context, args: &DrainArgs) -> Result<()> {
    foresee::drained(&in_force(context).await?, &[(args.server.clone(), 0)])?;
    let edit = Edit::Weigh { weights: vec![(args.server.as_str().into(), 0)] };
    change(context, &edit, &args.how).await.map(drop)
}

pub(crate) async fn remove(context: &Context, args: &RemoveArgs) -> Result<()> {
    // The first of two changes must not be made if the second is impossible.
    let now = in_force(context).await?;
    foresee::hosted(&now, &args.server, &args.into)?;
    foresee::drained(&now, &[(args.server.clone(), 0)])?;
    let drained = Edit::Weigh { weights: vec![(args.server.as_str().into(), 0)] };
    let moved = Edit::Host { server: args.server.as_str().into(), host: args.into.as_str().into() };
    if !args.how.dry_run {
        change(context, &drained, &args.how).await?;
    }
    change(context, &moved, &args.how).await.map(drop)
}

pub(crate) async fn replace(context: &Context, args: &ReplaceArgs) -> Result<()> {
    let edit = Edit::Move {
        server: args.server.as_str().into(),
        address: args.address.as_str().into(),
        api: args.api.as_deref().map(Into::into),
    };
    change(context, &edit, &args.how).await.map(drop)
}

pub(crate) async fn undo(context: &Context, args: &UndoArgs) -> Result<()> {
    let changes = context.client.undo_change(args.reason.clone()).await?;
    context.out.answer(&changes, || match &changes.last {
        Some(last) => format!("{} change {} is undone\n", paint(GOOD, "✔"), last.number),
        None => "nothing was under way\n".to_owned(),
    })
}

/// The current topology, parsed.
async fn in_force(context: &Context) -> Result<Topology> {
    let source = context.client.topology(None).await?.source;
    match Topology::parse(&source) {
        (Some(topology), _) => Ok(topology),
        (None, _) => bail!("the topology in force is of a newer release; update this program"),
    }
}

/// Requests the edited topology and waits for the end of the change; false for a dry run.
async fn change(context: &Context, edit: &Edit, how: &How) -> Result<bool> {
    let source = in_force(context).await?.edited(edit)?;
    publish(context, &source, how).await
}

/// Publishes a topology, and waits for the end of the change.
pub(crate) async fn publish(context: &Context, source: &str, how: &How) -> Result<bool> {
    if !how.dry_run {
        prepare(context, source).await?;
    }
    let options =
        TopologyOptions { method: how.method, dry_run: how.dry_run, without: how.without.clone() };
    let answer = until_taken(context, source, &options).await?;
    if let Some(dry_run) = &answer.dry_run {
        context.out.answer(&answer, || estimate(dry_run))?;
        return Ok(false);
    }
    let Some(begun) = &answer.change else {
        context.out.answer(&answer, || published(&answer))?;
        return Ok(true);
    };
    let since = Instant::now();
    let epoch = until_ended(context, begun.number).await?;
    let seconds = since.elapsed().as_secs_f64();
    let document = json!({"change": begun.number, "epoch": epoch, "seconds": seconds});
    context.out.answer(&document, || {
        format!("{} topology, epoch {epoch}, after {seconds:.1} s\n", paint(GOOD, "✔"))
    })?;
    Ok(true)
}

/// Publishes with retries; a server that has just been started may not be reachable yet.
async fn until_taken(
    context: &Context,
    source: &str,
    options: &TopologyOptions,
) -> Result<TopologyAnswer> {
    let (since, mut spinner) = (Instant::now(), Spinner::default());
    loop {
        match context.client.publish_topology(source, options).await {
            Err(error) if is_passing(&error) && since.elapsed() < PATIENCE => {
                spinner.say(&error.to_string());
            }
            answer => {
                spinner.stop();
                return Ok(answer?);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Copies servers that go into another process in advance, so that they are frozen only for a moment.
async fn prepare(context: &Context, source: &str) -> Result<()> {
    let now = in_force(context).await?;
    let (Some(next), _) = Topology::succeed(source, Some(&now), &BTreeMap::new()) else {
        // Mistakes are reported when it is published.
        return Ok(());
    };
    let (mut spinner, mut told) = (Spinner::default(), None);
    for moved in now.change_to(&next).servers {
        let Some(server) = next.server(moved) else { continue };
        // A server with a process of its own is copied by that process.
        let host = server.host.and_then(|host| next.server(host)).unwrap_or(server);
        let since = Instant::now();
        loop {
            match context.client.prepare_move(&server.name, &host.name).await {
                Ok(prepared) if prepared.ready => break,
                Ok(prepared) => {
                    let prepared = settled(prepared, since.elapsed());
                    spinner.say(&copying(&server.name, &host.name, &prepared));
                    // Without a terminal the reason of a wait is not visible otherwise.
                    if prepared.reason.is_some() && told != prepared.reason {
                        spinner.stop();
                        remark(&copying(&server.name, &host.name, &prepared));
                        told = prepared.reason;
                    }
                }
                // A stopped server cannot be copied; one in a database need not be.
                Err(error)
                    if is_passing(&error) && host == server && since.elapsed() > PATIENCE =>
                {
                    break;
                }
                Err(error) if is_passing(&error) => spinner.say(&error.to_string()),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    spinner.stop();
    Ok(())
}

/// At first nothing is reachable and nothing known, also in good cases: the reason is shown only after
/// a while.
fn settled(prepared: Prepared, waited: Duration) -> Prepared {
    let reason = prepared.reason.filter(|_| waited >= HELD_BACK);
    Prepared { reason, ..prepared }
}

fn copying(server: &str, host: &str, prepared: &Prepared) -> String {
    let Prepared { bytes, bytes_copied, reason, .. } = prepared;
    let why = reason.as_ref().map(|reason| format!("; it is tried again: {reason}"));
    let why = why.unwrap_or_default();
    if server == host {
        return format!("{server} is copied by the process that is to replace its own{why}");
    }
    match bytes {
        0 => format!("{server} is copied to {host}{why}"),
        _ => format!("{server} is copied to {host}: {bytes_copied} of about {bytes} bytes{why}"),
    }
}

fn published(answer: &TopologyAnswer) -> String {
    let known = if answer.unchanged { paint(DIM, " (there already)") } else { String::new() };
    format!("{} topology, epoch {}{known}\n", paint(GOOD, "✔"), answer.version)
}

fn estimate(dry_run: &DryRun) -> String {
    let DryRun { domains, servers, instances_open, moved, excepted, bytes, unreachable } = dry_run;
    let mut text = String::new();
    if domains.is_empty() && servers.is_empty() {
        text.push_str("nothing would be locked or moved: it would be in force at once\n");
    }
    for domain in domains {
        text.push_str(&format!(
            "{} would start and take no new cases for a moment\n",
            paint(STRONG, domain)
        ));
    }
    for server in servers {
        text.push_str(&format!("{} would move to another process\n", paint(STRONG, server)));
    }
    text.push_str(&format!(
        "of {instances_open} open cases {moved} would move, {excepted} would stay as exceptions; {bytes} bytes\n"
    ));
    for server in unreachable {
        text.push_str(&format!(
            "{} {server} cannot be reached: the cases started there are not counted\n",
            paint(WARN, "!")
        ));
    }
    text
}

/// Waits for the end of a change; returns the new epoch.
async fn until_ended(context: &Context, number: u32) -> Result<u32> {
    let mut spinner = Spinner::default();
    loop {
        match context.client.changes().await {
            Ok(Changes { under_way: Some(change), .. }) if change.number == number => {
                spinner.say(&progress(&change));
            }
            Ok(Changes { last: Some(last), .. }) if last.number >= number => {
                spinner.stop();
                return match (last.number == number, last.epoch, last.undone) {
                    (true, None, why) => {
                        bail!("the change was undone: {}", why.as_deref().unwrap_or("no reason"))
                    }
                    (true | false, Some(epoch), _) => Ok(epoch),
                    (false, None, _) => bail!("it is over; see `legwork cluster show`"),
                };
            }
            Ok(_) => {}
            // The called server, or the registrar, may be the one that moves.
            Err(error) if is_passing(&error) => spinner.say(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether the error may be temporary.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Problem(problem) => problem.status == 503 || problem.status == 429,
        Error::Unreachable { .. } | Error::Broken { .. } | Error::TimedOut { .. } => true,
        Error::BadAddress { .. }
        | Error::BadToken
        | Error::BadArgument { .. }
        | Error::Unexpected { .. } => false,
    }
}

pub(crate) fn progress(change: &Change) -> String {
    let what = match change.phase {
        Phase::Locking => "servers report what they have",
        Phase::Moving => "servers move",
        Phase::Ending => "it ends",
    };
    let missing = match change.missing.is_empty() {
        true => String::new(),
        false => format!(", waiting for {}", change.missing.join(", ")),
    };
    let estimate = change.estimate_ms.map(|ms| format!(", about {:.1} s in all", ms as f64 / 1e3));
    format!("change {}: {what}{missing}{}", change.number, estimate.unwrap_or_default())
}

/// Waits until an added server answers.
async fn until_joined(context: &Context, server: &str) -> Result<()> {
    let mut spinner = Spinner::default();
    loop {
        let Cluster { epoch, servers, .. } = context.client.cluster().await?;
        let one = servers.iter().find(|one| &*one.server == server);
        if one.and_then(|one| one.told.as_ref()).is_some_and(|told| told.epoch >= epoch) {
            return Ok(());
        }
        spinner.say(&format!("waiting for {server} to join"));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn weighed(text: &str) -> Result<(String, u32), String> {
    let wrong = || format!("`{text}` is not of the form SERVER=WEIGHT, such as north-1=20");
    let (server, weight) = text.split_once('=').ok_or_else(wrong)?;
    Ok((server.to_owned(), weight.parse().map_err(|_| wrong())?))
}

fn method(text: &str) -> Result<Method, String> {
    let found = Method::ALL.into_iter().find(|method| method.word() == text);
    found.ok_or_else(|| "write `since` or `except`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_as_they_are_written() {
        assert_eq!(weighed("north-1=20"), Ok(("north-1".to_owned(), 20)));
        for wrong in ["north-1", "north-1=", "north-1=-1", "north-1=much"] {
            assert!(weighed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_copy_waits_for_is_said() {
        let copied = Prepared { ready: false, bytes: 9, bytes_copied: 4, reason: None };
        let text = copying("north-2", "north-1", &copied);
        assert_eq!(text, "north-2 is copied to north-1: 4 of about 9 bytes");
        let reason = Some("it cannot be reached".into());
        let stuck = Prepared { reason, ..copied };
        let text = copying("north-2", "north-1", &settled(stuck.clone(), HELD_BACK));
        assert!(text.ends_with("9 bytes; it is tried again: it cannot be reached"), "{text}");
        let stuck = Prepared { bytes: 0, bytes_copied: 0, ..stuck };
        let text = copying("north-2", "north-1", &settled(stuck, Duration::ZERO));
        assert_eq!(text, "north-2 is copied to north-1");
    }

    #[test]
    fn what_a_change_would_do_is_said_in_words() {
        let nothing = estimate(&DryRun { instances_open: 7, ..DryRun::default() });
        assert!(nothing.contains("at once") && nothing.contains("of 7 open cases 0 would move"));
        let some = DryRun {
            domains: vec!["north".into()],
            servers: vec!["north-2".into()],
            unreachable: vec!["lab-1".into()],
            ..DryRun::default()
        };
        let text = anstream::adapter::strip_str(&estimate(&some)).to_string();
        for said in ["north would start", "north-2 would move", "lab-1 cannot be reached"] {
            assert!(text.contains(said), "{said} in {text}");
        }
    }
}
