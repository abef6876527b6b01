//! Bloom filters of row groups ("Bloom Filter" of the Parquet format): which keys of a batch a row group certainly lacks.

use std::ops::Range;
use std::sync::Arc;

use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::ColumnChunkMetaData;

use super::{KeySet, Prober};
use crate::lake::LakeError;
use crate::lake::files::FileEntry;

/// A filter of more bytes than this is taken for damage: it would be that of tens of millions of keys.
const FILTER_BYTES_MAX: i32 = 64 << 20;

/// The keys among `within` that the filter of a row group's `column` lets through; `None` where there is no filter of
/// ours, or it takes more bytes than the pages that it may save.
pub(super) async fn sieve(
    prober: &Prober,
    file: &FileEntry,
    footer: &ArrowReaderMetadata,
    (group, column): (usize, usize),
    keys: &KeySet,
    within: Range<usize>,
) -> Result<Option<Vec<usize>>, LakeError> {
    let metadata = footer.metadata();
    let chunk = metadata.row_group(group).column(column);
    let length = chunk.bloom_filter_length().filter(|length| (1..=FILTER_BYTES_MAX).contains(length));
    let Some(length) = length else { return Ok(None) };
    let pages =
        metadata.offset_index().and_then(|index| index.get(group)?.get(column)).map(|p| p.page_locations().len());
    if keys.text(0).is_none() || u64::from(length.unsigned_abs()) > bytes_saved(chunk, pages, within.len()) {
        return Ok(None);
    }
    let Some(filter) = load(prober, file, footer, group, column).await? else { return Ok(None) };
    let passes = |key: &usize| keys.text(*key).is_none_or(|text| filter.check(text));
    Ok(Some(within.filter(passes).collect()))
}

/// What the pages of so many keys weigh at most.
fn bytes_saved(chunk: &ColumnChunkMetaData, pages: Option<usize>, keys: usize) -> u64 {
    let bytes = chunk.compressed_size().unsigned_abs();
    let pages = pages.unwrap_or(1).max(1) as u64;
    bytes / pages * pages.min(keys as u64)
}

async fn load(
    prober: &Prober,
    file: &FileEntry,
    footer: &ArrowReaderMetadata,
    group: usize,
    column: usize,
) -> Result<Option<Arc<Sbbf>>, LakeError> {
    let name = format!("{}#{group}", file.add.path);
    if let Some(filter) = prober.filters.get(&name) {
        return Ok(Some(filter));
    }
    let mut reader = ParquetRecordBatchStreamBuilder::new_with_metadata(prober.footers.reader(file), footer.clone());
    let filter = reader.get_row_group_column_bloom_filter(group, column).await;
    let filter = filter.map_err(LakeError::parquet(&prober.space.table, "read a Bloom filter of", &file.add.path))?;
    // An empty filter would have no block to look into.
    let Some(filter) = filter.filter(|filter| filter.num_blocks() > 0).map(Arc::new) else { return Ok(None) };
    prober.filters.put(&name, filter.clone(), filter.num_blocks() * 32);
    Ok(Some(filter))
}
