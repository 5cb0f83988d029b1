//! Random definitions for property tests.
//!
//! Generated definitions compile, keep the rules K1 to K6 and Z3 always, D1 and D2 on request, and
//! read back from their YAML. They shrink towards fewer and simpler blocks.

mod placed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::assignment::{self, Assignment};
use crate::compile::compile;
use crate::condition::Condition;
use crate::definition::{
    Availability, Block, Branch, Choice, ChoiceBy, Decider, Definition, Demand, Element, Guard,
    Late, Loop, Measure, Parallel, Retry, Step, Sync, Until, Use, Work,
};
use crate::finding::{Span, Spanned};
use crate::rule::{Actors, Rule};
use crate::value::ValueType;
pub use placed::{located, placed_definition};

/// The roles that generated rules name; `Agent()` may do the other steps.
pub const ROLES: [&str; 3] = ["clerk", "nurse", "manager"];
/// The job types that generated automatic steps have.
pub const JOBS: [&str; 3] = ["book", "print", "score"];

/// The number of cases of a random test: `usual`, scaled if `PROPTEST_CASES` differs from the 256
/// of proptest. So all tests scale alike, the slow ones with few cases and the fast ones with many.
pub fn cases(usual: u32) -> ProptestConfig {
    const PROPTEST_OWN: u64 = 256;
    let config = ProptestConfig::default();
    let cases = u64::from(usual) * u64::from(config.cases) / PROPTEST_OWN;
    ProptestConfig { cases: u32::try_from(cases.max(1)).unwrap_or(u32::MAX), ..config }
}

/// The features of generated definitions.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The approximate maximum of blocks.
    pub blocks_max: u32,
    /// The greatest depth.
    pub depth_max: u32,
    /// The number of data elements, at least two: `flag` (bool) and `count` (int) always exist and
    /// are start data, so that conditions have something to refer to.
    pub elements: usize,
    /// Loops. Each repeats at most a few times before it becomes an incident.
    pub loops: bool,
    /// Manual steps, and decisions by people.
    pub people: bool,
    /// `after:` edges.
    pub soft_syncs: bool,
    /// `requires:` edges. They can skip everything up to the end of the process.
    pub strict_syncs: bool,
    /// Keep D1 (every mandatory read is certainly supplied) and D2 (no parallel writes).
    pub data_rules: bool,
    /// Titles, places, durations, retries and compensation.
    pub details: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            blocks_max: 24,
            depth_max: 4,
            elements: 6,
            loops: true,
            people: true,
            soft_syncs: true,
            strict_syncs: true,
            data_rules: true,
            details: false,
        }
    }
}

/// Definitions of the process `random` within the given options.
pub fn definition(options: Options) -> impl Strategy<Value = Definition> {
    // Sometimes a process without any step.
    let blocks = prop_oneof![1 => Just(Vec::new()), 30 => vec(shape(options), 1..=5)];
    let syncs = vec((any::<u32>(), any::<bool>()), 0..=6);
    (any::<u128>(), blocks, syncs).prop_map(move |(dice, blocks, syncs)| {
        let mut builder = Builder::new(options, Dice(dice));
        let mut definition = builder.definition(blocks);
        add_syncs(&mut definition, &builder.places, &syncs, options);
        definition
    })
}

/// The nesting of blocks; all else about a block is rolled with its dice.
#[derive(Clone, Debug)]
enum Shape {
    Step(Dice),
    Parallel(Dice, Vec<Vec<Shape>>),
    Choice(Dice, Vec<Vec<Shape>>),
    Loop(Dice, Vec<Shape>),
}

fn shape(options: Options) -> impl Strategy<Value = Shape> {
    let dice = || any::<u128>().prop_map(Dice);
    let step = dice().prop_map(Shape::Step);
    step.prop_recursive(options.depth_max, options.blocks_max, 4, move |inner| {
        let branches = || vec(vec(inner.clone(), 0..=3), 2..=3);
        let parallel = (dice(), branches()).prop_map(|(dice, b)| Shape::Parallel(dice, b));
        let choice = (dice(), branches()).prop_map(|(dice, b)| Shape::Choice(dice, b));
        let repeat = (dice(), vec(inner.clone(), 1..=3)).prop_map(|(dice, b)| Shape::Loop(dice, b));
        let loops = u32::from(options.loops);
        prop_oneof![2 => parallel, 2 => choice, loops => repeat]
    })
}

/// A source of choices in one number. Zero, where shrinking ends, always rolls zero.
#[derive(Clone, Copy, Debug)]
struct Dice(u128);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        let sides = sides.max(1) as u128;
        let rolled = self.0 % sides;
        self.0 /= sides;
        rolled as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let place = self.roll(from.len());
        from.get(place).copied()
    }
}

/// The place of a step, which determines possible sync edges.
struct Place {
    name: Arc<str>,
    /// The blocks around it, outermost first, each with the branch.
    around: Vec<Around>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    Parallel(usize, usize),
    Choice(usize, usize),
    Loop(usize),
}

/// What holds at a place of the process.
#[derive(Clone, Default)]
struct Scope {
    /// Elements certainly written before.
    supplied: BTreeSet<usize>,
    /// Elements without a parallel write.
    writable: BTreeSet<usize>,
    /// Steps a person has certainly done before.
    performed: BTreeSet<Arc<str>>,
}

struct Builder {
    options: Options,
    dice: Dice,
    elements: Vec<Element>,
    blocks: usize,
    around: Vec<Around>,
    places: Vec<Place>,
}

impl Builder {
    fn new(options: Options, mut dice: Dice) -> Self {
        let mut elements = vec![element("flag", ValueType::Bool), element("count", ValueType::Int)];
        for place in 2..options.elements {
            let kind = dice.pick(&ValueType::ALL).unwrap_or(ValueType::String);
            elements.push(element(&format!("e{place}"), kind));
        }
        if options.details {
            elements[0].title = Some("true".to_owned());
        }
        Self { options, dice, elements, blocks: 0, around: Vec::new(), places: Vec::new() }
    }

    fn definition(&mut self, shapes: Vec<Shape>) -> Definition {
        let mut dice = self.dice;
        let all: BTreeSet<usize> = (0..self.elements.len()).collect();
        let start: Vec<Use> = all
            .iter()
            .filter_map(|&place| match (place, dice.roll(3)) {
                (0 | 1, _) | (_, 1) => Some(self.used(place, false)),
                (_, 2) => Some(self.used(place, true)),
                (_, _) => None,
            })
            .collect();
        let given = |place: &usize| {
            start.iter().any(|u| !u.optional && u.element == self.elements[*place].name)
        };
        let supplied = all.iter().copied().filter(given).collect();
        let mut scope = Scope { supplied, writable: all, performed: BTreeSet::new() };
        let steps = self.sequence(shapes, &mut scope);
        let result = self.reads(&scope, &mut dice);
        Definition {
            process: Spanned::nowhere(Arc::from("random")),
            title: self.title("A random process: \"quoted\", #1 of 2 – ä", &mut dice),
            availability: match dice.roll(4) {
                0 => Some(Spanned::nowhere(Availability::High)),
                1 => Some(Spanned::nowhere(Availability::Normal)),
                _ => None,
            },
            late: match dice.roll(5) {
                0 => Some(Spanned::nowhere(Late::Tell)),
                1 => Some(Spanned::nowhere(Late::Abort)),
                2 => Some(Spanned::nowhere(Late::Extend(Duration::from_secs(172_800)))),
                _ => None,
            },
            start,
            result,
            data: self.elements.clone(),
            steps,
        }
    }

    fn sequence(&mut self, shapes: Vec<Shape>, scope: &mut Scope) -> Vec<Block> {
        shapes.into_iter().map(|shape| self.block(shape, scope)).collect()
    }

    fn block(&mut self, shape: Shape, scope: &mut Scope) -> Block {
        self.blocks += 1;
        let id = self.blocks;
        match shape {
            Shape::Step(dice) => Block::Step(self.step(id, dice, scope)),
            Shape::Parallel(dice, branches) => {
                Block::Parallel(self.parallel(id, dice, branches, scope))
            }
            Shape::Choice(dice, branches) => Block::Choice(self.choice(id, dice, branches, scope)),
            Shape::Loop(dice, body) => Block::Loop(self.repeat(id, dice, body, scope)),
        }
    }

    fn step(&mut self, id: usize, mut dice: Dice, scope: &mut Scope) -> Step {
        let name: Arc<str> = Arc::from(format!("s{id}"));
        let mut work = self.work(scope, &mut dice);
        let reads = self.reads(scope, &mut dice);
        if self.options.details {
            self.demand(&mut work, &reads, &mut dice);
        }
        let writes = self.writes(scope, &mut dice);
        let details = self.options.details;
        let undo = details && dice.roll(3) == 1;
        let step = Step {
            name: Spanned::nowhere(name.clone()),
            title: self.title("Do it: 'now'", &mut dice),
            undo: undo.then(|| self.work(scope, &mut dice)),
            reads,
            writes,
            after: Vec::new(),
            at: self.at(&mut dice),
            takes: self.takes(&mut dice),
            mail: Vec::new(),
            work,
        };
        if matches!(step.work, Work::Manual { .. }) {
            scope.performed.insert(name.clone());
        }
        self.places.push(Place { name, around: self.around.clone() });
        step
    }

    fn parallel(
        &mut self,
        id: usize,
        mut dice: Dice,
        branches: Vec<Vec<Shape>>,
        scope: &mut Scope,
    ) -> Parallel {
        let title = self.title("At once", &mut dice);
        let shares: Vec<(usize, usize)> =
            scope.writable.iter().map(|&element| (element, dice.roll(branches.len()))).collect();
        let mut after = scope.clone();
        let branches = branches
            .into_iter()
            .enumerate()
            .map(|(place, shapes)| {
                let mut inner = scope.clone();
                if self.options.data_rules {
                    inner.writable =
                        shares.iter().filter(|(_, to)| *to == place).map(|(e, _)| *e).collect();
                }
                self.around.push(Around::Parallel(id, place));
                let steps = self.sequence(shapes, &mut inner);
                self.around.pop();
                after.supplied.extend(inner.supplied);
                after.performed.extend(inner.performed);
                branch(place, Guard::None, steps, self.title("One of them", &mut dice))
            })
            .collect();
        *scope = after;
        Parallel { name: Spanned::nowhere(Arc::from(format!("p{id}"))), title, branches }
    }

    fn choice(
        &mut self,
        id: usize,
        mut dice: Dice,
        branches: Vec<Vec<Shape>>,
        scope: &mut Scope,
    ) -> Choice {
        let name: Arc<str> = Arc::from(format!("c{id}"));
        let by_person = self.options.people && dice.roll(2) == 1;
        let (by, guards) = if by_person {
            let decider = self.decider(&name, scope, &mut dice);
            (ChoiceBy::Person(decider), vec![Guard::None; branches.len()])
        } else {
            (ChoiceBy::Conditions, self.guards(branches.len(), scope, &mut dice))
        };
        let title = self.title("Either - or", &mut dice);
        let mut outcomes: Vec<Scope> = Vec::new();
        let branches = branches
            .into_iter()
            .zip(guards)
            .enumerate()
            .map(|(place, (shapes, guard))| {
                let mut inner = scope.clone();
                self.around.push(Around::Choice(id, place));
                let steps = self.sequence(shapes, &mut inner);
                self.around.pop();
                outcomes.push(inner);
                let mut branch = branch(place, guard, steps, self.title("This way?", &mut dice));
                if by_person {
                    branch.name.value = Arc::from(format!("b{place}"));
                }
                branch
            })
            .collect();
        let common = outcomes.into_iter().reduce(|mut a, b| {
            a.supplied.retain(|element| b.supplied.contains(element));
            a.performed.retain(|step| b.performed.contains(step));
            a
        });
        *scope = common.unwrap_or_default();
        Choice { name: Spanned::nowhere(name), title, by, branches }
    }

    fn repeat(&mut self, id: usize, mut dice: Dice, body: Vec<Shape>, scope: &mut Scope) -> Loop {
        let name: Arc<str> = Arc::from(format!("l{id}"));
        self.around.push(Around::Loop(id));
        let body = self.sequence(body, scope);
        self.around.pop();
        let until = if self.options.people && dice.roll(3) == 1 {
            Until::Person(self.decider(&name, scope, &mut dice))
        } else {
            let element = self.conditional(scope, &mut dice);
            let boolean = self.elements[element].kind == ValueType::Bool;
            Until::Condition(self.condition(element, if boolean { "" } else { " >= 2" }))
        };
        let title = self.title("Again and again", &mut dice);
        // Nested loops could exceed the limit on planned iterations.
        let loops = self.around.iter().filter(|around| matches!(around, Around::Loop(_))).count();
        let rounds = 1 + if loops < 2 { dice.roll(2) as u32 } else { 0 };
        Loop {
            name: Spanned::nowhere(name),
            title,
            body,
            until,
            times_max: 2 + dice.roll(4) as u32,
            rounds,
        }
    }

    /// Conditions that cover every value of one element and do not overlap.
    fn guards(&self, count: usize, scope: &Scope, dice: &mut Dice) -> Vec<Guard> {
        let element = if count == 2 { self.conditional(scope, dice) } else { 1 };
        if self.elements[element].kind == ValueType::Bool {
            let other = match dice.roll(2) {
                0 => Guard::Otherwise(Span::default()),
                _ => Guard::When(self.condition_text(format!("!{}", self.name(element)))),
            };
            return vec![Guard::When(self.condition(element, "")), other];
        }
        (0..count)
            .map(|place| match place + 1 {
                last if last == count => Guard::Otherwise(Span::default()),
                _ => Guard::When(self.condition(element, &format!(" == {place}"))),
            })
            .collect()
    }

    /// An element that a condition can refer to and that certainly has a value.
    fn conditional(&self, scope: &Scope, dice: &mut Dice) -> usize {
        let fits = |&place: &usize| {
            matches!(self.elements[place].kind, ValueType::Bool | ValueType::Int)
                && (scope.supplied.contains(&place) || !self.options.data_rules)
        };
        let candidates: Vec<usize> = (0..self.elements.len()).filter(fits).collect();
        dice.pick(&candidates).unwrap_or(0)
    }
}

/// The contents of blocks.
impl Builder {
    fn work(&self, scope: &Scope, dice: &mut Dice) -> Work {
        if self.options.people && dice.roll(2) == 1 {
            return Work::Manual { who: Spanned::nowhere(who(scope, dice)) };
        }
        let job = Spanned::nowhere(Arc::from(dice.pick(&JOBS).unwrap_or("book")));
        let retry = match dice.roll(2) {
            1 if self.options.details => {
                Retry { times: dice.roll(5) as u32, pause: Duration::from_millis(250) }
            }
            _ => Retry::DEFAULT,
        };
        Work::Automatic { job, retry, demand: Demand::default() }
    }

    /// The demands of a job on its worker or executor.
    fn demand(&self, work: &mut Work, reads: &[Use], dice: &mut Dice) {
        let Work::Automatic { demand, .. } = work else { return };
        let is_int = |read: &&Use| {
            let mut elements = self.elements.iter();
            elements.any(|own| own.name.value == read.element.value && own.kind == ValueType::Int)
        };
        let element = reads.iter().find(is_int).map(|read| read.element.clone());
        match (dice.roll(4), element) {
            (1, Some(element)) => demand.size = Measure::Element(element),
            (2, Some(element)) => demand.priority = Measure::Element(element),
            (1, None) => demand.size = Measure::Number(7),
            (2, None) => demand.priority = Measure::Number(0),
            (3, _) => demand.timeout = Some(Duration::from_secs(90)),
            _ => {}
        }
    }

    fn decider(&self, name: &Arc<str>, scope: &mut Scope, dice: &mut Dice) -> Decider {
        let who = Spanned::nowhere(who(scope, dice));
        scope.performed.insert(name.clone());
        let (reads, at, takes) = (self.reads(scope, dice), self.at(dice), self.takes(dice));
        Decider { who, reads, at, takes, mail: Vec::new() }
    }

    fn reads(&self, scope: &Scope, dice: &mut Dice) -> Vec<Use> {
        let supplied = |place| !self.options.data_rules || scope.supplied.contains(&place);
        (0..self.elements.len())
            .filter_map(|place| match dice.roll(4) {
                2 if supplied(place) => Some(self.used(place, false)),
                3 => Some(self.used(place, true)),
                _ => None,
            })
            .collect()
    }

    fn writes(&self, scope: &mut Scope, dice: &mut Dice) -> Vec<Use> {
        let mut writes = Vec::new();
        for &place in &scope.writable {
            match dice.roll(4) {
                2 => {
                    scope.supplied.insert(place);
                    writes.push(self.used(place, false));
                }
                3 => writes.push(self.used(place, true)),
                _ => {}
            }
        }
        writes
    }

    fn used(&self, place: usize, optional: bool) -> Use {
        Use { element: self.elements[place].name.clone(), optional }
    }

    fn name(&self, element: usize) -> &str {
        &self.elements[element].name.value
    }

    fn condition(&self, element: usize, rest: &str) -> Spanned<Condition> {
        self.condition_text(format!("{}{rest}", self.name(element)))
    }

    fn condition_text(&self, text: String) -> Spanned<Condition> {
        match Condition::parse(&text) {
            Ok(condition) => Spanned::nowhere(condition),
            Err(error) => unreachable!("`{text}` is a condition: {error}"),
        }
    }

    fn title(&self, title: &str, dice: &mut Dice) -> Option<String> {
        (self.options.details && dice.roll(2) == 1).then(|| title.to_owned())
    }

    fn at(&self, dice: &mut Dice) -> Option<Spanned<Assignment>> {
        let somewhere = self.options.details && dice.roll(3) == 1;
        let north = || Assignment {
            place: assignment::Place::Domain(Arc::from("north")),
            exceptions: BTreeMap::new(),
        };
        somewhere.then(|| Spanned::nowhere(north()))
    }

    fn takes(&self, dice: &mut Dice) -> Option<Duration> {
        let minutes = dice.roll(3) as u64;
        (self.options.details && minutes > 0).then(|| Duration::from_secs(minutes * 60))
    }
}

fn element(name: &str, kind: ValueType) -> Element {
    Element { name: Spanned::nowhere(Arc::from(name)), kind, title: None }
}

fn branch(place: usize, guard: Guard, steps: Vec<Block>, title: Option<String>) -> Branch {
    let name = Spanned::nowhere(Arc::from((place + 1).to_string()));
    Branch { name, title, guard, steps }
}

fn who(scope: &Scope, dice: &mut Dice) -> Rule {
    let performed: Vec<&Arc<str>> = scope.performed.iter().collect();
    let actors = match dice.roll(4) {
        0 => Actors::Agent(None),
        _ => Actors::Role(Arc::from(dice.pick(&ROLES).unwrap_or(ROLES[0]))),
    };
    match (dice.roll(3), dice.pick(&performed)) {
        (1, Some(step)) => Rule::Except(
            Box::new(Rule::Are(actors)),
            Box::new(Rule::Are(Actors::Performer(step.clone()))),
        ),
        (2, Some(step)) => {
            Rule::Any(vec![Rule::Are(actors), Rule::Are(Actors::Performer(step.clone()))])
        }
        (_, _) => Rule::Are(actors),
    }
}

/// Adds sync edges that keep K4.
fn add_syncs(
    definition: &mut Definition,
    places: &[Place],
    wanted: &[(u32, bool)],
    options: Options,
) {
    let pairs: Vec<(&Place, &Place)> = places
        .iter()
        .flat_map(|a| places.iter().map(move |b| (a, b)))
        .filter(|(a, b)| may_sync(a, b))
        .collect();
    for &(place, strict) in wanted {
        let strict = strict && options.strict_syncs;
        if pairs.is_empty() || !(strict || options.soft_syncs) {
            return;
        }
        let (from, to) = pairs[place as usize % pairs.len()];
        let Some(step) = step_named(&mut definition.steps, &to.name) else { return };
        if step.after.iter().any(|sync| sync.from.value == from.name) {
            continue;
        }
        let before = step.after.clone();
        step.after.push(Sync { from: Spanned::nowhere(from.name.clone()), strict });
        // The order in which they are read.
        step.after.sort_by_key(|sync| sync.strict);
        if compile(definition, 1).is_err()
            && let Some(step) = step_named(&mut definition.steps, &to.name)
        {
            // It closed a cycle.
            step.after = before;
        }
    }
}

/// Whether two steps lie in different branches of a parallel, and in the same innermost loop.
fn may_sync(a: &Place, b: &Place) -> bool {
    let parting = a.around.iter().zip(&b.around).find(|(a, b)| a != b);
    let parallel = matches!(
        parting,
        Some((Around::Parallel(one, _), Around::Parallel(other, _))) if one == other
    );
    let innermost = |place: &Place| {
        place.around.iter().rev().find(|around| matches!(around, Around::Loop(_))).copied()
    };
    parallel && innermost(a) == innermost(b)
}

fn step_named<'b>(blocks: &'b mut [Block], name: &str) -> Option<&'b mut Step> {
    blocks.iter_mut().find_map(|block| match block {
        Block::Step(step) => (*step.name.value == *name).then_some(step),
        Block::Parallel(Parallel { branches, .. }) | Block::Choice(Choice { branches, .. }) => {
            branches.iter_mut().find_map(|branch| step_named(&mut branch.steps, name))
        }
        Block::Loop(l) => step_named(&mut l.body, name),
    })
}
