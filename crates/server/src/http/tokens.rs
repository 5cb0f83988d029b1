//! Operations on tokens.
//!
//! Invariant: the secret leaves in one answer; what reaches the site is its hash.

use hyper::StatusCode;
use legwork_api::tokens::{NewToken, TokenList, TokenRequest, WhoAmI};
use legwork_site::{Answer, Request, Scope, UnknownScope};

use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result};
use crate::convert;
use crate::ids::draw_token;

const SCOPES_MAX: usize = 100;

/// Makes a token. From the first one on, nothing goes without.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", operation_id = "create_token",
    request_body = TokenRequest,
    responses((status = 201, body = NewToken)),
)]
pub(super) async fn create(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let TokenRequest { name, scopes } = x.json()?;
    if scopes.is_empty() || scopes.len() > SCOPES_MAX {
        let detail = format!("a token has 1 to {SCOPES_MAX} scopes");
        return Err(Refused::bad_request("bad_scopes", detail));
    }
    let scopes: std::result::Result<Vec<Scope>, UnknownScope> =
        scopes.iter().map(|scope| scope.parse()).collect();
    let scopes = scopes.map_err(|error| Refused::bad_request("bad_scopes", error.to_string()))?;
    let (token, hash) = draw_token().map_err(|error| Refused::fault(&error))?;
    x.order(Request::IssueToken { name: name.clone(), hash, scopes }).await?;
    tracing::info!(%name, "token created");
    Reply::json_with(StatusCode::CREATED, &NewToken { name, token })
}

/// The tokens there are, by name, without their secrets.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens", operation_id = "tokens",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses((status = 200, body = TokenList)),
)]
pub(super) async fn list(x: Exchange<'_>) -> Result {
    let query = x.query(&["limit", "cursor"])?;
    let (after, limit) = (query.text("cursor").map(str::to_owned), query.limit()?);
    let Answer::Tokens { tokens, more } = x.ask(Request::Tokens { after, limit }).await? else {
        return Err(Refused::strange_answer());
    };
    let next = tokens.last().filter(|_| more).map(|last| last.name.clone());
    Reply::json(&TokenList { tokens: tokens.into_iter().map(convert::token).collect(), next })
}

/// Takes a token back.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", tag = "tokens", operation_id = "revoke_token",
    params(("name" = String, Path)),
    responses((status = 204)),
)]
pub(super) async fn revoke(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let name = x.name()?;
    x.order(Request::RevokeToken { name: name.clone() }).await?;
    tracing::info!(%name, "token revoked");
    Reply::done()
}

/// Who the caller is and what they may do.
#[utoipa::path(
    get, path = "/v1/whoami", tag = "tokens", operation_id = "whoami",
    responses((status = 200, body = WhoAmI)),
)]
pub(super) async fn whoami(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let Answer::Caller { name, scopes } = x.ask(Request::WhoAmI).await? else {
        return Err(Refused::strange_answer());
    };
    Reply::json(&WhoAmI { name, scopes: scopes.iter().map(ToString::to_string).collect() })
}
