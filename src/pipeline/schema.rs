//! Tables that join, change or leave.

use std::collections::HashSet;

use super::PipelineError;
use super::apply;
use super::session::{Session, Step};
use crate::change::{Ending, SourcePosition, TableId};
use crate::config::SnapshotMode;
use crate::lake::{LakeError, LedgerEntry, LoadState, SchemaRecord, StopRecord, Work};
use crate::schema::{Column, Plan, Policy, TableSchema, Treatment, plan};
use crate::source::{Arrival, DiscoveredTable, SchemaChange, TableStopped};

impl Session<'_> {
    /// Compares the source's catalogue with the job's tables: tables that can't be captured are taken out, and
    /// on a job's first run all others are made. Returns the tables that came later: they join once the log
    /// has been read up to now, for their present schema is not that of an older position.
    pub(super) async fn adopt_tables(&mut self) -> Result<HashSet<TableId>, PipelineError> {
        let discovered = self.environment.source.tables().await?;
        let first_run = self.state.tables.is_empty();
        self.check_resnapshot(&discovered)?;
        self.load_parts(&discovered).await?;
        if first_run && discovered.is_empty() && self.source_has_catalogue() {
            return Err(PipelineError::NothingSelected { patterns: self.patterns() });
        }
        let mut ready = Vec::new();
        for DiscoveredTable { table, schema, rows_estimated, .. } in discovered {
            self.rows_estimated.extend(rows_estimated.map(|rows| (table.clone(), rows)));
            let is_wanted_again = self.options.resnapshot.contains_key(&table) || self.is_replaced(&table);
            if self.state.tables.contains_key(&table) && !is_wanted_again {
                continue;
            }
            match schema {
                Ok(schema) => ready.push(schema),
                Err(reason) => self.stop_table(table, self.position().position.clone(), reason).await?,
            }
        }
        if first_run {
            self.add_tables(ready).await?;
            return Ok(HashSet::new());
        }
        Ok(ready.into_iter().map(|schema| schema.table).collect())
    }

    /// Tables that are to be loaded again must be there.
    fn check_resnapshot(&self, discovered: &[DiscoveredTable]) -> Result<(), PipelineError> {
        for table in self.options.resnapshot.keys() {
            let found = discovered.iter().find(|found| found.table == *table);
            let reason = match found.map(|found| &found.schema) {
                Some(Ok(_)) => continue,
                Some(Err(reason)) => reason.clone(),
                None => "the source has no such table, or the job does not ask for it".to_string(),
            };
            return Err(PipelineError::NotLoadable { table: table.clone(), reason });
        }
        Ok(())
    }

    /// Begins to load those rows again of which a condition is true. Their tables are followed meanwhile.
    async fn load_parts(&mut self, discovered: &[DiscoveredTable]) -> Result<(), PipelineError> {
        let parts = self.options.resnapshot.iter().filter_map(|(table, condition)| Some((table, condition.as_ref()?)));
        let parts: Vec<(TableId, String)> =
            parts.map(|(table, condition)| (table.clone(), condition.clone())).collect();
        for (table, condition) in parts {
            let now = discovered.iter().find(|found| found.table == table).and_then(|found| found.schema.as_ref().ok());
            let schema = self.schema_of_part(&table, now)?;
            self.environment.source.check_condition(&schema, &condition).await?;
            let position = self.position().position.clone();
            let record = SchemaRecord { load: true, condition: Some(condition), ..SchemaRecord::new(schema, position) };
            self.schema_step(vec![record]).await?;
            // Noted in the ledger, it goes on whatever happens to this run.
            self.options.resnapshot.remove(&table);
        }
        Ok(())
    }

    /// The schema under which rows of a table can be loaded over those that it has: the one that it has, if the source
    /// has it still.
    fn schema_of_part(&self, table: &TableId, now: Option<&TableSchema>) -> Result<TableSchema, PipelineError> {
        let refused = |reason: &str| PipelineError::NotLoadable { table: table.clone(), reason: reason.to_string() };
        let known = self.state.tables.get(table).filter(|known| known.stopped.is_none());
        let known =
            known.ok_or_else(|| refused("it is not followed now, so all of it has to be loaded: leave out --where"))?;
        if known.load != LoadState::Done {
            return Err(refused("it is being loaded already; let a run finish that"));
        }
        let schema =
            known.schema.as_ref().filter(|known| now.is_some_and(|now| source_side(known) == source_side(now)));
        let reason = "its columns in the source are others than in the lake; run the job first, or leave out --where";
        schema.cloned().ok_or_else(|| refused(reason))
    }

    /// Takes in tables that came after the job's first run, and those that are loaded again. The log has been read up to now.
    pub(super) async fn join(&mut self, late: HashSet<TableId>) -> Result<(), PipelineError> {
        let discovered = self.environment.source.tables().await?;
        let wanted = discovered.into_iter().filter(|found| late.contains(&found.table));
        let ready =
            wanted.filter_map(|found| found.schema.ok()).map(|schema| self.with_known_columns(schema)).collect();
        self.add_tables(ready).await?;
        self.options.resnapshot.clear();
        Ok(())
    }

    /// The schema of a table that joins again may be less than what is known of its rows.
    fn with_known_columns(&self, schema: TableSchema) -> TableSchema {
        match self.state.tables.get(&schema.table).and_then(|known| known.schema.as_ref()) {
            Some(known) => self.environment.source.joined_schema(schema, known),
            None => schema,
        }
    }

    /// Takes in tables that the source has and the job does not know yet, with their present schema.
    async fn add_tables(&mut self, schemas: Vec<TableSchema>) -> Result<(), PipelineError> {
        if schemas.is_empty() {
            return Ok(());
        }
        let (mut records, mut unfit) = (Vec::new(), Vec::new());
        for schema in schemas {
            let table = schema.table.clone();
            let rules = self.job.tables.settings(&table).columns;
            let mut schema = match rules.apply(schema.clone()) {
                Ok(ruled) => ruled,
                Err(reason) => {
                    unfit.push((table, format!("its columns under tables in the job file do not fit it: {reason}")));
                    continue;
                }
            };
            let load = self.loads_rows() || self.options.resnapshot.contains_key(&table) || self.is_replaced(&table);
            let position = self.position().position.clone();
            let known = self.state.tables.get(&table).and_then(|known| known.schema.as_ref());
            schema.version = known.map_or(1, |known| known.version + 1);
            let laid = |known: &TableSchema| (*known.rules == rules).then(|| laid_over(known, &schema)).flatten();
            let replaces = match known.map(|known| (known, laid(known))) {
                None => false,
                Some((_, Some(laid_over))) => {
                    schema = laid_over;
                    false
                }
                Some((known, None)) => {
                    schema.retired = left_over(known, &schema);
                    true
                }
            };
            records.push(SchemaRecord { load, replaces, ..SchemaRecord::new(schema, position) });
        }
        if !records.is_empty() {
            self.schema_step(records).await?;
        }
        self.stop_tables(unfit).await
    }

    /// Takes out the tables whose columns the job file wants otherwise than they are in the lake; those that are to be loaded again get
    /// them as it says now.
    pub(super) async fn stop_ruled_otherwise(&mut self) -> Result<(), PipelineError> {
        let is_other = |(table, schema): &(&TableId, &TableSchema)| {
            !self.options.resnapshot.contains_key(*table) && self.job.tables.settings(table).columns != *schema.rules
        };
        let followed = self.state.followed().map(|(table, schema, _)| (table, schema));
        let others: Vec<TableId> = followed.filter(is_other).map(|(table, _)| table.clone()).collect();
        let reason = |table: &TableId| {
            format!(
                "the job file wants its columns otherwise (columns, hash_key) than they are in the lake; to have them so from now on: \
                 alluvium run --resnapshot {table}"
            )
        };
        let stopped = others.into_iter().map(|table| (table.clone(), reason(&table))).collect();
        self.stop_tables(stopped).await
    }

    /// Whether another table has taken the name of one that was followed, and its rows are still to be loaded.
    fn is_replaced(&self, table: &TableId) -> bool {
        let stopped = self.state.tables.get(table).and_then(|known| known.stopped.as_ref());
        self.source_has_catalogue() && stopped.is_some_and(|stopped| stopped.ending == Ending::Replaced)
    }

    /// Follows a schema change that the log announced.
    pub(super) async fn change_schema(&mut self, change: SchemaChange) -> Result<(), PipelineError> {
        let (table, position) = (change.schema.table.clone(), change.position.clone());
        let statement = change.statement.clone();
        let record = self.record_of(change);
        let record = record.and_then(|record| match apply::default_values(&record, self.job.hash_key.as_ref()) {
            Ok(_) => Ok(record),
            Err(error) => Err(error.to_string()),
        });
        match record {
            Ok(record) => self.schema_step(vec![record]).await,
            Err(reason) => {
                self.end_table(TableStopped { table, position, reason, ending: Ending::Fault, statement }).await
            }
        }
    }

    /// What a change comes to.
    ///
    /// # Errors
    /// Why it takes its table out.
    fn record_of(&self, change: SchemaChange) -> Result<SchemaRecord, String> {
        let table = &change.schema.table;
        let known = self.state.tables.get(table);
        let version = known.and_then(|known| known.schema.as_ref()).map_or(1, |known| known.version + 1);
        let mut schema = TableSchema { version, ..TableSchema::clone(&change.schema) };
        let rules = self.job.tables.settings(table).columns;
        let ruled = |schema| {
            let unfit = "its columns under tables in the job file do not fit it";
            let advice = format!("change them and load it with: alluvium run --resnapshot {table}");
            rules.apply(schema).map_err(|reason| format!("{unfit}: {reason}; {advice}"))
        };
        let followed = known.filter(|known| known.stopped.is_none()).and_then(|known| known.schema.as_ref());
        let (mut copies, mut replaces) = (Vec::new(), false);
        if change.arrival == Arrival::Met
            && let Some(followed) = followed
        {
            match plan(followed, &schema, &change.changes, self.policy(table)) {
                Plan::Follow { schema: planned, copies: planned_copies } => {
                    (schema, copies) = (planned, planned_copies)
                }
                Plan::Refuse(what) => return Err(format!("{what}; {}", advice(table))),
            }
        } else {
            schema = ruled(schema)?;
            if let Some(old) = known.and_then(|known| known.schema.as_ref()) {
                schema.retired = left_over(old, &schema);
                replaces = true;
            }
        }
        let load = match &change.arrival {
            Arrival::Created | Arrival::Shadow => false,
            // A table that the log shows without its CREATE TABLE had rows before.
            Arrival::Met => followed.is_none() && change.statement.is_none() && self.loads_rows(),
            Arrival::Renamed(_) if self.loads_rows() => true,
            Arrival::Renamed(from) => {
                return Err(format!(
                    "{from} was renamed to its name, and this job loads no rows from the source; they stay in the Delta table of {from}"
                ));
            }
        };
        Ok(SchemaRecord {
            defaults: change.defaults,
            copies,
            replaces,
            shadow: change.arrival == Arrival::Shadow,
            statement: change.statement,
            load,
            ..SchemaRecord::new(schema, change.position)
        })
    }

    fn policy(&self, table: &TableId) -> Policy {
        self.job.tables.settings(table).schema
    }

    async fn schema_step(&mut self, records: Vec<SchemaRecord>) -> Result<(), PipelineError> {
        let step = Step {
            work: Work::Schema { tables: records.clone() },
            end: self.position().clone(),
            commit_time_us: self.state.newest.commit_time_us,
        };
        let entry = self.enter(step).await?;
        let mut impossible = Vec::new();
        for record in records.iter().filter(|record| !record.shadow) {
            impossible.extend(self.evolve_table(record, &entry).await?);
        }
        self.leave(entry).await?;
        self.stop_tables(impossible).await
    }

    /// Gives a table its schema. What the lake can't do takes the table out, and no other: the reason comes back.
    pub(super) async fn evolve_table(
        &mut self,
        record: &SchemaRecord,
        entry: &LedgerEntry,
    ) -> Result<Option<(TableId, String)>, PipelineError> {
        let tag = self.tag(entry, &record.schema.table, None).at(&record.position);
        match self.apply.evolve(record, &tag).await {
            Ok(()) => Ok(None),
            Err(error) => {
                let table = record.schema.table.clone();
                let advice = match &error {
                    PipelineError::Lake(LakeError::Settings { .. }) => {
                        "change its settings under tables in the job file, move its Delta table away if there is one, and load it \
                         with: alluvium run --resnapshot"
                    }
                    _ => "move its Delta table away and load it again with: alluvium run --resnapshot",
                };
                let reason = format!("{}; {advice} {table}", error.into_table_fault(&table)?);
                Ok(Some((table, reason)))
            }
        }
    }

    /// Takes tables out, each with its reason, where the job stands now.
    pub(super) async fn stop_tables(&mut self, tables: Vec<(TableId, String)>) -> Result<(), PipelineError> {
        let position = self.position().position.clone();
        let record = |(table, reason)| StopRecord::fault(table, position.clone(), reason);
        self.take_out(tables.into_iter().map(record).collect()).await
    }

    /// Takes a table out of the job because it cannot be followed; all others go on.
    pub(super) async fn stop_table(
        &mut self,
        table: TableId,
        position: SourcePosition,
        reason: String,
    ) -> Result<(), PipelineError> {
        self.take_out(vec![StopRecord::fault(table, position, reason)]).await
    }

    /// Takes a table out of the job; all others go on. One whose name another has taken is loaded again soon.
    pub(super) async fn end_table(&mut self, stopped: TableStopped) -> Result<(), PipelineError> {
        let TableStopped { table, position, reason, mut ending, statement } = stopped;
        if ending == Ending::Replaced && self.loads_rows() {
            self.replaced.insert(table.clone());
        } else if ending == Ending::Replaced {
            ending = Ending::Fault;
        }
        self.take_out(vec![StopRecord { table, position, reason, ending, statement }]).await
    }

    /// In one step: a crash between two would leave the second with a batch that it lacks, and nobody would know.
    async fn take_out(&mut self, tables: Vec<StopRecord>) -> Result<(), PipelineError> {
        if tables.is_empty() {
            return Ok(());
        }
        for StopRecord { table, position, reason, .. } in &tables {
            if !self.state.shadows.contains_key(table) {
                tracing::warn!(%table, %position, reason, "table is taken out");
                self.environment.observer.table_stopped(table, reason);
            }
        }
        let step = Step {
            work: Work::Stop { tables },
            end: self.position().clone(),
            commit_time_us: self.state.newest.commit_time_us,
        };
        self.step(step).await
    }

    fn loads_rows(&self) -> bool {
        self.job.source.snapshot().is_some_and(|snapshot| snapshot.mode == SnapshotMode::Initial)
    }

    fn source_has_catalogue(&self) -> bool {
        self.job.source.snapshot().is_some()
    }

    fn patterns(&self) -> String {
        self.job.source.tables().patterns().map(|pattern| format!("{pattern:?}")).collect::<Vec<_>>().join(", ")
    }
}

/// A schema's columns and key as the source has them.
fn source_side(schema: &TableSchema) -> (Vec<Column>, &[usize]) {
    let columns =
        schema.columns.iter().map(|column| Column { lake: None, treatment: Treatment::Kept, ..column.clone() });
    (columns.collect(), &schema.key)
}

/// A table's present schema over the columns that the lake has of it; `None` if they would have to be made others.
fn laid_over(known: &TableSchema, now: &TableSchema) -> Option<TableSchema> {
    let Plan::Follow { schema, copies } = plan(known, now, &[], Policy::default()) else { return None };
    let is_same = |column: &Column| {
        let old = known.columns.iter().find(|old| old.lake_name() == column.lake_name());
        old.is_none_or(|old| old.lake_type() == column.lake_type()) && !column.lake_name().contains("__")
    };
    (copies.is_empty() && schema.columns.iter().all(is_same)).then_some(schema)
}

/// The lake's columns that a new table of the same name does not fill.
fn left_over(known: &TableSchema, now: &TableSchema) -> Vec<String> {
    let names = known.lake_names().into_iter().chain(known.retired.iter().map(String::as_str));
    let filled = now.lake_names();
    let is_filled = |name: &&str| filled.iter().any(|filled| filled.eq_ignore_ascii_case(name));
    names.filter(|name| !is_filled(name)).map(str::to_string).collect()
}

/// What its owner can do about a change that is not followed.
fn advice(table: &TableId) -> String {
    format!("to go on with its present columns: alluvium run --resnapshot {table}")
}
