//! People are told by mail and answer by mail, whatever dies meanwhile: real servers, a real mail
//! server.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_e2e::fixture::activity;
use legwork_e2e::wait::until;
use legwork_e2e::{Folder, Server, legwork};
use legwork_model::id::InstanceId;
use legwork_testbed::{MailServer, database, free_port};

const INBOX: &str = "legwork@example.com";

const PEOPLE: &str = "
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

/// A step that a word answers, a decision, and a step that takes data.
const LOAN: &str = "
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

struct Bank {
    folder: Folder,
    mail: MailServer,
}

impl Bank {
    fn new(more: &str) -> Result<Self> {
        let folder = Folder::new()?;
        let mail = MailServer::start(&folder.path().join("mail"))?;
        let bank = Self { folder, mail };
        bank.settings("mail.yaml", true, more)?;
        bank.folder.file("password", "secret\n")?;
        Ok(bank)
    }

    /// The key that servers share.
    fn key(&self) -> Result<()> {
        let key = self.folder.file("mail.key", "ab".repeat(32))?;
        Ok(std::fs::set_permissions(key, PermissionsExt::from_mode(0o600))?)
    }

    /// A server that sends mail, with everything deployed.
    async fn open(&self) -> Result<(Server, Client)> {
        let server = self.folder.server("store", &["--mail", "mail.yaml"]).await?;
        let client = server.client()?;
        deploy(&client).await?;
        Ok((server, client))
    }

    fn settings(&self, name: &str, has_inbox: bool, more: &str) -> Result<String> {
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

    /// Waits until somebody has got so many letters; the last of them. More do not come.
    async fn letter(&self, agent: &str, count: usize) -> Result<String> {
        let mails = self.letters(agent, count).await?;
        ensure!(mails.len() == count, "{agent} has {} letters, not {count}", mails.len());
        mails.last().cloned().context("no letter")
    }

    /// Waits until somebody has got so many letters, or more.
    async fn letters(&self, agent: &str, count: usize) -> Result<Vec<String>> {
        let address = format!("{agent}@example.com");
        until(&format!("{agent} has no {count} letters"), async || {
            Ok(self.mail.mails(&address)?.len() >= count)
        })
        .await?;
        self.mail.mails(&address)
    }

    /// Answers a letter, quoting it.
    fn reply(&self, agent: &str, letter: &str, word: &str, number: u32) -> Result<()> {
        let quoted: String = text(letter)?.lines().map(|line| format!("> {line}\r\n")).collect();
        let from = format!("{agent}@example.com");
        let mail = format!(
            "From: <{from}>\r\nTo: <{INBOX}>\r\nMessage-ID: <{number}@{agent}>\r\nSubject: Re\r\n\
             \r\n{word}\r\n\r\nOn Monday Legwork wrote:\r\n{quoted}"
        );
        self.mail.send(&from, INBOX, &mail)
    }
}

fn header<'l>(letter: &'l str, name: &str) -> &'l str {
    let line = letter.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim()
}

/// What a letter says.
fn text(letter: &str) -> Result<String> {
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

async fn start(client: &Client) -> Result<InstanceId> {
    let data = [("secret".to_owned(), "opensesame".into())].into();
    let request = StartRequest { process: "loan".into(), data, ..StartRequest::default() };
    Ok(client.start(&request, None).await?.instance)
}

async fn deploy(client: &Client) -> Result<()> {
    client.publish_organisation(PEOPLE).await?;
    client.deploy(LOAN).await?;
    Ok(())
}

async fn ends(client: &Client, id: InstanceId) -> Result<()> {
    until("the case has not ended", async || {
        // The server may be on its way.
        let shown = client.instance(id, Duration::ZERO).await;
        Ok(shown.is_ok_and(|shown| shown.summary.state == InstanceState::Completed))
    })
    .await
}

async fn counted(client: &Client, name: &str) -> Result<u64> {
    let metrics = client.metrics().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    Ok(line.context("it is not counted")?.trim().parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_case_is_carried_on_by_replies_and_the_second_one_is_too_late() -> Result<()> {
    let bank = Bank::new("")?;
    let (server, client) = bank.open().await?;
    let id = start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    let said = text(&look)?;
    assert!(said.contains("Grant a loan") && said.contains("Look at it"), "{said}");
    assert!(said.contains(&format!("https://lw.example/{id}:look")), "{said}");
    assert!(!look.contains("opensesame") && !said.contains("opensesame"), "{said}");
    assert_eq!(header(&look, "Subject:"), "Grant a loan: Look at it");
    // Four eyes: Ann has looked, so Ben alone is asked.
    bank.reply("ann", &look, "Done, thanks", 1)?;
    let verdict = bank.letter("ben", 1).await?;
    assert!(text(&verdict)?.contains("  approve\r\n  refuse\r\n"), "{}", text(&verdict)?);
    assert_eq!(bank.mail.mails("ann@example.com")?.len(), 1);
    // Somebody else's address, and a word that nobody knows, change nothing.
    bank.reply("eva", &verdict, "approve", 2)?;
    let why = text(&bank.letter("ben", 2).await?)?;
    assert!(why.contains("another address"), "{why}");
    assert_eq!(bank.mail.mails("eva@example.com")?.len(), 0);
    bank.reply("ben", &verdict, "perhaps", 3)?;
    let why = text(&bank.letter("ben", 3).await?)?;
    assert!(why.contains("`perhaps`"), "{why}");
    bank.reply("ben", &verdict, "approve", 4)?;
    // What takes data has no words.
    let pay = text(&bank.letter("ann", 2).await?)?;
    assert!(pay.contains("Pay it out") && !pay.contains("[legwork:"), "{pay}");
    bank.reply("ben", &verdict, "refuse", 5)?;
    let late = bank.letter("ben", 4).await?;
    assert!(text(&late)?.contains("answered already"), "{}", text(&late)?);
    until("mails are left in the inbox", async || Ok(bank.mail.mails(INBOX)?.is_empty())).await?;
    assert_eq!(counted(&client, "legwork_mail_answered_total").await?, 2);
    assert_eq!(counted(&client, "legwork_mail_refused_total").await?, 3);
    assert_eq!(counted(&client, "legwork_mail_sent_total").await?, 6);
    let log = server.log();
    assert!(!log.contains("example.com") && !log.contains("opensesame"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_loses_no_letter_and_no_reply_and_repeats_none_that_was_told() -> Result<()> {
    let mut bank = Bank::new("")?;
    let (server, client) = bank.open().await?;
    let first = start(&client).await?;
    let letter = bank.letter("ann", 1).await?;
    // It is in the box before whoever sent it hears so.
    until("it is not sent", async || Ok(counted(&client, "legwork_mail_sent_total").await? == 1))
        .await?;
    // The mail server is away, and both a letter and a reply wait for it.
    bank.mail.kill()?;
    let second = start(&client).await?;
    until("nobody has tried to send", async || {
        Ok(counted(&client, "legwork_mail_failed_total").await? > 0)
    })
    .await?;
    // Nothing else waits.
    start(&client).await?;
    server.kill()?;
    bank.mail.run()?;
    bank.reply("ann", &letter, "done", 1)?;
    let server = bank.folder.server("store", &["--mail", "mail.yaml"]).await?;
    let verdict = bank.letter("ben", 1).await?;
    bank.letter("ann", 3).await?;
    let letters = bank.mail.mails("ann@example.com")?;
    let about = |id: InstanceId| {
        letters
            .iter()
            .filter(|one| text(one).is_ok_and(|said| said.contains(&id.to_string())))
            .count()
    };
    assert_eq!((about(first), about(second)), (1, 1));
    // Killed right after a reply was carried out, before it was deleted or after: it counts once.
    bank.reply("ben", &verdict, "refuse", 2)?;
    ends(&server.client()?, first).await?;
    server.kill()?;
    let server = bank.folder.server("store", &["--mail", "mail.yaml"]).await?;
    until("mails are left in the inbox", async || Ok(bank.mail.mails(INBOX)?.is_empty())).await?;
    assert_eq!(bank.mail.mails("ben@example.com")?.len(), 1);
    ends(&server.client()?, first).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_read_again_is_the_same_answer() -> Result<()> {
    let bank = Bank::new("")?;
    let (_server, client) = bank.open().await?;
    let id = start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    // Whatever is read is carried out, and not deleted: it comes again and again.
    bank.mail.break_off(true)?;
    bank.reply("ann", &look, "done", 1)?;
    let verdict = bank.letter("ben", 1).await?;
    bank.reply("ben", &verdict, "refuse", 2)?;
    ends(&client, id).await?;
    until("nothing is read again", async || {
        Ok(counted(&client, "legwork_mail_answered_total").await? >= 3)
    })
    .await?;
    bank.mail.break_off(false)?;
    until("mails are left in the inbox", async || Ok(bank.mail.mails(INBOX)?.is_empty())).await?;
    // Nobody is told that their answer has changed nothing.
    assert_eq!(counted(&client, "legwork_mail_refused_total").await?, 0);
    assert_eq!(bank.mail.mails("ann@example.com")?.len(), 1);
    assert_eq!(bank.mail.mails("ben@example.com")?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_and_escalations_come_and_a_suspended_case_takes_no_answer() -> Result<()> {
    let more = "tell: { reminder: { after: 1s }, escalation: { after: 3s } }\n";
    let bank = Bank::new(more)?;
    let (_server, client) = bank.open().await?;
    let id = start(&client).await?;
    let letter = bank.letter("ann", 2).await?;
    assert!(header(&letter, "Subject:").starts_with("Reminder:"), "{letter}");
    let escalation = bank.letter("eva", 1).await?;
    assert!(header(&escalation, "Subject:").starts_with("Not done yet:"), "{escalation}");
    assert!(!text(&escalation)?.contains("[legwork:"));
    client.suspend(id, None).await?;
    bank.reply("ann", &letter, "done", 1)?;
    let why = text(&bank.letter("ann", 3).await?)?;
    assert!(why.contains("suspended"), "{why}");
    client.resume(id, None).await?;
    bank.reply("ann", &letter, "done", 2)?;
    // His reminder follows soon.
    let letters = bank.letters("ben", 1).await?;
    assert_eq!(header(&letters[0], "Subject:"), "Grant a loan: Grant it?");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_finds_the_server_that_has_the_item() -> Result<()> {
    let bank = Bank::new("key_file: mail.key\n")?;
    bank.settings("quiet.yaml", false, "key_file: mail.key\n")?;
    bank.key()?;
    let mut topology = "topology: group\ndomains:\n".to_owned();
    for name in ["north", "south"] {
        let port = free_port()?.local_addr()?.port();
        topology.push_str(&format!(
            "  {name}:\n    servers:\n      {name}-1: {{ address: \"127.0.0.1:{port}\", api: \
             \"http://{name}.example:7700\" }}\n"
        ));
    }
    let path = bank.folder.path();
    bank.folder.file("topology.yaml", topology)?;
    legwork(path, &["cluster", "init", "topology.yaml", "--out", "c"])?.succeeded()?;
    let args = |name, mail| ["--cluster", name, "--mail", mail];
    let north = bank.folder.server("north", &args("c/north-1", "mail.yaml")).await?;
    let south = bank.folder.server("south", &args("c/south-1", "quiet.yaml")).await?;
    let client = south.client()?;
    // It goes to the first server, which may not be reached yet.
    until("nothing can be deployed", async || Ok(deploy(&client).await.is_ok())).await?;
    let id = start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    bank.reply("ann", &look, "done", 1)?;
    let verdict = bank.letter("ben", 1).await?;
    bank.reply("ben", &verdict, "refuse", 2)?;
    ends(&client, id).await?;
    assert_eq!(counted(&north.client()?, "legwork_mail_answered_total").await?, 2);
    assert_eq!(counted(&client, "legwork_mail_sent_total").await?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_is_in_the_database_and_the_key_is_not() -> Result<()> {
    let (bank, database) = (Bank::new("key_file: mail.key\n")?, database()?);
    let args = ["--store", database.url(), "--mail", "mail.yaml"];
    bank.key()?;
    let server = bank.folder.server("one", &args).await?;
    let client = server.client()?;
    deploy(&client).await?;
    let id = start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    until("it is not told", async || Ok(counted(&client, "legwork_mail_sent_total").await? == 1))
        .await?;
    start(&client).await?;
    bank.letter("ann", 2).await?;
    server.kill()?;
    let server = bank.folder.server("two", &args).await?;
    bank.reply("ann", &look, "done", 1)?;
    let verdict = bank.letter("ben", 1).await?;
    bank.reply("ben", &verdict, "refuse", 2)?;
    ends(&server.client()?, id).await?;
    // The second may have been on its way when the server was killed; the first was not.
    let again = bank.mail.mails("ann@example.com")?;
    let first = header(&look, "Message-ID:");
    assert_eq!(again.iter().filter(|one| header(one, "Message-ID:") == first).count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_of_no_use_but_by_mail() -> Result<()> {
    let bank = Bank::new("")?;
    let (server, client) = bank.open().await?;
    let id = start(&client).await?;
    let said = text(&bank.letter("ann", 1).await?)?;
    let token = said.split_once("[legwork:").and_then(|(_, rest)| rest.split_once(']'));
    let (token, _) = token.context("no token")?;
    let address = server.url().strip_prefix("http://").context("no address")?;
    let mut stream = std::net::TcpStream::connect(address)?;
    write!(
        stream,
        "POST /v1/work/{}/complete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
         Authorization: Mail {token}\r\nConnection: close\r\n\r\n",
        activity(id, "look")
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("unauthenticated"), "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_answer_changes_nothing() -> Result<()> {
    let bank = Bank::new("answer_within: 1m\n")?;
    let (_server, client) = bank.open().await?;
    let id = start(&client).await?;
    let said = text(&bank.letter("ann", 1).await?)?;
    let (_, token) = said.split_once("[legwork:").context("no token")?;
    let forged = match token.starts_with('A') {
        true => token.replacen('A', "B", 1),
        false => format!("A{}", &token[1..]),
    };
    let from = "ann@example.com";
    for mail in [
        // Nobody's letter, a forged token, and what a program wrote.
        "\r\ndone\r\n".to_owned(),
        format!("\r\ndone\r\n> [legwork:{forged}"),
        format!("Auto-Submitted: auto-replied\r\n\r\ndone\r\n> [legwork:{token}"),
        // This one is answered: a page and no text.
        format!("Content-Type: text/html\r\n\r\n<p>done</p>[legwork:{token}"),
    ] {
        bank.mail.send(from, INBOX, &format!("From: {from}\r\nTo: {INBOX}\r\n{mail}"))?;
    }
    let why = text(&bank.letter("ann", 2).await?)?;
    assert!(why.contains("plain text"), "{why}");
    until("mails are left in the inbox", async || Ok(bank.mail.mails(INBOX)?.is_empty())).await?;
    assert_eq!(counted(&client, "legwork_mail_ignored_total").await?, 3);
    assert_eq!(counted(&client, "legwork_mail_answered_total").await?, 0);
    let shown = client.instance(id, Duration::ZERO).await?;
    assert_eq!(shown.summary.state, InstanceState::Running);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_box_holds_up_nobody_else() -> Result<()> {
    let bank = Bank::new("")?;
    let (_server, client) = bank.open().await?;
    bank.mail.fill("ann@example.com", true)?;
    let first = start(&client).await?;
    until("nobody has tried to send", async || {
        Ok(counted(&client, "legwork_mail_failed_total").await? > 0)
    })
    .await?;
    let done =
        legwork_api::work::CompleteRequest { agent: Some("ann".into()), ..Default::default() };
    client.complete(&activity(first, "look"), &done, None).await?;
    bank.letter("ben", 1).await?;
    Ok(())
}

#[test]
fn what_is_wrong_with_the_settings_is_told_and_the_server_does_not_start() -> Result<()> {
    let folder = Folder::new()?;
    folder.file("mail.yaml", "from: me\nsmtp: { host: x, tsl: none }\n")?;
    let up = |name| ["up", "--data", "store", "--listen", "127.0.0.1:0", "--mail", name];
    let refused = legwork(folder.path(), &up("mail.yaml"))?;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stdout.contains("mail.yaml:2:18: error Y2"), "{}", refused.stdout);
    assert!(!folder.path().join("store").exists());
    folder.file(
        "nobody.yaml",
        "from: a@b\nsmtp: { host: localhost, tls: none, user: u, password_file: nowhere }\n",
    )?;
    let refused = legwork(folder.path(), &up("nobody.yaml"))?.refused()?;
    assert!(refused.contains("nowhere"), "{refused}");
    Ok(())
}
