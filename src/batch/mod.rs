//! Micro-batches. (Stand-in for the lake's tests until the batch branch is merged.)

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::row::{RowConverter, Rows, SortField};

use crate::schema::TableSchema;

#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    #[error("arrow: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
}

pub struct KeyedChanges {
    pub schema: Arc<TableSchema>,
    pub truncate: bool,
    slices: VecDeque<(RecordBatch, BooleanArray)>,
}

pub struct KeyedSlice {
    pub rows: RecordBatch,
    pub deleted: BooleanArray,
    pub keys: Rows,
}

impl KeyedChanges {
    pub fn from_batches(
        schema: Arc<TableSchema>,
        truncate: bool,
        slices: impl IntoIterator<Item = (RecordBatch, BooleanArray)>,
    ) -> Self {
        Self { schema, truncate, slices: slices.into_iter().collect() }
    }

    pub fn next_slice(&mut self) -> Result<Option<KeyedSlice>, BatchError> {
        let Some((rows, deleted)) = self.slices.pop_front() else { return Ok(None) };
        let converter = key_converter(&self.schema)?;
        let columns: Vec<_> = self.schema.key.iter().map(|index| rows.column(*index).clone()).collect();
        let keys = converter.convert_columns(&columns)?;
        Ok(Some(KeyedSlice { rows, deleted, keys }))
    }
}

pub fn key_converter(schema: &TableSchema) -> Result<RowConverter, BatchError> {
    let fields = schema.key.iter().map(|index| SortField::new(schema.columns[*index].data_type.clone()));
    Ok(RowConverter::new(fields.collect())?)
}
