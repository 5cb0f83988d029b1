//! Executors that are slow, fail, hang, forget, come and go, over a network that loses and repeats messages, and a
//! site that crashes.
//!
//! Invariant: in all cases one result is accepted for every step, its executor is told so, every other executor is
//! told that its result does not count, and everything comes to an end.

mod cases;
pub(crate) mod checks;
mod executor;
mod flood;
pub(crate) mod staff;

use legwork_model::time::Timestamp;

use crate::Report;
use crate::dice::Dice;
use crate::world::World;
use cases::{Cases, KINDS, outcome};
use checks::Histories;
use staff::{Field, Staff};

const TURNS: u32 = 200;
/// How long it takes at most until tasks lost before the calm are abandoned, at the last attempt; longer if their
/// leases last longer, as with an executor that is assumed to have a backlog.
const LEFT_OVER_MS: i64 = 3_600_000;

pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed ^ 0x0EC5);
    let mut world = World::new(&mut dice);
    let mut cases = Cases::new(&mut world, &mut dice)?;
    let mut staff = Staff::draw(KINDS, &[], &mut dice);
    if seed % 8 == 3 {
        flood::go_on(&mut staff, &mut cases, &mut world, &mut dice)?;
        return report(&staff, &cases, &world);
    }
    staff.set_policies(&mut world, &mut dice)?;
    for _ in 0..TURNS {
        cases.come(&mut world, &mut dice);
        cases.order(&mut world, &mut dice);
        cases.poll(&mut world, &mut dice);
        if dice.chance(5) {
            cases.resolve(&mut world, &mut dice)?;
        }
        world.turn(&mut dice)?;
        turn(&mut staff, &mut world, &mut dice)?;
    }
    world.calm();
    staff.calm();
    staff.unset_policies(&mut world)?;
    finish(&mut staff, &mut cases, &mut world, &mut dice)?;
    report(&staff, &cases, &world)
}

/// Checks everything, and reports what was done.
fn report(staff: &Staff, cases: &Cases, world: &World) -> Result<Report, String> {
    let schema = |case| cases.schema(case);
    let histories = Histories::read(std::slice::from_ref(world), &schema)?;
    histories.compare(staff)?;
    Ok(Report {
        instances: cases.started.len(),
        completions: histories.completions(),
        crashes: world.crashes,
        digest: world.digest()?,
        ..Report::default()
    })
}

/// Everything open ends, in not much more than the time that the work takes at worst.
fn finish(
    staff: &mut Staff,
    cases: &mut Cases,
    world: &mut World,
    dice: &mut Dice,
) -> Result<(), String> {
    let longest_ms = staff.longest_ms(cases.tasks_left(world)?);
    let given_up = staff.leased_until().0.max(world.now().0 + LEFT_OVER_MS);
    let until = Timestamp(given_up + 2 * longest_ms);
    let mut turns = 0;
    while let Some(what) = awaited(staff, world)? {
        if turns % 100 == 0 {
            cases.resume_all(world);
        }
        if turns % 10 == 0 {
            cases.resolve(world, dice)?;
        }
        turns += 1;
        cases.poll(world, dice);
        world.cycle(dice)?;
        turn(staff, world, dice)?;
        pass_time(staff, world);
        if world.now() > until {
            let about = world.describe();
            return Err(format!("after {turns} calm turns still waiting for {what}: {about}"));
        }
    }
    Ok(())
}

fn turn(staff: &mut Staff, world: &mut World, dice: &mut Dice) -> Result<(), String> {
    let now = world.now();
    let (worlds, is_cut) = (std::slice::from_mut(world), &|_, _| false);
    staff.turn(&mut Field { worlds, now, data: &outcome, is_cut }, dice)
}

/// Advances to the next event. Arrived messages are handled first.
fn pass_time(staff: &Staff, world: &mut World) {
    let now = world.now();
    let arrived = world.is_busy().then_some(now);
    let due = arrived.into_iter().chain(world.next_timeout()).chain(staff.next_due()).min();
    let step = due.map_or(50, |due| due.0 - now.0).clamp(100, 120_000);
    world.set_now(Timestamp(now.0 + step));
}

/// What is not over yet.
fn awaited(staff: &Staff, world: &mut World) -> Result<Option<String>, String> {
    if world.gauges().instances_open > 0 {
        return Ok(Some("cases to end".to_owned()));
    }
    match staff.awaits() {
        Some(what) => Ok(Some(what)),
        None => checks::outstanding(world),
    }
}
