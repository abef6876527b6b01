//! Versions of a table: how a query names one, which ones there are, and when each was committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, TimeDelta, Utc};
use futures::TryStreamExt;
use object_store::{GetOptions, ObjectMeta, ObjectStore, path::Path};

use super::QueryError;
use super::changes::Bound;

/// Which version of a table is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AsOf {
    Version(u64),
    /// The newest version that was committed at this time or before it.
    Time(DateTime<Utc>),
    /// Not the rows, but what happened to them in these versions, both included.
    Changes {
        from: Bound,
        to: Option<Bound>,
    },
}

impl AsOf {
    /// The name that stands for this version of a table: `orders@v12`, `orders@t2026-01-31T10:00:00Z`.
    pub fn name_of(&self, table: &str) -> String {
        match self {
            Self::Version(version) => format!("{table}@v{version}"),
            Self::Time(time) => format!("{table}@t{}", time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            Self::Changes { from, to } => format!("{table}@{from:?}..{to:?}"),
        }
    }

    /// Takes a name apart that `name_of` made or that was typed so; `None` for a plain name.
    pub fn split(name: &str) -> Result<Option<(&str, Self)>, QueryError> {
        let Some((table, suffix)) = name.rsplit_once('@') else { return Ok(None) };
        if let Some(version) = suffix.strip_prefix(['v', 'V']).and_then(|digits| digits.parse().ok()) {
            return Ok(Some((table, Self::Version(version))));
        }
        match suffix.strip_prefix(['t', 'T']) {
            Some(text) if text.starts_with(|first: char| first.is_ascii_digit()) => {
                Ok(Some((table, Self::Time(parse_time(text)?))))
            }
            _ => Ok(None),
        }
    }
}

/// Reads a time as people write it: a day, a day and a time with or without seconds and their parts, with or without an
/// offset. UTC where no offset is given.
pub(super) fn parse_time(text: &str) -> Result<DateTime<Utc>, QueryError> {
    const WITH_OFFSET: [&str; 4] =
        ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z", "%Y-%m-%d %H:%M%#z"];
    const WITHOUT: [&str; 4] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];
    let text = text.trim();
    let offset = |format: &&str| DateTime::parse_from_str(text, format).ok().map(|time| time.to_utc());
    let naive = |format: &&str| NaiveDateTime::parse_from_str(text, format).ok().map(|time| time.and_utc());
    let day = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0).map(|time| time.and_utc());
    let zulu = text.strip_suffix(['Z', 'z']);
    let in_zulu =
        || zulu.and_then(|text| WITHOUT.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok()));
    WITH_OFFSET
        .iter()
        .find_map(offset)
        .or_else(|| WITHOUT.iter().find_map(naive))
        .or_else(|| in_zulu().map(|time| time.and_utc()))
        .or_else(day)
        .ok_or_else(|| QueryError::NotATime { text: text.to_string() })
}

/// The head of a commit file that is read for its time: writers put `commitInfo` first, and it is far smaller than this.
const COMMIT_HEAD_BYTES: u64 = 64 * 1024;

/// A commit file up to this size is read whole when its head does not tell its time; a larger one (some hundred thousand
/// files in one commit) is taken to be committed when the store says that it was written.
const COMMIT_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What the log of one table holds.
pub(super) struct History {
    store: Arc<dyn ObjectStore>,
    table: String,
    /// The commit files, by version.
    commits: BTreeMap<u64, ObjectMeta>,
    /// The oldest and the newest version that can be built from the files that are there.
    pub oldest: u64,
    pub newest: u64,
}

impl History {
    /// Lists the log in `log` (as `_delta_log`, relative to the store). `None` when it holds no table.
    pub async fn list(store: Arc<dyn ObjectStore>, log: &Path, table: String) -> Result<Option<Self>, QueryError> {
        let mut commits = BTreeMap::new();
        let mut checkpoints = BTreeSet::new();
        let mut files = store.list(Some(log));
        let failed = |error| QueryError::lake(format!("listing the versions of {table}"), error);
        while let Some(file) = files.try_next().await.map_err(failed)? {
            match LogFile::of(&file.location, log) {
                Some(LogFile::Commit(version)) => _ = commits.insert(version, file),
                Some(LogFile::Checkpoint(version)) => _ = checkpoints.insert(version),
                None => {}
            }
        }
        drop(files);
        Ok(readable(&commits, &checkpoints).map(|(oldest, newest)| Self { store, table, commits, oldest, newest }))
    }

    /// The first version of a run.
    pub async fn first_of(&self, from: &Bound) -> Result<u64, QueryError> {
        match from {
            Bound::Version(version) => Ok(*version),
            Bound::Time(at) => {
                Ok(self.versions_up_to(*at - TimeDelta::microseconds(1)).await?.map_or(self.oldest, |v| v + 1))
            }
        }
    }

    /// The last version of a run.
    pub async fn last_of(&self, to: Option<&Bound>) -> Result<u64, QueryError> {
        match to {
            None => Ok(self.newest),
            Some(Bound::Version(version)) => Ok(*version),
            Some(Bound::Time(at)) => self.version_at(*at).await,
        }
    }

    /// The newest version whose commit is not later than `at`.
    ///
    /// A commit's time is the `timestamp` of its `commitInfo` (in-commit timestamp where there is one), so that a copied
    /// lake answers as the first one did; the file's own time stands in where a writer left it out. The versions are
    /// searched by halves, which takes the times to grow with the versions, as Delta's protocol does.
    pub async fn version_at(&self, at: DateTime<Utc>) -> Result<u64, QueryError> {
        match self.versions_up_to(at).await? {
            Some(version) => Ok(version),
            None => {
                let first = self.commits.range(self.oldest..).next().map_or(self.oldest, |(version, _)| *version);
                Err(self.before_first(at, first).await?)
            }
        }
    }

    /// The same; `None` if all are later.
    async fn versions_up_to(&self, at: DateTime<Utc>) -> Result<Option<u64>, QueryError> {
        let versions: Vec<u64> = self.commits.range(self.oldest..).map(|(version, _)| *version).collect();
        let (mut low, mut high) = (0, versions.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match versions.get(middle) {
                Some(version) if self.committed_at(*version).await? <= at => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low.checked_sub(1).and_then(|index| versions.get(index)).copied())
    }

    async fn before_first(&self, at: DateTime<Utc>, first: u64) -> Result<QueryError, QueryError> {
        let first_time = self.committed_at(first).await?;
        Ok(QueryError::BeforeFirstVersion { table: self.table.clone(), at, first, first_time })
    }

    /// When a version was committed, to the millisecond.
    async fn committed_at(&self, version: u64) -> Result<DateTime<Utc>, QueryError> {
        let Some(file) = self.commits.get(&version) else {
            return Err(self.no_such_version(version));
        };
        for bytes in [COMMIT_HEAD_BYTES, COMMIT_FILE_BYTES_MAX] {
            let text = self.head(file, bytes).await?;
            if let Some(time) = commit_time(&text) {
                return Ok(time);
            }
            if file.size <= bytes {
                break;
            }
        }
        Ok(file.last_modified)
    }

    async fn head(&self, file: &ObjectMeta, bytes: u64) -> Result<Vec<u8>, QueryError> {
        let failed = |error| QueryError::lake(format!("reading {}", file.location), error);
        let range = Some((0..file.size.min(bytes)).into());
        let options = GetOptions { range, ..GetOptions::default() };
        let answer = self.store.get_opts(&file.location, options).await.map_err(failed)?;
        Ok(answer.bytes().await.map_err(failed)?.to_vec())
    }

    /// The error for a version outside the log.
    pub fn no_such_version(&self, version: u64) -> QueryError {
        QueryError::NoSuchVersion { table: self.table.clone(), version, oldest: self.oldest, newest: self.newest }
    }
}

/// The files of a log that versions are built from (Delta protocol, "Delta Log Entries" and "Checkpoints").
#[derive(Debug, PartialEq)]
enum LogFile {
    Commit(u64),
    Checkpoint(u64),
}

impl LogFile {
    fn of(path: &Path, log: &Path) -> Option<Self> {
        let mut parts = path.prefix_match(log)?;
        let name = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let (digits, ending) = name.as_ref().split_once('.')?;
        let version = (digits.len() == 20).then(|| digits.parse().ok()).flatten()?;
        match ending {
            "json" => Some(Self::Commit(version)),
            _ if ending.starts_with("checkpoint.") => Some(Self::Checkpoint(version)),
            _ => None,
        }
    }
}

/// The oldest and newest version that the files give: from version 0 or a checkpoint on, all commits without a gap.
fn readable(commits: &BTreeMap<u64, ObjectMeta>, checkpoints: &BTreeSet<u64>) -> Option<(u64, u64)> {
    let newest = commits.keys().chain(checkpoints).max().copied()?;
    let mut unbroken = newest;
    while unbroken > 0 && commits.contains_key(&unbroken) {
        unbroken -= 1;
    }
    // All commits behind `unbroken` are there; it is itself, if it is the very first one or a checkpoint.
    let from_zero = unbroken == 0 && commits.contains_key(&0);
    let oldest = if from_zero { 0 } else { checkpoints.range(unbroken..).next().copied()? };
    Some((oldest, newest))
}

fn commit_time(text: &[u8]) -> Option<DateTime<Utc>> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let action: serde_json::Value = serde_json::from_slice(line).ok()?;
        let info = action.get("commitInfo")?;
        let millis = info.get("inCommitTimestamp").or_else(|| info.get("timestamp"))?.as_i64()?;
        DateTime::from_timestamp_millis(millis)
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    fn check(commits: &[u64], checkpoints: &[u64], expected: Option<(u64, u64)>) {
        let meta = |_| ObjectMeta {
            location: Path::default(),
            last_modified: DateTime::UNIX_EPOCH,
            size: 0,
            e_tag: None,
            version: None,
        };
        let commits = commits.iter().map(|version| (*version, meta(version))).collect();
        assert_eq!(readable(&commits, &checkpoints.iter().copied().collect()), expected);
    }

    #[test]
    fn versions_are_readable_from_zero_or_a_checkpoint_on_without_a_gap() {
        check(&[], &[], None);
        check(&[0], &[], Some((0, 0)));
        check(&[0, 1, 2], &[1], Some((0, 2)));
        check(&[2, 3, 4, 5], &[3, 5], Some((3, 5)));
        check(&[4, 5], &[3], Some((3, 5)));
        check(&[0, 1, 4, 5], &[3], Some((3, 5)));
        check(&[0, 1, 4, 5], &[], None);
        check(&[], &[7], Some((7, 7)));
    }

    #[test]
    fn a_time_is_utc_unless_it_has_an_offset() {
        for (text, expected) in [
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31 10:00", "2026-01-31T10:00:00Z"),
            ("2026-01-31 10:00:01.5", "2026-01-31T10:00:01.500Z"),
            ("2026-01-31T10:00:01Z", "2026-01-31T10:00:01Z"),
            ("2026-01-31 10:00:01+02:00", "2026-01-31T08:00:01Z"),
            ("2026-01-31T10:00:01.000001-0130", "2026-01-31T11:30:01.000001Z"),
        ] {
            let found = parse_time(text).unwrap().to_rfc3339_opts(SecondsFormat::AutoSi, true);
            assert_eq!(found, expected, "{text}");
        }
        for text in ["", "soon", "2026-02-30", "10:00", "2026-01-31 25:00"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_files_of_the_log_itself_are_versions() {
        let log = Path::from("_delta_log");
        for (path, expected) in [
            ("_delta_log/00000000000000000012.json", Some(LogFile::Commit(12))),
            ("_delta_log/00000000000000000012.checkpoint.parquet", Some(LogFile::Checkpoint(12))),
            ("_delta_log/00000000000000000012.checkpoint.0000000001.0000000002.parquet", Some(LogFile::Checkpoint(12))),
            ("_delta_log/00000000000000000012.crc", None),
            ("_delta_log/_last_checkpoint", None),
            ("_delta_log/_staged_commits/00000000000000000013.json", None),
            ("_delta_log/12.json", None),
        ] {
            assert_eq!(LogFile::of(&Path::from(path), &log), expected, "{path}");
        }
    }
}
