//! A line-based connection to a mail server, with or without TLS.
//!
//! Invariant: every wait is bounded, no line is kept beyond its limit, and an encrypted connection
//! begins with empty buffers: injected plain-text lines are not taken for answers of the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use legwork_mail::Tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The default time limit of a mail server.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 4 << 10;

trait Socket: AsyncRead + AsyncWrite + Send + Sync {}
impl<T: AsyncRead + AsyncWrite + Send + Sync> Socket for T {}

/// The address of a mail server, and its transport security.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    pub(super) tls: Tls,
    pub(super) config: Option<Arc<ClientConfig>>,
}

pub(super) struct Wire {
    stream: BufReader<Pin<Box<dyn Socket>>>,
}

impl Place {
    pub(super) async fn connect(&self) -> io::Result<Wire> {
        let connecting = TcpStream::connect((&*self.host, self.port));
        let stream: Pin<Box<dyn Socket>> = Box::pin(within(PATIENCE, connecting).await?);
        let wire = Wire { stream: BufReader::new(stream) };
        match self.tls {
            Tls::Implicit => self.make_private(wire).await,
            Tls::None | Tls::Starttls => Ok(wire),
        }
    }

    pub(super) async fn make_private(&self, wire: Wire) -> io::Result<Wire> {
        if !wire.stream.buffer().is_empty() {
            return Err(io::Error::other("something was said before the connection was private"));
        }
        let config = self.config.clone().ok_or_else(|| io::Error::other("no TLS was set up"))?;
        let name = ServerName::try_from(self.host.to_string()).map_err(io::Error::other)?;
        let stream = wire.stream.into_inner();
        let handshake = TlsConnector::from(config).connect(name, stream);
        let private = within(PATIENCE, handshake).await?;
        Ok(Wire { stream: BufReader::new(Box::pin(private)) })
    }
}

impl Wire {
    #[cfg(test)]
    pub(super) fn over(stream: tokio::io::DuplexStream) -> Self {
        let stream: Pin<Box<dyn Socket>> = Box::pin(stream);
        Self { stream: BufReader::new(stream) }
    }

    /// The next line without its end; the rest of a long one is dropped.
    pub(super) async fn line(&mut self) -> io::Result<String> {
        self.line_within(PATIENCE).await
    }

    /// The same, with a longer time limit.
    pub(super) async fn line_within(&mut self, patience: Duration) -> io::Result<String> {
        let line = self.bytes_within(patience, LINE_BYTES_MAX).await?;
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        Ok(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
    }

    /// The next line with its end; at most so many bytes.
    pub(super) async fn bytes(&mut self, most: usize) -> io::Result<Vec<u8>> {
        self.bytes_within(PATIENCE, most).await
    }

    async fn bytes_within(&mut self, patience: Duration, most: usize) -> io::Result<Vec<u8>> {
        let stream = &mut self.stream;
        within(patience, async move {
            let mut line = Vec::new();
            loop {
                let read = stream.fill_buf().await?;
                if read.is_empty() {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                let end = read.iter().position(|byte| *byte == b'\n').map(|place| place + 1);
                let part = &read[..end.unwrap_or(read.len())];
                let room = most.saturating_sub(line.len());
                line.extend_from_slice(&part[..part.len().min(room)]);
                let used = part.len();
                stream.consume(used);
                if end.is_some() {
                    return Ok(line);
                }
            }
        })
        .await
    }

    pub(super) async fn say(&mut self, text: &str) -> io::Result<()> {
        self.say_within(PATIENCE, text).await
    }

    pub(super) async fn say_within(&mut self, patience: Duration, text: &str) -> io::Result<()> {
        let stream = &mut self.stream;
        within(patience, async move {
            stream.write_all(text.as_bytes()).await?;
            stream.flush().await
        })
        .await
    }
}

async fn within<T>(
    patience: Duration,
    doing: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let done = tokio::time::timeout(patience, doing).await;
    done.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

/// A server's line for the log: without mail addresses.
pub(super) fn shown(line: &str) -> String {
    let plain: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    let word = |word: &str| if word.contains('@') { "…".to_owned() } else { word.to_owned() };
    plain.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The trusted roots: the authorities in a file, or those of the system. `None` without TLS.
pub(super) fn trust(
    tls: Tls,
    authority: Option<&str>,
) -> Result<Option<Arc<ClientConfig>>, String> {
    let mut roots = RootCertStore::empty();
    match (tls, authority) {
        (Tls::None, _) => return Ok(None),
        (Tls::Starttls | Tls::Implicit, Some(path)) => {
            let wrong = |why: String| {
                format!("{path} cannot be used ({why}); name a file of certificates as PEM")
            };
            let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let all: Vec<CertificateDer<'static>> =
                all.map_err(|error| wrong(error.to_string()))?;
            for certificate in all {
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("it holds no certificate".to_owned()));
            }
        }
        (Tls::Starttls | Tls::Implicit, None) => {
            // Some system roots may be unreadable; the others count.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used ({error}); report this"))?;
    Ok(Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_shown_without_addresses() {
        assert_eq!(shown("5.1.1 <ann@example.com>: unknown\u{7}"), "5.1.1 … unknown");
        assert_eq!(shown("-ERR [AUTH] legwork@example.com: no"), "-ERR [AUTH] … no");
    }
}
