//! Reads an organisation from YAML and reports all mistakes.
//!
//! Invariant: reading ends quickly and never panics, whatever the text. Names of broken entries count as declared,
//! so that one mistake does not make every reference another.

mod absence;
mod calendar;
mod mail;
mod rings;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use legwork_model::finding::{Finding, Rule, Span, Spanned};
use legwork_model::id::AgentId;
use legwork_model::yaml::fields::{self, Fields, NAME_LEN_MAX, quote};
use legwork_model::yaml::nearest;
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Content, Node, ScalarKind};

use crate::calendar::UTC;
use crate::organisation::{Agent, Organisation, Parts, Position, Unit};

pub(crate) use self::absence::ABSENCE_FIELDS;
pub(crate) use self::calendar::{CALENDAR_FIELDS, REGULAR_FIELDS};
pub use self::calendar::{CALENDARS_MAX, CLOSED_MAX, REGULAR_MAX};

/// The most agents an organisation may have.
pub const AGENTS_MAX: usize = 20_000;
/// The most units, and the most positions.
pub const UNITS_MAX: usize = 5_000;
pub const POSITIONS_MAX: usize = 20_000;
/// The greatest depth of units.
pub const UNIT_DEPTH_MAX: usize = 32;
/// The most roles, positions, abilities, substitutes or absences of one agent, and the most roles
/// of one position.
pub const NAMES_MAX: usize = 100;
/// The share of people's time that is left free, in per cent, if neither a share nor a reserve is given: nobody
/// begins everything at the very moment at which it can begin.
pub const RESERVE_DEFAULT: u32 = 15;
/// The greatest reserve for the time after a fault, in per cent.
pub const RESERVE_MAX: u32 = 90;

pub(crate) const ORGANISATION_FIELDS: [&str; 5] =
    ["organisation", "units", "positions", "calendars", "agents"];
pub(crate) const UNIT_FIELDS: [&str; 3] = ["title", "in", "manager"];
pub(crate) const POSITION_FIELDS: [&str; 3] = ["title", "unit", "roles"];
pub(crate) const AGENT_FIELDS: [&str; 11] = [
    "name",
    "mail",
    "positions",
    "roles",
    "abilities",
    "calendar",
    "share",
    "reserve",
    "regularly",
    "substitutes",
    "absent",
];

/// For how many unknown names the nearest known one is searched: that takes time.
const GUESSES_MAX: usize = 20;
/// An entry with nothing but its name.
static NOTHING: Node =
    Node { span: Span { line: 0, column: 0 }, content: Content::Mapping(Vec::new()) };

pub(crate) fn parse(source: &str) -> (Option<Organisation>, Vec<Finding>) {
    let mut reading = Reading::default();
    let parts = tree::read(source, &mut reading.report).and_then(|root| reading.parts(&root));
    if let Some(parts) = &parts {
        reading.look_up();
        reading.refuse_cycles(&parts.units);
        if !reading.report.has_errors() {
            reading.warn_of_rings(&parts.agents);
        }
    }
    let whole = parts.filter(|_| !reading.report.has_errors()).map(Organisation::new);
    (whole, reading.report.into_findings())
}

#[derive(Default)]
struct Reading {
    report: Report,
    units: BTreeSet<Arc<str>>,
    positions: BTreeSet<Arc<str>>,
    agents: BTreeSet<Arc<str>>,
    calendars: BTreeSet<Arc<str>>,
    references: Vec<(Spanned<Arc<str>>, Kind)>,
    /// Sections that are not read completely: references into them cannot be checked.
    unreadable: Vec<Kind>,
    /// Where each unit names its parent.
    parents: BTreeMap<Arc<str>, Span>,
    /// Where each agent names their substitutes.
    substitutes: BTreeMap<Arc<str>, Span>,
    /// The number of unknown time zones.
    guesses: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unit,
    Position,
    Calendar,
    Agent,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Position => "position",
            Self::Calendar => "calendar",
            Self::Agent => "agent",
        }
    }

    fn section(self) -> &'static str {
        match self {
            Self::Unit => "units",
            Self::Position => "positions",
            Self::Calendar => "calendars",
            Self::Agent => "agents",
        }
    }

    fn count_max(self) -> usize {
        match self {
            Self::Unit => UNITS_MAX,
            Self::Position => POSITIONS_MAX,
            Self::Calendar => CALENDARS_MAX,
            Self::Agent => AGENTS_MAX,
        }
    }
}

impl Reading {
    fn parts(&mut self, root: &Node) -> Option<Parts> {
        let fields = Fields::of(root, "an organisation", &mut self.report)?;
        fields.refuse_unknown(&ORGANISATION_FIELDS, &mut self.report);
        let hint = "begin the file with `organisation: ` and a name";
        let name = fields.required("organisation", hint, &mut self.report);
        let name = name.and_then(|node| self.name_of(node, "the name of the organisation"));
        let name = name.map(|name| name.value).unwrap_or_default();
        let mut parts = Parts { name, ..Parts::default() };
        for (name, value) in self.section(&fields, Kind::Unit) {
            let unit = self.unit(&name, value);
            parts.units.extend(unit.map(|unit| (name.value, unit)));
        }
        for (name, value) in self.section(&fields, Kind::Position) {
            let position = self.position(&name, value);
            parts.positions.extend(position.map(|position| (name.value, position)));
        }
        for (name, value) in self.section(&fields, Kind::Calendar) {
            let calendar = self.calendar(&name.value, value);
            parts.calendars.extend(calendar.map(|calendar| (name.value, calendar)));
        }
        let hint = "write `agents:` and, below, a name for everybody";
        fields.required("agents", hint, &mut self.report);
        for (name, value) in self.section(&fields, Kind::Agent) {
            let agent = self.agent(&name, value, &parts);
            parts.agents.extend(agent.map(|agent| (agent.id.clone(), agent)));
        }
        Some(parts)
    }

    /// The entries of a section, by name; all names are declared before any is read.
    fn section<'t>(
        &mut self,
        fields: &Fields<'t>,
        kind: Kind,
    ) -> Vec<(Spanned<Arc<str>>, &'t Node)> {
        let (word, count_max) = (kind.word(), kind.count_max());
        let Some(node) = fields.value(kind.section()) else { return Vec::new() };
        let what = format!("`{}`", kind.section());
        let Some(entries) = Fields::of(node, what, &mut self.report) else {
            self.unreadable.push(kind);
            return Vec::new();
        };
        let mut named = Vec::new();
        for (key, value) in entries.iter() {
            if named.len() == count_max {
                let message = format!("there are more than {count_max} {word}s");
                let hint = "split the organisation into several";
                self.report.error(key.span, Rule::Y3, message, hint);
                self.unreadable.push(kind);
                break;
            }
            let Some(name) = self.name(key, &format!("the name of {} {word}", article(word)))
            else {
                continue;
            };
            self.declared(kind).insert(name.value.clone());
            named.push((name, value));
        }
        named
    }

    fn unit(&mut self, name: &Spanned<Arc<str>>, node: &Node) -> Option<Unit> {
        let what = format!("unit `{}`", name.value);
        let fields = self.entry(node, &what, &UNIT_FIELDS)?;
        let parent = self.reference(&fields, "in", Kind::Unit);
        if let Some(parent) = &parent {
            self.parents.insert(name.value.clone(), parent.span);
        }
        let manager = self.reference(&fields, "manager", Kind::Agent);
        Some(Unit {
            name: name.value.clone(),
            title: self.title(&fields, "title"),
            parent: parent.map(|parent| parent.value),
            manager: manager.map(|manager| AgentId(manager.value)),
        })
    }

    fn position(&mut self, name: &Spanned<Arc<str>>, node: &Node) -> Option<Position> {
        let what = format!("position `{}`", name.value);
        let fields = self.entry(node, &what, &POSITION_FIELDS)?;
        let title = self.title(&fields, "title");
        let roles = self.names(&fields, "roles", None);
        if fields.value("unit").is_none() {
            let message = format!("{what} needs `unit`");
            let hint = "write `unit: ` and the unit it belongs to";
            self.report.error(name.span, Rule::Y2, message, hint);
        }
        let unit = self.reference(&fields, "unit", Kind::Unit)?;
        Some(Position { name: name.value.clone(), title, unit: unit.value, roles })
    }

    fn agent(&mut self, name: &Spanned<Arc<str>>, node: &Node, parts: &Parts) -> Option<Agent> {
        let what = format!("agent `{}`", name.value);
        let fields = self.entry(node, &what, &AGENT_FIELDS)?;
        let id = AgentId(name.value.clone());
        let substitutes: Vec<AgentId> = self
            .names(&fields, "substitutes", Some(Kind::Agent))
            .into_iter()
            .map(AgentId)
            .collect();
        if let Some((span, _)) = fields.get("substitutes") {
            self.substitutes.insert(name.value.clone(), span);
        }
        if substitutes.contains(&id) {
            let (span, _) = fields.get("substitutes").unwrap_or((name.span, node));
            let message = format!("{what} cannot stand in for themselves");
            let hint = "name another agent, or leave `substitutes` out";
            self.report.error(span, Rule::Y2, message, hint);
        }
        let calendar = self.reference(&fields, "calendar", Kind::Calendar);
        let known = calendar.as_ref().and_then(|name| parts.calendars.get(&name.value));
        let zone = known.map_or(&UTC, |calendar| &calendar.zone);
        let share = self.percent(&fields, "share", 1..=100);
        let reserve = self.percent(&fields, "reserve", 0..=RESERVE_MAX);
        // An explicit share is complete: no default reserve is taken from it.
        let left_free = if share.is_some() { 0 } else { RESERVE_DEFAULT };
        Some(Agent {
            name: self.title(&fields, "name").unwrap_or_else(|| id.to_string()),
            id,
            mail: self.mail(&fields),
            positions: self.names(&fields, "positions", Some(Kind::Position)),
            roles: self.names(&fields, "roles", None),
            abilities: self.names(&fields, "abilities", None),
            calendar: calendar.map(|name| name.value),
            share: share.unwrap_or(100),
            reserve: reserve.unwrap_or(left_free),
            regularly: self.regularly(&fields, zone),
            substitutes,
            absent: self.absences(&fields, zone),
        })
    }

    /// The fields of an entry; a missing value counts as an empty one.
    fn entry<'t>(&mut self, node: &'t Node, what: &str, known: &[&str]) -> Option<Fields<'t>> {
        let nothing = node.scalar().is_some_and(|scalar| scalar.kind == ScalarKind::Null);
        let fields = Fields::of(if nothing { &NOTHING } else { node }, what, &mut self.report)?;
        fields.refuse_unknown(known, &mut self.report);
        Some(fields)
    }

    fn title(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        let what = format!("`{key}` of {}", fields.what());
        fields.value(key).and_then(|node| fields::title(node, &what, &mut self.report))
    }

    fn reference(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        kind: Kind,
    ) -> Option<Spanned<Arc<str>>> {
        let what = format!("`{key}` of {}", fields.what());
        let name = self.name_of(fields.value(key)?, &what)?;
        self.references.push((name.clone(), kind));
        Some(name)
    }

    fn percent(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let what = format!("`{key}` of {}", fields.what());
        fields.value(key).and_then(|node| fields::number(node, &what, range, &mut self.report))
    }

    /// A list of names, each at most once.
    fn names(&mut self, fields: &Fields<'_>, key: &str, kind: Option<Kind>) -> Vec<Arc<str>> {
        let what = format!("`{key}` of {}", fields.what());
        let Some(node) = fields.value(key) else { return Vec::new() };
        let hint = format!("write `{key}: [ … ]`");
        let Some(items) = fields::items(node, &what, &hint, &mut self.report) else {
            return Vec::new();
        };
        if !self.admit_count(items, NAMES_MAX, &what) {
            return Vec::new();
        }
        let mut names: Vec<Arc<str>> = Vec::with_capacity(items.len());
        for item in items {
            let Some(name) = self.name_of(item, &format!("a name in {what}")) else { continue };
            if names.contains(&name.value) {
                let message = format!("{what} names `{}` twice", name.value);
                self.report.error(name.span, Rule::Y2, message, "keep one of them");
                continue;
            }
            names.push(name.value.clone());
            self.references.extend(kind.map(|kind| (name, kind)));
        }
        names
    }

    fn admit_count(&mut self, items: &[Node], most: usize, what: &str) -> bool {
        if let Some(first) = items.get(most) {
            let message = format!("{what} has more than {most} entries");
            self.report.error(first.span, Rule::Y3, message, "keep those that matter");
            return false;
        }
        true
    }

    fn name_of(&mut self, node: &Node, what: &str) -> Option<Spanned<Arc<str>>> {
        let text = fields::text(node, what, usize::MAX, &mut self.report)?;
        self.name(text, what)
    }

    fn name(&mut self, text: Spanned<&str>, what: &str) -> Option<Spanned<Arc<str>>> {
        let Spanned { value, span } = text;
        if value.chars().nth(NAME_LEN_MAX).is_some() {
            let message = format!("{what} is longer than {NAME_LEN_MAX} characters");
            self.report.error(span, Rule::Y3, message, "choose a shorter name");
            return None;
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
        if value.starts_with(|c: char| c.is_ascii_alphanumeric()) && value.chars().all(plain) {
            return Some(Spanned::new(Arc::from(value), span));
        }
        let message = format!("{what} cannot be {}", quote(value));
        let hint = "a name begins with a letter or a digit and goes on with letters a-z, digits, \
                    `-`, `_`, `.` and `@`";
        self.report.error(span, Rule::Y2, message, hint);
        None
    }

    fn declared(&mut self, kind: Kind) -> &mut BTreeSet<Arc<str>> {
        match kind {
            Kind::Unit => &mut self.units,
            Kind::Position => &mut self.positions,
            Kind::Calendar => &mut self.calendars,
            Kind::Agent => &mut self.agents,
        }
    }

    fn look_up(&mut self) {
        let mut told = 0;
        for (name, kind) in std::mem::take(&mut self.references) {
            if self.declared(kind).contains(&name.value) || self.unreadable.contains(&kind) {
                continue;
            }
            told += 1;
            let word = kind.word();
            let known = self.declared(kind).iter().map(|known| &**known);
            let near = if told <= GUESSES_MAX { nearest(&name.value, known) } else { None };
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add it to `{}`, or name another", kind.section()),
            };
            let message = format!("there is no {word} `{}`", name.value);
            self.report.error(name.span, Rule::Z1, message, hint);
        }
    }

    /// Every unit must lead to a root in a bounded number of steps.
    fn refuse_cycles(&mut self, units: &BTreeMap<Arc<str>, Unit>) {
        let mut told: BTreeSet<&str> = BTreeSet::new();
        let mut too_deep = None;
        for name in units.keys() {
            let mut path: Vec<&str> = Vec::new();
            let mut place = units.get(name);
            while let Some(unit) = place {
                if let Some(start) = path.iter().position(|&before| before == &*unit.name) {
                    if !told.contains(&*unit.name) {
                        self.tell_cycle(&path[start..]);
                    }
                    told.extend(&path[start..]);
                    break;
                }
                if path.len() == UNIT_DEPTH_MAX {
                    too_deep = too_deep.or(Some(name));
                    break;
                }
                path.push(&unit.name);
                place = unit.parent.as_ref().and_then(|parent| units.get(parent));
            }
        }
        if let Some(name) = too_deep {
            let span = self.parents.get(name).copied().unwrap_or_default();
            let message = format!("more than {UNIT_DEPTH_MAX} units lie above each other");
            self.report.error(span, Rule::Y3, message, "make the tree flatter");
        }
    }

    fn tell_cycle(&mut self, ring: &[&str]) {
        let first = ring.first().copied().unwrap_or_default();
        let span = self.parents.get(first).copied().unwrap_or_default();
        let path = ring.join("` in `");
        let message = format!("the units form a ring: `{path}` in `{first}`");
        self.report.error(span, Rule::Y2, message, "let one of them be in no other");
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" }
}
