//! Events of a site as a whole: definitions, organisations, tokens, topologies and reconfigurations.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::{Performer, SchedulePut};
use crate::id::{DomainId, InstanceId, ServerId, instance_list, shared_text};
use crate::rate::Rate;

/// Events of the site, in the site's own stream.
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
        /// The YAML as it was published; its numbers continue those of the one before.
        #[n(1)]
        source: String,
        #[n(2)]
        by: Performer,
        /// To which instances the changed weights of domains apply. It ends the reconfiguration under
        /// way.
        #[cbor(n(3), skip_if = "Vec::is_empty")]
        rules: Vec<(DomainId, Validity)>,
    },
    /// A reconfiguration has begun that moves cases or servers: what it concerns is locked until the
    /// topology is published, or the reconfiguration undone.
    #[n(5)]
    ChangeBegun {
        /// The sequence number of the change, from 1.
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
    /// Instances that stay where they are in a domain: a portion of the exceptions of the reconfiguration
    /// under way.
    #[n(6)]
    Excepted {
        #[n(0)]
        domain: DomainId,
        #[cbor(n(1), with = "instance_list")]
        ids: Vec<InstanceId>,
    },
    /// The reconfiguration under way is given up; everything is as before.
    #[n(7)]
    ChangeUndone {
        #[n(0)]
        number: u32,
        #[n(1)]
        why: String,
        #[n(2)]
        by: Performer,
    },
    /// Ended instances that are no longer exceptions of a domain.
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
    /// A process is started periodically from now on; replaces the schedule of this name.
    #[n(12)]
    SchedulePut(#[n(0)] Box<SchedulePut>),
    #[n(13)]
    ScheduleRemoved {
        #[cbor(n(0), with = "shared_text")]
        name: Arc<str>,
        #[n(1)]
        by: Performer,
    },
    /// A schedule is paused, or resumed.
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

/// The dispatch policy of a type of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PolicySet {
    #[cbor(n(0), with = "shared_text")]
    pub job: Arc<str>,
    /// By name.
    #[cbor(n(1), with = "shared_text")]
    pub policy: Arc<str>,
    /// Whether the reason of each assignment is recorded in the history.
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
    /// The address at which it is called.
    #[cbor(n(1), with = "shared_text")]
    pub url: Arc<str>,
    /// Signs messages in both directions.
    #[n(2)]
    pub secret: Secret,
    /// The types of jobs that it does, with optional limits on concurrent jobs of each.
    #[n(3)]
    pub types: Vec<ExecutorType>,
    /// The limit on concurrent jobs of all types.
    #[n(4)]
    pub limit: u32,
    /// Its home domain.
    #[n(5)]
    pub domain: Option<String>,
    /// It is told whether its results count, and acknowledges.
    #[n(6)]
    pub verdicts: bool,
    #[n(7)]
    pub by: Performer,
    /// The rate limit of assignments, per server.
    #[n(8)]
    pub rate: Option<Rate>,
    /// Its share of the tasks under the policy `weighted`; 1 by default.
    #[n(9)]
    pub weight: Option<u32>,
    /// Its concurrency, if not its limit.
    #[n(10)]
    pub at_once: Option<u32>,
    /// Its regular work beside its tasks.
    #[cbor(n(11), skip_if = "Vec::is_empty")]
    pub regularly: Vec<RegularWork>,
    /// The part of its time, in per cent, that is promised only after a fault; none by default.
    #[n(12)]
    pub reserve: Option<u32>,
}

/// Work of this length at an unknown time in every period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RegularWork {
    #[n(0)]
    pub every_ms: u64,
    #[n(1)]
    pub takes_ms: u64,
}

/// A secret of an executor and the servers. It stays out of logs.
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

/// To which instances the new weights of a domain apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Validity {
    /// To those created later than this, in milliseconds since 1970.
    #[n(0)]
    Since {
        #[n(0)]
        ms: u64,
    },
    /// To all but this number of `Excepted` instances.
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
    /// The new ones apply to instances created from now on.
    #[default]
    #[n(0)]
    Since,
    /// The new ones apply to all instances that are not in the domain yet.
    #[n(1)]
    Except,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TokenIssued {
    #[n(0)]
    pub name: String,
    /// Hash of the secret; the secret itself is shown once and never stored.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
    /// In their text form, e.g. `admin`, `work:ann`.
    #[n(2)]
    pub scopes: Vec<String>,
    #[n(3)]
    pub by: Performer,
}
