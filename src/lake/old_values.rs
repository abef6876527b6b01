//! The values that changes leave out: they are read from the rows that the table has, of the columns that are missing
//! only, and of the pages that hold those rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, UInt32Array, new_null_array};
use arrow::compute::{cast, interleave, not, take};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use roaring::RoaringTreemap;

use super::apply::{BatchWriter, numbers_of};
use super::change_feed::selection;
use super::files::FileEntry;
use super::locate::{KeySetBuilder, Located, RowHit};
use super::write::ColumnMap;
use super::{LakeError, LakeTable};
use crate::batch::{AbsentRows, KeyedSlice};
use crate::change::{Gaps, Moved, RowKey, json_patch};
use crate::schema::TableSchema;
use crate::schema::convert;

/// What a slice with gaps is written with.
pub(super) struct Slice<'a> {
    pub slice: &'a KeyedSlice,
    pub gaps: &'a Gaps,
    pub schema: &'a TableSchema,
    pub columns: &'a ColumnMap,
    /// The number of its first key among all keys of the batch.
    pub first_key: u64,
    /// The batch empties the table first: it has no old rows.
    pub truncate: bool,
    pub absent_rows: AbsentRows,
}

/// Where the old row of each row of a slice is; `None` where it needs none.
type Places = Vec<Option<RowHit>>;

/// Old rows of a part of a slice.
struct OldRows {
    /// The columns that are read, by their number in the slice.
    columns: Vec<usize>,
    /// One batch of those columns for each file.
    batches: Vec<RecordBatch>,
    /// For each row of the part the batch and the row that is its old one.
    at: Vec<Option<(usize, usize)>>,
}

impl LakeTable {
    /// Looks for the rows of a slice that has gaps, and notes what goes.
    pub(super) async fn locate_slice(
        &mut self,
        slice: &KeyedSlice,
        key: &[usize],
        located: &mut Located,
    ) -> Result<Vec<RowHit>, LakeError> {
        let mut keys = KeySetBuilder::new(self.prober.space.clone());
        keys.push(slice, key)?;
        located.rows = Some(Vec::new());
        self.prober.locate(&self.files, &Arc::new(keys.finish()), located).await?;
        Ok(located.rows.take().unwrap_or_default())
    }

    /// Writes a slice with gaps, as many rows at a time as the memory has room for their old values. `own` are the
    /// rows that the table has under the slice's own keys.
    ///
    /// While the table is being loaded, rows whose old values are missing are left out; the result are the keys of those that
    /// need not come with the rest of the load ([`AbsentRows::Noted`]).
    ///
    /// # Errors
    /// [`LakeError::NoOldRow`] if the table lacks a row whose old values are needed, and is not being loaded.
    pub(super) async fn write_with_old_values(
        &self,
        slice: &Slice<'_>,
        own: Vec<RowHit>,
        writer: &mut BatchWriter,
    ) -> Result<Vec<RowKey>, LakeError> {
        let (places, keep) = self.places(slice, own).await?;
        let failed = LakeError::arrow(&self.table, "fill in the columns that a change leaves out");
        let mut row = 0;
        while row < keep.len() {
            let part = row..self.part_end(slice, &places, row).await?;
            let rows = slice.slice.rows.slice(part.start, part.len());
            let old = self.old_rows(slice, &places[part.clone()], part.start).await?;
            let rows = fill(slice, rows, &old, part.start).map_err(|error| match error {
                Unfilled::Arrow(error) => failed(error),
                Unfilled::Patch(error) => self.patch_error(&error),
            })?;
            let keep = keep.slice(part.start, part.len());
            let numbers = self.has_feed().then(|| numbers_of(&keep, slice.first_key + part.start as u64));
            writer.write(&slice.columns.apply(&rows, &keep)?, numbers.as_ref()).await?;
            row = part.end;
        }
        let is_left_out = |row: &usize| !keep.value(*row) && !slice.slice.deleted.value(*row);
        let is_noted = |row: &usize| slice.gaps.get(*row).moved() != Moved::No;
        let rows = (0..keep.len()).filter(|_| slice.absent_rows == AbsentRows::Noted);
        let unsettled: Vec<usize> = rows.filter(is_left_out).filter(is_noted).collect();
        RowKey::of_rows(&slice.slice.rows, &slice.schema.key, &unsettled)
            .map_err(LakeError::arrow(&self.table, "note the keys of rows that are left out"))
    }

    fn patch_error(&self, error: &str) -> LakeError {
        let what = format!("{error} (partial JSON); load the table again");
        LakeError::Changes { table: self.table.clone(), what }
    }

    /// Where the old rows are, and which rows are written.
    async fn places(&self, slice: &Slice<'_>, own: Vec<RowHit>) -> Result<(Places, BooleanArray), LakeError> {
        let rows = slice.slice.rows.num_rows();
        let needs = |row: &usize| {
            let gap = slice.gaps.get(*row);
            !slice.slice.deleted.value(*row) && gap.is_open()
        };
        let mut places: Places = vec![None; rows];
        for hit in own {
            let is_own = slice.gaps.get(hit.key).moved() == Moved::No;
            if let Some(place) = places.get_mut(hit.key).filter(|_| is_own) {
                *place = Some(hit);
            }
        }
        if let Some(moved) = slice.slice.moved_from.as_ref().filter(|_| !slice.truncate) {
            let mut keys = KeySetBuilder::new(self.prober.space.clone());
            keys.push(&moved.keys, &slice.schema.key)?;
            for hit in self.prober.find(&self.files, &Arc::new(keys.finish())).await? {
                if let Some(place) = moved.rows.get(hit.key).and_then(|row| places.get_mut(*row)) {
                    *place = Some(hit);
                }
            }
        }
        let mut keep: Vec<bool> =
            not(&slice.slice.deleted).map_err(LakeError::arrow(&self.table, "select rows"))?.values().iter().collect();
        for row in 0..rows {
            if !needs(&row) {
                places[row] = None;
            } else if places[row].is_none() {
                if slice.absent_rows == AbsentRows::Fault {
                    return Err(LakeError::NoOldRow { table: self.table.clone() });
                }
                keep[row] = false;
            }
        }
        Ok((places, BooleanArray::from(keep)))
    }

    /// The end of a part that begins at `start`: as many old rows as may be held at a time.
    async fn part_end(&self, slice: &Slice<'_>, places: &Places, start: usize) -> Result<usize, LakeError> {
        let (mut budgets, mut rows) = (BTreeMap::new(), 0);
        let mut rows_max = usize::MAX;
        for (row, place) in places.iter().enumerate().skip(start) {
            let Some(place) = place else { continue };
            if !budgets.contains_key(&place.file.add.path) {
                let footer = self.prober.footers.get(&place.file).await?;
                let budget = self.copy_rows(&footer);
                rows_max = rows_max.min(budget);
                budgets.insert(place.file.add.path.clone(), budget);
            }
            rows += 1;
            if rows > rows_max {
                return Ok(row.max(start + 1));
            }
        }
        Ok(slice.slice.rows.num_rows())
    }

    /// Reads the old values that a part of a slice needs.
    async fn old_rows(
        &self,
        slice: &Slice<'_>,
        places: &[Option<RowHit>],
        first_row: usize,
    ) -> Result<OldRows, LakeError> {
        let mut wanted = BTreeSet::new();
        let mut files: BTreeMap<&str, (&Arc<FileEntry>, RoaringTreemap)> = BTreeMap::new();
        for (row, place) in places.iter().enumerate() {
            let Some(place) = place else { continue };
            let gap = slice.gaps.get(first_row + row);
            let is_missing = |column: &usize| gap.is_absent(*column) || gap.is_patched(*column);
            wanted.extend((0..slice.schema.columns.len()).filter(is_missing));
            let file = files.entry(&place.file.add.path).or_insert_with(|| (&place.file, RoaringTreemap::new()));
            file.1.insert(place.row);
        }
        let columns: Vec<usize> = wanted.into_iter().collect();
        let fields: Vec<FieldRef> = {
            let arrow = slice.schema.arrow_schema();
            columns.iter().map(|column| arrow.fields()[*column].clone()).collect()
        };
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let (mut batches, mut numbers) = (Vec::new(), BTreeMap::new());
        for (path, (file, rows)) in &files {
            numbers.insert(*path, batches.len());
            batches.push(self.read_rows(file, rows, &schema).await?);
        }
        let at = places.iter().map(|place| {
            let place = place.as_ref()?;
            let path = place.file.add.path.as_str();
            // Its rank among the rows of its file that were read.
            let rank = files.get(path)?.1.rank(place.row).checked_sub(1)?;
            Some((*numbers.get(path)?, usize::try_from(rank).ok()?))
        });
        let at = at.collect();
        Ok(OldRows { columns, batches, at })
    }

    /// Columns of some rows of a file, in the order of the rows.
    async fn read_rows(
        &self,
        file: &FileEntry,
        rows: &RoaringTreemap,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, LakeError> {
        let failed = LakeError::parquet(&self.table, "read old values of", &file.add.path);
        let footer = self.prober.footers.get(file).await?;
        let known = footer.schema().fields().iter().enumerate();
        let is_wanted = |name: &str| schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name));
        let roots = known.filter(|(_, field)| is_wanted(field.name())).map(|(index, _)| index);
        let mask = ProjectionMask::roots(footer.parquet_schema(), roots);
        let total = usize::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
        let reader = self.prober.footers.reader(file);
        let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.as_ref().clone())
            .with_projection(mask)
            .with_row_selection(selection(rows, total));
        let batches: Vec<RecordBatch> = builder.build().map_err(&failed)?.try_collect().await.map_err(&failed)?;
        let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if found as u64 != rows.len() {
            let reason = format!("{found} rows were read of {}", rows.len());
            return Err(LakeError::Damaged { table: self.table.clone(), file: file.add.path.clone(), reason });
        }
        let shaped =
            batches.iter().map(|batch| self.old_columns(batch, file, schema)).collect::<Result<Vec<_>, _>>()?;
        let whole = arrow::compute::concat_batches(schema, &shaped);
        whole.map_err(LakeError::arrow(&self.table, "put old values together"))
    }

    /// The columns of `schema` of rows of a file; partition columns are in the log alone.
    fn old_columns(&self, batch: &RecordBatch, file: &FileEntry, schema: &SchemaRef) -> Result<RecordBatch, LakeError> {
        let zeros = UInt32Array::from(vec![0; batch.num_rows()]);
        let by_name = |name: &str| {
            let fields = batch.schema_ref().fields();
            fields.iter().position(|field| field.name().eq_ignore_ascii_case(name)).map(|index| batch.column(index))
        };
        let column = |field: &FieldRef| {
            let partition =
                self.partitioning().columns.iter().find(|column| column.name.eq_ignore_ascii_case(field.name()));
            if let Some(value) = partition.and_then(|column| column.of_file(&file.add)) {
                return cast(&take(&value, &zeros, None)?, field.data_type());
            }
            match by_name(field.name()) {
                Some(column) => convert(column, field.data_type()),
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            }
        };
        let columns = schema.fields().iter().map(column).collect::<Result<Vec<ArrayRef>, _>>();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        columns
            .and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options))
            .map_err(LakeError::arrow(&self.table, "read old values"))
    }
}

enum Unfilled {
    Arrow(arrow::error::ArrowError),
    Patch(String),
}

impl From<arrow::error::ArrowError> for Unfilled {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Arrow(error)
    }
}

/// The rows of a part with the values that they left out.
fn fill(slice: &Slice<'_>, rows: RecordBatch, old: &OldRows, first_row: usize) -> Result<RecordBatch, Unfilled> {
    let mut columns = rows.columns().to_vec();
    for (place, column) in old.columns.iter().enumerate() {
        let mut arrays: Vec<&dyn Array> = vec![rows.column(*column).as_ref()];
        arrays.extend(old.batches.iter().map(|batch| batch.column(place).as_ref()));
        let mut picks: Vec<(usize, usize)> = (0..rows.num_rows()).map(|row| (0, row)).collect();
        let mut patches = Vec::new();
        for (row, at) in old.at.iter().enumerate() {
            let (Some((batch, from)), gap) = (at, slice.gaps.get(first_row + row)) else { continue };
            if gap.is_absent(*column) {
                picks[row] = (batch + 1, *from);
            } else if gap.is_patched(*column) {
                patches.push((row, (batch + 1, *from)));
            }
        }
        let filled = interleave(&arrays, &picks)?;
        columns[*column] = if patches.is_empty() { filled } else { patched(&arrays, &filled, &patches)? };
    }
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// The column with the documents that its patches make of the old ones.
fn patched(
    arrays: &[&dyn Array],
    filled: &ArrayRef,
    patches: &[(usize, (usize, usize))],
) -> Result<ArrayRef, Unfilled> {
    if *filled.data_type() != DataType::Utf8 {
        return Err(Unfilled::Patch(format!("a column of type {} was patched", filled.data_type())));
    }
    let own = filled.as_string::<i32>();
    let mut values: Vec<Option<String>> = own.iter().map(|value| value.map(str::to_string)).collect();
    for (row, (array, from)) in patches {
        let old = arrays[*array].as_string::<i32>();
        let document = if old.is_valid(*from) { old.value(*from) } else { "null" };
        let patch = values[*row].take().unwrap_or_default();
        values[*row] = Some(json_patch::apply(document, &patch).map_err(|error| Unfilled::Patch(error.to_string()))?);
    }
    Ok(Arc::new(StringArray::from(values)))
}
