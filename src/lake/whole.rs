//! Which old versions of a table still have all their files.

use std::collections::{HashMap, HashSet};

use deltalake::kernel::DeletionVectorDescriptor;
use deltalake::table::state::DeltaTableState;
use futures::TryStreamExt;
use object_store::path::Path;

use super::locate::vector_name;
use super::log::{Commit, find_commit};
use super::{Lake, LakeError, deletion, files};
use crate::change::TableId;

/// The files of a version, walked back through the log.
struct Walk {
    there: HashSet<Path>,
    /// Each live file with its deletion vector, by the log's names, and whether one of the two is gone.
    live: HashMap<(String, String), bool>,
    gone: usize,
}

impl Lake {
    /// The oldest version of a table from which on all have their data files and deletion vectors; `None` if the newest lacks
    /// some, or there is no table. Reads the log backwards and lists the table's files: for messages, not for each query.
    ///
    /// # Errors
    /// A store or a log that cannot be read.
    pub async fn oldest_whole_version(&self, table: &TableId) -> Result<Option<u64>, LakeError> {
        let (store, log_store) = (self.table_store(table), self.log_store(table));
        let state = DeltaTableState::try_new(log_store.as_ref(), None).await;
        let state = state.map_err(LakeError::delta(table, "read its log"))?;
        let objects = store.list(None).map_ok(|object| object.location).try_collect().await;
        let there = objects.map_err(LakeError::store(format!("list the files of {table}")))?;
        let mut walk = Walk { there, live: HashMap::new(), gone: 0 };
        for file in files::list(state.snapshot(), &log_store, table).await? {
            walk.add(&file.add.path, file.add.deletion_vector.as_ref());
        }
        let mut oldest = None;
        let mut version = state.version();
        while walk.gone == 0 {
            oldest = Some(version);
            let Some(before) = version.checked_sub(1) else { break };
            let Some(commit) = find_commit(store.as_ref(), table, version).await? else { break };
            // Without the commit before there is no older version, but for a checkpoint of it.
            if find_commit(store.as_ref(), table, before).await?.is_none() {
                break;
            }
            walk.undo(&commit);
            version = before;
        }
        Ok(oldest)
    }
}

impl Walk {
    fn add(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) {
        let vector_file = vector.and_then(deletion::file_of);
        let is_gone = !self.there.contains(&files::object_path(path))
            || vector_file.is_some_and(|file| !self.there.contains(&file));
        if self.live.insert(name(path, vector), is_gone).is_none() {
            self.gone += usize::from(is_gone);
        }
    }

    fn undo(&mut self, commit: &Commit) {
        for add in &commit.adds {
            if self.live.remove(&name(&add.path, add.deletion_vector.as_ref())) == Some(true) {
                self.gone -= 1;
            }
        }
        for remove in &commit.removes {
            self.add(&remove.path, remove.deletion_vector.as_ref());
        }
    }
}

fn name(path: &str, vector: Option<&DeletionVectorDescriptor>) -> (String, String) {
    (path.to_string(), vector.map(vector_name).unwrap_or_default())
}
