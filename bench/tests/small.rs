//! Every workload, small, against a real server: the benchmark cannot rot.
//!
//! Invariant: the figures are not looked at, only that they come out and that nothing was lost.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::time::Duration;

use anyhow::Result;
use legwork_bench::load::Scale;
use legwork_bench::migrate::{self, Wired};
use legwork_bench::place::Place;
use legwork_bench::report::Row;
use legwork_bench::steps::Shape;
use legwork_bench::{crash, disk, engine, executors, restart, reweigh, scale, steps, waiting};

const SMALL: Scale =
    Scale { clients: 4, warm_up: Duration::ZERO, window: Duration::from_millis(500) };

fn run<T>(workload: impl AsyncFnOnce(Place) -> Result<T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let place = Place::built().unwrap();
    runtime.block_on(workload(place)).unwrap()
}

fn assert_loaded(row: &Row) {
    assert!(row.cases > 0, "{row:?}");
    let figures = [row.steps_per_s, row.p50_ms, row.p99_ms, row.rss_mib];
    assert!(figures.iter().all(|figure| figure.is_some_and(|figure| figure > 0.0)), "{row:?}");
}

#[test]
fn sequence_is_measured() {
    let row = run(async |place| steps::measure(Shape::Sequence, &place, SMALL).await);
    assert_loaded(&row);
}

#[test]
fn fanout_is_measured() {
    let row = run(async |place| steps::measure(Shape::Fanout, &place, SMALL).await);
    assert_loaded(&row);
}

#[test]
fn waiting_is_measured() {
    let row = run(async |place| waiting::measure(&place, 40, 4).await);
    assert_loaded(&row);
    assert_eq!(row.cases, 40);
}

#[test]
fn memory_of_waiting_cases_is_measured() {
    let row = run(async |place| waiting::memory(&place, 40, Duration::ZERO).await);
    assert!(row.rss_mib.is_some_and(|mib| mib > 1.0), "{row:?}");
}

#[test]
fn migrations_are_measured_with_and_without_a_delay() {
    for (transfer, delay) in [("proven", Duration::ZERO), ("requested", Duration::from_millis(5))] {
        let wired = Wired { workload: "migrate", transfer, delay };
        let row = run(async |place| migrate::measure(&place, wired, SMALL).await);
        let figures = [row.migrations_per_s, row.p50_ms, row.p99_ms];
        assert!(figures.iter().all(|figure| figure.is_some_and(|figure| figure > 0.0)), "{row:?}");
    }
}

#[test]
fn several_servers_in_one_process_are_measured_in_folders_and_in_postgres() {
    for setting in scale::SETTINGS.into_iter().filter(|setting| setting.servers < 4) {
        let row = run(async |place| {
            let postgres = scale::database(&place, setting)?;
            scale::measure(&place, postgres.as_ref(), setting, SMALL).await
        });
        assert_loaded(&row);
        assert_eq!(row.servers, Some(setting.servers));
    }
}

#[test]
fn restart_is_measured() {
    let row = run(async |place| restart::measure(&place, 40).await);
    assert!(row.ready_s.is_some_and(|seconds| seconds > 0.0), "{row:?}");
}

#[test]
fn disk_use_of_completed_cases_is_measured() {
    let row = run(async |place| disk::measure(&place, 40).await);
    assert!(row.disk_bytes_per_case.is_some(), "{row:?}");
}

#[test]
fn engine_alone_is_measured() {
    let row = run(async |place| engine::measure(&place, 20, None));
    assert!(row.steps_per_s.is_some_and(|steps| steps > 0.0), "{row:?}");
    // What the engine answers to these cases. Only a change of what it does may change this.
    assert_eq!(row.hash.as_deref(), Some("53dffee414d8f86c"));
}

#[test]
fn a_change_of_weights_under_load_is_measured() {
    let row = run(async |place| reweigh::measure(&place, 100, 4).await);
    assert!(row.pause_ms.is_some_and(|pause| pause > 0.0), "{row:?}");
    assert!(row.excepted.is_some_and(|cases| cases > 0), "{row:?}");
}

#[test]
fn tasks_through_executors_are_measured_with_and_without_verdicts() {
    for verdicts in [true, false] {
        let measured =
            async |place: Place| executors::throughput::measure(&place, verdicts, SMALL).await;
        let row = run(measured);
        let figures = [row.tasks_per_s, row.limit_tasks_per_s, row.p99_ms];
        assert!(figures.iter().all(|figure| figure.is_some_and(|figure| figure > 0.0)), "{row:?}");
    }
}

#[test]
fn work_of_two_servers_for_six_executors_is_measured_and_one_result_counts() {
    let plan = executors::Plan { policy: "ours", cases: 10, disturbed: false, seed: 1 };
    let outcome = run(async |place| executors::run(&place, plan).await);
    assert!(outcome.audit.faults.is_empty(), "{:#?}", outcome.audit.faults);
    assert!(outcome.makespan > Duration::ZERO && outcome.bound > Duration::ZERO, "{outcome:?}");
}

#[test]
fn work_of_two_servers_for_specialists_that_take_one_task_at_a_time_is_measured() {
    let plan = executors::limits::Plan { limit: 1, servers: 2, cases: 5 };
    let outcome = run(async |place| executors::limits::run(&place, plan).await);
    assert!(outcome.audit.faults.is_empty(), "{:#?}", outcome.audit.faults);
    assert!(outcome.ratio() >= 1.0, "nobody beats the bound: {outcome:?}");
}

#[test]
fn servers_on_one_database_go_on_for_each_other_and_keep_their_word() {
    let plan = crash::Plan { kills: 2, seed: 1 };
    let outcome = run(async |place| crash::shared::run(&place, plan).await);
    let faults: Vec<String> = outcome.faults.iter().map(ToString::to_string).collect();
    assert!(outcome.is_good() && outcome.acknowledged > 0, "{outcome}: {faults:#?}");
    let times = |trouble| outcome.away.get(&trouble).map(|away| away.times);
    let all = [crash::Trouble::Kill, crash::Trouble::Pause, crash::Trouble::Restart].map(times);
    assert_eq!(all, [Some(2), Some(1), Some(1)], "{outcome}");
}

#[test]
fn a_site_grows_and_shrinks_under_load_and_nobody_notices() {
    let plan = crash::grow::Plan { calm: Duration::from_millis(200), seed: 8 };
    let outcome = run(async |place| crash::grow::run(&place, plan).await);
    let faults: Vec<String> = outcome.faults.iter().map(ToString::to_string).collect();
    assert!(outcome.is_good(), "{outcome}: {faults:#?} {:#?}", outcome.failures);
    assert!(outcome.acknowledged > 0 && outcome.operations.len() >= 7, "{outcome}");
}

#[test]
fn killed_or_stopped_server_keeps_its_word() {
    let plan = crash::Plan { kills: 5, seed: 1 };
    let outcome = run(async |place| crash::run(&place, plan).await);
    let faults: Vec<String> = outcome.faults.iter().map(ToString::to_string).collect();
    assert!(outcome.is_good(), "{outcome}: {faults:#?}");
    assert!(outcome.acknowledged > 0 && outcome.stops > 0, "{outcome}");
}

#[test]
fn killed_server_keeps_its_word_on_a_database_that_is_killed_as_well() {
    let plan = crash::Plan { kills: 6, seed: 1 };
    let outcome = run(async |place| crash::run_on_postgres(&place, plan).await);
    let faults: Vec<String> = outcome.faults.iter().map(ToString::to_string).collect();
    assert!(outcome.is_good(), "{outcome}: {faults:#?}");
    assert!(outcome.acknowledged > 0, "{outcome}");
}
