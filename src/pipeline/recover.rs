//! Finishes the step that an earlier process left unfinished.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::PipelineError;
use super::apply::app_id;
use super::reader::{Filled, Reader, Until};
use super::session::{Progress, Session};
use crate::batch::{AbsentRows, TableChanges};
use crate::change::{RowKey, TableId};
use crate::lake::{LedgerEntry, LoadState, SplitRecord, Work};

/// The rows of a first load of the table that were part of the entry's batch.
fn split_of<'a>(entry: &'a LedgerEntry, table: &TableId) -> Option<&'a SplitRecord> {
    let Work::Batch { splits, .. } = &entry.work else { return None };
    splits.iter().find(|split| split.table == *table)
}

fn is_at_fault(faults: &[(TableId, String)], table: &TableId) -> bool {
    faults.iter().any(|(known, _)| known == table)
}

impl Session<'_> {
    /// Compares the newest entry with each of its tables, and applies it where it is missing. Afterwards the
    /// tables are what the state says, unless the run was stopped meanwhile: then [`Progress::Ended`] is the result.
    pub(super) async fn recover(&mut self) -> Result<Progress, PipelineError> {
        let entry = self.state.newest.clone();
        let mut faults = self.read_unsettled().await?;
        match &entry.work {
            Work::Begin | Work::TakeOver { .. } | Work::Stop { .. } => {}
            Work::Schema { tables } => {
                // One that is not selected any more is taken out before anything is asked of it.
                for record in tables.iter().filter(|record| !record.shadow) {
                    if !self.selects(&record.schema.table) || is_at_fault(&faults, &record.schema.table) {
                        continue;
                    }
                    faults.extend(self.evolve_table(record, &entry).await?);
                }
            }
            Work::Batch { tables, .. } => {
                let (mut missing, found) = self.tables_without(&entry, tables).await?;
                faults.extend(found.into_iter().filter(|(table, _)| !is_at_fault(&faults, table)).collect::<Vec<_>>());
                missing.retain(|table| !is_at_fault(&faults, table));
                // What is not selected any more is not read; such a table is taken out before anything else happens.
                missing.retain(|table| self.selects(table));
                if !missing.is_empty() {
                    tracing::info!(sequence = entry.sequence, tables = missing.len(), "finishing an interrupted batch");
                    match self.redo(&entry, &missing).await? {
                        Some(found) => faults.extend(found),
                        None => return Ok(Progress::Ended),
                    }
                }
            }
        }
        // Before the next step: its point would stand at this one's end without this one's versions.
        self.record_missing_point().await?;
        self.stop_tables(faults).await?;
        self.revert_lost_splits().await?;
        Ok(Progress::Going)
    }

    /// Of the entry's tables those that do not carry its number, and those that cannot be asked, with the reason.
    async fn tables_without(
        &mut self,
        entry: &LedgerEntry,
        tables: &[TableId],
    ) -> Result<(HashSet<TableId>, Vec<(TableId, String)>), PipelineError> {
        let (mut missing, mut faults) = (HashSet::new(), Vec::new());
        for table in tables {
            let applied = match self.apply.applied(table, &app_id(&self.job.name)).await {
                Ok(Some(applied)) => Ok(applied),
                Ok(None) => Err(PipelineError::TableWithoutTxn { table: table.clone() }),
                Err(error) => Err(error),
            };
            let applied = match applied {
                Ok(applied) => applied,
                Err(error) => {
                    faults.push((table.clone(), error.into_table_fault(table)?));
                    continue;
                }
            };
            if applied < i64::try_from(entry.sequence).unwrap_or(i64::MAX) {
                missing.insert(table.clone());
            }
        }
        Ok((missing, faults))
    }

    /// Reads the entry's batch again from the log and applies it to `missing`. The rows of a first load that
    /// were part of it are left out: the split is read again later. `None` if the run was stopped meanwhile; else the
    /// tables that could not take their changes, with the reason.
    async fn redo(
        &mut self,
        entry: &LedgerEntry,
        missing: &HashSet<TableId>,
    ) -> Result<Option<Vec<(TableId, String)>>, PipelineError> {
        self.environment.source.check_held(&entry.start).await?;
        let followed = self.state.followed();
        let schemas = followed
            .filter(|(table, _, _)| missing.contains(*table))
            .map(|(table, schema, _)| (table.clone(), Arc::new(schema.clone())))
            .collect();
        let skip: HashSet<TableId> =
            self.state.tables.keys().filter(|table| !missing.contains(*table)).cloned().collect();
        let stream = self.environment.source.stream_again(&entry.start, &entry.end, schemas, skip.clone()).await?;
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
                Filled::Ended if self.environment.stop.is_cancelled() => return Ok(None),
                Filled::Ended | Filled::Schema(_) | Filled::Stopped(_) => {
                    let (expected, found) = (entry.end.position.text.clone(), reader.at.position.text.clone());
                    return Err(PipelineError::LogChanged { expected, found });
                }
            }
        }
        // Rows of a first load that the source noted without a change to the log have no changes around them.
        let mut changes = if batch.end().is_some() { batch.close()?.tables } else { BTreeMap::new() };
        let mut faults = Vec::new();
        for table in missing {
            if let Err(error) = self.redo_table(entry, table, changes.remove(table)).await {
                faults.push((table.clone(), error.into_table_fault(table)?));
            }
        }
        Ok(Some(faults))
    }

    async fn redo_table(
        &mut self,
        entry: &LedgerEntry,
        table: &TableId,
        changes: Option<TableChanges>,
    ) -> Result<(), PipelineError> {
        let tag = self.tag(entry, table, None);
        // The rows of a split that was part of the batch are read again later.
        let absent_rows = match split_of(entry, table) {
            Some(split) if split.empties() => AbsentRows::Expected,
            Some(_) => AbsentRows::Noted,
            None => self.absent_rows(table),
        };
        let keyed = self.keyed_or_none(table, changes)?.with_absent_rows(absent_rows);
        let outcome = self.apply.apply(table, keyed, &tag).await?;
        self.note_unsettled(table, &outcome).await
    }

    /// Asks the tables that are being loaded which rows were left out of them so far. Those that cannot be asked come back with the reason.
    async fn read_unsettled(&mut self) -> Result<Vec<(TableId, String)>, PipelineError> {
        let splits = self.state.last_splits.clone();
        let followed = self.state.followed().map(|(table, _, state)| (table.clone(), state.load == LoadState::Done));
        let followed: Vec<(TableId, bool)> = followed.filter(|(table, _)| self.selects(table)).collect();
        let mut faults = Vec::new();
        for (table, is_done) in followed {
            // A load that is over goes on if its last split turns out to be lost.
            let last = splits.iter().find(|split| split.table == table);
            match self.unsettled_of(&table, last.filter(|_| is_done), is_done).await {
                Ok(keys) if keys.is_empty() => {}
                Ok(keys) => _ = self.unsettled.insert(table, keys),
                Err(error) => faults.push((table.clone(), error.into_table_fault(&table)?)),
            }
        }
        Ok(faults)
    }

    async fn unsettled_of(
        &mut self,
        table: &TableId,
        last: Option<&SplitRecord>,
        is_done: bool,
    ) -> Result<BTreeSet<RowKey>, PipelineError> {
        let is_over = match last {
            Some(split) => self.has_split(split).await?,
            None => is_done,
        };
        if is_over { Ok(BTreeSet::new()) } else { self.apply.unsettled(table, &app_id(&self.job.name)).await }
    }

    /// A split counts as done only if its table says so.
    async fn revert_lost_splits(&mut self) -> Result<(), PipelineError> {
        let (mut lost, mut faults) = (Vec::new(), Vec::new());
        for split in self.state.last_splits.clone() {
            if self.is_stopped(&split.table) {
                continue;
            }
            match self.has_split(&split).await {
                Ok(true) => {}
                Ok(false) => lost.push(split),
                Err(error) => faults.push((split.table.clone(), error.into_table_fault(&split.table)?)),
            }
        }
        self.stop_tables(faults).await?;
        if !lost.is_empty() {
            self.state.revert_splits(&lost);
            // At once: later splits would take the place of these as the last that may be missing.
            self.ledger.fold(&self.state, true).await?;
        }
        Ok(())
    }
}
