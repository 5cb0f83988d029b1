//! What happened to a site as a whole: definitions, organisations, tokens.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::shared_text;

/// What happened to the site itself, in the site's own stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum SiteEvent {
    #[n(0)]
    DefinitionDeployed {
        #[cbor(n(0), with = "shared_text")]
        process: Arc<str>,
        #[n(1)]
        version: u32,
        /// The YAML as it was deployed; compiled anew at every start.
        #[n(2)]
        source: String,
        #[n(3)]
        by: Performer,
    },
    #[n(1)]
    OrganisationPublished {
        #[n(0)]
        version: u32,
        #[n(1)]
        source: String,
        #[n(2)]
        by: Performer,
    },
    #[n(2)]
    TokenIssued(#[n(0)] TokenIssued),
    #[n(3)]
    TokenRevoked {
        #[n(0)]
        name: String,
        #[n(1)]
        by: Performer,
    },
    #[n(4)]
    TopologyPublished {
        #[n(0)]
        epoch: u32,
        /// The YAML as it was published; its numbers go on from the one before.
        #[n(1)]
        source: String,
        #[n(2)]
        by: Performer,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TokenIssued {
    #[n(0)]
    pub name: String,
    /// Hash of the secret; the secret itself is shown once and never kept.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
    /// In their text form, e.g. `admin`, `work:ann`.
    #[n(2)]
    pub scopes: Vec<String>,
    #[n(3)]
    pub by: Performer,
}
