//! One table in a lake, random changes to it, and a model to compare with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;
use deltalake::DeltaTable;
use deltalake::kernel::Metadata;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::{Model, NULL, texts};
use crate::batch::KeyedChanges;
use crate::change::{ChangeBatch, Operation, SourcePosition, TableId, TransactionSpan};
use crate::config::{DatePart, MergeMode, PartitionBy, TableRules, TableSettings};
use crate::lake::write::Layout;
use crate::lake::{CommitOutcome, CommitTag, Fills, Lake, LakeError, LakeScan, LakeTable};
use crate::schema::{Column, TableSchema};

/// The key columns of a table; a key is made from a small number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Long,
    Integer,
    Date,
    Timestamp,
    Text,
    /// Longer than statistics keep, equal over more than their length.
    LongText,
    Decimal,
    Binary,
    /// With NaN and both zeros.
    Double,
    IntegerAndText,
    TextAndLong,
    /// The values of [`AWKWARD`] first.
    AwkwardText,
}

/// Values that are hard to tell apart, or to put into a path. (Not among them: `__HIVE_DEFAULT_PARTITION__`, which the
/// compaction of the deltalake crate takes for null.)
pub const AWKWARD: [&str; 22] = [
    "",
    " ",
    "  ",
    "a",
    "A",
    "a/b",
    "a//b",
    "/",
    "..",
    "%",
    "%2F",
    "a%2Fb",
    "ü=1",
    "=",
    "it's",
    "\"q\"",
    "new\nline",
    "tab\t\\",
    "__HIVE_DEFAULT_PARTITION",
    "null",
    "日本?#&+;:,@",
    "{a}[b]|~`<>*^!$",
];

/// Settings of a table that is divided by these columns, as the job file names them.
pub fn partitioned(by: &[&str]) -> TableSettings {
    let partition_by = by.iter().map(|by| PartitionBy::parse(by).unwrap()).collect();
    TableSettings { partition_by, ..TableSettings::default() }
}

pub const MODES: [MergeMode; 2] = [MergeMode::OnRead, MergeMode::CopyOnWrite];

/// Settings of a table without deletion vectors.
pub fn copy_on_write(settings: TableSettings) -> TableSettings {
    TableSettings { merge: MergeMode::CopyOnWrite, ..settings }
}

/// One change: the number of its key, and its operation.
pub type Change = (u32, Operation);

pub struct World {
    pub lake: Lake,
    pub table: LakeTable,
    pub schema: Arc<TableSchema>,
    pub model: Model,
    pub kind: KeyKind,
    pub sequence: i64,
    random: StdRng,
}

/// The tag of a batch.
pub fn tag(sequence: i64) -> CommitTag {
    CommitTag {
        app_ids: vec![("alluvium/test".into(), sequence)],
        info: BTreeMap::from([("alluvium.position".to_string(), sequence.into())]),
        ..CommitTag::default()
    }
}

impl World {
    pub async fn in_memory(kind: KeyKind, seed: u64) -> Self {
        Self::new(memory_lake(Arc::new(InMemory::new())), TableId::new("shop", "orders"), kind, seed).await
    }

    /// With other settings than the usual ones.
    pub async fn with(settings: TableSettings, kind: KeyKind, seed: u64) -> Self {
        let lake = memory_lake(Arc::new(InMemory::new())).with_rules(TableRules::uniform(settings));
        Self::new(lake, TableId::new("shop", "orders"), kind, seed).await
    }

    pub async fn in_mode(merge: MergeMode, kind: KeyKind, seed: u64) -> Self {
        Self::with(TableSettings { merge, ..TableSettings::default() }, kind, seed).await
    }

    /// Changes the job file, and opens the table again.
    pub async fn set(&mut self, settings: TableSettings) {
        self.lake = self.lake.clone().with_rules(TableRules::uniform(settings));
        self.reopen().await;
    }

    /// With files of the usual sizes, and little memory.
    pub async fn large(seed: u64, memory_bytes: usize) -> Self {
        let root = url::Url::parse("memory:///lake/").unwrap();
        let lake = Lake::with_store(root, Arc::new(InMemory::new())).with_memory(memory_bytes);
        Self::new(lake, TableId::new("shop", "orders"), KeyKind::Long, seed).await
    }

    pub async fn new(lake: Lake, table: TableId, kind: KeyKind, seed: u64) -> Self {
        let settings = lake.rules().settings(&table);
        let schema = Arc::new(schema(table, kind, &settings));
        let table = lake.create_table(&schema, &tag(0)).await.unwrap();
        let random = StdRng::seed_from_u64(seed);
        Self { lake, table, schema, model: Model::default(), kind, sequence: 0, random }
    }

    /// Random changes to keys numbered below `keys`.
    pub fn random_batch(&mut self, changes: usize, keys: u32) -> Vec<Change> {
        let operations = [Operation::Insert, Operation::Update, Operation::Update, Operation::Delete];
        (0..changes)
            .map(|_| (self.random.random_range(0..keys), operations[self.random.random_range(0..operations.len())]))
            .collect()
    }

    /// Inserts, then deletes, by key number.
    pub fn batch_of(&self, upserts: &[u32], deletes: &[u32]) -> Vec<Change> {
        let upserts = upserts.iter().map(|id| (*id, Operation::Insert));
        upserts.chain(deletes.iter().map(|id| (*id, Operation::Delete))).collect()
    }

    pub async fn apply_random(&mut self, changes: usize, keys: u32) {
        let batch = self.random_batch(changes, keys);
        self.apply_next(batch).await;
    }

    pub async fn apply_ids(&mut self, upserts: &[u32], deletes: &[u32]) {
        self.apply_next(self.batch_of(upserts, deletes)).await;
    }

    pub async fn truncate_and_apply(&mut self, changes: usize, keys: u32) {
        let mut batch = self.random_batch(changes, keys);
        batch.insert(changes / 2, (0, Operation::Truncate));
        self.apply_next(batch).await;
    }

    async fn apply_next(&mut self, batch: Vec<Change>) {
        let sequence = self.sequence + 1;
        let outcome = self.apply(batch, sequence).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    }

    /// Applies to the table, and to the model unless the table says that it has the batch.
    pub async fn apply(&mut self, batch: Vec<Change>, sequence: i64) -> Result<CommitOutcome, LakeError> {
        let changes = self.changes(&batch, sequence);
        let keyed = KeyedChanges::from_batches(self.schema.clone(), vec![changes.clone()]).unwrap();
        let rows_before = self.model.rows.len();
        let outcome = self.table.apply(keyed, &tag(sequence)).await?;
        if let CommitOutcome::Committed(summary) = &outcome {
            self.model.apply(&changes);
            self.sequence = sequence;
            if !batch.iter().any(|(_, operation)| *operation == Operation::Truncate) {
                let gone = rows_before as i64 + self.model.inserted - self.model.rows.len() as i64;
                assert_eq!(summary.rows_deleted as i64, gone);
            }
        }
        Ok(outcome)
    }

    /// Applies to the model what the table turned out to have.
    pub fn believe(&mut self, batch: &[Change], sequence: i64) {
        let changes = self.changes(batch, sequence);
        self.model.apply(&changes);
        self.sequence = sequence;
    }

    pub fn changes(&self, batch: &[Change], sequence: i64) -> ChangeBatch {
        let ids: Vec<u32> = batch.iter().map(|(id, _)| *id).collect();
        let keep: Vec<bool> =
            batch.iter().map(|(_, operation)| !matches!(operation, Operation::Delete | Operation::Truncate)).collect();
        let keys = key_columns(self.kind, &ids);
        let columns = self.schema.columns.iter().enumerate().map(|(index, column)| {
            match self.schema.key.iter().position(|key| *key == index) {
                Some(position) => keys[position].clone(),
                None => value_column(column, &ids, &keep, sequence),
            }
        });
        let rows = RecordBatch::try_new(self.schema.arrow_schema(), columns.collect()).unwrap();
        let span = TransactionSpan {
            first_row: 0,
            commit_time_us: sequence,
            position: SourcePosition { order: (1, sequence as u64), text: String::new() },
        };
        let transactions = if batch.is_empty() { Vec::new() } else { vec![span] };
        let operations = batch.iter().map(|(_, operation)| *operation).collect();
        ChangeBatch { schema: self.schema.clone(), rows, operations, gaps: None, transactions }
    }

    pub async fn reopen(&mut self) {
        self.table = self.lake.open_table(&self.schema.table).await.unwrap().expect("the table was made");
    }

    /// Compares the newest version, as the deltalake crate reads it, with the model; and the statistics with it.
    pub async fn compare(&self, context: &str) {
        let batches = self.read().await;
        self.compare_rows(&batches, context);
        self.compare_rows(&self.read_by_own_scan().await, &format!("{context}, by our own scan"));
        let rows = self.model.rows.len();
        let fresh = self.lake.open_table(&self.schema.table).await.unwrap().expect("the table was made");
        assert_eq!(fresh.stats().rows, rows as u64, "{context}: counted rows");
        if fresh.version() == self.table.version() {
            assert_eq!(fresh.stats(), self.table.stats(), "{context}: state kept from commit to commit");
        }
    }

    fn compare_rows(&self, batches: &[RecordBatch], context: &str) {
        let names: Vec<&str> = self.schema.columns.iter().map(|column| column.name.as_str()).collect();
        self.compare_parts(batches, context);
        let mut rows = BTreeMap::new();
        for row in batches.iter().flat_map(|batch| texts(batch, &names)) {
            let key: Vec<_> = self.schema.key.iter().map(|index| row[*index].clone()).collect();
            assert!(rows.insert(key, row).is_none(), "{context}: a key twice");
        }
        let model = self.expected();
        let (found, wanted): (BTreeSet<_>, BTreeSet<_>) = (rows.keys().collect(), model.keys().collect());
        assert_eq!(found.difference(&wanted).collect::<Vec<_>>(), Vec::<&&Vec<String>>::new(), "{context}: came back");
        assert_eq!(wanted.difference(&found).collect::<Vec<_>>(), Vec::<&&Vec<String>>::new(), "{context}: lost");
        let other: Vec<_> = rows.iter().filter(|(key, row)| model.get(*key) != Some(*row)).take(5).collect();
        let wanted: Vec<_> = other.iter().map(|(key, _)| model.get(*key)).collect();
        assert!(other.is_empty(), "{context}: {other:?} instead of {wanted:?}");
    }

    async fn read_by_own_scan(&self) -> Vec<RecordBatch> {
        let scan = LakeScan::open(&self.lake, &self.schema.table, None).await.unwrap().expect("the table was made");
        SessionContext::new().read_table(Arc::new(scan)).unwrap().collect().await.unwrap()
    }

    /// The model's rows by key; in partition columns the empty text is null.
    pub fn expected(&self) -> BTreeMap<Vec<String>, Vec<String>> {
        let divides = |name: &str| self.table.partitioning().column(name).is_some();
        let whole: Vec<bool> = self.schema.columns.iter().map(|column| divides(&column.name)).collect();
        let row = |row: &Vec<String>| -> Vec<String> {
            let value = |(text, divides): (&String, &bool)| match text.as_str() {
                "" if *divides => NULL.to_string(),
                text => text.to_string(),
            };
            row.iter().zip(&whole).map(value).collect()
        };
        let rows = self.model.rows.values().map(row);
        rows.map(|row| (self.schema.key.iter().map(|index| row[*index].clone()).collect(), row)).collect()
    }

    /// Columns that the table has beside the source's follow from their date.
    fn compare_parts(&self, batches: &[RecordBatch], context: &str) {
        for column in &self.table.partitioning().columns {
            let Some(part) = column.by.part else { continue };
            for row in batches.iter().flat_map(|batch| texts(batch, &[&column.by.column, &column.name])) {
                let expected = match (row[0].as_str(), part) {
                    (NULL, _) => NULL.to_string(),
                    (date, DatePart::Year) => date[..4].trim_start_matches('0').to_string(),
                    (date, DatePart::Month) => format!("{}-01", &date[..7]),
                    (date, DatePart::Day) => date[..10].to_string(),
                };
                assert_eq!(row[1], expected, "{context}: {} of {}", column.name, row[0]);
            }
        }
    }

    async fn read(&self) -> Vec<RecordBatch> {
        let table = self.delta().await;
        let context = SessionContext::new();
        table.update_datafusion_session(&context.state()).unwrap();
        let provider = table.table_provider().await.unwrap();
        context.read_table(provider).unwrap().collect().await.unwrap()
    }

    /// The table as another writer sees it.
    pub async fn delta(&self) -> DeltaTable {
        let mut table = DeltaTable::new(self.lake.log_store(&self.schema.table));
        table.load().await.unwrap();
        table
    }

    pub async fn foreign_compaction(&self) {
        self.delta().await.optimize().await.unwrap();
    }

    pub async fn foreign_property(&self, name: &str, value: &str) {
        let properties = std::collections::HashMap::from([(name.to_string(), value.to_string())]);
        self.delta().await.set_tbl_properties().with_properties(properties).await.unwrap();
    }

    /// How many files of the change data feed there are.
    pub async fn change_files(&self) -> usize {
        use futures::TryStreamExt;
        let files = self.table.store.list(Some(&Path::from("_change_data")));
        files.try_collect::<Vec<_>>().await.unwrap().len()
    }

    /// Deletes keys by number, here and in the model. For [`KeyKind::Long`].
    pub async fn foreign_delete(&mut self, from: i64, to: i64) {
        let predicate = format!("id >= {from} and id < {to}");
        self.delta().await.delete().with_predicate(predicate).await.unwrap();
        self.model.rows.retain(|key, _| key[0].parse::<i64>().is_ok_and(|id| !(from..to).contains(&id)));
    }

    /// Appends all rows once more.
    pub async fn foreign_append_copy(&self) {
        let batches = self.read().await;
        let schema = self.table.arrow_schema();
        let batches = batches.iter().map(|batch| {
            let columns = batch.columns().iter().zip(schema.fields());
            let columns = columns.map(|(column, field)| cast(column, field.data_type()).unwrap());
            RecordBatch::try_new(schema.clone(), columns.collect()).unwrap()
        });
        self.delta().await.write(batches.collect::<Vec<_>>()).await.unwrap();
    }

    pub async fn has_checkpoint(&self) -> bool {
        self.table.store.head(&Path::from("_delta_log/_last_checkpoint")).await.is_ok()
    }

    pub async fn metadata(&self) -> Metadata {
        self.delta().await.snapshot().unwrap().metadata().clone()
    }

    pub async fn writer_features(&self) -> Vec<String> {
        let protocol = self.delta().await.snapshot().unwrap().protocol().clone();
        protocol.writer_features().unwrap().iter().map(ToString::to_string).collect()
    }

    pub async fn copy_log_to(&self, other: &TableId) {
        let name = Path::from("_delta_log/00000000000000000000.json");
        let bytes = self.table.store.get(&name).await.unwrap().bytes().await.unwrap();
        self.lake.table_store(other).put(&name, bytes.into()).await.unwrap();
    }

    /// Adds a column at the end of the source's schema, and evolves the table; rows that are there get `default`.
    pub async fn add_column(&mut self, name: &str, data_type: DataType, default: Option<ArrayRef>) {
        let mut schema = (*self.schema).clone();
        schema.columns.push(Column::new(name, data_type, "test"));
        schema.version += 1;
        let text = default.as_ref().map_or(NULL.into(), |value| array_value_to_string(value, 0).unwrap());
        let defaults: BTreeMap<_, _> = default.into_iter().map(|value| (name.to_string(), value)).collect();
        // A store that fails is asked again.
        let fills = Fills { values: defaults, ..Fills::default() };
        let mut outcome = self.table.evolve(&schema, &fills, &CommitTag::default()).await;
        if outcome.is_err() {
            outcome = self.table.evolve(&schema, &fills, &CommitTag::default()).await;
        }
        assert!(!matches!(outcome.unwrap(), CommitOutcome::Conflict));
        self.schema = Arc::new(schema);
        self.model.rows.values_mut().for_each(|row| row.push(text.clone()));
    }
}

pub fn memory_lake(store: Arc<dyn ObjectStore>) -> Lake {
    // Files, row groups and pages so small that a few hundred rows have many of each.
    let layout = Layout { file_bytes: 4 << 10, row_group_rows: 40, row_group_bytes: 1 << 20, page_rows: 8 };
    Lake::with_store(url::Url::parse("memory:///lake/").unwrap(), store).with_layout(layout)
}

/// Divided tables have two columns more to be divided by.
fn schema(table: TableId, kind: KeyKind, settings: &TableSettings) -> TableSchema {
    let column = |name: &str, data_type: DataType| Column::new(name, data_type, "test");
    let mut columns: Vec<_> = key_types(kind).into_iter().zip(["id", "id2"]).map(|(t, name)| column(name, t)).collect();
    let key_columns = columns.len();
    // The key is neither first nor in order.
    columns.insert(0, column("value", DataType::Int64));
    columns.push(column("note", DataType::Utf8));
    columns.push(column("price", DataType::Decimal128(10, 2)));
    if !settings.partition_by.is_empty() {
        columns.insert(0, column("region", DataType::Utf8));
        columns.push(column("at", DataType::Timestamp(TimeUnit::Microsecond, None)));
        let key = (2..2 + key_columns).collect();
        return TableSchema::new(table, columns, key);
    }
    TableSchema::new(table, columns, (1..=key_columns).collect())
}

fn key_types(kind: KeyKind) -> Vec<DataType> {
    key_columns(kind, &[]).iter().map(|array| array.data_type().clone()).collect()
}

fn key_columns(kind: KeyKind, ids: &[u32]) -> Vec<ArrayRef> {
    let long = || Arc::new(ids.iter().map(|id| Some(i64::from(*id))).collect::<Int64Array>()) as ArrayRef;
    let text = |pattern: fn(u32) -> String| {
        Arc::new(StringArray::from(ids.iter().map(|id| pattern(*id)).collect::<Vec<_>>())) as ArrayRef
    };
    let integer: ArrayRef = Arc::new(ids.iter().map(|id| Some(*id as i32 % 7 - 3)).collect::<Int32Array>());
    match kind {
        KeyKind::Long => vec![long()],
        KeyKind::Integer => vec![Arc::new(ids.iter().map(|id| Some(*id as i32 - 60)).collect::<Int32Array>())],
        KeyKind::Date => vec![Arc::new(ids.iter().map(|id| Some(*id as i32 * 1000 - 60_000)).collect::<Date32Array>())],
        KeyKind::Timestamp => {
            let values = ids.iter().map(|id| Some(i64::from(*id) * 333 - 7_000));
            vec![Arc::new(values.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))]
        }
        KeyKind::Text => vec![text(|id| format!("k{id}"))],
        KeyKind::LongText => vec![text(|id| format!("{}{id}", "ä".repeat(35)))],
        KeyKind::Decimal => {
            let values = ids.iter().map(|id| Some(i128::from(*id) * 100_000_000_000_000_000));
            vec![Arc::new(values.collect::<Decimal128Array>().with_precision_and_scale(20, 0).unwrap())]
        }
        KeyKind::Binary => {
            let values = ids.iter().map(|id| [&[0xFF_u8; 3][..], &id.to_be_bytes()].concat()).collect::<Vec<_>>();
            vec![Arc::new(BinaryArray::from_iter_values(values))]
        }
        KeyKind::Double => vec![Arc::new(ids.iter().map(|id| Some(double(*id))).collect::<Float64Array>())],
        KeyKind::IntegerAndText => vec![integer, text(|id| format!("k{}", id / 7))],
        KeyKind::TextAndLong => vec![text(|id| format!("k{}", id % 10)), long()],
        KeyKind::AwkwardText => {
            vec![text(|id| AWKWARD.get(id as usize).map_or_else(|| format!("k{id}"), |text| text.to_string()))]
        }
    }
}

fn double(id: u32) -> f64 {
    match id {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => f64::NEG_INFINITY,
        _ => f64::from(id) / 3.0,
    }
}

fn value_column(column: &Column, ids: &[u32], keep: &[bool], sequence: i64) -> ArrayRef {
    let moved = |row: usize| (u64::from(ids[row]) / 3 + sequence as u64) as usize;
    if column.name == "region" {
        let region = |row: usize| keep[row].then(|| AWKWARD.get(moved(row) % (AWKWARD.len() + 1)).copied()).flatten();
        return Arc::new((0..ids.len()).map(region).collect::<StringArray>());
    }
    if column.name == "at" {
        let at =
            |row: usize| (keep[row] && moved(row) % 7 > 0).then(|| (moved(row) as i64 % 9 - 4) * 40 * 86_400_000_000);
        return Arc::new((0..ids.len()).map(at).collect::<TimestampMicrosecondArray>());
    }
    let value = |row: usize| {
        (keep[row] && !(u64::from(ids[row]) + sequence as u64 + row as u64).is_multiple_of(5))
            .then(|| sequence * 1_000 + row as i64)
    };
    let numbers: Int64Array = (0..ids.len()).map(value).collect();
    match &column.data_type {
        DataType::Int64 => Arc::new(numbers),
        data_type @ (DataType::Utf8 | DataType::Decimal128(..)) => cast(&numbers, data_type).unwrap(),
        data_type @ DataType::Timestamp(TimeUnit::Microsecond, None) => cast(&numbers, data_type).unwrap(),
        other => new_null_array(other, ids.len()),
    }
}
