//! What can end a run.

use crate::batch::BatchError;
use crate::change::{SourceIdentity, TableId};
use crate::lake::{LakeError, LakeErrorKind, LedgerError};
use crate::source::{SourceError, SourceErrorKind};

/// What ended a run. The tables are right at every version whatever it is.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error("{0}")]
    Source(#[source] SourceError),
    #[error("{0}")]
    Lake(#[source] LakeError),
    #[error("{0}")]
    Ledger(#[source] LedgerError),
    #[error("{0}")]
    Batch(#[source] BatchError),
    #[error(
        "the source is {found}, but this job has read {known}: another server answers at this address, or it was set up again; \
         nothing was read. {why_not}. If that is meant, start a new job (another `job:` name and an empty lake path)"
    )]
    OtherSource { known: SourceIdentity, found: SourceIdentity, why_not: String },
    #[error(
        "the Delta table of {table} holds no trace of this job, though the job's ledger says that it wrote to it: \
         it was deleted, replaced or restored. Put it back and run with --resnapshot {table}, or, where it is gone, the same without it"
    )]
    TableWithoutTxn { table: TableId },
    #[error(
        "the lake already has a Delta table for {table} that this job did not write: \
         give the job a lake path of its own, or move the table away"
    )]
    TableOfAnother { table: TableId },
    #[error(
        "other writers committed to the Delta table of {table} again and again while a batch was applied; nothing is lost"
    )]
    Overtaken { table: TableId },
    #[error("the default of column {column} of {table} cannot be given to its old rows: {reason}")]
    Default { table: TableId, column: String, reason: String },
    #[error(
        "the log no longer gives the batch that ends at {expected}: it goes from before it straight to {found}; \
         nothing was applied. Start a new job with an empty lake path"
    )]
    LogChanged { expected: String, found: String },
    #[error("{source}")]
    Unloadable {
        table: TableId,
        #[source]
        source: SourceError,
    },
    #[error("{table} cannot be loaded again: {reason}")]
    NotLoadable { table: TableId, reason: String },
    #[error(
        "the log went back from {from} to {to}: its files were numbered anew, or the server was reset or restored; \
         nothing after {from} was applied. Start a new job with an empty lake path"
    )]
    LogWentBack { from: String, to: String },
    #[error(
        "rows of a first load were read as of {low}, which is before {at}, the place where the job stands; they are read again"
    )]
    SplitTooEarly { low: String, at: String },
    #[error("another process applied the batch of {table} without the rows of its first load; they are read again")]
    SplitLeftOut { table: TableId },
    #[error(
        "the Delta table of {table} was last written in step {found} of this job, but the ledger has it in step {expected}: \
         it was put back from a backup. Load it again: alluvium run --resnapshot {table}"
    )]
    TableBehind { table: TableId, found: i64, expected: u64 },
    #[error(
        "the source gave rows of {table} before it told the table's columns; nothing was applied. This is a fault of Alluvium"
    )]
    Unannounced { table: TableId },
    #[error("reading {table} for its first load ended in a fault of Alluvium: {error}")]
    Reader { table: TableId, error: tokio::task::JoinError },
    #[error("reading ahead for first loads ended in a fault of Alluvium: {0}")]
    ReadAhead(tokio::task::JoinError),
    #[error("there is no table {table} to work on: {reason}")]
    NoSuchTable { table: TableId, reason: String },
    #[error(
        "step {sequence} of the job has not reached {table} yet: another run is at work, or one was interrupted. Let it end, or \
         run the job once: alluvium run"
    )]
    Unfinished { sequence: u64, table: TableId },
    #[error("no table is selected: none of the patterns {patterns} matches a table of the source; see `source.tables`")]
    NothingSelected { patterns: String },
}

impl PipelineError {
    /// The process's exit code: 1 try again, 2 mend the job or the source's settings, 4 position or identity lost.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Source(error) => match error.kind {
                SourceErrorKind::Unavailable | SourceErrorKind::Changed | SourceErrorKind::Corrupt => 1,
                SourceErrorKind::Misconfigured | SourceErrorKind::Unloadable => 2,
                SourceErrorKind::Lost => 4,
            },
            Self::OtherSource { .. } | Self::LogChanged { .. } | Self::LogWentBack { .. } => 4,
            Self::NoSuchTable { .. }
            | Self::NothingSelected { .. }
            | Self::TableOfAnother { .. }
            | Self::Unloadable { .. }
            | Self::NotLoadable { .. } => 2,
            Self::Lake(error) if error.kind() == LakeErrorKind::Misconfigured => 2,
            Self::Lake(_) | Self::Ledger(_) | Self::Batch(_) => 1,
            Self::TableWithoutTxn { .. } | Self::Overtaken { .. } | Self::Default { .. } => 1,
            Self::SplitTooEarly { .. } | Self::SplitLeftOut { .. } | Self::Unfinished { .. } => 1,
            Self::TableBehind { .. } | Self::Unannounced { .. } => 1,
            Self::Reader { .. } | Self::ReadAhead(_) => 1,
        }
    }

    /// Whether starting over from the lake may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Source(error) => matches!(error.kind, SourceErrorKind::Unavailable | SourceErrorKind::Changed),
            Self::Lake(error) => error.kind() == LakeErrorKind::Unavailable,
            Self::Ledger(LedgerError::Store { .. }) | Self::Overtaken { .. } => true,
            Self::SplitTooEarly { .. } | Self::SplitLeftOut { .. } => true,
            _ => false,
        }
    }

    /// Why one table has to be taken out, where the error is that table's alone; the error itself where it is not.
    pub(super) fn into_table_fault(self, of: &TableId) -> Result<String, Self> {
        match &self {
            Self::Lake(error) if error.table_at_fault() == Some(of) => Ok(self.chain()),
            Self::Batch(error) if error.table_at_fault() == Some(of) => Ok(self.chain()),
            Self::TableWithoutTxn { table }
            | Self::TableBehind { table, .. }
            | Self::TableOfAnother { table }
            | Self::Unloadable { table, .. }
                if table == of =>
            {
                Ok(self.chain())
            }
            _ => Err(self),
        }
    }

    /// The message with those of its causes.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let message = error.to_string();
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            cause = error.source();
        }
        text
    }
}

impl From<SourceError> for PipelineError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<LakeError> for PipelineError {
    fn from(error: LakeError) -> Self {
        Self::Lake(error)
    }
}

impl From<LedgerError> for PipelineError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl From<BatchError> for PipelineError {
    fn from(error: BatchError) -> Self {
        Self::Batch(error)
    }
}
