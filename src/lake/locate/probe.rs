//! Reads the key columns of one data file where they may hold a key of the batch, and compares.

use std::ops::Range;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, RowSelection};
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use super::{KeyRange, KeySet, Prober};
use crate::lake::LakeError;
use crate::lake::files::FileEntry;

/// Rows of key columns that are decoded at a time.
const BATCH_ROWS: usize = 32_768;

/// The rows of a file that hold a key: physical row number and the key's number, ascending by row. Deleted
/// rows are among them.
pub(super) async fn hits(
    prober: &Prober,
    file: &FileEntry,
    footer: &ArrowReaderMetadata,
    keys: &KeySet,
) -> Result<Vec<(u64, usize)>, LakeError> {
    let failed = LakeError::parquet(&prober.space.table, "read keys of", &file.add.path);
    let plan = Plan::new(prober, file, footer, keys)?;
    if plan.ranges.is_empty() {
        return Ok(Vec::new());
    }
    let mask = ProjectionMask::roots(footer.parquet_schema(), plan.columns.iter().copied());
    let mut builder = ParquetRecordBatchStreamBuilder::new_with_metadata(prober.footers.reader(file), footer.clone())
        .with_projection(mask)
        .with_row_groups(plan.row_groups.clone())
        .with_batch_size(BATCH_ROWS);
    if let Some(selection) = plan.selection.clone() {
        builder = builder.with_row_selection(selection);
    }
    let mut batches = builder.build().map_err(&failed)?;
    let mut position = Position::new(plan.ranges);
    let mut found = Vec::new();
    while let Some(batch) = batches.try_next().await.map_err(&failed)? {
        let columns = key_columns(prober, file, &batch)?;
        for hit in prober.space.matches(keys, &columns)? {
            let row = position.of(hit.row).ok_or_else(|| more_rows(prober, file))?;
            found.push((row, hit.key));
        }
        position.advance(batch.num_rows());
    }
    if !position.at_end() {
        return Err(more_rows(prober, file));
    }
    Ok(found)
}

fn more_rows(prober: &Prober, file: &FileEntry) -> LakeError {
    damaged(prober, file, "its key columns have more or fewer rows than its footer says")
}

fn damaged(prober: &Prober, file: &FileEntry, reason: &str) -> LakeError {
    LakeError::Damaged { table: prober.space.table.clone(), file: file.add.path.clone(), reason: reason.to_string() }
}

fn key_columns(
    prober: &Prober,
    file: &FileEntry,
    batch: &arrow::array::RecordBatch,
) -> Result<Vec<ArrayRef>, LakeError> {
    let zeros = UInt32Array::from(vec![0; batch.num_rows()]);
    let column = |name: &str| match prober.space.partitioning.column(name) {
        // Files do not hold it; and where they do, the log decides.
        Some(column) => take(&column.key_of_file(&file.add)?, &zeros, None).ok(),
        None => batch.column_by_name(name).cloned(),
    };
    let columns = prober.space.names().map(column).collect::<Option<Vec<_>>>();
    columns.ok_or_else(|| damaged(prober, file, "it lacks a key column"))
}

/// What of a file is read.
struct Plan {
    /// Root columns of the file that are key columns; partition columns are not.
    columns: Vec<usize>,
    row_groups: Vec<usize>,
    /// Within the row groups, where that saves enough.
    selection: Option<RowSelection>,
    /// The physical rows that will be read, ascending.
    ranges: Vec<Range<u64>>,
}

impl Plan {
    fn new(prober: &Prober, file: &FileEntry, footer: &ArrowReaderMetadata, keys: &KeySet) -> Result<Self, LakeError> {
        let failed = LakeError::parquet(&prober.space.table, "read the statistics of", &file.add.path);
        let root = |name| footer.schema().index_of(name).ok();
        let columns = prober.space.stored_names().map(root).collect::<Option<Vec<_>>>();
        let columns = columns.ok_or_else(|| damaged(prober, file, "it lacks a key column"))?;
        let statistics = Statistics::new(prober, footer).map_err(&failed)?;
        let wanted = statistics.row_groups(keys)?;
        let mut plan = Self { columns, row_groups: Vec::new(), selection: None, ranges: Vec::new() };
        let mut selected = Vec::new();
        let (mut start, mut offset) = (0_u64, 0_usize);
        for (index, group) in footer.metadata().row_groups().iter().enumerate() {
            let rows =
                usize::try_from(group.num_rows()).map_err(|_| damaged(prober, file, "a row group is too large"))?;
            if wanted.get(index).copied().unwrap_or(true) && rows > 0 {
                plan.row_groups.push(index);
                for page in statistics.pages(index, rows, keys)? {
                    plan.ranges.push(start + page.start as u64..start + page.end as u64);
                    selected.push(offset + page.start..offset + page.end);
                }
                offset += rows;
            }
            start += rows as u64;
        }
        let rows_selected: usize = selected.iter().map(ExactSizeIterator::len).sum();
        if rows_selected < offset {
            plan.selection = Some(RowSelection::from_consecutive_ranges(selected.into_iter(), offset));
        }
        Ok(plan)
    }
}

/// The statistics of the first key column in a footer.
struct Statistics<'a> {
    prober: &'a Prober,
    metadata: &'a ParquetMetaData,
    /// `None` where nothing can be told from statistics.
    converter: Option<StatisticsConverter<'a>>,
}

impl<'a> Statistics<'a> {
    fn new(prober: &'a Prober, footer: &'a ArrowReaderMetadata) -> Result<Self, ParquetError> {
        let (metadata, schema) = (footer.metadata().as_ref(), footer.schema().as_ref());
        let is_stored = |name: &&str| prober.space.partitioning.column(name).is_none();
        let first = prober.space.names().next().filter(|_| prober.space.has_ranges()).filter(is_stored);
        let converter = first.map(|name| StatisticsConverter::try_new(name, schema, footer.parquet_schema()));
        let converter = converter.transpose()?.filter(|converter| !has_deprecated_order(metadata, converter));
        Ok(Self { prober, metadata, converter })
    }

    /// For each row group, whether it may hold a key.
    fn row_groups(&self, keys: &KeySet) -> Result<Vec<bool>, LakeError> {
        let groups = self.metadata.row_groups();
        let Some(converter) = &self.converter else { return Ok(vec![true; groups.len()]) };
        let (Ok(mins), Ok(maxs)) = (converter.row_group_mins(groups), converter.row_group_maxes(groups)) else {
            return Ok(vec![true; groups.len()]);
        };
        Ok(self.prober.space.ranges(&mins, &maxs)?.iter().map(|range| may_hold(range.as_ref(), keys)).collect())
    }

    /// The row ranges within a row group whose pages may hold a key; all of it where that cannot be told.
    fn pages(&self, group: usize, rows: usize, keys: &KeySet) -> Result<Vec<Range<usize>>, LakeError> {
        let whole = std::iter::once(0..rows).collect();
        let Some((mins, maxs, starts)) = self.page_bounds(group) else { return Ok(whole) };
        let ranges = self.prober.space.ranges(&mins, &maxs)?;
        if ranges.len() != starts.len() {
            return Ok(whole);
        }
        let mut wanted: Vec<Range<usize>> = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let page = starts[index]..starts.get(index + 1).copied().unwrap_or(rows);
            if page.start >= page.end || !may_hold(range.as_ref(), keys) {
                continue;
            }
            match wanted.last_mut() {
                Some(last) if last.end == page.start => last.end = page.end,
                _ => wanted.push(page),
            }
        }
        Ok(wanted)
    }

    /// Bounds and first rows of the pages of the first key column.
    fn page_bounds(&self, group: usize) -> Option<(ArrayRef, ArrayRef, Vec<usize>)> {
        let converter = self.converter.as_ref()?;
        let (columns, offsets) = (self.metadata.column_index()?, self.metadata.offset_index()?);
        let column = converter.parquet_column_index()?;
        let pages = offsets.get(group)?.get(column)?.page_locations();
        let starts: Option<Vec<usize>> = pages.iter().map(|page| usize::try_from(page.first_row_index).ok()).collect();
        let starts = starts.filter(|starts| starts.first() == Some(&0) && starts.is_sorted())?;
        columns.get(group)?.get(column)?;
        let mins = converter.data_page_mins(columns, offsets, [&group]).ok()?;
        let maxs = converter.data_page_maxes(columns, offsets, [&group]).ok()?;
        Some((mins, maxs, starts))
    }
}

/// Old writers left bounds of unsigned and text columns in signed byte order.
fn has_deprecated_order(metadata: &ParquetMetaData, converter: &StatisticsConverter<'_>) -> bool {
    let Some(column) = converter.parquet_column_index() else { return true };
    let deprecated = |group: &parquet::file::metadata::RowGroupMetaData| {
        group
            .columns()
            .get(column)
            .and_then(|chunk| chunk.statistics())
            .is_some_and(|stats| stats.is_min_max_deprecated())
    };
    metadata.row_groups().iter().any(deprecated)
}

fn may_hold(range: Option<&KeyRange>, keys: &KeySet) -> bool {
    range.is_none_or(|range| keys.touches(range))
}

/// Turns rows in the order in which they are read into physical rows.
struct Position {
    ranges: std::vec::IntoIter<Range<u64>>,
    current: Range<u64>,
}

impl Position {
    fn new(ranges: Vec<Range<u64>>) -> Self {
        Self { ranges: ranges.into_iter(), current: 0..0 }
    }

    /// The physical row of the `ahead`-th row from here.
    fn of(&self, ahead: usize) -> Option<u64> {
        let mut ahead = ahead as u64;
        for range in std::iter::once(&self.current).chain(self.ranges.as_slice()) {
            let length = range.end - range.start;
            if ahead < length {
                return Some(range.start + ahead);
            }
            ahead -= length;
        }
        None
    }

    /// Passes rows that have been read; more than there are leaves the end, which `of` then tells.
    fn advance(&mut self, rows: usize) {
        let mut rows = rows as u64;
        while rows > 0 {
            if self.current.is_empty() {
                let Some(next) = self.ranges.next() else { return };
                self.current = next;
            }
            let step = rows.min(self.current.end - self.current.start);
            self.current.start += step;
            rows -= step;
        }
    }

    fn at_end(&self) -> bool {
        self.current.is_empty() && self.ranges.as_slice().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_become_rows_of_the_file() {
        let mut position = Position::new(vec![2..4, 7..8, 10..13]);
        let all: Vec<_> = (0..7).map(|ahead| position.of(ahead)).collect();
        assert_eq!(all, [Some(2), Some(3), Some(7), Some(10), Some(11), Some(12), None]);
        position.advance(3);
        assert_eq!(position.of(0), Some(10));
        position.advance(3);
        assert!(position.at_end());
        assert_eq!(position.of(0), None);
    }
}
