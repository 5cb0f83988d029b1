//! The endpoints of a server: method, path, and the types of what is sent and answered.
//!
//! Invariant: a path is written here and nowhere else. The server, its client and servers that ask each other
//! take it from here, and any text put into a path or a query arrives as that text.

use std::fmt::{self, Display, Write};
use std::marker::PhantomData;

use legwork_model::id::{ActivityId, InstanceId};
use serde::Deserialize;
use serde_json::Value as Json;
use utoipa::openapi::{Content, Object, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::cluster::{Changes, Cluster, PrepareRequest, Prepared, TopologyAnswer};
use crate::deadlines::{Deadline, Plan};
use crate::definitions::{
    CheckAnswer, CheckRequest, Definition, DefinitionList, Deployed, Organisation, Published,
    Source, VersionList,
};
use crate::executors::{
    ExecutorList, ExecutorRequest, PolicyList, PolicyRequest, Received, Registered, TaskResult,
};
use crate::files::File;
use crate::instances::{
    History, IncidentList, Instance, InstanceList, Reason, ResolveRequest, StartRequest, Started,
};
use crate::jobs::{
    ActivateRequest, CompleteJobsRequest, ExtendJobsRequest, FailJobsRequest, JobList, JobResults,
    ReturnJobsRequest,
};
use crate::links::LinkList;
use crate::schedules::{Schedule, ScheduleList, SchedulePut, ScheduleRequest};
use crate::system::{Health, Ready};
use crate::tokens::{NewToken, TokenList, TokenRequest, WhoAmI};
use crate::topology::Topology;
use crate::work::{ActRequest, CompleteRequest, DelegateRequest, ItemDetail, Worklist};

pub const COMPLETE: Post<CompleteRequest, Nothing, ActivityId> =
    post("/v1/work/{activity}/complete");
pub const ACTIVATE_JOBS: Post<ActivateRequest, JobList> = post("/v1/jobs/activate");
pub const COMPLETE_JOBS: Post<CompleteJobsRequest, JobResults> = post("/v1/jobs/complete");
pub const FAIL_JOBS: Post<FailJobsRequest, JobResults> = post("/v1/jobs/fail");
pub const EXTEND_JOBS: Post<ExtendJobsRequest, JobResults> = post("/v1/jobs/extend");
pub const RETURN_JOBS: Post<ReturnJobsRequest, JobResults> = post("/v1/jobs/return");
pub const START: Post<StartRequest, Started> = post("/v1/instances");
pub const INSTANCES: Get<InstanceList> = get("/v1/instances");
pub const INSTANCE: Get<Instance, InstanceId> = get("/v1/instances/{instance}");
pub const HISTORY: Get<History, InstanceId> = get("/v1/instances/{instance}/history");
pub const SUSPEND: Post<Reason, Nothing, InstanceId> = post("/v1/instances/{instance}/suspend");
pub const RESUME: Post<Reason, Nothing, InstanceId> = post("/v1/instances/{instance}/resume");
pub const ABORT: Post<Reason, Nothing, InstanceId> = post("/v1/instances/{instance}/abort");
pub const WORKLIST: Get<Worklist> = get("/v1/worklist");
pub const WORKLIST_EVENTS: Get<EventStream> = get("/v1/worklist/events");
pub const ITEM: Get<ItemDetail, ActivityId> = get("/v1/work/{activity}");
pub const ITEM_FILE: Get<Octets, ActivityId> = get("/v1/work/{activity}/file");
pub const CLAIM: Post<ActRequest, Nothing, ActivityId> = post("/v1/work/{activity}/claim");
pub const RELEASE: Post<ActRequest, Nothing, ActivityId> = post("/v1/work/{activity}/release");
pub const DELEGATE: Post<DelegateRequest, Nothing, ActivityId> =
    post("/v1/work/{activity}/delegate");
pub const ASK_DEADLINE: Post<StartRequest, Deadline> = post("/v1/deadlines");
pub const PLAN: Get<Plan, str> = get("/v1/plans/{name}");
pub const INCIDENTS: Get<IncidentList> = get("/v1/incidents");
pub const RESOLVE: Post<ResolveRequest, Nothing, ActivityId> =
    post("/v1/activities/{activity}/resolve");
pub const DEPLOY: Post<Yaml, Deployed> = post("/v1/definitions");
pub const DEFINITIONS: Get<DefinitionList> = get("/v1/definitions");
pub const DEFINITION: Get<Definition, str> = get("/v1/definitions/{process}");
pub const DEFINITION_VERSIONS: Get<VersionList, str> = get("/v1/definitions/{process}/versions");
pub const PUBLISH_ORGANISATION: Put<Yaml, Published> = put("/v1/organisation");
pub const ORGANISATION: Get<Organisation> = get("/v1/organisation");
pub const ORGANISATION_VERSIONS: Get<VersionList> = get("/v1/organisation/versions");
pub const PUBLISH_TOPOLOGY: Put<Yaml, TopologyAnswer> = put("/v1/topology");
pub const TOPOLOGY: Get<Topology> = get("/v1/topology");
pub const TOPOLOGY_VERSIONS: Get<VersionList> = get("/v1/topology/versions");
pub const CHECK: Post<CheckRequest, CheckAnswer> = post("/v1/check");
pub const UPLOAD: Put<Octets, File> = put("/v1/files");
pub const DOWNLOAD: Get<Octets, str> = get("/v1/files/{blob}");
pub const REPORT_TASK: Post<TaskResult, Received, str> = post("/v1/executors/{name}/results");
pub const REGISTER_EXECUTOR: Put<ExecutorRequest, Registered, str> = put("/v1/executors/{name}");
pub const REMOVE_EXECUTOR: Delete<str> = delete("/v1/executors/{name}");
pub const EXECUTORS: Get<ExecutorList> = get("/v1/executors");
pub const SET_POLICY: Put<PolicyRequest, Nothing, str> = put("/v1/policies/{type}");
pub const POLICIES: Get<PolicyList> = get("/v1/policies");
pub const PUT_SCHEDULE: Put<ScheduleRequest, SchedulePut, str> = put("/v1/schedules/{name}");
pub const REMOVE_SCHEDULE: Delete<str> = delete("/v1/schedules/{name}");
pub const PAUSE_SCHEDULE: Post<Nothing, Nothing, str> = post("/v1/schedules/{name}/pause");
pub const RESUME_SCHEDULE: Post<Nothing, Nothing, str> = post("/v1/schedules/{name}/resume");
pub const SCHEDULE: Get<Schedule, str> = get("/v1/schedules/{name}");
pub const SCHEDULES: Get<ScheduleList> = get("/v1/schedules");
pub const CREATE_TOKEN: Post<TokenRequest, NewToken> = post("/v1/tokens");
pub const TOKENS: Get<TokenList> = get("/v1/tokens");
pub const REVOKE_TOKEN: Delete<str> = delete("/v1/tokens/{name}");
pub const WHOAMI: Get<WhoAmI> = get("/v1/whoami");
pub const LINKS: Get<LinkList> = get("/v1/cluster/links");
pub const CLUSTER: Get<Cluster> = get("/v1/cluster");
pub const CHANGES: Get<Changes> = get("/v1/cluster/changes");
pub const UNDO_CHANGE: Post<Reason, Changes> = post("/v1/cluster/changes/undo");
pub const PREPARE_MOVE: Post<PrepareRequest, Prepared> = post("/v1/cluster/prepare");
pub const BACKUP: Get<Octets> = get("/v1/backup");
pub const DEFINITION_SCHEMA: Get<Document> = get("/v1/schema/definition.json");
pub const ORGANISATION_SCHEMA: Get<Document> = get("/v1/schema/organisation.json");
pub const TOPOLOGY_SCHEMA: Get<Document> = get("/v1/schema/topology.json");
pub const OPENAPI: Get<Document> = get("/openapi.json");
pub const METRICS: Get<Text> = get("/metrics");
pub const HEALTH: Get<Health> = get("/health");
pub const READY: Get<Ready> = get("/ready");

/// Takes a body `Q` and answers `A`; the segment in braces is filled with a `P`.
pub struct Endpoint<P: ?Sized, Q, A> {
    pub verb: Verb,
    pub path: &'static str,
    /// The path up to its braces, if there are any, and what follows them: looked for once.
    pub before: &'static str,
    pub after: Option<&'static str>,
    types: PhantomData<fn(&P, Q) -> A>,
}

pub type Get<A, P = Nothing> = Endpoint<P, Nothing, A>;
pub type Post<Q, A = Nothing, P = Nothing> = Endpoint<P, Q, A>;
pub type Put<Q, A = Nothing, P = Nothing> = Endpoint<P, Q, A>;
pub type Delete<P> = Endpoint<P, Nothing, Nothing>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

const fn get<A, P: ?Sized>(path: &'static str) -> Get<A, P> {
    endpoint(Verb::Get, path)
}

const fn post<Q, A, P: ?Sized>(path: &'static str) -> Post<Q, A, P> {
    endpoint(Verb::Post, path)
}

const fn put<Q, A, P: ?Sized>(path: &'static str) -> Put<Q, A, P> {
    endpoint(Verb::Put, path)
}

const fn delete<P: ?Sized>(path: &'static str) -> Delete<P> {
    endpoint(Verb::Delete, path)
}

const fn endpoint<P: ?Sized, Q, A>(verb: Verb, path: &'static str) -> Endpoint<P, Q, A> {
    let (mut before, mut after, mut place) = (path, None, 0);
    while place < path.len() {
        match path.as_bytes()[place] {
            b'{' => before = path.split_at(place).0,
            b'}' => after = Some(path.split_at(place + 1).1),
            _ => {}
        }
        place += 1;
    }
    Endpoint { verb, path, before, after, types: PhantomData }
}

impl<Q, A> Endpoint<Nothing, Q, A> {
    pub fn target(&self) -> Target<Q, A> {
        Target { verb: self.verb, text: self.path.to_owned(), separator: '?', types: PhantomData }
    }
}

impl<P: Display + ?Sized, Q, A> Endpoint<P, Q, A> {
    /// The target with the segment filled in.
    pub fn at(&self, segment: &P) -> Target<Q, A> {
        let mut text = self.before.to_owned();
        encode(segment, &mut text);
        text.push_str(self.after.unwrap_or_default());
        Target { verb: self.verb, text, separator: '?', types: PhantomData }
    }
}

/// A path with its query, as it is built.
pub struct Target<Q, A> {
    pub verb: Verb,
    text: String,
    separator: char,
    types: PhantomData<fn(Q) -> A>,
}

impl<Q, A> Target<Q, A> {
    /// Adds a parameter, if there is a value for it.
    pub fn query(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            self.text.push(self.separator);
            self.separator = '&';
            self.text.push_str(name);
            self.text.push('=');
            encode(&value, &mut self.text);
        }
        self
    }

    /// Adds the parameters of a page of a list.
    pub fn page(self, limit: Option<usize>, cursor: Option<&str>) -> Self {
        self.query("limit", limit).query("cursor", cursor)
    }

    pub fn text(self) -> String {
        self.text
    }
}

fn encode(value: &(impl Display + ?Sized), to: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(Encoded(to), "{value}");
}

struct Encoded<'a>(&'a mut String);

impl Write for Encoded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
                self.0.push(char::from(byte));
            } else {
                write!(self.0, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

impl Verb {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// The body of a request or an answer, as OpenAPI describes it: JSON, or one of the types below.
pub trait Body {
    /// Its media types; the schemas they refer to are added to `schemas`.
    fn contents(schemas: &mut Schemas) -> Vec<(&'static str, Content)>;
}

/// By name.
pub type Schemas = Vec<(String, RefOr<Schema>)>;

pub enum Nothing {}
/// The source of a definition, an organisation or a topology: as it is, or in JSON.
pub enum Yaml {}
pub enum Octets {}
pub enum Text {}
pub enum EventStream {}

/// JSON without a schema of its own.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Document(pub Json);

impl<T: ToSchema> Body for T {
    fn contents(schemas: &mut Schemas) -> Vec<(&'static str, Content)> {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
        vec![("application/json", Content::new(Some(Ref::from_schema_name(T::name()))))]
    }
}

impl Body for Nothing {
    fn contents(_: &mut Schemas) -> Vec<(&'static str, Content)> {
        Vec::new()
    }
}

impl Body for Yaml {
    fn contents(schemas: &mut Schemas) -> Vec<(&'static str, Content)> {
        let mut contents = Source::contents(schemas);
        contents.push(("text/yaml", Content::new(Some(String::schema()))));
        contents
    }
}

impl Body for Octets {
    fn contents(_: &mut Schemas) -> Vec<(&'static str, Content)> {
        vec![("application/octet-stream", Content::new(Some(Vec::<u8>::schema())))]
    }
}

impl Body for Text {
    fn contents(_: &mut Schemas) -> Vec<(&'static str, Content)> {
        vec![("text/plain", Content::new(Some(String::schema())))]
    }
}

impl Body for EventStream {
    fn contents(_: &mut Schemas) -> Vec<(&'static str, Content)> {
        vec![("text/event-stream", Content::new(Some(String::schema())))]
    }
}

impl Body for Document {
    fn contents(_: &mut Schemas) -> Vec<(&'static str, Content)> {
        vec![("application/json", Content::new(Some(Object::new())))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_can_stand_in_a_path_and_a_query() {
        let target = DEFINITION_VERSIONS.at("a/b ü?").query("x", Some("1&2=3"));
        let target = target.query("y", None::<u32>).query("z", Some(4));
        assert_eq!(target.text(), "/v1/definitions/a%2Fb%20%C3%BC%3F/versions?x=1%262%3D3&z=4");
        assert_eq!(DEFINITION.at("a~b:c").text(), "/v1/definitions/a~b:c");
        assert_eq!(HEALTH.target().text(), "/health");
    }
}
