//! Addresses of servers: for other servers, and for people.
//!
//! Only the form is checked, not whether a server answers there.

use std::sync::Arc;

/// The longest address, in characters.
pub(crate) const LEN_MAX: usize = 300;

/// `HOST:PORT`, as other servers reach it.
pub(crate) fn peer(text: &str) -> Result<Arc<str>, &'static str> {
    const HINT: &str = "write a host and a port, such as \"10.0.0.1:7710\" or \"[::1]:7710\"";
    let (host, port) = text.rsplit_once(':').ok_or(HINT)?;
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse().is_ok_and(|port: u16| port != 0);
    if is_host(host) && is_port { Ok(Arc::from(text)) } else { Err(HINT) }
}

/// `http://HOST` or `https://HOST`, optionally with a port and a path, as people reach it.
pub(crate) fn api(text: &str) -> Result<Arc<str>, &'static str> {
    const HINT: &str = "write an address such as \"http://10.0.0.1:7700\"";
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.ok_or(HINT)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_authority = is_host(authority) || peer(authority).is_ok();
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '"' | '\\' | '@');
    if !is_authority || !path.chars().all(plain) {
        return Err(HINT);
    }
    Ok(Arc::from(text.trim_end_matches('/')))
}

fn is_host(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.strip_suffix(']').is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in ["10.0.0.1:7710", "north-1:1", "a.example.org:65535", "[::1]:7710"] {
            assert!(peer(good).is_ok(), "{good}");
        }
        for bad in [
            "", "north-1", ":7710", "north-1:", "n:0", "n:65536", "n:+1", "::1:1", "a b:1", "[x]:1",
        ] {
            assert!(peer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_address_for_people_is_one_for_a_browser() {
        for (text, kept) in [
            ("http://10.0.0.1:7700", "http://10.0.0.1:7700"),
            ("https://legwork.example.org/", "https://legwork.example.org"),
            ("https://example.org/legwork/", "https://example.org/legwork"),
            ("http://[::1]:7700", "http://[::1]:7700"),
        ] {
            assert_eq!(api(text).as_deref(), Ok(kept), "{text}");
        }
        for bad in
            ["", "10.0.0.1:7700", "ftp://a", "http://", "http://a b", "http://me@a", "http://a?b"]
        {
            assert!(api(bad).is_err(), "{bad}");
        }
    }
}
