//! The files of a table's Delta log: which versions it holds, and since when.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::{LakeError, LakeTable};

/// The log's folder below a table.
pub(super) const LOG_FOLDER: &str = "_delta_log";
/// Digits of a version in the names of the log's files ("Delta Log Entries" of the Delta protocol).
const VERSION_DIGITS: usize = 20;

/// What the log's folder holds.
#[derive(Debug, Default)]
pub(super) struct LogListing {
    /// The commits that are there, with the time since when their version holds: milliseconds since 1970-01-01 UTC,
    /// that of the commit's file, and never before that of an earlier version.
    pub commits: BTreeMap<u64, i64>,
    /// Versions with a complete checkpoint.
    pub checkpoints: BTreeSet<u64>,
    /// All files that belong to one version: commits, checkpoints and their like.
    pub files: Vec<LogFile>,
}

/// One file of the log.
#[derive(Debug)]
pub(super) struct LogFile {
    pub path: Path,
    /// The newest version that needs it.
    pub version: u64,
    pub bytes: u64,
}

/// What the name of a log file says.
#[derive(Debug, PartialEq, Eq)]
enum LogName {
    Commit,
    /// One of so many parts.
    Checkpoint {
        parts: u32,
    },
    /// Belongs to the version, and is needed by no reader: checksums, compacted commits.
    Aside,
}

impl LogListing {
    fn new(mut objects: Vec<ObjectMeta>) -> Self {
        let mut listing = Self::default();
        let mut parts: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        let mut latest_ms = i64::MIN;
        for object in objects {
            let Some((version, name)) = object.location.filename().and_then(parse) else { continue };
            match name {
                LogName::Commit => {
                    latest_ms = latest_ms.max(object.last_modified.timestamp_millis());
                    listing.commits.insert(version, latest_ms);
                }
                LogName::Checkpoint { parts: of } => *parts.entry((version, of)).or_default() += 1,
                LogName::Aside => {}
            }
            listing.files.push(LogFile { path: object.location, version, bytes: object.size });
        }
        let complete = parts.into_iter().filter(|((_, of), found)| found >= of);
        listing.checkpoints = complete.map(|((version, _), _)| version).collect();
        listing
    }

    /// The commits of versions that came into being at `since_ms` or later: what they removed was still part of a
    /// version at that time.
    ///
    /// # Errors
    /// The version whose commit is missing among them, if there are older versions that a reader may still open.
    pub fn commits_since(&self, since_ms: i64) -> Result<Vec<u64>, u64> {
        let recent: Vec<u64> = self.commits.iter().filter(|(_, ms)| **ms >= since_ms).map(|(v, _)| *v).collect();
        let Some(newest) = self.commits.keys().next_back() else { return Ok(recent) };
        let run = self.commits.keys().rev().zip((0..=*newest).rev()).take_while(|(found, wanted)| *found == wanted);
        let first = run.last().map_or(*newest, |(version, _)| *version);
        let reaches_back = self.commits.get(&first).is_some_and(|ms| *ms < since_ms);
        let known = self.commits.keys().chain(&self.checkpoints);
        match known.min() {
            // A checkpoint of the version just before the first commit is what that commit starts from.
            Some(oldest) if !reaches_back && oldest.saturating_add(1) < first => Err(first - 1),
            _ => Ok(recent),
        }
    }

    /// The newest checkpoint from which every version can be read that still held at `since_ms` or later.
    pub fn checkpoint_before(&self, since_ms: i64) -> Option<u64> {
        // The last version that had come into being by then is the first that still held.
        let oldest = self.commits.iter().rev().find(|(_, ms)| **ms < since_ms).map(|(version, _)| *version)?;
        self.checkpoints.range(..=oldest).next_back().copied()
    }
}

/// The version and kind of a log file; `None` for files that belong to no version (`_last_checkpoint`).
fn parse(name: &str) -> Option<(u64, LogName)> {
    let version = |digits: &str| {
        let plain = digits.len() == VERSION_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        if plain { digits.parse::<u64>().ok() } else { None }
    };
    let words: Vec<&str> = name.split('.').collect();
    let first = version(words.first()?)?;
    let kind = match words.as_slice() {
        [_, "json"] => LogName::Commit,
        [_, "checkpoint", "parquet"] => LogName::Checkpoint { parts: 1 },
        [_, "checkpoint", _, of, "parquet"] => LogName::Checkpoint { parts: of.parse().ok().filter(|of| *of > 0)? },
        // Named by a UUID ("V2 Spec" of the Delta protocol).
        [_, "checkpoint", _, "parquet" | "json"] => LogName::Checkpoint { parts: 1 },
        [_, last, "compacted", "json"] => return Some((version(last)?, LogName::Aside)),
        _ => LogName::Aside,
    };
    Some((first, kind))
}

impl LakeTable {
    pub(super) async fn list_log(&self) -> Result<LogListing, LakeError> {
        let objects = self.store.list(Some(&Path::from(LOG_FOLDER))).try_collect().await;
        Ok(LogListing::new(objects.map_err(LakeError::store(format!("list the log of {}", self.table)))?))
    }

    /// The text of one commit: a JSON object on each line.
    pub(super) async fn read_commit(&self, version: u64) -> Result<Bytes, LakeError> {
        let path = commit_path(version);
        let read = async { self.store.get(&path).await?.bytes().await };
        read.await.map_err(LakeError::store(format!("read {path} of {}", self.table)))
    }
}

pub(super) fn commit_path(version: u64) -> Path {
    Path::from_iter([LOG_FOLDER.to_string(), format!("{version:0width$}.json", width = VERSION_DIGITS)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    fn listing(files: &[(&str, i64)]) -> LogListing {
        let object = |(name, ms): &(&str, i64)| ObjectMeta {
            location: Path::from(format!("_delta_log/{name}")),
            last_modified: DateTime::from_timestamp_millis(*ms).unwrap(),
            size: 1,
            e_tag: None,
            version: None,
        };
        LogListing::new(files.iter().map(object).collect())
    }

    fn commits(range: std::ops::Range<u64>) -> Vec<(String, i64)> {
        range.map(|version| (format!("{version:020}.json"), version as i64 * 10)).collect()
    }

    fn check_since(files: &[(String, i64)], since_ms: i64, expected: Result<Vec<u64>, u64>) {
        let files: Vec<_> = files.iter().map(|(name, ms)| (name.as_str(), *ms)).collect();
        assert_eq!(listing(&files).commits_since(since_ms), expected, "{files:?}");
    }

    #[test]
    fn files_are_known_by_their_names() {
        let name = |name: &str| parse(name).map(|(version, name)| (version, format!("{name:?}")));
        let known = |version, name: &str| Some((version, name.to_string()));
        assert_eq!(name("00000000000000000012.json"), known(12, "Commit"));
        assert_eq!(name("00000000000000000012.checkpoint.parquet"), known(12, "Checkpoint { parts: 1 }"));
        let part = "00000000000000000012.checkpoint.0000000001.0000000003.parquet";
        assert_eq!(name(part), known(12, "Checkpoint { parts: 3 }"));
        assert_eq!(name("00000000000000000012.00000000000000000020.compacted.json"), known(20, "Aside"));
        assert_eq!(name("00000000000000000012.crc"), known(12, "Aside"));
        for other in ["_last_checkpoint", "12.json", "0000000000000000001x.json", "", "_commits"] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn the_commits_of_the_retention_are_told_or_the_one_that_is_missing() {
        check_since(&commits(0..5), 30, Ok(vec![3, 4]));
        check_since(&commits(0..5), 0, Ok(vec![0, 1, 2, 3, 4]));
        check_since(&commits(0..5), 41, Ok(vec![]));
        let torn = [commits(0..2), commits(3..6)].concat();
        check_since(&torn, 50, Ok(vec![5]));
        check_since(&torn, 30, Err(2));
        // The log was cleaned up to a checkpoint.
        let checkpoint = |version: u64| (format!("{version:020}.checkpoint.parquet"), 0);
        check_since(&[commits(3..6), vec![checkpoint(3)]].concat(), 10, Ok(vec![3, 4, 5]));
        check_since(&[commits(3..6), vec![checkpoint(2)]].concat(), 10, Ok(vec![3, 4, 5]));
        check_since(&[commits(3..6), vec![checkpoint(1)]].concat(), 10, Err(2));
        // A clock that went back.
        let mut back = commits(0..3);
        back[1].1 = 100;
        check_since(&back, 50, Ok(vec![1, 2]));
    }

    #[test]
    fn a_log_is_kept_from_a_checkpoint_on_that_is_old_enough() {
        let mut files = commits(0..8);
        files.extend([2, 5].map(|version: u64| (format!("{version:020}.checkpoint.parquet"), 0)));
        files.push(("00000000000000000004.checkpoint.0000000001.0000000002.parquet".to_string(), 0));
        let files: Vec<_> = files.iter().map(|(name, ms)| (name.as_str(), *ms)).collect();
        let before = |since_ms| listing(&files).checkpoint_before(since_ms);
        assert_eq!([15, 25, 50, 51, 1000].map(before), [None, Some(2), Some(2), Some(5), Some(5)]);
    }
}
