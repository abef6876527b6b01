//! Our own scan against the model and against the deltalake crate's reader: random tables, random queries, with all
//! that is pushed down to the scan.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake::DeltaTable;
use deltalake::kernel::DeletionVectorDescriptor;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::data_type::{Int64Type, Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roaring::RoaringTreemap;
use serde_json::{Value, json};

use super::model::NULL;
use super::world::{KeyKind, World, memory_lake};
use crate::change::TableId;
use crate::lake::{Lake, LakeError, LakeScan, deletion};

/// Partitions of a plan: more than the machine may have cores.
const PARTITIONS: usize = 3;

/// A session that pushes down all it can, and splits files however small.
fn context(pushdown: bool) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(PARTITIONS)
        .with_repartition_file_min_size(1)
        .with_batch_size(16)
        .set_bool("datafusion.execution.parquet.pushdown_filters", pushdown)
        .set_bool("datafusion.execution.parquet.reorder_filters", pushdown);
    SessionContext::new_with_config(config)
}

async fn query(context: &SessionContext, sql: &str) -> Result<Vec<String>, DataFusionError> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(batches.iter().flat_map(lines).collect())
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null(NULL);
    let columns: Vec<_> =
        batch.columns().iter().map(|array| ArrayFormatter::try_new(array.as_ref(), &options).unwrap()).collect();
    let line = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(line).collect()
}

async fn open(world: &World) -> LakeScan {
    LakeScan::open(&world.lake, &world.schema.table, None).await.unwrap().unwrap()
}

/// The same table twice: `ours` and `peer`.
async fn both(world: &World, pushdown: bool) -> SessionContext {
    let context = context(pushdown);
    let table = world.delta().await;
    table.update_datafusion_session(&context.state()).unwrap();
    context.register_table("peer", table.table_provider().await.unwrap()).unwrap();
    context.register_table("ours", Arc::new(open(world).await)).unwrap();
    context
}

/// Makes up queries over a table.
struct Queries {
    random: StdRng,
    kind: KeyKind,
    columns: Vec<String>,
}

impl Queries {
    fn number(&mut self, end: i64) -> i64 {
        self.random.random_range(0..end)
    }

    fn key(&mut self) -> String {
        let id = self.number(130);
        match self.kind {
            KeyKind::Long => id.to_string(),
            KeyKind::Timestamp => format!("arrow_cast({}, 'Timestamp(us, \"UTC\")')", id * 333 - 7_000),
            KeyKind::Date => format!("arrow_cast(arrow_cast({}, 'Int32'), 'Date32')", id * 1_000 - 60_000),
            KeyKind::Text => format!("'k{id}'"),
            KeyKind::LongText => format!("'{}{id}'", "ä".repeat(35)),
            KeyKind::Decimal => format!("cast({id}00000000000000000 as decimal(20, 0))"),
            KeyKind::TextAndLong => format!("'k{}'", id % 10),
            other => panic!("no literal of {other:?} is known"),
        }
    }

    fn comparison(&mut self) -> String {
        let operator = ["=", "<", ">", "<=", ">=", "<>"][self.random.random_range(0..6)];
        match self.number(7) {
            0 if matches!(self.kind, KeyKind::TextAndLong) && operator == "=" => {
                let id = self.number(130);
                format!("(id in ('k{}', 'k3') and id2 = {id})", id % 10)
            }
            0 => format!("id {operator} {}", self.key()),
            1 => format!("id between {} and {}", self.key(), self.key()),
            2 => format!("value {operator} {}", self.number(14_000)),
            3 => format!("note {operator} '{}'", self.number(14_000)),
            4 => format!("price {operator} {}.5", self.number(14_000)),
            5 => format!("{} is null", self.column()),
            _ => format!("id in ({}, {}, {})", self.key(), self.key(), self.key()),
        }
    }

    fn column(&mut self) -> String {
        self.columns[self.random.random_range(0..self.columns.len())].clone()
    }

    fn predicate(&mut self) -> String {
        let (a, b) = (self.comparison(), self.comparison());
        match self.number(5) {
            0 => a,
            1 => format!("{a} and {b}"),
            2 => format!("{a} or {b}"),
            3 => format!("not ({a})"),
            _ => "true".into(),
        }
    }

    /// A query with `{t}` for the table, and whether its rows have an order.
    fn query(&mut self) -> (String, bool) {
        let predicate = self.predicate();
        let columns: Vec<String> = (0..self.number(3) + 1).map(|_| self.column()).collect();
        let columns: BTreeSet<String> = columns.into_iter().collect();
        let columns = columns.into_iter().collect::<Vec<_>>().join(", ");
        match self.number(5) {
            0 => (format!("select {columns} from {{t}} where {predicate}"), false),
            1 => {
                let direction = ["asc", "desc"][self.random.random_range(0..2)];
                let first = self.column();
                let limit = self.number(12);
                let all = self.columns.join(", ");
                let order = format!("order by {first} {direction} nulls last, {all} limit {limit}");
                (format!("select {all} from {{t}} where {predicate} {order}"), true)
            }
            2 => (
                format!(
                    "select count(*), count(value), min(id), max(id), min(value), max(note), sum(price) from {{t}} \
                     where {predicate}"
                ),
                false,
            ),
            3 => {
                let joined = "select count(*), min(a.id), max(b.note) from {t} a join {t} b on a.id = b.id";
                (format!("{joined} and a.value = b.value where b.value < {}", self.number(14_000)), false)
            }
            _ => (format!("select count(*), min(id), max(id), min(value), count({columns}) from {{t}}"), false),
        }
    }
}

async fn same_answers(world: &World, queries: &mut Queries, rounds: usize, note: &str) {
    for pushdown in [false, true] {
        let context = both(world, pushdown).await;
        for _ in 0..rounds {
            let (sql, ordered) = queries.query();
            let mut peer = query(&context, &sql.replace("{t}", "peer")).await.unwrap();
            let mut ours =
                query(&context, &sql.replace("{t}", "ours")).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            if !ordered {
                peer.sort();
                ours.sort();
            }
            assert_eq!(ours, peer, "{note}, filters in the scan: {pushdown}\n{sql}");
        }
        limits(&context, queries, note).await;
    }
}

/// A limit without an order: any rows of the result, as many as there are up to it.
async fn limits(context: &SessionContext, queries: &mut Queries, note: &str) {
    let limit = queries.number(60);
    let sql = format!("select id, value from ours where {}", queries.predicate());
    let all = query(context, &sql).await.unwrap();
    let some = query(context, &format!("{sql} limit {limit}")).await.unwrap();
    assert_eq!(some.len(), all.len().min(limit as usize), "{note}: {sql} limit {limit}");
    assert!(some.iter().all(|row| all.contains(row)), "{note}: {sql} limit {limit}");
}

/// All rows, as the model has them.
async fn same_as_model(world: &World, note: &str) {
    let context = context(false);
    context.register_table("t", Arc::new(open(world).await)).unwrap();
    let mut found = query(&context, "select * from t").await.unwrap();
    found.sort();
    let mut expected: Vec<String> = world.model.rows.values().map(|row| row.join("|")).collect();
    expected.sort();
    assert_eq!(found, expected, "{note}");
}

async fn check(kind: KeyKind, seed: u64) {
    let mut world = World::in_memory(kind, seed).await;
    let columns = world.schema.columns.iter().map(|column| column.name.clone()).collect();
    let mut queries = Queries { random: StdRng::seed_from_u64(seed), kind, columns };
    for step in 0..6 {
        let note = format!("{kind:?} seed {seed} step {step}");
        world.apply_random(60, 120).await;
        if step == 3 {
            world.add_column("added", DataType::Utf8, None).await;
            queries.columns.push("added".into());
        }
        same_as_model(&world, &note).await;
        same_answers(&world, &mut queries, 4, &note).await;
    }
    world.foreign_compaction().await;
    same_as_model(&world, "compacted by another writer").await;
    same_answers(&world, &mut queries, 4, "compacted by another writer").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_queries_of_tables_with_whole_keys_are_answered_alike() {
    for kind in [KeyKind::Long, KeyKind::Date, KeyKind::Timestamp] {
        check(kind, 31).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_queries_of_tables_with_other_keys_are_answered_alike() {
    for kind in [KeyKind::Text, KeyKind::LongText, KeyKind::Decimal, KeyKind::TextAndLong] {
        check(kind, 32).await;
    }
}

/// A table whose files lie behind one another in the order of keys, each with some rows deleted.
async fn ascending(files: u32, rows: u32) -> World {
    let mut world = World::in_memory(KeyKind::Long, 33).await;
    for file in 0..files {
        let ids: Vec<u32> = (file * rows..(file + 1) * rows).collect();
        world.apply_ids(&ids, &[]).await;
    }
    let gone: Vec<u32> = (0..files).map(|file| file * rows + 3).collect();
    world.apply_ids(&[], &gone).await;
    world
}

/// The scan at the bottom of a plan.
fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Option<FileScanConfig> {
    if let Some(exec) = plan.downcast_ref::<DataSourceExec>() {
        return exec.data_source().downcast_ref::<FileScanConfig>().cloned();
    }
    plan.children().into_iter().find_map(scan_of)
}

/// A count that the scan of a plan kept while it ran.
fn counted(plan: &Arc<dyn ExecutionPlan>, name: &str) -> Option<usize> {
    if plan.is::<DataSourceExec>() {
        return plan.metrics()?.sum_by_name(name).map(|value| value.as_usize());
    }
    plan.children().into_iter().find_map(|child| counted(child, name))
}

/// How many files a plan reads, or parts of.
fn files_of(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let config = scan_of(plan).unwrap();
    let files = config.file_groups.iter().flat_map(|group| group.iter());
    files.map(|file| file.path()).collect::<BTreeSet<_>>().len()
}

async fn plan(scan: &LakeScan, sql: &str) -> (SessionContext, Arc<dyn ExecutionPlan>) {
    let context = context(false);
    context.register_table("t", Arc::new(scan.clone())).unwrap();
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    (context, plan)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_is_parallel_and_leaves_out_files_that_cannot_match() {
    let world = ascending(20, 30).await;
    let scan = open(&world).await;
    let (_, all) = plan(&scan, "select * from t").await;
    let config = scan_of(&all).unwrap();
    assert_eq!(config.file_groups.len(), PARTITIONS);
    assert_eq!(files_of(&all), 20);

    let (context, lookup) = plan(&scan, "select note from t where id = 217").await;
    assert_eq!(files_of(&lookup), 1);
    let found = collect(lookup.clone(), context.task_ctx()).await.unwrap();
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    assert!(counted(&lookup, "files_opened").is_some_and(|parts| parts <= PARTITIONS), "one file in its parts");
    assert!(counted(&lookup, "bytes_scanned").is_some_and(|bytes| bytes > 0));

    // Of 30 rows with one deleted, two files have 40 live rows.
    let (_, limited) = plan(&scan, "select note from t limit 40").await;
    assert_eq!(files_of(&limited), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_names_its_keys_opens_only_files_that_have_them() {
    let mut world = World::in_memory(KeyKind::Long, 34).await;
    for file in 0..20 {
        // All files span all keys.
        let ids: Vec<u32> = (0..30).map(|row| row * 20 + file).collect();
        world.apply_ids(&ids, &[]).await;
    }
    world.apply_ids(&[], &[47]).await;
    let scan = open(&world).await;
    let files = async |condition: &str| {
        let (context, plan) = plan(&scan, &format!("select id, note from t where {condition}")).await;
        let found = collect(plan.clone(), context.task_ctx()).await.unwrap();
        let rows = found.iter().map(RecordBatch::num_rows).sum::<usize>();
        (scan_of(&plan).map_or(0, |_| files_of(&plan)), rows)
    };
    assert_eq!(files("id = 217").await, (1, 1));
    assert_eq!(files("id in (217, 218, 237, 10000)").await, (2, 3));
    assert_eq!(files("id = 217 and note is null").await.0, 1);
    assert_eq!(files("id = 47").await, (0, 0), "deleted");
    assert_eq!(files("id = 10000 or note = 'nothing'").await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_counted_by_the_log_and_bounds_only_where_no_row_is_deleted() {
    let world = ascending(5, 30).await;
    let scan = open(&world).await;
    for (sql, by_log, answer) in [
        ("select count(*) from t", true, "145"),
        ("select count(id) from t", true, "145"),
        ("select max(id) from t", false, "149"),
        ("select count(*) from (select id from t limit 7)", false, "7"),
    ] {
        let (context, plan) = plan(&scan, sql).await;
        assert_eq!(scan_of(&plan).is_none(), by_log, "{sql}");
        let found = collect(plan, context.task_ctx()).await.unwrap();
        assert_eq!(found.iter().flat_map(lines).collect::<Vec<_>>(), [answer], "{sql}");
    }
}

fn lake_error(error: &DataFusionError) -> Option<&LakeError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(found) = current.downcast_ref::<LakeError>() {
            return Some(found);
        }
        cause = current.source();
    }
    None
}

/// Changes every action of a table's log.
async fn rewrite_log(world: &World, mut change: impl FnMut(&mut Value)) {
    let store = &world.table.store;
    let files: Vec<_> = store.list(Some(&Path::from("_delta_log"))).try_collect().await.unwrap();
    for file in files.iter().filter(|file| file.location.as_ref().ends_with(".json")) {
        let text = store.get(&file.location).await.unwrap().bytes().await.unwrap();
        let lines = std::str::from_utf8(&text).unwrap().lines().map(|line| {
            let mut action: Value = serde_json::from_str(line).unwrap();
            change(&mut action);
            action.to_string()
        });
        let lines = lines.collect::<Vec<_>>().join("\n");
        store.put(&file.location, lines.into()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_without_statistics_are_read_whole_and_with_their_vectors() {
    let mut world = World::in_memory(KeyKind::Long, 34).await;
    for _ in 0..4 {
        world.apply_random(60, 120).await;
    }
    rewrite_log(&world, |action| {
        if let Some(add) = action.get_mut("add") {
            add["stats"] = Value::Null;
        }
    })
    .await;
    same_as_model(&world, "without statistics").await;
    let scan = open(&world).await;
    let (context, plan) = plan(&scan, "select count(*) from t").await;
    let found = collect(plan, context.task_ctx()).await.unwrap();
    assert_eq!(found.iter().flat_map(lines).collect::<Vec<_>>(), [world.model.rows.len().to_string()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_in_the_log_and_by_absolute_paths_are_read() {
    for stored in ["i", "p"] {
        let mut world = World::in_memory(KeyKind::Long, 35).await;
        for _ in 0..4 {
            world.apply_random(60, 120).await;
        }
        let mut vectors = Vec::new();
        rewrite_log(&world, |action| vectors.extend(vector_of(action).map(|vector| descriptor(vector)))).await;
        let mut moved = Vec::new();
        for vector in &vectors {
            let rows = world.table.prober.vectors.read(vector).await.unwrap();
            moved.push(if stored == "i" { inline(&rows) } else { absolute(&world, vector) });
        }
        assert!(!moved.is_empty());
        let mut moved = moved.into_iter();
        rewrite_log(&world, |action| {
            if let Some(vector) = vector_of(action) {
                *vector = moved.next().unwrap();
            }
        })
        .await;
        same_as_model(&world, &format!("vectors stored as {stored}")).await;
    }
}

fn vector_of(action: &mut Value) -> Option<&mut Value> {
    let kind = if action.get("add").is_some() { "add" } else { "remove" };
    action.get_mut(kind)?.get_mut("deletionVector").filter(|vector| !vector.is_null())
}

fn descriptor(vector: &Value) -> DeletionVectorDescriptor {
    serde_json::from_value(vector.clone()).unwrap()
}

fn inline(rows: &RoaringTreemap) -> Value {
    let mut bytes = 1_681_511_377_u32.to_le_bytes().to_vec();
    rows.serialize_into(&mut bytes).unwrap();
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({ "storageType": "i", "pathOrInlineDv": z85::encode(&bytes), "sizeInBytes": size, "cardinality": rows.len() })
}

fn absolute(world: &World, vector: &DeletionVectorDescriptor) -> Value {
    let url = world.lake.table_url(&world.schema.table).join(deletion::file_of(vector).unwrap().as_ref()).unwrap();
    json!({
        "storageType": "p", "pathOrInlineDv": url.as_str(), "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes, "cardinality": vector.cardinality,
    })
}

fn partitioned_rows() -> RecordBatch {
    let names = [Some("a b%"), Some("x=y"), None, Some("ü:"), Some("a b%"), None];
    let columns: [(&str, ArrayRef, bool); 4] = [
        ("name", Arc::new(StringArray::from(names.to_vec())), true),
        ("id", Arc::new(Int64Array::from_iter_values(0..6)), true),
        ("day", Arc::new(Date32Array::from(vec![Some(0), None, Some(2), Some(3), Some(4), Some(5)])), true),
        ("value", Arc::new(Int64Array::from(vec![Some(10), None, Some(12), None, Some(14), Some(15)])), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A table by another writer, partitioned by its first and third column, from which the rows named `a b%` are deleted.
/// Returns the rows that are left.
async fn partitioned(lake: &Lake, table: &TableId) -> Vec<String> {
    let rows = partitioned_rows();
    let mut delta = DeltaTable::new(lake.log_store(table));
    let _ = delta.load().await;
    delta.write([rows.clone()]).with_partition_columns(["name", "day"]).await.unwrap();
    let store = lake.table_store(table);
    let log = store.get(&Path::from("_delta_log/00000000000000000000.json")).await.unwrap().bytes().await.unwrap();
    let vectors = lake.file_access(table).vectors.write(&[RoaringTreemap::from_iter([0])]).await.unwrap();
    let features = json!(["deletionVectors"]);
    let mut commit = vec![json!({"protocol": {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
    }})];
    for line in std::str::from_utf8(&log).unwrap().lines() {
        let mut action: Value = serde_json::from_str(line).unwrap();
        let Some(add) = action.get_mut("add").filter(|add| !add["partitionValues"]["name"].is_null()) else { continue };
        if add["partitionValues"]["name"] == json!("a b%") {
            commit.push(json!({"remove": {"path": add["path"], "dataChange": true, "deletionTimestamp": 0}}));
            // A file without live rows, as Spark may leave it.
            add["deletionVector"] = serde_json::to_value(&vectors[0]).unwrap();
            commit.push(json!({ "add": add }));
        }
    }
    let commit = commit.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    store.put(&Path::from("_delta_log/00000000000000000001.json"), commit.into()).await.unwrap();
    let all = lines(&rows);
    [1, 2, 3, 5].iter().map(|row| all[*row].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_columns_come_from_the_log() {
    let lake = memory_lake(Arc::new(InMemory::new()));
    let table = TableId::new("others", "days");
    let mut expected = partitioned(&lake, &table).await;
    expected.sort();
    let scan = LakeScan::open(&lake, &table, None).await.unwrap().unwrap();
    let context = context(false);
    context.register_table("t", Arc::new(scan.clone())).unwrap();
    let mut found = query(&context, "select * from t").await.unwrap();
    found.sort();
    assert_eq!(found, expected);
    for (sql, expected, files) in [
        ("select value, id from t where name = 'ü:'", "null|3", 1),
        ("select id, name from t where name is null and id > 3", "5|null", 1),
        ("select id from t where day = date '1970-01-03'", "2", 1),
        ("select id from t where day is null", "1", 1),
        (
            "select min(name), max(name), count(name), count(day), min(day), max(id) from t",
            "x=y|ü:|2|3|1970-01-03|5",
            6,
        ),
        ("select name from t where id = 3 and name > 'b'", "ü:", 1),
    ] {
        let (_, plan) = plan(&scan, sql).await;
        assert_eq!(query(&context, sql).await.unwrap(), [expected.replace("null", NULL)], "{sql}");
        assert_eq!(files_of(&plan), files, "{sql}");
    }
}

/// A file as Spark writes it: timestamps of 96 bits, a day of the Julian calendar and nanoseconds.
fn spark_file(days: &[u32]) -> Vec<u8> {
    let schema = parse_message_type("message spark { optional int64 id; optional int96 at; }").unwrap();
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let levels = vec![1; days.len()];
    let mut ids = group.next_column().unwrap().unwrap();
    let values: Vec<i64> = (0..days.len() as i64).collect();
    ids.typed::<Int64Type>().write_batch(&values, Some(&levels), None).unwrap();
    ids.close().unwrap();
    let mut times = group.next_column().unwrap().unwrap();
    let time = |day: &u32| {
        let mut time = Int96::new();
        time.set_data(1_000, 0, *day);
        time
    };
    let values: Vec<Int96> = days.iter().map(time).collect();
    times.typed::<Int96Type>().write_batch(&values, Some(&levels), None).unwrap();
    times.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_of_96_bits_are_read_with_their_zone_and_beyond_the_range_of_nanoseconds() {
    let lake = memory_lake(Arc::new(InMemory::new()));
    let table = TableId::new("others", "times");
    let at = Arc::new(arrow::array::TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")) as ArrayRef;
    let first: [(&str, ArrayRef, bool); 2] = [("id", Arc::new(Int64Array::from(vec![7])), true), ("at", at, true)];
    let mut delta = DeltaTable::new(lake.log_store(&table));
    let _ = delta.load().await;
    delta.write([RecordBatch::try_from_iter_with_nullable(first).unwrap()]).await.unwrap();
    // The days of 1970-01-01 and of 2500-01-01.
    let bytes = spark_file(&[2_440_588, 2_634_167]);
    let add = json!({"add": {
        "path": "spark.parquet", "partitionValues": {}, "size": bytes.len(), "modificationTime": 0, "dataChange": true,
    }});
    let store = lake.table_store(&table);
    store.put(&Path::from("spark.parquet"), bytes.into()).await.unwrap();
    store.put(&Path::from("_delta_log/00000000000000000001.json"), add.to_string().into()).await.unwrap();

    let context = context(true);
    let scan = LakeScan::open(&lake, &table, None).await.unwrap().unwrap();
    context.register_table("t", Arc::new(scan)).unwrap();
    let found =
        query(&context, "select id, at from t where at >= timestamp '1970-01-01' order by at, id").await.unwrap();
    assert_eq!(
        found,
        ["0|1970-01-01T00:00:00.000001Z", "7|1970-01-01T00:00:00.000001Z", "1|2500-01-01T00:00:00.000001Z"]
    );
}

async fn damaged_scan(world: &World) -> String {
    let context = context(false);
    context.register_table("t", Arc::new(open(world).await)).unwrap();
    let error = query(&context, "select * from t").await.err().unwrap();
    let found = lake_error(&error).unwrap_or_else(|| panic!("{error:?}"));
    assert!(matches!(found, LakeError::Damaged { .. }), "{found:?}");
    found.to_string()
}

/// Changes the bytes of all files of one kind.
async fn damage(world: &World, ending: &str, change: fn(&mut Vec<u8>)) {
    let store = &world.table.store;
    let files: Vec<_> = store.list(None).try_collect().await.unwrap();
    for file in files.iter().filter(|file| file.location.as_ref().ends_with(ending)) {
        let mut bytes = store.get(&file.location).await.unwrap().bytes().await.unwrap().to_vec();
        change(&mut bytes);
        store.put(&file.location, bytes.into()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_told_as_damage() {
    let world = ascending(3, 20).await;
    damage(&world, ".bin", |bytes| {
        let last = bytes.len() - 5;
        bytes[last] ^= 1;
    })
    .await;
    let text = damaged_scan(&world).await;
    assert!(text.contains("deletion vector") && text.contains("checksum"), "{text}");

    let world = ascending(3, 20).await;
    damage(&world, ".parquet", |bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
    })
    .await;
    let text = damaged_scan(&world).await;
    assert!(text.contains("does not end as a Parquet file does"), "{text}");

    let world = ascending(3, 20).await;
    rewrite_log(&world, |action| {
        if let Some(stats) = action.get_mut("add").map(|add| &mut add["stats"]) {
            *stats = stats.as_str().unwrap().replace("\"numRecords\":20", "\"numRecords\":21").into();
        }
    })
    .await;
    let text = damaged_scan(&world).await;
    assert!(text.contains("it has 20 rows, the log says 21"), "{text}");

    let world = ascending(3, 20).await;
    rewrite_log(&world, |action| {
        if let Some(stats) = action.get_mut("add").map(|add| &mut add["stats"]) {
            *stats = stats.as_str().unwrap().replace("\"numRecords\":20", "\"numRecords\":2").into();
        }
    })
    .await;
    let text = damaged_scan(&world).await;
    assert!(text.contains("names row 3, it has 2 rows"), "{text}");
}
