//! One open Delta table.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use deltalake::logstore::LogStoreRef;
use deltalake::table::state::DeltaTableState;
use object_store::ObjectStore;
use serde_json::Value;

use super::cache::ByteCache;
use super::deletion::VectorStore;
use super::files::{self, FileMap};
use super::locate::{FileAccess, Footers, KeySpace, Prober};
use super::partition::Partitioning;
use super::{Lake, LakeError, schema};
use crate::change::TableId;
use crate::config::TableSettings;
use crate::schema::Column;

/// Of a table's memory, the share of footers and of deletion vectors that stay between batches: one part in this many.
const CACHE_SHARE: usize = 8;

/// A Delta table that holds one source table. One task at a time writes to it; other processes may.
pub struct LakeTable {
    pub(super) lake: Lake,
    pub(super) table: TableId,
    pub(super) log_store: LogStoreRef,
    /// What the job says of how the table is written.
    pub(super) settings: TableSettings,
    /// Rooted at the table.
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) state: DeltaTableState,
    pub(super) files: FileMap,
    pub(super) prober: Arc<Prober>,
    /// Application transactions as of the state's version, as far as they have been asked for.
    pub(super) transactions: HashMap<String, Option<i64>>,
    /// Version of the last checkpoint, or of the last attempt at one; `None` until it is asked for.
    pub(super) checkpointed: Option<u64>,
}

/// What the log says of a table's present version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableStats {
    /// Live rows. Files without statistics, which only foreign writers leave, count nothing.
    pub rows: u64,
    pub files: u64,
    /// Size of the data files, in bytes.
    pub bytes: u64,
    /// Rows in the data files that deletion vectors hide.
    pub deleted_rows: u64,
}

impl Lake {
    /// Opens the table's newest version; `None` if there is no table.
    ///
    /// # Errors
    /// [`LakeError::OtherTable`] if the folder holds a Delta table that was not made for this source table;
    /// [`LakeError::Unsupported`] if it has features under which it cannot be kept equal.
    pub async fn open_table(&self, table: &TableId) -> Result<Option<LakeTable>, LakeError> {
        let log_store = self.log_store(table);
        let exists = log_store.is_delta_table_location().await;
        if !exists.map_err(LakeError::delta(table, "look for its log"))? {
            return Ok(None);
        }
        let state = DeltaTableState::try_new(log_store.as_ref(), None).await;
        let state = state.map_err(LakeError::delta(table, "read its log"))?;
        LakeTable::new(self, table, log_store, state).await.map(Some)
    }
}

impl LakeTable {
    pub(super) async fn new(
        lake: &Lake,
        table: &TableId,
        log_store: LogStoreRef,
        state: DeltaTableState,
    ) -> Result<Self, LakeError> {
        check_ours(lake, table, &state)?;
        let settings = lake.rules().settings(table);
        let prober = Arc::new(prober_of(lake, table, &state, lake.file_access(table))?);
        prober.space.partitioning.warn_unless(&settings.partition_by);
        let files = files::load(state.snapshot(), &log_store, &prober.space, &FileMap::new()).await?;
        Ok(Self {
            lake: lake.clone(),
            table: table.clone(),
            settings,
            store: lake.table_store(table),
            log_store,
            state,
            files,
            prober,
            transactions: HashMap::new(),
            checkpointed: None,
        })
    }

    /// The Delta version that this object has seen last; its own commits count at once.
    pub fn version(&self) -> i64 {
        i64::try_from(self.state.version()).unwrap_or(i64::MAX)
    }

    pub fn table(&self) -> &TableId {
        &self.table
    }

    /// From the log alone; reads nothing.
    pub fn stats(&self) -> TableStats {
        let mut stats = TableStats::default();
        for file in self.files.values() {
            stats.files += 1;
            stats.bytes += file.bytes();
            stats.deleted_rows += file.deleted_rows();
            stats.rows += file.rows.unwrap_or(0).saturating_sub(file.deleted_rows());
        }
        stats
    }

    /// The last version that `app_id` committed, as of [`Self::version`].
    pub async fn txn(&self, app_id: &str) -> Result<Option<i64>, LakeError> {
        if let Some(known) = self.transactions.get(app_id) {
            return Ok(*known);
        }
        let version = self.state.transaction_version(self.log_store.as_ref(), app_id).await;
        version.map_err(LakeError::delta(&self.table, "read its transactions"))
    }

    pub(super) fn partitioning(&self) -> &Arc<Partitioning> {
        &self.prober.space.partitioning
    }

    /// The columns of the data files: those of the table without its partition columns.
    pub(super) fn file_schema(&self) -> SchemaRef {
        self.partitioning().file_schema(&self.arrow_schema())
    }

    /// The columns of the table as Arrow sees them, in the table's order.
    pub fn arrow_schema(&self) -> SchemaRef {
        self.state.snapshot().arrow_schema()
    }

    /// Reads on from the log to its newest version. After an error the table is as it was before.
    pub async fn reload(&mut self) -> Result<(), LakeError> {
        let mut state = self.state.clone();
        let updated = state.update(self.log_store.as_ref(), None).await;
        updated.map_err(LakeError::delta(&self.table, "read on in its log"))?;
        check_ours(&self.lake, &self.table, &state)?;
        let files = files::load(state.snapshot(), &self.log_store, &self.prober.space, &self.files).await?;
        // Together, or a plan would be made of one version's files for another version.
        (self.state, self.files) = (state, files);
        self.transactions.clear();
        Ok(())
    }
}

/// What finds rows of a version of a table by their key.
///
/// # Errors
/// [`LakeError::Unsupported`] if the table has no record of its key: it is not ours.
pub(super) fn prober_of(
    lake: &Lake,
    table: &TableId,
    state: &DeltaTableState,
    access: FileAccess,
) -> Result<Prober, LakeError> {
    let partitioning = Partitioning::of_table(table, state)?;
    let space = KeySpace::new(table.clone(), key_columns(table, state)?)?.partitioned(partitioning);
    let filters = ByteCache::new(lake.memory_bytes() / CACHE_SHARE);
    Ok(Prober { space: Arc::new(space), access, filters, exhaustive: lake.is_exhaustive() })
}

impl Lake {
    /// Reads the data files of a table, with caches of their own.
    pub(super) fn file_access(&self, table: &TableId) -> FileAccess {
        let store = self.table_store(table);
        let cache_bytes = self.memory_bytes() / CACHE_SHARE;
        let vectors = VectorStore {
            table: table.clone(),
            store: store.clone(),
            host_store: self.host_store(),
            url: self.table_url(table),
        };
        let footers = Footers { table: table.clone(), store, cache: ByteCache::new(cache_bytes) };
        FileAccess {
            footers: Arc::new(footers),
            vectors: Arc::new(vectors),
            vector_cache: Arc::new(ByteCache::new(cache_bytes)),
        }
    }
}

/// Refuses tables that were not made for this source table, or that others have changed so that rows cannot be
/// kept equal.
fn check_ours(lake: &Lake, table: &TableId, state: &DeltaTableState) -> Result<(), LakeError> {
    let properties = state.metadata().configuration();
    let source = properties.get(schema::SOURCE);
    if source != Some(&table.to_string()) {
        return Err(LakeError::OtherTable {
            table: table.clone(),
            path: lake.table_url(table).to_string(),
            found: source.map_or("no table of Alluvium's".to_string(), |source| format!("the rows of {source}")),
        });
    }
    let unsupported = |reason: &str| Err(LakeError::Unsupported { table: table.clone(), reason: reason.to_string() });
    if properties.get("delta.columnMapping.mode").is_some_and(|mode| mode != "none") {
        return unsupported("its columns are mapped to other names");
    }
    Ok(())
}

/// The key columns by the table's own record, in key order.
fn key_columns(table: &TableId, state: &DeltaTableState) -> Result<Vec<Column>, LakeError> {
    let text = state.metadata().configuration().get(schema::KEY).cloned().unwrap_or_default();
    let names: Option<Vec<String>> = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|names| names.as_array()?.iter().map(|name| name.as_str().map(str::to_string)).collect());
    let schema = state.snapshot().arrow_schema();
    let column = |name: String| {
        let field = schema.field_with_name(&name).ok()?;
        let data_type = field.data_type().clone();
        Some(Column { nullable: false, ..Column::new(name, data_type, "") })
    };
    let columns = names.and_then(|names| names.into_iter().map(column).collect::<Option<Vec<_>>>());
    columns.filter(|columns| !columns.is_empty()).ok_or_else(|| LakeError::Unsupported {
        table: table.clone(),
        reason: format!("its property {} is {text:?}, not a list of its columns", schema::KEY),
    })
}
