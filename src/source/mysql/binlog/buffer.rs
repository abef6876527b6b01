//! The rows of one table that have been read and not yet handed out.

use std::sync::Arc;

use arrow::array::RecordBatch;

use self::partial::Defaults;
use super::column::ColumnBuilder;
use super::reader::{Malformed, Reader};
use super::rows::RowsKind;
use super::table_map::bit;
use super::wire::WireColumn;
use crate::change::{ChangeBatch, Gaps, Losses, Operation, SourcePosition, TransactionSpan};
use crate::schema::TableSchema;

mod partial;

/// Where an event ends: the offset in bytes in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub file: Arc<str>,
    /// The file's number, from the end of its name, after those of the servers before.
    pub number: u64,
    pub offset: u64,
}

impl Mark {
    pub fn position(&self) -> SourcePosition {
        let text = super::place::text(&self.file, self.offset, self.number / super::ERA);
        SourcePosition { order: (self.number, self.offset), text }
    }
}

/// A transaction's rows from `first_row` to the next span's.
struct Span {
    first_row: usize,
    commit_time_us: i64,
    end: Mark,
}

/// Column builders and what goes with their rows. Rows up to `committed_rows` belong to ended transactions.
pub struct RowBuffer {
    pub schema: Arc<TableSchema>,
    columns: Vec<WireColumn>,
    builders: Vec<Box<dyn ColumnBuilder>>,
    is_key: Vec<bool>,
    /// One more than the index of the last key column.
    keys_end: usize,
    bytes_per_row: usize,
    operations: Vec<Operation>,
    /// May end before the rows do: the others have no gaps.
    gaps: Option<Gaps>,
    defaults: Defaults,
    spans: Vec<Span>,
    committed_rows: usize,
    losses: Losses,
}

/// All that a buffer held.
pub struct Taken {
    schema: Arc<TableSchema>,
    rows: RecordBatch,
    operations: Vec<Operation>,
    gaps: Option<Gaps>,
    spans: Vec<Span>,
    pub committed_rows: usize,
}

impl RowBuffer {
    pub fn new(schema: Arc<TableSchema>, columns: Vec<WireColumn>, builders: Vec<Box<dyn ColumnBuilder>>) -> Self {
        let is_key = (0..columns.len()).map(|index| schema.key.contains(&index)).collect();
        let keys_end = schema.key.iter().max().map_or(0, |last| last + 1);
        let bytes_per_row = builders.iter().map(|builder| builder.bytes_per_value()).sum();
        let (operations, spans) = (Vec::new(), Vec::new());
        let losses = Losses::default();
        Self {
            schema,
            columns,
            builders,
            is_key,
            keys_end,
            bytes_per_row,
            operations,
            gaps: None,
            defaults: Defaults::default(),
            spans,
            committed_rows: 0,
            losses,
        }
    }

    /// Whether rows of these columns can be added: the log still has the table as the builders expect it.
    pub fn fits(&self, columns: &[WireColumn]) -> bool {
        self.columns == columns
    }

    pub fn rows(&self) -> usize {
        self.operations.len()
    }

    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Begins the rows of a transaction, or goes on with them: `end` is the last that is known of it.
    pub fn begin(&mut self, commit_time_us: i64, end: &Mark) {
        match self.spans.last_mut() {
            Some(span) if span.first_row >= self.committed_rows => {
                span.commit_time_us = commit_time_us;
                span.end = end.clone();
            }
            _ => self.spans.push(Span { first_row: self.operations.len(), commit_time_us, end: end.clone() }),
        }
    }

    /// Ends the open transaction.
    pub fn commit(&mut self, commit_time_us: i64, end: &Mark) {
        if let Some(span) = self.spans.last_mut()
            && span.first_row >= self.committed_rows
        {
            span.commit_time_us = commit_time_us;
            span.end = end.clone();
        }
        self.committed_rows = self.rows();
    }

    /// Forgets all rows from `rows` on, which must all be of the open transaction.
    pub fn truncate(&mut self, rows: usize) {
        let rows = rows.max(self.committed_rows);
        for builder in &mut self.builders {
            builder.truncate(rows);
        }
        self.operations.truncate(rows);
        if let Some(gaps) = &mut self.gaps {
            gaps.truncate(rows);
        }
        self.defaults.truncate(rows);
        self.spans.retain(|span| span.first_row < rows);
    }

    /// Forgets the rows of the open transaction.
    pub fn roll_back(&mut self) {
        self.truncate(self.committed_rows);
    }

    /// Reads rows until they end or `budget_bytes` of memory are used; returns how many were.
    ///
    /// # Errors
    /// If the bytes are no rows of this table; [`Self::truncate`] must follow.
    pub fn append(&mut self, kind: RowsKind, rows: &mut Reader<'_>, budget_bytes: usize) -> Result<usize, Malformed> {
        let mut used = 0;
        while !rows.is_empty() && used < budget_bytes {
            let left = rows.rest().len();
            match kind {
                RowsKind::Write => self.insert(rows)?,
                RowsKind::Update => self.update(rows)?,
                RowsKind::Delete => self.delete(rows)?,
            }
            used += self.bytes_per_row + left - rows.rest().len();
        }
        Ok(used)
    }

    fn insert(&mut self, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        self.append_image(rows)?;
        self.operations.push(Operation::Insert);
        Ok(())
    }

    fn delete(&mut self, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        self.append_key(rows)?;
        self.operations.push(Operation::Delete);
        Ok(())
    }

    /// A row whose key changes leaves its old key and comes under the new one.
    fn update(&mut self, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut before = rows.clone();
        self.skip_image(rows)?;
        if self.same_key(before.clone(), rows.clone())? {
            self.append_image(rows)?;
            self.operations.push(Operation::Update);
        } else {
            self.append_key(&mut before)?;
            self.operations.push(Operation::Delete);
            self.append_image(rows)?;
            self.operations.push(Operation::Insert);
        }
        Ok(())
    }

    /// Walks one image by the lengths of its values.
    fn skip_image(&self, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        let nulls = rows.take(self.columns.len().div_ceil(8))?;
        for (index, column) in self.columns.iter().enumerate() {
            if !bit(nulls, index) {
                column.take(rows)?;
            }
        }
        Ok(())
    }

    /// Whether the key's bytes are the same in both images. Values of a key that are equal have equal bytes, or
    /// differ in a way that a reader sees (the case of a case-insensitive text).
    fn same_key(&self, mut before: Reader<'_>, mut after: Reader<'_>) -> Result<bool, Malformed> {
        let bitmap_bytes = self.columns.len().div_ceil(8);
        let (nulls_before, nulls_after) = (before.take(bitmap_bytes)?, after.take(bitmap_bytes)?);
        for (index, (column, is_key)) in self.columns.iter().zip(&self.is_key).enumerate().take(self.keys_end) {
            let old = if bit(nulls_before, index) { None } else { Some(column.take(&mut before)?) };
            let new = if bit(nulls_after, index) { None } else { Some(column.take(&mut after)?) };
            if *is_key && old != new {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn append_image(&mut self, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        let nulls = rows.take(self.columns.len().div_ceil(8))?;
        for (index, (column, builder)) in self.columns.iter().zip(&mut self.builders).enumerate() {
            if bit(nulls, index) {
                builder.append_null();
            } else {
                builder.append(column.take(rows)?)?;
            }
        }
        Ok(())
    }

    /// Walks one image and appends only its key.
    fn append_key(&mut self, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        let nulls = rows.take(self.columns.len().div_ceil(8))?;
        let columns = self.columns.iter().zip(&mut self.builders).zip(&self.is_key);
        for (index, ((column, builder), is_key)) in columns.enumerate() {
            let cell = if bit(nulls, index) { None } else { Some(column.take(rows)?) };
            match cell.filter(|_| *is_key) {
                Some(cell) => builder.append(cell)?,
                None => builder.append_null(),
            }
        }
        Ok(())
    }
}

impl RowBuffer {
    /// Everything, leaving the buffer empty.
    ///
    /// # Errors
    /// If the builders disagree, which would be a fault of theirs.
    pub fn take(&mut self) -> Result<Taken, Malformed> {
        let mut arrays: Vec<_> = self.builders.iter_mut().map(|builder| builder.finish()).collect();
        self.defaults.set(&mut arrays)?;
        let mut gaps = self.gaps.take();
        if let Some(gaps) = &mut gaps {
            gaps.pad_to(self.operations.len());
        }
        let rows = RecordBatch::try_new(self.schema.arrow_schema(), arrays);
        let rows = rows.map_err(|error| Malformed::value(format!("columns do not fit together: {error}")))?;
        for builder in &mut self.builders {
            self.losses += builder.take_losses();
        }
        Ok(Taken {
            schema: Arc::clone(&self.schema),
            rows,
            operations: std::mem::take(&mut self.operations),
            gaps,
            spans: std::mem::take(&mut self.spans),
            committed_rows: std::mem::take(&mut self.committed_rows),
        })
    }

    /// What was lost in rows that have been taken.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    pub fn take_losses(&mut self) -> Losses {
        std::mem::take(&mut self.losses)
    }
}

impl Taken {
    pub fn rows(&self) -> usize {
        self.operations.len()
    }

    /// The rows from `from` up to `to`, or `None` if there are none.
    pub fn slice(&self, from: usize, to: usize) -> Option<ChangeBatch> {
        let to = to.min(self.rows());
        let operations = self.operations.get(from..to).filter(|operations| !operations.is_empty())?.to_vec();
        let first = self.spans.partition_point(|span| span.first_row <= from).saturating_sub(1);
        let spans = self.spans.iter().skip(first).take_while(|span| span.first_row < to);
        let transactions = spans.map(|span| TransactionSpan {
            first_row: span.first_row.saturating_sub(from),
            commit_time_us: span.commit_time_us,
            position: span.end.position(),
        });
        Some(ChangeBatch {
            schema: Arc::clone(&self.schema),
            rows: self.rows.slice(from, to - from),
            gaps: self.gaps.as_ref().and_then(|gaps| gaps.slice(from, to - from)),
            transactions: transactions.collect(),
            operations,
        })
    }
}
