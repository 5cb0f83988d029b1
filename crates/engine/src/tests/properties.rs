//! What holds for every process and every run.
