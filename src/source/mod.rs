//! What the pipeline asks of a source. One folder per source beside this file; a source never sees the
//! lake, and the pipeline sees no more of a source than these traits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;

use crate::change::{ChangeBatch, Losses, ResumePoint, RowKey, SourceIdentity, SourcePosition, TableId};
use crate::schema::{ColumnChange, TableSchema};

pub use crate::change::{Boundary, Ending};

pub mod dynamodb;
pub mod mysql;

/// What a stream of changes yields, in log order.
#[derive(Debug)]
pub enum SourceEvent {
    /// Rows of a transaction that may still be open. They count once a [`SourceEvent::Boundary`] follows.
    Rows(ChangeBatch),
    /// Everything up to here is committed, and reading may restart here.
    Boundary(Boundary),
    /// The open transaction was rolled back, wholly or to a savepoint: of the `Rows` events since the last
    /// boundary only the first `keep` remain.
    Discard { keep: usize },
    /// From here on the table has this schema (a new table: the first one). Comes straight after the
    /// boundary that ends all before it, and again after a restart from that boundary, unless the schemas
    /// given to [`Source::stream`] already say the same. Only a table that is new within a transaction may be
    /// announced after `Rows` of that transaction: then the caller restarts from the last boundary.
    Schema(SchemaChange),
    /// The table cannot be followed any further; its changes are left out from here on. All other tables go on. Within a
    /// transaction whose rows have been given in part, the caller restarts from the last boundary, without the table.
    TableStopped(TableStopped),
}

/// A new shape of a table, or a new table.
#[derive(Debug, Clone)]
pub struct SchemaChange {
    pub schema: Arc<TableSchema>,
    pub position: SourcePosition,
    pub arrival: Arrival,
    /// Where each column of `schema` comes from. Empty where columns of one name are one column with its values kept.
    pub changes: Vec<ColumnChange>,
    /// The statement that made the change, where the log carries it.
    pub statement: Option<String>,
    /// Values that the source gave to the rows it already had, for added columns: name and value as text.
    /// An added column that is not here is null in old rows.
    pub defaults: Vec<(String, String)>,
}

/// What a table's rows were when it got a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// It is the table that was known, or one that the log shows for the first time without its creation.
    Met,
    /// It has just been made, and is empty. A table of its name that was known before is another one.
    Created,
    /// It has the rows of a captured table that had this name.
    Renamed(TableId),
    /// It is not captured itself: its columns are to be kept for the day on which it takes a captured table's name.
    Shadow,
}

/// Why a table was taken out, in words for its owner: what was found, and what to do.
#[derive(Debug, Clone)]
pub struct TableStopped {
    pub table: TableId,
    pub position: SourcePosition,
    pub reason: String,
    pub ending: Ending,
    /// The statement that ended it, where one did.
    pub statement: Option<String>,
}

/// A table that the source has and the job asks for.
#[derive(Debug, Clone)]
pub struct DiscoveredTable {
    pub table: TableId,
    /// The schema, or why the table cannot be captured (no primary key, ...).
    pub schema: Result<TableSchema, String>,
    /// Columns that would do as the key of a table without a primary key: those of a unique key, never null. Empty for others.
    pub key_advised: Vec<String>,
    /// The source's own estimate.
    pub rows_estimated: Option<u64>,
}

/// The key of the last row of a split, in the source's own notation: only the source reads it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct SplitKey(pub String);

/// A key range of a table, in the source's key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// Left out itself; `None` for the table's beginning.
    pub after: Option<SplitKey>,
    /// Included; `None` for no end.
    pub upto: Option<SplitKey>,
    /// Only the rows of which this is true, in the source's own language.
    pub condition: Option<String>,
}

/// What one read may bring. The last row may pass `bytes_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitLimits {
    pub rows_max: usize,
    pub bytes_max: usize,
}

/// Rows of a key range of a table's first load. Each row is in the state that it had at some moment between `low`
/// and `high`: replaying the log from `low` to `high` over the rows, by key, gives the table at `high`.
#[derive(Debug)]
pub struct Split {
    /// Noted before the rows were read.
    pub low: ResumePoint,
    /// Noted after the rows were read.
    pub high: ResumePoint,
    /// In key order (the source's), all with [`crate::change::Operation::Read`].
    pub rows: Vec<ChangeBatch>,
    /// Up to which key, included, all rows are here: the range's end, or the last row's key where a limit cut
    /// the read short. `None` for a range without an end that was read whole.
    pub last_key: Option<SplitKey>,
    /// What of the rows could not be kept.
    pub losses: Losses,
}

/// What a source that is paid by the request was asked, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Sent, those included that were sent again.
    pub requests: u64,
    /// Sent again, for the source was busy or did not answer.
    pub sent_again: u64,
    /// Answered requests for records of its log.
    pub log_reads: u64,
    /// Read units that first loads used, rounded up.
    pub read_units: u64,
}

/// How an error of a source is to be met. Decided where the error is made, used in one place: the retry
/// and exit-code rules of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The connection broke, the server is down: trying again may help.
    Unavailable,
    /// The table is not as it was; the log tells how it became so.
    Changed,
    /// The rows of one table cannot be read for its first load; all other tables can.
    Unloadable,
    /// Something that its owner must mend: password, grants, server settings, the job file.
    Misconfigured,
    /// The log no longer holds the position, or it is another log.
    Lost,
    /// The log holds bytes that make no sense.
    Corrupt,
}

/// How a source stands to a job that has read the log of `known` up to some point ([`Source::take_up`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is that log.
    Same,
    /// It is another log with the same transactions, those that follow among them: reading goes on at `at`, which comes after all
    /// positions of the log before.
    Successor { identity: SourceIdentity, at: ResumePoint },
    /// Another log, and why it does not do.
    Other { found: SourceIdentity, why_not: String },
}

/// A failure of the source, with what was found, what was expected, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    pub kind: SourceErrorKind,
    pub message: String,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl SourceError {
    pub fn new(kind: SourceErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub fn caused_by(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(cause.into());
        self
    }
}

/// A database, or its log on disk. Cheap to make: nothing is opened before the first call.
#[async_trait]
pub trait Source: Send + Sync {
    /// Which log this is. Asks the source; compared at every connect.
    async fn identity(&self) -> Result<SourceIdentity, SourceError>;

    /// Takes up a job that has read the log of `known` up to `from`. Called before anything else is asked for a job that has run before; afterwards
    /// each connection is to be one to the same source.
    async fn take_up(&self, known: &SourceIdentity, _from: &ResumePoint) -> Result<Standing, SourceError> {
        let found = self.identity().await?;
        if found == *known {
            return Ok(Standing::Same);
        }
        Ok(Standing::Other { found, why_not: "it is another source, or it was set up again".to_string() })
    }

    /// Where a job without state starts to read: the present end of a live log, the beginning of log files.
    async fn start(&self) -> Result<ResumePoint, SourceError>;

    /// The present end of the log.
    async fn head(&self) -> Result<ResumePoint, SourceError>;

    /// Whether the log still holds what follows `from`.
    ///
    /// # Errors
    /// [`SourceErrorKind::Lost`] with the oldest position that is left, if it does not.
    async fn check_held(&self, from: &ResumePoint) -> Result<(), SourceError>;

    /// The tables that the job asks for, as they are now; empty for a source that has no catalogue.
    async fn tables(&self) -> Result<Vec<DiscoveredTable>, SourceError>;

    /// The schema of a table that joins again, `now` being what the source says of it and `known` its last one. A source that infers
    /// columns from rows has them all in `known` only.
    fn joined_schema(&self, now: TableSchema, _known: &TableSchema) -> TableSchema {
        now
    }

    /// The changes after `from`. `schemas` are the captured tables as they were at `from`; a selected table
    /// that is not among them is announced by a [`SourceEvent::Schema`] before its first row. Tables in `skip` are
    /// left out altogether.
    async fn stream(
        &self,
        from: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError>;

    /// The changes of a batch that ended at `upto`, again: all that [`Self::stream`] gave between the two, and nothing else up to a
    /// boundary at `upto`; what comes after it, if anything does, the caller leaves out by its position. A source whose log is one sequence
    /// need not be told the end.
    async fn stream_again(
        &self,
        from: &ResumePoint,
        _upto: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        self.stream(from, schemas, skip).await
    }

    /// What it was asked so far; `None` for a source where nobody counts.
    fn usage(&self) -> Option<Usage> {
        None
    }

    /// Whether rows can be chosen by `condition`, SQL or whatever the source's own language is.
    ///
    /// # Errors
    /// [`SourceErrorKind::Misconfigured`] with the source's own words if not, or for a source that holds no rows.
    async fn check_condition(&self, schema: &TableSchema, condition: &str) -> Result<(), SourceError>;

    /// A condition for [`KeyRange::condition`] that holds for the rows with these keys, and for no others but such as the source takes for the
    /// same; for no row if there are no keys.
    ///
    /// # Errors
    /// [`SourceErrorKind::Misconfigured`] for values that no key of the table has, and for a source whose log never leaves out columns.
    fn condition_of(&self, schema: &TableSchema, _keys: &[RowKey]) -> Result<String, SourceError> {
        let message = format!("rows of {} cannot be chosen by their keys in this source", schema.table);
        Err(SourceError::new(SourceErrorKind::Misconfigured, message))
    }

    /// Why no rows should be read now, if the source has other things to do. Asked before each wave of splits.
    async fn busy(&self) -> Result<Option<String>, SourceError>;

    /// Where a split of about `rows` rows that begins after `range.after` should end, or `None` where so many are not
    /// left. Reads no rows of the table but keys; the guess may be off.
    ///
    /// # Errors
    /// [`SourceErrorKind::Misconfigured`] for a source that holds no rows (log files), or a condition that it refuses.
    async fn next_cut(
        &self,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        rows: usize,
    ) -> Result<Option<SplitKey>, SourceError>;

    /// Reads the rows of `range`, or as many of them as the limits allow, in the source's key order, without a lock.
    /// Several calls may run at once. The split's `low` is not before any boundary that a stream of this source has given
    /// out so far.
    ///
    /// # Errors
    /// [`SourceErrorKind::Misconfigured`] for a source that holds no rows (log files); [`SourceErrorKind::Unloadable`] for rows
    /// that do not come in time or make no sense.
    async fn read_split(
        &self,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        limits: SplitLimits,
    ) -> Result<Split, SourceError>;
}

/// A running read of the log. Dropping it closes the connection.
#[async_trait]
pub trait ChangeStream: Send {
    /// The next event. `None` at the end of log files; a live source waits, and gives a boundary at least
    /// every second so that the caller sees how far the log has been read. Cancel safe: a dropped call loses nothing.
    async fn next(&mut self) -> Result<Option<SourceEvent>, SourceError>;

    /// Someone waits for the log to pass a place: boundaries are to come as soon as they are read, though smaller batches of
    /// rows cost more. Until it is called with `false`.
    fn hurry(&mut self, _is_hurried: bool) {}

    /// What could not be kept of the rows that this stream has read, by table, since it was opened; tables
    /// without losses left out. It may count a few rows that [`Self::next`] has not given yet.
    fn losses(&self) -> Vec<(TableId, Losses)>;
}
