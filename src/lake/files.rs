//! The live data files of a table version, with what the log says of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltalake::kernel::{Add, EagerSnapshot, Remove};
use deltalake::logstore::LogStoreRef;
use futures::TryStreamExt;
use object_store::path::Path;
use serde_json::Value;

use super::locate::{KeyPartition, KeyRange, KeySpace};
use super::{LakeError, stats};
use crate::change::TableId;

/// One live data file.
#[derive(Debug)]
pub(super) struct FileEntry {
    /// As in the log.
    pub add: Add,
    /// Below the table's folder.
    pub path: Path,
    /// Physical rows, deleted ones included; `None` where the log does not say.
    pub rows: Option<u64>,
    /// Bounds of the first key column, where the log has usable ones.
    pub range: Option<KeyRange>,
    /// The values of the partition columns that follow from the key; `None` where the log has none, or others.
    pub partition: Option<KeyPartition>,
}

/// The live files by their path in the log.
pub(super) type FileMap = BTreeMap<String, Arc<FileEntry>>;

impl FileEntry {
    pub fn new(add: Add, space: &KeySpace) -> Result<Self, LakeError> {
        check_removable(&add, &space.table)?;
        let stats = parsed_stats(&add);
        let known = space.partition_range(&add);
        let range = known.or_else(|| stats.as_ref().and_then(|stats| stats::key_range(space, stats)));
        let partition = space.partition_of_file(&add);
        Ok(Self { partition, ..Self::with(add, &space.table, stats, range)? })
    }

    /// For readers, who know nothing of a key.
    pub fn without_key(add: Add, table: &TableId) -> Result<Self, LakeError> {
        let stats = parsed_stats(&add);
        Self::with(add, table, stats, None)
    }

    fn with(add: Add, table: &TableId, stats: Option<Value>, range: Option<KeyRange>) -> Result<Self, LakeError> {
        if add.path.contains("://") {
            let reason = format!("its file {} lies outside its folder (a shallow clone?)", add.path);
            return Err(LakeError::Unsupported { table: table.clone(), reason });
        }
        let path = object_path(&add.path);
        let rows = stats.and_then(|stats| stats.get("numRecords")?.as_u64());
        Ok(Self { add, path, rows, range, partition: None })
    }

    /// Its statistics in the log, parsed; `None` where there are none, or they are no JSON.
    pub fn stats(&self) -> Option<Value> {
        parsed_stats(&self.add)
    }

    /// How many of its rows are deleted.
    pub fn deleted_rows(&self) -> u64 {
        let cardinality = self.add.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
        u64::try_from(cardinality).unwrap_or(0)
    }

    pub fn bytes(&self) -> u64 {
        u64::try_from(self.add.size).unwrap_or(0)
    }

    /// The action that ends this file, with its present deletion vector, which is part of its identity in the log.
    pub fn remove(&self, now_ms: i64) -> Remove {
        Remove {
            path: self.add.path.clone(),
            data_change: true,
            deletion_timestamp: Some(now_ms),
            extended_file_metadata: Some(true),
            size: Some(self.add.size),
            partition_values: Some(self.add.partition_values.clone()),
            deletion_vector: self.add.deletion_vector.clone(),
            tags: None,
            base_row_id: self.add.base_row_id,
            default_row_commit_version: self.add.default_row_commit_version,
        }
    }
}

/// A `remove` must name the path as its `add` wrote it, escaped or not, and only the unescaped form is known: of letters
/// beyond ASCII, Spark escapes none and the deltalake crate all.
fn check_removable(add: &Add, table: &TableId) -> Result<(), LakeError> {
    if add.path.is_ascii() {
        return Ok(());
    }
    let reason = format!(
        "its file {} was named by another engine with letters beyond ASCII, and could not be removed again; \
         go back to the version before it (in Spark: RESTORE TABLE) and leave compaction to Alluvium",
        add.path
    );
    Err(LakeError::Unsupported { table: table.clone(), reason })
}

/// The live files of a snapshot; entries of `known` that are still the same are kept as they are.
pub(super) async fn load(
    snapshot: &EagerSnapshot,
    log_store: &LogStoreRef,
    space: &KeySpace,
    known: &FileMap,
) -> Result<FileMap, LakeError> {
    let failed = || LakeError::delta(&space.table, "list its live files");
    let mut views = snapshot.file_views(log_store.as_ref(), None);
    let mut files = FileMap::new();
    while let Some(view) = views.try_next().await.map_err(failed())? {
        let path = view.path().into_owned();
        let vector = view.deletion_vector_descriptor();
        let same = known.get(&path).filter(|entry| entry.add.deletion_vector == vector);
        let entry = match same {
            Some(entry) => entry.clone(),
            // Deprecated for readers, who should use the columns; a writer needs the action itself.
            #[allow(deprecated)]
            None => Arc::new(FileEntry::new(view.add_action(), space)?),
        };
        if files.insert(path, entry).is_some() {
            let reason = "its log holds one file twice, with different deletion vectors".to_string();
            return Err(LakeError::Unsupported { table: space.table.clone(), reason });
        }
    }
    Ok(files)
}

/// The live files of a snapshot, for a reader.
pub(super) async fn list(
    snapshot: &EagerSnapshot,
    log_store: &LogStoreRef,
    table: &TableId,
) -> Result<Vec<Arc<FileEntry>>, LakeError> {
    let failed = || LakeError::delta(table, "list its live files");
    let mut views = snapshot.file_views(log_store.as_ref(), None);
    let mut files = Vec::new();
    while let Some(view) = views.try_next().await.map_err(failed())? {
        // Deprecated as in `load`.
        #[allow(deprecated)]
        let add = view.add_action();
        files.push(Arc::new(FileEntry::without_key(add, table)?));
    }
    Ok(files)
}

/// Where a file that the log names lies below the table's folder.
pub(super) fn object_path(path: &str) -> Path {
    Path::parse(path).unwrap_or_else(|_| Path::from(path))
}

fn parsed_stats(add: &Add) -> Option<Value> {
    serde_json::from_str(add.stats.as_deref()?).ok()
}
