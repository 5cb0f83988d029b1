//! The connection string of a database.
//!
//! Invariant: the password is never shown. TLS is used with a known authority or not at all: there is
//! no unverified encryption.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio_postgres::config::{Config, SslMode};

use super::session::Session;
use super::tls;
use crate::Error;

/// A parsed connection string.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) config: Config,
    pub(super) tls: Option<Arc<ClientConfig>>,
    name: Arc<str>,
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A silently lost database is noticed before a lease is lost twice.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 4;
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

impl Place {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let unsuitable = |reason: String| Error::Unsuitable { place: shown(url), reason };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(unsuitable(
                "it does not begin with postgres://; name it like postgres://user@host/database"
                    .to_owned(),
            ));
        }
        let (rest, mut files, mode) = take_tls(url).map_err(unsuitable)?;
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            let why = super::session::chain(&error);
            // The driver's error may quote a part of the password.
            let why = if is_clear(url) { format!(" ({why})") } else { String::new() };
            unsuitable(format!(
                "it cannot be read{why}; name it like postgres://user@host/database, and write @, ? \
                 and # in a password as %40, %3F and %23"
            ))
        })?;
        let tls = match (mode, files.authority.take()) {
            (Mode::Plain, None) => None,
            (Mode::Plain, Some(_)) => {
                let reason = "sslrootcert asks for TLS and sslmode=disable forbids it; keep one";
                return Err(unsuitable(reason.to_owned()));
            }
            (Mode::Required, None) => {
                return Err(unsuitable(
                    "TLS needs to know whom to trust; name the file of the authority that has signed \
                     the server's certificate, with sslrootcert=FILE (the authorities of a Debian \
                     system are in /etc/ssl/certs/ca-certificates.crt)"
                        .to_owned(),
                ));
            }
            (Mode::Any, None) => None,
            (Mode::Any | Mode::Required, Some(authority)) => {
                Some(tls::config(&authority, &files).map_err(unsuitable)?)
            }
        };
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        with_defaults(&mut config);
        Ok(Self { config, tls, name: shown(url).into() })
    }

    /// Without the password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn connect(&self) -> Result<Session, Error> {
        Session::open(self)
    }
}

/// The files of a TLS connection.
#[derive(Default)]
pub(super) struct Files {
    authority: Option<String>,
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain,
    /// Unspecified: TLS if an authority is named.
    Any,
    Required,
}

/// Takes the TLS parameters out of the address: the driver does not support all of them.
fn take_tls(url: &str) -> Result<(String, Files, Mode), String> {
    let mut files = Files::default();
    let mut mode = Mode::Any;
    let Some((rest, query)) = url.split_once('?') else { return Ok((url.to_owned(), files, mode)) };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "sslrootcert" => files.authority = Some(decoded(value)?),
            "sslcert" => files.certificate = Some(decoded(value)?),
            "sslkey" => files.key = Some(decoded(value)?),
            "sslmode" => mode = mode_named(value)?,
            _ => kept.push(pair),
        }
    }
    if files.certificate.is_some() != files.key.is_some() {
        return Err("sslcert and sslkey belong together; name both files or none".to_owned());
    }
    let query = kept.join("&");
    let rest = if query.is_empty() { rest.to_owned() } else { format!("{rest}?{query}") };
    Ok((rest, files, mode))
}

fn mode_named(name: &str) -> Result<Mode, String> {
    match name {
        "disable" => Ok(Mode::Plain),
        "allow" | "prefer" => Ok(Mode::Any),
        "require" | "verify-ca" | "verify-full" => Ok(Mode::Required),
        _ => Err(format!("sslmode={name} is unknown; say disable or verify-full")),
    }
}

fn decoded(value: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("{value} is not percent-encoded; write % as %25"))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("{value} is not UTF-8; name another file"))
}

/// Defaults by which a dead connection is noticed.
fn with_defaults(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("legwork");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_MAX);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
}

/// The address without password and parameters; if they cannot be separated with certainty, only its
/// scheme.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(no address)".to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (user, path) = match rest.rsplit_once('@') {
        Some((user, path)) => (user.split(':').next(), path),
        None => (None, rest),
    };
    let hosts = path.split('/').next().unwrap_or_default();
    if !is_clear(url) || !hosts.split(',').all(is_host) {
        return format!("{scheme}://…");
    }
    match user {
        Some(user) => format!("{scheme}://{user}@{path}"),
        None => format!("{scheme}://{path}"),
    }
}

/// Whether the parameters begin where they seem to, and not inside a password.
fn is_clear(url: &str) -> bool {
    url.split_once(['?', '#']).is_none_or(|(_, after)| !after.contains('@'))
}

/// Whether a port follows the colon, and so no password.
fn is_host(host: &str) -> bool {
    let after = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((_, after)) => after,
        None => host,
    };
    let port = after.split_once(':').map_or("", |(_, port)| port);
    port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_never_shown() {
        for (url, expected) in [
            ("postgres://ann:s3cret@h/db?sslmode=disable", "postgres://ann@h/db"),
            ("postgres://ann:s3@cret@h:1,i:2/db", "postgres://ann@h:1,i:2/db"),
            ("postgres://h/db?password=s3cret", "postgres://h/db"),
            ("postgres://%2Frun%2Fpg/db", "postgres://%2Frun%2Fpg/db"),
            ("postgres://ann@[::1]:5432/db", "postgres://ann@[::1]:5432/db"),
            ("postgres://ann:s3cret#s3cret@h/db", "postgres://…"),
            ("postgres://ann:s3cret?s3cret@h/db", "postgres://…"),
            ("postgres://ann:s3cret@s3cret#s3cret@h/db", "postgres://…"),
            ("postgres://ann:s3cret/db", "postgres://…"),
            ("postgres://h/db?password=s3@cret", "postgres://…"),
            ("s3cret", "(no address)"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_says_why_without_the_password() {
        for (url, why) in [
            ("mysql://ann:s3cret@h/db", "it does not begin with postgres://"),
            ("postgres://ann:s3cret@h/db?sslmode=require", "with sslrootcert=FILE"),
            ("postgres://ann:s3cret@h/db?sslmode=verify-full", "with sslrootcert=FILE"),
            ("postgres://ann:s3cret@h/db?sslmode=maybe", "sslmode=maybe is unknown"),
            ("postgres://ann:s3cret@h/db?sslcert=a", "name both files or none"),
            ("postgres://ann:s3cret@h/db?sslmode=disable&sslrootcert=a", "keep one"),
            ("postgres://ann:s3cret@h/db?sslrootcert=%2", "is not percent-encoded"),
            ("postgres://ann:s3cret@h/db?sslrootcert=/nowhere.pem", "/nowhere.pem"),
            ("postgres://ann:s3cret@h/db?colour=red", "it cannot be read"),
            ("postgres://ann:p@w?s3cret@h/db", "write @, ? and #"),
        ] {
            let said = Place::parse(url).err().unwrap().to_string();
            assert!(said.contains(why), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn what_is_said_counts_and_the_rest_has_defaults() {
        let place =
            Place::parse("postgresql://ann@h/db?connect_timeout=9&sslmode=disable").unwrap();
        assert_eq!(place.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
        assert_eq!(place.config.get_keepalives_idle(), KEEPALIVE_IDLE);
        assert_eq!(place.config.get_application_name(), Some("legwork"));
        assert_eq!(place.name(), "postgresql://ann@h/db");
    }
}
