//! What can go wrong in the lake.

use arrow::error::ArrowError;
use deltalake::DeltaTableError;
use parquet::errors::ParquetError;

use crate::batch::BatchError;
use crate::change::TableId;

/// How an error of the lake is to be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LakeErrorKind {
    /// The store did not answer or refused: trying again may help.
    Unavailable,
    /// Something that its owner must mend: the location, the store, a table that is not ours.
    Misconfigured,
    /// Files in the lake, or changes to it, that make no sense. Nothing was committed.
    Corrupt,
}

/// A failure in the lake. Never carries values of rows.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    #[error("the lake's location {location} cannot be used: {reason}")]
    Location { location: String, reason: String },
    #[error(
        "the store of {location} let two writers create one object; Delta tables need conditional puts there: \
         use a store that honours If-None-Match"
    )]
    NoConditionalPut { location: String },
    #[error(
        "the store refused to write to the lake {location}: check the keys in lake.options (or AWS_*), and that they \
         may put and delete objects there"
    )]
    Refused {
        location: String,
        #[source]
        source: Box<object_store::Error>,
    },
    #[error("could not {what}")]
    Store {
        what: String,
        #[source]
        source: Box<object_store::Error>,
    },
    #[error("table {table}: could not {what}")]
    Delta {
        table: TableId,
        what: &'static str,
        #[source]
        source: Box<DeltaTableError>,
    },
    #[error("table {table}: could not {what} {file}")]
    Parquet {
        table: TableId,
        what: &'static str,
        file: String,
        #[source]
        source: Box<ParquetError>,
    },
    #[error("table {table}: could not {what}")]
    Arrow {
        table: TableId,
        what: &'static str,
        #[source]
        source: Box<ArrowError>,
    },
    #[error("table {table}: could not bring rows into order")]
    Sort {
        table: TableId,
        #[source]
        source: Box<datafusion::common::DataFusionError>,
    },
    #[error("table {table}: {file} is damaged: {reason}")]
    Damaged { table: TableId, file: String, reason: String },
    #[error("the Delta table at {path} holds {found}, not {table}; move it away, or give the job another lake")]
    OtherTable { table: TableId, path: String, found: String },
    #[error("the Delta table of {table} cannot be written: {reason}")]
    Unsupported { table: TableId, reason: String },
    #[error("table {table} cannot be written as the job file says: {what}")]
    Settings { table: TableId, what: String },
    #[error("column {column} of {table} is {found} in the lake and {expected} in the source")]
    ColumnType { table: TableId, column: String, found: String, expected: String },
    #[error(
        "table {table} has more than one live row of one key ({key}), one of them in {file}; \
         another writer must have added it: remove one of the rows, or load the table again"
    )]
    DuplicateKey { table: TableId, key: String, file: String },
    #[error(
        "a change of {table} leaves out columns (binlog_row_image is not FULL), and the table does not have the row from which \
         they would come; load the table again with: alluvium run --resnapshot {table}"
    )]
    NoOldRow { table: TableId },
    #[error(
        "more than {rows_max} rows of {table} got other keys, or other documents, by changes that do not say all of their columns, while the \
         table was being loaded; let the sessions that do that log whole rows until the load is over (binlog_row_image=FULL, no PARTIAL_JSON), \
         then load the table again with: alluvium run --resnapshot {table}"
    )]
    Unsettled { table: TableId, rows_max: usize },
    #[error("changes of {table} do not fit together: {what}")]
    Changes { table: TableId, what: String },
    #[error("that is no key of table {table}: {what}")]
    Key { table: TableId, what: String },
    #[error("version {version} of table {table} cannot be restored: {what}")]
    Restore { table: TableId, version: u64, what: String },
    #[error("could not {what}: its task ended")]
    Task {
        what: &'static str,
        #[source]
        source: tokio::task::JoinError,
    },
    #[error("table {table}: could not {what} a temporary file for the rows of its partitions")]
    Spill {
        table: TableId,
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("changes of {table} could not be read")]
    Batch {
        table: TableId,
        #[source]
        source: Box<BatchError>,
    },
}

impl LakeError {
    /// The table that alone has the fault, where trying again does not help and no other table suffers from it.
    pub fn table_at_fault(&self) -> Option<&TableId> {
        match self {
            Self::Delta { table, .. } | Self::Parquet { table, .. } if self.kind() != LakeErrorKind::Unavailable => {
                Some(table)
            }
            Self::Arrow { table, .. }
            | Self::Damaged { table, .. }
            | Self::Unsupported { table, .. }
            | Self::OtherTable { table, .. }
            | Self::ColumnType { table, .. }
            | Self::DuplicateKey { table, .. }
            | Self::NoOldRow { table }
            | Self::Unsettled { table, .. }
            | Self::Settings { table, .. }
            | Self::Changes { table, .. } => Some(table),
            Self::Batch { source, .. } => source.table_at_fault(),
            _ => None,
        }
    }

    /// How to meet the error; only retry and exit-code rules ask.
    pub fn kind(&self) -> LakeErrorKind {
        match self {
            Self::Parquet { source, .. } if matches!(**source, ParquetError::External(_)) => LakeErrorKind::Unavailable,
            Self::Delta { source, .. } if is_damage(source) => LakeErrorKind::Corrupt,
            Self::Store { .. } | Self::Delta { .. } | Self::Task { .. } | Self::Spill { .. } | Self::Sort { .. } => {
                LakeErrorKind::Unavailable
            }
            Self::Location { .. }
            | Self::NoConditionalPut { .. }
            | Self::Refused { .. }
            | Self::OtherTable { .. }
            | Self::Unsupported { .. }
            | Self::Settings { .. }
            | Self::Key { .. }
            | Self::Restore { .. }
            | Self::Unsettled { .. }
            | Self::ColumnType { .. } => LakeErrorKind::Misconfigured,
            Self::Parquet { .. }
            | Self::Arrow { .. }
            | Self::Damaged { .. }
            | Self::DuplicateKey { .. }
            | Self::NoOldRow { .. }
            | Self::Changes { .. }
            | Self::Batch { .. } => LakeErrorKind::Corrupt,
        }
    }

    pub(super) fn store(what: impl Into<String>) -> impl FnOnce(object_store::Error) -> Self {
        let what = what.into();
        move |source| Self::Store { what, source: Box::new(source) }
    }

    pub(super) fn delta(table: &TableId, what: &'static str) -> impl FnOnce(DeltaTableError) -> Self {
        let table = table.clone();
        move |source| Self::Delta { table, what, source: Box::new(source) }
    }

    pub(super) fn arrow(table: &TableId, what: &'static str) -> impl Fn(ArrowError) -> Self + use<> {
        let table = table.clone();
        move |source| Self::Arrow { table: table.clone(), what, source: Box::new(source) }
    }

    pub(super) fn batch(table: &TableId) -> impl FnOnce(BatchError) -> Self {
        let table = table.clone();
        move |source| Self::Batch { table, source: Box::new(source) }
    }

    pub(super) fn parquet<'a>(
        table: &'a TableId,
        what: &'static str,
        file: &'a str,
    ) -> impl Fn(ParquetError) -> Self + 'a {
        move |source| Self::Parquet { table: table.clone(), what, file: file.to_string(), source: Box::new(source) }
    }
}

/// Whether the log itself is wrong. All else may be the store's doing, whose errors come in many guises.
fn is_damage(error: &DeltaTableError) -> bool {
    use delta_kernel::Error as Kernel;
    match error {
        DeltaTableError::InvalidJsonLog { .. }
        | DeltaTableError::InvalidStatsJson { .. }
        | DeltaTableError::NoSchema
        | DeltaTableError::MetadataError(_) => true,
        DeltaTableError::Parquet { source } => !matches!(source, ParquetError::External(_)),
        DeltaTableError::Arrow { source } => is_damaged_arrow(source),
        DeltaTableError::KernelError(error) => match kernel_cause(error) {
            Kernel::Arrow(source) => is_damaged_arrow(source),
            Kernel::Parquet(source) => !matches!(source, ParquetError::External(_)),
            Kernel::MalformedJson(_)
            | Kernel::MissingMetadata
            | Kernel::MissingProtocol
            | Kernel::MissingMetadataAndProtocol
            | Kernel::InvalidProtocol(_)
            | Kernel::ParseError(..)
            | Kernel::Schema(_)
            | Kernel::InvalidCheckpoint(_)
            | Kernel::Unsupported(_) => true,
            _ => false,
        },
        _ => false,
    }
}

fn kernel_cause(error: &delta_kernel::Error) -> &delta_kernel::Error {
    match error {
        delta_kernel::Error::Backtraced { source, .. } => kernel_cause(source),
        other => other,
    }
}

fn is_damaged_arrow(error: &ArrowError) -> bool {
    matches!(error, ArrowError::JsonError(_) | ArrowError::ParseError(_) | ArrowError::SchemaError(_))
}
