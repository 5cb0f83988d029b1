//! Reads the file of `--mail` and reports all mistakes.
//!
//! Invariant: reading ends quickly and never panics, whatever the text. A password is refused here:
//! files are copied and shown.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::address::is_address;
use legwork_model::finding::{Finding, Rule, Span};
use legwork_model::time::parse_duration;
use legwork_model::yaml::fields::{self, Fields, TITLE_LEN_MAX, quote};
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Node, ScalarKind};

use crate::settings::{Inbox, Password, Reminder, Settings, Smtp, Tell, Tls};

const FIELDS: [&str; 7] = ["from", "smtp", "inbox", "link", "key_file", "tell", "answer_within"];
const SMTP_FIELDS: [&str; 7] =
    ["host", "port", "tls", "user", "password_file", "password_env", "authority"];
const INBOX_FIELDS: [&str; 8] =
    ["host", "port", "tls", "user", "password_file", "password_env", "authority", "every"];
const TELL_FIELDS: [&str; 4] = ["assignment", "reminder", "escalation", "promise"];
const REMINDER_FIELDS: [&str; 2] = ["after", "before_due"];
const ESCALATION_FIELDS: [&str; 1] = ["after"];

const EVERY_DEFAULT: Duration = Duration::from_secs(30);
const EVERY_MIN: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

impl Settings {
    /// Reads settings and reports all mistakes, in the order of the text. Without a finding there
    /// are settings.
    pub fn parse(source: &str) -> (Option<Self>, Vec<Finding>) {
        let mut reading = Reading(Report::default());
        if source.trim().is_empty() {
            let hint = "begin it with `from: ` and the address that letters come from";
            reading.0.error(Span::default(), Rule::Y1, "the file is empty", hint);
            return (None, reading.0.into_findings());
        }
        let settings = tree::read(source, &mut reading.0).and_then(|root| reading.settings(&root));
        let settings = settings.filter(|_| !reading.0.has_errors());
        (settings, reading.0.into_findings())
    }
}

struct Reading(Report);

/// The common part of SMTP and POP3.
struct Place {
    host: Arc<str>,
    port: u16,
    tls: Tls,
    login: Option<(Arc<str>, Password)>,
    authority: Option<Arc<str>>,
}

impl Reading {
    fn settings(&mut self, root: &Node) -> Option<Settings> {
        let fields = Fields::of(root, "the mail settings", &mut self.0)?;
        fields.refuse_unknown(&FIELDS, &mut self.0);
        let hint = "write `from: ` and the address that letters come from";
        let from = fields.required("from", hint, &mut self.0);
        let from = from.and_then(|node| self.address(node));
        let hint = "write `smtp:` and below it `host: `, where letters are given to";
        let smtp = fields.required("smtp", hint, &mut self.0).and_then(|node| self.smtp(node));
        let inbox = fields.value("inbox").map(|node| self.inbox(node));
        let settings = Settings {
            link: self.text(&fields, "link"),
            key_file: self.text(&fields, "key_file"),
            tell: self.tell(&fields),
            // A missing field was reported.
            from: from?,
            smtp: smtp?,
            inbox: match inbox {
                Some(inbox) => Some(inbox?),
                None => None,
            },
        };
        Some(settings)
    }

    fn smtp(&mut self, node: &Node) -> Option<Smtp> {
        let fields = Fields::of(node, "`smtp`", &mut self.0)?;
        fields.refuse_unknown(&SMTP_FIELDS, &mut self.0);
        let ports = |tls| match tls {
            Tls::None => 25,
            Tls::Starttls => 587,
            Tls::Implicit => 465,
        };
        let Place { host, port, tls, login, authority } = self.place(&fields, ports)?;
        Some(Smtp { host, port, tls, login, authority })
    }

    fn inbox(&mut self, node: &Node) -> Option<Inbox> {
        let fields = Fields::of(node, "`inbox`", &mut self.0)?;
        fields.refuse_unknown(&INBOX_FIELDS, &mut self.0);
        let ports = |tls| match tls {
            Tls::None | Tls::Starttls => 110,
            Tls::Implicit => 995,
        };
        let every = self.duration(&fields, "every", EVERY_MIN..=DAY).unwrap_or(EVERY_DEFAULT);
        fields.required("user", "write `user: ` and whose inbox it is", &mut self.0);
        let Place { host, port, tls, login, authority } = self.place(&fields, ports)?;
        let (user, password) = login?;
        Some(Inbox { host, port, tls, user, password, authority, every })
    }

    fn place(&mut self, fields: &Fields<'_>, port_of: impl Fn(Tls) -> u16) -> Option<Place> {
        let what = fields.what().to_owned();
        let host = fields.required("host", "write `host: ` and its name", &mut self.0);
        let host = host.and_then(|node| {
            let text = fields::text(node, &format!("`host` of {what}"), 253, &mut self.0)?;
            let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
            if !text.value.chars().all(is_host) {
                let message = format!("`host` of {what} cannot be {}", quote(text.value));
                self.0.error(text.span, Rule::Y2, message, "write a name or an address alone");
                return None;
            }
            Some(Arc::<str>::from(text.value))
        });
        let tls = self.tls(fields)?;
        let port = match fields.value("port") {
            Some(node) => {
                let port =
                    fields::number(node, &format!("`port` of {what}"), 1..=65_535, &mut self.0);
                u16::try_from(port?).ok()?
            }
            None => port_of(tls),
        };
        let login = self.login(fields)?;
        let host = host?;
        if login.is_some() && tls == Tls::None && !is_here(&host) {
            let message = format!("{what} would send a password for everybody on the way to read");
            let hint = "write `tls: starttls` or `tls: implicit`; without, it is sent to this machine alone";
            self.0.error(fields.span(), Rule::Y2, message, hint);
        }
        Some(Place { host, port, tls, login, authority: self.text(fields, "authority") })
    }

    fn tls(&mut self, fields: &Fields<'_>) -> Option<Tls> {
        let what = format!("`tls` of {}", fields.what());
        let hint = "write `tls: starttls`, `tls: implicit` or `tls: none`";
        let node = fields.required("tls", hint, &mut self.0)?;
        let text = fields::text(node, &what, TITLE_LEN_MAX, &mut self.0)?;
        let tls = match text.value {
            "none" => Some(Tls::None),
            "starttls" => Some(Tls::Starttls),
            "implicit" => Some(Tls::Implicit),
            _ => None,
        };
        if tls.is_none() {
            let message = format!("{what} cannot be {}", quote(text.value));
            self.0.error(text.span, Rule::Y2, message, hint);
        }
        tls
    }

    /// `None` if something is wrong with it.
    #[expect(clippy::option_option, reason = "wrong, none, or one")]
    fn login(&mut self, fields: &Fields<'_>) -> Option<Option<(Arc<str>, Password)>> {
        let what = fields.what().to_owned();
        let file = self.text(fields, "password_file").map(Password::File);
        let variable = self.text(fields, "password_env").map(Password::Environment);
        let user = self.text(fields, "user");
        let said = [fields.value("password_file"), fields.value("password_env")];
        match (user, file, variable) {
            (Some(user), Some(password), None) | (Some(user), None, Some(password)) => {
                Some(Some((user, password)))
            }
            (None, None, None) if fields.value("user").is_none() && said == [None, None] => {
                Some(None)
            }
            (Some(_) | None, Some(_) | None, Some(_) | None) => {
                let message = format!("{what} needs `user` and one place of its password");
                let hint = "write `user: ` with `password_file: ` or `password_env: `";
                self.0.error(fields.span(), Rule::Y2, message, hint);
                None
            }
        }
    }

    fn tell(&mut self, fields: &Fields<'_>) -> Tell {
        let mut tell = Tell::default();
        if let Some(within) =
            self.duration(fields, "answer_within", Duration::from_secs(60)..=365 * DAY)
        {
            tell.answer_within = within;
        }
        let Some(node) = fields.value("tell") else { return tell };
        let Some(fields) = Fields::of(node, "`tell`", &mut self.0) else { return tell };
        fields.refuse_unknown(&TELL_FIELDS, &mut self.0);
        if let Some(node) = fields.value("assignment") {
            tell.assignment = self.truth(node, "`assignment` of `tell`").unwrap_or(true);
        }
        if let Some(node) = fields.value("promise") {
            tell.promise = self.truth(node, "`promise` of `tell`").unwrap_or(true);
        }
        let length = Duration::from_secs(1)..=365 * DAY;
        let inner = fields.value("reminder").and_then(|node| {
            let fields = Fields::of(node, "`reminder`", &mut self.0)?;
            fields.refuse_unknown(&REMINDER_FIELDS, &mut self.0);
            Some(fields)
        });
        tell.reminder = inner.map(|inner| Reminder {
            after: self.duration(&inner, "after", length.clone()),
            before_due: self.duration(&inner, "before_due", length.clone()),
        });
        let inner = fields.value("escalation").and_then(|node| {
            let fields = Fields::of(node, "`escalation`", &mut self.0)?;
            fields.refuse_unknown(&ESCALATION_FIELDS, &mut self.0);
            fields.required("after", "write `after: 2d`", &mut self.0);
            Some(fields)
        });
        tell.escalation = inner.and_then(|inner| self.duration(&inner, "after", length));
        tell
    }

    fn address(&mut self, node: &Node) -> Option<Arc<str>> {
        let text = fields::text(node, "`from`", TITLE_LEN_MAX, &mut self.0)?;
        if is_address(text.value) {
            return Some(Arc::from(text.value));
        }
        let message = format!("`from` cannot be {}", quote(text.value));
        let hint = "write an address alone, such as legwork@example.com";
        self.0.error(text.span, Rule::Y2, message, hint);
        None
    }

    fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<Arc<str>> {
        let what = format!("`{key}` of {}", fields.what());
        fields.value(key).and_then(|node| fields::title(node, &what, &mut self.0)).map(Arc::from)
    }

    fn truth(&mut self, node: &Node, what: &str) -> Option<bool> {
        let scalar = node.scalar().filter(|scalar| scalar.kind == ScalarKind::Bool);
        if scalar.is_none() {
            let message = format!("{what} must be true or false, not {}", node.what());
            self.0.error(node.span, Rule::Y2, message, "write `true` or `false`");
        }
        scalar.map(|scalar| scalar.text.eq_ignore_ascii_case("true"))
    }

    fn duration(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let what = format!("`{key}` of {}", fields.what());
        let text = fields::text(fields.value(key)?, &what, TITLE_LEN_MAX, &mut self.0)?;
        let length = parse_duration(text.value).ok().filter(|length| range.contains(length));
        if length.is_none() {
            let [least, most] =
                [range.start(), range.end()].map(|end| legwork_model::time::format_duration(*end));
            let message = format!("{what} cannot be {}", quote(text.value));
            let hint =
                format!("write a length of time from {least} to {most}, such as 30s, 8h or 2d");
            self.0.error(text.span, Rule::Y2, message, hint);
        }
        length
    }
}

/// Whether a connection to this host stays on this machine.
fn is_here(host: &str) -> bool {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    host.eq_ignore_ascii_case("localhost")
        || host == "::1"
        || host.starts_with("127.") && host.chars().all(is_number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = "\
from: legwork@example.com
smtp: { host: smtp.example.com, tls: starttls, user: lw, password_file: /etc/lw/pass }
inbox:
  host: pop.example.com
  tls: implicit
  user: lw
  password_env: LW_PASS
  every: 10s
  authority: ca.pem
link: https://legwork.example.com/{activity}
key_file: /etc/lw/mail.key
answer_within: 7d
tell:
  assignment: false
  reminder: { after: 1d, before_due: 4h }
  escalation: { after: 2d }
  promise: false
";

    #[test]
    fn a_whole_file_is_understood() {
        let (settings, findings) = Settings::parse(WHOLE);
        assert_eq!(findings, []);
        insta::assert_debug_snapshot!(settings.unwrap(), @r#"
            Settings {
                from: "legwork@example.com",
                smtp: Smtp {
                    host: "smtp.example.com",
                    port: 587,
                    tls: Starttls,
                    login: Some(
                        (
                            "lw",
                            File(
                                "/etc/lw/pass",
                            ),
                        ),
                    ),
                    authority: None,
                },
                inbox: Some(
                    Inbox {
                        host: "pop.example.com",
                        port: 995,
                        tls: Implicit,
                        user: "lw",
                        password: Environment(
                            "LW_PASS",
                        ),
                        authority: Some(
                            "ca.pem",
                        ),
                        every: 10s,
                    },
                ),
                link: Some(
                    "https://legwork.example.com/{activity}",
                ),
                key_file: Some(
                    "/etc/lw/mail.key",
                ),
                tell: Tell {
                    assignment: false,
                    reminder: Some(
                        Reminder {
                            after: Some(
                                86400s,
                            ),
                            before_due: Some(
                                14400s,
                            ),
                        },
                    ),
                    escalation: Some(
                        172800s,
                    ),
                    promise: false,
                    answer_within: 604800s,
                    actors_max: 20,
                    letters_an_hour_max: 10,
                },
            }
            "#);
    }

    #[test]
    fn the_file_of_the_guide_is_understood() {
        let guide = include_str!("../../../docs/guide/mail.md");
        let file = guide.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
        let (settings, findings) = Settings::parse(file);
        assert_eq!(findings, []);
        let settings = settings.unwrap();
        assert_eq!((settings.smtp.port, settings.tell.escalation), (587, Some(2 * DAY)));
    }

    #[test]
    fn what_is_said_to_this_machine_stays_here() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1"] {
            assert!(is_here(host), "{host}");
        }
        for host in ["mx", "127.example.com", "128.0.0.1", "localhost.example.com", "::2"] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn a_short_file_tells_assignments_alone() {
        let short = "from: a@b\nsmtp: { host: localhost, tls: none }";
        let (settings, findings) = Settings::parse(short);
        assert_eq!(findings, []);
        let settings = settings.unwrap();
        assert_eq!((settings.tell, settings.smtp.port), (Tell::default(), 25));
        assert_eq!((settings.inbox, settings.smtp.login), (None, None));
    }

    /// The mistakes, as `line: message`.
    fn wrong(source: &str) -> String {
        let (settings, findings) = Settings::parse(source);
        assert_eq!(settings, None, "{source}");
        let told = findings
            .iter()
            .map(|finding| format!("{}: {}; {}", finding.span.line, finding.message, finding.hint));
        told.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_mend_it() {
        let all = [
            "",
            "from: me\nsmtp: { hots: x, tls: tsl }",
            "from: a@b\nsmtp: { host: x y, tls: none, port: 0 }\ntell: { asignment: true }",
            "from: a@b\nsmtp: { host: mx, tls: none, user: u, password_env: P }",
            "from: a@b\nsmtp: { host: mx, tls: implicit, user: u, password: secret }",
            "from: a@b\nsmtp: { host: mx, tls: implicit, password_env: P }",
            "from: a@b\nsmtp: { host: mx, tls: implicit }\ninbox: { host: mx, tls: implicit, every: 1ms }",
            "from: a@b\nsmtp: { host: mx, tls: none }\ntell: { assignment: 1, reminder: 1d, escalation: {} }",
        ];
        let told: Vec<String> = all.iter().map(|source| wrong(source)).collect();
        insta::assert_snapshot!(told.join("\n---\n"), @r#"
            0: the file is empty; begin it with `from: ` and the address that letters come from
            ---
            1: `from` cannot be `me`; write an address alone, such as legwork@example.com
            2: `smtp` has no field `hots`; did you mean `host`?
            2: `tls` of `smtp` cannot be `tsl`; write `tls: starttls`, `tls: implicit` or `tls: none`
            ---
            2: `host` of `smtp` cannot be `x y`; write a name or an address alone
            2: `port` of `smtp` cannot be `0`; write a whole number from 1 to 65535
            3: `tell` has no field `asignment`; did you mean `assignment`?
            ---
            2: `smtp` would send a password for everybody on the way to read; write `tls: starttls` or `tls: implicit`; without, it is sent to this machine alone
            ---
            2: `smtp` needs `user` and one place of its password; write `user: ` with `password_file: ` or `password_env: `
            2: `smtp` has no field `password`; fields of `smtp` are `host`, `port`, `tls`, `user`, `password_file`, `password_env` and `authority`
            ---
            2: `smtp` needs `user` and one place of its password; write `user: ` with `password_file: ` or `password_env: `
            ---
            3: `inbox` needs `user`; write `user: ` and whose inbox it is
            3: `every` of `inbox` cannot be `1ms`; write a length of time from 1s to 1d, such as 30s, 8h or 2d
            ---
            3: `assignment` of `tell` must be true or false, not a number; write `true` or `false`
            3: `reminder` must be a mapping of fields, not text; write `field: value`, one on each line
            3: `escalation` needs `after`; write `after: 2d`
            "#);
    }

    proptest! {
        #[test]
        fn whatever_the_text_reading_ends(cut in 0..WHOLE.len(), noise in "[a-z:{}\\[\\], \n\"'-]{0,40}") {
            Settings::parse(&format!("{}{noise}{}", &WHOLE[..cut], &WHOLE[cut..]));
        }
    }
}
