//! People who follow their lists over all sites by changes, compared with full reads.
//!
//! A waiting reader must be answered in the turn in which another reader can see the change. When all is
//! quiet, everybody's list is the same at every site: the union of the sites' items.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::{ActivityId, AgentId};
use legwork_site::{Answer, ItemInfo, Refusal, Request, RequestId, Worklist, WorklistView};

use super::Cluster;
use crate::dice::Dice;
use crate::material::AGENTS;

/// The longest time until all servers have reported: a request is repeated after a minute at most.
const ASKED_AGAIN: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(600);

/// The list of an agent at a site.
type Place = (usize, AgentId);
/// The text of the items of a list.
type Lines = BTreeMap<ActivityId, String>;

#[derive(Default)]
pub(crate) struct Readers {
    copies: BTreeMap<Place, Copy>,
    pending: BTreeMap<(usize, RequestId), Asked>,
}

/// A reader's copy of a list.
#[derive(Default)]
struct Copy {
    cursor: Option<String>,
    lines: Lines,
    is_whole: bool,
    is_asked: bool,
    is_watched: bool,
}

enum Asked {
    Delta(AgentId),
    /// The same list in full, right after.
    Fresh(AgentId),
    Watch(AgentId),
    /// Reads like the watch of this number, without waiting.
    Probe(RequestId),
}

impl Readers {
    pub(crate) fn act(&mut self, cluster: &mut Cluster, dice: &mut Dice) {
        self.probe(cluster);
        let place = dice.below(cluster.worlds.len());
        let agent = AgentId::from(*dice.pick(&AGENTS).unwrap_or(&"ann"));
        let copy = self.copies.entry((place, agent.clone())).or_default();
        if copy.is_asked || copy.is_watched {
            return;
        }
        let since = copy.cursor.clone();
        if copy.is_whole && dice.chance(30) {
            copy.is_watched = true;
            let until = cluster.worlds[place].now() + PATIENCE;
            let watch = Worklist { wait_until: Some(until), ..worklist(&agent, since, 100) };
            let id = cluster.worlds[place].ask(Request::Worklist(watch));
            self.pending.insert((place, id), Asked::Watch(agent));
            return;
        }
        copy.is_asked = true;
        let limit = *dice.pick(&[1, 2, 3, 100]).unwrap_or(&1);
        let delta = worklist(&agent, since, limit);
        let id = cluster.worlds[place].ask(Request::Worklist(delta));
        self.pending.insert((place, id), Asked::Delta(agent.clone()));
        let fresh = worklist(&agent, None, 1_000);
        let id = cluster.worlds[place].ask(Request::Worklist(fresh));
        self.pending.insert((place, id), Asked::Fresh(agent));
    }

    fn probe(&mut self, cluster: &mut Cluster) {
        let watches = self.pending.iter().filter_map(|(&(place, id), asked)| match asked {
            Asked::Watch(agent) => Some((place, id, agent.clone())),
            Asked::Delta(_) | Asked::Fresh(_) | Asked::Probe(_) => None,
        });
        for (place, watch, agent) in watches.collect::<Vec<_>>() {
            let Some(copy) = self.copies.get(&(place, agent.clone())) else { continue };
            let probe = worklist(&agent, copy.cursor.clone(), 100);
            let id = cluster.worlds[place].ask(Request::Worklist(probe));
            self.pending.insert((place, id), Asked::Probe(watch));
        }
    }

    /// An answer that will never come.
    pub(crate) fn lost(&mut self, place: usize, id: RequestId) {
        match self.pending.remove(&(place, id)) {
            Some(Asked::Delta(agent)) => self.copy(place, agent).is_asked = false,
            Some(Asked::Watch(agent)) => self.copy(place, agent).is_watched = false,
            Some(Asked::Fresh(_) | Asked::Probe(_)) | None => {}
        }
    }

    pub(crate) fn listen(&mut self, cluster: &mut Cluster) -> Result<(), String> {
        let mut missed = Vec::new();
        for key in self.pending.keys().copied().collect::<Vec<_>>() {
            let (place, id) = key;
            let Some(reply) = cluster.worlds[place].reply(id) else { continue };
            let is_away = |refusal: &Refusal| {
                matches!(refusal.code, "no_organisation" | "not_joined" | "server_moved")
            };
            if reply.as_ref().is_err_and(is_away) {
                // The site has no catalog yet, or its server has moved.
                self.lost(place, id);
                continue;
            }
            let Some(asked) = self.pending.remove(&key) else { continue };
            let Answer::Worklist(view) = reply.map_err(|refusal| refusal.to_string())? else {
                return Err("a worklist was asked for, and something else answered".to_owned());
            };
            match asked {
                Asked::Delta(agent) => {
                    let copy = self.copy(place, agent);
                    copy.is_asked = false;
                    copy.apply(view);
                }
                Asked::Watch(agent) => {
                    let copy = self.copy(place, agent);
                    copy.is_watched = false;
                    copy.apply(view);
                }
                Asked::Fresh(agent) => self.copy(place, agent.clone()).compare(&agent, &view)?,
                Asked::Probe(watch) if has_news(&view) => missed.push((place, watch)),
                Asked::Probe(_) => {}
            }
        }
        for key in missed {
            if let Some(Asked::Watch(agent)) = self.pending.get(&key) {
                return Err(format!("{agent} waits at {} and was not told of news", key.0));
            }
        }
        Ok(())
    }

    fn copy(&mut self, place: usize, agent: AgentId) -> &mut Copy {
        self.copies.entry((place, agent)).or_default()
    }
}

impl Copy {
    fn apply(&mut self, view: WorklistView) {
        if view.reset {
            self.lines.clear();
        }
        view.removed.iter().for_each(|gone| drop(self.lines.remove(gone)));
        self.lines.extend(lines(&view));
        self.is_whole = !view.more;
        self.cursor = Some(view.cursor);
    }

    /// A copy kept by changes up to some point equals a full read at that point.
    fn compare(&self, agent: &AgentId, fresh: &WorklistView) -> Result<(), String> {
        let fresh_lines = lines(fresh);
        if !self.is_whole
            || self.cursor.as_ref() != Some(&fresh.cursor)
            || self.lines == fresh_lines
        {
            return Ok(());
        }
        Err(format!("{agent} has kept {:#?}\nwhere a fresh list is {fresh_lines:#?}", self.lines))
    }
}

/// Whether everybody sees the same at every site: the union of the sites' items.
pub(crate) fn all_see_the_same(cluster: &mut Cluster, dice: &mut Dice) -> Result<(), String> {
    let mut views = read_all(cluster, dice)?;
    // Some messages are slow also when it is calm: a silent server is asked again.
    let until = cluster.now.plus(ASKED_AGAIN);
    while views.values().any(|view| !view.unreachable.is_empty()) && cluster.now < until {
        cluster.turn(dice)?;
        views = read_all(cluster, dice)?;
    }
    let names: Vec<String> = (0..cluster.worlds.len()).map(|n| cluster.name(n)).collect();
    for agent in AGENTS.map(AgentId::from) {
        let own = |(place, name): (usize, &String)| {
            let view = views.get(&(place, agent.clone()))?;
            let own = view.items.iter().filter(|item| item.server.as_deref() == Some(name));
            Some(own.map(line).collect::<Vec<_>>())
        };
        let union: Lines = names.iter().enumerate().filter_map(own).flatten().collect();
        for place in 0..names.len() {
            let Some(view) = views.get(&(place, agent.clone())) else { continue };
            if !view.unreachable.is_empty() || view.more {
                return Err(format!("{agent} misses {:?} at {place}", view.unreachable));
            }
            let is_in_order = view.items.is_sorted_by_key(|item| {
                let server = names.iter().position(|name| item.server.as_deref() == Some(name));
                (item.offered_at, server)
            });
            if lines(view) != union || !is_in_order {
                return Err(format!(
                    "{agent} sees at {place} {:#?}\nwhere all have {union:#?}",
                    lines(view)
                ));
            }
        }
    }
    Ok(())
}

/// Everybody's list at every site, read in full.
pub(crate) fn read_all(
    cluster: &mut Cluster,
    dice: &mut Dice,
) -> Result<BTreeMap<Place, WorklistView>, String> {
    let mut asked = BTreeMap::new();
    for place in 0..cluster.worlds.len() {
        for agent in AGENTS.map(AgentId::from) {
            let id = cluster.worlds[place].ask(Request::Worklist(worklist(&agent, None, 1_000)));
            asked.insert((place, id), agent);
        }
    }
    let mut views = BTreeMap::new();
    let mut left: BTreeSet<(usize, RequestId)> = asked.keys().copied().collect();
    for _ in 0..200 {
        cluster.turn(dice)?;
        for (place, id) in left.clone() {
            if let Some(reply) = cluster.worlds[place].reply(id) {
                left.remove(&(place, id));
                let Some(agent) = asked.remove(&(place, id)) else { continue };
                if let Answer::Worklist(view) = reply.map_err(|refusal| refusal.to_string())? {
                    views.insert((place, agent), view);
                }
            }
        }
        if left.is_empty() {
            return Ok(views);
        }
    }
    Err(format!("worklists are not answered: {left:?} {}", cluster.describe()))
}

fn has_news(view: &WorklistView) -> bool {
    view.reset || !view.items.is_empty() || !view.removed.is_empty()
}

fn worklist(agent: &AgentId, since: Option<String>, limit: usize) -> Worklist {
    Worklist { agent: agent.clone(), since, limit, wait_until: None }
}

fn lines(view: &WorklistView) -> Lines {
    view.items.iter().map(line).collect()
}

fn line(item: &ItemInfo) -> (ActivityId, String) {
    let ItemInfo { activity, process, offered_at, claimed_by, server, stale, .. } = item;
    let shown = format!("{process} {offered_at} {claimed_by:?} {server:?} {stale}");
    (activity.clone(), shown)
}
