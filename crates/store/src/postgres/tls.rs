//! TLS to the database, by rustls.
//!
//! Invariant: the server's certificate is always verified against the named authority and the host
//! name.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

use super::place::Files;

/// Trusts the authorities in a file of PEM.
pub(super) fn config(authority: &str, files: &Files) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        let why = |error| format!("{authority} cannot be used ({error}); name another file");
        roots.add(certificate).map_err(why)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used ({error}); report this"))?
        .with_root_certificates(roots);
    let Some((certificate, key)) = files.certificate.as_ref().zip(files.key.as_ref()) else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let own = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{key} cannot be read ({error}); name the file of a key"))?;
    let config =
        builder.with_client_auth_cert(certificates(certificate)?, own).map_err(|error| {
            format!("{certificate} and {key} do not fit together ({error}); name a pair that does")
        })?;
    Ok(Arc::new(config))
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error| {
        format!("{path} cannot be read ({error}); name a file of certificates as PEM")
    })?;
    if all.is_empty() {
        return Err(format!("{path} holds no certificate; name a file of certificates as PEM"));
    }
    Ok(all)
}

/// Encrypts connections.
#[derive(Clone)]
pub(super) struct Tls(pub(super) Arc<ClientConfig>);

pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// An encrypted connection.
pub(super) struct Stream<S>(RustlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Handshake { config: self.0.clone(), name })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = TlsConnector::from(self.config).connect(self.name, stream);
        Box::pin(async move { connecting.await.map(Stream) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is verified: channel binding would add nothing.
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
