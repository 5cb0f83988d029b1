//! Random server assignments for random definitions.
//!
//! Generated definitions keep the rules Z4 and Z5: all paths into a node lead to the same place.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Dice, Options, definition};
use crate::assignment::{Assignment, Place};
use crate::check::check;
use crate::definition::{Block, Definition, Step, Work};
use crate::finding::{Rule, Spanned};

/// Definitions whose steps are spread over the domains.
pub fn placed_definition(
    options: Options,
    domains: &'static [&'static str],
) -> impl Strategy<Value = Definition> {
    let dice = vec(any::<u64>(), 0..64);
    (definition(options), dice).prop_map(move |(mut definition, dice)| {
        let mut known: Vec<(Arc<str>, bool)> = Vec::new();
        let steps: Vec<(Arc<str>, bool)> = names(&definition.steps);
        for ((name, by_person), dice) in steps.into_iter().zip(dice) {
            let mut dice = Dice(u128::from(dice));
            set(&mut definition, &name, assignment(domains, &known, &mut dice));
            if !holds(&definition) {
                let domain = dice.pick(domains).map(|domain| Place::Domain(Arc::from(domain)));
                set(&mut definition, &name, domain.map(plainly));
            }
            known.push((name, by_person));
        }
        definition
    })
}

/// The same, with some of the automatic steps controlled where their executors are.
pub fn located(mut definition: Definition, mut is_chosen: impl FnMut() -> bool) -> Definition {
    for (name, by_person) in names(&definition.steps) {
        if !by_person && is_chosen() {
            let before = definition.clone();
            set(&mut definition, &name, Some(plainly(Place::Executor)));
            if !holds(&definition) {
                definition = before;
            }
        }
    }
    definition
}

fn assignment(domains: &[&str], known: &[(Arc<str>, bool)], dice: &mut Dice) -> Option<Assignment> {
    let place = match dice.roll(4) {
        0 => return None,
        1 => Place::Domain(Arc::from(dice.pick(domains)?)),
        _ => {
            let (step, by_person) = known.get(dice.roll(known.len()))?;
            // A worker's home counts as a person's does.
            let of_actor = *by_person || dice.roll(2) == 1;
            if of_actor { Place::ActorsDomain(step.clone()) } else { Place::Server(step.clone()) }
        }
    };
    let mut assignment = plainly(place);
    if assignment.step().is_some() && dice.roll(4) == 1 {
        let (from, to) = (dice.pick(domains)?, dice.pick(domains)?);
        assignment.exceptions.insert(Arc::from(from), Arc::from(to));
    }
    Some(assignment)
}

fn plainly(place: Place) -> Assignment {
    Assignment { place, exceptions: BTreeMap::new() }
}

fn holds(definition: &Definition) -> bool {
    let broken = |rule| matches!(rule, Rule::Z4 | Rule::Z5);
    !check(definition).iter().any(|finding| broken(finding.rule))
}

/// All steps in the order of the text, and whether a person does them.
fn names(blocks: &[Block]) -> Vec<(Arc<str>, bool)> {
    let mut names = Vec::new();
    let mut blocks = blocks.to_vec();
    for_each(&mut blocks, &mut |step| {
        names.push((step.name.value.clone(), matches!(step.work, Work::Manual { .. })));
    });
    names
}

fn set(definition: &mut Definition, name: &str, assignment: Option<Assignment>) {
    for_each(&mut definition.steps, &mut |step| {
        if &*step.name.value == name {
            step.at = assignment.clone().map(Spanned::nowhere);
        }
    });
}

fn for_each(blocks: &mut [Block], f: &mut impl FnMut(&mut Step)) {
    crate::check::for_each_step(blocks, f);
}
