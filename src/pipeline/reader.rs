//! Fills micro-batches from a stream of changes, and puts the rows of a first load in their place in the log.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::PipelineError;
use crate::batch::{MicroBatch, null_key};
use crate::change::{ChangeBatch, Ending, Losses, ResumePoint, SourcePosition, TableId};
use crate::clock::Clock;
use crate::source::{Boundary, ChangeStream, SchemaChange, SourceEvent, TableStopped};

/// How long a batch without rows is waited with: then the caller may save the position that has been reached.
const EMPTY_AGE_MAX: Duration = Duration::from_secs(10);

/// How long a run that is to stop waits for the end of the transaction that it is reading. It may be long in coming: a
/// prepared XA transaction holds back all that follows.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Why a batch is to be closed.
pub(super) enum Filled {
    /// It is full or old enough, or everything asked for is in it. It may be empty.
    Ready,
    /// The stream has ended, or the run is to stop.
    Ended,
    Schema(SchemaChange),
    Stopped(TableStopped),
}

/// Ends a while after the run is to stop.
async fn patience(stop: CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP_PATIENCE).await;
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

/// Rows of one table's first load, and their place in the log.
#[derive(Debug)]
pub(super) struct PlacedRows {
    pub low: SourcePosition,
    pub rows: Vec<ChangeBatch>,
    pub losses: Losses,
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
    /// Rows of first loads that wait for the log to reach their low watermark, the lowest first.
    waiting: VecDeque<PlacedRows>,
    /// Rows of first loads that were pushed since the last boundary, and the number of the `Rows` event that
    /// they were pushed with: a rollback of that event is none of theirs.
    placed: Vec<(usize, PlacedRows)>,
    /// Rows of a transaction were taken back that the stream does not give again: it has to be opened anew.
    is_torn: bool,
    /// Losses in the rows of first loads that no caller has taken yet.
    split_losses: BTreeMap<TableId, Losses>,
    /// The stream's losses when they were last taken.
    losses_taken: BTreeMap<TableId, Losses>,
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
        Self {
            stream,
            skip,
            clock,
            stop,
            at,
            waiting: VecDeque::new(),
            placed: Vec::new(),
            is_torn: false,
            split_losses: BTreeMap::new(),
            losses_taken: BTreeMap::new(),
            pushes: Vec::new(),
        }
    }

    pub fn skip(&mut self, table: &TableId) {
        self.skip.insert(table.clone());
    }

    /// The tables whose rows are not wanted.
    pub fn skipped(&self) -> &HashSet<TableId> {
        &self.skip
    }

    /// What could not be kept of the rows read since the last call.
    pub fn take_losses(&mut self) -> BTreeMap<TableId, Losses> {
        let mut losses = std::mem::take(&mut self.split_losses);
        for (table, now) in self.stream.losses() {
            let taken = self.losses_taken.insert(table.clone(), now).unwrap_or_default();
            *losses.entry(table).or_default() += now.since(taken);
        }
        losses
    }

    /// Whether only a new stream from [`Self::at`] can go on.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Has rows put where the log passes their low watermarks; those of one watermark in the given order.
    pub fn place(&mut self, rows: impl IntoIterator<Item = PlacedRows>) {
        self.waiting.extend(rows);
        self.waiting.make_contiguous().sort_by(|one, other| one.low.cmp(&other.low));
    }

    /// Reads into `batch` until it is to be closed. On return `batch` ends at a boundary, except that a batch
    /// which is cut may have more to come after [`Filled::Schema`] and [`Filled::Stopped`].
    pub async fn fill(&mut self, batch: &mut MicroBatch, until: &Until<'_>) -> Result<Filled, PipelineError> {
        self.check_low()?;
        self.place_here(batch, until)?;
        if self.reached(until) {
            return Ok(Filled::Ready);
        }
        self.stream.hurry(until.exactly && until.cut.is_none());
        let began = self.clock.instant();
        let mut out_of_patience = std::pin::pin!(patience(self.stop.clone()));
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled(), if self.pushes.is_empty() => return Ok(Filled::Ended),
                () = &mut out_of_patience, if !self.pushes.is_empty() => {
                    self.discard(batch, 0)?;
                    self.is_torn = true;
                    return Ok(Filled::Ended);
                }
                event = self.stream.next() => event?,
            };
            match event {
                None => return Ok(Filled::Ended),
                Some(SourceEvent::Rows(rows)) => match self.keyless(&rows) {
                    None => self.rows(batch, rows, until)?,
                    Some(stopped) => {
                        let position = stopped.position.clone();
                        return self.interrupted(batch, until, position, Filled::Stopped(stopped));
                    }
                },
                Some(SourceEvent::Boundary(boundary)) => {
                    self.boundary(batch, boundary, until)?;
                    let now = self.clock.instant();
                    let is_old = batch.is_empty() && now.saturating_duration_since(began) >= EMPTY_AGE_MAX;
                    if self.reached(until) || (!until.exactly && (is_old || batch.is_full(now))) {
                        return Ok(Filled::Ready);
                    }
                }
                Some(SourceEvent::Discard { keep }) => self.discard(batch, keep)?,
                Some(SourceEvent::Schema(change)) => {
                    return self.interrupted(batch, until, change.position.clone(), Filled::Schema(change));
                }
                Some(SourceEvent::TableStopped(stopped)) => {
                    return self.interrupted(batch, until, stopped.position.clone(), Filled::Stopped(stopped));
                }
            }
        }
    }

    /// What stops the table of `rows`, if one of them has no whole key.
    fn keyless(&self, rows: &ChangeBatch) -> Option<TableStopped> {
        if self.skip.contains(&rows.schema.table) {
            return None;
        }
        keyless(rows)
    }

    /// Meets news of a table that stand at `position`.
    fn interrupted(
        &mut self,
        batch: &mut MicroBatch,
        until: &Until<'_>,
        position: SourcePosition,
        news: Filled,
    ) -> Result<Filled, PipelineError> {
        match until.cut {
            // All that comes before the cut has been read, though its boundary is not told.
            Some(cut) if position > cut.position => {
                self.boundary(batch, Boundary { resume: cut.clone(), commit_time_us: None }, until)?;
                Ok(Filled::Ready)
            }
            Some(_) => Ok(news),
            None => {
                if !self.pushes.is_empty() {
                    self.discard(batch, 0)?;
                    self.is_torn = true;
                }
                Ok(news)
            }
        }
    }

    /// Changes between a low watermark and here would not be laid over the rows that were read after it.
    fn check_low(&self) -> Result<(), PipelineError> {
        match self.waiting.front() {
            Some(first) if first.low < self.at.position => {
                Err(PipelineError::SplitTooEarly { low: first.low.text.clone(), at: self.at.position.text.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Pushes the rows whose place is the last boundary, without waiting for the log to move: it may stand still.
    fn place_here(&mut self, batch: &mut MicroBatch, until: &Until<'_>) -> Result<(), PipelineError> {
        if self.pushes.is_empty() && self.waiting.front().is_some_and(|first| first.low <= self.at.position) {
            let here = Boundary { resume: self.at.clone(), commit_time_us: None };
            self.boundary(batch, here, until)?;
        }
        Ok(())
    }

    fn reached(&self, until: &Until<'_>) -> bool {
        let position = until.position.or(until.cut.map(|cut| &cut.position));
        self.waiting.is_empty() && position.is_some_and(|position| self.at.position >= *position)
    }

    fn rows(&mut self, batch: &mut MicroBatch, rows: ChangeBatch, until: &Until<'_>) -> Result<(), PipelineError> {
        let wanted = (!self.skip.contains(&rows.schema.table)).then_some(rows);
        let wanted = match (wanted, until.cut) {
            (Some(rows), Some(cut)) => rows.cut_at(&cut.position).0,
            (rows, _) => rows,
        };
        let mut pushed = self.pushes.last().copied().unwrap_or(0);
        if let Some(rows) = wanted {
            pushed += self.push_around_placed(batch, rows)?;
        }
        self.pushes.push(pushed);
        Ok(())
    }

    /// Pushes rows, and between them the waiting ones whose low watermark the log passes there. Gives the number of pushes.
    fn push_around_placed(&mut self, batch: &mut MicroBatch, rows: ChangeBatch) -> Result<usize, PipelineError> {
        let (mut pushed, mut rest) = (0, Some(rows));
        while let Some(rows) = rest.take() {
            let (before, after) = match self.waiting.front() {
                Some(next) => rows.cut_at(&next.low),
                None => (Some(rows), None),
            };
            if let Some(rows) = before {
                batch.push(rows)?;
                pushed += 1;
            }
            if after.is_some() {
                pushed += self.push_placed(batch)?;
                rest = after;
            }
        }
        Ok(pushed)
    }

    /// Pushes the first of the waiting rows.
    fn push_placed(&mut self, batch: &mut MicroBatch) -> Result<usize, PipelineError> {
        let Some(placed) = self.waiting.pop_front() else { return Ok(0) };
        for rows in &placed.rows {
            batch.push(rows.clone())?;
        }
        let pushed = placed.rows.len();
        self.placed.push((self.pushes.len(), placed));
        Ok(pushed)
    }

    fn boundary(&mut self, batch: &mut MicroBatch, boundary: Boundary, until: &Until<'_>) -> Result<(), PipelineError> {
        let resume = match until.cut {
            Some(cut) if boundary.resume.position >= cut.position => cut.clone(),
            _ => boundary.resume,
        };
        if resume.position < self.at.position {
            let (from, to) = (self.at.position.text.clone(), resume.position.text.clone());
            return Err(PipelineError::LogWentBack { from, to });
        }
        while self.waiting.front().is_some_and(|first| resume.position >= first.low) {
            self.push_placed(batch)?;
        }
        self.pushes.clear();
        for (_, placed) in self.placed.drain(..) {
            if let Some(rows) = placed.rows.first() {
                *self.split_losses.entry(rows.schema.table.clone()).or_default() += placed.losses;
            }
        }
        batch.boundary(Boundary { resume: resume.clone(), commit_time_us: boundary.commit_time_us });
        self.at = resume;
        Ok(())
    }

    /// `keep` counts `Rows` events; the batch counts pushes.
    fn discard(&mut self, batch: &mut MicroBatch, keep: usize) -> Result<(), PipelineError> {
        let kept = self.placed.partition_point(|(event, _)| *event < keep);
        for (_, placed) in self.placed.drain(kept..).rev() {
            self.waiting.push_front(placed);
        }
        self.pushes.truncate(keep);
        batch.discard(self.pushes.last().copied().unwrap_or(0))?;
        Ok(())
    }
}

/// What stops a table one of whose rows has no whole key: it could not be told from other such rows.
pub(super) fn keyless(rows: &ChangeBatch) -> Option<TableStopped> {
    let found = null_key(rows)?;
    let span = rows.transactions.iter().rev().find(|span| span.first_row <= found.row)?;
    let reason = format!(
        "a row has no value in key column {} (a date that is none, such as 0000-00-00, has none in the lake, nor has a number that its type does not hold); \
         mend the row in the source and load the table again, or give the table another key",
        found.column
    );
    let (table, position) = (rows.schema.table.clone(), span.position.clone());
    Some(TableStopped { table, position, reason, ending: Ending::Fault, statement: None })
}
