//! People answer by mail, whatever is killed meanwhile: real servers, a real mail server.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::instances::InstanceState;
use legwork_e2e::bank::*;
use legwork_e2e::cluster;
use legwork_e2e::fixture::activity;
use legwork_e2e::wait::until;

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
    // Four eyes: Ann has looked, so only Ben is asked.
    bank.reply("ann", &look, "Done, thanks", 1)?;
    let verdict = bank.letter("ben", 1).await?;
    assert!(text(&verdict)?.contains("  approve\r\n  refuse\r\n"), "{}", text(&verdict)?);
    assert_eq!(bank.mail.mails("ann@example.com")?.len(), 1);
    // Another person's address, and an unknown word, have no effect.
    bank.reply("eva", &verdict, "approve", 2)?;
    let why = text(&bank.letter("ben", 2).await?)?;
    assert!(why.contains("another address"), "{why}");
    assert_eq!(bank.mail.mails("eva@example.com")?.len(), 0);
    bank.reply("ben", &verdict, "perhaps", 3)?;
    let why = text(&bank.letter("ben", 3).await?)?;
    assert!(why.contains("`perhaps`"), "{why}");
    bank.reply("ben", &verdict, "approve", 4)?;
    // A step with data has no words.
    let pay = text(&bank.letter("ann", 2).await?)?;
    assert!(pay.contains("Pay it out") && !pay.contains("[legwork:"), "{pay}");
    bank.reply("ben", &verdict, "refuse", 5)?;
    let late = bank.letter("ben", 4).await?;
    assert!(text(&late)?.contains("answered already"), "{}", text(&late)?);
    until("mails are left in the inbox", async || Ok(bank.mail.mails(INBOX)?.is_empty())).await?;
    assert_eq!(counted(&client, "legwork_mail_answered_total").await?, 2);
    assert_eq!(counted(&client, "legwork_mail_refused_total").await?, 3);
    until("letters are not counted", async || {
        Ok(counted(&client, "legwork_mail_sent_total").await? == 6)
    })
    .await?;
    let log = server.log();
    assert!(!log.contains("example.com") && !log.contains("opensesame"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_read_again_is_the_same_answer() -> Result<()> {
    let bank = Bank::new("")?;
    let (_server, client) = bank.open().await?;
    let id = start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    // Every mail is carried out and not deleted: it comes again and again.
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
    // No author is told that their reply had no effect.
    assert_eq!(counted(&client, "legwork_mail_refused_total").await?, 0);
    assert_eq!(bank.mail.mails("ann@example.com")?.len(), 1);
    assert_eq!(bank.mail.mails("ben@example.com")?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_finds_the_server_that_has_the_item() -> Result<()> {
    let bank = Bank::new("key_file: mail.key\n")?;
    bank.settings("quiet.yaml", false, "key_file: mail.key\n")?;
    bank.key()?;
    cluster::init(&bank.folder, &["north", "south"])?;
    let args = |name, mail| ["--cluster", name, "--mail", mail];
    let north = bank.folder.server("north", &args("cluster/north-1", "mail.yaml")).await?;
    let south = bank.folder.server("south", &args("cluster/south-1", "quiet.yaml")).await?;
    let client = south.client()?;
    // It goes to the first server, which may not be reachable yet.
    until("nothing can be deployed", async || Ok(deploy(&client).await.is_ok())).await?;
    let id = start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    bank.reply("ann", &look, "done", 1)?;
    let verdict = bank.letter("ben", 1).await?;
    bank.reply("ben", &verdict, "refuse", 2)?;
    ends(&client, id).await?;
    // The case ends in the south before the north, which has read the replies, is told.
    let north = north.client()?;
    until("the replies are not counted", async || {
        Ok(counted(&north, "legwork_mail_answered_total").await? == 2)
    })
    .await?;
    until("the letters are not counted", async || {
        Ok(counted(&client, "legwork_mail_sent_total").await? == 2)
    })
    .await?;
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
        // An unknown author, a forged token, and a mail of a program.
        "\r\ndone\r\n".to_owned(),
        format!("\r\ndone\r\n> [legwork:{forged}"),
        format!("Auto-Submitted: auto-replied\r\n\r\ndone\r\n> [legwork:{token}"),
        // This one is answered: HTML without text.
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
async fn a_refused_reply_that_stays_in_the_inbox_is_answered_once() -> Result<()> {
    let bank = Bank::new("")?;
    let (_server, client) = bank.open().await?;
    start(&client).await?;
    let look = bank.letter("ann", 1).await?;
    bank.mail.break_off(true)?;
    bank.reply("ann", &look, "perhaps", 1)?;
    bank.letters("ann", 2).await?;
    // A later mail is carried out in a later session: the first was read again by then.
    bank.reply("ann", &look, "done", 2)?;
    bank.letter("ben", 1).await?;
    bank.mail.break_off(false)?;
    until("mails are left in the inbox", async || Ok(bank.mail.mails(INBOX)?.is_empty())).await?;
    ensure!(bank.mail.mails("ann@example.com")?.len() == 2);
    ensure!(counted(&client, "legwork_mail_refused_total").await? == 1);
    Ok(())
}
