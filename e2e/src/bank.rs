//! A bank whose people get mail and answer by mail.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_model::id::InstanceId;
use legwork_testbed::MailServer;

use crate::wait::until;
use crate::{Folder, Server};

pub const INBOX: &str = "legwork@example.com";

pub const PEOPLE: &str = "
organisation: bank
units:
  desk: { manager: eva }
positions:
  teller: { unit: desk, roles: [clerk] }
agents:
  ann: { mail: ann@example.com, positions: [teller] }
  ben: { mail: ben@example.com, positions: [teller] }
  eva: { mail: eva@example.com }
";

/// A step with a one-word answer, a decision, and a step with data.
pub const LOAN: &str = "
process: loan
title: Grant a loan
data: { secret: string, note: string }
start: [secret]
steps:
  - { step: look, title: Look at it, who: Agent(ann), reads: [secret] }
  - choice: verdict
    title: Grant it?
    who: Role(clerk) EXCEPT NodePerformingAgent(look)
    reads: [secret]
    branches:
      - name: approve
        steps:
          - { step: pay, title: Pay it out, who: Agent(ann), writes: [note] }
      - name: refuse
";

/// A case that can be promised.
pub const HURRY: &str = "
process: hurry
title: In a hurry
data: { secret: string }
start: [secret]
steps:
  - { step: look, title: Look at it, who: Agent(ann), reads: [secret], takes: 1h }
";

pub struct Bank {
    pub folder: Folder,
    pub mail: MailServer,
}

impl Bank {
    pub fn new(more: &str) -> Result<Self> {
        let folder = Folder::new()?;
        let mail = MailServer::start(&folder.path().join("mail"))?;
        let bank = Self { folder, mail };
        bank.settings("mail.yaml", true, more)?;
        bank.folder.file("password", "secret\n")?;
        Ok(bank)
    }

    /// The key that servers share.
    pub fn key(&self) -> Result<()> {
        let key = self.folder.file("mail.key", "ab".repeat(32))?;
        Ok(std::fs::set_permissions(key, PermissionsExt::from_mode(0o600))?)
    }

    /// A server that sends mail, with everything deployed.
    pub async fn open(&self) -> Result<(Server, Client)> {
        let server = self.folder.server("store", &["--mail", "mail.yaml"]).await?;
        let client = server.client()?;
        deploy(&client).await?;
        Ok((server, client))
    }

    pub fn settings(&self, name: &str, has_inbox: bool, more: &str) -> Result<String> {
        let MailServer { smtp_port, pop3_port, .. } = &self.mail;
        let inbox = format!(
            "inbox: {{ host: 127.0.0.1, port: {pop3_port}, tls: none, user: {INBOX}, \
             password_file: password, every: 1s }}\n"
        );
        let text = format!(
            "from: {INBOX}\nsmtp: {{ host: 127.0.0.1, port: {smtp_port}, tls: none, user: lw, \
             password_file: password }}\nlink: https://lw.example/{{activity}}\n{}{more}",
            if has_inbox { &inbox } else { "" }
        );
        self.folder.file(name, text)
    }

    /// Waits until an agent has got exactly so many letters; returns the last one.
    pub async fn letter(&self, agent: &str, count: usize) -> Result<String> {
        let mails = self.letters(agent, count).await?;
        ensure!(mails.len() == count, "{agent} has {} letters, not {count}", mails.len());
        mails.last().cloned().context("no letter")
    }

    /// Waits until an agent has got so many letters, or more.
    pub async fn letters(&self, agent: &str, count: usize) -> Result<Vec<String>> {
        let address = format!("{agent}@example.com");
        until(&format!("{agent} has no {count} letters"), async || {
            Ok(self.mail.mails(&address)?.len() >= count)
        })
        .await?;
        self.mail.mails(&address)
    }

    /// Answers a letter, quoting it.
    pub fn reply(&self, agent: &str, letter: &str, word: &str, number: u32) -> Result<()> {
        let quoted: String = text(letter)?.lines().map(|line| format!("> {line}\r\n")).collect();
        let from = format!("{agent}@example.com");
        let mail = format!(
            "From: <{from}>\r\nTo: <{INBOX}>\r\nMessage-ID: <{number}@{agent}>\r\nSubject: Re\r\n\
             \r\n{word}\r\n\r\nOn Monday Legwork wrote:\r\n{quoted}"
        );
        self.mail.send(&from, INBOX, &mail)
    }
}

pub fn header<'l>(letter: &'l str, name: &str) -> &'l str {
    let line = letter.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim()
}

/// The text of a letter.
pub fn text(letter: &str) -> Result<String> {
    let (_, body) = letter.split_once("\r\n\r\n").context("a letter without a text")?;
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in body.bytes().filter_map(|byte| digits.iter().position(|digit| *digit == byte)) {
        (bits, count) = (bits << 6 | u32::try_from(digit)?, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF)?);
        }
    }
    Ok(String::from_utf8(bytes)?)
}

pub async fn start(client: &Client) -> Result<InstanceId> {
    let data = [("secret".to_owned(), "opensesame".into())].into();
    let request = StartRequest { process: "loan".into(), data, ..StartRequest::default() };
    Ok(client.start(&request, None).await?.instance)
}

pub async fn deploy(client: &Client) -> Result<()> {
    client.publish_organisation(PEOPLE).await?;
    client.deploy(LOAN).await?;
    Ok(())
}

pub async fn ends(client: &Client, id: InstanceId) -> Result<()> {
    until("the case has not ended", async || {
        // The server may still be starting.
        let shown = client.instance(id, Duration::ZERO).await;
        Ok(shown.is_ok_and(|shown| shown.summary.state == InstanceState::Completed))
    })
    .await
}

pub async fn counted(client: &Client, name: &str) -> Result<u64> {
    let metrics = client.metrics().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    Ok(line.context("it is not counted")?.trim().parse()?)
}
