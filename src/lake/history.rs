//! The history of one row, commit by commit: found by what the log, the footers and the filters say of each file, without
//! reading any version whole.
//!
//! A file holds a key at most once. So each file that may hold it is probed once, and from then on its row lives or not as
//! the deletion vectors of each version say.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::SchemaRef;
use deltalake::kernel::Add;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use tokio::sync::OnceCell;

use super::files::FileEntry;
use super::locate::{KeySet, row_of_key};
use super::log::{Commit, find_commit};
use super::{Fills, LakeError, LakeTable};

/// Commits that are looked at at the same time: most of the time of each is the store's answer.
const COMMITS_AT_ONCE: usize = 8;

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOperation {
    /// It was there in the oldest version that can be read.
    Present,
    Insert,
    Update,
    Delete,
}

impl RowOperation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A row from one version on.
#[derive(Debug, Clone)]
pub struct RowState {
    pub version: u64,
    pub operation: RowOperation,
    /// When the version was committed to the lake, in milliseconds since 1970-01-01 UTC.
    pub committed_ms: Option<i64>,
    /// Of the last source transaction of the batch, in microseconds since 1970-01-01 UTC.
    pub source_time_us: Option<i64>,
    /// The end of the batch in the source's log.
    pub position: Option<String>,
    /// The job's step.
    pub sequence: Option<u64>,
    /// One row with the table's present columns; `None` once it is deleted.
    pub row: Option<RecordBatch>,
}

/// All states of a row.
#[derive(Debug, Clone)]
pub struct RowHistory {
    pub states: Vec<RowState>,
    /// The oldest version that could be looked at: what was before it, cleaning up has taken.
    pub oldest: u64,
}

/// Where a key's row is in one file, if it is there; `Gone` for a file that vacuum has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    None,
    Row(u64),
    Gone,
}

/// A file of a version that may hold the row.
#[derive(Clone)]
struct Holder {
    file: Arc<FileEntry>,
    /// `None` where it cannot be told.
    live_row: Option<Option<u64>>,
}

/// What one commit means for the row.
struct Step {
    commit: Commit,
    holders: Vec<Holder>,
}

/// Looks for one key in files, in each once.
struct Seeker<'a> {
    table: &'a LakeTable,
    keys: KeySet,
    places: Mutex<HashMap<String, Arc<OnceCell<Place>>>>,
}

/// The row as of the commits that have been passed.
struct Walk<'a> {
    table: &'a LakeTable,
    schema: SchemaRef,
    holders: BTreeMap<String, Holder>,
    /// The file and the row number; `None` for no row.
    at: Option<(String, u64)>,
    row: Option<RecordBatch>,
    history: RowHistory,
    /// Whether the row's state before the next commit is known.
    is_known: bool,
}

impl LakeTable {
    /// All states of the row with this key that the log still tells of, oldest first. `key` has the text of each key column, in
    /// key order.
    ///
    /// # Errors
    /// [`LakeError::Key`] if the texts are not values of the key's columns; a store that cannot be read.
    pub async fn history(&self, key: &[String]) -> Result<RowHistory, LakeError> {
        let seeker = Seeker { table: self, keys: self.key_set(key)?, places: Mutex::default() };
        let newest = self.state.version();
        let listing = self.list_log().await?;
        let oldest = listing.oldest_readable().unwrap_or(newest);
        let history = RowHistory { states: Vec::new(), oldest };
        let mut walk = Walk {
            table: self,
            schema: self.arrow_schema(),
            holders: BTreeMap::new(),
            at: None,
            row: None,
            history,
            is_known: true,
        };
        let mut first = oldest;
        if oldest > 0 {
            walk.begin(&seeker, oldest).await?;
            first = oldest + 1;
        }
        let steps = (first..=newest).map(|version| seeker.step(version));
        let mut steps = stream::iter(steps).buffered(COMMITS_AT_ONCE);
        while let Some(step) = steps.try_next().await? {
            walk.pass(step).await?;
        }
        Ok(walk.history)
    }

    /// The key that the texts of its columns make.
    fn key_set(&self, key: &[String]) -> Result<KeySet, LakeError> {
        let space = &self.prober.space;
        let wrong = |what: String| LakeError::Key { table: self.table.clone(), what };
        if key.len() != space.columns.len() {
            let names = space.names().collect::<Vec<_>>().join(", ");
            return Err(wrong(format!("{} values were given, the key is ({names})", key.len())));
        }
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (text, column) in key.iter().zip(&space.columns) {
            let value = cast_with_options(&StringArray::from(vec![text.as_str()]), &column.data_type, &strict);
            arrays.push(value.map_err(|_| wrong(format!("column {} is a {}", column.name, column.data_type)))?);
        }
        KeySet::of_values(space, &arrays)
    }

    /// One row of a file, with the columns of `schema`.
    async fn read_row(&self, file: &FileEntry, row: u64, schema: &SchemaRef) -> Result<RecordBatch, LakeError> {
        let failed = LakeError::parquet(&self.table, "read a row of", &file.add.path);
        let footer = self.prober.footers.get(file).await?;
        let before = usize::try_from(row).unwrap_or(usize::MAX);
        let selection = RowSelection::from(vec![RowSelector::skip(before), RowSelector::select(1)]);
        let reader = self.prober.footers.reader(file);
        let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.as_ref().clone());
        let mut rows = builder.with_row_selection(selection).with_batch_size(1).build().map_err(&failed)?;
        let found = rows.try_next().await.map_err(&failed)?;
        let found = found.ok_or_else(|| LakeError::Damaged {
            table: self.table.clone(),
            file: file.add.path.clone(),
            reason: format!("it has no row {row}"),
        })?;
        let by_partition = self.partitioning().values_of_file(&file.add);
        self.reshape(&found, schema, &Fills { values: by_partition, ..Fills::default() })
    }
}

impl Seeker<'_> {
    async fn step(&self, version: u64) -> Result<Step, LakeError> {
        let commit = find_commit(self.table.store.as_ref(), &self.table.table, version).await?;
        let commit = commit.ok_or_else(|| LakeError::Damaged {
            table: self.table.table.clone(),
            file: "its Delta log".into(),
            reason: format!("version {version} is missing between others"),
        })?;
        let mut holders = Vec::new();
        for add in &commit.adds {
            holders.extend(self.holder(add).await?);
        }
        Ok(Step { commit, holders })
    }

    /// The file, if it has the row, or may have had it.
    async fn holder(&self, add: &Add) -> Result<Option<Holder>, LakeError> {
        let prober = &self.table.prober;
        let file = Arc::new(FileEntry::new(add.clone(), &prober.space)?);
        let may_hold = file.partition.as_ref().is_none_or(|partition| self.keys.touches_partition(partition))
            && file.range.as_ref().is_none_or(|range| self.keys.touches(range));
        if !may_hold {
            return Ok(None);
        }
        let live_row = match self.place(&file).await? {
            Place::None => return Ok(None),
            Place::Gone => None,
            Place::Row(row) => match prober.vector(&file).await {
                Ok(vector) => Some((!vector.is_some_and(|deleted| deleted.contains(row))).then_some(row)),
                Err(error) if is_gone(&error) => None,
                Err(error) => return Err(error),
            },
        };
        Ok(Some(Holder { file, live_row }))
    }

    async fn place(&self, file: &Arc<FileEntry>) -> Result<Place, LakeError> {
        let cell = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.entry(file.add.path.clone()).or_default().clone()
        };
        let probe = async {
            match row_of_key(&self.table.prober, file, &self.keys).await {
                Ok(Some(row)) => Ok(Place::Row(row)),
                Ok(None) => Ok(Place::None),
                Err(error) if is_gone(&error) => Ok(Place::Gone),
                Err(error) => Err(error),
            }
        };
        cell.get_or_try_init(|| probe).await.copied()
    }
}

impl Walk<'_> {
    /// Takes the row as it is in the oldest version.
    async fn begin(&mut self, seeker: &Seeker<'_>, oldest: u64) -> Result<(), LakeError> {
        let state = self.table.lake.readable_state(&self.table.table, oldest).await?;
        for add in self.table.lake.file_set(&self.table.table, &state).await?.into_values() {
            if let Some(holder) = seeker.holder(&add).await? {
                self.holders.insert(add.path.clone(), holder);
            }
        }
        let found = find_commit(self.table.store.as_ref(), &self.table.table, oldest).await?;
        let commit = found.unwrap_or(Commit { version: oldest, ..Commit::default() });
        self.is_known = false;
        self.settle(&commit).await
    }

    async fn pass(&mut self, step: Step) -> Result<(), LakeError> {
        let Step { commit, holders } = step;
        let mut is_touched = false;
        for remove in &commit.removes {
            is_touched |= self.holders.remove(&remove.path).is_some();
        }
        for holder in holders {
            is_touched = true;
            self.holders.insert(holder.file.add.path.clone(), holder);
        }
        if is_touched || !self.is_known { self.settle(&commit).await } else { Ok(()) }
    }

    /// Compares the row before a commit with the row after it.
    async fn settle(&mut self, commit: &Commit) -> Result<(), LakeError> {
        if self.holders.values().any(|holder| holder.live_row.is_none()) {
            self.is_known = false;
            self.history.states.clear();
            self.history.oldest = commit.version + 1;
            (self.at, self.row) = (None, None);
            return Ok(());
        }
        let live = self.holders.values().find_map(|holder| Some((holder.file.clone(), holder.live_row??)));
        let at = live.as_ref().map(|(file, row)| (file.add.path.clone(), *row));
        let was_known = std::mem::replace(&mut self.is_known, true);
        if at == self.at && was_known {
            return Ok(());
        }
        let row = match live {
            Some((file, row)) => Some(self.table.read_row(&file, row, &self.schema).await?),
            None => None,
        };
        self.at = at;
        let operation = match (&self.row, &row) {
            _ if !was_known => row.is_some().then_some(RowOperation::Present),
            (None, Some(_)) => Some(RowOperation::Insert),
            (Some(_), None) => Some(RowOperation::Delete),
            (before, after) if before == after => None,
            _ => Some(RowOperation::Update),
        };
        self.row = row;
        if let Some(operation) = operation {
            self.history.states.push(self.state(commit, operation));
        }
        Ok(())
    }

    fn state(&self, commit: &Commit, operation: RowOperation) -> RowState {
        RowState {
            version: commit.version,
            operation,
            committed_ms: commit.time_ms(),
            source_time_us: commit.info.get("alluvium.commit_time_us").and_then(serde_json::Value::as_i64),
            position: commit.position().map(str::to_string),
            sequence: commit.info.get("alluvium.sequence").and_then(serde_json::Value::as_u64),
            row: self.row.clone(),
        }
    }
}

fn is_gone(error: &LakeError) -> bool {
    match error {
        LakeError::Store { source, .. } => matches!(**source, object_store::Error::NotFound { .. }),
        LakeError::Parquet { source, .. } => source.to_string().contains("not found"),
        _ => false,
    }
}
