//! Mutual TLS 1.3 between servers.
//!
//! Invariant: the files are read again when they change, so that certificates are renewed without a
//! restart; unusable new ones are logged once, and the old ones stay.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::client::{Resumption, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The certificates of one server, in files.
pub(crate) struct Identity {
    files: [PathBuf; 3],
    current: Mutex<Current>,
}

struct Current {
    /// The file stamps of the last read, whether usable or not.
    stamps: Stamps,
    material: Arc<Material>,
}

type Stamps = [Option<(SystemTime, u64)>; 3];

/// The TLS configurations of connections.
pub(crate) struct Material {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

/// Why certificates are unusable.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{} cannot be read: {why}; `legwork cluster init` writes it", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("the certificate, its key and the authority do not fit together: {0}")]
    Unfit(#[from] rustls::Error),
    #[error("{} is not the certificate of `{name}`", path.display())]
    Name { path: PathBuf, name: String },
    #[error("the authority cannot be used: {0}")]
    Authority(String),
}

impl Identity {
    /// From `ca.pem`, `cert.pem` and `key.pem` in a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, Unusable> {
        let files = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name));
        let stamps = stamps(&files);
        let material = Arc::new(Material::read(&files)?);
        Ok(Self { files, current: Mutex::new(Current { stamps, material }) })
    }

    /// Refuses the certificate of another server.
    pub(crate) fn require(&self, name: &str) -> Result<(), Unusable> {
        if self.current().is_for(name) {
            return Ok(());
        }
        let [_, path, _] = self.files.clone();
        Err(Unusable::Name { path, name: name.to_owned() })
    }

    /// The current files.
    pub(crate) fn current(&self) -> Arc<Material> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if stamps != current.stamps {
            current.stamps = stamps;
            match Material::read(&self.files) {
                Ok(material) => {
                    tracing::info!("the new certificate is in use");
                    current.material = Arc::new(material);
                }
                Err(error) => {
                    tracing::error!(
                        reason = %error,
                        "the new certificate cannot be used; the one before stays in use"
                    );
                }
            }
        }
        current.material.clone()
    }
}

impl Material {
    fn read([ca, certificate, key]: &[PathBuf; 3]) -> Result<Self, Unusable> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(ca)? {
            roots.add(authority)?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(certificate)?;
        let Some(own) = chain.first().cloned() else {
            let why = "there is no certificate in it".to_owned();
            return Err(Unusable::Unreadable { path: certificate.clone(), why });
        };
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| Unusable::Unreadable { path: key.clone(), why: error.to_string() })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| Unusable::Authority(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())?;
        // Connections are long-lived: a ticket would be useless, and would admit a peer whose
        // certificate is no longer valid.
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        client.resumption = Resumption::disabled();
        Ok(Self { client: Arc::new(client), server: Arc::new(server), certificate: own })
    }

    /// Whether the certificate is for the server of this name.
    fn is_for(&self, name: &str) -> bool {
        is_for(&self.certificate, name)
    }
}

/// Which of these names the certificate in a folder is for.
pub(crate) fn named_by(
    folder: &Path,
    mut names: impl Iterator<Item = Arc<str>>,
) -> Result<Option<Arc<str>>, Unusable> {
    let material = Identity::read(folder)?.current();
    Ok(names.find(|name| material.is_for(name)))
}

/// Whether a certificate is for the server of this name.
pub(crate) fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(certificate), Ok(name)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(name))
    else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    all.map_err(|error| Unusable::Unreadable { path: path.to_owned(), why: error.to_string() })
}

fn stamps(files: &[PathBuf; 3]) -> Stamps {
    files.each_ref().map(|file| {
        let about = std::fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len()))
    })
}
