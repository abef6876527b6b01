//! Brings back the rows of an older version, as a new version ("RESTORE" of Delta Lake): the files of then, with their deletion
//! vectors, take the place of those of now. No row is copied, and every version in between stays readable.
//!
//! The numbers by which the job knows what it has applied stay as they are, for they say what was done, not what the rows
//! are; so a job that went on from them would apply later changes to older rows. Who restores a table must take
//! it out of its job first.

use std::sync::Arc;

use deltalake::kernel::{Action, Add, DeletionVectorDescriptor};
use deltalake::protocol::DeltaOperation;
use deltalake::table::state::DeltaTableState;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::changes::FileSet;
use super::commit::Attempt;
use super::files::{self, FileEntry};
use super::log::{Commit, find_commit};
use super::{CommitOutcome, CommitSummary, CommitTag, LakeError, LakeTable, deletion};

/// How often the change is planned again because others committed in between.
const ATTEMPTS_MAX: usize = 10;
/// Files that are looked for at the same time.
const LOOKS_AT_ONCE: usize = 16;
/// The entry of commitInfo that says which version came back.
const RESTORED: &str = "alluvium.restored_version";

/// What a restore would do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RestorePlan {
    /// The version of now, and the one that is to come back.
    pub present: u64,
    pub version: u64,
    pub rows_now: u64,
    pub rows_then: u64,
    pub files_added: u64,
    pub files_removed: u64,
    /// Whether columns or properties become those of then.
    pub changes_columns: bool,
    /// Where the version stands in the source's log, and the commit time of the last transaction up to there.
    pub position: Option<String>,
    pub source_time_us: Option<i64>,
}

/// A version that is to come back.
struct Then {
    state: DeltaTableState,
    files: FileSet,
    position: Option<String>,
    source_time_us: Option<i64>,
}

impl LakeTable {
    /// What bringing back `version` would do.
    ///
    /// # Errors
    /// [`LakeError::Restore`] if the version is not in the log, or lacks files.
    pub async fn restore_plan(&mut self, version: u64) -> Result<RestorePlan, LakeError> {
        self.reload().await?;
        let then = self.then(version).await?;
        let (removed, added) = self.exchanged(&then);
        let mut rows_then = 0;
        for add in then.files.values() {
            let file = FileEntry::without_key(add.clone(), &self.table)?;
            rows_then += file.rows.unwrap_or(0).saturating_sub(file.deleted_rows());
        }
        Ok(RestorePlan {
            present: self.state.version(),
            version,
            rows_now: self.stats().rows,
            rows_then,
            files_added: added.len() as u64,
            files_removed: removed.len() as u64,
            changes_columns: then.state.metadata() != self.state.metadata(),
            position: then.position,
            source_time_us: then.source_time_us,
        })
    }

    /// Makes a new version with the rows and columns of `version`. Its commitInfo has the position of that version.
    ///
    /// # Errors
    /// [`LakeError::Restore`] if the version is not in the log, or lacks files; then nothing was changed.
    pub async fn restore(&mut self, version: u64) -> Result<CommitOutcome, LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            self.reload().await?;
            let then = self.then(version).await?;
            let actions = self.restoring(&then);
            if actions.is_empty() {
                return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
            }
            let (added, touched) =
                (actions.iter().filter(|action| matches!(action, Action::Add(_))).count(), then.files.len());
            let tag = self.restore_tag(version, &then);
            let operation = DeltaOperation::Restore { version: Some(version), datetime: None };
            if let Attempt::Committed = self.commit(actions, operation, &tag).await? {
                self.reload().await?;
                let (files_added, files_touched) = (added as u64, touched as u64);
                let summary =
                    CommitSummary { version: self.version(), files_added, files_touched, ..CommitSummary::default() };
                return Ok(CommitOutcome::Committed(summary));
            }
        }
        Ok(CommitOutcome::Conflict)
    }

    fn restore_tag(&self, version: u64, then: &Then) -> CommitTag {
        let tag = CommitTag::default().with_info(RESTORED, version);
        let tag = tag.with_info("alluvium.commit_time_us", then.source_time_us);
        tag.with_info(CommitTag::POSITION, then.position.clone())
    }

    fn restoring(&self, then: &Then) -> Vec<Action> {
        let (removed, added) = self.exchanged(then);
        let now_ms = chrono::Utc::now().timestamp_millis();
        let mut actions = Vec::new();
        if then.state.metadata() != self.state.metadata() {
            actions.push(Action::Metadata(then.state.metadata().clone()));
        }
        actions.extend(removed.into_iter().map(|file| Action::Remove(file.remove(now_ms))));
        actions.extend(added.into_iter().map(|add| Action::Add(Add { data_change: true, ..add.clone() })));
        actions
    }

    /// The files of now that go, and those of then that come.
    fn exchanged<'a>(&self, then: &'a Then) -> (Vec<Arc<FileEntry>>, Vec<&'a Add>) {
        let same = |now: &FileEntry, add: &Add| now.add.deletion_vector == add.deletion_vector;
        let is_kept = |now: &FileEntry| then.files.get(&now.add.path).is_some_and(|add| same(now, add));
        let removed = self.files.values().filter(|now| !is_kept(now)).cloned().collect();
        let is_there = |add: &Add| self.files.get(&add.path).is_some_and(|now| same(now, add));
        (removed, then.files.values().filter(|add| !is_there(add)).collect())
    }

    async fn then(&self, version: u64) -> Result<Then, LakeError> {
        let refused = |what: String| LakeError::Restore { table: self.table.clone(), version, what };
        if version > self.state.version() {
            return Err(refused(format!("the newest is {}", self.state.version())));
        }
        let listing = self.list_log().await?;
        let oldest = listing.oldest_readable().unwrap_or(version);
        if version < oldest {
            return Err(refused(format!("the log has been cleaned up to version {oldest}")));
        }
        let state = self.lake.readable_state(&self.table, version).await?;
        let files = self.lake.file_set(&self.table, &state).await?;
        self.check_whole(&files).await.map_err(|error| match error {
            Missing::File(path) => refused(format!("vacuum has removed its file {path}")),
            Missing::Error(error) => error,
        })?;
        let at = self.commit_at(version).await?;
        let source_time_us = at.info.get("alluvium.commit_time_us").and_then(serde_json::Value::as_i64);
        Ok(Then { state, files, position: at.position().map(str::to_string), source_time_us })
    }

    /// The commit that says where the source stood at a version: upkeep in between says nothing.
    async fn commit_at(&self, version: u64) -> Result<Commit, LakeError> {
        let mut at = Some(version);
        while let Some(version) = at {
            match find_commit(self.store.as_ref(), &self.table, version).await? {
                Some(commit) if commit.position().is_some() => return Ok(commit),
                Some(_) => at = version.checked_sub(1),
                None => break,
            }
        }
        Ok(Commit::default())
    }

    async fn check_whole(&self, files: &FileSet) -> Result<(), Missing> {
        let vector_file = |vector: &DeletionVectorDescriptor| deletion::file_of(vector);
        let paths = files.values().flat_map(|add| {
            let vector = add.deletion_vector.as_ref().and_then(vector_file);
            std::iter::once(files::object_path(&add.path)).chain(vector)
        });
        let paths: Vec<Path> = paths.collect();
        let looks = paths.into_iter().map(|path| async move {
            match self.store.head(&path).await {
                Ok(_) => Ok(()),
                Err(object_store::Error::NotFound { .. }) => Err(Missing::File(path.to_string())),
                Err(error) => Err(Missing::Error(LakeError::store(format!("look for {path}"))(error))),
            }
        });
        stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).try_collect().await
    }
}

/// Why a version is not whole.
enum Missing {
    File(String),
    Error(LakeError),
}
