//! The files of a table's Delta log: which versions it holds, and since when.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use deltalake::kernel::{Add, AddCDCFile, Remove};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{CommitTag, Lake, LakeError, LakeTable};
use crate::change::{RowKey, TableId};

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

    /// The oldest version that can be built: the very first one, or one with a checkpoint, from which on no commit is missing.
    pub fn oldest_readable(&self) -> Option<u64> {
        let newest = self.commits.keys().chain(&self.checkpoints).max().copied()?;
        let mut first = newest;
        while first > 0 && self.commits.contains_key(&first) {
            first -= 1;
        }
        match first == 0 && self.commits.contains_key(&0) {
            true => Some(0),
            false => self.checkpoints.range(first..).next().copied(),
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
        list_log(self.store.as_ref(), &self.table).await
    }

    /// The text of one commit: a JSON object on each line.
    pub(super) async fn read_commit(&self, version: u64) -> Result<Bytes, LakeError> {
        read_commit(self.store.as_ref(), &self.table, version).await
    }

    /// The version whose commit carries this very number of `app_id`; `None` if no commit that is still there does. The
    /// numbers of an application grow, and the commit looked for is mostly the newest.
    ///
    /// # Errors
    /// A store that cannot be read, or a commit that is no JSON.
    pub async fn version_of(&self, app_id: &str, number: i64) -> Result<Option<u64>, LakeError> {
        let mut version = Some(self.state.version());
        while let Some(at) = version {
            let Some(commit) = find_commit(self.store.as_ref(), &self.table, at).await? else { return Ok(None) };
            match commit.txn(app_id) {
                Some(found) if found == number => return Ok(Some(at)),
                Some(found) if found < number => return Ok(None),
                _ => version = at.checked_sub(1),
            }
        }
        Ok(None)
    }

    /// The keys of rows that the application's newest batch, and those before it, left out of a table that is being loaded.
    ///
    /// # Errors
    /// [`LakeError::Damaged`] if the batch's commit is not in the log any more, or says something else.
    pub async fn unsettled(&mut self, app_id: &str) -> Result<BTreeSet<RowKey>, LakeError> {
        let Some(number) = self.txn(app_id).await? else { return Ok(BTreeSet::new()) };
        let damaged = |version: u64, reason: String| LakeError::Damaged {
            table: self.table.clone(),
            file: commit_path(version).to_string(),
            reason,
        };
        let newest = self.state.version();
        let missing = || damaged(newest, format!("step {number} of {app_id} is not in the log any more"));
        let version = self.version_of(app_id, number).await?.ok_or_else(missing)?;
        let commit = find_commit(self.store.as_ref(), &self.table, version).await?.ok_or_else(missing)?;
        match commit.info.get(CommitTag::UNSETTLED) {
            None => Ok(BTreeSet::new()),
            Some(keys) => BTreeSet::deserialize(keys).map_err(|error| damaged(version, error.to_string())),
        }
    }
}

/// What the log holds of a table at which `store` is rooted.
pub(super) async fn list_log(store: &dyn ObjectStore, table: &TableId) -> Result<LogListing, LakeError> {
    let objects = store.list(Some(&Path::from(LOG_FOLDER))).try_collect().await;
    Ok(LogListing::new(objects.map_err(LakeError::store(format!("list the log of {table}")))?))
}

async fn read_commit(store: &dyn ObjectStore, table: &TableId, version: u64) -> Result<Bytes, LakeError> {
    let path = commit_path(version);
    let read = async { store.get(&path).await?.bytes().await };
    read.await.map_err(LakeError::store(format!("read {path} of {table}")))
}

impl Lake {
    /// The newest version whose rows are those of `version`: later commits up to `before` (not itself) that changed no rows and
    /// were no later step of the application than `number` do not count. A version that the log no longer has is replaced by the
    /// oldest that can be read, if only such commits can have been in between.
    ///
    /// # Errors
    /// A log that cannot be read.
    pub async fn settled_version(
        &self,
        table: &TableId,
        version: u64,
        before: Option<u64>,
        app_id: &str,
        number: u64,
    ) -> Result<u64, LakeError> {
        let store = self.table_store(table);
        let mut settled = version;
        if find_commit(store.as_ref(), table, version).await?.is_none() {
            let oldest = list_log(store.as_ref(), table).await?.oldest_readable();
            settled = oldest.filter(|oldest| *oldest > version).unwrap_or(version);
        }
        if before.is_some_and(|before| settled >= before) {
            return Ok(version);
        }
        while let Some(commit) = find_commit(store.as_ref(), table, settled + 1).await? {
            let is_later = commit.txn(app_id).is_some_and(|found| u64::try_from(found).unwrap_or(0) > number);
            if is_later || commit.changes_rows() {
                break;
            }
            settled = commit.version;
        }
        Ok(settled)
    }
}

/// A commit of a table's log, `None` if it is not there (any more). `store` is rooted at the table.
pub(super) async fn find_commit(
    store: &dyn ObjectStore,
    table: &TableId,
    version: u64,
) -> Result<Option<Commit>, LakeError> {
    match read_commit(store, table, version).await {
        Ok(text) => Commit::parse(table, version, &text).map(Some),
        Err(LakeError::Store { source, .. }) if matches!(*source, object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The actions of one commit, as far as readers of the past need them.
#[derive(Debug, Default)]
pub(super) struct Commit {
    pub version: u64,
    pub adds: Vec<Add>,
    pub removes: Vec<Remove>,
    /// Files of the change data feed.
    pub changes: Vec<AddCDCFile>,
    pub transactions: Vec<(String, i64)>,
    /// The `commitInfo`; null where a writer left it out.
    pub info: Value,
    /// Whether the columns or properties of the table may have become others.
    pub is_metadata: bool,
}

impl Commit {
    fn parse(table: &TableId, version: u64, text: &[u8]) -> Result<Self, LakeError> {
        let damaged = |reason: String| LakeError::Damaged {
            table: table.clone(),
            file: commit_path(version).to_string(),
            reason,
        };
        let mut commit = Self { version, ..Self::default() };
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let line: Line = serde_json::from_slice(line).map_err(|error| damaged(error.to_string()))?;
            commit.adds.extend(line.add);
            commit.removes.extend(line.remove);
            commit.changes.extend(line.cdc);
            commit.transactions.extend(line.txn.map(|txn| (txn.app_id, txn.version)));
            commit.is_metadata |= line.meta_data.is_some();
            if let Some(info) = line.commit_info {
                commit.info = info;
            }
        }
        Ok(commit)
    }

    /// The number that it carries of an application.
    pub fn txn(&self, app_id: &str) -> Option<i64> {
        self.transactions.iter().find(|(id, _)| id == app_id).map(|(_, version)| *version)
    }

    /// Whether the rows of the table may be others after it.
    pub fn changes_rows(&self) -> bool {
        self.adds.iter().any(|add| add.data_change) || self.removes.iter().any(|remove| remove.data_change)
    }

    /// The position of the source that the version is equal to.
    pub fn position(&self) -> Option<&str> {
        self.info.get(CommitTag::POSITION)?.as_str()
    }

    /// When it was made, in milliseconds since 1970-01-01 UTC, by its own word.
    pub fn time_ms(&self) -> Option<i64> {
        self.info.get("inCommitTimestamp").or_else(|| self.info.get("timestamp"))?.as_i64()
    }
}

/// One line of a commit: at most one of these is there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    add: Option<Add>,
    remove: Option<Remove>,
    cdc: Option<AddCDCFile>,
    txn: Option<Txn>,
    commit_info: Option<Value>,
    meta_data: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Txn {
    app_id: String,
    version: i64,
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
