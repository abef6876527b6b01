//! SQL over the tables of a lake, with time travel.
//!
//! ```text
//! SELECT o.id, o.total - old.total
//! FROM orders o JOIN orders VERSION AS OF 12 old ON o.id = old.id
//! ```
//!
//! The text of a query travels so: tokens (`statement`: `AS OF` clauses become part of the table's name) -> syntax
//! tree -> names resolved to tables of the lake (`relations`, `names`) -> each named table opened at its version
//! (`tables`, `travel`) -> names of columns respelled as the tables have them (`spelling`) -> DataFusion (`session`).
//! Nothing here writes to the lake.

mod catalog;
mod changes;
mod diff;
mod error;
mod gone;
mod moment;
mod names;
pub mod output;
mod relations;
pub mod row;
mod schema_log;
pub mod script;
mod session;
mod show;
mod spelling;
mod statement;
mod tables;
mod travel;

#[cfg(test)]
mod tests;

pub use diff::{Diff, DiffSummary, RowDifference};
pub use error::QueryError;
pub use moment::{MomentAsOf, PointRead};
pub use session::{Description, QueryLimits, QueryResult, Session};
