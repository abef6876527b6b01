//! The first load of a table, one key range at a time, in its place in the log.
//!
//! ```text
//! log      ──┬───────────────┬───────────────┬──────────▶
//!            position       low             high
//! batch      │ changes up to low │ the split's rows │ changes up to high │  one commit, at high
//! ```
//! The rows of a split are in the state that they had at some moment between the two watermarks, so the
//! changes after `low` are laid over them; the last change per key counts, and the commit is the table's
//! loaded part exactly as it was at `high`. Changes to rows that are not loaded yet are applied like all
//! others: when their split comes, it is placed at a later point of the log, and overwrites them by key.
//! So no change has to be compared with a key range, whatever the key's collation. The first split of a load
//! empties the table, so that a table can be loaded again.

use std::sync::Arc;

use super::PipelineError;
use super::reader::{Filled, Reader, Until, keyless};
use super::session::{Progress, Session};
use crate::change::{ChangeBatch, SourcePosition, TableId};
use crate::config::{Job, SourceConfig};
use crate::lake::{LoadState, SplitRecord};
use crate::source::{Split, SplitKey};

/// Rows of a table's first split when the job leaves it open: small, to learn how wide rows are.
const SPLIT_ROWS_FIRST: usize = 10_000;

/// Most rows of a split: bounds the time for which one query is open on the source.
const SPLIT_ROWS_MAX: usize = 500_000;

/// Share of the job's memory that the rows of one split may take.
const SPLIT_MEMORY_DIVISOR: usize = 8;

pub(super) fn first_split_rows(job: &Job) -> usize {
    match &job.source {
        SourceConfig::Mysql(mysql) if mysql.snapshot.split_rows > 0 => mysql.snapshot.split_rows,
        _ => SPLIT_ROWS_FIRST,
    }
}

impl Session<'_> {
    /// Loads the next split of the first table that is not loaded yet, and applies it with the changes around it.
    pub(super) async fn load_split(&mut self, reader: &mut Reader) -> Result<Progress, PipelineError> {
        let Some((table, index, after)) = self.state.next_load() else { return Ok(Progress::Going) };
        let (table, after) = (table.clone(), after.map(|key| SplitKey(key.to_string())));
        let after_is_start = after.is_none();
        let schema = self.state.tables.get(&table).and_then(|state| state.schema.clone());
        let schema = Arc::new(schema.expect("invariant: a table that is loaded has a schema"));
        let mut split = self.environment.source.read_split(&schema, after.as_ref(), self.split_rows).await?;
        self.learn_split_rows(&split);
        let record = SplitRecord {
            table: table.clone(),
            index,
            after: after.map(|key| key.0),
            last: split.last_key.as_ref().map(|key| key.0.clone()),
            rows: split.rows.iter().map(|rows| rows.operations.len() as u64).sum(),
        };
        if let Some(stopped) = split.rows.iter().find_map(keyless) {
            self.stop_table(stopped.table, split.high.position.clone(), stopped.reason).await?;
            self.skip_stopped(reader);
            return Ok(Progress::Going);
        }
        let high = split.high.position.clone();
        if after_is_start {
            let empty = ChangeBatch::truncate(&schema, split.low.position.clone(), self.environment.clock.unix_us());
            split.rows.insert(0, empty);
        }
        let mut batch = self.new_batch();
        reader.place(split);
        let until = Until { position: Some(&high), exactly: true, ..Until::default() };
        match reader.fill(&mut batch, &until).await? {
            Filled::Ready => {
                self.commit_batch(batch, Some(record)).await?;
                self.skip_stopped(reader);
                self.report_load(&table);
                Ok(Progress::Going)
            }
            Filled::Ended => Ok(Progress::Ended),
            // The split may have been read under the schema after the change: read all of this again, the
            // change first, then the split anew.
            interrupted => {
                drop(interrupted);
                self.pass(reader, &high).await
            }
        }
    }

    /// Goes on from the job's position without a split until the log has passed `position`.
    async fn pass(&mut self, reader: &mut Reader, position: &SourcePosition) -> Result<Progress, PipelineError> {
        *reader = self.read_from_here(reader.skipped().clone()).await?;
        while reader.at.position < *position && !self.environment.stop.is_cancelled() {
            let mut batch = self.new_batch();
            let until = Until { position: Some(position), ..Until::default() };
            let filled = reader.fill(&mut batch, &until).await?;
            self.commit_batch(batch, None).await?;
            self.skip_stopped(reader);
            if self.follow_up(filled, reader).await? == Progress::Ended {
                return Ok(Progress::Ended);
            }
        }
        Ok(Progress::Going)
    }

    /// Chooses the next split's rows so that they fit their share of the memory.
    fn learn_split_rows(&mut self, split: &Split) {
        let SourceConfig::Mysql(mysql) = &self.job.source else { return };
        let rows: usize = split.rows.iter().map(|rows| rows.operations.len()).sum();
        if mysql.snapshot.split_rows > 0 || rows == 0 {
            return;
        }
        let bytes: usize = split.rows.iter().map(|rows| rows.memory_bytes()).sum();
        let share = self.job.run.memory_bytes / SPLIT_MEMORY_DIVISOR;
        self.split_rows = (share / (bytes / rows).max(1)).clamp(1_000, SPLIT_ROWS_MAX);
    }

    fn report_load(&self, table: &TableId) {
        let Some(state) = self.state.tables.get(table) else { return };
        let estimated = self.rows_estimated.get(table).copied();
        match &state.load {
            LoadState::Loading { rows, .. } => {
                self.environment.observer.load_progress(table, *rows, estimated);
            }
            LoadState::Done => {
                let rows = self.tally.tables.get(table).map_or(0, |tally| tally.loaded);
                self.environment.observer.load_done(table, rows);
            }
        }
    }
}
