//! A flood of one process beside a few cases of another one, in calm weather: the few do not wait for the
//! end of the flood.
//!
//! Invariant checked: as long as the flood goes on, each of the few ends within about the time that it takes
//! to do all that was there before it, by whoever is slowest. That is what a single queue would give it.

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;

use super::cases::Cases;
use super::staff::Staff;
use super::{finish, pass_time, turn};
use crate::dice::Dice;
use crate::world::World;

/// So much of the flood is kept waiting, for so many turns.
const WAITING: usize = 6;
const TURNS: u32 = 500;
/// How many of the few there are.
const FEW: usize = 6;
const CASES_MAX: usize = 400;
/// The way of what is said, there and back.
const SLACK_MS: i64 = 3_000;

pub(crate) fn go_on(
    staff: &mut Staff,
    cases: &mut Cases,
    world: &mut World,
    dice: &mut Dice,
) -> Result<(), String> {
    world.calm();
    staff.steady();
    let flood = dice.below(2);
    // Who has begun when, and until when they are to end.
    let mut few: BTreeMap<InstanceId, (Timestamp, Timestamp)> = BTreeMap::new();
    let (mut begun, mut next) = (0, 40);
    for number in 0..TURNS {
        if world.gauges().jobs_queued < WAITING && cases.started.len() < CASES_MAX {
            for _ in 0..WAITING {
                cases.start(flood, world);
            }
        }
        if number >= next && begun < FEW {
            (begun, next) = (begun + 1, number + 1 + dice.below(40) as u32);
            let case = cases.start(Cases::NOTE, world);
            let until = world.now().0 + SLACK_MS + 2 * staff.turn_ms(world.gauges().jobs_queued);
            few.insert(case, (world.now(), Timestamp(until)));
        }
        world.cycle(dice)?;
        turn(staff, world, dice)?;
        pass_time(staff, world);
        let open = world.open_instances()?;
        few.retain(|case, _| open.contains(case));
        if let Some((case, (since, _))) = few.iter().find(|(_, (_, until))| world.now() > *until) {
            let waited = world.now().since(*since).as_millis();
            return Err(format!("{case} has waited for {waited} ms in a flood"));
        }
        if begun == FEW && few.is_empty() {
            break;
        }
    }
    finish(staff, cases, world, dice)
}
