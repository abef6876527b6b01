//! Finishes the step that an earlier process left unfinished.

use std::collections::HashSet;
use std::sync::Arc;

use super::PipelineError;
use super::apply::{app_id, load_app_id, tag};
use super::reader::{Filled, Reader, Until};
use super::session::Session;
use crate::change::TableId;
use crate::lake::{LedgerEntry, Work};

impl Session<'_> {
    /// Compares the newest entry with each of its tables, and applies it where it is missing. Afterwards the
    /// tables are what the state says.
    pub(super) async fn recover(&mut self) -> Result<(), PipelineError> {
        let entry = self.state.newest.clone();
        match &entry.work {
            Work::Begin | Work::Stop { .. } => {}
            Work::Schema { tables } => {
                let mut impossible = Vec::new();
                for record in tables {
                    impossible.extend(self.evolve_table(record, &entry).await?);
                }
                self.stop_tables(impossible).await?;
            }
            Work::Batch { tables, .. } => {
                let missing = self.tables_without(&entry, tables).await?;
                if !missing.is_empty() {
                    tracing::info!(sequence = entry.sequence, tables = missing.len(), "finishing an interrupted batch");
                    self.redo(&entry, &missing).await?;
                }
            }
        }
        self.revert_lost_split().await
    }

    /// Of the entry's tables those that do not carry its number.
    async fn tables_without(
        &mut self,
        entry: &LedgerEntry,
        tables: &[TableId],
    ) -> Result<HashSet<TableId>, PipelineError> {
        let mut missing = HashSet::new();
        for table in tables {
            let applied = self.apply.applied(table, &app_id(&self.job.name)).await?;
            let applied = applied.ok_or_else(|| PipelineError::TableWithoutTxn { table: table.clone() })?;
            if applied < i64::try_from(entry.sequence).unwrap_or(i64::MAX) {
                missing.insert(table.clone());
            }
        }
        Ok(missing)
    }

    /// Reads the entry's batch again from the log and applies it to `missing`. The rows of a first load that
    /// were part of it are left out: the split is read again later.
    async fn redo(&mut self, entry: &LedgerEntry, missing: &HashSet<TableId>) -> Result<(), PipelineError> {
        self.environment.source.check_held(&entry.start).await?;
        let followed = self.state.followed();
        let schemas = followed
            .filter(|(table, _, _)| missing.contains(*table))
            .map(|(table, schema, _)| (table.clone(), Arc::new(schema.clone())))
            .collect();
        let skip: HashSet<TableId> =
            self.state.tables.keys().filter(|table| !missing.contains(*table)).cloned().collect();
        let stream = self.environment.source.stream(&entry.start, schemas, skip.clone()).await?;
        let (clock, stop) = (Arc::clone(&self.environment.clock), self.environment.stop.clone());
        let mut reader = Reader::new(stream, entry.start.clone(), skip, clock, stop);
        let mut batch = self.new_batch();
        let until = Until { cut: Some(&entry.end), exactly: true, ..Until::default() };
        loop {
            match reader.fill(&mut batch, &until).await? {
                Filled::Ready => break,
                // A table that joined later, seen in the old part of the log.
                Filled::Schema(change) if !missing.contains(&change.schema.table) => {
                    reader.skip(&change.schema.table);
                }
                Filled::Stopped(stopped) if !missing.contains(&stopped.table) => reader.skip(&stopped.table),
                Filled::Ended | Filled::Schema(_) | Filled::Stopped(_) => {
                    let (expected, found) = (entry.end.position.text.clone(), reader.at.position.text.clone());
                    return Err(PipelineError::LogChanged { expected, found });
                }
            }
        }
        let tag = tag(&self.job.name, entry);
        let mut changes = batch.close()?.tables;
        for table in missing {
            let keyed = self.keyed_or_none(table, changes.remove(table))?;
            self.apply.apply(table, keyed, &tag).await?;
        }
        Ok(())
    }

    /// A split counts as done only if its table says so.
    async fn revert_lost_split(&mut self) -> Result<(), PipelineError> {
        let Some(split) = self.state.last_split.clone() else { return Ok(()) };
        let done = self.apply.applied(&split.table, &load_app_id(&self.job.name)).await?;
        if done.unwrap_or(0) <= i64::try_from(split.index).unwrap_or(i64::MAX) {
            self.state.revert_split(&split);
        }
        Ok(())
    }
}
