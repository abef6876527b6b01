//! Changes that leave columns out: their values are those of the rows that the table has.

use super::world::{KeyKind, MODES, World, copy_on_write, partitioned, tag};
use crate::batch::KeyedChanges;
use crate::change::{Gap, Gaps, Operation};
use crate::config::{MergeMode, TableSettings};
use crate::lake::{CommitOutcome, LakeError};

/// Updates of these keys in which every column but the key is left out: none of the rows changes.
fn empty_updates(world: &World, ids: &[u32], while_loading: bool) -> KeyedChanges {
    let batch: Vec<_> = ids.iter().map(|id| (*id, Operation::Update)).collect();
    let mut changes = world.changes(&batch, world.sequence + 1);
    let columns = world.schema.columns.len();
    let mut gap = Gap::none(columns);
    (0..columns).filter(|column| !world.schema.key.contains(column)).for_each(|column| gap.set_absent(column, true));
    let mut gaps = Gaps::new(columns);
    ids.iter().for_each(|_| gaps.push(&gap));
    changes.gaps = Some(gaps);
    let keyed = KeyedChanges::from_batches(world.schema.clone(), vec![changes]).unwrap();
    keyed.for_load(while_loading)
}

async fn apply(world: &mut World, ids: &[u32], while_loading: bool) -> Result<CommitOutcome, LakeError> {
    let keyed = empty_updates(world, ids, while_loading);
    let outcome = world.table.apply(keyed, &tag(world.sequence + 1)).await?;
    world.sequence += 1;
    Ok(outcome)
}

async fn check(settings: TableSettings, kind: KeyKind, seed: u64) {
    let mut world = World::with(settings, kind, seed).await;
    for step in 0..4 {
        world.apply_random(60, 80).await;
        let mut known: Vec<u32> =
            world.model.rows.keys().map(|key| key[0].trim_start_matches('k').parse().unwrap()).collect();
        known.retain(|id| id % 3 != 0);
        let outcome = apply(&mut world, &known, false).await.unwrap();
        let CommitOutcome::Committed(summary) = outcome else { panic!("{outcome:?}") };
        assert_eq!((summary.rows_upserted, summary.rows_deleted), (known.len() as u64, 0));
        world.compare(&format!("seed {seed} step {step}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_are_left_out_stay_as_they_are() {
    for merge in MODES {
        for change_feed in [false, true] {
            check(TableSettings { merge, change_feed, ..TableSettings::default() }, KeyKind::Long, 80).await;
        }
    }
    check(partitioned(&["region", "month(at)"]), KeyKind::Long, 81).await;
    check(copy_on_write(TableSettings::default()), KeyKind::Text, 82).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_not_there_is_a_fault_unless_it_is_still_to_be_loaded() {
    let mut world = World::in_mode(MergeMode::OnRead, KeyKind::Long, 83).await;
    world.apply_ids(&[1, 2, 3], &[]).await;
    let error = apply(&mut world, &[2, 70], false).await.unwrap_err();
    assert!(matches!(error, LakeError::NoOldRow { .. }), "{error}");
    assert_eq!(error.table_at_fault(), Some(&world.schema.table));
    world.compare("nothing was committed").await;
    let outcome = apply(&mut world, &[2, 70], true).await.unwrap();
    let CommitOutcome::Committed(summary) = outcome else { panic!("{outcome:?}") };
    assert_eq!(summary.rows_upserted, 1);
    world.compare("the row was left out").await;
}
