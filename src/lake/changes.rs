//! Which rows came and went between versions of a table: from the change feed's files where a commit has them, else from the
//! data files that it added and removed and from its deletion vectors. Commits that say of themselves that they change no rows
//! (`dataChange` is false) are passed over.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use chrono::DateTime;
use deltalake::kernel::{Add, DeletionVectorDescriptor};
use deltalake::table::state::DeltaTableState;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt};
use roaring::RoaringTreemap;

use super::files::{self, FileEntry};
use super::locate::FileAccess;
use super::log::{Commit, find_commit};
use super::scan::{ScanFile, check_readable};
use super::{Lake, LakeError, LakeScan, change_feed};
use crate::change::TableId;

/// The columns that a change has beside the table's, as Spark names them.
pub const CHANGE_TYPE: &str = change_feed::CHANGE_TYPE;
pub const COMMIT_VERSION: &str = "_commit_version";
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";

/// What [`Changes::rows`] have in the column of the change's type.
pub const CAME: &str = "insert";
pub const WENT: &str = "delete";

/// Commits that are read at the same time.
const READS_AT_ONCE: usize = 16;

/// The changes of some versions. Each scan has the table's columns and the three that are named here.
pub struct Changes {
    /// The key columns as the job recorded them; empty for tables of others.
    pub key: Vec<String>,
    /// The columns of the table, without those of the changes.
    pub columns: SchemaRef,
    /// Rows of versions that say what happened to each.
    pub known: LakeScan,
    /// Rows of versions in which rows came only, or went only.
    pub plain: LakeScan,
    /// Rows that came and rows that went in one version: a key that is in both was updated, and a row that is in both,
    /// value by value, was only moved.
    pub rows: LakeScan,
}

/// The files of a version, or of a part of it: the log's paths, each with its deletion vector.
pub(super) type FileSet = BTreeMap<String, Add>;

/// What of a file has come, or gone.
struct Part {
    add: Add,
    /// These physical rows; `None` stands for all that are live.
    only: Option<Arc<RoaringTreemap>>,
    came: bool,
}

/// The files of the three scans.
#[derive(Default)]
struct Files {
    known: Vec<ScanFile>,
    plain: Vec<ScanFile>,
    rows: Vec<ScanFile>,
}

struct Reader<'a> {
    table: &'a TableId,
    store: Arc<dyn ObjectStore>,
    access: FileAccess,
    files: Files,
}

impl Lake {
    /// The changes that the versions from `from` to `to`, both included, made to a table. `Ok(None)` if one of their commits is
    /// not in the log (any more).
    ///
    /// # Errors
    /// A log or deletion vectors that cannot be read; [`LakeError::Unsupported`] for tables that need more of a reader.
    pub async fn changes(&self, table: &TableId, from: u64, to: u64) -> Result<Option<Changes>, LakeError> {
        let state = self.readable_state(table, to).await?;
        let mut reader = Reader::new(self, table);
        let store = Arc::clone(&reader.store);
        let reads = (from..=to).map(|version| find_commit(store.as_ref(), table, version));
        let mut commits = stream::iter(reads).buffered(READS_AT_ONCE);
        while let Some(commit) = commits.try_next().await? {
            let Some(commit) = commit else { return Ok(None) };
            reader.take(&commit).await?;
        }
        drop(commits);
        Ok(Some(reader.finish(self, &state)))
    }

    /// The rows that version `to` of a table has and `from` has not, and the other way round, as if one commit had made the
    /// one of the other. The columns are those of `to`.
    ///
    /// # Errors
    /// A version or deletion vectors that cannot be read.
    pub async fn difference(&self, table: &TableId, from: u64, to: u64) -> Result<Changes, LakeError> {
        let before = self.file_set(table, &self.readable_state(table, from).await?).await?;
        let state = self.readable_state(table, to).await?;
        let after = self.file_set(table, &state).await?;
        let mut reader = Reader::new(self, table);
        let parts = reader.parts(before, after).await?;
        for part in parts {
            let file = reader.file(part, to, 0)?;
            reader.files.rows.push(file);
        }
        Ok(reader.finish(self, &state))
    }

    pub(super) async fn readable_state(&self, table: &TableId, version: u64) -> Result<DeltaTableState, LakeError> {
        let state = DeltaTableState::try_new(self.log_store(table).as_ref(), Some(version)).await;
        let state = state.map_err(LakeError::delta(table, "read its log"))?;
        check_readable(table, &state)?;
        Ok(state)
    }

    pub(super) async fn file_set(&self, table: &TableId, state: &DeltaTableState) -> Result<FileSet, LakeError> {
        let files = files::list(state.snapshot(), &self.log_store(table), table).await?;
        Ok(files.into_iter().map(|file| (file.add.path.clone(), file.add.clone())).collect())
    }
}

impl<'a> Reader<'a> {
    fn new(lake: &Lake, table: &'a TableId) -> Self {
        let (store, access) = (lake.table_store(table), lake.file_access(table));
        Self { table, store, access, files: Files::default() }
    }

    async fn take(&mut self, commit: &Commit) -> Result<(), LakeError> {
        let time_ms = commit.time_ms().unwrap_or(0);
        if !commit.changes.is_empty() {
            for change in &commit.changes {
                let add = Add {
                    path: change.path.clone(),
                    size: change.size,
                    partition_values: change.partition_values.clone(),
                    ..Add::default()
                };
                let entry = self.entry(add, commit.version, time_ms, None)?;
                self.files.known.push(ScanFile { entry, only: None });
            }
            return Ok(());
        }
        let (before, after) = self.changed_files(commit).await?;
        let parts = self.parts(before, after).await?;
        let is_plain = parts.iter().all(|part| part.came) || parts.iter().all(|part| !part.came);
        for part in parts {
            let file = self.file(part, commit.version, time_ms)?;
            if is_plain { &mut self.files.plain } else { &mut self.files.rows }.push(file);
        }
        Ok(())
    }

    /// The files that a commit has taken away, and those that it has brought.
    async fn changed_files(&self, commit: &Commit) -> Result<(FileSet, FileSet), LakeError> {
        let mut before = FileSet::new();
        for remove in commit.removes.iter().filter(|remove| remove.data_change) {
            let size = match remove.size {
                Some(size) => size,
                None => self.size_of(&remove.path).await?,
            };
            let add = Add {
                path: remove.path.clone(),
                size,
                partition_values: remove.partition_values.clone().unwrap_or_default(),
                deletion_vector: remove.deletion_vector.clone(),
                ..Add::default()
            };
            before.insert(remove.path.clone(), add);
        }
        let after = commit.adds.iter().filter(|add| add.data_change).map(|add| (add.path.clone(), add.clone()));
        Ok((before, after.collect()))
    }

    /// What came and what went between two sets of files.
    async fn parts(&self, mut before: FileSet, after: FileSet) -> Result<Vec<Part>, LakeError> {
        let mut parts = Vec::new();
        for (path, add) in after {
            let Some(old) = before.remove(&path) else {
                parts.push(Part { add, only: None, came: true });
                continue;
            };
            let (was, is) = (old.deletion_vector.as_ref(), add.deletion_vector.as_ref());
            if was == is {
                continue;
            }
            let (was, is) = (self.vector(was).await?, self.vector(is).await?);
            for (rows, came) in [(&is - &was, false), (&was - &is, true)] {
                if !rows.is_empty() {
                    // The file as a whole: its rows are named one by one.
                    let add = Add { deletion_vector: None, ..add.clone() };
                    parts.push(Part { add, only: Some(Arc::new(rows)), came });
                }
            }
        }
        parts.extend(before.into_values().map(|add| Part { add, only: None, came: false }));
        Ok(parts)
    }

    async fn vector(&self, vector: Option<&DeletionVectorDescriptor>) -> Result<RoaringTreemap, LakeError> {
        match vector {
            Some(vector) => self.access.vectors.read(vector).await,
            None => Ok(RoaringTreemap::new()),
        }
    }

    async fn size_of(&self, path: &str) -> Result<i64, LakeError> {
        let found = self.store.head(&files::object_path(path)).await;
        let found = found.map_err(LakeError::store(format!("look for {path} of {}", self.table)))?;
        Ok(i64::try_from(found.size).unwrap_or(i64::MAX))
    }

    fn file(&self, part: Part, version: u64, time_ms: i64) -> Result<ScanFile, LakeError> {
        let change = if part.came { CAME } else { WENT };
        let entry = self.entry(part.add, version, time_ms, Some(change))?;
        Ok(ScanFile { entry, only: part.only })
    }

    /// A file with what the columns of the change are in it: to the scan they are columns that the table is divided by.
    fn entry(
        &self,
        mut add: Add,
        version: u64,
        time_ms: i64,
        change: Option<&str>,
    ) -> Result<Arc<FileEntry>, LakeError> {
        let time = DateTime::from_timestamp_millis(time_ms).unwrap_or_default();
        let values: HashMap<&str, Option<String>> = HashMap::from([
            (COMMIT_VERSION, Some(version.to_string())),
            (COMMIT_TIMESTAMP, Some(time.format("%Y-%m-%d %H:%M:%S%.6f").to_string())),
            (CHANGE_TYPE, change.map(str::to_string)),
        ]);
        let given = values.into_iter().filter(|(_, value)| value.is_some());
        add.partition_values.extend(given.map(|(name, value)| (name.to_string(), value)));
        FileEntry::without_key(add, self.table).map(Arc::new)
    }

    fn finish(self, lake: &Lake, state: &DeltaTableState) -> Changes {
        // Not as views: each of a batch counts all of the page that it points into, and sorts would take them for far more than
        // they are.
        let columns = state.snapshot().arrow_schema();
        let schema = changes_schema(&columns);
        let scan = |files, constants: &[&str]| {
            let by = state.metadata().partition_columns().iter().map(String::as_str).chain(constants.iter().copied());
            let by: Vec<String> = by.map(str::to_string).collect();
            LakeScan::of_files(lake, self.table, state, (schema.clone(), &by), files, self.access.clone())
        };
        let known = scan(self.files.known, &[COMMIT_VERSION, COMMIT_TIMESTAMP]);
        let all = [CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP];
        let (plain, rows) = (scan(self.files.plain, &all), scan(self.files.rows, &all));
        Changes { key: known.key().to_vec(), columns, known, plain, rows }
    }
}

/// The table's columns and those of a change.
fn changes_schema(columns: &Schema) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let more = [
        Field::new(CHANGE_TYPE, DataType::Utf8, true),
        Field::new(COMMIT_VERSION, DataType::Int64, true),
        Field::new(COMMIT_TIMESTAMP, time, true),
    ];
    Arc::new(Schema::new(columns.fields().iter().cloned().chain(more.map(Arc::new)).collect::<Vec<_>>()))
}
