//! A binlog of sysbench-like rows to Arrow, beside `mysql_common`'s own walk over the same rows and values.
//!
//! Half of the log's bytes are bulk inserts, half are transactions of sysbench's `oltp_write_only` (two updates, a
//! delete, an insert). Both sides read the same file, one event after the other, on one thread; row counts and a
//! checksum of one column are compared. `BENCH_MB` sets the log's size in megabytes (500).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

use alluvium::change::{Operation, ResumePoint, SourcePosition};
use alluvium::config::TableFilter;
use alluvium::source::SourceEvent;
use alluvium::source::mysql::binlog::{CHUNK_BYTES, Decoder, DecoderOptions};
use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use mysql_common::binlog::BinlogFile;
use mysql_common::binlog::consts::BinlogVersion;
use mysql_common::binlog::events::{EventData, RowsEventData};
use mysql_common::binlog::value::BinlogValue;

const REPEATS: usize = 3;
const READ_BYTES: usize = 1 << 20;

/// What both sides must agree on.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
struct Sum {
    rows: u64,
    /// Of column `k` in new images.
    k: i64,
}

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
    let mut file = BufReader::with_capacity(READ_BYTES, File::open(path).unwrap());
    file.read_exact(&mut [0; 4]).unwrap();
    let (mut event, mut sum) = (Vec::new(), Sum::default());
    loop {
        event.clear();
        file.by_ref().take(19).read_to_end(&mut event).unwrap();
        if event.is_empty() {
            break;
        }
        let size = u32::from_le_bytes(event[9..13].try_into().unwrap());
        file.by_ref().take(u64::from(size) - 19).read_to_end(&mut event).unwrap();
        decoder.feed(&event).unwrap();
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

/// Writes the log.
struct Writer {
    out: BufWriter<File>,
    offset: usize,
    event: Vec<u8>,
    state: u64,
    sum: Sum,
}

fn write_log(path: &Path, bytes: usize) -> Sum {
    let out = BufWriter::with_capacity(READ_BYTES, File::create(path).unwrap());
    let mut writer = Writer { out, offset: 4, event: Vec::new(), state: 1, sum: Sum::default() };
    writer.out.write_all(b"\xfebin").unwrap();
    writer.format_description();
    let (mut bulk, mut mixed, mut number) = (0, 0, 1u64);
    while writer.offset < bytes {
        let before = writer.offset;
        writer.begin(number);
        let is_bulk = bulk <= mixed;
        if is_bulk {
            writer.rows(30, 42);
        } else {
            for kind in [31, 31, 32, 30] {
                writer.rows(kind, 1);
            }
        }
        writer.emit(16, &number.to_le_bytes());
        *(if is_bulk { &mut bulk } else { &mut mixed }) += writer.offset - before;
        number += 1;
    }
    writer.out.flush().unwrap();
    writer.sum
}

impl Writer {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn emit(&mut self, kind: u8, body: &[u8]) {
        let size = 19 + body.len() + 4;
        self.event.clear();
        self.event.extend(1_700_000_000u32.to_le_bytes());
        self.event.push(kind);
        self.event.extend(1u32.to_le_bytes());
        self.event.extend((size as u32).to_le_bytes());
        self.event.extend(((self.offset + size) as u32).to_le_bytes());
        self.event.extend([0, 0]);
        self.event.extend(body);
        let checksum = crc32fast::hash(&self.event);
        self.event.extend(checksum.to_le_bytes());
        self.out.write_all(&self.event).unwrap();
        self.offset += size;
    }

    fn format_description(&mut self) {
        let mut body = vec![4, 0];
        body.extend(format!("{:\0<50}", "8.0.36").bytes());
        body.extend(1_700_000_000u32.to_le_bytes());
        body.push(19);
        let mut lengths = [0u8; 41];
        for (kind, length) in [(2, 13), (4, 8), (15, 98), (19, 8), (30, 10), (31, 10), (32, 10), (33, 42), (34, 42)] {
            lengths[kind - 1] = length;
        }
        body.extend(lengths);
        body.push(1);
        self.emit(15, &body);
    }

    fn begin(&mut self, number: u64) {
        let mut gtid = vec![1];
        gtid.extend([7; 16]);
        gtid.extend(number.to_le_bytes());
        gtid.push(2);
        gtid.extend((number - 1).to_le_bytes());
        gtid.extend(number.to_le_bytes());
        gtid.extend(&(1_700_000_000_000_000 + number).to_le_bytes()[..7]);
        gtid.push(100);
        self.emit(33, &gtid);
        let mut query = vec![0; 8];
        query.extend([4, 0, 0, 0, 0]);
        query.extend(b"shop\0BEGIN");
        self.emit(2, &query);
    }

    /// A TABLE_MAP with full metadata, then the rows: `id int primary key, k int, c char(120), pad char(60)`.
    fn rows(&mut self, kind: u8, count: usize) {
        let mut map = 90u64.to_le_bytes()[..6].to_vec();
        map.extend(b"\x01\x00\x04shop\x00\x06sbtest\x00\x04\x03\x03\xfe\xfe\x04\xee\xe0\xfe\xf0\x00");
        map.extend(b"\x01\x01\x00\x02\x01\x2d\x04\x0b\x02id\x01k\x01c\x03pad\x08\x01\x00");
        self.emit(19, &map);
        let mut body = 90u64.to_le_bytes()[..6].to_vec();
        body.extend([1, 0, 2, 0, 4, 0xff]);
        if kind == 31 {
            body.push(0xff);
        }
        for _ in 0..count {
            let id = self.next() as u32;
            for image in 0..if kind == 31 { 2 } else { 1 } {
                let k = (self.next() & 0xff_ffff) as u32;
                if kind != 32 && (kind != 31 || image == 1) {
                    self.sum.k += i64::from(k);
                }
                self.row(&mut body, id, k);
            }
            self.sum.rows += 1;
        }
        self.emit(kind, &body);
    }

    fn row(&mut self, body: &mut Vec<u8>, id: u32, k: u32) {
        body.push(0);
        body.extend(id.to_le_bytes());
        body.extend(k.to_le_bytes());
        body.extend(119u16.to_le_bytes());
        self.digits(body, 119);
        body.push(59);
        self.digits(body, 59);
    }

    /// sysbench fills its text with groups of digits.
    fn digits(&mut self, body: &mut Vec<u8>, count: usize) {
        let mut bits = 0;
        for index in 0..count {
            if index % 12 == 11 {
                body.push(b'-');
                continue;
            }
            if index % 12 == 0 {
                bits = self.next() << 31 | self.next();
            }
            body.push(b'0' + (bits % 10) as u8);
            bits /= 10;
        }
    }
}
