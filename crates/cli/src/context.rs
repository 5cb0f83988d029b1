//! The context of a command: the client, the output, the agent.
//!
//! Invariant: an abbreviated id is resolved against the server's current list; a full id is used as
//! it is.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use legwork_api::client::{Client, InstanceQuery, WorklistQuery};
use legwork_api::instances::{Incident, IncidentList, InstanceList};
use legwork_api::work::{Item, Worklist};
use legwork_model::id::{ActivityId, InstanceId};

use crate::abbreviate::{self, LAST};
use crate::args::Global;
use crate::output::Output;
use crate::progress;

/// The page size of lists.
pub(crate) const PAGE: usize = 1_000;
/// The bound on candidates for an abbreviated id.
const LOOKED_THROUGH_MAX: usize = 50_000;
/// The number of newest instances searched for an item of another person.
const OPEN_LOOKED_THROUGH: usize = 50;

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) out: Output,
    pub(crate) agent: Option<String>,
}

impl Context {
    pub(crate) fn new(global: &Global) -> Result<Self> {
        // An empty variable is no token.
        let token = global.token.as_deref().filter(|token| !token.is_empty());
        let client = Client::new(&global.server, token)?;
        let out = Output { json: global.json };
        Ok(Self { client, out, agent: global.agent.clone() })
    }

    pub(crate) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The instance with this id or abbreviation.
    pub(crate) async fn instance(&self, text: &str) -> Result<InstanceId> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        // Only the newest is needed of each kind.
        let most = if text == LAST { 1 } else { LOOKED_THROUGH_MAX };
        let looking = async {
            let mut known = self.instances(&InstanceQuery::default(), most).await?.instances;
            let ended = InstanceQuery { ended: true, ..InstanceQuery::default() };
            known.extend(self.instances(&ended, most).await?.instances);
            anyhow::Ok(known)
        };
        let mut known = progress::waiting("looking for the instance", looking).await?;
        known.sort_by_key(|summary| std::cmp::Reverse(summary.instance));
        let found = abbreviate::find(text, "instance", &known, |one| one.instance.to_string());
        if text == LAST && known.is_empty() {
            bail!("there is no instance yet; start one with `legwork start PROCESS`");
        }
        let hint = "list instances with `legwork list`, ended ones with `legwork list --ended`";
        Ok(found.context(hint).map_err(turned)?.instance)
    }

    /// The worklist item with this id or abbreviation.
    pub(crate) async fn item(&self, text: &str) -> Result<ActivityId> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mut items = self.worklist().await?.items;
        items.sort_by_key(|item| std::cmp::Reverse((item.offered_at, item.activity.clone())));
        let found =
            abbreviate::find(text, abbreviate::ITEM, &items, |item| item.activity.to_string());
        match found {
            Ok(item) => Ok(item.activity.clone()),
            Err(error) => match self.open_activity(text).await {
                Some(activity) => Ok(activity),
                None => {
                    let hint = "see what there is to do with `legwork work list`";
                    Err(turned(error.context(hint)))
                }
            },
        }
    }

    /// An open activity that is not on the agent's list: another person holds it, and the server
    /// will name the holder. Only for callers who may read instances, and only among the newest.
    async fn open_activity(&self, text: &str) -> Option<ActivityId> {
        let instances =
            self.instances(&InstanceQuery::default(), OPEN_LOOKED_THROUGH).await.ok()?.instances;
        let mut open = Vec::new();
        for summary in instances {
            let instance = self.client.instance(summary.instance, Duration::ZERO).await.ok()?;
            let claimed = instance.nodes.into_iter().filter(|node| node.holder.is_some());
            open.extend(claimed.map(|node| node.activity));
        }
        abbreviate::find(text, "activity", &open, ActivityId::to_string).ok().cloned()
    }

    /// The activity with an incident with this id or abbreviation.
    pub(crate) async fn incident(&self, text: &str) -> Result<ActivityId> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mut incidents = self.incidents(LOOKED_THROUGH_MAX).await?.incidents;
        incidents.sort_by_key(|incident| std::cmp::Reverse(incident.at));
        let id = |incident: &Incident| incident.activity.to_string();
        let found = abbreviate::find(text, "incident", &incidents, id);
        let hint = "list incidents with `legwork incidents`";
        Ok(found.context(hint).map_err(turned)?.activity.clone())
    }

    /// Up to `most` instances, newest first, page by page.
    pub(crate) async fn instances(
        &self,
        query: &InstanceQuery,
        most: usize,
    ) -> Result<InstanceList> {
        let mut instances = Vec::new();
        let mut query = query.clone();
        loop {
            query.limit = Some(PAGE.min(most - instances.len()));
            let page = self.client.instances(&query).await?;
            instances.extend(page.instances);
            query.cursor = page.next;
            if query.cursor.is_none() || instances.len() >= most {
                return Ok(InstanceList { instances, next: None, unreachable: page.unreachable });
            }
        }
    }

    pub(crate) async fn incidents(&self, most: usize) -> Result<IncidentList> {
        let mut incidents = Vec::new();
        let mut cursor = None;
        loop {
            let limit = Some(PAGE.min(most - incidents.len()));
            let page = self.client.incidents(limit, cursor.as_deref()).await?;
            incidents.extend(page.incidents);
            cursor = page.next;
            if cursor.is_none() || incidents.len() >= most {
                incidents.truncate(most);
                return Ok(IncidentList { incidents, next: None, unreachable: page.unreachable });
            }
        }
    }

    /// The agent's whole worklist.
    pub(crate) async fn worklist(&self) -> Result<Worklist> {
        let mut items: Vec<Item> = Vec::new();
        let mut query = WorklistQuery {
            agent: self.agent.clone(),
            limit: Some(PAGE),
            ..WorklistQuery::default()
        };
        loop {
            let page = self.client.worklist(&query).await?;
            if page.reset {
                items.clear();
            }
            // Between two pages an item may have changed.
            items.retain(|item| {
                !page.removed.contains(&item.activity)
                    && page.items.iter().all(|newer| newer.activity != item.activity)
            });
            items.extend(page.items);
            if !page.more {
                return Ok(Worklist { items, removed: Vec::new(), ..page });
            }
            query.since = Some(page.cursor);
        }
    }
}

/// The cause first, then the hint; after a list on a new line.
fn turned(error: anyhow::Error) -> anyhow::Error {
    let cause = error.root_cause().to_string();
    let between = if cause.contains('\n') { "\n" } else { "; " };
    anyhow::anyhow!("{cause}{between}{error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_not_taken_for_the_last_of_a_list() {
        let turned = |cause: &'static str| {
            turned(anyhow::Error::msg(cause).context("see `legwork work list`")).to_string()
        };
        assert_eq!(turned("no item ends in `x`"), "no item ends in `x`; see `legwork work list`");
        let list = "`design` fits 2 of them, write more of one:\n  a:design\n  b:design";
        assert_eq!(turned(list), format!("{list}\nsee `legwork work list`"));
    }
}
