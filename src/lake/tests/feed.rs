//! The change data feed, as the deltalake crate's own reader gives it: replayed, it makes each version of the table.

use std::collections::BTreeMap;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use datafusion::prelude::SessionContext;
use deltalake::delta_datafusion::DeltaCdfTableProvider;
use std::sync::Arc;

use object_store::memory::InMemory;

use super::model::texts;
use super::upkeep::fold_all;
use super::world::{KeyKind, MODES, World, memory_lake, partitioned, tag};
use crate::change::TableId;
use crate::config::{MergeMode, TableRules, TableSettings};
use crate::lake::LakeError;
use crate::schema::{Column, TableSchema};

fn with_feed(settings: TableSettings) -> TableSettings {
    TableSettings { change_feed: true, ..settings }
}

/// What a consumer of the feed has.
#[derive(Default)]
struct Consumer {
    rows: BTreeMap<Vec<String>, Vec<String>>,
    version: i64,
}

impl Consumer {
    /// Takes all changes since the last time, and compares with the model.
    async fn follow(&mut self, world: &World, context: &str) {
        let names: Vec<&str> = world.schema.columns.iter().map(|column| column.name.as_str()).collect();
        // Columns that came meanwhile.
        self.rows.values_mut().for_each(|row| row.resize(names.len(), super::model::NULL.to_string()));
        for version in self.version + 1..=world.table.version() {
            let changes = changes(world, version, &names).await;
            for kind in ["update_preimage", "delete", "insert", "update_postimage"] {
                for row in changes.iter().filter(|row| row[0] == kind) {
                    self.take(world, kind, &row[1..], &format!("{context} version {version}"));
                }
            }
            let count = |kind: &str| changes.iter().filter(|row| row[0] == kind).count();
            assert_eq!(count("update_preimage"), count("update_postimage"), "{context} version {version}");
        }
        self.version = world.table.version();
        assert!(self.rows == world.expected(), "{context}: the feed does not lead to the table");
    }

    fn take(&mut self, world: &World, kind: &str, row: &[String], context: &str) {
        let key: Vec<_> = world.schema.key.iter().map(|index| row[*index].clone()).collect();
        match kind {
            "insert" => assert!(self.rows.insert(key, row.to_vec()).is_none(), "{context}: inserted twice"),
            "delete" => assert_eq!(self.rows.remove(&key).as_deref(), Some(row), "{context}: deleted"),
            "update_preimage" => assert_eq!(self.rows.get(&key).map(Vec::as_slice), Some(row), "{context}: before"),
            _ => assert!(self.rows.insert(key, row.to_vec()).is_some(), "{context}: updated without a row"),
        }
    }
}

/// The changes of one version: the type, then the columns.
async fn changes(world: &World, version: i64, names: &[&str]) -> Vec<Vec<String>> {
    let version = u64::try_from(version).unwrap();
    let scan = world.delta().await.scan_cdf().with_starting_version(version).with_ending_version(version);
    let context = SessionContext::new();
    world.delta().await.update_datafusion_session(&context.state()).unwrap();
    let provider = Arc::new(DeltaCdfTableProvider::try_new(scan).unwrap());
    let batches = context.read_table(provider).unwrap().collect().await.unwrap();
    let names = [&["_change_type"], names].concat();
    batches.iter().flat_map(|batch| texts(batch, &names)).collect()
}

async fn check(settings: TableSettings, kind: KeyKind, seed: u64) {
    let mut world = World::with(with_feed(settings.clone()), kind, seed).await;
    let mut consumer = Consumer::default();
    for step in 0..8 {
        let context = format!("{settings:?} {kind:?} seed {seed} step {step}");
        world.apply_random(40, 70).await;
        consumer.follow(&world, &context).await;
        match step {
            2 => world.truncate_and_apply(30, 70).await,
            3 => world.add_column("added", DataType::Utf8, None).await,
            1 | 6 => _ = fold_all(&mut world, &context).await,
            5 => world.add_column("counted", DataType::Int64, Some(Arc::new(Int64Array::from(vec![7])))).await,
            4 => {
                world.foreign_compaction().await;
                world.reopen().await;
            }
            _ => continue,
        }
        consumer.follow(&world, &format!("{context}, afterwards")).await;
    }
    world.compare("with a feed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_leads_from_version_to_version() {
    for merge in MODES {
        check(TableSettings { merge, ..TableSettings::default() }, KeyKind::Long, 80).await;
        check(TableSettings { merge, ..TableSettings::default() }, KeyKind::TextAndLong, 81).await;
        check(TableSettings { merge, ..partitioned(&["region"]) }, KeyKind::Long, 82).await;
        check(TableSettings { merge, ..partitioned(&["id"]) }, KeyKind::AwkwardText, 83).await;
    }
}

/// Rows that go through the disk to their partitions, and keys that are looked for in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_larger_than_memory_has_a_feed() {
    let lake = memory_lake(Arc::new(InMemory::new())).with_memory(64 << 10);
    let lake = lake.with_rules(TableRules::uniform(with_feed(partitioned(&["year(at)"]))));
    let mut world = World::new(lake, TableId::new("shop", "orders"), KeyKind::Long, 87).await;
    let mut consumer = Consumer::default();
    let ids: Vec<u32> = (0..70_000).collect();
    world.apply_ids(&ids[10_000..], &[]).await;
    consumer.follow(&world, "inserts").await;
    world.apply_ids(&ids[..40_000], &ids[40_000..]).await;
    consumer.follow(&world, "inserts, updates and deletes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_alone_need_no_files_of_their_own() {
    let mut world = World::with(with_feed(TableSettings::default()), KeyKind::Long, 84).await;
    world.apply_ids(&[1, 2, 3], &[]).await;
    assert_eq!(world.change_files().await, 0);
    world.apply_ids(&[3, 4], &[1]).await;
    assert_eq!(world.change_files().await, 1);
    let mut found = changes(&world, 2, &["id"]).await;
    found.sort();
    let row = |kind: &str, id: &str| vec![kind.to_string(), id.to_string()];
    let wanted = [row("delete", "1"), row("insert", "4"), row("update_postimage", "3"), row("update_preimage", "3")];
    assert_eq!(found, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_is_turned_on_and_off_by_the_job_file() {
    let off = TableSettings { merge: MergeMode::CopyOnWrite, ..TableSettings::default() };
    let mut world = World::with(off.clone(), KeyKind::Long, 85).await;
    world.apply_random(40, 60).await;
    world.set(with_feed(off.clone())).await;
    let mut consumer = Consumer { rows: world.expected(), version: world.table.version() + 1 };
    world.apply_random(40, 60).await;
    consumer.follow(&world, "turned on").await;
    let files = world.change_files().await;
    assert!(world.writer_features().await.contains(&"changeDataFeed".to_string()));
    world.set(off).await;
    world.apply_random(40, 60).await;
    world.compare("turned off").await;
    assert_eq!(world.change_files().await, files);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_with_a_name_of_the_feed_s_is_refused() {
    let world = World::with(with_feed(TableSettings::default()), KeyKind::Long, 86).await;
    let mut schema = TableSchema::clone(&world.schema);
    schema.table.table = "other".to_string();
    let source_type = "int".to_string();
    schema.columns.push(Column::new("_Change_Type", DataType::Int32, source_type));
    let error = world.lake.create_table(&schema, &tag(0)).await.err().unwrap();
    assert!(matches!(error, LakeError::Settings { .. }), "{error}");
}
