//! Reads one version of a Delta table for queries: live rows only, in parallel, and no more of them than a query needs.
//!
//! ```text
//! filters -> prune files: bounds and partition values in the log   pruning.rs, bounds.rs, columns.rs
//!         -> read their deletion vectors -> rows to read           selection.rs
//!            (of large vectors: where footers and pages say that rows may match)
//!            (of a query that names keys: where those lie)         keys.rs
//!         -> DataFusion's Parquet scan: row groups, pages, columns; footers and bytes by way of reader.rs
//! ```
//! Who writes rows again (compaction, copy-on-write) reads file after file, in the order of its rows: live.rs, with the same
//! selections. DataFusion splits large files at row groups and hands each part the file's whole selection of rows, of which it takes
//! the part that it reads. Row numbers never cross a file.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::{DFSchema, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use deltalake::table::state::DeltaTableState;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use roaring::RoaringTreemap;
use url::{Position, Url};

use self::bounds::FileBounds;
use self::columns::ScanColumns;
use self::keys::NamedKeys;
use self::pruning::PagePruner;
use self::reader::LiveFiles;
use self::selection::LiveRows;
use super::files::{self, FileEntry};
use super::locate::{FileAccess, Prober};
use super::{Lake, LakeError, schema, table};
use crate::change::TableId;

mod bounds;
mod columns;
mod keys;
mod live;
mod pruning;
mod reader;
mod selection;

pub(super) use live::{LiveFile, Pace, SLICE_ROWS_MIN, has_pages, row_bytes};

/// Deletion vectors that are read at the same time: most of the time of each is the store's answer.
const VECTORS_AT_ONCE: usize = 16;
/// Features of a table's protocol that this reader knows, or that ask nothing of readers of data. Mapped columns are
/// refused by the table's property, for the feature alone changes nothing.
const READER_FEATURES: [&str; 5] =
    ["deletionVectors", "timestampNtz", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"];
/// Old Parquet writers (Spark's default for years) store timestamps in 96 bits, always in UTC and of a precision that
/// Delta does not have.
const INT96_UNIT: &str = "us";
const INT96_ZONE: &str = "+00:00";

/// The live rows of one version of a table, or of some of its files. Cheap to clone.
#[derive(Clone)]
pub struct LakeScan {
    inner: Arc<Inner>,
}

struct Inner {
    table: TableId,
    columns: ScanColumns,
    files: Vec<ScanFile>,
    access: FileAccess,
    /// Finds rows by their key; of tables that the job keeps.
    prober: Option<Arc<Prober>>,
    /// The names of the key columns as the job recorded them.
    key: Vec<String>,
    /// The host of the lake's URL, and the store that is rooted there.
    host: Url,
    host_store: Arc<dyn ObjectStore>,
    /// The table's folder in it.
    folder: Path,
}

/// A file of a scan.
pub(super) struct ScanFile {
    pub entry: Arc<FileEntry>,
    /// These physical rows of it; `None` stands for those that are live.
    pub only: Option<Arc<RoaringTreemap>>,
}

impl LakeScan {
    /// All live rows of a version (`None`: the newest) of a table, for queries: text and bytes come as views. `Ok(None)`
    /// if there is no table.
    ///
    /// # Errors
    /// [`LakeError::Delta`] if the version cannot be read from the log; [`LakeError::Unsupported`] for tables of others
    /// that need more of a reader than this one can do.
    pub async fn open(lake: &Lake, table: &TableId, version: Option<u64>) -> Result<Option<Self>, LakeError> {
        let log_store = lake.log_store(table);
        let exists = log_store.is_delta_table_location().await;
        if !exists.map_err(LakeError::delta(table, "look for its log"))? {
            return Ok(None);
        }
        let state = DeltaTableState::try_new(log_store.as_ref(), version).await;
        let state = state.map_err(LakeError::delta(table, "read its log"))?;
        check_readable(table, &state)?;
        let files = files::list(state.snapshot(), &log_store, table).await?;
        let files = files.into_iter().map(|entry| ScanFile { entry, only: None }).collect();
        let schema = with_views(&state.snapshot().arrow_schema());
        let columns = (schema, state.metadata().partition_columns());
        Ok(Some(Self::of_files(lake, table, &state, columns, files, lake.file_access(table))))
    }

    /// Rows of some files of a table, with the columns of a schema and the names of those which the log gives for a whole file.
    pub(super) fn of_files(
        lake: &Lake,
        table: &TableId,
        state: &DeltaTableState,
        columns: (SchemaRef, &[String]),
        files: Vec<ScanFile>,
        access: FileAccess,
    ) -> Self {
        let key = state.metadata().configuration().get(schema::KEY).map(|text| serde_json::from_str(text));
        let mut host = lake.root().clone();
        host.set_path("");
        let inner = Inner {
            table: table.clone(),
            columns: ScanColumns::new(columns.0, columns.1),
            files,
            prober: table::prober_of(lake, table, state, access.clone()).ok().map(Arc::new),
            access,
            key: key.and_then(std::result::Result::ok).unwrap_or_default(),
            host,
            host_store: lake.host_store(),
            folder: Path::from_url_path(lake.table_url(table).path()).unwrap_or_default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The names of the key columns as the job recorded them; empty for tables of others.
    pub fn key(&self) -> &[String] {
        &self.inner.key
    }

    /// Whether there is no file to read.
    pub fn is_empty(&self) -> bool {
        self.inner.files.is_empty()
    }
}

/// Refuses tables that this reader would read wrongly.
pub(super) fn check_readable(table: &TableId, state: &DeltaTableState) -> Result<(), LakeError> {
    let unsupported = |reason: String| Err(LakeError::Unsupported { table: table.clone(), reason });
    let mapping = state.metadata().configuration().get("delta.columnMapping.mode");
    if mapping.is_some_and(|mode| mode != "none") {
        return unsupported("its columns are mapped to other names".into());
    }
    let features = state.protocol().reader_features().unwrap_or_default();
    let unknown = features.iter().map(ToString::to_string).find(|name| !READER_FEATURES.contains(&name.as_str()));
    match unknown {
        Some(feature) => unsupported(format!("its readers must know {feature}")),
        None => Ok(()),
    }
}

/// The same columns, with text and bytes as views, which queries handle faster.
fn with_views(schema: &Schema) -> SchemaRef {
    let view = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        DataType::Binary => Arc::new(field.as_ref().clone().with_data_type(DataType::BinaryView)),
        _ => field.clone(),
    };
    let fields: Fields = schema.fields().iter().map(view).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

impl fmt::Debug for LakeScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakeScan").field("table", &self.inner.table).field("files", &self.inner.files.len()).finish()
    }
}

#[async_trait]
impl TableProvider for LakeScan {
    fn schema(&self) -> SchemaRef {
        self.inner.columns.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Filters leave out files here, but not each row that does not match. The physical optimizer hands them to the Parquet
    /// scan too, and takes them out of the plan where that one applies them to each row.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = &self.inner;
        let predicate = inner.predicate(session, filters)?;
        let wanted = inner.columns.wanted(projection, predicate.as_ref());
        let mut files = inner.bounded_files(&wanted)?;
        if let Some(predicate) = &predicate {
            files = pruning::keep_matching(&inner.columns, &wanted, files, predicate);
        }
        // A limit counts rows that match, and only without filters do all of them.
        let limit = limit.filter(|_| filters.is_empty());
        if let Some(limit) = limit {
            files = enough(files, limit);
        }
        let projection = inner.columns.in_scan_order(projection);
        let keys = inner.prober.as_ref().zip(predicate.as_ref());
        let keys = keys.and_then(|(prober, predicate)| NamedKeys::new(prober, &inner.columns.schema, predicate));
        let pages = predicate.and_then(|predicate| PagePruner::new(&inner.columns, &predicate));
        inner.plan(session, files, Request { projection, wanted, limit, pages, keys }).await
    }
}

/// What is asked of the files.
struct Request {
    /// The columns to read, and those and the columns to filter by, by position in the scan.
    projection: Vec<usize>,
    wanted: Vec<usize>,
    limit: Option<usize>,
    pages: Option<PagePruner>,
    keys: Option<NamedKeys>,
}

/// A file with what the log says of its columns.
struct BoundedFile {
    entry: Arc<FileEntry>,
    only: Option<Arc<RoaringTreemap>>,
    bounds: FileBounds,
}

/// The first files, until they hold `limit` live rows.
fn enough(files: Vec<BoundedFile>, limit: usize) -> Vec<BoundedFile> {
    let mut rows = 0;
    let enough = |file: &BoundedFile| {
        let before = rows;
        rows += file.bounds.live_rows().unwrap_or(0);
        before < limit as u64
    };
    files.into_iter().take_while(enough).collect()
}

impl Inner {
    fn predicate(&self, session: &dyn Session, filters: &[Expr]) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let Some(filter) = conjunction(filters.iter().cloned()) else { return Ok(None) };
        let schema = DFSchema::try_from(self.columns.schema.as_ref().clone())?;
        session.create_physical_expr(filter, &schema).map(Some)
    }

    /// All files, with bounds of the `wanted` columns.
    fn bounded_files(&self, wanted: &[usize]) -> Result<Vec<BoundedFile>> {
        let bounded = |file: &ScanFile| {
            let read = file.only.as_ref().map(|only| only.len());
            let bounds = FileBounds::new(&self.table, &self.columns, &file.entry, (wanted, read)).map_err(external)?;
            Ok(BoundedFile { entry: file.entry.clone(), only: file.only.clone(), bounds })
        };
        self.files.iter().map(bounded).collect()
    }

    async fn plan(
        &self,
        session: &dyn Session,
        files: Vec<BoundedFile>,
        request: Request,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parts = stream::iter(files).map(|file| self.part(file, &request)).buffered(VECTORS_AT_ONCE);
        let parts: Vec<PartitionedFile> = parts.try_filter_map(async |part| Ok(part)).try_collect().await?;
        if parts.is_empty() {
            let schema = self.columns.scan_schema().project(&request.projection)?;
            return Ok(Arc::new(EmptyExec::new(Arc::new(schema))));
        }
        let known = parts.iter().filter_map(|part| part.statistics.as_deref());
        let statistics = Statistics::try_merge_iter(known, self.columns.scan_schema())?;
        // The scan does not tell its readers that a limit cuts these counts.
        let statistics = if request.limit.is_some() { statistics.to_inexact() } else { statistics };
        let url = ObjectStoreUrl::parse(&self.host[..Position::BeforePath])?;
        session.runtime_env().register_object_store(url.as_ref(), self.host_store.clone());
        let source = Arc::new(self.source(session));
        let partitions = session.config().target_partitions().max(1);
        let config = FileScanConfigBuilder::new(url, source)
            .with_file_groups(FileGroup::new(parts).split_files(partitions))
            .with_statistics(statistics)
            .with_projection_indices(Some(request.projection))?
            .with_limit(request.limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn source(&self, session: &dyn Session) -> ParquetSource {
        let mut options =
            TableParquetOptions { global: session.config_options().execution.parquet.clone(), ..Default::default() };
        // Only rows that match are decoded in full: of a table of 1 million rows in 50 files that overlap, one row is found
        // in a quarter of the time, and the ten highest in half of it.
        options.global.pushdown_filters = true;
        options.global.reorder_filters = true;
        options.global.coerce_int96 = Some(INT96_UNIT.into());
        options.global.coerce_int96_tz = Some(INT96_ZONE.into());
        ParquetSource::new(self.columns.scan.clone())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(LiveFiles { access: self.access.clone() }))
    }

    /// One file as the engine reads it: with its partition values, its statistics, and the rows that are live; `None` if
    /// it has none that are asked for.
    async fn part(&self, file: BoundedFile, request: &Request) -> Result<Option<PartitionedFile>> {
        let BoundedFile { entry, only, bounds } = file;
        let live = match (only, &request.keys) {
            (Some(only), _) => selection::these_rows(&self.access, &entry, &only).await,
            (None, Some(keys)) => selection::rows_of_keys(keys, &entry).await,
            (None, None) => selection::live_rows(&self.access, &entry, request.pages.as_ref()).await,
        };
        let live = live.map_err(external)?;
        if matches!(live, LiveRows::None) {
            return Ok(None);
        }
        let meta = ObjectMeta {
            location: self.folder.parts().chain(entry.path.parts()).collect(),
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: entry.bytes(),
            e_tag: None,
            version: None,
        };
        let values = self.columns.partition_values(&self.table, &entry.add).map_err(external)?;
        let mut part = PartitionedFile::new_from_meta(meta).with_partition_values(values);
        part.statistics = Some(Arc::new(bounds.statistics(&self.columns, &request.wanted, entry.bytes())));
        part = match live {
            LiveRows::All | LiveRows::None => part,
            LiveRows::Of(rows) => part.with_extension(ParquetRowSelection::new(rows)),
            LiveRows::ByGroup(plan) => part.with_extension(plan),
        };
        Ok(Some(part.with_extension(entry)))
    }
}

fn external(error: LakeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
