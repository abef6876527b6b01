//! What a job and its tables look like now, from the lake alone.

use std::time::Duration;

use uuid::Uuid;

use super::PipelineError;
use crate::change::{Ending, ResumePoint, SourceIdentity, TableId};
use crate::clock::Clock;
use crate::config::{Job, SourceConfig};
use crate::lake::{JobState, Lake, Ledger, LoadState, TableState};
use crate::maintain::{self, LastDone};
use crate::source::dynamodb;

/// Where a job stands.
#[derive(Debug, Clone, serde::Serialize)]
pub struct JobStatus {
    pub job: String,
    pub lake: String,
    /// `None` for a job that has never run; then all that follows is empty.
    pub identity: Option<SourceIdentity>,
    pub sequence: u64,
    pub position: Option<String>,
    /// Commit time of the last source transaction that was applied, in microseconds since 1970-01-01 UTC.
    pub commit_time_us: Option<i64>,
    /// Now, less that commit time. It grows while the source is idle.
    pub lag: Option<Duration>,
    /// For how long the source still holds all that comes next, where it forgets by the clock.
    pub held_for: Option<Duration>,
    /// When this was asked, in microseconds since 1970-01-01 UTC.
    pub now_us: i64,
    pub tables: Vec<TableStatus>,
}

/// Where one table stands.
#[derive(Debug, Clone, serde::Serialize)]
pub struct TableStatus {
    pub table: TableId,
    /// The Delta version; `None` for a table that the lake does not have.
    pub version: Option<i64>,
    pub rows: u64,
    pub files: u64,
    pub bytes: u64,
    /// Up to where the table is equal to its source: the job's own position, or the one at which it was taken out.
    pub position: String,
    /// Of the last source transaction up to there, in microseconds since 1970-01-01 UTC; `None` where it is not known.
    pub commit_time_us: Option<i64>,
    /// Now, less that commit time.
    pub lag: Option<Duration>,
    pub progress: TableProgress,
    /// When which upkeep was done last.
    pub upkeep: LastDone,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TableProgress {
    Loading {
        rows: u64,
    },
    Following,
    Stopped {
        position: String,
        reason: String,
    },
    /// The source has it no more: the rows are those that it had last.
    Gone {
        position: String,
        reason: String,
    },
    /// Not taken out yet, but its Delta table cannot be read.
    Unreadable {
        reason: String,
    },
}

/// Reads the ledger and the tables; asks nothing of the source.
///
/// # Errors
/// A lake that cannot be read.
pub async fn status(job: &Job, lake: &Lake, clock: &dyn Clock) -> Result<JobStatus, PipelineError> {
    let ledger = Ledger::new(lake.store(), &job.name, Uuid::nil());
    let state = ledger.load().await?;
    let mut status = JobStatus {
        job: job.name.clone(),
        lake: lake.root().to_string(),
        identity: None,
        sequence: 0,
        position: None,
        commit_time_us: None,
        lag: None,
        held_for: None,
        now_us: clock.unix_us(),
        tables: Vec::new(),
    };
    if let Some(state) = state {
        fill(&mut status, &state, clock.unix_us());
        if matches!(job.source, SourceConfig::Dynamodb(_)) {
            status.held_for = Some(dynamodb::time_left(&state.newest.end));
        }
        let mut upkeep = maintain::last_done(lake.store(), &job.name).await;
        for (table, table_state) in &state.tables {
            let upkeep = upkeep.remove(&table.to_string()).unwrap_or_default();
            let table = table_status(lake, &status, table, table_state).await?;
            status.tables.push(TableStatus { upkeep, ..table });
        }
    }
    Ok(status)
}

/// The log that a job reads, where it stands in it, and the commit time of what it has read last, in microseconds since
/// 1970-01-01 UTC.
#[derive(Debug, Clone)]
pub struct Standing {
    pub identity: SourceIdentity,
    pub position: ResumePoint,
    pub commit_time_us: Option<i64>,
}

/// Where a job will go on; `None` for one that has never run.
///
/// # Errors
/// A ledger that cannot be read.
pub async fn standing(job: &Job, lake: &Lake) -> Result<Option<Standing>, PipelineError> {
    let state = Ledger::new(lake.store(), &job.name, Uuid::nil()).load().await?;
    Ok(state.map(|state| Standing {
        identity: state.newest.identity,
        position: state.newest.end,
        commit_time_us: state.newest.commit_time_us,
    }))
}

/// The source tables that the job's lake holds.
///
/// # Errors
/// A ledger that cannot be read.
pub async fn tables(job: &Job, lake: &Lake) -> Result<Vec<TableId>, PipelineError> {
    let state = Ledger::new(lake.store(), &job.name, Uuid::nil()).load().await?;
    let captured = state.into_iter().flat_map(|state| state.tables).filter(|(_, table)| table.schema.is_some());
    Ok(captured.map(|(table, _)| table).collect())
}

fn fill(status: &mut JobStatus, state: &JobState, now_us: i64) {
    status.identity = Some(state.newest.identity.clone());
    status.sequence = state.newest.sequence;
    status.position = Some(state.newest.end.position.text.clone());
    status.commit_time_us = state.newest.commit_time_us;
    let lag_us = state.newest.commit_time_us.map(|commit_us| now_us.saturating_sub(commit_us).max(0));
    status.lag = lag_us.map(|us| Duration::from_micros(us.unsigned_abs()));
}

async fn table_status(
    lake: &Lake,
    job: &JobStatus,
    table: &TableId,
    state: &TableState,
) -> Result<TableStatus, PipelineError> {
    let (open, fault) = match lake.open_table(table).await.map_err(PipelineError::from) {
        Ok(open) => (open, None),
        Err(error) => (None, Some(error.into_table_fault(table)?)),
    };
    let stats = open.as_ref().map(|open| open.stats()).unwrap_or_default();
    let stopped = state.stopped.as_ref();
    let progress = match (&state.stopped, fault, &state.load) {
        (Some(stopped), ..) if stopped.ending == Ending::Gone => {
            TableProgress::Gone { position: stopped.position.text.clone(), reason: stopped.reason.clone() }
        }
        (Some(stopped), ..) => {
            TableProgress::Stopped { position: stopped.position.text.clone(), reason: stopped.reason.clone() }
        }
        (None, Some(reason), _) => TableProgress::Unreadable { reason },
        (None, None, LoadState::Loading { rows, .. }) => TableProgress::Loading { rows: *rows },
        (None, None, LoadState::Done) => TableProgress::Following,
    };
    Ok(TableStatus {
        table: table.clone(),
        version: open.as_ref().map(|open| open.version()),
        rows: stats.rows,
        files: stats.files,
        bytes: stats.bytes,
        position: stopped
            .map_or_else(|| job.position.clone().unwrap_or_default(), |stopped| stopped.position.text.clone()),
        commit_time_us: job.commit_time_us.filter(|_| stopped.is_none()),
        lag: job.lag.filter(|_| stopped.is_none()),
        progress,
        upkeep: LastDone::new(),
    })
}
