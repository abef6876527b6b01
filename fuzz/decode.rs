//! Feeds the decoder mutated logs: `cargo test --bench fuzz -- <seconds> [seed]`.
//!
//! It starts from the recorded logs in `tests/data/binlog`, cuts them into events, damages, repeats, drops and swaps
//! those, and puts sizes and checksums right again for most of them, so that the damage gets past the frame. A panic
//! or an overflow ends it with the seed that does it again. It needs no nightly compiler and no sanitizer: the
//! decoder has no unsafe code.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use alluvium::change::{ResumePoint, SourcePosition};
use alluvium::config::TableFilter;
use alluvium::source::SourceEvent;
use alluvium::source::mysql::binlog::{Decoder, DecoderOptions};

const HEADER_BYTES: usize = 19;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` runs every bench target; this one is none.
    if arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let number = |index: usize| arguments.get(index).and_then(|argument| argument.parse::<u64>().ok());
    let seconds = number(0).unwrap_or(60);
    let mut seed = number(1).unwrap_or(1);
    let logs = recorded();
    let filter = TableFilter::new(["*.*"]).unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut runs, mut rows) = (0u64, 0u64);
    while Instant::now() < end {
        let log = mutate(&logs, &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        let attempt = std::panic::catch_unwind(|| decode(&log, filter.clone(), seed));
        match attempt {
            Ok(count) => rows += count,
            Err(_) => {
                println!("seed {seed} makes the decoder panic: cargo test --bench fuzz -- 1 {seed}");
                std::process::exit(1);
            }
        }
        runs += 1;
        seed += 1;
    }
    println!("fuzz: {runs} logs in {seconds} s, {rows} rows came through, no panic; the next seed is {seed}");
}

/// The events of every recorded log.
fn recorded() -> Vec<Vec<Vec<u8>>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/binlog");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "000001"));
    paths.sort();
    paths.iter().map(|path| split(&std::fs::read(path).unwrap())).collect()
}

fn split(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut events, mut rest) = (Vec::new(), &file[4..]);
    while rest.len() >= HEADER_BYTES {
        let size = u32::from_le_bytes(rest[9..13].try_into().unwrap()) as usize;
        events.push(rest[..size].to_vec());
        rest = &rest[size..];
    }
    events
}

fn mutate(logs: &[Vec<Vec<u8>>], random: &mut Random) -> Vec<Vec<u8>> {
    let mut log = logs[random.below(logs.len())].clone();
    for _ in 0..=random.below(4) {
        let (a, b) = (random.below(log.len()), random.below(log.len()));
        match random.below(12) {
            0 => log.swap(a, b),
            1 => drop(log.remove(a)),
            2 => log.insert(a, log[b].clone()),
            3 => {
                let other = &logs[random.below(logs.len())];
                log.insert(a, other[random.below(other.len())].clone());
            }
            _ => damage(&mut log[a], random),
        }
        if log.is_empty() {
            return log;
        }
    }
    log
}

/// Changes bytes of one event's body, and mostly puts its size and checksum right again.
fn damage(event: &mut Vec<u8>, random: &mut Random) {
    const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xfb, 0xfc, 0xfe, 0xff];
    let frame = if random.below(8) == 0 { 0 } else { HEADER_BYTES };
    for _ in 0..=random.below(3) {
        if event.len() <= HEADER_BYTES + 5 {
            break;
        }
        let at = frame + random.below(event.len() - frame);
        match random.below(6) {
            0 => event[at] ^= 1 << random.below(8),
            1 => event[at] = ODD[random.below(ODD.len())],
            2 => event[at] = random.next() as u8,
            3 => event.truncate(at.max(HEADER_BYTES + 5)),
            4 => event.insert(at, ODD[random.below(ODD.len())]),
            _ => {
                let from = random.below(event.len());
                let piece = event[from..(from + random.below(16)).min(event.len())].to_vec();
                let end = (at + piece.len()).min(event.len());
                event.splice(at..end, piece);
            }
        }
    }
    if random.below(10) > 0 && event.len() > HEADER_BYTES + 4 {
        let size = event.len() as u32;
        event[9..13].copy_from_slice(&size.to_le_bytes());
        let covered = event.len() - 4;
        let checksum = crc32fast::hash(&event[..covered]);
        event[covered..].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn decode(log: &[Vec<u8>], filter: TableFilter, seed: u64) -> u64 {
    let position = SourcePosition { order: (1, 4), text: "fuzz.000001:4".into() };
    let mut decoder = Decoder::new(DecoderOptions {
        filter,
        schemas: HashMap::new(),
        skip: HashSet::new(),
        keys: BTreeMap::new(),
        start: ResumePoint { position, gtid_set: None },
        chunk_bytes: [1, 100, 1 << 20][(seed % 3) as usize],
        chunk_rows: usize::MAX,
    });
    let mut rows = 0;
    for event in log {
        let fed = decoder.feed(event);
        rows += drain(&mut decoder);
        if fed.is_err() {
            return rows;
        }
    }
    let _ = decoder.flush();
    rows + drain(&mut decoder)
}

fn drain(decoder: &mut Decoder) -> u64 {
    let mut rows = 0;
    while let Ok(Some(event)) = decoder.next_event() {
        if let SourceEvent::Rows(batch) = event {
            batch.validate().expect("batches fit together");
            rows += batch.operations.len() as u64;
        }
    }
    rows
}
