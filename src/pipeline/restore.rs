//! Brings back an older version of a table, and takes the table out of its job first: the job goes on from its position, and
//! what it would apply from there does not fit rows of an earlier one.

use uuid::Uuid;

use super::PipelineError;
use super::apply::app_id;
use super::points::tables_of;
use crate::change::TableId;
use crate::clock::Clock;
use crate::config::Job;
use crate::lake::{
    CommitOutcome, JobState, Lake, Ledger, LedgerEntry, Point, PointState, PointTable, Points, StopRecord, Work,
};

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    pub table: TableId,
    /// The version that came back, and the new one that it is now.
    pub version: u64,
    pub new_version: i64,
    /// Whether this took the table out of its job; false if it was out already.
    pub taken_out: bool,
}

/// Restores `version` of a table. The step that takes the table out is in the ledger before the table changes: a run of the
/// job that is at work meanwhile loses its next step, and stops. Done again after a crash in between, it does what is left.
///
/// # Errors
/// [`PipelineError::Unfinished`] if the job's newest step has not reached all of its tables; a version that cannot be restored;
/// a lake that cannot be read or written.
pub async fn restore(
    job: &Job,
    lake: &Lake,
    clock: &dyn Clock,
    table: &TableId,
    version: u64,
) -> Result<Restored, PipelineError> {
    let missing = || PipelineError::NoSuchTable { table: table.clone(), reason: "the lake has no data of it".into() };
    let mut open = lake.open_table(table).await?.ok_or_else(missing)?;
    // What cannot be restored is told before anything is changed.
    let plan = open.restore_plan(version).await?;
    let point = take_out(job, lake, clock, table, &plan.position, version).await?;
    let new_version = match open.restore(version).await? {
        CommitOutcome::Committed(summary) => summary.version,
        CommitOutcome::AlreadyApplied { version } => version,
        CommitOutcome::Conflict => return Err(PipelineError::Overtaken { table: table.clone() }),
    };
    let taken_out = point.is_some();
    if let Some(mut point) = point {
        // Reads of earlier points must not take the restored rows for theirs.
        point.tables.iter_mut().for_each(|table| table.version = u64::try_from(new_version).ok());
        Points::new(lake, &job.name).put(&point).await?;
    }
    Ok(Restored { table: table.clone(), version, new_version, taken_out })
}

/// The point of the step that takes the table out; `None` if it is out already, or no job knows it.
async fn take_out(
    job: &Job,
    lake: &Lake,
    clock: &dyn Clock,
    table: &TableId,
    position: &Option<String>,
    version: u64,
) -> Result<Option<Point>, PipelineError> {
    let ledger = Ledger::new(lake.store(), &job.name, Uuid::new_v4());
    let Some(mut state) = ledger.load().await? else { return Ok(None) };
    if state.tables.get(table).is_none_or(|known| known.stopped.is_some()) {
        return Ok(None);
    }
    check_finished(job, lake, &state, table).await?;
    let at = position.as_ref().map(|position| format!(", the source at {position}")).unwrap_or_default();
    let reason =
        format!("restored to version {version}{at}; to follow the source again: alluvium run --resnapshot {table}");
    let end = state.newest.end.clone();
    let record = StopRecord::fault(table.clone(), end.position.clone(), reason);
    let work = Work::Stop { tables: vec![record] };
    let entry = LedgerEntry::next(&state, ledger.run(), clock.unix_us(), work);
    ledger.put(&entry).await?;
    let stopped = PointTable { table: table.clone(), version: None, state: PointState::Stopped };
    let point = Point::new(entry.sequence, end, entry.commit_time_us, clock.unix_us(), vec![stopped]);
    Points::new(lake, &job.name).put(&point).await?;
    // A ledger that says so is read faster by the next run.
    if state.advance(entry).is_some() {
        ledger.fold(&state, true).await?;
    }
    Ok(Some(point))
}

/// A step may follow only one that all of its tables carry, and that has left its point.
async fn check_finished(job: &Job, lake: &Lake, state: &JobState, table: &TableId) -> Result<(), PipelineError> {
    let has_point = Points::new(lake, &job.name).newest().await?.is_some_and(|newest| newest >= state.newest.sequence);
    if !has_point && state.newest.work != Work::Begin {
        return Err(PipelineError::Unfinished { sequence: state.newest.sequence, table: table.clone() });
    }
    for table in tables_of(&state.newest.work) {
        let is_followed = state.tables.get(&table).is_some_and(|known| known.stopped.is_none());
        if !is_followed {
            continue;
        }
        let applied = match lake.open_table(&table).await? {
            Some(open) => open.txn(&app_id(&job.name)).await?.unwrap_or(0),
            None => 0,
        };
        if u64::try_from(applied).unwrap_or(0) < state.newest.sequence {
            return Err(PipelineError::Unfinished { sequence: state.newest.sequence, table });
        }
    }
    Ok(())
}
