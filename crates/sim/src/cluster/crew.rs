//! People and workers at every site: they do offered work as the oracle determines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::arbitrary::JOBS;
use legwork_model::id::{ActivityId, AgentId, InstanceId};
use legwork_model::value::{Value, unhex};
use legwork_site::{
    Activate, Answer, Complete, Data, IncidentView, JobLease, JobResult, Kind as Sort,
    Reconfiguration, Refusal, Request, RequestId, Resolution, Worklist,
};

use super::changes::worker;
use super::readers::Readers;
use super::starts::{Keyed, Keys};
use super::{Cluster, Kind, oracle};
use crate::dice::Dice;
use crate::material::AGENTS;
use crate::world::World;

const INSTANCES_MAX: u64 = 6;
/// How often a request is passed on.
const HOPS_MAX: u32 = 4;

#[derive(Default)]
pub(crate) struct Crew {
    /// Unanswered requests by site.
    pending: BTreeMap<(usize, RequestId), Intent>,
    /// Where each instance was started.
    started: BTreeMap<InstanceId, usize>,
    drawn: u64,
    /// The number of starts that were not refused.
    begun: u64,
    errand: Errand,
    /// The last known progress of the current change.
    status: Option<Reconfiguration>,
    keys: Keys,
    /// The site that offered each activity.
    offered: BTreeMap<ActivityId, usize>,
    /// Acknowledged activities.
    pub(crate) acknowledged: BTreeSet<ActivityId>,
    /// Instances with a requested abort.
    pub(crate) abort_asked: BTreeSet<InstanceId>,
    pub(crate) refusals: u32,
    readers: Readers,
    /// The number of items found on lists.
    listed: u64,
}

/// The state of the last request to the registrar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Errand {
    #[default]
    None,
    UnderWay,
    Done,
    Lost,
    /// Only where refusals are possible: see `reshapes`.
    Refused,
}

enum Intent {
    Start(InstanceId),
    Keyed(Keyed),
    Poll,
    Report(Vec<ActivityId>),
    List(AgentId),
    /// An operation on an item, with the number of hops.
    Item(Deed, AgentId, ActivityId, u32),
    Incidents,
    /// A change of the catalog.
    Errand,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Look,
    Claim,
    Release,
    Complete,
}

impl Crew {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Where each instance was started.
    pub(crate) fn started(&self) -> &BTreeMap<InstanceId, usize> {
        &self.started
    }

    pub(crate) fn start_some(&mut self, cluster: &mut Cluster, dice: &mut Dice) {
        let most = match cluster.kind {
            Kind::Divided => 2 * INSTANCES_MAX,
            Kind::Single | Kind::Shared => INSTANCES_MAX,
        };
        if self.begun >= most || !dice.chance(15) {
            return;
        }
        self.drawn += 1;
        self.begun += 1;
        if cluster.kind != Kind::Single {
            return self.start_placed(cluster, dice);
        }
        let place = dice.below(cluster.worlds.len());
        let instance = cluster.draw_instance(self.drawn, place, dice);
        self.ask_start(cluster, place, instance);
    }

    /// Starts a case at the site that its id determines; some with a key.
    fn start_placed(&mut self, cluster: &mut Cluster, dice: &mut Dice) {
        let front = dice.below(cluster.worlds.len());
        let key = cluster.draw_key(front, dice).filter(|_| dice.chance(40));
        let spread = key.map_or_else(|| dice.roll() as u32, |key| key.0 as u32);
        let Some((instance, place)) = cluster.draw_placed(self.drawn, front, spread, dice) else {
            return;
        };
        match key {
            None => self.ask_start(cluster, place, instance),
            Some(key) => self.ask_keyed(cluster, place, Keyed { key, instance, hops: 0 }),
        }
    }

    fn ask_start(&mut self, cluster: &mut Cluster, place: usize, instance: InstanceId) {
        let start = cluster.start_of(instance, None);
        upload(cluster, place, &start.data);
        self.ask(cluster, place, Request::Start(start), Intent::Start(instance));
    }

    fn ask_keyed(&mut self, cluster: &mut Cluster, place: usize, keyed: Keyed) {
        self.keys.note(keyed);
        let start = cluster.start_of(keyed.instance, Some(keyed.key));
        upload(cluster, place, &start.data);
        self.ask(cluster, place, Request::Start(start), Intent::Keyed(keyed));
    }

    /// Everybody looks for work, people at any site.
    pub(crate) fn work(&mut self, cluster: &mut Cluster, dice: &mut Dice) {
        if !cluster.is_shared() {
            self.readers.act(cluster, dice);
        }
        // With executors, most is left to them.
        let polls = if cluster.is_shared() { 3 } else { 50 };
        for place in 0..cluster.worlds.len() {
            if dice.chance(polls) {
                let activate = Activate {
                    worker: worker(place),
                    types: JOBS.iter().map(|job| Arc::from(*job)).collect(),
                    max: 1 + dice.below(4),
                    lease: Duration::from_secs(20),
                    wait_until: None,
                };
                self.ask(cluster, place, Request::Activate(activate), Intent::Poll);
            }
            if dice.chance(50) {
                let agent = AgentId::from(*dice.pick(&AGENTS).unwrap_or(&"ann"));
                let (since, limit, wait_until) = (None, 100, None);
                let list = Worklist { agent: agent.clone(), since, limit, wait_until };
                self.ask(cluster, place, Request::Worklist(list), Intent::List(agent));
            }
            if dice.chance(10) {
                let incidents = Request::Incidents { limit: 100, after: None };
                self.ask(cluster, place, incidents, Intent::Incidents);
            }
        }
    }

    /// Administrative orders: a case is suspended, resumed or, seldom, aborted.
    pub(crate) fn order(&mut self, cluster: &mut Cluster, dice: &mut Dice) {
        let all: Vec<_> = self.started.iter().map(|(id, place)| (*id, *place)).collect();
        let Some(&(instance, place)) = dice.pick(&all) else { return };
        let (reason, none) = ("changed plans".to_owned(), None);
        let request = match dice.below(100) {
            0..3 => Request::Suspend { instance, reason: none },
            3..8 => Request::Resume { instance, reason: none },
            8 if dice.chance(30) => {
                self.abort_asked.insert(instance);
                Request::Abort { instance, reason }
            }
            8.. => return,
        };
        self.ask(cluster, place, request, Intent::Other);
    }

    /// Resumes all suspended cases.
    pub(crate) fn resume_all(&mut self, cluster: &mut Cluster) {
        for (instance, place) in self.started.clone() {
            let request = Request::Resume { instance, reason: None };
            self.ask(cluster, place, request, Intent::Other);
        }
    }

    /// Asks the registrar to change the catalog.
    pub(crate) fn send(&mut self, cluster: &mut Cluster, request: Request) {
        self.errand = Errand::UnderWay;
        self.ask(cluster, 0, request, Intent::Errand);
    }

    pub(crate) fn take_status(&mut self) -> Option<Reconfiguration> {
        self.status.take()
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The outcome of the last change; returned once.
    pub(crate) fn errand(&mut self) -> Errand {
        match self.errand {
            Errand::UnderWay => Errand::UnderWay,
            Errand::None | Errand::Done | Errand::Lost | Errand::Refused => {
                std::mem::take(&mut self.errand)
            }
        }
    }

    fn ask(&mut self, cluster: &mut Cluster, place: usize, request: Request, intent: Intent) {
        let id = cluster.worlds[place].ask(request);
        self.pending.insert((place, id), intent);
    }

    /// Handles answers.
    pub(crate) fn listen(&mut self, cluster: &mut Cluster) -> Result<(), String> {
        for place in 0..cluster.worlds.len() {
            for lost in cluster.worlds[place].take_lost() {
                self.readers.lost(place, lost);
                let intent = self.pending.remove(&(place, lost));
                if let Some(Intent::Start(instance)) = intent {
                    // It may have been started or not: determined at the end.
                    self.started.insert(instance, place);
                } else if let Some(Intent::Errand) = intent {
                    self.errand = Errand::Lost;
                }
            }
        }
        self.readers.listen(cluster)?;
        for key in self.pending.keys().copied().collect::<Vec<_>>() {
            let (place, id) = key;
            let Some(reply) = cluster.worlds[place].reply(id) else { continue };
            let Some(intent) = self.pending.remove(&key) else { continue };
            match reply {
                Ok(answer) => self.answered(cluster, place, intent, answer)?,
                Err(refusal) => self.refused(cluster, place, intent, &refusal)?,
            }
        }
        Ok(())
    }

    fn answered(
        &mut self,
        cluster: &mut Cluster,
        place: usize,
        intent: Intent,
        answer: Answer,
    ) -> Result<(), String> {
        match (intent, answer) {
            (Intent::Errand, answer) => {
                self.errand = Errand::Done;
                if let Answer::Reconfiguration(status) = answer {
                    self.status = Some(*status);
                }
            }
            (Intent::Keyed(keyed), answer) => {
                let instance = self.keys.answered(keyed.key, &answer)?;
                self.started.insert(instance, usize::from(instance.server().0));
            }
            (Intent::Start(instance), Answer::Started { .. }) => {
                self.started.insert(instance, place);
            }
            (Intent::Poll, Answer::Jobs(jobs)) if !jobs.is_empty() => {
                for job in &jobs {
                    self.offered(place, &job.activity)?;
                    has_all(cluster, place, &job.activity, &job.inputs)?;
                }
                let activities = jobs.iter().map(|job| job.activity.clone()).collect();
                let results = jobs.into_iter().map(|job| {
                    let schema = cluster.schema(job.activity.instance);
                    let data = oracle::data(&schema, job.activity.instance, &job.activity);
                    upload(cluster, place, &data);
                    let job = JobLease { activity: job.activity, lease: job.lease };
                    JobResult { job, data }
                });
                let (worker, jobs) = (worker(place), results.collect());
                let request = Request::CompleteJobs { worker, jobs };
                self.ask(cluster, place, request, Intent::Report(activities));
            }
            (Intent::Report(activities), Answer::JobResults(results)) => {
                for (activity, result) in activities.into_iter().zip(results) {
                    if result.is_ok() {
                        self.note(activity)?;
                    }
                }
            }
            (Intent::List(agent), Answer::Worklist(list)) => {
                for item in list.items {
                    self.listed += 1;
                    let deed = match (self.listed % 8, item.claimed_by.is_some()) {
                        (0, true) => Deed::Release,
                        (1..4, false) => Deed::Claim,
                        (_, _) => Deed::Look,
                    };
                    self.deal_with(cluster, place, deed, (agent.clone(), item.activity, 0));
                }
            }
            (Intent::Item(Deed::Look, agent, activity, _), Answer::Item(detail)) => {
                self.offered(place, &activity)?;
                has_all(cluster, place, &activity, &detail.inputs)?;
                self.deal_with(cluster, place, Deed::Complete, (agent, activity, 0));
            }
            (Intent::Item(Deed::Complete, _, activity, _), _) => self.note(activity)?,
            (Intent::Incidents, Answer::Incidents { incidents, .. }) => {
                self.resolve_all(cluster, place, incidents)?;
            }
            (_, _) => {}
        }
        Ok(())
    }

    /// Incidents of decisions are resolved as by the oracle.
    fn resolve_all(
        &mut self,
        cluster: &mut Cluster,
        place: usize,
        incidents: Vec<IncidentView>,
    ) -> Result<(), String> {
        for incident in incidents {
            let schema = cluster.schema(incident.activity.instance);
            let Some(node) = schema.node_named(&incident.activity.step) else { continue };
            let answers = node.answers();
            let resolution = match answers.get(oracle::way_out(node) as usize) {
                Some(answer) => Resolution::Choose((*answer).to_owned()),
                // Executors have failed at it too often.
                None if cluster.is_shared() => Resolution::Retry,
                None => {
                    return Err(format!("{} is stuck: {}", incident.activity, incident.message));
                }
            };
            let activity = incident.activity;
            let request = Request::Resolve { activity, resolution };
            self.ask(cluster, place, request, Intent::Other);
        }
        Ok(())
    }

    /// A step is offered by one site only: the one that controls it.
    fn offered(&mut self, place: usize, activity: &ActivityId) -> Result<(), String> {
        match self.offered.insert(activity.clone(), place) {
            Some(other) if other != place => {
                Err(format!("{activity} is offered at {place}, and was at {other}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn note(&mut self, activity: ActivityId) -> Result<(), String> {
        if self.acknowledged.insert(activity.clone()) {
            Ok(())
        } else {
            Err(format!("{activity} was acknowledged twice"))
        }
    }

    fn deal_with(
        &mut self,
        cluster: &mut Cluster,
        place: usize,
        deed: Deed,
        (agent, activity, hops): (AgentId, ActivityId, u32),
    ) {
        let intent = Intent::Item(deed, agent.clone(), activity.clone(), hops);
        let request = match deed {
            Deed::Look => Request::Item { agent, activity },
            Deed::Claim => Request::Claim { agent, activity },
            Deed::Release => Request::Release { agent, activity },
            Deed::Complete => {
                let schema = cluster.schema(activity.instance);
                let data = oracle::data(&schema, activity.instance, &activity);
                upload(cluster, place, &data);
                let code = oracle::answer(&schema, activity.instance, &activity);
                let node = schema.node_named(&activity.step);
                let answers = node.map(|node| node.answers()).unwrap_or_default();
                let answer = code.and_then(|code| answers.get(code as usize));
                let answer = answer.map(|answer| (*answer).to_owned());
                Request::Complete(Complete { agent, activity, data, answer, request: None })
            }
        };
        self.ask(cluster, place, request, intent);
    }

    fn refused(
        &mut self,
        cluster: &mut Cluster,
        place: usize,
        intent: Intent,
        refusal: &Refusal,
    ) -> Result<(), String> {
        if matches!(intent, Intent::Errand) {
            return self.errand_refused(cluster.kind, refusal);
        }
        // Passed on to the server that can carry it out, as by a server.
        if let Intent::Keyed(keyed) = intent {
            self.drawn += 1;
            let (drawn, dice) = ((place, self.drawn), &mut Dice::new(self.drawn));
            if let Some((keyed, at)) = keyed.passed_on(cluster, drawn, refusal, dice) {
                self.ask_keyed(cluster, at, keyed);
            }
            return Ok(());
        }
        if matches!(intent, Intent::Start(_)) {
            // Its definition is not replicated there yet.
            self.begun -= 1;
        }
        if let (Intent::Item(deed, agent, activity, hops), Some(at)) = (intent, refusal.at)
            && hops < HOPS_MAX
        {
            self.deal_with(cluster, usize::from(at.0), deed, (agent, activity, hops + 1));
            return Ok(());
        }
        self.refusals += 1;
        match refusal.kind {
            // It has just been started.
            Sort::Exhausted if refusal.code == "not_joined" => Ok(()),
            Sort::Broken | Sort::Exhausted | Sort::Unauthenticated | Sort::Forbidden => {
                Err(format!("refused: {refusal}"))
            }
            Sort::Invalid | Sort::NotFound | Sort::Conflict => Ok(()),
        }
    }

    /// A change may be refused only where weights and hosts change, and only for a temporary reason
    /// or because it came too late.
    fn errand_refused(&mut self, kind: Kind, refusal: &Refusal) -> Result<(), String> {
        self.errand = match (kind, refusal.code) {
            (Kind::Divided | Kind::Shared, "server_moved" | "server_unreachable") => Errand::Lost,
            (
                Kind::Divided | Kind::Shared,
                "change_under_way" | "no_change" | "store_given_away",
            ) => Errand::Refused,
            (Kind::Divided | Kind::Shared | Kind::Single, _) => {
                return Err(format!("refused: {refusal} {:?}", refusal.findings));
            }
        };
        Ok(())
    }

    /// Whether nothing is open at any site.
    pub(crate) fn has_finished(&self, cluster: &mut Cluster) -> Result<bool, String> {
        let is_over = |world: &World| world.gauges().instances_open == 0;
        Ok(cluster.worlds.iter().all(is_over) && !cluster.network.carries_control())
    }
}

/// Files are uploaded where they are submitted.
fn upload(cluster: &mut Cluster, place: usize, data: &Data) {
    for blob in data.values().filter_map(|value| unhex(value.get("blob")?.as_str()?)) {
        cluster.worlds[place].upload(blob);
    }
}

/// A step is offered only where the contents of all files that it reads are.
pub(super) fn has_all(
    cluster: &Cluster,
    place: usize,
    activity: &ActivityId,
    inputs: &[(Arc<str>, Value)],
) -> Result<(), String> {
    for (name, value) in inputs {
        if let Value::File(file) = value
            && !cluster.worlds[place].has_blob(&file.blob)
        {
            return Err(format!("{activity} is offered at {place} without the content of {name}"));
        }
    }
    Ok(())
}
