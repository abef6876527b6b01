//! When each chore was last done on each table of a job: one object in the lake,
//! `_alluvium/<job>/maintain.json`. The last writer wins; what another one did meanwhile is done once more.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use super::Chore;
use crate::change::TableId;

/// The record of one job.
pub(super) struct Record {
    /// Rooted at the lake.
    store: Arc<dyn ObjectStore>,
    path: Path,
    tables: Tables,
    is_changed: bool,
    /// What failed, by table and chore: not kept, for another process may fare better.
    tried: BTreeMap<(TableId, Chore), i64>,
}

/// Times in milliseconds since 1970-01-01 UTC, by `database.table` and the name of the chore.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Tables {
    tables: BTreeMap<String, LastDone>,
}

/// When each chore was last done on a table, in milliseconds since 1970-01-01 UTC, by the chore's name.
pub type LastDone = BTreeMap<String, i64>;

/// When which upkeep of each table of a job was done last, by `database.table`. What cannot be read was never done.
pub async fn last_done(store: Arc<dyn ObjectStore>, job: &str) -> BTreeMap<String, LastDone> {
    Record::load(store, job).await.tables.tables
}

impl Record {
    pub async fn load(store: Arc<dyn ObjectStore>, job: &str) -> Self {
        let path = Path::from_iter(["_alluvium", job, "maintain.json"]);
        let read = async { store.get(&path).await?.bytes().await };
        let tables = match read.await {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
            Err(object_store::Error::NotFound { .. }) => Ok(Tables::default()),
            Err(error) => Err(error.to_string()),
        };
        let tables = tables.unwrap_or_else(|error| {
            tracing::warn!(path = %path, error = %error, "the record of upkeep cannot be read, all of it is due");
            Tables::default()
        });
        Self { store, path, tables, is_changed: false, tried: BTreeMap::new() }
    }

    /// When the chore was done last, or tried.
    pub fn last_ms(&self, table: &TableId, chore: Chore) -> Option<i64> {
        let done = self.tables.tables.get(&table.to_string()).and_then(|chores| chores.get(chore.name()).copied());
        done.max(self.tried.get(&(table.clone(), chore)).copied())
    }

    /// Notes that the chore failed.
    pub fn tried(&mut self, table: &TableId, chore: Chore, now_ms: i64) {
        self.tried.insert((table.clone(), chore), now_ms);
    }

    /// Notes that the chore was done.
    pub fn done(&mut self, table: &TableId, chore: Chore, now_ms: i64) {
        let chores = self.tables.tables.entry(table.to_string()).or_default();
        chores.insert(chore.name().to_string(), now_ms);
        self.is_changed = true;
    }

    /// Writes what was noted to the lake. A note that is lost costs the same chore once more.
    pub async fn save(&mut self) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let Ok(text) = serde_json::to_vec(&self.tables) else { return };
        if let Err(error) = self.store.put(&self.path, text.into()).await {
            tracing::debug!(path = %self.path, error = %error, "the record of upkeep could not be written");
        }
    }
}
