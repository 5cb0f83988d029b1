//! Routing of requests: the server that can carry a request out.
//!
//! Invariant: the server follows from what is known here, without a message. For an instance that was never here the id
//! gives the server that started it; a server that handed control over knows the receiver.

use legwork_model::id::{ActivityId, InstanceId, ServerId};
use legwork_placement::place;

use crate::Site;
use crate::cluster::Cluster;
use crate::input::{Request, Subject};
use crate::refusal::{Kind, Refusal};

impl Cluster {
    /// The server that started an instance that is not known here, if its id gives one.
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
            Some(name) => format!("owned by the server `{name}`; send the request there"),
            None => format!("owned by server {}; send the request there", server.0),
        };
        Refusal::new(Kind::Conflict, "elsewhere", message).at(Some(server))
    }
}

impl Site {
    /// Refuses a request that another server can carry out, with the name of that server.
    pub(crate) fn require_here(&self, request: &Request) -> Result<(), Refusal> {
        if !request.needs_no_catalog() {
            self.cluster.require_joined()?;
        }
        match self.server_for(request) {
            None => Ok(()),
            Some(server) => Err(self.cluster.elsewhere(server)),
        }
    }

    /// The server for a request; `None` if it is carried out or refused here.
    fn server_for(&self, request: &Request) -> Option<ServerId> {
        self.cluster.seat.as_ref()?;
        match request.subject() {
            Subject::Instance(instance) => match self.cases.instances.state(instance) {
                Some(_) => None,
                None => self.cluster.starter_of(instance),
            },
            // Commands for an instance as a whole go to the server that started it.
            Subject::Order(instance) => match self.cases.instances.state(instance) {
                Some((_, state)) => state.started_elsewhere(),
                None => self.cluster.starter_of(instance),
            },
            // The server that has announced the item on a worklist here is most up to date.
            Subject::Activity(activity, agent) => agent
                .and_then(|agent| self.work.remote_item(agent, activity))
                .or_else(|| self.controller_of(activity)),
            Subject::Task(_) | Subject::Other => None,
        }
    }

    /// The server that controls an activity, as far as known here; `None` stands for this server.
    fn controller_of(&self, activity: &ActivityId) -> Option<ServerId> {
        let seat = self.cluster.seat.as_ref()?;
        let Some((schema, state)) = self.cases.instances.state(activity.instance) else {
            return self.cluster.starter_of(activity.instance);
        };
        let node = schema.node_named(&activity.step)?;
        let known = seat.at(activity.instance).knowing(state);
        let controller = place(schema, &known, &*seat.topology, node.id).or_else(|| {
            // Its place depends on steps done at other servers: the last receiver of control knows more.
            let receivers = state.peers().iter().filter(|peer| peer.sent > 0);
            receivers.map(|peer| peer.server).next_back()
        });
        controller.filter(|server| *server != seat.here)
    }
}
