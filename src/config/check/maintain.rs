//! The checks of `maintain`.

use super::Checker;
use crate::config::maintain::{CompactConfig, MaintainConfig, VacuumConfig};
use crate::config::period::Period;
use crate::config::raw::{OrOff, RawCheckpoint, RawCluster, RawCompact, RawLog, RawMaintain, RawVacuum};
use crate::config::read::Field;
use crate::config::size::ByteCount;

/// Below this a file holds too few rows to be worth its footer, and a table has too many files to list.
const FILE_SIZE_MIN: ByteCount = ByteCount(1 << 20);
/// A file is written by one task and read by one: larger ones take minutes.
const FILE_SIZE_MAX: ByteCount = ByteCount(4 << 30);
const FILE_SIZE_DEFAULT: ByteCount = ByteCount(256 << 20);

/// Folding fewer than two files folds nothing; of more than this each is open while they are merged.
const SMALL_FILES: (u64, u64, u64) = (8, 2, 64);
/// The largest share asks for files without a live row, which are gone anyway.
const DELETED_PERCENT: (u64, u64, u64) = (20, 1, 99);
/// Versions between checkpoints. Readers list and replay as many commits.
const CHECKPOINT_VERSIONS: (u64, u64, u64) = (100, 1, 10_000);

impl Checker<'_> {
    /// Settings are noted for all work that is not off, in the order of the file's documentation.
    pub(super) fn maintain(&mut self, field: &Field<OrOff<RawMaintain>>) -> MaintainConfig {
        let none = RawMaintain::default();
        let raw = match field.set().map(|set| &set.value) {
            Some(OrOff::Off) => {
                self.given("maintain", "off");
                let (versions, ..) = CHECKPOINT_VERSIONS;
                return MaintainConfig {
                    compact: None,
                    cluster_every: None,
                    vacuum: None,
                    checkpoint_versions: versions,
                    log_retention: None,
                };
            }
            Some(OrOff::On(raw)) => raw,
            None => &none,
        };
        let compact = self.or_off("maintain.compact", &raw.compact, Self::compact);
        let cluster_every = self.or_off("maintain.cluster", &raw.cluster, Self::cluster);
        let vacuum = self.or_off("maintain.vacuum", &raw.vacuum, Self::vacuum);
        let checkpoint_versions = self.checkpoint(&raw.checkpoint);
        let log_retention = self.or_off("maintain.log", &raw.log, Self::log);
        if let (Some(log), Some(vacuum)) = (log_retention, vacuum)
            && log < vacuum.retention
        {
            let message = "must be at least maintain.vacuum.retention: without their log, old versions cannot be read";
            self.refuse_at_log(raw, message);
        }
        MaintainConfig { compact, cluster_every, vacuum, checkpoint_versions, log_retention }
    }

    /// The work's settings, or `None` for work that is off.
    fn or_off<R: Default, T>(
        &mut self,
        key: &str,
        field: &Field<OrOff<R>>,
        read: impl FnOnce(&mut Self, &R) -> T,
    ) -> Option<T> {
        match field.set().map(|set| &set.value) {
            Some(OrOff::Off) => {
                self.given(key, "off");
                None
            }
            Some(OrOff::On(raw)) => Some(read(self, raw)),
            None => Some(read(self, &R::default())),
        }
    }

    fn compact(&mut self, raw: &RawCompact) -> CompactConfig {
        let every = self.period("maintain.compact.every", &raw.every, Period::hours(1));
        let size = self.value("maintain.compact.file_size", &raw.file_size, FILE_SIZE_DEFAULT, ByteCount::to_string);
        if size < FILE_SIZE_MIN || size > FILE_SIZE_MAX {
            self.refuse(&raw.file_size, format!("must be {FILE_SIZE_MIN} to {FILE_SIZE_MAX}, found {size}"));
        }
        let (files, min, max) = SMALL_FILES;
        let small_files = self.number("maintain.compact.small_files", &raw.small_files, files, min, max);
        let (percent, min, max) = DELETED_PERCENT;
        let deleted_percent = self.number("maintain.compact.deleted_percent", &raw.deleted_percent, percent, min, max);
        CompactConfig {
            every: every.0,
            file_bytes: size.0 as u64,
            small_files: usize::try_from(small_files).unwrap_or(usize::MAX),
            deleted_percent,
        }
    }

    fn cluster(&mut self, raw: &RawCluster) -> std::time::Duration {
        self.period("maintain.cluster.every", &raw.every, Period::days(1)).0
    }

    fn vacuum(&mut self, raw: &RawVacuum) -> VacuumConfig {
        let every = self.period("maintain.vacuum.every", &raw.every, Period::days(1));
        let retention = self.period("maintain.vacuum.retention", &raw.retention, Period::days(7));
        let short = "maintain.vacuum.allow_short_retention";
        let allow_short_retention = self.value(short, &raw.allow_short_retention, false, bool::to_string);
        if retention.0 < VacuumConfig::RETENTION_MIN && !allow_short_retention {
            let message = "must be at least 7d: a shorter one takes files from under readers and writers that are at \
                           work; `allow_short_retention: true` beside it allows that";
            self.refuse(&raw.retention, message);
        }
        VacuumConfig { every: every.0, retention: retention.0, allow_short_retention }
    }

    fn checkpoint(&mut self, field: &Field<RawCheckpoint>) -> u64 {
        let none = RawCheckpoint::default();
        let raw = field.set().map_or(&none, |set| &set.value);
        let (versions, min, max) = CHECKPOINT_VERSIONS;
        self.number("maintain.checkpoint.versions", &raw.versions, versions, min, max)
    }

    fn log(&mut self, raw: &RawLog) -> std::time::Duration {
        self.period("maintain.log.retention", &raw.retention, Period::days(30)).0
    }

    /// The retention of the log may be a default: then the one of vacuum is what was written.
    fn refuse_at_log(&mut self, raw: &RawMaintain, message: &str) {
        if let Some(OrOff::On(log)) = raw.log.set().map(|set| &set.value)
            && log.retention.set().is_some()
        {
            return self.refuse(&log.retention, message);
        }
        if let Some(OrOff::On(vacuum)) = raw.vacuum.set().map(|set| &set.value) {
            self.refuse(
                &vacuum.retention,
                "must be at most maintain.log.retention (30d by default): lengthen that too",
            );
        }
    }

    pub(super) fn period(&mut self, key: &str, field: &Field<Period>, default: Period) -> Period {
        self.value(key, field, default, Period::to_string)
    }
}
