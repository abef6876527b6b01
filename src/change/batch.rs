//! A run of changes to one table as Arrow columns.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch, new_null_array};

use super::{Gaps, SourcePosition};
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
    /// Of each row the columns that the log left out; `None` where every row is whole.
    pub gaps: Option<Gaps>,
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
        if let Some(gaps) = self.gaps.as_ref().filter(|gaps| gaps.len() != self.operations.len()) {
            return fail(format!("{} operations but the gaps of {} rows", self.operations.len(), gaps.len()));
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

    /// Splits the batch where the log passes `position`, which must lie between two transactions: the rows of
    /// transactions up to it, and the rows of those after it.
    pub fn cut_at(self, position: &SourcePosition) -> (Option<Self>, Option<Self>) {
        let after = self.transactions.iter().position(|span| span.position > *position);
        match after {
            None => (Some(self), None),
            Some(0) => (None, Some(self)),
            Some(index) => {
                let row = self.transactions[index].first_row;
                let later = self.slice(row, self.operations.len() - row, &self.transactions[index..]);
                (Some(self.slice(0, row, &self.transactions[..index])), Some(later))
            }
        }
    }

    fn slice(&self, first_row: usize, rows: usize, spans: &[TransactionSpan]) -> Self {
        let moved = spans.iter().map(|span| TransactionSpan { first_row: span.first_row - first_row, ..span.clone() });
        Self {
            schema: Arc::clone(&self.schema),
            rows: self.rows.slice(first_row, rows),
            operations: self.operations[first_row..first_row + rows].to_vec(),
            gaps: self.gaps.as_ref().and_then(|gaps| gaps.slice(first_row, rows)),
            transactions: moved.collect(),
        }
    }

    /// A batch without rows.
    pub fn empty(schema: &Arc<TableSchema>) -> Self {
        let rows = RecordBatch::new_empty(schema.arrow_schema());
        Self { schema: Arc::clone(schema), rows, operations: Vec::new(), gaps: None, transactions: Vec::new() }
    }

    /// One change that empties the table.
    pub fn truncate(schema: &Arc<TableSchema>, position: SourcePosition, commit_time_us: i64) -> Self {
        let null = |column: &crate::schema::Column| new_null_array(&column.data_type, 1);
        let columns = schema.columns.iter().map(null).collect();
        Self {
            rows: RecordBatch::try_new(schema.arrow_schema(), columns)
                .expect("invariant: nulls of each column's type fit the schema"),
            schema: Arc::clone(schema),
            operations: vec![Operation::Truncate],
            gaps: None,
            transactions: vec![TransactionSpan { first_row: 0, commit_time_us, position }],
        }
    }

    /// Memory held by the columns, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let gaps = self.gaps.as_ref().map_or(0, |gaps| gaps.bytes().len());
        self.rows.get_array_memory_size() + self.operations.len() + gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::TableId;
    use crate::schema::Column;
    use arrow::array::{Int32Array, cast::AsArray};
    use arrow::datatypes::{DataType, Int32Type};

    fn at(offset: u64) -> SourcePosition {
        SourcePosition { order: (1, offset), text: format!("binlog.000001:{offset}") }
    }

    /// A batch with one row per offset, each its own transaction; the row's value is the offset.
    fn batch(offsets: &[u64]) -> ChangeBatch {
        let column = Column { nullable: false, ..Column::new("id", DataType::Int32, "int") };
        let schema = TableSchema::new(TableId::new("shop", "orders"), vec![column], vec![0]);
        let schema = Arc::new(schema);
        let values = Int32Array::from_iter_values(offsets.iter().map(|offset| *offset as i32));
        let spans = offsets.iter().enumerate();
        let transactions =
            spans.map(|(row, offset)| TransactionSpan { first_row: row, commit_time_us: 0, position: at(*offset) });
        ChangeBatch {
            rows: RecordBatch::try_new(schema.arrow_schema(), vec![Arc::new(values)]).unwrap(),
            operations: vec![Operation::Insert; offsets.len()],
            gaps: None,
            transactions: transactions.collect(),
            schema,
        }
    }

    fn values(batch: Option<ChangeBatch>) -> Vec<i32> {
        batch.map_or(Vec::new(), |batch| {
            batch.validate().unwrap();
            batch.rows.column(0).as_primitive::<Int32Type>().values().to_vec()
        })
    }

    fn check(position: u64, before: &[i32], after: &[i32]) {
        let (earlier, later) = batch(&[10, 20, 30]).cut_at(&at(position));
        assert_eq!((values(earlier), values(later)), (before.to_vec(), after.to_vec()), "cut at {position}");
    }

    #[test]
    fn a_batch_is_cut_between_the_transactions_around_a_position() {
        check(5, &[], &[10, 20, 30]);
        check(10, &[10], &[20, 30]);
        check(25, &[10, 20], &[30]);
        check(30, &[10, 20, 30], &[]);
    }
}
