//! From nothing to a completed case, with the command line alone.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use legwork_e2e::command::prepared;
use legwork_e2e::fixture::{ERRAND, PEOPLE};
use legwork_e2e::server::send_signal;
use legwork_e2e::wait::until;
use legwork_e2e::{Folder, legwork};
use serde_json::{Value as Json, json};

#[tokio::test]
async fn a_case_goes_from_its_start_to_its_end() -> Result<()> {
    let folder = Folder::new()?;
    let (people, errand) =
        (folder.file("people.yaml", PEOPLE)?, folder.file("errand.yaml", ERRAND)?);
    let check = legwork(folder.path(), &["check", &people, &errand])?.succeeded()?;
    assert_eq!(check, "✔ 2 files, nothing to mend\n");

    let server = folder.server("store", &[]).await?;
    let deployed = server.run(&["deploy", &errand, &people])?.succeeded()?;
    assert_eq!(deployed, "✔ organisation, version 1\n✔ process errand, version 1\n");
    let again = server.run(&["deploy", &errand, "--json"])?.json()?;
    assert_eq!(again["definitions"][0]["unchanged"], json!(true));

    let started = server.run(&["start", "errand", "--as", "ann", "--set", "what=tea", "--json"])?;
    let started = started.json()?;
    assert_eq!(started["state"], json!("running"));
    let instance = started["instance"].as_str().unwrap_or_default().to_owned();

    let list = server.run(&["list"])?.succeeded()?;
    assert!(list.contains(&instance[instance.len() - 9..instance.len() - 3]), "{list}");
    let work = server.run(&["work", "list", "--as", "bob", "--json"])?.json()?;
    assert_eq!(work["items"][0]["activity"], json!(format!("{instance}:look")));
    server.run(&["work", "complete", "look", "--as", "bob", "--set", "ok=true"])?.succeeded()?;
    let exec = r#"grep -q '"what":"tea"' && echo '{"receipt": "r1"}'"#;
    server.run(&["jobs", "work", "book", "--once", "--exec", exec])?.succeeded()?;

    let shown = server.run(&["show", "last"])?.succeeded()?;
    for expected in ["completed", "✔ look", "by bob", "✔ book", "by worker shell", "r1"] {
        assert!(shown.contains(expected), "{expected} is missing:\n{shown}");
    }
    assert!(!shown.contains('\u{1b}'), "colours in a pipe: {shown:?}");
    let whole = server.run(&["show", &instance, "--json"])?.json()?;
    assert_eq!(whole["result"], json!({"ok": true, "receipt": "r1"}));
    let history = server.run(&["history", "last", "--json"])?.json()?;
    let kinds: Vec<_> = history["entries"].as_array().into_iter().flatten().collect();
    let kinds: Vec<_> = kinds.iter().map(|entry| entry["kind"].as_str().unwrap_or("")).collect();
    assert_eq!(kinds.first(), Some(&"created"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "completed").count(), 2, "{kinds:?}");
    assert!(server.run(&["list"])?.succeeded()?.contains("no instance is running"));
    assert!(server.run(&["list", "--ended"])?.succeeded()?.contains("completed"));
    Ok(())
}

#[tokio::test]
async fn why_a_case_was_stopped_and_went_on_stands_in_its_history() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let errand = folder.file("errand.yaml", ERRAND)?;
    let people = folder.file("people.yaml", PEOPLE)?;
    server.run(&["deploy", &people, &errand])?.succeeded()?;
    server.run(&["start", "errand", "--set", "what=tea"])?.succeeded()?;
    for (order, reason) in
        [("suspend", "under audit"), ("resume", "audited"), ("abort", "enough of it")]
    {
        server.run(&[order, "last", "--reason", reason])?.succeeded()?;
        let told = server.run(&["history", "last"])?.succeeded()?;
        assert!(told.contains(reason), "{order}: {told}");
    }
    Ok(())
}

#[tokio::test]
async fn a_second_server_on_one_port_is_told_so_once() -> Result<()> {
    let folder = Folder::new()?;
    let first = folder.server("store", &[]).await?;
    let second = ["up", "--in-memory", "--listen", first.authority()];
    let said = legwork(folder.path(), &second)?.refused()?;
    assert_eq!(said.matches("in use").count(), 1, "{said}");
    assert!(said.contains("--listen"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_start_with_a_key_starts_once_and_can_be_waited_for() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let auto = "process: auto\ndata: {n: int, done: string}\nstart: [n]\nresult: [done]\n\
                steps:\n  - {step: go, job: go, reads: [n], writes: [done]}\n";
    let auto = folder.file("auto.yaml", auto)?;
    server.run(&["deploy", &auto])?.succeeded()?;
    let start = ["start", "auto", "--set", "n=1", "--key", "k1", "--json"];
    let first = server.run(&start)?.json()?;
    let second = server.run(&start)?.json()?;
    assert_eq!((&first["instance"], &second["repeated"]), (&second["instance"], &json!(true)));
    let other =
        server.run(&["start", "auto", "--set", "n=2", "--key", "k1", "--json"])?.problem()?;
    assert_eq!(other["code"], json!("idempotency_key_reused"));

    let late = server.run(&["start", "auto", "--set", "n=3", "--wait=1ms"])?;
    assert_eq!(late.code, Some(1));
    assert!(late.stderr.contains("not ended after 1ms"), "{}", late.stderr);
    // The two open jobs, and the one of the start below.
    let worker = ["jobs", "work", "go", "--count", "3", "--exec", "echo '{\"done\": \"yes\"}'"];
    let ended = std::thread::scope(|scope| {
        let worker = scope.spawn(|| server.run(&worker));
        let ended = server.run(&["start", "auto", "--set", "n=4", "--wait=60s", "--json"]);
        (ended, worker.join())
    });
    assert_eq!(ended.0?.json()?["result"], json!({"done": "yes"}));
    Ok(())
}

#[tokio::test]
async fn a_file_travels_with_a_case() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let process = "process: scan\ndata: {page: file}\nstart: [page]\nresult: [page]\n\
                   steps:\n  - {step: read, job: read, reads: [page]}\n";
    let process = folder.file("scan.yaml", process)?;
    let page = folder.file("page.pdf", vec![7_u8; 300_000])?;
    server.run(&["deploy", &process])?.succeeded()?;
    let file = format!("page={page}");
    server.run(&["start", "scan", "--file", &file])?.succeeded()?;
    let shown = server.run(&["show", "last", "--json"])?.json()?;
    let value = &shown["data"][0]["value"];
    assert_eq!(value["name"], json!("page.pdf"));
    assert_eq!(value["media_type"], json!("application/pdf"));
    let said = server.run(&["file", "last", "page"])?.refused()?;
    assert!(said.contains("page.pdf is there already") && said.contains("--force"), "{said}");
    let blob = value["blob"].as_str().unwrap_or_default();
    for (args, name) in [
        (&["file", "last", "page", "--output", "copy.pdf"][..], "copy.pdf"),
        (&["file", blob], blob),
        (&["file", "last", "page", "--force"], "page.pdf"),
    ] {
        server.run(args)?.succeeded()?;
        let content = std::fs::read(folder.path().join(name))?;
        assert!(content == vec![7_u8; 300_000], "{name} has {} bytes", content.len());
    }
    let said = server.run(&["file", "last", "pages"])?.refused()?;
    assert!(said.contains("those that hold files: `page`"), "{said}");
    let said = server.run(&["file", "last"])?.refused()?;
    assert!(said.contains("ELEMENT"), "{said}");
    let unknown = server.run(&["file", &"0".repeat(64), "--json"])?.problem()?;
    assert_eq!(unknown["code"], json!("no_such_file"));
    let left = std::fs::read_dir(folder.path())?.flatten();
    let left: Vec<_> = left.filter(|e| e.file_name().to_string_lossy().contains("inc")).collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_in_service_is_listed_and_printed_as_it_came() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    assert!(server.run(&["processes"])?.succeeded()?.contains("nothing is deployed yet"));
    assert_eq!(server.run(&["organisation", "--json"])?.problem()?["code"], "no_organisation");
    let (people, errand) =
        (folder.file("people.yaml", PEOPLE)?, folder.file("errand.yaml", ERRAND)?);
    server.run(&["deploy", &people, &errand])?.succeeded()?;
    let newer = folder.file("errand.yaml", ERRAND.replace("Run an errand", "Run two errands"))?;
    server.run(&["deploy", &newer])?.succeeded()?;
    let list = server.run(&["processes"])?.succeeded()?;
    assert!(list.contains("errand") && list.contains("Run two errands"), "{list}");
    assert_eq!(server.run(&["processes", "errand", "--version", "1"])?.succeeded()?, ERRAND);
    assert_eq!(server.run(&["processes", "errand", "--json"])?.json()?["version"], 2);
    assert_eq!(server.run(&["organisation"])?.succeeded()?, PEOPLE);
    let said = server.run(&["processes", "erand"])?.refused()?;
    assert!(said.contains("did you mean `errand`?"), "{said}");
    Ok(())
}

#[tokio::test]
async fn what_fails_the_check_is_not_deployed_at_all() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let good = folder.file("good.yaml", ERRAND)?;
    let bad = folder.file("bad.yaml", ERRAND.replace("reads: [what, ok]", "reads: [what, oj]"))?;
    let said = server.run(&["deploy", &good, &bad])?.refused()?;
    assert!(said.contains("bad.yaml:19:19:"), "{said}");
    assert!(said.contains("nothing was deployed"), "{said}");
    let problem = server.run(&["deploy", &good, &bad, "--json"])?.problem()?;
    assert_eq!(problem["code"], json!("check_failed"));
    assert_eq!(problem["findings"][0]["rule"], json!("D1"));
    assert!(server.client()?.definitions().await?.definitions.is_empty());
    let start = server.run(&["start", "errand", "--set", "what=x", "--json"])?.problem()?;
    assert_eq!(start["code"], json!("no_such_process"));
    Ok(())
}

#[tokio::test]
async fn a_mistyped_process_is_answered_with_the_one_that_was_meant() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let said = server.run(&["start", "erand"])?.refused()?;
    assert!(said.contains("legwork processes"), "{said}");
    let errand = folder.file("errand.yaml", ERRAND)?;
    server.run(&["deploy", &errand])?.succeeded()?;
    let said = server.run(&["start", "erand", "--set", "what=tea"])?.refused()?;
    assert!(said.contains("did you mean `errand`?"), "{said}");
    let problem = server.run(&["start", "erand", "--json"])?.problem()?;
    assert_eq!(problem["code"], json!("no_such_process"));
    Ok(())
}

#[test]
fn without_a_server_the_way_on_is_told() -> Result<()> {
    let folder = Folder::new()?;
    // Nothing listens at port 1.
    let server = ["--server", "http://127.0.0.1:1"];
    let said = legwork(folder.path(), &[&server[..], &["list"]].concat())?.refused()?;
    assert!(said.contains("legwork up"), "{said}");
    let problem =
        legwork(folder.path(), &[&server[..], &["list", "--json"]].concat())?.problem()?;
    assert_eq!(problem["code"], json!("unreachable"));
    Ok(())
}

#[tokio::test]
async fn who_stops_waiting_for_a_case_is_told_that_it_goes_on() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let errand = folder.file("errand.yaml", ERRAND)?;
    let people = folder.file("people.yaml", PEOPLE)?;
    server.run(&["deploy", &people, &errand])?.succeeded()?;

    let mut waiting = prepared()?;
    waiting.args(["start", "errand", "--set", "what=tea", "--wait=5m", "--server", server.url()]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = format!("/proc/{}/status", waiting.id());
    until("the command does not listen to Ctrl-C", async || {
        let status = std::fs::read_to_string(&status)?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap_or_default().trim(), 16)?;
        Ok(caught & 0b10 != 0)
    })
    .await?;
    send_signal("INT", &waiting.id().to_string())?;
    let output = waiting.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the case goes on: `legwork show inst_"), "{said}");
    assert!(server.run(&["list"])?.succeeded()?.contains("running"));
    Ok(())
}

#[tokio::test]
async fn the_id_of_a_case_is_known_also_if_the_server_goes_away_while_it_is_waited_for()
-> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let errand = folder.file("errand.yaml", ERRAND)?;
    let people = folder.file("people.yaml", PEOPLE)?;
    server.run(&["deploy", &people, &errand])?.succeeded()?;

    let begin = |more: &[&str]| -> Result<Child> {
        let mut waiting = prepared()?;
        waiting.args(["start", "errand", "--set", "what=tea", "--wait=5m"]).args(more);
        waiting.args(["--server", server.url()]);
        Ok(waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    };
    let (mut people, programs) = (begin(&[])?, begin(&["--json"])?);
    // Printed at once also into a pipe.
    let mut said = String::new();
    let stdout = people.stdout.take().context("no standard output")?;
    BufReader::new(stdout).read_line(&mut said)?;
    assert!(said.starts_with("✔ started inst_"), "{said}");
    until("both have started", async || {
        Ok(server.run(&["list"])?.succeeded()?.matches("running").count() == 2)
    })
    .await?;
    // Their requests are in progress, or will fail.
    server.kill()?;

    let ended = people.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{complaint}");
    let expected =
        "error: the connection broke while waiting; the case goes on: `legwork show inst_";
    assert!(complaint.starts_with(expected), "{complaint}");
    let ended = programs.wait_with_output()?;
    let document: Json = serde_json::from_slice(&ended.stdout)?;
    assert!(document["instance"].as_str().is_some_and(|id| id.starts_with("inst_")), "{document}");
    let problem: Json = serde_json::from_slice(&ended.stderr)?;
    assert_eq!(problem["code"], json!("connection_broken"), "{problem}");
    Ok(())
}
