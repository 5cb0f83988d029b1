//! The servers of the topology, and which of them is responsible for what.

use std::sync::Arc;

use legwork_model::id::{InstanceId, ServerId};
use legwork_placement::{Map, Transfer};

use super::Cluster;
use super::seat::Seat;
use crate::refusal::{Kind, Refusal};

impl Cluster {
    /// This server's number; arbitrary for a single server.
    pub(crate) fn server_here(&self) -> ServerId {
        self.seat.as_ref().map_or(ServerId(0), |seat| seat.here)
    }

    /// Refuses to start an instance that another server of the domain controls.
    pub(crate) fn require_placed(&self, id: InstanceId) -> Result<(), Refusal> {
        let Some(seat) = &self.seat else { return Ok(()) };
        // Every server finds the starter of an instance by its id.
        if self.belongs_here(id) && id.server() == seat.here {
            return Ok(());
        }
        Err(placed_elsewhere(seat.topology.starter(seat.here, id)))
    }

    /// Like `require_placed`, for a start with a key. Wherever its id was drawn: only the server that has the key's
    /// spread now may decide about a key that was not used yet.
    pub(crate) fn require_placed_now(&self, id: InstanceId) -> Result<(), Refusal> {
        self.require_placed(id)?;
        let domain = self.domain_here();
        let found = self.seat.as_ref().zip(domain).and_then(|(seat, domain)| {
            Some((seat.here, seat.topology.domain(domain)?.chain.newest().server(id.spread())))
        });
        match found {
            Some((here, now)) if now != here => Err(placed_elsewhere(Some(now))),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn require_domain(&self, domain: Option<&str>) -> Result<(), Refusal> {
        let Some((domain, seat)) = domain.zip(self.seat()) else { return Ok(()) };
        if seat.topology.domain_named(domain).is_some() {
            return Ok(());
        }
        let message = format!("there is no domain `{domain}` in the topology; name one of its");
        Err(Refusal::new(Kind::Invalid, "no_such_domain", message))
    }

    /// All servers but this one.
    pub(crate) fn other_servers(&self) -> impl Iterator<Item = ServerId> {
        self.seat.iter().flat_map(|seat| {
            seat.topology.numbered().map(|(id, _)| id).filter(|id| *id != seat.here)
        })
    }

    /// The name of this server; `None` for a single server.
    pub(crate) fn name_here(&self) -> Option<Arc<str>> {
        self.other_servers().next()?;
        self.server_name(self.seat.as_ref()?.here)
    }

    pub(crate) fn server_name(&self, server: ServerId) -> Option<Arc<str>> {
        let topology = &self.seat.as_ref()?.topology;
        topology.server(server).map(|server| server.name.clone())
    }

    /// The server an instance belongs to in the domain of `to`, if it is neither `to` nor this server: transfers of the
    /// instance are redirected there.
    pub(crate) fn redirection(&self, id: InstanceId, to: ServerId) -> Option<ServerId> {
        let Seat { topology, here } = self.seat.as_ref()?;
        let at = topology.server_in(topology.domain_of(to)?, id)?;
        (at != to && at != *here).then_some(at)
    }

    pub(crate) fn transfer_to(&self, to: ServerId) -> Transfer {
        self.seat.as_ref().map_or(Transfer::default(), |seat| seat.topology.transfer_to(to))
    }
}

fn placed_elsewhere(at: Option<ServerId>) -> Refusal {
    let message = "the weights of the domain say that another server starts this; ask there, with \
                   an id drawn anew";
    Refusal::new(Kind::Conflict, "placed_elsewhere", message).at(at)
}
