//! The JSON Schema of organisation files, for editors.
//!
//! It checks the form as the reader does; only the reader checks whether names exist.

use serde_json::{Value, json};

use crate::read::{
    ABSENCE_FIELDS, AGENT_FIELDS, AGENTS_MAX, CALENDAR_FIELDS, CALENDARS_MAX, CLOSED_MAX,
    NAMES_MAX, ORGANISATION_FIELDS, POSITION_FIELDS, POSITIONS_MAX, REGULAR_FIELDS, REGULAR_MAX,
    RESERVE_MAX, UNIT_FIELDS, UNITS_MAX,
};
use legwork_model::address::{ADDRESS_BYTES_MAX, ADDRESS_PATTERN};
use legwork_model::yaml::fields::{EXPRESSION_LEN_MAX, NAME_LEN_MAX, TITLE_LEN_MAX};

/// The JSON Schema (2020-12) of organisation files.
pub fn json_schema() -> Value {
    let [organisation, units, positions, calendars, agents] = ORGANISATION_FIELDS;
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
            calendars: section("calendar", CALENDARS_MAX, "Working hours that people share."),
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
                "description": "A day (of the calendar; without one in UTC) or a moment as of RFC 3339.",
                "type": "string",
                "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].+)?$",
            },
            "day": { "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$" },
            "length": {
                "description": "A length of time such as 30m, 8h or 2d.",
                "type": "string",
                "pattern": "^[0-9]+(ms|s|m|h|d)$",
            },
            "unit": unit(),
            "position": position(),
            "calendar": calendar(),
            "agent": agent(),
            "regular": regular(),
            "absence": absence(),
        },
    })
}

fn section(kind: &str, count_max: usize, description: &str) -> Value {
    let entry = json!({ "$ref": format!("#/$defs/{kind}") });
    // A unit or an agent needs nothing but its name.
    let entry = if matches!(kind, "position" | "calendar") {
        entry
    } else {
        json!({ "anyOf": [entry, { "type": "null" }] })
    };
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

fn calendar() -> Value {
    let [zone, hours, closed] = CALENDAR_FIELDS;
    let [from, to] = ABSENCE_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [zone],
        "properties": {
            zone: {
                "type": "string",
                "minLength": 1,
                "maxLength": NAME_LEN_MAX,
                "description": "A time zone, such as Europe/Berlin.",
            },
            hours: {
                "description": "By days such as mon-fri; without it any hour will do.",
                "type": "object",
                "minProperties": 1,
                "propertyNames": { "pattern": "^[A-Za-z]{3,9}([-, ]+[A-Za-z]{3,9})*$" },
                "additionalProperties": {
                    "description": "Such as 08:00-12:00 12:30-16:30, or 22:00-06:00.",
                    "type": "string",
                    "pattern": "^ *[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2}([, ]+[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2})*[, ]*$",
                    "maxLength": EXPRESSION_LEN_MAX,
                },
            },
            closed: {
                "description": "Days on which nobody works.",
                "type": "array",
                "maxItems": CLOSED_MAX,
                "items": { "anyOf": [
                    { "$ref": "#/$defs/day" },
                    {
                        "type": "object",
                        "additionalProperties": false,
                        "required": [from, to],
                        "properties": {
                            from: { "$ref": "#/$defs/day", "description": "The first day." },
                            to: { "$ref": "#/$defs/day", "description": "The last day." },
                        },
                    },
                ] },
            },
        },
    })
}

fn regular() -> Value {
    let [task, at, every, takes, from] = REGULAR_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [task, takes],
        "oneOf": [
            { "required": [at], "not": { "required": [from] } },
            { "required": [every] },
        ],
        "properties": {
            task: { "$ref": "#/$defs/title", "description": "For people to read." },
            at: {
                "description": "Minute, hour, day of the month, month, day of the week, by the clock of the calendar: 0 8 * * mon-fri.",
                "type": "string",
                "pattern": "^ *[^ ]+( +[^ ]+){4} *$",
                "maxLength": EXPRESSION_LEN_MAX,
            },
            every: { "$ref": "#/$defs/length", "description": "Once in each period, at any time." },
            takes: { "$ref": "#/$defs/length" },
            from: { "$ref": "#/$defs/moment", "description": "When a period begins." },
        },
    })
}

fn agent() -> Value {
    let [
        name,
        mail,
        positions,
        roles,
        abilities,
        calendar,
        share,
        reserve,
        regularly,
        substitutes,
        absent,
    ] = AGENT_FIELDS;
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            name: { "$ref": "#/$defs/title", "description": "For people to read." },
            mail: {
                "description": "Where they can be written to.",
                "type": "string",
                "pattern": ADDRESS_PATTERN,
                "maxLength": ADDRESS_BYTES_MAX,
            },
            positions: { "$ref": "#/$defs/names", "description": "The positions they hold." },
            roles: { "$ref": "#/$defs/names", "description": "Further roles, held directly." },
            abilities: { "$ref": "#/$defs/names" },
            calendar: { "$ref": "#/$defs/name", "description": "Their hours; without one any." },
            share: {
                "description": "The per cent of their working time for work given out here.",
                "type": "integer",
                "minimum": 1,
                "maximum": 100,
                "default": 100,
            },
            reserve: {
                "description": "The per cent of that which is promised only after a fault: when a person falls ill, or an executor or a server is gone. Without it and without a share 15 per cent.",
                "type": "integer",
                "minimum": 0,
                "maximum": RESERVE_MAX,
            },
            regularly: {
                "description": "What they do anyway.",
                "type": "array",
                "items": { "$ref": "#/$defs/regular" },
                "maxItems": REGULAR_MAX,
            },
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
