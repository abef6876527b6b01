//! The difference of two versions of a table, row by row, in the order of the key.

use std::collections::BTreeMap;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{LogicalPlanBuilder, col};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use super::changes::{matched, quoted};
use super::row::{Row, changed_columns, rows_of};
use super::{QueryError, Session};
use crate::change::TableId;
use crate::lake::CHANGE_TYPE;

/// One row that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowDifference {
    Added(Row),
    Removed(Row),
    Changed { before: Row, after: Row },
}

/// How much differs.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct DiffSummary {
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
    /// Of the changed rows, how many have another value in a column.
    pub changed_columns: BTreeMap<String, u64>,
}

/// Rows that differ, as they come.
pub struct Diff {
    /// The table's columns.
    pub schema: SchemaRef,
    pub summary: DiffSummary,
    stream: SendableRecordBatchStream,
    rows: std::vec::IntoIter<Row>,
    /// The column of the kind of change.
    kind: usize,
}

impl Session {
    /// What one must do to a table's rows at version `from` to get those at `to`. Columns are those of `to`.
    ///
    /// # Errors
    /// A version that cannot be read.
    pub async fn diff(&self, table: &TableId, from: u64, to: u64) -> Result<Diff, QueryError> {
        let failed = |error| QueryError::lake(format!("comparing versions of {table}"), error);
        let changes = self.lake().difference(table, from, to).await.map_err(failed)?;
        let schema = changes.columns.clone();
        let kind = schema.fields().len();
        let key = changes.key.iter().map(|name| col(quoted(name)).sort(true, true));
        // A row that was goes before the row that it became.
        let order = key.chain([col(quoted(CHANGE_TYPE)).sort(false, true)]);
        let plan = LogicalPlanBuilder::from(matched(&changes).await?).sort(order)?.build()?;
        let frame = SessionContext::new_with_state(self.state().clone()).execute_logical_plan(plan).await?;
        let stream = frame.execute_stream().await?;
        Ok(Diff { schema, summary: DiffSummary::default(), stream, rows: Vec::new().into_iter(), kind })
    }
}

impl Diff {
    /// The next row that differs. [`Self::summary`] counts those that have come.
    ///
    /// # Errors
    /// Of the query's run.
    pub async fn next(&mut self) -> Result<Option<RowDifference>, QueryError> {
        let Some(mut row) = self.next_row().await? else { return Ok(None) };
        let kind = row.get(self.kind).cloned().flatten().unwrap_or_default();
        row.truncate(self.kind);
        Ok(Some(match kind.as_str() {
            "insert" => {
                self.summary.added += 1;
                RowDifference::Added(row)
            }
            "delete" => {
                self.summary.removed += 1;
                RowDifference::Removed(row)
            }
            _ => {
                let mut after = self.next_row().await?.unwrap_or_default();
                after.truncate(self.kind);
                self.count_changed(&row, &after);
                RowDifference::Changed { before: row, after }
            }
        }))
    }

    fn count_changed(&mut self, before: &Row, after: &Row) {
        self.summary.changed += 1;
        let schema: &Schema = &self.schema;
        for index in changed_columns(before, after) {
            if let Some(field) = schema.fields().get(index) {
                *self.summary.changed_columns.entry(field.name().clone()).or_default() += 1;
            }
        }
    }

    async fn next_row(&mut self) -> Result<Option<Row>, QueryError> {
        loop {
            if let Some(row) = self.rows.next() {
                return Ok(Some(row));
            }
            let Some(batch) = self.stream.try_next().await? else { return Ok(None) };
            self.rows = rows_of(&batch)?.into_iter();
        }
    }
}
