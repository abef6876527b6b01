//! What can be wrong with a query, in the words of the person who wrote it.

use chrono::{DateTime, Utc};
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use deltalake::errors::DeltaTableError;

use super::names::similar;
use crate::lake::LakeError;

/// Why a query gave no result, or only a part of it.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("syntax error in the query: {0}")]
    Syntax(String),
    #[error("found {found} statements, expected one; send them one by one")]
    NotOneStatement { found: usize },
    #[error(
        "{found} is not allowed: the lake is written by the job alone, a query may only read \
         (SELECT, WITH, EXPLAIN, SHOW TABLES, SHOW COLUMNS, DESCRIBE)"
    )]
    NotReadOnly { found: String },
    #[error("no table {name} in this lake{}", did_you_mean(.similar))]
    UnknownTable { name: String, similar: Vec<String> },
    #[error("{name} may be any of {}; write the database and the exact case too", .candidates.join(", "))]
    AmbiguousTable { name: String, candidates: Vec<String> },
    #[error("table {table} has no data in the lake yet; fill it with: alluvium run")]
    NotLoaded { table: String },
    #[error("version {version} of {table} can't be read: versions {oldest} to {newest} can")]
    NoSuchVersion { table: String, version: u64, oldest: u64, newest: u64 },
    #[error("{table} did not exist at {}: its first version is {first}, committed at {}", iso(.at), iso(.first_time))]
    BeforeFirstVersion { table: String, at: DateTime<Utc>, first: u64, first_time: DateTime<Utc> },
    #[error(
        "'{text}' is not a time; write it as '2026-01-31', '2026-01-31 10:00:00' (UTC) or '2026-01-31T10:00:00+02:00'"
    )]
    NotATime { text: String },
    #[error(
        "'{text}' is not a position; write it as mysql-bin.000007:1234, or as a GTID set: \
         3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 (MySQL), 0-1-100 (MariaDB)"
    )]
    NotAPosition { text: String },
    #[error("job {job} has recorded no consistent point yet; alluvium run does after each batch")]
    NoPoints { job: String },
    #[error("that is before the first consistent point of the job: {first}")]
    BeforeFirstPoint { first: String },
    #[error("{table} {reason} at the consistent point {point}; a version of it can still be read with VERSION AS OF")]
    NotAtPoint { table: String, point: String, reason: &'static str },
    #[error(
        "table_changes takes a table and the first and the last version, or their times: table_changes('orders', 3, 7), \
         table_changes('shop.orders', '2026-01-31 10:00:00')"
    )]
    TableChanges,
    #[error("table_changes of {table}: the first version is {from}, the last {to}")]
    ChangesBackwards { table: String, from: u64, to: u64 },
    #[error("AS OF is followed by {found}, expected {expected}")]
    AsOfWhat { found: String, expected: &'static str },
    #[error("AS OF belongs directly behind a table's name and before its alias: orders VERSION AS OF 3 AS o")]
    AsOfMisplaced,
    #[error("{name} is defined by WITH in this query and has no versions; put AS OF behind the table inside it")]
    AsOfOfWith { name: String },
    #[error("{what} is not supported behind a table's name")]
    NotSupported { what: &'static str },
    #[error("the query can't be run: {0}")]
    Plan(String),
    #[error(
        "the query needs more memory than it may use; raise run.memory in the job file, or read fewer rows or columns"
    )]
    OutOfMemory,
    #[error(
        "the file {path} is gone from the lake; where vacuum removed the data of an old version, query a newer one"
    )]
    FileGone { path: String },
    #[error(
        "version {version} of {table} can't be read any more: vacuum has removed files of it; the oldest version that has all \
         its files is {oldest}"
    )]
    Vacuumed { table: String, version: u64, oldest: u64 },
    #[error("the lake could not be read ({doing}): {source}")]
    Lake { doing: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot listen at {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error("the query cannot be read from {file}: {source}")]
    QueryFile { file: String, source: std::io::Error },
    #[error("the result could not be written: {0}")]
    Write(#[from] std::io::Error),
}

impl QueryError {
    pub(super) fn lake(doing: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Lake { doing: doing.into(), source: source.into() }
    }
}

/// Turns an error of the query engine into the words of a query's author; errors of ours inside it come out as they are.
impl From<DataFusionError> for QueryError {
    fn from(error: DataFusionError) -> Self {
        if let Some(path) = missing_file(&error) {
            return Self::FileGone { path };
        }
        if let Some(message) = lake_message(&error) {
            return Self::lake("running the query", message);
        }
        match error {
            DataFusionError::External(inner) => match inner.downcast::<QueryError>() {
                Ok(ours) => *ours,
                Err(other) => Self::lake("running the query", other),
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Self::from(*inner),
            DataFusionError::ResourcesExhausted(_) => Self::OutOfMemory,
            DataFusionError::SQL(error, _) => Self::Syntax(syntax_message(&error)),
            DataFusionError::ObjectStore(error) => Self::lake("running the query", error),
            other if out_of_memory(&other) => Self::OutOfMemory,
            other => Self::Plan(plain_message(other.find_root())),
        }
    }
}

/// The parser's own message without its type's name in front.
pub(super) fn syntax_message(error: &datafusion::sql::sqlparser::parser::ParserError) -> String {
    use datafusion::sql::sqlparser::parser::ParserError;
    match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.clone(),
        ParserError::RecursionLimitExceeded => "it is nested too deeply".to_string(),
    }
}

fn out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// The path of an object that a reader did not find, wherever in the chain of causes it says so.
fn missing_file(error: &DataFusionError) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(path) = missing_here(current) {
            return Some(path);
        }
        cause = current.source();
    }
    missing_file_in(&error.to_string())
}

/// What the lake's own reader found wrong, wherever in the chain of causes it says so.
fn lake_message(error: &DataFusionError) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<LakeError>() {
            return Some(error.to_string());
        }
        cause = current.source();
    }
    None
}

fn missing_here(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let store = error.downcast_ref::<object_store::Error>();
    let boxed = error.downcast_ref::<Box<object_store::Error>>().map(|inner| &**inner);
    match (store.or(boxed), error.downcast_ref::<DeltaTableError>()) {
        (Some(object_store::Error::NotFound { path, .. }), _) => Some(path.clone()),
        (_, Some(DeltaTableError::KernelError(delta_kernel::Error::FileNotFound(path)))) => Some(path.clone()),
        _ => None,
    }
}

/// The engine's Parquet reader hands on the text of the store's error alone.
fn missing_file_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Object at location ")?;
    rest.split_once(" not found").map(|(path, _)| path.to_string())
}

fn plain_message(error: &DataFusionError) -> String {
    match error {
        DataFusionError::SchemaError(schema, _) => schema_message(schema),
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Configuration(text) => one_line(text),
        DataFusionError::ArrowError(inner, _) => one_line(&inner.to_string()),
        DataFusionError::Collection(errors) => errors.first().map(plain_message).unwrap_or_default(),
        DataFusionError::Shared(inner) => plain_message(inner),
        DataFusionError::Internal(text) => format!("the query engine failed: {}", one_line(text)),
        other => one_line(&other.to_string()),
    }
}

fn schema_message(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let names: Vec<String> = valid_fields.iter().map(|field| field.name.clone()).collect();
            format!("no column {}{}", column_name(field), columns_hint(&field.name, &names))
        }
        SchemaError::AmbiguousReference { field } => {
            format!("column {} is in more than one table; write the table's name in front of it", field.name)
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            format!("column {name} is there twice; give one of them another name with AS")
        }
    }
}

fn column_name(column: &Column) -> String {
    match &column.relation {
        Some(relation) => format!("{}.{}", relation.table(), column.name),
        None => column.name.clone(),
    }
}

/// At most this many columns are listed when none is similar: a line or two on a terminal.
const COLUMNS_LISTED_MAX: usize = 12;

fn columns_hint(name: &str, columns: &[String]) -> String {
    let close = similar(name, columns);
    match (close.is_empty(), columns.is_empty()) {
        (false, _) => did_you_mean(&close),
        (true, true) => String::new(),
        (true, false) => {
            let listed = columns.iter().take(COLUMNS_LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
            let more = if columns.len() > COLUMNS_LISTED_MAX { ", ..." } else { "" };
            format!("; there are: {listed}{more} (text is written in single quotes)")
        }
    }
}

fn did_you_mean(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// The engine's text without its back trace, and without line ends.
fn one_line(text: &str) -> String {
    let text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn iso(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}
