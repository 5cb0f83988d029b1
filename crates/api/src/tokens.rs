//! Tokens: who may call, and what.
//!
//! Invariant: a secret appears in exactly one answer, the one to its creation.

use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text;

/// Asks for a new token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    pub name: String,
    /// `admin`, `start`, `work:AGENT` (or `work:*` for anybody), `worker`.
    #[schema(example = json!(["work:ann"]))]
    pub scopes: Vec<String>,
}

/// A new token; its secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    pub name: String,
    /// Give it as `Authorization: Bearer …`.
    #[schema(example = "lw_…")]
    pub token: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub tokens: Vec<TokenSummary>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenSummary {
    pub name: String,
    pub scopes: Vec<String>,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub issued_at: Timestamp,
}

/// Who the caller is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The name of the token; absent while the server has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub scopes: Vec<String>,
}

/// Secrets stay out of logs.
impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("name", &self.name).finish_non_exhaustive()
    }
}
