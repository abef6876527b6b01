//! Parquet footers with their page indexes, kept from batch to batch.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::Footer;
use crate::change::TableId;
use crate::lake::LakeError;
use crate::lake::cache::ByteCache;
use crate::lake::files::FileEntry;

/// The end of every Parquet file: the length of its metadata and a magic word.
const TAIL_BYTES: usize = 8;
/// The magic word at both ends of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// Metadata of more bytes than this is taken for damage: it would describe tens of thousands of row groups.
const METADATA_BYTES_MAX: usize = 64 << 20;
/// Read at the end of a file in one request: the metadata and indexes of most files fit.
const READ_AHEAD_BYTES: u64 = 64 << 10;

/// Opens data files of one table.
pub(in crate::lake) struct Footers {
    pub table: TableId,
    /// Rooted at the table.
    pub store: Arc<dyn ObjectStore>,
    pub cache: ByteCache<ArrowReaderMetadata>,
}

impl Footers {
    /// A reader of the file; cheap.
    pub fn reader(&self, file: &FileEntry) -> FileReader {
        let (start, tail) = (file.bytes(), Bytes::new());
        FileReader { store: self.store.clone(), path: file.path.clone(), size: file.bytes(), start, tail }
    }

    pub async fn get(&self, file: &FileEntry) -> Result<Footer, LakeError> {
        match self.cache.get(&file.add.path) {
            Some(footer) => Ok(footer),
            None => Ok(self.read(file).await?.0),
        }
    }

    /// Reads a footer that is not in the cache, and keeps it. The reader holds the end of the file that came with it: all
    /// of a small file.
    pub async fn read(&self, file: &FileEntry) -> Result<(Footer, FileReader), LakeError> {
        let mut reader = self.reader(file);
        reader.start = reader.size.saturating_sub(READ_AHEAD_BYTES);
        let tail = self.store.get_range(&file.path, reader.start..reader.size).await;
        reader.tail = tail.map_err(LakeError::store(format!("read {} of {}", file.add.path, self.table)))?;
        self.check_tail(file, &reader.tail)?;
        let options =
            ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_page_index_policy(PageIndexPolicy::Optional);
        let footer = ArrowReaderMetadata::load_async(&mut reader, options).await;
        let footer = Arc::new(footer.map_err(LakeError::parquet(&self.table, "open", &file.add.path))?);
        self.cache.put(&file.add.path, footer.clone(), footer.metadata().memory_size());
        Ok((footer, reader))
    }

    /// The parser behind this trusts the lengths that a file gives, so the first of them is checked here.
    fn check_tail(&self, file: &FileEntry, tail: &[u8]) -> Result<(), LakeError> {
        let damaged = |reason: &str| LakeError::Damaged {
            table: self.table.clone(),
            file: file.add.path.clone(),
            reason: reason.to_string(),
        };
        let Some((length, magic)) = tail.last_chunk::<TAIL_BYTES>().and_then(|end| end.split_at_checked(4)) else {
            return Err(damaged("it is too short for a Parquet file"));
        };
        if magic != MAGIC {
            return Err(damaged("it does not end as a Parquet file does"));
        }
        let length = length.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize);
        if length > METADATA_BYTES_MAX || (length + TAIL_BYTES) as u64 > file.bytes() {
            return Err(damaged(&format!("its metadata claims {length} bytes")));
        }
        Ok(())
    }
}

/// Reads ranges of one file; its end from memory, where it has been read already.
pub(in crate::lake) struct FileReader {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    /// Where `tail` starts in the file.
    start: u64,
    tail: Bytes,
}

impl FileReader {
    fn in_tail(&self, range: &Range<u64>) -> Option<Bytes> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        (from <= to && to <= self.tail.len()).then(|| self.tail.slice(from..to))
    }
}

impl AsyncFileReader for FileReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move {
            match self.in_tail(&range) {
                Some(bytes) => Ok(bytes),
                None => self.store.get_range(&self.path, range).await.map_err(external),
            }
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move {
            let held: Option<Vec<Bytes>> = ranges.iter().map(|range| self.in_tail(range)).collect();
            match held {
                Some(bytes) => Ok(bytes),
                None => self.store.get_ranges(&self.path, &ranges).await.map_err(external),
            }
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let size = self.size;
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            reader.load_and_finish(self, size).await.map(Arc::new)
        }
        .boxed()
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}
