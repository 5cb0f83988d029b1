//! Cases as a whole: what is asked of them, what is recorded of them, and the keys they are started by.

pub(crate) mod control;
pub(crate) mod earlier;
pub(crate) mod earlier_cases;
pub(crate) mod instances;
pub(crate) mod keys;
pub(crate) mod merged_history;
pub(crate) mod step;
pub(crate) mod summary;
pub(crate) mod view;
