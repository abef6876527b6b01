//! Consistent points: after each step of a job, which version of which table is complete up to which position.
//!
//! ```text
//! _alluvium/<job>/points/00000000000000000042.json   what step 42 has left behind, written once its commits are there
//! _alluvium/<job>/batches/                           a Delta table: the same of older steps, one row per table
//! ```
//! A point names only the tables that its step touched: each other table is as an earlier point has it. The ledger's
//! entry is the first small put of a batch, the point is the second. A crash between the commits and the point leaves the
//! newest point out, and the next start of the job writes it.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use deltalake::DeltaTable;
use deltalake::kernel::Transaction;
use deltalake::kernel::transaction::CommitProperties;
use deltalake::logstore::LogStoreRef;
use deltalake::protocol::SaveMode;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use super::{Lake, LakeError, SchemaNote, schema_log};
use crate::change::{ResumePoint, TableId};

/// The format of a point. A reader refuses a newer one.
const FORMAT: u32 = 1;
/// Points are folded once there are so many: a job that runs every five minutes comes to it every day or two.
pub const FOLD_POINTS_MIN: usize = 200;
/// Points that are read at the same time.
const READS_AT_ONCE: usize = 16;
/// A listing is read again this often where a fold takes its files away; one fold a day is usual.
const LISTINGS_MAX: usize = 5;
/// Points that are folded by one commit at most: some megabytes in memory.
const POINTS_PER_FOLD: usize = 50_000;

/// What one step of a job has left behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub format: u32,
    pub sequence: u64,
    /// Up to here the tables are complete.
    pub end: ResumePoint,
    /// Commit time of the last source transaction up to there, in microseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_time_us: Option<i64>,
    pub recorded_at_us: i64,
    /// The tables that the step touched.
    pub tables: Vec<PointTable>,
    /// What it made of their schemas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<SchemaNote>,
}

/// A table at a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointTable {
    pub table: TableId,
    /// The version that is complete up to the point; `None` where the step left none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    pub state: PointState,
}

/// What a table's rows are at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointState {
    /// All that the source had.
    Complete,
    /// A part: its first load is not over.
    Loading,
    /// Those of an earlier point: it was taken out of the job.
    Stopped,
}

impl PointState {
    /// As the table `batches` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Loading => "loading",
            Self::Stopped => "stopped",
        }
    }
}

impl Point {
    pub fn new(
        sequence: u64,
        end: ResumePoint,
        commit_time_us: Option<i64>,
        now_us: i64,
        tables: Vec<PointTable>,
    ) -> Self {
        let schemas = Vec::new();
        Self { format: FORMAT, sequence, end, commit_time_us, recorded_at_us: now_us, tables, schemas }
    }
}

/// A Delta table into which points are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folded {
    /// [`batches_schema`].
    Batches,
    /// [`super::schema_log_schema`].
    SchemaLog,
}

impl Folded {
    fn name(self) -> &'static str {
        match self {
            Self::Batches => "batches",
            Self::SchemaLog => schema_log::NAME,
        }
    }
}

/// The points of one job. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Points {
    lake: Lake,
    store: Arc<dyn ObjectStore>,
    job: String,
    folder: Path,
}

impl Points {
    pub fn new(lake: &Lake, job: &str) -> Self {
        let folder = Path::from_iter(["_alluvium", job, "points"]);
        Self { lake: lake.clone(), store: lake.store(), job: job.to_string(), folder }
    }

    /// A Delta table that holds folded points; it may not be there yet.
    pub fn log_store(&self, folded: Folded) -> LogStoreRef {
        self.lake.log_store_at(&Path::from_iter(["_alluvium", &self.job, folded.name()]))
    }

    /// The application id under which that table says up to which step it holds all points.
    fn app_id(&self, folded: Folded) -> String {
        let name = match folded {
            Folded::Batches => "points",
            Folded::SchemaLog => schema_log::NAME,
        };
        format!("alluvium/{}/{name}", self.job)
    }

    /// Keeps a point. One that is there already is replaced: the same step leaves the same behind.
    ///
    /// # Errors
    /// A store that fails.
    pub async fn put(&self, point: &Point) -> Result<(), LakeError> {
        let path = self.path(point.sequence);
        let body = serde_json::to_vec(point).map_err(|error| self.unreadable(&path, &error))?;
        let stored = self.store.put(&path, body.into()).await;
        stored.map(|_| ()).map_err(LakeError::store(format!("write {path} in the lake")))
    }

    /// The newest step that has a point.
    ///
    /// # Errors
    /// A store that fails, or folded points that cannot be read.
    pub async fn newest(&self) -> Result<Option<u64>, LakeError> {
        match self.list().await?.last() {
            Some(sequence) => Ok(Some(*sequence)),
            None => self.folded(Folded::Batches).await,
        }
    }

    /// All points that are not folded yet, in order.
    ///
    /// # Errors
    /// A store that fails, or a point that cannot be read.
    pub async fn unfolded(&self) -> Result<Vec<Point>, LakeError> {
        for _ in 0..LISTINGS_MAX {
            let sequences = self.list().await?;
            if let Some(points) = self.read_all(&sequences).await? {
                return Ok(points);
            }
        }
        Err(self.unreadable(&self.folder, &"its files vanish while they are read"))
    }

    /// Moves all points into the Delta table, if there are `min` or more. Gives how many.
    ///
    /// # Errors
    /// A store that fails, or another process that does the same: nothing is lost, and the next time will do.
    pub async fn fold(&self, min: usize) -> Result<u64, LakeError> {
        let mut sequences = self.list().await?;
        if sequences.len() < min.max(1) {
            return Ok(0);
        }
        sequences.truncate(POINTS_PER_FOLD);
        let Some(points) = self.read_all(&sequences).await? else { return Ok(0) };
        let count = self.fold_into(Folded::Batches, &points).await?;
        if points.iter().any(|point| !point.schemas.is_empty()) {
            self.fold_into(Folded::SchemaLog, &points).await?;
        }
        self.delete(&sequences).await?;
        Ok(count)
    }

    /// Moves what is new of `points` into one table. Gives how many.
    async fn fold_into(&self, into: Folded, points: &[Point]) -> Result<u64, LakeError> {
        // Written upon the version that was asked: of two who fold at once, one finds the other's commit and fails.
        let table = self.table(into).await?;
        let folded = match &table {
            Some(table) => self.folded_in(into, table).await?.unwrap_or(0),
            None => 0,
        };
        let new: Vec<Point> = points.iter().filter(|point| point.sequence > folded).cloned().collect();
        if let Some(last) = new.last() {
            let rows = match into {
                Folded::Batches => rows(&new)?,
                Folded::SchemaLog => schema_log::schema_log_rows(&new)?,
            };
            let table = table.unwrap_or_else(|| DeltaTable::new(self.log_store(into)));
            self.append(into, table, rows, last.sequence).await?;
        }
        Ok(new.len() as u64)
    }

    async fn append(&self, into: Folded, delta: DeltaTable, rows: RecordBatch, sequence: u64) -> Result<(), LakeError> {
        let table = self.table_id();
        let failed = || LakeError::delta(&table, "fold the points of the job");
        let version = i64::try_from(sequence).unwrap_or(i64::MAX);
        let transaction = Transaction::new(self.app_id(into), version);
        // Not tried again upon another's commit, which may have brought the same points.
        let properties = CommitProperties::default().with_application_transaction(transaction).with_max_retries(0);
        let write = delta.write([rows]).with_save_mode(SaveMode::Append).with_table_name(into.name());
        write.with_commit_properties(properties).await.map(|_| ()).map_err(failed())
    }

    async fn delete(&self, sequences: &[u64]) -> Result<(), LakeError> {
        let paths = stream::iter(sequences.iter().map(|sequence| Ok(self.path(*sequence))).collect::<Vec<_>>());
        let mut deleted = self.store.delete_stream(paths.boxed());
        loop {
            match deleted.try_next().await {
                Ok(Some(_)) | Err(object_store::Error::NotFound { .. }) => {}
                Ok(None) => return Ok(()),
                Err(error) => return Err(LakeError::store(format!("delete folded points of {}", self.job))(error)),
            }
        }
    }

    /// Up to which step the Delta table holds all points; `None` if there is no such table.
    ///
    /// # Errors
    /// A table that cannot be read.
    pub async fn folded(&self, folded: Folded) -> Result<Option<u64>, LakeError> {
        match self.table(folded).await? {
            Some(table) => self.folded_in(folded, &table).await,
            None => Ok(None),
        }
    }

    /// The Delta table of the folded points as it is now; `None` if there is none.
    async fn table(&self, folded: Folded) -> Result<Option<DeltaTable>, LakeError> {
        if !self.has_table(folded).await? {
            return Ok(None);
        }
        let mut delta = DeltaTable::new(self.log_store(folded));
        delta.load().await.map_err(LakeError::delta(&self.table_id(), "read the folded points of the job"))?;
        Ok(Some(delta))
    }

    async fn folded_in(&self, folded: Folded, delta: &DeltaTable) -> Result<Option<u64>, LakeError> {
        let table = self.table_id();
        let failed = || LakeError::delta(&table, "read the folded points of the job");
        let state = delta.snapshot().map_err(failed())?;
        let version =
            state.transaction_version(delta.log_store().as_ref(), self.app_id(folded)).await.map_err(failed())?;
        Ok(version.and_then(|version| u64::try_from(version).ok()))
    }

    /// Whether any points have been folded.
    ///
    /// # Errors
    /// A store that fails.
    pub async fn has_table(&self, folded: Folded) -> Result<bool, LakeError> {
        let exists = self.log_store(folded).is_delta_table_location().await;
        exists.map_err(LakeError::delta(&self.table_id(), "look for its folded points"))
    }

    async fn list(&self) -> Result<Vec<u64>, LakeError> {
        let listed: Result<Vec<_>, _> = self.store.list(Some(&self.folder)).try_collect().await;
        let objects = listed.map_err(LakeError::store(format!("list {} in the lake", self.folder)))?;
        let number = |name: &str| name.strip_suffix(".json")?.parse().ok();
        let mut sequences: Vec<u64> = objects.iter().filter_map(|object| number(object.location.filename()?)).collect();
        sequences.sort_unstable();
        Ok(sequences)
    }

    /// `None` if one of them is gone.
    async fn read_all(&self, sequences: &[u64]) -> Result<Option<Vec<Point>>, LakeError> {
        let reads = sequences.iter().map(|sequence| self.read(*sequence));
        let mut reads = stream::iter(reads).buffered(READS_AT_ONCE);
        let mut points = Vec::with_capacity(sequences.len());
        while let Some(point) = reads.try_next().await? {
            let Some(point) = point else { return Ok(None) };
            points.push(point);
        }
        Ok(Some(points))
    }

    async fn read(&self, sequence: u64) -> Result<Option<Point>, LakeError> {
        let path = self.path(sequence);
        let read = async { self.store.get(&path).await?.bytes().await };
        let body = match read.await {
            Ok(body) => body,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(LakeError::store(format!("read {path} in the lake"))(error)),
        };
        let point: Point = serde_json::from_slice(&body).map_err(|error| self.unreadable(&path, &error))?;
        if point.format > FORMAT {
            let reason = format!("format {} was written by a newer Alluvium", point.format);
            return Err(self.unreadable(&path, &reason));
        }
        Ok(Some(point))
    }

    fn path(&self, sequence: u64) -> Path {
        self.folder.clone().join(format!("{sequence:020}.json"))
    }

    /// For messages.
    fn table_id(&self) -> TableId {
        TableId::new("alluvium", "batches")
    }

    fn unreadable(&self, path: &Path, reason: &dyn std::fmt::Display) -> LakeError {
        let (table, file) = (self.table_id(), path.to_string());
        LakeError::Damaged { table, file, reason: format!("{reason}; without it the points before it still hold") }
    }
}

/// The columns of `alluvium.batches`: a row for each step and table that it touched, and one without a table for a step
/// that touched none.
pub fn batches_schema() -> SchemaRef {
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("sequence", DataType::Int64, true),
        Field::new("position", DataType::Utf8, true),
        Field::new("position_file", DataType::Int64, true),
        Field::new("position_offset", DataType::Int64, true),
        Field::new("gtid_set", DataType::Utf8, true),
        Field::new("commit_time", time(), true),
        Field::new("recorded_at", time(), true),
        Field::new("database_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, true),
        Field::new("version", DataType::Int64, true),
        Field::new("state", DataType::Utf8, true),
    ]))
}

/// Points as rows of [`batches_schema`].
///
/// # Errors
/// None that is known: the columns are of one length.
pub fn rows(points: &[Point]) -> Result<RecordBatch, LakeError> {
    let pairs: Vec<(&Point, Option<&PointTable>)> = points
        .iter()
        .flat_map(|point| {
            let none = point.tables.is_empty().then_some((point, None));
            point.tables.iter().map(move |table| (point, Some(table))).chain(none)
        })
        .collect();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let integers = |value: &dyn Fn(&Point, Option<&PointTable>) -> Option<i64>| -> ArrayRef {
        Arc::new(pairs.iter().map(|(point, table)| value(point, *table)).collect::<Int64Array>())
    };
    let texts = |value: &dyn Fn(&Point, Option<&PointTable>) -> Option<String>| -> ArrayRef {
        Arc::new(pairs.iter().map(|(point, table)| value(point, *table)).collect::<StringArray>())
    };
    let times = |value: &dyn Fn(&Point) -> Option<i64>| -> ArrayRef {
        let times: TimestampMicrosecondArray = pairs.iter().map(|(point, _)| value(point)).collect();
        Arc::new(times.with_timezone("UTC"))
    };
    let columns = vec![
        integers(&|point, _| Some(number(point.sequence))),
        texts(&|point, _| Some(point.end.position.text.clone())),
        integers(&|point, _| Some(number(point.end.position.order.0))),
        integers(&|point, _| Some(number(point.end.position.order.1))),
        texts(&|point, _| point.end.gtid_set.clone()),
        times(&|point| point.commit_time_us),
        times(&|point| Some(point.recorded_at_us)),
        texts(&|_, table| Some(table?.table.database.clone())),
        texts(&|_, table| Some(table?.table.table.clone())),
        integers(&|_, table| table?.version.map(number)),
        texts(&|_, table| Some(table?.state.name().to_string())),
    ];
    let table = TableId::new("alluvium", "batches");
    RecordBatch::try_new(batches_schema(), columns).map_err(LakeError::arrow(&table, "list the points of the job"))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::change::SourcePosition;

    #[tokio::test]
    async fn of_two_processes_that_fold_at_once_none_doubles_a_point() {
        let lake = Lake::with_store(url::Url::parse("memory:///lake/").unwrap(), Arc::new(InMemory::new()));
        for round in 0..3 {
            let (one, other) = (Points::new(&lake, "shop"), Points::new(&lake, "shop"));
            for sequence in round * 10 + 1..=round * 10 + 10 {
                let position = SourcePosition { order: (1, sequence), text: format!("binlog.000001:{sequence}") };
                let end = ResumePoint { position, gtid_set: None };
                one.put(&Point::new(sequence, end, None, 0, Vec::new())).await.unwrap();
            }
            // One of them may fail: it tries again another time.
            let (first, second) = tokio::join!(one.fold(1), other.fold(1));
            assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
            let table = one.table(Folded::Batches).await.unwrap().expect("points were folded");
            let files = table.snapshot().unwrap().log_data();
            let rows: usize = files.iter().map(|file| file.num_records().unwrap_or(0)).sum();
            assert_eq!(rows as u64, (round + 1) * 10);
        }
    }
}
