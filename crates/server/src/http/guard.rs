//! Who is let in at all, before anything is read.
//!
//! Invariant: while there is no token, only callers on this machine are served, and no web page
//! that a browser on this machine shows can speak for its user.

use std::net::{IpAddr, Ipv6Addr};

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;
use legwork_mail::{NotGranted, Token};
use legwork_site::{Answer, Credential, Mailing, Request};
use percent_encoding::percent_decode_str;

use super::App;
use super::exchange::Exchange;
use super::reply::{Refused, Result};
use crate::ids::hash_token;
use crate::mail::FromInbox;
use crate::peer;
use crate::schedules::{FromSchedule, SCHEME};

pub(super) fn check_headers(x: &Exchange<'_>) -> Result<()> {
    let (headers, bytes_max) = (&x.head.headers, x.app.limits.header_bytes_max);
    // Without the names and separators: whoever sends that many is over the limit anyway.
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("the header has more than {bytes_max} bytes; send less");
    Err(Refused::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "header_too_large", detail))
}

/// The credentials in a request.
pub(super) enum Presented {
    Credential(Credential),
    /// The token of a letter, not verified yet.
    Letter(Token),
}

/// Reads the credentials. A scheme that is unknown, or not accepted from this sender, is refused.
pub(super) fn presented(x: &Exchange<'_>) -> Result<Presented> {
    if let Some(token) = mail_token(&x.head.headers).filter(|_| is_from_inbox(x)) {
        return Ok(Presented::Letter(token));
    }
    let schedule = schedule(x.head).filter(|_| x.route.is_for_schedules);
    schedule.map_or_else(|| bearer(&x.head.headers), Ok).map(Presented::Credential)
}

/// Counts the request against the rate of its caller. Relayed requests were counted where they came in; starts by
/// schedules are not counted.
pub(super) fn check_rate(
    x: &Exchange<'_>,
    peer: IpAddr,
    presented: &Result<Presented>,
) -> Result<()> {
    let extensions = &x.head.extensions;
    if extensions.get::<peer::From>().is_some() || extensions.get::<FromSchedule>().is_some() {
        return Ok(());
    }
    let known = match presented {
        Ok(Presented::Credential(Credential::Token(hash))) if x.app.status.knows(hash) => {
            Some(*hash)
        }
        Ok(_) | Err(_) => None,
    };
    x.app.rates.check(known, peer, || x.app.clock.now())
}

/// In a cluster, an unknown token may be one that this server has not heard of yet.
pub(super) fn explain_unknown_token(app: &App, has_token: bool, result: Result) -> Result {
    result.map_err(|refused| {
        if !has_token || app.links.is_none() || refused.code() != "unauthenticated" {
            return refused;
        }
        let detail = "the token is not known here; give one that `legwork token create` \
                      printed, or try again if it is new: this server may hear of it yet";
        Refused::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    })
}

fn bearer(headers: &HeaderMap) -> Result<Credential> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(Credential::None) };
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            Ok(Credential::Token(hash_token(token.trim())))
        }
        Some(_) | None => {
            let detail = "send `Authorization: Bearer` and the token; nothing else is understood";
            Err(Refused::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail))
        }
    }
}

/// The token of a letter, if that is what the caller presents.
fn mail_token(headers: &HeaderMap) -> Option<Token> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let is_mail = scheme.eq_ignore_ascii_case("mail");
    is_mail.then(|| Token::found(token.trim().to_owned()))
}

/// The token of a letter counts only if the inbox of this server or of another one has read it: who sent it
/// was looked at there.
fn is_from_inbox(x: &Exchange<'_>) -> bool {
    let extensions = &x.head.extensions;
    let was_read =
        extensions.get::<FromInbox>().is_some() || extensions.get::<peer::From>().is_some();
    was_read && x.app.post.as_ref().is_some_and(|post| post.key().is_some())
}

/// The credential for the site. A letter counts for completing its activity and nothing else, and as long
/// as the agent has the address that it was sent to.
pub(super) async fn credential(x: &Exchange<'_>, presented: Presented) -> Result<Credential> {
    let (app, token) = match presented {
        Presented::Credential(credential) => return Ok(credential),
        Presented::Letter(token) => (x.app, token),
    };
    let refused = |detail: &str| Refused::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail);
    let forged = || refused(&NotGranted::Forged.to_string());
    let agent = token.claimed_by().ok_or_else(forged)?;
    let asked = Request::Mail(Mailing::Address { agent });
    let answer = app.gate.ask(Credential::Mailer, asked).await?;
    let Answer::Address(Some(address)) = answer else { return Err(forged()) };
    let key = app.post.as_ref().and_then(|post| post.key()).ok_or_else(forged)?;
    let granted = token.granted(key, &address, app.clock.now());
    let grant = granted.map_err(|error| refused(&error.to_string()))?;
    let activity = percent_decode_str(x.parameter.unwrap_or_default()).decode_utf8();
    let is_its_own = activity.is_ok_and(|activity| *activity == *grant.activity.to_string());
    match x.route.is_for_letters && is_its_own {
        true => Ok(Credential::Reply(grant.agent)),
        false => Err(refused("the token of a letter is for its own activity alone")),
    }
}

/// A schedule, if this server has made the request for it, or another one that passes it on.
fn schedule(head: &Parts) -> Option<Credential> {
    let extensions = &head.extensions;
    let is_from_schedule =
        extensions.get::<FromSchedule>().is_some() || extensions.get::<peer::From>().is_some();
    let text = head.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, name) = text.split_once(' ')?;
    (is_from_schedule && scheme == SCHEME).then(|| Credential::Schedule(name.into()))
}

/// While there are no tokens, callers on this machine are served and nobody else.
pub(super) fn check_local(x: &Exchange<'_>, peer: IpAddr) -> Result<()> {
    if x.app.status.has_tokens() { Ok(()) } else { local(peer, x.head) }
}

fn local(peer: IpAddr, head: &Parts) -> Result<()> {
    let text = |name| head.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let page = text(ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    let (code, what) = if !is_loopback(peer) {
        ("loopback_only", "the call comes from another machine")
    } else if !text(HOST).is_none_or(is_local_host) {
        // A page from anywhere can have its own name resolve to this machine.
        ("foreign_host", "the call is addressed to another name than localhost")
    } else if !page.is_none_or(is_local_host) {
        ("foreign_origin", "the call comes from a web page of another server")
    } else {
        return Ok(());
    };
    let detail = format!(
        "{what}: a server without tokens serves this machine alone; \
         make a token with `legwork token create NAME --scope admin`"
    );
    Err(Refused::new(StatusCode::FORBIDDEN, code, detail))
}

fn is_loopback(peer: IpAddr) -> bool {
    match peer {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

fn is_local_host(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.split(']').next().and_then(|text| text.parse::<Ipv6Addr>().ok());
        return address.is_some_and(|address| is_loopback(address.into()));
    }
    let name = host.split(':').next().unwrap_or_default();
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn check(peer: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::get("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let head = request.body(()).unwrap().into_parts().0;
        let result = local(peer.parse().unwrap(), &head);
        result.err().map(|refused| refused.code().to_owned())
    }

    #[test]
    fn without_tokens_only_this_machine_is_served() {
        for host in ["localhost", "LOCALHOST:7700", "127.0.0.1:7700", "[::1]:7700", "127.9.9.9"] {
            assert_eq!(check("127.0.0.1", &[("host", host)]), None, "{host}");
        }
        assert_eq!(check("::1", &[("origin", "http://localhost:7700")]), None);
        assert_eq!(check("::ffff:127.0.0.1", &[]), None);
        assert_eq!(check("10.0.0.1", &[]).as_deref(), Some("loopback_only"));
        assert_eq!(check("2001:db8::1", &[]).as_deref(), Some("loopback_only"));
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]", ""] {
            let code = check("127.0.0.1", &[("host", host)]);
            assert_eq!(code.as_deref(), Some("foreign_host"), "{host}");
        }
        for origin in ["http://evil.example", "null"] {
            let code = check("127.0.0.1", &[("origin", origin)]);
            assert_eq!(code.as_deref(), Some("foreign_origin"), "{origin}");
        }
    }
}
