//! A binlog of sysbench-like rows to Arrow, beside `mysql_common`'s own walk over the same rows and values.
//!
//! Half of the log's bytes are bulk inserts, half are transactions of sysbench's `oltp_write_only` (two updates, a
//! delete, an insert). Both sides read the same file, one event after the other, on one thread; row counts and a
//! checksum of one column are compared. `BENCH_MB` sets the log's size in megabytes (500).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
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

mod sysbench;

use sysbench::{READ_BYTES, Sum, write_log};

const REPEATS: usize = 3;

fn main() {
    let megabytes: usize = std::env::var("BENCH_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.000001");
    let expected = write_log(&path, megabytes * 1_000_000);
    let mib = path.metadata().unwrap().len() as f64 / f64::from(1 << 20);
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        ours.push(timed(&path, expected, decode));
        peer.push(timed(&path, expected, walk));
    }
    let (ours, peer) = (median(ours), median(peer));
    println!("log of {mib:.0} MiB, {} changes, medians of {REPEATS}", expected.rows);
    println!("alluvium to Arrow:    {:7.1} MiB/s {:12.0} changes/s", mib / ours, expected.rows as f64 / ours);
    println!("mysql_common's walk:  {:7.1} MiB/s {:12.0} changes/s", mib / peer, expected.rows as f64 / peer);
    println!("bench name=decode ratio={:.1} ours={:.0} peer={:.0} unit=MiB/s", peer / ours, mib / ours, mib / peer);
}

fn timed(path: &Path, expected: Sum, run: fn(&Path) -> Sum) -> f64 {
    let start = Instant::now();
    let sum = run(path);
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(sum, expected, "both sides must see every row");
    seconds
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
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
        let SourceEvent::Rows(batch) = event else { continue };
        sum.rows += batch.operations.len() as u64;
        let k = batch.rows.column(1).as_primitive::<Int32Type>().values();
        let new = k.iter().zip(&batch.operations).filter(|(_, operation)| **operation != Operation::Delete);
        sum.k += new.map(|(k, _)| i64::from(*k)).sum::<i64>();
    }
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
                if let Some(BinlogValue::Value(mysql_common::value::Value::Int(k))) = row.as_ref(1) {
                    sum.k += k;
                }
            }
        }
    }
    sum
}
