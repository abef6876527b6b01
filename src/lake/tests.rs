//! The lake against a model: random batches, restarts, foreign writers and a store that lies.

mod faults;
mod feed;
mod gaps;
mod merge_modes;
mod model;
mod partitions;
mod scan;
mod upkeep;
mod world;

use super::*;
use crate::change::TableId;
use crate::config::MergeMode;
use arrow::array::{Int64Array, StringArray};
use arrow::datatypes::{DataType, TimeUnit};
use object_store::memory::InMemory;
use std::sync::Arc;
use world::{KeyKind, MODES, World, memory_lake, tag};

/// Random batches in both merge modes, each compared with the model through the deltalake crate's own reader.
async fn check(kind: KeyKind, seed: u64) {
    for merge in MODES {
        check_mode(kind, merge, seed).await;
    }
}

async fn check_mode(kind: KeyKind, merge: MergeMode, seed: u64) {
    let mut world = World::in_mode(merge, kind, seed).await;
    for step in 0..12 {
        let context = format!("{kind:?} {merge:?} seed {seed} step {step}");
        world.apply_random(40, 120).await;
        world.compare(&context).await;
        if step % 5 == 4 {
            world.reopen().await;
        }
        if step == 8 {
            world.truncate_and_apply(30, 120).await;
            world.compare(&format!("{context} truncate")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_number_keys_follow_the_model() {
    for kind in [KeyKind::Long, KeyKind::Integer, KeyKind::Date, KeyKind::Timestamp] {
        check(kind, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_keys_follow_the_model() {
    for kind in [KeyKind::Text, KeyKind::LongText, KeyKind::Decimal, KeyKind::Binary, KeyKind::Double] {
        check(kind, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_more_columns_follow_the_model() {
    for kind in [KeyKind::IntegerAndText, KeyKind::TextAndLong] {
        check(kind, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_folder_with_odd_names_holds_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let root = url::Url::from_directory_path(folder.path().join("a b#é")).unwrap();
    let config = crate::config::LakeConfig { url: root, options: Default::default() };
    let lake = Lake::open(&config).unwrap();
    lake.probe().await.unwrap();
    let mut world = World::new(lake, TableId::new("sh op%", "täble^1"), KeyKind::Text, 4).await;
    for _ in 0..3 {
        world.apply_random(50, 100).await;
        world.compare("odd names").await;
    }
    world.reopen().await;
    world.compare("odd names, opened again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_applied_once() {
    let mut world = World::in_memory(KeyKind::Long, 5).await;
    let batch = world.random_batch(50, 100);
    let first = world.apply(batch.clone(), 1).await.unwrap();
    assert!(matches!(first, CommitOutcome::Committed(_)), "{first:?}");
    let version = world.table.version();
    for _ in 0..2 {
        let again = world.apply(batch.clone(), 1).await.unwrap();
        assert_eq!(again, CommitOutcome::AlreadyApplied { version });
        world.reopen().await;
    }
    assert_eq!(world.table.txn("alluvium/test").await.unwrap(), Some(1));
    assert_eq!(world.table.txn("someone/else").await.unwrap(), None);
    let unnamed = crate::batch::KeyedChanges::from_batches(world.schema.clone(), Vec::new()).unwrap();
    let error = world.table.apply(unnamed, &CommitTag::default()).await.err().unwrap();
    assert!(matches!(error, LakeError::Changes { .. }), "{error}");
    world.compare("applied once").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_changes_nothing_still_commits_its_transaction() {
    let mut world = World::in_memory(KeyKind::Long, 6).await;
    world.apply_random(20, 50).await;
    let version = world.table.version();
    let outcome = world.apply(Vec::new(), 2).await.unwrap();
    let expected = CommitSummary { version: version + 1, ..CommitSummary::default() };
    assert_eq!(outcome, CommitOutcome::Committed(expected));
    world.reopen().await;
    assert_eq!(world.table.txn("alluvium/test").await.unwrap(), Some(2));
    world.compare("an empty batch").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn making_a_table_twice_opens_it_and_another_table_is_left_alone() {
    let world = World::in_memory(KeyKind::Long, 7).await;
    let again = world.lake.create_table(&world.schema, &tag(1)).await.unwrap();
    assert_eq!(again.version(), 0);
    let mut other = (*world.schema).clone();
    other.table = TableId::new("shop", "other");
    world.copy_log_to(&other.table).await;
    let error = world.lake.create_table(&other, &tag(1)).await.err().unwrap();
    assert!(matches!(error, LakeError::OtherTable { .. }), "{error}");
    assert_eq!(error.kind(), LakeErrorKind::Misconfigured);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_loses_its_last_row_goes() {
    let mut world = World::in_memory(KeyKind::Long, 8).await;
    world.apply_ids(&[1, 2, 3], &[]).await;
    world.apply_ids(&[], &[1]).await;
    assert_eq!(world.table.stats().deleted_rows, 1);
    world.apply_ids(&[], &[2, 3]).await;
    assert_eq!(world.table.stats(), TableStats::default());
    world.compare("all rows gone").await;
    world.apply_ids(&[2], &[]).await;
    world.compare("one row came back").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_comes_back_after_a_foreign_compaction() {
    for (kind, merge) in [KeyKind::Long, KeyKind::TextAndLong].into_iter().zip(MODES) {
        let mut world = World::in_mode(merge, kind, 9).await;
        for step in 0..6 {
            world.apply_random(40, 60).await;
            // Behind this table's back: the next batch is planned on files that are gone.
            world.foreign_compaction().await;
            world.compare(&format!("{kind:?} compacted at step {step}")).await;
        }
        world.apply_random(40, 60).await;
        world.compare("after the last compaction").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_deletes_and_changes_meet_in_any_order() {
    for merge in MODES {
        let mut world = World::in_mode(merge, KeyKind::Long, 10).await;
        for step in 0..5 {
            world.apply_random(40, 60).await;
            world.foreign_delete(step * 10, step * 10 + 10).await;
            world.compare("deleted by another writer").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubled_key_is_an_error_that_names_its_column() {
    for merge in MODES {
        let mut world = World::in_mode(merge, KeyKind::Long, 11).await;
        world.apply_ids(&[1, 2, 3], &[]).await;
        world.foreign_append_copy().await;
        let error = world.apply(world.batch_of(&[2], &[]), 99).await.err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, LakeError::DuplicateKey { .. }), "{text}");
        assert!(text.contains("(id)"), "{text}");
    }
}

/// The same changes to a table whose rows are located with all short cuts, and to one that reads every key.
async fn check_short_cuts(kind: KeyKind, seed: u64) {
    let orders = TableId::new("shop", "orders");
    let lake = || memory_lake(Arc::new(InMemory::new()));
    let mut quick = World::new(lake(), orders.clone(), kind, seed).await;
    let mut thorough = World::new(lake().exhaustive(), orders, kind, seed).await;
    for step in 0..12 {
        for world in [&mut quick, &mut thorough] {
            world.apply_random(10 + step * 7, 150).await;
        }
        // What is live and what is hidden, file by file; their names differ.
        let files = |world: &World| {
            let files = world.table.files.values();
            let mut files: Vec<_> = files.map(|file| (file.add.size, file.rows, file.deleted_rows())).collect();
            files.sort_unstable();
            files
        };
        assert_eq!(files(&quick), files(&thorough), "{kind:?} seed {seed} step {step}");
    }
    quick.compare("with short cuts").await;
    thorough.compare("without short cuts").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_cuts_change_nothing_but_the_time() {
    use KeyKind::*;
    for (seed, kind) in (50..).zip([
        Long,
        Integer,
        Date,
        Timestamp,
        Text,
        LongText,
        Decimal,
        Binary,
        Double,
        IntegerAndText,
        TextAndLong,
    ]) {
        check_short_cuts(kind, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_checkpoints_is_read_on() {
    let mut world = World::in_mode(MergeMode::CopyOnWrite, KeyKind::Long, 13).await;
    for _ in 0..120 {
        world.apply_random(3, 30).await;
        if world.table.versions_since_checkpoint().await.unwrap() >= 100 {
            world.table.checkpoint().await.unwrap();
        }
    }
    assert!(world.has_checkpoint().await);
    assert_eq!(world.table.versions_since_checkpoint().await.unwrap(), 20);
    world.compare("beyond a checkpoint").await;
    world.reopen().await;
    world.apply_random(10, 30).await;
    world.compare("beyond a checkpoint, opened again").await;
    assert_eq!(world.table.versions_since_checkpoint().await.unwrap(), 21);
    assert!(world.table.txn("alluvium/test").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_added_and_the_table_stays_the_same() {
    let mut world = World::in_memory(KeyKind::Long, 14).await;
    world.apply_random(30, 50).await;
    let before = world.metadata().await;
    world.add_column("added", DataType::Utf8, None).await;
    world.add_column("at", DataType::Timestamp(TimeUnit::Microsecond, None), None).await;
    world.compare("columns added").await;
    let after = world.metadata().await;
    assert_eq!((before.id(), before.created_time()), (after.id(), after.created_time()));
    world.apply_random(30, 50).await;
    world.compare("written with the new columns").await;
    let again = world.table.evolve(&world.schema.clone(), &Default::default(), &CommitTag::default()).await.unwrap();
    assert!(matches!(again, CommitOutcome::AlreadyApplied { .. }), "{again:?}");
    let noted = world.table.evolve(&world.schema.clone(), &Default::default(), &tag(7)).await.unwrap();
    assert!(matches!(noted, CommitOutcome::Committed(_)), "{noted:?}");
    assert_eq!(world.table.txn("alluvium/test").await.unwrap(), Some(7));
    let noted = world.table.evolve(&world.schema.clone(), &Default::default(), &tag(7)).await.unwrap();
    assert!(matches!(noted, CommitOutcome::AlreadyApplied { .. }), "{noted:?}");
    assert!(world.writer_features().await.contains(&"timestampNtz".to_string()));
    world.reopen().await;
    world.compare("columns added, opened again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_of_another_type_is_refused() {
    let mut world = World::in_memory(KeyKind::Long, 15).await;
    let mut other = (*world.schema).clone();
    other.columns[1].data_type = DataType::Int32;
    let error = world.table.evolve(&other, &Default::default(), &CommitTag::default()).await.err().unwrap();
    assert!(matches!(&error, LakeError::ColumnType { column, .. } if *column == other.columns[1].name), "{error}");
    let mut other = (*world.schema).clone();
    other.key = vec![0];
    let error = world.table.evolve(&other, &Default::default(), &CommitTag::default()).await.err().unwrap();
    assert!(matches!(error, LakeError::Changes { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_there_get_a_new_column_s_default() {
    for merge in MODES {
        check_defaults(merge).await;
    }
}

async fn check_defaults(merge: MergeMode) {
    let mut world = World::in_mode(merge, KeyKind::TextAndLong, 16).await;
    for _ in 0..3 {
        world.apply_random(60, 100).await;
    }
    world.add_column("plain", DataType::Utf8, None).await;
    world.apply_random(60, 100).await;
    world.add_column("counted", DataType::Int64, Some(Arc::new(Int64Array::from(vec![7])))).await;
    world.compare("a default").await;
    assert_eq!(world.table.stats().deleted_rows, 0);
    world.apply_random(60, 100).await;
    world.add_column("named", DataType::Utf8, Some(Arc::new(StringArray::from(vec!["new"])))).await;
    world.compare("another default").await;
    world.reopen().await;
    world.apply_random(60, 100).await;
    world.compare("after two defaults").await;
}

/// More keys than one slice holds, and far more than the table's memory does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_more_keys_than_memory_is_located_in_parts_and_only_once() {
    let mut world = World::large(17, 64 << 10).await;
    let ids: Vec<u32> = (0..70_000).collect();
    world.apply_ids(&ids, &[]).await;
    world.foreign_delete(10, 20).await;
    let batch = world.batch_of(&ids[..40_000], &ids[40_000..]);
    let outcome = world.apply(batch.clone(), 2).await.unwrap();
    assert_eq!(outcome, CommitOutcome::Conflict);
    world.compare("nothing of the batch").await;
    let outcome = world.apply(batch, 2).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    world.compare("all of the batch").await;
}
