//! The documents the server gives out about itself: OpenAPI and the JSON Schemas.
//!
//! Invariant: made once, from the same types and the same table of routes that the server runs on.

use std::sync::OnceLock;

use bytes::Bytes;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::{
    cluster, deadlines, definitions, events, executors, files, instances, jobs, links, schedules,
    starts, system, tokens, topology, work,
};

pub(crate) fn openapi() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let make = || Bytes::from(Document::openapi().to_pretty_json().unwrap_or_default());
    DOCUMENT.get_or_init(make).clone()
}

pub(crate) fn definition_schema() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| pretty(&legwork_model::json_schema::definition())).clone()
}

pub(crate) fn organisation_schema() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| pretty(&legwork_org::json_schema())).clone()
}

pub(crate) fn topology_schema() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| pretty(&legwork_placement::json_schema())).clone()
}

fn pretty(json: &serde_json::Value) -> Bytes {
    Bytes::from(format!("{json:#}"))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Legwork",
        description = "Workflows that go where the work is. Every refusal is an \
            `application/problem+json` with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        definitions::deploy, definitions::list, definitions::show,
        definitions::definition_versions,
        definitions::publish_organisation, definitions::organisation,
        definitions::organisation_versions, definitions::check,
        topology::publish, topology::show, topology::epochs,
        cluster::show, cluster::changes, cluster::undo, cluster::prepare,
        starts::start, instances::list, instances::show, instances::history,
        instances::suspend, instances::resume, instances::abort, instances::incidents,
        instances::resolve, deadlines::ask, deadlines::plan,
        work::worklist, events::worklist_events, work::item, work::claim, work::release,
        work::delegate, work::complete,
        jobs::activate, jobs::complete, jobs::fail, jobs::extend, jobs::give_back,
        executors::register, executors::remove, executors::list, executors::report,
        executors::set_policy, executors::policies,
        schedules::put, schedules::remove, schedules::pause, schedules::resume, schedules::show,
        schedules::list,
        files::upload, files::download, files::of_item,
        tokens::create, tokens::list, tokens::revoke, tokens::whoami,
        links::list, system::backup, system::openapi, system::definition_schema,
        system::organisation_schema, system::topology_schema,
        system::metrics, system::health, system::ready,
    ),
    components(schemas(legwork_api::Problem)),
    modifiers(&Refusals, &Bearer, &Calls),
    security(("bearer" = []), ()),
    tags(
        (name = "definitions", description = "Processes and the organisation"),
        (name = "instances", description = "Running and ended cases"),
        (name = "deadlines", description = "What was promised for when"),
        (name = "work", description = "Work of people"),
        (name = "jobs", description = "Work of programs"),
        (name = "executors", description = "Services that do automatic steps"),
        (name = "schedules", description = "Processes that are started again and again"),
        (name = "files", description = "Content stored apart"),
        (name = "tokens", description = "Who may call"),
        (name = "cluster", description = "Several servers"),
        (name = "system", description = "The server itself"),
    ),
)]
struct Document;

/// Every operation can be refused.
struct Refusals;

impl Modify for Refusals {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
        let response = ResponseBuilder::new()
            .description("Refused; `code` says why")
            .content(legwork_api::problem::CONTENT_TYPE, Content::new(Some(schema)))
            .build();
        for path in openapi.paths.paths.values_mut() {
            let operations = [&mut path.get, &mut path.post, &mut path.put, &mut path.delete];
            for operation in operations.into_iter().flatten() {
                let responses = &mut operation.responses.responses;
                responses.insert("default".to_owned(), response.clone().into());
            }
        }
    }
}

/// What Legwork calls at executors.
struct Calls;

impl Modify for Calls {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let calls = legwork_api::webhooks::openapi();
        openapi.webhooks = calls.webhooks;
        if let (Some(components), Some(own)) = (&mut openapi.components, calls.components) {
            components.schemas.extend(own.schemas);
            components.security_schemes.extend(own.security_schemes);
        }
    }
}

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token that `legwork token create` printed"))
            .build();
        if let Some(components) = &mut openapi.components {
            components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
        }
    }
}
