//! Leaves out files that cannot have a matching row, by what the log says of them.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::common::{Column, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningStatistics, build_pruning_predicate};
use datafusion::physical_plan::metrics::Count;

use super::BoundedFile;
use super::bounds::ColumnBounds;
use super::columns::ScanColumns;

/// The files that may have rows for which `predicate` (over the table's columns) is true. A predicate that says nothing
/// about bounds keeps all.
pub(super) fn keep_matching(
    columns: &ScanColumns,
    wanted: &[usize],
    files: Vec<BoundedFile>,
    predicate: &Arc<dyn PhysicalExpr>,
) -> Vec<BoundedFile> {
    let built = build_pruning_predicate(predicate.clone(), &columns.schema, &Count::new());
    let Some(pruning) = built else { return files };
    match pruning.prune(&LogStatistics { columns, wanted, files: &files }) {
        Ok(keep) => files.into_iter().zip(keep).filter_map(|(file, keep)| keep.then_some(file)).collect(),
        Err(error) => {
            tracing::debug!(error = %error, "no file is left out by its statistics");
            files
        }
    }
}

/// One container for each file.
struct LogStatistics<'a> {
    columns: &'a ScanColumns,
    wanted: &'a [usize],
    files: &'a [BoundedFile],
}

impl LogStatistics<'_> {
    /// One value for each file, null where it is not known.
    fn values(&self, column: &Column, bound: fn(&ColumnBounds) -> Option<&ScalarValue>) -> Option<ArrayRef> {
        let (index, field) = self.columns.scan_schema().column_with_name(&column.name)?;
        let position = self.wanted.iter().position(|wanted| *wanted == index)?;
        let null = ScalarValue::try_new_null(field.data_type()).ok()?;
        let value = |file: &BoundedFile| file.bounds.columns.get(position).and_then(bound).unwrap_or(&null).clone();
        ScalarValue::iter_to_array(self.files.iter().map(value)).ok()
    }
}

impl PruningStatistics for LogStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.min.as_ref())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let (index, _) = self.columns.scan_schema().column_with_name(&column.name)?;
        let position = self.wanted.iter().position(|wanted| *wanted == index)?;
        let nulls = self.files.iter().map(|file| file.bounds.columns.get(position)?.nulls);
        Some(Arc::new(nulls.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.files.iter().map(|file| file.bounds.rows).collect::<UInt64Array>()))
    }

    /// The log has no sets of values.
    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
