//! The JSON Schema of topology files, for editors.
//!
//! It checks the form as the reader does; only the reader checks whether names exist or are
//! duplicates.

use legwork_model::yaml::fields::NAME_LEN_MAX;
use serde_json::{Value, json};

use crate::address;
use crate::read::{
    AT_HOME_MAX, COST_MAX, DOMAIN_FIELDS, DOMAINS_MAX, LINK_FIELDS, LINKS_MAX, SERVER_NAME_LEN_MAX,
    SERVERS_MAX, TOPOLOGY_FIELDS,
};
use crate::read_servers::{SERVER_FIELDS, WATCHDOG_FIELDS, WEIGHT_MAX};
use crate::topology::{SmallValues, Store, Transfer, WEIGHT_DEFAULT};
use crate::watchdog::{Mode, Policy};

/// The JSON Schema (2020-12) of topology files.
pub fn json_schema() -> Value {
    let [topology, domains, links, watched, small] = TOPOLOGY_FIELDS;
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Legwork topology",
        "description": "Which domains and servers there are, who is at home where, what links cost.",
        "type": "object",
        "additionalProperties": false,
        "required": [topology, domains],
        "properties": {
            topology: { "$ref": "#/$defs/name", "description": "The name of the topology." },
            domains: {
                "description": "Places with servers of their own; assignments name them.",
                "type": "object",
                "propertyNames": {
                    "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$",
                    "maxLength": NAME_LEN_MAX,
                },
                "minProperties": 1,
                "maxProperties": DOMAINS_MAX,
                "additionalProperties": { "$ref": "#/$defs/domain" },
            },
            links: {
                "description": "Links that cost more than others.",
                "type": "array",
                "items": { "$ref": "#/$defs/link" },
                "maxItems": LINKS_MAX,
            },
            watched: { "$ref": "#/$defs/watchdog" },
            small: {
                "description": "Up to how many bytes a value travels with the step that wrote it; \
                    larger ones are fetched by the servers that read them.",
                "type": "integer",
                "minimum": 0,
                "maximum": SmallValues::MAX,
                "default": SmallValues::default().0,
            },
        },
        "$defs": {
            "name": {
                "type": "string",
                "pattern": "^[A-Za-z0-9][A-Za-z0-9_.@-]*$",
                "maxLength": NAME_LEN_MAX,
            },
            "names": {
                "type": "array",
                "items": { "$ref": "#/$defs/name" },
                "maxItems": AT_HOME_MAX,
                "uniqueItems": true,
            },
            "domain": domain(),
            "server": server(),
            "link": link(),
            "watchdog": watchdog(),
        },
    })
}

fn domain() -> Value {
    let [servers, people, executors, transfer, store] = DOMAIN_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [servers],
        "properties": {
            servers: {
                "description": "The servers of the domain, by their names.",
                "type": "object",
                "propertyNames": {
                    "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$",
                    "maxLength": SERVER_NAME_LEN_MAX,
                },
                "minProperties": 1,
                "maxProperties": SERVERS_MAX,
                "additionalProperties": { "$ref": "#/$defs/server" },
            },
            people: { "$ref": "#/$defs/names", "description": "Who is at home here." },
            executors: { "$ref": "#/$defs/names", "description": "Workers that are at home here." },
            transfer: {
                "description": "How the history travels to this domain.",
                "enum": Transfer::ALL.map(Transfer::word),
                "default": Transfer::default().word(),
            },
            store: {
                "description": "Where its servers keep what they know: each for itself, or all \
                    in one database.",
                "enum": Store::ALL.map(Store::word),
                "default": Store::default().word(),
            },
        },
    })
}

fn server() -> Value {
    let [address, api, weight, intended, host] = SERVER_FIELDS;
    let number = |about: &str| json!({ "description": about, "type": "integer", "minimum": 0, "maximum": WEIGHT_MAX });
    let mut weighed = number("Its part of the domain's new instances.");
    weighed["default"] = WEIGHT_DEFAULT.into();
    json!({
        "type": "object",
        "additionalProperties": false,
        "oneOf": [
            { "required": [address, api], "not": { "required": [host] } },
            {
                "required": [host],
                "not": { "anyOf": [{ "required": [address] }, { "required": [api] }] },
            },
        ],
        "properties": {
            address: {
                "description": "HOST:PORT, where the other servers reach it.",
                "type": "string",
                "pattern": "^[^:]+:[0-9]+$|^\\[[0-9A-Fa-f:.]+\\]:[0-9]+$",
                "maxLength": address::LEN_MAX,
            },
            api: {
                "description": "Where people and programs reach it.",
                "type": "string",
                "pattern": "^https?://[^/\\s]+",
                "maxLength": address::LEN_MAX,
            },
            weight: weighed,
            intended: number("Its part of the domain's load, if not that of its weight."),
            host: {
                "description": "The server of the domain in whose process it is a guest.",
                "type": "string",
                "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$",
                "maxLength": SERVER_NAME_LEN_MAX,
            },
        },
    })
}

fn link() -> Value {
    let [between, cost] = LINK_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [between, cost],
        "properties": {
            between: {
                "description": "Two domains.",
                "type": "array",
                "items": { "$ref": "#/$defs/name" },
                "minItems": 2,
                "maxItems": 2,
                "uniqueItems": true,
            },
            cost: {
                "description": "What a byte costs; 1 where nothing is said.",
                "type": "integer",
                "minimum": 1,
                "maximum": COST_MAX,
            },
        },
    })
}

fn watchdog() -> Value {
    let [mode, ..] = WATCHDOG_FIELDS;
    let mut policy = Policy::default();
    let modes = json!({
        "description": "Whether other weights are proposed, or put in force, or neither.",
        "enum": Mode::ALL.map(Mode::word),
        "default": policy.mode.word(),
    });
    let numbers = policy.numbers().map(|(field, range, default)| {
        let (least, most) = (range.start(), range.end());
        let number = json!({
            "type": "integer", "minimum": least, "maximum": most, "default": *default,
        });
        (field.to_owned(), number)
    });
    let properties = numbers.into_iter().chain([(mode.to_owned(), modes)]);
    json!({
        "description": "Watches whether servers have the load they are meant to have.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties.collect::<serde_json::Map<_, _>>(),
    })
}
