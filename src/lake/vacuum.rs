//! Deletes the files that no version needs any more which can still be read.
//!
//! A version can be read for as long as the retention says after the next version has replaced it. It needs its
//! data files, their deletion vectors and its change files: all of the present version, and all that a commit within
//! the retention removed, added or named. The Delta log says so commit by commit; neither the age of a file nor the
//! tombstones of checkpoints do: those are dropped in time, and one path may have several, with different deletion vectors.
//! Files that no such version needs were removed long ago, or never came into a commit. They go once they
//! are older than the retention, for a younger one may be in the next commit.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use deltalake::kernel::{DeletionVectorDescriptor, StorageType};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use object_store::path::Path;
use serde::Deserialize;

use super::{LakeError, LakeTable, deletion};
use crate::config::percent_decoded;

/// Commits that are read at the same time.
const READS_AT_ONCE: usize = 8;
/// Files that are deleted before more are looked for; what stores take in one request.
const DELETES_AT_ONCE: usize = 1_000;
/// Paths that a report names.
const PATHS_SHOWN_MAX: usize = 20;
/// The one hidden folder whose files are part of versions: the change data feed's.
const CHANGE_FOLDER: &str = "_change_data";

/// What a vacuum did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct VacuumReport {
    pub files: u64,
    pub bytes: u64,
    /// The first of the files, below the table's folder.
    pub paths: Vec<String>,
}

/// The files that must stay, by their paths below the table.
struct Needed {
    paths: HashSet<String>,
    /// The table's URL, which absolute paths may start with.
    url: String,
}

/// What of a line of a commit names files.
#[derive(Deserialize)]
struct Line {
    add: Option<Named>,
    remove: Option<Named>,
    cdc: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    path: String,
    #[serde(rename = "deletionVector")]
    vector: Option<DeletionVectorDescriptor>,
}

impl LakeTable {
    /// Deletes what no version needs that held at `now_ms` (milliseconds since 1970-01-01 UTC) less `retention`, or
    /// later. A dry run deletes nothing and reports the same. Files that are being written stay if they are younger than the retention:
    /// a short one is safe only while no one else writes to the table. Interrupted anywhere, it has done a part of its work.
    ///
    /// # Errors
    /// [`LakeError::Damaged`] for a commit that cannot be read, or one that is missing between others, within the
    /// retention; then nothing was deleted.
    pub async fn vacuum(&mut self, now_ms: i64, retention: Duration, dry_run: bool) -> Result<VacuumReport, LakeError> {
        self.reload().await?;
        let cutoff_ms = cutoff_ms(now_ms, retention);
        let needed = self.needed_since(cutoff_ms).await?;
        let old = self.store.list(None).try_filter(|object| std::future::ready(needed.may_go(object, cutoff_ms)));
        let mut chunks = std::pin::pin!(old.try_chunks(DELETES_AT_ONCE));
        let mut report = VacuumReport::default();
        loop {
            let chunk: Option<Vec<ObjectMeta>> = chunks
                .try_next()
                .await
                .map_err(|error| LakeError::store(format!("list the files of {}", self.table))(error.1))?;
            let Some(chunk) = chunk else { break };
            report.add(&chunk);
            if !dry_run {
                self.delete_all(chunk.into_iter().map(|object| object.location).collect()).await?;
            }
        }
        Ok(report)
    }

    async fn needed_since(&self, cutoff_ms: i64) -> Result<Needed, LakeError> {
        let mut needed = Needed { paths: HashSet::new(), url: self.lake.table_url(&self.table).to_string() };
        for file in self.files.values() {
            needed.keep(&file.add.path, file.add.deletion_vector.as_ref());
        }
        let commits = self.list_log().await?.commits_since(cutoff_ms).map_err(|version| LakeError::Damaged {
            table: self.table.clone(),
            file: "its Delta log".to_string(),
            reason: format!(
                "version {version} is missing, which lies between versions that can be read: \
                 what they need cannot be told before they are older than the retention"
            ),
        })?;
        let reads = commits.into_iter().map(|version| async move { Ok((version, self.read_commit(version).await?)) });
        let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some((version, text)) = reads.try_next().await? {
            needed.keep_named(&text).map_err(|error| LakeError::Damaged {
                table: self.table.clone(),
                file: super::log::commit_path(version).to_string(),
                reason: error.to_string(),
            })?;
        }
        Ok(needed)
    }
}

impl Needed {
    fn keep_named(&mut self, commit: &Bytes) -> Result<(), serde_json::Error> {
        for line in commit.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let line: Line = serde_json::from_slice(line)?;
            for named in [line.add, line.remove, line.cdc].into_iter().flatten() {
                self.keep(&named.path, named.vector.as_ref());
            }
        }
        Ok(())
    }

    /// Paths in the log are URLs, and their percent signs have been decoded once too often or too seldom by writers that
    /// are still about: all readings of a path stay.
    fn keep(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) {
        let once = percent_decoded(path);
        let twice = percent_decoded(&once);
        for path in [path, &once, &twice] {
            self.keep_exactly(path);
        }
        let Some(vector) = vector else { return };
        match vector.storage_type {
            StorageType::Inline => {}
            StorageType::AbsolutePath => self.keep_exactly(&percent_decoded(&vector.path_or_inline_dv)),
            StorageType::UuidRelativePath => {
                if let Some(path) = deletion::file_of(vector) {
                    self.paths.insert(path.to_string());
                }
            }
        }
    }

    fn keep_exactly(&mut self, path: &str) {
        let relative = path.strip_prefix(&self.url).or_else(|| path.strip_prefix(&percent_decoded(&self.url)));
        let path = relative.unwrap_or(path);
        let path = Path::parse(path).unwrap_or_else(|_| Path::from(path));
        if !self.paths.contains(path.as_ref()) {
            self.paths.insert(path.to_string());
        }
    }

    fn may_go(&self, object: &ObjectMeta, cutoff_ms: i64) -> bool {
        object.last_modified.timestamp_millis() < cutoff_ms
            && !is_hidden(&object.location)
            && !self.paths.contains(object.location.as_ref())
    }
}

impl VacuumReport {
    fn add(&mut self, objects: &[ObjectMeta]) {
        self.files += objects.len() as u64;
        self.bytes += objects.iter().map(|object| object.size).sum::<u64>();
        let room = PATHS_SHOWN_MAX.saturating_sub(self.paths.len());
        self.paths.extend(objects.iter().take(room).map(|object| object.location.to_string()));
    }
}

/// Names that start with `_` or `.` belong to the log, other tools and other features; folders of partitions, which have
/// an equals sign, and the change files do not.
fn is_hidden(path: &Path) -> bool {
    let mut parts = path.parts().peekable();
    if parts.peek().is_some_and(|part| part.as_ref() == CHANGE_FOLDER) {
        parts.next();
    }
    parts.any(|part| part.as_ref().starts_with(['_', '.']) && !part.as_ref().contains('='))
}

/// The time from which on versions are kept.
pub(super) fn cutoff_ms(now_ms: i64, retention: Duration) -> i64 {
    now_ms.saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_those_of_other_features() {
        for (path, hidden) in [
            ("part-0.parquet", false),
            ("_delta_log/00000000000000000000.json", true),
            ("_change_data/cdc-0.parquet", false),
            ("_change_data/_x/cdc-0.parquet", true),
            ("_region=eu/part-0.parquet", false),
            ("region=eu/.part-0.parquet.crc", true),
            ("a/_committed", true),
        ] {
            assert_eq!(is_hidden(&Path::from(path)), hidden, "{path}");
        }
    }

    #[test]
    fn all_readings_of_a_path_stay() {
        let mut needed = Needed { paths: HashSet::new(), url: "s3://lake/a%20b/".to_string() };
        let commit = concat!(
            r#"{"commitInfo":{"operation":"WRITE"}}"#,
            "\n\n",
            r#"{"add":{"path":"a%2520b.parquet","size":1}}"#,
            "\n",
            r#"{"remove":{"path":"s3://lake/a%20b/c.parquet","deletionVector":{"storageType":"u","#,
            r#""pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}}}"#,
            "\n",
            r#"{"cdc":{"path":"_change_data/d.parquet"}}"#,
        );
        needed.keep_named(&Bytes::from_static(commit.as_bytes())).unwrap();
        let mut paths: Vec<_> = needed.paths.into_iter().collect();
        paths.sort();
        // The vector is the example of the Delta protocol, "Deletion Vector Descriptor Schema".
        let vector = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
        assert_eq!(
            paths,
            ["_change_data/d.parquet", "a b.parquet", "a%20b.parquet", "a%2520b.parquet", vector, "c.parquet"]
        );
    }
}
