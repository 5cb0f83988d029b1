//! Requests about instances that are in the hands of another server.

use legwork_model::id::{AgentId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const TOPOLOGY: &str = r#"topology: two
domains:
  north: { servers: { north-1: { address: "north:1", api: "http://north" } } }
  south: { servers: { south-1: { address: "south:1", api: "http://south" } } }
"#;

/// What the server `north-1` answers who holds nothing.
fn refusal(request: Request) -> Refusal {
    let member = Member { name: "north-1".into(), topology: TOPOLOGY.into() };
    let mut site = Site::new(Config { member: Some(member), ..Config::default() });
    site.handle(Input::SiteRecovered, Timestamp(0));
    let (id, credential) = (RequestId(1), Credential::None);
    let mut out = site.handle(Input::Request { id, credential, request }, Timestamp(1));
    loop {
        match out.pop().unwrap() {
            Output::Answer { answer, .. } => return answer.unwrap_err(),
            Output::Load { stream, .. } => {
                let stream = Stream { id: stream.0, ..Stream::default() };
                out = site.handle(Input::Loaded(stream), Timestamp(1));
            }
            Output::ReadHistory { id, instance, .. } => {
                let input = Input::HistoryRead { id, instance, first: None, records: Vec::new() };
                out = site.handle(input, Timestamp(1));
            }
            other => unreachable!("{other:?}"),
        }
    }
}

fn started_by(server: u16) -> InstanceId {
    InstanceId(1_000 << 80 | 77 << 16 | u128::from(server))
}

#[test]
fn what_is_asked_of_an_unknown_instance_goes_to_the_server_that_started_it() {
    let instance = started_by(1);
    let activity = format!("{instance}:sign").parse().unwrap();
    let requests = [
        Request::Show { instance, wait_until: None },
        Request::History { instance, from: 0, limit: 1 },
        Request::Suspend { instance, reason: None },
        Request::Claim { agent: AgentId::from("ann"), activity },
    ];
    for request in requests {
        let asked = format!("{request:?}");
        assert_eq!(refusal(request).at, Some(ServerId(1)), "{asked}");
    }
}

#[test]
fn an_instance_that_nobody_in_the_topology_can_have_started_does_not_exist() {
    for server in [0, 2, 9] {
        let instance = started_by(server);
        let refusal = refusal(Request::Show { instance, wait_until: None });
        assert_eq!((refusal.code, refusal.at), ("no_such_instance", None), "{server}");
    }
}
