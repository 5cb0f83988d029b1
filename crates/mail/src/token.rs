//! The token of a letter: the right to answer one item, once, for some time.
//!
//! Invariant: a valid token needs the key, and nothing in it can be changed. It is valid as long as its
//! agent has the address it was sent to. It is computed only from its grant and that address: a letter that
//! is sent again has the same token.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use legwork_model::id::{ActivityId, AgentId};
use legwork_model::time::Timestamp;
use ring::hmac;

use crate::rules::Kind;

pub const KEY_BYTES: usize = 32;
/// Names have 64 characters at most, so a token is never longer.
pub const TOKEN_CHARS_MAX: usize = 700;
const TAG_BYTES: usize = 32;
/// Domain separation: no other signature by the key can be taken for a token.
const CONTEXT: &[u8] = b"legwork mail token 2\n";

/// The signing key of the tokens of a server, or of a cluster. Never shown.
#[derive(Clone)]
pub struct Key(hmac::Key);

/// The contents of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub activity: ActivityId,
    pub agent: AgentId,
    pub kind: Kind,
    pub expires_at: Timestamp,
}

/// The text of a token in a letter: base64url, no spaces. Shown only in letters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(String);

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    #[error("the token is none of ours, was changed, or was sent to another address")]
    Forged,
    /// It was genuine: its agent can be told.
    #[error("the token has expired")]
    Expired(Box<Grant>),
}

impl Key {
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    fn tag(&self, claims: &str, address: &str) -> hmac::Tag {
        hmac::sign(&self.0, &signed(claims, address))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A token for a letter to this address.
    pub fn new(key: &Key, grant: &Grant, address: &str) -> Self {
        let claims = grant.claims();
        let mut bytes = key.tag(&claims, address).as_ref().to_vec();
        bytes.extend_from_slice(claims.as_bytes());
        Self(BASE64.encode(bytes))
    }

    /// A text that may be a token.
    pub fn found(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The agent it claims, unverified.
    pub fn claimed_by(&self) -> Option<AgentId> {
        let (_, claims) = self.parts()?;
        Grant::read(&claims).map(|grant| grant.agent)
    }

    /// Its grant, if it is valid for its agent, who has this address now.
    pub fn granted(&self, key: &Key, address: &str, now: Timestamp) -> Result<Grant, NotGranted> {
        let grant = self.genuine(key, address).ok_or(NotGranted::Forged)?;
        match grant.expires_at > now {
            true => Ok(grant),
            false => Err(NotGranted::Expired(Box::new(grant))),
        }
    }

    fn genuine(&self, key: &Key, address: &str) -> Option<Grant> {
        let (tag, claims) = self.parts()?;
        // In constant time.
        hmac::verify(&key.0, &signed(&claims, address), &tag).ok()?;
        Grant::read(&claims)
    }

    /// The tag and the signed claims, without the address.
    fn parts(&self) -> Option<(Vec<u8>, String)> {
        if self.0.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let mut tag = BASE64.decode(&self.0).ok()?;
        let claims = (tag.len() >= TAG_BYTES).then(|| tag.split_off(TAG_BYTES))?;
        Some((tag, String::from_utf8(claims).ok()?))
    }
}

impl Grant {
    /// No part has a space.
    fn claims(&self) -> String {
        let Self { activity, agent, kind, expires_at } = self;
        format!("{} {} {agent} {activity}", kind.number(), expires_at.0)
    }

    fn read(claims: &str) -> Option<Self> {
        let parts: Vec<&str> = claims.split(' ').collect();
        let [kind, expires_at, agent, activity] = *parts else { return None };
        Some(Self {
            kind: Kind::numbered(kind.parse().ok()?)?,
            expires_at: Timestamp(expires_at.parse().ok()?),
            agent: AgentId::from(agent),
            activity: activity.parse().ok()?,
        })
    }
}

/// Neither has a line break, and addresses are case-insensitive.
fn signed(claims: &str, address: &str) -> Vec<u8> {
    let address = address.trim().to_ascii_lowercase();
    [CONTEXT, claims.as_bytes(), b"\n", address.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant(step: &str, agent: &str) -> Grant {
        let activity = format!("inst_01ARZ3NDEKTSV4RRFFQ69G5FAV:{step}:2.0").parse().unwrap();
        let (agent, kind) = (AgentId::from(agent), Kind::Reminder);
        Grant { activity, agent, kind, expires_at: Timestamp(1_000) }
    }

    const ANN: &str = "ann@example.com";

    fn key(byte: u8) -> Key {
        Key::new(&[byte; KEY_BYTES])
    }

    #[test]
    fn a_token_grants_what_it_was_made_for_until_it_expires() {
        let (grant, key) = (grant("approve", "ann"), key(7));
        let token = Token::new(&key, &grant, ANN);
        assert_eq!(token, Token::new(&key, &grant, "ANN@example.com "));
        assert_eq!(token.claimed_by(), Some("ann".into()));
        assert_eq!(format!("{:?} {:?}", token, key), "Token(…) Key(…)");
        assert_eq!(token.granted(&key, "Ann@Example.com", Timestamp(999)), Ok(grant.clone()));
        assert_eq!(
            token.granted(&key, ANN, Timestamp(1_000)),
            Err(NotGranted::Expired(Box::new(grant)))
        );
        assert_eq!(token.granted(&self::key(8), ANN, Timestamp(0)), Err(NotGranted::Forged));
    }

    #[test]
    fn a_token_does_not_outlive_the_address_it_was_sent_to() {
        let token = Token::new(&key(7), &grant("approve", "ann"), ANN);
        assert!(!String::from_utf8_lossy(&BASE64.decode(token.as_str()).unwrap()).contains('@'));
        let now = token.granted(&key(7), "ann@elsewhere.example", Timestamp(0));
        assert_eq!(now, Err(NotGranted::Forged));
    }

    #[test]
    fn the_longest_names_fit() {
        let long = "a".repeat(64);
        let token = Token::new(&key(7), &grant(&long, &"b".repeat(64)), ANN);
        assert!(token.granted(&key(7), ANN, Timestamp(0)).is_ok());
        assert!(token.as_str().len() < TOKEN_CHARS_MAX);
    }

    proptest! {
        #[test]
        fn a_token_with_anything_changed_is_forged(place in 0usize..500, other in "[A-Za-z0-9_-]") {
            let token = Token::new(&key(7), &grant("approve", "ann"), ANN);
            let mut text = token.as_str().to_owned();
            let place = place % text.len();
            prop_assume!(text[place..=place] != other);
            text.replace_range(place..=place, &other);
            let granted = Token::found(text).granted(&key(7), ANN, Timestamp(0));
            prop_assert_eq!(granted, Err(NotGranted::Forged));
        }

        #[test]
        fn whatever_is_found_is_no_token(text in ".{0,900}") {
            let token = Token::found(text);
            token.claimed_by();
            prop_assert!(token.granted(&key(7), ANN, Timestamp(0)).is_err());
        }
    }
}
