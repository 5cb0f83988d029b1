//! The compared policies, by name.

use legwork_schedule::{Adaptive, Book, Limits, Policy, named};

use super::drawn::Drawn;
use super::world::Chooser;
use super::{EXECUTORS, KINDS};

/// The policies compared when nothing fails. Recorded figures have `adaptive` under its former name, `ours`.
pub(super) const ALL: [&str; 12] = [
    "random",
    "round-robin",
    "weighted",
    "least-outstanding",
    "two-choices",
    "oxthas-1",
    "oxthas-2",
    "oxthas-3",
    "oxthas-4",
    "oxthas-5",
    "oxthas-6",
    "ours",
];

/// OXTHAS-3, by how it divides sizes among the best.
pub(super) const PARTITIONS: [&str; 5] =
    ["equal", "integers", "rates", "integers-reversed", "rates-reversed"];

/// OXTHAS-3 with its adjustments, when an executor dies.
pub(super) const ADJUSTMENTS: [&str; 4] = ["none", "capability", "timeout", "both"];

pub(super) fn chooser(name: &str, seed: u64) -> Chooser {
    let full = match name {
        "none" => "oxthas-3".to_owned(),
        name if PARTITIONS.contains(&name) || ADJUSTMENTS.contains(&name) => {
            format!("oxthas-3-{name}")
        }
        name => name.to_owned(),
    };
    let policy: Box<dyn Policy> = named(&full, seed).unwrap_or_else(|| Box::<Adaptive>::default());
    Chooser { policy, warms_up: full.starts_with("oxthas"), gives_up: name == "ours" }
}

/// A book with the mean speed of each executor as its weight: an operator who sets weights knows that much,
/// and no other policy uses them.
pub(super) fn book(drawn: &Drawn) -> Book {
    let mean = |place| drawn.speeds.iter().map(|row| row[place]).sum::<f64>() / KINDS as f64;
    let mut book = Book::new(0);
    for place in 0..EXECUTORS {
        book.register(&Limits { weight: mean(place), ..Limits::default() });
    }
    book
}
