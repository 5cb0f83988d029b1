//! Repeated changes of the topology while cases run: other weights by both methods, servers added,
//! drained, moved to a host, replaced, declared down; and changes that are given up.
//!
//! Invariant: requests go to the registrar only. In calm conditions, every change ends or is
//! undone.

use std::sync::Arc;

use legwork_model::event::Method;
use legwork_model::id::{DomainId, ServerId};
use legwork_placement::{Map, Server, Topology};
use legwork_site::{Member, PublishTopology, Reconfiguration, Request};

use super::Cluster;
use super::changes::server;
use super::crew::{Crew, Errand};
use crate::dice::Dice;
use crate::world::World;

const SERVERS_MAX: usize = 10;
/// The most turns between two changes.
const PAUSE: usize = 40;
/// How long a server that was declared down stays away, in turns.
const AWAY: usize = 60;
/// Longer than the assumed clock skew, in milliseconds.
const LONG_MS: i64 = 70_000;

pub(crate) struct Reshapes {
    left: usize,
    /// Not before this turn.
    due: usize,
    step: Step,
    /// The absent server, and until which turn.
    away: Option<(usize, usize)>,
    /// A server that has joined gets its weight next.
    joined: Option<ServerId>,
    moves: u32,
    pub(crate) published: usize,
    pub(crate) undone: usize,
}

enum Step {
    Idle,
    /// Requested, repeated until there is an answer.
    Asked(PublishTopology),
    /// Under way; after which turn it is given up, if it is.
    UnderWay {
        given_up_after: Option<usize>,
    },
}

impl Reshapes {
    pub(crate) fn draw(is_steady: bool, dice: &mut Dice) -> Self {
        Self {
            left: if is_steady { 0 } else { 2 + dice.below(4) },
            due: 5 + dice.below(PAUSE),
            step: Step::Idle,
            away: None,
            joined: None,
            moves: 0,
            published: 0,
            undone: 0,
        }
    }

    pub(crate) fn are_made(&self) -> bool {
        self.left == 0 && matches!(self.step, Step::Idle) && self.away.is_none()
    }

    pub(crate) fn make_some(
        &mut self,
        turn: usize,
        cluster: &mut Cluster,
        crew: &mut Crew,
        dice: &mut Dice,
    ) -> Result<(), String> {
        if let Some((place, until)) = self.away
            && (turn >= until || cluster.calm)
        {
            cluster.network.lose_what_goes_to(ServerId(place as u16));
            if !cluster.calm && dice.chance(50) {
                // So long that its knowledge of the weights is too old for new cases.
                cluster.now.0 += LONG_MS;
            }
            cluster.worlds[place].come_up();
            self.away = None;
        }
        let errand = crew.errand();
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => self.begin(turn, cluster, crew, dice)?,
            Step::Asked(asked) => match errand {
                Errand::UnderWay => self.step = Step::Asked(asked),
                Errand::Done => self.answered(turn, crew.take_status(), dice),
                Errand::None | Errand::Lost => self.ask(asked, cluster, crew),
                Errand::Refused => self.end(turn, dice),
            },
            Step::UnderWay { given_up_after } => {
                let is_given_up = given_up_after.is_some_and(|after| turn > after);
                self.step = Step::UnderWay { given_up_after };
                self.follow(turn, is_given_up, errand, cluster, crew, dice);
            }
        }
        Ok(())
    }

    fn end(&mut self, turn: usize, dice: &mut Dice) {
        self.step = Step::Idle;
        self.due = turn + dice.below(PAUSE);
    }

    fn ask(&mut self, asked: PublishTopology, cluster: &mut Cluster, crew: &mut Crew) {
        crew.send(cluster, Request::PublishTopology(asked.clone()));
        self.step = Step::Asked(asked);
    }

    fn answered(&mut self, turn: usize, status: Option<Reconfiguration>, dice: &mut Dice) {
        let is_under_way = status.is_some_and(|status| status.change.is_some());
        if is_under_way {
            self.step = Step::UnderWay { given_up_after: dice.chance(15).then_some(turn + 2) };
        } else {
            self.published += 1;
            self.end(turn, dice);
        }
    }

    fn follow(
        &mut self,
        turn: usize,
        is_given_up: bool,
        errand: Errand,
        cluster: &mut Cluster,
        crew: &mut Crew,
        dice: &mut Dice,
    ) {
        match errand {
            Errand::UnderWay => return,
            Errand::Done => {
                let status = crew.take_status();
                if let Some(Reconfiguration { change: None, last: Some(last), .. }) = status {
                    match last.epoch {
                        Some(_) => self.published += 1,
                        None => self.undone += 1,
                    }
                    return self.end(turn, dice);
                }
            }
            Errand::None | Errand::Lost | Errand::Refused => {}
        }
        if is_given_up {
            self.step = Step::UnderWay { given_up_after: None };
            return crew.send(cluster, Request::Undo { why: None });
        }
        if cluster.calm || dice.chance(30) {
            crew.send(cluster, Request::Reconfiguration);
        }
    }

    /// Draws the next change of the current topology.
    fn begin(
        &mut self,
        turn: usize,
        cluster: &mut Cluster,
        crew: &mut Crew,
        dice: &mut Dice,
    ) -> Result<(), String> {
        if self.left == 0 || turn < self.due {
            return Ok(());
        }
        let Some(topology) = cluster.worlds[0].topology().cloned() else { return Ok(()) };
        self.left -= 1;
        let method = Some(*dice.pick(&[Method::Since, Method::Except]).unwrap_or(&Method::Since));
        let mut next = Topology::clone(&topology);
        let mut without = Vec::new();
        match dice.below(10) {
            0 | 1 if next.servers.len() < SERVERS_MAX => {
                self.join(&mut next, cluster, dice);
                self.left += 1;
            }
            2 | 3 => self.replace(&mut next, dice),
            4 | 5 => settle_as_guest(&mut next, dice),
            6 => drain(&mut next, dice),
            7 if !cluster.calm && self.away.is_none() => {
                without = self.declare_down(turn, &mut next, cluster, dice)?;
            }
            _ => reweigh(&mut next, self.joined.take(), dice),
        }
        let method = method.filter(|_| without.is_empty());
        let asked = PublishTopology { source: next.to_yaml(), method, dry_run: false, without };
        self.ask(asked, cluster, crew);
        Ok(())
    }

    /// One more server, without a weight as yet.
    fn join(&mut self, next: &mut Topology, cluster: &mut Cluster, dice: &mut Dice) {
        let domain = DomainId(dice.below(next.domains.len()) as u16);
        let number = next.servers_of(domain).count() + 1;
        let name = format!("{}-{number}", next.domains[usize::from(domain.0)].name);
        next.servers.push(Server { weight: 0, ..server(&name, domain) });
        let member = Member { name: name.into(), topology: next.to_yaml().into() };
        cluster.join(World::member(dice, member), dice);
        self.joined = Some(ServerId(next.servers.len() as u16 - 1));
    }

    /// A server moves to another address.
    fn replace(&mut self, next: &mut Topology, dice: &mut Dice) {
        self.moves += 1;
        let moves = self.moves;
        let hosts: Vec<usize> = (0..next.servers.len())
            .filter(|place| next.servers[*place].host.is_none() && !has_guests(next, *place))
            .collect();
        if let Some(place) = dice.pick(&hosts) {
            let name = next.servers[*place].name.clone();
            next.servers[*place].address = format!("{name}:{}", 8_000 + moves).into();
            next.servers[*place].api = format!("http://{name}:{}", 9_000 + moves).into();
        }
    }

    /// A server goes away for a while, and gets no part of anything.
    fn declare_down(
        &mut self,
        turn: usize,
        next: &mut Topology,
        cluster: &mut Cluster,
        dice: &mut Dice,
    ) -> Result<Vec<Arc<str>>, String> {
        // Not the registrar.
        let able: Vec<usize> = dispensable(next).filter(|place| *place > 0).collect();
        let Some(&place) = dice.pick(&able) else { return Ok(Vec::new()) };
        next.servers[place].weight = 0;
        cluster.worlds[place].stop(dice)?;
        self.away = Some((place, turn + 5 + dice.below(AWAY)));
        Ok(vec![next.servers[place].name.clone()])
    }
}

/// The servers that have a part of their domain, and not all of it.
fn dispensable(topology: &Topology) -> impl Iterator<Item = usize> {
    let has_part = |server: &Server| server.weight > 0;
    let shares =
        move |domain| topology.servers_of(domain).filter(|(_, server)| has_part(server)).count();
    let all = topology.servers.iter().enumerate();
    all.filter(move |(_, server)| has_part(server) && shares(server.domain) > 1)
        .map(|(place, _)| place)
}

fn has_guests(topology: &Topology, place: usize) -> bool {
    topology.servers.iter().any(|server| server.host == Some(ServerId(place as u16)))
}

/// The servers of a domain get other weights; a joined one is among them.
fn reweigh(next: &mut Topology, joined: Option<ServerId>, dice: &mut Dice) {
    let divided: Vec<DomainId> = (0..next.domains.len() as u16)
        .map(DomainId)
        .filter(|domain| next.servers_of(*domain).count() > 1)
        .collect();
    let of_joined = joined.and_then(|joined| next.domain_of(joined));
    let Some(domain) = of_joined.or_else(|| dice.pick(&divided).copied()) else { return };
    let places: Vec<usize> =
        next.servers_of(domain).map(|(ServerId(id), _)| usize::from(id)).collect();
    for place in &places {
        next.servers[*place].weight = draw_weight(dice);
    }
    let must = joined.map_or_else(|| dice.pick(&places).copied(), |id| Some(usize::from(id.0)));
    if let Some(place) = must {
        next.servers[place].weight = 1 + dice.below(9) as u32;
    }
}

/// A server gets no new instances.
fn drain(next: &mut Topology, dice: &mut Dice) {
    let able: Vec<usize> = dispensable(next).collect();
    if let Some(place) = dice.pick(&able) {
        next.servers[*place].weight = 0;
    }
}

/// A server becomes a guest of another one of its domain.
fn settle_as_guest(next: &mut Topology, dice: &mut Dice) {
    let mut pairs = Vec::new();
    for place in 1..next.servers.len() {
        if next.servers[place].host.is_some() || has_guests(next, place) {
            continue;
        }
        let hosts = next.servers_of(next.servers[place].domain);
        let hosts = hosts.filter(|(id, host)| usize::from(id.0) != place && host.host.is_none());
        pairs.extend(hosts.map(|(host, _)| (place, host)));
    }
    if let Some(&(place, host)) = dice.pick(&pairs) {
        next.servers[place].host = Some(host);
    }
}

pub(crate) fn draw_weight(dice: &mut Dice) -> u32 {
    *dice.pick(&[0, 1, 1, 2, 3, 10, 1_000]).unwrap_or(&1)
}
