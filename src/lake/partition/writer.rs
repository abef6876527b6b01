//! Writes the rows of a batch into files of their partitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, SortField};

use super::spill::{Place, RowSpill};
use super::{PartitionValues, Partitioning};
use crate::lake::LakeError;
use crate::lake::write::{DataWriter, NewFiles};

/// Divides rows by partition. Rows wait in memory, and beyond its bound on the local disk, so that each partition
/// gets whole files and only one of them is open at a time, however many partitions a batch touches.
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

    /// Takes rows with the table's columns. The rows of a partition are written in the order in which they come.
    pub async fn write(&mut self, rows: &RecordBatch) -> Result<(), LakeError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let failed = LakeError::arrow(&self.partitioning.table, "divide rows by partition");
        let values = self.partitioning.values(&self.partitioning.columns, rows)?;
        let projection: Result<Vec<usize>, _> =
            self.schema.fields().iter().map(|field| rows.schema_ref().index_of(field.name())).collect();
        let rows = projection.and_then(|columns| rows.project(&columns)).map_err(&failed)?;
        for indices in groups_of(&values).map_err(&failed)? {
            let first = indices[0] as usize;
            let part = take_record_batch(&rows, &UInt32Array::from(indices)).map_err(&failed)?;
            let name = values.iter().map(|column| column.is_valid(first).then(|| column.value(first).to_string()));
            self.held_bytes += part.get_array_memory_size();
            self.groups.entry(name.collect()).or_default().held.push(part);
        }
        if self.held_bytes > self.memory_bytes { self.spill().await } else { Ok(()) }
    }

    /// Moves all held rows to the disk.
    async fn spill(&mut self) -> Result<(), LakeError> {
        let spill = match &self.spill {
            Some(spill) => spill.clone(),
            None => self.spill.insert(Arc::new(Mutex::new(RowSpill::new(&self.partitioning.table)?))).clone(),
        };
        let (mut groups, schema) = (std::mem::take(&mut self.groups), self.schema.clone());
        let failed = LakeError::arrow(&self.partitioning.table, "put rows together");
        let task = move || {
            let mut spill = spill.lock().unwrap_or_else(PoisonError::into_inner);
            for group in groups.values_mut().filter(|group| !group.held.is_empty()) {
                let rows = concat_batches(&schema, &group.held).map_err(&failed)?;
                group.held = Vec::new();
                group.spilled.push(spill.write(&rows)?);
            }
            Ok(groups)
        };
        self.groups = blocking(task).await?;
        self.held_bytes = 0;
        Ok(())
    }

    /// Writes the files, one partition after the other.
    pub async fn finish(mut self) -> Result<NewFiles, LakeError> {
        let mut new = NewFiles::default();
        let names: Vec<String> = self.partitioning.names().map(str::to_string).collect();
        for (values, group) in std::mem::take(&mut self.groups) {
            let mut writer = (self.open)(names.iter().cloned().zip(values).collect());
            for place in group.spilled {
                writer.write(&self.unspill(place).await?).await?;
            }
            for rows in group.held {
                writer.write(&rows).await?;
            }
            let files = writer.finish().await?;
            new.rows += files.rows;
            new.adds.extend(files.adds);
        }
        Ok(new)
    }

    async fn unspill(&self, place: Place) -> Result<RecordBatch, LakeError> {
        let Some(spill) = self.spill.clone() else {
            let what = "rows on disk have no file".to_string();
            return Err(LakeError::Changes { table: self.partitioning.table.clone(), what });
        };
        blocking(move || spill.lock().unwrap_or_else(PoisonError::into_inner).read(place)).await
    }
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
