//! How old versions of rows leave a table: by deletion vectors, or with their files. The table's property says which;
//! the job file may change its mind.

use std::collections::{BTreeMap, HashMap};

use deltalake::kernel::{Action, MetadataExt, Remove};
use deltalake::protocol::DeltaOperation;

use super::apply::FileChanges;
use super::commit::Attempt;
use super::write::NewFiles;
use super::{CommitTag, LakeError, LakeTable, schema};
use crate::config::MergeMode;

/// How often the change is planned again because others committed in between.
const ATTEMPTS_MAX: usize = 10;

impl LakeTable {
    /// As the table is now, whatever the job file says.
    pub(super) fn merge_mode(&self) -> MergeMode {
        let value = self.state.metadata().configuration().get(schema::ENABLE_DELETION_VECTORS);
        match value.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            true => MergeMode::OnRead,
            false => MergeMode::CopyOnWrite,
        }
    }

    /// Makes the table what the job file says, in a commit of its own. One that goes over to copy-on-write loses all
    /// its deletion vectors at once; that its protocol has had them stays. False if others committed again and again.
    pub(super) async fn follow_merge_mode(&mut self) -> Result<bool, LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            if self.merge_mode() == self.settings.merge {
                return Ok(true);
            }
            let purged = self.purge_vectors().await?;
            match self.commit_merge_mode(&purged).await? {
                Attempt::Committed => self.adopt(purged)?,
                Attempt::Overtaken => self.abandon(&purged.new).await,
                Attempt::AlreadyApplied => {}
            }
        }
        Ok(false)
    }

    /// The files that have deletion vectors without them, if the table is to have none.
    async fn purge_vectors(&self) -> Result<FileChanges, LakeError> {
        if self.settings.merge == MergeMode::OnRead {
            return Ok(FileChanges::default());
        }
        let (schema, mut new) = (self.file_schema(), NewFiles::default());
        let with_vectors = self.files.values().filter(|file| file.add.deletion_vector.is_some());
        let removed: Vec<_> = with_vectors.cloned().collect();
        for file in &removed {
            let copied = self.copy(file, &schema, &BTreeMap::new()).await?;
            new.rows += copied.rows;
            new.adds.extend(copied.adds);
        }
        // The rows stay as they are.
        new.adds.iter_mut().for_each(|add| add.data_change = false);
        Ok(FileChanges { removed, added: new.adds.clone(), new, ..FileChanges::default() })
    }

    async fn commit_merge_mode(&mut self, purged: &FileChanges) -> Result<Attempt, LakeError> {
        let failed = |error: deltalake::kernel::Error| schema::unsupported(&self.table, &error);
        let value = (self.settings.merge == MergeMode::OnRead).to_string();
        let property = (schema::ENABLE_DELETION_VECTORS.to_string(), value);
        let metadata = self.state.metadata().clone();
        let metadata = metadata.add_config_key(property.0.clone(), property.1.clone()).map_err(failed)?;
        let delta = self.state.schema();
        let grown = schema::grown_protocol(&self.table, self.state.protocol(), &delta, self.settings.merge)?;
        let mut actions = vec![Action::Metadata(metadata)];
        actions.extend(grown.map(Action::Protocol));
        actions.extend(purged.actions().map(|action| match action {
            Action::Remove(remove) => Action::Remove(Remove { data_change: false, ..remove }),
            other => other,
        }));
        tracing::info!(
            table = %self.table, property = property.0, value = property.1, files = purged.new.adds.len(),
            "the table changes how old versions of rows leave it"
        );
        let operation = DeltaOperation::SetTableProperties { properties: HashMap::from([property]) };
        self.commit(actions, operation, &CommitTag::default()).await
    }
}
