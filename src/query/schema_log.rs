//! The tables `alluvium.schema_history` and `alluvium.ddl_log`: what the job notes of the source's schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::prelude::{col, lit};

use super::QueryError;
use super::moment::JobPoints;
use super::tables::foreign_provider;
use crate::lake::{Folded, LakeError, Point, SchemaStatus, notes_of, schema_log_rows, schema_log_schema};

/// The columns of the schema log that the history has, in its order.
const HISTORY: [&str; 11] = [
    "database_name",
    "table_name",
    "schema_version",
    "position",
    "sequence",
    "recorded_at",
    "version",
    "columns",
    "key",
    "statement",
    "source",
];

/// The columns of the statements' table; `tables` stands for all tables of one statement.
const DDL: [&str; 8] = ["source", "sequence", "position", "statement", "tables", "status", "reason", "recorded_at"];

/// The columns of `alluvium.schema_history`: a row for each version of each table's schema.
pub(super) fn history_schema() -> SchemaRef {
    let all = schema_log_schema();
    let fields = HISTORY.iter().filter_map(|name| all.field_with_name(name).ok().cloned());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of `alluvium.ddl_log`: a row for each statement that changed the schema of a captured table, or was to.
pub(super) fn ddl_schema() -> SchemaRef {
    let all = schema_log_schema();
    let field = |name: &&str| match all.field_with_name(name) {
        Ok(field) => field.clone(),
        Err(_) => Field::new(*name, arrow::datatypes::DataType::Utf8, true),
    };
    Arc::new(Schema::new(DDL.iter().map(field).collect::<Vec<_>>()))
}

impl JobPoints {
    /// The table `alluvium.schema_history`.
    pub async fn schema_history(&self, state: &SessionState) -> Result<Arc<dyn TableProvider>, QueryError> {
        let rows = self.schema_rows(state).await?;
        let kept = rows.iter().map(|batch| {
            let is_version = arrow::compute::is_not_null(column(batch, "schema_version")?)?;
            let kept = arrow::compute::filter_record_batch(batch, &is_version)?;
            let columns = HISTORY.iter().map(|name| column(&kept, name).cloned());
            RecordBatch::try_new(history_schema(), columns.collect::<Result<_, _>>()?)
        });
        let kept = kept.collect::<Result<Vec<_>, _>>().map_err(|error| QueryError::Plan(error.to_string()))?;
        Ok(Arc::new(MemTable::try_new(history_schema(), vec![kept])?))
    }

    /// The table `alluvium.ddl_log`.
    pub async fn ddl_log(&self, state: &SessionState) -> Result<Arc<dyn TableProvider>, QueryError> {
        let mut statements = BTreeMap::new();
        for batch in self.schema_rows(state).await? {
            gather(&batch, &mut statements).map_err(|error| QueryError::Plan(error.to_string()))?;
        }
        let mut rows: Vec<Statement> = statements.into_values().collect();
        rows.sort_by_key(|row| row.sequence);
        let batch = ddl_rows(&rows).map_err(|error| QueryError::Plan(error.to_string()))?;
        Ok(Arc::new(MemTable::try_new(ddl_schema(), vec![vec![batch]])?))
    }

    /// The whole schema log: what has been folded, what has not, and the step that is not finished. As many rows as the source
    /// had schema changes.
    async fn schema_rows(&self, state: &SessionState) -> Result<Vec<RecordBatch>, QueryError> {
        let failed = |error: LakeError| QueryError::lake("reading the schema log of the job", error);
        let mut points = self.points.unfolded().await.map_err(failed)?;
        let mut batches = Vec::new();
        if self.points.has_table(Folded::SchemaLog).await.map_err(failed)? {
            let folded = self.points.folded(Folded::SchemaLog).await.map_err(failed)?.unwrap_or(0);
            points.retain(|point| point.sequence > folded);
            let open = foreign_provider(&self.points.log_store(Folded::SchemaLog), None).await;
            let provider = open.map_err(|error| QueryError::lake("reading the folded schema log", error))?.provider;
            let frame = SessionContext::new_with_state(state.clone()).read_table(provider)?;
            let folded_at = i64::try_from(folded).unwrap_or(i64::MAX);
            for batch in frame.filter(col("sequence").lt_eq(lit(folded_at)))?.collect().await? {
                batches.push(typed(&batch).map_err(|error| QueryError::Plan(error.to_string()))?);
            }
        }
        let newest = points.last().map_or(0, |point| point.sequence);
        points.extend(self.unfinished(newest).await?);
        batches.push(schema_log_rows(&points).map_err(failed)?);
        Ok(batches)
    }

    /// The ledger's newest step, if it has no point yet.
    async fn unfinished(&self, newest: u64) -> Result<Option<Point>, QueryError> {
        let state = self.ledger.load().await.map_err(|error| QueryError::Plan(error.to_string()))?;
        let entry = state.map(|state| state.newest).filter(|entry| newest > 0 && entry.sequence > newest);
        Ok(entry.map(|entry| {
            let schemas = notes_of(&entry, SchemaStatus::Pending);
            let point = Point::new(entry.sequence, entry.end.clone(), None, entry.created_at_us, Vec::new());
            Point { schemas, ..point }
        }))
    }
}

/// The columns by name, as [`schema_log_schema`] has them.
fn typed(batch: &RecordBatch) -> Result<RecordBatch, arrow::error::ArrowError> {
    let schema = schema_log_schema();
    let columns = schema.fields().iter().map(|field| cast(column(batch, field.name())?, field.data_type()));
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, arrow::error::ArrowError> {
    let missing = || arrow::error::ArrowError::SchemaError(format!("the schema log has no column {name}"));
    batch.column_by_name(name).ok_or_else(missing)
}

/// One statement, and what became of it.
struct Statement {
    source: String,
    sequence: i64,
    position: String,
    statement: String,
    tables: Vec<String>,
    status: String,
    reason: Option<String>,
    recorded_at_us: i64,
}

/// Puts the rows of one statement together: a rename of two tables takes several steps.
fn gather(
    batch: &RecordBatch,
    statements: &mut BTreeMap<(String, String), Statement>,
) -> Result<(), arrow::error::ArrowError> {
    let texts = |name: &str| column(batch, name).map(|column| column.as_string::<i32>());
    let (source, position, statement) = (texts("source")?, texts("position")?, texts("statement")?);
    let (database, table) = (texts("database_name")?, texts("table_name")?);
    let (status, reason) = (texts("status")?, texts("reason")?);
    let sequence = column(batch, "sequence")?.as_primitive::<Int64Type>();
    let times = column(batch, "recorded_at")?.as_primitive::<TimestampMicrosecondType>();
    for row in (0..batch.num_rows()).filter(|row| statement.is_valid(*row)) {
        let key = (source.value(row).to_string(), position.value(row).to_string());
        let name = format!("{}.{}", database.value(row), table.value(row));
        let known = statements.entry(key).or_insert_with(|| Statement {
            source: source.value(row).to_string(),
            sequence: sequence.value(row),
            position: position.value(row).to_string(),
            statement: statement.value(row).to_string(),
            tables: Vec::new(),
            status: status.value(row).to_string(),
            reason: None,
            recorded_at_us: times.value(row),
        });
        if !known.tables.contains(&name) {
            known.tables.push(name);
        }
        if status.value(row) != SchemaStatus::Applied.name() {
            known.status = status.value(row).to_string();
        }
        known.reason = known.reason.take().or_else(|| reason.is_valid(row).then(|| reason.value(row).to_string()));
    }
    Ok(())
}

fn ddl_rows(rows: &[Statement]) -> Result<RecordBatch, arrow::error::ArrowError> {
    let texts = |value: &dyn Fn(&Statement) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(value).collect::<StringArray>())
    };
    let times: TimestampMicrosecondArray = rows.iter().map(|row| Some(row.recorded_at_us)).collect();
    let columns = vec![
        texts(&|row| Some(row.source.clone())),
        Arc::new(rows.iter().map(|row| Some(row.sequence)).collect::<Int64Array>()) as ArrayRef,
        texts(&|row| Some(row.position.clone())),
        texts(&|row| Some(row.statement.clone())),
        texts(&|row| Some(row.tables.join(", "))),
        texts(&|row| Some(row.status.clone())),
        texts(&|row| row.reason.clone()),
        Arc::new(times.with_timezone("UTC")) as ArrayRef,
    ];
    RecordBatch::try_new(ddl_schema(), columns)
}
