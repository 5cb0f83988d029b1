//! The links to other servers, shown.
//!
//! Invariant: what is shown is what the metrics count.

use legwork_api::links::{Link, LinkBytes, LinkList, LinkState};
use legwork_site::Request;

use super::exchange::Exchange;
use super::reply::{Reply, Result};
use crate::peer::{Condition, Meter, Row};

pub(super) async fn list(x: Exchange<'_>) -> Result {
    x.order(Request::RequireAdmin).await?;
    let rows = x.app.links.as_ref().map(|links| links.rows()).unwrap_or_default();
    let server = x.app.links.as_ref().map(|links| links.name.to_string());
    let sent = x.app.links.as_ref().map(|links| links.sent()).unwrap_or_default();
    let links = rows.into_iter().map(link).collect();
    Reply::json(&LinkList {
        server,
        entries_sent: sent.entries,
        entries_spared: sent.entries_spared,
        bytes_whole: sent.bytes_whole,
        links,
    })
}

fn link(row: Row) -> Link {
    let (state, reason) = match row.condition {
        Condition::Up => (LinkState::Up, None),
        Condition::Down { reason } => (LinkState::Down, Some(reason)),
        Condition::Refused { reason } => (LinkState::Refused, Some(reason)),
    };
    Link {
        server: row.server.to_string(),
        domain: row.domain.to_string(),
        address: row.address.to_string(),
        state,
        reason,
        since: row.since,
        parcels_waiting: row.parcels,
        sent: bytes(&row.sent),
        received: bytes(&row.received),
    }
}

fn bytes(meter: &Meter) -> LinkBytes {
    let [history, small, large, worklist, control] = meter.kinds.map(|(_, bytes)| bytes);
    LinkBytes {
        history,
        small,
        large,
        worklist,
        control,
        socket: meter.socket,
        dropped: meter.dropped,
    }
}
