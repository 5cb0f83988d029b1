//! Deadlines as users see them: promised or refused, asked for, listed, planned, kept over a `kill -9`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_e2e::{Folder, Outcome, Server, binary, tutorial};
use legwork_model::time::Timestamp;
use serde_json::Value as Json;

/// They work at any hour, so that the time of the test does not matter.
const PEOPLE: &str = "\
organisation: office
agents:
  ann: { name: Ann Lee, roles: [clerk], share: 100 }
  bea: { name: Bea Ott, roles: [manager], share: 100 }
";

const CLAIM: &str = "\
process: claim
title: A claim
data: { sum: int }
start: [sum]
steps:
  - { step: check, who: Role(clerk), reads: [sum], takes: 3h }
  - { step: approve, who: Role(manager), reads: [sum], takes: 1h }
";

async fn office(folder: &Folder) -> Result<Server> {
    let server = folder.server("store", &[]).await?;
    let (people, claim) = (folder.file("people.yaml", PEOPLE)?, folder.file("claim.yaml", CLAIM)?);
    server.run(&["deploy", &people, &claim])?.succeeded()?;
    Ok(server)
}

fn start(server: &Server, by: &str, more: &[&str]) -> Result<Outcome> {
    server.run(&[&["--json", "start", "claim", "--set", "sum=7", "--by", by], more].concat())
}

fn text<'j>(json: &'j Json, pointer: &str) -> Result<&'j str> {
    let found = json.pointer(pointer).and_then(Json::as_str);
    found.with_context(|| format!("no {pointer} in {json:#}"))
}

fn moment(json: &Json, pointer: &str) -> Result<Timestamp> {
    Ok(text(json, pointer)?.parse()?)
}

/// The promises of a person, in order: steps and instances.
fn plan(server: &Server, name: &str) -> Result<Vec<(String, String)>> {
    let plan = server.run(&["--json", "deadline", "plan", name])?.json()?;
    let turns = plan["turns"].as_array().context("no turns")?;
    let turn =
        |turn: &Json| Ok((text(turn, "/step")?.to_owned(), text(turn, "/instance")?.to_owned()));
    turns.iter().filter(|turn| turn["what"] == "promised").map(turn).collect()
}

/// The states of all cases with a deadline, first due first.
fn standings(server: &Server) -> Result<Vec<(String, String)>> {
    let list = server.run(&["--json", "deadline", "list"])?.json()?;
    let rows = list["deadlines"].as_array().context("no rows")?;
    let row =
        |row: &Json| Ok((text(row, "/instance")?.to_owned(), text(row, "/standing")?.to_owned()));
    rows.iter().map(row).collect()
}

async fn counted(server: &Server, name: &str) -> Result<u64> {
    let metrics = server.client()?.metrics().await?;
    let line = format!("legwork_deadlines_{name}_total ");
    let found = metrics.lines().find_map(|shown| shown.strip_prefix(&line));
    Ok(found.with_context(|| format!("{name} is not counted"))?.trim().parse()?)
}

/// Does all steps of a case at once, hours before they are planned.
fn finish(server: &Server, instance: &str) -> Result<()> {
    for (step, agent) in [("check", "ann"), ("approve", "bea")] {
        let item = format!("{instance}:{step}");
        server.run(&["--as", agent, "work", "claim", &item])?.succeeded()?;
        server.run(&["--as", agent, "work", "complete", &item])?.succeeded()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_deadline_is_promised_or_refused_and_what_was_promised_survives_a_kill() -> Result<()> {
    let folder = Folder::new()?;
    let server = office(&folder).await?;
    let first = start(&server, "5h", &[])?.json()?;
    assert_eq!(first["deadline"]["promised"], true);
    assert_eq!(first["deadline"]["steps"][0]["by"]["agent"], "ann");
    let first = text(&first, "/instance")?.to_owned();

    // Six hours of work for Ann, and one for Bea after that.
    let refused = start(&server, "5h", &[])?.problem()?;
    assert_eq!(refused["code"], "deadline_not_promised");
    let earliest = text(&refused, "/earliest")?;
    let ask =
        server.run(&["--json", "deadline", "ask", "claim", "--set", "sum=7", "--by", earliest]);
    assert_eq!(ask?.json()?["promised"], true);
    assert_eq!(plan(&server, "ann")?, [("check".to_owned(), first.clone())]);
    let second = start(&server, earliest, &[])?.json()?;
    let second = text(&second, "/instance")?.to_owned();
    let both = |step: &str| [(step.to_owned(), first.clone()), (step.to_owned(), second.clone())];
    assert_eq!(
        (plan(&server, "ann")?, plan(&server, "bea")?),
        (both("check").into(), both("approve").into())
    );
    assert_eq!(standings(&server)?, both("promised").map(|(word, one)| (one, word)));
    assert_eq!((counted(&server, "promised").await?, counted(&server, "refused").await?), (2, 1));
    let before = start(&server, "8h", &[])?.problem()?;

    server.kill()?;
    let server = folder.server("store", &[]).await?;
    assert_eq!(
        (plan(&server, "ann")?, plan(&server, "bea")?),
        (both("check").into(), both("approve").into())
    );
    assert_eq!(standings(&server)?, both("promised").map(|(word, one)| (one, word)));
    let after = start(&server, "8h", &[])?.problem()?;
    let later = moment(&after, "/earliest")?.since(moment(&before, "/earliest")?);
    // No time for work has passed meanwhile.
    ensure!(later < Duration::from_secs(300), "{before:#} {after:#}");

    // A step done early frees its time.
    finish(&server, &first)?;
    let third = start(&server, "8h", &[])?.json()?;
    assert_eq!(third["deadline"]["promised"], true);
    assert_eq!((counted(&server, "kept").await?, counted(&server, "promised").await?), (1, 1));
    let shown = server.run(&["--json", "deadline", "show", &first])?.json()?;
    assert_eq!(
        (&shown["standing"], &shown["steps"][0]["done_by"]["agent"]),
        (&"in_time".into(), &"ann".into())
    );
    Ok(())
}

#[tokio::test]
async fn people_read_what_is_promised_and_what_to_type_next() -> Result<()> {
    let folder = Folder::new()?;
    let server = office(&folder).await?;
    let started = server.run(&["start", "claim", "--set", "sum=7", "--by", "5h"])?.succeeded()?;
    ensure!(started.contains("✔ promised for") && started.contains("approve  bea"), "{started}");
    let refused = server.run(&["start", "claim", "--set", "sum=7", "--by", "5h"])?.refused()?;
    ensure!(
        refused.contains("hint: write --by 20") && refused.contains("--unpromised"),
        "{refused}"
    );
    let anyway = start(&server, "5h", &["--unpromised"])?.json()?;
    assert_eq!(anyway["deadline"]["promised"], false);
    let asked = server.run(&["deadline", "ask", "claim", "--set", "sum=7", "--by", "9h"])?;
    let asked = asked.succeeded()?;
    ensure!(
        asked.contains("can be promised") && asked.contains("held for five minutes"),
        "{asked}"
    );
    let list = server.run(&["deadline", "list"])?.succeeded()?;
    ensure!(list.contains("check by ann, due") && list.contains("not promised"), "{list}");
    let chart = server.run(&["deadline", "plan", "ann", "--width", "80"])?.succeeded()?;
    ensure!(chart.contains(":check │") && chart.contains('█'), "{chart}");
    let nobody = server.run(&["deadline", "plan", "ann", "--executor"])?.refused()?;
    ensure!(nobody.contains("no executor `ann`; there is a person of that name"), "{nobody}");
    let shown = server.run(&["show", text(&anyway, "/instance")?])?.succeeded()?;
    ensure!(shown.contains("not promised for 20"), "{shown}");
    let zone = server.run(&["start", "claim", "--by", "2026-11-20T17:00"])?;
    ensure!(zone.code == Some(2) && zone.stderr.contains("zone"), "{zone:?}");
    let unclear = server.run(&["start", "claim", "--by", "3d", "--key", "k"])?.refused()?;
    ensure!(unclear.contains("write a moment"), "{unclear}");
    Ok(())
}

#[tokio::test]
async fn what_is_more_important_takes_the_place_of_what_was_promised_and_that_can_be_seen()
-> Result<()> {
    let folder = Folder::new()?;
    let server = office(&folder).await?;
    let first = start(&server, "5h", &[])?.json()?;
    let urgent = start(&server, "5h", &["--priority", "9"])?.json()?;
    assert_eq!(urgent["deadline"]["promised"], true);
    let (first, urgent) = (text(&first, "/instance")?, text(&urgent, "/instance")?);
    let told = |one: &str, word: &str| (one.to_owned(), word.to_owned());
    assert_eq!(standings(&server)?, [told(first, "revoked"), told(urgent, "promised")]);
    assert_eq!(plan(&server, "ann")?, [told("check", urgent)]);
    ensure!(counted(&server, "revoked").await? > 0, "it is not counted");
    Ok(())
}

/// The arguments of a command line, split by the shell.
fn words(line: &str) -> Result<Vec<String>> {
    let script = format!("printf '%s\\n' {line}");
    let output = Command::new("sh").args(["-c", &script]).output()?;
    ensure!(output.status.success(), "{line}");
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// Whether there is time depends on the day: nobody works in the night and at Christmas.
#[tokio::test]
async fn what_the_guide_and_the_example_say_can_be_typed() -> Result<()> {
    let examples = format!("{}/examples/", binary::repository().display());
    for (name, least) in [("examples/quotation/README.md", 4), ("docs/guide/deadlines.md", 9)] {
        let folder = Folder::new()?;
        let server = folder.server("store", &[]).await?;
        let page = std::fs::read_to_string(binary::repository().join(name))?;
        let blocks = tutorial::blocks(&page);
        let lines = blocks.iter().flat_map(|block| block.text.lines());
        let mut count = 0;
        for line in lines.filter_map(|line| line.strip_prefix("legwork ")) {
            let args = words(&line.replace("examples/", &examples))?;
            let done = server.run(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
            let is_refused = done.stderr.contains("(deadline_not_promised)");
            ensure!(done.code == Some(0) || is_refused, "{name}: legwork {line}: {}", done.stderr);
            count += 1;
        }
        ensure!(count >= least, "{name} has only {count} commands");
    }
    Ok(())
}

#[tokio::test]
async fn the_first_due_is_listed_first_however_many_were_started_since() -> Result<()> {
    let folder = Folder::new()?;
    let server = office(&folder).await?;
    let first = start(&server, "1d", &["--unpromised"])?.json()?;
    let first = text(&first, "/instance")?.to_owned();
    for _ in 0..3 {
        start(&server, "9d", &["--unpromised"])?.json()?;
    }
    let list = server.run(&["--json", "deadline", "list", "--limit", "2"])?.json()?;
    assert_eq!(list["deadlines"].as_array().map(Vec::len), Some(2));
    assert_eq!(text(&list, "/deadlines/0/instance")?, first);
    Ok(())
}
