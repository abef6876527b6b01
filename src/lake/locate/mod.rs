//! Finds the rows of a table that have a key of the batch: first by partition and the statistics of the Delta log, then by those
//! of footers and pages, then by comparing the keys themselves.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::bloom_filter::Sbbf;
use roaring::RoaringTreemap;

use super::LakeError;
use super::cache::ByteCache;
use super::deletion::VectorStore;
use super::files::{FileEntry, FileMap};

mod bloom;
mod footer;
mod keys;
mod pages;
mod probe;

pub(super) use footer::{FileReader, Footers};
pub(super) use keys::{KeyPartition, KeyRange, KeySet, KeySetBuilder, KeySpace};

/// Files that are probed at the same time: each holds one batch of key columns and one request in flight.
const PROBES_AT_ONCE: usize = 4;

/// Reads the data files of one table: their footers and their deletion vectors, each kept for the next time. Cheap to
/// clone.
#[derive(Clone)]
pub(super) struct FileAccess {
    pub footers: Arc<Footers>,
    pub vectors: Arc<VectorStore>,
    pub vector_cache: Arc<ByteCache<RoaringTreemap>>,
}

/// What probing needs of a table.
pub(super) struct Prober {
    pub space: Arc<KeySpace>,
    pub access: FileAccess,
    /// By the path of the file and the number of the row group.
    pub filters: ByteCache<Sbbf>,
    /// Trust no statistics and no filter.
    pub exhaustive: bool,
}

/// Rows to delete, by the path of their file in the log.
#[derive(Default)]
pub(super) struct Located {
    pub files: BTreeMap<String, FileHits>,
    /// Keys that are deleted in the source and had a live row.
    pub rows_deleted: u64,
    /// Whether [`Self::matched`] and [`FileHits::deleted`] are wanted.
    for_feed: bool,
    /// The keys that had a live row, by their number among all keys of the batch.
    pub matched: RoaringTreemap,
    /// How many keys have been looked for.
    keys: u64,
    /// Where the rows of the keys that are being looked for are, if that is wanted.
    pub rows: Option<Vec<RowHit>>,
}

impl Located {
    /// Nothing yet. `for_feed` keeps what a change feed has to know.
    pub fn new(for_feed: bool) -> Self {
        Self { for_feed, ..Self::default() }
    }
}

/// A live row that has a key of the batch.
#[derive(Clone)]
pub(super) struct RowHit {
    pub file: Arc<FileEntry>,
    pub row: u64,
    /// The key's number in its set.
    pub key: usize,
}

/// What goes from one file.
pub(super) struct FileHits {
    pub file: Arc<FileEntry>,
    /// Physical rows in the file.
    pub rows: u64,
    /// The file's present vector and the new rows.
    pub vector: RoaringTreemap,
    /// Of the new rows those whose key is deleted in the source; for a change feed only.
    pub deleted: RoaringTreemap,
}

/// What one file has of the batch's keys.
struct Probed {
    file: Arc<FileEntry>,
    rows: u64,
    old: Option<Arc<RoaringTreemap>>,
    /// Physical row and key, live rows only.
    hits: Vec<(u64, usize)>,
}

/// A prober is a reader of files that knows their key.
impl Deref for Prober {
    type Target = FileAccess;

    fn deref(&self) -> &FileAccess {
        &self.access
    }
}

impl Prober {
    /// Finds all live rows of `files` whose key is in `keys` and adds them to `located`.
    ///
    /// # Errors
    /// [`LakeError::DuplicateKey`] if a key has more than one live row: the table was not equal to its source.
    pub async fn locate(
        self: &Arc<Self>,
        files: &FileMap,
        keys: &Arc<KeySet>,
        located: &mut Located,
    ) -> Result<(), LakeError> {
        let mut matched = BooleanBufferBuilder::new(keys.len());
        matched.append_n(keys.len(), false);
        let mut probes = self.probes(files, keys);
        while let Some(probed) = probes.try_next().await? {
            self.collect(probed, keys, &mut matched, located)?;
        }
        drop(probes);
        located.keys += keys.len() as u64;
        Ok(())
    }

    /// The live rows of `files` whose key is in `keys`, in no order.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub async fn find(self: &Arc<Self>, files: &FileMap, keys: &Arc<KeySet>) -> Result<Vec<RowHit>, LakeError> {
        let mut found = Vec::new();
        let mut probes = self.probes(files, keys);
        while let Some(Probed { file, hits, .. }) = probes.try_next().await? {
            found.extend(hits.into_iter().map(|(row, key)| RowHit { file: file.clone(), row, key }));
        }
        Ok(found)
    }

    /// Looks into the files that may hold one of `keys`, several at a time.
    fn probes(self: &Arc<Self>, files: &FileMap, keys: &Arc<KeySet>) -> BoxStream<'static, Result<Probed, LakeError>> {
        let touched = |file: &&Arc<FileEntry>| {
            if self.exhaustive {
                return true;
            }
            file.partition.as_ref().is_none_or(|partition| keys.touches_partition(partition))
                && file.range.as_ref().is_none_or(|range| keys.touches(range))
        };
        let candidates: Vec<_> = files.values().filter(touched).cloned().collect();
        let (prober, keys) = (self.clone(), keys.clone());
        let probes = candidates.into_iter().map(move |file| {
            let (prober, keys) = (prober.clone(), keys.clone());
            // A task of its own, so that decoding runs on more than one core.
            async move {
                let task = tokio::spawn(async move { prober.probe(file, &keys).await });
                task.await.unwrap_or_else(|error| Err(LakeError::Task { what: "probe a file", source: error }))
            }
        });
        stream::iter(probes).buffer_unordered(PROBES_AT_ONCE).boxed()
    }

    fn collect(
        &self,
        probed: Probed,
        keys: &KeySet,
        matched: &mut BooleanBufferBuilder,
        located: &mut Located,
    ) -> Result<(), LakeError> {
        if probed.hits.is_empty() {
            return Ok(());
        }
        if let Some(rows) = &mut located.rows {
            let hit = |(row, key): &(u64, usize)| RowHit { file: probed.file.clone(), row: *row, key: *key };
            rows.extend(probed.hits.iter().map(hit));
        }
        let path = probed.file.add.path.clone();
        let hits = located.files.entry(path).or_insert_with(|| FileHits {
            vector: probed.old.as_deref().cloned().unwrap_or_default(),
            file: probed.file.clone(),
            rows: probed.rows,
            deleted: RoaringTreemap::new(),
        });
        for (row, key) in probed.hits {
            if matched.get_bit(key) || !hits.vector.insert(row) {
                return Err(LakeError::DuplicateKey {
                    table: self.space.table.clone(),
                    key: self.space.names().collect::<Vec<_>>().join(", "),
                    file: probed.file.add.path.clone(),
                });
            }
            matched.set_bit(key, true);
            let deleted = keys.deleted.value(key);
            located.rows_deleted += u64::from(deleted);
            if located.for_feed {
                located.matched.insert(located.keys + key as u64);
                if deleted {
                    hits.deleted.insert(row);
                }
            }
        }
        Ok(())
    }

    /// The live rows of a file that have one of `keys`, ascending, and how many rows the file has, deleted ones included.
    pub async fn rows(&self, file: Arc<FileEntry>, keys: &KeySet) -> Result<(Vec<u64>, u64), LakeError> {
        let probed = self.probe(file, keys).await?;
        Ok((probed.hits.into_iter().map(|(row, _)| row).collect(), probed.rows))
    }

    async fn probe(&self, file: Arc<FileEntry>, keys: &KeySet) -> Result<Probed, LakeError> {
        let footer = self.footers.get(&file).await?;
        let rows = self.check_rows(&file, &footer)?;
        let mut hits = probe::hits(self, &file, &footer, keys).await?;
        let old = if hits.is_empty() { None } else { self.vector(&file).await? };
        if let Some(deleted) = &old {
            hits.retain(|(row, _)| !deleted.contains(*row));
        }
        Ok(Probed { file, rows, old, hits })
    }
}

/// The physical row of a file that has the only key of `keys`, deleted or not.
pub(super) async fn row_of_key(prober: &Prober, file: &FileEntry, keys: &KeySet) -> Result<Option<u64>, LakeError> {
    let footer = prober.footers.get(file).await?;
    prober.check_rows(file, &footer)?;
    let hits = probe::hits(prober, file, &footer, keys).await?;
    Ok(hits.first().map(|(row, _)| *row))
}

impl FileAccess {
    /// The physical rows of a file, by its footer, which must be what the log says: a deletion vector over other rows
    /// would hide the wrong ones.
    pub fn check_rows(&self, file: &FileEntry, footer: &Footer) -> Result<u64, LakeError> {
        let rows = u64::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
        match file.rows {
            Some(expected) if expected != rows => Err(LakeError::Damaged {
                table: self.footers.table.clone(),
                file: file.add.path.clone(),
                reason: format!("it has {rows} rows, the log says {expected}"),
            }),
            _ => Ok(rows),
        }
    }

    /// The present deletion vector of a file.
    pub async fn vector(&self, file: &FileEntry) -> Result<Option<Arc<RoaringTreemap>>, LakeError> {
        let Some(descriptor) = &file.add.deletion_vector else { return Ok(None) };
        let name = vector_name(descriptor);
        if let Some(vector) = self.vector_cache.get(&name) {
            return Ok(Some(vector));
        }
        let vector = Arc::new(self.vectors.read(descriptor).await?);
        self.vector_cache.put(&name, vector.clone(), vector.serialized_size());
        Ok(Some(vector))
    }
}

/// A name that no other vector of the table has.
pub(super) fn vector_name(vector: &deltalake::kernel::DeletionVectorDescriptor) -> String {
    format!("{}{}@{}", vector.storage_type, vector.path_or_inline_dv, vector.offset.unwrap_or(1))
}

/// The footer of an open data file.
pub(super) type Footer = Arc<ArrowReaderMetadata>;
