//! One logical server as a machine: what happens next (`engine`) and who may do it (`org`), composed into
//! `handle(input, now) -> outputs`.
//!
//! Invariant: pure. The site never reads a clock, a file or a socket; the same inputs at the same moments give the same
//! outputs. It never reads the store either: it requests data with an output and gets it with a later input.

mod answer;
mod bounds;
mod cases;
mod catalog;
mod cluster;
mod context;
mod executors;
mod gauges;
mod input;
mod jobs;
mod mailing;
pub mod message;
mod migration;
mod output;
mod planning;
mod receive;
mod recover;
mod refusal;
mod retries;
mod schedules;
mod settle;
mod waiting;
mod work;

use std::sync::Arc;

use legwork_mail::Tell;
use legwork_model::event::ExecutorRegistered;
use legwork_model::time::Timestamp;
use legwork_org::Worklists;

pub use answer::*;
pub use bounds::{Limits, OUTPUT_APPENDS_MAX, OUTPUT_BYTES_MAX, RECORD_BYTES_MAX};
pub use cases::merged_history::{Frontier, Line, Merged, Part, merge};
pub use cases::summary::Summary;
pub use catalog::access::{Scope, UnknownScope};
pub use catalog::changes::{Fate, Pending};
pub use cluster::locks::Mode;
pub use cluster::seat::{Member, Seat};
pub use gauges::Gauges;
pub use input::*;
pub use legwork_engine::{Failure, Lifecycle};
pub use legwork_plan::ResourceId;
pub use legwork_schedule::{Feedback, Reason};
pub use message::{
    Follow, Instance, Item, Items, KeyQuestion, Mark, Message, Named, Offer, ParcelId, Report,
    Shares, Stage, Wanted,
};
pub use migration::outbox::Sent;
pub use output::{Append, Ask, Call, ClosedStream, Due, FileWanted, Output};
pub use planning::{Attempt, BrokenAt, Counts as DeadlineCounts, Reserving, Why, Wish};
pub use refusal::{Kind, Refusal};
pub use schedules::{KEY_OF_SCHEDULE, STARTS_MAX};

use bounds::Entailed;
use cases::Cases;
use catalog::Catalog;
use catalog::access::Caller;
use cluster::Cluster;
use executors::Executors;
use jobs::Jobs;
use mailing::Mailings;
use migration::Migration;
use planning::Planning;
use schedules::Schedules;
use waiting::WaitingRoom;
use work::Work;

/// The configuration of a site.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many instances keep their state in memory; others are loaded on demand.
    pub resident_max: usize,
    /// How many requests may wait at the same time.
    pub waiting_max: usize,
    /// How many items of other servers are kept, of all people together. Beyond that the lists requested least recently
    /// are dropped; lists with waiting requests stay.
    pub followed_items_max: usize,
    /// After how many records of an instance a snapshot of its state is stored.
    pub snapshot_every: u64,
    /// The most bytes of all values of an instance, including older versions.
    pub data_bytes_max: u64,
    /// The most records of an instance; one more may end it.
    pub history_records_max: u64,
    /// The most bytes of a history, or of values, in one message to another server.
    pub part_bytes: usize,
    pub limits: Limits,
    /// The incarnation: drawn whenever a site is made, so that leases and cursors of another incarnation are
    /// recognised. Not a moment, since clocks are set back.
    pub life: u64,
    /// The identity of this server in the cluster; `None` for a single server.
    pub member: Option<Member>,
    /// Rules of letters by mail; `None` if no mail is sent.
    pub mail: Option<Tell>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resident_max: 200_000,
            waiting_max: 20_000,
            followed_items_max: 500_000,
            snapshot_every: 128,
            data_bytes_max: bounds::INSTANCE_DATA_BYTES_MAX,
            history_records_max: bounds::HISTORY_RECORDS_MAX,
            part_bytes: bounds::PART_BYTES,
            limits: Limits::default(),
            life: 0,
            member: None,
            mail: None,
        }
    }
}

#[derive(Debug)]
pub struct Site {
    config: Config,
    catalog: Catalog,
    cluster: Cluster,
    cases: Cases,
    migration: Migration,
    work: Work,
    jobs: Jobs,
    executors: Executors,
    planning: Planning,
    schedules: Schedules,
    mailings: Mailings,
    waiting: WaitingRoom,
    clock: Clock,
    entailed: Entailed,
    out: Vec<Output>,
}

#[derive(Debug, Default)]
struct Clock {
    /// The latest moment seen or recorded.
    latest: Timestamp,
    /// Until then all timeouts are suspended, after a jump of time.
    grace_until: Timestamp,
}

/// A request held until the stream it needs is loaded.
#[derive(Debug)]
struct Held {
    id: RequestId,
    caller: Caller,
    request: Request,
}

impl Site {
    pub fn new(config: Config) -> Self {
        // Leases count up from here. Two incarnations have 2^48 numbers to begin at: they do not meet.
        let first_lease = config.life >> JobLease::SERVER_BITS;
        let catalog = Catalog::default();
        let mut site = Self {
            work: Work::new(config.life, Self::empty_worklists(&config, &catalog)),
            jobs: Jobs::new(first_lease),
            catalog,
            cluster: Cluster::default(),
            cases: Cases::default(),
            migration: Migration::default(),
            executors: Executors::default(),
            planning: Planning::default(),
            schedules: Schedules::default(),
            mailings: Mailings::default(),
            waiting: WaitingRoom::default(),
            clock: Clock::default(),
            entailed: Entailed::default(),
            out: Vec::new(),
            config,
        };
        site.read_bootstrap();
        site
    }

    /// Handles one input; returns the effects to carry out, in this order.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Output> {
        let now = now.max(self.clock.latest);
        self.entailed = Entailed::default();
        if !matches!(input, Input::Recovered(_) | Input::SiteRecovered) {
            self.begin(now);
        }
        match self.mode() {
            Mode::Serving if self.cluster.is_joining() => self.act_joining(input, now),
            Mode::Serving => self.act(input, now),
            Mode::Frozen { .. } => self.act_frozen(input, now),
            Mode::Gone { .. } => self.act_gone(input),
        }
        for id in std::mem::take(&mut self.cases.ended) {
            self.forget_over(id);
        }
        self.write_plans(now);
        std::mem::take(&mut self.out)
    }

    fn act(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Recovered(stream) => self.recover(stream),
            Input::SiteRecovered => self.site_recovered(),
            Input::Request { id, credential, request } => {
                self.clock.latest = now;
                match self.catalog.tokens.caller(&credential) {
                    Ok(caller) => self.admit(Held { id, caller, request }, now),
                    Err(refusal) => self.answer(id, Err(refusal)),
                }
            }
            Input::Loaded(stream) => self.loaded(&stream, now),
            Input::HistoryRead { id, instance, first, records } => {
                self.history_read(id, instance, first.as_deref(), &records);
            }
            Input::ClosedRead { id, streams } => self.closed_read(id, &streams),
            Input::OwnRead { id, record } => self.own_read(id, record.as_deref()),
            Input::Message { from, message } => self.receive(from, message, now),
            Input::Link { to, is_up } => self.on_link(to, is_up, now),
            Input::EntriesRead { instance, to, number, from, records } => {
                self.entries_read(instance, to, number, (from, &records));
            }
            Input::FilesHere { instance, blobs } => self.files_here(instance, blobs, now),
            Input::CatalogRead { to, from, records } => self.catalog_read(to, from, records),
            Input::Cancelled { id } => self.cancelled(id, now),
            Input::Unheard { jobs } => self.on_unheard(&jobs),
            Input::Moved { change, server } => self.moved_in(change, server, now),
            Input::GivenAway { change } => self.given_away(change),
            Input::Jumped { by } => self.jumped(by, now),
            Input::Stopping => self.store_learned(now),
            Input::Settle => self.settle(now),
        }
    }

    fn cancelled(&mut self, id: RequestId, now: Timestamp) {
        drop(self.waiting.take(id));
        self.cancel_start(id, now);
        self.cluster.drop_held(id);
        self.cases.drop_key_start(id);
    }

    /// The latest moment in what was replayed or handled: the clock must not be behind it.
    pub fn latest(&self) -> Timestamp {
        self.clock.latest
    }

    /// Records of the site's own stream or of the plans that could not be understood. If there are any, the store was
    /// written by another program or a newer version, and must not be written to.
    pub fn faults(&self) -> &[String] {
        &self.catalog.log.faults
    }

    /// The change of the topology under way, as far as known here.
    pub fn change(&self) -> Option<&Pending> {
        self.catalog.changes().pending()
    }

    /// How a change of the topology ended, as far as known here.
    pub fn fate(&self, change: u32) -> Option<Fate> {
        self.catalog.changes().fate(change)
    }

    /// How often the tokens have changed.
    pub fn tokens_revision(&self) -> u64 {
        self.catalog.tokens.revision()
    }

    /// The hashes of all tokens, to reject made-up tokens before a request gets here.
    pub fn token_hashes(&self) -> impl Iterator<Item = [u8; 32]> {
        self.catalog.tokens.hashes()
    }

    /// How often the executors have changed.
    pub fn executors_revision(&self) -> u64 {
        self.executors.registry.revision()
    }

    /// All executors, to check their signatures.
    pub fn executors(&self) -> impl Iterator<Item = &Arc<ExecutorRegistered>> {
        self.executors.registry.all().map(|(_, one)| one)
    }

    /// For how many jobs assignments or earlier attempts are remembered; 0 when all jobs are over.
    pub fn jobs_kept(&self) -> usize {
        self.executors.jobs_kept()
    }

    fn empty_worklists(config: &Config, catalog: &Catalog) -> Worklists {
        let mut worklists = Worklists::new(config.life, catalog.organisation());
        if config.mail.is_some() {
            worklists.keep_news();
        }
        worklists
    }

    fn answer(&mut self, id: RequestId, answer: Result<Answer, Refusal>) {
        if answer.is_err() {
            self.expire_granted(id);
        }
        self.out.push(Output::Answer { id, answer });
    }

    /// Carries out a request, or holds it until the stream it needs is loaded.
    fn admit(&mut self, held: Held, now: Timestamp) {
        match self.cases.needs_loading(&held.request) {
            Some(stream) => self.load(stream, held),
            None => self.carry_out(held, now),
        }
    }

    fn carry_out(&mut self, Held { id, caller, request }: Held, now: Timestamp) {
        if let Err(refusal) = self.require_room().and_then(|()| self.require_here(&request)) {
            return self.answer(id, Err(refusal));
        }
        let catalog = &self.catalog;
        let answer = match request {
            Request::Deploy { source } => self.deploy(&caller, &source, now),
            Request::Definitions { after, limit } => catalog.definitions(&caller, after, limit),
            Request::DefinitionVersions { process, after, limit } => {
                catalog.definition_versions(&caller, &process, after, limit)
            }
            Request::Definition { process, version } => {
                catalog.definition(&caller, &process, version)
            }
            Request::PublishOrganisation { source } => self.publish(&caller, &source, now),
            Request::Organisation { version } => return self.organisation(id, &caller, version),
            Request::OrganisationVersions { after, limit } => {
                catalog.organisation_versions(&caller, after, limit)
            }
            Request::PublishTopology(asked) => self.publish_topology(&caller, &asked, now),
            Request::Reconfiguration => self.reconfiguration(&caller),
            Request::Undo { why } => self.undo(&caller, why, now),
            Request::Topology { epoch } => return self.topology(id, &caller, epoch),
            Request::TopologyVersions { after, limit } => {
                catalog.topology_versions(&caller, after, limit)
            }
            Request::Start(start) => return self.start(id, caller, start, now),
            Request::Show { instance, wait_until } => {
                return self.show(id, &caller, instance, wait_until, now);
            }
            Request::History { instance, from, limit } => {
                return self.history(id, &caller, instance, from, limit);
            }
            Request::List(list) => return self.list(id, &caller, list),
            Request::Suspend { instance, reason } => self.suspend(&caller, instance, reason, now),
            Request::Resume { instance, reason } => self.resume(&caller, instance, reason, now),
            Request::Abort { instance, reason } => self.abort(&caller, instance, reason, now),
            Request::Incidents { limit, after } => self.cases.incidents(&caller, limit, after),
            Request::Resolve { activity, resolution } => {
                self.resolve(&caller, &activity, resolution, now)
            }
            Request::Worklist(worklist) => return self.worklist(id, &caller, worklist, now),
            Request::Item { agent, activity } => self.item(&caller, &agent, &activity, now),
            Request::Claim { agent, activity } => self.claim(&caller, agent, &activity, now),
            Request::Release { agent, activity } => self.release(&caller, agent, &activity, now),
            Request::Delegate { agent, activity, to } => {
                self.delegate(&caller, agent, &activity, to, now)
            }
            Request::Complete(complete) => self.complete(&caller, complete, now),
            Request::Activate(activate) => return self.activate(id, &caller, activate, now),
            Request::CompleteJobs { worker, jobs } => {
                self.complete_jobs(&caller, &worker, jobs, now)
            }
            Request::FailJobs { worker, jobs } => self.fail_jobs(&caller, &worker, jobs, now),
            Request::ExtendJobs { jobs, lease, .. } => self.extend_jobs(&caller, &jobs, lease, now),
            Request::ReturnJobs { jobs } => self.return_jobs(&caller, &jobs),
            Request::Plan { resource } => self.plan_of(&caller, resource, now),
            Request::Executor(request) => self.on_executor_request(&caller, request, now),
            Request::Schedule(request) => self.on_schedule(&caller, request, now),
            Request::Mail(request) => self.on_mail_request(&caller, request, now),
            Request::IssueToken { name, hash, scopes } => {
                self.issue_token(&caller, name, hash, &scopes, now)
            }
            Request::RevokeToken { name } => self.revoke_token(&caller, name, now),
            Request::Tokens { after, limit } => catalog.list_tokens(&caller, after, limit),
            Request::WhoAmI => Ok(caller.as_answer()),
            Request::RequireAdmin => caller.require_admin().map(|()| Answer::Done),
            Request::RequireFiles | Request::RequireControl(..) => caller.may_ask(),
        };
        self.answer(id, answer);
    }
}

/// The first entries of a listing, and whether there are more.
fn page<T>(mut all: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, bool) {
    let entries = all.by_ref().take(limit.clamp(1, cases::control::PAGE_MAX)).collect();
    (entries, all.next().is_some())
}
