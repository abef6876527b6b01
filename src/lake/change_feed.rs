//! The change data feed: which rows a commit inserted, updated and deleted ("Change Data Files" of the Delta protocol).
//!
//! Before-images are the rows that the table had, as they are found when their deletion is planned: so the feed is the
//! difference between two versions, also where the source tells no before-image, or a load brings rows that are there.
//! A commit that finds no old row needs no such files: readers take its new files for inserts. (They might do the same
//! with removed files, but not all of them leave out the rows that a deletion vector hid before.)

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use deltalake::kernel::Add;
use futures::TryStreamExt;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use roaring::RoaringTreemap;

use super::files::FileEntry;
use super::locate::{FileHits, Located};
use super::write::{DataWriter, NewFiles};
use super::{Fills, LakeError, LakeTable};
use crate::config::TableSettings;
use crate::schema::TableSchema;

/// The column of the change files that says what happened to a row.
pub(super) const CHANGE_TYPE: &str = "_change_type";
/// Columns that readers add to the feed.
const RESERVED: [&str; 3] = [CHANGE_TYPE, "_commit_version", "_commit_timestamp"];

/// What happened to the rows of one file, in the order of the rows.
enum Part<'a> {
    /// Rows that the table had, and loses.
    Old(&'a FileHits),
    /// All rows of a new file, with the numbers of their keys in the batch.
    New(&'a Add, &'a RoaringTreemap),
}

/// A column of the table whose name the feed needs.
pub(super) fn reserved_name(schema: &Schema) -> Option<String> {
    let is_reserved = |name: &&String| RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
    schema.fields().iter().map(|field| field.name()).find(is_reserved).cloned()
}

/// # Errors
/// [`LakeError::Settings`] if the table is to have a feed and a column with one of the feed's names.
pub(super) fn check_names(schema: &TableSchema, settings: &TableSettings) -> Result<(), LakeError> {
    match reserved_name(&schema.arrow_schema()).filter(|_| settings.change_feed) {
        None => Ok(()),
        Some(name) => {
            let what = format!("the source has a column {name}, a name that the change feed needs");
            Err(LakeError::Settings { table: schema.table.clone(), what })
        }
    }
}

impl LakeTable {
    /// Writes the change files of a batch, for a table with the given columns in its files: partition after partition,
    /// the old rows of each before its new ones.
    pub(super) async fn write_feed(
        &self,
        files: &SchemaRef,
        new: &NewFiles,
        located: &Located,
    ) -> Result<NewFiles, LakeError> {
        let mut feed = NewFiles::default();
        if located.files.is_empty() {
            return Ok(feed);
        }
        let mut partitions: BTreeMap<Vec<_>, Vec<Part<'_>>> = BTreeMap::new();
        let old = located.files.values().map(|hits| (&hits.file.add, Part::Old(hits)));
        let new = new.adds.iter().zip(&new.numbers).map(|(add, numbers)| (add, Part::New(add, numbers)));
        for (add, part) in old.chain(new) {
            let mut values: Vec<_> = add.partition_values.clone().into_iter().collect();
            values.sort();
            partitions.entry(values).or_default().push(part);
        }
        let schema = feed_schema(files);
        for (values, parts) in partitions {
            let writer = self.writer(schema.clone()).in_partition(values.into_iter().collect());
            let mut writer = writer.in_folder("_change_data/cdc");
            for part in parts {
                self.write_part(&part, located, files, &mut writer).await?;
            }
            feed.extend(writer.finish().await?);
        }
        Ok(feed)
    }

    /// All live rows of the table, as deleted rows or as ones that are updated.
    pub(super) async fn locate_all(&self, deleted: bool) -> Result<Located, LakeError> {
        let mut located = Located::new(true);
        for file in self.files.values() {
            let footer = self.prober.footers.get(file).await?;
            let rows = u64::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
            let all = first(rows);
            let hits = FileHits {
                file: file.clone(),
                rows,
                deleted: if deleted { all.clone() } else { RoaringTreemap::new() },
                vector: all,
            };
            located.files.insert(file.add.path.clone(), hits);
        }
        Ok(located)
    }

    /// The change files of a rewrite that gives all rows other values: each new row is the update of an old one.
    pub(super) async fn write_feed_of_rewrite(&self, files: &SchemaRef, new: &NewFiles) -> Result<NewFiles, LakeError> {
        let mut located = self.locate_all(false).await?;
        located.matched = first(new.rows);
        let numbers = |add: &Add| Ok(first(FileEntry::new(add.clone(), &self.prober.space)?.rows.unwrap_or(0)));
        let numbers: Result<Vec<RoaringTreemap>, LakeError> = new.adds.iter().map(numbers).collect();
        let new = NewFiles { adds: new.adds.clone(), rows: new.rows, numbers: numbers? };
        self.write_feed(files, &new, &located).await
    }

    async fn write_part(
        &self,
        part: &Part<'_>,
        located: &Located,
        files: &SchemaRef,
        writer: &mut DataWriter,
    ) -> Result<(), LakeError> {
        match part {
            Part::Old(hits) => {
                let mut lost = hits.vector.clone();
                if let Some(before) = self.prober.vector(&hits.file).await? {
                    lost -= before.as_ref();
                }
                let change = |row| if hits.deleted.contains(row) { "delete" } else { "update_preimage" };
                self.write_rows(&hits.file, Some(&lost), &mut lost.iter().map(change), files, writer).await
            }
            Part::New(add, numbers) => {
                let file = FileEntry::new((*add).clone(), &self.prober.space)?;
                let change = |key| if located.matched.contains(key) { "update_postimage" } else { "insert" };
                self.write_rows(&file, None, &mut numbers.iter().map(change), files, writer).await
            }
        }
    }

    /// Copies rows of a file (all, or those of the given numbers) with what `changes` says of each.
    async fn write_rows(
        &self,
        file: &FileEntry,
        rows: Option<&RoaringTreemap>,
        changes: &mut (dyn Iterator<Item = &'static str> + Send),
        files: &SchemaRef,
        writer: &mut DataWriter,
    ) -> Result<(), LakeError> {
        let failed = LakeError::parquet(&self.table, "read changed rows of", &file.add.path);
        let footer = self.prober.footers.get(file).await?;
        let reader = self.prober.footers.reader(file);
        let mut builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.as_ref().clone())
            .with_batch_size(self.copy_rows(&footer));
        if let Some(rows) = rows {
            let total = usize::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
            builder = builder.with_row_selection(selection(rows, total));
        }
        let mut batches = builder.build().map_err(&failed)?;
        while let Some(batch) = batches.try_next().await.map_err(&failed)? {
            let batch = self.reshape(&batch, files, &Fills::default())?;
            let types: StringArray = changes.take(batch.num_rows()).map(Some).collect();
            let mut columns = batch.columns().to_vec();
            columns.push(Arc::new(types) as ArrayRef);
            let rows = RecordBatch::try_new(feed_schema(files), columns);
            // Too few types, as of a file with more rows than were written to it, are an error here.
            writer.write(&rows.map_err(LakeError::arrow(&self.table, "say how rows changed"))?).await?;
        }
        match changes.next() {
            None => Ok(()),
            Some(_) => {
                let what = format!("{} has fewer rows than were changed in it", file.add.path);
                Err(LakeError::Changes { table: self.table.clone(), what })
            }
        }
    }
}

/// The numbers below `count`.
fn first(count: u64) -> RoaringTreemap {
    let mut numbers = RoaringTreemap::new();
    numbers.insert_range(0..count);
    numbers
}

fn feed_schema(files: &SchemaRef) -> SchemaRef {
    let change_type = Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true));
    Arc::new(Schema::new(files.fields().iter().cloned().chain([change_type]).collect::<Vec<_>>()))
}

/// The rows of these numbers among `total`.
pub(super) fn selection(rows: &RoaringTreemap, total: usize) -> RowSelection {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for row in rows.iter().filter_map(|row| usize::try_from(row).ok()) {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    RowSelection::from_consecutive_ranges(ranges.into_iter(), total)
}
