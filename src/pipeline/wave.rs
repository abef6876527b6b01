//! The reading side of first loads: several key ranges at once, each on a connection of its own.
//!
//! What is read together is a wave: ranges of one or several tables that follow each other in key order. It becomes part
//! of one batch, and while that batch is applied, the next wave is read already. A wave ends when it holds its share of
//! the memory, so what is read ahead is bounded whatever the rows are.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

use super::PipelineError;
use super::reader::{PlacedRows, keyless};
use crate::change::{ChangeBatch, ResumePoint, RowKey, SourcePosition, TableId};
use crate::lake::SplitRecord;
use crate::schema::TableSchema;
use crate::source::{KeyRange, Source, SourceError, SourceErrorKind, Split, SplitLimits, TableStopped};

/// What a split counts for beside its rows: its commit and its ledger record. Bounds the tables of a wave.
const SPLIT_BYTES: usize = 128 << 10;

/// A split is cut where so many rows should be; so many times that number are read, for rows that came since the
/// cut was chosen.
const ROWS_SLACK: usize = 2;

/// A table whose rows are still to be read.
#[derive(Debug, Clone)]
pub(super) struct LoadJob {
    pub schema: Arc<TableSchema>,
    /// Of the batch's split.
    pub index: u64,
    pub range: KeyRange,
    /// Rows of a split, about.
    pub rows: usize,
    /// The source's guess of all rows that are left.
    pub rows_left: Option<u64>,
    /// Rows that batches left out, to be read once more.
    pub unsettled: Vec<RowKey>,
    /// Nothing but those is left to be read.
    pub settling: bool,
}

/// How a wave is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaveLimits {
    /// Ranges that are read at once.
    pub readers: usize,
    /// What the wave may hold; each reader may pass it by one reader's share.
    pub bytes_max: usize,
    /// Rows of a batch; each reader may pass it by a split.
    pub rows_max: usize,
}

impl WaveLimits {
    /// Bytes that one read may bring.
    fn share(self) -> usize {
        (self.bytes_max / self.readers).max(1)
    }
}

/// The rows of one table in a wave.
#[derive(Debug)]
pub(super) struct Part {
    job: LoadJob,
    /// They follow each other.
    splits: Vec<Split>,
    settled: Option<Settled>,
}

/// Rows that were read by their keys.
#[derive(Debug)]
struct Settled {
    keys: Vec<RowKey>,
    split: Split,
}

/// What a batch loads of a table.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub record: SplitRecord,
    /// Of rows that had been left out and are part of the batch.
    pub settled: Vec<RowKey>,
}

/// What was read together, in the order of the jobs.
#[derive(Debug, Default)]
pub(super) struct Wave {
    pub parts: Vec<Part>,
    /// Why nothing was read: the source has other things to do.
    pub busy: Option<String>,
}

/// Reads the next ranges of `jobs`.
///
/// # Errors
/// [`PipelineError::Unloadable`] for what is one table's fault alone; what the source meets else.
pub(super) async fn read(
    source: Arc<dyn Source>,
    jobs: Vec<LoadJob>,
    limits: WaveLimits,
) -> Result<Wave, PipelineError> {
    let (mut wave, mut bytes, mut rows, mut splits) = (Wave::default(), 0, 0, 0);
    wave.busy = source.busy().await?;
    if wave.busy.is_some() {
        return Ok(wave);
    }
    for job in jobs.iter().filter(|job| job.settling || !job.unsettled.is_empty()) {
        let settled = read_unsettled(source.as_ref(), job, limits.share()).await;
        let settled = settled.map_err(|error| of_table(job.table(), error))?;
        bytes += SPLIT_BYTES + memory_bytes(&settled.split);
        wave.parts.push(Part { job: job.clone(), splits: Vec::new(), settled: Some(settled) });
    }
    let ranges = jobs.into_iter().filter(|job| !job.settling);
    let mut planner = Planner { source: Arc::clone(&source), jobs: ranges.collect() };
    let mut running: VecDeque<(LoadJob, Aborting<Result<Split, SourceError>>)> = VecDeque::new();
    loop {
        // Those that are running will bring as much as the others did.
        let with_running = |found: usize, running: usize| found + running * found / splits.max(1);
        while running.len() < limits.readers
            && with_running(bytes, running.len()) < limits.bytes_max
            && with_running(rows, running.len()) < limits.rows_max
        {
            let Some(job) = planner.next().await? else { break };
            let reading = read_split(Arc::clone(&source), job.clone(), limits.share());
            running.push_back((job, Aborting(tokio::spawn(reading))));
        }
        let Some((job, reading)) = running.pop_front() else { return Ok(wave) };
        let split = reading.await.map_err(|error| PipelineError::Reader { table: job.table().clone(), error })?;
        let split = split.map_err(|error| of_table(job.table(), error))?;
        bytes += SPLIT_BYTES + memory_bytes(&split);
        rows += rows_of(&split);
        splits += 1;
        if split.last_key != job.range.upto {
            // A limit cut it short. What comes after it in the table has to wait for the rows in between.
            planner.jobs.retain(|waiting| waiting.table() != job.table());
            running.retain(|(other, _)| other.table() != job.table());
        }
        wave.add(job, split);
    }
}

/// An error that one table's rows have caused, or may have.
fn of_table(table: &TableId, error: SourceError) -> PipelineError {
    match error.kind {
        SourceErrorKind::Unloadable => PipelineError::Unloadable { table: table.clone(), source: error },
        _ => error.into(),
    }
}

async fn read_split(source: Arc<dyn Source>, job: LoadJob, bytes_max: usize) -> Result<Split, SourceError> {
    let limits = SplitLimits { rows_max: job.rows.saturating_mul(ROWS_SLACK), bytes_max };
    source.read_split(&job.schema, &job.range, limits).await
}

/// Reads rows by their keys, or as many of them as the limits allow: at least one.
async fn read_unsettled(source: &dyn Source, job: &LoadJob, bytes_max: usize) -> Result<Settled, SourceError> {
    let mut keys = job.unsettled.clone();
    loop {
        let condition = Some(source.condition_of(&job.schema, &keys)?);
        let range = KeyRange { condition, ..KeyRange::default() };
        // One more than there are rows: a read that ends with the last of them is known to be whole.
        let limits = SplitLimits { rows_max: keys.len() + 1, bytes_max };
        let split = source.read_split(&job.schema, &range, limits).await?;
        if split.last_key.is_none() || keys.len() <= 1 {
            return Ok(Settled { keys, split });
        }
        keys.truncate(keys.len() / 2);
    }
}

fn rows_of(split: &Split) -> usize {
    split.rows.iter().map(|rows| rows.operations.len()).sum()
}

fn memory_bytes(split: &Split) -> usize {
    split.rows.iter().map(ChangeBatch::memory_bytes).sum()
}

/// Cuts the jobs' ranges into splits, one after the other.
struct Planner {
    source: Arc<dyn Source>,
    jobs: VecDeque<LoadJob>,
}

impl Planner {
    /// The next split, as a job with its range.
    async fn next(&mut self) -> Result<Option<LoadJob>, PipelineError> {
        let Some(job) = self.jobs.front_mut() else { return Ok(None) };
        let rows = u64::try_from(job.rows).unwrap_or(u64::MAX);
        // A guess may be off by half; one that is wrong by more costs a wave with few readers.
        let is_small = job.rows_left.is_some_and(|left| left.saturating_mul(2) <= rows);
        let cut = match is_small {
            true => None,
            false => {
                let cut = self.source.next_cut(&job.schema, &job.range, job.rows).await;
                cut.map_err(|error| of_table(job.table(), error))?
            }
        };
        job.rows_left = job.rows_left.map(|left| left.saturating_sub(rows)).filter(|left| *left > 0);
        let mut split = job.clone();
        match cut {
            Some(cut) => {
                split.range.upto = Some(cut.clone());
                job.range.after = Some(cut);
            }
            None => _ = self.jobs.pop_front(),
        }
        Ok(Some(split))
    }
}

impl LoadJob {
    pub fn table(&self) -> &TableId {
        &self.schema.table
    }
}

impl Wave {
    fn add(&mut self, job: LoadJob, split: Split) {
        match self.parts.iter_mut().find(|part| part.job.table() == job.table()) {
            Some(part) => part.splits.push(split),
            None => self.parts.push(Part { job, splits: vec![split], settled: None }),
        }
    }

    /// The last of the high watermarks.
    pub fn high(&self) -> Option<&ResumePoint> {
        let splits = self.parts.iter().flat_map(Part::all_splits);
        splits.map(|split| &split.high).max_by(|one, other| one.position.cmp(&other.position))
    }

    /// The first of the low watermarks.
    pub fn low(&self) -> Option<&SourcePosition> {
        self.parts.iter().map(Part::low).min()
    }

    /// All rows with their places. `now_us` is the time of the tables' emptying, in microseconds since 1970-01-01 UTC.
    pub fn into_placed(self, now_us: i64) -> Vec<PlacedRows> {
        self.parts.into_iter().flat_map(|part| part.into_placed(now_us)).collect()
    }
}

impl Part {
    pub fn job(&self) -> &LoadJob {
        &self.job
    }

    fn all_splits(&self) -> impl Iterator<Item = &Split> {
        self.splits.iter().chain(self.settled.as_ref().map(|settled| &settled.split))
    }

    fn low(&self) -> &SourcePosition {
        let lows = self.all_splits().map(|split| &split.low.position);
        lows.min().expect("invariant: a part has a split")
    }

    pub fn high(&self) -> &SourcePosition {
        let highs = self.all_splits().map(|split| &split.high.position);
        highs.max().expect("invariant: a part has a split")
    }

    /// Without those that were read once more.
    pub fn rows(&self) -> usize {
        self.splits.iter().map(rows_of).sum()
    }

    pub fn bytes(&self) -> usize {
        self.splits.iter().map(memory_bytes).sum()
    }

    /// The splits as one.
    pub fn loaded(&self) -> Loaded {
        let after = self.job.range.after.clone();
        // Without a split the load has come no further.
        let last = match self.splits.last() {
            Some(split) => split.last_key.clone(),
            None => after.clone(),
        };
        let record = SplitRecord {
            table: self.job.table().clone(),
            index: self.job.index,
            after: after.map(|key| key.0),
            last: last.map(|key| key.0),
            rows: self.rows() as u64,
            condition: self.job.range.condition.clone(),
            settling: self.job.settling,
            unsettled: false,
        };
        Loaded { record, settled: self.settled.as_ref().map(|settled| settled.keys.clone()).unwrap_or_default() }
    }

    /// What stops the table, if one of its rows has no whole key.
    pub fn keyless(&self) -> Option<TableStopped> {
        self.all_splits().flat_map(|split| &split.rows).find_map(keyless)
    }

    fn into_placed(self, now_us: i64) -> Vec<PlacedRows> {
        let mut placed = Vec::new();
        if self.loaded().record.empties() {
            // Before the rows of all splits, wherever each of them stands.
            let low = self.low().clone();
            let empty = ChangeBatch::truncate(&self.job.schema, low.clone(), now_us);
            placed.push(PlacedRows { low, rows: vec![empty], losses: Default::default() });
        }
        let settled = self.settled.map(|settled| settled.split);
        placed.extend(self.splits.into_iter().chain(settled).map(|split| PlacedRows {
            low: split.low.position,
            rows: split.rows,
            losses: split.losses,
        }));
        placed
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct Aborting<T>(pub JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for Aborting<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}
