//! Periodic starts, as requests to this server: they are placed, checked and promised like all others.
//!
//! Invariant: the site is told the outcome of every start, or requests it again; its idempotency key makes it
//! happen once. Nothing else waits for it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use legwork_api::Problem;
use legwork_api::deadlines::{DeadlineRequest, Unpromised};
use legwork_api::endpoints;
use legwork_api::instances::{StartRequest, Started};
use legwork_model::event::{Fired, ScheduleEvent};
use legwork_site::{Answer, Credential, Due, Recurring, Request, STARTS_MAX};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::http::{App, serve};
use crate::meters::ScheduleMeters;

/// The scheme before the name of a schedule, in place of a token.
pub(crate) const SCHEME: &str = "Schedule";
/// The most queued starts. A site requests no more at a time, and a restarted one requests them again.
pub(crate) const WAITING_MAX: usize = 2 * STARTS_MAX;
/// How long one may take: less than the site waits for its outcome, so that a hanging one frees its place.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How long the site may take to say whether a start is wanted, and to record its outcome.
const ASKED_MAX: Duration = Duration::from_secs(10);
/// Codes of a server that lags behind the registrar: it does not know the process, the person or the files, which
/// existed when the schedule was put, or the new weights.
const UNKNOWN_YET: [&str; 4] =
    ["no_such_process", "no_such_agent", "no_such_file", "placed_elsewhere"];
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Marks a request of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromSchedule;

/// The outcome of a start.
#[derive(Debug, PartialEq)]
enum Came {
    Out(Fired),
    /// It may succeed later.
    Later(String),
}

/// Runs until the channel is closed.
pub(crate) async fn run(app: Arc<App>, mut wanted: mpsc::Receiver<Due>) {
    let (mut tasks, places) = (JoinSet::new(), Arc::new(Semaphore::new(STARTS_MAX)));
    let meters = Arc::new(app.meters.schedules());
    while let Some(due) = wanted.recv().await {
        while tasks.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (app, meters) = (app.clone(), meters.clone());
        tasks.spawn(async move {
            carry_out(&app, &meters, due).await;
            drop(place);
        });
    }
}

async fn carry_out(app: &Arc<App>, meters: &ScheduleMeters, due: Due) {
    // The schedule may have been paused or changed while this start was queued; a wanted start is requested again.
    if !is_wanted(app, &due).await {
        return tracing::debug!(schedule = %due.schedule, moment = %due.moment, "not wanted any more");
    }
    let came = in_time(start(app, &due)).await;
    let Due { schedule: name, moment, .. } = due;
    let errand = match came {
        Came::Out(outcome) => {
            match &outcome {
                Fired::Started { instance, promised } => {
                    meters.started.increment(1);
                    tracing::info!(schedule = %name, %moment, %instance, ?promised, "started");
                }
                // Only the site gives a start up.
                Fired::Missed { .. } => {}
                Fired::Refused { code, message } => {
                    meters.refused.increment(1);
                    tracing::warn!(
                        schedule = %name, %moment, code, reason = message,
                        "a periodic start was refused; the next one is tried"
                    );
                }
            }
            Recurring::Fired(ScheduleEvent::Fired { name: name.clone(), moment, outcome })
        }
        Came::Later(reason) => {
            meters.put_off.increment(1);
            tracing::warn!(schedule = %name, %moment, %reason, "retrying a periodic start");
            Recurring::PutOff { name: name.clone(), moment, reason }
        }
    };
    // If the site is not told, it requests the start again.
    let told = app.gate.ask(Credential::Schedule(name), Request::Schedule(errand));
    drop(tokio::time::timeout(ASKED_MAX, told).await);
}

async fn is_wanted(app: &Arc<App>, due: &Due) -> bool {
    let Due { schedule, moment, .. } = due;
    let begin = Recurring::Begin { name: schedule.clone(), moment: *moment };
    let asked = app.gate.ask(Credential::Schedule(schedule.clone()), Request::Schedule(begin));
    matches!(tokio::time::timeout(ASKED_MAX, asked).await, Ok(Ok(Answer::Wanted(true))))
}

async fn in_time(start: impl Future<Output = Came>) -> Came {
    let late = |_| Came::Later(format!("it was not answered within {} s", TIME_MAX.as_secs()));
    tokio::time::timeout(TIME_MAX, start).await.unwrap_or_else(late)
}

async fn start(app: &Arc<App>, due: &Due) -> Came {
    let Ok(body) = serde_json::to_vec(&request(due)) else {
        return Came::Later("it cannot be written".to_owned());
    };
    let request = hyper::Request::post(endpoints::START.path)
        .header(AUTHORIZATION, format!("{SCHEME} {}", due.schedule))
        .header(CONTENT_TYPE, "application/json")
        .header("idempotency-key", &due.key)
        .extension(FromSchedule)
        .body(Full::new(Bytes::from(body)));
    let request = match request {
        Ok(request) => request,
        Err(error) => return Came::Later(error.to_string()),
    };
    let response = serve(app, IpAddr::V4(Ipv4Addr::LOCALHOST), request).await;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    came(head.status, &body.map(|body| body.to_bytes()).unwrap_or_default())
}

/// The same request for the same moment, byte for byte: its key cannot be reused for another one.
fn request(due: &Due) -> StartRequest {
    let deadline = due.deadline.map(|(at, priority)| DeadlineRequest {
        unpromised: Unpromised::Start,
        priority,
        ..DeadlineRequest::new(at)
    });
    StartRequest {
        process: due.process.clone(),
        data: due.data.clone(),
        agent: due.agent.as_ref().map(|agent| agent.0.clone()),
        deadline,
        ..StartRequest::default()
    }
}

fn came(status: StatusCode, body: &[u8]) -> Came {
    if status.is_success() {
        return match serde_json::from_slice::<Started>(body) {
            Ok(Started { instance, deadline, .. }) => {
                let promised = deadline.map(|deadline| deadline.promised);
                Came::Out(Fired::Started { instance, promised })
            }
            Err(error) => Came::Later(error.to_string()),
        };
    }
    let Ok(Problem { code, detail, .. }) = serde_json::from_slice::<Problem>(body) else {
        return Came::Later(format!("it was answered with {status}"));
    };
    // An older server does not know schedules; it will be upgraded.
    let may_pass = status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::UNAUTHORIZED
        || UNKNOWN_YET.contains(&&*code);
    match may_pass {
        true => Came::Later(detail),
        false => Came::Out(Fired::Refused { code, message: detail }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_is_not_answered_in_time_is_tried_again() {
        let came = in_time(std::future::pending()).await;
        assert_eq!(came, Came::Later("it was not answered within 30 s".to_owned()));
    }

    #[test]
    fn a_start_waits_only_for_what_may_go_through_later() {
        let problem = |code: &str| serde_json::to_vec(&Problem::new(409, code, "why")).unwrap();
        let later = |status, body: &[u8]| matches!(came(status, body), Came::Later(_));
        assert!(later(StatusCode::SERVICE_UNAVAILABLE, &problem("recovering")));
        assert!(later(StatusCode::TOO_MANY_REQUESTS, &problem("too_many_waiting")));
        assert!(later(StatusCode::UNAUTHORIZED, &problem("unauthenticated")));
        assert!(later(StatusCode::BAD_GATEWAY, b"?"));
        assert!(later(StatusCode::CREATED, b"?"));
        assert!(later(StatusCode::NOT_FOUND, &problem("no_such_process")));
        assert!(later(StatusCode::NOT_FOUND, &problem("no_such_agent")));
        assert!(later(StatusCode::CONFLICT, &problem("placed_elsewhere")));
        let (code, message) = ("missing_input".to_owned(), "why".to_owned());
        let refused = Came::Out(Fired::Refused { code, message });
        assert_eq!(came(StatusCode::UNPROCESSABLE_ENTITY, &problem("missing_input")), refused);
    }
}
