//! Lets a table follow its source's columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Schema, SchemaRef};
use delta_kernel::engine::arrow_conversion::TryIntoArrow;
use deltalake::kernel::{Action, Metadata, MetadataExt, StructField, StructType};
use deltalake::protocol::DeltaOperation;

use super::apply::FileChanges;
use super::commit::Attempt;
use super::write::NewFiles;
use super::{CommitOutcome, CommitSummary, CommitTag, LakeError, LakeTable, change_feed, schema};
use crate::failpoint;
use crate::schema::TableSchema;

/// How often an evolution is planned again because others committed in between.
const ATTEMPTS_MAX: usize = 10;

/// What the table is to become.
struct Evolution {
    fields: Vec<StructField>,
    metadata: Metadata,
    schema: StructType,
}

impl LakeTable {
    /// Adds the columns of `new` that the table lacks, in a commit of its own; columns that `new` lacks stay. The
    /// table keeps its id, name and creation time. Rows that are there get null in a new column, or its value in
    /// `defaults`: column name to an array of one value, not null, of the column's type. A default rewrites the table
    /// within the same commit, in bounded memory; columns that are there already are not filled. Whether there is
    /// anything to do is told by the columns; the tag's transactions, if any, are recorded even where there is nothing.
    ///
    /// # Errors
    /// [`LakeError::ColumnType`] if a column has another type; [`LakeError::Changes`] if the key is another one, or a
    /// default does not fit; [`LakeError::Settings`] if a new column has the name of one that only the table has.
    pub async fn evolve(
        &mut self,
        new: &TableSchema,
        defaults: &BTreeMap<String, ArrayRef>,
        tag: &CommitTag,
    ) -> Result<CommitOutcome, LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            let evolution = self.plan_evolution(new)?;
            let nothing = evolution.fields.is_empty() && evolution.metadata == *self.state.metadata();
            if nothing && (tag.app_ids.is_empty() || self.has_applied(tag).await?) {
                return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
            }
            let files = self.fill(&evolution, defaults).await?;
            failpoint::hit(failpoint::SCHEMA_BEFORE);
            let attempt = self.commit_evolution(&evolution, &files, tag).await?;
            failpoint::hit(failpoint::SCHEMA_AFTER);
            match attempt {
                Attempt::Committed => return self.evolved(files).map(CommitOutcome::Committed),
                Attempt::AlreadyApplied => return Ok(CommitOutcome::AlreadyApplied { version: self.version() }),
                Attempt::Overtaken => {
                    self.abandon(&files.new).await;
                    self.abandon(&files.feed).await;
                }
            }
        }
        Ok(CommitOutcome::Conflict)
    }

    fn plan_evolution(&self, new: &TableSchema) -> Result<Evolution, LakeError> {
        let fields = self.missing_fields(new)?;
        let all = self.state.schema().fields().chain(&fields).cloned().collect::<Vec<_>>();
        let schema = StructType::try_new(all).map_err(|error| schema::unsupported(&self.table, &error))?;
        let metadata = self.grown_metadata(new, &fields, &schema)?;
        Ok(Evolution { fields, metadata, schema })
    }

    fn missing_fields(&self, new: &TableSchema) -> Result<Vec<StructField>, LakeError> {
        self.check_key(&new.key_names())?;
        self.partitioning().check_free(new)?;
        change_feed::check_names(new, &self.present_settings())?;
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

    fn grown_metadata(
        &self,
        new: &TableSchema,
        fields: &[StructField],
        all: &StructType,
    ) -> Result<Metadata, LakeError> {
        let failed = |error: deltalake::kernel::Error| schema::unsupported(&self.table, &error);
        let mut metadata = self.state.metadata().clone();
        if !fields.is_empty() {
            metadata = metadata.with_schema(all).map_err(failed)?;
        }
        for (name, value) in schema::properties(new) {
            if metadata.configuration().get(name) != Some(&value) {
                metadata = metadata.add_config_key(name.to_string(), value).map_err(failed)?;
            }
        }
        Ok(metadata)
    }

    /// Rewrites the table if a new column has a default.
    async fn fill(
        &self,
        evolution: &Evolution,
        defaults: &BTreeMap<String, ArrayRef>,
    ) -> Result<FileChanges, LakeError> {
        let arrow: Result<Schema, _> = (&evolution.schema).try_into_arrow();
        let arrow: SchemaRef = Arc::new(arrow.map_err(LakeError::arrow(&self.table, "map its schema to Arrow"))?);
        let is_new = |name: &String| evolution.fields.iter().any(|field| field.name() == name);
        let wanted = defaults.iter().filter(|(name, value)| is_new(name) && value.null_count() == 0);
        let wanted: BTreeMap<_, _> = wanted.map(|(name, value)| (name.clone(), value.clone())).collect();
        self.check_defaults(&arrow, &wanted)?;
        if wanted.is_empty() || self.files.is_empty() {
            return Ok(FileChanges::default());
        }
        let schema = self.partitioning().file_schema(&arrow);
        let new = self.rewrite(&schema, &wanted).await?;
        let feed = match self.has_feed() {
            true => self.write_feed_of_rewrite(&schema, &new).await?,
            false => NewFiles::default(),
        };
        let added = new.adds.clone();
        Ok(FileChanges { removed: self.all_files(), added, new, feed, ..FileChanges::default() })
    }

    async fn commit_evolution(
        &mut self,
        evolution: &Evolution,
        files: &FileChanges,
        tag: &CommitTag,
    ) -> Result<Attempt, LakeError> {
        let protocol =
            schema::grown_protocol(&self.table, self.state.protocol(), &evolution.schema, &self.present_settings())?;
        let is_grown = evolution.metadata != *self.state.metadata();
        let mut actions = Vec::from_iter(is_grown.then(|| Action::Metadata(evolution.metadata.clone())));
        actions.extend(protocol.map(Action::Protocol));
        actions.extend(files.actions());
        self.commit(actions, DeltaOperation::AddColumn { fields: evolution.fields.clone() }, tag).await
    }

    fn evolved(&mut self, files: FileChanges) -> Result<CommitSummary, LakeError> {
        let NewFiles { adds, .. } = &files.new;
        let summary = CommitSummary {
            version: self.version(),
            files_added: adds.len() as u64,
            files_touched: files.removed.len() as u64,
            bytes_written: files.new.bytes(),
            ..CommitSummary::default()
        };
        self.adopt(files)?;
        Ok(summary)
    }
}
