//! Writes rows in key order into new data files.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use deltalake::kernel::Add;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::AsyncArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{BloomFilterPosition, EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use roaring::RoaringTreemap;
use uuid::Uuid;

use super::partition::{self, PartitionValues};
use super::{LakeError, files, stats};
use crate::change::TableId;
use crate::failpoint;
use crate::schema::convert;
use crate::schema::holds;

/// How data files are cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// A file is closed once it holds this many bytes.
    pub file_bytes: usize,
    /// Rows per row group at most.
    pub row_group_rows: usize,
    /// Encoded bytes per row group at most.
    pub row_group_bytes: usize,
    /// Rows per page at most.
    pub page_rows: usize,
}

/// Files large enough for scans and small enough to be rewritten in seconds; row groups that readers can share work
/// by, and that bound what the writer holds until one is complete; pages in which a key is soon found.
pub(super) const LAYOUT: Layout =
    Layout { file_bytes: 256 << 20, row_group_rows: 1 << 20, row_group_bytes: 32 << 20, page_rows: 8_192 };
/// Of a table's memory, the share that the encoded rows of a row group may take: one part in this many. They are there twice
/// when it is complete.
const ROW_GROUP_SHARE: usize = 8;
/// Row groups are not made smaller than this, however little memory there is.
const ROW_GROUP_BYTES_MIN: usize = 4 << 20;
/// The Parquet writer looks at its limits each time it has taken this many rows.
const WRITE_ROWS: usize = 1_024;
/// Bytes of a page of a key column, for each random key of a batch costs the reading of one. Whole numbers are decoded
/// in no time, and in order take next to no room: their pages end as soon as the writer can end one (some hundred rows).
const KEY_PAGE_BYTES: usize = 8 << 10;
const WHOLE_KEY_PAGE_BYTES: usize = 1;
/// Bytes of a page of any other column, which is read whole for a single row: with the writer's usual 1 MiB, one row of a table
/// with a text of 100 bytes costs three times as much.
const PAGE_BYTES: usize = 128 << 10;
/// Bytes of the values of a dictionary, which whoever reads a page of its column has to read first. A column of more different
/// values is better off without.
const DICTIONARY_BYTES: usize = 128 << 10;
/// How many of the keys that a row group lacks its Bloom filter lets through: at one in a hundred it takes ten bits a key.
const FILTER_FALSE_RATE: f64 = 0.01;
/// How the names of data files start.
const DATA_PREFIX: &str = "part";
/// One part of an upload; smaller files go in one request.
const UPLOAD_PART_BYTES: usize = 8 << 20;

/// Parts of one upload that are on their way at the same time: each is held until the store has it.
const UPLOAD_PARTS_AT_ONCE: usize = 2;

impl Layout {
    /// The same with row groups that fit into a table's memory.
    #[must_use]
    pub fn within(self, memory_bytes: usize) -> Self {
        let share = (memory_bytes / ROW_GROUP_SHARE).max(ROW_GROUP_BYTES_MIN);
        Self { row_group_bytes: self.row_group_bytes.min(share), ..self }
    }
}

/// Writes rows of one partition; of a table that is not partitioned, all.
pub(super) struct DataWriter {
    table: TableId,
    /// Rooted at the table.
    store: Arc<dyn ObjectStore>,
    /// The columns of the files: those of the Delta table without its partition columns.
    schema: SchemaRef,
    key: Vec<String>,
    layout: Layout,
    partition: PartitionValues,
    /// How the paths of the files start, behind the folder of their partition if they are data files.
    prefix: &'static str,
    open: Option<OpenFile>,
    done: NewFiles,
    /// The numbers of the rows of the open file.
    numbers: RoaringTreemap,
}

struct OpenFile {
    path: Path,
    writer: AsyncArrowWriter<BufWriter>,
}

/// New files that no commit names yet.
#[derive(Default)]
pub(super) struct NewFiles {
    pub adds: Vec<Add>,
    pub rows: u64,
    /// For each file the numbers that its rows were given, ascending as the rows are; empty sets if they have none.
    pub numbers: Vec<RoaringTreemap>,
}

impl NewFiles {
    /// Adds more files.
    pub fn extend(&mut self, more: Self) {
        self.rows += more.rows;
        self.adds.extend(more.adds);
        self.numbers.extend(more.numbers);
    }

    /// Size of the files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.adds.iter().map(|add| u64::try_from(add.size).unwrap_or(0)).sum()
    }
}

impl DataWriter {
    pub fn new(
        table: TableId,
        store: Arc<dyn ObjectStore>,
        schema: SchemaRef,
        key: Vec<String>,
        layout: Layout,
    ) -> Self {
        let partition = PartitionValues::new();
        let (done, numbers) = (NewFiles::default(), RoaringTreemap::new());
        Self { table, store, schema, key, layout, partition, prefix: DATA_PREFIX, open: None, done, numbers }
    }

    /// The same for files with these partition values.
    #[must_use]
    pub fn in_partition(self, partition: PartitionValues) -> Self {
        Self { partition, ..self }
    }

    /// The same for files that are no data files: their paths start with `prefix`.
    #[must_use]
    pub fn in_folder(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// Writes rows, and keeps their numbers with their file. They ascend.
    pub async fn write_numbered(&mut self, rows: &RecordBatch, numbers: &UInt64Array) -> Result<(), LakeError> {
        self.numbers.extend(numbers.values().iter().copied());
        self.write(rows).await
    }

    /// Writes rows with the columns of the files. They come in key order.
    pub async fn write(&mut self, rows: &RecordBatch) -> Result<(), LakeError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.open.is_none() {
            failpoint::hit(failpoint::DATA_FILE_BEFORE);
            self.open = Some(self.open_file()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let written = open.writer.write(rows).await;
        written.map_err(LakeError::parquet(&self.table, "write", open.path.as_ref()))?;
        self.done.rows += rows.num_rows() as u64;
        if open.writer.bytes_written() + open.writer.in_progress_size() >= self.layout.file_bytes {
            self.close_file().await?;
        }
        Ok(())
    }

    pub async fn finish(mut self) -> Result<NewFiles, LakeError> {
        self.close_file().await?;
        Ok(self.done)
    }

    fn open_file(&self) -> Result<OpenFile, LakeError> {
        let folder = if self.prefix == DATA_PREFIX { partition::folder(&self.partition) } else { String::new() };
        let name = format!("{}-{:05}-{}.zstd.parquet", self.prefix, self.done.adds.len(), Uuid::new_v4());
        let path = files::object_path(&(folder + &name));
        let failed = LakeError::parquet(&self.table, "start", path.as_ref());
        let upload = BufWriter::with_capacity(self.store.clone(), path.clone(), UPLOAD_PART_BYTES)
            .with_max_concurrency(UPLOAD_PARTS_AT_ONCE);
        let options = ArrowWriterOptions::new()
            .with_properties(properties(&self.schema, &self.key, self.layout).map_err(&failed)?)
            .with_skip_arrow_metadata(true);
        let writer = AsyncArrowWriter::try_new_with_options(upload, self.schema.clone(), options).map_err(&failed)?;
        drop(failed);
        Ok(OpenFile { path, writer })
    }

    async fn close_file(&mut self) -> Result<(), LakeError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let failed = LakeError::parquet(&self.table, "finish", open.path.as_ref());
        let metadata = open.writer.finish().await.map_err(&failed)?;
        let key: Vec<&str> = self.key.iter().map(String::as_str).collect();
        let stats = stats::of_file(&self.schema, &metadata, &key).map_err(&failed)?;
        let size = i64::try_from(open.writer.bytes_written()).unwrap_or(i64::MAX);
        failpoint::hit(failpoint::DATA_FILE_AFTER);
        self.done.numbers.push(std::mem::take(&mut self.numbers));
        self.done.adds.push(Add {
            path: open.path.to_string(),
            partition_values: self.partition.clone(),
            size,
            modification_time: chrono::Utc::now().timestamp_millis(),
            data_change: true,
            stats: Some(stats),
            ..Add::default()
        });
        Ok(())
    }
}

/// Deletes files that will never be part of the table; what cannot be deleted is left for a vacuum.
pub(super) async fn abandon(store: &dyn ObjectStore, files: &NewFiles) {
    for add in &files.adds {
        if let Err(error) = store.delete(&files::object_path(&add.path)).await {
            tracing::debug!(path = %add.path, error = %error, "unused data file stays");
        }
    }
}

/// How a table's files are encoded. Key columns have small pages with statistics and no dictionary; whole numbers of an ascending
/// key are stored as small differences.
fn properties(
    schema: &SchemaRef,
    key: &[String],
    layout: Layout,
) -> Result<WriterProperties, parquet::errors::ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("alluvium ", env!("CARGO_PKG_VERSION")).to_string())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(layout.row_group_rows))
        .set_max_row_group_bytes(Some(layout.row_group_bytes))
        .set_data_page_row_count_limit(layout.page_rows)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_write_batch_size(layout.page_rows.min(WRITE_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for name in key.iter().filter(|name| schema.field_with_name(name).is_ok()) {
        let column = ColumnPath::new(vec![name.clone()]);
        let whole = schema.field_with_name(name).is_ok_and(|field| is_whole_number(field.data_type()));
        builder = builder
            .set_column_statistics_enabled(column.clone(), EnabledStatistics::Page)
            .set_column_data_page_size_limit(column.clone(), if whole { WHOLE_KEY_PAGE_BYTES } else { KEY_PAGE_BYTES })
            .set_column_dictionary_enabled(column.clone(), false);
        if whole {
            builder = builder
                .set_column_encoding(column.clone(), Encoding::DELTA_BINARY_PACKED)
                .set_column_compression(column, Compression::UNCOMPRESSED);
        }
    }
    if let Some(column) = filtered_column(schema, key) {
        let rows = u64::try_from(layout.row_group_rows).unwrap_or(u64::MAX);
        builder = builder
            .set_bloom_filter_position(BloomFilterPosition::End)
            .set_column_bloom_filter_fpp(column.clone(), FILTER_FALSE_RATE)
            .set_column_bloom_filter_max_ndv(column, rows);
    }
    Ok(builder.build())
}

/// The column that gets a Bloom filter: a key of texts or bytes, whose pages weigh several times what its filter does.
/// Whole numbers do not: in order, theirs weigh less. Of a key of several columns, files have most values of each one.
fn filtered_column(schema: &SchemaRef, key: &[String]) -> Option<ColumnPath> {
    let [name] = key else { return None };
    let data_type = schema.field_with_name(name).ok()?.data_type();
    matches!(data_type, DataType::Utf8 | DataType::Binary).then(|| ColumnPath::new(vec![name.clone()]))
}

fn is_whole_number(data_type: &DataType) -> bool {
    data_type.is_signed_integer() || matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}

/// How the columns of a batch become those of the table.
pub(super) struct ColumnMap {
    table: TableId,
    schema: SchemaRef,
    /// For each column of the table its position in the batch; `None` for one that the source does not have, or no longer.
    positions: Vec<Option<usize>>,
}

impl ColumnMap {
    /// # Errors
    /// [`LakeError::ColumnType`] if a column has a type in the table that does not hold the batch's; [`LakeError::Changes`] if the table lacks
    /// one of the batch's columns: it has to be added first.
    pub fn new(table: &TableId, files: &SchemaRef, batch: &SchemaRef) -> Result<Self, LakeError> {
        let mut positions = vec![None; files.fields().len()];
        for (position, field) in batch.fields().iter().enumerate() {
            let same_name = |known: &Arc<arrow::datatypes::Field>| known.name().eq_ignore_ascii_case(field.name());
            let Some(index) = files.fields().iter().position(same_name) else {
                let what = format!("column {} is not in the Delta table yet", field.name());
                return Err(LakeError::Changes { table: table.clone(), what });
            };
            let known = files.field(index);
            if !holds(known.data_type(), field.data_type()) {
                return Err(LakeError::ColumnType {
                    table: table.clone(),
                    column: field.name().clone(),
                    found: known.data_type().to_string(),
                    expected: field.data_type().to_string(),
                });
            }
            positions[index] = Some(position);
        }
        Ok(Self { table: table.clone(), schema: files.clone(), positions })
    }

    /// The rows of `batch` that `keep` selects, with the table's columns.
    pub fn apply(&self, batch: &RecordBatch, keep: &arrow::array::BooleanArray) -> Result<RecordBatch, LakeError> {
        let failed = LakeError::arrow(&self.table, "arrange the columns of a batch");
        let kept = if keep.true_count() == keep.len() {
            batch.clone()
        } else {
            filter_record_batch(batch, keep).map_err(&failed)?
        };
        let column = |(index, position): (usize, &Option<usize>)| -> Result<ArrayRef, ArrowError> {
            match position {
                Some(position) => convert(kept.column(*position), self.schema.field(index).data_type()),
                None => Ok(new_null_array(self.schema.field(index).data_type(), kept.num_rows())),
            }
        };
        let columns = self.positions.iter().enumerate().map(column).collect::<Result<_, _>>().map_err(&failed)?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(&failed)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};
    use object_store::memory::InMemory;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

    use super::*;

    const ROWS: i64 = 100_000;

    async fn written(key: ArrayRef) -> ParquetMetaData {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let note: ArrayRef = Arc::new((0..ROWS).map(|row| Some(format!("note {row}"))).collect::<StringArray>());
        let fields = [("id", &key), ("note", &note)];
        let fields = fields.map(|(name, array)| Field::new(name, array.data_type().clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let table = TableId::new("shop", "orders");
        let mut writer = DataWriter::new(table, store.clone(), schema.clone(), vec!["id".into()], LAYOUT);
        writer.write(&RecordBatch::try_new(schema, vec![key, note]).unwrap()).await.unwrap();
        let new = writer.finish().await.unwrap();
        let bytes = store.get(&Path::from(new.adds[0].path.as_str())).await.unwrap().bytes().await.unwrap();
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.parse_and_finish(&bytes).unwrap()
    }

    /// Rows per page of both columns on average, and the bytes of the key's filter.
    fn layout(metadata: &ParquetMetaData) -> (i64, i64, Option<i32>) {
        assert_eq!(metadata.num_row_groups(), 1);
        let pages = |column: usize| metadata.offset_index().unwrap()[0][column].page_locations().len();
        let per_page = |column| ROWS / i64::try_from(pages(column)).unwrap();
        (per_page(0), per_page(1), metadata.row_group(0).column(0).bloom_filter_length())
    }

    #[tokio::test]
    async fn key_columns_have_small_pages_and_texts_a_filter() {
        let (key, note, filter) = layout(&written(Arc::new((0..ROWS).collect::<Int64Array>())).await);
        assert!((200..=1_100).contains(&key) && note > 7_000 && filter.is_none(), "{key} {note} {filter:?}");
        let uuids = (0..ROWS).map(|row| Some(format!("{row:08}-0000-4000-8000-000000000000"))).collect::<StringArray>();
        let (key, note, filter) = layout(&written(Arc::new(uuids)).await);
        assert!((150..=300).contains(&key) && note > 7_000, "{key} {note}");
        // Ten bits a key, rounded up to a power of two.
        assert!(filter.is_some_and(|bytes| (125_000..=300_000).contains(&bytes)), "{filter:?}");
    }
}
