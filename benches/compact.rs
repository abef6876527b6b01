//! Compaction of a table of many small files with deletion vectors: Alluvium's beside the `optimize` of the deltalake
//! crate, on copies of the same table. Each runs in a process of its own, whose peak of resident memory is taken from the
//! kernel. Afterwards all rows of all tables are compared.
//!
//! `COMPACT_MB` sets the size of the table in megabytes (200).

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use alluvium::change::{Operation, TableId};
use alluvium::config::LakeConfig;
use alluvium::lake::{CommitTag, CompactRules, Lake};
use alluvium::schema::{Column, TableSchema};
use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use datafusion::prelude::SessionContext;
use deltalake::DeltaTableBuilder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

mod orders;

use orders::{median, upsert};

const REPEATS: usize = 3;
/// Micro-batches that the table is written in: as many files, most of them with a deletion vector.
const BATCHES: u64 = 100;
/// Of the rows of a batch, those that change a row that is there.
const UPDATED_PERCENT: u64 = 30;
/// What a row takes in a file.
const ROW_BYTES: u64 = 115;
const FILE_BYTES: u64 = 256 << 20;
/// Tells a child process which side it is and where its table is.
const SIDE: &str = "COMPACT_SIDE";
const FOLDER: &str = "COMPACT_FOLDER";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Ok(side) = std::env::var(SIDE) {
        return runtime.block_on(compact(&side, &PathBuf::from(std::env::var(FOLDER).unwrap())));
    }
    let megabytes: u64 = std::env::var("COMPACT_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let mb = runtime.block_on(fill(&source, megabytes));
    let expected = runtime.block_on(fingerprint(&source));
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for repeat in 0..REPEATS {
        for (side, runs) in [("ours", &mut ours), ("peer", &mut peer)] {
            let copy = folder.path().join(format!("{side}{repeat}"));
            copy_folder(&source, &copy);
            let run = run(side, &copy);
            println!(
                "repeat {repeat}: {side} {:.2} s, peak {:.0} MiB, files left {}",
                run.seconds, run.peak_mib, run.files
            );
            runs.push(run);
            assert_eq!(runtime.block_on(fingerprint(&copy)), expected, "{side} changed the rows");
            std::fs::remove_dir_all(&copy).unwrap();
        }
    }
    println!("{expected}");
    let seconds = |runs: &[Run]| median(runs.iter().map(|run| run.seconds).collect());
    let peak = |runs: &[Run]| runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
    let (our_mb_s, peer_mb_s) = (mb / seconds(&ours), mb / seconds(&peer));
    println!(
        "bench name=compact ratio={:.2} memory={:.2} ours={our_mb_s:.1} peer={peer_mb_s:.1} unit=MB/s \
         ours_peak_mib={:.0} peer_peak_mib={:.0}",
        our_mb_s / peer_mb_s,
        peak(&ours) / peak(&peer),
        peak(&ours),
        peak(&peer)
    );
}

struct Run {
    seconds: f64,
    peak_mib: f64,
    files: u64,
}

/// One compaction in a process of its own, which prints its figures.
fn run(side: &str, folder: &Path) -> Run {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).env(SIDE, side).env(FOLDER, folder).output().unwrap();
    assert!(output.status.success(), "{side}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    Run { seconds: figures[0], peak_mib: figures[1] / 1024.0, files: figures[2] as u64 }
}

/// The child: compacts, and prints seconds, peak in KiB and the number of files left.
async fn compact(side: &str, folder: &Path) {
    let start = Instant::now();
    let files = if side == "ours" { compact_ours(folder).await } else { compact_peer(folder).await };
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("{seconds} {} {files}", line.trim().trim_end_matches(" kB"));
}

async fn compact_ours(folder: &Path) -> u64 {
    let mut table = lake(folder).open_table(&table_id()).await.unwrap().unwrap();
    let rules = CompactRules { file_bytes: FILE_BYTES, small_files: 8, deleted_percent: 20, by_level: true };
    while table.compact(&rules).await.unwrap().is_some() {}
    table.stats().files
}

async fn compact_peer(folder: &Path) -> u64 {
    let url = url::Url::from_directory_path(table_folder(folder)).unwrap();
    let table = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
    let target = std::num::NonZeroU64::new(FILE_BYTES).unwrap();
    let (table, _) = table.optimize().with_target_size(target).await.unwrap();
    table.get_file_uris().unwrap().count() as u64
}

fn table_id() -> TableId {
    TableId::new("shop", "orders")
}

fn table_folder(folder: &Path) -> PathBuf {
    folder.join("shop/orders")
}

fn lake(folder: &Path) -> Lake {
    let config = LakeConfig { url: url::Url::from_directory_path(folder).unwrap(), options: Default::default() };
    // What `run.memory: 256MiB` gives to the work on one table.
    Lake::open(&config).unwrap().with_memory(64 << 20)
}

fn schema() -> TableSchema {
    let column = |name: &str, data_type| Column::new(name, data_type, "");
    let columns = vec![
        column("id", DataType::Int64),
        column("customer", DataType::Int32),
        column("status", DataType::Utf8),
        column("note", DataType::Utf8),
    ];
    TableSchema::new(table_id(), columns, vec![0])
}

/// Writes the table batch by batch; gives its size in megabytes.
async fn fill(folder: &Path, megabytes: u64) -> f64 {
    let schema = Arc::new(schema());
    let mut table = lake(folder).create_table(&schema, &CommitTag::default()).await.unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let batch_rows = megabytes * 1_000_000 / ROW_BYTES / BATCHES;
    let updated = batch_rows * UPDATED_PERCENT / 100;
    let mut known: Vec<i64> = Vec::new();
    for batch in 1..=BATCHES {
        let mut ids: Vec<i64> = (0..batch_rows - updated).map(|_| random.random_range(0..i64::MAX)).collect();
        let new = ids.clone();
        if !known.is_empty() {
            ids.extend((0..updated).map(|_| known[random.random_range(0..known.len())]));
        }
        known.extend(new);
        ids.sort_unstable();
        ids.dedup();
        upsert(&mut table, &schema, rows(&schema, &ids, batch), Operation::Update, i64::try_from(batch).unwrap()).await;
    }
    let stats = table.stats();
    println!("{stats:?}");
    stats.bytes as f64 / 1e6
}

fn rows(schema: &TableSchema, ids: &[i64], salt: u64) -> RecordBatch {
    let mut random = StdRng::seed_from_u64(salt);
    let letters = b"abcdefghijklmnopqrstuvwxyz      ";
    let mut note = || (0..150).map(|_| char::from(letters[random.random_range(0..letters.len())])).collect::<String>();
    let notes: StringArray = ids.iter().map(|_| Some(note())).collect();
    let states = ["new", "paid", "shipped", "returned"];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(ids.iter().map(|id| i32::try_from(id.rem_euclid(100_000)).ok()).collect::<Int32Array>()),
        Arc::new(
            ids.iter().map(|id| Some(states[usize::try_from(id.rem_euclid(4)).unwrap()])).collect::<StringArray>(),
        ),
        Arc::new(notes),
    ];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (source, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if source.is_dir() {
            copy_folder(&source, &target);
        } else {
            std::fs::copy(&source, &target).unwrap();
        }
    }
}

/// Sums over every column of every row.
async fn fingerprint(folder: &Path) -> String {
    let url = url::Url::from_directory_path(table_folder(folder)).unwrap();
    let table = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
    let context = SessionContext::new();
    table.update_datafusion_session(&context.state()).unwrap();
    context.register_table("t", table.table_provider().await.unwrap()).unwrap();
    let sums = context
        .sql(
            "select count(*) as rows, count(distinct id) as ids, sum(id % 1000003 * 31 + customer) as customers, \
             sum((id % 1009) * length(status)) as states, \
             sum((id % 1009) * ascii(note) + length(note)) as notes, max(note) as last from t",
        )
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    arrow::util::pretty::pretty_format_batches(&sums).unwrap().to_string()
}
