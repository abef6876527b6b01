//! Checkpoints of the Delta log, and what becomes of its old parts.

use std::time::Duration;

use deltalake::DeltaTable;
use deltalake::protocol::checkpoints;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::Value;

use super::log::LOG_FOLDER;
use super::vacuum::cutoff_ms;
use super::{LakeError, LakeTable};

/// Where writers say which checkpoint is the newest.
const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// What a clean-up of the log did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCleanup {
    /// Files of the log that were deleted, or would be.
    pub files: u64,
    pub bytes: u64,
}

impl LakeTable {
    /// How many versions the table has had since its last checkpoint that this object knows of.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub async fn versions_since_checkpoint(&mut self) -> Result<u64, LakeError> {
        let last = match self.checkpointed {
            Some(version) => version,
            None => self.last_checkpoint().await?,
        };
        self.checkpointed = Some(last);
        Ok(self.state.version().saturating_sub(last))
    }

    /// The version of the newest checkpoint, or of the table's creation. A hint that is missing or makes no sense costs
    /// one checkpoint too many.
    async fn last_checkpoint(&self) -> Result<u64, LakeError> {
        let path = Path::from_iter([LOG_FOLDER, LAST_CHECKPOINT]);
        let read = async { self.store.get(&path).await?.bytes().await };
        let text = match read.await {
            Ok(text) => text,
            Err(object_store::Error::NotFound { .. }) => return Ok(0),
            Err(error) => return Err(LakeError::store(format!("read {path} of {}", self.table))(error)),
        };
        let parsed: Option<Value> = serde_json::from_slice(&text).ok();
        Ok(parsed.and_then(|hint| hint.get("version")?.as_u64()).unwrap_or(0))
    }

    /// Writes a checkpoint of the present version, and reads the table afresh from it, for a state that is only ever
    /// updated keeps a little of every commit. A failure counts as a checkpoint until as many versions have passed again.
    ///
    /// # Errors
    /// A store that cannot be written. The table is as it was.
    pub async fn checkpoint(&mut self) -> Result<(), LakeError> {
        self.checkpointed = Some(self.state.version());
        let failed = || LakeError::delta(&self.table, "write a checkpoint of its log");
        let mut table = DeltaTable::new(self.log_store.clone());
        table.load_version(self.state.version()).await.map_err(failed())?;
        checkpoints::create_checkpoint(&table, None).await.map_err(failed())?;
        if let Some(state) = table.state.take() {
            self.state = state;
        }
        Ok(())
    }

    /// Deletes the parts of the log that no version needs which held at `now_ms` less `retention`, or later: those before
    /// the newest checkpoint that is older than all of these. Without such a checkpoint nothing goes.
    ///
    /// # Errors
    /// A store that cannot be listed or written. What was deleted by then was not needed.
    pub async fn clean_log(&self, now_ms: i64, retention: Duration, dry_run: bool) -> Result<LogCleanup, LakeError> {
        let listing = self.list_log().await?;
        let Some(from) = listing.checkpoint_before(cutoff_ms(now_ms, retention)) else {
            return Ok(LogCleanup::default());
        };
        // Oldest first: a clean-up that is interrupted leaves a log without holes.
        let mut old: Vec<_> = listing.files.into_iter().filter(|file| file.version < from).collect();
        old.sort_by_key(|file| file.version);
        let done = LogCleanup { files: old.len() as u64, bytes: old.iter().map(|file| file.bytes).sum() };
        if !dry_run {
            self.delete_all(old.into_iter().map(|file| file.path).collect()).await?;
        }
        Ok(done)
    }

    /// Deletes files in the order given, as far as the store keeps to it; files that are gone already are no error.
    pub(super) async fn delete_all(&self, paths: Vec<Path>) -> Result<(), LakeError> {
        let paths = stream::iter(paths).map(Ok).boxed();
        let gone = |error: &object_store::Error| matches!(error, object_store::Error::NotFound { .. });
        let mut deleted = self.store.delete_stream(paths);
        loop {
            match deleted.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(error) if gone(&error) => {}
                Err(error) => return Err(LakeError::store(format!("delete old files of {}", self.table))(error)),
            }
        }
    }
}
