//! Rows held in memory, and what they cost.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat_batches, interleave};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::BatchError;
use crate::change::{Gaps, Operation};
use crate::schema::TableSchema;

/// What sorting a row costs beside its columns: its encoded key (9 bytes of an integer, some more of a text),
/// the key's offset (8), and its entry in the sort (16).
const SORT_BYTES_PER_ROW: usize = 40;

/// Unused bytes per column that are not worth a copy: the array's own struct and the padding of its buffers.
const SLACK_BYTES_PER_COLUMN: usize = 512;

/// Batches with fewer rows and bytes than these are small: many of them cost more for their arrays than for
/// their values, and are put together.
const SMALL_ROWS: usize = 256;
const SMALL_BYTES: usize = 64 << 10;

/// Changes of one push, or of several committed ones put together, in log order.
#[derive(Debug)]
pub(super) struct HeldRows {
    pub rows: RecordBatch,
    pub operations: Vec<Operation>,
    pub gaps: Option<Gaps>,
    /// The sequence number of the first row; those of the others follow it one by one.
    pub first_sequence: u64,
    pub bytes: usize,
}

impl HeldRows {
    /// Takes over `rows`. Columns that are a small part of larger buffers are copied out of them, so that the
    /// bytes counted are the bytes that dropping these rows gives back.
    pub fn new(
        rows: RecordBatch,
        operations: Vec<Operation>,
        gaps: Option<Gaps>,
        first_sequence: u64,
    ) -> Result<Self, ArrowError> {
        let rows = compacted(rows)?;
        let gaps_bytes = gaps.as_ref().map_or(0, |gaps| gaps.bytes().len());
        let bytes = rows.get_array_memory_size() + gaps_bytes + operations.len() * (1 + SORT_BYTES_PER_ROW);
        Ok(Self { rows, operations, gaps, first_sequence, bytes })
    }

    pub fn is_small(&self) -> bool {
        self.operations.len() < SMALL_ROWS && self.bytes < SMALL_BYTES
    }

    /// Several batches as one; their order stays, gaps in their sequence numbers close.
    pub fn concat(parts: &[Self]) -> Result<Self, ArrowError> {
        let schema = parts[0].rows.schema();
        let rows = concat_batches(&schema, parts.iter().map(|part| &part.rows))?;
        let operations = parts.iter().flat_map(|part| part.operations.iter().copied()).collect();
        Self::new(rows, operations, Self::concat_gaps(parts), parts[0].first_sequence)
    }

    fn concat_gaps(parts: &[Self]) -> Option<Gaps> {
        let columns = parts.first()?.rows.num_columns();
        let (mut all, mut rows) = (Gaps::new(columns), 0);
        for part in parts {
            if let Some(gaps) = &part.gaps {
                all.pad_to(rows);
                (0..gaps.len()).for_each(|row| all.push(&gaps.get(row)));
            }
            rows += part.operations.len();
        }
        all.pad_to(rows);
        all.slice(0, rows)
    }
}

/// The bytes of the values, whatever buffers they are in.
pub(super) fn used_bytes(rows: &RecordBatch) -> Result<usize, ArrowError> {
    rows.columns().iter().map(|column| column.to_data().get_slice_memory_size()).sum()
}

fn compacted(rows: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let limit = 2 * used_bytes(&rows)? + SLACK_BYTES_PER_COLUMN * rows.num_columns();
    if rows.get_array_memory_size() <= limit {
        return Ok(rows);
    }
    let picks: Vec<_> = (0..rows.num_rows()).map(|row| (0, row)).collect();
    let columns = rows.columns().iter().map(|column| interleave(&[column.as_ref()], &picks));
    RecordBatch::try_new(rows.schema(), columns.collect::<Result<_, _>>()?)
}

/// The rows `picks` (batch, row) of `batches` as one batch of the table's columns.
pub(super) fn gather(
    schema: &TableSchema,
    batches: &[&RecordBatch],
    picks: &[(usize, usize)],
) -> Result<RecordBatch, BatchError> {
    if let Some((batch, row)) = consecutive(picks) {
        return Ok(batches[batch].slice(row, picks.len()));
    }
    let column = |index: usize| -> Result<ArrayRef, ArrowError> {
        let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(index).as_ref()).collect();
        interleave(&arrays, picks)
    };
    (0..schema.columns.len())
        .map(column)
        .collect::<Result<_, _>>()
        .and_then(|columns| RecordBatch::try_new(schema.arrow_schema(), columns))
        .map_err(|source| BatchError::Columns { table: schema.table.clone(), source })
}

/// Where `picks` begin if they are one unbroken run of rows, as those of a first load are.
fn consecutive(picks: &[(usize, usize)]) -> Option<(usize, usize)> {
    let (batch, row) = *picks.first()?;
    picks.iter().enumerate().all(|(index, pick)| *pick == (batch, row + index)).then_some((batch, row))
}

/// The bytes of each row of a batch, to cut slices by.
#[derive(Debug)]
pub(super) struct RowWidths {
    fixed: usize,
    variable: Vec<OffsetBuffer<i32>>,
}

impl RowWidths {
    pub fn new(rows: &RecordBatch) -> Self {
        let mut widths = Self { fixed: 1, variable: Vec::new() };
        for column in rows.columns() {
            match column.data_type() {
                DataType::Utf8 | DataType::Binary => widths.variable.extend(offsets(column)),
                other => widths.fixed += other.primitive_width().unwrap_or_else(|| average_width(column)),
            }
        }
        widths
    }

    pub fn of(&self, row: usize) -> usize {
        let variable = self.variable.iter().map(|offsets| 4 + (offsets[row + 1] - offsets[row]) as usize);
        self.fixed + variable.sum::<usize>()
    }
}

fn offsets(column: &ArrayRef) -> Option<OffsetBuffer<i32>> {
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().offsets().clone()),
        _ => column.as_binary_opt::<i32>().map(|array| array.offsets().clone()),
    }
}

/// Booleans and lists: exact enough for cutting slices.
fn average_width(column: &ArrayRef) -> usize {
    column.to_data().get_slice_memory_size().unwrap_or(0) / column.len().max(1) + 1
}

/// A batch under the table's own Arrow schema: fields of the same types, all nullable.
pub(super) fn with_schema(schema: &TableSchema, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns: Vec<ArrayRef> = rows.columns().iter().map(Arc::clone).collect();
    RecordBatch::try_new(schema.arrow_schema(), columns)
}
