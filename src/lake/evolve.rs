//! Lets a table follow its source's columns.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{Schema, SchemaRef};
use delta_kernel::engine::arrow_conversion::TryIntoArrow;
use deltalake::kernel::{Action, Metadata, MetadataExt, StructField, StructType};
use deltalake::protocol::DeltaOperation;

use super::apply::FileChanges;
use super::commit::Attempt;
use super::partition::PartitionColumn;
use super::write::NewFiles;
use super::{CommitOutcome, CommitSummary, CommitTag, Fills, LakeError, LakeTable, change_feed, schema};
use crate::failpoint;
use crate::schema::can_become;
use crate::schema::{Column, TableSchema};

/// How often an evolution is planned again because others committed in between.
const ATTEMPTS_MAX: usize = 10;

/// What the table is to become.
struct Evolution {
    /// Columns that it gets.
    fields: Vec<StructField>,
    /// Whether columns that it has become others.
    is_retyped: bool,
    metadata: Metadata,
    schema: StructType,
}

impl LakeTable {
    /// Gives the table the lake's columns of `new` that it lacks, and those that it has their types, in a commit of its own;
    /// columns that `new` lacks stay. The table keeps its id, name and creation time. Rows that are there get null in a new
    /// column, or what `fills` says. A fill, or another type of a column, rewrites the table within the same commit, in bounded
    /// memory; columns that are there already are not filled. The tag's transactions, if any, are recorded even where there
    /// is nothing to do.
    ///
    /// # Errors
    /// [`LakeError::ColumnType`] if a column's values do not fit into its new type; [`LakeError::Changes`] if the key is
    /// another one, or a fill does not fit; [`LakeError::Settings`] if a new column has the name of one that only the
    /// table has, or the type of a partition column changes.
    pub async fn evolve(
        &mut self,
        new: &TableSchema,
        fills: &Fills,
        tag: &CommitTag,
    ) -> Result<CommitOutcome, LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            if !tag.app_ids.is_empty() && self.has_applied(tag).await? {
                return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
            }
            let evolution = self.plan_evolution(new)?;
            let nothing = evolution.fields.is_empty() && evolution.metadata == *self.state.metadata();
            if nothing && tag.app_ids.is_empty() {
                return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
            }
            let files = self.fill(&evolution, fills).await?;
            failpoint::hit(failpoint::SCHEMA_BEFORE);
            let attempt = self.commit_evolution(&evolution, &files, tag).await?;
            failpoint::hit(failpoint::SCHEMA_AFTER);
            match attempt {
                Attempt::Committed if evolution.is_retyped => return self.reopened(&files).await,
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

    /// Makes the table that of another source table of its name, without rows, in a commit of its own: it gets the lake's columns
    /// of `new` and their key, and those that only the old one had stay as columns that may be null. Its id, name, creation
    /// time and partitions stay.
    ///
    /// # Errors
    /// [`LakeError::Settings`] if a partition column is not there, or has another type.
    pub async fn replace(&mut self, new: &TableSchema, tag: &CommitTag) -> Result<CommitOutcome, LakeError> {
        for _ in 0..ATTEMPTS_MAX {
            if self.has_applied(tag).await? {
                return Ok(CommitOutcome::AlreadyApplied { version: self.version() });
            }
            let evolution = self.plan_replacement(new)?;
            let files = FileChanges { removed: self.all_files(), ..FileChanges::default() };
            failpoint::hit(failpoint::SCHEMA_BEFORE);
            let attempt = self.commit_evolution(&evolution, &files, tag).await?;
            failpoint::hit(failpoint::SCHEMA_AFTER);
            match attempt {
                Attempt::Committed => return self.reopened(&files).await,
                Attempt::AlreadyApplied => return Ok(CommitOutcome::AlreadyApplied { version: self.version() }),
                Attempt::Overtaken => {}
            }
        }
        Ok(CommitOutcome::Conflict)
    }

    fn plan_evolution(&self, new: &TableSchema) -> Result<Evolution, LakeError> {
        self.check_key(&new.key_names())?;
        self.partitioning().check_free(new)?;
        change_feed::check_names(new, &self.present_settings())?;
        let known = self.retyped_fields(new)?;
        let is_retyped = known.iter().zip(self.state.schema().fields()).any(|(new, old)| new != old);
        let fields = self.missing_fields(new)?;
        let all: Vec<StructField> = known.into_iter().chain(fields.iter().cloned()).collect();
        let schema = StructType::try_new(all).map_err(|error| schema::unsupported(&self.table, &error))?;
        let metadata = self.grown_metadata(new, is_retyped || !fields.is_empty(), &schema)?;
        Ok(Evolution { fields, is_retyped, metadata, schema })
    }

    fn plan_replacement(&self, new: &TableSchema) -> Result<Evolution, LakeError> {
        self.partitioning().check_free(new)?;
        change_feed::check_names(new, &self.present_settings())?;
        let refused = |what: String| LakeError::Settings { table: self.table.clone(), what };
        let known = self.state.schema();
        let column = |name: &str| new.columns.iter().position(|column| column.lake_name().eq_ignore_ascii_case(name));
        let mut fields = Vec::new();
        for (index, of_source) in new.columns.iter().enumerate() {
            let partition = self.partitioning().column(of_source.lake_name());
            let may_be_null = partition.is_some_and(PartitionColumn::is_text);
            fields.push(schema::field(&self.table, of_source, new.key.contains(&index) && !may_be_null)?);
        }
        for partition in self.partitioning().columns.iter().filter(|partition| partition.by.part.is_none()) {
            let found = column(&partition.name).map(|index| new.columns[index].lake_type());
            if found != Some(&partition.data_type) {
                return Err(refused(format!("its partition column {} is not what it was", partition.name)));
            }
        }
        let left = known.fields().filter(|field| column(field.name()).is_none());
        fields.extend(left.map(|field| StructField { nullable: true, ..field.clone() }));
        let schema = StructType::try_new(fields).map_err(|error| schema::unsupported(&self.table, &error))?;
        let metadata = self.grown_metadata(new, true, &schema)?;
        Ok(Evolution { fields: Vec::new(), is_retyped: true, metadata, schema })
    }

    /// The columns that the table has, with the types that they are to have.
    fn retyped_fields(&self, new: &TableSchema) -> Result<Vec<StructField>, LakeError> {
        let retyped = |known: &StructField| {
            let named = |column: &&Column| column.lake_name().eq_ignore_ascii_case(known.name());
            let Some(column) = new.columns.iter().find(named) else { return Ok(known.clone()) };
            let field = schema::field(&self.table, column, false)?;
            if known.data_type() == field.data_type() {
                return Ok(known.clone());
            }
            let arrow = self.arrow_schema();
            let from = arrow.field_with_name(known.name()).map(|field| field.data_type().clone());
            if !from.is_ok_and(|from| can_become(&from, column.lake_type())) {
                return Err(LakeError::ColumnType {
                    table: self.table.clone(),
                    column: column.name.clone(),
                    found: known.data_type().to_string(),
                    expected: field.data_type().to_string(),
                });
            }
            if self.partitioning().columns.iter().any(|partition| partition.by.column == column.lake_name()) {
                let what = format!("the type of column {}, by which it is partitioned, changed", column.name);
                return Err(LakeError::Settings { table: self.table.clone(), what });
            }
            Ok(StructField { name: known.name.clone(), nullable: known.nullable, ..field })
        };
        self.state.schema().fields().map(retyped).collect()
    }

    fn missing_fields(&self, new: &TableSchema) -> Result<Vec<StructField>, LakeError> {
        let known = self.state.schema();
        let is_known =
            |column: &&Column| known.fields().any(|field| field.name().eq_ignore_ascii_case(column.lake_name()));
        let missing = new.columns.iter().filter(|column| !is_known(column));
        missing.map(|column| schema::field(&self.table, column, false)).collect()
    }

    fn grown_metadata(&self, new: &TableSchema, is_other: bool, all: &StructType) -> Result<Metadata, LakeError> {
        let failed = |error: deltalake::kernel::Error| schema::unsupported(&self.table, &error);
        let mut metadata = self.state.metadata().clone();
        if is_other {
            metadata = metadata.with_schema(all).map_err(failed)?;
        }
        for (name, value) in schema::properties(new) {
            if metadata.configuration().get(name) != Some(&value) {
                metadata = metadata.add_config_key(name.to_string(), value).map_err(failed)?;
            }
        }
        Ok(metadata)
    }

    /// Rewrites the table if a new column is filled, or one gets another type.
    async fn fill(&self, evolution: &Evolution, fills: &Fills) -> Result<FileChanges, LakeError> {
        let arrow: Result<Schema, _> = (&evolution.schema).try_into_arrow();
        let arrow: SchemaRef = Arc::new(arrow.map_err(LakeError::arrow(&self.table, "map its schema to Arrow"))?);
        let is_new = |name: &String| evolution.fields.iter().any(|field| field.name() == name);
        let values = fills.values.iter().filter(|(name, value)| is_new(name) && value.null_count() == 0);
        let copies = fills.copies.iter().filter(|(name, _)| is_new(name));
        let wanted = Fills {
            values: values.map(|(name, value)| (name.clone(), value.clone())).collect(),
            copies: copies.map(|(name, from)| (name.clone(), from.clone())).collect(),
        };
        self.check_defaults(&arrow, &wanted.values)?;
        let nothing = wanted.values.is_empty() && wanted.copies.is_empty() && !evolution.is_retyped;
        if nothing || self.files.is_empty() {
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
        let summary = self.summary_of_evolution(&files);
        self.adopt(files)?;
        Ok(summary)
    }

    /// After a commit that changes what keys and files are read by: nothing of what is remembered holds.
    async fn reopened(&mut self, files: &FileChanges) -> Result<CommitOutcome, LakeError> {
        let summary = self.summary_of_evolution(files);
        *self = Self::new(&self.lake, &self.table, self.log_store.clone(), self.state.clone()).await?;
        Ok(CommitOutcome::Committed(summary))
    }

    fn summary_of_evolution(&self, files: &FileChanges) -> CommitSummary {
        CommitSummary {
            version: self.version(),
            files_added: files.new.adds.len() as u64,
            files_touched: files.removed.len() as u64,
            bytes_written: files.new.bytes(),
            ..CommitSummary::default()
        }
    }
}
