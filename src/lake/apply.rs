//! The upsert of one batch.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::not;
use arrow::datatypes::SchemaRef;
use deltalake::kernel::{Action, Add, AddCDCFile};
use deltalake::protocol::DeltaOperation;
use object_store::path::Path;
use roaring::RoaringTreemap;
use tokio::sync::mpsc;

use super::commit::Attempt;
use super::files::FileEntry;
use super::locate::{FileHits, KeySet, KeySetBuilder, Located, vector_name};
use super::old_values::Slice;
use super::partition::PartitionedWriter;
use super::write::{ColumnMap, DataWriter, NewFiles, abandon};
use super::{CommitOutcome, CommitSummary, CommitTag, LakeError, LakeTable, stats};
use crate::batch::{BatchError, KeyedChanges, KeyedSlice};
use crate::change::RowKey;
use crate::config::MergeMode;
use crate::failpoint;

/// How often a batch is located again because others committed in between. Someone who commits faster than
/// that has to be stopped by a person.
const ATTEMPTS_MAX: usize = 10;
/// Of a table's memory, the share that the keys of a batch may hold before they are located: one part in this many.
const KEYS_SHARE: usize = 4;
/// The same for the rows that wait for the file of their partition.
const PARTITION_SHARE: usize = 8;

/// Rows that a table may have left out at a time while it is loaded: their keys are part of each commit.
const UNSETTLED_MAX: usize = if cfg!(test) { 8 } else { 20_000 };

/// A batch whose new rows are written and whose old rows are found.
struct Staged {
    truncate: bool,
    new: NewFiles,
    located: Located,
    /// All keys, to locate them again; `None` if they did not fit into memory at once.
    keys: Option<Arc<KeySet>>,
    /// Rows that are left out though they are of the part that is loaded.
    unsettled: Vec<RowKey>,
}

/// Writes the new rows of a batch.
pub(super) enum BatchWriter {
    Whole(Box<DataWriter>),
    Partitioned(Box<PartitionedWriter>),
}

impl BatchWriter {
    /// Takes rows with the table's columns, in key order, with the numbers of their keys for a change feed.
    pub(super) async fn write(&mut self, rows: &RecordBatch, numbers: Option<&UInt64Array>) -> Result<(), LakeError> {
        match (self, numbers) {
            (Self::Whole(writer), None) => writer.write(rows).await,
            (Self::Whole(writer), Some(numbers)) => writer.write_numbered(rows, numbers).await,
            (Self::Partitioned(writer), numbers) => writer.write(rows, numbers).await,
        }
    }

    async fn finish(self) -> Result<NewFiles, LakeError> {
        match self {
            Self::Whole(writer) => writer.finish().await,
            Self::Partitioned(writer) => writer.finish().await,
        }
    }
}

/// What one commit changes in the list of files.
#[derive(Default)]
pub(super) struct FileChanges {
    pub removed: Vec<Arc<FileEntry>>,
    /// New files, and old ones with another deletion vector.
    pub added: Vec<Add>,
    /// The new files among them, if they were made for this attempt alone.
    pub new: NewFiles,
    /// New vectors by name, for the cache.
    pub vectors: Vec<(String, Arc<RoaringTreemap>)>,
    pub vector_file: Option<Path>,
    /// Files that say which rows changed.
    pub feed: NewFiles,
}

impl FileChanges {
    pub fn actions(&self) -> impl Iterator<Item = Action> {
        let now_ms = chrono::Utc::now().timestamp_millis();
        let removes = self.removed.iter().map(move |file| Action::Remove(file.remove(now_ms)));
        let feed = self.feed.adds.iter().map(|file| {
            Action::Cdc(AddCDCFile {
                path: file.path.clone(),
                size: file.size,
                partition_values: file.partition_values.clone(),
                data_change: false,
                tags: None,
            })
        });
        removes.chain(self.added.iter().cloned().map(Action::Add)).chain(feed)
    }
}

impl LakeTable {
    /// Makes the table equal to its source after `changes`, in one commit that carries `tag`. A batch that changes no
    /// row still commits its transactions. A caller that gets an error may apply the same changes with the same tag
    /// again: what was committed after all is found by its transaction.
    ///
    /// # Errors
    /// [`LakeError::Changes`] if `tag` has no transaction; [`LakeError::Unsettled`] if too many rows were left out so far; [`LakeError::DuplicateKey`] if the table has more than one live row of a key; then nothing is committed.
    pub async fn apply(&mut self, changes: KeyedChanges, tag: &CommitTag) -> Result<CommitOutcome, LakeError> {
        if tag.app_ids.is_empty() {
            let what = "a batch without an application transaction could be applied twice".to_string();
            return Err(LakeError::Changes { table: self.table.clone(), what });
        }
        if self.has_applied(tag).await? {
            return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
        }
        if !self.follow_settings().await? {
            return Ok(CommitOutcome::Conflict);
        }
        let mut staged = self.stage(changes).await?;
        let mut tag = tag.clone();
        tag.unsettled.extend(std::mem::take(&mut staged.unsettled));
        if tag.unsettled.len() > UNSETTLED_MAX {
            self.abandon(&staged.new).await;
            return Err(LakeError::Unsettled { table: self.table.clone(), rows_max: UNSETTLED_MAX });
        }
        for _ in 0..ATTEMPTS_MAX {
            let changes = self.plan(&staged).await?;
            match self.commit_changes(&staged, &changes, &tag).await? {
                Attempt::Committed => {
                    let summary = self.finish(&staged, changes)?;
                    return Ok(CommitOutcome::Committed(CommitSummary { unsettled: tag.unsettled, ..summary }));
                }
                Attempt::AlreadyApplied => return Ok(CommitOutcome::AlreadyApplied { version: self.version() }),
                Attempt::Overtaken => {}
            }
            self.drop_vectors(&changes).await;
            self.abandon(&changes.new).await;
            self.abandon(&changes.feed).await;
            if !self.locate_again(&mut staged).await? {
                break;
            }
        }
        self.abandon(&staged.new).await;
        Ok(CommitOutcome::Conflict)
    }

    /// Reads the batch once: writes its rows, and locates their old versions.
    async fn stage(&mut self, changes: KeyedChanges) -> Result<Staged, LakeError> {
        let (schema, truncate, absent_rows) = (changes.schema.clone(), changes.truncate, changes.absent_rows);
        let columns = ColumnMap::new(&self.table, &self.arrow_schema(), &schema.arrow_schema())?;
        self.check_key(&schema.key_names())?;
        let mut writer = self.batch_writer();
        let mut located = Located::new(self.has_feed());
        let mut first_key = 0;
        let mut keys = KeySetBuilder::new(self.prober.space.clone());
        let (mut once, mut unsettled) = (true, Vec::new());
        let keys_max = self.lake.memory_bytes() / KEYS_SHARE;
        let mut slices = slices(changes);
        while let Some(slice) = slices.recv().await {
            let slice = slice.map_err(LakeError::batch(&self.table))?;
            if let Some(gaps) = &slice.gaps {
                // Its rows depend on those that the table has now: they cannot be located again later.
                once = false;
                let mut own = Vec::new();
                if !truncate {
                    let full = std::mem::replace(&mut keys, KeySetBuilder::new(self.prober.space.clone()));
                    self.prober.locate(&self.files, &Arc::new(full.finish()), &mut located).await?;
                    own = self.locate_slice(&slice, &schema.key, &mut located).await?;
                }
                let part =
                    Slice { slice: &slice, gaps, schema: &schema, columns: &columns, first_key, truncate, absent_rows };
                unsettled.extend(self.write_with_old_values(&part, own, &mut writer).await?);
                first_key += slice.rows.num_rows() as u64;
                continue;
            }
            if !truncate {
                if keys.bytes() > keys_max {
                    let full = std::mem::replace(&mut keys, KeySetBuilder::new(self.prober.space.clone()));
                    self.prober.locate(&self.files, &Arc::new(full.finish()), &mut located).await?;
                    once = false;
                }
                keys.push(&slice, &schema.key)?;
            }
            let keep = not(&slice.deleted).map_err(LakeError::arrow(&self.table, "select rows"))?;
            let numbers = self.has_feed().then(|| numbers_of(&keep, first_key));
            first_key += keep.len() as u64;
            writer.write(&columns.apply(&slice.rows, &keep)?, numbers.as_ref()).await?;
        }
        let keys = Arc::new(keys.finish());
        self.prober.locate(&self.files, &keys, &mut located).await?;
        let new = writer.finish().await?;
        Ok(Staged { truncate, new, located, keys: once.then_some(keys), unsettled })
    }

    /// A writer of rows of any partition.
    fn batch_writer(&self) -> BatchWriter {
        let partitioning = self.partitioning().clone();
        if partitioning.is_empty() {
            return BatchWriter::Whole(Box::new(self.writer(self.file_schema())));
        }
        let key: Vec<String> = self.prober.space.names().map(str::to_string).collect();
        let (table, store, layout) = (self.table.clone(), self.store.clone(), self.lake.layout());
        let schema = self.file_schema();
        let files = schema.clone();
        let open = move |partition| {
            DataWriter::new(table.clone(), store.clone(), files.clone(), key.clone(), layout).in_partition(partition)
        };
        let memory = self.lake.memory_bytes() / PARTITION_SHARE;
        BatchWriter::Partitioned(Box::new(PartitionedWriter::new(partitioning, schema, memory, open)))
    }

    /// A writer of rows of one partition, with the columns of `schema`.
    pub(super) fn writer(&self, schema: SchemaRef) -> DataWriter {
        let key = self.prober.space.names().map(str::to_string).collect();
        DataWriter::new(self.table.clone(), self.store.clone(), schema, key, self.lake.layout())
    }

    /// The batch was reduced by its own key; by another key the table would get doubled rows.
    pub(super) fn check_key(&self, names: &[&str]) -> Result<(), LakeError> {
        if self.prober.space.names().eq(names.iter().copied()) {
            return Ok(());
        }
        let known: Vec<_> = self.prober.space.names().collect();
        let what = format!("their key is ({}), the table's is ({})", names.join(", "), known.join(", "));
        Err(LakeError::Changes { table: self.table.clone(), what })
    }

    async fn locate_again(&mut self, staged: &mut Staged) -> Result<bool, LakeError> {
        let Some(keys) = staged.keys.clone() else { return Ok(false) };
        staged.located = Located::new(self.has_feed());
        self.prober.locate(&self.files, &keys, &mut staged.located).await?;
        Ok(true)
    }

    /// Decides what becomes of each file, and writes the deletion vectors, or the rows that stay of each.
    async fn plan(&self, staged: &Staged) -> Result<FileChanges, LakeError> {
        let mut changes = FileChanges { added: staged.new.adds.clone(), ..FileChanges::default() };
        if staged.truncate {
            changes.removed = self.all_files();
            if self.has_feed() {
                let located = self.locate_all(true).await?;
                changes.feed = self.write_feed(&self.file_schema(), &staged.new, &located).await?;
            }
            return Ok(changes);
        }
        if self.has_feed() {
            changes.feed = self.write_feed(&self.file_schema(), &staged.new, &staged.located).await?;
        }
        changes.removed = staged.located.files.values().map(|hits| hits.file.clone()).collect();
        if self.merge_mode() == MergeMode::CopyOnWrite {
            let new = self.copy_remaining(&staged.located).await?;
            changes.added.extend(new.adds.iter().cloned());
            changes.new = new;
            return Ok(changes);
        }
        let left = |hits: &&FileHits| hits.vector.len() < hits.rows;
        let kept: Vec<&FileHits> = staged.located.files.values().filter(left).collect();
        if kept.is_empty() {
            return Ok(changes);
        }
        let vectors: Vec<_> = kept.iter().map(|hits| hits.vector.clone()).collect();
        let descriptors = self.prober.vectors.write(&vectors).await?;
        changes.vector_file = descriptors.first().and_then(super::deletion::file_of);
        for ((hits, rows), descriptor) in kept.into_iter().zip(vectors).zip(descriptors) {
            if descriptor.cardinality != i64::try_from(rows.len()).unwrap_or(-1) {
                let what = "a deletion vector was written with other rows than were found".to_string();
                return Err(LakeError::Changes { table: self.table.clone(), what });
            }
            changes.vectors.push((vector_name(&descriptor), Arc::new(rows)));
            changes.added.push(Add {
                stats: Some(stats::loosened(hits.file.add.stats.as_deref(), hits.rows)),
                deletion_vector: Some(descriptor),
                data_change: true,
                ..hits.file.add.clone()
            });
        }
        Ok(changes)
    }

    async fn commit_changes(
        &mut self,
        staged: &Staged,
        changes: &FileChanges,
        tag: &CommitTag,
    ) -> Result<Attempt, LakeError> {
        let tag = tag
            .clone()
            .with_info("alluvium.rows_upserted", staged.new.rows)
            .with_info("alluvium.rows_deleted", staged.located.rows_deleted);
        // Labelled so, any foreign commit in between counts as a conflict: nothing may be rebased blindly.
        let operation = DeltaOperation::Merge {
            predicate: None,
            merge_predicate: None,
            matched_predicates: Vec::new(),
            not_matched_predicates: Vec::new(),
            not_matched_by_source_predicates: Vec::new(),
        };
        failpoint::hit(failpoint::COMMIT_BEFORE);
        let attempt = self.commit(changes.actions().collect(), operation, &tag).await?;
        failpoint::hit(failpoint::COMMIT_AFTER);
        Ok(attempt)
    }

    fn finish(&mut self, staged: &Staged, changes: FileChanges) -> Result<CommitSummary, LakeError> {
        let summary = CommitSummary {
            version: self.version(),
            rows_upserted: staged.new.rows,
            rows_deleted: staged.located.rows_deleted,
            files_added: (staged.new.adds.len() + changes.new.adds.len()) as u64,
            files_touched: changes.removed.len() as u64,
            bytes_written: staged.new.bytes() + changes.new.bytes(),
            unsettled: BTreeSet::new(),
        };
        self.adopt(changes)?;
        Ok(summary)
    }

    /// Brings the list of files and the caches to the committed version.
    pub(super) fn adopt(&mut self, changes: FileChanges) -> Result<(), LakeError> {
        for file in &changes.removed {
            self.files.remove(&file.add.path);
            if let Some(vector) = &file.add.deletion_vector {
                self.prober.vector_cache.remove(&vector_name(vector));
            }
        }
        for add in changes.added {
            self.files.insert(add.path.clone(), Arc::new(FileEntry::new(add, &self.prober.space)?));
        }
        for (name, rows) in changes.vectors {
            let bytes = rows.serialized_size();
            self.prober.vector_cache.put(&name, rows, bytes);
        }
        Ok(())
    }

    /// Deletes new files after someone else took the version that they were meant for: no late reply can bring them
    /// in. Files that came in all the same (their reply was lost) stay.
    pub(super) async fn abandon(&self, new: &NewFiles) {
        let live = new.adds.iter().any(|add| self.files.contains_key(&add.path));
        if !live {
            abandon(self.store.as_ref(), new).await;
        }
    }

    async fn drop_vectors(&self, changes: &FileChanges) {
        use object_store::ObjectStoreExt;
        if let Some(path) = &changes.vector_file
            && let Err(error) = self.store.delete(path).await
        {
            tracing::debug!(path = %path, error = %error, "unused deletion vectors stay");
        }
    }
}

/// The numbers of the rows that are kept; `first` is that of the first row.
pub(super) fn numbers_of(keep: &BooleanArray, first: u64) -> UInt64Array {
    keep.values().set_indices().map(|row| first + row as u64).collect()
}

/// Reads slices on a thread that may wait for the disk, one ahead of the writer.
fn slices(mut changes: KeyedChanges) -> mpsc::Receiver<Result<KeyedSlice, BatchError>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        // A slice may be one row of any size: the next is read when there is a place for it. A receiver that is gone has met an
        // error of its own.
        while let Ok(place) = futures::executor::block_on(sender.reserve()) {
            let Some(slice) = changes.next_slice().transpose() else { break };
            let failed = slice.is_err();
            place.send(slice);
            if failed {
                break;
            }
        }
    });
    receiver
}
