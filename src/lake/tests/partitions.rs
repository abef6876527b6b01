//! Tables that are divided by the values of columns.

use std::sync::Arc;

use arrow::array::{Int64Array, StringArray};
use arrow::datatypes::{DataType, TimeUnit};

use super::upkeep::fold_all;
use super::world::{AWKWARD, KeyKind, World, copy_on_write, memory_lake, partitioned, tag};
use crate::change::TableId;
use crate::config::TableRules;
use crate::lake::{CommitTag, LakeError, LakeErrorKind};
use crate::schema::{Column, TableSchema};
use object_store::memory::InMemory;

/// Random batches that move rows between partitions, with all else that happens to a table in between.
async fn check(by: &[&str], kind: KeyKind, seed: u64) {
    let settings = if seed.is_multiple_of(2) { partitioned(by) } else { copy_on_write(partitioned(by)) };
    let mut world = World::with(settings.clone(), kind, seed).await;
    // Where each key is a partition, fewer keys do.
    let keys = if by.iter().any(|by| by.contains("id")) { 40 } else { 90 };
    for step in 0..8 {
        let context = format!("by {by:?} {:?}, {kind:?} seed {seed} step {step}", settings.merge);
        world.apply_random(60, keys).await;
        world.compare(&context).await;
        match step {
            2 => world.add_column("counted", DataType::Int64, Some(Arc::new(Int64Array::from(vec![7])))).await,
            1 | 7 => _ = fold_all(&mut world, &context).await,
            3 => world.reopen().await,
            4 => world.foreign_compaction().await,
            5 => world.truncate_and_apply(40, keys).await,
            6 => world.add_column("named", DataType::Utf8, Some(Arc::new(StringArray::from(vec!["new"])))).await,
            _ => continue,
        }
        world.compare(&format!("{context}, afterwards")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_move_between_partitions_of_awkward_values() {
    check(&["region"], KeyKind::Long, 30).await;
    check(&["region"], KeyKind::Text, 31).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_dates_divide_a_table() {
    check(&["year(at)"], KeyKind::Long, 32).await;
    check(&["month(at)", "region"], KeyKind::Long, 33).await;
    check(&["day(at)", "year(at)"], KeyKind::TextAndLong, 34).await;
    check(&["at"], KeyKind::Long, 35).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_columns_divide_a_table() {
    check(&["id"], KeyKind::AwkwardText, 36).await;
    check(&["id"], KeyKind::TextAndLong, 37).await;
    check(&["id2"], KeyKind::TextAndLong, 38).await;
    check(&["id2", "id"], KeyKind::IntegerAndText, 39).await;
    check(&["day(id)"], KeyKind::Timestamp, 40).await;
    check(&["month(id)", "region"], KeyKind::Date, 41).await;
    check(&["id"], KeyKind::Timestamp, 42).await;
    check(&["id"], KeyKind::Decimal, 43).await;
    check(&["id"], KeyKind::Integer, 44).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_names_each_file_s_partition_and_a_path_only_plain_values() {
    let mut world = World::with(partitioned(&["region"]), KeyKind::Long, 45).await;
    world.apply_ids(&(0..200).collect::<Vec<_>>(), &[]).await;
    let mut found: Vec<Option<String>> = Vec::new();
    for file in world.table.files.values() {
        let name = file.add.path.rsplit('/').next().unwrap();
        assert!(
            name.starts_with("part-") && file.add.path.bytes().all(|byte| byte.is_ascii_graphic()),
            "{}",
            file.add.path
        );
        match file.add.partition_values["region"].as_deref() {
            Some("a/b" | "a%2Fb" | " ") => assert_eq!(name, file.add.path),
            None => assert_eq!(format!("region=__HIVE_DEFAULT_PARTITION__/{name}"), file.add.path),
            _ => {}
        }
        assert!(!file.add.stats.as_deref().unwrap_or_default().contains("region"));
        found.extend(file.add.partition_values.values().cloned());
    }
    found.sort();
    found.dedup();
    let mut wanted: Vec<Option<String>> = AWKWARD[1..].iter().map(|text| Some(text.to_string())).collect();
    wanted.push(None);
    wanted.sort();
    assert_eq!(found, wanted);
}

/// Far more partitions than files may be open at once, and rows than memory holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_many_partitions_goes_through_the_disk() {
    let lake = memory_lake(Arc::new(InMemory::new())).with_memory(64 << 10);
    let lake = lake.with_rules(TableRules::uniform(partitioned(&["id"])));
    let mut world = World::new(lake, TableId::new("shop", "orders"), KeyKind::Text, 46).await;
    let ids: Vec<u32> = (0..500).collect();
    world.apply_ids(&ids, &[]).await;
    assert_eq!(world.table.stats().files, 500);
    world.compare("one row in each partition").await;
    let lake = memory_lake(Arc::new(InMemory::new())).with_memory(64 << 10);
    let lake = lake.with_rules(TableRules::uniform(partitioned(&["region"])));
    let mut world = World::new(lake, TableId::new("shop", "orders"), KeyKind::Long, 47).await;
    let ids: Vec<u32> = (0..8_000).collect();
    world.apply_ids(&ids, &[]).await;
    world.compare("many rows in each partition").await;
}

async fn check_refused(by: &[&str], columns: &[(&str, DataType)], expected: &str) {
    let column = |(name, data_type): &(&str, DataType)| Column::new(*name, data_type.clone(), "");
    let columns = columns.iter().map(column).collect();
    let table = TableId::new("shop", "refused");
    let schema = TableSchema::new(table, columns, vec![0]);
    let lake = memory_lake(Arc::new(InMemory::new())).with_rules(TableRules::uniform(partitioned(by)));
    let error = lake.create_table(&schema, &tag(0)).await.err().unwrap();
    assert!(matches!(error, LakeError::Settings { .. }), "{error}");
    assert_eq!(error.kind(), LakeErrorKind::Misconfigured);
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[tokio::test]
async fn what_cannot_divide_a_table_is_told_when_it_is_made() {
    let id = ("id", DataType::Int64);
    check_refused(
        &["price"],
        &[id.clone(), ("price", DataType::Float64)],
        "column price is Float64, which cannot divide a table",
    )
    .await;
    check_refused(
        &["raw"],
        &[id.clone(), ("raw", DataType::Binary)],
        "column raw is Binary, which cannot divide a table",
    )
    .await;
    check_refused(&["day(name)"], &[id.clone(), ("name", DataType::Utf8)], "column name is Utf8, not a date").await;
    check_refused(&["gone"], std::slice::from_ref(&id), "the source has no column gone").await;
    check_refused(&["id"], std::slice::from_ref(&id), "a table needs a column beside its partition columns").await;
    check_refused(&["name", "NAME"], &[id.clone(), ("name", DataType::Utf8)], "name is named twice").await;
    let at = ("at", DataType::Timestamp(TimeUnit::Microsecond, None));
    check_refused(
        &["day(at)"],
        &[id, at, ("AT_day", DataType::Date32)],
        "the source has a column at_day, the name that day(at) needs",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_column_must_not_have_the_name_of_a_partition_s() {
    let mut world = World::with(partitioned(&["year(at)"]), KeyKind::Long, 48).await;
    let mut schema = (*world.schema).clone();
    let source_type = "int".to_string();
    schema.columns.push(Column::new("at_year", DataType::Int32, source_type));
    let error = world.table.evolve(&schema, &Default::default(), &CommitTag::default()).await.err().unwrap();
    assert!(matches!(error, LakeError::Settings { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_keeps_the_partitions_that_it_was_made_with() {
    let mut world = World::with(partitioned(&["region"]), KeyKind::Long, 49).await;
    world.apply_random(40, 60).await;
    for by in [&["day(at)"][..], &[]] {
        world.set(partitioned(by)).await;
        assert_eq!(world.table.partitioning().names().collect::<Vec<_>>(), ["region"]);
        world.apply_random(40, 60).await;
        world.compare("with other partitions in the job file").await;
    }
}
