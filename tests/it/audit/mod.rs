//! Time travel and audit: consistent points, and what was true at each.

mod bank;
mod changes;
mod points;
mod queries;
mod rows;
mod wire;

use arrow::array::RecordBatch;
use futures::TryStreamExt;

use alluvium::change::TableId;
use alluvium::config::LakeConfig;
use alluvium::query::{MomentAsOf, PointRead, QueryError, QueryLimits, Session};

use crate::harness::{Content, TempJob, canonical_rows, content_of};

const MEMORY_BYTES: usize = 256 << 20;

/// A session over tables of a job's lake.
pub fn session(job: &TempJob, database: &str, tables: &[&str]) -> Session {
    let url = url::Url::from_directory_path(job.lake_folder()).unwrap();
    let tables = tables.iter().map(|table| TableId::new(database, *table)).collect();
    let limits = QueryLimits { memory_bytes: MEMORY_BYTES, spill_dir: std::env::temp_dir() };
    Session::open(&LakeConfig { url, options: Default::default() }, tables, &limits).unwrap().of_job(job.name())
}

/// The rows of a query in canonical text, by these columns.
pub async fn content(session: &Session, sql: &str, key: &[String]) -> Content {
    let (_, stream) = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    content_of(sql, &batches, key)
}

/// The rows of a query in canonical text and in their order, without a column.
pub async fn ordered(session: &Session, sql: &str, without: &str) -> Vec<Vec<Option<String>>> {
    let (schema, stream) = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let keep: Vec<usize> = (0..schema.fields().len()).filter(|index| schema.field(*index).name() != without).collect();
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    batches.iter().flat_map(|batch| canonical_rows(&batch.project(&keep).unwrap())).collect()
}

/// All rows of a query, each value as text; `None` is null.
pub async fn rows(session: &Session, sql: &str) -> Result<Vec<Vec<Option<String>>>, QueryError> {
    let (_, stream) = session.sql(sql).await?;
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    let options = arrow::util::display::FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| arrow::util::display::ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let text = |(column, formatter): (&arrow::array::ArrayRef, &arrow::util::display::ArrayFormatter<'_>)| {
                column.is_valid(row).then(|| formatter.value(row).to_string())
            };
            rows.push(batch.columns().iter().zip(&columns).map(text).collect());
        }
    }
    Ok(rows)
}

/// The rows of a query at a position.
pub async fn rows_at(
    job: &TempJob,
    database: &str,
    tables: &[&str],
    position: &str,
    sql: &str,
) -> Result<(PointRead, Vec<Vec<Option<String>>>), QueryError> {
    rows_as_of(job, database, tables, &MomentAsOf::position(position)?, sql).await
}

/// The rows of a query at a moment of the source.
pub async fn rows_as_of(
    job: &TempJob,
    database: &str,
    tables: &[&str],
    moment: &MomentAsOf,
    sql: &str,
) -> Result<(PointRead, Vec<Vec<Option<String>>>), QueryError> {
    let mut session = session(job, database, tables);
    let point = session.read_at(moment).await?;
    Ok((point, rows(&session, sql).await?))
}
