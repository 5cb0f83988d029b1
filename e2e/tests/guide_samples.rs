//! The guide's programs are true as well: JSON is parsed as by the API, the worker in Rust is
//! compiled and run, command lines are parsed.

#[expect(unreachable_pub, reason = "the sample stands as it would in a crate of its own")]
#[path = "samples/worker.rs"]
mod worker;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use legwork_api::Problem;
use legwork_api::files::File;
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, JobList, JobResults};
use legwork_e2e::tutorial::{self, Block};
use legwork_e2e::{Folder, binary};
use serde_json::Value as Json;

const PAGES: [&str; 15] = [
    "README.md",
    "api.md",
    "checking.md",
    "deadlines.md",
    "deadlines-reference.md",
    "definitions.md",
    "executors.md",
    "mail.md",
    "operating.md",
    "organisation.md",
    "postgresql.md",
    "reference.md",
    "servers.md",
    "sites.md",
    "workers.md",
];

const LETTERS: &str = "\
process: letters
data: { applicant: string, tracking: string }
start: [applicant?]
result: [tracking]
steps:
  - { step: send-letter, job: send-letter, reads: [applicant?], writes: [tracking] }
";

fn blocks(name: &str) -> Result<Vec<Block>> {
    let path = binary::repository().join("docs/guide").join(name);
    let page = std::fs::read_to_string(&path);
    Ok(tutorial::blocks(&page.with_context(|| format!("cannot read {}", path.display()))?))
}

#[tokio::test]
async fn the_worker_in_rust_does_its_jobs() -> Result<()> {
    let blocks = blocks("workers.md")?;
    let shown = blocks.iter().find(|block| block.info == "rust").context("no sample")?;
    let source = include_str!("samples/worker.rs");
    ensure!(source.ends_with(&format!("\n\n{}", shown.text)), "the sample is not the one shown");

    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    client.deploy(LETTERS).await?;
    let request = StartRequest { process: "letters".into(), ..StartRequest::default() };
    let started = client.start(&request, None).await?;
    worker::work(&client).await?;
    let found = client.instance(started.instance, std::time::Duration::ZERO).await?;
    assert_eq!(found.summary.state, InstanceState::Completed);
    Ok(())
}

/// The JSON texts in a block: each begins a line with a brace.
fn documents(block: &Block) -> Result<Vec<Json>> {
    let mut documents = Vec::new();
    let mut rest = &*block.text;
    while let Some(start) = rest.find("\n{") {
        let mut stream = serde_json::Deserializer::from_str(&rest[start..]).into_iter();
        let document = stream.next().context("no document")?;
        documents.push(document.with_context(|| format!("line {}", block.line))?);
        rest = &rest[start + stream.byte_offset()..];
    }
    Ok(documents)
}

#[test]
fn requests_and_answers_in_the_guide_are_those_of_the_api() -> Result<()> {
    let all = blocks("workers.md")?;
    let shown = |head: &str| -> Result<[Json; 2]> {
        let block = all.iter().find(|block| block.text.starts_with(head)).context("no block")?;
        let documents = documents(block)?;
        documents.try_into().map_err(|found| anyhow::anyhow!("{head}: {found:?}"))
    };
    let [request, answer] = shown("POST /v1/jobs/activate")?;
    serde_json::from_value::<ActivateRequest>(request)?;
    serde_json::from_value::<JobList>(answer)?;
    let [request, answer] = shown("POST /v1/jobs/complete")?;
    serde_json::from_value::<CompleteJobsRequest>(request)?;
    serde_json::from_value::<JobResults>(answer)?;

    for block in blocks("api.md")? {
        if block.info == "json" {
            let problem: Problem = serde_json::from_str(&block.text)?;
            let made = Problem::new(problem.status, &problem.code, &problem.detail);
            assert_eq!(serde_json::to_value(problem)?, serde_json::to_value(made)?);
        } else if block.text.starts_with("POST /v1/instances") {
            let [start] = documents(&block)?.try_into().ok().context("not one document")?;
            let start: StartRequest = serde_json::from_value(start)?;
            assert!(start.deadline.is_some());
        } else {
            let [file] = documents(&block)?.try_into().ok().context("not one document")?;
            // The hash is shortened on the page.
            assert_eq!(file["blob"], "5f2b…");
            let whole = Json::from("5f".repeat(32));
            let file = Json::Object(
                file.as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| {
                        let value = if name == "blob" { &whole } else { value };
                        (name.clone(), value.clone())
                    })
                    .collect(),
            );
            serde_json::from_value::<File>(file)?;
        }
    }
    Ok(())
}

/// With `--help` after its arguments, the program still refuses unknown ones.
#[test]
fn command_lines_in_the_guide_are_understood() -> Result<()> {
    let program = binary::legwork()?;
    let mut count = 0;
    for name in PAGES {
        for block in blocks(name)?.iter().filter(|block| block.info == "text") {
            let lines = block.text.lines().map(|line| {
                line.trim_start_matches("export LEGWORK_TOKEN=$(").trim_end_matches(')')
            });
            for line in lines.filter_map(|line| line.strip_prefix("legwork ")) {
                // The shell takes the quotes off.
                let script = format!("exec \"$0\" {line} --help");
                let output = Command::new("sh").args(["-c", &script]).arg(program).output()?;
                let said = String::from_utf8_lossy(&output.stderr);
                let place = format!("docs/guide/{name}:{}: legwork {line}", block.line);
                ensure!(output.status.success(), "{place}: {said}");
                count += 1;
            }
        }
    }
    ensure!(count >= 10, "only {count} were found");
    Ok(())
}
