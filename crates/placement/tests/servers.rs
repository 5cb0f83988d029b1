//! Several servers in a domain: weights, guests, stores, and the difference between two topologies.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_placement::{
    Change, Exceptions, Map, Mode, Policy, Rule, Store, Topology, Version, json_schema,
};

const ULM: DomainId = DomainId(0);

/// A topology of one domain with these servers, and more domains below.
fn of(servers: &[&str]) -> String {
    let mut text = "topology: t\ndomains:\n  ulm:\n    servers:\n".to_owned();
    for server in servers {
        text.push_str(&format!("      {server}\n"));
    }
    text
}

/// A server in its own process.
fn own(name: &str, rest: &str) -> String {
    format!("{name}: {{ address: \"{name}:1\", api: \"http://{name}\"{rest} }}")
}

fn weighed(weights: &[u32]) -> String {
    let names = ["a", "b", "c", "d"];
    let servers = names.iter().zip(weights).map(|(n, w)| own(n, &format!(", weight: {w}")));
    let servers: Vec<String> = servers.collect();
    of(&servers.iter().map(String::as_str).collect::<Vec<_>>())
}

fn read(source: &str) -> Topology {
    let (topology, findings) = Topology::parse(source);
    assert!(findings.is_empty(), "{findings:?}");
    topology.unwrap()
}

fn after(previous: &Topology, source: &str, rule: Option<Rule>) -> Topology {
    let rules = rule.map(|rule| (ULM, rule)).into_iter().collect();
    let (topology, findings) = Topology::succeed(source, Some(previous), &rules);
    assert!(findings.is_empty(), "{findings:?}");
    topology.unwrap()
}

fn findings(previous: Option<&Topology>, source: &str) -> String {
    let (topology, findings) = Topology::succeed(source, previous, &BTreeMap::new());
    assert_eq!(topology.is_some(), findings.is_empty());
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn spread(created_ms: u64, spread: u32) -> InstanceId {
    InstanceId::new(created_ms, 0, spread, ServerId(0))
}

#[test]
fn a_domain_is_divided_by_the_weights_of_its_servers() {
    let topology = read(&weighed(&[20, 30, 50]));
    for (at, server) in [(0, 0), (0x3333_3334, 1), (0x8000_0000, 2), (u32::MAX, 2)] {
        assert_eq!(topology.server_in(ULM, spread(1, at)), Some(ServerId(server)));
        assert_eq!(topology.starter(ServerId(1), spread(1, at)), Some(ServerId(server)));
    }
    let equal = read(&of(&[&own("a", ""), &own("b", "")]));
    let half = u64::from(u32::MAX) / 2 + 1;
    assert_eq!(equal.domains[0].chain.newest().shares()[&ServerId(1)], half);
    let names: Vec<_> =
        topology.servers_of(ULM).map(|(id, server)| (id.0, &*server.name)).collect();
    assert_eq!(names, [(0, "a"), (1, "b"), (2, "c")]);
}

#[test]
fn a_server_without_a_weight_gets_nothing() {
    let topology = read(&weighed(&[1, 0]));
    assert_eq!(topology.server_in(ULM, spread(1, u32::MAX)), Some(ServerId(0)));
}

#[test]
fn a_guest_is_reached_where_its_host_is() {
    let topology = read(&of(&[&own("a", ""), "b: { host: a, weight: 0 }"]));
    let (a, b) = (ServerId(0), ServerId(1));
    assert_eq!(topology.address_of(b).map(|address| &**address), Some("a:1"));
    assert_eq!(topology.api_of(b).map(|api| &**api), Some("http://a"));
    assert_eq!((topology.host_of(a), topology.host_of(b)), (a, a));
    let moved = after(
        &topology,
        &of(&[&own("a", "").replace("a:1", "z:1"), "b: { host: a, weight: 0 }"]),
        None,
    );
    assert_eq!(moved.address_of(b).map(|address| &**address), Some("z:1"));
    assert_eq!(topology.change_to(&moved).servers, BTreeSet::from([a, b]));
}

#[test]
fn every_mistake_with_servers_is_told_with_what_would_mend_it() {
    let a = own("a", "");
    for (servers, expected) in [
        (
            vec![&*own("a", ", weight: 0"), &own("b", ", weight: 0")],
            "error Y2: no server of domain `ulm` has a weight",
        ),
        (
            vec![&*own("a", ", weight: 1000001")],
            "error Y3: `weight` of server `a` cannot be `1000001`",
        ),
        (vec![&*own("a", ", weight: -1")], "error Y3: `weight` of server `a` cannot be `-1`"),
        (vec![&*own("a", ", weight: half")], "must be a whole number"),
        (vec![&*own("a", ", intended: 1000001")], "error Y3: `intended` of server `a`"),
        (vec!["a: { host: a }"], "server `a` cannot be its own host"),
        (
            vec![&*a, "b: { host: a }", "c: { host: b }"],
            "the host of `c` is `b`, which is a guest itself\n    hint: name the server that runs by itself, such as `a`",
        ),
        (
            vec![&*a, "b: { host: c }", "c: { host: b }"],
            "the host of `b` is `c`, which is a guest itself",
        ),
        (vec![&*a, "b: { host: z }"], "the host of `b` is `z`, which domain `ulm` does not have"),
        (
            vec![&*a, &own("b", ", host: a")],
            "server `b` has a host, so it has no `address` of its own",
        ),
        (vec![&*a, "b: { host: a, api: \"http://b\" }"], "so it has no `api` of its own"),
        (vec![&*a, "b: { weight: 1 }"], "server `b` needs `address`"),
        (vec![&*a, "b: { host: 5 }"], "the name of a host must be text"),
        (vec![&*a, &*a], "is written twice"),
    ] {
        let source = of(&servers);
        let told = findings(None, &source);
        assert!(told.contains(expected), "{source}\n{told}");
    }
    let elsewhere = of(&[&a]) + "  bonn: { servers: { b: { host: a } } }\n";
    let told = findings(None, &elsewhere);
    assert!(told.contains("the host of `b` is `a`, which domain `bonn` does not have"), "{told}");
}

#[test]
fn stores_and_the_watch_dog_are_read_and_written() {
    let source = of(&[&own("a", ", weight: 3, intended: 2"), "b: { host: a, weight: 0 }"])
        .replace("  ulm:\n", "  ulm:\n    store: shared\n")
        + "watchdog: { mode: apply, deviation_pct: 15, pause_minutes: 60 }\n";
    let topology = read(&source);
    assert_eq!(topology.domains[0].store, Store::Shared);
    let server = topology.server(ServerId(0)).unwrap();
    assert_eq!((server.weight, server.intended, server.meant()), (3, Some(2), 2));
    let policy =
        Policy { mode: Mode::Apply, deviation_pct: 15, pause_minutes: 60, ..Policy::default() };
    assert_eq!(topology.watchdog, policy);
    assert_eq!(read(&topology.to_yaml()), topology, "{}", topology.to_yaml());
    for (field, told) in [
        ("mode: maybe", "write one of `off`, `propose` and `apply`"),
        ("step_pct: 0", "`step_pct` of `watchdog` cannot be `0`"),
        ("step: 1", "`watchdog` has no field `step`"),
    ] {
        let source = format!("{}watchdog: {{ {field} }}\n", weighed(&[1]));
        assert!(findings(None, &source).contains(told), "{field}");
    }
    let bad = of(&[&own("a", "")]).replace("  ulm:\n", "  ulm:\n    store: cloud\n");
    assert!(findings(None, &bad).contains("`store` of domain `ulm` cannot be `cloud`"));
}

#[test]
fn other_weights_count_for_whom_the_rule_says() {
    let first = read(&weighed(&[1, 1]));
    let second = after(&first, &weighed(&[0, 1]), Some(Rule::Since(1_000)));
    let servers = [1_000, 1_001].map(|ms| second.server_in(ULM, spread(ms, 1)));
    assert_eq!(servers, [Some(ServerId(0)), Some(ServerId(1))]);
    let excepted = spread(2_000, 2);
    let rule = Rule::Except(Exceptions::new([excepted]));
    let third = after(&second, &weighed(&[1, 0]), Some(rule));
    assert_eq!(third.server_in(ULM, excepted), Some(ServerId(1)));
    assert_eq!(third.server_in(ULM, spread(2_000, 3)), Some(ServerId(0)));
    assert_eq!(third.domains[0].chain.versions().count(), 3);
}

#[test]
fn the_same_shares_are_no_change_whatever_the_numbers() {
    let first = read(&weighed(&[1, 1]));
    let second = after(&first, &weighed(&[50, 50]), Some(Rule::Since(1)));
    assert_eq!(second.domains[0].chain, first.domains[0].chain);
    assert!(first.change_to(&second).is_empty());
}

#[test]
fn what_needs_care_is_told_from_what_does_not() {
    let first = read(&weighed(&[1, 1]));
    let change = |source: &str| first.change_to(&after(&first, source, None));
    let none = Change::default();
    assert_eq!(change(&weighed(&[1, 1, 0])), none, "a new server without a weight");
    assert_eq!(change(&weighed(&[1, 1]).replace("http://a", "http://x")), none, "for people");
    let more =
        weighed(&[1, 1]) + "  bonn: { servers: { z: { address: \"z:1\", api: \"http://z\" } } }\n";
    assert_eq!(change(&more), none, "a new domain");
    let home = weighed(&[1, 1]) + "    people: [ann]\n";
    assert_eq!(change(&home), none, "who is at home");
    let divided = Change { domains: BTreeSet::from([ULM]), ..Change::default() };
    assert_eq!(change(&weighed(&[1, 2])), divided);
    assert_eq!(change(&weighed(&[1, 1, 1])), divided);
    let moved = Change { servers: BTreeSet::from([ServerId(1)]), ..Change::default() };
    assert_eq!(change(&weighed(&[1, 1]).replace("b:1", "b:2")), moved);
    assert_eq!(change(&of(&[&own("a", ""), "b: { host: a }"])), moved);
}

#[test]
fn servers_that_join_get_the_next_numbers_and_stand_after_the_others() {
    let two = of(&[&own("a", "")])
        + "  bonn: { servers: { z: { address: \"z:1\", api: \"http://z\" } } }\n";
    let first = read(&two);
    let second =
        after(&first, &two.replace("\n  bonn", "\n      b: { host: a, weight: 0 }\n  bonn"), None);
    let names: Vec<&str> = second.servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["a", "z", "b"]);
    let told = findings(Some(&first), &weighed(&[1, 1]).replace("a:", "aa:").replace("b:", "a:"));
    assert!(
        told.contains("server `aa` stands where `a` was before\n    hint: write new servers after"),
        "{told}"
    );
    let told = findings(Some(&second), &two);
    assert!(
        told.contains("server `b` is missing\n    hint: keep it, with `weight: 0` and a `host`"),
        "{told}"
    );
}

#[test]
fn everybody_computes_the_same_division_from_the_same_topologies() {
    let texts = [[1, 1, 1], [1, 2, 3], [0, 5, 1], [7, 7, 0], [1, 1, 1]].map(|of| weighed(&of));
    let replay = || {
        let first = read(&texts[0]);
        let all = texts[1..].iter().zip(1..);
        all.fold(first, |topology, (text, ms)| after(&topology, text, Some(Rule::Since(ms))))
    };
    let chain = &replay().domains[0].chain;
    assert_eq!(chain, &replay().domains[0].chain);
    let lens: Vec<usize> =
        chain.versions().map(|Version { layout, .. }| layout.intervals().count()).collect();
    assert_eq!(lens, [6, 4, 3, 4, 3]);
}

#[test]
fn the_schema_for_editors_knows_servers_as_the_reader_does() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let server = |server: serde_json::Value| {
        let servers =
            serde_json::json!({ "a": { "address": "a:1", "api": "http://a" }, "b": server });
        let text =
            serde_json::json!({ "topology": "t", "domains": { "x": { "servers": servers } } });
        (schema.is_valid(&text), findings(None, &text.to_string()).is_empty())
    };
    use serde_json::json;
    for (good, value) in [
        (true, json!({ "host": "a" })),
        (true, json!({ "host": "a", "weight": 0, "intended": 3 })),
        (true, json!({ "address": "b:1", "api": "http://b", "weight": 1_000_000 })),
        (false, json!({ "host": "a", "address": "b:1" })),
        (false, json!({ "host": "a", "api": "http://b" })),
        (false, json!({ "host": "a", "address": "b:1", "api": "http://b" })),
        (false, json!({ "address": "b:1" })),
        (false, json!({})),
        (false, json!({ "host": "A" })),
        (false, json!({ "host": "a", "weight": 1_000_001 })),
        (false, json!({ "host": "a", "weight": 0.5 })),
    ] {
        assert_eq!(server(value.clone()), (good, good), "{value}");
    }
}
