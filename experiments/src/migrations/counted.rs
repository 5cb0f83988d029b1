//! One run of the scenario on the production sites, counted as the paper counts.
//!
//! Invariant: the counts are of sent messages. An entry is an activity that ended: its start and its
//! end are one entry, as in the paper. The beginning of the instance and the decisions of the loop,
//! which the paper does not count, are counted separately.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use legwork_model::event::{Event, Parcel};
use legwork_model::id::{AgentId, InstanceId, ServerId};
use legwork_placement::Transfer;
use legwork_sim::calm::{Calm, Seen};
use legwork_site::{Answer, Complete, Data, ItemInfo, Message, Request, Start, Worklist, message};
use serde_json::json;

use super::scenario::{
    AGENTS, DOMAINS, LARGE, LARGE_BYTES, SOURCE, TARGET, definition, organisation, topology,
};

/// The counts of the migrations `M2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Entries of activities, migration by migration.
    pub(crate) entries: Vec<u32>,
    /// The beginning and decisions, which are transferred too.
    pub(crate) others: u32,
    /// Ids of last activities that the target sent.
    pub(crate) ids: u32,
    /// Bytes of large elements sent to the target, by migration.
    pub(crate) large: Vec<u64>,
    /// The same if all large elements were transferred each time.
    pub(crate) large_whole: Vec<u64>,
    /// The large elements that have been written so far.
    written: BTreeSet<String>,
}

pub(crate) fn count(transfer: Transfer) -> Result<Counted> {
    let mut run = Run {
        sites: Calm::new(topology(transfer), &organisation(), &definition())
            .map_err(anyhow::Error::msg)?,
        counted: Counted::default(),
    };
    let instance = InstanceId(1 << 80);
    let start = Start {
        instance,
        process: "treatment".into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: None,
    };
    run.ask(0, Request::Start(start))?;
    while run.work()? {}
    let Answer::Instance(view) = run.ask(0, Request::Show { instance, wait_until: None })? else {
        bail!("the server does not show the instance");
    };
    if !view.info.lifecycle.has_ended() {
        bail!("the case does not end: {:?}", view.info);
    }
    Ok(run.counted)
}

struct Run {
    sites: Calm,
    counted: Counted,
}

impl Run {
    fn ask(&mut self, server: u16, request: Request) -> Result<Answer> {
        let Self { sites, counted } = self;
        let answer = sites.ask(ServerId(server), request, &mut |said| counted.note(said));
        answer.map_err(anyhow::Error::msg)
    }

    /// All agents do their items; returns whether there were any.
    fn work(&mut self) -> Result<bool> {
        let mut worked = false;
        for (server, agent) in AGENTS.iter().enumerate() {
            let (server, agent) = (server as u16, AgentId::from(*agent));
            let (since, wait_until, limit) = (None, None, 10);
            let list = Worklist { agent: agent.clone(), since, limit, wait_until };
            let Answer::Worklist(list) = self.ask(server, Request::Worklist(list))? else {
                bail!("the server gives no worklist");
            };
            // The list also has the items of the other servers.
            let here = format!("{}-1", DOMAINS[usize::from(server)]);
            let is_here = |item: &ItemInfo| item.server.as_deref().is_none_or(|at| at == here);
            for item in list.items.into_iter().filter(is_here) {
                worked = true;
                let data = written(&item);
                let scans = data.keys().filter(|element| element.starts_with("scan"));
                self.counted.written.extend(scans.cloned());
                let (activity, agent) = (item.activity, agent.clone());
                let complete = Complete { agent, activity, data, answer: None, request: None };
                self.ask(server, Request::Complete(complete))?;
            }
        }
        Ok(worked)
    }
}

impl Counted {
    fn note(&mut self, seen: &Seen) {
        let (from, to, message) = match seen {
            Seen::Said { from, to, message } => (from.0, to.0, message),
            Seen::Brought { to, bytes } => {
                if let (ServerId(TARGET), Some(large)) = (to, self.large.last_mut()) {
                    *large += bytes;
                }
                return;
            }
        };
        if let (Message::Migration(message::Migration::Offer(offer)), (SOURCE, TARGET)) =
            (message, (from, to))
        {
            let is_control = matches!(offer.parcel, Parcel::Control { .. });
            let (Some(sent), true) = (&offer.entries, is_control) else { return };
            let is_activity = |event: &Event| matches!(event, Event::Completed { .. });
            let activities = sent.iter().filter(|entry| is_activity(&entry.event)).count();
            self.entries.push(activities as u32);
            self.others += (sent.len() - activities) as u32;
            self.large.push(0);
            self.large_whole.push(self.written.len() as u64 * LARGE_BYTES);
        } else if let (
            Message::Migration(message::Migration::Known { last, .. }),
            (TARGET, SOURCE),
        ) = (message, (from, to))
        {
            self.ids += last.len() as u32;
        }
    }
}

/// The outputs of a step: a scan of its own round, or the number of the round.
fn written(item: &ItemInfo) -> Data {
    let round = item.activity.iteration.0.last().map_or(0, |round| round + 1);
    let step: &str = &item.activity.step;
    let scan = |number: usize| {
        let blob = format!("{number:02x}{round:02x}{}", "0".repeat(60));
        let file = json!({
            "blob": blob, "size": LARGE_BYTES, "name": "scan", "media_type": "image/dicom"
        });
        Data::from([(format!("scan{number}"), file)])
    };
    match step {
        "b1" => scan(1),
        "d1" => scan(2),
        "d5" => Data::from([("round".to_owned(), json!(round))]),
        _ => match step.strip_prefix('a').and_then(|number| number.parse().ok()) {
            Some(number) if number <= LARGE => scan(number),
            Some(_) | None => Data::new(),
        },
    }
}
