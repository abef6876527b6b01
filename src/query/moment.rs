//! One consistent point of a job: a moment of the source, and the version of each table that is complete up to it.
//!
//! A point is found by the source's commit time, by a position, or by a set of transactions: the last one that is not after what
//! is asked for. Later versions that left the rows alone (compaction, clustering, settings) stand for the point's own, so that
//! a table which nobody changes can still be read when vacuum has taken the files of its older versions.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, SecondsFormat, Utc};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlanBuilder, cast as cast_to, col, lit};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use uuid::Uuid;

use super::QueryError;
use super::tables::foreign_provider;
use super::travel::parse_time;
use crate::change::TableId;
use crate::lake::{Folded, Lake, LakeError, Ledger, Points, batches_rows, batches_schema};
use crate::source::mysql::binlog::{Place, file_number};
use crate::source::mysql::gtid::GtidSet;

/// Which moment of the source is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum MomentAsOf {
    /// A commit time of the source.
    Time(DateTime<Utc>),
    /// The number of a log file, and an offset in it.
    Position(u64, u64),
    /// Transactions that may be in it.
    Gtids(GtidSet),
}

impl MomentAsOf {
    /// Reads a time as people write it.
    ///
    /// # Errors
    /// [`QueryError::NotATime`].
    pub fn time(text: &str) -> Result<Self, QueryError> {
        parse_time(text).map(Self::Time)
    }

    /// Reads `mysql-bin.000007:1234` or a GTID set.
    ///
    /// # Errors
    /// [`QueryError::NotAPosition`].
    pub fn position(text: &str) -> Result<Self, QueryError> {
        let place = Place::parse(text.trim()).filter(|place| place.is_takeover() || file_number(&place.file).is_some());
        if let Some(place) = place {
            return Ok(Self::Position(place.number(), place.offset));
        }
        let set: Option<GtidSet> = text.trim().parse().ok().filter(|_| !text.trim().is_empty());
        set.map(Self::Gtids).ok_or_else(|| QueryError::NotAPosition { text: text.to_string() })
    }
}

/// The consistent point that a query reads.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PointRead {
    /// The job's step.
    pub sequence: u64,
    /// Where its tables stand in the source's log.
    pub position: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gtid_set: Option<String>,
    /// Of the last transaction up to there, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_time: Option<DateTime<Utc>>,
}

impl fmt::Display for PointRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.position)?;
        if let Some(time) = &self.commit_time {
            write!(f, ", committed at {}", time.to_rfc3339_opts(SecondsFormat::AutoSi, true))?;
        }
        write!(f, " (step {})", self.sequence)
    }
}

/// A point with the versions of all tables.
#[derive(Debug)]
pub(super) struct Moment {
    pub point: PointRead,
    app_id: String,
    tables: HashMap<TableId, AtMoment>,
}

/// What the points say of one table.
#[derive(Debug, Default, Clone)]
struct AtMoment {
    /// The newest step up to the point that left a version, and the version.
    version: Option<(u64, u64)>,
    /// The newest step up to the point, and what it made of the table.
    state: Option<(u64, String)>,
    /// The first step after the point that made a version, and the version.
    next: Option<(u64, u64)>,
}

impl Moment {
    /// The version of a table that holds its rows at this moment.
    ///
    /// # Errors
    /// When there is none: the table came later, was not loaded yet, or had been taken out.
    pub async fn version_of(&self, lake: &Lake, table: &TableId) -> Result<u64, QueryError> {
        let not = |reason: &'static str| QueryError::NotAtPoint {
            table: table.to_string(),
            point: self.point.to_string(),
            reason,
        };
        let known = self.tables.get(table).filter(|known| known.state.is_some());
        let known = known.ok_or_else(|| not("was not part of the job yet"))?;
        match known.state.as_ref().map(|(_, state)| state.as_str()) {
            Some("loading") => return Err(not("was still being loaded")),
            Some("stopped") => return Err(not("had been taken out of the job, and was older")),
            _ => {}
        }
        let (_, version) = known.version.ok_or_else(|| not("had no version"))?;
        let before = known.next.map(|(_, version)| version);
        let settled = lake.settled_version(table, version, before, &self.app_id, self.point.sequence).await;
        settled.map_err(|error| QueryError::lake(format!("looking for versions of {table}"), error))
    }
}

/// The points of one job, as queries see them.
#[derive(Debug, Clone)]
pub(super) struct JobPoints {
    pub(super) points: Points,
    pub(super) ledger: Ledger,
    job: String,
}

impl JobPoints {
    pub fn new(lake: &Lake, job: &str) -> Self {
        let ledger = Ledger::new(lake.store(), job, Uuid::nil());
        Self { points: Points::new(lake, job), ledger, job: job.to_string() }
    }

    /// The table `alluvium.batches`: the points that have been folded, and those that have not.
    pub async fn provider(&self) -> Result<Arc<dyn TableProvider>, QueryError> {
        let failed = |error: LakeError| QueryError::lake("reading the points of the job", error);
        let mut points = self.points.unfolded().await.map_err(failed)?;
        let mut plan = None;
        if self.points.has_table(Folded::Batches).await.map_err(failed)? {
            let folded = self.points.folded(Folded::Batches).await.map_err(failed)?.unwrap_or(0);
            points.retain(|point| point.sequence > folded);
            let open = foreign_provider(&self.points.log_store(Folded::Batches), None).await;
            let provider = open.map_err(|error| QueryError::lake("reading the folded points", error))?.provider;
            let columns = batches_schema();
            let typed = columns
                .fields()
                .iter()
                .map(|field| cast_to(col(field.name()), field.data_type().clone()).alias(field.name()));
            let folded_at = i64::try_from(folded).unwrap_or(i64::MAX);
            let scan = LogicalPlanBuilder::scan("folded", provider_as_source(provider), None)?;
            plan = Some(scan.filter(col("sequence").lt_eq(lit(folded_at)))?.project(typed)?);
        }
        let rows = batches_rows(&points).map_err(failed)?;
        let recent: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(batches_schema(), vec![vec![rows]])?);
        let Some(folded) = plan else { return Ok(recent) };
        let recent = LogicalPlanBuilder::scan("recent", provider_as_source(recent), None)?;
        let all = recent.project(batches_schema().fields().iter().map(|field| col(field.name())))?;
        Ok(Arc::new(ViewTable::new(folded.union(all.build()?)?.build()?, None)))
    }

    /// The last point that is not after `as_of`.
    ///
    /// # Errors
    /// When there is none.
    pub async fn moment(&self, state: &SessionState, as_of: &MomentAsOf) -> Result<Moment, QueryError> {
        let provider = self.provider().await?;
        let mut search = Search { as_of, last: None, first: None, gtids: HashMap::new() };
        self.each(state, &provider, |rows| search.look(rows)).await?;
        let first = search.first.clone().ok_or_else(|| QueryError::NoPoints { job: self.job.clone() })?;
        let Some(last) = search.last else { return Err(QueryError::BeforeFirstPoint { first: first.to_string() }) };
        let mut moment = Gather { last, point: None, tables: HashMap::new() };
        self.each(state, &provider, |rows| moment.take(rows)).await?;
        let point = moment.point.ok_or(QueryError::BeforeFirstPoint { first: first.to_string() })?;
        Ok(Moment { point, app_id: format!("alluvium/{}", self.job), tables: moment.tables })
    }

    async fn each(
        &self,
        state: &SessionState,
        provider: &Arc<dyn TableProvider>,
        mut take: impl FnMut(&Rows),
    ) -> Result<(), QueryError> {
        let frame = SessionContext::new_with_state(state.clone()).read_table(provider.clone())?;
        let mut batches = frame.execute_stream().await?;
        while let Some(batch) = batches.try_next().await? {
            take(&Rows::new(&batch)?);
        }
        Ok(())
    }
}

/// Rows of `alluvium.batches`, typed.
struct Rows {
    batch: RecordBatch,
}

impl Rows {
    fn new(batch: &RecordBatch) -> Result<Self, QueryError> {
        let schema = batches_schema();
        let typed = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
        let columns = typed.collect::<Result<Vec<_>, _>>().map_err(|error| QueryError::Plan(error.to_string()))?;
        let batch = RecordBatch::try_new(schema, columns).map_err(|error| QueryError::Plan(error.to_string()))?;
        Ok(Self { batch })
    }

    fn len(&self) -> usize {
        self.batch.num_rows()
    }

    fn number(&self, column: &str, row: usize) -> Option<u64> {
        let column = self.batch.column_by_name(column)?;
        let numbers = column.as_primitive_opt::<Int64Type>()?;
        numbers.is_valid(row).then(|| u64::try_from(numbers.value(row)).ok()).flatten()
    }

    fn text(&self, column: &str, row: usize) -> Option<&str> {
        let column = self.batch.column_by_name(column)?;
        let texts = column.as_string_opt::<i32>()?;
        texts.is_valid(row).then(|| texts.value(row))
    }

    fn time(&self, row: usize) -> Option<DateTime<Utc>> {
        let column = self.batch.column_by_name("commit_time")?;
        debug_assert!(matches!(column.data_type(), DataType::Timestamp(TimeUnit::Microsecond, _)));
        let times = column.as_primitive_opt::<TimestampMicrosecondType>()?;
        times.is_valid(row).then(|| DateTime::from_timestamp_micros(times.value(row))).flatten()
    }

    fn point(&self, row: usize) -> Option<PointRead> {
        Some(PointRead {
            sequence: self.number("sequence", row)?,
            position: self.text("position", row)?.to_string(),
            gtid_set: self.text("gtid_set", row).map(str::to_string),
            commit_time: self.time(row),
        })
    }
}

/// Looks for the last point that is not after what is asked for. Positions and sets of transactions only grow, commit times
/// mostly do: where a clock went back, the last point that has an earlier time counts.
struct Search<'a> {
    as_of: &'a MomentAsOf,
    last: Option<u64>,
    first: Option<PointRead>,
    /// Whether a set of transactions is within what is asked for: rows of one point have the same.
    gtids: HashMap<String, bool>,
}

impl Search<'_> {
    fn look(&mut self, rows: &Rows) {
        for row in 0..rows.len() {
            let Some(sequence) = rows.number("sequence", row) else { continue };
            if self.first.as_ref().is_none_or(|first| sequence < first.sequence) {
                self.first = rows.point(row);
            }
            if self.last.is_none_or(|last| sequence > last) && !self.is_after(rows, row) {
                self.last = Some(sequence);
            }
        }
    }

    fn is_after(&mut self, rows: &Rows, row: usize) -> bool {
        match self.as_of {
            MomentAsOf::Time(at) => rows.time(row).is_none_or(|time| time > *at),
            MomentAsOf::Position(file, offset) => {
                let position = (rows.number("position_file", row), rows.number("position_offset", row));
                position > (Some(*file), Some(*offset))
            }
            MomentAsOf::Gtids(wanted) => {
                let Some(text) = rows.text("gtid_set", row) else { return true };
                if self.gtids.len() > 1 {
                    self.gtids.clear();
                }
                let known = self.gtids.entry(text.to_string());
                *known.or_insert_with(|| !text.parse::<GtidSet>().is_ok_and(|set| set.is_subset_of(wanted)))
            }
        }
    }
}

/// Gathers the point `last`, and what it means for each table.
struct Gather {
    last: u64,
    point: Option<PointRead>,
    tables: HashMap<TableId, AtMoment>,
}

impl Gather {
    fn take(&mut self, rows: &Rows) {
        for row in 0..rows.len() {
            let Some(sequence) = rows.number("sequence", row) else { continue };
            let is_before = sequence <= self.last;
            if sequence == self.last {
                self.point = rows.point(row);
            }
            if let (Some(database), Some(table)) = (rows.text("database_name", row), rows.text("table_name", row)) {
                let known = self.tables.entry(TableId::new(database, table)).or_default();
                known.take(sequence, is_before, rows.number("version", row), rows.text("state", row));
            }
        }
    }
}

impl AtMoment {
    fn take(&mut self, sequence: u64, is_before: bool, version: Option<u64>, state: Option<&str>) {
        let newest = |known: Option<u64>| known.is_none_or(|known| sequence > known);
        let version = version.map(|version| (sequence, version));
        if !is_before {
            if version.is_some() && self.next.is_none_or(|(known, _)| sequence < known) {
                self.next = version;
            }
            return;
        }
        if version.is_some() && newest(self.version.map(|(known, _)| known)) {
            self.version = version;
        }
        if newest(self.state.as_ref().map(|(known, _)| *known)) {
            self.state = state.map(|state| (sequence, state.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_place_in_a_file_or_a_set_of_transactions() {
        let read = |text: &str| MomentAsOf::position(text).map_err(|error| error.to_string());
        assert_eq!(read("mysql-bin.000007:1234"), Ok(MomentAsOf::Position(7, 1234)));
        assert_eq!(read(" my.bin.0010:4 "), Ok(MomentAsOf::Position(10, 4)));
        assert!(matches!(read("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5"), Ok(MomentAsOf::Gtids(GtidSet::MySql(_)))));
        assert!(matches!(read("0-1-100"), Ok(MomentAsOf::Gtids(GtidSet::MariaDb(_)))));
        for text in ["", "soon", "bin.000001", "bin:4", "bin.000001:x"] {
            assert!(read(text).is_err_and(|error| error.contains("mysql-bin.000007:1234")), "{text}");
        }
    }
}
