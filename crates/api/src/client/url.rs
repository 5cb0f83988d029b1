//! The address of a server, and the encoding of what is put into paths and queries.
//!
//! Invariant: any text put into a path or a query arrives as that text.

use std::fmt::Write;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;

use super::Error;

const PORT: u16 = 7700;

#[derive(Debug)]
pub(super) struct Base {
    /// Host and port to connect to.
    pub(super) authority: Arc<str>,
    pub(super) host: HeaderValue,
    /// What every path begins with; empty unless a proxy adds one.
    pub(super) prefix: String,
}

impl Base {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let bad = |reason| Error::BadAddress { url: url.chars().take(200).collect(), reason };
        let text = url.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|_| bad("write it like http://127.0.0.1:7700"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(bad(
                    "this client does not speak TLS yet; use http:// on a trusted network, \
                     or run a TLS-terminating tunnel beside it",
                ));
            }
            Some(_) | None => return Err(bad("only http:// is spoken")),
        }
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("give a token instead of a user and a password"));
        }
        if uri.query().is_some() {
            return Err(bad("leave out everything from the question mark on"));
        }
        let port = authority.port_u16().unwrap_or(PORT);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("no such host"))?;
        Ok(Self {
            authority: Arc::from(format!("{}:{port}", authority.host())),
            host,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// A path or a query being put together.
pub(super) struct Target(String, char);

impl Target {
    pub(super) fn new(path: &str) -> Self {
        Self(path.to_owned(), '?')
    }

    /// A further segment of the path.
    pub(super) fn segment(mut self, text: impl std::fmt::Display) -> Self {
        self.0.push('/');
        encode(&text.to_string(), &mut self.0);
        self
    }

    /// A parameter, if there is a value for it.
    pub(super) fn query(mut self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        if let Some(value) = value {
            self.0.push(self.1);
            self.1 = '&';
            self.0.push_str(name);
            self.0.push('=');
            encode(&value.to_string(), &mut self.0);
        }
        self
    }

    pub(super) fn done(self) -> String {
        self.0
    }
}

fn encode(text: &str, to: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            to.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, authority, prefix) in [
            ("http://127.0.0.1:7700", "127.0.0.1:7700", ""),
            ("localhost", "localhost:7700", ""),
            ("http://wf.example:80/legwork/", "wf.example:80", "/legwork"),
            ("[::1]:9000", "[::1]:9000", ""),
        ] {
            let base = Base::parse(text).unwrap();
            assert_eq!((&*base.authority, base.prefix.as_str()), (authority, prefix), "{text}");
        }
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_with_the_reason() {
        for (text, reason) in [
            ("https://wf.example", "does not speak TLS yet"),
            ("ftp://wf.example", "only http://"),
            ("http://ann:pw@wf.example", "give a token"),
            ("http://wf.example/?a=b", "question mark"),
            ("http://", "write it like"),
            ("", "write it like"),
        ] {
            let refusal = Base::parse(text).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
    }

    #[test]
    fn any_text_can_stand_in_a_path_and_a_query() {
        let target = Target::new("/v1/definitions").segment("a/b ü?").query("x", Some("1&2=3"));
        assert_eq!(target.done(), "/v1/definitions/a%2Fb%20%C3%BC%3F?x=1%262%3D3");
    }
}
