//! Changes that leave columns out: their values are those of the rows that the table has.

use std::collections::BTreeSet;

use super::world::{KeyKind, MODES, World, copy_on_write, partitioned, tag};
use crate::batch::{AbsentRows, KeyedChanges};
use crate::change::{Gap, Gaps, Moved, Operation, RowKey};
use crate::config::{MergeMode, TableSettings};
use crate::lake::{CommitOutcome, CommitTag, LakeError};

/// Updates of these keys in which every column but the key is left out: none of the rows changes.
fn empty_updates(world: &World, ids: &[u32], absent_rows: AbsentRows) -> KeyedChanges {
    let batch: Vec<_> = ids.iter().map(|id| (*id, Operation::Update)).collect();
    let mut changes = world.changes(&batch, world.sequence + 1);
    let columns = world.schema.columns.len();
    let mut gap = Gap::none(columns);
    (0..columns).filter(|column| !world.schema.key.contains(column)).for_each(|column| gap.set_absent(column, true));
    let mut gaps = Gaps::new(columns);
    ids.iter().for_each(|_| gaps.push(&gap));
    changes.gaps = Some(gaps);
    let keyed = KeyedChanges::from_batches(world.schema.clone(), vec![changes]).unwrap();
    keyed.with_absent_rows(absent_rows)
}

async fn apply(world: &mut World, ids: &[u32], absent_rows: AbsentRows) -> Result<CommitOutcome, LakeError> {
    let keyed = empty_updates(world, ids, absent_rows);
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
        let outcome = apply(&mut world, &known, AbsentRows::Fault).await.unwrap();
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
    let error = apply(&mut world, &[2, 70], AbsentRows::Fault).await.unwrap_err();
    assert!(matches!(error, LakeError::NoOldRow { .. }), "{error}");
    assert_eq!(error.table_at_fault(), Some(&world.schema.table));
    world.compare("nothing was committed").await;
    let outcome = apply(&mut world, &[2, 70], AbsentRows::Noted).await.unwrap();
    let CommitOutcome::Committed(summary) = outcome else { panic!("{outcome:?}") };
    assert_eq!((summary.rows_upserted, summary.unsettled.len()), (1, 0));
    world.compare("the row was left out").await;
}

/// Rows that moved from keys of which the table has none, with every other column left out.
fn moves(world: &World, moves: &[(u32, u32)], absent_rows: AbsentRows) -> KeyedChanges {
    let both = |(from, to): &(u32, u32)| [(*from, Operation::Delete), (*to, Operation::Insert)];
    let batch: Vec<_> = moves.iter().flat_map(both).collect();
    let mut changes = world.changes(&batch, world.sequence + 1);
    let columns = world.schema.columns.len();
    let (mut away, mut here) = (Gap::none(columns), Gap::none(columns));
    away.set_moved(Moved::Away);
    here.set_moved(Moved::Here);
    (0..columns).filter(|column| !world.schema.key.contains(column)).for_each(|column| here.set_absent(column, true));
    let mut gaps = Gaps::new(columns);
    for gap in moves.iter().flat_map(|_| [&away, &here]) {
        gaps.push(gap);
    }
    changes.gaps = Some(gaps);
    let keyed = KeyedChanges::from_batches(world.schema.clone(), vec![changes]).unwrap();
    keyed.with_absent_rows(absent_rows)
}

async fn apply_moves(
    world: &mut World,
    all: &[(u32, u32)],
    absent_rows: AbsentRows,
    unsettled: BTreeSet<RowKey>,
) -> Result<BTreeSet<RowKey>, LakeError> {
    let tag = CommitTag { unsettled, ..tag(world.sequence + 1) };
    let outcome = world.table.apply(moves(world, all, absent_rows), &tag).await?;
    world.sequence += 1;
    let CommitOutcome::Committed(summary) = outcome else { panic!("{outcome:?}") };
    assert_eq!(world.table.unsettled("alluvium/test").await.unwrap(), summary.unsettled);
    Ok(summary.unsettled)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_rows_that_come_from_a_part_that_is_still_to_be_loaded_are_in_the_log_until_they_are_settled() {
    let mut world = World::in_mode(MergeMode::OnRead, KeyKind::Long, 84).await;
    world.apply_ids(&[1, 2, 3], &[]).await;
    let keys = |ids: &[u32]| ids.iter().map(|id| RowKey(vec![id.to_string()])).collect::<BTreeSet<_>>();
    let none = BTreeSet::new();
    assert_eq!(apply_moves(&mut world, &[(70, 4)], AbsentRows::Expected, none.clone()).await.unwrap(), none);
    let noted = apply_moves(&mut world, &[(70, 4), (71, 5)], AbsentRows::Noted, none.clone()).await.unwrap();
    assert_eq!(noted, keys(&[4, 5]));
    let more = apply_moves(&mut world, &[(72, 6)], AbsentRows::Noted, noted).await.unwrap();
    assert_eq!(more, keys(&[4, 5, 6]));
    let many: Vec<(u32, u32)> = (10..16).map(|id| (id + 70, id)).collect();
    let error = apply_moves(&mut world, &many, AbsentRows::Noted, more).await.unwrap_err();
    assert!(error.to_string().contains("--resnapshot"), "{error}");
    assert_eq!(error.table_at_fault(), Some(&world.schema.table));
    assert_eq!(apply_moves(&mut world, &[], AbsentRows::Noted, keys(&[6])).await.unwrap(), keys(&[6]));
    world.compare("none of them is there").await;
}
