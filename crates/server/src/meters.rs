//! Metrics of the server, in the text format of Prometheus.
//!
//! Invariant: counting costs a handful of nanoseconds and never a lock: every counter is looked up
//! once and kept.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use legwork_site::{BrokenAt, Gauges};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString,
};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::http::endpoints::ROUTES;
use crate::http::route::Route;
use crate::mail::MailMeters;
use crate::peer::{Condition, Row};

const METADATA: Metadata<'static> = Metadata::new("legwork", Level::INFO, Some("legwork_server"));

const REQUESTS: &str = "legwork_http_requests_total";
const REQUEST_SECONDS: &str = "legwork_http_request_seconds";
const COMMIT_SECONDS: &str = "legwork_store_commit_seconds";
const COMMIT_RECORDS: &str = "legwork_store_commit_records";

const LINK_UP: &str = "legwork_link_up";
const LINK_PARCELS: &str = "legwork_link_parcels_waiting";
const LINK_BYTES: &str = "legwork_link_bytes_total";
const LINK_SOCKET_BYTES: &str = "legwork_link_socket_bytes_total";
const LINK_DROPPED: &str = "legwork_link_dropped_total";
const LINK_LOCAL: &str = "legwork_link_local_total";
const BROKEN_AT: &str = "legwork_deadlines_broken_by_step_total";
const BUILD_INFO: &str = "legwork_build_info";
const STORE_BYTES: &str = "legwork_store_bytes";

const SECONDS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0, 10.0];
const RECORDS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0];
const STATUSES: [u16; 17] =
    [200, 201, 204, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 431, 500, 503, 0];

pub(crate) struct Meters {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    pub(crate) drive: Arc<DriveMeters>,
    /// By route; the last one is for unknown paths.
    routes: Vec<RouteMeters>,
}

#[derive(Default)]
struct RouteMeters {
    by_status: [OnceLock<Counter>; STATUSES.len()],
    seconds: OnceLock<Histogram>,
}

/// Metrics of the drive thread.
pub(crate) struct DriveMeters {
    commits: Counter,
    records: Counter,
    failures: Counter,
    commit_seconds: Histogram,
    commit_records: Histogram,
    instances_open: Gauge,
    instances_resident: Gauge,
    instances_broken: Gauge,
    incidents_open: Gauge,
    items_open: Gauge,
    jobs_queued: Gauge,
    jobs_leased: Gauge,
    requests_waiting: Gauge,
    executors: Gauge,
    schedules: Gauge,
    schedules_missed: Counter,
    entries_sent: Counter,
    entries_spared: Counter,
    bytes_whole: Counter,
    deadlines: DeadlineMeters,
}

/// Outcomes of periodic starts.
pub(crate) struct ScheduleMeters {
    pub(crate) started: Counter,
    pub(crate) refused: Counter,
    pub(crate) put_off: Counter,
}

/// Outcomes of deadlines.
struct DeadlineMeters {
    promised: Counter,
    refused: Counter,
    unpromised: Counter,
    kept: Counter,
    broken: Counter,
    revoked: Counter,
}

impl Meters {
    /// `commit` is the commit that the program was built from, empty if unknown.
    pub(crate) fn new(commit: &'static str) -> Self {
        let recorder = builder().build_recorder();
        let describe = |name: &'static str, text: &'static str| {
            (KeyName::from_const_str(name), SharedString::const_str(text))
        };
        let (name, text) = describe(REQUESTS, "Requests answered, by route and status.");
        recorder.describe_counter(name, None, text);
        let (name, text) = describe(REQUEST_SECONDS, "Time to answer, by route.");
        recorder.describe_histogram(name, None, text);
        for (name, text) in [
            (LINK_BYTES, "Bytes to and from another server, frames included, by their kind."),
            (LINK_SOCKET_BYTES, "Bytes to and from another server on the socket, with TLS."),
            (LINK_DROPPED, "Messages dropped because a link was down or full."),
            (BROKEN_AT, "Promises that were broken, by the first step that was late."),
            (LINK_LOCAL, "What servers of one process have said to and asked each other."),
        ] {
            let (name, text) = describe(name, text);
            recorder.describe_counter(name, None, text);
        }
        for (name, text) in [
            (LINK_UP, "Whether another server can be reached."),
            (LINK_PARCELS, "Instances with a parcel that another server has not taken yet."),
            (STORE_BYTES, "What the store occupies on disk."),
        ] {
            let (name, text) = describe(name, text);
            recorder.describe_gauge(name, None, text);
        }
        let (name, text) = describe(BUILD_INFO, "What this program was built from; always 1.");
        recorder.describe_gauge(name, None, text);
        let build =
            vec![Label::new("version", env!("CARGO_PKG_VERSION")), Label::new("commit", commit)];
        recorder.register_gauge(&Key::from_parts(BUILD_INFO, build), &METADATA).set(1.0);
        let drive = Arc::new(DriveMeters::new(&recorder, guest(None)));
        let routes = (0..=ROUTES.len()).map(|_| RouteMeters::default()).collect();
        Self { handle: recorder.handle(), recorder, drive, routes }
    }

    pub(crate) fn answered(&self, route: Option<&'static Route>, status: u16, took: Duration) {
        let place = route.map_or(ROUTES.len(), |route| route.operation as usize);
        let Some(meters) = self.routes.get(place) else { return };
        let path = route.map_or("none", |route| route.path);
        let method = route.map_or("none", |route| route.verb.name());
        let labels = || vec![Label::new("method", method), Label::new("path", path)];
        let known = STATUSES.iter().position(|known| *known == status);
        let column = known.unwrap_or(STATUSES.len() - 1);
        let counter = meters.by_status[column].get_or_init(|| {
            let mut labels = labels();
            labels.push(Label::new("status", status.to_string()));
            self.recorder.register_counter(&Key::from_parts(REQUESTS, labels), &METADATA)
        });
        counter.increment(1);
        let seconds = meters.seconds.get_or_init(|| {
            self.recorder.register_histogram(&Key::from_parts(REQUEST_SECONDS, labels()), &METADATA)
        });
        seconds.record(took.as_secs_f64());
    }

    /// Metrics of periodic starts.
    pub(crate) fn schedules(&self) -> ScheduleMeters {
        let counter = |name: &'static str, about: &'static str| {
            let name = KeyName::from_const_str(name);
            self.recorder.describe_counter(name.clone(), None, SharedString::const_str(about));
            self.recorder.register_counter(&Key::from_name(name), &METADATA)
        };
        ScheduleMeters {
            started: counter("legwork_schedules_started_total", "Periodic starts."),
            refused: counter("legwork_schedules_refused_total", "Periodic starts refused."),
            put_off: counter(
                "legwork_schedules_put_off_total",
                "Periodic starts that did not come through and are tried again.",
            ),
        }
    }

    /// Metrics of mail; shown once they are used.
    pub(crate) fn mail(&self) -> Arc<MailMeters> {
        let counter = |name: &'static str, about: &'static str| {
            let name = KeyName::from_const_str(name);
            self.recorder.describe_counter(name.clone(), None, SharedString::const_str(about));
            self.recorder.register_counter(&Key::from_name(name), &METADATA)
        };
        Arc::new(MailMeters {
            sent: counter("legwork_mail_sent_total", "Letters that the mail server took."),
            failed: counter("legwork_mail_failed_total", "Attempts to send that failed."),
            answered: counter("legwork_mail_answered_total", "Replies that were carried out."),
            refused: counter("legwork_mail_refused_total", "Replies that changed nothing."),
            ignored: counter("legwork_mail_ignored_total", "Mails that were nobody's answer."),
        })
    }

    /// Metrics of a guest, labelled with its name.
    pub(crate) fn of_guest(&self, server: &str) -> Arc<DriveMeters> {
        Arc::new(DriveMeters::new(&self.recorder, guest(Some(server))))
    }

    /// `guest` names it if it is not the process's own server.
    pub(crate) fn show_store_bytes(&self, guest: Option<&str>, bytes: u64) {
        let key = Key::from_parts(STORE_BYTES, self::guest(guest));
        self.recorder.register_gauge(&key, &METADATA).set(bytes as f64);
    }

    /// The steps at which promises were broken.
    pub(crate) fn show_broken(&self, guest: Option<&str>, broken: &[(BrokenAt, u64)]) {
        for (BrokenAt { process, step, domain, executor }, count) in broken {
            let label = |name: &'static str, value: &str| Label::new(name, value.to_owned());
            let place = vec![
                label("process", process),
                label("step", step),
                label("domain", domain),
                label("executor", executor),
            ];
            let key = Key::from_parts(BROKEN_AT, [self::guest(guest), place].concat());
            self.recorder.register_counter(&key, &METADATA).absolute(*count);
        }
    }

    /// Updates the metrics of the links.
    pub(crate) fn show_links(&self, guest: Option<&str>, rows: &[Row]) {
        for row in rows {
            let peer =
                || [self::guest(guest), vec![Label::new("peer", row.server.to_string())]].concat();
            let gauge = |name, value: f64| {
                let key = Key::from_parts(name, peer());
                self.recorder.register_gauge(&key, &METADATA).set(value);
            };
            gauge(LINK_UP, f64::from(u8::from(row.condition == Condition::Up)));
            gauge(LINK_PARCELS, row.parcels as f64);
            for (direction, meter) in [("out", &row.sent), ("in", &row.received)] {
                let labels = || [peer(), vec![Label::new("direction", direction)]].concat();
                let count = |name, labels: Vec<Label>, value| {
                    let key = Key::from_parts(name, labels);
                    self.recorder.register_counter(&key, &METADATA).absolute(value);
                };
                for (kind, bytes) in meter.kinds {
                    let labels = [labels(), vec![Label::new("kind", kind)]].concat();
                    count(LINK_BYTES, labels, bytes);
                }
                count(LINK_SOCKET_BYTES, labels(), meter.socket);
                count(LINK_DROPPED, labels(), meter.dropped);
                count(LINK_LOCAL, labels(), meter.local);
            }
        }
    }

    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds recorded values into the histograms, which would grow otherwise.
    pub(crate) fn fold(&self) {
        self.handle.run_upkeep();
    }
}

impl DriveMeters {
    fn new(recorder: &PrometheusRecorder, labels: Vec<Label>) -> Self {
        let text = |text| SharedString::const_str(text);
        let key = |name| Key::from_parts(KeyName::from_const_str(name), labels.clone());
        let counter = |name, about| {
            recorder.describe_counter(KeyName::from_const_str(name), None, text(about));
            recorder.register_counter(&key(name), &METADATA)
        };
        let gauge = |name, about| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, text(about));
            recorder.register_gauge(&key(name), &METADATA)
        };
        let histogram = |name, about| {
            recorder.describe_histogram(KeyName::from_const_str(name), None, text(about));
            recorder.register_histogram(&key(name), &METADATA)
        };
        Self {
            commits: counter("legwork_store_commits_total", "Commits to the store."),
            records: counter("legwork_store_records_total", "Records appended to the store."),
            failures: counter(
                "legwork_store_failures_total",
                "How often the server began again from its store.",
            ),
            commit_seconds: histogram(COMMIT_SECONDS, "Time of a commit, sync included."),
            commit_records: histogram(COMMIT_RECORDS, "Records of a commit."),
            instances_open: gauge("legwork_instances_open", "Instances that have not ended."),
            instances_resident: gauge("legwork_instances_resident", "Instances held in memory."),
            instances_broken: gauge("legwork_instances_broken", "Instances set apart as broken."),
            incidents_open: gauge(
                "legwork_incidents_open",
                "What cannot go on without somebody's decision.",
            ),
            items_open: gauge("legwork_items_open", "Work items of people."),
            jobs_queued: gauge("legwork_jobs_queued", "Jobs that wait for a worker."),
            jobs_leased: gauge("legwork_jobs_leased", "Jobs that workers have."),
            requests_waiting: gauge("legwork_requests_waiting", "Requests that wait for a change."),
            executors: gauge("legwork_executors", "Executors that are registered."),
            schedules: gauge("legwork_schedules", "Processes started again and again."),
            schedules_missed: counter(
                "legwork_schedules_missed_total",
                "Periodic starts that were tried until the next ones came.",
            ),
            entries_sent: counter(
                "legwork_history_entries_sent_total",
                "Entries of histories that went to other servers.",
            ),
            entries_spared: counter(
                "legwork_history_entries_spared_total",
                "Entries that did not have to go, as they are known there.",
            ),
            bytes_whole: counter(
                "legwork_instance_bytes_whole_total",
                "What whole instances would have taken, sent with every parcel.",
            ),
            deadlines: DeadlineMeters {
                promised: counter("legwork_deadlines_promised_total", "Starts that were promised."),
                refused: counter("legwork_deadlines_refused_total", "Starts that were refused."),
                unpromised: counter(
                    "legwork_deadlines_unpromised_total",
                    "Starts that were accepted although nobody could promise them.",
                ),
                kept: counter("legwork_deadlines_kept_total", "Cases done by their deadline."),
                broken: counter("legwork_deadlines_broken_total", "Cases whose deadline passed."),
                revoked: counter(
                    "legwork_deadlines_revoked_total",
                    "Cases whose promise was taken back before it was broken.",
                ),
            },
        }
    }

    pub(crate) fn committed(&self, records: usize, took: Duration) {
        self.commits.increment(1);
        self.records.increment(records as u64);
        self.commit_seconds.record(took.as_secs_f64());
        self.commit_records.record(records as f64);
    }

    pub(crate) fn failed(&self) {
        self.failures.increment(1);
    }

    pub(crate) fn show(&self, gauges: &Gauges) {
        for (gauge, value) in [
            (&self.instances_open, gauges.instances_open),
            (&self.instances_resident, gauges.instances_resident),
            (&self.instances_broken, gauges.instances_broken),
            (&self.incidents_open, gauges.incidents_open),
            (&self.items_open, gauges.items_open),
            (&self.jobs_queued, gauges.jobs_queued),
            (&self.jobs_leased, gauges.jobs_leased),
            (&self.requests_waiting, gauges.requests_waiting),
            (&self.executors, gauges.executors),
            (&self.schedules, gauges.schedules),
        ] {
            gauge.set(value as f64);
        }
        self.schedules_missed.absolute(gauges.schedules_missed);
        self.entries_sent.absolute(gauges.sent.entries);
        self.entries_spared.absolute(gauges.sent.entries_spared);
        self.bytes_whole.absolute(gauges.sent.bytes_whole);
        let deadlines = &gauges.deadlines;
        for (counter, value) in [
            (&self.deadlines.promised, deadlines.promised),
            (&self.deadlines.refused, deadlines.refused),
            (&self.deadlines.unpromised, deadlines.unpromised),
            (&self.deadlines.kept, deadlines.kept),
            (&self.deadlines.broken, deadlines.broken),
            (&self.deadlines.revoked, deadlines.revoked),
        ] {
            counter.absolute(value);
        }
    }
}

/// The metrics of the process's own server have no name: with one server per process they are the
/// same as before guests existed.
pub(crate) fn guest(server: Option<&str>) -> Vec<Label> {
    server.map(|server| Label::new("server", server.to_owned())).into_iter().collect()
}

fn builder() -> PrometheusBuilder {
    let buckets: [(&str, &[f64]); 3] =
        [(REQUEST_SECONDS, &SECONDS), (COMMIT_SECONDS, &SECONDS), (COMMIT_RECORDS, &RECORDS)];
    buckets.into_iter().fold(PrometheusBuilder::new(), |builder, (name, values)| {
        let matcher = Matcher::Full(name.to_owned());
        // Fails only for an empty list; without buckets it would be a summary.
        builder.set_buckets_for_metric(matcher, values).unwrap_or_else(|_| PrometheusBuilder::new())
    })
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}
