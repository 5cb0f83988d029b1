//! SMTP and POP3 against scripted servers, with and without TLS.

use std::sync::Arc;

use legwork_mail::Tls;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::pop3;
use super::sender::send_over;
use super::smtp::{NotSent, Server};
use super::wire::{Place, trust};

/// The server's first line, then its answers to each line; `*` goes on with the encrypted part, `.` takes
/// lines up to a dot.
type Script = &'static [(&'static str, &'static str)];

struct Certificates {
    authority: tempfile::NamedTempFile,
    acceptor: TlsAcceptor,
}

fn certificates() -> Certificates {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let authority = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authority.path(), made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    Certificates { authority, acceptor: TlsAcceptor::from(Arc::new(config)) }
}

/// Follows a script; returns the received lines, and whether the script was completed.
async fn follow<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    script: Script,
    heard: &mut Vec<String>,
) -> Option<S> {
    let mut stream = BufReader::new(stream);
    for (expected, says) in script {
        if *expected == "." {
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                heard.push(line.trim_end().to_owned());
                if line == ".\r\n" {
                    break;
                }
            }
        } else if !expected.is_empty() {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            heard.push(line.trim_end().to_owned());
            assert!(line.starts_with(expected), "{line:?}, not {expected}");
        }
        stream.write_all(says.trim_start_matches('*').as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        if says.starts_with('*') {
            return Some(stream.into_inner());
        }
    }
    None
}

/// A server for one connection.
async fn server(
    tls: Tls,
    acceptor: TlsAcceptor,
    open: Script,
    private: Script,
) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let (stream, _): (TcpStream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        let stream = match tls {
            Tls::Implicit => Some(stream),
            Tls::None | Tls::Starttls => follow(stream, open, &mut heard).await,
        };
        if let Some(stream) = stream {
            // A client that does not trust the certificate hangs up.
            let Ok(stream) = acceptor.accept(stream).await else { return heard };
            follow(stream, private, &mut heard).await;
        }
        heard
    });
    (port, task)
}

fn place(port: u16, tls: Tls, authority: Option<&str>) -> Place {
    let config = trust(tls, authority).unwrap();
    Place { host: "localhost".into(), port, tls, config }
}

const LETTER: &str = "Subject: x\r\n\r\n.dot\r\n";
const TAKES: Script = &[
    ("", "220 hello\r\n"),
    ("EHLO lw.example", "250-hello\r\n250-AUTH LOGIN PLAIN\r\n250 SIZE 1\r\n"),
    ("AUTH PLAIN AGx3AHNlY3JldA==", "235 welcome\r\n"),
    ("MAIL FROM:<a@lw.example>", "250 ok\r\n"),
    ("RCPT TO:<b@x>", "250 ok\r\n"),
    ("DATA", "354 go on\r\n"),
    (".", "250 taken\r\n"),
    ("MAIL FROM:<a@lw.example>", "250 ok\r\n"),
    ("RCPT TO:<c@x>", "550-no such\r\n550 person\r\n"),
    ("RSET", "250 ok\r\n"),
    ("QUIT", "221 bye\r\n"),
];

/// The part before the connection is encrypted: there is no greeting after that, so `TAKES` follows.
const BECOMES_PRIVATE: Script = &[
    ("", "220 hello\r\n"),
    ("EHLO lw.example", "250-hello\r\n250-AUTH LOGIN PLAIN\r\n250 STARTTLS\r\n"),
    ("STARTTLS", "*220 go on\r\n"),
];

/// Sends letters; returns the lines that the server received.
async fn sends(tls: Tls, open: Script, private: Script) -> Vec<String> {
    let certificates = certificates();
    let (port, task) = server(tls, certificates.acceptor.clone(), open, private).await;
    let place = place(port, tls, certificates.authority.path().to_str());
    let server = Server { place, login: Some(("lw".to_owned(), "secret".to_owned())) };
    let mut session = server.open("lw.example").await.unwrap();
    session.send("a@lw.example", "b@x", LETTER).await.unwrap();
    let refused = session.send("a@lw.example", "c@x", LETTER).await;
    assert!(matches!(refused, Err(NotSent::Refused(why)) if why == "550 no such"));
    assert!(session.reset().await);
    session.close().await;
    let heard = task.await.unwrap();
    assert!(heard.contains(&"..dot".to_owned()), "{heard:?}");
    heard
}

#[tokio::test]
async fn a_letter_is_sent_in_the_open() {
    let heard = sends(Tls::None, TAKES, &[]).await;
    assert!(!heard.contains(&"STARTTLS".to_owned()), "{heard:?}");
}

#[tokio::test]
async fn a_letter_is_sent_over_a_private_connection() {
    sends(Tls::Implicit, &[], TAKES).await;
}

#[tokio::test]
async fn a_letter_is_sent_over_a_connection_that_becomes_private_and_no_secret_before_it_does() {
    let heard = sends(Tls::Starttls, BECOMES_PRIVATE, &TAKES[1..]).await;
    assert_eq!(heard[..3], ["EHLO lw.example", "STARTTLS", "EHLO lw.example"]);
    let secret = heard.iter().position(|line| line.starts_with("AUTH"));
    assert_eq!(secret, Some(3), "{heard:?}");
}

#[tokio::test]
async fn a_letter_refused_by_a_server_that_hangs_up_does_not_delay_the_others() {
    const HANGS_UP: Script = &[
        ("", "220 hello\r\n"),
        ("EHLO", "250 hello\r\n"),
        ("MAIL", "250 ok\r\n"),
        ("RCPT TO:<b@x>", "421 too many recipients\r\n"),
    ];
    const REFUSES: Script = &[
        ("", "220 hello\r\n"),
        ("EHLO", "250 hello\r\n"),
        ("MAIL", "250 ok\r\n"),
        ("RCPT TO:<c@x>", "550 no such person\r\n"),
        ("RSET", "250 ok\r\n"),
        ("MAIL", "250 ok\r\n"),
        ("RCPT TO:<d@x>", "250 ok\r\n"),
        ("DATA", "354 go on\r\n"),
        (".", "250 taken\r\n"),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        for script in [HANGS_UP, REFUSES] {
            let (stream, _) = listener.accept().await.unwrap();
            follow(stream, script, &mut Vec::new()).await;
        }
    });
    let server = Server { place: place(port, Tls::None, None), login: None };
    let mut kept = None;
    let mut send = async |to| send_over(&mut kept, &server, "a@lw.example", to, LETTER).await;
    let refused = send("b@x").await;
    assert!(matches!(refused, Err(NotSent::Refused(why)) if why == "421 too many recipients"));
    let refused = send("c@x").await;
    assert!(matches!(refused, Err(NotSent::Refused(why)) if why == "550 no such person"));
    send("d@x").await.unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn a_connection_becomes_private_before_a_password_is_said() {
    const OPEN: Script = &[
        ("", "220 hello\r\n"),
        ("EHLO", "250-hello\r\n250 STARTTLS\r\n"),
        ("STARTTLS", "*220 go on\r\n"),
    ];
    const PRIVATE: Script = &[
        ("EHLO", "250-hello\r\n250 AUTH LOGIN\r\n"),
        ("AUTH LOGIN", "334 VXNlcm5hbWU6\r\n"),
        ("bHc=", "334 UGFzc3dvcmQ6\r\n"),
        ("c2VjcmV0", "235 welcome\r\n"),
        ("QUIT", "221 bye\r\n"),
    ];
    let certificates = certificates();
    let (port, task) = server(Tls::Starttls, certificates.acceptor.clone(), OPEN, PRIVATE).await;
    let place = place(port, Tls::Starttls, certificates.authority.path().to_str());
    let server = Server { place, login: Some(("lw".to_owned(), "secret".to_owned())) };
    server.open("lw.example").await.unwrap().close().await;
    assert_eq!(task.await.unwrap().len(), 7);
}

#[tokio::test]
async fn what_is_slipped_in_before_the_connection_is_private_is_not_listened_to() {
    const OPEN: Script = &[
        ("", "220 hello\r\n"),
        ("EHLO", "250 hello\r\n"),
        ("STARTTLS", "*220 go on\r\n250 slipped in\r\n"),
    ];
    let certificates = certificates();
    let (port, task) = server(Tls::Starttls, certificates.acceptor.clone(), OPEN, &[]).await;
    let place = place(port, Tls::Starttls, certificates.authority.path().to_str());
    let opened = Server { place, login: None }.open("x").await;
    assert!(matches!(opened, Err(NotSent::Unreachable(why)) if why.contains("private")));
    drop(task.await);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_nothing() {
    let (certificates, others) = (certificates(), certificates_of_others());
    let (port, task) = server(Tls::Implicit, certificates.acceptor.clone(), &[], TAKES).await;
    let place = place(port, Tls::Implicit, others.path().to_str());
    let opened = Server { place, login: None }.open("x").await;
    assert!(matches!(opened, Err(NotSent::Unreachable(_))));
    assert_eq!(task.await.unwrap(), Vec::<String>::new());
}

fn certificates_of_others() -> tempfile::NamedTempFile {
    certificates().authority
}

#[tokio::test]
async fn an_inbox_is_read_to_its_end_and_what_is_done_with_is_deleted() {
    const INBOX: Script = &[
        ("", "+OK hello\r\n"),
        ("USER lw", "+OK\r\n"),
        ("PASS s e", "+OK\r\n"),
        ("STAT", "+OK 4 300\r\n"),
        ("RETR 1", "+OK\r\nFrom: x\r\n\r\n..\r\ndone\r\n.\r\n"),
        ("DELE 1", "+OK\r\n"),
        ("RETR 2", "-ERR no mail of <ann@example.com>\r\n"),
        ("RETR 3", "+OK\r\nlast\r\n.\r\n"),
        ("DELE 3", "-ERR [SYS/TEMP] locked\r\n"),
        ("RETR 4", "-ERR gone\r\n"),
        ("QUIT", "+OK\r\n"),
    ];
    let (port, task) = server(Tls::None, certificates().acceptor, INBOX, &[]).await;
    let place = place(port, Tls::None, None);
    let inbox = pop3::Box { place, user: "lw".to_owned(), password: "s e".to_owned() };
    let mut session = inbox.open().await.unwrap();
    let mail = session.next().await.unwrap();
    assert_eq!(mail.as_deref(), Some(&b"From: x\r\n\r\n.\r\ndone\r\n"[..]));
    assert!(session.delete().await.unwrap());
    // A mail that the server does not give is left, and the others are read nevertheless.
    assert_eq!(session.next().await.unwrap().as_deref(), Some(&b"last\r\n"[..]));
    assert!(!session.delete().await.unwrap());
    assert_eq!(session.next().await.unwrap(), None);
    assert_eq!(session.close().await.unwrap().as_deref(), Some("-ERR gone"));
    assert_eq!(task.await.unwrap().last().map(String::as_str), Some("QUIT"));
}

#[tokio::test]
async fn an_inbox_that_breaks_off_or_speaks_otherwise_is_told_from_one_that_refuses() {
    let check = async |script: Script| {
        let (port, task) = server(Tls::None, certificates().acceptor, script, &[]).await;
        let place = place(port, Tls::None, None);
        let inbox = pop3::Box { place, user: "lw".to_owned(), password: "s".to_owned() };
        let refused = match inbox.open().await {
            Ok(mut session) => session.next().await.map(drop),
            Err(error) => Err(error),
        };
        task.await.unwrap();
        refused.unwrap_err()
    };
    let wrong = check(&[("", "+OK\r\n"), ("USER", "-ERR lw@example.com? no\r\n")]).await;
    assert!(matches!(wrong, pop3::Error::Refused(why) if why == "-ERR … no"));
    let strange = check(&[("", "220 hello\r\n")]).await;
    assert!(matches!(strange, pop3::Error::Broken(why) if why.to_string().contains("POP3")));
    let gone = check(&[
        ("", "+OK\r\n"),
        ("USER", "+OK\r\n"),
        ("PASS", "+OK\r\n"),
        ("STAT", "+OK 1 9\r\n"),
        ("RETR", "+OK\r\nhalf"),
    ])
    .await;
    assert!(matches!(gone, pop3::Error::Broken(_)));
}
