//! Which files are folded together, decided by the log alone.
//!
//! Each file has a level: the number of times that its rows have been folded, kept in a tag of its `add`. Files that
//! others wrote have none, and get the level that their size is worth. Folding takes at least [`CompactRules::small_files`]
//! files of one level and gives files of the next, so that a file of level n holds the rows of `small_files`^n
//! files, and a row is folded at most log(files ever written) to the base `small_files` times. A file with many deleted rows is
//! written again at its own level: that costs at most (100 - p) / p rows for each row deleted, with p percent as the bound.
//! Only [`CompactRules::by_hand`] folds files of different levels.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::lake::files::{FileEntry, FileMap};
use crate::lake::locate::KeyRange;

/// The tag of an `add` that holds its level.
pub(super) const LEVEL_TAG: &str = "alluvium.level";
/// The tag that holds the folding that a file is from. Files of one folding do not overlap, whatever their statistics say.
pub(super) const RUN_TAG: &str = "alluvium.run";

/// Files of one folding that are read, as a multiple of the size of a file: it bounds the time and disk of one piece of work.
const GROUP_SIZE_MAX: u64 = 16;
/// Files of one folding: each costs a footer and a task.
const GROUP_FILES_MAX: usize = 512;
/// Untagged files from this size on are above level 0.
const LEVEL_BYTES: u64 = 1 << 20;

/// When files are folded together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactRules {
    /// The size that files are brought to, in bytes.
    pub file_bytes: u64,
    /// How many files of a level are folded at least; 2 or more.
    pub small_files: usize,
    /// The share of deleted rows from which on a file is written again, in percent; 1 or more.
    pub deleted_percent: u64,
    /// Whether only files of one level are folded with each other: then each row is folded a bounded number of times.
    pub by_level: bool,
}

/// Files of one partition that become new ones together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// At least one.
    pub files: Vec<Arc<FileEntry>>,
    /// The level of the new files.
    pub level: u32,
}

impl Group {
    /// The bytes that the live rows are worth.
    pub fn live_bytes(&self) -> u64 {
        self.files.iter().map(|file| live_bytes(file)).sum()
    }
}

impl CompactRules {
    /// The rules for someone who asks for it now: all small files of a partition become one, however few and of whatever
    /// levels they are.
    #[must_use]
    pub fn by_hand(self) -> Self {
        Self { small_files: 2, by_level: false, ..self }
    }

    /// The next group of files to fold, the cheapest kind first; `None` if all are as they should be.
    pub(super) fn next(&self, files: &FileMap) -> Option<Group> {
        let mut partitions: BTreeMap<_, Vec<Arc<FileEntry>>> = BTreeMap::new();
        for file in files.values() {
            partitions.entry(partition(file)).or_default().push(file.clone());
        }
        let groups = |rule: fn(&Self, &[Arc<FileEntry>]) -> Option<Group>| {
            partitions.values().find_map(|files| rule(self, files))
        };
        groups(Self::small).or_else(|| groups(Self::deleted)).or_else(|| groups(Self::overlapping))
    }

    /// Files of one partition for which `is_due` holds, at the highest of their levels.
    pub(super) fn all_of(&self, files: &FileMap, is_due: impl Fn(&FileEntry) -> bool) -> Option<Group> {
        let first = files.values().find(|file| is_due(file))?;
        let same = |file: &&Arc<FileEntry>| is_due(file) && partition(file) == partition(first);
        let files = self.bounded(files.values().filter(same).cloned().collect());
        let level = files.iter().map(|file| self.level(file)).max()?;
        Some(Group { files, level })
    }

    /// The largest number of small files that one level of a partition has.
    pub(super) fn small_count(&self, files: &FileMap) -> usize {
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        for file in files.values().filter(|file| self.is_small(file)) {
            *counts.entry((partition(file), self.group_level(file))).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    /// Small files of one level, once there are enough.
    fn small(&self, files: &[Arc<FileEntry>]) -> Option<Group> {
        let mut levels: BTreeMap<u32, Vec<Arc<FileEntry>>> = BTreeMap::new();
        for file in files.iter().filter(|file| self.is_small(file)) {
            levels.entry(self.group_level(file)).or_default().push(file.clone());
        }
        let files = levels.into_values().find(|files| files.len() >= self.small_files)?;
        let files = self.bounded(files);
        let level = files.iter().map(|file| self.level(file)).max()?;
        Some(Group { files, level: level + 1 })
    }

    /// The level of files that are folded together with this one, if it is small.
    fn group_level(&self, file: &FileEntry) -> u32 {
        if self.by_level { self.level(file) } else { 0 }
    }

    /// Files with too many deleted rows, all levels together. Small ones wait until that is true of all small files
    /// together: a few rows more or less in one of them are not worth a commit.
    fn deleted(&self, files: &[Arc<FileEntry>]) -> Option<Group> {
        let small = files.iter().filter(|file| self.is_small(file));
        let sum = |(rows, deleted): (u64, u64), file: &Arc<FileEntry>| {
            (rows.saturating_add(file.rows.unwrap_or(0)), deleted.saturating_add(file.deleted_rows()))
        };
        let (rows, deleted) = small.fold((0, 0), sum);
        let small_too = self.is_too_much(deleted, rows);
        let is_due = |file: &&Arc<FileEntry>| {
            let rows = file.rows.unwrap_or(u64::MAX);
            (small_too || !self.is_small(file)) && self.is_too_much(file.deleted_rows(), rows)
        };
        let files: Vec<_> = files.iter().filter(is_due).cloned().collect();
        if files.is_empty() {
            return None;
        }
        let files = self.bounded(files);
        let level = files.iter().map(|file| self.level(file)).max()?;
        Some(Group { files, level })
    }

    fn is_too_much(&self, deleted: u64, rows: u64) -> bool {
        deleted > 0 && deleted.saturating_mul(100) >= rows.saturating_mul(self.deleted_percent)
    }

    /// Files of at least as many foldings as are folded at once that may all hold one key. Files of level 0 stay as they
    /// are: a first load's lie one behind the other, and with a key of several columns statistics cannot tell that.
    fn overlapping(&self, files: &[Arc<FileEntry>]) -> Option<Group> {
        let mut levels: BTreeMap<u32, Vec<Arc<FileEntry>>> = BTreeMap::new();
        for file in files.iter().filter(|file| run(file).is_some() && file.range.is_some()) {
            levels.entry(self.level(file)).or_default().push(file.clone());
        }
        levels.into_iter().find_map(|(level, files)| {
            let files = deepest(&files, self.small_files)?;
            Some(Group { files, level: level + 1 })
        })
    }

    pub(super) fn is_small(&self, file: &FileEntry) -> bool {
        file.bytes() < self.file_bytes / 2
    }

    pub(super) fn level(&self, file: &FileEntry) -> u32 {
        let tagged = tag(file, LEVEL_TAG).and_then(|level| level.parse().ok());
        tagged.unwrap_or_else(|| {
            let (mut level, mut bytes) = (0, LEVEL_BYTES);
            while file.bytes() >= bytes {
                level += 1;
                bytes = bytes.saturating_mul(self.small_files.max(2) as u64);
            }
            level
        })
    }

    /// As many of the files as one piece of work takes, those with the lowest keys first, so that what is left out does not
    /// lie in between.
    fn bounded(&self, mut files: Vec<Arc<FileEntry>>) -> Vec<Arc<FileEntry>> {
        files.sort_by(|a, b| low(a).cmp(&low(b)).then_with(|| a.add.path.cmp(&b.add.path)));
        let bytes_max = self.file_bytes.saturating_mul(GROUP_SIZE_MAX);
        let mut bytes = 0_u64;
        let mut taken = Vec::new();
        for file in files.into_iter().take(GROUP_FILES_MAX) {
            bytes = bytes.saturating_add(file.bytes());
            if bytes > bytes_max && taken.len() >= self.small_files.max(1) {
                break;
            }
            taken.push(file);
        }
        taken
    }
}

/// What a file's live rows are worth of its bytes.
fn live_bytes(file: &FileEntry) -> u64 {
    let Some(rows) = file.rows.filter(|rows| *rows > 0) else { return file.bytes() };
    let live = u128::from(rows.saturating_sub(file.deleted_rows()));
    u64::try_from(u128::from(file.bytes()) * live / u128::from(rows)).unwrap_or(u64::MAX)
}

/// Files of `runs_min` foldings that all cover one key; of each folding one file. One walk over the files by their lowest
/// keys, with those at hand that reach so far.
fn deepest(files: &[Arc<FileEntry>], runs_min: usize) -> Option<Vec<Arc<FileEntry>>> {
    let mut sorted: Vec<&Arc<FileEntry>> = files.iter().collect();
    sorted.sort_by(|a, b| low(a).cmp(&low(b)).then_with(|| a.add.path.cmp(&b.add.path)));
    let mut reaching: Vec<&Arc<FileEntry>> = Vec::new();
    sorted.into_iter().find_map(|file| {
        let key = low(file)?;
        reaching.retain(|before| covers(before, key));
        reaching.push(file);
        let runs: BTreeMap<&str, &Arc<FileEntry>> =
            reaching.iter().filter_map(|file| Some((run(file)?, *file))).collect();
        (runs.len() >= runs_min).then(|| runs.into_values().take(runs_min).cloned().collect())
    })
}

fn covers(file: &FileEntry, key: Bound<'_>) -> bool {
    match (&file.range, key) {
        (Some(KeyRange::Integer(low, high)), Bound::Integer(key)) => (*low..=*high).contains(&key),
        (Some(KeyRange::Encoded(low, high)), Bound::Encoded(key)) => **low <= *key && *key <= **high,
        _ => false,
    }
}

/// The lower bound of a file's first key column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bound<'a> {
    Integer(i64),
    Encoded(&'a [u8]),
}

fn low(file: &FileEntry) -> Option<Bound<'_>> {
    Some(match file.range.as_ref()? {
        KeyRange::Integer(low, _) => Bound::Integer(*low),
        KeyRange::Encoded(low, _) => Bound::Encoded(low),
    })
}

fn run(file: &FileEntry) -> Option<&str> {
    tag(file, RUN_TAG)
}

fn tag<'a>(file: &'a FileEntry, name: &str) -> Option<&'a str> {
    file.add.tags.as_ref()?.get(name)?.as_deref()
}

/// The values of the file's partition, in an order.
fn partition(file: &FileEntry) -> BTreeMap<&str, Option<&str>> {
    file.add.partition_values.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
}
