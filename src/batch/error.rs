//! What can go wrong with a batch.

use std::path::PathBuf;

use arrow::error::ArrowError;

use crate::change::{InvalidBatch, TableId};

/// A failure of a batch. The batch is of no use after it: drop it and read again from its start.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    #[error(transparent)]
    Invalid(#[from] InvalidBatch),
    #[error(
        "a change of {table} has no value in key column {column}; the key of a row must not be null: \
         give the table another key"
    )]
    NullKey { table: TableId, column: String },
    #[error("{table} has no usable key: {what}")]
    Key { table: TableId, what: String },
    #[error("changes of {table} under schema version {found} in a batch that holds version {expected}; close it first")]
    SchemaChanged { table: TableId, expected: u32, found: u32 },
    #[error("{rows} changes of an open transaction at the end of a batch, which holds whole transactions only")]
    OpenTransaction { rows: u64 },
    #[error("a batch without a transaction boundary has no position to go on from")]
    NoBoundary,
    #[error("a rollback keeps {keep} row events of a transaction that has only {open}")]
    Discard { keep: usize, open: usize },
    #[error("cannot {action} the spill file in {}; is there room, and may this user write there?", directory.display())]
    Spill {
        action: &'static str,
        directory: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the spill file in {} does not hold what was written to it: {what}; check the disk", directory.display())]
    Corrupt { directory: PathBuf, what: String },
    #[error("changes of parts of a JSON document of {table} do not fit the document: {what}; load the table again")]
    Patch { table: TableId, what: String },
    #[error(
        "rows of {table} whose key changed in one batch take more than {bytes_max} bytes of memory, for their log has \
         only some of their columns: give run.memory more, or SET GLOBAL binlog_row_image = FULL"
    )]
    Moved { table: TableId, bytes_max: usize },
    #[error("cannot rearrange the columns of {table}")]
    Columns {
        table: TableId,
        #[source]
        source: ArrowError,
    },
}

impl BatchError {
    /// The table that alone has the fault, where reading again does not help and no other table suffers from it.
    pub fn table_at_fault(&self) -> Option<&TableId> {
        match self {
            Self::Patch { table, .. } | Self::Moved { table, .. } => Some(table),
            _ => None,
        }
    }
}
