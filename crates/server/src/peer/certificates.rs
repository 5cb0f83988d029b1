//! Certificates of a cluster: one authority, one certificate per server.
//!
//! Invariant: a certificate names one server, and the authority's certificate can only sign these.
//! Keys are exported only as PEM for a file.

use std::time::{Duration, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::clock::Clock;

/// The tolerated clock skew.
const SKEW: Duration = Duration::from_secs(3_600);
/// The validity of the authority, longer than that of its certificates.
const AUTHORITY_VALID: Duration = Duration::from_secs(20 * 365 * 86_400);

/// Signs the certificates of the servers of one cluster.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The certificate of a server and its key, as PEM. Not shown in logs.
#[derive(Clone)]
pub struct Certified {
    pub certificate: String,
    pub key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum NotCertified {
    #[error("`{name}` cannot stand in a certificate: {why}; name the server like a host")]
    Name { name: String, why: String },
    #[error("the certificate of the authority cannot be read: {0}")]
    Authority(String),
    #[error("the key of the authority cannot be read: {0}; take the one `cluster init` wrote")]
    Key(String),
    #[error("the key is not that of the authority's certificate; take both from one folder")]
    AnotherKey,
    #[error("the certificate cannot be made: {0}")]
    Failed(String),
}

impl Authority {
    pub fn new() -> Result<Self, NotCertified> {
        let key = KeyPair::generate().map_err(failed)?;
        let params = authority(&key);
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// From the output of `certificate` and `key`. The key must match the certificate: other
    /// signatures would not be trusted.
    pub fn from_pem(certificate: String, key: &str) -> Result<Self, NotCertified> {
        let key = KeyPair::from_pem(key).map_err(|error| NotCertified::Key(error.to_string()))?;
        let readable = CertificateDer::from_pem_slice(certificate.as_bytes());
        let readable = readable.map_err(|error| NotCertified::Authority(error.to_string()))?;
        // A certificate contains the raw public key.
        let public = key.public_key_raw();
        if !readable.windows(public.len()).any(|part| part == public) {
            return Err(NotCertified::AnotherKey);
        }
        let params = authority(&key);
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    pub fn certify(&self, server: &str, valid: Duration) -> Result<Certified, NotCertified> {
        let named = CertificateParams::new([server.to_owned()]);
        let mut params = named.map_err(|error| NotCertified::Name {
            name: server.to_owned(),
            why: error.to_string(),
        })?;
        params.distinguished_name = Default::default();
        params.distinguished_name.push(DnType::CommonName, server);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Every server is both client and server.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        span(&mut params, valid);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Certified { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Named after its key: authorities of different clusters have different names, and the name need
/// not be read from the certificate.
fn authority(key: &KeyPair) -> CertificateParams {
    let hash = blake3::hash(key.public_key_raw()).to_hex();
    let name = format!("legwork cluster {}", &hash[..16]);
    let mut params = CertificateParams::default();
    params.distinguished_name = Default::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    span(&mut params, AUTHORITY_VALID);
    params
}

fn span(params: &mut CertificateParams, valid: Duration) {
    let now = UNIX_EPOCH + Duration::from_millis(Clock::default().now().0.unsigned_abs());
    params.not_before = (now - SKEW).into();
    params.not_after = (now + valid).into();
}

fn failed(error: rcgen::Error) -> NotCertified {
    NotCertified::Failed(error.to_string())
}
