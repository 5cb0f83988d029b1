//! Parses a reply: the letter it answers, and the word of the answer.
//!
//! Invariant: quoted text never answers. A word counts only together with a token; with several tokens
//! in a long thread, the server with the key decides which one counts.

use ring::digest;

use crate::mime;
use crate::token::{TOKEN_CHARS_MAX, Token};

/// The word that answers a step that is no decision.
pub const DONE: &str = "done";
/// The characters before a token; a `]` follows it.
pub(crate) const TOKEN_OPENS: &str = "[legwork:";
/// The most tokens: a thread may quote several letters.
const TOKENS_MAX: usize = 8;
/// The most lines of an attribution.
const ATTRIBUTION_LINES_MAX: usize = 3;
/// The longest word: as long as a name.
const WORD_CHARS_MAX: usize = 64;

/// A reply, or what may be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The claimed sender address.
    pub from: Option<String>,
    /// The id of this mail.
    pub id: String,
    /// In the order of the text: the first genuine one counts.
    pub tokens: Vec<Token>,
    pub word: Word,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// In lower case.
    Said(String),
    /// There is text, but all of it is quoted.
    Nothing,
    /// There is no text, only HTML.
    OnlyHtml,
}

/// A reply without the quoted letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unquoted {
    pub from: String,
    pub id: String,
    /// The ids of the mails it answers; at least one.
    pub answers: Vec<String>,
}

/// Why a mail is not a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    #[error("a program wrote it")]
    Automatic,
    #[error("it names no letter of ours")]
    NoToken,
    #[error("it has nothing of the letter that it answers")]
    Unquoted(Unquoted),
}

impl Unquoted {
    /// The id of this mail, as for a reply.
    pub fn key(&self) -> String {
        fingerprint(self.id.as_bytes())
    }
}

impl Reply {
    /// An idempotency key: the same for the same mail.
    pub fn key(&self) -> String {
        fingerprint(self.id.as_bytes())
    }
}

pub fn read(bytes: &[u8]) -> Result<Reply, Unread> {
    let mail = mime::read(bytes);
    if mail.is_automatic {
        return Err(Unread::Automatic);
    }
    let (text, word) = match (&mail.text, &mail.html) {
        (Some(text), _) => (text.clone(), word(text).map_or(Word::Nothing, Word::Said)),
        (None, Some(html)) => (without_tags(html), Word::OnlyHtml),
        (None, None) => (String::new(), Word::Nothing),
    };
    let (tokens, from, answers) = (tokens(&text), mail.from, mail.answers);
    let named = mail.message_id.filter(|id| !id.is_empty());
    let id = named.unwrap_or_else(|| fingerprint(bytes));
    match from {
        _ if !tokens.is_empty() => Ok(Reply { from, id, tokens, word }),
        Some(from) if !answers.is_empty() => Err(Unread::Unquoted(Unquoted { from, id, answers })),
        Some(_) | None => Err(Unread::NoToken),
    }
}

/// The first word of the new text.
fn word(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut place = 0;
    while let Some(line) = lines.get(place) {
        let passed_over = match line.is_empty() || is_quoted(line) {
            true => 1,
            false => attribution(&lines[place..]),
        };
        if passed_over > 0 {
            place += passed_over;
            continue;
        }
        // Older text begins here, or a signature.
        if *line == "--" || line.starts_with("---") || line.starts_with("___") {
            return None;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let first = line.split_whitespace().next().unwrap_or_default();
        let first = first.trim_matches(|c| !is_plain(c));
        let is_word = !first.is_empty() && first.len() <= WORD_CHARS_MAX;
        let is_word = is_word && first.chars().all(is_plain);
        return is_word.then(|| first.to_ascii_lowercase());
    }
    None
}

/// The number of lines that attribute the following quotation: "Ann wrote on Monday:", wrapped where the
/// day and the address make it long. Lines without either are the sender's own text.
fn attribution(lines: &[&str]) -> usize {
    let own = lines.iter().take_while(|line| !line.is_empty() && !is_quoted(line)).count();
    let mut after = lines[own..].iter().filter(|line| !line.is_empty());
    let has_address = |line: &&str| line.contains(['@', '<']);
    let has_day = |line: &str| line.contains(' ') && line.contains(|c: char| c.is_ascii_digit());
    let is_wrapped = match &lines[..own] {
        [_] => true,
        [first, rest @ ..] => has_address(first) || has_day(first) && rest.iter().any(has_address),
        [] => false,
    };
    let is_one = (1..=ATTRIBUTION_LINES_MAX).contains(&own)
        && lines[own - 1].ends_with(':')
        && after.next().is_some_and(|next| is_quoted(next));
    if is_one && is_wrapped { own } else { 0 }
}

fn is_quoted(line: &str) -> bool {
    line.starts_with(['>', '|'])
}

/// Finds tokens also if they were quoted and wrapped: skipping other characters loses no character of a
/// token.
fn tokens(text: &str) -> Vec<Token> {
    let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(place) = rest.find(TOKEN_OPENS) {
        rest = &rest[place + TOKEN_OPENS.len()..];
        let until = rest.chars().take(2 * TOKEN_CHARS_MAX).take_while(|c| *c != ']' && *c != '[');
        let token: String = until.filter(is_part).collect();
        let token = Token::found(token);
        if tokens.len() < TOKENS_MAX && !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    tokens
}

fn without_tags(html: &str) -> String {
    let mut is_tag = false;
    let outside = |c: &char| match c {
        '<' => {
            is_tag = true;
            false
        }
        '>' => !std::mem::replace(&mut is_tag, false),
        _ => !is_tag,
    };
    html.chars().filter(outside).collect()
}

fn fingerprint(bytes: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str) -> Result<Reply, Unread> {
        read(format!("From: Ann <ann@x>\nMessage-ID: <7@x>\n\n{text}").as_bytes())
    }

    fn check(text: &str, expected: &str) {
        let reply = plain(&format!("{text}\n\n> [legwork:AB]")).unwrap();
        let said = match reply.word {
            Word::Said(word) => word,
            Word::Nothing => "nothing".to_owned(),
            Word::OnlyHtml => "html".to_owned(),
        };
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn the_first_word_that_is_new_answers() {
        check("approve", "approve");
        check("\n\n  Approve!\nrefuse", "approve");
        check("> approve\n> refuse\n\nrefuse, sorry", "refuse");
        check("On Monday Legwork wrote:\n> approve\ndone.", "done");
        check("\"part_2-b\"", "part_2-b");
        // As wrapped by some mail programs.
        let wrapped = "On Mon, 16 Nov 2026 at 08:23, Legwork <legwork@example.com>\nwrote:\n";
        check(&format!("{wrapped}\n> approve\n\nrefuse"), "refuse");
        check(&format!("approve\n{wrapped}> refuse"), "approve");
        check(&format!("option2\n{wrapped}> refuse"), "option2");
        check("option2\nOn Monday Legwork wrote:\n> refuse", "option2");
        check("approve, 3 of 4\nOn Monday Legwork wrote:\n> refuse", "approve");
        check(
            "Am 16.11. um 08:23 Uhr schrieb\nLegwork <\nlegwork@example.com>:\n> a\ndone",
            "done",
        );
        check("approve, thanks\nOn Monday Legwork wrote:\n> refuse", "approve");
        check("On Monday:\nrefuse", "on");
        check("> approve", "nothing");
        check("-- \nAnn, approve", "nothing");
        check("-----Original Message-----\napprove", "nothing");
        check("________________________________\nFrom: Legwork\napprove", "nothing");
        check("приятно", "nothing");
        check("…", "nothing");
    }

    #[test]
    fn a_token_is_found_however_it_was_quoted_and_wrapped() {
        let reply = plain(
            "approve\n\nOn Monday:\n> > To answer\n> > [legwork:ABCD\n> > EF-_\n> >  12]\n\
             > > > [legwork:OLD] [legwork:ABCDEF-_12]",
        );
        let tokens: Vec<String> =
            reply.unwrap().tokens.iter().map(|token| token.as_str().to_owned()).collect();
        assert_eq!(tokens, ["ABCDEF-_12", "OLD"]);
        let long = format!("yes\n{}> [legwork:AB]", "> on and on\n".repeat(5_000));
        assert_eq!(plain(&long).unwrap().tokens.len(), 1);
        assert_eq!(plain("approve"), Err(Unread::NoToken));
    }

    #[test]
    fn a_page_alone_is_no_answer_but_its_letter_is_known() {
        let reply = read(
            b"Content-Type: text/html\n\n<p>approve</p><blockquote>[legwork:AB<br>\nCD]</blockquote>",
        )
        .unwrap();
        assert_eq!((reply.word, reply.tokens[0].as_str()), (Word::OnlyHtml, "ABCD"));
        assert_eq!(reply.id.len(), 64);
    }

    #[test]
    fn an_answer_without_its_letter_names_the_letter() {
        let head = "From: Ann <ann@x>\nMessage-ID: <7@x>\nIn-Reply-To: <1@lw>\n";
        let Err(Unread::Unquoted(unquoted)) = read(format!("{head}\nok").as_bytes()) else {
            panic!("it is not known")
        };
        let Unquoted { from, id, answers } = &unquoted;
        assert_eq!((&**from, &**id, &answers[..]), ("ann@x", "<7@x>", &["<1@lw>".to_owned()][..]));
        let reply = read(format!("{head}\nok [legwork:AB]").as_bytes()).unwrap();
        assert_eq!(reply.key(), unquoted.key());
        let automatic = format!("Precedence: bulk\n{head}\nok");
        assert_eq!(read(automatic.as_bytes()), Err(Unread::Automatic));
        assert_eq!(read(b"In-Reply-To: <1@lw>\n\nok"), Err(Unread::NoToken));
    }

    #[test]
    fn what_a_program_wrote_is_no_answer() {
        let mail = b"Auto-Submitted: auto-replied\n\napprove\n[legwork:AB]";
        assert_eq!(read(mail), Err(Unread::Automatic));
    }

    proptest! {
        #[test]
        fn whatever_the_text_reading_ends(text in "(?s).{0,500}", tail in "[\\[\\]legwork:<>= \n-]{0,200}") {
            drop(plain(&format!("{text}{tail}")));
            drop(read(format!("Content-Type: text/html\n\n{tail}{text}").as_bytes()));
        }

        #[test]
        fn a_quoted_word_never_answers(word in "[a-z]{1,12}", marks in "[>|][> ]{0,4}") {
            prop_assert_eq!(super::word(&format!("{marks}{word}\n{marks} {word}")), None);
        }

        #[test]
        fn who_wrote_what_is_quoted_never_answers(
            day in "[A-Z][a-z]{1,9},? [0-9]{1,2}",
            rest in "( |\n)[a-z]{2,9} <[a-z]{1,9}@[a-z]{1,9}>(( |\n)[a-z]{2,9})?",
            gap in "\n{1,3}",
            word in "[a-z]{1,12}",
        ) {
            let quoted = format!("{day}{rest}:{gap}> {word}\n> {day}");
            prop_assert_eq!(super::word(&quoted), None);
            prop_assert_eq!(super::word(&format!("{quoted}\n\n{word}")), Some(word.clone()));
            prop_assert_eq!(super::word(&format!("{word}\n{quoted}\n\nother")), Some(word));
        }
    }
}
