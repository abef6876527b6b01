//! The past of a table of 10 million rows with 1,000 versions of 1,000 changed rows each (any of the table's, and one hot key in
//! every twentieth), folded as a job folds it:
//! - `history`: all states of one key, of the hot one and of others, beside reading each version whole and beside asking each
//!   version for the key (both measured on some versions, and multiplied);
//! - `as of`: a query over all rows at an older consistent point, the finding of the point included, beside the same query on the
//!   newest version.
//!
//! `HISTORY_ROWS=200000 HISTORY_VERSIONS=50` makes a smaller table.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use alluvium::change::{Operation, ResumePoint, SourcePosition, TableId};
use alluvium::config::LakeConfig;
use alluvium::lake::{CommitTag, Lake, LakeScan, LakeTable, Point, PointState, PointTable, Points};
use alluvium::query::{MomentAsOf, QueryLimits, Session};
use alluvium::schema::{Column, TableSchema};
use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

mod orders;

use orders::{RULES, median, upsert};

const FILL_ROWS: i64 = 500_000;
const CHANGED_ROWS: usize = 1_000;
/// The hot key changes in each version whose number this divides.
const HOT_EVERY: i64 = 20;
const HOT: i64 = 4_242;
const REPEATS: usize = 5;
/// Versions that are read for comparison.
const SAMPLES: u64 = 8;
/// Points are folded where a job must not wait any longer.
const FOLD_EVERY: i64 = 64;
const JOB: &str = "bench";
const QUERY: &str = "SELECT status, count(*), sum(amount), max(note) FROM orders GROUP BY status";
const GOAL_HISTORY: f64 = 1.0 / 20.0;
const GOAL_AS_OF: f64 = 1.2;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse::<i64>().unwrap());
    runtime.block_on(measure(number("HISTORY_ROWS", 10_000_000), number("HISTORY_VERSIONS", 1_000)));
}

async fn measure(rows: i64, versions: i64) {
    let folder = tempfile::tempdir().unwrap();
    let config = LakeConfig {
        url: url::Url::from_directory_path(folder.path()).unwrap(),
        options: std::collections::BTreeMap::new(),
    };
    let lake = Lake::open(&config).unwrap();
    let table = make(&lake, rows, versions).await;
    let newest = u64::try_from(table.version()).unwrap();
    println!("{rows} rows, {newest} versions, {} files, {} MiB", table.stats().files, table.stats().bytes >> 20);

    let mut hot = Vec::new();
    let mut cold = Vec::new();
    for repeat in 0..REPEATS {
        hot.push(history(&lake, HOT, versions / HOT_EVERY).await);
        cold.push(history(&lake, rows / 7 + i64::try_from(repeat).unwrap(), 0).await);
    }
    let (hot, cold) = (median(hot), median(cold));
    let whole =
        each_version(&lake, newest, "SELECT count(id), max(customer), max(status), max(amount), max(note) FROM t")
            .await;
    let asked = each_version(&lake, newest, &format!("SELECT * FROM t WHERE id = {HOT}")).await;
    println!("history of the hot key: {hot:.0} ms, of another: {cold:.0} ms");
    println!("each version read whole: {whole:.0} ms, each asked for the key: {asked:.0} ms");

    let (now, then) = as_of(&config, folder.path(), versions).await;
    println!("query of all rows: {now:.1} ms on the newest version, {then:.1} ms at an older point");
    let (history_share, as_of_ratio) = (hot.max(cold) / whole, then / now);
    // At 1 or more, both goals are met.
    let ratio = (GOAL_HISTORY / history_share).min(GOAL_AS_OF / as_of_ratio);
    println!(
        "bench name=history ratio={ratio:.2} history_ms={hot:.0} share_of_whole={history_share:.4} \
         share_of_asked={:.3} as_of_ratio={as_of_ratio:.2}",
        hot.max(cold) / asked
    );
}

/// Milliseconds of one history, with the table opened anew.
async fn history(lake: &Lake, key: i64, updates_min: i64) -> f64 {
    let start = Instant::now();
    let table = lake.open_table(&id()).await.unwrap().unwrap();
    let history = table.history(&[key.to_string()]).await.unwrap();
    let took = start.elapsed().as_secs_f64() * 1e3;
    assert!(history.states.len() as i64 > updates_min.min(1) - 1, "{} states", history.states.len());
    took
}

/// Milliseconds of a query on every version, from some of them.
async fn each_version(lake: &Lake, newest: u64, sql: &str) -> f64 {
    let mut millis = Vec::new();
    for sample in 1..=SAMPLES {
        let version = newest * sample / SAMPLES;
        let start = Instant::now();
        let scan = LakeScan::open(lake, &id(), Some(version)).await.unwrap().unwrap();
        let context = SessionContext::new();
        context.register_table("t", Arc::new(scan)).unwrap();
        context.sql(sql).await.unwrap().collect().await.unwrap();
        millis.push(start.elapsed().as_secs_f64() * 1e3);
    }
    millis.iter().sum::<f64>() / millis.len() as f64 * newest as f64
}

async fn as_of(config: &LakeConfig, folder: &Path, versions: i64) -> (f64, f64) {
    let limits = QueryLimits { memory_bytes: 1 << 30, spill_dir: folder.join("spill") };
    let (mut now, mut then) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        for (is_then, millis) in [(false, &mut now), (true, &mut then)] {
            let start = Instant::now();
            let mut session = Session::open(config, vec![id()], &limits).unwrap().of_job(JOB);
            if is_then {
                let at = u64::try_from(versions * 3 / 4).unwrap();
                session.read_at(&MomentAsOf::Position(1, at)).await.unwrap();
            }
            let (_, rows) = session.sql(QUERY).await.unwrap();
            let batches: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 4);
            millis.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    (median(now), median(then))
}

async fn make(lake: &Lake, rows: i64, versions: i64) -> LakeTable {
    let schema = Arc::new(schema());
    let mut table = lake.create_table(&schema, &CommitTag::default()).await.unwrap();
    let points = Points::new(lake, JOB);
    let start = Instant::now();
    let mut sequence = 0;
    for from in (0..rows).step_by(usize::try_from(FILL_ROWS).unwrap()) {
        sequence += 1;
        let ids: Vec<i64> = (from..(from + FILL_ROWS).min(rows)).collect();
        upsert(&mut table, &schema, rows_of(&schema, &ids, sequence), Operation::Read, sequence).await;
    }
    let mut random = StdRng::seed_from_u64(7);
    for version in 1..=versions {
        sequence += 1;
        let mut ids: std::collections::BTreeSet<i64> =
            (0..CHANGED_ROWS).map(|_| random.random_range(0..rows)).collect();
        if version % HOT_EVERY == 0 {
            ids.insert(HOT);
        }
        let ids: Vec<i64> = ids.into_iter().collect();
        upsert(&mut table, &schema, rows_of(&schema, &ids, sequence), Operation::Update, sequence).await;
        points.put(&point(version, &table)).await.unwrap();
        if version % FOLD_EVERY == 0 {
            while table.compact(&RULES).await.unwrap().is_some() {}
            table.checkpoint().await.unwrap();
        }
    }
    points.fold(1).await.unwrap();
    println!("made in {:.0} s", start.elapsed().as_secs_f64());
    table
}

/// The point of a version: its position is its number.
fn point(version: i64, table: &LakeTable) -> Point {
    let number = u64::try_from(version).unwrap();
    let position = SourcePosition { order: (1, number), text: format!("bin.000001:{number}") };
    let end = ResumePoint { position, gtid_set: None };
    let of_table =
        PointTable { table: id(), version: u64::try_from(table.version()).ok(), state: PointState::Complete };
    Point::new(number, end, Some(version * 1_000_000), version * 1_000_000, vec![of_table])
}

fn id() -> TableId {
    TableId::new("shop", "orders")
}

fn schema() -> TableSchema {
    let column = |name: &str, data_type| Column::new(name, data_type, "");
    let columns = vec![
        column("id", DataType::Int64),
        column("customer", DataType::Int32),
        column("status", DataType::Utf8),
        column("amount", DataType::Decimal128(12, 2)),
        column("note", DataType::Utf8),
    ];
    TableSchema::new(id(), columns, vec![0])
}

fn mix(value: i64) -> u64 {
    let value = u64::from_ne_bytes(value.to_ne_bytes()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value ^ (value >> 31)
}

fn rows_of(schema: &TableSchema, ids: &[i64], salt: i64) -> RecordBatch {
    let below = |id: &i64, limit: u64| i64::try_from(mix(id ^ (salt << 40)) % limit).unwrap();
    let states = ["new", "paid", "shipped", "returned"];
    let amounts = ids.iter().map(|id| Some(i128::from(below(id, 1_000_000)))).collect::<Decimal128Array>();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids.iter().copied().map(Some).collect::<Int64Array>()),
        Arc::new(ids.iter().map(|id| i32::try_from(below(id, 100_000)).ok()).collect::<Int32Array>()),
        Arc::new(ids.iter().map(|id| Some(states[usize::try_from(below(id, 4)).unwrap()])).collect::<StringArray>()),
        Arc::new(amounts.with_precision_and_scale(12, 2).unwrap()),
        Arc::new(ids.iter().map(|id| Some(format!("{:016x}{:016x}", mix(*id), mix(id + 1)))).collect::<StringArray>()),
    ];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}
