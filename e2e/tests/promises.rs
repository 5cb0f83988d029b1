//! Promises of a cluster of real processes: they are kept, once each, whichever server is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_e2e::{Folder, Server, legwork, wait};
use legwork_model::time::Timestamp;
use legwork_testbed::free_port;
use serde_json::Value as Json;

/// The planner of Ann; the server that starts the cases of the north, and controls them; the planner of Bea.
const SERVERS: [&str; 3] = ["north-1", "north-2", "south-1"];
const STARTER: usize = 1;

/// They work at any hour, so that the time of the test does not matter.
const PEOPLE: &str = "\
organisation: office
agents:
  ann: { name: Ann Lee, roles: [clerk], share: 100 }
  bea: { name: Bea Ott, roles: [manager], share: 100 }
";

/// Done by two people whose planners are two servers.
const CLAIM: &str = "\
process: claim
steps:
  - { step: check, who: Role(clerk), at: north, takes: 3h }
  - { step: approve, who: Role(manager), at: south, takes: 2h }
";

/// Each needs so much time of one of them that it does not fit before six hours from now beside a claim.
const OTHERS: [(&str, &str); 2] = [
    ("count", "process: count\nsteps: [{ step: count, who: Role(clerk), at: north, takes: 5h }]\n"),
    (
        "audit",
        "process: audit\nsteps: [{ step: audit, who: Role(manager), at: south, takes: 5h }]\n",
    ),
];
const BY: &str = "6h";

struct Cluster {
    folder: Folder,
    servers: Vec<Server>,
}

impl Cluster {
    async fn new() -> Result<Self> {
        let folder = Folder::new()?;
        // Held together, so that they differ.
        let ports: Vec<_> = SERVERS.iter().map(|_| free_port()).collect::<Result<_, _>>()?;
        let server = |number: usize, weight: u32| {
            let (name, address) = (SERVERS[number], ports[number].local_addr()?);
            let api = format!("http://{name}.example:7700");
            let entry = format!("address: \"{address}\", api: \"{api}\", weight: {weight}");
            Ok::<String, anyhow::Error>(format!("      {name}: {{ {entry} }}\n"))
        };
        let topology = format!(
            "topology: office\ndomains:\n  north:\n    people: [ann]\n    servers:\n{}{}  south:\n    \
             people: [bea]\n    servers:\n{}",
            server(0, 0)?,
            server(1, 1)?,
            server(2, 1)?
        );
        folder.file("topology.yaml", topology)?;
        drop(ports);
        legwork(folder.path(), &["cluster", "init", "topology.yaml", "--out", "cluster"])?
            .succeeded()?;
        let mut servers = Vec::new();
        for name in SERVERS {
            servers.push(up(&folder, name).await?);
        }
        let cluster = Self { folder, servers };
        cluster.deploy().await?;
        Ok(cluster)
    }

    /// At one of them; the others get it by replication.
    async fn deploy(&self) -> Result<()> {
        let mut files = vec![self.folder.file("people.yaml", PEOPLE)?];
        for (name, source) in OTHERS.into_iter().chain([("claim", CLAIM)]) {
            files.push(self.folder.file(&format!("{name}.yaml"), source)?);
        }
        let args: Vec<&str> = ["deploy"].into_iter().chain(files.iter().map(|it| &**it)).collect();
        self.servers[0].run(&args)?.succeeded()?;
        self.check_free(&["claim", "count", "audit"]).await
    }

    fn each<'s, T: Copy + 's>(
        &'s self,
        things: impl IntoIterator<Item = T, IntoIter: Clone + 's>,
    ) -> impl Iterator<Item = (&'s Server, T)> {
        let things = things.into_iter();
        self.servers.iter().flat_map(move |one| things.clone().map(move |thing| (one, thing)))
    }

    /// `kill -9`, and a restart on the same store.
    async fn kill(mut self, number: usize) -> Result<Self> {
        self.servers.remove(number).kill()?;
        self.servers.insert(number, up(&self.folder, SERVERS[number]).await?);
        Ok(self)
    }

    /// The sum of a counter of all servers since their start.
    async fn counted(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for server in &self.servers {
            sum += counted(server, name).await?;
        }
        Ok(sum)
    }

    /// At every server: the case has this plan, the performers of open steps have them in their plans, and nothing
    /// else.
    async fn check(&self, instance: &str, plan: &[Leg], open: &[Leg]) -> Result<()> {
        for server in &self.servers {
            // A server that is just up may not have its links yet.
            let shown = until_answered(server, &["--json", "deadline", "show", instance]).await?;
            ensure!(shown["standing"] == "promised", "{}: {shown:#}", server.url());
            ensure!(legs(&shown)? == plan, "{}: {shown:#}, not {plan:?}", server.url());
        }
        for (server, person) in self.each(["ann", "bea"]) {
            let wanted = open.iter().find(|leg| leg.by == person);
            // The plan also has the reservation of a mere question until the server that asked, and was killed
            // then, has answered.
            let open = wanted.iter().len();
            let only = async || Ok(turns(server, person, instance, wanted).await? == Some(open));
            wait::until(&format!("{person} has more to do at {}", server.url()), only).await?;
        }
        ensure!(self.counted("revoked").await? == 0, "a promise was revoked");
        Ok(())
    }

    /// A case that needs the same time of the same person is refused, at every server, and not because a server is
    /// unreachable: then no date would be named.
    async fn check_refused(&self, names: &[&str]) -> Result<()> {
        for (server, name) in self.each(names) {
            let refused = async || {
                let problem = server.run(&["--json", "start", name, "--by", BY])?.problem()?;
                ensure!(problem["code"] == "deadline_not_promised", "{problem:#}");
                Ok(problem.get("earliest").is_some_and(Json::is_string))
            };
            let what = format!("{name} has no earliest date at {}", server.url());
            wait::until(&what, refused).await?;
        }
        Ok(())
    }

    /// At every server there is time for it, or will be at once. The case is aborted: a question would hold the
    /// time.
    async fn check_free(&self, names: &[&str]) -> Result<()> {
        for (server, name) in self.each(names) {
            let args = ["--json", "start", name, "--by", BY];
            let can = async || {
                let Ok(started) = server.run(&args)?.json() else { return Ok(false) };
                server.run(&["abort", text(&started, "/instance")?])?.succeeded()?;
                Ok(started["deadline"]["promised"] == true)
            };
            wait::until(&format!("{name} cannot be promised at {}", server.url()), can).await?;
        }
        Ok(())
    }
}

/// The plan of a step.
#[derive(Debug, PartialEq)]
struct Leg {
    step: String,
    by: String,
    start: Timestamp,
    end: Timestamp,
}

impl Leg {
    fn takes(&self) -> Duration {
        self.end.since(self.start)
    }
}

async fn up(folder: &Folder, name: &str) -> Result<Server> {
    folder.server(name, &["--cluster", &format!("cluster/{name}")]).await
}

async fn counted(server: &Server, name: &str) -> Result<u64> {
    let metrics = server.client()?.metrics().await?;
    let line = format!("legwork_deadlines_{name}_total ");
    let found = metrics.lines().find_map(|shown| shown.strip_prefix(&line));
    Ok(found.with_context(|| format!("{name} is not counted"))?.trim().parse()?)
}

fn legs(shown: &Json) -> Result<Vec<Leg>> {
    let steps = shown["steps"].as_array().with_context(|| format!("no steps: {shown:#}"))?;
    let leg = |step: &Json| {
        Ok(Leg {
            step: text(step, "/step")?.to_owned(),
            by: text(step, "/by/agent")?.to_owned(),
            start: moment(step, "/start")?,
            end: moment(step, "/end")?,
        })
    };
    steps.iter().map(leg).collect()
}

fn text<'j>(json: &'j Json, pointer: &str) -> Result<&'j str> {
    let found = json.pointer(pointer).and_then(Json::as_str);
    found.with_context(|| format!("no {pointer} in {json:#}"))
}

fn moment(json: &Json, pointer: &str) -> Result<Timestamp> {
    Ok(text(json, pointer)?.parse()?)
}

/// The output of a command, as soon as it can be answered.
async fn until_answered(server: &Server, args: &[&str]) -> Result<Json> {
    let answered = async || Ok(server.run(args)?.code == Some(0));
    wait::until(&format!("{} has no answer to {args:?}", server.url()), answered).await?;
    server.run(args)?.json()
}

/// The number of a person's turns, and those of a case within its plan.
async fn turns(
    server: &Server,
    person: &str,
    instance: &str,
    wanted: Option<&Leg>,
) -> Result<Option<usize>> {
    let planned = until_answered(server, &["--json", "deadline", "plan", person]).await?;
    let turns = planned["turns"].as_array().context("no turns")?;
    // The plan also has the offer of a refused start.
    let turns: Vec<&Json> = turns.iter().filter(|turn| turn["what"] == "promised").collect();
    let turn = turns.iter().find(|turn| turn["instance"] == instance);
    let took = match turn {
        Some(turn) => Some(moment(turn, "/to")?.since(moment(turn, "/from")?)),
        None => None,
    };
    Ok((took == wanted.map(Leg::takes)).then_some(turns.len()))
}

/// Does a step as soon as it is open.
async fn work(server: &Server, agent: &str, activity: &str) -> Result<()> {
    let args = ["--as", agent, "work", "complete", activity];
    let done = async || Ok(server.run(&args)?.code == Some(0));
    wait::until(&format!("{activity} cannot be done"), done).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_has_promised_survives_a_kill_of_any_server() -> Result<()> {
    let mut cluster = Cluster::new().await?;
    let before = counted(&cluster.servers[STARTER], "promised").await?;
    let args = ["--json", "start", "claim", "--by", BY];
    let started = cluster.servers[STARTER].run(&args)?.json()?;
    let instance = text(&started, "/instance")?.to_owned();
    assert_eq!(started["deadline"]["promised"], true);
    let plan = legs(&started["deadline"])?;
    let steps: Vec<_> = plan.iter().map(|leg| (&*leg.step, &*leg.by)).collect();
    assert_eq!(steps, [("check", "ann"), ("approve", "bea")]);
    assert!(plan.iter().map(Leg::takes).eq([3, 2].map(|hours| Duration::from_secs(hours * 3600))));
    assert_eq!(counted(&cluster.servers[STARTER], "promised").await?, before + 1);

    // The starter at once: no message was resent yet.
    for number in [STARTER, 0, 2] {
        cluster = cluster.kill(number).await?;
        cluster.check(&instance, &plan, &plan).await?;
        cluster.check_refused(&["count", "audit"]).await?;
    }

    // The case migrates to the south, and Ann has time.
    work(&cluster.servers[0], "ann", &format!("{instance}:check")).await?;
    cluster.check_free(&["count"]).await?;
    for number in [STARTER, 2, 0] {
        cluster = cluster.kill(number).await?;
        cluster.check(&instance, &plan, &plan[1..]).await?;
        cluster.check_refused(&["audit"]).await?;
        cluster.check_free(&["count"]).await?;
    }

    work(&cluster.servers[0], "bea", &format!("{instance}:approve")).await?;
    wait::until("the promise is not kept", async || Ok(cluster.counted("kept").await? > 0)).await?;
    let counts = (cluster.counted("kept").await?, cluster.counted("broken").await?);
    assert_eq!((counts, cluster.counted("revoked").await?), ((1, 0), 0));
    cluster.check_free(&["claim", "count", "audit"]).await
}
