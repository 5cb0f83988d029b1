//! Continuous commands: one JSON document per line, and an end when there is nothing more to print.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use legwork_e2e::fixture::{self, activity};
use legwork_e2e::{Folder, Server, command};
use serde_json::{Value as Json, json};

struct Watcher {
    child: Child,
    /// `None` once nothing reads any more.
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Watcher {
    fn new(server: &Server, args: &[&str]) -> Result<Self> {
        let mut child = command::prepared()?
            .args(["--server", server.url(), "--json"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, lines: Some(lines) })
    }

    fn next(&mut self) -> Result<Json> {
        Ok(serde_json::from_str(&self.line()?.context("it has ended")?)?)
    }

    fn line(&mut self) -> Result<Option<String>> {
        Ok(self.lines.as_mut().and_then(Iterator::next).transpose()?)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_followed_worklist_tells_what_comes() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let first = fixture::start(&client, "tea").await?;
    let mut watcher = Watcher::new(&server, &["work", "list", "--as", "bob", "--follow"])?;
    let list = watcher.next()?;
    assert_eq!(list["items"][0]["activity"], json!(activity(first, "look").to_string()));
    let second = fixture::start(&client, "coffee").await?;
    let change = watcher.next()?;
    assert_eq!(change["items"][0]["activity"], json!(activity(second, "look").to_string()));
    Ok(())
}

#[tokio::test]
async fn a_watched_instance_is_shown_until_it_has_ended() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let instance = fixture::start(&client, "tea").await?;
    let mut watcher = Watcher::new(&server, &["show", "last", "--watch"])?;
    assert_eq!(watcher.next()?["state"], json!("running"));
    client.abort(instance, Some("enough")).await?;
    let last = loop {
        let shown = watcher.next()?;
        if shown["state"] != json!("running") {
            break shown;
        }
    };
    assert_eq!(last["state"], json!("aborted"));
    ensure!(watcher.line()?.is_none(), "it goes on after the end");
    ensure!(watcher.child.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    let mut watcher = Watcher::new(&server, &["work", "list", "--as", "bob", "--follow"])?;
    watcher.next()?;
    drop(watcher.lines.take());
    fixture::start(&client, "tea").await?;
    ensure!(watcher.child.wait()?.success());
    Ok(())
}
