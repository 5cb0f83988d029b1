//! The operations of a server, each as a method.
//!
//! Invariant: what a method takes and answers is what the OpenAPI document says of its path.

use std::time::Duration;

use bytes::Bytes;
use legwork_model::id::{ActivityId, InstanceId};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::{Call, Client, Download, Events, Result};
use crate::cluster::{
    Changes, Cluster, Method, PrepareRequest, Prepared, TopologyAnswer, TopologyOptions,
};
use crate::deadlines::{Deadline, Plan, PlanKind};
use crate::definitions::{
    CheckAnswer, CheckRequest, Definition, DefinitionList, Deployed, Organisation, Published,
    VersionList,
};
use crate::endpoints::{self, Get};
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

impl Client {
    /// All pages of a list in one.
    async fn all<A: DeserializeOwned, T>(
        &self,
        list: &Get<A>,
        open: impl Fn(A) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>> {
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let target = list.target().page(Some(PAGE), cursor.as_deref());
            let (entries, next) = open(self.get(target).await?);
            all.extend(entries);
            cursor = next;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }
}

/// Definitions and the organisation.
impl Client {
    pub async fn deploy(&self, source: &str) -> Result<Deployed> {
        self.call(Call::yaml(endpoints::DEPLOY.target(), source)).await
    }

    /// The latest version of every process: all pages in one.
    pub async fn definitions(&self) -> Result<DefinitionList> {
        let definitions =
            self.all(&endpoints::DEFINITIONS, |page| (page.definitions, page.next)).await?;
        Ok(DefinitionList { definitions, next: None })
    }

    /// A page of the versions of a process, oldest first.
    pub async fn definition_versions(
        &self,
        process: &str,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<VersionList> {
        self.get(endpoints::DEFINITION_VERSIONS.at(process).page(limit, cursor)).await
    }

    pub async fn definition(&self, process: &str, version: Option<u32>) -> Result<Definition> {
        self.get(endpoints::DEFINITION.at(process).query("version", version)).await
    }

    pub async fn publish_organisation(&self, source: &str) -> Result<Published> {
        self.call(Call::yaml(endpoints::PUBLISH_ORGANISATION.target(), source)).await
    }

    /// The one in force.
    pub async fn organisation(&self) -> Result<Organisation> {
        self.get(endpoints::ORGANISATION.target()).await
    }

    pub async fn organisation_version(&self, version: u32) -> Result<Organisation> {
        self.get(endpoints::ORGANISATION.target().query("version", Some(version))).await
    }

    /// A page of the versions of the organisation, oldest first.
    pub async fn organisation_versions(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<VersionList> {
        self.get(endpoints::ORGANISATION_VERSIONS.target().page(limit, cursor)).await
    }

    /// What moves instances or servers is under way when this is answered: see `changes`.
    pub async fn publish_topology(
        &self,
        source: &str,
        options: &TopologyOptions,
    ) -> Result<TopologyAnswer> {
        let TopologyOptions { method, dry_run, without } = options;
        let without = (!without.is_empty()).then(|| without.join(","));
        let target = endpoints::PUBLISH_TOPOLOGY
            .target()
            .query("method", method.map(Method::word))
            .query("dry_run", dry_run.then_some(true))
            .query("without", without);
        self.call(Call::yaml(target, source)).await
    }

    /// All servers with their load, and the change that is under way.
    pub async fn cluster(&self) -> Result<Cluster> {
        self.get(endpoints::CLUSTER.target()).await
    }

    /// The change that is under way, and what came of the one before.
    pub async fn changes(&self) -> Result<Changes> {
        self.get(endpoints::CHANGES.target()).await
    }

    /// Gives the change up that is under way.
    pub async fn undo_change(&self, reason: Option<String>) -> Result<Changes> {
        self.call(Call::json(endpoints::UNDO_CHANGE.target(), &Reason { reason })?).await
    }

    /// Copies a server's store ahead of its move into the process of another: how far that is.
    pub async fn prepare_move(&self, server: &str, into: &str) -> Result<Prepared> {
        let request = PrepareRequest { server: server.into(), into: into.into() };
        self.call(Call::json(endpoints::PREPARE_MOVE.target(), &request)?).await
    }

    /// The given epoch, or the one in force.
    pub async fn topology(&self, epoch: Option<u32>) -> Result<Topology> {
        self.get(endpoints::TOPOLOGY.target().query("epoch", epoch)).await
    }

    /// A page of the epochs of the topology, oldest first.
    pub async fn topology_versions(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<VersionList> {
        self.get(endpoints::TOPOLOGY_VERSIONS.target().page(limit, cursor)).await
    }

    pub async fn check(&self, request: &CheckRequest) -> Result<CheckAnswer> {
        self.call(Call::json(endpoints::CHECK.target(), request)?).await
    }
}

/// Instances.
impl Client {
    /// With a key, a repetition of the same request answers the instance of the first.
    pub async fn start(&self, request: &StartRequest, key: Option<&str>) -> Result<Started> {
        let wait = millis(request.wait_ms.unwrap_or(0));
        self.call(Call::json(endpoints::START.target(), request)?.keyed(key)?.waiting(wait)).await
    }

    /// Whether the deadline of a start could be promised, and how. Nothing is started; what was found is held for
    /// five minutes.
    pub async fn ask_deadline(&self, request: &StartRequest) -> Result<Deadline> {
        self.call(Call::json(endpoints::ASK_DEADLINE.target(), request)?).await
    }

    /// What a person or an executor is to do when; of two of that name the person.
    pub async fn plan(&self, name: &str, kind: Option<PlanKind>) -> Result<Plan> {
        self.get(endpoints::PLAN.at(name).query("kind", kind.map(PlanKind::word))).await
    }

    pub async fn instances(&self, query: &InstanceQuery) -> Result<InstanceList> {
        let target = endpoints::INSTANCES
            .target()
            .query("process", query.process.as_ref())
            .query("state", Some(if query.ended { "ended" } else { "open" }))
            .query("deadline", query.deadline.then_some(true))
            .query("limit", query.limit)
            .query("cursor", query.cursor.as_ref());
        self.get(target).await
    }

    /// As it is; with `wait`, as soon as it has ended or that time is over.
    pub async fn instance(&self, instance: InstanceId, wait: Duration) -> Result<Instance> {
        let target = endpoints::INSTANCE.at(&instance).query("wait_ms", wait_ms(wait));
        self.call(Call::to(target).waiting(wait)).await
    }

    /// What happened at all servers; `from` is the `next` of the page before.
    pub async fn history(
        &self,
        instance: InstanceId,
        from: Option<&str>,
        limit: Option<usize>,
    ) -> Result<History> {
        self.get(endpoints::HISTORY.at(&instance).query("from", from).query("limit", limit)).await
    }

    /// The reason, if given, stands in the history.
    pub async fn suspend(&self, instance: InstanceId, reason: Option<&str>) -> Result<()> {
        self.order(Call::json(endpoints::SUSPEND.at(&instance), &because(reason))?).await
    }

    /// The reason, if given, stands in the history.
    pub async fn resume(&self, instance: InstanceId, reason: Option<&str>) -> Result<()> {
        self.order(Call::json(endpoints::RESUME.at(&instance), &because(reason))?).await
    }

    /// The reason, if given, stands in the history.
    pub async fn abort(&self, instance: InstanceId, reason: Option<&str>) -> Result<()> {
        self.order(Call::json(endpoints::ABORT.at(&instance), &because(reason))?).await
    }

    pub async fn incidents(
        &self,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<IncidentList> {
        self.get(endpoints::INCIDENTS.target().page(limit, cursor)).await
    }

    pub async fn resolve(&self, activity: &ActivityId, request: &ResolveRequest) -> Result<()> {
        self.order(Call::json(endpoints::RESOLVE.at(activity), request)?).await
    }
}

/// Work of people.
impl Client {
    pub async fn worklist(&self, query: &WorklistQuery) -> Result<Worklist> {
        let target = endpoints::WORKLIST
            .target()
            .query("agent", query.agent.as_ref())
            .query("since", query.since.as_ref())
            .query("limit", query.limit)
            .query("wait_ms", wait_ms(query.wait));
        self.call(Call::to(target).waiting(query.wait)).await
    }

    /// The whole list first unless `since` is given, then every change as it comes.
    pub async fn worklist_events(
        &self,
        agent: Option<&str>,
        since: Option<&str>,
    ) -> Result<Events> {
        let target =
            endpoints::WORKLIST_EVENTS.target().query("agent", agent).query("since", since);
        let response = self.open(target).await?;
        Ok(Events::new(response.into_body(), self.authority()))
    }

    pub async fn item(&self, activity: &ActivityId, agent: Option<&str>) -> Result<ItemDetail> {
        self.get(endpoints::ITEM.at(activity).query("agent", agent)).await
    }

    /// The content of a file that an item shows, by its data element.
    pub async fn item_file(
        &self,
        activity: &ActivityId,
        element: &str,
        agent: Option<&str>,
    ) -> Result<Download> {
        let target = endpoints::ITEM_FILE.at(activity);
        let target = target.query("element", Some(element)).query("agent", agent);
        let response = self.open(target).await?;
        Ok(Download::new(response, self.authority()))
    }

    pub async fn claim(&self, activity: &ActivityId, agent: Option<&str>) -> Result<()> {
        let body = ActRequest { agent: agent.map(Into::into) };
        self.order(Call::json(endpoints::CLAIM.at(activity), &body)?).await
    }

    pub async fn release(&self, activity: &ActivityId, agent: Option<&str>) -> Result<()> {
        let body = ActRequest { agent: agent.map(Into::into) };
        self.order(Call::json(endpoints::RELEASE.at(activity), &body)?).await
    }

    pub async fn delegate(
        &self,
        activity: &ActivityId,
        agent: Option<&str>,
        to: &str,
    ) -> Result<()> {
        let body = DelegateRequest { agent: agent.map(Into::into), to: to.into() };
        self.order(Call::json(endpoints::DELEGATE.at(activity), &body)?).await
    }

    /// With a key, a repetition of the same request is answered like the first.
    pub async fn complete(
        &self,
        activity: &ActivityId,
        request: &CompleteRequest,
        key: Option<&str>,
    ) -> Result<()> {
        self.order(Call::json(endpoints::COMPLETE.at(activity), request)?.keyed(key)?).await
    }
}

/// Jobs of programs.
impl Client {
    pub async fn activate(&self, request: &ActivateRequest) -> Result<JobList> {
        let wait = millis(request.wait_ms);
        self.call(Call::json(endpoints::ACTIVATE_JOBS.target(), request)?.waiting(wait)).await
    }

    pub async fn complete_jobs(&self, request: &CompleteJobsRequest) -> Result<JobResults> {
        self.call(Call::json(endpoints::COMPLETE_JOBS.target(), request)?).await
    }

    pub async fn fail_jobs(&self, request: &FailJobsRequest) -> Result<JobResults> {
        self.call(Call::json(endpoints::FAIL_JOBS.target(), request)?).await
    }

    pub async fn return_jobs(&self, request: &ReturnJobsRequest) -> Result<JobResults> {
        self.call(Call::json(endpoints::RETURN_JOBS.target(), request)?).await
    }

    pub async fn extend_jobs(&self, request: &ExtendJobsRequest) -> Result<JobResults> {
        self.call(Call::json(endpoints::EXTEND_JOBS.target(), request)?).await
    }
}

/// Executors, which are called by the servers.
impl Client {
    /// Says what an executor does and where; the same again changes nothing.
    pub async fn register_executor(
        &self,
        name: &str,
        request: &ExecutorRequest,
    ) -> Result<Registered> {
        self.call(Call::json(endpoints::REGISTER_EXECUTOR.at(name), request)?).await
    }

    /// All pages in one.
    pub async fn executors(&self) -> Result<ExecutorList> {
        let executors = self.all(&endpoints::EXECUTORS, |page| (page.executors, page.next)).await?;
        Ok(ExecutorList { executors, next: None })
    }

    /// Says who chooses the executors of a type of jobs from now on.
    pub async fn set_policy(&self, kind: &str, request: &PolicyRequest) -> Result<()> {
        self.order(Call::json(endpoints::SET_POLICY.at(kind), request)?).await
    }

    /// The types of jobs whose executors are not chosen as usual.
    pub async fn policies(&self) -> Result<PolicyList> {
        self.get(endpoints::POLICIES.target()).await
    }

    /// Takes an executor out; what it has is given to others.
    pub async fn remove_executor(&self, name: &str) -> Result<()> {
        self.order(Call::to(endpoints::REMOVE_EXECUTOR.at(name))).await
    }
}

/// Processes that are started again and again.
impl Client {
    /// Starts a process again and again from now on; the same again changes nothing.
    pub async fn put_schedule(&self, name: &str, request: &ScheduleRequest) -> Result<SchedulePut> {
        self.call(Call::json(endpoints::PUT_SCHEDULE.at(name), request)?).await
    }

    pub async fn schedule(&self, name: &str) -> Result<Schedule> {
        self.get(endpoints::SCHEDULE.at(name)).await
    }

    /// All pages in one.
    pub async fn schedules(&self) -> Result<ScheduleList> {
        let schedules = self.all(&endpoints::SCHEDULES, |page| (page.schedules, page.next)).await?;
        Ok(ScheduleList { schedules, next: None })
    }

    /// Starts nothing until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<()> {
        self.order(Call::to(endpoints::PAUSE_SCHEDULE.at(name))).await
    }

    /// Goes on with the next moment.
    pub async fn resume_schedule(&self, name: &str) -> Result<()> {
        self.order(Call::to(endpoints::RESUME_SCHEDULE.at(name))).await
    }

    /// Takes a schedule out; what it has started goes on.
    pub async fn remove_schedule(&self, name: &str) -> Result<()> {
        self.order(Call::to(endpoints::REMOVE_SCHEDULE.at(name))).await
    }
}

/// Files, tokens and the server itself.
impl Client {
    pub async fn upload(&self, name: &str, media_type: &str, body: Bytes) -> Result<File> {
        let target = endpoints::UPLOAD.target().query("name", Some(name));
        self.call(Call::octets(target, media_type, body)?).await
    }

    /// The content of a file, by its hash.
    pub async fn download(&self, blob: &str) -> Result<Download> {
        let response = self.open(endpoints::DOWNLOAD.at(blob)).await?;
        Ok(Download::new(response, self.authority()))
    }

    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewToken> {
        self.call(Call::json(endpoints::CREATE_TOKEN.target(), request)?).await
    }

    /// All pages in one.
    pub async fn tokens(&self) -> Result<TokenList> {
        let tokens = self.all(&endpoints::TOKENS, |page| (page.tokens, page.next)).await?;
        Ok(TokenList { tokens, next: None })
    }

    pub async fn revoke_token(&self, name: &str) -> Result<()> {
        self.order(Call::to(endpoints::REVOKE_TOKEN.at(name))).await
    }

    pub async fn whoami(&self) -> Result<WhoAmI> {
        self.get(endpoints::WHOAMI.target()).await
    }

    /// A backup of the whole store of the server, or of a guest of it, taken while it runs.
    pub async fn backup(&self, guest: Option<&str>) -> Result<Download> {
        let target = endpoints::BACKUP.target().query("server", guest);
        let response = self.open(target).await?;
        Ok(Download::new(response, self.authority()))
    }

    pub async fn openapi(&self) -> Result<Json> {
        Ok(self.get(endpoints::OPENAPI.target()).await?.0)
    }

    /// The JSON Schema of definitions, for editors.
    pub async fn definition_schema(&self) -> Result<Json> {
        Ok(self.get(endpoints::DEFINITION_SCHEMA.target()).await?.0)
    }

    /// The JSON Schema of organisations, for editors.
    pub async fn organisation_schema(&self) -> Result<Json> {
        Ok(self.get(endpoints::ORGANISATION_SCHEMA.target()).await?.0)
    }

    /// The JSON Schema of topologies, for editors.
    pub async fn topology_schema(&self) -> Result<Json> {
        Ok(self.get(endpoints::TOPOLOGY_SCHEMA.target()).await?.0)
    }

    /// In the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String> {
        let (_, body) = self.send(Call::to(endpoints::METRICS.target()).sent).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The links of the server to others.
    pub async fn links(&self) -> Result<LinkList> {
        self.get(endpoints::LINKS.target()).await
    }

    pub async fn health(&self) -> Result<Health> {
        self.get(endpoints::HEALTH.target()).await
    }

    /// An error of code `not_ready` says what the server is waiting for.
    pub async fn ready(&self) -> Result<Ready> {
        self.get(endpoints::READY.target()).await
    }
}

fn because(reason: Option<&str>) -> Reason {
    Reason { reason: reason.map(str::to_owned) }
}

fn millis(wait: u64) -> Duration {
    Duration::from_millis(wait)
}

fn wait_ms(wait: Duration) -> Option<u64> {
    (!wait.is_zero()).then(|| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}
