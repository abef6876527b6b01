//! Compaction and clustering: the live rows of some files are written again, in one order, into files of the right size.
//!
//! The rows of the table stay the same, and every action of the commit says so (`dataChange` is false). A commit of someone
//! else in between is no harm where it left the files alone; otherwise the work is thrown away and planned anew, for
//! a row that was deleted meanwhile must not come back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use deltalake::kernel::{Action, Add, Remove};
use deltalake::protocol::DeltaOperation;
use futures::TryStreamExt;
use uuid::Uuid;

use super::apply::FileChanges;
use super::commit::Attempt;
use super::files::{FileEntry, FileMap};
use super::write::{DataWriter, Layout, NewFiles};
use super::{CommitTag, LakeError, LakeTable};
use crate::failpoint;

mod curve;
mod plan;
mod rows;
mod sample;
#[cfg(test)]
mod tests;

pub use plan::CompactRules;

use curve::Curve;
use plan::Group;
use rows::{Failure, LiveRows, order_by};

/// How often a piece of work is planned anew because others changed its files. The next time is soon.
const PLANS_MAX: usize = 3;
/// How often one is committed again because others committed elsewhere in the table.
const COMMITS_MAX: usize = 10;
/// The entry of commitInfo by which a commit whose reply was lost is known again.
const COMPACTION: &str = "alluvium.compaction";
/// The tag of an `add` that holds the columns by which its rows are clustered.
const CURVE_TAG: &str = "alluvium.curve";

/// What one piece of work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactReport {
    pub files_before: u64,
    pub bytes_before: u64,
    pub files_after: u64,
    pub bytes_after: u64,
    pub rows: u64,
}

/// What came of a commit.
enum Folded {
    Committed(CompactReport),
    /// Others changed the files.
    Stale,
}

/// One group after the other, each without the files of those before.
fn due(files: &FileMap, next: impl Fn(&FileMap) -> Option<Group>) -> Vec<CompactReport> {
    let (mut files, mut due) = (files.clone(), Vec::new());
    while let Some(group) = next(&files).filter(|group| !group.files.is_empty()) {
        group.files.iter().for_each(|file| drop(files.remove(&file.add.path)));
        due.push(CompactReport::before(&group));
    }
    due
}

impl LakeTable {
    /// Folds one group of files, in one commit; `None` if nothing is to be done, or if others changed the files
    /// again and again. A table with `cluster_by` gets rows in the order of a curve through those columns, every other
    /// one in the order of its key.
    ///
    /// # Errors
    /// [`LakeError::Changes`] if the rows written are not as many as the log counts; then nothing was committed. After an
    /// error the table may have the commit all the same; it holds the same rows either way.
    pub async fn compact(&mut self, rules: &CompactRules) -> Result<Option<CompactReport>, LakeError> {
        self.fold(rules, |table| rules.next(&table.files)).await
    }

    /// What [`Self::compact`] would read, piece by piece; what it would read again of what it had written is not among it.
    pub fn compactions_due(&self, rules: &CompactRules) -> Vec<CompactReport> {
        due(&self.files, |files| rules.next(files))
    }

    /// The largest number of small files that could be folded with each other.
    pub fn small_files(&self, rules: &CompactRules) -> usize {
        rules.small_count(&self.files)
    }

    /// Brings files whose rows are not clustered by the present `cluster_by` into that order, one group in one commit;
    /// `None` if there are none. Errors as with [`Self::compact`].
    pub async fn cluster(&mut self, rules: &CompactRules) -> Result<Option<CompactReport>, LakeError> {
        self.fold(rules, |table| table.unclustered(&table.files, rules)).await
    }

    /// What [`Self::cluster`] would read, piece by piece.
    pub fn clusterings_due(&self, rules: &CompactRules) -> Vec<CompactReport> {
        due(&self.files, |files| self.unclustered(files, rules))
    }

    fn unclustered(&self, files: &FileMap, rules: &CompactRules) -> Option<Group> {
        let columns = self.curve_columns();
        let wanted = curve_tag(&columns)?;
        let is_due = |file: &FileEntry| {
            let tags = file.add.tags.as_ref();
            tags.and_then(|tags| tags.get(CURVE_TAG)?.as_deref()) != Some(wanted.as_str())
        };
        rules.all_of(files, is_due)
    }

    /// The columns of `cluster_by` that the table has.
    fn curve_columns(&self) -> Vec<String> {
        let schema = self.file_schema();
        let known = |name: &&String| schema.field_with_name(name).is_ok_and(|field| !field.data_type().is_nested());
        self.settings.cluster_by.iter().filter(known).take(curve::COLUMNS_MAX).cloned().collect()
    }

    async fn fold(
        &mut self,
        rules: &CompactRules,
        plan: impl Fn(&Self) -> Option<Group>,
    ) -> Result<Option<CompactReport>, LakeError> {
        for _ in 0..PLANS_MAX {
            let Some(group) = plan(self) else { return Ok(None) };
            let new = self.write_again(&group, rules).await?;
            match self.commit_group(&group, new, rules).await? {
                Folded::Committed(report) => return Ok(Some(report)),
                Folded::Stale => {}
            }
        }
        tracing::info!(table = %self.table, "compaction is put off: other writers keep changing the files");
        Ok(None)
    }

    /// Writes the live rows of a group into new files.
    async fn write_again(&self, group: &Group, rules: &CompactRules) -> Result<NewFiles, LakeError> {
        let columns = self.curve_columns();
        let curve = if columns.is_empty() { None } else { Some(self.curve(&columns, &group.files).await?) };
        let rows = LiveRows {
            prober: self.prober.clone(),
            schema: self.file_schema(),
            files: group.files.clone(),
            memory_bytes: self.lake.memory_bytes(),
            curve: curve.map(Arc::new),
            failure: Failure::default(),
        };
        let expected = rows.count().await?;
        let mut new = None;
        let has_order = self.prober.space.stored_names().next().is_some();
        if has_order && rows.curve.is_none() && rows.can_merge().await? {
            new = match self.write_merged(&rows, group, rules).await {
                // Rows so wide that one of each file is too much; a sort has a disk.
                Err(LakeError::Sort { source, .. }) => {
                    tracing::debug!(table = %self.table, error = %source, "files cannot be merged, sorting them");
                    None
                }
                merged => merged?,
            };
        }
        let new = match new {
            Some(new) => new,
            None => self.write_sorted(&rows, group, rules).await?,
        };
        if new.rows != expected {
            self.abandon(&new).await;
            let what = format!("{} rows were copied of {expected}", new.rows);
            return Err(LakeError::Changes { table: self.table.clone(), what });
        }
        Ok(self.tagged(new, group, curve_tag(&columns)))
    }

    /// Merges files that are in key order; `None` if one turns out not to be.
    async fn write_merged(
        &self,
        rows: &LiveRows,
        group: &Group,
        rules: &CompactRules,
    ) -> Result<Option<NewFiles>, LakeError> {
        let order = order_by(&rows.stream_schema(), self.prober.space.stored_names()).ok_or_else(|| self.no_order())?;
        let merged = rows.merged(&order).await;
        let mut check = Some(Ascending::new(self, &rows.schema)?);
        let (new, is_whole) = self.write_stream(merged, rows, &mut check, self.writer_for(group, rules)).await?;
        if is_whole {
            return Ok(Some(new));
        }
        tracing::debug!(table = %self.table, "files are not in key order, sorting them");
        self.abandon(&new).await;
        Ok(None)
    }

    async fn write_sorted(&self, rows: &LiveRows, group: &Group, rules: &CompactRules) -> Result<NewFiles, LakeError> {
        let place = rows.curve.is_some().then_some(curve::PLACE);
        let schema = rows.stream_schema();
        let names = place.into_iter().chain(self.prober.space.stored_names());
        // Where partitions hold the whole key, files have none: any order will do.
        let any =
            schema.fields().iter().find(|field| !field.data_type().is_nested()).map(|field| field.name().as_str());
        let order = order_by(&schema, names).or_else(|| order_by(&schema, any.into_iter()));
        let order = order.ok_or_else(|| self.no_order())?;
        let sorted = rows.sorted(order).await;
        let (new, _) = self.write_stream(sorted, rows, &mut None, self.writer_for(group, rules)).await?;
        Ok(new)
    }

    /// Writes all that comes; stops, and says so, where rows are not in key order though they should be.
    async fn write_stream(
        &self,
        stream: Result<SendableRecordBatchStream, DataFusionError>,
        rows: &LiveRows,
        check: &mut Option<Ascending>,
        mut writer: DataWriter,
    ) -> Result<(NewFiles, bool), LakeError> {
        let failed = |error: DataFusionError| {
            let known = rows.failure.take();
            known.unwrap_or_else(|| LakeError::Sort { table: self.table.clone(), source: Box::new(error) })
        };
        let columns: Vec<usize> = (0..rows.schema.fields().len()).collect();
        let mut stream = stream.map_err(failed)?;
        while let Some(batch) = stream.try_next().await.map_err(failed)? {
            let batch = batch.project(&columns).map_err(LakeError::arrow(&self.table, "copy rows"))?;
            if let Some(check) = check
                && !check.takes(self, &batch)?
            {
                return Ok((writer.finish().await?, false));
            }
            // A file is closed between two writes only.
            let step = self.lake.layout().row_group_rows.max(1);
            for from in (0..batch.num_rows()).step_by(step) {
                writer.write(&batch.slice(from, step.min(batch.num_rows() - from))).await?;
            }
        }
        Ok((writer.finish().await?, true))
    }

    /// A writer that cuts what the group's rows are worth into files of one size.
    fn writer_for(&self, group: &Group, rules: &CompactRules) -> DataWriter {
        let bytes = group.live_bytes();
        let files = (bytes.saturating_add(rules.file_bytes / 2) / rules.file_bytes.max(1)).max(1);
        // Rows are worth a little more or less in another order: without room the rest would be one more, small file.
        let file_bytes = (bytes / files).saturating_add(bytes / files / 4).max(rules.file_bytes / 2);
        let layout = Layout { file_bytes: usize::try_from(file_bytes).unwrap_or(usize::MAX), ..self.lake.layout() };
        let key = self.prober.space.stored_names().map(str::to_string).collect();
        DataWriter::new(self.table.clone(), self.store.clone(), self.file_schema(), key, layout)
    }

    fn tagged(&self, mut new: NewFiles, group: &Group, curve: Option<String>) -> NewFiles {
        let run = Uuid::new_v4().simple().to_string();
        let tags = [(plan::LEVEL_TAG, Some(group.level.to_string())), (plan::RUN_TAG, Some(run)), (CURVE_TAG, curve)];
        let tags: HashMap<String, Option<String>> =
            tags.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_string(), Some(value)))).collect();
        let values = group.files.first().map(|file| file.add.partition_values.clone()).unwrap_or_default();
        for add in &mut new.adds {
            add.data_change = false;
            add.tags = Some(tags.clone());
            add.partition_values.clone_from(&values);
        }
        new
    }

    async fn commit_group(&mut self, group: &Group, new: NewFiles, rules: &CompactRules) -> Result<Folded, LakeError> {
        let id = Uuid::new_v4().simple().to_string();
        let tag = CommitTag::default().with_info(COMPACTION, id.clone());
        let report = CompactReport::after(group, &new);
        for _ in 0..COMMITS_MAX {
            let base = self.state.version();
            let operation = DeltaOperation::Optimize {
                predicate: None,
                target_size: i64::try_from(rules.file_bytes).unwrap_or(i64::MAX),
            };
            failpoint::hit(failpoint::COMMIT_BEFORE);
            let attempt = self.commit(actions(group, &new.adds), operation, &tag).await?;
            failpoint::hit(failpoint::COMMIT_AFTER);
            match attempt {
                Attempt::Committed => {
                    let removed = group.files.clone();
                    self.adopt(FileChanges { removed, added: new.adds, ..FileChanges::default() })?;
                    return Ok(Folded::Committed(report));
                }
                // Without a transaction the log cannot say so.
                Attempt::AlreadyApplied => {}
                Attempt::Overtaken => {}
            }
            if self.is_commit(base + 1, &id).await? {
                return Ok(Folded::Committed(report));
            }
            if !self.has_all(group) {
                break;
            }
        }
        // The version that these files were meant for is another's: no late reply can bring them in.
        self.abandon(&new).await;
        Ok(Folded::Stale)
    }

    /// Whether the version's commit is the one with this id.
    async fn is_commit(&self, version: u64, id: &str) -> Result<bool, LakeError> {
        let commit = self.read_commit(version).await?;
        Ok(commit.windows(id.len()).any(|window| window == id.as_bytes()))
    }

    /// Whether the files of the group are live, and no more of their rows deleted.
    fn has_all(&self, group: &Group) -> bool {
        group.files.iter().all(|file| {
            let live = self.files.get(&file.add.path);
            live.is_some_and(|live| live.add.deletion_vector == file.add.deletion_vector)
        })
    }

    fn no_order(&self) -> LakeError {
        LakeError::Changes { table: self.table.clone(), what: "its files have no column to order rows by".to_string() }
    }

    async fn curve(&self, columns: &[String], files: &[Arc<FileEntry>]) -> Result<Curve, LakeError> {
        let samples = sample::columns(&self.prober, &self.file_schema(), files, columns).await?;
        Curve::new(samples).map_err(LakeError::arrow(&self.table, "order rows by a curve"))
    }
}

fn curve_tag(columns: &[String]) -> Option<String> {
    (!columns.is_empty()).then(|| serde_json::json!(columns).to_string())
}

fn actions(group: &Group, adds: &[Add]) -> Vec<Action> {
    let now_ms = chrono::Utc::now().timestamp_millis();
    let remove = |file: &Arc<FileEntry>| Action::Remove(Remove { data_change: false, ..file.remove(now_ms) });
    group.files.iter().map(remove).chain(adds.iter().cloned().map(Action::Add)).collect()
}

impl CompactReport {
    fn before(group: &Group) -> Self {
        Self {
            files_before: group.files.len() as u64,
            bytes_before: group.files.iter().map(|file| file.bytes()).sum(),
            ..Self::default()
        }
    }

    fn after(group: &Group, new: &NewFiles) -> Self {
        Self { files_after: new.adds.len() as u64, bytes_after: new.bytes(), rows: new.rows, ..Self::before(group) }
    }
}

/// Looks whether rows come in key order.
struct Ascending {
    key: Vec<usize>,
    converter: RowConverter,
    last: Option<OwnedRow>,
}

impl Ascending {
    fn new(table: &LakeTable, schema: &SchemaRef) -> Result<Self, LakeError> {
        let key: Vec<usize> = table.prober.space.stored_names().filter_map(|name| schema.index_of(name).ok()).collect();
        let fields = key.iter().map(|index| SortField::new(schema.field(*index).data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(LakeError::arrow(&table.table, "compare keys"))?;
        Ok(Self { key, converter, last: None })
    }

    fn takes(&mut self, table: &LakeTable, batch: &RecordBatch) -> Result<bool, LakeError> {
        let columns: Vec<_> = self.key.iter().map(|index| batch.column(*index).clone()).collect();
        let rows = self.converter.convert_columns(&columns);
        let rows = rows.map_err(LakeError::arrow(&table.table, "compare keys"))?;
        let count = rows.num_rows();
        let Some(end) = count.checked_sub(1) else { return Ok(true) };
        let follows = self.last.as_ref().is_none_or(|last| last.row() <= rows.row(0));
        let ascends = (1..count).all(|index| rows.row(index - 1) <= rows.row(index));
        self.last = Some(rows.row(end).owned());
        Ok(follows && ascends)
    }
}
