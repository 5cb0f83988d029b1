//! The documents the server gives out about itself: OpenAPI and the JSON Schemas.
//!
//! Invariant: made once, from the same types and the same table that the server runs on.

use std::sync::OnceLock;

use bytes::Bytes;
use legwork_api::endpoints::{Schemas, Verb};
use legwork_api::webhooks::SIGNATURE;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Content, HttpMethod, Ref, Required, ResponseBuilder, Responses, ResponsesBuilder,
    SecurityRequirement,
};
use utoipa::{Modify, OpenApi};

use super::endpoints::ROUTES;
use super::exchange::Exchange;
use super::query::{Parameter, text};
use super::reply::{Reply, Result};
use super::route::{Needs, Route};

pub(crate) fn openapi() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let make = || Bytes::from(Document::openapi().to_pretty_json().unwrap_or_default());
    DOCUMENT.get_or_init(make).clone()
}

pub(super) async fn definition_schema(_: Exchange<'_>) -> Result {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let schema = || pretty(&legwork_model::json_schema::definition());
    Reply::document(DOCUMENT.get_or_init(schema).clone())
}

pub(super) async fn organisation_schema(_: Exchange<'_>) -> Result {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    Reply::document(DOCUMENT.get_or_init(|| pretty(&legwork_org::json_schema())).clone())
}

pub(super) async fn topology_schema(_: Exchange<'_>) -> Result {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    Reply::document(DOCUMENT.get_or_init(|| pretty(&legwork_placement::json_schema())).clone())
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
    components(schemas(legwork_api::Problem)),
    modifiers(&Table, &Bearer, &Calls),
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

/// What is in the table.
struct Table;

impl Modify for Table {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let mut schemas = Schemas::new();
        for route in ROUTES {
            let method = match route.verb {
                Verb::Get => HttpMethod::Get,
                Verb::Post => HttpMethod::Post,
                Verb::Put => HttpMethod::Put,
                Verb::Delete => HttpMethod::Delete,
            };
            let operation = operation(route, &mut schemas);
            openapi.paths.add_path_operation(route.path, vec![method], operation);
        }
        if let Some(components) = &mut openapi.components {
            components.schemas.extend(schemas);
        }
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> OperationBuilder {
    let about: Vec<&str> = route.about.iter().map(|line| line.trim()).collect();
    let mut operation = OperationBuilder::new()
        .tag(route.tag)
        .summary(Some(about.join("\n")))
        .operation_id(Some(route.name.to_lowercase()))
        .responses(responses(route, schemas));
    if let Some((_, rest)) = route.path.split_once('{') {
        let name = rest.split('}').next().unwrap_or_default();
        let segment = Parameter { is_required: true, ..text(name, route.segment) };
        operation = operation.parameter(parameter(&segment, ParameterIn::Path));
    }
    for known in route.parameters {
        let place = if known.is_header { ParameterIn::Header } else { ParameterIn::Query };
        operation = operation.parameter(parameter(known, place));
    }
    let taken = (route.takes)(schemas);
    if !taken.is_empty() {
        let mut body = RequestBodyBuilder::new().required(Some(Required::True));
        for (media, mut content) in taken {
            if media == "text/yaml" {
                content.example = Some(route.example.into());
            }
            body = body.content(media, content);
        }
        operation = operation.request_body(Some(body.build()));
    }
    match route.needs {
        Needs::Open => operation.security(SecurityRequirement::default()),
        Needs::Signature => operation.security(SecurityRequirement::new(SIGNATURE, [""; 0])),
        Needs::Any | Needs::Admin | Needs::Start | Needs::Work | Needs::Worker | Needs::Plan => {
            operation
        }
    }
}

fn parameter(parameter: &Parameter, place: ParameterIn) -> ParameterBuilder {
    let required = if parameter.is_required { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(place)
        .required(required)
        .description(Some(parameter.about).filter(|about| !about.is_empty()))
        .schema(Some((parameter.schema)()))
}

/// Every operation can be refused.
fn responses(route: &Route, schemas: &mut Schemas) -> Responses {
    let answered = (route.answers)(schemas);
    let usual = [(if answered.is_empty() { 204 } else { 200 }, "")];
    let statuses = if route.statuses.is_empty() { &usual[..] } else { route.statuses };
    let mut responses = ResponsesBuilder::new();
    for (status, about) in statuses {
        let mut response = ResponseBuilder::new().description(*about);
        for (media, content) in &answered {
            response = response.content(*media, content.clone());
        }
        responses = responses.response(status.to_string(), response);
    }
    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
    let refused = ResponseBuilder::new()
        .description("Refused; `code` says why")
        .content(legwork_api::problem::CONTENT_TYPE, problem);
    responses.response("default", refused).build()
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
