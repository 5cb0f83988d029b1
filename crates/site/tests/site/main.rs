//! All tests of a site, in one binary: each of their files linked alone takes as long as all of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a wrong assumption is a failed test"
)]

mod access;
mod ahead;
mod branches;
mod catalog;
mod deadline_passed;
mod deadlines;
mod executor_bounds;
mod executors;
mod following;
mod jumps;
mod keys;
mod large_data;
mod learned;
mod limits;
mod locality;
mod mail;
mod message_bytes;
mod mixed;
mod peers;
mod planners;
mod planners_lost;
mod policies;
mod promise_letters;
mod promise_letters_apart;
mod promised_again;
mod promised_jobs;
mod published;
mod reassigned;
mod reconfigure;
mod refused_changes;
mod regular;
mod resources;
mod rounds;
mod schedules;
mod schedules_elsewhere;
mod small_values;
mod stand_ins;
mod support;
mod taken_by_others;
mod together;
mod turns;
mod watch;
mod whereabouts;
mod wishes;
mod word_of_steps;
mod work;
mod workers_promise;
