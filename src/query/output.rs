//! Results as text: a table for the eye, CSV, or JSON lines.
//!
//! | type | table and CSV | JSON |
//! |---|---|---|
//! | NULL | `NULL`; nothing in CSV (an empty text is `""`) | `null` |
//! | integers, decimals | all digits | number with all digits |
//! | timestamp | `2026-01-31T10:00:00.5Z` | the same as text |
//! | timestamp without time zone, date | `2026-01-31T10:00:00`, `2026-01-31` | the same as text |
//! | binary | hex | hex as text |

use std::io::Write;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::json::{LineDelimitedWriter, WriterBuilder, writer::LineDelimited};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use super::QueryError;

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns with a head and a count of rows; a value of several
    /// lines takes as many; other characters that control a terminal are escaped.
    Table,
    /// RFC 4180 with a head line and `\n` line ends.
    Csv,
    /// One JSON object per row and line.
    Json,
}

/// Writes all rows of a result as they come, and says how many there were. Only one batch of rows is held in memory; for
/// a table, also the first rows, from which the widths of the columns are taken.
///
/// # Errors
/// [`QueryError::Write`] when `out` fails; whatever ended the query otherwise. Rows before the error have been written.
pub async fn write(
    mut stream: SendableRecordBatchStream,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<u64, QueryError> {
    let mut writer = RowWriter::new(format, &stream.schema(), out)?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        writer.batch(&batch)?;
    }
    writer.finish(rows)?;
    Ok(rows)
}

enum RowWriter<'a> {
    Table(TableWriter<'a>),
    Csv(&'a mut (dyn Write + Send)),
    Json(LineDelimitedWriter<&'a mut (dyn Write + Send)>),
}

impl<'a> RowWriter<'a> {
    fn new(format: Format, schema: &Schema, out: &'a mut (dyn Write + Send)) -> Result<Self, QueryError> {
        Ok(match format {
            Format::Table => Self::Table(TableWriter::new(schema, out)),
            Format::Csv => {
                csv_line(out, schema.fields().iter().map(|field| Some(field.name().clone())))?;
                Self::Csv(out)
            }
            Format::Json => Self::Json(WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(out)),
        })
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        match self {
            Self::Json(writer) => writer.write(batch).map_err(failed),
            Self::Csv(out) => {
                let cells = Cells::new(batch)?;
                (0..batch.num_rows()).try_for_each(|row| csv_line(*out, cells.row(row)?.into_iter()))
            }
            Self::Table(table) => {
                let cells = Cells::new(batch)?;
                (0..batch.num_rows()).try_for_each(|row| table.row(cells.row(row)?))
            }
        }
    }

    fn finish(self, rows: u64) -> Result<(), QueryError> {
        match self {
            Self::Table(table) => table.finish(rows),
            Self::Csv(out) => Ok(out.flush()?),
            Self::Json(mut writer) => {
                writer.finish().map_err(failed)?;
                Ok(writer.into_inner().flush()?)
            }
        }
    }
}

/// A failed write comes back from Arrow's writers inside their own error.
fn failed(error: ArrowError) -> QueryError {
    match error {
        ArrowError::IoError(_, error) => QueryError::Write(error),
        other => QueryError::Plan(other.to_string()),
    }
}

/// The values of a batch as text.
pub(super) struct Cells<'a> {
    columns: Vec<(&'a dyn Array, ArrayFormatter<'a>)>,
}

impl<'a> Cells<'a> {
    pub fn new(batch: &'a RecordBatch) -> Result<Self, QueryError> {
        const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_display_error(false);
        let one = |column: &'a std::sync::Arc<dyn Array>| {
            Ok((column.as_ref(), ArrayFormatter::try_new(column.as_ref(), &OPTIONS).map_err(failed)?))
        };
        Ok(Self { columns: batch.columns().iter().map(one).collect::<Result<_, QueryError>>()? })
    }

    /// One row; `None` is NULL.
    pub fn row(&self, row: usize) -> Result<Vec<Option<String>>, QueryError> {
        let cell = |(array, formatter): &(&dyn Array, ArrayFormatter<'_>)| {
            let text = array.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
            text.map_err(failed)
        };
        self.columns.iter().map(cell).collect()
    }
}

fn csv_line(out: &mut (dyn Write + Send), cells: impl Iterator<Item = Option<String>>) -> Result<(), QueryError> {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        match cell {
            None => {}
            Some(text) if text.is_empty() || text.contains(['"', ',', '\n', '\r']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            Some(text) => out.write_all(text.as_bytes())?,
        }
    }
    Ok(out.write_all(b"\n")?)
}

/// The widths of a table's columns are taken from this many rows: a few screens.
const MEASURED_ROWS_MAX: usize = 1000;

/// Or from this many bytes of text, when the values are large.
const MEASURED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A column is not made wider than this; a longer value is still written whole.
const COLUMN_WIDTH_MAX: usize = 60;

struct TableWriter<'a> {
    out: &'a mut (dyn Write + Send),
    head: Vec<String>,
    right: Vec<bool>,
    measured: Vec<Vec<String>>,
    measured_bytes: usize,
    /// Set once the head has been written.
    widths: Option<Vec<usize>>,
}

impl<'a> TableWriter<'a> {
    fn new(schema: &Schema, out: &'a mut (dyn Write + Send)) -> Self {
        Self {
            out,
            head: schema.fields().iter().map(|field| escaped(field.name())).collect(),
            right: schema.fields().iter().map(|field| is_number(field.data_type())).collect(),
            measured: Vec::new(),
            measured_bytes: 0,
            widths: None,
        }
    }

    fn row(&mut self, cells: Vec<Option<String>>) -> Result<(), QueryError> {
        let cells: Vec<String> =
            cells.into_iter().map(|cell| cell.map_or_else(|| "NULL".to_string(), |text| escaped(&text))).collect();
        if self.widths.is_some() {
            return self.line(&cells);
        }
        self.measured_bytes += cells.iter().map(String::len).sum::<usize>();
        self.measured.push(cells);
        if self.measured.len() >= MEASURED_ROWS_MAX || self.measured_bytes >= MEASURED_BYTES_MAX {
            self.begin()?;
        }
        Ok(())
    }

    /// Writes the head and the rows held back.
    fn begin(&mut self) -> Result<(), QueryError> {
        let mut widths: Vec<usize> = self.head.iter().map(|name| width(name)).collect();
        for row in &self.measured {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(cell).min(COLUMN_WIDTH_MAX));
            }
        }
        self.widths = Some(widths);
        self.rule()?;
        let head = std::mem::take(&mut self.head);
        self.line(&head)?;
        self.rule()?;
        std::mem::take(&mut self.measured).iter().try_for_each(|row| self.line(row))
    }

    fn rule(&mut self) -> Result<(), QueryError> {
        for width in self.widths.iter().flatten() {
            write!(self.out, "+{}", "-".repeat(width + 2))?;
        }
        Ok(self.out.write_all(b"+\n")?)
    }

    /// Writes a row, on as many lines as its tallest value has.
    fn line(&mut self, cells: &[String]) -> Result<(), QueryError> {
        let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
        for line in 0..height {
            for ((cell, right), widest) in cells.iter().zip(&self.right).zip(self.widths.iter().flatten()) {
                let text = cell.lines().nth(line).unwrap_or_default();
                let space = " ".repeat(widest.saturating_sub(width(text)));
                let (before, behind) = if *right { (space.as_str(), "") } else { ("", space.as_str()) };
                write!(self.out, "| {before}{text}{behind} ")?;
            }
            self.out.write_all(b"|\n")?;
        }
        Ok(())
    }

    fn finish(mut self, rows: u64) -> Result<(), QueryError> {
        if self.widths.is_none() {
            self.begin()?;
        }
        if rows > 0 {
            self.rule()?;
        }
        writeln!(self.out, "{rows} {}", if rows == 1 { "row" } else { "rows" })?;
        Ok(self.out.flush()?)
    }
}

/// The letters of the longest line.
fn width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Control characters but line ends as escapes: a value must not move a terminal's cursor.
fn escaped(text: &str) -> String {
    let one = |letter: char| {
        if letter.is_control() && letter != '\n' { letter.escape_default().to_string() } else { letter.to_string() }
    };
    text.chars().map(one).collect()
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}
