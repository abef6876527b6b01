//! The changes of one table in a batch.

use std::sync::Arc;

use arrow::row::RowConverter;

use super::held::{HeldRows, with_schema};
use super::key::check_keys;
use super::keyed::{AbsentRows, KeyedChanges, KeyedRows};
use super::merge::{Input, Merge};
use super::moved::MovedRows;
use super::sorted::{BlockLimits, SortedRows};
use super::spill::{Run, SpillDir, SpillFile};
use super::{BatchError, key_converter};
use crate::change::{ChangeBatch, Gaps, Operation};
use crate::schema::TableSchema;

/// How many runs are merged at once. Each holds a block in memory; more are merged in several passes.
/// Few in tests, so that these are common there.
const MERGE_RUNS_MAX: usize = if cfg!(test) { 4 } else { 64 };

/// A block of a run is this part of the batch's memory, so that [`MERGE_RUNS_MAX`] of them, read and written
/// again, take a quarter of it; within bounds below which the overhead of a block counts, and above which
/// nothing is gained.
const BLOCKS_PER_MEMORY: usize = 256;
const BLOCK_BYTES_MIN: usize = 64 << 10;
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Rows of a block: keeps blocks of narrow rows within the same memory, for a row has costs beside its columns.
/// Few in tests, so that runs have several blocks there.
const BLOCK_ROWS_MAX: usize = if cfg!(test) { 50 } else { 65_536 };

/// How many small batches are kept before they are put together: each row is copied once for it.
const SMALL_PARTS_MAX: usize = 256;

/// What rows that moved to other keys may hold in memory however little the batch has: a few ten thousand keys.
const MOVED_BYTES_MIN: usize = 16 << 20;

/// Rows are numbered in 32 bits while they are sorted; a table with more is spilled before.
pub(super) const HELD_ROWS_MAX: usize = 1 << 30;

pub(super) fn block_limits(memory_bytes: usize) -> BlockLimits {
    let bytes_max = (memory_bytes / BLOCKS_PER_MEMORY).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    BlockLimits { rows_max: BLOCK_ROWS_MAX, bytes_max }
}

/// A table's changes, while more of them come.
#[derive(Debug)]
pub(super) struct PendingTable {
    pub schema: Arc<TableSchema>,
    converter: RowConverter,
    held: Vec<HeldRows>,
    runs: Vec<Run>,
    pub held_bytes: usize,
    pub held_rows: usize,
    /// All changes pushed and not discarded, whether or not they still count.
    pub rows: u64,
    /// Sequence numbers count the rows of this table in log order; none is given twice.
    next_sequence: u64,
    /// Rows below it are committed.
    committed: u64,
    /// Truncates of the open transaction.
    open_truncates: Vec<u64>,
    truncate: bool,
    /// Whether rows moved to other keys with columns that the log left out.
    has_moved: bool,
    /// Whether changes say how documents changed, instead of the documents.
    has_patches: bool,
}

impl PendingTable {
    pub fn new(schema: Arc<TableSchema>) -> Result<Self, BatchError> {
        Ok(Self {
            converter: key_converter(&schema)?,
            schema,
            held: Vec::new(),
            runs: Vec::new(),
            held_bytes: 0,
            held_rows: 0,
            rows: 0,
            next_sequence: 0,
            committed: 0,
            open_truncates: Vec::new(),
            truncate: false,
            has_moved: false,
            has_patches: false,
        })
    }

    /// Takes valid changes, and gives the sequence number of the first. Nothing has changed after an error.
    pub fn push(&mut self, changes: ChangeBatch) -> Result<u64, BatchError> {
        if changes.schema != self.schema {
            return Err(BatchError::SchemaChanged {
                table: self.schema.table.clone(),
                expected: self.schema.version,
                found: changes.schema.version,
            });
        }
        check_keys(&changes)?;
        self.put_small_together()?;
        let first = self.next_sequence;
        let rows = changes.operations.len();
        let truncate = changes.operations.iter().rposition(|operation| *operation == Operation::Truncate);
        // What comes before a truncate in the same push stands and falls with it.
        let skip = truncate.map_or(0, |row| row + 1);
        if skip < rows {
            let columns = with_schema(&self.schema, &changes.rows.slice(skip, rows - skip));
            let operations = changes.operations[skip..].to_vec();
            let gaps = changes.gaps.as_ref().and_then(|gaps| gaps.slice(skip, rows - skip));
            self.has_moved |= gaps.as_ref().is_some_and(Gaps::has_moved);
            self.has_patches |= gaps.as_ref().is_some_and(Gaps::has_patches);
            let held = columns.and_then(|columns| HeldRows::new(columns, operations, gaps, first + skip as u64));
            self.hold(held.map_err(|source| self.columns_error(source))?);
        }
        self.open_truncates.extend(truncate.map(|row| first + row as u64));
        self.next_sequence += rows as u64;
        self.rows += rows as u64;
        Ok(first)
    }

    fn hold(&mut self, held: HeldRows) {
        self.held_bytes += held.bytes;
        self.held_rows += held.operations.len();
        self.held.push(held);
    }

    fn columns_error(&self, source: arrow::error::ArrowError) -> BatchError {
        BatchError::Columns { table: self.schema.table.clone(), source }
    }

    /// Puts the last held batches together when there are many small ones. Only committed ones: a discard
    /// goes by pushes.
    fn put_small_together(&mut self) -> Result<(), BatchError> {
        let committed = self.held.partition_point(|held| held.first_sequence < self.committed);
        let small = self.held[..committed].iter().rev().take_while(|held| held.is_small()).count();
        if small < SMALL_PARTS_MAX {
            return Ok(());
        }
        let from = committed - small;
        let parts = self.held[from..committed].chunks(SMALL_PARTS_MAX).map(HeldRows::concat);
        let whole = parts.collect::<Result<Vec<_>, _>>().map_err(|source| self.columns_error(source))?;
        self.held.splice(from..committed, whole);
        self.count_held();
        Ok(())
    }

    /// All rows so far are committed.
    pub fn boundary(&mut self) {
        self.committed = self.next_sequence;
        if let Some(truncate) = self.open_truncates.last().copied() {
            self.truncate = true;
            self.open_truncates.clear();
            self.held.retain(|held| held.first_sequence > truncate);
            self.runs.retain(|run| run.sequences.end > truncate + 1);
            self.runs.iter_mut().for_each(|run| run.alive_from = truncate + 1);
            self.count_held();
        }
    }

    /// The rows of the open transaction from this sequence number on never were.
    pub fn discard(&mut self, from: u64, rows: u64) {
        self.rows -= rows;
        self.open_truncates.retain(|sequence| *sequence < from);
        self.held.retain(|held| held.first_sequence < from);
        self.runs.retain(|run| run.sequences.start < from);
        for run in self.runs.iter_mut().filter(|run| run.sequences.end > from) {
            run.discard(from, self.next_sequence);
        }
        self.count_held();
    }

    fn count_held(&mut self) {
        self.held_bytes = self.held.iter().map(|held| held.bytes).sum();
        self.held_rows = self.held.iter().map(|held| held.operations.len()).sum();
    }

    /// Writes all held rows to disk as a run, and gives its bytes. Rows of different pushes of an open
    /// transaction do not replace each other or committed ones, for a discard may part them.
    pub fn spill(&mut self, file: &Arc<SpillFile>, limits: BlockLimits) -> Result<u64, BatchError> {
        let held = std::mem::take(&mut self.held);
        (self.held_bytes, self.held_rows) = (0, 0);
        let (Some(first), Some(last)) = (held.first(), held.last()) else { return Ok(0) };
        let sequences = first.first_sequence..last.first_sequence + last.operations.len() as u64;
        let committed = self.committed;
        let group = |part: &HeldRows| if part.first_sequence < committed { 0 } else { part.first_sequence + 1 };
        let mut sorted = SortedRows::new(&self.schema, &self.converter, held, group)?;
        let mut run = Run::new(Arc::clone(file), sequences);
        while let Some(block) = sorted.next_block(&self.schema, limits)? {
            run.write(&self.schema, &block)?;
        }
        let bytes = run.bytes;
        self.runs.push(run);
        Ok(bytes)
    }

    /// The changes as they are at a boundary.
    pub fn close(self, spill: SpillDir, memory_bytes: usize) -> TableChanges {
        TableChanges { pending: self, spill, memory_bytes }
    }
}

/// The committed changes of one table in a batch.
#[derive(Debug)]
pub struct TableChanges {
    pending: PendingTable,
    spill: SpillDir,
    memory_bytes: usize,
}

impl TableChanges {
    /// How many changes were read, not how many keys they are about.
    pub fn rows(&self) -> u64 {
        self.pending.rows
    }

    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.pending.schema
    }

    /// Whether rows may have to be left out, if the table is being loaded.
    pub fn may_unsettle(&self) -> bool {
        self.pending.has_moved || self.pending.has_patches
    }

    #[cfg(test)]
    pub(super) fn damage(&self, change: impl FnOnce(&mut std::fs::File)) {
        self.pending.runs[0].file.damage(change);
    }

    /// The last change of each key. Sorts what is held, and merges what was spilled until few runs are left.
    pub fn into_keyed(self) -> Result<KeyedChanges, BatchError> {
        let PendingTable { schema, converter, held, mut runs, truncate, has_moved, .. } = self.pending;
        let limits = block_limits(self.memory_bytes);
        let sorted = SortedRows::new(&schema, &converter, held, |_| 0)?;
        let rows = if runs.is_empty() {
            KeyedRows::Sorted(sorted)
        } else {
            let file = if are_too_many(&runs, self.memory_bytes) { Some(self.spill.file()?) } else { None };
            while let Some(file) = file.as_ref().filter(|_| are_too_many(&runs, self.memory_bytes)) {
                runs = merge_neighbours(&schema, &converter, runs, file, limits, self.memory_bytes)?;
            }
            let mut inputs: Vec<_> = runs.into_iter().map(Input::spilled).collect();
            inputs.push(Input::Held(sorted, limits));
            KeyedRows::Merged(Merge::new(&schema, &converter, inputs)?)
        };
        let moved = has_moved.then(MovedRows::default);
        let mut keyed = KeyedChanges { schema, truncate, absent_rows: AbsentRows::Fault, converter, rows, moved };
        keyed.note_moved(self.memory_bytes.max(MOVED_BYTES_MIN))?;
        Ok(keyed)
    }
}

/// Whether the runs should not be read all at once: each holds a block, and a block has one row at least, however large.
fn are_too_many(runs: &[Run], memory_bytes: usize) -> bool {
    let bytes: usize = runs.iter().map(Run::block_bytes_max).sum();
    runs.len() >= MERGE_RUNS_MAX || (bytes > memory_bytes && runs.len() > 1)
}

/// Merges runs that follow each other, as many at a time as may be read at once, two at least. Only neighbours: a change that
/// leaves columns out goes with the changes just before it.
fn merge_neighbours(
    schema: &TableSchema,
    converter: &RowConverter,
    runs: Vec<Run>,
    file: &Arc<SpillFile>,
    limits: BlockLimits,
    memory_bytes: usize,
) -> Result<Vec<Run>, BatchError> {
    let (mut fewer, mut left) = (Vec::new(), runs.into_iter().peekable());
    while let Some(first) = left.next() {
        let (mut bytes, mut neighbours) = (first.block_bytes_max(), vec![first]);
        while let Some(next) = left.next_if(|next| {
            let is_small = bytes + next.block_bytes_max() <= memory_bytes && neighbours.len() < MERGE_RUNS_MAX;
            is_small || neighbours.len() == 1
        }) {
            bytes += next.block_bytes_max();
            neighbours.push(next);
        }
        match neighbours.len() {
            1 => fewer.append(&mut neighbours),
            _ => fewer.push(merge_to_run(schema, converter, neighbours, file, limits)?),
        }
    }
    Ok(fewer)
}

/// Merges `runs` to one, in `file`.
fn merge_to_run(
    schema: &TableSchema,
    converter: &RowConverter,
    runs: Vec<Run>,
    file: &Arc<SpillFile>,
    limits: BlockLimits,
) -> Result<Run, BatchError> {
    let mut whole = Run::new(Arc::clone(file), 0..u64::MAX);
    let mut merge = Merge::new(schema, converter, runs.into_iter().map(Input::spilled).collect())?;
    while let Some(block) = merge.next_block(schema, converter, limits)? {
        whole.write(schema, &block)?;
    }
    Ok(whole)
}
