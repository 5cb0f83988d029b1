//! The JSON Schema of topology files, for editors.
//!
//! It says about form what the reader says; whether names exist, or stand twice, only the reader
//! knows.

use legwork_model::yaml::fields::NAME_LEN_MAX;
use serde_json::{Value, json};

use crate::address;
use crate::read::{
    AT_HOME_MAX, COST_MAX, DOMAIN_FIELDS, DOMAINS_MAX, LINK_FIELDS, LINKS_MAX, SERVER_FIELDS,
    SERVER_NAME_LEN_MAX, TOPOLOGY_FIELDS,
};
use crate::topology::Transfer;

/// The JSON Schema (2020-12) of topology files.
pub fn json_schema() -> Value {
    let [topology, domains, links] = TOPOLOGY_FIELDS;
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
                "description": "Places with a server each; assignments name them.",
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
        },
    })
}

fn domain() -> Value {
    let [servers, people, executors, transfer] = DOMAIN_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [servers],
        "properties": {
            servers: {
                "description": "The one server of the domain, by its name.",
                "type": "object",
                "propertyNames": {
                    "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$",
                    "maxLength": SERVER_NAME_LEN_MAX,
                },
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": { "$ref": "#/$defs/server" },
            },
            people: { "$ref": "#/$defs/names", "description": "Who is at home here." },
            executors: { "$ref": "#/$defs/names", "description": "Workers that are at home here." },
            transfer: {
                "description": "How the history travels to this domain.",
                "enum": Transfer::ALL.map(Transfer::word),
                "default": Transfer::default().word(),
            },
        },
    })
}

fn server() -> Value {
    let [address, api] = SERVER_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [address, api],
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
