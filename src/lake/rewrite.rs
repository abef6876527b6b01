//! Copies live rows into new files: of another shape, which a new column with a default needs, for the source gives its
//! existing rows that value without logging them; or without the rows that a batch replaces or deletes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use roaring::RoaringTreemap;

use super::files::FileEntry;
use super::locate::{Footer, Located};
use super::scan::{LiveFile, Pace};
use super::write::NewFiles;
use super::{LakeError, LakeTable};
use crate::schema::convert;

/// Rows that are copied at a time at most.
const COPY_ROWS_MAX: u64 = 8_192;
/// Of a table's memory, the share that the rows being copied may hold: one part in this many. They are there more
/// than once: decoded, filtered, and in the writer.
const COPY_SHARE: usize = 16;
/// Of a table's memory, the share of pages that are fetched and not decoded yet: one part in this many.
const FETCH_SHARE: usize = 8;

/// What rows that are there get in new columns, by the columns' names; null in all others.
#[derive(Debug, Clone, Default)]
pub struct Fills {
    /// Arrays of one value, not null, of the column's type.
    pub values: BTreeMap<String, ArrayRef>,
    /// The column whose values it gets.
    pub copies: BTreeMap<String, String>,
}

impl LakeTable {
    /// Writes all live rows again with the columns of `schema`, which are those of files: one new file or more for each old one, in the order
    /// that the rows had. Columns that a file lacks are filled, or null.
    pub(super) async fn rewrite(&self, schema: &SchemaRef, fills: &Fills) -> Result<NewFiles, LakeError> {
        let mut new = NewFiles::default();
        for file in self.files.values() {
            new.extend(self.copy(file, schema, fills).await?);
        }
        let expected = self.stats().rows;
        if self.files.values().all(|file| file.rows.is_some()) && new.rows != expected {
            let what = format!("{} rows were copied of {expected}", new.rows);
            return Err(LakeError::Changes { table: self.table.clone(), what });
        }
        Ok(new)
    }

    /// Writes the rows that stay of each located file into new files beside those of the batch.
    pub(super) async fn copy_remaining(&self, located: &Located) -> Result<NewFiles, LakeError> {
        let (schema, mut new) = (self.file_schema(), NewFiles::default());
        for hits in located.files.values().filter(|hits| hits.vector.len() < hits.rows) {
            let copied = self.copy_without(&hits.file, Some(&hits.vector), &schema, &Fills::default()).await?;
            let expected = hits.rows - hits.vector.len();
            if copied.rows != expected {
                let what = format!("{} rows of {} were copied of {expected}", copied.rows, hits.file.add.path);
                return Err(LakeError::Changes { table: self.table.clone(), what });
            }
            new.extend(copied);
        }
        Ok(new)
    }

    /// Writes the live rows of a file again, in their partition.
    pub(super) async fn copy(
        &self,
        file: &FileEntry,
        schema: &SchemaRef,
        fills: &Fills,
    ) -> Result<NewFiles, LakeError> {
        let deleted = self.prober.vector(file).await?;
        self.copy_without(file, deleted.as_deref(), schema, fills).await
    }

    async fn copy_without(
        &self,
        file: &FileEntry,
        deleted: Option<&RoaringTreemap>,
        schema: &SchemaRef,
        fills: &Fills,
    ) -> Result<NewFiles, LakeError> {
        let none = RoaringTreemap::new();
        let footer = self.prober.footers.get(file).await?;
        let fetch_bytes = (self.lake.memory_bytes() / FETCH_SHARE) as u64;
        let pace = Pace { batch_rows: self.copy_rows(&footer), fetch_bytes };
        let mut live = LiveFile::open(&self.prober, file, deleted.unwrap_or(&none), pace).await?;
        let mut writer = self.writer(schema.clone()).in_partition(file.add.partition_values.clone());
        while let Some(batch) = live.next().await? {
            writer.write(&self.reshape(&batch, schema, fills)?).await?;
        }
        writer.finish().await
    }

    /// As many rows as fit into this work's share of memory, by what the file says of their size.
    pub(super) fn copy_rows(&self, footer: &Footer) -> usize {
        let groups = footer.metadata().row_groups();
        let bytes: i64 = groups.iter().map(|group| group.total_byte_size()).sum();
        let rows: i64 = groups.iter().map(|group| group.num_rows()).sum();
        let row_bytes = (bytes / rows.max(1)).max(1).unsigned_abs();
        let budget = (self.lake.memory_bytes() / COPY_SHARE) as u64;
        usize::try_from((budget / row_bytes).clamp(1, COPY_ROWS_MAX)).unwrap_or(1)
    }

    /// The columns of `schema`; those that a file lacks are filled, or null.
    pub(super) fn reshape(
        &self,
        batch: &RecordBatch,
        schema: &SchemaRef,
        fills: &Fills,
    ) -> Result<RecordBatch, LakeError> {
        let failed = LakeError::arrow(&self.table, "copy rows");
        let zeros = UInt32Array::from(vec![0; batch.num_rows()]);
        let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
            Some(column) => convert(column, field.data_type()),
            None => match (fills.values.get(field.name()), self.copied(batch, field.name(), fills)) {
                (Some(value), _) => take(value, &zeros, None),
                (None, Some(column)) => convert(column, field.data_type()),
                (None, None) => Ok(new_null_array(field.data_type(), batch.num_rows())),
            },
        });
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(&failed)?;
        RecordBatch::try_new(schema.clone(), columns).map_err(&failed)
    }

    /// The column whose values the new column `name` gets.
    fn copied<'a>(&self, batch: &'a RecordBatch, name: &str, fills: &Fills) -> Option<&'a ArrayRef> {
        let from = fills.copies.get(name)?;
        let fields = batch.schema_ref().fields();
        let index = fields.iter().position(|field| field.name().eq_ignore_ascii_case(from))?;
        batch.columns().get(index)
    }

    /// Checks that each default is one value of its column's type.
    pub(super) fn check_defaults(
        &self,
        schema: &SchemaRef,
        defaults: &BTreeMap<String, ArrayRef>,
    ) -> Result<(), LakeError> {
        for (name, value) in defaults {
            let field = schema.field_with_name(name).ok();
            if value.len() != 1 || field.is_none_or(|field| field.data_type() != value.data_type()) {
                let what = format!("the default of column {name} is not one value of its type");
                return Err(LakeError::Changes { table: self.table.clone(), what });
            }
        }
        Ok(())
    }

    /// The live files as they are, to be removed.
    pub(super) fn all_files(&self) -> Vec<Arc<FileEntry>> {
        self.files.values().cloned().collect()
    }
}
