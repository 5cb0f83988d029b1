//! Takes a mail apart as far as a reply needs it: who, from where, the text.
//!
//! Invariant: whatever the bytes, it ends quickly and never panics. What cannot be understood is left
//! out. See `docs/decisions/0046-libraries-looked-at-again.md` for why no library does this.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use legwork_model::address::is_address;

/// Of a longer mail only the beginning is read.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// How deep parts may lie in parts.
const DEPTH_MAX: usize = 8;
const HEADERS_MAX: usize = 500;
/// A long thread names many mails; the last of them is the one that is answered.
const IDS_MAX: usize = 20;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A mail, as far as it was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mail {
    /// The address alone.
    pub(crate) from: Option<String>,
    pub(crate) message_id: Option<String>,
    /// The ids of the mails it answers, `<…>` each.
    pub(crate) answers: Vec<String>,
    /// A program wrote it: a bounce, a notice of absence, a list.
    pub(crate) is_automatic: bool,
    pub(crate) text: Option<String>,
    /// Only if there is no text.
    pub(crate) html: Option<String>,
}

pub(crate) fn read(bytes: &[u8]) -> Mail {
    let bytes = &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)];
    let (headers, body) = split(bytes);
    let mut mail = Mail {
        from: headers.get("from").and_then(address),
        message_id: headers.get("message-id").map(|id| id.trim().to_owned()),
        answers: ["in-reply-to", "references"]
            .into_iter()
            .flat_map(|name| ids(&headers, name))
            .collect(),
        is_automatic: is_automatic(&headers),
        ..Mail::default()
    };
    look_into(&headers, body, 0, &mut mail);
    if mail.text.is_some() {
        mail.html = None;
    }
    mail
}

/// Takes the first text there is, and the first HTML.
fn look_into(headers: &Headers, body: &[u8], depth: usize, mail: &mut Mail) {
    let kind = headers.get("content-type").unwrap_or("text/plain");
    let main = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if main == "multipart/report" {
        mail.is_automatic = true;
    } else if main.starts_with("multipart/") {
        let Some(boundary) = parameter(kind, "boundary").filter(|_| depth < DEPTH_MAX) else {
            return;
        };
        for part in parts(body, &boundary) {
            let (headers, body) = split(part);
            look_into(&headers, body, depth + 1, mail);
        }
        return;
    }
    let disposition = headers.get("content-disposition").unwrap_or_default();
    if disposition.trim().to_ascii_lowercase().starts_with("attachment") {
        return;
    }
    let place = match &*main {
        "text/plain" => &mut mail.text,
        "text/html" => &mut mail.html,
        _ => return,
    };
    if place.is_none() {
        let encoding = headers.get("content-transfer-encoding").unwrap_or_default();
        let decoded = match &*encoding.trim().to_ascii_lowercase() {
            "base64" => from_base64(body),
            "quoted-printable" => from_quoted_printable(body),
            _ => body.to_vec(),
        };
        let charset = parameter(kind, "charset").unwrap_or_default().to_ascii_lowercase();
        *place = Some(text(decoded, &charset));
    }
}

/// Names in lower case and values in one line, in order.
struct Headers(Vec<(String, String)>);

impl Headers {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The headers, and what follows the first empty line.
fn split(bytes: &[u8]) -> (Headers, &[u8]) {
    let mut headers: Vec<(String, String)> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() && headers.len() < HEADERS_MAX {
        let (line, after) = first_line(rest);
        rest = after;
        if line.is_empty() {
            break;
        }
        let line = String::from_utf8_lossy(line);
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = headers.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    (Headers(headers), rest)
}

/// A line without its end, and what follows it.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (line, rest) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

/// What lies between the lines of a boundary.
fn parts<'b>(body: &'b [u8], boundary: &str) -> Vec<&'b [u8]> {
    let opens = format!("--{boundary}");
    let (mut parts, mut begun, mut rest) = (Vec::new(), None, body);
    loop {
        let at = body.len() - rest.len();
        let (line, after) = first_line(rest);
        // The boundary of an inner multipart may begin with that of the outer one.
        let ending = line.strip_prefix(opens.as_bytes()).map(<[u8]>::trim_ascii_end);
        let is_last = ending.is_some_and(|ending| ending.starts_with(b"--"));
        if is_last || ending == Some(b"") {
            parts.extend(begun.map(|begun: usize| &body[begun..at]));
            begun = (!is_last).then_some(body.len() - after.len());
            if is_last {
                return parts;
            }
        }
        if after.is_empty() {
            // A mail that was cut off.
            parts.extend(begun.map(|begun| &body[begun..]));
            return parts;
        }
        rest = after;
    }
}

/// `boundary` of `multipart/mixed; boundary="x"`.
fn parameter(value: &str, name: &str) -> Option<String> {
    value.split(';').skip(1).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (key.trim().eq_ignore_ascii_case(name) && !value.is_empty()).then(|| value.to_owned())
    })
}

/// `ann@example.com` of `Ann <ann@example.com>`.
fn address(value: &str) -> Option<String> {
    let inner = match value.rsplit_once('<') {
        Some((_, inner)) => inner.split('>').next().unwrap_or_default(),
        None => value,
    };
    let inner = inner.trim();
    is_address(inner).then(|| inner.to_owned())
}

/// The last ids in a header.
fn ids(headers: &Headers, name: &str) -> Vec<String> {
    let words = headers.get(name).unwrap_or_default().split_whitespace().rev();
    let is_id = |word: &&str| word.starts_with('<') && word.ends_with('>');
    words.filter(is_id).take(IDS_MAX).map(str::to_owned).collect()
}

fn is_automatic(headers: &Headers) -> bool {
    let value = |name| headers.get(name).unwrap_or_default().trim().to_ascii_lowercase();
    let submitted = value("auto-submitted");
    let is_there = |name| headers.get(name).is_some();
    !(submitted.is_empty() || submitted == "no" || submitted.starts_with("no "))
        || ["bulk", "junk", "list", "auto_reply"].contains(&&*value("precedence"))
        || value("return-path") == "<>"
        || ["x-autoreply", "x-autorespond", "list-id"].into_iter().any(is_there)
}

fn from_base64(body: &[u8]) -> Vec<u8> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut digits: Vec<u8> = body.iter().copied().filter(is_digit).collect();
    // A single digit at the end says nothing.
    digits.truncate(digits.len() - usize::from(digits.len() % 4 == 1));
    BASE64.decode(digits).unwrap_or_default()
}

fn from_quoted_printable(body: &[u8]) -> Vec<u8> {
    let half = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut decoded, mut rest) = (Vec::with_capacity(body.len()), body);
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'=' {
            decoded.push(*first);
            continue;
        }
        match after {
            [b'\r', b'\n', more @ ..] | [b'\n', more @ ..] => rest = more,
            [high, low, more @ ..] => match half(*high).zip(half(*low)) {
                Some((high, low)) => {
                    decoded.push(high << 4 | low);
                    rest = more;
                }
                None => decoded.push(b'='),
            },
            [_] | [] => decoded.push(b'='),
        }
    }
    decoded
}

/// UTF-16 if it says so, or UTF-8, or else one byte a character: the words of an answer are ASCII in whatever
/// else is in use.
fn text(bytes: Vec<u8>, charset: &str) -> String {
    if charset.starts_with("utf-16") {
        return from_utf16(&bytes, charset == "utf-16le");
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect())
}

/// What the first bytes say of their order counts for more than the name.
fn from_utf16(bytes: &[u8], is_little: bool) -> String {
    let (bytes, is_little) = match bytes {
        [0xff, 0xfe, rest @ ..] => (rest, true),
        [0xfe, 0xff, rest @ ..] => (rest, false),
        bytes => (bytes, is_little),
    };
    let unit = |pair: &[u8; 2]| match is_little {
        true => u16::from_le_bytes(*pair),
        false => u16::from_be_bytes(*pair),
    };
    let (pairs, _) = bytes.as_chunks();
    let units: Vec<u16> = pairs.iter().map(unit).collect();
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_is_found_among_the_parts() {
        let mail = read(
            b"From: \"Ann, the <boss>\" <Ann@example.com>\r\nMessage-ID: <1@x>\r\n\
              Content-Type: multipart/mixed;\r\n boundary=\"a b\"\r\n\r\nprologue\r\n--a b\r\n\
              Content-Type: multipart/alternative; boundary=in\r\n\r\n--in\r\n\
              Content-Type: text/html\r\n\r\n<p>no</p>\r\n--in\r\n\
              Content-Type: text/plain; charset=utf-8\r\n\
              Content-Transfer-Encoding: quoted-printable\r\n\r\nyes=20=C3=A4 so=\r\nft\r\n--in--\r\n\
              --a b\r\nContent-Disposition: attachment\r\n\r\nother\r\n--a b--\r\n",
        );
        assert_eq!(mail.text.as_deref(), Some("yes ä soft\r\n"));
        assert_eq!((mail.html, mail.is_automatic), (None, false));
        assert_eq!(mail.from.as_deref(), Some("Ann@example.com"));
        assert_eq!(mail.message_id.as_deref(), Some("<1@x>"));
    }

    #[test]
    fn base64_is_read_also_when_it_is_cut_off() {
        let encoded = |body: &str| {
            read(format!("Content-Transfer-Encoding: BASE64\n\n{body}").as_bytes()).text
        };
        assert_eq!(encoded("YXBw\r\ncm92ZQ==").as_deref(), Some("approve"));
        assert_eq!(encoded("YXBwc").as_deref(), Some("app"));
        assert_eq!(encoded("5A==").as_deref(), Some("ä"));
    }

    #[test]
    fn text_of_two_bytes_a_character_is_read_in_the_order_it_says() {
        let encoded = |charset: &str, body: &str| {
            let head = format!("Content-Type: text/plain; charset=\"{charset}\"");
            read(format!("{head}\nContent-Transfer-Encoding: base64\n\n{body}").as_bytes()).text
        };
        // `ok ä`.
        for (charset, body) in [
            ("UTF-16LE", "bwBrACAA5AA="),
            ("utf-16be", "AG8AawAgAOQ="),
            ("utf-16", "AG8AawAgAOQ="),
            ("utf-16", "//5vAGsAIADkAA=="),
        ] {
            assert_eq!(encoded(charset, body).as_deref(), Some("ok ä"), "{charset}");
        }
        assert_eq!(encoded("utf-16", "AG8Aaw=").as_deref(), Some("ok"));
    }

    #[test]
    fn the_mails_that_one_answers_are_known_the_last_first() {
        let mail = read(b"In-Reply-To: <3@x>\nReferences: <1@x> (so)\n\t<2@x> <3@x>\n\nyes");
        assert_eq!(mail.answers, ["<3@x>", "<3@x>", "<2@x>", "<1@x>"]);
    }

    #[test]
    fn a_boundary_that_begins_with_that_of_the_outer_multipart_is_another() {
        let mail = read(
            b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b \r\n\
              Content-Type: multipart/related; boundary=b.REL\r\n\r\n--b.REL\r\n\
              Content-Type: text/html\r\n\r\n<p>yes\r\n--b.REL--\r\n--b--\r\n",
        );
        assert_eq!((mail.text, mail.html.as_deref()), (None, Some("<p>yes\r\n")));
    }

    /// The stack of a test is 2 MiB, as that of the threads that read mail.
    #[test]
    fn parts_and_messages_nested_thousands_deep_are_read_to_the_end() {
        let opened = |n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n");
        let multiparts: String = (0..6_000).map(opened).collect();
        let messages = "Content-Type: message/rfc822\n\n".repeat(9_000);
        let head = "Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n";
        let encoded = format!("{head}{}", BASE64.encode(&messages));
        for mail in [multiparts, messages, encoded] {
            assert_eq!(read(mail.as_bytes()).text, None);
        }
    }

    #[test]
    fn what_programs_write_is_known() {
        let automatic = |header: &str| read(format!("{header}\n\nhello").as_bytes()).is_automatic;
        for header in [
            "Auto-Submitted: auto-replied",
            "Precedence: bulk",
            "Return-Path: <>",
            "List-Id: <x>",
            "X-Autoreply: yes",
            "Content-Type: multipart/report; boundary=x",
        ] {
            assert!(automatic(header), "{header}");
        }
        for header in ["Auto-Submitted: no", "Precedence: normal", "Return-Path: <ann@x>", "X: y"] {
            assert!(!automatic(header), "{header}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_reading_ends(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            read(&bytes);
        }

        #[test]
        fn whatever_the_parts_reading_ends(
            parts in prop::collection::vec(
                prop_oneof![
                    Just("--b\r\n"), Just("--b--\n"), Just("\r\n\r\n"), Just("\n"), Just("=4"),
                    Just("Content-Type: multipart/mixed; boundary=b\r\n"), Just("=\r"),
                    Just("Content-Transfer-Encoding: quoted-printable\n"), Just(" folded\n"),
                    Just("Content-Transfer-Encoding: base64\n"), Just("YQ="), Just("From: <a@b>\n"),
                ],
                0..60,
            )
        ) {
            read(parts.concat().as_bytes());
        }
    }
}
