//! Whole sites in virtual time: the production `site` under a driver that crashes it, loses its answers and sets
//! its clock back, alone and several of them over a bad network, all from one seed.
//!
//! Invariant: a run depends on its seed alone. The same seed twice gives the same bytes, so a
//! failing run can be repeated exactly.

mod actors;
pub mod calm;
mod checks;
mod cluster;
mod dice;
mod executors;
mod material;
mod promised;
mod recurring;
mod watchers;
mod world;

use std::fmt;
use std::ops::Add;

use actors::Crowd;
use cluster::Kind;
use dice::Dice;
use world::World;

/// The number of turns of random activity, before the run is brought to its end.
const TURNS: u32 = 160;
/// More than enough turns to finish: beyond them something waits forever.
const TURNS_TO_FINISH_MAX: u32 = 4_000;

/// A summary of a run, and a digest of everything stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub instances: usize,
    pub completions: usize,
    pub crashes: u32,
    pub refusals: u32,
    /// Changes of the weights and hosts of a domain's servers.
    pub changes: Changes,
    pub promises: Promises,
    pub digest: u64,
}

/// The outcomes of deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    pub promised: usize,
    pub refused: usize,
    /// Started without a promise.
    pub unpromised: usize,
    /// Only asked for.
    pub asked: usize,
    /// Promised for an offered date.
    pub accepted: usize,
    pub kept: usize,
    /// Revoked, and told.
    pub revoked: usize,
    /// Done after the deadline.
    pub late: usize,
    /// Those of them that were promised until the deadline passed: after a fault.
    pub excused: usize,
}

impl Add for Promises {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            promised: self.promised + other.promised,
            refused: self.refused + other.refused,
            unpromised: self.unpromised + other.unpromised,
            asked: self.asked + other.asked,
            accepted: self.accepted + other.accepted,
            kept: self.kept + other.kept,
            revoked: self.revoked + other.revoked,
            late: self.late + other.late,
            excused: self.excused + other.excused,
        }
    }
}

/// The outcomes of changes of the topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub published: usize,
    pub undone: usize,
    /// Servers that have moved to another host.
    pub moved: usize,
}

impl Add for Changes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            published: self.published + other.published,
            undone: self.undone + other.undone,
            moved: self.moved + other.moved,
        }
    }
}

/// What went wrong, and how to reproduce it.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub reason: String,
}

/// What is simulated from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// One site with random activity.
    Alone,
    /// Several sites over a bad network.
    Together,
    /// One site whose automatic steps are done by executors over a bad network.
    Executed,
    /// Several servers in a domain with changing weights and hosts, over the same network.
    Divided,
    /// The same with shared executors.
    Shared,
    /// Several servers whose people promise deadlines.
    Promised,
    /// One site with periodic starts.
    Recurring,
}

impl Scene {
    pub const ALL: [Self; 7] = [
        Self::Alone,
        Self::Together,
        Self::Divided,
        Self::Executed,
        Self::Shared,
        Self::Promised,
        Self::Recurring,
    ];
}

/// Runs one seed from empty stores to the end of all its instances, scene by scene.
pub fn run(seed: u64) -> Result<Report, Failure> {
    let mut sum = Report::default();
    for scene in Scene::ALL {
        let report = run_scene(seed, scene)?;
        sum = Report {
            instances: sum.instances + report.instances,
            completions: sum.completions + report.completions,
            crashes: sum.crashes + report.crashes,
            refusals: sum.refusals + report.refusals,
            changes: sum.changes + report.changes,
            promises: sum.promises + report.promises,
            digest: sum.digest.rotate_left(1) ^ report.digest,
        };
    }
    Ok(sum)
}

/// Runs one seed of one scene.
pub fn run_scene(seed: u64, scene: Scene) -> Result<Report, Failure> {
    let outcome = match scene {
        Scene::Alone => simulate(seed),
        Scene::Together => cluster::simulate(seed, Kind::Single),
        Scene::Executed => executors::simulate(seed),
        Scene::Divided => cluster::simulate(seed, Kind::Divided),
        Scene::Shared => cluster::simulate(seed, Kind::Shared),
        Scene::Promised => promised::simulate(seed),
        Scene::Recurring => recurring::simulate(seed),
    };
    outcome.map_err(|reason| Failure { seed, reason: format!("{scene:?}: {reason}") })
}

fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed);
    let mut world = World::new(&mut dice);
    let mut crowd = Crowd::new(&mut world, &mut dice)?;
    for _ in 0..TURNS {
        crowd.act(&mut world, &mut dice)?;
        world.turn(&mut dice)?;
        crowd.listen(&mut world)?;
    }
    world.calm();
    let mut turns = 0;
    while !crowd.has_finished(&mut world)? {
        crowd.finish(&mut world, &mut dice)?;
        world.turn(&mut dice)?;
        crowd.listen(&mut world)?;
        turns += 1;
        if turns > TURNS_TO_FINISH_MAX {
            return Err(format!("still waiting after {turns} calm turns: {}", world.describe()));
        }
    }
    checks::recovered_equals_running(&mut world, crowd.agents())?;
    checks::histories(&world, crowd.ledger())?;
    checks::listing(&mut world)?;
    Ok(Report {
        instances: crowd.ledger().started.len(),
        completions: crowd.ledger().completed.len(),
        crashes: world.crashes,
        refusals: crowd.refusals,
        changes: Changes::default(),
        promises: Promises::default(),
        digest: world.digest()?,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, reason } = self;
        write!(f, "seed {seed}: {reason}\n  repeat with: cargo xtask sim --seed {seed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_seeds_end_well() {
        // 257: an item without actors after a crash was offered to nobody, silently. 706: a value that arrived
        // after the end of its instance was recorded behind the end. 447: the predecessors that a skipped step had
        // not waited for were assumed to be known with a later step. 128: a known entry was resent again and again,
        // and nothing after it.
        for seed in (0..20).chain([128, 257, 447, 706]) {
            run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }

    #[test]
    fn steps_that_executors_do_end_well() {
        // 27: processes late in the alphabet waited for the end of a flood. 1019: the check ignored the turns of
        // cases queued earlier. 7000077, 7000177: an executor whose tasks had all timed out was given no other.
        // 8004555, 8004611: time advanced before the simulated server had handled arrived messages. 9100455: a lost
        // task had a lease longer than the wait for its case, because of a backlog.
        let kept = [27, 1019, 7_000_077, 7_000_177, 8_004_555, 8_004_611, 9_100_455];
        for seed in (0..20).chain(kept) {
            run_scene(seed, Scene::Executed).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }

    #[test]
    fn steps_that_executors_do_for_several_servers_end_well() {
        // 127: an accepted result was dropped when its case was aborted at another server. 3000413: a restarted
        // server accepted a message for its previous incarnation. 4000817: an ended case restarted at its next
        // server. The seed no longer reaches this; see the test
        // `a_case_that_is_over_at_the_server_of_before_does_not_begin_at_its_new_one`. 7000216: in the merged
        // history a transfer came before what its sender had done since it was sent.
        for seed in (0..12).chain([127, 3_000_413, 4_000_817, 7_000_216]) {
            run_scene(seed, Scene::Shared).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }

    #[test]
    fn servers_of_a_domain_that_change_end_well() {
        // 225: two servers decided about one key, by ids from before and after a change of weights. 75: a joining
        // server took its number from its file, and another's move for its own. 795: the earlier iterations of an
        // ended loop were assumed unknown. 293: a server that had not moved after all was told late. 135: an
        // exception of two domains was forgotten in one and never in the other. 4026, 4892, 5174, 6181: a file in
        // transit to the old host of a server came to the new one. 448, 1156, 2840, 5717: a server that was to move
        // on at once was never at its first new host. 2088, 2000099: a server that had just joined placed a key by
        // the numbers of its file. 3001328: an aborted case began again at its place after its exception had ended
        // (drawn differently then). 7000057, 7000187: in the merged history a transfer came before what its sender
        // had done since it was sent. 1, 3: readers waiting at a moving server were told of news late, or not at
        // all.
        let mut sum = Changes::default();
        let found = [75, 135, 225, 293, 795, 4026, 4892, 5174, 6181];
        let found = found.into_iter().chain([448, 1156, 2840, 5717, 2088, 2_000_099, 3_001_328]);
        for seed in (0..10).chain(found).chain([7_000_057, 7_000_187]) {
            let report = run_scene(seed, Scene::Divided);
            sum = sum + report.unwrap_or_else(|failure| panic!("{failure}")).changes;
        }
        assert!(sum.published > 0 && sum.undone > 0 && sum.moved > 0, "{sum:?}");
    }

    #[test]
    fn servers_that_control_a_case_together_end_well() {
        // 7000032: in the merged history a transfer came before what its sender had done since it was sent.
        // 9100295, 9102707: a server's own results of an earlier loop iteration were sent to it again. 9101007: a
        // transfer that was offered again had an entry that the next one had as well.
        for seed in (0..8).chain([7_000_032, 9_100_295, 9_101_007, 9_102_707]) {
            run_scene(seed, Scene::Together).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }

    #[test]
    fn a3_10_no_entry_and_no_version_reaches_a_server_twice() {
        // Over a calm network, without resends.
        for seed in (0..10).map(|number| 4 * number + 3) {
            cluster::simulate(seed, Kind::Single)
                .unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
        }
    }

    #[test]
    fn deadlines_are_kept_or_it_is_told_in_time() {
        // Seeds that found bugs, each drawn differently then. 34: a begun and released step was assumed to be
        // worked on. 38: time stayed reserved for an ended case. 18: a person working on an unwanted step was given
        // the next. 225: tasks queued at a machine were done in another order than assumed. 97: promised tasks
        // queued behind unknown ones.
        let mut sum = Promises::default();
        for seed in (0..8).chain([18, 34, 38, 97, 225]) {
            let report = run_scene(seed, Scene::Promised);
            sum = sum + report.unwrap_or_else(|failure| panic!("{failure}")).promises;
        }
        let Promises { promised, refused, unpromised, kept, revoked, .. } = sum;
        assert!([promised, refused, unpromised, kept, revoked].iter().all(|it| *it > 0), "{sum:?}");
    }

    #[test]
    fn each_moment_of_a_schedule_is_started_at_most_once() {
        // 9100005, 9102136, 9102796: a requested moment was requested again, of a schedule that was put again after
        // the clock had been set back (the last drawn differently).
        for seed in (0..60).chain([9_100_005, 9_102_136, 9_102_796]) {
            let report = run_scene(seed, Scene::Recurring);
            let report = report.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(report.instances > 10, "{report:?}");
        }
    }

    #[test]
    fn the_same_seed_twice_gives_the_same_bytes() {
        assert_eq!(run(7).unwrap(), run(7).unwrap());
    }
}
