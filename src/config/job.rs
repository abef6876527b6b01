//! The checked job: every value present and valid.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::{MaintainConfig, TableFilter, TableRules};
use crate::schema::HashKey;

/// One job file, checked and complete.
#[derive(Debug, Clone)]
pub struct Job {
    /// The job's name: letters, digits, `-` and `_`. It is part of every commit's `txn` and of the ledger's path.
    pub name: String,
    pub source: SourceConfig,
    pub lake: LakeConfig,
    pub run: RunConfig,
    /// Keys given by hand, for tables whose own key the source does not tell: table name `database.table` to
    /// column names.
    pub keys: BTreeMap<String, Vec<String>>,
    pub tables: TableRules,
    /// The key of columns that are hashed.
    pub hash_key: Option<HashKey>,
    pub maintain: MaintainConfig,
}

#[derive(Debug, Clone)]
pub enum SourceConfig {
    /// A live MySQL or MariaDB server.
    Mysql(MysqlConfig),
    /// Binlog files on a local folder.
    BinlogFiles(BinlogFilesConfig),
    /// Tables of Amazon DynamoDB.
    Dynamodb(DynamodbConfig),
}

impl SourceConfig {
    /// The tables to capture.
    pub fn tables(&self) -> &TableFilter {
        match self {
            Self::Mysql(mysql) => &mysql.tables,
            Self::BinlogFiles(files) => &files.tables,
            Self::Dynamodb(dynamodb) => &dynamodb.tables,
        }
    }

    /// How rows are loaded; `None` for a source that holds no rows, and has no catalogue of its tables.
    pub fn snapshot(&self) -> Option<&SnapshotConfig> {
        match self {
            Self::Mysql(mysql) => Some(&mysql.snapshot),
            Self::BinlogFiles(_) => None,
            Self::Dynamodb(dynamodb) => Some(&dynamodb.snapshot),
        }
    }
}

#[derive(Debug, Clone)]
pub struct DynamodbConfig {
    /// `None` for what the environment says.
    pub region: Option<String>,
    /// Instead of the region's own address.
    pub endpoint_url: Option<String>,
    /// Patterns over `dynamodb.TABLE`.
    pub tables: TableFilter,
    pub number_keys: NumberKeys,
    /// Whether rows stay that the source deletes because they have expired.
    pub keep_expired: bool,
    pub snapshot: SnapshotConfig,
    pub read_units: ReadUnits,
}

/// The type of key columns whose attributes are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberKeys {
    Long,
    Decimal,
    Text,
}

/// What the first load of a table may use of its read capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadUnits {
    Unlimited,
    PerSecond(u64),
    /// Of what is provisioned; as much as there is for a table that has no provisioned capacity.
    Percent(u8),
}

#[derive(Debug, Clone)]
pub struct MysqlConfig {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Secret,
    pub tls: TlsMode,
    /// A file of certificates (PEM) that sign the server's, instead of the public authorities.
    pub ca: Option<PathBuf>,
    pub tables: TableFilter,
    pub snapshot: SnapshotConfig,
    /// How reading resumes.
    pub resume: ResumeBy,
    /// The id under which Alluvium registers as a replica; unique among the server's replicas.
    pub server_id: u32,
}

/// TLS to the server: `Required` encrypts, `Verified` also checks the certificate and host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    Disabled,
    Required,
    Verified,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeBy {
    /// By GTID set where the server has GTIDs, else by position.
    Auto,
    Gtid,
    Position,
}

#[derive(Debug, Clone)]
pub struct BinlogFilesConfig {
    /// In log order.
    pub files: Vec<PathBuf>,
    pub tables: TableFilter,
}

#[derive(Debug, Clone)]
pub struct SnapshotConfig {
    pub mode: SnapshotMode,
    /// Rows that are read at once; `None` for as many as suit their size.
    pub split_rows: Option<usize>,
    /// Connections that read at once.
    pub readers: usize,
    /// A query that takes longer ends where it has come to.
    pub query_time_max: Duration,
    /// No rows are asked for while more threads of the server are at work, ours among them.
    pub threads_running_max: Option<u32>,
    /// No rows are asked for while the server, a replica itself, is further behind.
    pub replica_lag_max: Option<Duration>,
}

impl SnapshotConfig {
    /// What holds where the job file says nothing.
    pub const DEFAULT: Self = Self {
        mode: SnapshotMode::Initial,
        split_rows: None,
        readers: 4,
        query_time_max: Duration::from_secs(300),
        threads_running_max: Some(100),
        replica_lag_max: None,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Load the rows that are there, then follow the log.
    Initial,
    /// Follow the log only; tables start empty.
    Never,
}

/// `Debug` shows the names of the options, not their values: some are secrets.
#[derive(Clone)]
pub struct LakeConfig {
    /// The lake's root: a `file://` or `s3://` URL that ends in a slash.
    pub url: url::Url,
    /// Options of the object store (`aws_endpoint`, ...), as object_store names them.
    pub options: BTreeMap<String, String>,
}

impl std::fmt::Debug for LakeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.options.keys().collect();
        f.debug_struct("LakeConfig").field("url", &self.url.as_str()).field("options", &names).finish()
    }
}

#[derive(Debug, Clone)]
pub struct RunConfig {
    /// What all buffers together may hold, in bytes.
    pub memory_bytes: usize,
    /// A batch closes at the first transaction boundary at which it holds this many rows,
    pub batch_rows: usize,
    /// or takes this many bytes, in memory and spilled,
    pub batch_bytes: u64,
    /// or is this old.
    pub batch_age: Duration,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one call that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
