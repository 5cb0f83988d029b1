//! Where a request belongs: the server that can carry it out.
//!
//! Invariant: it follows from what is known here, without a message. Of an instance that was never
//! here its id tells who started it; whoever passed control on knows to whom.

use legwork_model::id::{ActivityId, InstanceId, ServerId};
use legwork_placement::place;

use crate::Site;
use crate::cluster::Cluster;
use crate::input::{Request, Subject};
use crate::refusal::{Kind, Refusal};

impl Cluster {
    /// Who started an instance that is not known here, if its id tells.
    pub(crate) fn starter_of(&self, id: InstanceId) -> Option<ServerId> {
        let seat = self.seat.as_ref()?;
        let starter = id.server();
        let is_there = seat.topology.server(starter).is_some();
        (is_there && starter != seat.here).then_some(starter)
    }

    pub(crate) fn elsewhere(&self, server: ServerId) -> Refusal {
        let topology = self.seat.as_ref().map(|seat| &seat.topology);
        let name = topology.and_then(|topology| Some(topology.server(server)?.name.clone()));
        let message = match name {
            Some(name) => format!("it is in the hands of the server `{name}`; ask there"),
            None => format!("it is in the hands of server {}; ask there", server.0),
        };
        Refusal::new(Kind::Conflict, "elsewhere", message).at(Some(server))
    }
}

impl Site {
    /// Refuses a request that another server can carry out, with word of that server.
    pub(crate) fn require_here(&self, request: &Request) -> Result<(), Refusal> {
        if !request.needs_no_catalog() {
            self.cluster.require_joined()?;
        }
        match self.server_for(request) {
            None => Ok(()),
            Some(server) => Err(self.cluster.elsewhere(server)),
        }
    }

    /// `None` if the request is to be carried out, or refused, here.
    fn server_for(&self, request: &Request) -> Option<ServerId> {
        self.cluster.seat.as_ref()?;
        match request.subject() {
            Subject::Instance(instance) => match self.cases.instances.state(instance) {
                Some(_) => None,
                None => self.cluster.starter_of(instance),
            },
            // Orders for the instance as a whole are given where it was started.
            Subject::Order(instance) => match self.cases.instances.state(instance) {
                Some((_, state)) => state.started_elsewhere(),
                None => self.cluster.starter_of(instance),
            },
            // Who has told of an item here knows best.
            Subject::Activity(activity, agent) => agent
                .and_then(|agent| self.work.remote_item(agent, activity))
                .or_else(|| self.controller_of(activity)),
            Subject::Task(_) | Subject::Other => None,
        }
    }

    /// Who controls an activity, as far as it is known here; `None` stands for this server.
    fn controller_of(&self, activity: &ActivityId) -> Option<ServerId> {
        let seat = self.cluster.seat.as_ref()?;
        let Some((schema, state)) = self.cases.instances.state(activity.instance) else {
            return self.cluster.starter_of(activity.instance);
        };
        let node = schema.node_named(&activity.step)?;
        let known = seat.at(activity.instance).knowing(state);
        let controller = place(schema, &known, &*seat.topology, node.id).or_else(|| {
            // What its place depends on came to pass further on: those know to whom control went.
            let told = state.peers().iter().filter(|peer| peer.sent > 0);
            told.map(|peer| peer.server).next_back()
        });
        controller.filter(|server| *server != seat.here)
    }
}
