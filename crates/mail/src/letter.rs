//! The text of letters, byte for byte.
//!
//! Invariant: a letter contains no data of a case but the titles of its process and step, its id, the due time, the
//! words of the answer, why its plan has changed, and the elements that the definition selects. Every line is ASCII
//! and short enough for any mail server: text is encoded in base64, headers as encoded words.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use legwork_model::id::{ActivityId, AgentId};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use legwork_model::zone::Zone;
use ring::digest;

use crate::overdue;
use crate::reply::TOKEN_OPENS;
use crate::rules::Kind;
use crate::token::Token;

/// The longest title in a subject, in characters.
const TITLE_CHARS_MAX: usize = 60;
/// The longest shown value, in characters.
const VALUE_CHARS_MAX: usize = 200;
/// The length of a letter's id, in bytes.
const ID_BYTES: usize = 16;
/// So many bytes in base64 fill a line of 76.
const LINE_BYTES: usize = 57;
/// The bytes of one encoded word: with its frame it stays below 75 characters.
const WORD_BYTES: usize = 42;

/// A letter to one person.
#[derive(Clone, Debug)]
pub struct Letter<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub agent: &'a AgentId,
    pub at: Timestamp,
    pub link: Option<&'a str>,
    /// The zone of the reader, for times.
    pub zone: &'a Zone,
}

/// The item of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub activity: ActivityId,
    pub kind: Kind,
    pub process: Arc<str>,
    pub step: Arc<str>,
    pub due: Option<Timestamp>,
    /// The elements that the definition selects, by title.
    pub shown: Vec<(Arc<str>, Value)>,
    /// The words that answer it, with their titles; empty if an answer needs more than a word.
    pub words: Vec<(Arc<str>, Arc<str>)>,
}

/// A reply to a sender whose own reply changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub activity: ActivityId,
    /// Why, as a sentence without its full stop.
    pub why: String,
}

/// Why a reply changed nothing, for its sender. It names no other person, and no data of the case.
pub fn refused_because(code: &str, word: &str) -> String {
    let why = match code {
        "another_address" => "it came from another address than the one we have of you",
        "expired" => "the time to answer it by mail is over; answer it in your worklist",
        "only_html" => "your mail program sent a page and no text; send it as plain text",
        "no_word" => "there is no word of an answer in its first line",
        "answer_unknown" | "answer_unexpected" | "answer_missing" => {
            return format!(
                "`{word}` is none of the words that answer it; the mail before lists them"
            );
        }
        "not_open"
        | "iteration_over"
        | "instance_ended"
        | "already_done"
        | "idempotency_key_reused"
        | "no_such_activity"
        | "no_such_instance" => {
            "it was answered already, by you or by somebody else, or is not to be done any more"
        }
        "held_by" => "somebody else works on it",
        "instance_suspended" => "the case has been suspended; answer again when it goes on",
        "no_such_item" | "no_such_agent" => "it is not on your worklist any more",
        "missing_output" => "it takes more than a word; do it in your worklist",
        _ => return format!("it was refused ({code})"),
    };
    why.to_owned()
}

/// The same id for the same letter, however often it is sent.
pub fn message_id(what: &str, from: &str) -> String {
    let hash = digest::digest(&digest::SHA256, what.as_bytes());
    let name = hash.as_ref().iter().take(ID_BYTES);
    let name: String = name.map(|byte| format!("{byte:02x}")).collect();
    let domain = from.rsplit_once('@').map_or("legwork", |(_, domain)| domain);
    format!("<{name}@{domain}>")
}

/// Whether this can be the id of a letter from this sender.
pub fn is_message_id(id: &str, from: &str) -> bool {
    let parts = id.strip_prefix('<').and_then(|id| id.strip_suffix('>')?.split_once('@'));
    let own = from.rsplit_once('@').map(|(_, domain)| domain);
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    parts.is_some_and(|(name, domain)| {
        name.len() == 2 * ID_BYTES
            && name.chars().all(is_digit)
            && own.is_some_and(|own| own.eq_ignore_ascii_case(domain))
    })
}

impl Letter<'_> {
    /// A letter about one item. With a token it can be answered by a reply.
    pub fn about(&self, about: &About, token: Option<&Token>) -> String {
        let About { activity, kind, process, step, .. } = about;
        let (prefix, _) = opening(*kind);
        let subject = format!("{prefix}{}: {}", short(process), short(step));
        let id = message_id(&format!("{kind} {} {activity}", self.agent), self.from);
        self.message(&id, &subject, &self.text(about, token))
    }

    /// The answer to a useless reply. `reply` is the id of the reply.
    pub fn outcome(&self, outcome: &Outcome, reply: &str) -> String {
        let Outcome { activity, why } = outcome;
        let text = format!(
            "Your answer has changed nothing: {why}.\n\nCase:  {}\nStep:  {}\n",
            activity.instance, activity.step
        );
        let id = message_id(&format!("outcome {} {reply}", self.agent), self.from);
        self.message(&id, "Your answer was not used", &text)
    }

    /// The answer to a reply without a token: its subject is unknown. The letter it answers may have had a token or
    /// not.
    pub fn unquoted(&self, reply: &str) -> String {
        let text = "Your answer has changed nothing: there is no [legwork:...] in it.\n\n\
                    If the mail that you have answered ends with one, answer it once more, and leave it in your\n\
                    reply. If it does not, it cannot be answered by mail: look at your worklist.\n";
        let id = message_id(&format!("outcome {} {reply}", self.agent), self.from);
        self.message(&id, "Your answer was not used", text)
    }

    fn text(&self, about: &About, token: Option<&Token>) -> String {
        let About { activity, kind, process, step, due, shown, words } = about;
        let (_, first) = opening(*kind);
        let mut text = format!("{first}\n");
        let (process, step) = (line(process), line(step));
        text.push_str(&format!("\nProcess:  {process}\nStep:     {step}\n"));
        text.push_str(&format!("Case:     {}\n", activity.instance));
        if let Some(due) = due {
            text.push_str(&format!("Due:      {}\n", self.zone.minute_named(*due)));
        }
        if !shown.is_empty() {
            text.push('\n');
        }
        for (title, value) in shown {
            let Some(value) = self.in_a_line(value) else { continue };
            let title = format!("{}:", short(title));
            text.push_str(&format!("{title:<9} {}\n", cut(&value, VALUE_CHARS_MAX)));
        }
        if let Some(link) = self.link {
            text.push_str(&format!("\n{}\n", link.replace("{activity}", &activity.to_string())));
        }
        let Some(token) = token.filter(|_| !words.is_empty()) else {
            return text + &next_step(activity, *kind);
        };
        text.push_str("\nTo answer, reply with one of these words in the first line:\n\n");
        for (word, title) in words {
            match word == title {
                true => text.push_str(&format!("  {word}\n")),
                false => text.push_str(&format!("  {word}  ({})\n", line(title))),
            }
        }
        text.push_str(&format!(
            "\nLeave the following in your reply. Whoever has it can answer for you: do not \
             forward this mail.\n\n{TOKEN_OPENS}{}]\n",
            token.as_str()
        ));
        text
    }

    /// A value as text; `check` refuses values that cannot be shown.
    fn in_a_line(&self, value: &Value) -> Option<String> {
        match value {
            Value::Bool(value) => Some(value.to_string()),
            Value::Int(value) => Some(value.to_string()),
            Value::Decimal(value) => Some(value.to_string()),
            Value::String(value) => Some(value.clone()),
            Value::DateTime(value) => Some(self.zone.minute_named(*value)),
            Value::Json(_) | Value::File(_) => None,
        }
    }

    pub(crate) fn message(&self, id: &str, subject: &str, text: &str) -> String {
        let Self { from, to, at, .. } = self;
        let mut message = format!(
            "Date: {}\r\nFrom: Legwork <{from}>\r\nTo: <{to}>\r\nSubject: {}\r\n\
             Message-ID: {id}\r\nAuto-Submitted: auto-generated\r\nX-Auto-Response-Suppress: All\r\n\
             MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: base64\r\n\r\n",
            date(*at),
            encoded_words(subject)
        );
        let text = text.replace('\n', "\r\n");
        for line in text.as_bytes().chunks(LINE_BYTES) {
            message.push_str(&BASE64.encode(line));
            message.push_str("\r\n");
        }
        message
    }
}

/// The subject and the first sentence of a letter.
pub(crate) fn opening(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Assignment => ("", "There is something for you to do."),
        Kind::Reminder => ("Reminder: ", "This still waits for you."),
        Kind::Escalation => {
            ("Not done yet: ", "This was offered to people of yours and is not done yet.")
        }
        Kind::Revocation => (
            "Not promised any more: ",
            "A case that you started may be late: its deadline is not promised any more.",
        ),
        Kind::Promise => ("Promised again: ", "A case that you started is promised again."),
        Kind::Late | Kind::Danger => overdue::opening(kind, true),
    }
}

/// The next step after a letter that cannot be answered by a reply.
fn next_step(activity: &ActivityId, kind: Kind) -> String {
    match kind {
        Kind::Assignment | Kind::Reminder => format!(
            "\nTo see what is given and what is wanted, and how to complete it:\n\n  \
             legwork work show {activity}\n"
        ),
        Kind::Escalation | Kind::Revocation | Kind::Promise | Kind::Late | Kind::Danger => {
            format!("\nTo see how far the case is:\n\n  legwork show {}\n", activity.instance)
        }
    }
}

/// A title on one line.
pub(crate) fn line(title: &str) -> String {
    title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A title in a subject.
pub(crate) fn short(title: &str) -> String {
    cut(title, TITLE_CHARS_MAX)
}

/// The beginning of a text, on one line.
fn cut(text: &str, chars_max: usize) -> String {
    let mut short: String = line(text).chars().take(chars_max).collect();
    if text.chars().nth(chars_max).is_some() {
        short.push('…');
    }
    short
}

/// A header with any text; plain if possible.
fn encoded_words(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    if text.chars().all(is_plain) && !text.contains("=?") && text.len() < 900 {
        return text.to_owned();
    }
    let mut words = vec![String::new()];
    for c in text.chars() {
        let full = words.last().is_none_or(|word| word.len() + c.len_utf8() > WORD_BYTES);
        if full {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let encoded = words.iter().map(|word| format!("=?utf-8?B?{}?=", BASE64.encode(word)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// The date format of mails: `Mon, 16 Nov 2026 08:23:41 +0000`.
fn date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // 1970-01-01T00:00:00.000Z; outside of its range nothing is sent.
    let text = at.to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse().unwrap_or(1usize).clamp(1, 12);
    let day = usize::try_from(at.0.div_euclid(86_400_000).rem_euclid(7)).unwrap_or(0);
    let (day, month) = (DAYS[day], MONTHS[month - 1]);
    format!("{day}, {} {month} {} {} +0000", part(8, 10), part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mime;
    use crate::reply::read;

    fn about(kind: Kind, words: &[(&str, &str)]) -> About {
        About {
            activity: "inst_01ARZ3NDEKTSV4RRFFQ69G5FAV:approve".parse().unwrap(),
            kind,
            process: "Loan".into(),
            step: "Prüfung des Antrags".into(),
            due: None,
            shown: Vec::new(),
            words: words.iter().map(|(word, title)| ((*word).into(), (*title).into())).collect(),
        }
    }

    fn shown(about: &About, token: Option<&Token>) -> String {
        let letter = Letter {
            from: "legwork@example.com",
            to: "ann@example.com",
            agent: &AgentId::from("ann"),
            at: Timestamp(1_794_817_421_000),
            link: Some("https://legwork.example/work/{activity}"),
            zone: &Zone::named("Europe/Berlin").unwrap(),
        };
        let message = letter.about(about, token);
        assert!(message.lines().all(|line| line.len() <= 78 && line.is_ascii()), "{message}");
        let mail = mime::read(message.as_bytes());
        let head = message.split_once("\r\n\r\n").unwrap().0.replace("\r\n", "\n");
        format!("{head}\n\n{}", mail.text.unwrap())
    }

    #[test]
    fn what_the_definition_chooses_is_shown_on_one_line_each() {
        let text = |text: &str| Value::String(text.to_owned());
        let about = About {
            shown: vec![
                ("Amount".into(), Value::Int(1250)),
                ("Due date".into(), Value::DateTime(Timestamp(1_794_817_421_000))),
                ("Reason of the payment".into(), text("two\r\nlines")),
                ("Note".into(), text(&"ä".repeat(300))),
            ],
            ..about(Kind::Assignment, &[("done", "done")])
        };
        let letter = shown(&about, Some(&Token::found("TOKEN".to_owned()))).replace('\r', "");
        let due = Zone::named("Europe/Berlin").unwrap().minute_named(Timestamp(1_794_817_421_000));
        let lines = format!(
            "\n\nAmount:   1250\nDue date: {due}\nReason of the payment: two  lines\nNote:     {}…\n",
            "ä".repeat(200)
        );
        assert!(letter.contains(&lines), "{letter}");
    }

    #[test]
    fn a_letter_tells_what_is_to_be_done_and_how_to_answer() {
        let words = [("approve", "Grant it"), ("refuse", "refuse")];
        let token = Token::found("TOKEN".to_owned());
        insta::assert_snapshot!(shown(&about(Kind::Assignment, &words), Some(&token)), @r#"
            Date: Mon, 16 Nov 2026 08:23:41 +0000
            From: Legwork <legwork@example.com>
            To: <ann@example.com>
            Subject: =?utf-8?B?TG9hbjogUHLDvGZ1bmcgZGVzIEFudHJhZ3M=?=
            Message-ID: <ff735e2a0c90d05b6c1c70ebb89cea7f@example.com>
            Auto-Submitted: auto-generated
            X-Auto-Response-Suppress: All
            MIME-Version: 1.0
            Content-Type: text/plain; charset=utf-8
            Content-Transfer-Encoding: base64

            There is something for you to do.

            Process:  Loan
            Step:     Prüfung des Antrags
            Case:     inst_01ARZ3NDEKTSV4RRFFQ69G5FAV

            https://legwork.example/work/inst_01ARZ3NDEKTSV4RRFFQ69G5FAV:approve

            To answer, reply with one of these words in the first line:

              approve  (Grant it)
              refuse

            Leave the following in your reply. Whoever has it can answer for you: do not forward this mail.

            [legwork:TOKEN]
            "#);
    }

    #[test]
    fn a_due_time_is_told() {
        let due = About { due: Some(Timestamp(0)), ..about(Kind::Reminder, &[]) };
        assert!(shown(&due, None).contains("\nDue:      1970-01-01 01:00 (Europe/Berlin)\r\n"));
    }

    #[test]
    fn without_a_token_nobody_is_told_to_answer() {
        insta::assert_snapshot!(shown(&about(Kind::Escalation, &[]), None), @r#"
            Date: Mon, 16 Nov 2026 08:23:41 +0000
            From: Legwork <legwork@example.com>
            To: <ann@example.com>
            Subject: =?utf-8?B?Tm90IGRvbmUgeWV0OiBMb2FuOiBQcsO8ZnVuZyBkZXMgQW50cmFncw==?=
            Message-ID: <3170309d496ac2ff2c4fef7683e9bc6f@example.com>
            Auto-Submitted: auto-generated
            X-Auto-Response-Suppress: All
            MIME-Version: 1.0
            Content-Type: text/plain; charset=utf-8
            Content-Transfer-Encoding: base64

            This was offered to people of yours and is not done yet.

            Process:  Loan
            Step:     Prüfung des Antrags
            Case:     inst_01ARZ3NDEKTSV4RRFFQ69G5FAV

            https://legwork.example/work/inst_01ARZ3NDEKTSV4RRFFQ69G5FAV:approve

            To see how far the case is:

              legwork show inst_01ARZ3NDEKTSV4RRFFQ69G5FAV
            "#);
    }

    #[test]
    fn a_letter_that_no_word_answers_says_what_to_do_next() {
        let item = "inst_01ARZ3NDEKTSV4RRFFQ69G5FAV:approve";
        for kind in [Kind::Assignment, Kind::Reminder] {
            let text = shown(&about(kind, &[]), None);
            assert!(text.contains(&format!("\n  legwork work show {item}\r\n")), "{text}");
        }
        // A manager need not have the item on their list.
        let text = shown(&about(Kind::Escalation, &[]), None);
        assert!(text.contains("\n  legwork show inst_01ARZ3NDEKTSV4RRFFQ69G5FAV\r\n"), "{text}");
        let (token, words) = (Token::found("TOKEN".to_owned()), [("done", "done")]);
        let text = shown(&about(Kind::Assignment, &words), Some(&token));
        assert!(!text.contains("legwork work show"), "{text}");
    }

    #[test]
    fn the_same_letter_has_the_same_id_and_another_one_another() {
        let id = |what: &str| message_id(what, "legwork@example.com");
        assert_eq!(id("assignment ann x"), id("assignment ann x"));
        assert_ne!(id("assignment ann x"), id("reminder ann x"));
        assert!(id("x").ends_with("@example.com>"));
        assert!(is_message_id(&id("x"), "legwork@EXAMPLE.com"));
        for other in
            [id("x").replace(".com", ".org"), id("x").replacen('<', "<a", 1), "<1@x>".into()]
        {
            assert!(!is_message_id(&other, "legwork@example.com"), "{other}");
        }
    }

    #[test]
    fn a_letter_of_ours_is_known_as_written_by_a_program() {
        let token = Token::found("TOKEN".to_owned());
        let (agent, at) = (AgentId::from("ann"), Timestamp(0));
        let (from, to) = ("legwork@example.com", "ann@example.com");
        let letter = Letter { from, to, agent: &agent, at, link: None, zone: &Zone::UTC };
        let sent = letter.about(&about(Kind::Reminder, &[("done", "done")]), Some(&token));
        assert!(read(sent.as_bytes()).is_err());
    }

    #[test]
    fn the_guide_shows_a_letter_as_it_is() {
        let token = Token::found("TOKEN".to_owned());
        let words = [("grant", "Grant the loan"), ("refuse", "refuse")];
        let shown = shown(
            &About { step: "Approve it".into(), ..about(Kind::Assignment, &words) },
            Some(&token),
        );
        let shown = shown.replace("legwork.example/", "legwork.example.com/").replace("\r\n", "\n");
        let (head, text) = shown.split_once("\n\n").unwrap();
        let subject = head.lines().find(|line| line.starts_with("Subject")).unwrap();
        let guide = include_str!("../../../docs/guide/mail.md");
        assert!(guide.contains(&format!("```text\n{subject}\n\n{text}```\n")), "{shown}");
    }

    #[test]
    fn a_refusal_names_nobody_else() {
        assert_eq!(refused_because("held_by", "approve"), "somebody else works on it");
        assert!(refused_because("answer_unknown", "yep").contains("`yep`"));
        assert_eq!(refused_because("strange", ""), "it was refused (strange)");
    }

    #[test]
    fn dates_are_those_of_mails() {
        assert_eq!(date(Timestamp(0)), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(date(Timestamp(1_794_817_421_000)), "Mon, 16 Nov 2026 08:23:41 +0000");
        assert!(date(Timestamp(i64::MAX)).ends_with(" +0000"));
    }

    #[test]
    fn a_subject_cannot_begin_another_header() {
        let mut bad = about(Kind::Assignment, &[]);
        bad.process = "x\r\nBcc: eve@example.com".into();
        let head = shown(&bad, None);
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
    }
}
