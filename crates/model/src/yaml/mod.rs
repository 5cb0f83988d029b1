//! Process definitions as YAML: reads them with all findings, and writes them.
//!
//! Invariant: reading ends quickly and never panics, whatever the text; a definition without
//! findings can be compiled. What is written reads as the same definition.

mod blocks;
pub mod fields;
mod late;
mod names;
mod nearest;
mod process;
pub mod report;
pub mod tree;
mod values;
mod write;

pub(crate) use blocks::ROUNDS_DEFAULT;
pub use blocks::{
    BLOCK_DEPTH_MAX, BRANCHES_MAX, ITERATIONS_DEFAULT, ITERATIONS_MAX, NODES_MAX, ROUNDS_MAX,
};
pub use nearest::nearest;
pub(crate) use process::CONDITION_WORDS;
pub use process::{ELEMENTS_MAX, parse};
pub use values::{DURATION_MAX, RETRIES_MAX};
pub(crate) use values::{JOB_FIELDS, SIZE_MAX};
pub use write::write;

/// The known fields of each part of a definition.
#[cfg(test)]
pub(crate) mod known_fields {
    pub(crate) use super::blocks::{
        BRANCH_FIELDS, CHOICE_FIELDS, LOOP_FIELDS, PARALLEL_FIELDS, STEP_FIELDS,
    };
    pub(crate) use super::late::LATE_FIELDS;
    pub(crate) use super::process::{ELEMENT_FIELDS, PROCESS_FIELDS};
    pub(crate) use super::values::{RETRY_FIELDS, UNDO_FIELDS};
}
