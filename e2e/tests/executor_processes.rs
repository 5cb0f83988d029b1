//! Executor processes shared by two servers: one is killed, one is paused, one fails at one type.
//! Afterwards their ledgers and the histories agree.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::instances::{InstanceState, Performer, StartRequest};
use legwork_e2e::{Folder, Server, binary, legwork};
use legwork_model::id::InstanceId;
use legwork_testbed::ledger::{Did, Line, Step, audit};
use legwork_testbed::{Service, free_port};

const CASES: i64 = 40;
const STEPS: [&str; 2] = ["cut", "glue"];
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

const PROCESS: &str = "
process: model
data: { length: int }
start: [length]
steps:
  - { step: cut, job: cut, size: length, reads: [length], timeout: 1s, retry: { times: 20, pause: 20ms } }
  - { step: glue, job: glue, timeout: 1s, retry: { times: 20, pause: 20ms } }
";

/// Two domains of one server each.
async fn servers(folder: &Folder) -> Result<[Server; 2]> {
    // Held together, so that they differ.
    let ports = [(); 4].map(|()| free_port());
    let mut addresses = Vec::new();
    for port in ports {
        addresses.push(port.map(|port| port.local_addr())??);
    }
    let [east, east_api, west, west_api] = &addresses[..] else { anyhow::bail!("four ports") };
    folder.file(
        "topology.yaml",
        format!(
            "topology: two\ndomains:\n\
             \x20 east: {{ servers: {{ east-1: {{ address: \"{east}\", api: \"http://{east_api}\" }} }} }}\n\
             \x20 west: {{ servers: {{ west-1: {{ address: \"{west}\", api: \"http://{west_api}\" }} }} }}\n"
        ),
    )?;
    let args = ["cluster", "init", "topology.yaml", "--out", "cluster"];
    legwork(folder.path(), &args)?.succeeded()?;
    let up = async |name: &str, api: &str| {
        folder.server(name, &["--cluster", &format!("cluster/{name}"), "--listen", api]).await
    };
    Ok([up("east-1", &east_api.to_string()).await?, up("west-1", &west_api.to_string()).await?])
}

/// Three executors: the second of them cannot glue.
fn services(folder: &Folder, legwork: &str) -> Result<[Service; 3]> {
    let service = |name: &str, more: &[&str]| {
        let args = ["--at-once=1", "--does=cut=4", "--does=glue=10"];
        let args: Vec<String> = args.iter().chain(more).map(|arg| (*arg).to_owned()).collect();
        Service::start(binary::executor()?, folder.path(), (name, legwork), &args)
    };
    Ok([service("ann", &[])?, service("bob", &["--fails=glue"])?, service("carla", &[])?])
}

/// Polls until it is true.
async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let all = async {
        while !is_so().await? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, all).await.with_context(|| format!("not in time: {what}"))?
}

/// Starts cases at a server, one after the other.
async fn start(client: &Client) -> Result<Vec<InstanceId>> {
    let mut cases = Vec::new();
    for number in 0..CASES / 2 {
        let data = [("length".to_owned(), (1 + number % 10).into())].into();
        let request = StartRequest { process: "model".into(), data, ..StartRequest::default() };
        cases.push(client.start(&request, None).await?.instance);
    }
    Ok(cases)
}

/// The completed steps of a case, with their performers.
async fn completed(client: &Client, case: InstanceId) -> Result<Vec<Step>> {
    let history = client.history(case, None, Some(1_000)).await?;
    let mut steps = Vec::new();
    for entry in history.entries.iter().filter(|entry| entry.kind == "completed") {
        let (Some(step), Performer::Executor(by)) = (&entry.step, &entry.by) else {
            anyhow::bail!("not by an executor: {entry:?}")
        };
        steps.push(Step { key: format!("{case}:{step}"), by: by.to_string() });
    }
    Ok(steps)
}

/// The number of tasks that an executor has begun.
fn begun(service: &Service) -> Result<usize> {
    Ok(service.ledger()?.iter().filter(|line| line.did == Did::Begun).count())
}

/// Each during its work: one is paused until its tasks are reassigned, one killed and restarted.
async fn disturb(servers: [&Server; 2], stopped: &Service, killed: &mut Service) -> Result<()> {
    until("it works", async || Ok(begun(stopped)? > 3)).await?;
    stopped.signal("STOP")?;
    until("it works", async || Ok(begun(killed)? > 3)).await?;
    killed.kill()?;
    until("what the stopped one has is given up", async || {
        for server in servers {
            let seen = server.client()?.executors().await?.executors;
            let own = seen.iter().filter(|one| *one.name == *stopped.name());
            if own.flat_map(|one| &one.types).any(|of_type| of_type.timeouts > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .await?;
    killed.run()?;
    stopped.signal("CONT")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ledgers_and_histories_agree_after_executors_were_killed_stopped_and_failed() -> Result<()>
{
    let folder = Folder::new()?;
    let [east, west] = servers(&folder).await?;
    let urls = format!("{},{}", east.url(), west.url());
    let client = Client::new(&urls, None)?;
    client.deploy(PROCESS).await?;
    let [mut ann, bob, carla] = services(&folder, &urls)?;
    for server in [&east, &west] {
        let server = server.client()?;
        until("all are known everywhere", async || {
            let knows = server.definition("model", None).await.is_ok();
            Ok(knows && server.executors().await?.executors.len() == 3)
        })
        .await?;
    }
    let (east_client, west_client) = (east.client()?, west.client()?);
    let (east_cases, west_cases, disturbed) = tokio::join!(
        start(&east_client),
        start(&west_client),
        disturb([&east, &west], &carla, &mut ann)
    );
    disturbed?;
    let cases = [east_cases?, west_cases?].concat();

    for case in &cases {
        until(&format!("{case} ends"), async || {
            let seen = client.instance(*case, LOOK_EVERY).await?.summary;
            ensure!(seen.incidents == 0, "{case} has an incident");
            Ok(seen.state == InstanceState::Completed)
        })
        .await?;
    }
    let mut steps = Vec::new();
    for case in &cases {
        let own = completed(&client, *case).await?;
        ensure!(own.len() == STEPS.len(), "{case}: {own:?}");
        steps.extend(own);
    }
    let ledgers: BTreeMap<String, Vec<Line>> = [&ann, &bob, &carla]
        .into_iter()
        .map(|one| Ok((one.name().to_owned(), one.ledger()?)))
        .collect::<Result<_>>()?;
    let found = audit(&ledgers, &steps);
    ensure!(found.faults.is_empty(), "{:#?}", found.faults);
    ensure!(found.count(Did::Acked) == steps.len(), "{found:?}");
    ensure!(found.count(Did::Failed) > 0, "bob was never asked to glue: {found:?}");
    Ok(())
}
