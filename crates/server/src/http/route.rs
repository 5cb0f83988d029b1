//! The paths a server knows.
//!
//! Invariant: one table. The OpenAPI document, the metrics and the refusals of wrong paths and
//! methods all follow from it, and a test holds the document against it.

use hyper::Method;
use legwork_model::yaml::nearest;

/// One operation: its method, its path and what it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Segments in braces stand for any text.
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    /// Where the braces are, looked for once.
    braces: Option<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Complete,
    Claim,
    Release,
    Delegate,
    Item,
    ItemFile,
    ActivateJobs,
    CompleteJobs,
    FailJobs,
    ExtendJobs,
    ReturnJobs,
    Start,
    Instances,
    Instance,
    History,
    Suspend,
    Resume,
    Abort,
    AskDeadline,
    Plan,
    Incidents,
    Resolve,
    Worklist,
    WorklistEvents,
    Deploy,
    Definitions,
    Definition,
    DefinitionVersions,
    PublishOrganisation,
    Organisation,
    OrganisationVersions,
    PublishTopology,
    Topology,
    TopologyVersions,
    Check,
    Upload,
    Download,
    RegisterExecutor,
    RemoveExecutor,
    Executors,
    SetPolicy,
    Policies,
    ReportTask,
    PutSchedule,
    RemoveSchedule,
    PauseSchedule,
    ResumeSchedule,
    Schedule,
    Schedules,
    CreateToken,
    Tokens,
    RevokeToken,
    WhoAmI,
    Links,
    Cluster,
    Changes,
    UndoChange,
    PrepareMove,
    Backup,
    OpenApi,
    DefinitionSchema,
    OrganisationSchema,
    TopologySchema,
    Metrics,
    Health,
    Ready,
}

use Operation as Op;
use Verb::{Delete, Get, Post, Put};

/// Those in use at every step of every instance come first.
pub(crate) static ROUTES: [Route; 66] = [
    route(Post, "/v1/work/{activity}/complete", Op::Complete),
    route(Post, "/v1/jobs/activate", Op::ActivateJobs),
    route(Post, "/v1/jobs/complete", Op::CompleteJobs),
    route(Post, "/v1/jobs/fail", Op::FailJobs),
    route(Post, "/v1/jobs/extend", Op::ExtendJobs),
    route(Post, "/v1/jobs/return", Op::ReturnJobs),
    route(Post, "/v1/instances", Op::Start),
    route(Get, "/v1/instances", Op::Instances),
    route(Get, "/v1/instances/{instance}", Op::Instance),
    route(Get, "/v1/instances/{instance}/history", Op::History),
    route(Post, "/v1/instances/{instance}/suspend", Op::Suspend),
    route(Post, "/v1/instances/{instance}/resume", Op::Resume),
    route(Post, "/v1/instances/{instance}/abort", Op::Abort),
    route(Get, "/v1/worklist", Op::Worklist),
    route(Get, "/v1/worklist/events", Op::WorklistEvents),
    route(Get, "/v1/work/{activity}", Op::Item),
    route(Get, "/v1/work/{activity}/file", Op::ItemFile),
    route(Post, "/v1/work/{activity}/claim", Op::Claim),
    route(Post, "/v1/work/{activity}/release", Op::Release),
    route(Post, "/v1/work/{activity}/delegate", Op::Delegate),
    route(Post, "/v1/deadlines", Op::AskDeadline),
    route(Get, "/v1/plans/{name}", Op::Plan),
    route(Get, "/v1/incidents", Op::Incidents),
    route(Post, "/v1/activities/{activity}/resolve", Op::Resolve),
    route(Post, "/v1/definitions", Op::Deploy),
    route(Get, "/v1/definitions", Op::Definitions),
    route(Get, "/v1/definitions/{process}", Op::Definition),
    route(Get, "/v1/definitions/{process}/versions", Op::DefinitionVersions),
    route(Put, "/v1/organisation", Op::PublishOrganisation),
    route(Get, "/v1/organisation", Op::Organisation),
    route(Get, "/v1/organisation/versions", Op::OrganisationVersions),
    route(Put, "/v1/topology", Op::PublishTopology),
    route(Get, "/v1/topology", Op::Topology),
    route(Get, "/v1/topology/versions", Op::TopologyVersions),
    route(Post, "/v1/check", Op::Check),
    route(Put, "/v1/files", Op::Upload),
    route(Get, "/v1/files/{blob}", Op::Download),
    route(Post, "/v1/executors/{name}/results", Op::ReportTask),
    route(Put, "/v1/executors/{name}", Op::RegisterExecutor),
    route(Delete, "/v1/executors/{name}", Op::RemoveExecutor),
    route(Get, "/v1/executors", Op::Executors),
    route(Put, "/v1/policies/{type}", Op::SetPolicy),
    route(Get, "/v1/policies", Op::Policies),
    route(Put, "/v1/schedules/{name}", Op::PutSchedule),
    route(Delete, "/v1/schedules/{name}", Op::RemoveSchedule),
    route(Post, "/v1/schedules/{name}/pause", Op::PauseSchedule),
    route(Post, "/v1/schedules/{name}/resume", Op::ResumeSchedule),
    route(Get, "/v1/schedules/{name}", Op::Schedule),
    route(Get, "/v1/schedules", Op::Schedules),
    route(Post, "/v1/tokens", Op::CreateToken),
    route(Get, "/v1/tokens", Op::Tokens),
    route(Delete, "/v1/tokens/{name}", Op::RevokeToken),
    route(Get, "/v1/whoami", Op::WhoAmI),
    route(Get, "/v1/cluster/links", Op::Links),
    route(Get, "/v1/cluster", Op::Cluster),
    route(Get, "/v1/cluster/changes", Op::Changes),
    route(Post, "/v1/cluster/changes/undo", Op::UndoChange),
    route(Post, "/v1/cluster/prepare", Op::PrepareMove),
    route(Get, "/v1/backup", Op::Backup),
    route(Get, "/v1/schema/definition.json", Op::DefinitionSchema),
    route(Get, "/v1/schema/organisation.json", Op::OrganisationSchema),
    route(Get, "/v1/schema/topology.json", Op::TopologySchema),
    route(Get, "/openapi.json", Op::OpenApi),
    route(Get, "/metrics", Op::Metrics),
    route(Get, "/health", Op::Health),
    route(Get, "/ready", Op::Ready),
];

const fn route(verb: Verb, path: &'static str, operation: Operation) -> Route {
    let (mut open, mut place) = (None, 0);
    let mut braces = None;
    while place < path.len() {
        match (path.as_bytes()[place], open) {
            (b'{', _) => open = Some(place),
            (b'}', Some(open)) => braces = Some((open, place)),
            _ => {}
        }
        place += 1;
    }
    Route { verb, path, operation, braces }
}

/// Why a request reaches no operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Astray {
    /// There is no such path; perhaps one like it.
    NoSuchPath { nearest: Option<&'static str> },
    /// The path is there, for these methods.
    WrongMethod { allowed: Vec<Verb> },
}

/// Finds the operation, and the text (still encoded) that stands for the segment in braces.
pub(crate) fn find<'p>(
    method: &Method,
    path: &'p str,
) -> Result<(&'static Route, Option<&'p str>), Astray> {
    let verb = Verb::of(method);
    let mut allowed = Vec::new();
    for route in &ROUTES {
        let Some(parameter) = route.matches(path) else { continue };
        if Some(route.verb) == verb {
            return Ok((route, parameter));
        }
        allowed.push(route.verb);
    }
    if allowed.is_empty() {
        return Err(Astray::NoSuchPath { nearest: nearest_path(path) });
    }
    Err(Astray::WrongMethod { allowed })
}

fn nearest_path(path: &str) -> Option<&'static str> {
    let path: String = path.chars().take(100).collect();
    let whole = path.trim_end_matches('/').to_lowercase();
    let whole = if whole.starts_with("/v1") { whole } else { format!("/v1{whole}") };
    nearest(&whole, ROUTES.iter().map(|route| route.path)).or_else(|| nearest_parted(&whole))
}

/// Compares segment by segment, so that long ids do not count.
fn nearest_parted(path: &str) -> Option<&'static str> {
    let segments: Vec<&str> = path.split('/').collect();
    ROUTES.iter().map(|route| route.path).find(|pattern| {
        let own: Vec<&str> = pattern.split('/').collect();
        own.len() == segments.len()
            && own.iter().zip(&segments).all(|(own, segment)| {
                own.starts_with('{') || nearest(segment, std::iter::once(*own)).is_some()
            })
    })
}

impl Route {
    /// Whether a path fits; if so, what stands for the segment in braces, if there is one.
    fn matches<'p>(&self, path: &'p str) -> Option<Option<&'p str>> {
        let Some((open, close)) = self.braces else {
            return (self.path == path).then_some(None);
        };
        let parameter =
            path.strip_prefix(&self.path[..open])?.strip_suffix(&self.path[close + 1..])?;
        (!parameter.is_empty() && !parameter.contains('/')).then_some(Some(parameter))
    }

    /// Its place in the table.
    pub(crate) fn index(&self) -> usize {
        ROUTES.iter().position(|route| std::ptr::eq(route, self)).unwrap_or(ROUTES.len())
    }
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Get => "GET",
            Post => "POST",
            Put => "PUT",
            Delete => "DELETE",
        }
    }

    fn of(method: &Method) -> Option<Self> {
        [Get, Post, Put, Delete].into_iter().find(|verb| verb.name() == method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for route in &ROUTES {
            let path = route.path.split('/').map(|s| if s.starts_with('{') { "x:y" } else { s });
            let path = path.collect::<Vec<_>>().join("/");
            let method = Method::from_bytes(route.verb.name().as_bytes()).unwrap();
            let (found, parameter) = find(&method, &path).unwrap();
            assert_eq!(found, route);
            assert_eq!(parameter, route.path.contains('{').then_some("x:y"));
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_answered_with_the_nearest() {
        for (path, nearest) in [
            ("/v1/instance", Some("/v1/instances")),
            ("/v1/instances/", Some("/v1/instances")),
            ("/instances", Some("/v1/instances")),
            ("/v1/work/inst_0:a/complet", Some("/v1/work/{activity}/complete")),
            ("/v1/job/activate", Some("/v1/jobs/activate")),
            ("/something/else/entirely", None),
            ("/", None),
        ] {
            assert_eq!(find(&Method::POST, path), Err(Astray::NoSuchPath { nearest }), "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_answered_with_the_right_ones() {
        for (method, path, allowed) in [
            (Method::DELETE, "/v1/instances", vec![Post, Get]),
            (Method::GET, "/v1/jobs/activate", vec![Post]),
            (Method::PATCH, "/health", vec![Get]),
        ] {
            assert_eq!(find(&method, path), Err(Astray::WrongMethod { allowed }), "{path}");
        }
    }
}
