//! Reads the contents of blocks: work, people, data, conditions, durations.
//!
//! Names are recorded as they are read, and resolved at the end of the text.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::blocks::Blocks;
use super::fields::{self, Fields, NAME_LEN_MAX, quote};
use super::tree::{Node, ScalarKind};
use crate::assignment::Assignment;
use crate::condition::{Condition, ConditionError};
use crate::definition::{Decider, Demand, Measure, Retry, Sync, Use, Work};
use crate::finding::{Rule, Span, Spanned};
use crate::rule::Rule as WhoRule;
use crate::time::parse_duration;

/// The most repetitions of a failed job.
pub const RETRIES_MAX: u32 = 1_000;
/// The longest duration: a hundred years.
pub const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);
/// The largest constant size; one in a data element may be larger.
pub(crate) const SIZE_MAX: u32 = 1_000_000_000;
/// Fields that apply only to automatic steps.
pub(crate) const JOB_FIELDS: [&str; 4] = ["retry", "size", "priority", "timeout"];
pub(crate) const RETRY_FIELDS: [&str; 2] = ["times", "pause"];
pub(crate) const UNDO_FIELDS: [&str; 3] = ["who", "job", "retry"];

impl Blocks<'_> {
    /// The work of a step: exactly one of `who` and `job`.
    pub(super) fn work(&mut self, fields: &Fields<'_>) -> Option<Work> {
        let retry = self.retry(fields);
        match (fields.value("who"), fields.value("job")) {
            (Some(node), None) => {
                for key in JOB_FIELDS {
                    if let Some((span, _)) = fields.get(key) {
                        let message =
                            format!("{} is done by a person: `{key}` is for jobs", fields.what());
                        let hint = format!("leave `{key}` out, or write `job:` instead of `who:`");
                        self.report.error(span, Rule::Y2, message, hint);
                    }
                }
                let who = self.who(node, fields.what())?;
                Some(Work::Manual { who })
            }
            (None, Some(node)) => {
                let what = format!("`job` of {}", fields.what());
                let job = fields::name(node, &what, self.report)?;
                let demand = self.demand(fields)?;
                Some(Work::Automatic { job, retry: retry?, demand })
            }
            (None, None) if fields.misspells("who") || fields.misspells("job") => None,
            (None, None) => {
                let message = format!("nobody does {}", fields.what());
                let hint = "write `who:` if a person does it (`who: Role(clerk)`), `job:` if a \
                            program does";
                self.report.error(fields.span(), Rule::Y2, message, hint);
                None
            }
            (Some(_), Some(job)) => {
                let message = format!("{} has both `who` and `job`", fields.what());
                let hint = "keep `who` if a person does it, `job` if a program does";
                self.report.error(job.span, Rule::Y2, message, hint);
                None
            }
        }
    }

    fn demand(&mut self, fields: &Fields<'_>) -> Option<Demand<Spanned<Arc<str>>>> {
        let usual = Demand::default();
        let size = self.measure(fields, "size", 1..=SIZE_MAX, usual.size);
        let priorities = 0..=Demand::<()>::PRIORITY_MAX;
        let priority = self.measure(fields, "priority", priorities, usual.priority);
        let timeout = match fields.value("timeout") {
            None => Some(None),
            Some(_) => self.duration(fields, "timeout").map(Some),
        };
        Some(Demand { size: size?, priority: priority?, timeout: timeout? })
    }

    /// A number, or the name of the data element that has it.
    fn measure(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        range: RangeInclusive<u32>,
        usual: Measure<Spanned<Arc<str>>>,
    ) -> Option<Measure<Spanned<Arc<str>>>> {
        let Some(node) = fields.value(key) else { return Some(usual) };
        let what = format!("`{key}` of {}", fields.what());
        match node.scalar().map(|scalar| scalar.kind) {
            Some(ScalarKind::Int) => {
                fields::number(node, &what, range, self.report).map(Measure::Number)
            }
            Some(ScalarKind::Text) => {
                let name = fields::name(node, &what, self.report)?;
                self.names.refer_to_element(&name);
                Some(Measure::Element(name))
            }
            Some(_) | None => {
                let message = format!("{what} cannot be {}", node.what());
                let hint = "write a whole number, or the name of an element that it reads";
                self.report.error(node.span, Rule::Y2, message, hint);
                None
            }
        }
    }

    fn retry(&mut self, fields: &Fields<'_>) -> Option<Retry> {
        let Some(node) = fields.value("retry") else {
            return Some(Retry::DEFAULT);
        };
        let retry = Fields::of(node, format!("`retry` of {}", fields.what()), self.report)?;
        retry.refuse_unknown(&RETRY_FIELDS, self.report);
        let times = match retry.value("times") {
            None => Some(Retry::DEFAULT.times),
            Some(node) => {
                let what = format!("`times` of {}", retry.what());
                fields::number(node, &what, 0..=RETRIES_MAX, self.report)
            }
        };
        let pause = match retry.value("pause") {
            None => Some(Retry::DEFAULT.pause),
            Some(_) => self.duration(&retry, "pause"),
        };
        Some(Retry { times: times?, pause: pause? })
    }

    /// `Some(None)` if nothing undoes the step, `None` if it cannot be read.
    pub(super) fn undo(&mut self, fields: &Fields<'_>) -> Option<Option<Work>> {
        let Some(node) = fields.value("undo") else {
            return Some(None);
        };
        let undo = Fields::of(node, format!("`undo` of {}", fields.what()), self.report)?;
        undo.refuse_unknown(&UNDO_FIELDS, self.report);
        self.work(&undo).map(Some)
    }

    /// The person who decides at a choice or at the end of a loop.
    pub(super) fn decider(&mut self, fields: &Fields<'_>) -> Option<Decider> {
        let who = fields.value("who").and_then(|node| self.who(node, fields.what()));
        let reads = self.uses(fields, "reads");
        let at = self.at(fields);
        let takes = self.duration(fields, "takes");
        let mail = self.mail(fields);
        Some(Decider { who: who?, reads, at, takes, mail })
    }

    /// Reports fields that apply only to a person who decides.
    pub(super) fn refuse_decider_fields(&mut self, fields: &Fields<'_>) {
        for key in ["reads", "at", "takes", "mail"] {
            if let Some((span, _)) = fields.get(key) {
                let message = format!("{} has `{key}`, but nobody to decide", fields.what());
                let hint = match key {
                    "reads" => "leave it out (conditions name what they read), or write `who:`",
                    _ => "leave it out, or write `who:`",
                };
                self.report.error(span, Rule::Y2, message, hint);
            }
        }
    }

    fn who(&mut self, node: &Node, of: &str) -> Option<Spanned<WhoRule>> {
        let what = format!("`who` of {of}");
        fields::text(node, &what, fields::EXPRESSION_LEN_MAX, self.report)?;
        // Not trimmed: its errors count columns.
        let text = node.scalar().map_or("", |scalar| &scalar.text);
        match text.parse::<WhoRule>() {
            Ok(rule) => {
                self.names.refer_to_performers(&rule, node.span);
                Some(Spanned::new(rule, node.span))
            }
            Err(error) => {
                let span = within(node, error.column());
                let hint = "write, for example, `Role(clerk)`, `OrgUnit(sales*) AND Ability(french)` \
                            or `Role(manager) EXCEPT NodePerformingAgent(capture)`";
                self.report.error(span, Rule::Z1, format!("{what}: {error}"), hint);
                None
            }
        }
    }

    pub(super) fn condition(
        &mut self,
        node: &Node,
        what: &str,
        rule: Rule,
    ) -> Option<Spanned<Condition>> {
        let text = fields::expression(node, what, self.report)?;
        match Condition::parse(text.value) {
            Ok(condition) => Some(Spanned::new(condition, node.span)),
            Err(error) => {
                let mut span = node.span;
                if let ConditionError::Syntax { line: 1, column, .. } = &error {
                    span = within(node, u32::try_from(*column).unwrap_or(1));
                }
                let error = error.to_string();
                let message = format!("{what}: {}", error.lines().next().unwrap_or_default());
                let hint = "write, for example, `amount < 1000 && !approved`";
                self.report.error(span, rule, message, hint);
                None
            }
        }
    }

    /// A list of data elements, each with `?` if it is optional.
    pub(super) fn uses(&mut self, fields: &Fields<'_>, key: &str) -> Vec<Use> {
        let what = format!("`{key}` of {}", fields.what());
        let names = self.list(fields, key, &what);
        let uses: Vec<Use> = names
            .into_iter()
            .map(|Spanned { value, span }| {
                let name = value.strip_suffix('?');
                let element = Spanned::new(Arc::from(name.unwrap_or(value)), span);
                Use { element, optional: name.is_some() }
            })
            .collect();
        self.refuse_repeated(uses.iter().map(|used| &used.element), &what);
        uses.iter().for_each(|used| self.names.refer_to_element(&used.element));
        uses
    }

    /// The elements shown in letters.
    pub(super) fn mail(&mut self, fields: &Fields<'_>) -> Vec<Spanned<Arc<str>>> {
        let what = format!("`mail` of {}", fields.what());
        let names = self.list(fields, "mail", &what).into_iter();
        let names: Vec<Spanned<Arc<str>>> =
            names.map(|name| Spanned::new(Arc::from(name.value), name.span)).collect();
        self.refuse_repeated(names.iter(), &what);
        names
    }

    pub(super) fn syncs(&mut self, fields: &Fields<'_>, key: &str, strict: bool) -> Vec<Sync> {
        let what = format!("`{key}` of {}", fields.what());
        let names = self.list(fields, key, &what);
        let syncs: Vec<Sync> = names
            .into_iter()
            .map(|name| Sync { from: Spanned::new(Arc::from(name.value), name.span), strict })
            .collect();
        syncs.iter().for_each(|sync| self.names.refer_to_step(&sync.from));
        syncs
    }

    pub(super) fn refuse_repeated_syncs(&mut self, fields: &Fields<'_>, syncs: &[Sync]) {
        let what = format!("`after` or `requires` of {}", fields.what());
        self.refuse_repeated(syncs.iter().map(|sync| &sync.from), &what);
    }

    pub(super) fn at(&mut self, fields: &Fields<'_>) -> Option<Spanned<Assignment>> {
        let node = fields.value("at")?;
        let what = format!("`at` of {}", fields.what());
        let text = fields::expression(node, &what, self.report)?;
        match text.value.parse::<Assignment>() {
            Ok(assignment) => {
                if let Some(step) = assignment.step() {
                    self.names.refer_to_performer(&Spanned::new(step.clone(), node.span));
                }
                Some(Spanned::new(assignment, node.span))
            }
            Err(error) => {
                let message = format!("{what} is no place: {error}");
                let hint = "write the name of a domain, Server(step) or Domain(Actor(step))";
                self.report.error(node.span, Rule::Y2, message, hint);
                None
            }
        }
    }

    pub(super) fn duration(&mut self, fields: &Fields<'_>, key: &str) -> Option<Duration> {
        let node = fields.value(key)?;
        let what = format!("`{key}` of {}", fields.what());
        let hint = "write a number and its unit: 500ms, 30s, 15m, 8h or 2d";
        let scalar = node.scalar().filter(|s| s.kind == ScalarKind::Text);
        let Some(duration) = scalar.and_then(|scalar| parse_duration(&scalar.text).ok()) else {
            let found = node.scalar().map_or(node.what().to_owned(), |scalar| quote(&scalar.text));
            let message = format!("{what} is not a length of time: {found}");
            self.report.error(node.span, Rule::Y2, message, hint);
            return None;
        };
        if duration > DURATION_MAX {
            let message = format!("{what} is longer than a hundred years");
            self.report.error(node.span, Rule::Y3, message, "write a shorter one");
            return None;
        }
        Some(duration)
    }

    /// The names in a list.
    fn list<'t>(&mut self, fields: &Fields<'t>, key: &str, what: &str) -> Vec<Spanned<&'t str>> {
        let Some(node) = fields.value(key) else {
            return Vec::new();
        };
        let hint = match node.scalar() {
            Some(scalar) if scalar.kind == ScalarKind::Text => {
                format!("write `{key}: [{}]`", scalar.text.chars().take(64).collect::<String>())
            }
            Some(_) | None => format!("write `{key}: [name, …]`"),
        };
        let Some(items) = fields::items(node, what, &hint, self.report) else {
            self.report.mark_incomplete();
            return Vec::new();
        };
        let entry = format!("an entry of {what}");
        let names: Vec<_> = items
            .iter()
            // One more than a name, for the question mark.
            .map(|item| fields::text(item, &entry, NAME_LEN_MAX + 1, self.report))
            .collect();
        if names.iter().any(Option::is_none) {
            self.report.mark_incomplete();
        }
        names.into_iter().flatten().collect()
    }

    fn refuse_repeated<'n>(
        &mut self,
        names: impl Iterator<Item = &'n Spanned<Arc<str>>>,
        what: &str,
    ) {
        let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
        for name in names {
            if let Some(before) = seen.insert(&name.value, name.span) {
                let name_shown = quote(&name.value);
                let message = format!("{what} names {name_shown} twice, first at {before}");
                self.report.error(name.span, Rule::Y2, message, "keep one of them");
                self.report.mark_incomplete();
            }
        }
    }
}

/// The place of a column of a text, if the text stands in the file as it is.
fn within(node: &Node, column: u32) -> Span {
    match node.scalar().and_then(|scalar| scalar.offset) {
        Some(offset) => {
            Span { line: node.span.line, column: node.span.column + offset + column - 1 }
        }
        None => node.span,
    }
}
