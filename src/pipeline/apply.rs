//! The apply step: keyed changes and the ledger's number become a commit of the table.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;

use super::PipelineError;
use crate::batch::KeyedChanges;
use crate::change::TableId;
use crate::lake::{CommitOutcome, CommitTag, Lake, LakeTable, LedgerEntry, SchemaRecord};

/// Applies work to tables, each step exactly once: a step whose number the table has already carried is left
/// out. One implementation writes the tables itself; another may hand the work to an engine elsewhere.
#[async_trait]
pub trait Apply: Send {
    /// The newest number that `table` carries under `app_id`, or `None` for a table that carries none.
    async fn applied(&mut self, table: &TableId, app_id: &str) -> Result<Option<i64>, PipelineError>;

    /// Applies one batch to one table. Durable when it returns.
    async fn apply(
        &mut self,
        table: &TableId,
        changes: KeyedChanges,
        tag: &CommitTag,
    ) -> Result<CommitOutcome, PipelineError>;

    /// Makes the table, or adds what the schema has and the table lacks. Durable when it returns.
    async fn evolve(&mut self, record: &SchemaRecord, tag: &CommitTag) -> Result<(), PipelineError>;

    /// The Delta version that the table has now, if it is open.
    fn version(&self, table: &TableId) -> Option<i64>;
}

/// Writes Delta tables with Alluvium's own engine.
pub struct LakeApply {
    lake: Lake,
    memory_bytes: usize,
    tables: HashMap<TableId, LakeTable>,
}

impl LakeApply {
    pub fn new(lake: Lake, memory_bytes: usize) -> Self {
        Self { lake, memory_bytes, tables: HashMap::new() }
    }

    /// The open table, or `None` where the lake has none.
    async fn open(&mut self, table: &TableId) -> Result<Option<&mut LakeTable>, PipelineError> {
        if !self.tables.contains_key(table) {
            let Some(opened) = self.lake.open_table(table, self.memory_bytes).await? else { return Ok(None) };
            self.tables.insert(table.clone(), opened);
        }
        Ok(self.tables.get_mut(table))
    }
}

#[async_trait]
impl Apply for LakeApply {
    async fn applied(&mut self, table: &TableId, app_id: &str) -> Result<Option<i64>, PipelineError> {
        match self.open(table).await? {
            Some(open) => Ok(open.txn(app_id).await?),
            None => Ok(None),
        }
    }

    async fn apply(
        &mut self,
        table: &TableId,
        changes: KeyedChanges,
        tag: &CommitTag,
    ) -> Result<CommitOutcome, PipelineError> {
        let missing = || PipelineError::TableWithoutTxn { table: table.clone() };
        let open = self.open(table).await?.ok_or_else(missing)?;
        Ok(open.apply(changes, tag).await?)
    }

    async fn evolve(&mut self, record: &SchemaRecord, tag: &CommitTag) -> Result<(), PipelineError> {
        let table = &record.schema.table;
        match self.open(table).await? {
            Some(open) => {
                open.evolve(&record.schema, &record.defaults, tag).await?;
            }
            None => {
                let created = self.lake.create_table(&record.schema, tag, self.memory_bytes).await?;
                self.tables.insert(table.clone(), created);
            }
        }
        Ok(())
    }

    fn version(&self, table: &TableId) -> Option<i64> {
        self.tables.get(table).map(LakeTable::version)
    }
}

/// The `appId` of a job's batches.
pub(super) fn app_id(job: &str) -> String {
    format!("alluvium/{job}")
}

/// The `appId` under which a table counts the splits of its first load.
pub(super) fn load_app_id(job: &str) -> String {
    format!("alluvium/{job}/load")
}

/// What the commits of `entry` carry.
pub(super) fn tag(job: &str, entry: &LedgerEntry) -> CommitTag {
    let sequence = i64::try_from(entry.sequence).unwrap_or(i64::MAX);
    let info = BTreeMap::from([
        ("alluvium.job".to_string(), job.into()),
        ("alluvium.sequence".to_string(), entry.sequence.into()),
        ("alluvium.position".to_string(), entry.end.position.text.clone().into()),
        ("alluvium.commit_time_us".to_string(), entry.commit_time_us.into()),
    ]);
    CommitTag { app_ids: vec![(app_id(job), sequence)], info }
}
