//! The upkeep of a job's tables.

use std::time::Duration;

/// What is done to tables beside the changes of their source, and when. `None`: never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintainConfig {
    pub compact: Option<CompactConfig>,
    /// How often the new rows of tables with `cluster_by` are clustered.
    pub cluster_every: Option<Duration>,
    pub vacuum: Option<VacuumConfig>,
    /// Versions between two checkpoints of a table's log.
    pub checkpoint_versions: u64,
    /// How long the log is kept. Never shorter than the files of old versions are.
    pub log_retention: Option<Duration>,
}

/// When files are folded together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactConfig {
    pub every: Duration,
    /// The size that files are brought to, in bytes.
    pub file_bytes: u64,
    /// How many files of one level are folded at least.
    pub small_files: usize,
    /// The share of deleted rows from which on a file is written again, in percent.
    pub deleted_percent: u64,
}

/// When files that no version needs any more are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VacuumConfig {
    pub every: Duration,
    /// For how long a version that was replaced can still be read.
    pub retention: Duration,
    /// Whether the retention may be so short that it takes files from under readers.
    pub allow_short_retention: bool,
}

impl CompactConfig {
    /// What holds where the job file says nothing.
    pub const DEFAULT: Self =
        Self { every: Duration::from_secs(3_600), file_bytes: 256 << 20, small_files: 8, deleted_percent: 20 };
}

impl VacuumConfig {
    /// The shortest retention without an explicit wish: Delta's own default. A reader, or a writer whose files are in no
    /// commit yet, has this long to finish.
    pub const RETENTION_MIN: Duration = Duration::from_secs(7 * 86_400);
}

impl MaintainConfig {
    /// What holds where the job file says nothing.
    pub const DEFAULT: Self = Self {
        compact: Some(CompactConfig::DEFAULT),
        cluster_every: Some(Duration::from_secs(86_400)),
        vacuum: Some(VacuumConfig {
            every: Duration::from_secs(86_400),
            retention: VacuumConfig::RETENTION_MIN,
            allow_short_retention: false,
        }),
        checkpoint_versions: 100,
        log_retention: Some(Self::LOG_RETENTION),
    };

    /// Delta's own default.
    pub const LOG_RETENTION: Duration = Duration::from_secs(30 * 86_400);
}

impl Default for MaintainConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}
