//! What planners say to each other.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::task::{Promise, Task, TaskId};

/// A message, and with every message what part of its time the sender has left, in thousandths.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Said {
    #[n(0)]
    pub to: ServerId,
    #[n(1)]
    pub surplus: i64,
    #[n(2)]
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Message {
    #[n(0)]
    Offer(#[n(0)] Offer),
    /// How much time do you have for this? Answered by a bid.
    #[n(1)]
    Request {
        #[n(0)]
        task: Box<Task>,
        #[n(1)]
        reply_to: ServerId,
        #[n(2)]
        until: Timestamp,
    },
    /// It would fit here so many times; if not even once, from when on it would.
    #[n(2)]
    Bid {
        #[n(0)]
        task: TaskId,
        #[n(1)]
        bid: i64,
        #[n(2)]
        until: Timestamp,
        #[n(3)]
        earliest: Option<Timestamp>,
        /// Others would have to make way.
        #[n(4)]
        makes_room: bool,
    },
    /// What became of tasks that were offered together; to whoever asked for them. A promise is said again
    /// until it is confirmed or cancelled.
    #[n(3)]
    Answer {
        #[n(0)]
        tasks: Vec<TaskId>,
        #[n(1)]
        promises: Option<Vec<Promise>>,
        #[n(2)]
        earliest: Option<Timestamp>,
        #[n(3)]
        attempt: u64,
    },
    /// What was promised in this attempt, or in one before it, is not wanted any more.
    #[n(4)]
    Cancel {
        #[n(0)]
        task: TaskId,
        #[n(1)]
        attempt: u64,
    },
    /// A task that the sender has promised: keep it in case the sender is lost.
    #[n(5)]
    Keep {
        #[n(0)]
        task: Box<Task>,
    },
    /// A task that was kept is over.
    #[n(6)]
    Done {
        #[n(0)]
        task: TaskId,
    },
    /// The promises are counted on. If room was taken for them, they go ahead, with all of their case that has taken room in
    /// the same plan: those who make way are told now, and not before.
    #[n(7)]
    Confirm {
        #[n(0)]
        tasks: Vec<TaskId>,
        #[n(1)]
        attempt: u64,
    },
    /// A promise is taken back: for something more important, or because whoever had promised it is lost.
    /// Said again until it is answered by a cancellation.
    #[n(8)]
    TakenBack {
        #[n(0)]
        task: TaskId,
        #[n(1)]
        attempt: u64,
        #[n(2)]
        is_lost: bool,
        /// Whoever had promised it works on it all the same, and will be late: nobody else is to do it.
        #[cbor(n(3), default)]
        goes_on: bool,
    },
    /// Room was held in an earlier attempt: it is taken, and promised in this one. Those who make way hear of it when that is
    /// confirmed. Answered as an offer is. With the same attempt twice: whoever asked knows that it is taken, and has not
    /// decided yet; that is not answered.
    #[n(9)]
    Take {
        #[n(0)]
        task: TaskId,
        #[n(1)]
        earlier: u64,
        #[n(2)]
        attempt: u64,
    },
}

/// Promise these, all of them, or pass them on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Offer {
    #[n(0)]
    pub tasks: Vec<Task>,
    /// Who wants to know.
    #[n(1)]
    pub asker: ServerId,
    /// Whom to try next.
    #[n(2)]
    pub next: Vec<ServerId>,
    /// Bids for it come to whoever gets the offer, up to this moment.
    #[n(3)]
    pub bids_until: Option<Timestamp>,
    /// The earliest date that anybody asked before could have promised.
    #[n(4)]
    pub earliest: Option<Timestamp>,
    /// Which attempt of the asker this is: what is said about an earlier one does not count any more.
    #[n(5)]
    pub attempt: u64,
}
