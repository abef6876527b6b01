//! What the job file says of a table that is there: how old versions of rows leave it, and whether it has a change feed.
//! The table's properties say what it is now; the job file may change its mind.

use std::collections::HashMap;

use deltalake::kernel::{Action, Metadata, MetadataExt, Remove};
use deltalake::protocol::DeltaOperation;

use super::apply::FileChanges;
use super::commit::Attempt;
use super::write::NewFiles;
use super::{CommitTag, Fills, LakeError, LakeTable, change_feed, schema};
use crate::config::{MergeMode, TableSettings};

/// How often the change is planned again because others committed in between.
const ATTEMPTS_MAX: usize = 10;

impl LakeTable {
    /// As the table is now, whatever the job file says.
    pub(super) fn merge_mode(&self) -> MergeMode {
        if self.is_on(schema::ENABLE_DELETION_VECTORS) { MergeMode::OnRead } else { MergeMode::CopyOnWrite }
    }

    /// Whether commits must say which rows they changed.
    pub(super) fn has_feed(&self) -> bool {
        self.is_on(schema::ENABLE_CHANGE_FEED)
    }

    /// The two of them.
    pub(super) fn present_settings(&self) -> TableSettings {
        TableSettings { merge: self.merge_mode(), change_feed: self.has_feed(), ..TableSettings::default() }
    }

    fn is_on(&self, property: &str) -> bool {
        let value = self.state.metadata().configuration().get(property);
        value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Makes the table what the job file says, in a commit of its own. One that goes over to copy-on-write loses all
    /// its deletion vectors at once; that its protocol has had them stays. False if others committed again and again.
    pub(super) async fn follow_settings(&mut self) -> Result<bool, LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            let wanted = self.wanted_settings();
            if self.present_settings() == wanted {
                return Ok(true);
            }
            let purged = self.purge_vectors(wanted.merge).await?;
            match self.commit_settings(&wanted, &purged).await? {
                Attempt::Committed => self.adopt(purged)?,
                Attempt::Overtaken => self.abandon(&purged.new).await,
                Attempt::AlreadyApplied => {}
            }
        }
        Ok(false)
    }

    fn wanted_settings(&self) -> TableSettings {
        let TableSettings { merge, change_feed, .. } = self.settings;
        let reserved = change_feed::reserved_name(&self.arrow_schema()).filter(|_| change_feed);
        if let Some(name) = &reserved {
            tracing::warn!(table = %self.table, column = name, "no change feed: it needs the name of this column");
        }
        TableSettings { merge, change_feed: change_feed && reserved.is_none(), ..TableSettings::default() }
    }

    /// The files that have deletion vectors without them, if the table is to have none.
    async fn purge_vectors(&self, merge: MergeMode) -> Result<FileChanges, LakeError> {
        if merge == MergeMode::OnRead || self.merge_mode() == MergeMode::CopyOnWrite {
            return Ok(FileChanges::default());
        }
        let (schema, mut new) = (self.file_schema(), NewFiles::default());
        let with_vectors = self.files.values().filter(|file| file.add.deletion_vector.is_some());
        let removed: Vec<_> = with_vectors.cloned().collect();
        for file in &removed {
            new.extend(self.copy(file, &schema, &Fills::default()).await?);
        }
        // The rows stay as they are.
        new.adds.iter_mut().for_each(|add| add.data_change = false);
        Ok(FileChanges { removed, added: new.adds.clone(), new, ..FileChanges::default() })
    }

    async fn commit_settings(&mut self, wanted: &TableSettings, purged: &FileChanges) -> Result<Attempt, LakeError> {
        let changed = self.changed_properties(wanted);
        let mut metadata: Metadata = self.state.metadata().clone();
        for (name, value) in &changed {
            let set = metadata.add_config_key(name.clone(), value.clone());
            metadata = set.map_err(|error| schema::unsupported(&self.table, &error))?;
        }
        let delta = self.state.schema();
        let grown = schema::grown_protocol(&self.table, self.state.protocol(), &delta, wanted)?;
        let mut actions = vec![Action::Metadata(metadata)];
        actions.extend(grown.map(Action::Protocol));
        actions.extend(purged.actions().map(|action| match action {
            Action::Remove(remove) => Action::Remove(Remove { data_change: false, ..remove }),
            other => other,
        }));
        let files = purged.new.adds.len();
        tracing::info!(table = %self.table, properties = ?changed, files, "the table follows the job file");
        let operation = DeltaOperation::SetTableProperties { properties: changed };
        self.commit(actions, operation, &CommitTag::default()).await
    }

    fn changed_properties(&self, wanted: &TableSettings) -> HashMap<String, String> {
        let present = self.present_settings();
        let mut changed = HashMap::new();
        if present.merge != wanted.merge {
            let value = (wanted.merge == MergeMode::OnRead).to_string();
            changed.insert(schema::ENABLE_DELETION_VECTORS.to_string(), value);
        }
        if present.change_feed != wanted.change_feed {
            changed.insert(schema::ENABLE_CHANGE_FEED.to_string(), wanted.change_feed.to_string());
        }
        changed
    }
}
