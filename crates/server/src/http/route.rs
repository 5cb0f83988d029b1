//! From method and path to the row of the table.
//!
//! Invariant: a request that fits no row is answered with the nearest path, or the methods of its path.

use hyper::Method;
use legwork_api::endpoints::{Body, Endpoint, Schemas, Verb};
use legwork_model::yaml::nearest;
use utoipa::openapi::Content;

use super::endpoints::{Operation, ROUTES};
use super::query::Parameter;

/// One endpoint: how it is reached, what a caller needs, and what the OpenAPI document says of it.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// A segment in braces stands for any text.
    pub(crate) path: &'static str,
    /// The path up to its braces, if there are any, and what follows them.
    pub(super) before: &'static str,
    pub(super) after: Option<&'static str>,
    pub(crate) operation: Operation,
    pub(crate) needs: Needs,
    pub(crate) parameters: &'static [Parameter],
    /// The limit of the body.
    pub(crate) size: Size,
    /// It concerns the process, also while another process hosts the server.
    pub(crate) is_of_the_process: bool,
    pub(crate) writes_catalog: bool,
    /// The token of a letter counts for it.
    pub(crate) is_for_letters: bool,
    pub(crate) is_for_schedules: bool,
    pub(crate) name: &'static str,
    pub(crate) about: &'static [&'static str],
    pub(crate) tag: &'static str,
    /// Describes the segment in braces, if its name is not enough.
    pub(crate) segment: &'static str,
    /// Of success, with a description where the code is not enough. By default 200, or 204 without a body.
    pub(crate) statuses: &'static [(u16, &'static str)],
    /// Of a YAML body.
    pub(crate) example: &'static str,
    pub(crate) takes: fn(&mut Schemas) -> Vec<(&'static str, Content)>,
    pub(crate) answers: fn(&mut Schemas) -> Vec<(&'static str, Content)>,
}

/// The scope that a token needs, if it is not `admin`. The site checks it, in the same step as the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// No token.
    Open,
    /// The signature of an executor instead of a token.
    Signature,
    /// Any scope.
    Any,
    Admin,
    Start,
    /// `work` as the agent of the item or the worklist.
    Work,
    Worker,
    /// `work` as the person whose plan it is; for the plan of an executor `start` or `worker`.
    Plan,
}

/// Which of the limits counts for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Json,
    Source,
    File,
}

impl Route {
    pub(super) const fn new<P: ?Sized, Q: Body, A: Body>(
        endpoint: &Endpoint<P, Q, A>,
        operation: Operation,
        needs: Needs,
    ) -> Self {
        Self {
            verb: endpoint.verb,
            path: endpoint.path,
            before: endpoint.before,
            after: endpoint.after,
            operation,
            needs,
            parameters: &[],
            size: Size::Json,
            is_of_the_process: false,
            writes_catalog: false,
            is_for_letters: false,
            is_for_schedules: false,
            name: "",
            about: &[],
            tag: "",
            segment: "",
            statuses: &[],
            example: "",
            takes: Q::contents,
            answers: A::contents,
        }
    }

    /// Whether a path fits; if so, what stands for the segment in braces, if there is one.
    fn matches<'p>(&self, path: &'p str) -> Option<Option<&'p str>> {
        let rest = path.strip_prefix(self.before)?;
        let Some(after) = self.after else { return rest.is_empty().then_some(None) };
        let parameter = rest.strip_suffix(after)?;
        (!parameter.is_empty() && !parameter.contains('/')).then_some(Some(parameter))
    }
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
    let verbs = [Verb::Get, Verb::Post, Verb::Put, Verb::Delete];
    if let Some(verb) = verbs.into_iter().find(|verb| verb.name() == method.as_str()) {
        for route in ROUTES.iter().filter(|route| route.verb == verb) {
            if let Some(parameter) = route.matches(path) {
                return Ok((route, parameter));
            }
        }
    }
    let others = ROUTES.iter().filter(|route| route.matches(path).is_some());
    let allowed: Vec<Verb> = others.map(|route| route.verb).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for (place, route) in ROUTES.iter().enumerate() {
            let path = route.path.split('/').map(|s| if s.starts_with('{') { "x:y" } else { s });
            let path = path.collect::<Vec<_>>().join("/");
            let method = Method::from_bytes(route.verb.name().as_bytes()).unwrap();
            let (found, parameter) = find(&method, &path).unwrap();
            assert_eq!((found.operation as usize, found.path), (place, route.path));
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
            let astray = find(&Method::POST, path).err();
            assert_eq!(astray, Some(Astray::NoSuchPath { nearest }), "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_answered_with_the_right_ones() {
        for (method, path, allowed) in [
            (Method::DELETE, "/v1/instances", vec![Verb::Post, Verb::Get]),
            (Method::GET, "/v1/jobs/activate", vec![Verb::Post]),
            (Method::PATCH, "/health", vec![Verb::Get]),
        ] {
            let astray = find(&method, path).err();
            assert_eq!(astray, Some(Astray::WrongMethod { allowed }), "{path}");
        }
    }
}
