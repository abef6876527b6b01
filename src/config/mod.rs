//! The job file: what was typed becomes a checked, complete [`Job`], or a list of problems.

mod filter;
mod job;

pub use filter::{InvalidPattern, TableFilter};
pub use job::*;
