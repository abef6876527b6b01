//! Notes after each step which version of each table is complete up to its end.

use super::PipelineError;
use super::apply::app_id;
use super::session::Session;
use crate::change::TableId;
use crate::lake::{
    CommitOutcome, FOLD_POINTS_MIN, LedgerEntry, LoadState, Point, PointState, PointTable, SchemaStatus, Work, notes_of,
};

impl Session<'_> {
    /// Notes the version that a step has made of a table.
    pub(super) async fn note_version(
        &mut self,
        table: &TableId,
        entry: &LedgerEntry,
        outcome: &CommitOutcome,
    ) -> Result<(), PipelineError> {
        let version = match outcome {
            CommitOutcome::Committed(summary) => u64::try_from(summary.version).ok(),
            // Others may have committed since: the log tells which commit it was.
            _ => self.version_of(table, entry).await?,
        };
        self.versions.insert(table.clone(), version);
        Ok(())
    }

    /// Keeps the point that `entry`, the newest step, has left behind. All its commits are there.
    pub(super) async fn record_point(&mut self, entry: &LedgerEntry) -> Result<(), PipelineError> {
        let is_schema = matches!(entry.work, Work::Schema { .. });
        let mut tables = Vec::new();
        for table in tables_of(&entry.work) {
            let version = match self.versions.get(&table) {
                Some(version) => *version,
                None if is_schema => self.version_of(&table, entry).await?,
                None => None,
            };
            tables.push(self.at_point(table, version));
        }
        self.versions.clear();
        self.put_point(entry, tables).await
    }

    /// Keeps the newest step's point where an earlier process did not come to it. A job that has no points yet begins
    /// with one of all its tables.
    pub(super) async fn record_missing_point(&mut self) -> Result<(), PipelineError> {
        let entry = self.state.newest.clone();
        let newest = self.points.newest().await?;
        if newest.is_some_and(|newest| newest >= entry.sequence) || entry.work == Work::Begin {
            return Ok(());
        }
        let is_next = newest.unwrap_or(0) + 1 == entry.sequence || entry.sequence <= 2;
        let touched = if is_next { tables_of(&entry.work) } else { self.state.tables.keys().cloned().collect() };
        let mut tables = Vec::new();
        for table in touched {
            let version = match is_next {
                true => self.version_of(&table, &entry).await?,
                false => self.newest_version(&table).await?,
            };
            tables.push(self.at_point(table, version));
        }
        self.put_point(&entry, tables).await
    }

    async fn put_point(&mut self, entry: &LedgerEntry, tables: Vec<PointTable>) -> Result<(), PipelineError> {
        let now_us = self.environment.clock.unix_us();
        let point = Point::new(entry.sequence, entry.end.clone(), entry.commit_time_us, now_us, tables);
        let point = Point { schemas: notes_of(entry, SchemaStatus::Applied), ..point };
        self.points.put(&point).await?;
        self.points_unfolded += 1;
        Ok(())
    }

    /// Folds old points once there are enough. A failure is met the next time.
    pub(super) async fn fold_points(&mut self, at_end: bool) {
        if !at_end && self.points_unfolded < FOLD_POINTS_MIN {
            return;
        }
        self.points_unfolded = 0;
        if let Err(error) = self.points.fold(FOLD_POINTS_MIN).await {
            tracing::warn!(error = %PipelineError::from(error).chain(), "points could not be folded, they stay as they are");
        }
    }

    fn at_point(&self, table: TableId, version: Option<u64>) -> PointTable {
        let known = self.state.tables.get(&table);
        let state = match known {
            Some(known) if known.stopped.is_none() && version.is_some() => match known.load {
                LoadState::Loading { .. } => PointState::Loading,
                LoadState::Done => PointState::Complete,
            },
            _ => PointState::Stopped,
        };
        PointTable { table, version, state }
    }

    /// The version that carries the step's number; `None` if the table has none, or is at fault.
    async fn version_of(&mut self, table: &TableId, entry: &LedgerEntry) -> Result<Option<u64>, PipelineError> {
        let app_id = app_id(&self.job.name);
        match self.apply.version_of(table, &app_id, entry.sequence).await {
            Ok(version) => Ok(version),
            Err(error) => error.into_table_fault(table).map(|_| None),
        }
    }

    /// `None` for a table that is at fault, or not there.
    async fn newest_version(&mut self, table: &TableId) -> Result<Option<u64>, PipelineError> {
        match self.apply.applied(table, &app_id(&self.job.name)).await {
            Ok(_) => Ok(self.apply.version(table).and_then(|version| u64::try_from(version).ok())),
            Err(error) => error.into_table_fault(table).map(|_| None),
        }
    }
}

/// The tables that a step touches.
pub(super) fn tables_of(work: &Work) -> Vec<TableId> {
    match work {
        Work::Begin | Work::TakeOver { .. } => Vec::new(),
        Work::Batch { tables, .. } => tables.clone(),
        Work::Schema { tables } => {
            let captured = tables.iter().filter(|record| !record.shadow);
            captured.map(|record| record.schema.table.clone()).collect()
        }
        Work::Stop { tables } => tables.iter().map(|record| record.table.clone()).collect(),
    }
}
