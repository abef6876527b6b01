//! What the log says of the columns of one file, without promising more than it does.

use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use serde_json::Value;

use super::columns::ScanColumns;
use crate::change::TableId;
use crate::lake::files::FileEntry;
use crate::lake::{LakeError, stats};

/// Counts and bounds of one file.
pub(super) struct FileBounds {
    /// Physical rows, deleted ones included.
    pub rows: Option<u64>,
    deleted: u64,
    /// Of the wanted columns, in their order.
    pub columns: Vec<ColumnBounds>,
}

/// Bounds of all physical rows of a column, deleted ones included. Each may be missing.
pub(super) struct ColumnBounds {
    pub min: Option<ScalarValue>,
    pub max: Option<ScalarValue>,
    /// Whether live rows have these very values.
    exact: bool,
    /// Physical rows that are null, at most [`FileBounds::rows`].
    pub nulls: Option<u64>,
    /// Whether as many live rows are null.
    nulls_exact: bool,
}

impl FileBounds {
    /// `wanted` columns by position in the scan, and how many rows are read, where not all live ones are.
    ///
    /// # Errors
    /// [`LakeError::Damaged`] if a partition value is not one.
    pub fn new(
        table: &TableId,
        columns: &ScanColumns,
        file: &FileEntry,
        (wanted, read): (&[usize], Option<u64>),
    ) -> Result<Self, LakeError> {
        let log = file.stats();
        let unread = read.map(|read| file.rows.unwrap_or(0).saturating_sub(read));
        let deleted = unread.unwrap_or_else(|| file.deleted_rows());
        let mut bounds = Self { rows: file.rows, deleted, columns: Vec::new() };
        let by_partition = columns.partition_values(table, &file.add)?;
        for column in wanted {
            let of_column = match column.checked_sub(columns.in_files()) {
                Some(position) => by_partition.get(position).map(|value| bounds.of_partition(value)),
                None => {
                    let field = columns.scan_schema().field(*column);
                    log.as_ref().map(|log| bounds.of_column(log, field.name(), field.data_type()))
                }
            };
            bounds.columns.push(of_column.unwrap_or_else(ColumnBounds::unknown));
        }
        Ok(bounds)
    }

    pub fn live_rows(&self) -> Option<u64> {
        Some(self.rows?.saturating_sub(self.deleted))
    }

    fn of_partition(&self, value: &ScalarValue) -> ColumnBounds {
        let bound = Some(value.clone()).filter(|value| !value.is_null());
        let nulls = if value.is_null() { self.rows } else { Some(0) };
        // Without a live row nothing has the value.
        let exact = self.live_rows().is_some_and(|rows| rows > 0);
        ColumnBounds { min: bound.clone(), max: bound, exact, nulls, nulls_exact: true }
    }

    fn of_column(&self, log: &Value, name: &str, data_type: &DataType) -> ColumnBounds {
        let tight = self.deleted == 0 && log.get("tightBounds").and_then(Value::as_bool).unwrap_or(true);
        let read = |list: &str, upper: bool| bound(data_type, log.get(list)?.get(name)?, upper);
        let (min, max) = (read("minValues", false), read("maxValues", true));
        let nulls = log.get("nullCount").and_then(|counts| counts.get(name)?.as_u64());
        let nulls = nulls.filter(|nulls| self.rows.is_some_and(|rows| *nulls <= rows));
        ColumnBounds { min, max, exact: tight && is_exact(data_type), nulls, nulls_exact: tight }
    }

    /// For the optimizer, with all columns of the scan.
    pub fn statistics(&self, columns: &ScanColumns, wanted: &[usize], bytes: u64) -> Statistics {
        let live = self.live_rows();
        let mut statistics = Statistics::new_unknown(columns.scan_schema());
        statistics.num_rows = live.map_or(Precision::Absent, |rows| exactly(rows, true));
        statistics.total_byte_size = exactly(bytes, false);
        for (column, bounds) in wanted.iter().zip(&self.columns) {
            if let Some(of_column) = statistics.column_statistics.get_mut(*column) {
                bounds.write(of_column, self.rows, live);
            }
        }
        statistics
    }
}

impl ColumnBounds {
    fn unknown() -> Self {
        Self { min: None, max: None, exact: false, nulls: None, nulls_exact: false }
    }

    fn write(&self, statistics: &mut ColumnStatistics, rows: Option<u64>, live: Option<u64>) {
        let precise = |bound: &Option<ScalarValue>| match bound {
            Some(bound) if self.exact => Precision::Exact(bound.clone()),
            Some(bound) => Precision::Inexact(bound.clone()),
            None => Precision::Absent,
        };
        statistics.min_value = precise(&self.min);
        statistics.max_value = precise(&self.max);
        statistics.null_count = match (self.nulls, live) {
            (Some(0), _) => exactly(0, true),
            // If all rows are null, all that live are.
            (Some(nulls), Some(live)) if rows == Some(nulls) => exactly(live, true),
            (Some(nulls), Some(live)) => exactly(nulls.min(live), self.nulls_exact),
            _ => Precision::Absent,
        };
    }
}

fn exactly(count: u64, exact: bool) -> Precision<usize> {
    match usize::try_from(count) {
        Ok(count) if exact => Precision::Exact(count),
        Ok(count) => Precision::Inexact(count),
        Err(_) => Precision::Absent,
    }
}

/// Types whose bounds are in the log as they are; text is cut there, times lose their microseconds.
fn is_exact(data_type: &DataType) -> bool {
    data_type.is_signed_integer() || *data_type == DataType::Date32
}

/// The type of a column as files have it, for one that is read as views.
pub(super) fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Utf8View => &DataType::Utf8,
        DataType::BinaryView => &DataType::Binary,
        other => other,
    }
}

/// A bound of the log as a value of its column.
fn bound(data_type: &DataType, value: &Value, upper: bool) -> Option<ScalarValue> {
    let array = stats::bound_array(plain(data_type), value, upper)?;
    let bound = ScalarValue::try_from_array(&array, 0).ok()?.cast_to(data_type).ok()?;
    Some(bound).filter(|bound| !bound.is_null())
}
