//! What happened to a site as a whole: definitions, organisations, tokens, topologies and how one
//! becomes the next.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::{Performer, SchedulePut};
use crate::id::{DomainId, InstanceId, ServerId, instance_list, shared_text};
use crate::rate::Rate;

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
        /// From when the weights of domains count that this topology changes. It ends the change
        /// that was under way.
        #[cbor(n(3), skip_if = "Vec::is_empty")]
        rules: Vec<(DomainId, Validity)>,
    },
    /// A topology is on its way that moves cases or servers: what it concerns is locked until it
    /// is published, or undone.
    #[n(5)]
    ChangeBegun {
        /// Counts the changes, from 1.
        #[n(0)]
        number: u32,
        #[n(1)]
        source: String,
        #[n(2)]
        method: Method,
        #[n(3)]
        by: Performer,
        /// Servers that are down for good and not waited for.
        #[cbor(n(4), skip_if = "Vec::is_empty")]
        without: Vec<ServerId>,
    },
    /// Instances that stay where they are in a domain, of the change under way: some of them.
    #[n(6)]
    Excepted {
        #[n(0)]
        domain: DomainId,
        #[cbor(n(1), with = "instance_list")]
        ids: Vec<InstanceId>,
    },
    /// The change that was under way is given up; all is as it was before.
    #[n(7)]
    ChangeUndone {
        #[n(0)]
        number: u32,
        #[n(1)]
        why: String,
        #[n(2)]
        by: Performer,
    },
    /// Instances that have ended: they need not be kept as exceptions of a domain any longer.
    #[n(8)]
    Unexcepted {
        #[n(0)]
        domain: DomainId,
        #[cbor(n(1), with = "instance_list")]
        ids: Vec<InstanceId>,
    },
    #[n(9)]
    ExecutorRegistered(#[n(0)] Box<ExecutorRegistered>),
    #[n(10)]
    ExecutorRemoved {
        #[cbor(n(0), with = "shared_text")]
        name: Arc<str>,
        #[n(1)]
        by: Performer,
    },
    #[n(11)]
    PolicySet(#[n(0)] Box<PolicySet>),
    /// A process is started again and again from now on, instead of what was said under this name before.
    #[n(12)]
    SchedulePut(#[n(0)] Box<SchedulePut>),
    #[n(13)]
    ScheduleRemoved {
        #[cbor(n(0), with = "shared_text")]
        name: Arc<str>,
        #[n(1)]
        by: Performer,
    },
    /// Nothing is started under this name for a while, or it is again.
    #[n(14)]
    SchedulePaused {
        #[cbor(n(0), with = "shared_text")]
        name: Arc<str>,
        #[n(1)]
        is_paused: bool,
        #[n(2)]
        by: Performer,
    },
}

/// Who chooses the executors of a type of jobs from now on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PolicySet {
    #[cbor(n(0), with = "shared_text")]
    pub job: Arc<str>,
    /// By name.
    #[cbor(n(1), with = "shared_text")]
    pub policy: Arc<str>,
    /// The reason of each assignment is kept in the history.
    #[n(2)]
    pub recorded: bool,
    #[n(3)]
    pub by: Performer,
}

/// A service that does automatic steps.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExecutorRegistered {
    #[cbor(n(0), with = "shared_text")]
    pub name: Arc<str>,
    /// Where it is called.
    #[cbor(n(1), with = "shared_text")]
    pub url: Arc<str>,
    /// Signs what is said in either direction.
    #[n(2)]
    pub secret: Secret,
    /// The types of jobs it does, and how many of each at a time, if that is limited.
    #[n(3)]
    pub types: Vec<ExecutorType>,
    /// How many in all, at a time.
    #[n(4)]
    pub limit: u32,
    /// Where it is at home.
    #[n(5)]
    pub domain: Option<String>,
    /// It is told whether its results count, and confirms.
    #[n(6)]
    pub verdicts: bool,
    #[n(7)]
    pub by: Performer,
    /// How many are given to it in so long, by each server.
    #[n(8)]
    pub rate: Option<Rate>,
    /// Its part of the tasks where they are given out by weights; 1 if nothing is said.
    #[n(9)]
    pub weight: Option<u32>,
    /// On how many it works at a time, if not on all that it takes.
    #[n(10)]
    pub at_once: Option<u32>,
    /// What it does again and again beside its tasks.
    #[cbor(n(11), skip_if = "Vec::is_empty")]
    pub regularly: Vec<RegularWork>,
    /// The part of its time, in per cent, that is promised only after a fault; none if nothing is said.
    #[n(12)]
    pub reserve: Option<u32>,
}

/// So much at some time in every period, nobody knows when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RegularWork {
    #[n(0)]
    pub every_ms: u64,
    #[n(1)]
    pub takes_ms: u64,
}

/// What an executor and the servers alone know. It stays out of logs.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Secret(#[n(0)] pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A type of jobs that an executor does.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ExecutorType {
    #[cbor(n(0), with = "shared_text")]
    pub job: Arc<str>,
    #[n(1)]
    pub limit: Option<u32>,
    #[n(2)]
    pub rate: Option<Rate>,
}

/// For which instances the new weights of a domain count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Validity {
    /// Those created later than this, in milliseconds since 1970.
    #[n(0)]
    Since {
        #[n(0)]
        ms: u64,
    },
    /// All but those that were `Excepted`: so many.
    #[n(1)]
    Except {
        #[n(0)]
        ids: u32,
    },
}

/// How the weights of a domain are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Method {
    /// The new ones count for instances that are created from now on.
    #[default]
    #[n(0)]
    Since,
    /// The new ones count for all instances that are not in the domain yet.
    #[n(1)]
    Except,
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
