//! People get mail, whatever is killed meanwhile: real servers, a real mail server.

use anyhow::{Context, Result};
use legwork_e2e::bank::*;
use legwork_e2e::fixture::activity;
use legwork_e2e::wait::until;
use legwork_e2e::{Folder, legwork};
use legwork_model::id::InstanceId;
use legwork_testbed::database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_loses_no_letter_and_no_reply_and_repeats_none_that_was_told() -> Result<()> {
    let mut bank = Bank::new("")?;
    let (server, client) = bank.open().await?;
    let first = start(&client).await?;
    let letter = bank.letter("ann", 1).await?;
    // It is in the mailbox before the sender has the acknowledgement.
    until("it is not sent", async || Ok(counted(&client, "legwork_mail_sent_total").await? == 1))
        .await?;
    // The mail server is down, and both a letter and a reply wait for it.
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
    // Killed right after a reply was carried out, before or after its deletion: it counts once.
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
async fn the_starter_of_a_case_is_told_of_a_lost_promise_also_across_a_kill() -> Result<()> {
    let bank = Bank::new("tell: { assignment: false }\n")?;
    let (server, client) = bank.open().await?;
    client.deploy(HURRY).await?;
    let start = ["start", "hurry", "--set", "secret=opensesame", "--by", "1d", "--as", "eva"];
    let started = server.run(&[&["--json"], &start[..]].concat())?.json()?;
    let id = started["instance"].as_str().context("no instance")?.to_owned();
    let ill = PEOPLE.replace("ann: {", "ann: { absent: [{ from: 2020-01-01 }],");
    client.publish_organisation(&ill).await?;
    // Before the letter is sent.
    server.kill()?;
    let server = bank.folder.server("store", &["--mail", "mail.yaml"]).await?;
    let letter = bank.letter("eva", 1).await?;
    assert_eq!(header(&letter, "Subject:"), "Not promised any more: In a hurry");
    let said = text(&letter)?;
    for part in ["Look at it", "Why:", &id] {
        assert!(said.contains(part), "{said}");
    }
    // It depends on what was received before the server was killed.
    let why =
        ["the planned performer is not available any more", "could not be done in time as planned"];
    assert!(why.iter().any(|why| said.contains(why)), "{said}");
    assert!(said.contains(&format!("legwork deadline show {id}")), "{said}");
    assert!(!said.contains("opensesame") && !said.contains("[legwork:"), "{said}");
    until("it is not sent", async || {
        Ok(counted(&server.client()?, "legwork_mail_sent_total").await? == 1)
    })
    .await?;
    server.kill()?;
    let server = bank.folder.server("store", &["--mail", "mail.yaml"]).await?;
    // Later letters are sent, and this one is not sent again.
    let client = server.client()?;
    client.publish_organisation(PEOPLE).await?;
    server.run(&start)?.succeeded()?;
    client.publish_organisation(&ill).await?;
    let second = bank.letter("eva", 2).await?;
    assert!(!text(&second)?.contains(&id), "{second}");
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
