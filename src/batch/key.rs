//! Keys as bytes that compare as the keys do.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::row::{RowConverter, Rows, SortField};

use super::BatchError;
use crate::change::{ChangeBatch, Operation};
use crate::schema::TableSchema;

/// The one encoding of keys: the key columns in key order, ascending. Two keys are equal if and only if
/// their bytes are; floats are equal bit by bit, so that -0.0 is not 0.0 and a NaN is itself. Text compares
/// by its UTF-8 bytes, whatever the source's collation.
///
/// # Errors
/// [`BatchError::Key`] for a key without columns, one that names a column that is not there, or one of a type
/// that has no order.
pub fn key_converter(schema: &TableSchema) -> Result<RowConverter, BatchError> {
    let fail = |what: String| BatchError::Key { table: schema.table.clone(), what };
    if schema.key.is_empty() {
        return Err(fail("it must name at least one column".into()));
    }
    let field = |index: &usize| match schema.columns.get(*index) {
        Some(column) => Ok(SortField::new(column.data_type.clone())),
        None => Err(fail(format!("it names column {index} of {}", schema.columns.len()))),
    };
    let fields = schema.key.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    RowConverter::new(fields).map_err(|error| fail(error.to_string()))
}

/// The key columns of `rows`, in key order. The key was checked when the converter was made.
pub(super) fn key_columns(schema: &TableSchema, rows: &RecordBatch) -> Vec<ArrayRef> {
    schema.key.iter().map(|index| rows.column(*index).clone()).collect()
}

/// The encoded keys of `rows`.
pub(super) fn encode_keys(
    converter: &RowConverter,
    schema: &TableSchema,
    rows: &RecordBatch,
) -> Result<Rows, BatchError> {
    converter
        .convert_columns(&key_columns(schema, rows))
        .map_err(|source| BatchError::Columns { table: schema.table.clone(), source })
}

/// Every change but a truncate has a whole key.
pub(super) fn check_keys(changes: &ChangeBatch) -> Result<(), BatchError> {
    let Some(NullKey { column, .. }) = null_key(changes) else { return Ok(()) };
    Err(BatchError::NullKey { table: changes.schema.table.clone(), column: column.to_string() })
}

/// A change without a whole key.
#[derive(Debug, PartialEq, Eq)]
pub struct NullKey<'a> {
    pub row: usize,
    pub column: &'a str,
}

/// The first change whose key has a null. A truncate has no key.
pub fn null_key(changes: &ChangeBatch) -> Option<NullKey<'_>> {
    let schema = &changes.schema;
    let first = |index: &usize| {
        let nulls = changes.rows.column(*index).nulls().filter(|nulls| nulls.null_count() > 0)?;
        let mut rows = changes.operations.iter().zip(nulls.iter());
        let row = rows.position(|(operation, valid)| !valid && *operation != Operation::Truncate)?;
        Some(NullKey { row, column: &schema.columns[*index].name })
    };
    schema.key.iter().filter_map(first).min_by_key(|found| found.row)
}
