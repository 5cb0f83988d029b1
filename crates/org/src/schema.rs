//! The JSON Schema of organisation files, for editors.
//!
//! It says about form what the reader says; whether names exist only the reader knows.

use serde_json::{Value, json};

use crate::read::{
    ABSENCE_FIELDS, AGENT_FIELDS, AGENTS_MAX, NAMES_MAX, ORGANISATION_FIELDS, POSITION_FIELDS,
    POSITIONS_MAX, UNIT_FIELDS, UNITS_MAX,
};
use legwork_model::yaml::fields::{NAME_LEN_MAX, TITLE_LEN_MAX};

/// The JSON Schema (2020-12) of organisation files.
pub fn json_schema() -> Value {
    let [organisation, units, positions, agents] = ORGANISATION_FIELDS;
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Legwork organisation",
        "description": "Who is there: units, positions, agents, their roles and substitutes.",
        "type": "object",
        "additionalProperties": false,
        "required": [organisation, agents],
        "properties": {
            organisation: { "$ref": "#/$defs/name", "description": "The name of the organisation." },
            units: section("unit", UNITS_MAX, "The parts of the organisation, which form trees."),
            positions: section("position", POSITIONS_MAX, "Posts; each belongs to a unit."),
            agents: section("agent", AGENTS_MAX, "People, and programs acting as people."),
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
                "maxItems": NAMES_MAX,
                "uniqueItems": true,
            },
            "title": { "type": "string", "minLength": 1, "maxLength": TITLE_LEN_MAX },
            "moment": {
                "description": "A day (UTC) or a moment as of RFC 3339.",
                "type": "string",
                "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].+)?$",
            },
            "unit": unit(),
            "position": position(),
            "agent": agent(),
            "absence": absence(),
        },
    })
}

fn section(kind: &str, count_max: usize, description: &str) -> Value {
    let entry = json!({ "$ref": format!("#/$defs/{kind}") });
    // Of a unit or an agent nothing need be said but its name.
    let entry =
        if kind == "position" { entry } else { json!({ "anyOf": [entry, { "type": "null" }] }) };
    json!({
        "description": description,
        "type": "object",
        "propertyNames": { "$ref": "#/$defs/name" },
        "maxProperties": count_max,
        "additionalProperties": entry,
    })
}

fn unit() -> Value {
    let [title, parent, manager] = UNIT_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            title: { "$ref": "#/$defs/title" },
            parent: { "$ref": "#/$defs/name", "description": "The unit above." },
            manager: { "$ref": "#/$defs/name", "description": "An agent." },
        },
    })
}

fn position() -> Value {
    let [title, unit, roles] = POSITION_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [unit],
        "properties": {
            title: { "$ref": "#/$defs/title" },
            unit: { "$ref": "#/$defs/name", "description": "The unit it belongs to." },
            roles: { "$ref": "#/$defs/names", "description": "The roles its holders play." },
        },
    })
}

fn agent() -> Value {
    let [name, positions, roles, abilities, substitutes, absent] = AGENT_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            name: { "$ref": "#/$defs/title", "description": "For people to read." },
            positions: { "$ref": "#/$defs/names", "description": "The positions they hold." },
            roles: { "$ref": "#/$defs/names", "description": "Further roles, held directly." },
            abilities: { "$ref": "#/$defs/names" },
            substitutes: {
                "$ref": "#/$defs/names",
                "description": "Agents, in order: the first who is there stands in.",
            },
            absent: {
                "type": "array",
                "items": { "$ref": "#/$defs/absence" },
                "maxItems": NAMES_MAX,
            },
        },
    })
}

fn absence() -> Value {
    let [from, to] = ABSENCE_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [from],
        "properties": {
            from: { "$ref": "#/$defs/moment", "description": "The first day or moment." },
            to: {
                "$ref": "#/$defs/moment",
                "description": "The last day, or the moment of return; without it until further notice.",
            },
        },
    })
}
