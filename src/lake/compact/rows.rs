//! The live rows of data files, read side by side and brought into one order, in bounded memory.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use datafusion::prelude::SessionConfig;
use tokio::sync::mpsc::Sender;

use super::curve::Curve;
use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::{Footer, Prober};
use crate::lake::scan::{LiveFile, Pace, SLICE_ROWS_MIN, has_pages, row_bytes};

/// Rows that are read at a time at most.
const BATCH_ROWS_MAX: u64 = 8_192;
/// Of the memory, the share that rows being read may hold: one part in this many. They are there several times: decoded,
/// filtered, waiting, being merged and in the writer.
const BATCH_SHARE: u64 = 16;
/// Of the memory, the share that a sort may hold before it spills: one part in this many. The rest is the writer's and
/// the caches'.
const SORT_SHARE: usize = 2;
/// Of the memory, the share of pages that are fetched and not decoded yet: one part in this many.
const FETCH_SHARE: usize = 4;
/// Of the memory of a sort, the share that is kept for merging what was spilled: one part in this many.
const SPILL_MERGE_SHARE: usize = 4;
/// Batches of one file that wait to be merged.
const BATCHES_AHEAD: usize = 1;

/// Reads the live rows of some files.
#[derive(Clone)]
pub(super) struct LiveRows {
    pub prober: Arc<Prober>,
    /// The columns of the files to be; columns that a file lacks are null.
    pub schema: SchemaRef,
    pub files: Vec<Arc<FileEntry>>,
    pub memory_bytes: usize,
    /// Where the rows lie on a curve, for a clustered order: a last column that `schema` does not have.
    pub curve: Option<Arc<Curve>>,
    /// What went wrong first, for streams turn errors into text.
    pub failure: Failure,
}

/// The first error of a reading.
#[derive(Clone, Default)]
pub(super) struct Failure(Arc<Mutex<Option<LakeError>>>);

impl Failure {
    fn set(&self, error: LakeError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub fn take(&self) -> Option<LakeError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl std::fmt::Debug for LiveRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveRows").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl LiveRows {
    /// How many rows there are by the log, and by the footers of files that the log does not count.
    pub async fn count(&self) -> Result<u64, LakeError> {
        let mut rows = 0;
        for file in &self.files {
            let physical = match file.rows {
                Some(rows) => rows,
                None => footer_rows(&self.prober.footers.get(file).await?),
            };
            rows += physical.saturating_sub(file.deleted_rows());
        }
        Ok(rows)
    }

    /// The columns of the streams: those of `schema`, and the curve's.
    pub fn stream_schema(&self) -> SchemaRef {
        self.curve.as_ref().map_or_else(|| self.schema.clone(), |curve| curve.extended(&self.schema))
    }

    /// Whether the files can be read side by side, each with a page of each column in memory at least.
    pub async fn can_merge(&self) -> Result<bool, LakeError> {
        let mut bytes = 0;
        for file in &self.files {
            let footer = self.prober.footers.get(file).await?;
            let of_group = |group| if has_pages(&footer) { row_bytes(group) * SLICE_ROWS_MIN } else { u64::MAX };
            let groups = footer.metadata().row_groups().iter();
            let largest = groups.map(|group| group.compressed_size().unsigned_abs().min(of_group(group))).max();
            bytes += largest.unwrap_or(0);
        }
        Ok(bytes <= self.fetch_bytes())
    }

    /// What may be fetched and not decoded yet.
    fn fetch_bytes(&self) -> u64 {
        (self.memory_bytes / FETCH_SHARE) as u64
    }

    /// The rows in order, of files that are each in that order. If one is not, then neither is what comes.
    pub async fn merged(&self, order: &LexOrdering) -> Result<SendableRecordBatchStream, DataFusionError> {
        let rows = self.batch_rows(self.files.len()).await;
        let pace = Pace { batch_rows: rows, fetch_bytes: self.fetch_bytes() / self.files.len().max(1) as u64 };
        let streams = self.files.iter().map(|file| self.stream(vec![file.clone()], pace)).collect();
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(self.memory_bytes / SORT_SHARE));
        StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(self.stream_schema())
            .with_expressions(order)
            .with_metrics(BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0))
            .with_batch_size(rows)
            .with_reservation(MemoryConsumer::new("merge of files").register(&pool))
            .build()
    }

    /// The rows in order, whatever order the files are in. Spills to the system's folder for temporary files.
    pub async fn sorted(&self, order: LexOrdering) -> Result<SendableRecordBatchStream, DataFusionError> {
        let rows = self.batch_rows(1).await;
        let sort_bytes = self.memory_bytes / SORT_SHARE;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(sort_bytes)))
            .with_disk_manager_builder(DiskManagerBuilder::default())
            .build_arc()?;
        let config = SessionConfig::new()
            .with_batch_size(rows)
            .with_sort_spill_reservation_bytes(sort_bytes / SPILL_MERGE_SHARE);
        let context = TaskContext::default().with_session_config(config).with_runtime(runtime);
        let pace = Pace { batch_rows: rows, fetch_bytes: self.fetch_bytes() };
        let source = Arc::new(OneByOne { rows: self.clone(), schema: self.stream_schema(), pace });
        let input = StreamingTableExec::try_new(self.stream_schema(), vec![source], None, [], false, None)?;
        SortExec::new(order, Arc::new(input)).execute(0, Arc::new(context))
    }

    /// The rows of the files, one file after the other.
    fn stream(&self, files: Vec<Arc<FileEntry>>, pace: Pace) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.stream_schema(), BATCHES_AHEAD);
        let (rows, sender) = (self.clone(), builder.tx());
        builder.spawn(async move {
            for file in &files {
                if let Err(error) = rows.send(file, pace, &sender).await {
                    let text = error.to_string();
                    rows.failure.set(error);
                    return Err(DataFusionError::Execution(text));
                }
            }
            Ok(())
        });
        builder.build()
    }

    async fn send(&self, file: &FileEntry, pace: Pace, sender: &BatchSender) -> Result<(), LakeError> {
        let deleted = self.prober.vector(file).await?.unwrap_or_default();
        let mut live = LiveFile::open(&self.prober, file, &deleted, pace).await?;
        while let Some(batch) = live.next().await? {
            if sender.send(Ok(self.shape(&batch)?)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The rows with the columns of the stream.
    fn shape(&self, batch: &RecordBatch) -> Result<RecordBatch, LakeError> {
        let columns = self.schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
            Some(column) => cast(column, field.data_type()),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(self.failed())?;
        let rows = RecordBatch::try_new(self.schema.clone(), columns).map_err(self.failed())?;
        match &self.curve {
            Some(curve) => curve.extend(&rows, self.stream_schema()).map_err(self.failed()),
            None => Ok(rows),
        }
    }

    fn failed(&self) -> impl Fn(arrow::error::ArrowError) -> LakeError {
        LakeError::arrow(&self.prober.space.table, "copy rows")
    }

    /// As many rows as fit into the share of memory of one of so many streams, by what the footers say of their size.
    async fn batch_rows(&self, streams: usize) -> usize {
        let mut row_bytes = 1;
        for file in &self.files {
            // An error comes again when the file is read.
            let Ok(footer) = self.prober.footers.get(file).await else { continue };
            let bytes: u64 =
                footer.metadata().row_groups().iter().map(|group| group.total_byte_size().unsigned_abs()).sum();
            row_bytes = row_bytes.max(bytes / footer_rows(&footer).max(1));
        }
        let budget = self.memory_bytes as u64 / BATCH_SHARE / streams.max(1) as u64;
        usize::try_from((budget / row_bytes).clamp(1, BATCH_ROWS_MAX)).unwrap_or(1)
    }
}

type BatchSender = Sender<Result<RecordBatch, DataFusionError>>;

fn footer_rows(footer: &Footer) -> u64 {
    footer.metadata().file_metadata().num_rows().unsigned_abs()
}

/// The order by the named columns, ascending, nulls first: the order of keys. `None` if there are none of them.
pub(super) fn order_by<'a>(schema: &SchemaRef, names: impl Iterator<Item = &'a str>) -> Option<LexOrdering> {
    let column = |name: &str| Some(Arc::new(Column::new(name, schema.index_of(name).ok()?)));
    LexOrdering::new(names.filter_map(|name| Some(PhysicalSortExpr::new_default(column(name)?))))
}

/// All files as one input of a sort, so that only one of them is open.
#[derive(Debug)]
struct OneByOne {
    rows: LiveRows,
    schema: SchemaRef,
    pace: Pace,
}

impl PartitionStream for OneByOne {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        self.rows.stream(self.rows.files.clone(), self.pace)
    }
}
