//! Binlogs to Arrow, beside `mysql_common`'s own walk over the same rows and values. Four logs:
//! - `sysbench`: half of its bytes bulk inserts, half transactions of sysbench's `oltp_write_only`;
//! - `tpcc`, `bulk` and `wide`, recorded from a MySQL of this bench's own: orders with their lines and stock in the manner of
//!   TPC-C; inserts of 1,000 rows; rows of 24 columns with documents, decimals and times, inserted and updated.
//!
//! Both sides read the same files, one event after the other, on one thread; row counts and a checksum of one column are compared.
//! Where `tests/servers/install.sh peers` has put Debezium's jars, its binlog reader walks the recorded logs too.
//! `BENCH_MB` sets the size of the first log in megabytes (500), `BENCH_EVENTS` the rows of the other three together (3,750,000),
//! `BENCH_SHAPES=sysbench,wide` takes some of the logs.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use alluvium::change::{Operation, ResumePoint, SourcePosition};
use alluvium::config::TableFilter;
use alluvium::source::SourceEvent;
use alluvium::source::mysql::binlog::{CHUNK_BYTES, Decoder, DecoderOptions, EventReader};
use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use mysql_common::binlog::BinlogFile;
use mysql_common::binlog::consts::BinlogVersion;
use mysql_common::binlog::events::{EventData, RowsEventData};
use mysql_common::binlog::value::BinlogValue;

mod server;
mod shapes;
mod sysbench;

use server::Server;
use sysbench::{READ_BYTES, Sum, write_log};

const REPEATS: usize = 3;
/// The column of the checksum: a number in every table.
const SUMMED: usize = 1;

/// A log in one or more files.
struct Log {
    name: &'static str,
    files: Vec<PathBuf>,
}

/// Seconds that each side took for a log.
struct Measured {
    name: &'static str,
    mib: f64,
    rows: f64,
    ours: f64,
    peer: f64,
}

fn main() {
    let wanted = std::env::var("BENCH_SHAPES").unwrap_or_else(|_| "sysbench,tpcc,bulk,wide".into());
    let is_wanted = |name: &str| wanted.split(',').any(|wanted| wanted == name);
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut measured = Vec::new();
    if is_wanted("sysbench") {
        let path = folder.path().join("bench.000001");
        let expected = write_log(&path, usize::try_from(number("BENCH_MB", 500)).unwrap() * 1_000_000);
        measured.push(measure(&Log { name: "sysbench", files: vec![path] }, Some(expected)));
    }
    let shapes: Vec<_> = shapes::ALL.into_iter().filter(|shape| is_wanted(shape.name)).collect();
    if !shapes.is_empty() {
        let server = Server::start("mysql", &folder.path().join("server"), &["--innodb-buffer-pool-size=1G"]);
        let rows = number("BENCH_EVENTS", 3_750_000) / shapes::ALL.len() as u64;
        shapes::prepare(&server);
        for shape in shapes {
            let files = server.logged(|server| shape.write(server, rows));
            let log = Log { name: shape.name, files };
            let sides = measure(&log, None);
            debezium(&log, &sides);
            log.files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
            measured.push(sides);
        }
    }
    let worst = measured.iter().min_by(|a, b| (a.peer / a.ours).total_cmp(&(b.peer / b.ours))).unwrap();
    let slowest = measured.iter().map(|sides| sides.mib / sides.ours).fold(f64::INFINITY, f64::min);
    println!(
        "bench name=decode ratio={:.1} shape={} ours={:.0} peer={:.0} unit=MiB/s slowest_mib_s={slowest:.0}",
        worst.peer / worst.ours,
        worst.name,
        worst.mib / worst.ours,
        worst.mib / worst.peer
    );
}

fn measure(log: &Log, expected: Option<Sum>) -> Measured {
    let bytes: u64 = log.files.iter().map(|file| file.metadata().unwrap().len()).sum();
    let expected = expected.unwrap_or_else(|| all(log, walk));
    let median_of = |side| median((0..REPEATS).map(|_| timed(log, expected, side)).collect());
    let (ours, peer) = (median_of(decode), median_of(walk));
    let (mib, rows) = (bytes as f64 / f64::from(1 << 20), expected.rows as f64);
    println!("{}: {mib:.0} MiB, {rows} changes, medians of {REPEATS}", log.name);
    println!("  alluvium to Arrow:    {:7.1} MiB/s {:12.0} changes/s", mib / ours, rows / ours);
    println!(
        "  mysql_common's walk:  {:7.1} MiB/s {:12.0} changes/s, {:.1} times our time",
        mib / peer,
        rows / peer,
        peer / ours
    );
    Measured { name: log.name, mib, rows, ours, peer }
}

fn timed(log: &Log, expected: Sum, side: fn(&Path) -> Sum) -> f64 {
    let start = Instant::now();
    let sum = all(log, side);
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(sum, expected, "{}: both sides must see every row", log.name);
    seconds
}

fn all(log: &Log, side: fn(&Path) -> Sum) -> Sum {
    let mut sum = Sum::default();
    for part in log.files.iter().map(|file| side(file)) {
        sum.rows += part.rows;
        sum.k += part.k;
    }
    sum
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Debezium's reader of log files over the same log, all values deserialized, on one core as the others (its garbage collector and
/// compiler would take a second one); its process starts beforehand.
fn debezium(log: &Log, sides: &Measured) {
    let cache = std::env::var("ALLUVIUM_CACHE")
        .map_or_else(|_| PathBuf::from(std::env::var("HOME").unwrap()).join(".cache/alluvium"), PathBuf::from);
    let find = |pattern: &str| {
        let found = Command::new("find").arg(cache.join("peers-venv")).args(["-name", pattern]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().next().map(str::to_string)
    };
    let Some(jar) = find("mysql-binlog-connector-java-*.jar") else {
        println!("  Debezium's reader: not here (tests/servers/install.sh peers)");
        return;
    };
    let class_path = format!("{}/*", Path::new(&jar).parent().unwrap().display());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/DebeziumWalk.java");
    let output = Command::new("taskset")
        .args(["-c", "0", "java", "-cp", &class_path])
        .arg(source)
        .args(&log.files)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let [rows, seconds]: [f64; 2] =
        text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(rows, sides.rows, "{}: Debezium's reader must see every row", log.name);
    println!(
        "  Debezium's reader:    {:7.1} MiB/s {:12.0} changes/s, {:.1} times our time",
        sides.mib / seconds,
        rows / seconds,
        seconds / sides.ours
    );
}

/// Ours.
fn decode(path: &Path) -> Sum {
    let position = SourcePosition { order: (1, 4), text: "bench.000001:4".into() };
    let mut decoder = Decoder::new(DecoderOptions {
        filter: TableFilter::new(["*.*"]).unwrap(),
        schemas: HashMap::new(),
        skip: HashSet::new(),
        keys: BTreeMap::new(),
        start: ResumePoint { position, gtid_set: None },
        chunk_bytes: CHUNK_BYTES,
        chunk_rows: usize::MAX,
    });
    let mut file = File::open(path).unwrap();
    file.read_exact(&mut [0; 4]).unwrap();
    let (mut events, mut sum) = (EventReader::new(file), Sum::default());
    while let Some(event) = events.next_event().unwrap() {
        decoder.feed(event).unwrap();
        drain(&mut decoder, &mut sum);
    }
    decoder.flush().unwrap();
    drain(&mut decoder, &mut sum);
    sum
}

fn drain(decoder: &mut Decoder, sum: &mut Sum) {
    while let Some(event) = decoder.next_event().unwrap() {
        let batch = match event {
            SourceEvent::Rows(batch) => batch,
            SourceEvent::TableStopped(stopped) => panic_on(&stopped.reason),
            _ => continue,
        };
        sum.rows += batch.operations.len() as u64;
        let k = batch.rows.column(SUMMED).as_primitive::<Int32Type>().values();
        let new = k.iter().zip(&batch.operations).filter(|(_, operation)| **operation != Operation::Delete);
        sum.k += new.map(|(k, _)| i64::from(*k)).sum::<i64>();
    }
}

#[allow(clippy::panic)]
fn panic_on(reason: &str) -> ! {
    panic!("a table was taken out: {reason}")
}

/// The peer's: every row, every value.
fn walk(path: &Path) -> Sum {
    let file = BufReader::with_capacity(READ_BYTES, File::open(path).unwrap());
    let mut log = BinlogFile::new(BinlogVersion::Version4, file).unwrap();
    let mut sum = Sum::default();
    while let Some(event) = log.next() {
        let event = event.unwrap();
        let Some(EventData::RowsEvent(data)) = event.read_data().unwrap() else { continue };
        let rows = match &data {
            RowsEventData::WriteRowsEvent(rows) => rows.rows(log.reader().get_tme(rows.table_id()).unwrap()),
            RowsEventData::UpdateRowsEvent(rows) => rows.rows(log.reader().get_tme(rows.table_id()).unwrap()),
            RowsEventData::DeleteRowsEvent(rows) => rows.rows(log.reader().get_tme(rows.table_id()).unwrap()),
            _ => continue,
        };
        for row in rows {
            let (before, after) = row.unwrap();
            sum.rows += 1;
            for row in [before].into_iter().flatten() {
                for index in 0..row.len() {
                    std::hint::black_box(row.as_ref(index));
                }
            }
            for row in [after].into_iter().flatten() {
                for index in 0..row.len() {
                    std::hint::black_box(row.as_ref(index));
                }
                if let Some(BinlogValue::Value(mysql_common::value::Value::Int(k))) = row.as_ref(SUMMED) {
                    sum.k += k;
                }
            }
        }
    }
    sum
}
