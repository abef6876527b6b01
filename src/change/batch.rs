//! A run of changes to one table as Arrow columns.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};

use super::SourcePosition;
use crate::schema::TableSchema;

/// What a change does to its row. The numbers are stored in spill files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// A row of the first load.
    Read = 0,
    Insert = 1,
    /// The row's new image; its key is what it was before.
    Update = 2,
    /// Only the key columns of the row are set.
    Delete = 3,
    /// Empties the table; all columns of the row are null.
    Truncate = 4,
}

impl Operation {
    /// The operation of a stored number, or `None` for a number that means nothing.
    pub fn from_u8(value: u8) -> Option<Self> {
        [Self::Read, Self::Insert, Self::Update, Self::Delete, Self::Truncate].into_iter().find(|op| *op as u8 == value)
    }
}

/// The rows of one transaction within a [`ChangeBatch`]: from `first_row` to the next span's, or the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionSpan {
    pub first_row: usize,
    /// When the source committed it, in microseconds since 1970-01-01 UTC; whole seconds where the source
    /// logs no more. It may go backwards from one transaction to the next; log order counts, not this.
    pub commit_time_us: i64,
    /// The last known position inside the transaction; its commit's, once it has been read.
    pub position: SourcePosition,
}

/// Changes to one table under one schema version, in log order. Row `i` of `rows` is one change of kind
/// `operations[i]`. An update that changes the key comes as a delete of the old key and an insert of the
/// new row, in that order.
#[derive(Debug, Clone)]
pub struct ChangeBatch {
    pub schema: Arc<TableSchema>,
    /// One array per column of `schema`, in its order, of the column's Arrow type; every field is
    /// nullable here, for deletes and truncates carry nulls.
    pub rows: RecordBatch,
    pub operations: Vec<Operation>,
    /// Ordered by `first_row`; the first is 0 unless there are no rows.
    pub transactions: Vec<TransactionSpan>,
}

/// A [`ChangeBatch`] whose parts do not fit together: a fault of the source's decoder.
#[derive(Debug, thiserror::Error)]
#[error("change batch of {table} does not fit together: {what}")]
pub struct InvalidBatch {
    pub table: super::TableId,
    pub what: String,
}

impl ChangeBatch {
    /// Checks lengths and types: once where a batch is made, once before it is committed.
    ///
    /// # Errors
    /// Names the first part that does not fit.
    pub fn validate(&self) -> Result<(), InvalidBatch> {
        let fail = |what: String| Err(InvalidBatch { table: self.schema.table.clone(), what });
        if self.rows.num_rows() != self.operations.len() {
            return fail(format!("{} rows but {} operations", self.rows.num_rows(), self.operations.len()));
        }
        if self.rows.num_columns() != self.schema.columns.len() {
            return fail(format!("{} arrays for {} columns", self.rows.num_columns(), self.schema.columns.len()));
        }
        for (array, column) in self.rows.columns().iter().zip(&self.schema.columns) {
            if *array.data_type() != column.data_type {
                return fail(format!(
                    "column {} is {} instead of {}",
                    column.name,
                    array.data_type(),
                    column.data_type
                ));
            }
        }
        if self.rows.num_rows() > 0 && self.transactions.first().is_none_or(|span| span.first_row != 0) {
            return fail("its first row belongs to no transaction".into());
        }
        Ok(())
    }

    /// Memory held by the columns, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.rows.get_array_memory_size() + self.operations.len()
    }
}
