//! Topology files, good and bad: what is read, the report of each mistake, and the numbers that a
//! later topology keeps.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::BTreeMap;
use std::fmt::Write;

use legwork_model::event::Performer;
use legwork_model::finding::Rule;
use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Content, Node, ScalarKind};
use legwork_placement::{Map, Topology, Transfer, json_schema};
use proptest::prelude::*;
use serde_json::Value;

const HOSPITALS: &str = r#"topology: hospital-group
domains:
  north:
    servers:
      north-1: { address: "10.0.0.1:7710", api: "http://10.0.0.1:7700" }
    people: [ann, bob@example.org]
    executors: [scanner]
    transfer: requested
  lab:
    servers: { lab-1: { address: "10.0.1.1:7710", api: "http://10.0.1.1:7700" } }
links:
  - { between: [north, lab], cost: 5 }
"#;

/// A topology of these domains, in this order, each with a server.
fn of(domains: &[&str]) -> String {
    let mut text = "topology: t\ndomains:\n".to_owned();
    for name in domains {
        writeln!(
            text,
            "  {name}:\n    servers: {{ {name}-1: {{ address: \"{name}:1\", api: \"http://{name}\" }} }}"
        )
        .unwrap();
    }
    text
}

fn read(source: &str) -> Topology {
    let (topology, findings) = Topology::parse(source);
    assert!(findings.is_empty(), "{findings:?}");
    topology.unwrap()
}

fn after(previous: &Topology, source: &str) -> Result<Topology, String> {
    let (topology, findings) = Topology::succeed(source, Some(previous), &BTreeMap::new());
    assert_eq!(topology.is_some(), findings.is_empty(), "{findings:?}");
    topology.ok_or_else(|| findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn findings(source: &str) -> String {
    after(&Topology::default(), source).err().unwrap_or_default()
}

#[test]
fn a_topology_is_read_with_all_that_is_said_of_it() {
    let topology = read(HOSPITALS);
    assert_eq!((&*topology.name, topology.epoch), ("hospital-group", 1));
    let (north, lab) = (DomainId(0), DomainId(1));
    assert_eq!(topology.domain_named("lab"), Some(lab));
    assert_eq!(topology.server_named("lab-1"), Some(ServerId(1)));
    assert_eq!(topology.server_in(lab, InstanceId(1)), Some(ServerId(1)));
    assert_eq!(&*topology.server(ServerId(0)).unwrap().address, "10.0.0.1:7710");
    assert_eq!(&*topology.server(ServerId(1)).unwrap().api, "http://10.0.1.1:7700");
    assert_eq!(topology.transfer_to(ServerId(0)), Transfer::Requested);
    assert_eq!(topology.transfer_to(ServerId(1)), Transfer::Proven);
    assert_eq!(topology.cost(ServerId(1), ServerId(0)), 5);
    assert_eq!(topology.registrar(), Some(ServerId(0)));
    for (performer, home) in [
        (Performer::Agent("bob@example.org".into()), Some(north)),
        (Performer::Agent("scanner".into()), None),
        (Performer::Worker("scanner".into()), Some(north)),
        (Performer::Worker("ann".into()), None),
        (Performer::System, None),
    ] {
        assert_eq!(topology.home(&performer), home, "{performer:?}");
    }
}

#[test]
fn what_is_written_reads_as_the_same_topology() {
    // A word that YAML takes for something else is quoted.
    let odd =
        of(&["one", "yes"]).replace("  one:\n", "  \"1\":\n").replace("  yes:\n", "  \"true\":\n");
    for source in [HOSPITALS.to_owned(), of(&["x"]), odd] {
        let topology = read(&source);
        assert_eq!(read(&topology.to_yaml()), topology, "{}", topology.to_yaml());
    }
}

#[test]
fn every_mistake_is_told_with_its_place_and_what_would_mend_it() {
    let server =
        |name: &str| format!("{{ {name}: {{ address: \"{name}:1\", api: \"http://{name}\" }} }}");
    let (a, b) = (server("a"), server("b"));
    let domains = |text: &str| format!("topology: t\ndomains: {{ {text} }}\n");
    let links = |text: &str| {
        format!(
            "topology: t\ndomains: {{ x: {{ servers: {a} }}, y: {{ servers: {b} }} }}\nlinks: [{text}]\n"
        )
    };
    for (source, expected) in [
        (String::new(), "1:1: error Y2: the file is empty"),
        ("topology: t\n".to_owned(), "a topology needs `domains`"),
        ("domains: {}\n".to_owned(), "1:1: error Y2: a topology needs `topology`"),
        (domains(""), "2:10: error Y2: there is no domain"),
        (domains(&format!("x: {{ servers: {a}, port: 1 }}")), "domain `x` has no field `port`"),
        (domains("x: { servers: {} }"), "error Y2: domain `x` has no server"),
        (domains("x: { people: [ann] }"), "domain `x` needs `servers`"),
        (
            domains(&format!("x: {{ servers: {a} }}, y: {{ servers: {a} }}")),
            "server `a` is in two domains",
        ),
        (
            domains(&format!(
                "x: {{ servers: {a} }}, y: {{ servers: {{ b: {{ address: \"a:1\", api: \"http://b\" }} }} }}"
            )),
            "`a:1` is written twice",
        ),
        (domains("x: { servers: { a: { address: \"a\", api: \"http://a\" } } }"), "cannot be `a`"),
        (domains("x: { servers: { a: { address: \"a:1\", api: \"a:1\" } } }"), "cannot be `a:1`"),
        (
            domains("x: { servers: { A_1: { address: \"a:1\", api: \"http://a\" } } }"),
            "cannot be `A_1`",
        ),
        (domains("x y: { servers: {} }"), "the name of a domain cannot be `x y`"),
        (domains("executor: { servers: {} }"), "the name of a domain cannot be `executor`"),
        (domains(&format!("x: {{ servers: {a}, people: [ann, ann] }}")), "`ann` is at home twice"),
        (
            domains(&format!(
                "x: {{ servers: {a}, executors: [e] }}, y: {{ servers: {b}, executors: [e] }}"
            )),
            "`e` is at home twice",
        ),
        (
            domains(&format!("x: {{ servers: {a}, transfer: quick }}")),
            "`transfer` of domain `x` cannot be `quick`\n    hint: write one of `full`, `sending`, `requested` and `proven`",
        ),
        (links("{ between: [x, z], cost: 2 }"), "error Z1: there is no domain `z`"),
        (links("{ between: [x, x], cost: 2 }"), "cannot lead from `x` to itself"),
        (links("{ between: [x], cost: 2 }"), "between two domains, not 1"),
        (links("{ between: [x, y], cost: 0 }"), "error Y3: the cost of a link cannot be `0`"),
        (
            links("{ between: [x, y], cost: 1000001 }"),
            "error Y3: the cost of a link cannot be `1000001`",
        ),
        (links("{ between: [x, y] }"), "a link needs `cost`"),
        (links("{ between: [x, y], cost: 1 }, { between: [y, x], cost: 2 }"), "is written twice"),
    ] {
        let told = findings(&source);
        assert!(told.contains(expected), "{source}\n{told}");
    }
}

#[test]
fn limits_are_told_as_such() {
    let many: Vec<String> = (0..1_001).map(|n| format!("d{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(findings(&of(&many)).contains("there are more than 1000 domains"));
    let people: Vec<String> = (0..20_001).map(|n| format!("p{n}")).collect();
    let source = of(&["x"]) + &format!("    people: [{}]\n", people.join(", "));
    assert!(findings(&source).contains("`people` of domain `x` has more than 20000 entries"));
}

#[test]
fn a_later_topology_keeps_all_numbers_and_appends_what_is_new() {
    let first = read(&of(&["ulm", "bonn"]));
    let second = after(&first, &of(&["ulm", "bonn", "berlin", "aachen"])).unwrap();
    assert_eq!(second.epoch, 2);
    let names: Vec<&str> = second.domains.iter().map(|domain| &*domain.name).collect();
    assert_eq!(names, ["ulm", "bonn", "berlin", "aachen"]);
    let names: Vec<&str> = second.servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["ulm-1", "bonn-1", "berlin-1", "aachen-1"]);
    assert_eq!(second.registrar(), Some(ServerId(0)));
}

#[test]
fn the_order_of_the_file_is_the_order_of_the_numbers() {
    let first = read(&of(&["ulm", "bonn"]));
    for (domains, told) in [
        (
            &["ulm", "berlin", "bonn"] as &[&str],
            "5:3: error Y2: domain `berlin` stands where `bonn` was before\n    hint: write new domains after those that there were",
        ),
        (
            &["bonn", "ulm"],
            "3:3: error Y2: domain `bonn` stands where `ulm` was before\n    hint: keep the domains in the order they had",
        ),
    ] {
        assert_eq!(after(&first, &of(domains)).unwrap_err(), told);
    }
}

#[test]
fn addresses_homes_costs_and_transfer_can_change() {
    let first = read(HOSPITALS);
    let changed = HOSPITALS
        .replace("10.0.1.1", "10.0.9.9")
        .replace("cost: 5", "cost: 7")
        .replace("requested", "full")
        .replace("[ann, bob@example.org]", "[ann]");
    let second = after(&first, &changed).unwrap();
    assert_eq!(&*second.server(ServerId(1)).unwrap().address, "10.0.9.9:7710");
    assert_eq!(second.cost(ServerId(0), ServerId(1)), 7);
    assert_eq!(second.transfer_to(ServerId(0)), Transfer::Full);
    assert_eq!(second.home(&Performer::Agent("bob@example.org".into())), None);
}

#[test]
fn nothing_that_there_was_can_be_taken_away_or_moved() {
    let first = read(&of(&["ulm", "bonn"]));
    let missing = after(&first, &of(&["ulm"])).unwrap_err();
    assert_eq!(
        missing,
        "0:0: error Y2: domain `bonn` is missing\n    hint: keep it: a domain cannot be taken away"
    );
    let renamed = after(&first, &of(&["ulm", "bonn"]).replace("bonn-1:", "bonn-2:")).unwrap_err();
    assert!(renamed.starts_with("6:16: error Y2: server `bonn-1` is missing"), "{renamed}");
    let swapped = of(&["ulm", "bonn"]).replace("ulm-1:", "x:").replace("bonn-1:", "ulm-1:");
    let swapped = after(&first, &swapped.replace("x:", "bonn-1:")).unwrap_err();
    assert!(swapped.contains("server `bonn-1` was in another domain before"), "{swapped}");
}

#[test]
fn a_mistake_does_not_make_what_it_is_about_missing() {
    let first = read(&of(&["ulm", "bonn"]));
    let broken = of(&["ulm", "bonn"]).replace("\"bonn:1\"", "bonn");
    let told = after(&first, &broken).unwrap_err();
    assert!(!told.contains("is missing"), "{told}");
}

fn to_json(node: &Node) -> Value {
    match &node.content {
        Content::Scalar(scalar) => match scalar.kind {
            ScalarKind::Null => Value::Null,
            ScalarKind::Bool => Value::Bool(scalar.text.to_lowercase() == "true"),
            ScalarKind::Int | ScalarKind::Float => {
                serde_json::from_str(&scalar.text).unwrap_or(Value::from(0))
            }
            ScalarKind::Text => Value::from(scalar.text.as_str()),
        },
        Content::List(items) => items.iter().map(to_json).collect(),
        Content::Mapping(entries) => {
            let text = |node: &Node| node.scalar().map(|key| key.text.clone()).unwrap_or_default();
            entries.iter().map(|(key, value)| (text(key), to_json(value))).collect()
        }
    }
}

#[test]
fn the_schema_for_editors_agrees_with_the_reader_on_form() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let one = r#"{ address: "a:1", api: "http://a" }"#;
    for (good, rest) in [
        (true, format!("domains: {{ x: {{ servers: {{ a: {one} }} }} }}")),
        (true, HOSPITALS.split_once('\n').unwrap().1.to_owned()),
        (
            true,
            format!("domains: {{ x: {{ servers: {{ a: {one} }}, people: [p], transfer: full }} }}"),
        ),
        (false, "domains: {}".to_owned()),
        (false, "domains: { x: }".to_owned()),
        (false, format!("domains: {{ x: {{ servers: {{ a_b: {one} }} }} }}")),
        (false, format!("domains: {{ x: {{ servers: {{ a-: {one} }} }} }}")),
        (false, format!("domains: {{ 'x@y': {{ servers: {{ a: {one} }} }} }}")),
        (false, format!("domains: {{ x: {{ servers: {{ a: {one} }}, transfer: quick }} }}")),
        (false, format!("domains: {{ x: {{ servers: {{ a: {one} }}, people: [p, p] }} }}")),
        (
            false,
            "domains: { x: { servers: { a: { address: nowhere, api: \"http://a\" } } } }"
                .to_owned(),
        ),
        (false, "domains: { x: { servers: { a: { address: \"a:1\", api: a } } } }".to_owned()),
        (
            false,
            format!(
                "domains: {{ x: {{ servers: {{ a: {one} }} }} }}\nlinks: [{{ between: [x], cost: 1 }}]"
            ),
        ),
        (
            false,
            format!(
                "domains: {{ x: {{ servers: {{ a: {one} }} }} }}\nlinks: [{{ between: [x, y], cost: 0 }}]"
            ),
        ),
    ] {
        let source = format!("topology: t\n{rest}\n");
        let root = tree::read(&source, &mut Report::default()).unwrap();
        let (_, findings) = Topology::parse(&source);
        let sound = findings.iter().all(|finding| finding.rule == Rule::Z1);
        assert_eq!(sound, good, "reader: {source}\n{findings:?}");
        assert_eq!(schema.is_valid(&to_json(&root)), good, "schema: {source}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn numbers_are_for_ever_and_those_of_the_file(
        orders in proptest::collection::vec(Just(["a", "b", "c", "d", "e", "f"]).prop_shuffle(), 1..5),
        sizes in proptest::collection::vec(0_usize..=3, 4),
    ) {
        let mut known: Vec<&str> = vec!["a"];
        let mut topology = read(&of(&known));
        for (order, more) in orders.iter().zip(&sizes) {
            let new: Vec<&str> = order.iter().filter(|name| !known.contains(name)).copied().take(*more).collect();
            known.extend(new);
            let next = after(&topology, &of(&known)).unwrap();
            prop_assert_eq!(&next.servers, &read(&of(&known)).servers);
            prop_assert_eq!(next.epoch, topology.epoch + 1);
            prop_assert_eq!(&next.domains[..topology.domains.len()], &topology.domains[..]);
            prop_assert_eq!(&next.servers[..topology.servers.len()], &topology.servers[..]);
            prop_assert_eq!(next.servers.len(), known.len());
            topology = next;
        }
    }

    #[test]
    fn whatever_the_text_reading_ends(text in "[a-z:{}\\[\\], \n\"-]{0,200}") {
        let text = format!("topology: t\ndomains:\n{text}");
        let (topology, findings) = Topology::parse(&text);
        prop_assert_eq!(topology.is_some(), findings.is_empty());
    }
}
