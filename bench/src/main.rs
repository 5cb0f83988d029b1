//! `legwork-bench`: the benchmarks and the crash test of a real server, from outside.
//!
//! Started by `cargo xtask bench` and `cargo xtask crash`. Methods and results: `docs/benchmarks.md`. Invariant:
//! with `--json` standard output holds one object a line and nothing else.

mod arguments;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use arguments::{Arguments, Chore, CrashOptions, CrashStore, ExecutorsOptions, Options};
use clap::Parser;
use legwork_bench::load::Scale;
use legwork_bench::machine::settle;
use legwork_bench::migrate::{self, Wired};
use legwork_bench::peer::{DatabasePeer, Peer, PeerRow, Wanted};
use legwork_bench::place::{Place, repository};
use legwork_bench::report::Report;
use legwork_bench::steps::Shape;
use legwork_bench::{
    crash, disk, dispatch, engine, executors, guarantee, lookup, page, restart, reweigh, scale,
    steps, waiting,
};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

/// Where figures are recorded.
const RESULTS: &str = "bench/results.jsonl";
const CLIENTS_DEFAULT: [u16; 3] = [1, 16, 128];
const CLIENTS_WAITING_DEFAULT: [u16; 1] = [64];
/// The number of clients at which the goals count.
const CLIENTS_GOAL: usize = 128;
const CLIENTS_WAITING_GOAL: usize = 64;
const RSS_MIB_MAX: f64 = 400.0;
const READY_S_MAX: f64 = 20.0;
const DISK_BYTES_MAX: f64 = 4096.0;

/// Cases in flight at which the goal for migrations counts, and over a wire with a delay.
const CLIENTS_MIGRATE_GOAL: usize = 64;
const MIGRATIONS_PER_S_MIN: f64 = 5_000.0;
const CLIENTS_FAR: usize = 8;
const DELAY: Duration = Duration::from_millis(50);

const CLIENTS_REWEIGH: u16 = 32;
const PAUSE_MS_MAX: f64 = 250.0;

const CASES_WAITING: usize = 10_000;
const CASES_MEMORY: usize = 100_000;
/// People answer later than programs ask.
const REST: Duration = Duration::from_secs(3);
const CASES_REWEIGH: usize = 100_000;
const CASES_RESTART: usize = 1_000_000;
const CASES_DISK: usize = 50_000;
const CASES_ENGINE: usize = 200_000;
/// Under callgrind everything takes fifty times as long.
const CASES_ENGINE_COUNTED: usize = 1_000;

/// The load before and after each change of a growing site.
const GROW_CALM: Duration = Duration::from_secs(3);

const LOOKUPS: usize = 10_000_000;
const NS_MAX: f64 = 100.0;

/// The number of evaluated executors in all decisions of a policy.
const CANDIDATES: usize = 20_000_000;
const EXECUTORS_GOAL: usize = 100;
const NS_DECISION_MAX: f64 = 5_000.0;

const RATIO_LIMITS_MAX: f64 = 1.25;

const QUESTIONS: usize = 500_000;
/// The goals of admissions a second by number of reservations: with few reservations for the most frequent kind.
const RESERVATIONS_FEW: usize = 100;
const ADMISSIONS_FEW_MIN: f64 = 100_000.0;
const RESERVATIONS_MANY: usize = 1_000;
const ADMISSIONS_MANY_MIN: f64 = 10_000.0;

#[tokio::main(worker_threads = 1)]
async fn main() -> ExitCode {
    match guarded(Arguments::parse().chore).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("legwork-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Leaving the select drops the run, and with it all servers and their directories.
async fn guarded(chore: Chore) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        result = run(chore) => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hang_up.recv() => bail!("hung up"),
    }
}

async fn run(chore: Chore) -> Result<ExitCode> {
    match chore {
        Chore::Sequence(options) => Bench::new(options)?.steps(Shape::Sequence).await?,
        Chore::Fanout(options) => Bench::new(options)?.steps(Shape::Fanout).await?,
        Chore::Waiting(options) => Bench::new(options)?.waiting().await?,
        Chore::Restart(options) => Bench::alone(options)?.restart().await?,
        Chore::Disk(options) => Bench::alone(options)?.disk().await?,
        Chore::Migrate(options) => Bench::alone(options)?.migrate().await?,
        Chore::Reweigh(options) => Bench::alone(options)?.reweigh().await?,
        Chore::Scale(options) => Bench::alone(options)?.scales().await?,
        Chore::Engine(options) => Bench::alone(options)?.engine()?,
        Chore::Place(options) => Bench::alone(options)?.lookup()?,
        Chore::Dispatch(options) => Bench::alone(options)?.dispatch().await?,
        Chore::Guarantee(options) => Bench::alone(options)?.guarantee()?,
        Chore::All(options) => {
            let mut bench = Bench::new(options)?;
            bench.steps(Shape::Sequence).await?;
            bench.steps(Shape::Fanout).await?;
            bench.waiting().await?;
            bench.restart().await?;
            bench.disk().await?;
            bench.migrate().await?;
            bench.reweigh().await?;
            bench.scales().await?;
            bench.engine()?;
            bench.lookup()?;
            bench.dispatch().await?;
            bench.guarantee()?;
            bench.executors(&executors::POLICIES, &[false, true], 1).await?;
            bench.limits().await?;
        }
        Chore::Table => table()?,
        Chore::Executors(options) => executors_chore(options).await?,
        Chore::Crash(options) => return crash_test(options).await,
        Chore::Executor(options) => executors::service::serve(options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn executors_chore(chosen: ExecutorsOptions) -> Result<()> {
    let ExecutorsOptions { options, policy, disturbed, undisturbed, limits, seed } = chosen;
    let is_chosen = |name: &&str| policy.as_deref().is_none_or(|policy| policy == *name);
    let policies: Vec<&'static str> = executors::POLICIES.into_iter().filter(is_chosen).collect();
    let halves: &[bool] = match (disturbed, undisturbed) {
        (true, _) => &[true],
        (false, true) => &[false],
        (false, false) => &[false, true],
    };
    let mut bench = Bench::alone(options)?;
    if !limits {
        bench.executors(&policies, halves, seed).await?;
    }
    if limits || policies.contains(&"ours") && !disturbed && !undisturbed {
        bench.limits().await?;
    }
    Ok(())
}

fn table() -> Result<()> {
    let path = repository().join("docs/benchmarks.md");
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let page = page::updated(&read(&path)?, &read(&repository().join(RESULTS))?)?;
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

async fn crash_test(options: CrashOptions) -> Result<ExitCode> {
    let place = Place::find(options.data)?;
    if options.grow {
        let plan = crash::grow::Plan { calm: GROW_CALM, seed: options.seed };
        let outcome = crash::grow::run(&place, plan).await?;
        outcome.failures.iter().take(100).for_each(|failure| eprintln!("{failure}"));
        return told(&outcome, &outcome.faults, outcome.is_good(), options.json);
    }
    let plan = crash::Plan { kills: options.kills, seed: options.seed };
    let outcome = match (options.shared, options.store) {
        (true, _) => crash::shared::run(&place, plan).await?,
        (false, CrashStore::Embedded) => crash::run(&place, plan).await?,
        (false, CrashStore::Postgres) => crash::run_on_postgres(&place, plan).await?,
    };
    told(&outcome, &outcome.faults, outcome.is_good(), options.json)
}

/// The result of a crash test.
fn told(
    outcome: &(impl Serialize + Display),
    faults: &[crash::Fault],
    is_good: bool,
    json: bool,
) -> Result<ExitCode> {
    for fault in faults.iter().take(100) {
        eprintln!("{fault}");
    }
    match json {
        true => println!("{}", serde_json::to_string(outcome)?),
        false => println!("{outcome}"),
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One run of the program: its place, its peer, and its report.
struct Bench {
    options: Options,
    place: Place,
    peer: Option<Peer>,
    report: Report,
}

impl Bench {
    /// With the peer, unless it is disabled.
    fn new(options: Options) -> Result<Self> {
        let mut bench = Self::alone(options)?;
        if !bench.options.no_peer {
            bench.peer = Some(Peer::build(&bench.place, bench.options.peer_cache.clone())?);
        }
        Ok(bench)
    }

    fn alone(options: Options) -> Result<Self> {
        let place = Place::find(options.data.clone())?;
        let results = repository().join(RESULTS);
        let record = (!options.no_record).then_some(results.as_path());
        let report = Report::new(options.json, record, options.note.clone());
        Ok(Self { options, place, peer: None, report })
    }

    async fn steps(&mut self, shape: Shape) -> Result<()> {
        for clients in self.clients(&CLIENTS_DEFAULT) {
            settle().await;
            let row = steps::measure(shape, &self.place, self.scale(clients)).await?;
            let row = row.beside(self.peer_row(shape.name(), clients, None).await?);
            let row = match (shape, clients) {
                (Shape::Sequence, CLIENTS_GOAL) => {
                    row.goal_beside_peer("5 times the peer, lower p99", 5.0, true)
                }
                (Shape::Fanout, CLIENTS_GOAL) => {
                    row.goal_beside_peer("5 times the peer", 5.0, false)
                }
                (Shape::Sequence | Shape::Fanout, _) => row,
            };
            self.report.add(&row)?;
        }
        Ok(())
    }

    async fn waiting(&mut self) -> Result<()> {
        let cases = self.cases(CASES_WAITING);
        for clients in self.clients(&CLIENTS_WAITING_DEFAULT) {
            settle().await;
            let row = waiting::measure(&self.place, cases, clients).await?;
            let row = row.beside(self.peer_row("waiting", clients, Some(cases)).await?);
            let row = match clients {
                CLIENTS_WAITING_GOAL => row.goal_beside_peer("5 times the peer", 5.0, false),
                _ => row,
            };
            self.report.add(&row)?;
        }
        let cases = self.cases(CASES_MEMORY);
        let row = waiting::memory(&self.place, cases, REST).await?;
        let met = row.rss_mib.map(|mib| mib <= RSS_MIB_MAX);
        self.report.add(&row.goal("400 MiB for 100,000 cases", met))
    }

    async fn restart(&mut self) -> Result<()> {
        let row = restart::measure(&self.place, self.cases(CASES_RESTART)).await?;
        let met = row.ready_s.map(|seconds| seconds <= READY_S_MAX);
        self.report.add(&row.goal("20 s for 1,000,000 cases", met))
    }

    async fn disk(&mut self) -> Result<()> {
        let row = disk::measure(&self.place, self.cases(CASES_DISK)).await?;
        let met = row.disk_bytes_per_case.map(|bytes| bytes <= DISK_BYTES_MAX);
        self.report.add(&row.goal("4 KiB a case", met))
    }

    async fn migrate(&mut self) -> Result<()> {
        let near = Wired { workload: "migrate", transfer: "proven", delay: Duration::ZERO };
        for clients in self.clients(&[CLIENTS_MIGRATE_GOAL as u16]) {
            settle().await;
            let row = migrate::measure(&self.place, near, self.scale(clients)).await?;
            let met = row.migrations_per_s.map(|rate| rate >= MIGRATIONS_PER_S_MIN);
            self.report.add(&match clients {
                CLIENTS_MIGRATE_GOAL => row.goal("5,000 migrations/s", met),
                _ => row,
            })?;
        }
        // One delay if the sender can prove what the receiver lacks, three if it has to ask.
        for (workload, transfer, goal) in [
            ("migrate-50ms", "proven", Some("one delay")),
            ("migrate-50ms-requested", "requested", None),
        ] {
            let far = Wired { workload, transfer, delay: DELAY };
            let row = migrate::measure(&self.place, far, self.scale(CLIENTS_FAR)).await?;
            let met = row.p50_ms.map(|p50| p50 < 2.0 * DELAY.as_secs_f64() * 1000.0);
            self.report.add(&match goal {
                Some(goal) => row.goal(goal, met),
                None => row,
            })?;
        }
        Ok(())
    }

    async fn reweigh(&mut self) -> Result<()> {
        let cases = self.cases(CASES_REWEIGH);
        for clients in self.clients(&[CLIENTS_REWEIGH]) {
            settle().await;
            let row = reweigh::measure(&self.place, cases, clients).await?;
            let met = row.pause_ms.map(|pause| pause <= PAUSE_MS_MAX);
            self.report.add(&row.goal("no command longer than 250 ms", met))?;
        }
        Ok(())
    }

    async fn scales(&mut self) -> Result<()> {
        let peer = match self.options.no_peer {
            true => None,
            false => Some(DatabasePeer::build(&self.place)?),
        };
        for clients in self.clients(&[CLIENTS_GOAL as u16]) {
            for setting in scale::SETTINGS {
                settle().await;
                let postgres = scale::database(&self.place, setting)?;
                let scale = self.scale(clients);
                let row = scale::measure(&self.place, postgres.as_ref(), setting, scale).await?;
                if setting != scale::BESIDE_PEER {
                    self.report.add(&row)?;
                    continue;
                }
                let theirs = match peer.as_ref().zip(postgres.as_ref()) {
                    Some((peer, postgres)) => {
                        settle().await;
                        let database = postgres.database("peer")?;
                        let wanted = self.wanted("sequence", clients, None);
                        Some(peer.run(database.url(), &wanted).await?)
                    }
                    None => None,
                };
                let row = row.beside(theirs);
                self.report.add(&row.goal_beside_peer("3 times the peer", 3.0, false))?;
            }
        }
        Ok(())
    }

    fn scale(&self, clients: usize) -> Scale {
        Scale {
            clients,
            warm_up: Duration::from_secs(self.options.warm_up.into()),
            window: Duration::from_secs(self.options.seconds.into()),
        }
    }

    fn engine(&mut self) -> Result<()> {
        let cases = self.cases(CASES_ENGINE);
        let counted = CASES_ENGINE_COUNTED.min(cases);
        self.report.add(&engine::measure(&self.place, cases, Some(counted))?)
    }

    fn lookup(&mut self) -> Result<()> {
        let lookups = self.cases(LOOKUPS);
        for size in lookup::SERVERS {
            let row = lookup::measure(size, lookups)?;
            let met = row.ns_per_lookup.map(|ns| ns <= NS_MAX);
            self.report.add(&row.goal("100 ns", met))?;
        }
        Ok(())
    }

    async fn dispatch(&mut self) -> Result<()> {
        for executors in dispatch::EXECUTORS {
            let decisions = (self.cases(CANDIDATES) / executors).max(1);
            for policy in dispatch::POLICIES {
                let row = dispatch::measure(policy, executors, decisions);
                let met = row.ns_per_decision.map(|ns| ns <= NS_DECISION_MAX);
                self.report.add(&match (policy, executors) {
                    ("ours", EXECUTORS_GOAL) => row.goal("5 µs with 100", met),
                    (_, _) => row,
                })?;
            }
        }
        for clients in self.clients(&[executors::throughput::CLIENTS]) {
            for verdicts in [true, false] {
                settle().await;
                let scale = self.scale(clients);
                let row = executors::throughput::measure(&self.place, verdicts, scale).await?;
                self.report.add(&row)?;
            }
        }
        Ok(())
    }

    fn guarantee(&mut self) -> Result<()> {
        let questions = self.cases(QUESTIONS);
        for kind in guarantee::KINDS {
            for reservations in guarantee::RESERVATIONS {
                let row = guarantee::measure(kind, reservations, questions);
                let is_met = |least: f64| row.per_second.map(|rate| rate >= least);
                let (few, many) = (is_met(ADMISSIONS_FEW_MIN), is_met(ADMISSIONS_MANY_MIN));
                self.report.add(&match (kind, reservations) {
                    (guarantee::AT_ONCE, RESERVATIONS_FEW) => row.goal("100,000/s", few),
                    (_, RESERVATIONS_MANY) => row.goal("10,000/s", many),
                    (_, _) => row,
                })?;
            }
        }
        Ok(())
    }

    async fn executors(
        &mut self,
        policies: &[&'static str],
        halves: &[bool],
        seed: u64,
    ) -> Result<()> {
        let cases = self.cases(executors::CASES);
        for disturbed in halves.iter().copied() {
            for policy in policies.iter().copied() {
                let plan = executors::Plan { policy, cases, disturbed, seed };
                let outcome = executors::run(&self.place, plan).await?;
                let faults = &outcome.audit.faults;
                faults.iter().take(100).for_each(|fault| eprintln!("{fault}"));
                let row = outcome.row(plan);
                self.report.add(&row.goal("one result counts", Some(faults.is_empty())))?;
                ensure!(faults.is_empty(), "{policy}: {} faults", faults.len());
            }
        }
        Ok(())
    }

    /// For all limits and numbers of servers.
    async fn limits(&mut self) -> Result<()> {
        use executors::limits::{CASES, LIMITS, Plan, SERVERS, run};
        for (servers, limit) in
            SERVERS.into_iter().flat_map(|servers| LIMITS.map(|limit| (servers, limit)))
        {
            settle().await;
            let plan = Plan { limit, servers, cases: self.cases(CASES) };
            let outcome = run(&self.place, plan).await?;
            let met = outcome.ratio() <= RATIO_LIMITS_MAX;
            self.report.add(&outcome.row(plan).goal("1.25 of the bound", Some(met)))?;
            let faults = &outcome.audit.faults;
            ensure!(faults.is_empty(), "limit {limit}: {faults:?}");
        }
        Ok(())
    }

    async fn peer_row(
        &self,
        workload: &str,
        clients: usize,
        cases: Option<usize>,
    ) -> Result<Option<PeerRow>> {
        let Some(peer) = &self.peer else { return Ok(None) };
        settle().await;
        peer.run(&self.wanted(workload, clients, cases)).await.map(Some)
    }

    fn wanted<'a>(&self, workload: &'a str, clients: usize, cases: Option<usize>) -> Wanted<'a> {
        let seconds = self.options.seconds.into();
        let warm_up = self.options.warm_up.into();
        Wanted { workload, clients, seconds, warm_up, cases }
    }

    fn clients(&self, default: &[u16]) -> Vec<usize> {
        let given = &self.options.clients;
        let clients = if given.is_empty() { default } else { given };
        clients.iter().map(|clients| usize::from(*clients)).collect()
    }

    fn cases(&self, default: usize) -> usize {
        self.options.cases.map_or(default, |cases| cases as usize)
    }
}
