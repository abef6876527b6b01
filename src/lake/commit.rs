//! One atomic commit, and what its outcome was: an error says nothing, only the log does.

use std::collections::{BTreeMap, BTreeSet};

use deltalake::kernel::Action;
use deltalake::kernel::Transaction;
use deltalake::kernel::transaction::{CommitBuilder, CommitProperties, TableReference};
use deltalake::logstore::LogStoreRef;
use deltalake::protocol::DeltaOperation;
use deltalake::table::state::DeltaTableState;
use deltalake::{DeltaResult, DeltaTableError};

use super::{LakeError, LakeTable};
use crate::change::{RowKey, SourcePosition};

/// What a commit carries besides data.
#[derive(Debug, Clone, Default)]
pub struct CommitTag {
    /// Application transactions: application id and version. The first decides whether the commit is there already.
    pub app_ids: Vec<(String, i64)>,
    /// Goes into commitInfo as it is: `alluvium.job`, `alluvium.position`, ...
    pub info: BTreeMap<String, serde_json::Value>,
    /// Rows that batches before had to leave out while the table was being loaded, and that have not been read since. The commit carries
    /// them on, with those that it leaves out itself.
    pub unsettled: BTreeSet<RowKey>,
}

/// How an attempt to change a table ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed(CommitSummary),
    /// The table has the tag's transaction, or already is what was asked for: nothing was done now.
    AlreadyApplied {
        version: i64,
    },
    /// Others committed in between, again and again or in a batch too large to locate twice. The table is reloaded and
    /// has none of the changes; they may be planned again.
    Conflict,
}

/// What a commit did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitSummary {
    pub version: i64,
    pub rows_upserted: u64,
    /// Rows that the table had and that the source no longer has; replaced rows do not count, nor those that a
    /// truncate removed.
    pub rows_deleted: u64,
    pub files_added: u64,
    /// Files that lost rows, or went.
    pub files_touched: u64,
    /// Size of the new data files, in bytes.
    pub bytes_written: u64,
    /// Rows that are left out so far, while the table is being loaded: they are to be read from the source.
    pub unsettled: BTreeSet<RowKey>,
}

/// What became of one attempt.
pub(super) enum Attempt {
    /// The table's state is the commit's.
    Committed,
    AlreadyApplied,
    /// Someone else's commit has the version; the table is reloaded.
    Overtaken,
}

impl CommitTag {
    /// The entry of commitInfo that says which position of the source the version is equal to.
    pub const POSITION: &str = "alluvium.position";

    /// The entry of commitInfo that has the keys of rows that are left out so far.
    pub(super) const UNSETTLED: &str = "alluvium.unsettled";

    /// The same for a commit that brings the table to another position.
    #[must_use]
    pub fn at(self, position: &SourcePosition) -> Self {
        self.with_info(Self::POSITION, position.text.clone())
    }

    /// The settings of every commit: no blind retry, no listing of the log, no checkpoint.
    pub(super) fn properties(&self) -> CommitProperties {
        let now_ms = chrono::Utc::now().timestamp_millis();
        let transaction =
            |(app_id, version): &(String, i64)| Transaction::new_with_last_update(app_id, *version, Some(now_ms));
        CommitProperties::default()
            .with_max_retries(0)
            .with_application_transactions(self.app_ids.iter().map(transaction).collect())
            .with_metadata(self.metadata())
            .with_create_checkpoint(false)
            .with_cleanup_expired_logs(Some(false))
    }

    fn metadata(&self) -> BTreeMap<String, serde_json::Value> {
        let mut info = self.info.clone();
        if !self.unsettled.is_empty() {
            info.insert(Self::UNSETTLED.to_string(), serde_json::json!(self.unsettled));
        }
        info
    }

    /// The same with one more entry in commitInfo.
    pub(super) fn with_info(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.info.insert(name.to_string(), value.into());
        self
    }
}

/// Writes the next version's commit. An error may come after the commit has become durable.
pub(super) async fn write(
    state: Option<&DeltaTableState>,
    log_store: LogStoreRef,
    actions: Vec<Action>,
    operation: DeltaOperation,
    tag: &CommitTag,
) -> DeltaResult<DeltaTableState> {
    let reference = state.map(|state| state as &dyn TableReference);
    let commit = CommitBuilder::from(tag.properties()).with_actions(actions).build(reference, log_store, operation);
    Ok(commit.await?.snapshot())
}

impl LakeTable {
    /// Whether the tag's first transaction is in the table.
    pub(super) async fn has_applied(&mut self, tag: &CommitTag) -> Result<bool, LakeError> {
        let Some((app_id, version)) = tag.app_ids.first() else { return Ok(false) };
        let found = self.txn(app_id).await?;
        self.transactions.insert(app_id.clone(), found);
        Ok(found.is_some_and(|found| found >= *version))
    }

    /// Commits `actions` on top of the version that they were planned for. Does not update the list of files.
    pub(super) async fn commit(
        &mut self,
        actions: Vec<Action>,
        operation: DeltaOperation,
        tag: &CommitTag,
    ) -> Result<Attempt, LakeError> {
        let written = write(Some(&self.state), self.log_store.clone(), actions, operation, tag).await;
        match written {
            Ok(state) => {
                self.state = state;
                let known = tag.app_ids.iter().map(|(app_id, version)| (app_id.clone(), Some(*version)));
                self.transactions.extend(known);
                Ok(Attempt::Committed)
            }
            Err(error) => self.resolve(error, tag).await,
        }
    }

    /// Asks the log what an error meant.
    async fn resolve(&mut self, error: DeltaTableError, tag: &CommitTag) -> Result<Attempt, LakeError> {
        let base = self.state.version();
        tracing::debug!(table = %self.table, base, error = %error, "commit gave an error, reading the log");
        self.reload().await?;
        if self.has_applied(tag).await? {
            return Ok(Attempt::AlreadyApplied);
        }
        if self.state.version() > base {
            return Ok(Attempt::Overtaken);
        }
        Err(LakeError::delta(&self.table, "commit")(error))
    }
}
