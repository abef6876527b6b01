//! A writer of random transactions with a memory of what the server held after each of them: what a lake is
//! compared with.
//!
//! The oracle is the server itself: after every transaction the tables that changed are read by SELECT and kept
//! with the log position at which they stood. One seed gives one sequence of statements.

mod compare;
mod statements;
mod tables;
mod values;
mod workload;

pub use compare::{assert_lake_equals, assert_versions};
pub use workload::Workload;

/// The seed of a test: its own, or `ALLUVIUM_SEED`. Printed, so that a failure can be run again.
pub fn seed(default: u64) -> u64 {
    let seed = std::env::var("ALLUVIUM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    println!("ALLUVIUM_SEED={seed}");
    seed
}
