//! Queries of a table of 1,000,000 rows after 1,000 micro-batches (a first load of half of the rows; then in each batch 500
//! new rows, 250 changes of rows of the last batches and 250 of any row of the first load, so that small files span
//! most keys), in three states:
//! - `unattended`: nothing but the batches;
//! - `followed`: with the upkeep that is due after each batch, as a job leaves it;
//! - `maintained`: the same after `alluvium maintain --now compact`.
//!
//! They are read by our own scan and, the first two, by the deltalake crate's; beside them the same rows freshly written
//! into one table by our writer. Each query runs in a plan of its own over tables that are open; its first run, before
//! which nothing of the files has been read, is told apart. The answers of all are compared.
//!
//! `SCAN_ROWS=100000 SCAN_BATCHES=100` makes a smaller table.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use alluvium::change::{Operation, TableId};
use alluvium::config::LakeConfig;
use alluvium::lake::{CommitTag, Lake, LakeScan};
use alluvium::schema::{Column, TableSchema};
use arrow::array::{
    ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake::DeltaTable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

mod orders;

use orders::{RULES, look_after, median, upsert};

const REPEATS: usize = 9;
/// The deltalake crate's reader holds one of these for each deletion vector while it waits for another: with the 512 that
/// a runtime usually has, it never ends on a table of more vectors.
const BLOCKING_THREADS: usize = 4_096;
/// Batches whose rows are changed again soon.
const RECENT_BATCHES: i64 = 20;
/// Rows per commit while the fresh table is filled: one file.
const FILL_ROWS: usize = 1_000_000;

struct Sizes {
    rows: i64,
    batches: i64,
}

impl Sizes {
    fn from_env() -> Self {
        let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
        Self { rows: number("SCAN_ROWS", 1_000_000), batches: number("SCAN_BATCHES", 1_000) }
    }

    fn loaded(&self) -> i64 {
        self.rows - self.inserts() * (self.batches - 1)
    }

    /// New rows in each batch after the first.
    fn inserts(&self) -> i64 {
        self.rows / 2 / self.batches
    }
}

fn queries(sizes: &Sizes) -> [(&'static str, String); 4] {
    let (from, to) = (sizes.rows / 3, sizes.rows / 3 + sizes.rows / 100);
    [
        (
            "aggregate",
            "select status, count(*), sum(customer), sum(amount), max(changed), max(length(note)) from t \
             group by status order by status"
                .into(),
        ),
        ("range", format!("select count(*), sum(amount), max(note) from t where id >= {from} and id < {to}")),
        ("lookup", format!("select * from t where id = {from}")),
        ("top", "select amount, id, note from t order by amount desc, id limit 10".into()),
    ]
}

fn main() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build().unwrap();
    runtime.block_on(compare(&Sizes::from_env()));
}

async fn compare(sizes: &Sizes) {
    let folder = tempfile::tempdir().unwrap();
    let schema = Arc::new(schema());
    let unattended = changed_table(&folder.path().join("unattended"), &schema, sizes, false).await;
    let followed = changed_table(&folder.path().join("followed"), &schema, sizes, true).await;
    let fresh = fresh_table(&folder.path().join("fresh"), &schema, &followed).await;
    let mut worst = [f64::INFINITY, 0.0];
    for (state, lake) in [("unattended", &unattended), ("followed", &followed)] {
        let (ours, of_fresh) = beside_fresh(lake, &fresh, sizes).await;
        let peer = measure_peer(lake, sizes).await;
        for (query, ((ours, peer), fresh)) in ours.iter().zip(&peer).zip(&of_fresh).enumerate() {
            assert!(ours.answer == peer.answer && ours.answer == fresh.answer, "{state}: query {query}");
            let (ratio, over_fresh) = (peer.again_ms / ours.again_ms, ours.again_ms / fresh.again_ms);
            print_query(state, queries(sizes)[query].0, ours, fresh, &format!("ratio={ratio:.1} "), peer.again_ms);
            if state == "followed" {
                worst = [worst[0].min(ratio), worst[1].max(over_fresh)];
            }
        }
    }
    let mut table = followed.open_table(&table_id()).await.unwrap().unwrap();
    let by_hand = RULES.by_hand();
    while table.compact(&by_hand).await.unwrap().is_some() {}
    println!("maintained: {:?}", table.stats());
    let mut maintained = 0.0_f64;
    let (ours, of_fresh) = beside_fresh(&followed, &fresh, sizes).await;
    for (query, (ours, fresh)) in ours.iter().zip(&of_fresh).enumerate() {
        assert_eq!(ours.answer, fresh.answer, "maintained: query {query}");
        print_query("maintained", queries(sizes)[query].0, ours, fresh, "", 0.0);
        maintained = maintained.max(ours.again_ms / fresh.again_ms);
    }
    let [ratio, over_fresh] = worst;
    println!(
        "bench name=scan ratio={ratio:.1} fresh={over_fresh:.2} maintained={maintained:.2} rows={} batches={}",
        sizes.rows, sizes.batches
    );
}

fn print_query(state: &str, query: &str, ours: &Measured, fresh: &Measured, ratio: &str, peer_ms: f64) {
    println!(
        "{state} {query}: {ratio}fresh={:.2} ours_ms={:.1} peer_ms={peer_ms:.1} fresh_ms={:.1} first_ours_ms={:.1} first_fresh_ms={:.1}",
        ours.again_ms / fresh.again_ms,
        ours.again_ms,
        fresh.again_ms,
        ours.first_ms,
        fresh.first_ms
    );
}

/// Our own scan of a table, and of the fresh one: query by query, one right after the other.
async fn beside_fresh(lake: &Lake, fresh: &Lake, sizes: &Sizes) -> (Vec<Measured>, Vec<Measured>) {
    let (mut ours, mut of_fresh) = (Vec::new(), Vec::new());
    for (_, sql) in queries(sizes) {
        ours.push(measure(|| open_ours(lake), &sql).await);
        of_fresh.push(measure(|| open_ours(fresh), &sql).await);
    }
    (ours, of_fresh)
}

async fn measure_peer(lake: &Lake, sizes: &Sizes) -> Vec<Measured> {
    let mut measured = Vec::new();
    for (_, sql) in queries(sizes) {
        measured.push(measure(|| open_peer(lake), &sql).await);
    }
    measured
}

struct Measured {
    first_ms: f64,
    again_ms: f64,
    answer: String,
}

/// Medians of a query: of first runs over tables that were just opened, and of later runs over one of them.
async fn measure<F: Future<Output = Arc<dyn TableProvider>>>(open: impl Fn() -> F, sql: &str) -> Measured {
    let (mut first, mut again, mut answer) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..3 {
        let table = open().await;
        let (elapsed, found) = run(&table, sql).await;
        first.push(elapsed);
        answer = found;
    }
    let table = open().await;
    run(&table, sql).await;
    for _ in 0..REPEATS {
        again.push(run(&table, sql).await.0);
    }
    Measured { first_ms: median(first), again_ms: median(again), answer }
}

async fn run(table: &Arc<dyn TableProvider>, sql: &str) -> (f64, String) {
    let context = SessionContext::new_with_config(SessionConfig::new());
    context.register_table("t", table.clone()).unwrap();
    let start = Instant::now();
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    (elapsed, arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string())
}

async fn open_ours(lake: &Lake) -> Arc<dyn TableProvider> {
    Arc::new(LakeScan::open(lake, &table_id(), None).await.unwrap().unwrap())
}

async fn open_peer(lake: &Lake) -> Arc<dyn TableProvider> {
    let mut table = DeltaTable::new(lake.log_store(&table_id()));
    table.load().await.unwrap();
    table.table_provider().await.unwrap()
}

fn table_id() -> TableId {
    TableId::new("shop", "orders")
}

fn schema() -> TableSchema {
    let column = |name: &str, data_type| Column::new(name, data_type, "");
    let columns = vec![
        column("id", DataType::Int64),
        column("customer", DataType::Int32),
        column("status", DataType::Utf8),
        column("amount", DataType::Decimal128(12, 2)),
        column("changed", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        column("note", DataType::Utf8),
    ];
    TableSchema::new(table_id(), columns, vec![0])
}

/// One row per id; `salt` changes all other columns.
fn rows(schema: &TableSchema, ids: &[i64], salt: i64) -> RecordBatch {
    let mut random = StdRng::seed_from_u64(salt.unsigned_abs());
    let letters = b"abcdefghijklmnopqrstuvwxyz      ";
    let mut note = || (0..100).map(|_| char::from(letters[random.random_range(0..letters.len())])).collect::<String>();
    let notes: StringArray = ids.iter().map(|_| Some(note())).collect();
    let mix = |id: &i64| id.wrapping_mul(0x9E37_79B9).wrapping_add(salt.wrapping_mul(7_919));
    let states = ["new", "paid", "shipped", "returned"];
    let status = |id: &i64| Some(states[usize::try_from(mix(id).rem_euclid(4)).unwrap()]);
    let amounts: Decimal128Array = ids.iter().map(|id| Some(i128::from(mix(id).rem_euclid(1_000_000)))).collect();
    let changed = |id: &i64| Some(1_700_000_000_000_000 + mix(id).rem_euclid(1 << 40));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(ids.iter().map(|id| i32::try_from(mix(id).rem_euclid(100_000)).ok()).collect::<Int32Array>()),
        Arc::new(ids.iter().map(status).collect::<StringArray>()),
        Arc::new(amounts.with_precision_and_scale(12, 2).unwrap()),
        Arc::new(ids.iter().map(changed).collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        Arc::new(notes),
    ];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

fn lake_in(folder: &Path) -> Lake {
    let config = LakeConfig { url: url::Url::from_directory_path(folder).unwrap(), options: Default::default() };
    Lake::open(&config).unwrap()
}

async fn changed_table(folder: &Path, schema: &Arc<TableSchema>, sizes: &Sizes, upkeep: bool) -> Lake {
    let start = Instant::now();
    let lake = lake_in(folder);
    let mut table = lake.create_table(schema, &CommitTag::default()).await.unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let loaded: Vec<i64> = (0..sizes.loaded()).collect();
    upsert(&mut table, schema, rows(schema, &loaded, 0), Operation::Update, 1).await;
    let (mut next, inserts) = (sizes.loaded(), sizes.inserts());
    for batch in 2..=sizes.batches {
        let mut ids: BTreeSet<i64> = (next..next + inserts).collect();
        let recent = (next - RECENT_BATCHES * inserts).max(0);
        ids.extend((0..inserts / 2).map(|_| random.random_range(recent..next)));
        ids.extend((0..inserts / 2).map(|_| random.random_range(0..sizes.loaded())));
        next += inserts;
        let ids: Vec<i64> = ids.into_iter().collect();
        upsert(&mut table, schema, rows(schema, &ids, batch), Operation::Update, batch).await;
        if upkeep {
            look_after(&mut table).await;
        }
    }
    println!("upkeep {upkeep}: {:?}, {:.1} s", table.stats(), start.elapsed().as_secs_f64());
    lake
}

/// The same rows in key order, in one commit.
async fn fresh_table(folder: &Path, schema: &Arc<TableSchema>, changed: &Lake) -> Lake {
    let context = SessionContext::new();
    context.register_table("t", open_ours(changed).await).unwrap();
    let batches = context.sql("select * from t order by id").await.unwrap().collect().await.unwrap();
    let target = schema.arrow_schema();
    let plain = batches.iter().map(|batch| {
        let columns = batch.columns().iter().zip(target.fields());
        let columns = columns.map(|(column, field)| arrow::compute::cast(column, field.data_type()).unwrap());
        RecordBatch::try_new(target.clone(), columns.collect()).unwrap()
    });
    let all = arrow::compute::concat_batches(&target, &plain.collect::<Vec<_>>()).unwrap();
    let lake = lake_in(folder);
    let mut table = lake.create_table(schema, &CommitTag::default()).await.unwrap();
    for (from, sequence) in (0..all.num_rows()).step_by(FILL_ROWS).zip(1..) {
        let part = all.slice(from, FILL_ROWS.min(all.num_rows() - from));
        upsert(&mut table, schema, part, Operation::Update, sequence).await;
    }
    println!("fresh: {:?}", table.stats());
    lake
}
