//! Programs that do automatic steps, and their failures.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_e2e::{Folder, Server, command};
use serde_json::{Value as Json, json};

const PRINT: &str = "\
process: print
data: { pages: int, where: string }
start: [pages]
result: [where]
steps:
  - step: print
    job: print
    retry: { times: 2, pause: 1ms }
    reads: [pages]
    writes: [where]
";

async fn shop(folder: &Folder) -> Result<Server> {
    let server = folder.server("store", &[]).await?;
    let print = folder.file("print.yaml", PRINT)?;
    server.run(&["deploy", &print])?.succeeded()?;
    Ok(server)
}

#[tokio::test]
async fn a_failing_job_is_repeated_and_then_an_incident_to_resolve() -> Result<()> {
    let folder = Folder::new()?;
    let server = shop(&folder).await?;
    server.run(&["start", "print", "--set", "pages=3"])?.succeeded()?;
    let exec = "echo ignored; echo 'no paper' >&2; exit 3";
    let worker = ["jobs", "work", "print", "--count", "3", "--json", "--exec", exec];
    let outcome = server.run(&worker)?;
    assert_eq!(outcome.stderr, "no paper\n".repeat(3), "what it says is passed on");
    let said = outcome.succeeded()?;
    let reports: Vec<Json> = said.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(reports.len(), 3);
    ensure!(reports.iter().all(|report| report["error"] == "no paper"), "{said}");

    let incidents = server.run(&["incidents"])?.succeeded()?;
    for expected in ["print", "retries_exhausted", "no paper", "--retry"] {
        assert!(incidents.contains(expected), "{expected}: {incidents}");
    }
    assert!(server.run(&["show", "last"])?.succeeded()?.contains("✘ print"));
    server.run(&["resolve", "last", "--retry"])?.succeeded()?;
    let exec = r#"test "$LEGWORK_ATTEMPT" && grep -q '"pages":3' && echo '{"where": "tray 1"}'"#;
    server.run(&["jobs", "work", "print", "--once", "--exec", exec])?.succeeded()?;
    assert!(server.run(&["show", "last"])?.succeeded()?.contains("tray 1"));
    assert_eq!(server.run(&["incidents"])?.succeeded()?, "no incidents\n");
    Ok(())
}

#[tokio::test]
async fn a_command_that_takes_longer_than_its_lease_keeps_the_job() -> Result<()> {
    let folder = Folder::new()?;
    let server = shop(&folder).await?;
    server.run(&["start", "print", "--set", "pages=1"])?.succeeded()?;
    let exec = r#"sleep 2; echo '{"where": "tray 2"}'"#;
    let slow = ["jobs", "work", "print", "--once", "--lease", "600ms", "--exec", exec];
    let said = server.run(&slow)?.succeeded()?;
    assert!(said.contains('✔'), "{said}");
    let history = server.run(&["history", "last", "--json"])?.json()?;
    let kinds: Vec<_> = history["entries"].as_array().into_iter().flatten().collect();
    assert_eq!(kinds.iter().filter(|entry| entry["kind"] == "completed").count(), 1);
    assert!(kinds.iter().all(|entry| entry["kind"] != "failed"), "{history}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_result_is_a_failure() -> Result<()> {
    let folder = Folder::new()?;
    let server = shop(&folder).await?;
    for (exec, expected) in [
        ("echo hello", "did not print a JSON object"),
        ("echo '[1]'", "did not print a JSON object"),
        ("exit 7", "exit status: 7"),
        ("no-such-program-here", "not found"),
    ] {
        server.run(&["start", "print", "--set", "pages=1"])?.succeeded()?;
        let said = server.run(&["jobs", "work", "print", "--once", "--exec", exec])?;
        let said = said.succeeded()?;
        assert!(said.contains('✘') && said.contains(expected), "{exec}: {said}");
        server.run(&["abort", "last", "--reason", "tried"])?.succeeded()?;
    }
    // An invalid result is refused by the server, and so is a failure too.
    server.run(&["start", "print", "--set", "pages=1"])?.succeeded()?;
    let wrong = ["jobs", "work", "print", "--once", "--data", r#"{"where": [1]}"#];
    let said = server.run(&wrong)?.succeeded()?;
    assert!(said.contains('✘') && said.contains("`where` must be of type string"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_worker_outlives_a_restart_of_its_server() -> Result<()> {
    let folder = Folder::new()?;
    let server = shop(&folder).await?;
    let address = server.authority().to_owned();
    server.run(&["start", "print", "--set", "pages=1"])?.succeeded()?;
    let exec = r#"echo '{"where": "tray 3"}'"#;
    let mut worker = command::prepared()?
        .args(["--server", server.url(), "--json"])
        .args(["jobs", "work", "print", "--count", "2", "--exec", exec])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = BufReader::new(worker.stdout.take().context("no output")?).lines();
    let first = lines.next().context("no first job")??;
    server.kill()?;
    let server = folder.server("store", &["--listen", &address]).await?;
    server.run(&["start", "print", "--set", "pages=2"])?.succeeded()?;
    let second = lines.next().context("no second job")??;
    ensure!(worker.wait()?.success());
    assert_ne!(first, second);
    let ended = server.run(&["list", "--ended", "--json"])?.json()?;
    assert_eq!(ended["instances"].as_array().map(Vec::len), Some(2));
    Ok(())
}

#[tokio::test]
async fn an_undecidable_choice_is_decided_by_a_person() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let route = "\
process: route
data: { form: json, done: string }
start: [form]
result: [done]
steps:
  - choice: way
    branches:
      - { name: north, when: form.to == \"north\", steps: [{ step: up, job: go, writes: [done] }] }
      - { name: south, when: form.to == \"south\", steps: [{ step: down, job: go, writes: [done] }] }
";
    let route = folder.file("route.yaml", route)?;
    server.run(&["deploy", &route])?.succeeded()?;
    server.run(&["start", "route", "--set", r#"form={"to": "east"}"#])?.succeeded()?;
    let incidents = server.run(&["incidents", "--json"])?.json()?;
    assert_eq!(incidents["incidents"][0]["kind"], json!("no_branch_matches"));
    let wrong = server.run(&["resolve", "way", "--choose", "west"])?.refused()?;
    assert!(wrong.contains("north"), "{wrong}");
    server.run(&["resolve", "way", "--choose", "south"])?.succeeded()?;
    server.run(&["jobs", "work", "go", "--once", "--set", "done=yes"])?.succeeded()?;
    let shown = server.run(&["show", "last"])?.succeeded()?;
    assert!(shown.contains("✔ down") && shown.contains("– up"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn a_step_without_actors_waits_for_one() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let process = "process: rare\nsteps:\n  - { step: tune, who: Role(tuner) }\n";
    let process = folder.file("rare.yaml", process)?;
    let nobody = "organisation: us\nagents: { ann: {} }\n";
    let (nobody, tuner) = (
        folder.file("nobody.yaml", nobody)?,
        folder.file("somebody.yaml", nobody.replace("{}", "{ roles: [tuner] }"))?,
    );
    // While there is no organisation, the role is not checked.
    server.run(&["deploy", &process])?.succeeded()?;
    server.run(&["deploy", &nobody])?.succeeded()?;
    server.run(&["start", "rare"])?.succeeded()?;
    let incidents = server.run(&["incidents"])?.succeeded()?;
    assert!(incidents.contains("Role(tuner)"), "{incidents}");
    server.run(&["deploy", &tuner])?.succeeded()?;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !server.run(&["work", "list", "--as", "ann"])?.succeeded()?.contains("tune") {
        ensure!(std::time::Instant::now() < deadline, "{}", server.run(&["incidents"])?.stdout);
    }
    server.run(&["work", "complete", "tune", "--as", "ann"])?.succeeded()?;
    assert!(server.run(&["show", "last"])?.succeeded()?.contains("completed"));
    Ok(())
}
