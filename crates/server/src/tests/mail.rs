//! A server that mails, and what goes wrong with its store and with those it writes to. It pauses for a second
//! or two where it would pause for longer the next time, and so do these tests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use legwork_mail::Settings;
use legwork_model::id::StreamId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::failures::{FINE, FULL_DISK, faulty};
use super::servers::until_some;
use super::support::{Fixture, OFFICE, call};
use crate::config::{Config, StoreChoice};

/// What happens when a mail server has heard a letter to somebody, before it says that it takes it.
type Meanwhile = Arc<dyn Fn(&str) + Send + Sync>;

/// Whom a mail server knows and hangs up on.
const NOBODY: &str = "<nobody@x>";

/// A mail server that takes letters, and names those whom they went to. It hangs up on whoever writes to
/// `NOBODY`.
struct Taker {
    port: u16,
    taken: mpsc::UnboundedReceiver<String>,
}

impl Taker {
    async fn new(meanwhile: Meanwhile) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (takes, taken) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever hangs up, or is hung up on, comes again.
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

    async fn next(&mut self) -> String {
        let taken = tokio::time::timeout(Duration::from_secs(60), self.taken.recv()).await;
        taken.expect("nobody else gets a letter").unwrap()
    }
}

async fn serve(
    stream: TcpStream,
    takes: &mpsc::UnboundedSender<String>,
    meanwhile: &Meanwhile,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 hello\r\n").await?;
    let (mut to, mut line, mut is_letter) = (String::new(), String::new(), false);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let said = match line.split([' ', ':']).next().unwrap_or_default().trim_end() {
            "." => {
                is_letter = false;
                meanwhile(&to);
                takes.send(to.clone()).map_err(std::io::Error::other)?;
                "250 taken"
            }
            _ if is_letter => continue,
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

/// Ann and Ben can sign a letter, and have these addresses.
async fn to_sign(f: &Fixture, ann: &str, ben: &str) {
    f.furnish().await;
    let office = OFFICE.replace("name: Ann", ann).replace("name: Ben", ben);
    f.ok(call("PUT /v1/organisation").body("text/yaml", office)).await;
    f.letter_to_sign().await;
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
    to_sign(&f, "mail: ann@x", "mail: ben@x").await;
    assert_eq!(mail.next().await, "<ann@x>");
    let sent = async || {
        let metrics = f.send(call("GET /metrics")).await;
        let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix("legwork_mail_sent_total "));
        count.unwrap().parse::<u32>().unwrap()
    };
    // It is tried until it can be.
    until_some(async || {
        let refused = store.refused.lock().unwrap();
        (refused.iter().filter(|stream| **stream == StreamId::MAIL).count() >= 2).then_some(())
    })
    .await;
    assert_eq!((mail.taken.len(), sent().await), (0, 0));
    store.mode.store(FINE, Ordering::SeqCst);
    assert_eq!(mail.next().await, "<ben@x>");
    assert!(sent().await > 0);
    f.stop().await;
}

#[tokio::test]
async fn somebody_on_whose_letters_the_mail_server_hangs_up_holds_up_nobody_else() {
    let mut mail = Taker::new(Arc::new(|_| {})).await;
    let f = Fixture::with(mail.config()).await;
    to_sign(&f, "mail: nobody@x", "mail: ben@x").await;
    assert_eq!(mail.next().await, "<ben@x>");
    f.stop().await;
}
