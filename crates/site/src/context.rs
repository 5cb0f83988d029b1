//! What an organ gets to know of the others, and what it asks the site to do.
//!
//! Invariant: an organ changes nothing but itself. It reads others through the context, and everything else it wants to
//! happen is an effect, which the site carries out in the order in which it was pushed.

use std::sync::Arc;

use legwork_model::event::SiteEvent;
use legwork_model::id::StreamId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::answer::Answer;
use crate::cases::Cases;
use crate::catalog::Catalog;
use crate::catalog::access::Caller;
use crate::cluster::Cluster;
use crate::input::{Recurring, Stream};
use crate::output::Output;
use crate::refusal::{Kind, Refusal};
use crate::{Config, Site};

#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) catalog: &'a Catalog,
    pub(crate) cluster: &'a Cluster,
    pub(crate) cases: &'a Cases,
    pub(crate) now: Timestamp,
}

#[derive(Debug)]
pub(crate) enum Effect {
    Output(Output),
    /// Appends a record to the catalog.
    Record(SiteEvent),
    Load {
        stream: StreamId,
        whole: bool,
    },
    /// Something recorded is as late as this: time never falls behind it.
    Recorded(Timestamp),
}

impl Context<'_> {
    /// The version of a process that a case can be started with.
    pub(crate) fn startable(
        &self,
        process: &str,
        version: Option<u32>,
    ) -> Result<Arc<Schema>, Refusal> {
        let deployed = self.catalog.find(process, version).ok_or_else(|| {
            let version = version.map(|number| format!(" version {number}")).unwrap_or_default();
            let what = format!("process `{process}`{version}; deploy it first");
            Refusal::not_found("no_such_process", what)
        })?;
        let schema = deployed.schema().cloned().map_err(|reason| {
            let message = format!("{reason}; start a later version");
            Refusal::new(Kind::Conflict, "definition_unreadable", message)
        })?;
        let latest = self.catalog.find(&schema.process, None);
        if latest.is_none_or(|latest| latest.version != schema.version) {
            self.cluster.require_domains(&schema)?;
        }
        Ok(schema)
    }
}

impl Site {
    pub(crate) fn context(&self, now: Timestamp) -> Context<'_> {
        let Self { config, catalog, cluster, cases, .. } = self;
        Context { config, catalog, cluster, cases, now }
    }

    pub(crate) fn apply(&mut self, effects: Vec<Effect>, now: Timestamp) {
        for effect in effects {
            match effect {
                Effect::Output(output) => self.out.push(output),
                Effect::Record(event) => self.record(event, now),
                Effect::Load { stream, whole } => self.ask_for(stream, whole),
                Effect::Recorded(at) => self.clock.latest = self.clock.latest.max(at),
            }
        }
    }

    pub(crate) fn on_schedule(
        &mut self,
        caller: &Caller,
        request: Recurring,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let mut effects = Vec::new();
        let Self { config, catalog, cluster, cases, schedules, .. } = self;
        let cx = Context { config, catalog, cluster, cases, now };
        let answer = schedules.handle(caller, request, cx, &mut effects);
        self.apply(effects, now);
        answer
    }

    pub(crate) fn settle_schedules(&mut self, now: Timestamp) {
        let mut effects = Vec::new();
        let Self { config, catalog, cluster, cases, schedules, .. } = self;
        schedules.settle(Context { config, catalog, cluster, cases, now }, &mut effects);
        self.apply(effects, now);
    }

    pub(crate) fn next_start(&self) -> Option<Timestamp> {
        self.schedules.next_due(self.context(self.clock.latest))
    }

    pub(crate) fn recover_schedules(&mut self, stream: &Stream) {
        let effects = self.schedules.recover(stream);
        self.apply(effects, self.clock.latest);
    }
}
