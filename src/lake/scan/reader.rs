//! Gives DataFusion's Parquet scan the bytes and footers of a table's files.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::internal_err;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::error::Result;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::{FileAccess, FileReader};

/// Opens files that carry their [`FileEntry`]. A footer is read once as long as it stays in the cache, and checked.
pub(super) struct LiveFiles {
    pub access: FileAccess,
}

impl fmt::Debug for LiveFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveFiles").field("table", &self.access.footers.table).finish_non_exhaustive()
    }
}

impl ParquetFileReaderFactory for LiveFiles {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _metadata_bytes: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let Some(entry) = file.extension::<Arc<FileEntry>>().cloned() else {
            return internal_err!("{} is not a file of this scan", file.path());
        };
        let reader = self.access.footers.reader(&entry);
        let bytes_read = MetricBuilder::new(metrics).counter("bytes_scanned", partition);
        Ok(Box::new(LiveFile { access: self.access.clone(), entry, reader, bytes_read }))
    }
}

struct LiveFile {
    access: FileAccess,
    entry: Arc<FileEntry>,
    reader: FileReader,
    bytes_read: Count,
}

impl LiveFile {
    async fn footer(&mut self) -> Result<Arc<ParquetMetaData>, LakeError> {
        let footer = match self.access.footers.cache.get(&self.entry.add.path) {
            Some(footer) => footer,
            None => {
                let (footer, reader) = self.access.footers.read(&self.entry).await?;
                self.reader = reader;
                footer
            }
        };
        self.access.check_rows(&self.entry, &footer)?;
        Ok(footer.metadata().clone())
    }
}

impl AsyncFileReader for LiveFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        self.bytes_read.add(length(&range));
        self.reader.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        self.bytes_read.add(ranges.iter().map(length).sum());
        self.reader.get_byte_ranges(ranges)
    }

    /// With its page indexes, asked for or not: they came along with the footer.
    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move { self.footer().await.map_err(|error| ParquetError::External(Box::new(error))) }.boxed()
    }
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}
