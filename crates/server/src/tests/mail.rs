//! A server that mails, with a failing store and failing mail servers. These tests wait for a second or
//! two, like the sender's first back-off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use legwork_mail::Settings;
use legwork_model::id::StreamId;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::failures::{FINE, FULL_DISK, faulty};
use super::servers::until_some;
use super::support::{Fixture, OFFICE, call};
use crate::config::{Config, StoreChoice};
use crate::mail::{Fate, Inbox};

/// Called when a mail server has received a letter, before it accepts it.
type Meanwhile = Arc<dyn Fn(&str) + Send + Sync>;

/// A recipient at which the mail server hangs up.
const NOBODY: &str = "<nobody@x>";

/// A mail server that accepts letters and reports them. It hangs up on letters to `NOBODY`.
struct Taker {
    port: u16,
    taken: mpsc::UnboundedReceiver<Taken>,
}

struct Taken {
    to: String,
    /// Its headers and text.
    letter: String,
}

impl Taker {
    async fn new(meanwhile: Meanwhile) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (takes, taken) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that hangs up, or is hung up on, comes again.
                drop(serve(stream, &takes, &meanwhile).await);
            }
        });
        Self { port, taken }
    }

    fn config(&self) -> Config {
        let port = self.port;
        let source = format!(
            "from: lw@office.example\nsmtp: {{ host: localhost, port: {port}, tls: none }}\n"
        );
        let (settings, findings) = Settings::parse(&source);
        assert_eq!(findings, []);
        Config { mail: settings, ..Config::new(StoreChoice::Memory) }
    }

    async fn next(&mut self) -> Taken {
        let taken = tokio::time::timeout(Duration::from_secs(60), self.taken.recv()).await;
        taken.expect("nobody else gets a letter").unwrap()
    }

    /// The next letter, which must be to this person.
    async fn next_to(&mut self, to: &str) -> String {
        let taken = self.next().await;
        assert_eq!(taken.to, to);
        taken.letter
    }
}

async fn serve(
    stream: TcpStream,
    takes: &mpsc::UnboundedSender<Taken>,
    meanwhile: &Meanwhile,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 hello\r\n").await?;
    let (mut to, mut letter, mut line) = (String::new(), String::new(), String::new());
    let mut is_letter = false;
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let said = match line.split([' ', ':']).next().unwrap_or_default().trim_end() {
            "." => {
                is_letter = false;
                meanwhile(&to);
                let letter = decoded(&std::mem::take(&mut letter));
                let sent = takes.send(Taken { to: to.clone(), letter });
                sent.map_err(std::io::Error::other)?;
                "250 taken"
            }
            _ if is_letter => {
                letter.push_str(&line);
                continue;
            }
            "RCPT" => {
                to = line.trim_end().trim_start_matches("RCPT TO:").to_owned();
                if to == NOBODY {
                    return Ok(());
                }
                "250 ok"
            }
            "DATA" => {
                is_letter = true;
                "354 go on"
            }
            _ => "250 ok",
        };
        stream.write_all(format!("{said}\r\n").as_bytes()).await?;
    }
}

/// The text of a letter is written in base64.
fn decoded(letter: &str) -> String {
    let (head, body) = letter.split_once("\r\n\r\n").unwrap();
    let text = BASE64.decode(body.replace("\r\n", "")).unwrap();
    format!("{head}\r\n\r\n{}", String::from_utf8(text).unwrap())
}

/// A step that a word answers.
const NOD: &str = "process: nod\nsteps: [{ step: look, title: Look at it, who: Role(clerk) }]\n";

async fn publish(f: &Fixture, ann: &str, ben: &str) {
    let office = OFFICE.replace("name: Ann", ann).replace("name: Ben", ben);
    f.ok(call("PUT /v1/organisation").body("text/yaml", office)).await;
}

/// Ann and Ben have work, and these addresses.
async fn to_do(f: &Fixture, ann: &str, ben: &str) {
    publish(f, ann, ben).await;
    f.ok(call("POST /v1/definitions").body("text/yaml", NOD)).await;
    f.ok(call("POST /v1/instances").json(json!({"process": "nod"}))).await;
}

/// The number of items on an agent's list.
async fn items(f: &Fixture, agent: &str) -> usize {
    let list = f.ok(call(&format!("GET /v1/worklist?agent={agent}"))).await;
    list["items"].as_array().unwrap().len()
}

/// An inbox for given mails.
fn inbox(f: &Fixture) -> Inbox {
    let app = f.core.app.clone();
    Inbox::new(app.clone(), app.post.clone().unwrap(), app.meters.mail())
}

/// A reply to a letter, which it quotes.
fn reply(from: &str, number: u32, letter: &str) -> String {
    let (_, text) = letter.split_once("\r\n\r\n").unwrap();
    let quoted: String = text.lines().map(|line| format!("> {line}\r\n")).collect();
    format!("From: <{from}>\r\nMessage-ID: <{number}@x>\r\n\r\ndone\r\n\r\n{quoted}")
}

#[tokio::test]
async fn a_letter_leaves_once_however_long_it_cannot_be_stored_that_it_has() {
    let (store, opener) = faulty();
    let full = store.clone();
    let mut mail = Taker::new(Arc::new(move |to| {
        let mode = if to == "<ann@x>" { FULL_DISK } else { FINE };
        full.mode.store(mode, Ordering::SeqCst);
    }))
    .await;
    let f = Fixture::on(mail.config(), opener).await;
    to_do(&f, "mail: ann@x", "mail: ben@x").await;
    mail.next_to("<ann@x>").await;
    let sent = async || {
        let metrics = f.send(call("GET /metrics")).await;
        let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix("legwork_mail_sent_total "));
        count.unwrap().parse::<u32>().unwrap()
    };
    // It is retried until it succeeds.
    until_some(async || {
        let refused = store.refused.lock().unwrap();
        (refused.iter().filter(|stream| **stream == StreamId::MAIL).count() >= 2).then_some(())
    })
    .await;
    assert_eq!((mail.taken.len(), sent().await), (0, 0));
    store.mode.store(FINE, Ordering::SeqCst);
    mail.next_to("<ben@x>").await;
    assert!(sent().await > 0);
    f.stop().await;
}

#[tokio::test]
async fn letters_that_break_the_connection_do_not_delay_others() {
    let mut mail = Taker::new(Arc::new(|_| {})).await;
    let f = Fixture::with(mail.config()).await;
    to_do(&f, "mail: nobody@x", "mail: ben@x").await;
    mail.next_to("<ben@x>").await;
    f.stop().await;
}

#[tokio::test]
async fn a_reply_without_the_letter_is_answered_once() {
    let mut mail = Taker::new(Arc::new(|_| {})).await;
    let f = Fixture::with(mail.config()).await;
    to_do(&f, "mail: Ann@x", "name: Ben").await;
    let letter = mail.next_to("<Ann@x>").await;
    let id = letter.lines().find_map(|line| line.strip_prefix("Message-ID: ")).unwrap();
    let mut inbox = inbox(&f);
    let unquoted = |from: &str, id: &str| {
        format!("From: {from}\r\nMessage-ID: <1@x>\r\nReferences: <7@x> {id}\r\n\r\ndone\r\n")
    };
    // An unknown author, and a letter of another program.
    for other in [unquoted("eve@x", id), unquoted("ann@x", "<8@office.example>")] {
        assert_eq!(inbox.handle(other.as_bytes()).await, Fate::Delete);
    }
    for _ in 0..2 {
        let mail = unquoted("Ann <ann@X>", id);
        assert_eq!(inbox.handle(mail.as_bytes()).await, Fate::Delete);
    }
    let said = mail.next_to("<Ann@x>").await;
    assert!(said.contains("leave it in your"), "{said}");
    assert_eq!((mail.taken.len(), items(&f, "ann").await), (0, 1));
    f.stop().await;
}

#[tokio::test]
async fn forged_replies_do_not_flood_an_agent_with_letters() {
    let mut mail = Taker::new(Arc::new(|_| {})).await;
    let f = Fixture::with(mail.config()).await;
    to_do(&f, "mail: ann@x", "name: Ben").await;
    let letter = mail.next_to("<ann@x>").await;
    let mut inbox = inbox(&f);
    for number in 0..30 {
        let forged = reply("eve@x", number, &letter);
        assert_eq!(inbox.handle(forged.as_bytes()).await, Fate::Delete);
    }
    assert_eq!(mail.taken.len(), 10);
    let said = mail.next_to("<ann@x>").await;
    assert!(said.contains("another address"), "{said}");
    // Her own reply counts nevertheless.
    assert_eq!(inbox.handle(reply("ann@x", 30, &letter).as_bytes()).await, Fate::Delete);
    assert_eq!(items(&f, "ann").await, 0);
    f.stop().await;
}

#[tokio::test]
async fn a_letter_to_a_former_address_cannot_be_answered() {
    let mut mail = Taker::new(Arc::new(|_| {})).await;
    let f = Fixture::with(mail.config()).await;
    to_do(&f, "mail: ann@x", "name: Ben").await;
    let letter = mail.next_to("<ann@x>").await;
    let mut inbox = inbox(&f);
    publish(&f, "mail: ann@y", "name: Ben").await;
    for (number, from) in [(1, "ann@x"), (2, "ann@y")] {
        assert_eq!(inbox.handle(reply(from, number, &letter).as_bytes()).await, Fate::Delete);
    }
    assert_eq!((mail.taken.len(), items(&f, "ann").await), (0, 1));
    // Spelled in another case it is the same address.
    publish(&f, "mail: Ann@X", "name: Ben").await;
    assert_eq!(inbox.handle(reply("ann@x", 3, &letter).as_bytes()).await, Fate::Delete);
    assert_eq!(items(&f, "ann").await, 0);
    f.stop().await;
}
