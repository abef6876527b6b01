//! Lets a table follow its source's columns.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use deltalake::kernel::{Action, Metadata, MetadataExt, StructField, StructType};
use deltalake::protocol::DeltaOperation;

use super::commit::Attempt;
use super::{CommitOutcome, CommitSummary, CommitTag, LakeError, LakeTable, schema};
use crate::failpoint;
use crate::schema::TableSchema;

/// How often an evolution is planned again because others committed in between.
const ATTEMPTS_MAX: usize = 10;

impl LakeTable {
    /// Adds the columns of `new` that the table lacks, in a commit of its own; columns that `new` lacks stay. The
    /// table keeps its id, name and creation time.
    ///
    /// # Errors
    /// [`LakeError::ColumnType`] if a column has another type, [`LakeError::Changes`] if the key is another one.
    pub async fn evolve(
        &mut self,
        new: &TableSchema,
        defaults: &BTreeMap<String, ArrayRef>,
        tag: &CommitTag,
    ) -> Result<CommitOutcome, LakeError> {
        let _ = defaults;
        for _ in 0..ATTEMPTS_MAX {
            let fields = self.missing_fields(new)?;
            let metadata = self.grown_metadata(new, &fields)?;
            if self.has_applied(tag).await? || (fields.is_empty() && metadata == *self.state.metadata()) {
                return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
            }
            let grown = metadata.parse_schema().map_err(|error| schema::unsupported(&self.table, &error))?;
            let mut actions = vec![Action::Metadata(metadata)];
            actions.extend(schema::grown_protocol(&self.table, self.state.protocol(), &grown)?.map(Action::Protocol));
            failpoint::hit(failpoint::SCHEMA_BEFORE);
            let attempt = self.commit(actions, DeltaOperation::AddColumn { fields }, tag).await?;
            failpoint::hit(failpoint::SCHEMA_AFTER);
            match attempt {
                Attempt::Committed => {
                    let summary = CommitSummary { version: self.version(), ..CommitSummary::default() };
                    return Ok(CommitOutcome::Committed(summary));
                }
                Attempt::AlreadyApplied => return Ok(CommitOutcome::AlreadyApplied { version: self.version() }),
                Attempt::Overtaken => {}
            }
        }
        Ok(CommitOutcome::Conflict)
    }

    fn missing_fields(&self, new: &TableSchema) -> Result<Vec<StructField>, LakeError> {
        self.check_key(&new.key_names())?;
        let known = self.state.schema();
        let mut missing = Vec::new();
        for column in &new.columns {
            let field = schema::field(&self.table, column, false)?;
            match known.fields().find(|known| known.name().eq_ignore_ascii_case(&column.name)) {
                None => missing.push(field),
                Some(known) if known.data_type() == field.data_type() => {}
                Some(known) => {
                    return Err(LakeError::ColumnType {
                        table: self.table.clone(),
                        column: column.name.clone(),
                        found: known.data_type().to_string(),
                        expected: field.data_type().to_string(),
                    });
                }
            }
        }
        Ok(missing)
    }

    fn grown_metadata(&self, new: &TableSchema, fields: &[StructField]) -> Result<Metadata, LakeError> {
        let failed = |error: &dyn std::fmt::Display| schema::unsupported(&self.table, error);
        let mut metadata = self.state.metadata().clone();
        if !fields.is_empty() {
            let all = self.state.schema().fields().cloned().chain(fields.iter().cloned()).collect::<Vec<_>>();
            let all = StructType::try_new(all).map_err(|error| failed(&error))?;
            metadata = metadata.with_schema(&all).map_err(|error| failed(&error))?;
        }
        for (name, value) in schema::properties(new) {
            if metadata.configuration().get(name) != Some(&value) {
                metadata = metadata.add_config_key(name.to_string(), value).map_err(|error| failed(&error))?;
            }
        }
        Ok(metadata)
    }
}
