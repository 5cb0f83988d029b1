//! The published address of a server, and whether the server listens there.
//!
//! Invariant: only IP addresses are judged. A name may be that of a proxy.

use std::net::SocketAddr;

use legwork_placement::Topology;

/// The published address of the server, if the topology has one.
pub fn api_of(topology: &Topology, name: &str) -> Option<SocketAddr> {
    let server = topology.server(topology.server_named(name)?)?;
    server.api.strip_prefix("http://")?.trim_end_matches('/').parse().ok()
}

/// Whether requests to `api` reach a server that listens at `listen`.
pub fn serves(listen: SocketAddr, api: SocketAddr) -> bool {
    listen.port() == api.port() && (listen.ip() == api.ip() || listen.ip().is_unspecified())
}

/// The published address without a listener, if the file of the server has another one: the new
/// address was not published with it.
pub(crate) fn outdated(
    listen: SocketAddr,
    in_file: Option<SocketAddr>,
    in_force: Option<SocketAddr>,
) -> Option<SocketAddr> {
    in_force.filter(|api| in_file != Some(*api) && !serves(listen, *api))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_that_listens_everywhere_is_found_at_every_address() {
        let serves = |listen: &str, api: &str| serves(at(listen), at(api));
        assert!(serves("10.0.0.1:7701", "10.0.0.1:7701"));
        assert!(serves("0.0.0.0:7701", "10.0.0.1:7701"));
        assert!(!serves("10.0.0.1:7700", "10.0.0.1:7701"), "another port");
        assert!(!serves("127.0.0.1:7701", "10.0.0.1:7701"), "another address");
    }

    #[test]
    fn a_published_address_that_is_no_longer_listened_on_is_outdated() {
        let (old, new) = (at("10.0.0.2:7700"), at("10.0.0.9:7700"));
        assert_eq!(outdated(new, Some(new), Some(old)), Some(old), "it was not published");
        assert_eq!(outdated(new, Some(new), Some(new)), None);
        assert_eq!(outdated(new, Some(old), Some(old)), None, "`up` has warned of that");
        assert_eq!(outdated(at("0.0.0.0:7700"), None, Some(old)), None);
    }

    #[test]
    fn only_addresses_are_judged() {
        let text = "topology: t\ndomains: { north: { servers: {\
                    north-1: { address: \"10.0.0.1:7710\", api: \"http://10.0.0.1:7700/\" },\
                    north-2: { address: \"10.0.0.2:7710\", api: \"http://north.example\" } } } }\n";
        let topology = Topology::parse(text).0.unwrap();
        assert_eq!(api_of(&topology, "north-1"), Some(at("10.0.0.1:7700")));
        assert_eq!(api_of(&topology, "north-2"), None);
        assert_eq!(api_of(&topology, "north-3"), None);
    }
}
