//! Upkeep against the model: what is compacted, vacuumed and cleaned keeps its rows, at every version that can be read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use arrow::datatypes::DataType;
use chrono::Utc;
use deltalake::DeltaTable;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::world::{KeyKind, World, copy_on_write, partitioned};
use crate::change::TableId;
use crate::config::{TableRules, TableSettings};
use crate::lake::compact::CompactRules;
use crate::lake::files::FileEntry;
use crate::lake::{CommitOutcome, Lake, deletion};

/// Few and small files, so that a few batches have work for every rule.
pub const RULES: CompactRules =
    CompactRules { file_bytes: 16 << 10, small_files: 3, deleted_percent: 20, by_level: true };

/// A version with what it needs: data files and deletion vectors.
type Version = (u64, BTreeSet<String>);

async fn at_version(world: &World, version: u64) -> DeltaTable {
    let mut table = DeltaTable::new(world.lake.log_store(&world.schema.table));
    table.load_version(version).await.unwrap();
    table
}

/// What a version needs, as the deltalake crate reads its log.
async fn needs(world: &World, version: u64) -> Version {
    let table = at_version(world, version).await;
    let snapshot = table.snapshot().unwrap().snapshot().clone();
    let log_store = table.log_store();
    let mut views = snapshot.file_views(log_store.as_ref(), None);
    let mut paths = BTreeSet::new();
    while let Some(view) = views.try_next().await.unwrap() {
        paths.insert(view.path().into_owned());
        paths.extend(view.deletion_vector_descriptor().and_then(|dv| deletion::file_of(&dv)).map(String::from));
    }
    (version, paths)
}

/// The commits of the log with the times of their files.
async fn commits(world: &World) -> BTreeMap<u64, i64> {
    let mut listed = world.table.store.list(Some(&Path::from("_delta_log")));
    let mut found = BTreeMap::new();
    while let Some(object) = listed.try_next().await.unwrap() {
        let name = object.location.filename().unwrap();
        if let Some(version) = name.strip_suffix(".json").and_then(|digits| digits.parse().ok()) {
            found.insert(version, object.last_modified.timestamp_millis());
        }
    }
    found
}

/// Files that are no part of the log, with their times.
async fn stored(world: &World) -> BTreeMap<String, i64> {
    let files: Vec<_> = world.table.store.list(None).try_collect().await.unwrap();
    let files = files.into_iter().filter(|object| !object.location.as_ref().starts_with("_delta_log/"));
    files.map(|object| (object.location.to_string(), object.last_modified.timestamp_millis())).collect()
}

/// The versions that held at `since_ms` or later.
fn readable(commits: &BTreeMap<u64, i64>, since_ms: i64) -> Vec<u64> {
    let newest = *commits.keys().next_back().unwrap();
    commits
        .keys()
        .copied()
        .filter(|v| *v == newest || commits.get(&(v + 1)).is_some_and(|ms| *ms >= since_ms))
        .collect()
}

/// Compacts until there is nothing to do. Gives the rows that were written again.
pub async fn fold_all(world: &mut World, context: &str) -> u64 {
    let rows = world.table.stats().rows;
    let mut folded = 0;
    while let Some(report) = world.table.compact(&RULES).await.unwrap() {
        assert!(report.files_before > 0, "{context}: nothing was folded");
        assert_eq!(world.table.stats().rows, rows, "{context}: the rows stay");
        folded += report.rows;
    }
    assert_eq!(world.table.compactions_due(&RULES), [], "{context}");
    folded
}

/// Vacuums with a retention that reaches to `since_ms`: exactly what the versions since then need is left, and what
/// is younger.
async fn vacuum_to(world: &mut World, since_ms: i64, context: &str) {
    let now_ms = Utc::now().timestamp_millis();
    let retention = Duration::from_millis((now_ms - since_ms).max(0).unsigned_abs());
    let planned = world.table.vacuum(now_ms, retention, true).await.unwrap();
    let before = stored(world).await;
    let done = world.table.vacuum(now_ms, retention, false).await.unwrap();
    assert_eq!(planned, done, "{context}: a dry run tells the same");
    let after = stored(world).await;
    assert_eq!(before.len() - after.len(), usize::try_from(done.files).unwrap(), "{context}");
    let mut needed = change_files(world, since_ms).await;
    assert!(needed.iter().all(|path| after.contains_key(path)), "{context}: change files are lost");
    for version in readable(&commits(world).await, since_ms) {
        let (_, paths) = needs(world, version).await;
        for path in paths {
            assert!(after.contains_key(&path), "{context}: version {version} lost {path}");
            needed.insert(path);
        }
    }
    for (path, ms) in after {
        assert!(needed.contains(&path) || ms >= since_ms, "{context}: {path} is needed by nothing and stays");
    }
}

/// The files of the change feed that commits at `since_ms` or later name.
async fn change_files(world: &World, since_ms: i64) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (version, _) in commits(world).await.into_iter().filter(|(_, ms)| *ms >= since_ms) {
        let text = world.table.read_commit(version).await.unwrap();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            found.extend(line["cdc"]["path"].as_str().map(str::to_string));
        }
    }
    found
}

async fn check_model(settings: TableSettings, kind: KeyKind, seed: u64) {
    // The deltalake crate does not find again what it compacted into folders of awkward names.
    let mut foreign_left = if settings.partition_by.is_empty() { u32::MAX } else { 1 };
    let mut world = World::with(settings, kind, seed).await;
    let mut random = StdRng::seed_from_u64(seed);
    let (mut columns, mut kept_since_ms) = (0, 0);
    for step in 0..50 {
        let context = format!("{kind:?} seed {seed} step {step}");
        match random.random_range(0..12) {
            0..6 => world.apply_random(random.random_range(1..40), 120).await,
            6 => _ = fold_all(&mut world, &context).await,
            7 => _ = world.table.compact(&RULES).await.unwrap(),
            8 => world.table.checkpoint().await.unwrap(),
            9 => {
                let times: Vec<i64> = commits(&world).await.into_values().collect();
                // What an earlier vacuum took does not come back.
                kept_since_ms = times[random.random_range(0..times.len())].max(kept_since_ms);
                vacuum_to(&mut world, kept_since_ms, &context).await;
            }
            10 if foreign_left > 0 => {
                foreign_left -= 1;
                world.foreign_compaction().await;
            }
            _ if columns < 2 => {
                columns += 1;
                world.add_column(&format!("added{columns}"), DataType::Utf8, None).await;
            }
            _ => world.reopen().await,
        }
        if step % 6 == 5 {
            world.compare(&context).await;
        }
    }
    fold_all(&mut world, "at the end").await;
    world.compare("at the end").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_under_upkeep_follow_the_model() {
    for (kind, seed) in [
        (KeyKind::Long, 31),
        (KeyKind::Text, 32),
        (KeyKind::Double, 33),
        (KeyKind::IntegerAndText, 34),
        (KeyKind::Timestamp, 35),
    ] {
        check_model(TableSettings::default(), kind, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn divided_tables_under_upkeep_follow_the_model() {
    check_model(partitioned(&["region"]), KeyKind::Long, 61).await;
    check_model(partitioned(&["id"]), KeyKind::AwkwardText, 62).await;
    check_model(partitioned(&["id2", "month(at)"]), KeyKind::TextAndLong, 63).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_without_vectors_and_with_a_feed_under_upkeep_follow_the_model() {
    check_model(copy_on_write(TableSettings::default()), KeyKind::Long, 64).await;
    check_model(copy_on_write(partitioned(&["region"])), KeyKind::Text, 65).await;
    let feed = TableSettings { change_feed: true, ..TableSettings::default() };
    check_model(feed.clone(), KeyKind::Long, 66).await;
    check_model(copy_on_write(feed), KeyKind::IntegerAndText, 67).await;
}

/// How often the rows of each file have been folded, kept from commit to commit beside the table.
#[derive(Default)]
struct Rewrites {
    files: HashMap<String, u32>,
    most: u32,
}

impl Rewrites {
    fn follow(&mut self, world: &World, before: &BTreeSet<String>) {
        let after: BTreeSet<String> = world.table.files.keys().cloned().collect();
        let folded = before.difference(&after).filter_map(|path| self.files.get(path).copied()).max();
        for path in after.difference(before) {
            let count = folded.map_or(0, |count| count + 1);
            self.files.insert(path.clone(), count);
            self.most = self.most.max(count);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_folded_a_logarithmic_number_of_times() {
    let mut world = World::in_memory(KeyKind::Long, 40).await;
    let mut rewrites = Rewrites::default();
    let batches = 250_u32;
    for batch in 0..batches {
        let before: BTreeSet<String> = world.table.files.keys().cloned().collect();
        // New keys only: nothing is deleted, so that every folding is by level.
        let ids: Vec<u32> = (0..3).map(|row| (batch * 7_919 + row * 40_013) % 100_000).collect();
        world.apply_ids(&ids, &[]).await;
        rewrites.follow(&world, &before);
        loop {
            let before: BTreeSet<String> = world.table.files.keys().cloned().collect();
            if world.table.compact(&RULES).await.unwrap().is_none() {
                break;
            }
            rewrites.follow(&world, &before);
        }
        if world.table.versions_since_checkpoint().await.unwrap() >= 100 {
            world.table.checkpoint().await.unwrap();
        }
    }
    let bound = f64::from(batches).log(f64::from(u32::try_from(RULES.small_files).unwrap())).floor();
    assert!(f64::from(rewrites.most) <= bound, "{} times, the bound is {bound}", rewrites.most);
    assert!(rewrites.most >= 3, "the test folds too little to show anything");
    let stats = world.table.stats();
    assert!(stats.files <= 2 * 7 + stats.bytes / RULES.file_bytes * 2 + 2, "{stats:?}");
    world.compare("folded batch by batch").await;
    let levels = |world: &World| -> BTreeMap<String, Option<String>> {
        let tags = world.table.files.iter().map(|(path, file)| (path, file.add.tags.as_ref()));
        tags.map(|(path, tags)| (path.clone(), tags.and_then(|tags| tags["alluvium.level"].clone()))).collect()
    };
    let before = levels(&world);
    assert!(before.values().any(|level| level.as_deref() >= Some("3")), "{before:?}");
    world.table.checkpoint().await.unwrap();
    world.reopen().await;
    assert_eq!(levels(&world), before, "levels are kept in the log and its checkpoints");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_again_what_is_deleted_costs_a_fixed_number_of_rows_for_each_deleted_one() {
    let mut world = World::in_memory(KeyKind::Long, 41).await;
    world.apply_ids(&(0..400).collect::<Vec<_>>(), &[]).await;
    let (mut folded, mut changed) = (0, 400);
    for _ in 0..60 {
        world.apply_random(10, 400).await;
        changed += 10;
        folded += fold_all(&mut world, "many updates").await;
        let stats = world.table.stats();
        assert!(stats.deleted_rows * 100 <= (stats.rows + stats.deleted_rows) * 25, "{stats:?}");
    }
    // Four rows for each deleted one, and each changed row once a level.
    assert!(folded <= changed * 4 + changed * 7, "{folded} rows were copied for {changed} changed ones");
    world.compare("many updates").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folded_files_are_sorted_and_do_not_overlap() {
    let mut world = World::in_memory(KeyKind::Long, 42).await;
    for batch in 0..9 {
        world.apply_ids(&(0..100).map(|row| row * 9 + batch).collect::<Vec<_>>(), &[]).await;
    }
    // A foreign writer's file is in no order that could be relied on.
    world.foreign_compaction().await;
    world.apply_random(50, 900).await;
    world.table.reload().await.unwrap();
    let rules = CompactRules { file_bytes: 4 << 10, small_files: 2, deleted_percent: 1, by_level: true };
    while world.table.compact(&rules).await.unwrap().is_some() {}
    let mut ranges: Vec<_> = world.table.files.values().map(|file| format!("{:?}", file.range)).collect();
    ranges.sort();
    ranges.dedup();
    assert_eq!(ranges.len(), world.table.files.len(), "{ranges:?}");
    world.compare("folded").await;
}

/// An upsert and a compaction of the same files, planned on the same version by two writers.
async fn check_race(upsert_first: bool, touches: bool, seed: u64) {
    let mut world = World::in_memory(KeyKind::Long, seed).await;
    for from in 0..4 {
        world.apply_ids(&(from * 10..from * 10 + 10).collect::<Vec<_>>(), &[]).await;
    }
    let mut other = world.lake.open_table(&world.schema.table).await.unwrap().unwrap();
    let upserts: Vec<u32> = if touches { vec![5, 15, 99] } else { vec![98, 99] };
    let deletes: &[u32] = if touches { &[25] } else { &[] };
    if upsert_first {
        world.apply_ids(&upserts, deletes).await;
        assert!(other.compact(&RULES).await.unwrap().is_some());
    } else {
        assert!(other.compact(&RULES).await.unwrap().is_some());
        let outcome = world.apply(world.batch_of(&upserts, deletes), 5).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    }
    world.compare(&format!("upsert first: {upsert_first}, touches: {touches}")).await;
    world.reopen().await;
    world.apply_ids(&[5, 15, 25, 35], &[]).await;
    world.compare("and one more batch").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_wins_between_an_upsert_and_a_compaction_no_row_comes_back() {
    for touches in [true, false] {
        check_race(true, touches, 43).await;
        check_race(false, touches, 44).await;
    }
}

async fn cluster_all(world: &mut World, context: &str) {
    let rows = world.table.stats().rows;
    while let Some(report) = world.table.cluster(&RULES).await.unwrap() {
        assert!(report.files_before > 0 && world.table.stats().rows == rows, "{context}");
    }
    assert_eq!(world.table.clusterings_due(&RULES), [], "{context}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clustered_tables_follow_the_model() {
    for (kind, seed) in [(KeyKind::Long, 51), (KeyKind::TextAndLong, 52), (KeyKind::Double, 53)] {
        let mut world = World::in_memory(kind, seed).await;
        world.table.settings.cluster_by = vec!["note".into(), "value".into(), "missing".into(), "price".into()];
        for step in 0..12 {
            let context = format!("{kind:?} seed {seed} step {step}");
            world.apply_random(40, 150).await;
            match step % 4 {
                1 => cluster_all(&mut world, &context).await,
                2 => _ = fold_all(&mut world, &context).await,
                3 => world.foreign_compaction().await,
                _ => {}
            }
            world.compare(&context).await;
        }
        world.add_column("missing", DataType::Utf8, None).await;
        world.apply_random(40, 150).await;
        assert!(!world.table.clusterings_due(&RULES).is_empty(), "other columns, another order");
        cluster_all(&mut world, "at the end").await;
        world.compare("at the end").await;
    }
}

/// The share of files whose statistics allow for `value`, in percent, over all values.
fn candidates(world: &World, column: &str, values: &[i64]) -> usize {
    let bounds: Vec<(i64, i64)> = world.table.files.values().map(|file| bounds_of(file, column)).collect();
    let found: usize =
        values.iter().map(|v| bounds.iter().filter(|(low, high)| (low..=high).contains(&v)).count()).sum();
    found * 100 / (bounds.len() * values.len())
}

fn bounds_of(file: &FileEntry, column: &str) -> (i64, i64) {
    let stats: serde_json::Value = serde_json::from_str(file.add.stats.as_ref().unwrap()).unwrap();
    let bound = |name: &str| stats[name][column].as_i64().unwrap();
    (bound("minValues"), bound("maxValues"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clustering_lets_filters_by_any_of_its_columns_skip_files() {
    let mut world = World::in_memory(KeyKind::Long, 54).await;
    world.table.settings.cluster_by = vec!["id".into(), "value".into()];
    // Keys in no order, so that the values, which follow the order of the rows, do not follow the keys.
    let ids: Vec<u32> = (0..4_000).map(|row| row * 7_919 % 4_001).collect();
    for part in ids.chunks(500) {
        world.apply_ids(part, &[]).await;
    }
    let rules = CompactRules { file_bytes: 2 << 10, ..RULES };
    while world.table.cluster(&rules).await.unwrap().is_some() {}
    assert!(world.table.files.len() >= 16, "{:?}", world.table.stats());
    let keys: Vec<i64> = (0..4_000).step_by(101).collect();
    let values: Vec<i64> = (1..=8).flat_map(|batch| (0..500).step_by(97).map(move |row| batch * 1_000 + row)).collect();
    let (by_key, by_value) = (candidates(&world, "id", &keys), candidates(&world, "value", &values));
    assert!(by_key <= 45 && by_value <= 45, "{by_key} % of the files for a key, {by_value} % for a value");
    world.compare("clustered").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_go_with_the_retention_and_other_folders_stay() {
    let mut world = World::in_memory(KeyKind::Long, 45).await;
    world.apply_random(20, 50).await;
    for path in ["part-orphan.parquet", "_change_data/cdc-orphan.parquet", "_other/kept", "a/.kept", "_c=1/orphan"] {
        world.table.store.put(&Path::from(path), "x".into()).await.unwrap();
    }
    let now_ms = Utc::now().timestamp_millis();
    let week = Duration::from_secs(7 * 86_400);
    assert_eq!(world.table.vacuum(now_ms, week, false).await.unwrap().files, 0);
    let later_ms = now_ms + 8 * 86_400_000;
    let done = world.table.vacuum(later_ms, week, false).await.unwrap();
    assert_eq!(done.paths, ["_c=1/orphan", "_change_data/cdc-orphan.parquet", "part-orphan.parquet"]);
    let left = stored(&world).await;
    assert!(left.contains_key("_other/kept") && left.contains_key("a/.kept"), "{left:?}");
    world.compare("vacuumed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cleaned_log_still_gives_every_version_of_the_retention() {
    let mut world = World::in_memory(KeyKind::Long, 46).await;
    for step in 1..=60 {
        world.apply_random(5, 40).await;
        if step % 10 == 0 {
            world.table.checkpoint().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let times = commits(&world).await;
    for since in [5, 25, 44, 60] {
        let now_ms = Utc::now().timestamp_millis();
        let retention = Duration::from_millis((now_ms - times[&since]).max(0).unsigned_abs());
        let planned = world.table.clean_log(now_ms, retention, true).await.unwrap();
        assert_eq!(world.table.clean_log(now_ms, retention, false).await.unwrap(), planned);
        let left = commits(&world).await;
        for version in readable(&times, times[&since]) {
            assert_eq!(needs(&world, version).await.0, version);
        }
        // From a checkpoint on, and the newest of those that are old enough.
        let first = *left.keys().next().unwrap();
        assert!(first == 0 || first % 10 == 0 && since - first <= 10, "from {first} on, {since} is kept");
        vacuum_to(&mut world, times[&since], "after a clean-up").await;
    }
    assert!(!commits(&world).await.contains_key(&49), "old commits go");
    world.reopen().await;
    world.apply_random(5, 40).await;
    world.compare("after clean-ups").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_missing_within_the_retention_stops_a_vacuum() {
    let mut world = World::in_memory(KeyKind::Long, 47).await;
    for _ in 0..5 {
        world.apply_ids(&[1, 2, 3], &[]).await;
    }
    world.table.checkpoint().await.unwrap();
    world.table.store.delete(&Path::from("_delta_log/00000000000000000003.json")).await.unwrap();
    let now_ms = Utc::now().timestamp_millis();
    let error = world.table.vacuum(now_ms, Duration::from_secs(3_600), false).await.err().unwrap();
    assert!(error.to_string().contains("version 3 is missing"), "{error}");
    // Once all that is older than the retention it needs no explanation.
    assert!(world.table.vacuum(now_ms + 10_000_000, Duration::from_secs(3_600), false).await.unwrap().files > 0);
    world.compare("vacuumed in the end").await;
}

/// Files far larger than the memory: those in key order are merged page by page, all others are sorted on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_larger_than_the_memory_is_folded_all_the_same() {
    let mut world = World::large(55, 4 << 20).await;
    let ids: Vec<u32> = (0..60_000).collect();
    for part in 0..3 {
        world.apply_ids(&ids.iter().copied().filter(|id| id % 3 == part).collect::<Vec<_>>(), &[]).await;
    }
    world.apply_ids(&ids[10..20_000], &ids[30_000..31_000]).await;
    let rules = CompactRules { file_bytes: 64 << 20, small_files: 2, deleted_percent: 1, by_level: true };
    assert!(world.table.compact(&rules).await.unwrap().is_some());
    assert_eq!((world.table.stats().files, world.table.stats().deleted_rows), (1, 0));
    world.compare("merged").await;
    for part in 0..2 {
        world
            .apply_ids(&ids.iter().rev().copied().filter(|id| id % 2 == part).take(25_000).collect::<Vec<_>>(), &[])
            .await;
    }
    world.foreign_compaction().await;
    world.table.reload().await.unwrap();
    world.table.settings.cluster_by = vec!["note".into()];
    while world.table.cluster(&rules).await.unwrap().is_some() {}
    world.compare("sorted").await;
}

/// Paths on a disk, of which another writer has made folders with escapes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_folders_of_awkward_names_are_folded_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let root = url::Url::from_directory_path(folder.path().join("a b")).unwrap();
    let config = crate::config::LakeConfig { url: root, options: Default::default() };
    let lake = Lake::open(&config).unwrap().with_rules(TableRules::uniform(partitioned(&["region"])));
    let mut world = World::new(lake, TableId::new("shop", "orders"), KeyKind::Long, 68).await;
    world.apply_ids(&(0..100).collect::<Vec<_>>(), &[]).await;
    world.apply_random(100, 120).await;
    world.foreign_compaction().await;
    world.apply_random(60, 120).await;
    let foreign = stored(&world).await.into_keys().filter(|path| path.contains("region=")).count();
    assert!(foreign > 3, "the other writer makes folders");
    let later_ms = Utc::now().timestamp_millis() + 10_000;
    let retention = Duration::from_secs(1);
    assert!(world.table.vacuum(later_ms, retention, false).await.unwrap().files > 0);
    world.compare("vacuumed before").await;
    let rules = CompactRules { small_files: 2, deleted_percent: 1, ..RULES };
    while world.table.compact(&rules).await.unwrap().is_some() {}
    world.compare("folded").await;
    let later_ms = Utc::now().timestamp_millis() + 10_000;
    assert!(world.table.vacuum(later_ms, retention, false).await.unwrap().files > 0);
    world.compare("vacuumed afterwards").await;
    let (_, needed) = needs(&world, world.table.state.version()).await;
    let left: BTreeSet<String> = stored(&world).await.into_keys().collect();
    assert_eq!(left, needed, "nothing else is left");
}
