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
    let from = arguments.from;
    let outcome = match (arguments.seed, arguments.hours) {
        (Some(seed), _) => twice(seed, run).map(|report| (1, vec![report])),
        (None, Some(hours)) => {
            let end = begin + Duration::from_secs_f64(hours.max(0.0) * 3600.0);
            many(from, |_| Instant::now() < end, run)
        }
        (None, None) => many(from, |seed| seed < from + arguments.seeds, run),
    };
    match outcome {
        Ok((seeds, reports)) => {
            let sum = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
            println!(
                "seeds={seeds} instances={} completions={} crashes={} changes={} undone={} \
                 moves={} promised={} kept={} withdrawn={} late={} excused={} seconds={:.1} failed=0",
                sum(|report| report.instances),
                sum(|report| report.completions),
                sum(|report| report.crashes as usize),
                sum(|report| report.changes.published),
                sum(|report| report.changes.undone),
                sum(|report| report.changes.moved),
                sum(|report| report.promises.promised),
                sum(|report| report.promises.kept),
                sum(|report| report.promises.withdrawn),
                sum(|report| report.promises.late),
                sum(|report| report.promises.excused),
                begin.elapsed().as_secs_f64(),
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn word(scene: Scene) -> String {
    format!("{scene:?}").to_lowercase()
}

/// Runs seeds as long as they are wanted, as many at a time as there are processors. A
/// seed depends on nothing but itself, so their order does not matter.
fn many(
    from: u64,
    wanted: impl Fn(u64) -> bool + Sync,
    run: impl Fn(u64) -> Result<Report, Failure> + Sync,
) -> Result<(usize, Vec<Report>), Failure> {
    let (next, failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let work = || {
        let mut reports = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if failed.load(Ordering::Relaxed) || !wanted(seed) {
                return Ok(reports);
            }
            reports.push(run(seed).inspect_err(|_| failed.store(true, Ordering::Relaxed))?);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let reports = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = running.into_iter().map(|thread| match thread.join() {
            Ok(reports) => reports,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let reports: Vec<Report> = reports.into_iter().flatten().collect();
    Ok((reports.len(), reports))
}

fn twice(seed: u64, run: impl Fn(u64) -> Result<Report, Failure>) -> Result<Report, Failure> {
    let (first, second) = (run(seed)?, run(seed)?);
    println!("{first:#?}");
    if first == second {
        Ok(first)
    } else {
        let reason = format!("two runs differ: {first:?} and {second:?}");
        Err(Failure { seed, reason })
    }
}
