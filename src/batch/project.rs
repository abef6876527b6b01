//! From the rows of the source's table to those that come into the lake: columns are left out, hashed, masked and added, as
//! the table's schema says.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, StringBuilder, TimestampMicrosecondArray,
};

use super::BatchError;
use crate::change::{ChangeBatch, Gap, Gaps, Operation};
use crate::schema::{Added, HashKey, TableSchema, Treatment, treated};

/// A table's schema, and what comes into the lake of it.
#[derive(Debug)]
pub(super) struct Projection {
    source: Arc<TableSchema>,
    lake: Arc<TableSchema>,
}

impl Projection {
    pub fn new(source: &Arc<TableSchema>) -> Self {
        Self { source: Arc::clone(source), lake: Arc::new(source.lake_side()) }
    }

    /// Whether it is the one of this schema.
    pub fn is_of(&self, schema: &Arc<TableSchema>) -> bool {
        Arc::ptr_eq(&self.source, schema) || self.source == *schema
    }

    /// Valid changes of the source's table, as the lake's.
    pub fn project(&self, changes: &ChangeBatch, key: Option<&HashKey>) -> Result<ChangeBatch, BatchError> {
        let failed = |source| BatchError::Columns { table: self.source.table.clone(), source };
        let kept = |column: &usize| self.source.columns[*column].treatment != Treatment::LeftOut;
        let kept: Vec<usize> = (0..self.source.columns.len()).filter(kept).collect();
        let mut arrays = Vec::with_capacity(self.lake.columns.len());
        for column in &kept {
            let values = changes.rows.column(*column);
            arrays.push(treated(self.source.columns[*column].treatment, values, key).map_err(failed)?);
        }
        arrays.extend(self.source.rules.add.values().map(|added| self.added(added, changes)));
        let options = RecordBatchOptions::new().with_row_count(Some(changes.operations.len()));
        let rows = RecordBatch::try_new_with_options(self.lake.arrow_schema(), arrays, &options).map_err(failed)?;
        let gaps = changes.gaps.as_ref().map(|gaps| self.gaps(gaps, &kept, &rows));
        let (operations, transactions) = (changes.operations.clone(), changes.transactions.clone());
        Ok(ChangeBatch { schema: Arc::clone(&self.lake), rows, operations, gaps, transactions })
    }

    /// The same gaps for the columns that are left. A masked document is as whole as it will be.
    fn gaps(&self, gaps: &Gaps, kept: &[usize], rows: &RecordBatch) -> Gaps {
        let columns = self.lake.columns.len();
        let mut projected = Gaps::new(columns);
        for row in 0..gaps.len() {
            let (gap, mut of_lake) = (gaps.get(row), Gap::none(columns));
            for (index, column) in kept.iter().enumerate() {
                let is_masked = self.source.columns[*column].treatment == Treatment::Masked;
                of_lake.set_absent(index, gap.is_absent(*column));
                of_lake.set_patched(index, gap.is_patched(*column) && !(is_masked && rows.column(index).is_valid(row)));
            }
            of_lake.set_moved(gap.moved());
            of_lake.set_origin(gap.origin());
            projected.push(&of_lake);
        }
        projected
    }

    /// One value for each row, of its own transaction.
    fn added(&self, added: &Added, changes: &ChangeBatch) -> ArrayRef {
        let rows = changes.operations.len();
        let constant = |text: &str| -> ArrayRef { Arc::new(StringArray::from_iter_values((0..rows).map(|_| text))) };
        let operation = |operation: &Operation| match operation {
            Operation::Read => "read",
            Operation::Insert => "insert",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::Truncate => "truncate",
        };
        match added {
            Added::Text(text) => constant(text),
            Added::Database => constant(&self.source.table.database),
            Added::Table => constant(&self.source.table.table),
            Added::Operation => Arc::new(StringArray::from_iter_values(changes.operations.iter().map(operation))),
            Added::CommitTime => {
                let times = spans(changes).flat_map(|(span, rows)| std::iter::repeat_n(span.commit_time_us, rows));
                Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
            }
            Added::Position => {
                let mut texts = StringBuilder::new();
                for (span, rows) in spans(changes) {
                    (0..rows).for_each(|_| texts.append_value(&span.position.text));
                }
                Arc::new(texts.finish())
            }
        }
    }
}

/// The transactions of changes, each with the number of its rows.
fn spans(changes: &ChangeBatch) -> impl Iterator<Item = (&crate::change::TransactionSpan, usize)> {
    let ends = changes.transactions.iter().skip(1).map(|span| span.first_row);
    let ends = ends.chain([changes.operations.len()]);
    changes.transactions.iter().zip(ends).map(|(span, end)| (span, end.saturating_sub(span.first_row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{SourcePosition, TableId, TransactionSpan};
    use crate::schema::{Column, ColumnRules};
    use arrow::array::Int32Array;
    use arrow::datatypes::DataType;
    use arrow::util::pretty::pretty_format_batches;

    fn rules() -> ColumnRules {
        ColumnRules {
            exclude: vec!["secret".into()],
            mask: vec!["doc".into()],
            add: [
                ("_at".into(), Added::CommitTime),
                ("_op".into(), Added::Operation),
                ("_place".into(), Added::Position),
                ("_table".into(), Added::Table),
            ]
            .into(),
            ..ColumnRules::default()
        }
    }

    /// Two transactions of one row each; the second leaves the document and the secret out.
    fn changes() -> ChangeBatch {
        let text = |name: &str| Column::new(name, DataType::Utf8, "text");
        let columns = vec![text("secret"), Column::new("id", DataType::Int32, "int"), text("doc"), text("note")];
        let schema = TableSchema::new(TableId::new("shop", "t"), columns, vec![1]);
        let schema = Arc::new(rules().apply(schema).unwrap());
        let texts = |values: [Option<&str>; 2]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
        let arrays = vec![
            texts([Some("x"), None]),
            Arc::new(Int32Array::from(vec![1, 2])),
            texts([Some("d"), None]),
            texts([None, Some("n")]),
        ];
        let span = |first_row, commit_time_us, offset: u64| TransactionSpan {
            first_row,
            commit_time_us,
            position: SourcePosition { order: (1, offset), text: format!("b:{offset}") },
        };
        let mut gap = Gap::none(4);
        gap.set_absent(0, true);
        gap.set_absent(2, true);
        let mut gaps = Gaps::new(4);
        gaps.push(&Gap::none(4));
        gaps.push(&gap);
        ChangeBatch {
            rows: RecordBatch::try_new(schema.arrow_schema(), arrays).unwrap(),
            schema,
            operations: vec![Operation::Insert, Operation::Update],
            gaps: Some(gaps),
            transactions: vec![span(0, 1_000_000, 10), span(1, 2_000_000, 20)],
        }
    }

    #[test]
    fn rows_come_with_what_the_rules_leave_and_add() {
        let changes = changes();
        let projection = Projection::new(&changes.schema);
        assert!(projection.is_of(&changes.schema));
        let projected = projection.project(&changes, None).unwrap();
        projected.validate().unwrap();
        let shown = pretty_format_batches(std::slice::from_ref(&projected.rows)).unwrap().to_string();
        let lines: Vec<String> = shown.lines().filter(|line| line.starts_with('|')).map(squeezed).collect();
        assert_eq!(
            lines,
            [
                "| id | doc | note | _at | _op | _place | _table |",
                "| 1 | *** | | 1970-01-01T00:00:01Z | insert | b:10 | t |",
                "| 2 | | n | 1970-01-01T00:00:02Z | update | b:20 | t |",
            ]
        );
        let gaps = projected.gaps.unwrap();
        assert!(!gaps.get(0).is_open());
        let absent: Vec<usize> = (0..7).filter(|column| gaps.get(1).is_absent(*column)).collect();
        assert_eq!(absent, [1], "of the columns that are left, only the document's old value stays");
    }

    fn squeezed(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_truncate_passes() {
        let schema = changes().schema;
        let position = SourcePosition { order: (1, 5), text: "b:5".into() };
        let truncate = ChangeBatch::truncate(&schema, position, 0);
        let projected = Projection::new(&schema).project(&truncate, None).unwrap();
        projected.validate().unwrap();
        assert_eq!(projected.operations, [Operation::Truncate]);
    }
}
