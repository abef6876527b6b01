//! How the time of an upsert grows with the table: batches of 1,000 and 10,000 rows into tables of 1, 10 and 100
//! million rows of about 190 bytes, with keys that are
//! - `uniform`: whole numbers, any of the table's;
//! - `recent`: whole numbers, 95 % of them from the newest 5 % of the table;
//! - `uuid`: text, any of the table's.
//!
//! The tables are kept as a job keeps them: what upkeep is due after a batch is done, outside of the time that is measured. The exponent e of
//! time ~ rows^e is fitted over the three sizes. Each figure is the median of several batches on one open table. Bytes read and written are those that went through the store. `GROWTH_ROWS=1000000,10000000` takes other
//! sizes, `GROWTH_KEYS=uuid` one kind of key.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use alluvium::change::{Operation, TableId};
use alluvium::lake::{CommitTag, Lake, LakeTable};
use alluvium::schema::{Column, TableSchema};
use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::array::{StringBuilder, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use object_store::local::LocalFileSystem;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

mod counting;
mod orders;

use counting::CountingStore;
use orders::median;

const BATCHES: [usize; 2] = [1_000, 10_000];
const REPEATS: usize = 7;
/// Rows per commit while the tables are filled, in key order as a first load has them.
const FILL_ROWS: u64 = 500_000;
/// Of a recent batch, the share that comes from the newest part of the table, and that part, in percent.
const RECENT_PERCENT: usize = 95;
const NEWEST_PERCENT: u64 = 5;
const GOAL_RECENT: f64 = 0.15;
const GOAL_UNIFORM: f64 = 0.35;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Keys {
    Uniform,
    Recent,
    Uuid,
}

impl Keys {
    fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Recent => "recent",
            Self::Uuid => "uuid",
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let sizes: Vec<u64> = std::env::var("GROWTH_ROWS").map_or_else(
        |_| vec![1_000_000, 10_000_000, 100_000_000],
        |text| text.split(',').map(|rows| rows.trim().parse().unwrap()).collect(),
    );
    let wanted = std::env::var("GROWTH_KEYS").ok();
    let is_wanted = |keys: &Keys| wanted.as_deref().is_none_or(|name| name == keys.name());
    // By kind of key and batch size: rows of the table and milliseconds.
    let mut times: BTreeMap<(Keys, usize), Vec<(f64, f64)>> = BTreeMap::new();
    for rows in sizes {
        for kinds in [&[Keys::Uniform, Keys::Recent][..], &[Keys::Uuid]] {
            let kinds: Vec<Keys> = kinds.iter().copied().filter(is_wanted).collect();
            if !kinds.is_empty() {
                runtime.block_on(measure(rows, &kinds, &mut times));
            }
        }
    }
    report(&times);
}

fn report(times: &BTreeMap<(Keys, usize), Vec<(f64, f64)>>) {
    let mut worst: BTreeMap<Keys, f64> = BTreeMap::new();
    for ((keys, batch), points) in times {
        let e = exponent(points);
        println!("{} keys, batches of {batch}: time ~ rows^{e:.2}", keys.name());
        let known = worst.entry(*keys).or_insert(e);
        *known = known.max(e);
    }
    let of = |keys| worst.get(&keys).copied().unwrap_or(0.0);
    let (recent, uniform) = (of(Keys::Recent), of(Keys::Uniform).max(of(Keys::Uuid)));
    // At 1 or more, both goals are met.
    let ratio = (GOAL_RECENT / recent.max(0.01)).min(GOAL_UNIFORM / uniform.max(0.01));
    println!(
        "bench name=upsert-growth ratio={ratio:.2} e_recent={recent:.2} e_uniform={uniform:.2} peak_mib={}",
        peak_mib()
    );
}

/// The slope of the line through the logarithms, by least squares.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let points: Vec<(f64, f64)> = points.iter().map(|(rows, time)| (rows.ln(), time.ln())).collect();
    let count = points.len() as f64;
    let (mean_x, mean_y) =
        (points.iter().map(|p| p.0).sum::<f64>() / count, points.iter().map(|p| p.1).sum::<f64>() / count);
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if variance == 0.0 { 0.0 } else { covariance / variance }
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

async fn measure(rows: u64, kinds: &[Keys], times: &mut BTreeMap<(Keys, usize), Vec<(f64, f64)>>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(CountingStore::new(LocalFileSystem::new()));
    let lake = Lake::with_store(url::Url::from_directory_path(folder.path()).unwrap(), store.clone());
    let is_uuid = kinds.contains(&Keys::Uuid);
    let schema = Arc::new(schema(is_uuid));
    let mut table = lake.create_table(&schema, &CommitTag::default()).await.unwrap();
    let start = Instant::now();
    let mut sequence = 0;
    for from in (0..rows).step_by(usize::try_from(FILL_ROWS).unwrap()) {
        sequence += 1;
        let ids: Vec<u64> = (from..(from + FILL_ROWS).min(rows)).collect();
        upsert(&mut table, &schema, &ids, rows, Operation::Read, sequence).await;
        orders::look_after(&mut table).await;
    }
    let stats = table.stats();
    println!(
        "table of {rows} rows: {} files, {} MiB, filled in {:.0} s",
        stats.files,
        stats.bytes >> 20,
        start.elapsed().as_secs_f64()
    );
    let mut random = StdRng::seed_from_u64(rows);
    for keys in kinds {
        for batch in BATCHES {
            let (mut millis, mut read, mut written) = (Vec::new(), Vec::new(), Vec::new());
            // The first batch opens footers; a run does that once.
            for repeat in 0..=REPEATS {
                let ids = pick(&mut random, rows, batch, *keys);
                sequence += 1;
                store.reset();
                let took = upsert(&mut table, &schema, &ids, rows, Operation::Update, sequence).await;
                if repeat > 0 {
                    millis.push(took);
                    read.push(store.read() as f64);
                    written.push(store.written() as f64);
                }
                orders::look_after(&mut table).await;
            }
            let millis = median(millis);
            println!(
                "{rows} rows, {batch} {} keys: {millis:.1} ms, {:.2} MiB read, {:.2} MiB written",
                keys.name(),
                median(read) / f64::from(1 << 20),
                median(written) / f64::from(1 << 20)
            );
            times.entry((*keys, batch)).or_default().push((rows as f64, millis));
        }
    }
    assert_eq!(table.stats().rows, rows, "an update must neither add nor lose a row");
}

/// Numbers of rows, each once.
fn pick(random: &mut StdRng, rows: u64, count: usize, keys: Keys) -> Vec<u64> {
    let newest = rows - rows * NEWEST_PERCENT / 100;
    let recent = if keys == Keys::Recent { count * RECENT_PERCENT / 100 } else { 0 };
    assert!(rows >= 200_000, "a batch of recent keys needs a table of 200,000 rows or more");
    let mut ids = std::collections::BTreeSet::new();
    while ids.len() < recent {
        ids.insert(random.random_range(newest..rows));
    }
    while ids.len() < count {
        ids.insert(random.random_range(0..rows));
    }
    ids.into_iter().collect()
}

fn schema(is_uuid: bool) -> TableSchema {
    let column = |name: &str, data_type| Column::new(name, data_type, "");
    let columns = vec![
        column("id", if is_uuid { DataType::Utf8 } else { DataType::Int64 }),
        column("customer", DataType::Int32),
        column("status", DataType::Utf8),
        column("amount", DataType::Decimal128(12, 2)),
        column("changed", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        column("note", DataType::Utf8),
    ];
    TableSchema::new(TableId::new("shop", "orders"), columns, vec![0])
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A UUID for each row; in the order of the rows, so that a table can be filled in key order.
fn uuid(id: u64, rows: u64) -> String {
    let high = u64::MAX / rows * id + mix(id) % (u64::MAX / rows);
    let low = mix(id ^ 0x5555);
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

fn rows_of(schema: &TableSchema, ids: &[u64], rows: u64, salt: u64) -> RecordBatch {
    let is_uuid = schema.columns[0].data_type == DataType::Utf8;
    let key: ArrayRef = if is_uuid {
        Arc::new(ids.iter().map(|id| Some(uuid(*id, rows))).collect::<StringArray>())
    } else {
        Arc::new(ids.iter().map(|id| i64::try_from(*id).ok()).collect::<Int64Array>())
    };
    let states = ["new", "paid", "shipped", "returned"];
    let hash = |id: &u64| mix(id.wrapping_mul(31).wrapping_add(salt));
    let below = |id: &u64, limit: u64| i64::try_from(hash(id) % limit).unwrap();
    let mut notes = StringBuilder::with_capacity(ids.len(), ids.len() * 144);
    for id in ids {
        let note: String = (0..9).map(|part| format!("{:016x}", hash(&(id ^ (part << 40))))).collect();
        notes.append_value(note);
    }
    let columns: Vec<ArrayRef> = vec![
        key,
        Arc::new(ids.iter().map(|id| i32::try_from(below(id, 100_000)).ok()).collect::<Int32Array>()),
        Arc::new(ids.iter().map(|id| Some(states[usize::try_from(below(id, 4)).unwrap()])).collect::<StringArray>()),
        Arc::new(
            ids.iter()
                .map(|id| Some(i128::from(below(id, 1_000_000))))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(
            ids.iter()
                .map(|id| Some(1_700_000_000_000_000 + below(id, 1 << 40)))
                .collect::<TimestampMicrosecondArray>()
                .with_timezone("UTC"),
        ),
        Arc::new(notes.finish()),
    ];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

/// Milliseconds, without the making of the rows.
async fn upsert(
    table: &mut LakeTable,
    schema: &Arc<TableSchema>,
    ids: &[u64],
    rows: u64,
    operation: Operation,
    sequence: i64,
) -> f64 {
    let rows = rows_of(schema, ids, rows, u64::try_from(sequence).unwrap());
    let start = Instant::now();
    orders::upsert(table, schema, rows, operation, sequence).await;
    start.elapsed().as_secs_f64() * 1e3
}
