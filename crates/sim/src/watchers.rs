//! People who follow their worklists, and whether they are told of every change at once.
//!
//! Each turn another reader reads the same list from the same cursor without waiting: if there is
//! news, the waiting reader must have been answered by the end of the turn.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_model::id::AgentId;
use legwork_site::{Answer, Request, RequestId, Worklist};

use crate::dice::Dice;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(crate) struct Watchers {
    watches: BTreeMap<RequestId, (AgentId, String)>,
    /// The readers without waiting, with the waiting ones.
    probes: BTreeMap<RequestId, RequestId>,
}

impl Watchers {
    pub(crate) fn act(
        &mut self,
        world: &mut World,
        dice: &mut Dice,
        cursors: &BTreeMap<AgentId, String>,
    ) {
        for (&watch, (agent, since)) in &self.watches {
            let probe = world.ask(worklist(agent, since, None));
            self.probes.insert(probe, watch);
        }
        let known: Vec<_> = cursors.iter().collect();
        if let Some((agent, since)) = dice.pick(&known).filter(|_| dice.chance(30)) {
            let until = world.now() + PATIENCE;
            let id = world.ask(worklist(agent, since, Some(until)));
            self.watches.insert(id, ((*agent).clone(), (*since).clone()));
        }
    }

    pub(crate) fn lost(&mut self, id: RequestId) {
        self.watches.remove(&id);
        self.probes.remove(&id);
    }

    pub(crate) fn listen(&mut self, world: &mut World) -> Result<(), String> {
        self.watches.retain(|&id, _| world.reply(id).is_none());
        for (probe, watch) in std::mem::take(&mut self.probes) {
            let Some(reply) = world.reply(probe) else {
                return Err("a worklist that need not wait is not answered".to_owned());
            };
            let has_news = match reply {
                Ok(Answer::Worklist(view)) => {
                    view.reset || !view.items.is_empty() || !view.removed.is_empty()
                }
                Ok(_) | Err(_) => false,
            };
            if has_news && let Some((agent, since)) = self.watches.get(&watch) {
                return Err(format!("{agent} waits since {since} and was not told of news"));
            }
        }
        Ok(())
    }
}

fn worklist(
    agent: &AgentId,
    since: &str,
    wait_until: Option<legwork_model::time::Timestamp>,
) -> Request {
    let (agent, since) = (agent.clone(), Some(since.to_owned()));
    Request::Worklist(Worklist { agent, since, limit: 100, wait_until })
}
