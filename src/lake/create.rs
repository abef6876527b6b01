//! Makes a table's first version.

use deltalake::kernel::Action;
use deltalake::protocol::{DeltaOperation, SaveMode};

use super::partition::Partitioning;
use super::{CommitTag, Lake, LakeError, LakeTable, change_feed, commit, schema};
use crate::failpoint;
use crate::schema::TableSchema;

impl Lake {
    /// Makes the Delta table of a source table, empty, or opens it if it is there. A creation whose reply was lost is
    /// found again. An existing table is not changed, whatever its columns: [`LakeTable::evolve`] does that. The tag's
    /// transactions are recorded, so none of them may be that of a batch which is still to be applied.
    ///
    /// # Errors
    /// [`LakeError::OtherTable`] if the folder holds another table; [`LakeError::Settings`] if the table cannot have
    /// the partitions or the change feed that the job asks for.
    pub async fn create_table(&self, table: &TableSchema, tag: &CommitTag) -> Result<LakeTable, LakeError> {
        if let Some(existing) = self.open_table(&table.table).await? {
            return Ok(existing);
        }
        let settings = self.rules().settings(&table.table);
        change_feed::check_names(table, &settings)?;
        let partitioning = Partitioning::plan(table, &settings.partition_by)?;
        let delta = schema::delta_schema(table, &partitioning)?;
        let protocol = schema::new_protocol(&table.table, &delta, &settings)?;
        let metadata = schema::new_table_metadata(table, &delta, &partitioning, &settings)?;
        let operation = DeltaOperation::Create {
            mode: SaveMode::ErrorIfExists,
            location: self.table_url(&table.table),
            protocol: protocol.clone(),
            metadata: metadata.clone(),
        };
        let actions = vec![Action::Protocol(protocol), Action::Metadata(metadata)];
        let log_store = self.log_store(&table.table);
        failpoint::hit(failpoint::SCHEMA_BEFORE);
        let written = commit::write(None, log_store.clone(), actions, operation, tag).await;
        failpoint::hit(failpoint::SCHEMA_AFTER);
        match written {
            Ok(state) => LakeTable::new(self, &table.table, log_store, state).await,
            // Another creation came first, or this one did and its reply was lost: either way the table is there.
            Err(error) => match self.open_table(&table.table).await? {
                Some(existing) => Ok(existing),
                None => Err(LakeError::delta(&table.table, "create it")(error)),
            },
        }
    }
}
