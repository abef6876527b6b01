//! The Delta tables of the lake, opened for reading.

use std::error::Error;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use deltalake::delta_datafusion::TableProviderBuilder;
use deltalake::errors::DeltaTableError;
use deltalake::kernel::Snapshot;
use deltalake::logstore::LogStoreRef;

use super::QueryError;
use super::changes::{self, Bound};
use super::moment::Moment;
use super::names::TableAt;
use super::travel::{AsOf, History};
use crate::change::TableId;
use crate::lake::{Lake, LakeError, LakeScan};

/// Opens the tables of a lake.
#[derive(Debug, Clone)]
pub(super) struct LakeReader {
    lake: Lake,
    /// What tables without a version are read at, if not at their newest version.
    moment: Option<Arc<Moment>>,
}

/// A table at one version.
#[derive(Clone)]
pub(super) struct OpenTable {
    pub provider: Arc<dyn TableProvider>,
    /// The version that is read; `None` for the newest.
    pub version: Option<u64>,
    /// The names of the key columns as the job recorded them; empty for tables of others.
    pub key: Vec<String>,
}

/// The property of a Delta table that lists the key columns as a JSON array.
const KEY_PROPERTY: &str = "alluvium.key";

impl LakeReader {
    pub fn new(lake: Lake) -> Self {
        Self { lake, moment: None }
    }

    /// The same for tables as they were at a consistent point.
    pub fn at(self, moment: Arc<Moment>) -> Self {
        Self { moment: Some(moment), ..self }
    }

    pub fn lake(&self) -> &Lake {
        &self.lake
    }

    /// Opens a table at the version that is asked for.
    pub async fn open(&self, table: &TableAt) -> Result<OpenTable, QueryError> {
        let log_store = self.lake.log_store(&table.table);
        let version = match &table.as_of {
            None => match &self.moment {
                None => None,
                Some(moment) => Some(moment.version_of(&self.lake, &table.table).await?),
            },
            Some(AsOf::Version(version)) => Some(*version),
            Some(AsOf::Time(at)) => Some(history(&log_store, &table.table).await?.version_at(*at).await?),
            Some(AsOf::Changes { from, to }) => return self.changes(&table.table, from, to.as_ref()).await,
        };
        match LakeScan::open(&self.lake, &table.table, version).await {
            Ok(Some(scan)) => Ok(OpenTable { key: scan.key().to_vec(), provider: Arc::new(scan), version }),
            Ok(None) => Err(QueryError::NotLoaded { table: table.table.to_string() }),
            Err(LakeError::Unsupported { .. }) => match foreign_provider(&log_store, version).await {
                Ok(table) => Ok(table),
                Err(error) => Err(why_not(error, &log_store, &table.table, version).await),
            },
            Err(error) => Err(why_not(error, &log_store, &table.table, version).await),
        }
    }
}

impl LakeReader {
    /// The newest version of a table.
    pub async fn newest(&self, table: &TableId) -> Result<u64, QueryError> {
        Ok(history(&self.lake.log_store(table), table).await?.newest)
    }

    /// The version itself, if it can be read by the log.
    pub async fn check_version(&self, table: &TableId, version: u64) -> Result<u64, QueryError> {
        let history = history(&self.lake.log_store(table), table).await?;
        let is_there = (history.oldest..=history.newest).contains(&version);
        if is_there { Ok(version) } else { Err(history.no_such_version(version)) }
    }

    /// What happened to a table's rows in a run of versions.
    async fn changes(&self, table: &TableId, from: &Bound, to: Option<&Bound>) -> Result<OpenTable, QueryError> {
        let history = history(&self.lake.log_store(table), table).await?;
        let from = history.first_of(from).await?;
        let to = match (to, &self.moment) {
            (None, Some(moment)) => moment.version_of(&self.lake, table).await?,
            (to, _) => history.last_of(to).await?,
        };
        if from > to {
            return Err(QueryError::ChangesBackwards { table: table.to_string(), from, to });
        }
        if to > history.newest {
            return Err(history.no_such_version(to));
        }
        match self.lake.changes(table, from, to).await {
            Ok(Some(changes)) => {
                let key = changes.key.clone();
                Ok(OpenTable { provider: changes::provider(changes).await?, key, version: Some(from) })
            }
            Ok(None) => Err(history.no_such_version(from)),
            Err(error) => Err(QueryError::lake(format!("reading the changes of {table}"), error)),
        }
    }
}

/// Reads a version (`None`: the newest) of a table that others have changed into what our own scan does not know, as
/// mapped columns are, by the general reader: slower, and on one core where deletion vectors may be.
pub(super) async fn foreign_provider(
    log_store: &LogStoreRef,
    version: Option<u64>,
) -> Result<OpenTable, DeltaTableError> {
    let snapshot = Snapshot::try_new(log_store.as_ref(), version).await?;
    let key = snapshot.metadata().configuration().get(KEY_PROPERTY).map(|json| serde_json::from_str(json));
    let provider =
        TableProviderBuilder::default().with_log_store(Arc::clone(log_store)).with_snapshot(snapshot).await?;
    Ok(OpenTable { provider, key: key.and_then(Result::ok).unwrap_or_default(), version })
}

/// The error that fits what the log holds.
async fn why_not(
    error: impl Into<Box<dyn Error + Send + Sync>>,
    log_store: &LogStoreRef,
    table: &TableId,
    version: Option<u64>,
) -> QueryError {
    let history = match history(log_store, table).await {
        Ok(history) => history,
        Err(no_history) => return no_history,
    };
    match version {
        Some(version) if !(history.oldest..=history.newest).contains(&version) => history.no_such_version(version),
        _ => QueryError::lake(format!("opening {table}"), error),
    }
}

async fn history(log_store: &LogStoreRef, table: &TableId) -> Result<History, QueryError> {
    let history = History::list(log_store.object_store(None), log_store.log_path(), table.to_string()).await?;
    history.ok_or_else(|| QueryError::NotLoaded { table: table.to_string() })
}
