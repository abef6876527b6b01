//! Copy-on-write, and tables whose merge mode changes.

use arrow::datatypes::{DataType, TimeUnit};
use serde_json::{Value, json};

use super::upkeep::fold_all;
use super::world::{KeyKind, MODES, World, copy_on_write, partitioned};
use crate::config::{MergeMode, TableSettings};

/// What the log says of the table's protocol.
async fn protocol(world: &World) -> Value {
    serde_json::to_value(world.delta().await.snapshot().unwrap().protocol()).unwrap()
}

fn has_vectors(world: &World) -> bool {
    world.table.files.values().any(|file| file.add.deletion_vector.is_some())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_on_write_table_can_be_read_by_the_oldest_readers() {
    let mut world = World::in_mode(MergeMode::CopyOnWrite, KeyKind::Long, 60).await;
    for _ in 0..4 {
        world.apply_random(40, 60).await;
        assert!(!has_vectors(&world));
    }
    assert_eq!(protocol(&world).await, json!({ "minReaderVersion": 1, "minWriterVersion": 2 }));
    assert_eq!(world.metadata().await.configuration().get("delta.enableDeletionVectors"), None);
    world.add_column("at", DataType::Timestamp(TimeUnit::Microsecond, None), None).await;
    let features = ["timestampNtz", "appendOnly", "invariants"];
    let found = protocol(&world).await;
    assert_eq!(found["readerFeatures"], json!(["timestampNtz"]));
    assert!(features.iter().all(|feature| found["writerFeatures"].as_array().unwrap().contains(&json!(feature))));
    world.apply_random(40, 60).await;
    world.compare("with a feature").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_files_that_lose_rows_are_written_again() {
    let mut world = World::in_mode(MergeMode::CopyOnWrite, KeyKind::Long, 61).await;
    for from in (0..100).step_by(10) {
        world.apply_ids(&(from..from + 10).collect::<Vec<_>>(), &[]).await;
    }
    let before = world.table.files.clone();
    world.apply_ids(&[200], &[15, 16]).await;
    world.apply_ids(&[], &(30..40).collect::<Vec<_>>()).await;
    let same = before.keys().filter(|path| world.table.files.contains_key(*path)).count();
    // Two were touched, one of them lost all its rows; one came with the batch.
    assert_eq!((same, world.table.files.len()), (8, 10));
    world.compare("two files touched").await;
}

/// Goes from one mode to the other and back, with changes in between.
async fn check_switching(settings: &TableSettings, seed: u64) {
    let mut world = World::with(settings.clone(), KeyKind::Long, seed).await;
    for step in 0..6 {
        let context = format!("seed {seed} step {step}");
        let merge = MODES[step % 2];
        world.set(TableSettings { merge, ..settings.clone() }).await;
        for _ in 0..2 {
            world.apply_random(50, 70).await;
            world.compare(&format!("{context} {merge:?}")).await;
        }
        assert_eq!(has_vectors(&world), merge == MergeMode::OnRead, "{context} {merge:?}");
        match step {
            1 | 2 => _ = fold_all(&mut world, &context).await,
            3 => world.foreign_compaction().await,
            _ => {}
        }
        world.compare(&context).await;
    }
    assert_eq!(protocol(&world).await["minReaderVersion"], json!(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_follows_the_job_file_from_one_merge_mode_to_the_other() {
    check_switching(&TableSettings::default(), 62).await;
    check_switching(&copy_on_write(TableSettings::default()), 63).await;
    check_switching(&partitioned(&["month(at)"]), 64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_property_that_someone_else_changed_is_set_again() {
    let mut world = World::in_mode(MergeMode::OnRead, KeyKind::Long, 65).await;
    world.apply_random(40, 60).await;
    world.foreign_property("delta.enableDeletionVectors", "false").await;
    world.apply_random(40, 60).await;
    world.compare("after a property was changed").await;
    world.reopen().await;
    world.apply_random(40, 60).await;
    assert_eq!(world.metadata().await.configuration()["delta.enableDeletionVectors"], "true");
    world.compare("after it was set again").await;
}
