//! The live rows of one data file in the order in which they lie there, in bounded memory: for those who write them again,
//! compaction and copies. Deletion vectors become selections of rows as they do for queries.

use std::ops::Range;

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use parquet::arrow::async_reader::{ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::file::metadata::RowGroupMetaData;
use roaring::RoaringTreemap;

use super::selection::Deleted;
use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::{FileAccess, FileReader, Footer};

/// Rows of a row group that are fetched at once at least, where its pages can be found.
pub(in crate::lake) const SLICE_ROWS_MIN: u64 = 8_192;

/// How fast a file is read.
#[derive(Debug, Clone, Copy)]
pub(in crate::lake) struct Pace {
    /// Rows that are decoded at a time.
    pub batch_rows: usize,
    /// Bytes that are fetched at a time, if the pages can be found.
    pub fetch_bytes: u64,
}

/// A reading of one file's live rows.
pub(in crate::lake) struct LiveFile<'a> {
    access: &'a FileAccess,
    file: &'a FileEntry,
    footer: Footer,
    pace: Pace,
    /// What is still to be read, slice by slice.
    slices: std::vec::IntoIter<Slice>,
    deleted: Deleted<'a>,
    open: Option<ParquetRecordBatchStream<FileReader>>,
}

/// Rows of one row group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    group: usize,
    /// The number of the row group's first row in the file.
    first: u64,
    rows: Range<usize>,
    group_rows: usize,
}

impl<'a> LiveFile<'a> {
    /// Reads all rows of `file` but those of `deleted`.
    pub async fn open(
        access: &'a FileAccess,
        file: &'a FileEntry,
        deleted: &'a RoaringTreemap,
        pace: Pace,
    ) -> Result<Self, LakeError> {
        let footer = access.footers.get(file).await?;
        access.check_rows(file, &footer)?;
        let slices = slices(&footer, pace.fetch_bytes).into_iter();
        Ok(Self { access, file, footer, pace, slices, deleted: Deleted::new(deleted), open: None })
    }

    /// The next rows with the columns of the file; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, LakeError> {
        let failed = LakeError::parquet(&self.access.footers.table, "read", &self.file.add.path);
        loop {
            if let Some(open) = &mut self.open
                && let Some(batch) = open.try_next().await.map_err(&failed)?
            {
                return Ok(Some(batch));
            }
            let Some(slice) = self.slices.next() else { return Ok(None) };
            self.open = self.open_slice(&slice)?;
        }
    }

    /// `None` if no row of the slice is live.
    fn open_slice(&mut self, slice: &Slice) -> Result<Option<ParquetRecordBatchStream<FileReader>>, LakeError> {
        let Some(selection) = self.deleted.live_of(slice.first, &slice.rows, slice.group_rows) else { return Ok(None) };
        let reader = self.access.footers.reader(self.file);
        let rows = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, self.footer.as_ref().clone())
            .with_row_groups(vec![slice.group])
            .with_row_selection(selection)
            .with_batch_size(self.pace.batch_rows);
        let open = rows.build().map_err(LakeError::parquet(&self.access.footers.table, "read", &self.file.add.path));
        open.map(Some)
    }
}

/// All rows of a file in parts that are fetched one after the other; a row group whose pages cannot be found is one.
fn slices(footer: &Footer, fetch_bytes: u64) -> Vec<Slice> {
    let (mut slices, mut first) = (Vec::new(), 0);
    for (group, metadata) in footer.metadata().row_groups().iter().enumerate() {
        let group_rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
        let fitting = (fetch_bytes / row_bytes(metadata)).max(SLICE_ROWS_MIN) / SLICE_ROWS_MIN * SLICE_ROWS_MIN;
        let step = if has_pages(footer) { usize::try_from(fitting).unwrap_or(usize::MAX) } else { group_rows.max(1) };
        let starts = (0..group_rows).step_by(step);
        slices.extend(starts.map(|from| Slice { group, first, rows: from..(from + step).min(group_rows), group_rows }));
        first += group_rows as u64;
    }
    slices
}

/// Whether the footer says where pages are.
pub(in crate::lake) fn has_pages(footer: &Footer) -> bool {
    footer.metadata().offset_index().is_some_and(|groups| groups.iter().all(|columns| !columns.is_empty()))
}

/// Compressed bytes of a row; 1 or more.
pub(in crate::lake) fn row_bytes(group: &RowGroupMetaData) -> u64 {
    (group.compressed_size().unsigned_abs() / group.num_rows().unsigned_abs().max(1)).max(1)
}
