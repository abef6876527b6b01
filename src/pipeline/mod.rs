//! The run loop: read, batch, write the ledger entry, apply, go on.
//!
//! A run is built to be killed: everything that it needs to go on is in the lake. A failure that may pass
//! (a lost connection, a store that times out) is met by starting over from the lake, with a pause.

mod apply;
mod error;
mod load;
mod maintain;
mod points;
mod reader;
mod recover;
mod restore;
mod retry;
mod schema;
mod session;
mod status;
#[cfg(test)]
mod tests;
mod wave;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::change::TableId;
use crate::clock::Clock;
use crate::config::Job;
use crate::lake::Lake;
use crate::maintain::ChoreReport;
use crate::source::{Source, Usage};

pub use apply::{Apply, LakeApply};
pub use error::PipelineError;
pub use restore::{Restored, restore};
pub use status::{JobStatus, Standing, TableProgress, TableStatus, standing, status, tables};

/// How a run behaves.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Go on for ever instead of stopping at the position that the source had when the run began.
    pub follow: bool,
    /// Tables whose rows are loaded again, those that were taken out among them: all rows, or over those that the table has
    /// the ones of which a condition in the source's own language is true.
    pub resnapshot: BTreeMap<TableId, Option<String>>,
}

/// What a run works with. All of it is passed in, so that a test can put its own in place.
#[derive(Clone)]
pub struct Environment {
    pub source: Arc<dyn Source>,
    pub lake: Lake,
    pub clock: Arc<dyn Clock>,
    pub observer: Arc<dyn Observer>,
    /// Cancelled to end the run after the batch that is being applied.
    pub stop: CancellationToken,
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunOutcome {
    pub batches: u64,
    pub tables: Vec<TableOutcome>,
    /// The upkeep that was done, one report for each table and chore.
    pub maintained: Vec<ChoreReport>,
    pub stages: Stages,
    /// What the source was asked, where that is paid for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Where the job stands now, in the source's notation.
    pub position: Option<String>,
    /// Microseconds since 1970-01-01 UTC.
    pub source_commit_time_us: Option<i64>,
}

/// Where the time of a run's batches went. Work that goes on side by side counts for the stage that waited for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stages {
    /// Waiting for changes, and decoding them.
    pub read: Duration,
    /// Finding the last change of each key.
    pub reduce: Duration,
    /// Locating old rows, writing files, committing.
    pub write: Duration,
    pub upkeep: Duration,
}

/// What a run did to one table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TableOutcome {
    pub table: TableId,
    pub rows_loaded: u64,
    pub rows_upserted: u64,
    pub rows_deleted: u64,
    /// Dates that are none (`0000-00-00`) and became null.
    pub zero_dates: u64,
    /// Texts with bytes that their character set does not have, which became replacement characters.
    pub unmapped_texts: u64,
    /// The Delta version that the table has now.
    pub version: Option<i64>,
    /// Why the table was taken out, in this run or an earlier one.
    pub stopped: Option<String>,
}

/// A batch that has been applied to all of its tables.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchReport {
    pub sequence: u64,
    /// Changes read, before the last one per key was chosen.
    pub rows: u64,
    pub tables: usize,
    pub position: String,
    pub took: Duration,
}

/// Who wants to see a run's progress. Every method returns at once.
pub trait Observer: Send + Sync {
    /// `rows_estimated` is the source's own guess of the table's size.
    fn load_progress(&self, _table: &TableId, _rows_done: u64, _rows_estimated: Option<u64>) {}
    fn load_done(&self, _table: &TableId, _rows: u64) {}
    fn batch_committed(&self, _report: &BatchReport) {}
    fn maintained(&self, _report: &ChoreReport) {}
    fn table_stopped(&self, _table: &TableId, _reason: &str) {}
    /// The end of the log is reached and the run waits for changes.
    fn waiting(&self, _position: &str) {}
    fn retrying(&self, _error: &str, _pause: Duration) {}
}

/// An observer that looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Runs `job` until its end is reached, or for ever, or until it is stopped.
///
/// # Errors
/// What could not be mended by trying again; [`PipelineError::exit_code`] tells the kinds apart. The tables
/// are right at every version whatever the error.
pub async fn run(job: &Job, mut options: RunOptions, environment: Environment) -> Result<RunOutcome, PipelineError> {
    let mut tally = session::Tally::default();
    let mut reached = None;
    let mut retry = retry::Retry::new(options.follow);
    loop {
        let before = tally.batches;
        let error = match session::Session::open(job, &mut options, environment.clone(), &mut tally).await {
            Ok(mut session) => match session.run().await {
                Ok(()) => return Ok(session.outcome()),
                Err(error) => {
                    reached = Some(session.outcome());
                    error
                }
            },
            Err(error) => error,
        };
        if tally.batches > before {
            retry.succeeded();
        }
        let Some(pause) = retry.pause_after(&error) else { return Err(error) };
        tracing::warn!(error = %error.chain(), pause_seconds = pause.as_secs_f32(), "starting over");
        environment.observer.retrying(&error.chain(), pause);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // A stop that was asked for is no failure, once there is something to report.
            () = environment.stop.cancelled() => return reached.ok_or(error),
        }
    }
}
