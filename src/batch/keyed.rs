//! The last change of each key of a table, slice by slice.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::row::{RowConverter, Rows};

use super::BatchError;
use super::key::encode_keys;
use super::merge::Merge;
use super::sorted::{Block, BlockLimits, SortedRows};
use super::spill::SpillDir;
use super::table::PendingTable;
use crate::change::{ChangeBatch, Operation};
use crate::schema::TableSchema;

/// A slice is what the reader of keyed changes holds at once: large enough that work for each slice does not
/// count, small beside any sensible memory limit. One row may be larger.
const SLICE: BlockLimits = BlockLimits { rows_max: 65_536, bytes_max: 16 << 20 };

/// Unique keys in key order: an iterator of slices. Reading may read from the local disk: not for an async
/// worker thread.
#[derive(Debug)]
pub struct KeyedChanges {
    pub schema: Arc<TableSchema>,
    /// All rows that the table had before are to go first.
    pub truncate: bool,
    pub(super) converter: RowConverter,
    pub(super) rows: KeyedRows,
}

/// Where the slices come from.
#[derive(Debug)]
pub(super) enum KeyedRows {
    /// Nothing was spilled: the rows are picked from where they are.
    Sorted(SortedRows),
    Merged(Merge),
}

/// A part of the keys of a table, in ascending order; the next slice goes on above the last key of this one.
#[derive(Debug)]
pub struct KeyedSlice {
    /// One row per key, of `schema.arrow_schema()`.
    pub rows: RecordBatch,
    /// True where the key's last change is a delete: its other columns are null. The table may not have the
    /// key at all.
    pub deleted: BooleanArray,
    /// The encoded keys of `rows`, as of [`key_converter`](super::key_converter).
    pub keys: Rows,
}

impl KeyedChanges {
    /// The last change of each key of `batches`, which are one committed run of changes in log order.
    pub fn from_batches(schema: Arc<TableSchema>, batches: Vec<ChangeBatch>) -> Result<Self, BatchError> {
        let mut table = PendingTable::new(schema)?;
        for batch in batches {
            batch.validate()?;
            table.push(batch)?;
        }
        table.boundary();
        // Nothing held is ever spilled here, so the folder is never made.
        table.close(SpillDir::new(std::env::temp_dir()), 0).into_keyed()
    }

    /// The next slice, or `None` after the last. At most 65,536 rows or 16 MiB, at least one row.
    pub fn next_slice(&mut self) -> Result<Option<KeyedSlice>, BatchError> {
        let block = match &mut self.rows {
            KeyedRows::Sorted(sorted) => sorted.next_block(&self.schema, SLICE)?,
            KeyedRows::Merged(merge) => merge.next_block(&self.schema, &self.converter, SLICE)?,
        };
        block.map(|block| self.slice(block)).transpose()
    }

    fn slice(&self, block: Block) -> Result<KeyedSlice, BatchError> {
        let keys = encode_keys(&self.converter, &self.schema, &block.rows)?;
        let deleted = block.operations.iter().map(|operation| Some(*operation == Operation::Delete)).collect();
        Ok(KeyedSlice { rows: block.rows, deleted, keys })
    }
}
