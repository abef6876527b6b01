//! One try of a run: from the lake's state to the end of the log, or to the first error.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::apply::{self, Apply, LakeApply};
use super::load::Loads;
use super::reader::{Filled, Reader, Until};
use super::wave::Loaded;
use super::{BatchReport, Environment, PipelineError, RunOptions, RunOutcome, Stages, TableOutcome};
use crate::batch::{AbsentRows, BatchLimits, KeyedChanges, MicroBatch, SpillDir, TableChanges};
use crate::change::{Ending, Losses, ResumePoint, RowKey, SourcePosition, TableId};
use crate::config::Job;
use crate::failpoint;
use crate::lake::{
    CommitOutcome, CommitTag, JobState, Ledger, LedgerEntry, LedgerError, LoadState, Points, SplitRecord, Stopped, Work,
};
use crate::maintain::{Chore, ChoreReport, Upkeep};
use crate::schema::TableSchema;
use crate::source::{Source, Standing};

/// Share of the job's memory that a batch holds before it spills. The rest is for the decoder's chunk, the
/// upsert, and what the allocator keeps.
const BATCH_MEMORY_DIVISOR: usize = 4;

/// How long a run that follows lets its position run ahead of the ledger when the log holds nothing for it,
/// in microseconds.
const IDLE_ENTRY_EVERY_US: i64 = 60_000_000;

/// After so long since the last step, in microseconds, the process may have been paused while another went on. Far less than the steps take
/// that the ledger keeps.
const MAY_HAVE_SLEPT_US: i64 = 2_000_000;

/// Whether there is more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Going,
    Ended,
}

/// What the tries of a run have done together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub batches: u64,
    pub tables: BTreeMap<TableId, TableTally>,
    /// The tries so far, as the ledger names them.
    runs: Vec<Uuid>,
    /// The newest entry that a try has seen or written.
    sequence: u64,
    pub stages: Stages,
    /// What upkeep did, summed up by table and chore.
    pub maintained: BTreeMap<(TableId, Chore), ChoreReport>,
}

#[derive(Debug, Default)]
pub(super) struct TableTally {
    pub loaded: u64,
    pub upserted: u64,
    pub deleted: u64,
    pub losses: Losses,
}

impl Tally {
    pub fn note_upkeep(&mut self, report: ChoreReport) {
        match self.maintained.entry((report.table.clone(), report.chore)) {
            Entry::Occupied(mut known) => known.get_mut().add(report),
            Entry::Vacant(place) => _ = place.insert(report),
        }
    }

    /// Between two tries of a run, no other process may have written steps of the job: it would go on doing so.
    fn check_alone(&mut self, job: &Job, state: &JobState) -> Result<(), LedgerError> {
        let is_ours = self.runs.is_empty() || self.runs.contains(&state.newest.run);
        if !is_ours && state.newest.sequence > self.sequence {
            return Err(LedgerError::OtherWriter { job: job.name.clone(), sequence: state.newest.sequence });
        }
        self.sequence = state.newest.sequence;
        Ok(())
    }
}

pub(super) struct Session<'a> {
    pub job: &'a Job,
    pub options: &'a mut RunOptions,
    pub environment: Environment,
    pub tally: &'a mut Tally,
    pub ledger: Ledger,
    pub state: JobState,
    pub points: Points,
    /// The versions that the present step has made; `None` where it is not known.
    pub versions: BTreeMap<TableId, Option<u64>>,
    /// Points written since the last fold.
    pub points_unfolded: usize,
    pub apply: Box<dyn Apply>,
    pub upkeep: Upkeep,
    /// Whose turn it is.
    pub upkeep_turn: usize,
    /// The source's guess of each table's rows, for progress only.
    pub rows_estimated: HashMap<TableId, u64>,
    /// Rows that batches left out of tables that are being loaded; they are to be read once more.
    pub unsettled: BTreeMap<TableId, BTreeSet<RowKey>>,
    /// What is known about the tables' first loads, and the rows that are being read for the next batch.
    pub loads: Loads,
    /// Tables whose names others have taken: they are loaded once the log has been read up to now.
    pub replaced: HashSet<TableId>,
    /// The newest entry's work is still to be finished: the run was stopped before it was.
    pub is_unfinished: bool,
}

/// A closed batch's way into the ledger.
pub(super) struct Step {
    pub work: Work,
    pub end: ResumePoint,
    pub commit_time_us: Option<i64>,
}

/// Takes up the job at its source: the step with which another server takes over, if one does.
async fn take_up(source: &dyn Source, state: &JobState) -> Result<Option<Step>, PipelineError> {
    let known = &state.newest.identity;
    match source.take_up(known, &state.newest.end).await? {
        Standing::Same => Ok(None),
        Standing::Other { found, why_not } => Err(PipelineError::OtherSource { known: known.clone(), found, why_not }),
        Standing::Successor { identity, at } => {
            tracing::warn!(%known, %identity, "another server has taken over: it has the same transactions, the job goes on with it");
            let work = Work::TakeOver { identity };
            Ok(Some(Step { work, end: at, commit_time_us: state.newest.commit_time_us }))
        }
    }
}

impl<'a> Session<'a> {
    /// Opens the lake, finds out where the job stands, and finishes a step that an earlier process left.
    pub async fn open(
        job: &'a Job,
        options: &'a mut RunOptions,
        environment: Environment,
        tally: &'a mut Tally,
    ) -> Result<Self, PipelineError> {
        environment.lake.probe().await?;
        let run = Uuid::new_v4();
        let ledger = Ledger::new(environment.lake.store(), &job.name, run);
        let mut successor = None;
        let state = match ledger.load().await? {
            Some(state) => {
                successor = take_up(environment.source.as_ref(), &state).await?;
                state
            }
            None => {
                let identity = environment.source.identity().await?;
                let start = environment.source.start().await?;
                let entry = LedgerEntry::begin(run, environment.clock.unix_us(), identity, start);
                ledger.put(&entry).await?;
                JobState::begin(entry).expect("invariant: this is a first entry")
            }
        };
        tally.check_alone(job, &state)?;
        tally.runs.push(run);
        let apply = Box::new(LakeApply::new(environment.lake.clone(), job.hash_key.clone()));
        let clock = Arc::clone(&environment.clock);
        let upkeep = Upkeep::load(&job.name, &job.maintain, &environment.lake, clock).await;
        let rows_estimated = HashMap::new();
        let points = Points::new(&environment.lake, &job.name);
        let mut session = Self {
            job,
            options,
            environment,
            tally,
            ledger,
            state,
            points,
            versions: BTreeMap::new(),
            points_unfolded: 0,
            apply,
            upkeep,
            upkeep_turn: 0,
            rows_estimated,
            unsettled: BTreeMap::new(),
            loads: Loads::new(job),
            replaced: HashSet::new(),
            is_unfinished: false,
        };
        session.is_unfinished = session.recover().await? == Progress::Ended;
        if !session.is_unfinished {
            session.record_missing_point().await?;
            if let Some(step) = successor {
                session.step(step).await?;
            }
        }
        Ok(session)
    }

    /// Reads and applies until the run's end.
    pub async fn run(&mut self) -> Result<(), PipelineError> {
        if self.is_unfinished {
            return Ok(());
        }
        self.stop_unselected().await?;
        self.stop_ruled_otherwise().await?;
        self.environment.source.check_held(self.position()).await?;
        let mut late = self.adopt_tables().await?;
        self.loads.hold_back(&late);
        let mut reader = self.read_from_here(late.clone()).await?;
        let mut target = self.environment.source.head().await?;
        while !self.environment.stop.is_cancelled() {
            if !self.replaced.is_empty() {
                late.extend(std::mem::take(&mut self.replaced));
                self.loads.hold_back(&late);
                target = self.environment.source.head().await?;
            }
            let at_target = reader.at.position >= target.position;
            let bounded = !self.options.follow || !late.is_empty();
            if !late.is_empty() && at_target {
                self.move_to(&reader).await?;
                self.join(std::mem::take(&mut late)).await?;
                self.loads.hold_back(&late);
                reader = self.read_from_here(HashSet::new()).await?;
                target = self.environment.source.head().await?;
            } else if self.has_loads() {
                let progress = self.load_wave(&mut reader).await?;
                self.count_losses(&mut reader);
                if progress == Progress::Ended {
                    return self.ledger.fold(&self.state, true).await.map_err(PipelineError::from);
                }
            } else if (at_target && !self.options.follow)
                || self.read_batch(&mut reader, bounded.then_some(&target.position)).await? == Progress::Ended
            {
                break;
            } else {
                self.keep_up_a_little().await;
            }
        }
        self.move_to(&reader).await?;
        self.ledger.fold(&self.state, true).await?;
        self.keep_up().await;
        Ok(())
    }

    /// Reads one batch, up to `until` at most, applies it, and meets what ended it.
    async fn read_batch(
        &mut self,
        reader: &mut Reader,
        until: Option<&SourcePosition>,
    ) -> Result<Progress, PipelineError> {
        let mut batch = self.new_batch();
        failpoint::hit(failpoint::READ_BEFORE);
        let began = self.environment.clock.instant();
        let filled = reader.fill(&mut batch, &Until { position: until, ..Until::default() }).await?;
        self.tally.stages.read += self.since(began);
        let age_us = self.environment.clock.unix_us() - self.state.newest.created_at_us;
        if batch.is_empty() && matches!(filled, Filled::Ready) {
            self.environment.observer.waiting(&reader.at.position.text);
        }
        if !batch.is_empty() || age_us > IDLE_ENTRY_EVERY_US {
            self.commit_batch(batch, Vec::new()).await?;
            self.skip_stopped(reader);
        }
        self.count_losses(reader);
        self.follow_up(filled, reader).await
    }

    /// Meets what ended a batch.
    pub(super) async fn follow_up(&mut self, filled: Filled, reader: &mut Reader) -> Result<Progress, PipelineError> {
        match filled {
            Filled::Ready => Ok(Progress::Going),
            Filled::Ended => Ok(Progress::Ended),
            Filled::Schema(change) => {
                self.move_to(reader).await?;
                let announced = Arc::clone(&change.schema);
                self.change_schema(change).await?;
                self.skip_stopped(reader);
                // The stream goes on with the lake's columns where they are others than the source's.
                if !self.has_schema(&announced) {
                    *reader = self.read_from_here(reader.skipped().clone()).await?;
                }
                self.mend(reader).await?;
                Ok(Progress::Going)
            }
            Filled::Stopped(stopped) => {
                self.move_to(reader).await?;
                self.end_table(stopped).await?;
                self.skip_stopped(reader);
                self.mend(reader).await?;
                Ok(Progress::Going)
            }
        }
    }

    /// Reads on from the last boundary with a new stream where the old one has given rows that were taken back.
    async fn mend(&mut self, reader: &mut Reader) -> Result<(), PipelineError> {
        if reader.is_torn() {
            *reader = self.read_from_here(reader.skipped().clone()).await?;
        }
        Ok(())
    }

    /// Whether a table that is followed has this very schema.
    fn has_schema(&self, schema: &TableSchema) -> bool {
        let followed = self.state.tables.get(&schema.table).filter(|known| known.stopped.is_none());
        let known = followed.and_then(|known| known.schema.as_ref());
        known.is_none_or(|known| known.columns == schema.columns)
    }

    fn count_losses(&mut self, reader: &mut Reader) {
        for (table, losses) in reader.take_losses() {
            self.tally.tables.entry(table).or_default().losses += losses;
        }
    }

    /// Takes out the tables that the job no longer selects: their changes are not read any more, so one that is
    /// selected again some day has missed some.
    async fn stop_unselected(&mut self) -> Result<(), PipelineError> {
        let unselected = self.state.followed().map(|(table, ..)| table.clone());
        let unselected: Vec<TableId> = unselected.filter(|table| !self.selects(table)).collect();
        for table in unselected {
            let reason = "source.tables of the job does not select it any more; to take it in again, load it anew";
            self.stop_table(table, self.position().position.clone(), reason.into()).await?;
        }
        Ok(())
    }

    pub(super) fn selects(&self, table: &TableId) -> bool {
        self.job.source.tables().matches(table)
    }

    /// Notes the reader's position in the ledger, if it is ahead of it.
    async fn move_to(&mut self, reader: &Reader) -> Result<(), PipelineError> {
        if reader.at.position > self.position().position {
            let work = Work::Batch { tables: Vec::new(), splits: Vec::new() };
            self.step(Step { work, end: reader.at.clone(), commit_time_us: self.state.newest.commit_time_us }).await?;
        }
        Ok(())
    }

    /// A stream that goes on from the job's position.
    pub(super) async fn read_from_here(&mut self, late: HashSet<TableId>) -> Result<Reader, PipelineError> {
        let from = self.position().clone();
        let skip: HashSet<TableId> = self.taken_out().cloned().chain(late).collect();
        let followed = self.state.followed().map(|(table, schema, _)| (table, schema));
        let known = followed.chain(&self.state.shadows);
        let schemas = known.map(|(table, schema)| (table.clone(), Arc::new(schema.clone()))).collect();
        let stream = self.environment.source.stream(&from, schemas, skip.clone()).await?;
        let (clock, stop) = (Arc::clone(&self.environment.clock), self.environment.stop.clone());
        Ok(Reader::new(stream, from, skip, clock, stop))
    }

    pub(super) fn position(&self) -> &ResumePoint {
        &self.state.newest.end
    }

    pub(super) fn new_batch(&self) -> MicroBatch {
        let limits = BatchLimits {
            rows_max: self.job.run.batch_rows as u64,
            bytes_max: self.job.run.batch_bytes,
            age_max: self.job.run.batch_age,
            memory_bytes: self.job.run.memory_bytes / BATCH_MEMORY_DIVISOR,
        };
        MicroBatch::new(limits, SpillDir::new(std::env::temp_dir())).with_hash_key(self.job.hash_key.clone())
    }

    /// Closes a batch and applies it to its tables: one step of the ledger. `loaded` is the first loads' part in it, one
    /// for a table at most.
    pub(super) async fn commit_batch(
        &mut self,
        batch: MicroBatch,
        mut loaded: Vec<Loaded>,
    ) -> Result<(), PipelineError> {
        let began = self.environment.clock.instant();
        let Some(end) = batch.end().cloned() else { return Ok(()) };
        let mut closed = batch.close()?;
        let closed_at = self.environment.clock.instant();
        self.tally.stages.reduce += closed_at.saturating_duration_since(began);
        let mut tables: Vec<TableId> = closed.tables.keys().cloned().collect();
        // A split without rows is a commit of its table too: it counts the split as done.
        let of_loads = loaded.iter().map(|loaded| &loaded.record.table);
        tables.extend(of_loads.filter(|table| !closed.tables.contains_key(table)).cloned());
        let faults = self.check_tables(&mut tables).await?;
        loaded.retain(|loaded| tables.contains(&loaded.record.table));
        self.stop_tables(faults).await?;
        for record in loaded.iter_mut().map(|loaded| &mut loaded.record) {
            record.unsettled = self.leaves_unsettled(record, closed.tables.get(&record.table));
        }
        let splits = loaded.iter().map(|loaded| loaded.record.clone()).collect();
        let work = Work::Batch { tables: tables.clone(), splits };
        let commit_time_us = closed.commit_time_us.or(self.state.newest.commit_time_us);
        let entry = self.enter(Step { work, end, commit_time_us }).await?;
        let mut faults = Vec::new();
        for table in &tables {
            let loaded = loaded.iter().find(|loaded| loaded.record.table == *table);
            let changes = closed.tables.remove(table);
            if let Err(error) = self.apply_to_table(table, changes, &entry, loaded).await {
                faults.push((table.clone(), error.into_table_fault(table)?));
            }
        }
        let report = BatchReport {
            sequence: entry.sequence,
            rows: closed.rows,
            tables: tables.len(),
            position: entry.end.position.text.clone(),
            took: self.environment.clock.instant() - began,
        };
        self.leave(entry).await?;
        self.stop_tables(faults).await?;
        self.tally.stages.write += self.since(closed_at);
        self.tally.batches += 1;
        self.environment.observer.batch_committed(&report);
        Ok(())
    }

    pub(super) fn since(&self, began: Instant) -> Duration {
        self.environment.clock.instant().saturating_duration_since(began)
    }

    async fn apply_to_table(
        &mut self,
        table: &TableId,
        changes: Option<TableChanges>,
        entry: &LedgerEntry,
        loaded: Option<&Loaded>,
    ) -> Result<(), PipelineError> {
        let tag = self.tag(entry, table, loaded);
        let split = loaded.map(|loaded| &loaded.record);
        let absent_rows = if split.is_some() { AbsentRows::Noted } else { self.absent_rows(table) };
        let keyed = self.keyed_or_none(table, changes)?.with_absent_rows(absent_rows);
        let outcome = self.apply.apply(table, keyed, &tag).await?;
        self.note_version(table, entry, &outcome).await?;
        self.note_unsettled(table, &outcome).await?;
        if let Some(split) = split {
            self.check_split_applied(split, &outcome).await?;
        }
        self.count(table, &outcome, split);
        Ok(())
    }

    /// Before anything is noted: each table is known, and has all that the ledger says it has. Those that cannot
    /// take part are taken from `tables`; the ones that are to be taken out come back with the reason.
    async fn check_tables(&mut self, tables: &mut Vec<TableId>) -> Result<Vec<(TableId, String)>, PipelineError> {
        let mut faults = Vec::new();
        for table in std::mem::take(tables) {
            if self.is_stopped(&table) {
                continue;
            }
            match self.check_table(&table).await {
                Ok(()) => tables.push(table),
                Err(error) => faults.push((table.clone(), error.into_table_fault(&table)?)),
            }
        }
        Ok(faults)
    }

    async fn check_table(&mut self, table: &TableId) -> Result<(), PipelineError> {
        let known = self.state.tables.get(table);
        let expected = known.ok_or_else(|| PipelineError::Unannounced { table: table.clone() })?.sequence;
        let applied = self.apply.applied(table, &apply::app_id(&self.job.name)).await?;
        let found = applied.ok_or_else(|| PipelineError::TableWithoutTxn { table: table.clone() })?;
        if u64::try_from(found).unwrap_or(0) < expected {
            return Err(PipelineError::TableBehind { table: table.clone(), found, expected });
        }
        Ok(())
    }

    pub(super) fn is_stopped(&self, table: &TableId) -> bool {
        self.state.tables.get(table).is_some_and(|state| state.stopped.is_some())
    }

    /// What a row is that the table lacks, though a change needs it.
    pub(super) fn absent_rows(&self, table: &TableId) -> AbsentRows {
        match self.state.tables.get(table).map(|state| &state.load) {
            Some(LoadState::Loading { after: None, condition: None, settling: false, .. }) => AbsentRows::Expected,
            Some(LoadState::Loading { .. }) => AbsentRows::Noted,
            Some(LoadState::Done) | None => AbsentRows::Fault,
        }
    }

    /// Whether a load may not be over with `record`, though its last key range is read.
    fn leaves_unsettled(&self, record: &SplitRecord, changes: Option<&TableChanges>) -> bool {
        let known = self.unsettled.get(&record.table).is_some_and(|known| !known.is_empty() && !record.empties());
        // Once all ranges are read, only rows that are left out already can lead to others.
        let new = !record.settling && changes.is_some_and(TableChanges::may_unsettle);
        record.last.is_none() && (known || new)
    }

    /// Takes over what the table's newest commit says of rows that are left out.
    pub(super) async fn note_unsettled(
        &mut self,
        table: &TableId,
        outcome: &CommitOutcome,
    ) -> Result<(), PipelineError> {
        let unsettled = match outcome {
            CommitOutcome::Committed(summary) => summary.unsettled.clone(),
            _ if self.absent_rows(table) == AbsentRows::Fault => BTreeSet::new(),
            _ => self.apply.unsettled(table, &apply::app_id(&self.job.name)).await?,
        };
        match unsettled.is_empty() {
            true => self.unsettled.remove(table),
            false => self.unsettled.insert(table.clone(), unsettled),
        };
        Ok(())
    }

    /// Tables that have been taken out. The name of one that is gone may be given to another.
    fn taken_out(&self) -> impl Iterator<Item = &TableId> {
        let is_out = |stopped: &Stopped| stopped.ending != Ending::Gone;
        let out = self.state.tables.iter().filter(move |(_, state)| state.stopped.as_ref().is_some_and(is_out));
        out.map(|(table, _)| table)
    }

    /// Rows of tables that have been taken out need not be kept.
    pub(super) fn skip_stopped(&self, reader: &mut Reader) {
        self.taken_out().for_each(|table| reader.skip(table));
    }

    /// A batch that is there already may be the one that another process has read again, without the split.
    async fn check_split_applied(&mut self, split: &SplitRecord, outcome: &CommitOutcome) -> Result<(), PipelineError> {
        if matches!(outcome, CommitOutcome::AlreadyApplied { .. }) && !self.has_split(split).await? {
            return Err(PipelineError::SplitLeftOut { table: split.table.clone() });
        }
        Ok(())
    }

    /// Whether the split's rows are in its table.
    pub(super) async fn has_split(&mut self, split: &SplitRecord) -> Result<bool, PipelineError> {
        let done = self.apply.applied(&split.table, &apply::load_app_id(&self.job.name)).await?;
        Ok(done.unwrap_or(0) > i64::try_from(split.index).unwrap_or(i64::MAX))
    }

    /// A table's changes by key; those of a batch that has none for it are none.
    pub(super) fn keyed_or_none(
        &self,
        table: &TableId,
        changes: Option<TableChanges>,
    ) -> Result<KeyedChanges, PipelineError> {
        if let Some(changes) = changes {
            return Ok(changes.into_keyed()?);
        }
        let schema = self.state.tables.get(table).and_then(|state| state.schema.clone());
        let schema = schema.ok_or_else(|| PipelineError::TableWithoutTxn { table: table.clone() })?;
        Ok(KeyedChanges::from_batches(Arc::new(schema.lake_side()), Vec::new())?)
    }

    /// What the commit of `entry` carries in a table.
    pub(super) fn tag(&self, entry: &LedgerEntry, table: &TableId, loaded: Option<&Loaded>) -> CommitTag {
        let mut tag = apply::tag(&self.job.name, entry);
        let known = self.unsettled.get(table).filter(|_| loaded.is_none_or(|loaded| !loaded.record.empties()));
        let is_left = |key: &&RowKey| loaded.is_none_or(|loaded| !loaded.settled.contains(key));
        tag.unsettled = known.into_iter().flatten().filter(is_left).cloned().collect();
        if let Some(Loaded { record, .. }) = loaded {
            let splits_done = i64::try_from(record.index.saturating_add(1)).unwrap_or(i64::MAX);
            tag.app_ids.push((apply::load_app_id(&self.job.name), splits_done));
        }
        tag
    }

    /// `split` is the table's own.
    fn count(&mut self, table: &TableId, outcome: &CommitOutcome, split: Option<&SplitRecord>) {
        let tally = self.tally.tables.entry(table.clone()).or_default();
        if let CommitOutcome::Committed(summary) = outcome {
            tally.upserted += summary.rows_upserted;
            tally.deleted += summary.rows_deleted;
        }
        if let Some(split) = split {
            tally.loaded += split.rows;
        }
    }

    /// A step without rows: entry, then state.
    pub(super) async fn step(&mut self, step: Step) -> Result<(), PipelineError> {
        let entry = self.enter(step).await?;
        self.leave(entry).await
    }

    /// Writes the ledger entry of a step: the right to apply it.
    pub(super) async fn enter(&mut self, step: Step) -> Result<LedgerEntry, PipelineError> {
        let now_us = self.environment.clock.unix_us();
        let mut entry = LedgerEntry::next(&self.state, self.ledger.run(), now_us, step.work);
        if let Work::TakeOver { identity } = &entry.work {
            entry.identity = identity.clone();
        }
        entry.end = step.end;
        entry.commit_time_us = step.commit_time_us;
        if entry.end.position < entry.start.position {
            let (from, to) = (entry.start.position.text, entry.end.position.text);
            return Err(PipelineError::LogWentBack { from, to });
        }
        failpoint::hit(failpoint::CHECKPOINT_BEFORE);
        self.ledger.put(&entry).await?;
        if now_us.saturating_sub(self.state.newest.created_at_us) > MAY_HAVE_SLEPT_US {
            self.ledger.check_newest(&entry).await?;
        }
        failpoint::hit(failpoint::CHECKPOINT_AFTER);
        Ok(entry)
    }

    /// Takes an applied step into the state.
    pub(super) async fn leave(&mut self, entry: LedgerEntry) -> Result<(), PipelineError> {
        self.tally.sequence = entry.sequence;
        self.state.advance(entry.clone()).expect("invariant: the entry was made from this state");
        failpoint::hit(failpoint::POINT_BEFORE);
        self.record_point(&entry).await?;
        failpoint::hit(failpoint::POINT_AFTER);
        self.ledger.fold(&self.state, false).await?;
        Ok(())
    }

    pub fn outcome(&self) -> RunOutcome {
        let selected = self.state.tables.iter().filter(|(table, _)| self.selects(table) && !self.state.is_gone(table));
        let tables = selected.map(|(table, state)| {
            let tally = self.tally.tables.get(table);
            TableOutcome {
                table: table.clone(),
                rows_loaded: tally.map_or(0, |tally| tally.loaded),
                rows_upserted: tally.map_or(0, |tally| tally.upserted),
                rows_deleted: tally.map_or(0, |tally| tally.deleted),
                version: self.apply.version(table),
                zero_dates: tally.map_or(0, |tally| tally.losses.zero_dates),
                unmapped_texts: tally.map_or(0, |tally| tally.losses.invalid_text),
                stopped: state.stopped.as_ref().map(|stopped| stopped.reason.clone()),
            }
        });
        RunOutcome {
            batches: self.tally.batches,
            tables: tables.collect(),
            maintained: self.tally.maintained.values().filter(|report| report.is_worth_telling()).cloned().collect(),
            stages: self.tally.stages,
            usage: self.environment.source.usage(),
            position: Some(self.position().position.text.clone()),
            source_commit_time_us: self.state.newest.commit_time_us,
        }
    }
}
