//! Operations on tokens.
//!
//! Invariant: the secret leaves in one answer; what reaches the site is its hash.

use hyper::StatusCode;
use legwork_api::tokens::{NewToken, TokenList, TokenRequest, WhoAmI};
use legwork_site::{Answer, Request, Scope, UnknownScope};

use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;
use crate::ids::draw_token;

const SCOPES_MAX: usize = 100;

pub(super) async fn create(x: Exchange<'_>) -> Result {
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

pub(super) async fn list(x: Exchange<'_>) -> Result {
    let (after, limit) = (x.query.text("cursor").map(str::to_owned), x.query.limit()?);
    let answer = x.ask(Request::Tokens { after, limit }).await?;
    let Answer::Tokens { tokens, more } = answer else { return strange() };
    let next = tokens.last().filter(|_| more).map(|last| last.name.clone());
    Reply::json(&TokenList { tokens: tokens.into_iter().map(convert::token).collect(), next })
}

pub(super) async fn revoke(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    x.order(Request::RevokeToken { name: name.clone() }).await?;
    tracing::info!(%name, "token revoked");
    Reply::done()
}

pub(super) async fn whoami(x: Exchange<'_>) -> Result {
    let Answer::Caller { name, scopes } = x.ask(Request::WhoAmI).await? else { return strange() };
    Reply::json(&WhoAmI { name, scopes: scopes.iter().map(ToString::to_string).collect() })
}
