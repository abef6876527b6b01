//! The first load of a table, some key ranges at a time, in their places in the log.
//!
//! ```text
//! log      ──┬───────┬───────┬───────────────┬───────┬──────▶
//!            position low 1   low 2          high 2  high 1
//! batch      │ changes up to low 1 │ rows 1 │ changes │ rows 2 │ changes up to the last high │  one commit there
//! ```
//! The rows of a split are in the state that they had at some moment between its two watermarks, so the
//! changes after `low` are laid over them; the last change per key counts, and the commit is the table's
//! loaded part exactly as it was at the last `high` of the batch. Changes to rows that are not loaded yet are applied like all
//! others: when their split comes, it is placed at a later point of the log, and overwrites them by key.
//! A change that leaves columns out needs the old row, and is left out itself where the table does not have that row yet. That is right if the row is
//! still to be read under the change's key. It is not if the row came there from another key, which was not read yet: the part of the table that it came to
//! may have been read already. Such rows are *unsettled*: the table's commits carry their keys, the next waves read them once more, and a load ends only when none is
//! left. So do rows with a changed document that were read without their place in the log being known, for a change may be in them already.
//!
//! So no change has to be compared with a key range, whatever the key's collation. The first split of a load
//! empties the table, so that a table can be loaded again.
//!
//! While a batch is applied the log stands still at its end, and the next splits are read: their `low` is not before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::PipelineError;
use super::reader::{Filled, Reader, Until};
use super::session::{Progress, Session};
use super::wave::{self, Aborting, LoadJob, Loaded, Wave, WaveLimits};
use crate::change::{RowKey, SourcePosition, TableId};
use crate::config::Job;
use crate::lake::LoadState;
use crate::source::{KeyRange, SourceErrorKind, SplitKey};

/// Rows of a table's first split when the job leaves it open: small, to learn how wide rows are.
const SPLIT_ROWS_FIRST: usize = 10_000;

/// Fewest and most rows of a split: below, the split's own statements cost more than its rows; above, nothing is gained.
const SPLIT_ROWS_MIN: usize = 1_000;
const SPLIT_ROWS_MAX: usize = 500_000;

/// Share of the job's memory that a wave may take. Two are there at once: one is read while the other is applied.
const WAVE_MEMORY_DIVISOR: usize = 8;

/// Splits that each reader gets of a wave: with one only, all others would wait for the slowest.
const SPLITS_PER_READER: usize = 3;

/// Rows that are read once more with a wave, of each table: their condition is a long one.
const UNSETTLED_ROWS: usize = 500;

/// Between two looks at a source that is too busy for a load.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// What is known about first loads, and the next wave.
pub(super) struct Loads {
    limits: WaveLimits,
    /// Rows of a split as the job file has them.
    split_rows: Option<usize>,
    /// Bytes of a row in memory, of tables of which some have been read.
    widths: HashMap<TableId, usize>,
    next: Option<Aborting<Result<Wave, PipelineError>>>,
    /// Tables that are to be loaded anew, once the log has been read up to now.
    held_back: HashSet<TableId>,
    /// The source was too busy when the last wave was to be read.
    is_waiting: bool,
}

impl Loads {
    pub fn new(job: &Job) -> Self {
        let snapshot = job.source.snapshot();
        let readers = snapshot.map_or(1, |snapshot| snapshot.readers).max(1);
        let bytes_max = job.run.memory_bytes / WAVE_MEMORY_DIVISOR;
        let limits = WaveLimits { readers, bytes_max, rows_max: job.run.batch_rows };
        let split_rows = snapshot.and_then(|snapshot| snapshot.split_rows);
        Self { limits, split_rows, widths: HashMap::new(), next: None, held_back: HashSet::new(), is_waiting: false }
    }

    /// Loads nothing of these tables, until it is called with others.
    pub fn hold_back(&mut self, tables: &HashSet<TableId>) {
        self.held_back.clone_from(tables);
    }

    /// How many rows a split of the table is to have, so that each reader gets some of a wave.
    fn split_rows(&self, table: &TableId) -> usize {
        if let Some(rows) = self.split_rows {
            return rows;
        }
        let Some(width) = self.widths.get(table) else { return SPLIT_ROWS_FIRST };
        let bytes = self.limits.bytes_max / (self.limits.readers * SPLITS_PER_READER);
        (bytes / width.max(&1)).clamp(SPLIT_ROWS_MIN, SPLIT_ROWS_MAX)
    }

    fn learn(&mut self, wave: &Wave) {
        for part in wave.parts.iter().filter(|part| part.rows() > 0) {
            self.widths.insert(part.job().table().clone(), part.bytes() / part.rows());
        }
    }
}

impl Session<'_> {
    /// Whether rows of first loads are to be read now.
    pub(super) fn has_loads(&self) -> bool {
        let mut loading = self.state.followed().filter(|(_, _, state)| state.load != LoadState::Done);
        loading.any(|(table, ..)| !self.loads.held_back.contains(table))
    }

    /// Loads the next splits of tables that are not loaded yet, and applies them with the changes around them.
    pub(super) async fn load_wave(&mut self, reader: &mut Reader) -> Result<Progress, PipelineError> {
        let mut wave = match self.next_wave(reader).await {
            Ok(Some(wave)) => wave,
            Ok(None) => return Ok(Progress::Ended),
            Err(PipelineError::Unloadable { table, source }) => {
                self.stop_tables(vec![(table, PipelineError::from(source).chain())]).await?;
                self.skip_stopped(reader);
                return Ok(Progress::Going);
            }
            Err(error) => return self.read_up_to_now(reader, error).await,
        };
        if let Some(reason) = wave.busy.take() {
            return self.follow_meanwhile(reader, &reason).await;
        }
        self.loads.is_waiting = false;
        self.loads.learn(&wave);
        self.stop_keyless(&mut wave).await?;
        self.skip_stopped(reader);
        let Some(high) = wave.high().map(|high| high.position.clone()) else { return Ok(Progress::Going) };
        let loaded: Vec<Loaded> = wave.parts.iter().map(wave::Part::loaded).collect();
        reader.place(wave.into_placed(self.environment.clock.unix_us()));
        let mut batch = self.new_batch();
        let until = Until { position: Some(&high), exactly: true, ..Until::default() };
        let began = self.environment.clock.instant();
        let filled = reader.fill(&mut batch, &until).await?;
        self.tally.stages.read += self.since(began);
        match filled {
            Filled::Ready => {
                self.read_ahead(&loaded);
                let tables: Vec<TableId> = loaded.iter().map(|loaded| loaded.record.table.clone()).collect();
                self.commit_batch(batch, loaded).await?;
                self.skip_stopped(reader);
                tables.iter().for_each(|table| self.report_load(table));
                Ok(Progress::Going)
            }
            Filled::Ended => Ok(Progress::Ended),
            // The splits may have been read under the schema after the change: read all of this again, the
            // change first, then the splits anew.
            interrupted => {
                drop(interrupted);
                self.pass(reader, &high).await
            }
        }
    }

    /// Meets a failure to read rows. Where their table has changed, the change is followed first: it would come too late
    /// otherwise, for rows go before changes. Unless a schema was changed by that, the error comes back for whoever decides on trying
    /// again.
    async fn read_up_to_now(&mut self, reader: &mut Reader, error: PipelineError) -> Result<Progress, PipelineError> {
        if !matches!(&error, PipelineError::Source(error) if error.kind == SourceErrorKind::Changed) {
            return Err(error);
        }
        let before = self.schema_versions();
        let now = self.environment.source.head().await?;
        let progress = self.pass(reader, &now.position).await?;
        if self.schema_versions() == before { Err(error) } else { Ok(progress) }
    }

    fn schema_versions(&self) -> Vec<(TableId, u32)> {
        self.state.followed().map(|(table, schema, _)| (table.clone(), schema.version)).collect()
    }

    /// The wave that was read ahead, or one read now. `None` if the run is to stop.
    async fn next_wave(&mut self, reader: &Reader) -> Result<Option<Wave>, PipelineError> {
        let stop = self.environment.stop.clone();
        loop {
            let (is_ahead, reading) = match self.loads.next.take() {
                Some(reading) => (true, reading),
                None => (false, self.read_wave(self.load_jobs(&[]))),
            };
            let wave = tokio::select! {
                wave = reading => wave.map_err(PipelineError::ReadAhead)??,
                () = stop.cancelled() => return Ok(None),
            };
            // What was read ahead is of no use after a table was taken out or changed, or when the log went on.
            if !is_ahead || (self.is_due(&wave) && wave.low().is_none_or(|low| *low >= reader.at.position)) {
                return Ok(Some(wave));
            }
        }
    }

    /// Whether the wave's splits are the next ones of their tables.
    fn is_due(&self, wave: &Wave) -> bool {
        wave.parts.iter().all(|part| {
            let Some(table) = self.state.tables.get(part.job().table()) else { return false };
            let (index, after) = (part.job().index, part.job().range.after.as_ref().map(|key| &key.0));
            let is_next = matches!(&table.load, LoadState::Loading { index: next, after: from, settling, .. }
                if *next == index && from.as_ref() == after && *settling == part.job().settling);
            is_next && table.stopped.is_none() && table.schema.as_ref() == Some(&*part.job().schema)
        })
    }

    /// Begins to read what comes after `loaded`, which is about to be applied.
    fn read_ahead(&mut self, loaded: &[Loaded]) {
        let jobs = self.load_jobs(loaded);
        self.loads.next = (!jobs.is_empty()).then(|| self.read_wave(jobs));
    }

    fn read_wave(&self, jobs: Vec<LoadJob>) -> Aborting<Result<Wave, PipelineError>> {
        let source = Arc::clone(&self.environment.source);
        Aborting(tokio::spawn(wave::read(source, jobs, self.loads.limits)))
    }

    /// What is left to be loaded once `loaded` is.
    fn load_jobs(&self, loaded: &[Loaded]) -> Vec<LoadJob> {
        let mut jobs = Vec::new();
        for (table, schema, state) in self.state.followed().filter(|(table, ..)| !self.loads.held_back.contains(table))
        {
            let done = loaded.iter().find(|loaded| loaded.record.table == *table);
            let load = done.map_or_else(|| state.load.clone(), |done| state.load.after(&done.record));
            let LoadState::Loading { index, after, rows, condition, settling } = load else { continue };
            let has_begun = after.is_some() || settling;
            let estimated = self.rows_estimated.get(table).filter(|_| condition.is_none());
            jobs.push(LoadJob {
                schema: Arc::new(schema.clone()),
                index,
                range: KeyRange { after: after.map(SplitKey), upto: None, condition },
                rows: self.loads.split_rows(table),
                rows_left: estimated.map(|all| all.saturating_sub(rows)).filter(|left| *left > 0),
                unsettled: if has_begun { self.next_unsettled(table, done) } else { Vec::new() },
                settling,
            });
        }
        jobs
    }

    /// Some of the rows that were left out of a table, those of `done` excepted.
    fn next_unsettled(&self, table: &TableId, done: Option<&Loaded>) -> Vec<RowKey> {
        let known = self.unsettled.get(table).into_iter().flatten();
        let is_due = |key: &&RowKey| done.is_none_or(|done| !done.settled.contains(key) && !done.record.empties());
        known.filter(is_due).take(UNSETTLED_ROWS).cloned().collect()
    }

    /// Takes out the tables that have rows without a whole key, and their rows from the wave.
    async fn stop_keyless(&mut self, wave: &mut Wave) -> Result<(), PipelineError> {
        let (stopped, parts) = std::mem::take(&mut wave.parts).into_iter().partition(|part| part.keyless().is_some());
        wave.parts = parts;
        let stopped: Vec<wave::Part> = stopped;
        for part in stopped {
            if let Some(found) = part.keyless() {
                self.stop_table(found.table, part.high().clone(), found.reason).await?;
            }
        }
        Ok(())
    }

    /// Goes on from the job's position without a split until the log has passed `position`.
    async fn pass(&mut self, reader: &mut Reader, position: &SourcePosition) -> Result<Progress, PipelineError> {
        *reader = self.read_from_here(reader.skipped().clone()).await?;
        self.follow_to(reader, position).await
    }

    /// Follows the log of all tables for a while, so that they do not wait for those whose rows the source holds back.
    async fn follow_meanwhile(&mut self, reader: &mut Reader, reason: &str) -> Result<Progress, PipelineError> {
        if !std::mem::replace(&mut self.loads.is_waiting, true) {
            tracing::info!(reason, "the first load waits for the source");
        }
        let now = self.environment.source.head().await?;
        let progress = self.follow_to(reader, &now.position).await?;
        tokio::select! {
            () = tokio::time::sleep(BUSY_PAUSE) => {}
            () = self.environment.stop.cancelled() => {}
        }
        Ok(progress)
    }

    async fn follow_to(&mut self, reader: &mut Reader, position: &SourcePosition) -> Result<Progress, PipelineError> {
        while reader.at.position < *position && !self.environment.stop.is_cancelled() {
            let mut batch = self.new_batch();
            let until = Until { position: Some(position), ..Until::default() };
            let filled = reader.fill(&mut batch, &until).await?;
            self.commit_batch(batch, Vec::new()).await?;
            self.skip_stopped(reader);
            if self.follow_up(filled, reader).await? == Progress::Ended {
                return Ok(Progress::Ended);
            }
        }
        Ok(Progress::Going)
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
