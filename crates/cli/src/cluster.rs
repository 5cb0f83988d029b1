//! `legwork cluster`: folders of servers, their certificates, the links between them.
//!
//! Invariant: `init` and `certify` need no server and send nothing; keys are only written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use legwork_api::cluster::{Changes, Cluster, EndedChange, ServerLoad};
use legwork_api::definitions::Finding;
use legwork_api::links::{Link, LinkBytes, LinkList, LinkState};
use legwork_api::topology::{Domain, Topology};
use legwork_server::cluster::{self, ClusterError, Folder, Folders};
use serde_json::json;

use crate::context::Context;
use crate::deploy::refused;
use crate::failure::Told;
use crate::findings;
use crate::output::{self, Output};
use crate::reconfigure::{
    self, AddArgs, DrainArgs, How, RemoveArgs, ReplaceArgs, ReweighArgs, UndoArgs,
};
use crate::source::{self, Kind};
use crate::style::{self, BAD, DIM, GOOD, STRONG, WARN, paint};
use crate::table::{Cell, Table};
use crate::when;

const DAY: Duration = Duration::from_secs(86_400);
/// Longer than any use, short enough for the dates in a certificate.
const DAYS_MAX: i64 = 36_500;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make the certificates of a cluster, and for every server the folder it starts with
    Init(InitArgs),
    /// Give one server a new certificate; it is taken up without a restart
    Certify(CertifyArgs),
    /// Show the topology in force: domains, servers, who is at home
    Show(ShowArgs),
    /// Put a topology in force at all servers
    Publish(PublishArgs),
    /// Show all servers with their parts of the work, and the change that is under way
    Status,
    /// Add a server to a domain
    Add(AddArgs),
    /// Give servers other parts of the work
    Reweigh(ReweighArgs),
    /// Give a server nothing new
    Drain(DrainArgs),
    /// Move a server into the process of another, so that its own can go
    Remove(RemoveArgs),
    /// Move a server to a new process
    Replace(ReplaceArgs),
    /// Give the change up that is under way
    Undo(UndoArgs),
    /// Show the links of a server: their state, what waits, what they have carried
    Links,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// The topology: domains, servers, who is at home where
    topology: PathBuf,
    /// The folder to make; one that is there keeps its authority and its keys
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long the certificates of the servers are good for
    #[arg(long, value_name = "N", default_value_t = 365,
          value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX))]
    valid_days: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CertifyArgs {
    /// Its name in the topology
    #[arg(id = "name", value_name = "SERVER")]
    server: String,
    /// The folder that `cluster init` has made
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// How long the certificate is good for
    #[arg(long, value_name = "N", default_value_t = 365,
          value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX))]
    valid_days: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Print the file instead
    #[arg(long)]
    source: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PublishArgs {
    /// The topology: all domains that there are, the new ones last
    file: PathBuf,
    #[command(flatten)]
    how: How,
}

pub(crate) fn init(args: &InitArgs, out: Output) -> Result<()> {
    let path = args.topology.display();
    let text = std::fs::read_to_string(&args.topology)
        .with_context(|| format!("cannot read {path}; give the file of the topology"))?;
    let made = match cluster::init(&text, &args.out, DAY * args.valid_days) {
        Ok(made) => made,
        Err(ClusterError::Topology(found)) => {
            return Err(tell_findings(&args.topology, &text, &found, out));
        }
        Err(error) => return Err(error.into()),
    };
    let servers = made.servers.iter().map(|one| {
        json!({"server": &*one.server, "folder": one.path, "certified": one.is_new, "host": one.host})
    });
    let document = json!({
        "folder": args.out,
        "new_authority": made.is_new,
        "servers": servers.collect::<Vec<_>>(),
    });
    out.answer(&document, || made_of(&made, &args.out) + &next_steps(&args.out))
}

fn made_of(made: &Folders, out: &Path) -> String {
    let mark = paint(GOOD, "✔");
    let mut text = String::new();
    if made.is_new {
        // A user who meant the folder of an existing cluster must see that this is another one.
        let folder = paint(DIM, out.display().to_string());
        text.push_str(&format!("{mark} new authority  {folder}\n"));
    }
    // Guests are not started: their folders are for when they get processes of their own.
    for Folder { server, path, is_new, .. } in made.servers.iter().filter(|one| one.host.is_none())
    {
        let what = if *is_new { "has a new certificate" } else { "keeps its certificate" };
        let folder = paint(DIM, path.display().to_string());
        text.push_str(&format!("{mark} {} {what}  {folder}\n", paint(STRONG, &**server)));
    }
    text
}

fn next_steps(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "\n  Next:\n    \
         copy each folder to the machine of its server, and start it there:\n    \
         legwork up --cluster {folder}/SERVER --data DIR\n  \
         {}\n",
        paint(DIM, format!("Keep {folder}/ca-key.pem to yourself: whoever has it can join."))
    )
}

/// Prints the findings of a file; returns the error that says so.
pub(crate) fn tell_findings(
    path: &Path,
    text: &str,
    found: &[legwork_model::finding::Finding],
    out: Output,
) -> anyhow::Error {
    told(path, text, found, out).err().unwrap_or_else(|| Told.into())
}

fn told(
    path: &Path,
    text: &str,
    found: &[legwork_model::finding::Finding],
    out: Output,
) -> Result<()> {
    let found: Vec<Finding> = found.iter().map(Into::into).collect();
    if out.json {
        out.answer(&json!({"ok": false, "file": path, "findings": found}), String::new)?;
    } else {
        for finding in &found {
            output::write(&findings::render(path, text, finding))?;
        }
        let (errors, warnings) = findings::tally(&found);
        output::write(&findings::summary(1, errors, warnings))?;
    }
    Ok(())
}

pub(crate) fn certify(args: &CertifyArgs, out: Output) -> Result<()> {
    let folder = cluster::certify(&args.server, &args.dir, DAY * args.valid_days)?;
    out.answer(&json!({"server": args.server, "folder": folder}), || {
        format!(
            "{} {} has a new certificate in {}; copy it to the server, which takes it up by itself\n",
            paint(GOOD, "✔"),
            paint(STRONG, &args.server),
            folder.display()
        )
    })
}

pub(crate) async fn publish(context: &Context, args: &PublishArgs) -> Result<()> {
    let source = source::read(&args.file)?;
    if source.kind != Kind::Topology {
        let path = args.file.display();
        bail!("{path} does not begin with `topology:`; give the file of a topology");
    }
    match reconfigure::publish(context, &source.text, &args.how).await {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast() {
            Ok(refusal) => Err(refused(context, &source, refusal)),
            Err(other) => Err(other),
        },
    }
}

pub(crate) async fn show(context: &Context, args: &ShowArgs) -> Result<()> {
    let topology = context.client.topology(None).await?;
    if args.source && !context.out.json {
        return output::write(&topology.source);
    }
    context.out.answer(&topology, || render_topology(&topology))
}

fn render_topology(topology: &Topology) -> String {
    let mut table = Table::new(&["DOMAIN", "SERVER", "ADDRESS", "API", ""]);
    for domain in &topology.domains {
        for (place, server) in domain.servers.iter().enumerate() {
            let is = |name: &Option<Arc<str>>| name.as_ref() == Some(&server.server);
            let notes = [("registrar", is(&topology.registrar)), ("asked", is(&topology.server))];
            let notes =
                notes.iter().filter(|(_, is_so)| *is_so).map(|(note, _)| (*note).to_owned());
            // The properties of a domain are shown once.
            let at_home = at_home(domain).into_iter().filter(|_| place == 0);
            table.row([
                Cell::styled(STRONG, &domain.domain),
                Cell::from(&server.server),
                Cell::from(&server.address),
                Cell::from(&server.api),
                Cell::styled(DIM, notes.chain(at_home).collect::<Vec<_>>().join(", ")),
            ]);
        }
    }
    let mut text = format!("{} epoch {}\n{}", topology.name, topology.epoch, table.render("  "));
    for link in &topology.links {
        let [a, b] = &link.between;
        text.push_str(&format!("{a} – {b} costs {}\n", link.cost));
    }
    text
}

/// The residents of a domain, and its transfer and store settings.
fn at_home(domain: &Domain) -> Vec<String> {
    let mut words = Vec::new();
    words.extend((domain.people == 1).then(|| "1 person".to_owned()));
    words.extend((domain.people > 1).then(|| format!("{} people", domain.people)));
    words.extend((domain.executors > 0).then(|| style::count(domain.executors, "executor")));
    words.push(format!("transfer {}", domain.transfer));
    words
}

pub(crate) async fn status(context: &Context) -> Result<()> {
    let cluster = context.client.cluster().await?;
    context.out.answer(&cluster, || render_status(&cluster))
}

fn render_status(cluster: &Cluster) -> String {
    let mut table =
        Table::new(&["DOMAIN", "SERVER", "WEIGHT", "SHARE", "OPEN", "RECORDS", "EPOCH", ""]);
    for server in &cluster.servers {
        let told = |of: fn(&ServerLoad) -> String| server.told.as_ref().map_or("?".into(), of);
        let is = |name: &Option<Arc<str>>| name.as_ref() == Some(&server.server);
        let mut notes = Vec::new();
        notes.extend(is(&cluster.registrar).then(|| "registrar".to_owned()));
        notes.extend(server.host.as_ref().map(|host| format!("guest of {host}")));
        let notes = match server.told {
            Some(_) => Cell::styled(DIM, notes.join(", ")),
            None => Cell::styled(WARN, "cannot be reached"),
        };
        let share = f64::from(server.share_permille) / 10.0;
        table.row([
            Cell::styled(STRONG, &server.domain),
            Cell::from(&server.server),
            Cell::from(server.weight.to_string()),
            Cell::from(format!("{share:.1} %")),
            Cell::from(told(|told| told.instances_open.to_string())),
            Cell::from(told(|told| told.records.to_string())),
            Cell::from(told(|told| told.epoch.to_string())),
            notes,
        ]);
    }
    table.render("") + &render_changes(cluster.changes.as_ref())
}

fn render_changes(changes: Option<&Changes>) -> String {
    let Some(Changes { under_way, last, proposals }) = changes else {
        return format!("{} the registrar cannot be reached\n", paint(WARN, "!"));
    };
    let mut text = match (under_way, last) {
        (Some(change), _) => format!("{}\n", reconfigure::progress(change)),
        (None, Some(EndedChange { number, epoch: Some(epoch), .. })) => {
            format!("change {number} has led to epoch {epoch}\n")
        }
        (None, Some(EndedChange { number, undone, .. })) => {
            let why = undone.as_deref().unwrap_or("without a reason");
            format!("change {number} was undone: {why}\n")
        }
        (None, None) => String::new(),
    };
    for proposal in proposals {
        text.push_str(&format!("{} the watch-dog proposes: {proposal}\n", paint(WARN, "!")));
    }
    text
}

pub(crate) async fn links(context: &Context) -> Result<()> {
    let list = context.client.links().await?;
    context.out.answer(&list, || render(&list))
}

fn render(list: &LinkList) -> String {
    if list.links.is_empty() {
        return "no links: this server is alone\n".to_owned();
    }
    let mut links = Table::new(&["SERVER", "DOMAIN", "STATE", "SINCE", "WAITING"]);
    let head = ["BYTES", "", "HISTORY", "SMALL", "LARGE", "WORKLIST", "CONTROL", "WIRE", "DROPPED"];
    let mut carried = Table::new(&head);
    for link in &list.links {
        let state = match link.state {
            LinkState::Up => Cell::styled(GOOD, "up"),
            LinkState::Down => Cell::styled(WARN, "down"),
            LinkState::Refused => Cell::styled(BAD, "refused"),
        };
        links.row([
            Cell::styled(STRONG, &link.server),
            Cell::from(&link.domain),
            state,
            Cell::styled(DIM, when::minute(link.since)),
            Cell::from(link.parcels_waiting.to_string()),
        ]);
        carried.row([Cell::styled(STRONG, &link.server)].into_iter().chain(row("out", &link.sent)));
        carried.row([Cell::from("")].into_iter().chain(row("in", &link.received)));
    }
    let reasons: String = list.links.iter().map(reason).collect();
    let entries = format!(
        "entries of histories sent: {}, known there already and spared: {}\n\
         whole instances, sent with every move, would have taken {}\n",
        list.entries_sent,
        list.entries_spared,
        style::bytes(list.bytes_whole)
    );
    format!("{}{reasons}\n{}\n{entries}", links.render(""), carried.render(""))
}

fn row(direction: &str, bytes: &LinkBytes) -> impl Iterator<Item = Cell> {
    let LinkBytes { history, small, large, worklist, control, socket, dropped } = *bytes;
    let figures = [history, small, large, worklist, control, socket];
    let figures = figures.map(|figure| Cell::from(style::bytes(figure)));
    // Messages, not bytes.
    let dropped = Cell::from(dropped.to_string());
    std::iter::once(Cell::styled(DIM, direction)).chain(figures).chain([dropped])
}

fn reason(link: &Link) -> String {
    match &link.reason {
        Some(reason) => format!("{} {}: {reason}\n", paint(WARN, "!"), link.server),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::time::Timestamp;

    use super::*;

    #[test]
    fn a_new_authority_is_told_of_and_guests_are_not() {
        let one = |name: &str, host: Option<&str>| Folder {
            server: name.into(),
            path: Path::new("cluster").join(name),
            is_new: true,
            host: host.map(Into::into),
        };
        let servers = vec![one("north-1", None), one("north-2", Some("north-1"))];
        let mut made = Folders { is_new: true, servers };
        let shown = |made: &Folders| {
            anstream::adapter::strip_str(&made_of(made, Path::new("cluster"))).to_string()
        };
        insta::assert_snapshot!(shown(&made), @r"
        ✔ new authority  cluster
        ✔ north-1 has a new certificate  cluster/north-1
        ");
        made.is_new = false;
        assert!(!shown(&made).contains("authority"), "{}", shown(&made));
    }

    #[test]
    fn links_are_a_table_with_a_line_for_each_direction_and_the_reasons_below() {
        let sent = LinkBytes {
            history: 120,
            small: 9,
            control: 44,
            socket: 2_300,
            dropped: 1_200,
            ..LinkBytes::default()
        };
        let link = |server: &str, state, reason: Option<&str>| Link {
            server: server.to_owned(),
            domain: "lab".to_owned(),
            address: "10.0.0.1:7710".to_owned(),
            state,
            reason: reason.map(str::to_owned),
            since: Timestamp(1_772_357_405_123),
            parcels_waiting: 2,
            sent,
            received: LinkBytes::default(),
        };
        let links = vec![
            link("lab-1", LinkState::Up, None),
            link("lab-2", LinkState::Refused, Some("not in the topology")),
        ];
        let server = Some("north-1".to_owned());
        let text = render(&LinkList {
            server,
            links,
            entries_sent: 25,
            entries_spared: 60,
            bytes_whole: 9_000,
        });
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r"
        SERVER  DOMAIN  STATE    SINCE              WAITING
        lab-1   lab     up       2026-03-01 09:30Z  2
        lab-2   lab     refused  2026-03-01 09:30Z  2
        ! lab-2: not in the topology

        BYTES       HISTORY  SMALL  LARGE  WORKLIST  CONTROL  WIRE    DROPPED
        lab-1  out  120 B    9 B    0 B    0 B       44 B     2.3 kB  1200
               in   0 B      0 B    0 B    0 B       0 B      0 B     0
        lab-2  out  120 B    9 B    0 B    0 B       44 B     2.3 kB  1200
               in   0 B      0 B    0 B    0 B       0 B      0 B     0

        entries of histories sent: 25, known there already and spared: 60
        whole instances, sent with every move, would have taken 9.0 kB
        ");
    }
}
