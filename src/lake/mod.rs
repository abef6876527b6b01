//! Everything Delta: tables that are made, grown and kept equal to their source by upserts.
//!
//! A batch of one table becomes at most one set of new data files, one file of deletion vectors (or, copy-on-write, the
//! files that it touches once more) and exactly one Delta commit, which also carries the batch's `txn`. Old rows are found by pruning with the
//! statistics of the Delta log, then those of the Parquet footers, then by comparing key columns. A row that has
//! not been compared is never deleted.

mod apply;
mod cache;
mod change_feed;
mod changes;
mod checkpoint;
mod commit;
mod compact;
mod create;
mod deletion;
mod error;
mod evolve;
mod files;
mod history;
mod ledger;
mod locate;
mod log;
mod old_values;
mod partition;
mod points;
mod restore;
mod rewrite;
mod scan;
mod schema;
mod schema_log;
mod settings;
mod state;
mod stats;
mod store;
mod table;
mod vacuum;
mod whole;
mod write;

#[cfg(test)]
mod tests;

pub use changes::{CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, Changes};
pub use checkpoint::LogCleanup;
pub use commit::{CommitOutcome, CommitSummary, CommitTag};
pub use compact::{CompactReport, CompactRules};
pub use error::{LakeError, LakeErrorKind};
pub use history::{RowHistory, RowOperation, RowState};
pub use ledger::{Ledger, LedgerEntry, LedgerError, SchemaRecord, SplitRecord, StopRecord, Work};
pub use points::{
    FOLD_POINTS_MIN, Folded, Point, PointState, PointTable, Points, batches_schema, rows as batches_rows,
};
pub use restore::RestorePlan;
pub use rewrite::Fills;
pub use scan::LakeScan;
pub use schema_log::{SchemaNote, SchemaStatus, notes_of, schema_log_rows, schema_log_schema};
pub use state::{JobState, LoadState, Stopped, TableState};
pub use store::{Lake, table_path};
pub use table::{LakeTable, TableStats};
pub use vacuum::VacuumReport;
