//! Alluvium reads the changes that a database makes and keeps Delta Lake tables equal to the source
//! tables: no lost row, no doubled row, no stale row, at every version.
//!
//! The path of a change runs through the modules below from the last to the first; imports run the
//! other way only (`tests/tidy.rs` holds that order). `ARCHITECTURE.md` draws the whole.

pub mod batch;
pub mod change;
pub mod cli;
pub mod clock;
pub mod config;
pub mod failpoint;
pub mod lake;
pub mod maintain;
pub mod pipeline;
pub mod query;
pub mod schema;
pub mod source;
pub mod telemetry;
