//! Output for people fits their screen and uses their time zone.

use anyhow::{Context, Result, ensure};
use legwork_e2e::command::prepared;
use legwork_e2e::{Folder, Server, cluster, wait};
use legwork_model::time::Timestamp;
use legwork_model::zone::Zone;

const COLUMNS: usize = 80;
const NORTH: &str = "the-northern-branch-office-1";
const SURVEYOR: &str = "maximiliane-of-the-department-of-roofs";
const BOOKING: &str = "book-the-payment-in-the-old-ledger";
const CLAIM: &str = "settlement-of-a-household-claim";

const PEOPLE: &str = "
organisation: insurance
agents:
  maximiliane-of-the-department-of-roofs: { name: Maximiliane, roles: [surveyor-of-roofs-and-walls] }
";

const PROCESS: &str = "
process: settlement-of-a-household-claim
title: The settlement of a claim for what happened to a house and to everything in it
data: { what_has_happened_to_the_house: string, estimate_of_the_surveyor: string }
start: [what_has_happened_to_the_house]
steps:
  - parallel: look-at-it-from-two-sides
    branches:
      - steps:
          - step: inspect-the-roof-and-photograph-it
            title: Inspect the damaged roof and photograph it from both sides
            who: Role(surveyor-of-roofs-and-walls)
            takes: 20m
            reads: [what_has_happened_to_the_house]
            writes: [estimate_of_the_surveyor]
      - steps:
          - step: book-the-payment-in-the-old-ledger
            title: Book what is likely to be paid in the ledger of the old system
            job: book-the-payment-in-the-old-ledger
            takes: 1m
            retry: { times: 0 }
            reads: [what_has_happened_to_the_house]
";

/// Two servers with long names, and a case with every feature.
async fn office(folder: &Folder) -> Result<[Server; 2]> {
    cluster::init(folder, &["the-northern-branch-office", "the-southern-branch-office"])?;
    let servers = [
        cluster::up(folder, NORTH).await?,
        cluster::up(folder, "the-southern-branch-office-1").await?,
    ];
    folder.file("people.yaml", PEOPLE)?;
    folder.file("claim.yaml", PROCESS)?;
    let run = |line: &str| servers[0].run(&line.split(' ').collect::<Vec<_>>())?.succeeded();
    run("deploy people.yaml claim.yaml")?;
    let start = format!("start {CLAIM} --set what_has_happened_to_the_house=hail-of-a-size");
    run(&start)?;
    let fail = "echo the ledger is closed for the night and opens in the morning >&2; exit 1";
    let worker = "the-robot-that-books-at-night";
    let work = ["jobs", "work", BOOKING, "--once", "--name", worker, "--exec", fail];
    servers[0].run(&work)?.succeeded()?;
    let every = ["schedules", "put", "every-night-in-the-week-but-not-at-weekends", CLAIM];
    let cron = ["--cron", "0 2 * * mon-fri", "--zone", "America/Argentina/Buenos_Aires"];
    let set = ["--set", "what_has_happened_to_the_house=rain", "--by", "9d"];
    servers[0].run(&[&every[..], &cron, &set].concat())?.succeeded()?;
    run(&format!(
        "executors register the-scoring-service-in-the-cellar --url http://127.0.0.1:9/legwork \
         --secret a-secret-of-at-least-32-characters --type {BOOKING}=4@10/s --at-once 2"
    ))?;
    run(&format!("executors policy {BOOKING} oxthas-3"))?;
    run(&format!("{start} --by 9d"))?;
    wait::until("the link is up", async || Ok(run("cluster links")?.contains(" up "))).await?;
    Ok(servers)
}

#[tokio::test]
async fn no_line_is_longer_than_the_screen_is_wide() -> Result<()> {
    let folder = Folder::new()?;
    let servers = office(&folder).await?;
    let mut seen = String::new();
    for line in [
        "list",
        "show last",
        "history last",
        "work list --as PERSON",
        "work show last --as PERSON",
        "incidents",
        "deadline list",
        "deadline show last",
        "deadline plan PERSON",
        "deadline ask CLAIM --by 9d --set what_has_happened_to_the_house=wind",
        "schedules",
        "schedules show every-night-in-the-week-but-not-at-weekends",
        "executors",
        "executors show the-scoring-service-in-the-cellar",
        "executors policy",
        "cluster show",
        "cluster status",
        "cluster links",
        "processes",
        "start CLAIM --by 9d --set what_has_happened_to_the_house=wind",
        "token create a-token-for-the-desk-of-the-department --scope admin",
        "token list",
        "demo --for 2s",
    ] {
        let line = line.replace("PERSON", SURVEYOR).replace("CLAIM", CLAIM);
        let mut command = prepared()?;
        command.env("COLUMNS", COLUMNS.to_string()).args(line.split(' '));
        command.args(["--server", servers[0].url()]).current_dir(folder.path());
        if line == "token list" {
            command.env("LEGWORK_TOKEN", seen.lines().last().unwrap_or_default());
        }
        let output = command.output()?;
        let text = String::from_utf8(output.stdout)?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() && !text.is_empty(), "{line}: {error}");
        let long = text.lines().find(|line| line.chars().count() > COLUMNS);
        ensure!(long.is_none(), "legwork {line}:\n{text}");
        // Nothing is cut to fit except the labels of a chart.
        let is_whole = !text.contains('…') || line.starts_with("deadline plan");
        ensure!(is_whole, "legwork {line}:\n{text}");
        seen.push_str(&text);
    }
    Ok(())
}

#[tokio::test]
async fn what_went_wrong_fits_the_screen_too_and_commands_stay_whole() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    folder.file("people.yaml", PEOPLE)?;
    folder.file("claim.yaml", PROCESS)?;
    let wrong = PROCESS
        .replace("reads: [what_has_happened_to_the_house]", "reads: [the_weather_on_that_day]");
    folder.file("wrong.yaml", wrong)?;
    server.run(&["deploy", "people.yaml", "claim.yaml"])?.succeeded()?;
    for (line, said) in [
        ("check people.yaml wrong.yaml", "the_weather_on_that_day"),
        ("deploy people.yaml wrong.yaml", "the_weather_on_that_day"),
        ("show last", "`legwork start PROCESS`"),
        ("start CLAIM", "--set what_has_happened_to_the_house=…"),
        ("work list --as somebody-who-has-left-the-department-long-ago", "`legwork organisation`"),
        ("deadline plan somebody-who-has-left-the-department-long-ago", "`legwork executors`"),
        ("token revoke the-token-of-a-desk-that-is-no-longer-there", "`legwork token list`"),
        ("executors register crm --url http://127.0.0.1:9/ --type a", "LEGWORK_EXECUTOR_SECRET"),
        ("cluster replace", "Usage:"),
        ("--server http://127.0.0.1:1 list", "`legwork up`"),
        ("up --mail a-file-that-is-not-there-or-no-longer.yaml --listen 127.0.0.1:0", "--mail"),
    ] {
        let line = line.replace("CLAIM", CLAIM);
        let mut command = prepared()?;
        command.env("COLUMNS", COLUMNS.to_string()).current_dir(folder.path());
        if !line.starts_with("--server") {
            command.env("LEGWORK_SERVER", server.url());
        }
        let output = command.args(line.split(' ')).output()?;
        let text = String::from_utf8([output.stdout, output.stderr].concat())?;
        ensure!(!output.status.success() && text.contains(said), "legwork {line}:\n{text}");
        let long = text.lines().find(|line| line.chars().count() > COLUMNS);
        ensure!(long.is_none(), "legwork {line}:\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn people_see_their_own_clock_and_programs_see_utc() -> Result<()> {
    let folder = Folder::new()?;
    let servers = office(&folder).await?;
    let list = servers[0].run(&["list", "--json"])?.json()?;
    let started = list["instances"][0]["started_at"].as_str().context("no start")?.to_owned();
    ensure!(started.ends_with('Z'), "{started}");
    let moment: Timestamp = started.parse()?;
    for zone in ["Asia/Tokyo", "America/Argentina/Buenos_Aires", "UTC"] {
        let mut command = prepared()?;
        command.env("TZ", zone).args(["list", "--server", servers[0].url()]);
        let text = String::from_utf8(command.output()?.stdout)?;
        let shown = Zone::named(zone).context("no such zone")?.minute(moment);
        ensure!(text.contains(&format!("{shown} ")), "{zone}: {shown} is not in\n{text}");
    }
    Ok(())
}
