//! Writes a definition as YAML.
//!
//! The written definition reads as the same one, apart from places. Fields are in the order of the
//! guide; default values are left out.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::blocks::{ITERATIONS_DEFAULT, ROUNDS_DEFAULT};
use super::tree::{ScalarKind, resolve};
use crate::assignment::Assignment;
use crate::definition::{
    Block, Branch, Choice, ChoiceBy, Decider, Definition, Demand, Element, Guard, Late, Loop,
    Measure, Parallel, Retry, Step, Sync, Until, Use, Work,
};
use crate::finding::Spanned;
use crate::time::format_duration;

pub fn write(definition: &Definition) -> String {
    let mut writer = Writer { text: String::new(), indent: 0, dash: false };
    writer.process(definition);
    writer.text
}

struct Writer {
    text: String,
    /// In units of two spaces.
    indent: usize,
    /// The next field is the first of a list entry.
    dash: bool,
}

impl Writer {
    fn process(&mut self, definition: &Definition) {
        self.field("process", &definition.process.value);
        self.title(definition.title.as_deref());
        if let Some(availability) = &definition.availability {
            self.field("availability", availability.value.word());
        }
        match definition.late.as_ref().map(|late| late.value) {
            None => {}
            Some(Late::Tell) => self.field("late", "tell"),
            Some(Late::Abort) => self.field("late", "abort"),
            Some(Late::Extend(by)) => {
                self.field("late", &format!("{{ extend: {} }}", format_duration(by)));
            }
        }
        if !definition.data.is_empty() {
            self.field("data", "");
            self.indent += 1;
            definition.data.iter().for_each(|element| self.element(element));
            self.indent -= 1;
        }
        self.uses("start", &definition.start);
        self.uses("result", &definition.result);
        self.blocks(&definition.steps);
    }

    fn element(&mut self, element: &Element) {
        let kind = element.kind.name();
        match &element.title {
            None => self.field(&element.name.value, kind),
            Some(title) => {
                let value = format!("{{ type: {kind}, title: {} }}", quoted(title));
                self.field(&element.name.value, &value);
            }
        }
    }

    fn blocks(&mut self, blocks: &[Block]) {
        if blocks.is_empty() {
            return self.field("steps", "[]");
        }
        self.field("steps", "");
        for block in blocks {
            self.entry(|writer| match block {
                Block::Step(step) => writer.step(step),
                Block::Parallel(parallel) => writer.parallel(parallel),
                Block::Choice(choice) => writer.choice(choice),
                Block::Loop(l) => writer.repeat(l),
            });
        }
    }

    fn step(&mut self, step: &Step) {
        self.field("step", &step.name.value);
        self.title(step.title.as_deref());
        match &step.work {
            Work::Manual { who } => self.scalar("who", &who.value.to_string()),
            Work::Automatic { job, retry, demand } => {
                self.field("job", &job.value);
                if *retry != Retry::DEFAULT {
                    self.field("retry", &retry_text(*retry));
                }
                self.demand(demand);
            }
        }
        self.uses("reads", &step.reads);
        self.uses("writes", &step.writes);
        self.syncs("after", step.after.iter().filter(|sync| !sync.strict));
        self.syncs("requires", step.after.iter().filter(|sync| sync.strict));
        self.at(step.at.as_ref());
        self.takes(step.takes);
        self.mail(&step.mail);
        match &step.undo {
            None => {}
            Some(Work::Manual { who }) => {
                self.field("undo", &format!("{{ who: {} }}", quoted(&who.value.to_string())));
            }
            Some(Work::Automatic { job, retry, .. }) if *retry == Retry::DEFAULT => {
                self.field("undo", &format!("{{ job: {} }}", job.value));
            }
            Some(Work::Automatic { job, retry, .. }) => {
                let value = format!("{{ job: {}, retry: {} }}", job.value, retry_text(*retry));
                self.field("undo", &value);
            }
        }
    }

    fn demand(&mut self, demand: &Demand<Spanned<Arc<str>>>) {
        let usual = Demand::default();
        let all =
            [("size", &demand.size, usual.size), ("priority", &demand.priority, usual.priority)];
        for (key, measure, usual) in all {
            match measure {
                Measure::Number(_) if *measure == usual => {}
                Measure::Number(number) => self.field(key, &number.to_string()),
                Measure::Element(element) => self.field(key, &element.value),
            }
        }
        if let Some(timeout) = demand.timeout {
            self.field("timeout", &format_duration(timeout));
        }
    }

    fn parallel(&mut self, parallel: &Parallel) {
        self.field("parallel", &parallel.name.value);
        self.title(parallel.title.as_deref());
        self.branches(&parallel.branches);
    }

    fn choice(&mut self, choice: &Choice) {
        self.field("choice", &choice.name.value);
        self.title(choice.title.as_deref());
        match &choice.by {
            ChoiceBy::Conditions => {}
            ChoiceBy::Person(decider) => self.decider(decider),
        }
        self.branches(&choice.branches);
    }

    fn repeat(&mut self, l: &Loop) {
        self.field("loop", &l.name.value);
        self.title(l.title.as_deref());
        self.blocks(&l.body);
        match &l.until {
            Until::Condition(condition) => self.scalar("until", condition.value.source()),
            Until::Person(decider) => self.decider(decider),
        }
        if l.times_max != ITERATIONS_DEFAULT {
            self.field("max", &l.times_max.to_string());
        }
        if l.rounds != ROUNDS_DEFAULT {
            self.field("rounds", &l.rounds.to_string());
        }
    }

    fn decider(&mut self, decider: &Decider) {
        self.scalar("who", &decider.who.value.to_string());
        self.uses("reads", &decider.reads);
        self.at(decider.at.as_ref());
        self.takes(decider.takes);
        self.mail(&decider.mail);
    }

    fn branches(&mut self, branches: &[Branch]) {
        self.field("branches", "");
        for (place, branch) in branches.iter().enumerate() {
            self.entry(|writer| {
                if *branch.name.value != *(place + 1).to_string() {
                    writer.field("name", &branch.name.value);
                }
                writer.title(branch.title.as_deref());
                match &branch.guard {
                    Guard::None => {}
                    Guard::When(condition) => writer.scalar("when", condition.value.source()),
                    Guard::Otherwise(_) => writer.field("otherwise", "true"),
                }
                writer.blocks(&branch.steps);
            });
        }
    }

    fn title(&mut self, title: Option<&str>) {
        if let Some(title) = title {
            self.scalar("title", title);
        }
    }

    fn at(&mut self, at: Option<&Spanned<Assignment>>) {
        if let Some(at) = at {
            self.scalar("at", &at.value.to_string());
        }
    }

    fn takes(&mut self, takes: Option<Duration>) {
        if let Some(takes) = takes {
            self.field("takes", &format_duration(takes));
        }
    }

    fn uses(&mut self, key: &str, uses: &[Use]) {
        let names = uses
            .iter()
            .map(|used| format!("{}{}", used.element.value, if used.optional { "?" } else { "" }));
        self.names(key, names.collect());
    }

    fn syncs<'s>(&mut self, key: &str, syncs: impl Iterator<Item = &'s Sync>) {
        self.names(key, syncs.map(|sync| sync.from.value.to_string()).collect());
    }

    fn mail(&mut self, mail: &[Spanned<Arc<str>>]) {
        self.names("mail", mail.iter().map(|name| name.value.to_string()).collect());
    }

    fn names(&mut self, key: &str, names: Vec<String>) {
        if !names.is_empty() {
            self.field(key, &format!("[{}]", names.join(", ")));
        }
    }

    fn scalar(&mut self, key: &str, text: &str) {
        if is_plain(text) { self.field(key, text) } else { self.field(key, &quoted(text)) }
    }

    /// One entry of a list, whose first field carries the dash.
    fn entry(&mut self, fields: impl FnOnce(&mut Self)) {
        self.indent += 2;
        self.dash = true;
        fields(self);
        self.indent -= 2;
    }

    fn field(&mut self, key: &str, value: &str) {
        let dash = std::mem::take(&mut self.dash);
        let indent = self.indent - usize::from(dash);
        let (space, mark) = (if value.is_empty() { "" } else { " " }, if dash { "- " } else { "" });
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{:1$}{mark}{key}:{space}{value}", "", indent * 2);
    }
}

fn retry_text(retry: Retry) -> String {
    format!("{{ times: {}, pause: {} }}", retry.times, format_duration(retry.pause))
}

/// Whether a text can stand after `key: ` without quotes and is read back unchanged.
fn is_plain(text: &str) -> bool {
    let harmless = |c: char| c.is_alphanumeric() || " _-.,()<>=+*/?|&!".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(harmless)
        && !text.ends_with(' ')
        && resolve(text) == ScalarKind::Text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Line breaks or invisible: escaped by number.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                // Writing into a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
