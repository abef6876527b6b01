//! The last change of each key of a table, slice by slice.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::row::{RowConverter, Rows};

use super::BatchError;
use super::combine::{self, Older, Part};
use super::key::encode_keys;
use super::merge::Merge;
use super::moved::{MovedFrom, MovedRows};
use super::sorted::{Block, BlockLimits, SortedRows};
use super::spill::SpillDir;
use super::table::PendingTable;
use crate::change::{ChangeBatch, Gaps, Moved, Operation};
use crate::schema::TableSchema;

/// A slice is what the reader of keyed changes holds at once: large enough that work for each slice does not
/// count, small beside any sensible memory limit. One row may be larger.
const SLICE: BlockLimits = BlockLimits { rows_max: 65_536, bytes_max: 16 << 20 };

/// Memory that rows may take which moved within batches that are given as a whole: those are in memory already.
const GIVEN_BYTES_MAX: usize = 256 << 20;

/// Unique keys in key order: an iterator of slices. Reading may read from the local disk: not for an async
/// worker thread.
#[derive(Debug)]
pub struct KeyedChanges {
    pub schema: Arc<TableSchema>,
    /// All rows that the table had before are to go first.
    pub truncate: bool,
    /// What it means if the table lacks a row whose old values are needed.
    pub absent_rows: AbsentRows,
    pub(super) converter: RowConverter,
    pub(super) rows: KeyedRows,
    /// Where rows moved to other keys without all of their columns.
    pub(super) moved: Option<MovedRows>,
}

/// What a row is that a change needs and that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentRows {
    /// A fault: the table has all rows.
    Fault,
    /// Nothing: all rows are still to be loaded. The change is left out.
    Expected,
    /// The change is left out, for some rows are still to be loaded. Its key is noted if the row may be one of the others: it was under
    /// another key before, or was read without its place in the log being known.
    Noted,
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
    /// Of each row the columns whose values are still those that the table has; `None` where all rows are whole.
    pub gaps: Option<Gaps>,
    /// Rows with gaps that the table has under another key.
    pub moved_from: Option<MovedFrom>,
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
        table.close(SpillDir::new(std::env::temp_dir()), GIVEN_BYTES_MAX).into_keyed()
    }

    /// The same with [`Self::absent_rows`] set so.
    #[must_use]
    pub fn with_absent_rows(self, absent_rows: AbsentRows) -> Self {
        Self { absent_rows, ..self }
    }

    /// The next slice, or `None` after the last. At most 65,536 rows or 16 MiB, at least one row.
    pub fn next_slice(&mut self) -> Result<Option<KeyedSlice>, BatchError> {
        let Some(block) = self.next_block()? else { return Ok(None) };
        let (block, moved_from) = match (&self.moved, self.without_history(block)?) {
            (Some(moved), block) => moved.resolve(&self.schema, &self.converter, block)?,
            (None, block) => (block, None),
        };
        self.slice(block, moved_from).map(Some)
    }

    /// How many runs are read at once.
    #[cfg(test)]
    pub(super) fn inputs(&self) -> usize {
        match &self.rows {
            KeyedRows::Sorted(_) => 1,
            KeyedRows::Merged(merge) => merge.inputs(),
        }
    }

    fn next_block(&mut self) -> Result<Option<Block>, BatchError> {
        match &mut self.rows {
            KeyedRows::Sorted(sorted) => sorted.next_block(&self.schema, SLICE),
            KeyedRows::Merged(merge) => merge.next_block(&self.schema, &self.converter, SLICE),
        }
    }

    /// Reads all once to find what rows were before they moved.
    pub(super) fn note_moved(&mut self, bytes_max: usize) -> Result<(), BatchError> {
        let Some(mut moved) = self.moved.take() else { return Ok(()) };
        while let Some(block) = self.next_block()? {
            moved.note(&self.schema, &self.converter, &block, bytes_max)?;
        }
        match &mut self.rows {
            KeyedRows::Sorted(sorted) => sorted.rewind(),
            KeyedRows::Merged(merge) => merge.rewind(&self.schema, &self.converter)?,
        }
        self.moved = Some(moved);
        Ok(())
    }

    /// The last change of each key only.
    fn without_history(&self, block: Block) -> Result<Block, BatchError> {
        let is_away = |gaps: &Gaps| (0..gaps.len()).any(|row| gaps.get(row).moved() == Moved::Away);
        if !block.gaps.as_ref().is_some_and(is_away) {
            return Ok(block);
        }
        let keys = encode_keys(&self.converter, &self.schema, &block.rows)?;
        let is_first = |row: &usize| *row == 0 || keys.row(*row) != keys.row(*row - 1);
        let picks: Vec<_> = (0..keys.num_rows()).filter(is_first).map(|row| (0, row)).collect();
        combine::block(&self.schema, &[Part::of(&block)], &picks, &Older::new())
    }

    fn slice(&self, block: Block, moved_from: Option<MovedFrom>) -> Result<KeyedSlice, BatchError> {
        let keys = encode_keys(&self.converter, &self.schema, &block.rows)?;
        let deleted = block.operations.iter().map(|operation| Some(*operation == Operation::Delete)).collect();
        Ok(KeyedSlice { rows: block.rows, deleted, keys, gaps: block.gaps, moved_from })
    }
}
