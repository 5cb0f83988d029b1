//! Anything at all, sent to every route: never a panic, never an internal error.

use std::sync::LazyLock;

use bytes::Bytes;
use legwork_model::arbitrary::cases;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::support::{Fixture, call};
use crate::config::{Config, StoreChoice};
use crate::http::endpoints::ROUTES;

/// Words that get a request further than noise.
const WORDS: [&str; 26] = [
    "process",
    "plain",
    "letter",
    "data",
    "n",
    "to",
    "agent",
    "ann",
    "worker",
    "types",
    "max",
    "lease_ms",
    "wait_ms",
    "jobs",
    "job",
    "lease",
    "error",
    "retry",
    "source",
    "organisation",
    "name",
    "scopes",
    "admin",
    "work:ann",
    "action",
    "answer",
];

fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(|n| json!(n)),
        (0..100_u32).prop_map(Json::from),
        proptest::sample::select(&WORDS[..]).prop_map(Json::from),
        ".{0,12}".prop_map(Json::from),
        id().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            proptest::collection::btree_map(
                proptest::sample::select(&WORDS[..]).prop_map(str::to_owned),
                inner,
                0..6
            )
            .prop_map(|map| json!(map)),
        ]
    })
}

fn id() -> impl Strategy<Value = String> {
    let instance = (0..=u128::MAX).prop_map(|id| legwork_model::id::InstanceId(id).to_string());
    (instance, prop_oneof![Just(""), Just(":one"), Just(":sign:0.1"), Just("::")])
        .prop_map(|(instance, rest)| format!("{instance}{rest}"))
}

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => value().prop_map(|json| Bytes::from(json.to_string())),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from),
        1 => ".{0,200}".prop_map(Bytes::from),
    ]
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        id(),
        proptest::sample::select(&WORDS[..]).prop_map(str::to_owned),
        "[a-zA-Z0-9._~%:@!$&'()*+,;=-]{1,40}",
        Just("ab".repeat(32)),
    ]
}

fn query() -> impl Strategy<Value = String> {
    let pair = (
        prop_oneof![
            Just("agent"),
            Just("since"),
            Just("limit"),
            Just("wait_ms"),
            Just("cursor"),
            Just("from"),
            Just("version"),
            Just("state"),
            Just("name"),
            Just("x"),
        ],
        prop_oneof![id(), Just("ann".to_owned()), "[0-9]{1,20}", "[a-z0-9%+.]{0,12}"],
    );
    proptest::collection::vec(pair.prop_map(|(name, value)| format!("{name}={value}")), 0..3)
        .prop_map(
            |pairs| if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) },
        )
}

fn content_type() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("application/json"), 1 => Just("text/yaml"), 1 => Just("x/y; z")]
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());
static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let mut config = Config::new(StoreChoice::Memory);
    // Nothing waits: a test has no time.
    config.limits.wait_max = std::time::Duration::from_millis(1);
    RUNTIME.block_on(async {
        let fixture = Fixture::with(config).await;
        fixture.furnish().await;
        fixture
    })
});

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn nothing_sent_to_any_route_makes_the_server_fail(
        route in 0..ROUTES.len(),
        verb in proptest::option::weighted(0.1, "[A-Z]{3,8}"),
        segment in segment(),
        query in query(),
        body in body(),
        content_type in content_type(),
        key in proptest::option::of("[ -~]{0,20}"),
        garbage in proptest::option::weighted(0.2, "[ -~]{0,30}"),
    ) {
        let route = &ROUTES[route];
        let path = match route.path.split_once('{') {
            Some((before, rest)) => {
                let after = rest.split_once('}').unwrap().1;
                format!("{before}{segment}{after}")
            }
            None => route.path.to_owned(),
        };
        let verb = verb.unwrap_or_else(|| route.verb.name().to_owned());
        let mut call = call(&format!("{verb} {path}{query}")).body(content_type, body);
        // A token would lock out all later requests.
        if route.path == "/v1/tokens" && verb == "POST" {
            call = call.token("lw_nobody");
        }
        if let Some(key) = key {
            call = call.header("idempotency-key", key.trim());
        }
        if let Some(garbage) = garbage {
            call = call.header("authorization", garbage.trim());
        }
        let answered = RUNTIME.block_on(FIXTURE.head(call));
        prop_assert!(answered.status != 500 && answered.status >= 200, "{answered:?}");
    }
}
