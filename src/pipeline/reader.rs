//! Fills micro-batches from a stream of changes, and puts the rows of a first load in their place in the log.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::PipelineError;
use crate::batch::MicroBatch;
use crate::change::{ChangeBatch, ResumePoint, SourcePosition, TableId};
use crate::clock::Clock;
use crate::source::{Boundary, ChangeStream, SchemaChange, SourceEvent, Split, TableStopped};

/// Why a batch is to be closed.
pub(super) enum Filled {
    /// It is full or old enough, or everything asked for is in it.
    Ready,
    /// The stream has ended, or the run is to stop.
    Ended,
    Schema(SchemaChange),
    Stopped(TableStopped),
}

/// Up to where to fill.
#[derive(Default)]
pub(super) struct Until<'a> {
    /// Stop at the first boundary at or after this position.
    pub position: Option<&'a SourcePosition>,
    /// Leave out everything after this position, which must be a boundary of an earlier run.
    pub cut: Option<&'a ResumePoint>,
    /// Only `position` and `cut` end the batch, not its size or age.
    pub exactly: bool,
}

/// A running read of the log, with what the pipeline keeps about it.
pub(super) struct Reader {
    stream: Box<dyn ChangeStream>,
    /// Tables whose rows are not wanted.
    skip: HashSet<TableId>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    /// The last boundary that was read.
    pub at: ResumePoint,
    /// Rows of a first load that wait for the log to reach their low watermark.
    waiting_split: Option<Split>,
    /// For each `Rows` event since the last boundary, how many pushes there had been after it.
    pushes: Vec<usize>,
}

impl Reader {
    pub fn new(
        stream: Box<dyn ChangeStream>,
        at: ResumePoint,
        skip: HashSet<TableId>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        Self { stream, skip, clock, stop, at, waiting_split: None, pushes: Vec::new() }
    }

    pub fn skip(&mut self, table: &TableId) {
        self.skip.insert(table.clone());
    }

    /// Has the rows of `split` put where the log passes its low watermark.
    pub fn place(&mut self, split: Split) {
        self.waiting_split = Some(split);
    }

    /// Reads into `batch` until it is to be closed. On return `batch` ends at a boundary.
    pub async fn fill(&mut self, batch: &mut MicroBatch, until: &Until<'_>) -> Result<Filled, PipelineError> {
        if self.reached(until) {
            return Ok(Filled::Ready);
        }
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled(), if self.pushes.is_empty() => return Ok(Filled::Ended),
                event = self.stream.next() => event?,
            };
            match event {
                None => return Ok(Filled::Ended),
                Some(SourceEvent::Rows(rows)) => self.rows(batch, rows, until)?,
                Some(SourceEvent::Boundary(boundary)) => {
                    self.boundary(batch, boundary, until)?;
                    if self.reached(until) || (!until.exactly && batch.is_full(self.clock.instant())) {
                        return Ok(Filled::Ready);
                    }
                }
                Some(SourceEvent::Discard { keep }) => self.discard(batch, keep)?,
                Some(SourceEvent::Schema(change)) => return Ok(Filled::Schema(change)),
                Some(SourceEvent::TableStopped(stopped)) => return Ok(Filled::Stopped(stopped)),
            }
        }
    }

    fn reached(&self, until: &Until<'_>) -> bool {
        let position = until.position.or(until.cut.map(|cut| &cut.position));
        self.waiting_split.is_none() && position.is_some_and(|position| self.at.position >= *position)
    }

    fn rows(&mut self, batch: &mut MicroBatch, rows: ChangeBatch, until: &Until<'_>) -> Result<(), PipelineError> {
        let wanted = (!self.skip.contains(&rows.schema.table)).then_some(rows);
        let wanted = match (wanted, until.cut) {
            (Some(rows), Some(cut)) => rows.cut_at(&cut.position).0,
            (rows, _) => rows,
        };
        let mut pushed = self.pushes.last().copied().unwrap_or(0);
        if let Some(rows) = wanted {
            pushed += self.push_around_split(batch, rows)?;
        }
        self.pushes.push(pushed);
        Ok(())
    }

    /// Pushes rows, and between them the waiting split if the log passes its low watermark there.
    fn push_around_split(&mut self, batch: &mut MicroBatch, rows: ChangeBatch) -> Result<usize, PipelineError> {
        let Some(split) = &self.waiting_split else {
            batch.push(rows)?;
            return Ok(1);
        };
        let (before, after) = rows.cut_at(&split.low.position);
        let mut pushed = 0;
        if let Some(rows) = before {
            batch.push(rows)?;
            pushed += 1;
        }
        if let Some(rows) = after {
            pushed += self.push_split(batch)?;
            batch.push(rows)?;
            pushed += 1;
        }
        Ok(pushed)
    }

    fn push_split(&mut self, batch: &mut MicroBatch) -> Result<usize, PipelineError> {
        let Some(split) = self.waiting_split.take() else { return Ok(0) };
        let pushed = split.rows.len();
        for rows in split.rows {
            batch.push(rows)?;
        }
        Ok(pushed)
    }

    fn boundary(&mut self, batch: &mut MicroBatch, boundary: Boundary, until: &Until<'_>) -> Result<(), PipelineError> {
        let resume = match until.cut {
            Some(cut) if boundary.resume.position >= cut.position => cut.clone(),
            _ => boundary.resume,
        };
        if self.waiting_split.as_ref().is_some_and(|split| resume.position >= split.low.position) {
            self.push_split(batch)?;
        }
        self.pushes.clear();
        batch.boundary(Boundary { resume: resume.clone(), commit_time_us: boundary.commit_time_us });
        self.at = resume;
        Ok(())
    }

    /// `keep` counts `Rows` events; the batch counts pushes.
    fn discard(&mut self, batch: &mut MicroBatch, keep: usize) -> Result<(), PipelineError> {
        self.pushes.truncate(keep);
        batch.discard(self.pushes.last().copied().unwrap_or(0))?;
        Ok(())
    }
}
