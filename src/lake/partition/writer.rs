//! Writes the rows of a batch into files of their partitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::row::{RowConverter, SortField};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::spill::{Place, RowSpill};
use super::{PartitionValues, Partitioning};
use crate::lake::LakeError;
use crate::lake::write::{DataWriter, NewFiles};

/// Rows of a partition that count as few: their file is encoded in no time, and its upload is what takes long.
const FEW_BYTES: usize = 1 << 20;
/// Files of few rows that are written at the same time.
const FILES_AT_ONCE: usize = 8;

/// Divides rows by partition. Rows wait in memory, and beyond its bound on the local disk, so that each partition
/// gets whole files and only one of them is open at a time, or some small ones, however many partitions a batch touches.
pub(in crate::lake) struct PartitionedWriter {
    partitioning: Arc<Partitioning>,
    /// The columns of the files.
    schema: SchemaRef,
    /// Makes the writer of one partition's files.
    open: Box<dyn Fn(PartitionValues) -> DataWriter + Send + Sync>,
    memory_bytes: usize,
    held_bytes: usize,
    /// By the serialized values.
    groups: BTreeMap<Values, Group>,
    spill: Option<Arc<Mutex<RowSpill>>>,
}

/// Serialized partition values, in the order of the partition columns.
type Values = Vec<Option<String>>;

/// The rows of one partition, in the order in which they came: what is on disk first.
#[derive(Default)]
struct Group {
    spilled: Vec<Place>,
    held: Vec<RecordBatch>,
    /// What all rows take in memory.
    bytes: usize,
}

impl PartitionedWriter {
    /// `schema` is that of the files; at most about `memory_bytes` of rows are held.
    pub fn new(
        partitioning: Arc<Partitioning>,
        schema: SchemaRef,
        memory_bytes: usize,
        open: impl Fn(PartitionValues) -> DataWriter + Send + Sync + 'static,
    ) -> Self {
        let open = Box::new(open);
        Self { partitioning, schema, open, memory_bytes, held_bytes: 0, groups: BTreeMap::new(), spill: None }
    }

    /// Takes rows with the table's columns, and their numbers if they have any. The rows of a partition are written in
    /// the order in which they come.
    pub async fn write(&mut self, rows: &RecordBatch, numbers: Option<&UInt64Array>) -> Result<(), LakeError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let failed = LakeError::arrow(&self.partitioning.table, "divide rows by partition");
        let values = self.partitioning.values(&self.partitioning.columns, rows)?;
        let projection: Result<Vec<usize>, _> =
            self.schema.fields().iter().map(|field| rows.schema_ref().index_of(field.name())).collect();
        let rows = projection.and_then(|columns| rows.project(&columns)).map_err(&failed)?;
        let rows = numbers.map_or(Ok(rows.clone()), |numbers| with_numbers(&rows, numbers)).map_err(&failed)?;
        for indices in groups_of(&values).map_err(&failed)? {
            let first = indices[0] as usize;
            let part = take_record_batch(&rows, &UInt32Array::from(indices)).map_err(&failed)?;
            let name = values.iter().map(|column| column.is_valid(first).then(|| column.value(first).to_string()));
            let group = self.groups.entry(name.collect()).or_default();
            let bytes = part.get_array_memory_size();
            group.bytes += bytes;
            group.held.push(part);
            self.held_bytes += bytes;
        }
        if self.held_bytes > self.memory_bytes { self.spill().await } else { Ok(()) }
    }

    /// Moves all held rows to the disk.
    async fn spill(&mut self) -> Result<(), LakeError> {
        let spill = match &self.spill {
            Some(spill) => spill.clone(),
            None => self.spill.insert(Arc::new(Mutex::new(RowSpill::new(&self.partitioning.table)?))).clone(),
        };
        let mut groups = std::mem::take(&mut self.groups);
        let failed = LakeError::arrow(&self.partitioning.table, "put rows together");
        let task = move || {
            let mut spill = spill.lock().unwrap_or_else(PoisonError::into_inner);
            for group in groups.values_mut() {
                let Some(first) = group.held.first() else { continue };
                let rows = concat_batches(&first.schema(), &group.held).map_err(&failed)?;
                group.held = Vec::new();
                group.spilled.push(spill.write(&rows)?);
            }
            Ok(groups)
        };
        self.groups = blocking(task).await?;
        self.held_bytes = 0;
        Ok(())
    }

    /// Writes the files, one partition after the other; those of few rows some at a time.
    pub async fn finish(mut self) -> Result<NewFiles, LakeError> {
        let mut new = NewFiles::default();
        let groups = std::mem::take(&mut self.groups).into_iter();
        let (few, many): (Vec<_>, Vec<_>) = groups.partition(|(_, group)| group.bytes <= FEW_BYTES);
        for (values, group) in many {
            new.extend(self.write_partition(values, group).await?);
        }
        let few = few.into_iter().map(|(values, group)| self.write_partition(values, group));
        let mut few = stream::iter(few).buffered(FILES_AT_ONCE);
        while let Some(files) = few.try_next().await? {
            new.extend(files);
        }
        Ok(new)
    }

    async fn write_partition(&self, values: Values, group: Group) -> Result<NewFiles, LakeError> {
        let names = self.partitioning.names().map(str::to_string);
        let mut writer = (self.open)(names.zip(values).collect());
        for place in group.spilled {
            self.write_group(&mut writer, &self.unspill(place).await?).await?;
        }
        for rows in group.held {
            self.write_group(&mut writer, &rows).await?;
        }
        writer.finish().await
    }

    async fn write_group(&self, writer: &mut DataWriter, rows: &RecordBatch) -> Result<(), LakeError> {
        let columns = self.schema.fields().len();
        let numbers = rows.columns().get(columns).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let Some(numbers) = numbers else { return writer.write(rows).await };
        let failed = LakeError::arrow(&self.partitioning.table, "take the numbers off rows");
        let rows = RecordBatch::try_new(self.schema.clone(), rows.columns()[..columns].to_vec()).map_err(failed)?;
        writer.write_numbered(&rows, numbers).await
    }

    async fn unspill(&self, place: Place) -> Result<RecordBatch, LakeError> {
        let Some(spill) = self.spill.clone() else {
            let what = "rows on disk have no file".to_string();
            return Err(LakeError::Changes { table: self.partitioning.table.clone(), what });
        };
        blocking(move || spill.lock().unwrap_or_else(PoisonError::into_inner).read(place)).await
    }
}

/// The rows with their numbers as one more column.
fn with_numbers(rows: &RecordBatch, numbers: &UInt64Array) -> Result<RecordBatch, arrow::error::ArrowError> {
    let number = Arc::new(Field::new("number", DataType::UInt64, false));
    let schema = Schema::new(rows.schema().fields().iter().cloned().chain([number]).collect::<Vec<_>>());
    let columns = rows.columns().iter().cloned().chain([Arc::new(numbers.clone()) as ArrayRef]);
    RecordBatch::try_new(Arc::new(schema), columns.collect())
}

/// Work on the local disk, on a thread that may wait for it.
async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, LakeError> + Send + 'static,
) -> Result<T, LakeError> {
    let done = tokio::task::spawn_blocking(task).await;
    done.unwrap_or_else(|error| Err(LakeError::Task { what: "use the local disk", source: error }))
}

/// The numbers of the rows with equal values, ascending, for all values that there are.
fn groups_of(values: &[StringArray]) -> Result<Vec<Vec<u32>>, arrow::error::ArrowError> {
    let converter = RowConverter::new(values.iter().map(|_| SortField::new(DataType::Utf8)).collect())?;
    let columns: Vec<ArrayRef> = values.iter().map(|column| Arc::new(column.clone()) as ArrayRef).collect();
    let rows = converter.convert_columns(&columns)?;
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    for (number, row) in (0_u32..).zip(rows.iter()) {
        let group = *known.entry(row.data()).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    Ok(groups)
}
