//! `legwork work`: the worklist of a person, and operations on its items.
//!
//! Invariant: everything is done as the agent of `--as`, or as the only agent of the token.

use std::cmp::Ordering;

use anyhow::{Result, bail};
use legwork_api::files::File;
use legwork_api::work::{CompleteRequest, Item, ItemDetail, Unreachable, Worklist};
use legwork_model::id::ActivityId;
use legwork_model::time::format_duration;
use legwork_model::value::ValueType;
use serde_json::json;

use crate::abbreviate::short;
use crate::context::Context;
use crate::file::{self, SaveArgs};
use crate::start;
use crate::style::{ACTIVE, BAD, DIM, GOOD, STRONG, paint, plain};
use crate::table::{Cell, Table};
use crate::tree;
use crate::values::{FileArgs, Types, ValueArgs};
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What there is to do
    List {
        /// Go on and tell what comes and goes
        #[arg(long, short)]
        follow: bool,
    },
    /// An item with its data and what it wants from you
    Show {
        /// The item: its id, the end of it, or `last`
        item: String,
    },
    /// Save a file that an item shows
    File(FileCommand),
    /// Take an item, so that nobody else does
    Claim {
        /// The item: its id, the end of it, or `last`
        item: String,
    },
    /// Give an item back to all who may do it
    Release {
        /// The item: its id, the end of it, or `last`
        item: String,
    },
    /// Hand an item to another person
    Delegate {
        /// The item: its id, the end of it, or `last`
        item: String,
        /// Who gets it
        #[arg(long, value_name = "AGENT")]
        to: String,
    },
    /// Hand in the result of an item
    Complete(CompleteArgs),
}

#[derive(Debug, clap::Args)]
struct FileCommand {
    /// The item: its id, the end of it, or `last`
    item: String,
    /// The data element that holds the file [default: the only one that does]
    element: Option<String>,
    #[command(flatten)]
    save: SaveArgs,
}

#[derive(Debug, clap::Args)]
struct CompleteArgs {
    /// The item: its id, the end of it, or `last`
    item: String,
    #[command(flatten)]
    values: ValueArgs,
    #[command(flatten)]
    files: FileArgs,
    /// At a decision: the branch; at the end of a loop `repeat` or `leave`
    #[arg(long, value_name = "ANSWER")]
    answer: Option<String>,
    /// Any text: the same command with the same key completes once, however often it runs
    #[arg(long)]
    key: Option<String>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let agent = context.agent();
    match &args.command {
        Command::List { follow: false } => list(context).await,
        Command::List { follow: true } => follow(context).await,
        Command::Show { item } => {
            let activity = context.item(item).await?;
            let detail = context.client.item(&activity, agent).await?;
            context.out.answer(&detail, || render_detail(&detail, agent))
        }
        Command::File(args) => save_file(context, args).await,
        Command::Claim { item } => {
            let activity = context.item(item).await?;
            context.client.claim(&activity, agent).await?;
            done(context, &activity, "claimed")
        }
        Command::Release { item } => {
            let activity = context.item(item).await?;
            context.client.release(&activity, agent).await?;
            done(context, &activity, "released")
        }
        Command::Delegate { item, to } => {
            let activity = context.item(item).await?;
            context.client.delegate(&activity, agent, to).await?;
            done(context, &activity, &format!("delegated to {to}"))
        }
        Command::Complete(args) => complete(context, args).await,
    }
}

async fn list(context: &Context) -> Result<()> {
    let Worklist { mut items, unreachable, .. } = context.worklist().await?;
    items.sort_by(in_order);
    let document = if unreachable.is_empty() {
        json!({"items": items})
    } else {
        json!({"items": items, "unreachable": unreachable})
    };
    context.out.answer(&document, || render(&items, &unreachable))
}

/// By due date, as in the plan; then unpromised items, oldest first.
fn in_order(a: &Item, b: &Item) -> Ordering {
    let key = |item: &Item| (item.due.is_none(), item.due, item.offered_at);
    key(a).cmp(&key(b)).then_with(|| a.activity.cmp(&b.activity))
}

/// The list, then its changes, as long as the server is there.
async fn follow(context: &Context) -> Result<()> {
    let mut since: Option<String> = None;
    loop {
        let mut events = context.client.worklist_events(context.agent(), since.as_deref()).await?;
        while let Some(change) = events.next().await? {
            context.out.event(&change, || render_change(&change))?;
        }
        // The server has ended the stream regularly: continue from there.
        since = events.last_id().map(str::to_owned).or(since);
    }
}

async fn complete(context: &Context, args: &CompleteArgs) -> Result<()> {
    let activity = context.item(&args.item).await?;
    let types = match args.values.needs_types() {
        // If the item does not exist (any more), the server reports that below.
        true => context.client.item(&activity, context.agent()).await.map(|item| types(&item)).ok(),
        false => None,
    };
    let mut data = args.values.data(&types.unwrap_or_default())?;
    start::upload(context, &args.files, &mut data).await?;
    let agent = context.agent().map(Into::into);
    let request = CompleteRequest { agent, data, answer: args.answer.clone() };
    context.client.complete(&activity, &request, args.key.as_deref()).await?;
    done(context, &activity, "completed")
}

async fn save_file(context: &Context, args: &FileCommand) -> Result<()> {
    let (activity, agent) = (context.item(&args.item).await?, context.agent());
    let detail = context.client.item(&activity, agent).await?;
    let (element, file) = file_named(&detail, args.element.as_deref())?;
    let download = context.client.item_file(&activity, element, agent);
    file::save(context, &args.save, (&file.blob, Some(file.name.clone())), download).await
}

/// The file with that name, or the only one.
fn file_named<'a>(detail: &'a ItemDetail, element: Option<&'a str>) -> Result<(&'a str, File)> {
    let mut files = files(detail);
    let wanted = match element {
        Some(element) => files.iter().position(|(name, _)| *name == element),
        None => (files.len() == 1).then_some(0),
    };
    if let Some(place) = wanted {
        return Ok(files.swap_remove(place));
    }
    let activity = &detail.item.activity;
    let names: Vec<String> = files.iter().map(|(name, _)| format!("`{name}`")).collect();
    let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    match element {
        Some(element) => bail!("{activity} has no file `{element}`; its files: {has}"),
        None if names.is_empty() => bail!("{activity} has no files"),
        None => bail!("{activity} has several files; name one of them: {has}"),
    }
}

/// The files among the data of an item.
fn files(detail: &ItemDetail) -> Vec<(&str, File)> {
    let file = |value: &serde_json::Value| serde_json::from_value::<File>(value.clone()).ok();
    detail.inputs.iter().filter_map(|(name, value)| Some((&**name, file(value)?))).collect()
}

fn types(item: &ItemDetail) -> Types {
    let kinds = item.outputs.iter().filter_map(|output| {
        ValueType::named(&output.kind).map(|kind| (output.element.to_string(), kind))
    });
    kinds.collect()
}

fn done(context: &Context, activity: &ActivityId, what: &str) -> Result<()> {
    let document = json!({"activity": activity.to_string(), "done": what});
    context
        .out
        .answer(&document, || format!("{} {what} {}\n", paint(GOOD, "✔"), paint(STRONG, activity)))
}

pub(crate) fn render(items: &[Item], unreachable: &[Unreachable]) -> String {
    let is_shown = |server: &str| items.iter().any(|item| item.server.as_deref() == Some(server));
    let missing = missing(unreachable, is_shown);
    if items.is_empty() {
        let at_others = if unreachable.is_empty() { "" } else { " at the other servers" };
        return format!("{missing}nothing to do{at_others}\n");
    }
    // With one server only, its name is not shown.
    let with_server = items.iter().any(|item| item.server.is_some());
    let server = with_server.then_some("SERVER");
    let names = ["ITEM", "PROCESS", "TITLE", "OFFERED"].into_iter().chain(server).chain([""]);
    let mut table = Table::new(&names.collect::<Vec<_>>());
    items.iter().for_each(|item| table.row(cells(item, with_server)));
    format!("{missing}{}", table.render(""))
}

/// A line for each server whose items are stale, or missing.
fn missing(unreachable: &[Unreachable], is_shown: impl Fn(&str) -> bool) -> String {
    let line = |one: &Unreachable| {
        let Unreachable { server, since } = one;
        let what = "has not been reached since";
        let rest = match is_shown(server) {
            true => "its items are shown as last known",
            false => "whether it has items is not known",
        };
        format!("{} {server} {what} {}; {rest}\n", paint(BAD, "!"), when::minute(*since))
    };
    unreachable.iter().map(line).collect()
}

fn cells(item: &Item, with_server: bool) -> Vec<Cell> {
    let server = with_server.then(|| Cell::from(item.server.as_deref().unwrap_or_default()));
    let shown = [
        Cell::styled(STRONG, short(&item.activity.to_string())),
        Cell::from(&item.process),
        Cell::from(&item.title),
        Cell::styled(DIM, when::minute(item.offered_at)),
    ];
    let remarks = Cell::styled(ACTIVE, remarks(item));
    shown.into_iter().chain(server).chain([remarks]).collect()
}

fn remarks(item: &Item) -> String {
    let claimed = item.claimed_by.as_ref().map(|agent| format!("claimed by {agent}"));
    let takes = item.takes_ms.map(std::time::Duration::from_millis).map(format_duration);
    let takes = takes.map(|takes| format!("takes {takes}"));
    let behalf = item.on_behalf_of.as_ref().map(|agent| format!("for {agent}"));
    let stale = item.stale.then(|| "as last known".to_owned());
    let due = item.due.map(|due| format!("due {}", when::minute(due)));
    let planned = item.planned_for.as_ref().map(|agent| format!("planned for {agent}"));
    let all = [claimed, due, planned, takes, behalf, stale];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn render_change(change: &Worklist) -> String {
    let mut table = Table::bare();
    let with_server = change.items.iter().any(|item| item.server.is_some());
    let mut items: Vec<&Item> = change.items.iter().collect();
    items.sort_by(|a, b| in_order(a, b));
    for item in items {
        let mark = Cell::styled(GOOD, if change.reset { " " } else { "+" });
        table.row([mark].into_iter().chain(cells(item, with_server)));
    }
    for gone in &change.removed {
        table.row([Cell::styled(DIM, "-"), Cell::styled(DIM, short(&gone.to_string()))]);
    }
    format!("{}{}", missing(&change.unreachable, |_| true), table.render(""))
}

fn render_detail(detail: &ItemDetail, agent: Option<&str>) -> String {
    let Item { activity, process, title, offered_at, claimed_by, .. } = &detail.item;
    let mut out = format!("{} · {process} · {activity}\n", paint(STRONG, plain(title)));
    let offered = if claimed_by.is_none() { "offered" } else { "" };
    let remarks = [offered.to_owned(), remarks(&detail.item)];
    let remarks = remarks.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    let state = paint(ACTIVE, remarks.join(", "));
    out.push_str(&format!("{state} · since {}\n", when::minute(*offered_at)));
    let mut table = Table::bare();
    for (name, value) in &detail.inputs {
        table.row([Cell::from(name), Cell::from(tree::value(value))]);
    }
    if !table.is_empty() {
        out.push_str(&format!("\nGiven\n{}", table.render("  ")));
    }
    if let Some((element, _)) = files(detail).first() {
        let item = short(&activity.to_string());
        let who = agent.map(|agent| format!(" --as {agent}")).unwrap_or_default();
        out.push_str(&format!("\nSave a file with `legwork work file {item} {element}{who}`\n"));
    }
    let mut table = Table::bare();
    for output in &detail.outputs {
        let optional = if output.optional { "optional" } else { "" };
        table.row([
            Cell::from(&output.element),
            Cell::styled(DIM, &output.kind),
            Cell::styled(DIM, optional),
            Cell::from(output.title.as_deref().unwrap_or_default()),
        ]);
    }
    if !table.is_empty() {
        let has_files = detail.outputs.iter().any(|output| output.kind == "file");
        let files = if has_files { ", files with --file" } else { "" };
        out.push_str(&format!("\nWanted, with --set{files}\n{}", table.render("  ")));
    }
    let mut table = Table::bare();
    for answer in &detail.answers {
        let title = if answer.title == answer.answer { "" } else { &*answer.title };
        table.row([Cell::from(&answer.answer), Cell::from(title)]);
    }
    if !table.is_empty() {
        out.push_str(&format!("\nDecide, with --answer\n{}", table.render("  ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_api::Data;
    use legwork_api::work::{AnswerOption, Output};
    use legwork_model::time::Timestamp;

    fn item(step: &str, claimed_by: Option<&str>) -> Item {
        Item {
            activity: format!("inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:{step}").parse().unwrap(),
            process: "loan".into(),
            title: format!("Title of {step}").into(),
            offered_at: Timestamp(1_772_357_405_123),
            claimed_by: claimed_by.map(Into::into),
            takes_ms: Some(900_000),
            due: None,
            planned_for: None,
            on_behalf_of: None,
            server: None,
            stale: false,
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_worklist_names_items_by_what_they_can_be_called() {
        let substitute = Item { on_behalf_of: Some("eve".into()), ..item("assess:1", None) };
        let text = render(&[item("capture", Some("ann")), substitute], &[]);
        insta::assert_snapshot!(plain(&text), @r"
        ITEM             PROCESS  TITLE              OFFERED
        8XJ2M6:capture   loan     Title of capture   2026-03-01 09:30Z  claimed by ann, takes 15m
        8XJ2M6:assess:1  loan     Title of assess:1  2026-03-01 09:30Z  takes 15m, for eve
        ");
        assert_eq!(render(&[], &[]), "nothing to do\n");
    }

    #[test]
    fn what_is_due_first_is_at_the_top_and_what_nobody_promised_at_the_end() {
        let shown = |step: &str, offered_at: i64, due: Option<i64>| Item {
            offered_at: Timestamp(offered_at),
            due: due.map(Timestamp),
            ..item(step, None)
        };
        let mut items = [
            shown("new", 4, None),
            shown("old", 1, None),
            shown("later", 2, Some(90)),
            shown("soon", 5, Some(30)),
            shown("sooner", 3, Some(30)),
        ];
        items.sort_by(in_order);
        let steps = items.iter().map(|item| &*item.activity.step).collect::<Vec<_>>();
        assert_eq!(steps, ["sooner", "soon", "later", "old", "new"]);
    }

    #[test]
    fn a_worklist_of_several_servers_names_them_and_those_that_cannot_be_reached() {
        let at = |server: &str, item: Item| Item { server: Some(server.into()), ..item };
        let stale = Item { stale: true, ..item("assess", None) };
        let since = Timestamp(1_772_357_405_123);
        let unreachable = [Unreachable { server: "lab-1".into(), since }];
        let items = [at("north-1", item("capture", None)), at("lab-1", stale)];
        insta::assert_snapshot!(plain(&render(&items, &unreachable)), @r"
        ! lab-1 has not been reached since 2026-03-01 09:30Z; its items are shown as last known
        ITEM            PROCESS  TITLE             OFFERED            SERVER
        8XJ2M6:capture  loan     Title of capture  2026-03-01 09:30Z  north-1  takes 15m
        8XJ2M6:assess   loan     Title of assess   2026-03-01 09:30Z  lab-1    takes 15m, as last known
        ");
        insta::assert_snapshot!(plain(&render(&[], &unreachable)), @r"
        ! lab-1 has not been reached since 2026-03-01 09:30Z; whether it has items is not known
        nothing to do at the other servers
        ");
        assert_eq!(plain(&render(&[], &[])), "nothing to do\n");
    }

    #[test]
    fn changes_tell_what_came_and_what_went() {
        let change = Worklist {
            cursor: "7".to_owned(),
            reset: false,
            items: vec![item("capture", None)],
            removed: vec![item("assess", None).activity],
            more: false,
            unreachable: Vec::new(),
        };
        insta::assert_snapshot!(plain(&render_change(&change)), @r"
        +  8XJ2M6:capture  loan  Title of capture  2026-03-01 09:30Z  takes 15m
        -  8XJ2M6:assess
        ");
    }

    fn file(name: &str) -> serde_json::Value {
        json!({"blob": "5f".repeat(32), "size": 48_211, "name": name, "media_type": "image/jpeg"})
    }

    #[test]
    fn a_file_of_an_item_need_not_be_named_if_it_is_the_only_one() {
        let detail = |files: &[&str]| ItemDetail {
            item: item("verdict", None),
            inputs: files.iter().map(|name| ((*name).to_owned(), file(name))).collect(),
            outputs: Vec::new(),
            answers: Vec::new(),
        };
        let named = |files: &[&str], element: Option<&str>| {
            let detail = detail(files);
            let named = file_named(&detail, element);
            named.map(|(name, _)| name.to_owned()).map_err(|error| error.to_string())
        };
        assert_eq!(named(&["photo"], None).unwrap(), "photo");
        assert_eq!(named(&["photo", "scan"], Some("scan")).unwrap(), "scan");
        let refused = |files: &[&str], element| named(files, element).unwrap_err();
        assert!(refused(&[], None).ends_with(":verdict has no files"));
        assert!(refused(&["a"], Some("b")).ends_with(":verdict has no file `b`; its files: `a`"));
        assert!(refused(&["a", "b"], None).ends_with("name one of them: `a`, `b`"));
    }

    #[test]
    fn an_item_says_what_is_given_and_what_is_wanted() {
        let detail = ItemDetail {
            item: item("verdict", None),
            inputs: Data::from([
                ("amount".to_owned(), json!("12.50")),
                ("photo".to_owned(), file("dent.jpg")),
            ]),
            outputs: vec![Output {
                element: "rate".into(),
                kind: "decimal".to_owned(),
                optional: true,
                title: Some("Rate of interest".to_owned()),
            }],
            answers: vec![
                AnswerOption { answer: "approve".into(), title: "Approve it".into() },
                AnswerOption { answer: "reject".into(), title: "reject".into() },
            ],
        };
        assert_eq!(types(&detail), Types::from([("rate".to_owned(), ValueType::Decimal)]));
        insta::assert_snapshot!(plain(&render_detail(&detail, Some("bob"))), @r"
        Title of verdict · loan · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:verdict
        offered, takes 15m · since 2026-03-01 09:30Z

        Given
          amount  12.50
          photo   dent.jpg (48211 bytes)

        Save a file with `legwork work file 8XJ2M6:verdict photo --as bob`

        Wanted, with --set
          rate  decimal  optional  Rate of interest

        Decide, with --answer
          approve  Approve it
          reject
        ");
    }
}
