//! What the log says about requests: which one, about which instances, how it was answered.
//!
//! Invariant: the log never holds data of cases or secrets, only names, ids and codes. Nothing is
//! put together unless somebody listens.

use std::fmt::{self, Display};
use std::time::Duration;

use legwork_model::id::{ActivityId, InstanceId};
use legwork_site::{Answer, Request};
use tracing::{Span, field};

use super::reply::Result;
use super::route::Route;

/// How many instances of a batch are named.
const NAMED_MAX: usize = 10;

/// Everything said while a request is carried out is said within its span.
pub(super) fn span(route: &'static Route, parameter: Option<&str>) -> Span {
    let span = tracing::debug_span!(
        "request",
        method = route.verb.name(),
        path = route.path,
        instance = field::Empty,
        activity = field::Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let parameter = parameter.unwrap_or_default();
    if let Ok(instance) = parameter.parse::<InstanceId>() {
        span.record("instance", field::display(instance));
    }
    if let Ok(activity) = parameter.parse::<ActivityId>() {
        span.record("instance", field::display(activity.instance));
        span.record("activity", field::display(&activity));
    }
    span
}

/// Names the instances that a batch of jobs is about.
pub(super) fn asked(span: &Span, request: &Request) {
    if span.is_disabled() {
        return;
    }
    if let Request::CompleteJobs { jobs, .. } = request {
        name(span, jobs.iter().map(|job| job.job.activity.instance));
    } else if let Request::FailJobs { jobs, .. } = request {
        name(span, jobs.iter().map(|job| job.job.activity.instance));
    } else if let Request::ExtendJobs { jobs, .. } | Request::ReturnJobs { jobs } = request {
        name(span, jobs.iter().map(|job| job.activity.instance));
    }
}

/// Names the instances that come up only in the answer.
pub(super) fn heard(span: &Span, answer: &Answer) {
    if span.is_disabled() {
        return;
    }
    if let Answer::Started { instance, .. } = answer {
        name(span, std::iter::once(instance.instance));
    } else if let Answer::Jobs(jobs) = answer {
        name(span, jobs.iter().map(|job| job.activity.instance));
    }
}

/// The last word on a request.
pub(super) fn answered(span: &Span, result: &Result, took: Duration) {
    if span.is_disabled() {
        return;
    }
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    span.in_scope(|| match result {
        Ok(reply) => tracing::debug!(status = reply.status.as_u16(), us, "answered"),
        Err(refused) => {
            tracing::debug!(status = refused.status(), code = refused.code(), us, "refused");
        }
    });
}

fn name(span: &Span, instances: impl ExactSizeIterator<Item = InstanceId> + Clone) {
    if instances.len() > 0 {
        span.record("instance", field::display(Names(instances)));
    }
}

/// Ids in a row, the first ones only.
struct Names<I>(I);

impl<I: ExactSizeIterator<Item = InstanceId> + Clone> Display for Names<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, instance) in self.0.clone().take(NAMED_MAX).enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{instance}")?;
        }
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
