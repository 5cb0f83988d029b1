//! Every example is run repeatedly, by people and programs with random answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use legwork_api::Data;
use legwork_api::client::{Client, WorklistQuery};
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_api::work::CompleteRequest;
use legwork_e2e::{Folder, binary};
use legwork_model::definition::{Block, Definition, Use, Work};
use legwork_model::id::InstanceId;
use legwork_model::value::ValueType;
use legwork_model::yaml;
use serde_json::{Value as Json, json};

const WALKS: u64 = 4;
/// The most steps of a case; loops end long before.
const STEPS_MAX: usize = 400;

#[tokio::test]
async fn every_example_can_be_walked_through() -> Result<()> {
    let mut names: Vec<_> = std::fs::read_dir(binary::repository().join("examples"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    names.sort();
    for folder in names {
        walk_all(&folder).await.with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

async fn walk_all(example: &Path) -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    let source = std::fs::read_to_string(example.join("process.yaml"))?;
    let agents = match std::fs::read_to_string(example.join("organisation.yaml")) {
        Ok(people) => {
            client.publish_organisation(&people).await?;
            let agents = client.organisation().await?.agents;
            agents.into_iter().map(|agent| agent.agent).collect()
        }
        Err(_) => Vec::new(),
    };
    client.deploy(&source).await?;
    let (definition, _) = yaml::parse(&source);
    let mut walk = Walk::new(client, definition.context("not read")?, agents);
    for _ in 0..WALKS {
        walk.case().await?;
    }
    Ok(())
}

struct Walk {
    client: Client,
    definition: Definition,
    agents: Vec<Arc<str>>,
    /// The writes of a step, by name.
    writes: BTreeMap<Arc<str>, Vec<Use>>,
    jobs: Vec<Arc<str>>,
    seed: u64,
}

impl Walk {
    fn new(client: Client, definition: Definition, agents: Vec<Arc<str>>) -> Self {
        let (mut writes, mut jobs) = (BTreeMap::new(), Vec::new());
        collect(&definition.steps, &mut writes, &mut jobs);
        Self { client, definition, agents, writes, jobs, seed: 7 }
    }

    async fn case(&mut self) -> Result<()> {
        let start = self.definition.start.clone();
        let request = StartRequest {
            process: self.definition.process.value.clone(),
            data: self.values(&start).await?,
            agent: self.agents.first().cloned(),
            ..StartRequest::default()
        };
        let instance = self.client.start(&request, None).await?.instance;
        for _ in 0..STEPS_MAX {
            let found = self.client.instance(instance, Duration::ZERO).await?;
            match found.summary.state {
                InstanceState::Completed => return Ok(()),
                InstanceState::Running => {}
                InstanceState::Suspended | InstanceState::Aborted => bail!("{found:?}"),
            }
            let incidents = self.client.incidents(None, None).await?.incidents;
            ensure!(incidents.is_empty(), "{incidents:?}");
            let moved = self.work_off_a_job().await? || self.work_off_an_item(instance).await?;
            ensure!(moved, "nobody can go on: {found:#?}");
        }
        bail!("{instance} does not end")
    }

    async fn work_off_a_job(&mut self) -> Result<bool> {
        if self.jobs.is_empty() {
            return Ok(false);
        }
        let request = ActivateRequest {
            worker: "robot".into(),
            types: self.jobs.clone(),
            max: 1,
            lease_ms: 60_000,
            wait_ms: 0,
        };
        let Some(job) = self.client.activate(&request).await?.jobs.pop() else {
            return Ok(false);
        };
        let writes = self.writes.get(&job.job.step).cloned().unwrap_or_default();
        let data = self.values(&writes).await?;
        let jobs = vec![CompletedJob { job: job.job, lease: job.lease, data }];
        let request = CompleteJobsRequest { worker: "robot".into(), jobs };
        let results = self.client.complete_jobs(&request).await?.results;
        ensure!(results[0].ok, "{results:?}");
        Ok(true)
    }

    async fn work_off_an_item(&mut self, instance: InstanceId) -> Result<bool> {
        let first = self.draw(self.agents.len().max(1) as u64) as usize;
        for place in first..first + self.agents.len() {
            let agent = self.agents[place % self.agents.len()].clone();
            let query =
                WorklistQuery { agent: Some(agent.to_string()), ..WorklistQuery::default() };
            let items = self.client.worklist(&query).await?.items;
            let Some(item) = items.into_iter().find(|item| item.activity.instance == instance)
            else {
                continue;
            };
            let detail = self.client.item(&item.activity, Some(&agent)).await?;
            let writes = self.writes.get(&item.activity.step).cloned().unwrap_or_default();
            let answer = match detail.answers.len() {
                0 => None,
                many => Some(detail.answers[self.draw(many as u64) as usize].answer.to_string()),
            };
            let data = self.values(&writes).await?;
            let request = CompleteRequest { agent: Some(agent), data, answer };
            self.client.complete(&item.activity, &request, None).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Values for these elements, optional ones at random.
    async fn values(&mut self, uses: &[Use]) -> Result<Data> {
        let mut data = Data::new();
        for used in uses {
            if used.optional && self.draw(2) == 0 {
                continue;
            }
            let name = &used.element.value;
            let element = self.definition.data.iter().find(|e| e.name.value == *name);
            let kind = element.context("no such element")?.kind;
            data.insert(name.to_string(), self.value(kind).await?);
        }
        Ok(data)
    }

    async fn value(&mut self, kind: ValueType) -> Result<Json> {
        Ok(match kind {
            ValueType::Bool => json!(self.draw(2) == 1),
            ValueType::Int => json!(self.draw(100)),
            ValueType::Decimal => json!(format!("{}.50", self.draw(20_000))),
            ValueType::String => json!(format!("text {}", self.draw(10))),
            ValueType::DateTime => json!("2026-03-01T09:30:00Z"),
            ValueType::Json => json!([{"part": "door"}]),
            ValueType::File => {
                let content = format!("page {}", self.draw(10));
                let file = self.client.upload("page.txt", "text/plain", content.into()).await?;
                serde_json::to_value(file)?
            }
        })
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % below
    }
}

fn collect(blocks: &[Block], writes: &mut BTreeMap<Arc<str>, Vec<Use>>, jobs: &mut Vec<Arc<str>>) {
    for block in blocks {
        match block {
            Block::Step(step) => {
                writes.insert(step.name.value.clone(), step.writes.clone());
                if let Work::Automatic { job, .. } = &step.work {
                    jobs.push(job.value.clone());
                }
            }
            Block::Parallel(parallel) => {
                parallel.branches.iter().for_each(|branch| collect(&branch.steps, writes, jobs));
            }
            Block::Choice(choice) => {
                choice.branches.iter().for_each(|branch| collect(&branch.steps, writes, jobs));
            }
            Block::Loop(l) => collect(&l.body, writes, jobs),
        }
    }
    jobs.sort();
    jobs.dedup();
}
