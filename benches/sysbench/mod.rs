//! A binlog of sysbench-like rows, as a MySQL 8 server would write it: half of its bytes bulk inserts, half
//! transactions of sysbench's `oltp_write_only` (two updates, a delete, an insert).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

pub const READ_BYTES: usize = 1 << 20;

/// What both sides must agree on.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub struct Sum {
    pub rows: u64,
    /// Of column `k` in new images.
    pub k: i64,
}

/// Writes the log.
struct Writer {
    out: BufWriter<File>,
    offset: usize,
    event: Vec<u8>,
    state: u64,
    sum: Sum,
}

/// Writes a log of about so many bytes; what its rows sum up to.
pub fn write_log(path: &Path, bytes: usize) -> Sum {
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
