//! Runs seeds: `legwork-sim --seeds 1000`, or one again: `legwork-sim --seed 42`.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use legwork_sim::{Failure, Report, Scene, run, run_scene};

#[derive(Parser)]
#[command(about = "Runs whole sites in virtual time and checks what must hold")]
struct Arguments {
    /// How many seeds to run, from 0 on.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Run this one seed, twice, and compare the bytes.
    #[arg(long)]
    seed: Option<u64>,
    /// Only one scene: `alone`, `together`, `divided`, `executed`, `shared`, `promised` or
    /// `recurring`.
    #[arg(long)]
    scene: Option<String>,
    /// Begin with this seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Go on with further seeds for this many hours.
    #[arg(long)]
    hours: Option<f64>,
    /// Run all seeds even if some fail, and list those that do.
    #[arg(long)]
    keep_going: bool,
}

/// The result of the seeds that were run.
#[derive(Default)]
struct Outcome {
    reports: Vec<Report>,
    failures: Vec<Failure>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let begin = Instant::now();
    let scene = arguments.scene.as_deref();
    let scene = Scene::ALL.into_iter().find(|known| Some(&*word(*known)) == scene);
    if arguments.scene.is_some() && scene.is_none() {
        eprintln!("there is no such scene; take one of {:?}", Scene::ALL.map(word));
        return ExitCode::FAILURE;
    }
    let run = |seed| scene.map_or_else(|| run(seed), |scene| run_scene(seed, scene));
    let (from, keep_going) = (arguments.from, arguments.keep_going);
    let outcome = match (arguments.seed, arguments.hours) {
        (Some(seed), _) => twice(seed, run),
        (None, Some(hours)) => {
            let end = begin + Duration::from_secs_f64(hours.max(0.0) * 3600.0);
            many(from, |_| Instant::now() < end, run, keep_going)
        }
        (None, None) => many(from, |seed| seed < from + arguments.seeds, run, keep_going),
    };
    outcome.tell(begin.elapsed())
}

impl Outcome {
    fn tell(mut self, took: Duration) -> ExitCode {
        let Self { reports, failures } = &mut self;
        failures.sort_by_key(|failure| failure.seed);
        for failure in failures.iter() {
            eprintln!("{failure}");
        }
        let sum = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
        println!(
            "seeds={} instances={} completions={} crashes={} changes={} undone={} moves={} \
             promised={} accepted={} kept={} revoked={} late={} excused={} seconds={:.1} failed={}",
            reports.len() + failures.len(),
            sum(|report| report.instances),
            sum(|report| report.completions),
            sum(|report| report.crashes as usize),
            sum(|report| report.changes.published),
            sum(|report| report.changes.undone),
            sum(|report| report.changes.moved),
            sum(|report| report.promises.promised),
            sum(|report| report.promises.accepted),
            sum(|report| report.promises.kept),
            sum(|report| report.promises.revoked),
            sum(|report| report.promises.late),
            sum(|report| report.promises.excused),
            took.as_secs_f64(),
            failures.len(),
        );
        if failures.is_empty() {
            return ExitCode::SUCCESS;
        }
        let seeds: Vec<String> = failures.iter().map(|failure| failure.seed.to_string()).collect();
        println!("failed: {}", seeds.join(" "));
        ExitCode::FAILURE
    }
}

fn word(scene: Scene) -> String {
    format!("{scene:?}").to_lowercase()
}

/// Runs seeds as long as requested, as many at a time as there are CPUs, and until one fails unless all
/// are to be run. A seed depends only on itself, so their order does not matter.
fn many(
    from: u64,
    wanted: impl Fn(u64) -> bool + Sync,
    run: impl Fn(u64) -> Result<Report, Failure> + Sync,
    keep_going: bool,
) -> Outcome {
    let (next, failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let work = || {
        let mut outcome = Outcome::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if failed.load(Ordering::Relaxed) && !keep_going || !wanted(seed) {
                return outcome;
            }
            match run(seed) {
                Ok(report) => outcome.reports.push(report),
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    outcome.failures.push(failure);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Outcome::default();
        for thread in running {
            match thread.join() {
                Ok(Outcome { reports, failures }) => {
                    all.reports.extend(reports);
                    all.failures.extend(failures);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

fn twice(seed: u64, run: impl Fn(u64) -> Result<Report, Failure>) -> Outcome {
    let mut outcome = Outcome::default();
    match (run(seed), run(seed)) {
        (Ok(first), Ok(second)) if first == second => {
            println!("{first:#?}");
            outcome.reports.push(first);
        }
        (Ok(first), Ok(second)) => {
            let reason = format!("two runs differ: {first:?} and {second:?}");
            outcome.failures.push(Failure { seed, reason });
        }
        (Err(failure), _) | (_, Err(failure)) => outcome.failures.push(failure),
    }
    outcome
}
