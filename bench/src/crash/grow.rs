//! A site on embedded stores grows and shrinks under load: 1 server, 3 of them, other weights, one killed
//! while the weights change, 2 again, one replaced. Do callers notice?
//!
//! All operations are commands of `legwork`, as by an operator; the seed determines which servers are
//! killed, removed and replaced. Invariant: a request may have to be repeated, with the same key; one
//! that is never answered has failed, and the run with it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use legwork_api::Client;
use legwork_api::cluster::Cluster as Status;
use serde::Serialize;

use super::dice::Dice;
use super::ledger::{Fault, Ledger, Shared, counted};
use super::load::Load;
use super::{DEFINITION, verify};
use crate::cluster::{Cluster, Domain, Order, Seat};
use crate::place::Place;
use crate::report::rounded;
use crate::server::Server;

const DOMAIN: &str = "site";
const SERVERS: usize = 3;
const FIRST: [u32; SERVERS] = [20, 30, 50];
const SECOND: [u32; SERVERS] = [50, 30, 20];
const THIRD: [u32; SERVERS] = [30, 20, 50];
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// No wait should take nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often a command is repeated if its server dies meanwhile.
const GIVEN_MAX: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long there is load before the first operation, and after each.
    pub calm: Duration,
    pub seed: u64,
}

/// An operation of an operator, and its effects on callers.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    pub operation: String,
    pub seconds: f64,
    /// The longest duration of a caller's request, with its repetitions, from the beginning of this
    /// operation to that of the next.
    pub longest_ms: f64,
    /// Requests without an answer meanwhile, resent.
    pub unanswered: usize,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub acknowledged: usize,
    pub lost: usize,
    pub duplicated: usize,
    /// Callers that gave up.
    pub failed: usize,
    pub cases: usize,
    pub unanswered: usize,
    pub operations: Vec<Operation>,
    pub seconds: f64,
    pub seed: u64,
    #[serde(skip)]
    pub faults: Vec<Fault>,
    #[serde(skip)]
    pub failures: Vec<String>,
}

impl Outcome {
    pub fn is_good(&self) -> bool {
        self.faults.is_empty() && self.failures.is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, lost, duplicated, failed, cases, unanswered, .. } = self;
        write!(
            f,
            "acknowledged={acknowledged} lost={lost} duplicated={duplicated} failed={failed} \
             cases={cases} unanswered={unanswered} seconds={:.1} seed={}",
            self.seconds, self.seed
        )?;
        for Operation { operation, seconds, longest_ms, unanswered } in &self.operations {
            let name = operation.replace(' ', "_");
            write!(f, " {name}={seconds:.2}s,{longest_ms:.0}ms")?;
            if *unanswered > 0 {
                write!(f, ",{unanswered}_again")?;
            }
        }
        Ok(())
    }
}

pub async fn run(place: &Place, plan: Plan) -> Result<Outcome> {
    let begun = Instant::now();
    let mut scene = Scene::set(place, plan).await?;
    let load = Load::begin(&scene.urls, plan.seed)?;
    scene.ledger = load.ledger.clone();
    scene.all(plan).await?;
    let (ledger, failures) = load.end_with_failures().await?;
    scene.restart().await?;
    let client = Client::new(&scene.urls.join(","), None)?;
    let faults = verify::verify(&client, &ledger).await?;
    let (lost, duplicated) = counted(&faults);
    let Ledger { acknowledged, cases, unanswered, .. } = ledger;
    Ok(Outcome {
        acknowledged,
        lost,
        duplicated,
        failed: failures.len(),
        cases: cases.len(),
        unanswered,
        operations: scene.operations,
        seconds: begun.elapsed().as_secs_f64(),
        seed: plan.seed,
        faults,
        failures: failures.iter().map(|failure| format!("failed: {failure:#}")).collect(),
    })
}

/// The servers and the operations on them.
struct Scene {
    cluster: Cluster,
    /// The places of later servers, and of the process that replaces another.
    later: Vec<Seat>,
    new: Seat,
    /// The addresses of all servers, past and future: callers know all of them.
    urls: Vec<String>,
    ledger: Arc<Shared>,
    dice: Dice,
    calm: Duration,
    unanswered: usize,
    operations: Vec<Operation>,
}

impl Scene {
    async fn set(place: &Place, plan: Plan) -> Result<Self> {
        let domain = Domain { name: DOMAIN, transfer: "proven", weights: &[1], database: None };
        let cluster = Cluster::start(place, DEFINITION, &[domain], Duration::ZERO).await?;
        let later: Result<Vec<Seat>> =
            (2..=SERVERS).map(|number| Seat::new(format!("{DOMAIN}-{number}"), None)).collect();
        let (later, new) = (later?, Seat::new(String::new(), None)?);
        let mut urls = cluster.urls();
        urls.extend(later.iter().chain([&new]).map(Seat::url));
        let Plan { calm, seed } = plan;
        Ok(Self {
            cluster,
            later,
            new,
            urls,
            ledger: Arc::default(),
            dice: Dice::new(seed, 0),
            calm,
            unanswered: 0,
            operations: Vec::new(),
        })
    }

    async fn all(&mut self, plan: Plan) -> Result<()> {
        tokio::time::sleep(plan.calm).await;
        self.ledger.lock().longest = Duration::ZERO;
        for place in 0..self.later.len() {
            self.add(place).await?;
        }
        self.reweigh(FIRST, "since").await?;
        self.reweigh_and_kill(SECOND).await?;
        self.reweigh(THIRD, "except").await?;
        let registrar = self.registrar().await?;
        let mut left: Vec<usize> = (0..SERVERS).collect();
        let removed = left.remove(self.dice.below(left.len()));
        left.rotate_left(self.dice.below(SERVERS - 1));
        let [mut into, other] = left[..] else { bail!("not two servers are left") };
        self.remove(removed, into).await?;
        let replaced = left[self.dice.below(left.len())];
        // The registrar does not move together with its host or a guest.
        if [removed, replaced].contains(&registrar) && into == replaced {
            into = other;
            self.remove(removed, into).await?;
        }
        self.replace(replaced).await?;
        self.status(removed, into).await
    }

    /// Records the effects on callers since the operation before, during the load after this one.
    async fn end(&mut self, operation: String, since: Instant) {
        let seconds = since.elapsed().as_secs_f64();
        tokio::time::sleep(self.calm).await;
        let (longest, unanswered) = {
            let mut ledger = self.ledger.lock();
            (std::mem::take(&mut ledger.longest), ledger.unanswered)
        };
        let longest_ms = rounded(longest.as_secs_f64() * 1000.0, 1);
        let again = unanswered - std::mem::replace(&mut self.unanswered, unanswered);
        let seconds = rounded(seconds, 3);
        self.operations.push(Operation { operation, seconds, longest_ms, unanswered: again });
    }

    async fn add(&mut self, place: usize) -> Result<()> {
        let seat = self.later[place].clone();
        let since = Instant::now();
        let (address, api) = (seat.listen.to_string(), seat.url());
        let name = seat.name.as_str();
        let args = ["add", name, "--domain", DOMAIN, "--address", &address, "--api", &api];
        let mut order = self.order(0, &args)?;
        let source = loop {
            if order.is_over()? {
                let said = order.done().await?;
                bail!("{name} was added before it was there: {said}");
            }
            let source = self.source().await?;
            if source.contains(&format!("{name}:")) {
                break source;
            }
            ensure!(since.elapsed() < PATIENCE, "{name} does not come into the topology");
        };
        self.cluster.certify(&source).await?;
        self.cluster.bring_up(&seat).await?;
        self.cluster.names.push(seat.name.clone());
        order.done().await?;
        self.end(format!("add {name}"), since).await;
        Ok(())
    }

    async fn reweigh(&mut self, weights: [u32; SERVERS], method: &str) -> Result<()> {
        let since = Instant::now();
        self.order_to_weigh(0, weights, method)?.done().await?;
        self.end(format!("reweigh {method}"), since).await;
        Ok(())
    }

    /// Kills one server after the change has begun and before it can end.
    async fn reweigh_and_kill(&mut self, weights: [u32; SERVERS]) -> Result<()> {
        let since = Instant::now();
        let registrar = self.registrar().await?;
        let killed = self.dice.below(SERVERS);
        // The change does not end without this server, and does not begin without the registrar.
        let stopped = if killed == registrar { (killed + 1) % SERVERS } else { killed };
        self.server(stopped).signal("STOP")?;
        let mut order = self.order_to_weigh(registrar, weights, "except")?;
        let client = self.server(registrar).client()?;
        while client.changes().await?.under_way.is_none() {
            ensure!(since.elapsed() < PATIENCE, "the change does not begin");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.server(killed).kill()?;
        if stopped != killed {
            self.server(stopped).signal("CONT")?;
        }
        self.server(killed).up(READY_TIME_MAX).await?;
        let mut given = 1;
        while let Err(error) = order.done().await {
            ensure!(given < GIVEN_MAX, "given {given} times: {error:#}");
            given += 1;
            order = self.order_to_weigh(registrar, weights, "except")?;
        }
        let name = self.cluster.names[killed].clone();
        self.end(format!("reweigh except, kill {name}"), since).await;
        Ok(())
    }

    async fn remove(&mut self, removed: usize, into: usize) -> Result<()> {
        let since = Instant::now();
        let names = [removed, into].map(|place| self.cluster.names[place].clone());
        let [name, host] = &names;
        self.order(0, &["remove", name, "--into", host])?.done().await?;
        if self.server(removed).is_running() {
            self.server(removed).stop().await?;
        }
        self.end(format!("remove {name} into {host}"), since).await;
        Ok(())
    }

    async fn replace(&mut self, replaced: usize) -> Result<()> {
        let since = Instant::now();
        let name = self.cluster.names[replaced].clone();
        let mut seat = self.new.clone();
        seat.name = name.clone();
        let (address, api) = (seat.listen.to_string(), seat.url());
        let source = self.source().await?;
        let old = address_of(&source, &name)?;
        let next = source.replace(&old, &address).replace(&self.server(replaced).url(), &api);
        self.cluster.certify(&next).await?;
        let mut server = self.cluster.server_at(&seat, &["--replace", &old])?;
        server.spawn()?;
        self.order(0, &["replace", &name, "--address", &address, "--api", &api])?.done().await?;
        server.until_ready(READY_TIME_MAX).await?;
        std::mem::swap(self.server(replaced), &mut server);
        server.stop().await?;
        self.end(format!("replace {name}"), since).await;
        Ok(())
    }

    /// The two remaining servers have the intended weights, and the third is a guest.
    async fn status(&self, removed: usize, into: usize) -> Result<()> {
        let said = self.order(0, &["status", "--json"])?.done().await?;
        let status: Status = serde_json::from_str(&said)?;
        let names = &self.cluster.names;
        ensure!(status.servers.len() == SERVERS, "other servers than were made: {said}");
        for (place, server) in status.servers.iter().enumerate() {
            let (weight, host) = match place == removed {
                true => (0, Some(&*names[into])),
                false => (THIRD[place], None),
            };
            ensure!(*server.server == *names[place], "another order than was made: {said}");
            ensure!(server.weight == weight, "another weight of {}: {said}", server.server);
            ensure!(server.host.as_deref() == host, "another host of {}: {said}", server.server);
            ensure!(server.told.is_some(), "{} cannot be reached: {said}", server.server);
        }
        let under_way = status.changes.and_then(|changes| changes.under_way);
        ensure!(under_way.is_none(), "a change has no end: {said}");
        Ok(())
    }

    /// The final check must read from the disk, not from memory.
    async fn restart(&mut self) -> Result<()> {
        let servers = self.cluster.servers.iter_mut();
        let mut servers: Vec<&mut Server> = servers.filter(|server| server.is_running()).collect();
        ensure!(servers.len() == SERVERS - 1, "{} processes instead of two", servers.len());
        for server in &mut servers {
            server.kill()?;
            server.spawn()?;
        }
        for server in servers {
            server.until_ready(READY_TIME_MAX).await?;
        }
        Ok(())
    }

    /// Which server is the registrar.
    async fn registrar(&self) -> Result<usize> {
        let told = self.cluster.client()?.cluster().await?.registrar;
        let found = self.cluster.names.iter().position(|name| Some(&**name) == told.as_deref());
        found.context("nobody keeps the catalog")
    }

    /// The current topology.
    async fn source(&self) -> Result<String> {
        self.order(0, &["show", "--source"])?.done().await
    }

    fn order_to_weigh(&self, at: usize, to: [u32; SERVERS], method: &str) -> Result<Order> {
        let names = self.cluster.names.iter();
        let weights: Vec<String> = names.zip(to).map(|(name, to)| format!("{name}={to}")).collect();
        let mut args = vec!["reweigh", "--method", method];
        args.extend(weights.iter().map(String::as_str));
        self.order(at, &args)
    }

    /// A command for the cluster, given to one server if it is up, else to another.
    fn order(&self, at: usize, args: &[&str]) -> Result<Order> {
        let mut urls = self.urls.clone();
        urls.rotate_left(at);
        let urls = urls.join(",");
        self.cluster.order(&[&["cluster", "--server", &urls], args].concat())
    }

    fn server(&mut self, place: usize) -> &mut Server {
        &mut self.cluster.servers[place]
    }
}

/// The address of a server for other servers, in the topology.
fn address_of(source: &str, server: &str) -> Result<String> {
    let (topology, _) = legwork_placement::Topology::parse(source);
    let topology = topology.context("the topology cannot be read")?;
    let server = topology.server_named(server).and_then(|server| topology.server(server));
    Ok(server.context("the server is not in the topology")?.address.to_string())
}
