//! Signatures: how an executor knows that Legwork calls, and Legwork that the executor does.
//!
//! Invariant: pure; the time is an argument. What was signed with another secret, changed on the
//! way or is older (or newer) than `DRIFT_MAX` is refused, and the comparison takes the same time
//! wherever the difference is.

use std::time::Duration;

use legwork_model::time::Timestamp;
use ring::hmac;

/// The header that carries the signature.
pub const HEADER: &str = "legwork-signature";
/// How far the clocks of both sides may be apart.
pub const DRIFT_MAX: Duration = Duration::from_secs(5 * 60);
/// A secret has at least this many characters.
pub const SECRET_CHARS_MIN: usize = 32;

/// Room for every moment until the year 33658.
const DIGITS_MAX: usize = 15;
const TAG_BYTES: usize = 32;

/// What is signed of a request.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// In capitals, as in the request line.
    pub method: &'a str,
    /// Path and query, as in the request line.
    pub target: &'a str,
    pub body: &'a [u8],
}

/// Why a signature does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request is not signed; send the header `Legwork-Signature: t=MILLIS,v1=HEX`")]
    Missing,
    #[error("the signature cannot be read; write it `t=MILLIS,v1=HEX`, in lower-case digits")]
    Unreadable,
    #[error("the request was signed more than five minutes ago or ahead; set the clocks right")]
    Expired,
    #[error(
        "the signature does not fit the request; use the secret of the registration, and let no \
         proxy change the path or the body"
    )]
    Wrong,
}

/// The value of the header for a request that is sent now.
pub fn sign(secret: &str, request: &Signed<'_>, now: Timestamp) -> String {
    let moment = now.0.max(0).to_string();
    let tag = hmac::sign(&key(secret), &bytes(request, &moment));
    let digits = b"0123456789abcdef";
    let hex: String = tag
        .as_ref()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(digits[usize::from(half)]))
        .collect();
    format!("t={moment},v1={hex}")
}

/// Whether the request is from somebody who knows the secret, and not too old.
pub fn verify(
    secret: &str,
    request: &Signed<'_>,
    header: Option<&str>,
    now: Timestamp,
) -> Result<(), Refusal> {
    let (moment, tag) = read(header.ok_or(Refusal::Missing)?).ok_or(Refusal::Unreadable)?;
    let at = Timestamp(moment.parse().map_err(|_| Refusal::Unreadable)?);
    if now.since(at).max(at.since(now)) > DRIFT_MAX {
        return Err(Refusal::Expired);
    }
    hmac::verify(&key(secret), &bytes(request, moment), &tag).map_err(|_| Refusal::Wrong)
}

/// The moment as it was signed, and the tag. Parts of other names are for later versions.
fn read(header: &str) -> Option<(&str, [u8; TAG_BYTES])> {
    let (mut moment, mut tag) = (None, None);
    for part in header.split(',') {
        let (name, value) = part.trim().split_once('=')?;
        let place = match name {
            "t" => &mut moment,
            "v1" => &mut tag,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return None;
        }
    }
    let moment = moment.filter(|text| {
        (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    })?;
    Some((moment, unhex(tag?)?))
}

fn unhex(text: &str) -> Option<[u8; TAG_BYTES]> {
    let half = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut tag = [0; TAG_BYTES];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != TAG_BYTES || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in tag.iter_mut().zip(pairs) {
        *byte = half(*high)? << 4 | half(*low)?;
    }
    Some(tag)
}

fn key(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

fn bytes(request: &Signed<'_>, moment: &str) -> Vec<u8> {
    let head = format!("{moment}.{} {}.", request.method, request.target);
    let mut bytes = Vec::with_capacity(head.len() + request.body.len());
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(request.body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const REQUEST: Signed<'_> = Signed {
        method: "POST",
        target: "/legwork/verdicts?a=b",
        body: br#"{"task":"t1","verdict":"ack"}"#,
    };
    const NOW: Timestamp = Timestamp(1_763_260_000_000);
    /// The Python executor is tested with the same: both sides mean the same bytes.
    const VECTOR: &str = "t=1763260000000,\
                          v1=d3e1aee1df5f4afaa4bbe5bc9c2149d47ab0b216c96ffd0f3af0aefcbb0f0c5a";

    #[test]
    fn the_known_signature_comes_out() {
        assert_eq!(sign(SECRET, &REQUEST, NOW), VECTOR);
        assert_eq!(verify(SECRET, &REQUEST, Some(VECTOR), NOW), Ok(()));
    }

    #[test]
    fn what_was_changed_is_refused() {
        let check = |secret: &str, request: Signed<'_>| {
            assert_eq!(verify(secret, &request, Some(VECTOR), NOW), Err(Refusal::Wrong));
        };
        check("0123456789abcdef0123456789abcdeF", REQUEST);
        check(SECRET, Signed { method: "PUT", ..REQUEST });
        check(SECRET, Signed { target: "/legwork/verdicts", ..REQUEST });
        check(SECRET, Signed { body: br#"{"task":"t1","verdict":"nack"}"#, ..REQUEST });
        let later = VECTOR.replace("t=1763260000000", "t=1763260000001");
        assert_eq!(verify(SECRET, &REQUEST, Some(&later), NOW), Err(Refusal::Wrong));
    }

    #[test]
    fn five_minutes_of_difference_are_allowed_and_no_more() {
        for (offset, expected) in [
            (300_000, Ok(())),
            (-300_000, Ok(())),
            (300_001, Err(Refusal::Expired)),
            (-300_001, Err(Refusal::Expired)),
        ] {
            let now = Timestamp(NOW.0 + offset);
            assert_eq!(verify(SECRET, &REQUEST, Some(VECTOR), now), expected, "{offset}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert_eq!(verify(SECRET, &REQUEST, None, NOW), Err(Refusal::Missing));
        let upper = VECTOR.to_uppercase().replace("T=", "t=").replace("V1=", "v1=");
        let twice = format!("{VECTOR},t=1");
        let short = &VECTOR[..VECTOR.len() - 1];
        let wild = VECTOR.replace("t=1763260000000", "t=99999999999999999999");
        for header in ["", "t=1", "v1=00", "t=,v1=", &upper, &twice, short, &wild, "t=-1,v1=é"] {
            let refused = verify(SECRET, &REQUEST, Some(header), NOW);
            assert_eq!(refused, Err(Refusal::Unreadable), "{header}");
        }
        let newer = format!("{VECTOR},v2=other");
        assert_eq!(verify(SECRET, &REQUEST, Some(&newer), NOW), Ok(()));
    }
}
