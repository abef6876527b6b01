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

use super::{KeyRange, KeySet, Prober, bloom, pages};
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
    let statistics = Statistics::new(prober, file, footer).map_err(&failed)?;
    let mut wanted = Vec::new();
    for (group, range) in statistics.row_groups()?.iter().enumerate() {
        wanted.push(statistics.wanted(group, keys, keys.within(range.as_ref())).await?);
    }
    let plan = Plan::new(&statistics, keys, &wanted)?;
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
    let expected: u64 = plan.ranges.iter().map(|range| range.end - range.start).sum();
    let mut position = Position::new(plan.ranges);
    let (mut found, mut read) = (Vec::new(), 0);
    while let Some(batch) = batches.try_next().await.map_err(&failed)? {
        let columns = key_columns(prober, file, &batch)?;
        for hit in prober.space.matches(keys, &columns)? {
            let row = position.of(read + hit.row as u64).ok_or_else(|| more_rows(prober, file))?;
            found.push((row, hit.key));
        }
        read += batch.num_rows() as u64;
    }
    if read != expected {
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
    /// `wanted` are the keys that each row group may hold.
    fn new(statistics: &Statistics<'_>, keys: &KeySet, wanted: &[Wanted]) -> Result<Self, LakeError> {
        let Statistics { prober, file, footer, .. } = statistics;
        let root = |name| footer.schema().index_of(name).ok();
        let columns = prober.space.stored_names().map(root).collect::<Option<Vec<_>>>();
        let columns = columns.ok_or_else(|| damaged(prober, file, "it lacks a key column"))?;
        let mut plan = Self { columns, row_groups: Vec::new(), selection: None, ranges: Vec::new() };
        let mut selected = Vec::new();
        let (mut start, mut offset) = (0_u64, 0_usize);
        for (index, group) in footer.metadata().row_groups().iter().enumerate() {
            let rows =
                usize::try_from(group.num_rows()).map_err(|_| damaged(prober, file, "a row group is too large"))?;
            let wanted = wanted.get(index).filter(|wanted| !wanted.is_empty() && rows > 0);
            if let Some(wanted) = wanted {
                plan.row_groups.push(index);
                for page in statistics.pages(index, rows, keys, wanted)? {
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
    file: &'a FileEntry,
    footer: &'a ArrowReaderMetadata,
    metadata: &'a ParquetMetaData,
    /// `None` where nothing can be told from statistics.
    converter: Option<StatisticsConverter<'a>>,
}

impl<'a> Statistics<'a> {
    fn new(prober: &'a Prober, file: &'a FileEntry, footer: &'a ArrowReaderMetadata) -> Result<Self, ParquetError> {
        let (metadata, schema) = (footer.metadata().as_ref(), footer.schema().as_ref());
        let is_stored = |name: &&str| prober.space.partitioning.column(name).is_none();
        let is_wanted = prober.space.has_ranges() && !prober.exhaustive;
        let first = prober.space.names().next().filter(|_| is_wanted).filter(is_stored);
        let converter = first.map(|name| StatisticsConverter::try_new(name, schema, footer.parquet_schema()));
        let converter = converter.transpose()?.filter(|converter| !has_deprecated_order(metadata, converter));
        Ok(Self { prober, file, footer, metadata, converter })
    }

    /// For each row group, the bounds of the first key column in it; `None` where they cannot be told.
    fn row_groups(&self) -> Result<Vec<Option<KeyRange>>, LakeError> {
        let groups = self.metadata.row_groups();
        let Some(converter) = &self.converter else { return Ok(vec![None; groups.len()]) };
        let (Ok(mins), Ok(maxs)) = (converter.row_group_mins(groups), converter.row_group_maxes(groups)) else {
            return Ok(vec![None; groups.len()]);
        };
        self.prober.space.ranges(&mins, &maxs)
    }

    /// Of the keys `within` the bounds of a row group those that it may hold.
    async fn wanted(&self, group: usize, keys: &KeySet, within: Range<usize>) -> Result<Wanted, LakeError> {
        let column = self.converter.as_ref().and_then(StatisticsConverter::parquet_column_index);
        let Some(column) = column.filter(|_| !within.is_empty() && self.is_ours()) else {
            return Ok(Wanted::Range(within));
        };
        let chunk = (group, column);
        let sieved = bloom::sieve(self.prober, self.file, self.footer, chunk, keys, within.clone()).await?;
        Ok(sieved.map_or(Wanted::Range(within), Wanted::Sieved))
    }

    /// Whether Alluvium wrote the file: then its filters and the order of its page index are what they claim to be.
    fn is_ours(&self) -> bool {
        self.metadata.file_metadata().created_by().is_some_and(|writer| writer.starts_with("alluvium "))
    }

    /// The row ranges within a row group whose pages may hold a wanted key; all of it where that cannot be told.
    fn pages(&self, group: usize, rows: usize, keys: &KeySet, wanted: &Wanted) -> Result<Vec<Range<usize>>, LakeError> {
        let whole = std::iter::once(0..rows).collect();
        let Some(starts) = self.page_starts(group) else { return Ok(whole) };
        let touched = match self.sorted_pages(group, keys, wanted) {
            Some(touched) => touched,
            None => match self.page_ranges(group)?.filter(|ranges| ranges.len() == starts.len()) {
                None => return Ok(whole),
                Some(ranges) => {
                    let may_hold = |page: &usize| ranges[*page].as_ref().is_none_or(|range| keys.touches(range));
                    (0..ranges.len()).filter(may_hold).collect()
                }
            },
        };
        let mut selected: Vec<Range<usize>> = Vec::new();
        for index in touched {
            let Some(start) = starts.get(index).copied() else { return Ok(whole) };
            let page = start..starts.get(index + 1).copied().unwrap_or(rows);
            match selected.last_mut() {
                _ if page.start >= page.end => {}
                Some(last) if last.end == page.start => last.end = page.end,
                _ => selected.push(page),
            }
        }
        Ok(selected)
    }

    /// The pages of a column in order that may hold a wanted key, looked up in the index as it stands.
    fn sorted_pages(&self, group: usize, keys: &KeySet, wanted: &Wanted) -> Option<Vec<usize>> {
        let column = self.converter.as_ref()?.parquet_column_index()?;
        let first = self.prober.space.columns.first()?;
        let is_same = self.footer.schema().field_with_name(&first.name).ok()?.data_type() == &first.data_type;
        let index = self.metadata.column_index()?.get(group)?.get(column)?;
        if !is_same || !self.is_ours() {
            return None;
        }
        match wanted {
            Wanted::Range(within) => pages::touched(index, keys, within.clone()),
            Wanted::Sieved(sieved) => pages::touched(index, keys, sieved.iter().copied()),
        }
    }

    /// The first rows of the pages of the first key column.
    fn page_starts(&self, group: usize) -> Option<Vec<usize>> {
        let column = self.converter.as_ref()?.parquet_column_index()?;
        let pages = self.metadata.offset_index()?.get(group)?.get(column)?.page_locations();
        let starts: Option<Vec<usize>> = pages.iter().map(|page| usize::try_from(page.first_row_index).ok()).collect();
        starts.filter(|starts| starts.first() == Some(&0) && starts.is_sorted())
    }

    /// The bounds of the pages of the first key column.
    fn page_ranges(&self, group: usize) -> Result<Option<Vec<Option<KeyRange>>>, LakeError> {
        let Some((mins, maxs)) = self.page_bounds(group) else { return Ok(None) };
        self.prober.space.ranges(&mins, &maxs).map(Some)
    }

    fn page_bounds(&self, group: usize) -> Option<(ArrayRef, ArrayRef)> {
        let converter = self.converter.as_ref()?;
        let (columns, offsets) = (self.metadata.column_index()?, self.metadata.offset_index()?);
        columns.get(group)?.get(converter.parquet_column_index()?)?;
        let mins = converter.data_page_mins(columns, offsets, [&group]).ok()?;
        let maxs = converter.data_page_maxes(columns, offsets, [&group]).ok()?;
        Some((mins, maxs))
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

/// Keys that a row group may hold, by number.
enum Wanted {
    Range(Range<usize>),
    Sieved(Vec<usize>),
}

impl Wanted {
    fn is_empty(&self) -> bool {
        match self {
            Self::Range(range) => range.is_empty(),
            Self::Sieved(keys) => keys.is_empty(),
        }
    }
}

/// Turns rows in the order in which they are read into physical rows, walking through what is read once.
struct Position {
    ranges: std::vec::IntoIter<Range<u64>>,
    current: Range<u64>,
    /// Rows that are read before those of `current`.
    before: u64,
}

impl Position {
    fn new(ranges: Vec<Range<u64>>) -> Self {
        Self { ranges: ranges.into_iter(), current: 0..0, before: 0 }
    }

    /// The physical row of the row that is read as number `read`, counted from 0; `None` behind the last. Numbers ascend
    /// from call to call.
    fn of(&mut self, read: u64) -> Option<u64> {
        loop {
            let length = self.current.end - self.current.start;
            let ahead = read.checked_sub(self.before)?;
            if ahead < length {
                return Some(self.current.start + ahead);
            }
            self.current = self.ranges.next()?;
            self.before += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_become_rows_of_the_file() {
        let mut position = Position::new(vec![2..4, 5..5, 7..8, 10..13]);
        let all: Vec<_> = (0..7).map(|read| position.of(read)).collect();
        assert_eq!(all, [Some(2), Some(3), Some(7), Some(10), Some(11), Some(12), None]);
        let mut position = Position::new(vec![2..4, 7..8, 10..13]);
        assert_eq!([1, 1, 4, 6].map(|read| position.of(read)), [Some(3), Some(3), Some(11), None]);
        assert_eq!(Position::new(Vec::new()).of(0), None);
    }
}
