//! The apply step: keyed changes and the ledger's number become a commit of the table.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use async_trait::async_trait;

use super::PipelineError;
use crate::batch::KeyedChanges;
use crate::change::{RowKey, TableId};
use crate::lake::{CommitOutcome, CommitTag, Fills, Lake, LakeTable, LedgerEntry, SchemaRecord};
use crate::maintain::{Chore, ChoreReport, Occasion, Upkeep};
use crate::schema::{HashKey, Treatment, treated};

/// Applies work to tables, each step exactly once: a step whose number the table has already carried is left
/// out. One implementation writes the tables itself; another may hand the work to an engine elsewhere.
#[async_trait]
pub trait Apply: Send {
    /// The newest number that `table` carries under `app_id`, or `None` for a table that carries none.
    async fn applied(&mut self, table: &TableId, app_id: &str) -> Result<Option<i64>, PipelineError>;

    /// The version of `table` whose commit carries this very number under `app_id`, if the log still has it.
    async fn version_of(&mut self, table: &TableId, app_id: &str, number: u64) -> Result<Option<u64>, PipelineError>;

    /// The keys of rows that batches left out of `table` so far, while it is being loaded; none for a table that is not there.
    async fn unsettled(&mut self, table: &TableId, app_id: &str) -> Result<BTreeSet<RowKey>, PipelineError>;

    /// Applies one batch to one table. Durable when it returns.
    async fn apply(
        &mut self,
        table: &TableId,
        changes: KeyedChanges,
        tag: &CommitTag,
    ) -> Result<CommitOutcome, PipelineError>;

    /// Makes the table, or adds what the schema has and the table lacks. Durable when it returns.
    async fn evolve(&mut self, record: &SchemaRecord, tag: &CommitTag) -> Result<(), PipelineError>;

    /// Does one piece of the upkeep that is due on the table; `None` if none is. The table's rows stay the same, and errors are
    /// part of the report.
    async fn maintain(&mut self, table: &TableId, upkeep: &mut Upkeep, occasion: Occasion) -> Option<ChoreReport>;

    /// The Delta version that the table has now, if it is open.
    fn version(&self, table: &TableId) -> Option<i64>;
}

/// Writes Delta tables with Alluvium's own engine.
pub struct LakeApply {
    lake: Lake,
    tables: HashMap<TableId, LakeTable>,
    hash_key: Option<HashKey>,
}

impl LakeApply {
    /// `hash_key` is that of columns that are hashed.
    pub fn new(lake: Lake, hash_key: Option<HashKey>) -> Self {
        Self { lake, tables: HashMap::new(), hash_key }
    }

    /// The open table, or `None` where the lake has none.
    async fn open(&mut self, table: &TableId) -> Result<Option<&mut LakeTable>, PipelineError> {
        if !self.tables.contains_key(table) {
            let Some(opened) = self.lake.open_table(table).await? else { return Ok(None) };
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

    async fn version_of(&mut self, table: &TableId, app_id: &str, number: u64) -> Result<Option<u64>, PipelineError> {
        match self.open(table).await? {
            Some(open) => Ok(open.version_of(app_id, i64::try_from(number).unwrap_or(i64::MAX)).await?),
            None => Ok(None),
        }
    }

    async fn unsettled(&mut self, table: &TableId, app_id: &str) -> Result<BTreeSet<RowKey>, PipelineError> {
        match self.open(table).await? {
            Some(open) => Ok(open.unsettled(app_id).await?),
            None => Ok(BTreeSet::new()),
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
        match open.apply(changes, tag).await? {
            CommitOutcome::Conflict => Err(PipelineError::Overtaken { table: table.clone() }),
            done => Ok(done),
        }
    }

    async fn evolve(&mut self, record: &SchemaRecord, tag: &CommitTag) -> Result<(), PipelineError> {
        let table = &record.schema.table;
        let (schema, values) = (record.schema.lake_side(), default_values(record, self.hash_key.as_ref())?);
        let Some(open) = self.open(table).await? else {
            let created = self.lake.create_table(&schema, tag).await?;
            self.tables.insert(table.clone(), created);
            return Ok(());
        };
        for (app_id, _) in &tag.app_ids {
            if open.txn(app_id).await?.is_none() {
                return Err(PipelineError::TableOfAnother { table: table.clone() });
            }
        }
        let fills = Fills { values, copies: record.copies.iter().cloned().collect() };
        let outcome = match record.replaces {
            true => open.replace(&schema, tag).await?,
            false => open.evolve(&schema, &fills, tag).await?,
        };
        match outcome {
            CommitOutcome::Committed(_) | CommitOutcome::AlreadyApplied { .. } => Ok(()),
            CommitOutcome::Conflict => Err(PipelineError::Overtaken { table: table.clone() }),
        }
    }

    async fn maintain(&mut self, table: &TableId, upkeep: &mut Upkeep, occasion: Occasion) -> Option<ChoreReport> {
        // A table that nothing was applied to needs no look but by the clock.
        let is_time = occasion == Occasion::Idle && upkeep.is_due_by_time(table);
        if !self.tables.contains_key(table) && !is_time {
            return None;
        }
        match self.open(table).await {
            Ok(open) => upkeep.piece(open?, occasion).await,
            Err(error) => {
                let error = error.chain();
                tracing::warn!(%table, %error, "a table cannot be opened for its upkeep");
                Some(ChoreReport { error: Some(error), ..ChoreReport::new(table, Chore::Compact) })
            }
        }
    }

    fn version(&self, table: &TableId) -> Option<i64> {
        self.tables.get(table).map(LakeTable::version)
    }
}

/// The values that old rows get in added columns, by the lake's names: arrays of one value, of the lake's types.
pub(super) fn default_values(
    record: &SchemaRecord,
    hash_key: Option<&HashKey>,
) -> Result<BTreeMap<String, ArrayRef>, PipelineError> {
    let mut values = BTreeMap::new();
    for (name, text) in &record.defaults {
        let unusable = |reason: String| PipelineError::Default {
            table: record.schema.table.clone(),
            column: name.clone(),
            reason,
        };
        let index = record.schema.column_index(name).ok_or_else(|| unusable("there is no such column".into()))?;
        let column = &record.schema.columns[index];
        if column.treatment == Treatment::LeftOut {
            continue;
        }
        let data_type = if column.treatment == Treatment::Kept { column.lake_type() } else { &column.data_type };
        let text = StringArray::from(vec![text.as_str()]);
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let value = cast_with_options(&text, data_type, &strict);
        let value = value.and_then(|value| treated(column.treatment, &value, hash_key));
        let value = value.map_err(|error| unusable(error.to_string()))?;
        values.insert(column.lake_name().to_string(), value);
    }
    Ok(values)
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
        (CommitTag::POSITION.to_string(), entry.end.position.text.clone().into()),
        ("alluvium.commit_time_us".to_string(), entry.commit_time_us.into()),
    ]);
    CommitTag { app_ids: vec![(app_id(job), sequence)], info, unsettled: BTreeSet::new() }
}
