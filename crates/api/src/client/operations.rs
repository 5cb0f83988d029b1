//! The operations of a server, each as a method.
//!
//! Invariant: what a method takes and answers is what the OpenAPI document says of its path.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderValue;
use legwork_model::id::{ActivityId, InstanceId};
use serde_json::Value as Json;

use super::url::Target;
use super::{Call, Client, Download, Error, Events};
use crate::cluster::{
    Changes, Cluster, Method, PrepareRequest, Prepared, TopologyAnswer, TopologyOptions,
};
use crate::deadlines::{Deadline, Plan, PlanKind};
use crate::definitions::{
    CheckAnswer, CheckRequest, Definition, DefinitionList, Deployed, Organisation, Published,
    VersionList,
};
use crate::executors::{ExecutorList, ExecutorRequest, PolicyList, PolicyRequest, Registered};
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

const NO_WAIT: Duration = Duration::ZERO;
/// The most entries a server gives at once.
const PAGE: usize = 1_000;

/// Which instances to list.
#[derive(Clone, Debug, Default)]
pub struct InstanceQuery {
    pub process: Option<String>,
    /// Those that have ended, instead of those that have not.
    pub ended: bool,
    /// Only those with a deadline.
    pub deadline: bool,
    pub limit: Option<usize>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// Which worklist to read, and from where on.
#[derive(Clone, Debug, Default)]
pub struct WorklistQuery {
    /// May be left out when the token allows to work as exactly one agent.
    pub agent: Option<String>,
    /// The cursor of the answer before.
    pub since: Option<String>,
    pub limit: Option<usize>,
    /// Answer only when something has changed, or after this time.
    pub wait: Duration,
}

/// Definitions and the organisation.
impl Client {
    pub async fn deploy(&self, source: &str) -> Result<Deployed, Error> {
        self.call(Call::new(hyper::Method::POST, "/v1/definitions".into()).yaml(source)).await
    }

    /// The latest version of every process: all pages in one.
    pub async fn definitions(&self) -> Result<DefinitionList, Error> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let target = Target::new("/v1/definitions").query("limit", Some(PAGE));
            let target = target.query("cursor", cursor.as_ref());
            let page: DefinitionList = self.get(target.done(), NO_WAIT).await?;
            all.extend(page.definitions);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(DefinitionList { definitions: all, next: None });
            }
        }
    }

    /// A page of the versions of a process, oldest first.
    pub async fn definition_versions(
        &self,
        process: &str,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<VersionList, Error> {
        let target = Target::new("/v1/definitions").segment(process).segment("versions");
        let target = target.query("limit", limit).query("cursor", cursor);
        self.get(target.done(), NO_WAIT).await
    }

    pub async fn definition(
        &self,
        process: &str,
        version: Option<u32>,
    ) -> Result<Definition, Error> {
        let target = Target::new("/v1/definitions").segment(process).query("version", version);
        self.get(target.done(), NO_WAIT).await
    }

    pub async fn publish_organisation(&self, source: &str) -> Result<Published, Error> {
        self.call(Call::new(hyper::Method::PUT, "/v1/organisation".into()).yaml(source)).await
    }

    /// The one in force.
    pub async fn organisation(&self) -> Result<Organisation, Error> {
        self.get("/v1/organisation".into(), NO_WAIT).await
    }

    pub async fn organisation_version(&self, version: u32) -> Result<Organisation, Error> {
        let target = Target::new("/v1/organisation").query("version", Some(version));
        self.get(target.done(), NO_WAIT).await
    }

    /// A page of the versions of the organisation, oldest first.
    pub async fn organisation_versions(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<VersionList, Error> {
        let target = Target::new("/v1/organisation/versions");
        let target = target.query("limit", limit).query("cursor", cursor);
        self.get(target.done(), NO_WAIT).await
    }

    /// What moves instances or servers is under way when this is answered: see `changes`.
    pub async fn publish_topology(
        &self,
        source: &str,
        options: &TopologyOptions,
    ) -> Result<TopologyAnswer, Error> {
        let TopologyOptions { method, dry_run, without } = options;
        let without = (!without.is_empty()).then(|| without.join(","));
        let target = Target::new("/v1/topology")
            .query("method", method.map(Method::word))
            .query("dry_run", dry_run.then_some(true))
            .query("without", without);
        self.call(Call::new(hyper::Method::PUT, target.done()).yaml(source)).await
    }

    /// All servers with their load, and the change that is under way.
    pub async fn cluster(&self) -> Result<Cluster, Error> {
        self.get("/v1/cluster".into(), NO_WAIT).await
    }

    /// The change that is under way, and what came of the one before.
    pub async fn changes(&self) -> Result<Changes, Error> {
        self.get("/v1/cluster/changes".into(), NO_WAIT).await
    }

    /// Gives the change up that is under way.
    pub async fn undo_change(&self, reason: Option<String>) -> Result<Changes, Error> {
        self.call(Call::post("/v1/cluster/changes/undo", &Reason { reason })?).await
    }

    /// Copies a server's store ahead of its move into the process of another: how far that is.
    pub async fn prepare_move(&self, server: &str, into: &str) -> Result<Prepared, Error> {
        let request = PrepareRequest { server: server.into(), into: into.into() };
        self.call(Call::post("/v1/cluster/prepare", &request)?).await
    }

    /// The given epoch, or the one in force.
    pub async fn topology(&self, epoch: Option<u32>) -> Result<Topology, Error> {
        let target = Target::new("/v1/topology").query("epoch", epoch);
        self.get(target.done(), NO_WAIT).await
    }

    /// A page of the epochs of the topology, oldest first.
    pub async fn topology_versions(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<VersionList, Error> {
        let target = Target::new("/v1/topology/versions");
        let target = target.query("limit", limit).query("cursor", cursor);
        self.get(target.done(), NO_WAIT).await
    }

    pub async fn check(&self, request: &CheckRequest) -> Result<CheckAnswer, Error> {
        self.call(Call::post("/v1/check", request)?).await
    }
}

/// Instances.
impl Client {
    /// With a key, a repetition of the same request answers the instance of the first.
    pub async fn start(&self, request: &StartRequest, key: Option<&str>) -> Result<Started, Error> {
        let wait = millis(request.wait_ms.unwrap_or(0));
        self.call(Call::post("/v1/instances", request)?.keyed(key)?.waiting(wait)).await
    }

    /// Whether the deadline of a start could be promised, and how. Nothing is started; what was found is held for
    /// five minutes.
    pub async fn ask_deadline(&self, request: &StartRequest) -> Result<Deadline, Error> {
        self.call(Call::post("/v1/deadlines", request)?).await
    }

    /// What a person or an executor is to do when; of two of that name the person.
    pub async fn plan(&self, name: &str, kind: Option<PlanKind>) -> Result<Plan, Error> {
        let target = Target::new("/v1/plans").segment(name).query("kind", kind.map(PlanKind::word));
        self.get(target.done(), NO_WAIT).await
    }

    pub async fn instances(&self, query: &InstanceQuery) -> Result<InstanceList, Error> {
        let target = Target::new("/v1/instances")
            .query("process", query.process.as_ref())
            .query("state", Some(if query.ended { "ended" } else { "open" }))
            .query("deadline", query.deadline.then_some(true))
            .query("limit", query.limit)
            .query("cursor", query.cursor.as_ref());
        self.get(target.done(), NO_WAIT).await
    }

    /// As it is; with `wait`, as soon as it has ended or that time is over.
    pub async fn instance(&self, instance: InstanceId, wait: Duration) -> Result<Instance, Error> {
        let target = Target::new("/v1/instances").segment(instance).query("wait_ms", wait_ms(wait));
        self.get(target.done(), wait).await
    }

    /// What happened at all servers; `from` is the `next` of the page before.
    pub async fn history(
        &self,
        instance: InstanceId,
        from: Option<&str>,
        limit: Option<usize>,
    ) -> Result<History, Error> {
        let target = Target::new("/v1/instances").segment(instance).segment("history");
        let target = target.query("from", from).query("limit", limit);
        self.get(target.done(), NO_WAIT).await
    }

    /// The reason, if given, stands in the history.
    pub async fn suspend(&self, instance: InstanceId, reason: Option<&str>) -> Result<(), Error> {
        self.order(instance_call(instance, "suspend", reason)?).await
    }

    /// The reason, if given, stands in the history.
    pub async fn resume(&self, instance: InstanceId, reason: Option<&str>) -> Result<(), Error> {
        self.order(instance_call(instance, "resume", reason)?).await
    }

    /// The reason, if given, stands in the history.
    pub async fn abort(&self, instance: InstanceId, reason: Option<&str>) -> Result<(), Error> {
        self.order(instance_call(instance, "abort", reason)?).await
    }

    pub async fn incidents(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<IncidentList, Error> {
        let target = Target::new("/v1/incidents").query("limit", limit).query("cursor", cursor);
        self.get(target.done(), NO_WAIT).await
    }

    pub async fn resolve(
        &self,
        activity: &ActivityId,
        request: &ResolveRequest,
    ) -> Result<(), Error> {
        let target = Target::new("/v1/activities").segment(activity).segment("resolve");
        self.order(Call::post(target.done(), request)?).await
    }
}

/// Work of people.
impl Client {
    pub async fn worklist(&self, query: &WorklistQuery) -> Result<Worklist, Error> {
        let target = Target::new("/v1/worklist")
            .query("agent", query.agent.as_ref())
            .query("since", query.since.as_ref())
            .query("limit", query.limit)
            .query("wait_ms", wait_ms(query.wait));
        self.get(target.done(), query.wait).await
    }

    /// The whole list first unless `since` is given, then every change as it comes.
    pub async fn worklist_events(
        &self,
        agent: Option<&str>,
        since: Option<&str>,
    ) -> Result<Events, Error> {
        let target = Target::new("/v1/worklist/events").query("agent", agent).query("since", since);
        let response = self.open(Call::new(hyper::Method::GET, target.done())).await?;
        Ok(Events::new(response.into_body(), self.authority()))
    }

    pub async fn item(
        &self,
        activity: &ActivityId,
        agent: Option<&str>,
    ) -> Result<ItemDetail, Error> {
        let target = Target::new("/v1/work").segment(activity).query("agent", agent);
        self.get(target.done(), NO_WAIT).await
    }

    /// The content of a file that an item shows, by its data element.
    pub async fn item_file(
        &self,
        activity: &ActivityId,
        element: &str,
        agent: Option<&str>,
    ) -> Result<Download, Error> {
        let target = Target::new("/v1/work").segment(activity).segment("file");
        let target = target.query("element", Some(element)).query("agent", agent);
        let response = self.open(Call::new(hyper::Method::GET, target.done())).await?;
        Ok(Download::new(response, self.authority()))
    }

    pub async fn claim(&self, activity: &ActivityId, agent: Option<&str>) -> Result<(), Error> {
        let body = ActRequest { agent: agent.map(Into::into) };
        self.order(work_call(activity, "claim", &body)?).await
    }

    pub async fn release(&self, activity: &ActivityId, agent: Option<&str>) -> Result<(), Error> {
        let body = ActRequest { agent: agent.map(Into::into) };
        self.order(work_call(activity, "release", &body)?).await
    }

    pub async fn delegate(
        &self,
        activity: &ActivityId,
        agent: Option<&str>,
        to: &str,
    ) -> Result<(), Error> {
        let body = DelegateRequest { agent: agent.map(Into::into), to: to.into() };
        self.order(work_call(activity, "delegate", &body)?).await
    }

    /// With a key, a repetition of the same request is answered like the first.
    pub async fn complete(
        &self,
        activity: &ActivityId,
        request: &CompleteRequest,
        key: Option<&str>,
    ) -> Result<(), Error> {
        self.order(work_call(activity, "complete", request)?.keyed(key)?).await
    }
}

/// Jobs of programs.
impl Client {
    pub async fn activate(&self, request: &ActivateRequest) -> Result<JobList, Error> {
        let wait = millis(request.wait_ms);
        self.call(Call::post("/v1/jobs/activate", request)?.waiting(wait)).await
    }

    pub async fn complete_jobs(&self, request: &CompleteJobsRequest) -> Result<JobResults, Error> {
        self.call(Call::post("/v1/jobs/complete", request)?).await
    }

    pub async fn fail_jobs(&self, request: &FailJobsRequest) -> Result<JobResults, Error> {
        self.call(Call::post("/v1/jobs/fail", request)?).await
    }

    pub async fn return_jobs(&self, request: &ReturnJobsRequest) -> Result<JobResults, Error> {
        self.call(Call::post("/v1/jobs/return", request)?).await
    }

    pub async fn extend_jobs(&self, request: &ExtendJobsRequest) -> Result<JobResults, Error> {
        self.call(Call::post("/v1/jobs/extend", request)?).await
    }
}

/// Executors, which are called by the servers.
impl Client {
    /// Says what an executor does and where; the same again changes nothing.
    pub async fn register_executor(
        &self,
        name: &str,
        request: &ExecutorRequest,
    ) -> Result<Registered, Error> {
        let target = Target::new("/v1/executors").segment(name).done();
        self.call(Call { method: hyper::Method::PUT, ..Call::post(target, request)? }).await
    }

    /// All pages in one.
    pub async fn executors(&self) -> Result<ExecutorList, Error> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let target = Target::new("/v1/executors").query("limit", Some(PAGE));
            let target = target.query("cursor", cursor.as_ref());
            let page: ExecutorList = self.get(target.done(), NO_WAIT).await?;
            all.extend(page.executors);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(ExecutorList { executors: all, next: None });
            }
        }
    }

    /// Says who chooses the executors of a type of jobs from now on.
    pub async fn set_policy(&self, kind: &str, request: &PolicyRequest) -> Result<(), Error> {
        let target = Target::new("/v1/policies").segment(kind).done();
        self.order(Call { method: hyper::Method::PUT, ..Call::post(target, request)? }).await
    }

    /// The types of jobs whose executors are not chosen as usual.
    pub async fn policies(&self) -> Result<PolicyList, Error> {
        self.get(Target::new("/v1/policies").done(), NO_WAIT).await
    }

    /// Takes an executor out; what it has is given to others.
    pub async fn remove_executor(&self, name: &str) -> Result<(), Error> {
        let target = Target::new("/v1/executors").segment(name).done();
        self.order(Call::new(hyper::Method::DELETE, target)).await
    }
}

/// Processes that are started again and again.
impl Client {
    /// Starts a process again and again from now on; the same again changes nothing.
    pub async fn put_schedule(
        &self,
        name: &str,
        request: &ScheduleRequest,
    ) -> Result<SchedulePut, Error> {
        let target = Target::new("/v1/schedules").segment(name).done();
        self.call(Call { method: hyper::Method::PUT, ..Call::post(target, request)? }).await
    }

    pub async fn schedule(&self, name: &str) -> Result<Schedule, Error> {
        self.get(Target::new("/v1/schedules").segment(name).done(), NO_WAIT).await
    }

    /// All pages in one.
    pub async fn schedules(&self) -> Result<ScheduleList, Error> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let target = Target::new("/v1/schedules").query("limit", Some(PAGE));
            let target = target.query("cursor", cursor.as_ref());
            let page: ScheduleList = self.get(target.done(), NO_WAIT).await?;
            all.extend(page.schedules);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(ScheduleList { schedules: all, next: None });
            }
        }
    }

    /// Starts nothing until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<(), Error> {
        let target = Target::new("/v1/schedules").segment(name).segment("pause").done();
        self.order(Call::new(hyper::Method::POST, target)).await
    }

    /// Goes on with the next moment.
    pub async fn resume_schedule(&self, name: &str) -> Result<(), Error> {
        let target = Target::new("/v1/schedules").segment(name).segment("resume").done();
        self.order(Call::new(hyper::Method::POST, target)).await
    }

    /// Takes a schedule out; what it has started goes on.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), Error> {
        let target = Target::new("/v1/schedules").segment(name).done();
        self.order(Call::new(hyper::Method::DELETE, target)).await
    }
}

/// Files, tokens and the server itself.
impl Client {
    pub async fn upload(&self, name: &str, media_type: &str, body: Bytes) -> Result<File, Error> {
        let mut call = Call::new(
            hyper::Method::PUT,
            Target::new("/v1/files").query("name", Some(name)).done(),
        );
        call.content_type =
            Some(HeaderValue::from_str(media_type).map_err(|_| Error::BadArgument {
                what: "media type",
                text: media_type.to_owned(),
            })?);
        call.body = body;
        self.call(call).await
    }

    /// The content of a file, by its hash.
    pub async fn download(&self, blob: &str) -> Result<Download, Error> {
        let target = Target::new("/v1/files").segment(blob);
        let response = self.open(Call::new(hyper::Method::GET, target.done())).await?;
        Ok(Download::new(response, self.authority()))
    }

    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewToken, Error> {
        self.call(Call::post("/v1/tokens", request)?).await
    }

    /// All pages in one.
    pub async fn tokens(&self) -> Result<TokenList, Error> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let target = Target::new("/v1/tokens").query("limit", Some(PAGE));
            let target = target.query("cursor", cursor.as_ref());
            let page: TokenList = self.get(target.done(), NO_WAIT).await?;
            all.extend(page.tokens);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(TokenList { tokens: all, next: None });
            }
        }
    }

    pub async fn revoke_token(&self, name: &str) -> Result<(), Error> {
        let target = Target::new("/v1/tokens").segment(name).done();
        self.order(Call::new(hyper::Method::DELETE, target)).await
    }

    pub async fn whoami(&self) -> Result<WhoAmI, Error> {
        self.get("/v1/whoami".into(), NO_WAIT).await
    }

    /// A backup of the whole store of the server, or of a guest of it, taken while it runs.
    pub async fn backup(&self, guest: Option<&str>) -> Result<Download, Error> {
        let target = Target::new("/v1/backup").query("server", guest).done();
        let response = self.open(Call::new(hyper::Method::GET, target)).await?;
        Ok(Download::new(response, self.authority()))
    }

    pub async fn openapi(&self) -> Result<Json, Error> {
        self.get("/openapi.json".into(), NO_WAIT).await
    }

    /// The JSON Schema of definitions, for editors.
    pub async fn definition_schema(&self) -> Result<Json, Error> {
        self.get("/v1/schema/definition.json".into(), NO_WAIT).await
    }

    /// The JSON Schema of organisations, for editors.
    pub async fn organisation_schema(&self) -> Result<Json, Error> {
        self.get("/v1/schema/organisation.json".into(), NO_WAIT).await
    }

    /// The JSON Schema of topologies, for editors.
    pub async fn topology_schema(&self) -> Result<Json, Error> {
        self.get("/v1/schema/topology.json".into(), NO_WAIT).await
    }

    /// In the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, Error> {
        let (_, body) = self.send(Call::new(hyper::Method::GET, "/metrics".into())).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The links of the server to others.
    pub async fn links(&self) -> Result<LinkList, Error> {
        self.get("/v1/cluster/links".into(), NO_WAIT).await
    }

    pub async fn health(&self) -> Result<Health, Error> {
        self.get("/health".into(), NO_WAIT).await
    }

    /// An error of code `not_ready` says what the server is waiting for.
    pub async fn ready(&self) -> Result<Ready, Error> {
        self.get("/ready".into(), NO_WAIT).await
    }
}

fn instance_call(instance: InstanceId, order: &str, reason: Option<&str>) -> Result<Call, Error> {
    let body = Reason { reason: reason.map(str::to_owned) };
    Call::post(Target::new("/v1/instances").segment(instance).segment(order).done(), &body)
}

fn work_call(
    activity: &ActivityId,
    order: &str,
    body: &impl serde::Serialize,
) -> Result<Call, Error> {
    Call::post(Target::new("/v1/work").segment(activity).segment(order).done(), body)
}

fn millis(wait: u64) -> Duration {
    Duration::from_millis(wait)
}

fn wait_ms(wait: Duration) -> Option<u64> {
    (!wait.is_zero()).then(|| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}
