//! The guide's tables of error codes, limits and metrics, compared with the sources.
//!
//! Every refusal is created by one of a few functions, so the codes and their statuses can be read
//! off their calls. A call whose code is not visible there fails the test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a wrong assumption is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const GUIDE: &str = "docs/guide/reference.md";

/// The functions that create refusals, and their constant statuses.
const MAKERS: [(&str, Option<&str>); 8] = [
    ("Refusal::new(", None),
    ("Refusal::not_found(", Some("404")),
    ("Refused::new(", None),
    ("Refused::later(", None),
    ("Refused::bad_request(", Some("400")),
    ("Refused::unavailable(", Some("503")),
    ("Self::new(Kind::", None),
    ("Self::new(StatusCode::", None),
];

/// Names of statuses, and the kinds of a site's refusals that become them.
const STATUSES: [(&str, &str, &str); 14] = [
    ("400", "BAD_REQUEST", "-"),
    ("401", "UNAUTHORIZED", "Unauthenticated"),
    ("403", "FORBIDDEN", "Forbidden"),
    ("404", "NOT_FOUND", "NotFound"),
    ("405", "METHOD_NOT_ALLOWED", "-"),
    ("408", "REQUEST_TIMEOUT", "-"),
    ("409", "CONFLICT", "Conflict"),
    ("413", "PAYLOAD_TOO_LARGE", "-"),
    ("415", "UNSUPPORTED_MEDIA_TYPE", "-"),
    ("422", "UNPROCESSABLE_ENTITY", "Invalid"),
    ("429", "TOO_MANY_REQUESTS", "Exhausted"),
    ("431", "REQUEST_HEADER_FIELDS_TOO_LARGE", "-"),
    ("500", "INTERNAL_SERVER_ERROR", "Broken"),
    ("503", "SERVICE_UNAVAILABLE", "-"),
];

/// Codes that no caller of a server can get, with the reason.
const NEVER_ANSWERED: [(&str, &str); 8] = [
    ("already_done", "the site answers as it did the first time"),
    ("wrong_definition", "the site gives the definition the instance was started with"),
    ("given_twice", "an object has one value under one name"),
    ("instance_exists", "the server draws the ids"),
    ("started_elsewhere", "the site sends the request to where the instance was started"),
    ("out_of_order", "said between servers"),
    ("no_beginning", "said between servers"),
    ("no_mail", "only the mailer asks, and it is there if mail is"),
];

type Codes = BTreeSet<(String, String)>;

#[test]
fn the_guide_lists_every_error_code_with_its_status_and_no_other() {
    let (made, listed) = (made(), listed());
    let missing: Vec<_> = made.difference(&listed).collect();
    let invented: Vec<_> = listed.difference(&made).collect();
    assert!(missing.is_empty(), "add these to the table in {GUIDE}: {missing:#?}");
    assert!(invented.is_empty(), "nothing answers these, listed in {GUIDE}: {invented:#?}");
}

#[test]
fn the_guide_lists_every_metric_and_no_other() {
    let metrics = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let is_metric = |word: &&str| word.starts_with("legwork_") && !word.ends_with("_server");
        words.filter(is_metric).map(str::to_owned).collect()
    };
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let page = read(GUIDE);
    let table = page.split("## Metrics").nth(1).unwrap().split("\n## ").next().unwrap();
    let source = ["meters", "figures"].map(|name| {
        let text = without_tests(&read(&format!("crates/server/src/{name}.rs")));
        // An unclosed quote must not turn the rest of the file into literals.
        assert_eq!(text.matches('"').count() % 2, 0, "{name}");
        text
    });
    let source = source.concat();
    let literals: String = source.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
    assert_eq!(metrics(table), metrics(&literals));
}

/// The guide's text of a limit, and the place in the sources.
const REGISTERING: &str = "crates/site/src/executors/registering.rs";
const LIMITS: [(&str, &str, &str); 65] = [
    (
        "a [deadline](deadlines.md) that is promised | 400 days ahead",
        "crates/site/src/planning/resources.rs",
        "Duration::from_secs(400 * 24 * 3600);",
    ),
    (
        "[offered](deadlines-reference.md#offers) dates of one token; how long each is held | 10; 5 minutes",
        "crates/plan/src/offers.rs",
        "OFFERS_MAX: usize = 10;",
    ),
    (
        "candidates for one step | the first 256 by name",
        "crates/site/src/planning/candidates.rs",
        "WHO_MAX: usize = 256;",
    ),
    (
        "absences in which one substitute is considered for one step | 8",
        "crates/site/src/planning/candidates.rs",
        "TIMES_MAX: usize = 8;",
    ),
    ("body of a request | 1 MiB", CONFIG, "body_bytes_max: 1 << 20,"),
    ("a file | 64 MiB", CONFIG, "file_bytes_max: 64 << 20,"),
    ("uploads at once | 8", CONFIG, "uploads_max: 8,"),
    (
        "files on their way from other servers at once | 4",
        "crates/server/src/files/fetch.rs",
        "BRINGS_MAX: usize = 4;",
    ),
    (
        "history or large values in one message to another server | 1 MiB",
        BOUNDS,
        "PART_BYTES: usize = 1 << 20;",
    ),
    (
        "requests that one server passed on, under way at once | 10000, 64 MiB",
        "crates/server/src/peer/accept.rs",
        "REQUESTS_MAX: usize = 10_000;\nconst REQUESTS_BYTES_MAX: u64 = 64 << 20;",
    ),
    (
        "unprocessed messages of one server; its unread answers | 64 MiB",
        "crates/server/src/peer/other.rs",
        "HEARD_BYTES_MAX: u32 = 64 << 20;",
    ),
    (
        "messages that wait for a link | 65536, 64 MiB",
        "crates/server/src/peer/outlet.rs",
        "FRAMES_MAX: usize = 65_536;\nconst BYTES_MAX: usize = 64 << 20;",
    ),
    ("epochs of the topology | 10000", BOUNDS, "TOPOLOGIES_MAX: usize = 10_000;"),
    (
        "domains; people and executors at home; costs of links | 1000; 20000; 10000",
        "crates/placement/src/read.rs",
        "DOMAINS_MAX: usize = 1_000;",
    ),
    (
        "servers of all domains | 4000",
        "crates/placement/src/read.rs",
        "SERVERS_MAX: usize = 4_000;",
    ),
    (
        "the weight of a server | 1000000",
        "crates/placement/src/read_servers.rs",
        "WEIGHT_MAX: u32 = 1_000_000;",
    ),
    (
        "a pause in a body; a body slower than 32 KiB a second | 20 s",
        "crates/server/src/http/body.rs",
        "PATIENCE: Duration = Duration::from_secs(20);",
    ),
    ("nesting of JSON | 64", CONFIG, "json_depth_max: 64,"),
    ("header of a request | 16 KiB", CONFIG, "header_bytes_max: 16 << 10,"),
    ("time for a header to come | 10 to 20 s", CONFIG, "head_wait: Duration::from_secs(10),"),
    (
        "time in which a client reads nothing of an answer | 60 to 80 s",
        "crates/server/src/activity.rs",
        "STUCK: Duration = Duration::from_secs(60);",
    ),
    ("connections | 10000", CONFIG, "connections_max: 10_000,"),
    ("requests that wait | 10000", CONFIG, "waiting_max: 10_000,"),
    ("requests in the queue | 10000", CONFIG, "queue_max: 10_000,"),
    ("waiting time of a request | 60 s", CONFIG, "wait_max: Duration::from_secs(60),"),
    (
        "candidates of an item that are told by [mail](mail.md) | 20",
        "crates/mail/src/settings.rs",
        "ACTORS_MAX: usize = 20;",
    ),
    (
        "letters to one person in an hour | 10",
        "crates/mail/src/settings.rs",
        "LETTERS_AN_HOUR_MAX: usize = 10;",
    ),
    (
        "a mail in the inbox | 256 KiB",
        "crates/mail/src/mime.rs",
        "MESSAGE_BYTES_MAX: usize = 256 << 10;",
    ),
    ("requests a second | not limited; `--rate`", CONFIG, "rate_per_s: 0,"),
    ("jobs in one request | 1000", WORKER, "BATCH_MAX: usize = 1_000;"),
    ("types of jobs in one request | 100", WORKER, "TYPES_MAX: usize = 100;"),
    ("a lease | 100 ms to 24 h", WORKER, "LEASE_MAX: Duration = Duration::from_secs(24 * 3600);"),
    (
        "a worker's name | 256 bytes",
        "crates/server/src/http/jobs.rs",
        "WORKER_BYTES_MAX: usize = 256;",
    ),
    (
        "a token's name | 64 bytes",
        "crates/site/src/catalog/publish.rs",
        "NAME_BYTES_MAX: usize = 64;",
    ),
    ("scopes of a token | 100", "crates/server/src/http/tokens.rs", "SCOPES_MAX: usize = 100;"),
    ("entries of one page | 1000", "crates/server/src/http/query.rs", "LIMIT_MAX: usize = 1_000;"),
    (
        "an idempotency key | 256 bytes",
        "crates/server/src/http/exchange.rs",
        "KEY_BYTES_MAX: usize = 256;",
    ),
    (
        "a reason or another remark | 4 KiB",
        "crates/site/src/cases/control.rs",
        "REASON_BYTES_MAX: usize = 4_096;",
    ),
    ("processes; versions of one | 10000; 10000", BOUNDS, "PROCESSES_MAX: usize = 10_000;"),
    ("texts of all definitions | 256 MiB", BOUNDS, "DEFINITION_BYTES_MAX: u64 = 256 << 20;"),
    ("versions of the organisation | 10000", BOUNDS, "ORGANISATIONS_MAX: usize = 10_000;"),
    ("tokens | 10000", BOUNDS, "TOKENS_MAX: usize = 10_000;"),
    ("executors | 10000", REGISTERING, "EXECUTORS_MAX: usize = 10_000;"),
    ("types of jobs of all executors | 10000", REGISTERING, "KINDS_MAX: usize = 10_000;"),
    (
        "types of jobs with a policy of their own | 10000",
        "crates/site/src/executors/policies.rs",
        "TYPES_MAX: usize = 10_000;",
    ),
    ("an executor's name | 100 bytes", REGISTERING, "NAME_BYTES_MAX: usize = 100;"),
    ("an executor's address | 1000 bytes", REGISTERING, "URL_BYTES_MAX: usize = 1_000;"),
    (
        "an executor's secret | 32 to 200 bytes",
        REGISTERING,
        "SECRET_BYTES: RangeInclusive<usize> = 32..=200;",
    ),
    ("an executor's types | 100", REGISTERING, "TYPES_MAX: usize = 100;"),
    ("an executor's tasks at a time | 10000", REGISTERING, "LIMIT_MAX: u32 = 10_000;"),
    (
        "an executor's rate: tasks in a second, a minute or an hour | 1000000",
        "crates/model/src/rate.rs",
        "RATE_MAX: u32 = 1_000_000;",
    ),
    ("an executor's weight | 1000000", REGISTERING, "WEIGHT_MAX: u32 = 1_000_000;"),
    (
        "an executor's regular work | 20 entries, periods of at most 400 days, 90 %",
        REGISTERING,
        "REGULARLY_MAX: usize = 20;",
    ),
    ("an executor's reserve | 90 %", REGISTERING, "RESERVE_MAX: u32 = 90;"),
    ("[schedules](schedules.md) | 10000", SCHEDULES, "SCHEDULES_MAX: usize = 10_000;"),
    (
        "a schedule's name; the data of each start; its `cron`; its period; its deadline | 64 bytes; 64 KiB; 256 bytes",
        SCHEDULES,
        "NAME_BYTES_MAX: usize = 64;\nconst DATA_BYTES_MAX: usize = 64 << 10;\nconst CRON_BYTES_MAX: usize = 256;",
    ),
    (
        "periodic starts under way at a time; the time of one | 64;",
        "crates/site/src/schedules/book.rs",
        "STARTS_MAX: usize = 64;",
    ),
    (
        "periodic starts under way at a time; the time of one | 64; 30 s",
        "crates/server/src/schedules.rs",
        "TIME_MAX: Duration = Duration::from_secs(30);",
    ),
    ("a value | 256 KiB", "crates/model/src/value.rs", "VALUE_BYTES_MAX: usize = 256 * 1024;"),
    (
        "all values of a case, older ones included, each counting 64 bytes more | 16 MiB",
        BOUNDS,
        "INSTANCE_DATA_BYTES_MAX: u64 = 16 << 20;",
    ),
    (
        "records in the history of a case; one more may end it | 1000000",
        BOUNDS,
        "HISTORY_RECORDS_MAX: u64 = 1_000_000;",
    ),
    (
        "events that one request entails in a case | 8 MiB",
        BOUNDS,
        "RECORD_BYTES_MAX: usize = 8 << 20;",
    ),
    (
        "events that one request, or requests held back for the same case, entail | 32 MiB",
        BOUNDS,
        "OUTPUT_BYTES_MAX: usize = 32 << 20;",
    ),
    (
        "servers of one database; the name of one | 32767; 256 bytes",
        "crates/store/src/postgres/lease.rs",
        "NAME_BYTES_MAX: usize = 256;",
    ),
    (
        "a definition | see [definitions](definitions.md#limits)",
        CONFIG,
        "source_bytes_max: 1 << 20,",
    ),
];
const CONFIG: &str = "crates/server/src/config.rs";
const SCHEDULES: &str = "crates/site/src/schedules/putting.rs";
const WORKER: &str = "crates/site/src/jobs/worker.rs";
const BOUNDS: &str = "crates/site/src/bounds.rs";

#[test]
fn the_guide_lists_every_limit_as_the_sources_have_it() {
    let text = std::fs::read_to_string(root().join(GUIDE)).unwrap();
    let table = text.split("## Limits").nth(1).unwrap().split("\n## ").next().unwrap();
    // Each part of the section has a table, the head of which is above a line of dashes.
    let lines: Vec<&str> = table.lines().chain([""]).collect();
    let is_row = |pair: &&[&str]| pair[0].starts_with("| ") && !pair[1].starts_with("|--");
    let rows: Vec<&str> = lines.windows(2).filter(is_row).map(|pair| pair[0]).collect();
    for row in &rows {
        let known = LIMITS.iter().any(|(start, _, _)| row[2..].starts_with(start));
        assert!(known, "say in LIMITS where the source has this: {row}");
    }
    for (start, path, source) in LIMITS {
        let listed = rows.iter().any(|row| row[2..].starts_with(start));
        let there = std::fs::read_to_string(root().join(path)).unwrap().contains(source);
        assert!(listed, "{GUIDE} does not say `{start}`");
        assert!(there, "{path} does not have `{source}` any more: mend the guide and this test");
    }
}

/// Codes and statuses in the guide's table.
fn listed() -> Codes {
    let text = std::fs::read_to_string(root().join(GUIDE)).unwrap();
    let table = text.split("## Error codes").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut codes = Codes::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for code in cells[1].split(',') {
            for status in cells[2].split(',') {
                codes.insert((code.trim().trim_matches('`').to_owned(), status.trim().to_owned()));
            }
        }
    }
    codes
}

/// Codes and statuses in the sources.
fn made() -> Codes {
    let mut codes = rejections();
    for folder in ["crates/server/src", "crates/site/src"] {
        for path in rust_files(&root().join(folder)) {
            let text = without_tests(&std::fs::read_to_string(&path).unwrap());
            for (maker, status) in MAKERS {
                for (place, _) in text.match_indices(maker) {
                    let call = &text[place + maker.find('(').unwrap() + 1..];
                    codes.extend(codes_of_call(&text[..place], arguments(call), status, &path));
                }
            }
        }
    }
    // The one refusal with findings, created in `Refusal::check_failed`.
    codes.insert(("check_failed".to_owned(), "422".to_owned()));
    for (never, why) in NEVER_ANSWERED {
        let before = codes.len();
        codes.retain(|(code, _)| code != never);
        assert!(codes.len() < before, "{never} is gone ({why}): take it out of NEVER_ANSWERED");
    }
    codes
}

/// The codes of one call: a literal, or a variable `code` whose values are literals before it in
/// the same function.
fn codes_of_call(before: &str, call: &str, status: Option<&str>, path: &Path) -> Codes {
    let function = &before[before.rfind("fn ").unwrap_or(0)..];
    // A function that only passes its argument on.
    let signature = function.split('{').next().unwrap_or_default();
    let at_hand: String = call.split('"').next().unwrap_or_default().to_owned();
    let names: Vec<&str> = at_hand.split([',', '(', ')']).map(str::trim).collect();
    if names.contains(&"rejection.code") || (names.contains(&"code") && signature.contains("code:"))
    {
        return Codes::new();
    }
    let codes: Vec<String> = if names.contains(&"code") {
        words(function.rsplit("code").find(|part| !words(part).is_empty()).unwrap_or_default())
    } else {
        words(call).into_iter().take(1).collect()
    };
    assert!(!codes.is_empty(), "{}: which code is it? {call}", path.display());
    let status = status.map_or_else(|| status_in(&at_hand, path), str::to_owned);
    codes.into_iter().map(|code| (code, status.clone())).collect()
}

fn status_in(arguments: &str, path: &Path) -> String {
    let named = STATUSES.iter().find(|(_, name, kind)| {
        let word = |word: &str| arguments.split([',', ':', ' ', '\n']).any(|part| part == word);
        word(name) || word(kind)
    });
    let Some((status, _, _)) = named else {
        panic!("{}: write the status where the code is: {arguments}", path.display())
    };
    (*status).to_owned()
}

/// The engine's: `fn code` names them, the site's `fn kind_of` sorts them.
fn rejections() -> Codes {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let engine = read("crates/engine/src/rejection.rs");
    let body = engine.split("fn code(").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let mut codes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for arm in body.split("Self::").skip(1) {
        codes.entry(first_name(arm)).or_default().extend(words(arm));
    }
    let site = read("crates/site/src/cases/control.rs");
    let body = site.split("fn kind_of(").nth(1).unwrap().split("\n}\n").next().unwrap();
    let mut found = Codes::new();
    for group in body.split_inclusive("=> Kind::").collect::<Vec<_>>().windows(2) {
        let kind = group[1].split(',').next().unwrap();
        let (status, _, _) = STATUSES.iter().find(|(_, _, known)| *known == kind).unwrap();
        for name in group[0].split("Rejection::").skip(1) {
            found.extend(
                codes[&first_name(name)].iter().map(|code| (code.clone(), (*status).to_owned())),
            );
        }
    }
    assert!(found.len() >= codes.len(), "some rejections have no kind");
    found
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// Literals that are a lowercase name.
fn words(text: &str) -> Vec<String> {
    let literals = text.split('"').skip(1).step_by(2);
    let is_code = |word: &&str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '8')
    };
    literals.filter(is_code).map(str::to_owned).collect()
}

/// Up to the closing bracket of the call.
fn arguments(call: &str) -> &str {
    let mut depth = 1;
    for (place, c) in call.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &call[..place];
        }
    }
    call
}

fn without_tests(text: &str) -> String {
    let mut parts = text.split("#[cfg(test)]\nmod tests {");
    parts.next().unwrap_or_default().to_owned()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| !path.ends_with("tests"))
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
