//! What servers say to each other.
//!
//! A message may be lost, repeated or late: whoever needs an answer says it again, and whoever has
//! acted on one already answers again. Numbers in `#[n(…)]` are the wire format: servers of
//! different versions understand each other's as long as the rules of `event` are kept.

use std::sync::Arc;
use std::time::Duration;

use crate::planning::Reserving;
use legwork_model::event::{Entry, FetchedValue, Parcel, RecordedAt, Replanned, TaskKey};
use legwork_model::id::{
    Activity, ActivityId, AgentId, ElementId, InstanceId, Iteration, ServerId, StreamId,
};
use legwork_model::time::Timestamp;
use legwork_org::Cursor;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::answer::ItemInfo;

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Message {
    /// A parcel, with the entries that the receiver lacks or, without any, with the question which
    /// ones those are.
    #[n(0)]
    Offer(#[n(0)] Box<Offer>),
    /// The answer: all up to these activities is known here.
    #[n(1)]
    Known {
        #[n(0)]
        parcel: ParcelId,
        #[n(1)]
        last: Vec<Activity>,
    },
    /// The parcel is stored here.
    #[n(2)]
    Taken {
        #[n(0)]
        parcel: ParcelId,
    },
    /// Please send values that were written, or read, there.
    #[n(3)]
    Want {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        values: Vec<Wanted>,
    },
    /// The values, as far as they are here.
    #[n(4)]
    Have {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        values: Vec<FetchedValue>,
    },
    /// The catalog has so many records here: who has more sends them, who has fewer asks for them.
    #[n(5)]
    CatalogWanted {
        #[n(0)]
        have: u64,
        /// Please say how much is there, even if it is just as much.
        #[cbor(n(1), skip_if = "is_no")]
        answer: bool,
    },
    /// Records of the catalog, as they are stored.
    #[n(6)]
    Catalog {
        /// The number of the first one.
        #[n(0)]
        from: u64,
        /// What all records before it come to: see `chain`.
        #[n(1)]
        before: u64,
        #[n(2)]
        records: Vec<ByteVec>,
    },
    /// Please tell what there is to do for a person, and what changes.
    #[n(7)]
    Follow(#[n(0)] Follow),
    /// What there is to do for a person, or what has changed of it.
    #[n(8)]
    Items(#[n(0)] Box<Items>),
    /// What the registrar has to know to end a change, of a server that is locked by it.
    #[n(9)]
    Report(#[n(0)] Report),
    /// A server has moved: its store is at its new host, as a whole.
    #[n(10)]
    Moved {
        #[n(0)]
        change: u32,
        #[n(1)]
        server: ServerId,
    },
    /// Was this idempotency key used there? Or was this case there, where it is over then?
    #[n(11)]
    KeyWanted(#[n(0)] KeyQuestion),
    #[n(12)]
    KeyUsed {
        #[n(0)]
        question: KeyQuestion,
        #[n(1)]
        is_used: bool,
    },
    /// Instances that are exceptions of the sender's domain and have ended.
    #[n(13)]
    Over {
        #[cbor(n(0), with = "legwork_model::id::instance_list")]
        ids: Vec<InstanceId>,
    },
    /// How many records of instances the sender has written since it last told.
    #[n(14)]
    Load {
        #[n(0)]
        written: u64,
    },
    /// How far a planned step is, to its planner and to the server that started the instance: resent until acknowledged.
    #[n(16)]
    Step {
        #[n(0)]
        task: TaskKey,
        #[n(1)]
        stage: Stage,
        /// How long it took, in milliseconds of working time, if that is known.
        #[n(2)]
        took_ms: Option<u64>,
        /// Of the change, at the server that told of it first: higher each time. 0 if it is said once.
        #[cbor(n(3), skip_if = "is_none")]
        number: u64,
        /// For how long it is so.
        #[cbor(n(4), skip_if = "is_none")]
        ago_ms: u64,
        /// Who has claimed it.
        #[n(5)]
        holder: Option<AgentId>,
    },
    /// Steps of an instance are planned otherwise from now on: resent until acknowledged.
    #[n(20)]
    Replanned {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        replanned: Box<Replanned>,
        /// Of the change, at the server that started the instance: higher each time.
        #[n(2)]
        number: u64,
    },
    /// The change is acknowledged.
    #[n(21)]
    PlanHeard {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        number: u64,
    },
    /// Word of a step is acknowledged.
    #[n(22)]
    StepHeard {
        #[n(0)]
        task: TaskKey,
        #[n(1)]
        number: u64,
    },
    /// Reservations in plans: see `planning`. Numbers 15 and 17 to 19 were of the messages that these replaced.
    #[n(23)]
    Reserve(#[n(0)] Box<Reserving>),
}

/// How far a promised step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Stage {
    /// Nobody works on it, or nobody any more.
    #[n(0)]
    Waiting,
    #[n(1)]
    Begun,
    #[n(2)]
    Over,
}

/// It comes in parts, each of which tells of all that there are between two ids: so parts that were
/// said before and after a restart fit together. It is said again until the change is over.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Report {
    #[n(0)]
    pub change: u32,
    /// The latest moment of creation among its clock and all instances it has.
    #[n(1)]
    pub latest_ms: u64,
    /// Of the instances it has and whose server would change, those after this one.
    #[n(2)]
    pub after: Option<Instance>,
    #[cbor(n(3), with = "legwork_model::id::instance_list")]
    pub ids: Vec<InstanceId>,
    /// There are more after these.
    #[n(4)]
    pub more: bool,
    /// How many instances it has.
    #[n(5)]
    pub open: u64,
}

/// A key or a case, and under how many versions of its domain's weights it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct KeyQuestion {
    /// The stream of the key or case.
    #[cbor(n(0), with = "legwork_model::id::stream_bytes")]
    pub key: StreamId,
    #[n(1)]
    pub versions: u32,
}

/// An instance on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Instance(#[cbor(n(0), with = "legwork_model::id::instance_bytes")] pub InstanceId);

/// A parcel of an instance from one server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ParcelId {
    #[n(0)]
    pub instance: Instance,
    #[n(1)]
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Offer {
    #[n(0)]
    pub id: ParcelId,
    #[cbor(n(1), with = "legwork_model::id::shared_text")]
    pub process: Arc<str>,
    #[n(2)]
    pub version: u32,
    #[n(3)]
    pub parcel: Parcel,
    /// `None` asks which ones are lacking.
    #[n(4)]
    pub entries: Option<Vec<Entry>>,
    /// These are not all: when they are stored, the receiver says how far it knows the history
    /// then, and gets more.
    #[cbor(n(5), skip_if = "is_whole")]
    pub is_part: bool,
    /// Of the topology that the sender knows, if it is not the first: whoever takes the parcel must
    /// know that one too.
    #[n(6)]
    pub epoch: Option<u32>,
}

fn is_whole(is_part: &bool) -> bool {
    !is_part
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn is_no(answer: &bool) -> bool {
    !answer
}

/// A version of a data element: its writer tells which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Wanted {
    #[n(0)]
    pub element: ElementId,
    #[n(1)]
    pub writer: Activity,
}

/// Answered at once, and from then on whenever something has changed, for some time.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Follow {
    #[n(0)]
    pub agent: AgentId,
    /// Comes back with every answer; each question has its own.
    #[n(1)]
    pub question: u64,
    /// How far the follower has read; from the beginning without it.
    #[n(2)]
    pub since: Option<Mark>,
    /// For how long; 0 ends it.
    #[n(3)]
    pub seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Items {
    #[n(0)]
    pub agent: AgentId,
    #[n(1)]
    pub question: u64,
    /// Counts the answers to one question, from 0 on: one that is lost is missed.
    #[n(2)]
    pub number: u32,
    /// How far it was told before this; `None` if the list begins anew.
    #[n(3)]
    pub after: Option<Mark>,
    /// How far it is told with this.
    #[n(4)]
    pub cursor: Mark,
    /// The rest comes when it is asked for.
    #[n(5)]
    pub more: bool,
    #[cbor(n(6), skip_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    #[cbor(n(7), skip_if = "Vec::is_empty")]
    pub removed: Vec<Named>,
}

/// How far a list was read; a matter of the server that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Mark(#[n(0)] pub [u64; 5]);

/// An item with all there is to show of it: the receiver need not know its definition.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Item {
    #[n(0)]
    pub activity: Named,
    #[cbor(n(1), with = "legwork_model::id::shared_text")]
    pub process: Arc<str>,
    #[cbor(n(2), with = "legwork_model::id::shared_text")]
    pub title: Arc<str>,
    #[cbor(n(3), with = "legwork_model::event::relative")]
    pub offered_at: Timestamp,
    #[n(4)]
    pub claimed_by: Option<AgentId>,
    #[n(5)]
    pub takes_ms: Option<u64>,
    #[n(6)]
    pub on_behalf_of: Option<AgentId>,
    #[n(7)]
    pub due: Option<Timestamp>,
    #[n(8)]
    pub planned_for: Option<AgentId>,
}

/// An activity by its public name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Named {
    #[n(0)]
    pub instance: Instance,
    #[cbor(n(1), with = "legwork_model::id::shared_text")]
    pub step: Arc<str>,
    #[cbor(n(2), skip_if = "is_outside_of_loops")]
    pub iteration: Iteration,
}

fn is_outside_of_loops(iteration: &Iteration) -> bool {
    iteration.0.is_empty()
}

impl Item {
    /// What is to be shown of it.
    pub(crate) fn info(
        &self,
        activity: &ActivityId,
        server: Option<Arc<str>>,
        stale: bool,
    ) -> ItemInfo {
        ItemInfo {
            activity: activity.clone(),
            process: self.process.clone(),
            title: self.title.clone(),
            offered_at: self.offered_at,
            claimed_by: self.claimed_by.clone(),
            takes: self.takes_ms.map(Duration::from_millis),
            due: self.due,
            planned_for: self.planned_for.clone(),
            on_behalf_of: self.on_behalf_of.clone(),
            server,
            stale,
        }
    }
}

impl From<ItemInfo> for Item {
    fn from(info: ItemInfo) -> Self {
        Self {
            activity: info.activity.into(),
            process: info.process,
            title: info.title,
            offered_at: info.offered_at,
            claimed_by: info.claimed_by,
            takes_ms: info.takes.map(|takes| takes.as_millis() as u64),
            on_behalf_of: info.on_behalf_of,
            due: info.due,
            planned_for: info.planned_for,
        }
    }
}

impl From<ActivityId> for Named {
    fn from(ActivityId { instance, step, iteration }: ActivityId) -> Self {
        Self { instance: Instance(instance), step, iteration }
    }
}

impl From<Named> for ActivityId {
    fn from(Named { instance: Instance(instance), step, iteration }: Named) -> Self {
        Self { instance, step, iteration }
    }
}

impl From<Cursor> for Mark {
    fn from(cursor: Cursor) -> Self {
        Self(cursor.numbers())
    }
}

impl From<Mark> for Cursor {
    fn from(Mark(numbers): Mark) -> Self {
        Self::from_numbers(numbers)
    }
}
