//! A flood of one process next to a few cases of another one, in calm conditions: the few do not wait for the
//! end of the flood.
//!
//! Invariant checked: during the flood, each of the few ends within about the time that the slowest executor
//! takes for all earlier tasks, as in a single queue, or for as many turns as the few before it and it itself
//! need, if that is longer: the few share the turns of their process.

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;

use super::cases::{Cases, KINDS};
use super::staff::Staff;
use super::{finish, pass_time, turn};
use crate::dice::Dice;
use crate::world::World;

/// The queue of the flood, and its duration in turns.
const WAITING: usize = 6;
const TURNS: u32 = 500;
/// The number of the few.
const FEW: usize = 6;
const CASES_MAX: usize = 400;
/// One turn of the few comes after so many tasks: an executor that does all types gives each the same share, and
/// the flood and the few have the same share of theirs.
const TASKS_PER_TURN: usize = 2 * KINDS.len();
/// The latency of messages, there and back.
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
    // When each began, and when it must end.
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
            let before = world.gauges().jobs_queued.max(TASKS_PER_TURN * (few.len() + 1));
            let until = world.now().0 + SLACK_MS + 2 * staff.turn_ms(before);
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
