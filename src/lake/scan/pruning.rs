//! Leaves out files that cannot have a matching row, by what the log says of them.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::physical_plan::ParquetFileMetrics;
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, RowGroupAccessPlanFilter,
};
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_adapter::{DefaultPhysicalExprAdapterFactory, PhysicalExprAdapterFactory};
use datafusion::physical_optimizer::pruning::{PruningStatistics, build_pruning_predicate};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet};

use super::BoundedFile;
use super::bounds::{ColumnBounds, plain};
use super::columns::ScanColumns;
use crate::lake::locate::Footer;

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

/// Tells which parts of a file may have rows for which a predicate is true, by its footer and page index.
pub(super) struct PagePruner {
    /// As far as it is about columns that are in files.
    predicate: Arc<dyn PhysicalExpr>,
    /// The columns of the predicate.
    columns: Vec<String>,
    /// All columns that files may have.
    schema: SchemaRef,
}

impl PagePruner {
    /// `None` if the predicate says nothing about single columns of files.
    pub fn new(columns: &ScanColumns, predicate: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let schema = columns.scan.file_schema().clone();
        let names =
            |part: &Arc<dyn PhysicalExpr>| collect_columns(part).into_iter().map(|column| column.name().to_string());
        let in_files = |part: &&Arc<dyn PhysicalExpr>| names(part).all(|name| schema.index_of(&name).is_ok());
        let parts: Vec<_> = split_conjunction(predicate).into_iter().filter(in_files).cloned().collect();
        let columns: Vec<String> = parts.iter().flat_map(names).collect();
        let predicate = conjunction(parts);
        (!columns.is_empty()).then_some(Self { predicate, columns, schema })
    }

    /// The parts to look at; `None` if that cannot be told: the predicate is about no bounds, or about a column that
    /// the file stores in another type than the table's.
    pub fn parts(&self, footer: &Footer) -> Option<ParquetAccessPlan> {
        let schema = self.stored(footer.schema())?;
        let adapter = DefaultPhysicalExprAdapterFactory.create(self.schema.clone(), schema.clone()).ok()?;
        let predicate = adapter.rewrite(self.predicate.clone()).ok()?;
        let predicate = PhysicalExprSimplifier::new(&schema).simplify(predicate).ok()?;
        let by_group = build_pruning_predicate(predicate.clone(), &schema, &Count::new())?;
        let by_page = PagePruningAccessPlanFilter::new(&predicate, schema.clone());

        let (columns, metadata) = (footer.parquet_schema(), footer.metadata());
        let metrics = ParquetFileMetrics::new(0, "", &ExecutionPlanMetricsSet::new());
        let mut groups = RowGroupAccessPlanFilter::new(ParquetAccessPlan::new_all(metadata.num_row_groups()));
        groups.prune_by_statistics(&schema, columns, metadata.row_groups(), &by_group, &metrics);
        Some(by_page.prune_plan_with_page_index(groups.build(), &schema, columns, metadata, &metrics))
    }

    /// The columns of a file, with views where the table has them. `None` if one of the predicate has another type.
    fn stored(&self, file: &SchemaRef) -> Option<SchemaRef> {
        let as_read = |field: &FieldRef| match self.schema.field_with_name(field.name()) {
            Ok(read) if plain(read.data_type()) == field.data_type() => {
                Some(Arc::new(field.as_ref().clone().with_data_type(read.data_type().clone())))
            }
            _ if self.columns.contains(field.name()) => None,
            _ => Some(field.clone()),
        };
        let fields: Option<Vec<FieldRef>> = file.fields().iter().map(as_read).collect();
        Some(Arc::new(Schema::new(fields?)))
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
