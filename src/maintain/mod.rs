//! Upkeep of tables: which chore is due on which table, and doing it, one bounded piece at a time.
//!
//! Tables have one writer, so whoever applies batches also does the upkeep, between two batches. When each chore was done last is
//! kept in the lake, beside the job's ledger; without that record everything is due, which costs time and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::change::TableId;
use crate::clock::Clock;
use crate::config::{CompactConfig, MaintainConfig, VacuumConfig};
use crate::lake::{CompactReport, CompactRules, Lake, LakeError, LakeTable};

mod record;
#[cfg(test)]
mod tests;

use record::Record;
pub use record::{LastDone, last_done};

/// As many times the files that are folded at once do not wait for their hour.
const URGENT_FACTOR: usize = 8;
/// How often old parts of the log are looked for: they become old day by day.
const LOG_EVERY: Duration = Duration::from_secs(86_400);
/// Pieces of compaction that one hour brings at most where each batch makes new ones: they are not to follow every batch.
const PIECES_IN_TURN_MAX: u32 = 32;
/// Pieces of one chore that are done in a row at most: levels and partitions are fewer in all but the largest tables, and what is
/// left is done the next time.
const PIECES_MAX: usize = 1_000;

/// One kind of upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Chore {
    Compact,
    Cluster,
    Checkpoint,
    /// Deletes old parts of the log.
    Log,
    Vacuum,
}

impl Chore {
    /// In the order in which they are done: files are folded before a checkpoint names them.
    pub const ALL: [Self; 5] = [Self::Compact, Self::Cluster, Self::Checkpoint, Self::Log, Self::Vacuum];

    pub fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Cluster => "cluster",
            Self::Checkpoint => "checkpoint",
            Self::Log => "log",
            Self::Vacuum => "vacuum",
        }
    }
}

/// When upkeep is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// More changes are to come before the run ends: only what must not grow meanwhile is done.
    Busy,
    /// What the clock asks for is done too.
    Idle,
}

/// What one piece of a chore did, or several, did to a table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ChoreReport {
    pub table: TableId,
    pub chore: Chore,
    /// Files that were folded or deleted.
    pub files_before: u64,
    pub bytes_before: u64,
    /// Files that came in their place.
    pub files_after: u64,
    pub bytes_after: u64,
    /// The first of the files that were deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// What went wrong. The table is right all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ChoreReport {
    pub fn new(table: &TableId, chore: Chore) -> Self {
        Self {
            table: table.clone(),
            chore,
            files_before: 0,
            bytes_before: 0,
            files_after: 0,
            bytes_after: 0,
            paths: Vec::new(),
            error: None,
        }
    }

    pub fn failed(table: &TableId, chore: Chore, error: &LakeError) -> Self {
        Self { error: Some(chain(error)), ..Self::new(table, chore) }
    }

    /// Whether anything was found to do, or went wrong.
    pub fn is_worth_telling(&self) -> bool {
        self.files_before > 0 || self.files_after > 0 || self.error.is_some()
    }

    /// Adds what another piece of the same chore did.
    pub fn add(&mut self, other: Self) {
        self.files_before += other.files_before;
        self.bytes_before += other.bytes_before;
        self.files_after += other.files_after;
        self.bytes_after += other.bytes_after;
        self.paths = other.paths;
        self.error = other.error;
    }
}

/// An error with its causes.
fn chain(error: &LakeError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Knows what is due, and does it.
pub struct Upkeep {
    config: MaintainConfig,
    clock: Arc<dyn Clock>,
    record: Record,
    /// Pieces done of a chore that is due and not over yet.
    pieces: HashMap<(TableId, Chore), u32>,
    /// Versions of tables whose small files are few: they need not be counted again.
    calm: HashMap<TableId, i64>,
}

impl Upkeep {
    /// Reads when what was done last. A record that cannot be read is begun anew.
    pub async fn load(job: &str, config: &MaintainConfig, lake: &Lake, clock: Arc<dyn Clock>) -> Self {
        let record = Record::load(lake.store(), job).await;
        Self { config: config.clone(), clock, record, pieces: HashMap::new(), calm: HashMap::new() }
    }

    /// Whether something may be due on the table that its files need not be known for.
    pub fn is_due_by_time(&self, table: &TableId) -> bool {
        Chore::ALL.into_iter().filter(|chore| *chore != Chore::Checkpoint).any(|chore| self.is_time(table, chore))
    }

    /// Does one piece of what is due on this occasion; `None` if nothing is. Errors are part of the report; their chore is not
    /// due again in this process before its time has come once more.
    pub async fn piece(&mut self, table: &mut LakeTable, occasion: Occasion) -> Option<ChoreReport> {
        for chore in Chore::ALL {
            if !self.is_due(table, chore, occasion).await {
                continue;
            }
            let done = self.run(table, chore, &self.rules()).await;
            let is_over = !matches!(&done, Ok(Some(_)) if self.goes_on(table.table(), chore));
            if is_over && done.is_ok() {
                self.pieces.remove(&(table.table().clone(), chore));
                self.record.done(table.table(), chore, self.now_ms());
            }
            match done {
                Ok(None) => {}
                Ok(report) => return report,
                Err(error) => {
                    self.record.tried(table.table(), chore, self.now_ms());
                    tracing::warn!(table = %table.table(), chore = chore.name(), error = %chain(&error), "upkeep failed");
                    return Some(ChoreReport::failed(table.table(), chore, &error));
                }
            }
        }
        None
    }

    /// Keeps when what was done, for the next process.
    pub async fn save(&mut self) {
        self.record.save().await;
    }

    /// Does all that is due, or tells what it would be. The reports of one chore are one.
    pub async fn all_due(&mut self, table: &mut LakeTable, dry_run: bool) -> Vec<ChoreReport> {
        let mut reports: Vec<ChoreReport> = Vec::new();
        if dry_run {
            for chore in Chore::ALL {
                if self.is_due(table, chore, Occasion::Idle).await {
                    reports.extend(self.look(table, chore, &self.rules()).await);
                }
            }
            return reports;
        }
        for _ in 0..PIECES_MAX {
            let Some(report) = self.piece(table, Occasion::Idle).await else { break };
            match reports.iter_mut().find(|known| known.chore == report.chore) {
                Some(known) => known.add(report),
                None => reports.push(report),
            }
        }
        reports
    }

    /// Does one chore whether it is due or not: all small files of a partition are folded into one, however few.
    pub async fn now(&mut self, table: &mut LakeTable, chore: Chore, dry_run: bool) -> ChoreReport {
        let rules = self.rules().by_hand();
        if dry_run {
            return self.look(table, chore, &rules).await.unwrap_or_else(|| ChoreReport::new(table.table(), chore));
        }
        let mut all = ChoreReport::new(table.table(), chore);
        for _ in 0..PIECES_MAX {
            match self.run(table, chore, &rules).await {
                Ok(Some(report)) => all.add(report),
                Ok(None) => break,
                Err(error) => {
                    all.error = Some(chain(&error));
                    return all;
                }
            }
            if !matches!(chore, Chore::Compact | Chore::Cluster) {
                break;
            }
        }
        self.record.done(table.table(), chore, self.now_ms());
        all
    }

    /// Whether another piece of the chore may follow this one at once.
    fn goes_on(&mut self, table: &TableId, chore: Chore) -> bool {
        let pieces = self.pieces.entry((table.clone(), chore)).or_default();
        *pieces += 1;
        matches!(chore, Chore::Compact | Chore::Cluster) && *pieces < PIECES_IN_TURN_MAX
    }

    async fn is_due(&mut self, table: &mut LakeTable, chore: Chore, occasion: Occasion) -> bool {
        match chore {
            Chore::Checkpoint => {
                let versions = table.versions_since_checkpoint().await;
                versions.is_ok_and(|versions| versions >= self.config.checkpoint_versions)
            }
            Chore::Compact if self.is_urgent(table) => true,
            _ => occasion == Occasion::Idle && self.is_time(table.table(), chore),
        }
    }

    fn is_urgent(&mut self, table: &LakeTable) -> bool {
        if self.config.compact.is_none() || self.calm.get(table.table()) == Some(&table.version()) {
            return false;
        }
        let rules = self.rules();
        let urgent = table.small_files(&rules) >= rules.small_files.saturating_mul(URGENT_FACTOR);
        if !urgent {
            self.calm.insert(table.table().clone(), table.version());
        }
        urgent
    }

    /// Whether the chore's time has come again, or was never.
    fn is_time(&self, table: &TableId, chore: Chore) -> bool {
        let every = match chore {
            Chore::Compact => self.config.compact.map(|compact| compact.every),
            Chore::Cluster => self.config.cluster_every,
            Chore::Vacuum => self.config.vacuum.map(|vacuum| vacuum.every),
            Chore::Log => self.config.log_retention.map(|_| LOG_EVERY),
            Chore::Checkpoint => None,
        };
        let Some(every) = every else { return false };
        let Some(last_ms) = self.record.last_ms(table, chore) else { return true };
        let since_ms = self.now_ms().saturating_sub(last_ms);
        // A clock that was ahead is no reason to wait for it.
        since_ms < 0 || u128::from(since_ms.unsigned_abs()) >= every.as_millis()
    }

    /// `None` if there was nothing to do.
    async fn run(
        &self,
        table: &mut LakeTable,
        chore: Chore,
        rules: &CompactRules,
    ) -> Result<Option<ChoreReport>, LakeError> {
        let id = table.table().clone();
        match chore {
            Chore::Compact => Ok(table.compact(rules).await?.map(|done| folded(&id, chore, done))),
            Chore::Cluster => Ok(table.cluster(rules).await?.map(|done| folded(&id, chore, done))),
            Chore::Checkpoint => {
                table.checkpoint().await?;
                Ok(Some(ChoreReport { files_after: 1, ..ChoreReport::new(&id, chore) }))
            }
            Chore::Log | Chore::Vacuum => self.sweep(table, chore, false).await.map(Some),
        }
    }

    /// What [`Self::run`] would do, again and again.
    async fn look(&self, table: &mut LakeTable, chore: Chore, rules: &CompactRules) -> Option<ChoreReport> {
        let id = table.table().clone();
        match chore {
            Chore::Compact => all_folded(&id, chore, table.compactions_due(rules)),
            Chore::Cluster => all_folded(&id, chore, table.clusterings_due(rules)),
            Chore::Checkpoint => Some(ChoreReport { files_after: 1, ..ChoreReport::new(&id, chore) }),
            Chore::Log | Chore::Vacuum => {
                let found = self.sweep(table, chore, true).await;
                Some(found.unwrap_or_else(|error| ChoreReport::failed(&id, chore, &error)))
            }
        }
    }

    /// Deletes old files, or counts them.
    async fn sweep(&self, table: &mut LakeTable, chore: Chore, dry_run: bool) -> Result<ChoreReport, LakeError> {
        let report = ChoreReport::new(table.table(), chore);
        if chore == Chore::Log {
            let done = table.clean_log(self.now_ms(), self.log_retention(), dry_run).await?;
            return Ok(ChoreReport { files_before: done.files, bytes_before: done.bytes, ..report });
        }
        let done = table.vacuum(self.now_ms(), self.vacuum_retention(), dry_run).await?;
        Ok(ChoreReport { files_before: done.files, bytes_before: done.bytes, paths: done.paths, ..report })
    }

    fn vacuum_retention(&self) -> Duration {
        self.config.vacuum.map_or(VacuumConfig::RETENTION_MIN, |vacuum| vacuum.retention)
    }

    /// What can be read by its files can be read by its log too.
    fn log_retention(&self) -> Duration {
        self.config.log_retention.unwrap_or(MaintainConfig::LOG_RETENTION).max(self.vacuum_retention())
    }

    fn rules(&self) -> CompactRules {
        let CompactConfig { file_bytes, small_files, deleted_percent, .. } =
            self.config.compact.unwrap_or(CompactConfig::DEFAULT);
        CompactRules { file_bytes, small_files, deleted_percent, by_level: true }
    }

    fn now_ms(&self) -> i64 {
        self.clock.unix_us().div_euclid(1_000)
    }
}

/// `None` if there is nothing.
fn all_folded(table: &TableId, chore: Chore, pieces: Vec<CompactReport>) -> Option<ChoreReport> {
    pieces.into_iter().map(|piece| folded(table, chore, piece)).reduce(|mut all, piece| {
        all.add(piece);
        all
    })
}

fn folded(table: &TableId, chore: Chore, done: CompactReport) -> ChoreReport {
    ChoreReport {
        files_before: done.files_before,
        bytes_before: done.bytes_before,
        files_after: done.files_after,
        bytes_after: done.bytes_after,
        ..ChoreReport::new(table, chore)
    }
}
