//! Upserts of 10,000 random keys into tables of 1 and 10 million rows (6 columns, about 190 bytes a row): Alluvium's
//! merge-on-read beside the `merge` of the deltalake crate, on tables with the same rows. Both open their table once
//! and keep it open; each repeat gives both the same changes; at the end all rows of both tables are compared.
//!
//! `UPSERT_ROWS=100000` makes one small table instead.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use alluvium::change::{Operation, TableId};
use alluvium::config::LakeConfig;
use alluvium::lake::{CommitTag, Lake, LakeTable};
use alluvium::schema::{Column, TableSchema};
use arrow::array::{
    ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::prelude::{SessionContext, col};
use deltalake::protocol::SaveMode;
use deltalake::{DeltaTable, DeltaTableBuilder};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

mod orders;

use orders::{median, upsert};

const KEYS: usize = 10_000;
const REPEATS: u64 = 5;
/// Rows per commit while the tables are filled.
const FILL_ROWS: i64 = 500_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let sizes = match std::env::var("UPSERT_ROWS") {
        Ok(rows) => vec![rows.parse().unwrap()],
        Err(_) => vec![1_000_000, 10_000_000],
    };
    for rows in sizes {
        runtime.block_on(compare(rows));
    }
}

async fn compare(rows: i64) {
    let folder = tempfile::tempdir().unwrap();
    let schema = Arc::new(schema());
    let mut ours = our_table(&folder.path().join("ours"), &schema, rows).await;
    let mut peer = peer_table(&folder.path().join("peer"), &schema, rows).await;
    let (mut our_times, mut peer_times) = (Vec::new(), Vec::new());
    for repeat in 1..=REPEATS {
        let changes = random_rows(&schema, rows, repeat);
        let start = Instant::now();
        upsert(&mut ours, &schema, changes.clone(), Operation::Update, i64::try_from(repeat).unwrap() + rows).await;
        our_times.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        peer = merge(peer, changes).await;
        peer_times.push(start.elapsed().as_secs_f64() * 1e3);
        println!(
            "{rows} rows, repeat {repeat}: ours {:.0} ms, peer {:.0} ms",
            our_times.last().unwrap(),
            peer_times.last().unwrap()
        );
    }
    let (ours_ms, peer_ms) = (median(our_times), median(peer_times));
    let ours = fingerprint(&folder.path().join("ours/shop/orders")).await;
    assert_eq!(ours, fingerprint(&folder.path().join("peer")).await, "the tables differ");
    println!("{ours}");
    println!("bench name=upsert ratio={:.1} ours_ms={ours_ms:.0} peer_ms={peer_ms:.0} rows={rows}", peer_ms / ours_ms);
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
    TableSchema::new(TableId::new("shop", "orders"), columns, vec![0])
}

/// One row per id; `salt` changes all other columns.
fn rows(schema: &TableSchema, ids: &[i64], salt: u64) -> RecordBatch {
    let mut random = StdRng::seed_from_u64(salt ^ ids.first().copied().unwrap_or(0).unsigned_abs());
    let letters = b"abcdefghijklmnopqrstuvwxyz      ";
    let mut note = || (0..150).map(|_| char::from(letters[random.random_range(0..letters.len())])).collect::<String>();
    let notes: StringArray = ids.iter().map(|_| Some(note())).collect();
    let mix = |id: &i64| id.wrapping_mul(0x9E37_79B9).wrapping_add(i64::try_from(salt).unwrap());
    let states = ["new", "paid", "shipped", "returned"];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(ids.iter().map(|id| i32::try_from(mix(id).rem_euclid(100_000)).ok()).collect::<Int32Array>()),
        Arc::new(
            ids.iter().map(|id| Some(states[usize::try_from(mix(id).rem_euclid(4)).unwrap()])).collect::<StringArray>(),
        ),
        Arc::new(
            ids.iter()
                .map(|id| Some(i128::from(mix(id).rem_euclid(1_000_000))))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(
            ids.iter()
                .map(|id| Some(1_700_000_000_000_000 + mix(id).rem_euclid(1 << 40)))
                .collect::<TimestampMicrosecondArray>()
                .with_timezone("UTC"),
        ),
        Arc::new(notes),
    ];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

fn random_rows(schema: &TableSchema, rows_max: i64, seed: u64) -> RecordBatch {
    let mut random = StdRng::seed_from_u64(seed);
    let picked = rand::seq::index::sample(
        &mut random,
        usize::try_from(rows_max).unwrap(),
        KEYS.min(usize::try_from(rows_max).unwrap()),
    );
    let ids: Vec<i64> = picked.iter().map(|id| i64::try_from(id).unwrap()).collect();
    rows(schema, &ids, seed)
}

fn chunks(rows_max: i64) -> impl Iterator<Item = Vec<i64>> {
    (0..rows_max)
        .step_by(usize::try_from(FILL_ROWS).unwrap())
        .map(move |from| (from..(from + FILL_ROWS).min(rows_max)).collect())
}

async fn our_table(folder: &Path, schema: &Arc<TableSchema>, rows_max: i64) -> LakeTable {
    let config = LakeConfig { url: url::Url::from_directory_path(folder).unwrap(), options: Default::default() };
    let lake = Lake::open(&config).unwrap();
    let mut table = lake.create_table(schema, &CommitTag::default()).await.unwrap();
    for (ids, sequence) in chunks(rows_max).zip(1..) {
        upsert(&mut table, schema, rows(schema, &ids, 0), Operation::Read, sequence).await;
    }
    table
}

async fn peer_table(folder: &Path, schema: &TableSchema, rows_max: i64) -> DeltaTable {
    std::fs::create_dir_all(folder).unwrap();
    let mut table =
        DeltaTableBuilder::from_url(url::Url::from_directory_path(folder).unwrap()).unwrap().build().unwrap();
    for ids in chunks(rows_max) {
        table = table.write([rows(schema, &ids, 0)]).with_save_mode(SaveMode::Append).await.unwrap();
    }
    table
}

async fn merge(table: DeltaTable, rows: RecordBatch) -> DeltaTable {
    let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
    let source = SessionContext::new().read_batch(rows).unwrap();
    let (table, _) = table
        .merge(source, col("target.id").eq(col("source.id")))
        .with_source_alias("source")
        .with_target_alias("target")
        .when_matched_update(|update| {
            names.iter().fold(update, |update, name| update.update(name, col(format!("source.{name}"))))
        })
        .unwrap()
        .when_not_matched_insert(|insert| {
            names.iter().fold(insert, |insert, name| insert.set(name, col(format!("source.{name}"))))
        })
        .unwrap()
        .await
        .unwrap();
    table
}

/// Sums over every column of every row.
async fn fingerprint(folder: &Path) -> String {
    let url = url::Url::from_directory_path(folder).unwrap();
    let table = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
    let context = SessionContext::new();
    table.update_datafusion_session(&context.state()).unwrap();
    context.register_table("t", table.table_provider().await.unwrap()).unwrap();
    let sums = context
        .sql(
            "select count(*) as rows, count(distinct id) as ids, sum(id * 31 + customer) as customers, \
             sum((id % 1009) * length(status)) as states, sum((id % 1009) * amount) as amounts, \
             sum((id % 1009) * (cast(changed as bigint) % 1000003)) as times, \
             sum((id % 1009) * ascii(note) + length(note)) as notes, max(note) as last from t",
        )
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    arrow::util::pretty::pretty_format_batches(&sums).unwrap().to_string()
}
