//! What became of the source's schema changes: a row for each table that a step gave a schema, or took out because of a
//! statement. It is kept with the points ([`super::points`]), each written once its step is done, and made of the ledger's entry
//! alone: after a crash at any moment it says what the tables are.
//!
//! ```text
//! _alluvium/<job>/points/     the rows of the last steps, with their points
//! _alluvium/<job>/schema_log/ a Delta table: those of older steps
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ledger::{LedgerEntry, StopRecord, Work};
use super::{LakeError, Point};
use crate::change::{Ending, TableId};
use crate::schema::{TableSchema, Treatment};

/// The name of the Delta table, and of its folder.
pub(super) const NAME: &str = "schema_log";

/// What one step made of one table's schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaNote {
    /// The log that the statement stands in.
    pub source: String,
    pub table: TableId,
    /// Where the statement ends: the schema holds from there on.
    pub position: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    pub status: SchemaStatus,
    /// Why the table was taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the table's shape from here on; `None` where it has none, or is not captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The columns in the source's order, as JSON: name, the source's type, the lake's column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
    /// The key's columns as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What became of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaStatus {
    /// The ledger has it, and the next run finishes it.
    Pending,
    Applied,
    /// It was not followed, and its table was taken out.
    Failed,
}

impl SchemaStatus {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Applied => "applied",
            Self::Failed => "failed",
        }
    }
}

/// What a step that is done made of schemas; nothing for a batch.
pub fn notes_of(entry: &LedgerEntry, status: SchemaStatus) -> Vec<SchemaNote> {
    let source = entry.identity.0.clone();
    match &entry.work {
        Work::Schema { tables } => {
            let note = |record: &super::SchemaRecord| SchemaNote {
                source: source.clone(),
                table: record.schema.table.clone(),
                position: record.position.text.clone(),
                statement: record.statement.clone(),
                status,
                reason: None,
                version: (!record.shadow).then_some(record.schema.version),
                columns: Some(columns_of(&record.schema)),
                key: Some(key_of(&record.schema)),
            };
            tables.iter().map(note).collect()
        }
        Work::Stop { tables } => {
            let note = |record: &StopRecord| SchemaNote {
                source: source.clone(),
                table: record.table.clone(),
                position: record.position.text.clone(),
                statement: record.statement.clone(),
                status: if record.ending == Ending::Fault { SchemaStatus::Failed } else { status },
                reason: Some(record.reason.clone()),
                version: None,
                columns: None,
                key: None,
            };
            tables.iter().filter(|record| record.statement.is_some()).map(note).collect()
        }
        _ => Vec::new(),
    }
}

fn columns_of(schema: &TableSchema) -> String {
    let column = |column: &crate::schema::Column| {
        let mut shown = json!({ "name": column.name, "type": column.source_type, "nullable": column.nullable });
        if column.treatment != Treatment::Kept {
            shown["treatment"] = column.treatment.name().into();
        }
        if column.treatment != Treatment::LeftOut {
            shown["lake_name"] = column.lake_name().into();
            shown["lake_type"] = column.lake_type().to_string().into();
        }
        shown
    };
    json!(schema.columns.iter().map(column).collect::<Vec<_>>()).to_string()
}

fn key_of(schema: &TableSchema) -> String {
    let names = schema.key.iter().filter_map(|index| schema.columns.get(*index)).map(|column| &column.name);
    json!(names.collect::<Vec<_>>()).to_string()
}

/// The columns of the schema log: a row for each note.
pub fn schema_log_schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let number = |name: &str| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![
        text("source"),
        number("sequence"),
        text("position"),
        text("database_name"),
        text("table_name"),
        number("schema_version"),
        number("version"),
        Field::new("recorded_at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        text("statement"),
        text("status"),
        text("reason"),
        text("columns"),
        text("key"),
    ]))
}

/// The notes of points as rows of [`schema_log_schema`].
///
/// # Errors
/// None that is known: the columns are of one length.
pub fn schema_log_rows(points: &[Point]) -> Result<RecordBatch, LakeError> {
    let pairs: Vec<(&Point, &SchemaNote)> =
        points.iter().flat_map(|point| point.schemas.iter().map(move |note| (point, note))).collect();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let texts = |value: &dyn Fn(&SchemaNote) -> Option<String>| -> ArrayRef {
        Arc::new(pairs.iter().map(|(_, note)| value(note)).collect::<StringArray>())
    };
    let numbers = |value: &dyn Fn(&Point, &SchemaNote) -> Option<i64>| -> ArrayRef {
        Arc::new(pairs.iter().map(|(point, note)| value(point, note)).collect::<Int64Array>())
    };
    let delta = |point: &Point, note: &SchemaNote| {
        let table = point.tables.iter().find(|table| table.table == note.table)?;
        table.version.map(number)
    };
    let times: TimestampMicrosecondArray = pairs.iter().map(|(point, _)| Some(point.recorded_at_us)).collect();
    let columns = vec![
        texts(&|note| Some(note.source.clone())),
        numbers(&|point, _| Some(number(point.sequence))),
        texts(&|note| Some(note.position.clone())),
        texts(&|note| Some(note.table.database.clone())),
        texts(&|note| Some(note.table.table.clone())),
        numbers(&|_, note| note.version.map(i64::from)),
        numbers(&delta),
        Arc::new(times.with_timezone("UTC")),
        texts(&|note| note.statement.clone()),
        texts(&|note| Some(note.status.name().to_string())),
        texts(&|note| note.reason.clone()),
        texts(&|note| note.columns.clone()),
        texts(&|note| note.key.clone()),
    ];
    let table = TableId::new("alluvium", NAME);
    RecordBatch::try_new(schema_log_schema(), columns).map_err(LakeError::arrow(&table, "list the schemas of the job"))
}
