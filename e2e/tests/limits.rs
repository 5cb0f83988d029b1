//! Excessive input: refused soon, clearly, and without harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use legwork_api::client::InstanceQuery;
use legwork_api::instances::StartRequest;
use legwork_api::{Client, Data};
use legwork_e2e::fixture;
use legwork_e2e::{Folder, Server};
use serde_json::json;

const HUGE: usize = 100 << 20;

/// Sends a head and a huge body; returns the answer.
fn flood(server: &Server, head: &str, chunked: bool) -> Result<String> {
    let mut stream = TcpStream::connect(server.authority())?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_write_timeout(Some(Duration::from_secs(20)))?;
    let host = server.authority();
    let length = match chunked {
        true => "transfer-encoding: chunked".to_owned(),
        false => format!("content-length: {HUGE}"),
    };
    let kind = "content-type: application/json\r\nconnection: close";
    write!(stream, "{head}\r\nhost: {host}\r\n{kind}\r\n{length}\r\n\r\n")?;
    let block = vec![b'['; 1 << 20];
    for _ in 0..HUGE / block.len() {
        let (frame, end) = match chunked {
            true => (format!("{:x}\r\n", block.len()), "\r\n"),
            false => (String::new(), ""),
        };
        let parts = [frame.as_bytes(), &block, end.as_bytes()];
        // A server may hang up after a refusal.
        if parts.iter().any(|part| stream.write_all(part).is_err()) {
            break;
        }
    }
    if chunked {
        let _ = stream.write_all(b"0\r\n\r\n");
    }
    let mut answer = Vec::new();
    // A reset after the answer may cut its end, but not its beginning.
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn a_huge_body_is_refused_soon_and_takes_no_memory() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    for path in ["/v1/instances", "/v1/check", "/v1/jobs/complete"] {
        for chunked in [false, true] {
            let since = Instant::now();
            let answer = flood(&server, &format!("POST {path} HTTP/1.1"), chunked)?;
            ensure!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
            ensure!(answer.contains("body_too_large"), "{path}: {answer}");
            let took = since.elapsed();
            ensure!(took < Duration::from_secs(10), "{path}: refused only after {took:?}");
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    ensure!(peak.context("no VmHWM")? < 300 << 10, "the server took {peak:?} KiB");
    server.client()?.ready().await?;
    Ok(())
}

#[tokio::test]
async fn a_huge_file_is_refused_by_the_command_line_too() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let huge = folder.file("huge.yaml", "process: x\n# ")?;
    std::fs::File::options().write(true).open(&huge)?.set_len(HUGE as u64)?;
    let said = server.run(&["deploy", &huge])?.refused()?;
    assert!(said.contains("error Y3"), "{said}");
    server.client()?.ready().await?;
    Ok(())
}

/// A small file system of its own; needs root.
struct SmallDisk<'f> {
    folder: &'f Folder,
}

impl<'f> SmallDisk<'f> {
    fn mount(folder: &'f Folder, megabytes: u32) -> Result<Option<Self>> {
        let target = folder.path().join("disk");
        std::fs::create_dir(&target)?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "legwork-e2e"])
            .arg(&target)
            .output();
        Ok(mounted.is_ok_and(|output| output.status.success()).then_some(Self { folder }))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path().join("disk")).status();
    }
}

/// The number of instances on the first page, as soon as the server answers.
async fn until_answered(client: &Client) -> Result<usize> {
    let since = Instant::now();
    loop {
        let query = InstanceQuery { limit: Some(1_000), ..InstanceQuery::default() };
        match client.instances(&query).await {
            Ok(page) => return Ok(page.instances.len()),
            Err(error) if since.elapsed() > Duration::from_secs(60) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

#[tokio::test]
async fn a_full_disk_refuses_what_it_cannot_store_and_recovers() -> Result<()> {
    let folder = Folder::new()?;
    let Some(disk) = SmallDisk::mount(&folder, 192)? else {
        // Not by a macro: their output is hidden in a passing test.
        writeln!(std::io::stderr(), "SKIPPED the full disk: only root can mount a small one")?;
        return Ok(());
    };
    let ballast = folder.path().join("disk/ballast");
    std::fs::write(&ballast, vec![1_u8; 128 << 20])?;
    let server = folder.server("disk/store", &[]).await?;
    let client = server.client()?;
    fixture::deploy(&client).await?;
    // Random enough not to be compressed away.
    let mut seed = 1_u64;
    let mut text = || -> String {
        let next = |_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + (seed >> 33) as u8 % 75)
        };
        (0..200_000).map(next).collect()
    };
    let request = |text: String| StartRequest {
        process: "errand".into(),
        data: Data::from([("what".to_owned(), json!(text))]),
        ..StartRequest::default()
    };
    let mut acknowledged = 0;
    // While it is full: stored data can be read, new data is refused.
    for _ in 0..3 {
        let refusal = loop {
            match client.start(&request(text()), None).await {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
            ensure!(acknowledged < 5_000, "the disk never gets full");
        };
        let problem = refusal.problem().with_context(|| format!("no problem: {refusal}"))?;
        assert_eq!(problem.status, 503, "{problem}");
        assert_eq!(problem.code, "storage_unavailable", "{problem}");
        let known = until_answered(&client).await.with_context(|| server.log())?;
        ensure!(known >= acknowledged.min(1_000), "{known} of {acknowledged} can be read");
    }

    std::fs::remove_file(&ballast)?;
    let since = Instant::now();
    while let Err(error) = fixture::start(&client, "tea").await {
        if since.elapsed() > Duration::from_secs(60) {
            bail!("it does not recover: {error}; {}", server.log());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut query = InstanceQuery { limit: Some(1_000), ..InstanceQuery::default() };
    let mut found = 0;
    loop {
        let page = client.instances(&query).await?;
        found += page.instances.len();
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    // The refused one may have been stored nevertheless: the refusal did not say that it was not.
    ensure!(found > acknowledged, "{found} of {acknowledged} and one more are there");
    server.kill()?;
    drop(disk);
    Ok(())
}
