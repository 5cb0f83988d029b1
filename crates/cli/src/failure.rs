//! The message of a failed command, and the exit code.
//!
//! Invariant: 0 done, 1 refused or failed, 2 a command line that cannot be read (clap's). A failure
//! is told once, on standard error: as text that says what to do next, or with `--json` as one
//! problem document.

use std::fmt;
use std::io;
use std::process::ExitCode;

use anyhow::Error;
use legwork_api::{Problem, client};
use serde_json::json;

use crate::by;
use crate::layout;
use crate::output::{self, remark, remark_verbatim};
use crate::style::{BAD, DIM, paint, plain};
use crate::when;

/// The command has printed everything itself; only the exit code is left.
#[derive(Debug)]
pub(crate) struct Told;

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl std::error::Error for Told {}

/// A failure with an exit code of its own.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Coded {}

pub(crate) fn report(error: &Error, json: bool) -> ExitCode {
    if error.is::<Told>() {
        return ExitCode::FAILURE;
    }
    // The reader of the output has closed it (`legwork list | head`).
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    match json {
        true => remark_verbatim(&as_json(error)),
        false => remark(&as_text(error)),
    }
    ExitCode::FAILURE
}

/// clap's message: requested help, or a mistake in the command line. clap folds its sentences itself, but
/// not its usage lines.
pub(crate) fn misread(error: &clap::Error) -> ExitCode {
    let text = error.render().ansi().to_string();
    match error.use_stderr() {
        true => remark(text.trim_end_matches('\n')),
        // A closed output is ignored.
        false => drop(output::write(&layout::fold(text, layout::columns()))),
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn as_text(error: &Error) -> String {
    let head = paint(BAD, "error:");
    let Some(problem) = problem(error) else {
        let lines = format!("{error:#}");
        return format!("{head} {}", lines.lines().map(plain).collect::<Vec<_>>().join("\n"));
    };
    let code = paint(DIM, format!("({})", problem.code));
    // The server's hint is for programs; a user of the command line has an option for it.
    let detail = match &*problem.code {
        "agent_missing" => "say who you are: --as AGENT, or set LEGWORK_AGENT",
        _ => &*problem.detail,
    };
    let mut text = format!("{head} {} {code}", plain(&when::in_text(detail, problem.earliest)));
    for finding in &problem.findings {
        text.push_str(&format!("\n{finding}"));
    }
    if !problem.steps.is_empty() {
        text.push_str(&format!("\n{}", by::steps(&problem.steps).trim_end()));
    }
    if let Some(next) = next(problem) {
        text.push_str(&format!("\n  {} {next}", paint(DIM, "hint:")));
    }
    text
}

/// A hint that only the command line can give.
fn next(problem: &Problem) -> Option<String> {
    let text = |text: &str| Some(text.to_owned());
    match (&*problem.code, problem.earliest) {
        ("unauthenticated", _) => text("give the token with --token, or set LEGWORK_TOKEN"),
        // The user of a question has no such option: the command is named.
        ("deadline_not_promised", Some(earliest)) => Some(format!(
            "write --by {earliest}, or start it all the same with `legwork start … --unpromised`"
        )),
        ("deadline_not_promised", None) | ("deadline_too_far", _) => {
            text("start it all the same with `legwork start … --unpromised`")
        }
        // The missing input is named in backquotes.
        ("missing_input", _) => {
            let element = problem.detail.split('`').nth(1)?;
            Some(format!("add `--set {element}=…`, or `--file {element}=…` if it is a file"))
        }
        _ => None,
    }
}

fn as_json(error: &Error) -> String {
    let document = match problem(error) {
        Some(problem) => json!(problem),
        None => {
            let code = match error.downcast_ref::<client::Error>() {
                Some(client::Error::Unreachable { .. }) => "unreachable",
                Some(client::Error::Broken { .. }) => "connection_broken",
                Some(client::Error::TimedOut { .. }) => "timed_out",
                Some(
                    client::Error::Problem(_)
                    | client::Error::BadAddress { .. }
                    | client::Error::BadToken
                    | client::Error::BadArgument { .. }
                    | client::Error::Unexpected { .. },
                )
                | None => error.downcast_ref().map_or("failed", |coded: &Coded| coded.code),
            };
            json!({
                "type": format!("urn:legwork:problem:{code}"),
                "title": "The command failed",
                "detail": format!("{error:#}"),
                "code": code,
            })
        }
    };
    document.to_string()
}

fn problem(error: &Error) -> Option<&Problem> {
    error.downcast_ref::<client::Error>().and_then(client::Error::problem)
}

fn is_broken_pipe(error: &Error) -> bool {
    let kind = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_server_is_passed_on_as_it_came() {
        let problem = Problem::new(409, "held_by", "held by ann; ask them to release it");
        let error = Error::from(client::Error::Problem(Box::new(problem)));
        let text = anstream::adapter::strip_str(&as_text(&error)).to_string();
        assert_eq!(text, "error: held by ann; ask them to release it (held_by)");
        insta::assert_snapshot!(as_json(&error), @r#"{"code":"held_by","detail":"held by ann; ask them to release it","status":409,"title":"It does not fit the present state","type":"urn:legwork:problem:held_by"}"#);
    }

    #[test]
    fn a_missing_agent_is_answered_with_the_option_and_not_with_tokens() {
        let detail = "say which agent acts in `agent`: the token is not for exactly one";
        let problem = Problem::new(400, "agent_missing", detail);
        let error = Error::from(client::Error::Problem(Box::new(problem)));
        let text = anstream::adapter::strip_str(&as_text(&error)).to_string();
        assert_eq!(
            text,
            "error: say who you are: --as AGENT, or set LEGWORK_AGENT (agent_missing)"
        );
        assert!(as_json(&error).contains(detail), "programs get it as it came");
    }

    #[test]
    fn a_refused_deadline_says_what_to_type_next() {
        let detail = "it cannot be promised for 2026-01-16T16:00:00.000Z: the earliest that can be \
                      promised is 2026-01-19T10:00:00.319Z";
        let mut problem = Problem::new(409, "deadline_not_promised", detail);
        problem.earliest = "2026-01-19T10:00:00.319Z".parse().ok();
        problem.steps = by::tests::deadline().steps;
        let error = Error::from(client::Error::Problem(Box::new(problem)));
        let text = anstream::adapter::strip_str(&as_text(&error)).to_string();
        insta::assert_snapshot!(text, @r"
        error: it cannot be promised for 2026-01-16 16:00Z: the earliest that can be promised is 2026-01-19 10:01Z (deadline_not_promised)
          STEP   WHO           PLANNED
          check  ann           2026-03-01 08:00–11:00Z
          book   executor crm  2026-03-01 11:00Z
          hint: write --by 2026-01-19T10:00:00.319Z, or start it all the same with `legwork start … --unpromised`
        ");
        let missing = Problem::new(422, "missing_input", "starting needs `who`; give its value");
        let hint = "add `--set who=…`, or `--file who=…` if it is a file";
        assert_eq!(next(&missing).as_deref(), Some(hint));
        let far = Problem::new(422, "deadline_too_far", "nothing is promised for so far ahead");
        assert!(next(&far).is_some_and(|hint| hint.contains("--unpromised")));
    }

    #[test]
    fn a_failure_here_has_the_same_form() {
        let coded = Coded { code: "connection_broken", text: "it goes on".to_owned() };
        assert!(as_json(&coded.into()).contains("problem:connection_broken"));
        let error = Error::msg("permission denied").context("cannot read a.yaml");
        insta::assert_snapshot!(as_json(&error), @r#"{"code":"failed","detail":"cannot read a.yaml: permission denied","title":"The command failed","type":"urn:legwork:problem:failed"}"#);
    }
}
