//! The guide is true: its commands are run, its examples are checked.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use legwork_e2e::tutorial::{self, Part};
use legwork_e2e::{Folder, binary, legwork, send_signal};
use serde_json::Value as Json;

fn page(name: &str) -> Result<String> {
    let path = binary::repository().join("docs/guide").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// A shell that is fed piece by piece; everything it has started is killed with it.
struct Shell {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

const MARK: &str = "=== the end of a piece ===";

impl Shell {
    fn new(folder: &Path, address: &str) -> Result<Self> {
        let folder_of_binary = binary::legwork()?.parent().context("no folder")?;
        let path = std::env::var("PATH").unwrap_or_default();
        // A group of its own, so that the servers it starts can be killed with it.
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .process_group(0)
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", folder_of_binary.display()))
            .env("LEGWORK_LISTEN", address)
            .env("LEGWORK_SERVER", format!("http://{address}"))
            .env_remove("LEGWORK_TOKEN")
            .env_remove("LEGWORK_AGENT")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start bash")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut shell = Self { child, output };
        shell.run("exec 2>&1")?;
        Ok(shell)
    }

    /// Runs a piece and returns its output.
    fn run(&mut self, piece: &str) -> Result<String> {
        let stdin = self.child.stdin.as_mut().context("no input")?;
        write!(stdin, "{piece}\necho; echo \"{MARK} $?\"\n")?;
        stdin.flush()?;
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "the shell is gone: {printed}");
            if let Some(code) = line.strip_prefix(MARK) {
                ensure!(code.trim() == "0", "ended with {}: {printed}", code.trim());
                return Ok(printed);
            }
            printed.push_str(&line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let killed = send_signal("KILL", &format!("-{}", self.child.id()));
        let _ = self.child.wait();
        // A surviving server would hold its port and its folder: that must be noticed.
        if !std::thread::panicking() {
            assert!(killed.is_ok(), "the tutorial's servers are still there: {killed:?}");
        }
    }
}

/// A port that was free a moment ago.
fn free_address() -> Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

/// The further output of a server in the background, until it says that it is up: then a reader
/// would go on too.
async fn until_up(shell: &mut Shell, mut printed: String) -> Result<String> {
    for _ in 0..1_000 {
        // The last line of the banner.
        if printed.contains("is up") && printed.contains("Ctrl-C") {
            return Ok(printed);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        printed.push_str(&shell.run("true")?);
    }
    bail!("the tutorial's server does not get ready: {printed}")
}

#[tokio::test]
async fn the_tutorial_works_as_it_is_written() -> Result<()> {
    typed("tutorial.md").await
}

#[tokio::test]
async fn the_page_of_schedules_works_as_it_is_written() -> Result<()> {
    typed("schedules.md").await
}

/// Carries out a page, as a reader would.
async fn typed(name: &str) -> Result<()> {
    let folder = Folder::new()?;
    let address = free_address()?;
    let mut shell = Shell::new(folder.path(), &address)?;
    for part in tutorial::parts(&page(name)?) {
        match part {
            Part::File { name, text, .. } => {
                folder.file(&name, text)?;
            }
            Part::Shell { line, text, expected } => {
                let place = || format!("docs/guide/{name}:{line}:\n{text}");
                let mut printed = shell.run(&text).with_context(place)?;
                if text.lines().any(|line| line.starts_with("legwork up")) {
                    printed = until_up(&mut shell, printed).await?;
                }
                let printed = printed.replace(&address, "127.0.0.1:7700");
                if let Err(missing) = tutorial::compare(&expected, &printed) {
                    bail!("{}{missing}", place());
                }
            }
        }
    }
    Ok(())
}

/// The findings of one text.
fn findings(
    folder: &Folder,
    text: &str,
    people: Option<&str>,
    sites: Option<&str>,
) -> Result<Vec<(String, String)>> {
    let mut args = vec!["check".to_owned(), "--json".to_owned(), folder.file("it.yaml", text)?];
    if let Some(sites) = sites {
        args.push(folder.file("sites.yaml", sites)?);
    }
    if let Some(people) = people {
        args.extend(["--org".to_owned(), folder.file("people.yaml", people)?]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = legwork(folder.path(), &args)?;
    let report: Json = serde_json::from_str(&outcome.stdout).context(outcome.stderr)?;
    let files = report["files"].as_array().into_iter().flatten();
    let all = files.flat_map(|file| file["findings"].as_array().into_iter().flatten());
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    Ok(all.map(|finding| (text(&finding["rule"]), finding.to_string())).collect())
}

#[test]
fn definitions_and_organisations_in_the_guide_pass_the_check() -> Result<()> {
    let folder = Folder::new()?;
    let mut count = 0;
    let pages = "README definitions organisation operating workers deadlines deadlines-reference";
    for name in pages.split(' ').map(|page| format!("{page}.md")) {
        let name = &*name;
        for block in tutorial::blocks(&page(name)?) {
            if block.info != "yaml" {
                continue;
            }
            let found = findings(&folder, &block.text, None, None)?;
            ensure!(found.is_empty(), "docs/guide/{name}:{}: {found:#?}", block.line);
            count += 1;
        }
    }
    ensure!(count >= 5, "only {count} examples were found");
    Ok(())
}

#[test]
fn conditions_and_rules_in_the_guide_are_understood() -> Result<()> {
    let folder = Folder::new()?;
    let mut count = 0;
    for name in ["definitions.md", "organisation.md"] {
        let blocks = tutorial::blocks(&page(name)?);
        for block in blocks.iter().filter(|block| matches!(&*block.info, "cel" | "rules")) {
            for line in block.text.lines() {
                let text = match &*block.info {
                    "cel" => CONDITION.replace("CONDITION", line),
                    _ => RULE.replace("RULE", line),
                };
                let found = findings(&folder, &text, None, None)?;
                ensure!(found.is_empty(), "docs/guide/{name}:{}: {line}: {found:#?}", block.line);
                count += 1;
            }
        }
    }
    ensure!(count >= 6, "only {count} were found");
    Ok(())
}

const CONDITION: &str = "\
process: sample
data:
  { amount: decimal, approved: bool, reason: string, items: json, due: date-time, note: string }
start: [amount, approved, reason, items, due, note?]
result: [amount, approved, reason, items, due, note?]
steps:
  - choice: which
    branches:
      - { name: yes, when: 'CONDITION' }
      - { name: no, otherwise: true }
";

const RULE: &str = "\
process: sample
steps:
  - { step: capture, who: Agent() }
  - step: check
    who: RULE
";

/// The blocks of the checking page are marked `yaml wrong D1`, `yaml right D1`, `yaml people` and
/// `yaml sites`.
#[test]
fn every_rule_of_the_checking_page_is_shown_broken_and_kept() -> Result<()> {
    let folder = Folder::new()?;
    let (mut wrong, mut right) = (Vec::new(), Vec::new());
    let (mut people, mut sites): (Option<String>, Option<String>) = (None, None);
    for block in tutorial::blocks(&page("checking.md")?) {
        let place = format!("docs/guide/checking.md:{}", block.line);
        match block.info.split(' ').collect::<Vec<_>>()[..] {
            ["yaml", "people"] => people = Some(block.text),
            ["yaml", "sites"] => sites = Some(block.text),
            ["yaml", "wrong", rule] => {
                let found = findings(&folder, &block.text, people.as_deref(), sites.as_deref())?;
                let told = found.iter().all(|(found, _)| found == rule) && !found.is_empty();
                ensure!(told, "{place}: {rule} is expected, found {found:#?}");
                wrong.push(rule.to_owned());
            }
            ["yaml", "right", rule] => {
                let found = findings(&folder, &block.text, people.as_deref(), sites.as_deref())?;
                ensure!(found.is_empty(), "{place}: {found:#?}");
                right.push(rule.to_owned());
            }
            _ => {}
        }
    }
    wrong.sort();
    wrong.dedup();
    right.sort();
    right.dedup();
    let rules = "D1 D2 D3 D4 D5 K1 K2 K3 K4 K5 K6 Y1 Y2 Y3 Y4 Z1 Z2 Z3 Z4 Z5 Z6 Z7";
    let all: Vec<&str> = rules.split(' ').collect();
    // Cannot be broken in YAML: see the page.
    let unbreakable = ["K2"];
    let breakable: Vec<&str> =
        all.iter().copied().filter(|rule| !unbreakable.contains(rule)).collect();
    assert_eq!(wrong, breakable);
    assert_eq!(right, all);
    Ok(())
}

#[tokio::test]
async fn the_readme_leads_to_a_completed_case_in_three_commands() -> Result<()> {
    let readme = std::fs::read_to_string(binary::repository().join("README.md"))?;
    let blocks = tutorial::blocks(&readme);
    let commands: Vec<&str> = blocks
        .iter()
        .filter(|block| block.info == "sh" && block.text.contains("legwork"))
        .flat_map(|block| block.text.lines())
        .collect();
    ensure!(commands.len() <= 3, "{commands:?}");
    let (up, rest) = commands.split_first().context("the README has no commands")?;
    ensure!(up.ends_with("-- up"), "the first command does not start a server: {up}");
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let mut last = String::new();
    for command in rest {
        let (program, args) = command.split_once(' ').context("no arguments")?;
        ensure!(program.ends_with("/legwork"), "{command}");
        let examples = format!("{}/examples", binary::repository().display());
        let args = args.replace("examples", &examples);
        last = server.run(&args.split(' ').collect::<Vec<_>>())?.succeeded()?;
    }
    ensure!(last.contains("completed"), "{last}");
    Ok(())
}

#[test]
fn the_examples_pass_the_check() -> Result<()> {
    let examples: PathBuf = binary::repository().join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(examples)? {
        let folder = entry?.path();
        let files: Vec<String> = std::fs::read_dir(&folder)?
            .flatten()
            .map(|entry| entry.path().display().to_string())
            .filter(|name| name.ends_with(".yaml"))
            .collect();
        let mut args = vec!["check"];
        args.extend(files.iter().map(String::as_str));
        let report = legwork(&folder, &args)?.succeeded()?;
        ensure!(report.contains("nothing to mend"), "{}: {report}", folder.display());
        count += 1;
    }
    ensure!(count >= 3, "only {count} examples");
    Ok(())
}
