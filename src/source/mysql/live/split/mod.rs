//! The first load: a key range of a table, read with one SELECT between two looks at the log.

use std::sync::Arc;
use std::time::Instant;

use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};

use super::connection::{Endpoint, Session, identifier};
use super::log;
use super::stream::GivenOut;
use crate::change::{ChangeBatch, Losses, Operation, ResumePoint, RowKey, TableId, TransactionSpan};
use crate::config::MysqlConfig;
use crate::schema::TableSchema;
use crate::source::mysql::binlog::{Flavor, Place};
use crate::source::mysql::column_type::ColumnType;
use crate::source::{KeyRange, SourceError, SourceErrorKind, Split, SplitLimits};

mod column;
mod key;
mod plan;

pub(super) use plan::next_cut;

use column::ColumnReader;
use key::Key;

/// Values of a batch, in bytes, after which the next one begins. Small beside any `run.memory`, large enough
/// that the cost of a batch does not count.
const BATCH_BYTES: usize = 8 << 20;

/// What a value without a length of its own counts for [`BATCH_BYTES`].
const CELL_BYTES: usize = 8;

/// Reads the rows of `range`. `low` is noted by the caller before, on MySQL; MariaDB's comes with the snapshot that the
/// rows are read from. The session may be another one afterwards.
pub(super) async fn read(
    session: &mut Session,
    config: &MysqlConfig,
    schema: &Arc<TableSchema>,
    range: &KeyRange,
    limits: SplitLimits,
    low: Option<ResumePoint>,
    given_out: &GivenOut,
) -> Result<Split, SourceError> {
    let types = column_types(schema)?;
    let key = Key::of(schema, &types);
    let low = match low {
        Some(low) => low,
        None => {
            let coordinates = open_snapshot(session, given_out).await?;
            log::mariadb_point(session, coordinates).await?
        }
    };
    let sql = query(schema, &key, range, limits.rows_max)?;
    let mut reading = Reading::new(Arc::clone(schema), types, low.clone());
    let end = read_rows(session, &sql, &mut reading, limits).await?;
    match end {
        End::Bytes => *session = instead_of(session, config).await?,
        End::Rows | End::Time | End::Range if session.flavor == Flavor::MariaDb => session.run("ROLLBACK").await?,
        End::Rows | End::Time | End::Range => {}
    }
    let high = log::head(session).await?;
    let losses = reading.losses();
    let last_key = match (end, reading.last_row.take()) {
        (End::Range, _) => range.upto.clone(),
        (_, Some(last)) => Some(key.of_row(&last)?),
        (_, None) => return Err(too_slow(schema, config)),
    };
    Ok(Split { low, high, rows: reading.finish()?, last_key, losses })
}

/// What ended a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The whole range is read.
    Range,
    Rows,
    /// The rest of the result is still to come.
    Bytes,
    /// The server's limit of time.
    Time,
}

/// A fresh session in the place of one whose result nobody wants to read to its end.
async fn instead_of(old: &Session, config: &MysqlConfig) -> Result<Session, SourceError> {
    let mut fresh = Session::open_reader(config, old.incumbent.clone()).await?;
    // Otherwise the driver reads on to the end before it hangs up. It may be at its end by now.
    let _ = fresh.run(&format!("KILL {}", old.conn.id())).await;
    Ok(fresh)
}

fn too_slow(schema: &TableSchema, config: &MysqlConfig) -> SourceError {
    let message = format!(
        "no row of {} came within {} s: its key needs an index, or the server more time; see source.snapshot.query_time",
        schema.table,
        config.snapshot.query_time_max.as_secs()
    );
    SourceError::new(SourceErrorKind::Unloadable, message)
}

/// Opens a snapshot that holds exactly the transactions before the end of the log that comes with it, among them
/// all that have been given out.
async fn open_snapshot(session: &mut Session, given_out: &GivenOut) -> Result<Place, SourceError> {
    let deadline = Instant::now() + log::COMMIT_WAIT;
    loop {
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await?;
        let coordinates = log::snapshot_coordinates(session).await?;
        if given_out.is_reached_by(&coordinates.position()) {
            return Ok(coordinates);
        }
        session.run("ROLLBACK").await?;
        if Instant::now() > deadline {
            return Err(log::commits_hang(session));
        }
        tokio::time::sleep(log::COMMIT_POLL).await;
    }
}

fn column_types(schema: &TableSchema) -> Result<Vec<ColumnType>, SourceError> {
    let parse = |column: &crate::schema::Column| {
        column.source_type.parse().map_err(|error: crate::source::mysql::column_type::ColumnTypeError| {
            let message = format!("column {} of {}: {error}", column.name, schema.table);
            SourceError::new(SourceErrorKind::Misconfigured, message)
        })
    };
    schema.columns.iter().map(parse).collect()
}

fn query(schema: &TableSchema, key: &Key, range: &KeyRange, rows_max: usize) -> Result<String, SourceError> {
    let columns = schema.columns.iter().map(|column| identifier(&column.name));
    let selected: Vec<String> = columns.chain(key.extra_columns()).collect();
    Ok(format!("SELECT {} {} LIMIT {rows_max}", selected.join(", "), from(schema, key, range)?))
}

/// `FROM ... WHERE ... ORDER BY ...` of a range.
fn from(schema: &TableSchema, key: &Key, range: &KeyRange) -> Result<String, SourceError> {
    let mut conditions = Vec::new();
    if let Some(after) = &range.after {
        conditions.push(format!("({})", key.after(after)?));
    }
    if let Some(upto) = &range.upto {
        conditions.push(format!("({})", key.up_to(upto)?));
    }
    conditions.extend(range.condition.as_deref().map(in_parentheses));
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    Ok(format!("FROM {}{filter} ORDER BY {}", table_name(schema), key.order_by()))
}

/// The condition for the rows with these keys.
pub(super) fn condition_of(schema: &TableSchema, keys: &[RowKey]) -> Result<String, SourceError> {
    Key::of(schema, &column_types(schema)?).any_of(keys)
}

/// The end of the line ends a comment that the condition may end in.
fn in_parentheses(condition: &str) -> String {
    format!("({condition}\n)")
}

/// Has the server read a condition, between two kinds of brackets: `1) OR (1` closes one of them only.
pub(super) async fn check_condition(
    session: &mut Session,
    schema: &TableSchema,
    condition: &str,
) -> Result<(), SourceError> {
    let whole = in_parentheses(condition);
    let sql = format!("SELECT CASE WHEN {condition}\nTHEN 1 END FROM {} WHERE {whole} LIMIT 0", table_name(schema));
    session.conn.query_drop(sql).await.map_err(|error| match error {
        mysql_async::Error::Server(server) => {
            let message = format!(
                "{} does not take `{condition}` as a condition on {}: {}",
                session.endpoint, schema.table, server.message
            );
            SourceError::new(SourceErrorKind::Misconfigured, message)
        }
        error => failure_of(&session.endpoint, &schema.table, error),
    })
}

fn table_name(schema: &TableSchema) -> String {
    format!("{}.{}", identifier(&schema.table.database), identifier(&schema.table.table))
}

/// Streams the rows through the binary protocol: numbers and times come typed, floats exact.
async fn read_rows(
    session: &mut Session,
    sql: &str,
    reading: &mut Reading,
    limits: SplitLimits,
) -> Result<End, SourceError> {
    let Session { conn, endpoint, .. } = session;
    let table = reading.schema.table.clone();
    let failed = |error: mysql_async::Error| failure_of(endpoint, &table, error);
    let statement = conn.prep(sql).await.map_err(&failed)?;
    let mut result = conn.exec_iter(&statement, ()).await.map_err(&failed)?;
    let end = loop {
        match result.next().await {
            Ok(Some(row)) => reading.append(row)?,
            Ok(None) if reading.rows_read >= limits.rows_max => break End::Rows,
            Ok(None) => break End::Range,
            Err(error) if is_out_of_time(&error) => break End::Time,
            Err(error) => return Err(failed(error)),
        }
        if reading.bytes_read >= limits.bytes_max {
            return Ok(End::Bytes);
        }
    };
    drop(result);
    conn.close(statement).await.map_err(&failed)?;
    Ok(end)
}

/// ER_QUERY_TIMEOUT of MySQL, ER_STATEMENT_TIMEOUT of MariaDB.
fn is_out_of_time(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(server) if [3024, 1969].contains(&server.code))
}

fn failure_of(endpoint: &Endpoint, table: &TableId, error: mysql_async::Error) -> SourceError {
    match &error {
        // ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE, ER_BAD_TABLE_ERROR
        mysql_async::Error::Server(server) if [1054, 1146, 1051].contains(&server.code) => {
            let message = format!("{table} changed while it was being loaded: {}; it is tried again", server.message);
            SourceError::new(SourceErrorKind::Changed, message)
        }
        _ => super::connection::failure(endpoint, &format!("reading {table}"), error),
    }
}

/// Rows on their way into batches.
struct Reading {
    schema: Arc<TableSchema>,
    low: ResumePoint,
    columns: Vec<ColumnReader>,
    batches: Vec<ChangeBatch>,
    rows_held: usize,
    bytes_held: usize,
    rows_read: usize,
    /// Values of all rows, in bytes.
    bytes_read: usize,
    last_row: Option<Vec<Value>>,
    /// Wall-clock time of the read, the rows' commit time.
    read_us: i64,
}

impl Reading {
    fn new(schema: Arc<TableSchema>, types: Vec<ColumnType>, low: ResumePoint) -> Self {
        let columns = types.into_iter().map(ColumnReader::new).collect();
        let read_us = chrono::Utc::now().timestamp_micros();
        Self {
            schema,
            low,
            columns,
            batches: Vec::new(),
            rows_held: 0,
            bytes_held: 0,
            rows_read: 0,
            bytes_read: 0,
            last_row: None,
            read_us,
        }
    }

    fn append(&mut self, row: Row) -> Result<(), SourceError> {
        let values: Vec<Value> = row.unwrap_raw().into_iter().map(|value| value.unwrap_or(Value::NULL)).collect();
        if values.len() < self.columns.len() {
            return Err(self.unreadable("a row has fewer values than columns were asked for"));
        }
        let bytes: usize = values.iter().map(|value| CELL_BYTES + bytes_of(value)).sum();
        for (index, (column, value)) in self.columns.iter_mut().zip(&values).enumerate() {
            if let Err(problem) = column.append(value) {
                let name = self.schema.columns.get(index).map_or("?", |column| column.name.as_str());
                let what = format!("column {name}: {problem}");
                return Err(self.unreadable(&what));
            }
        }
        self.last_row = Some(values);
        self.bytes_held += bytes;
        self.bytes_read += bytes;
        self.rows_held += 1;
        self.rows_read += 1;
        if self.bytes_held >= BATCH_BYTES {
            self.close_batch()?;
        }
        Ok(())
    }

    fn unreadable(&self, what: &str) -> SourceError {
        SourceError::new(SourceErrorKind::Unloadable, format!("{} cannot be loaded: {what}", self.schema.table))
    }

    fn close_batch(&mut self) -> Result<(), SourceError> {
        let arrays = self.columns.iter_mut().map(ColumnReader::finish).collect();
        let rows = arrow::array::RecordBatch::try_new(self.schema.arrow_schema(), arrays)
            .map_err(|error| self.unreadable(&error.to_string()))?;
        let position = self.low.position.clone();
        let span = TransactionSpan { first_row: 0, commit_time_us: self.read_us, position };
        let operations = vec![Operation::Read; self.rows_held];
        self.batches.push(ChangeBatch {
            schema: Arc::clone(&self.schema),
            rows,
            operations,
            gaps: None,
            transactions: vec![span],
        });
        (self.rows_held, self.bytes_held) = (0, 0);
        Ok(())
    }

    /// Texts are converted by the server, which does not tell what it could not convert.
    fn losses(&self) -> Losses {
        Losses { zero_dates: self.columns.iter().map(|column| column.zero_dates).sum(), invalid_text: 0 }
    }

    fn finish(mut self) -> Result<Vec<ChangeBatch>, SourceError> {
        if self.rows_held > 0 {
            self.close_batch()?;
        }
        Ok(self.batches)
    }
}

fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}
