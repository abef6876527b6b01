//! Reads Delta tables into canonical text, through the deltalake crate and DataFusion: nothing here goes through
//! Alluvium's own reading or writing.

use std::collections::HashMap;
use std::path::PathBuf;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::SessionContext;
use url::Url;

use super::content::Content;

/// A lake in a local folder or on S3.
pub struct LakeReader {
    root: Url,
    options: HashMap<String, String>,
}

/// What Alluvium wrote into one commit of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub version: u64,
    /// `file:offset`, the end of the batch; `None` for commits that carry none (by others, or before the first batch).
    pub position: Option<String>,
    pub sequence: Option<i64>,
}

impl LakeReader {
    pub fn new(folder: PathBuf) -> Self {
        Self { root: Url::from_directory_path(folder).unwrap(), options: HashMap::new() }
    }

    /// `root` ends in a slash; `options` are deltalake's.
    pub fn on_s3(root: &str, options: HashMap<String, String>) -> Self {
        deltalake::aws::register_handlers(None);
        Self { root: root.parse().unwrap(), options }
    }

    /// Of a table in a local lake.
    pub fn table_folder(&self, database: &str, table: &str) -> PathBuf {
        self.root.to_file_path().unwrap().join(database).join(table)
    }

    fn table_url(&self, database: &str, table: &str) -> Url {
        if self.root.scheme() == "file" {
            return Url::from_directory_path(self.table_folder(database, table)).unwrap();
        }
        self.root.join(&format!("{database}/{table}/")).unwrap()
    }

    pub fn has_table(&self, database: &str, table: &str) -> bool {
        self.table_folder(database, table).join("_delta_log").is_dir()
    }

    /// All commits of a table in order, read from its log's JSON files.
    pub fn commits(&self, database: &str, table: &str) -> Vec<Commit> {
        let log = self.table_folder(database, table).join("_delta_log");
        let mut commits: Vec<Commit> = std::fs::read_dir(&log)
            .unwrap_or_else(|error| panic!("{}: {error}", log.display()))
            .filter_map(|entry| {
                let path = entry.unwrap().path();
                let version = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
                Some(parse_commit(version, &std::fs::read_to_string(&path).unwrap()))
            })
            .collect();
        commits.sort_by_key(|commit| commit.version);
        commits
    }

    /// All rows of a table at a version, or now. `key` are the key's columns in order.
    pub async fn content(&self, database: &str, table: &str, key: &[String], version: Option<u64>) -> Content {
        let what = format!("{database}.{table} in the lake at version {version:?}");
        let url = self.table_url(database, table);
        let delta = deltalake::open_table_with_storage_options(url, self.options.clone()).await;
        let mut delta = delta.unwrap_or_else(|error| panic!("{what}: {error}"));
        if let Some(version) = version {
            delta.load_version(version).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        let provider = delta.table_provider().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let context = SessionContext::new();
        delta.update_datafusion_session(&context.state()).unwrap();
        let rows = context.read_table(provider).unwrap();
        let columns: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        let batches = rows.collect().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        Content::new(&what, columns, key, batches.iter().flat_map(canonical_rows).collect())
    }
}

/// Rows that DataFusion gives, in canonical text.
pub fn content_of(what: &str, batches: &[RecordBatch], key: &[String]) -> Content {
    let schema = batches.first().unwrap_or_else(|| panic!("{what}: no rows at all")).schema();
    let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
    Content::new(what, columns, key, batches.iter().flat_map(canonical_rows).collect())
}

fn parse_commit(version: u64, text: &str) -> Commit {
    let info = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|action| action.get("commitInfo").cloned())
        .unwrap_or_default();
    Commit {
        version,
        position: info.get("alluvium.position").and_then(|value| value.as_str()).map(str::to_string),
        sequence: info.get("alluvium.sequence").and_then(|value| value.as_i64()),
    }
}

pub fn canonical_rows(batch: &RecordBatch) -> Vec<Vec<Option<String>>> {
    let columns: Vec<Vec<Option<String>>> = batch.columns().iter().map(canonical_column).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect()
}

fn canonical_column(array: &ArrayRef) -> Vec<Option<String>> {
    let array = match array.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => &cast(array, &DataType::Utf8).unwrap(),
        DataType::BinaryView | DataType::LargeBinary => &cast(array, &DataType::Binary).unwrap(),
        DataType::Dictionary(_, values) => &cast(array, values).unwrap(),
        _ => array,
    };
    (0..array.len()).map(|row| array.is_valid(row).then(|| canonical_value(array, row))).collect()
}

fn canonical_value(array: &ArrayRef, row: usize) -> String {
    match array.data_type() {
        DataType::Boolean => u8::from(array.as_boolean().value(row)).to_string(),
        DataType::Float32 => format!("{:?}", f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let time = array.as_primitive::<TimestampMicrosecondType>().value_as_datetime(row).unwrap();
            time.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
        }
        DataType::Utf8 => array.as_string::<i32>().value(row).to_string(),
        DataType::Binary => hex(array.as_binary::<i32>().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let items = items.as_primitive::<Float32Type>();
            items.values().iter().map(|item| hex(&item.to_le_bytes())).collect()
        }
        DataType::Date32 | DataType::Decimal128(..) => printed(array, row),
        other if other.is_integer() => printed(array, row),
        other => panic!("no canonical text for {other}"),
    }
}

fn printed(array: &ArrayRef, row: usize) -> String {
    ArrayFormatter::try_new(array, &FormatOptions::default()).unwrap().value(row).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
