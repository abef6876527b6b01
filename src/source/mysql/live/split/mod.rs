//! The first load: a key range of a table, read with one SELECT between two looks at the log.

use std::sync::Arc;
use std::time::Instant;

use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};

use super::connection::{Session, identifier};
use super::log;
use super::stream::GivenOut;
use crate::change::{ChangeBatch, Losses, Operation, ResumePoint, TransactionSpan};
use crate::schema::TableSchema;
use crate::source::mysql::binlog::Flavor;
use crate::source::mysql::column_type::ColumnType;
use crate::source::{SourceError, SourceErrorKind, Split, SplitKey};

mod column;
mod key;

use column::ColumnReader;
use key::Key;

/// Values of a batch, in bytes, after which the next one begins. Small beside any `run.memory`, large enough
/// that the cost of a batch does not count.
const BATCH_BYTES: usize = 8 << 20;

/// What a value without a length of its own counts for [`BATCH_BYTES`].
const CELL_BYTES: usize = 8;

/// Reads at most `rows_max` rows after `after`. `low` is noted by the caller before, on MySQL; MariaDB's comes
/// with the snapshot that the rows are read from.
pub(super) async fn read(
    session: &mut Session,
    schema: &Arc<TableSchema>,
    after: Option<&SplitKey>,
    rows_max: usize,
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
    let sql = query(schema, &key, after, rows_max)?;
    let mut reading = Reading::new(Arc::clone(schema), types, key, low.clone());
    read_rows(session, &sql, &mut reading).await?;
    if session.flavor == Flavor::MariaDb {
        session.run("ROLLBACK").await?;
    }
    let high = log::head(session).await?;
    let losses = reading.losses();
    let last_key = if reading.rows_read < rows_max { None } else { reading.last_key.take() };
    Ok(Split { low, high, rows: reading.finish()?, last_key, losses })
}

/// Opens a snapshot that holds exactly the transactions before the end of the log that comes with it, among them
/// all that have been given out.
async fn open_snapshot(session: &mut Session, given_out: &GivenOut) -> Result<log::Coordinates, SourceError> {
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

fn query(schema: &TableSchema, key: &Key, after: Option<&SplitKey>, rows_max: usize) -> Result<String, SourceError> {
    let columns = schema.columns.iter().map(|column| identifier(&column.name));
    let selected: Vec<String> = columns.chain(key.extra_columns()).collect();
    let condition = match after {
        Some(after) => format!(" WHERE {}", key.after(after)?),
        None => String::new(),
    };
    Ok(format!(
        "SELECT {} FROM {}.{}{condition} ORDER BY {} LIMIT {rows_max}",
        selected.join(", "),
        identifier(&schema.table.database),
        identifier(&schema.table.table),
        key.order_by(),
    ))
}

/// Streams the rows through the binary protocol: numbers and times come typed, floats exact.
async fn read_rows(session: &mut Session, sql: &str, reading: &mut Reading) -> Result<(), SourceError> {
    let Session { conn, endpoint, .. } = session;
    let table = reading.schema.table.clone();
    let failed = |error: mysql_async::Error| {
        let doing = format!("reading {table}");
        match &error {
            // ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE, ER_BAD_TABLE_ERROR
            mysql_async::Error::Server(server) if [1054, 1146, 1051].contains(&server.code) => {
                let message =
                    format!("{table} changed while it was being loaded: {}; it is tried again", server.message);
                SourceError::new(SourceErrorKind::Unavailable, message)
            }
            _ => super::connection::failure(endpoint, &doing, error),
        }
    };
    let statement = conn.prep(sql).await.map_err(&failed)?;
    let mut result = conn.exec_iter(&statement, ()).await.map_err(&failed)?;
    while let Some(row) = result.next().await.map_err(&failed)? {
        reading.append(row)?;
    }
    drop(result);
    conn.close(statement).await.map_err(&failed)
}

/// Rows on their way into batches.
struct Reading {
    schema: Arc<TableSchema>,
    key: Key,
    low: ResumePoint,
    columns: Vec<ColumnReader>,
    batches: Vec<ChangeBatch>,
    rows_held: usize,
    bytes_held: usize,
    rows_read: usize,
    last_key: Option<SplitKey>,
    /// Wall-clock time of the read, the rows' commit time.
    read_us: i64,
}

impl Reading {
    fn new(schema: Arc<TableSchema>, types: Vec<ColumnType>, key: Key, low: ResumePoint) -> Self {
        let columns = types.into_iter().map(ColumnReader::new).collect();
        let read_us = chrono::Utc::now().timestamp_micros();
        Self {
            schema,
            key,
            low,
            columns,
            batches: Vec::new(),
            rows_held: 0,
            bytes_held: 0,
            rows_read: 0,
            last_key: None,
            read_us,
        }
    }

    fn append(&mut self, row: Row) -> Result<(), SourceError> {
        let values: Vec<Value> = row.unwrap_raw().into_iter().map(|value| value.unwrap_or(Value::NULL)).collect();
        if values.len() < self.columns.len() {
            return Err(self.unreadable("a row has fewer values than columns were asked for"));
        }
        for (index, (column, value)) in self.columns.iter_mut().zip(&values).enumerate() {
            self.bytes_held += CELL_BYTES + bytes_of(value);
            if let Err(problem) = column.append(value) {
                let name = self.schema.columns.get(index).map_or("?", |column| column.name.as_str());
                let what = format!("column {name}: {problem}");
                return Err(self.unreadable(&what));
            }
        }
        self.last_key = Some(self.key.of_row(&values)?);
        self.rows_held += 1;
        self.rows_read += 1;
        if self.bytes_held >= BATCH_BYTES {
            self.close_batch()?;
        }
        Ok(())
    }

    fn unreadable(&self, what: &str) -> SourceError {
        SourceError::new(SourceErrorKind::Corrupt, format!("{} cannot be loaded: {what}", self.schema.table))
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
