//! What is folded, over tables of which only the log exists: thousands of batches in a moment.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use deltalake::kernel::{Add, DeletionVectorDescriptor, StorageType};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::plan::{CompactRules, Group, LEVEL_TAG, RUN_TAG};
use crate::change::TableId;
use crate::lake::files::{FileEntry, FileMap};
use crate::lake::locate::{KeyRange, KeySpace};
use crate::schema::Column;

const RULES: CompactRules = CompactRules { file_bytes: 64_000, small_files: 4, deleted_percent: 20, by_level: true };
const ROW_BYTES: u64 = 100;

/// A table without rows.
struct Paper {
    space: KeySpace,
    files: FileMap,
    /// How often the rows of each file were folded at most.
    folded: HashMap<String, u32>,
    rows_copied: u64,
    random: StdRng,
    next: u64,
}

#[derive(Clone, Copy)]
struct Content {
    rows: u64,
    deleted: u64,
    low: i64,
    high: i64,
}

fn bounds(file: &FileEntry) -> (i64, i64) {
    match file.range {
        Some(KeyRange::Integer(low, high)) => (low, high),
        _ => panic!("the files of the test have bounds"),
    }
}

impl Paper {
    fn new(seed: u64) -> Self {
        let id = Column { nullable: false, ..Column::new("id", DataType::Int64, "") };
        let space = KeySpace::new(TableId::new("shop", "orders"), vec![id]).unwrap();
        let random = StdRng::seed_from_u64(seed);
        Self { space, files: FileMap::new(), folded: HashMap::new(), rows_copied: 0, random, next: 0 }
    }

    fn put(&mut self, path: String, content: Content, partition: &str, tags: Option<(u32, String)>) {
        let vector = (content.deleted > 0).then(|| DeletionVectorDescriptor {
            storage_type: StorageType::Inline,
            path_or_inline_dv: String::new(),
            offset: None,
            size_in_bytes: 0,
            cardinality: content.deleted as i64,
        });
        let stats = json!({
            "numRecords": content.rows, "minValues": { "id": content.low }, "maxValues": { "id": content.high },
        });
        let add = Add {
            path: path.clone(),
            size: (content.rows * ROW_BYTES) as i64,
            stats: Some(stats.to_string()),
            partition_values: HashMap::from([("p".to_string(), Some(partition.to_string()))]),
            deletion_vector: vector,
            tags: tags.map(|(level, run)| {
                HashMap::from([(LEVEL_TAG.into(), Some(level.to_string())), (RUN_TAG.into(), Some(run))])
            }),
            ..Add::default()
        };
        self.files.insert(path, Arc::new(FileEntry::new(add, &self.space).unwrap()));
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("f{:06}", self.next)
    }

    /// A batch of new keys: one file, all over the table or at its end.
    fn batch(&mut self, is_ascending: bool, partition: &str) {
        let rows = self.random.random_range(1..=20);
        let at = if is_ascending { self.next as i64 * 20 } else { self.random.random_range(0..1_000) };
        let high = if is_ascending { at + 19 } else { at + 100_000 };
        let path = self.name();
        self.folded.insert(path.clone(), 0);
        self.put(path, Content { rows, deleted: 0, low: at, high }, partition, None);
    }

    /// Deletes some rows of a file.
    fn delete(&mut self) {
        let index = self.random.random_range(0..self.files.len());
        let Some(file) = self.files.values().nth(index).cloned() else { return };
        let (rows, deleted) = (file.rows.unwrap(), file.deleted_rows());
        let deleted = deleted + self.random.random_range(1..=(rows - deleted));
        if deleted == rows {
            self.files.remove(&file.add.path);
            return;
        }
        let partition = file.add.partition_values["p"].clone().unwrap();
        let mut add = file.add.clone();
        add.deletion_vector = Some(DeletionVectorDescriptor {
            storage_type: StorageType::Inline,
            path_or_inline_dv: String::new(),
            offset: None,
            size_in_bytes: 0,
            cardinality: deleted as i64,
        });
        assert_eq!(add.partition_values["p"].as_ref(), Some(&partition));
        self.files.insert(add.path.clone(), Arc::new(FileEntry::new(add, &self.space).unwrap()));
    }

    /// Does what the plan says, as a writer that cuts files well does.
    fn fold(&mut self, group: &Group) {
        let partition = group.files[0].add.partition_values["p"].clone().unwrap();
        assert!(group.files.iter().all(|file| file.add.partition_values["p"].as_ref() == Some(&partition)));
        let by_level = group.files.iter().map(|file| RULES.level(file)).max().unwrap() < group.level;
        let times = group.files.iter().map(|file| self.folded[&file.add.path]).max().unwrap();
        let rows: u64 = group.files.iter().map(|file| file.rows.unwrap() - file.deleted_rows()).sum();
        let low = group.files.iter().map(|file| bounds(file).0).min().unwrap();
        let high = group.files.iter().map(|file| bounds(file).1).max().unwrap();
        for file in &group.files {
            self.files.remove(&file.add.path);
        }
        self.rows_copied += rows;
        let count = (rows * ROW_BYTES + RULES.file_bytes / 2) / RULES.file_bytes;
        let count = count.max(1);
        let run = self.name();
        let step = (high - low) / count as i64;
        for part in 0..count {
            let path = self.name();
            self.folded.insert(path.clone(), times + u32::from(by_level));
            let from = low + step * part as i64;
            let content = Content { rows: (rows / count).max(1), deleted: 0, low: from, high: from + step - 1 };
            self.put(path, content, &partition, Some((group.level, run.clone())));
        }
    }

    fn fold_all(&mut self) {
        for round in 0.. {
            let Some(group) = RULES.next(&self.files) else { return };
            self.fold(&group);
            assert!(round < 1_000, "folding comes to no end");
        }
    }
}

#[test]
fn rows_of_thousands_of_batches_are_folded_a_logarithmic_number_of_times() {
    for (seed, is_ascending) in [(1, true), (2, false)] {
        let mut paper = Paper::new(seed);
        let batches = 5_000_u32;
        for batch in 0..batches {
            paper.batch(is_ascending, if batch % 10 == 0 { "b" } else { "a" });
            paper.fold_all();
        }
        let bound = f64::from(batches).log(RULES.small_files as f64).floor() as u32;
        let most = paper.folded.values().max().copied().unwrap();
        assert!(most <= bound, "seed {seed}: {most} times, the bound is {bound}");
        let bytes: u64 = paper.files.values().map(|file| file.bytes()).sum();
        let files = paper.files.len() as u64;
        assert!(files <= bytes * 2 / RULES.file_bytes + 2 * 3 * u64::from(bound), "seed {seed}: {files} files");
    }
}

#[test]
fn deleted_rows_are_paid_for_by_a_fixed_number_of_copied_ones() {
    let mut paper = Paper::new(3);
    let (mut written, mut deleted) = (0, 0);
    for _ in 0..3_000 {
        let rows =
            |paper: &Paper| paper.files.values().map(|file| file.rows.unwrap() - file.deleted_rows()).sum::<u64>();
        let before = rows(&paper);
        paper.batch(false, "a");
        written += rows(&paper) - before;
        let before = rows(&paper);
        paper.delete();
        deleted += before - rows(&paper);
        paper.fold_all();
    }
    let levels = 6;
    assert!(paper.rows_copied <= deleted * 4 + written * levels, "{} of {written}, {deleted}", paper.rows_copied);
    let (rows, deleted) = paper
        .files
        .values()
        .fold((0, 0), |(rows, deleted), file| (rows + file.rows.unwrap(), deleted + file.deleted_rows()));
    assert!(deleted * 100 < rows * RULES.deleted_percent, "{deleted} of {rows}");
}

#[test]
fn what_is_folded_at_once_is_bounded() {
    let mut paper = Paper::new(4);
    for file in 0..2_000 {
        let content = Content { rows: 300, deleted: 200, low: file, high: file };
        let path = paper.name();
        paper.put(path, content, "a", None);
    }
    let group = RULES.next(&paper.files).unwrap();
    let bytes: u64 = group.files.iter().map(|file| file.bytes()).sum();
    assert!(group.files.len() >= RULES.small_files && bytes <= 17 * RULES.file_bytes, "{bytes}");
}

#[test]
fn by_hand_all_small_files_become_one_whatever_their_levels() {
    let mut paper = Paper::new(5);
    for batch in 0..200 {
        paper.batch(false, if batch % 10 == 0 { "b" } else { "a" });
        paper.fold_all();
    }
    let small = |paper: &Paper, partition: &str| {
        let of = |file: &&Arc<FileEntry>| file.add.partition_values["p"].as_deref() == Some(partition);
        paper.files.values().filter(of).filter(|file| RULES.is_small(file)).count()
    };
    assert!(small(&paper, "a") > 1, "nothing to do");
    for round in 0.. {
        let Some(group) = RULES.by_hand().next(&paper.files) else { break };
        paper.fold(&group);
        assert!(round < 100, "folding comes to no end");
    }
    assert!(small(&paper, "a") <= 1 && small(&paper, "b") <= 1);
}
