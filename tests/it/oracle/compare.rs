//! Compares a lake with what the server held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::workload::{Recorded, Workload};
use crate::harness::{Commit, Content, LakeReader, assert_same};

/// Positions that are compared in one test; more would only take time.
const POSITIONS_MAX: usize = 30;

/// Every table of the workload equals the server's now.
pub async fn assert_lake_equals(lake: &LakeReader, workload: &mut Workload) {
    for (table, expected) in workload.content().await {
        if !lake.has_table(&workload.database, &table) {
            assert!(expected.rows.is_empty(), "{table} is not in the lake and has {} rows", expected.rows.len());
            continue;
        }
        let found = lake.content(&workload.database, &table, &expected.key, None).await;
        assert_same(&format!("{table} at the end"), &found, &expected);
    }
}

/// The lake's tables at every recorded position that one of their commits carries equal the server's tables then.
/// Gives the number of positions compared.
pub async fn assert_versions(lake: &LakeReader, database: &str, recorded: &[Recorded]) -> usize {
    let states: BTreeMap<&str, &Arc<BTreeMap<String, Arc<Content>>>> =
        recorded.iter().map(|state| (state.position.as_str(), &state.tables)).collect();
    let names: Vec<&String> = recorded[0].tables.keys().filter(|table| lake.has_table(database, table)).collect();
    let commits: BTreeMap<&String, Vec<Commit>> =
        names.iter().map(|table| (*table, lake.commits(database, table))).collect();
    let carried = commits.values().flatten().filter_map(|commit| commit.position.as_deref());
    let positions: BTreeSet<(u64, u64, &str)> = carried
        .filter(|position| states.contains_key(position))
        .map(|position| (order(position).0, order(position).1, position))
        .collect();
    let step = positions.len().div_ceil(POSITIONS_MAX).max(1);
    let chosen: Vec<&str> = positions.iter().step_by(step).map(|(_, _, position)| *position).collect();
    for position in &chosen {
        for (table, expected) in states[position].iter() {
            compare_at(lake, database, table, commits.get(table), position, expected).await;
        }
    }
    chosen.len()
}

/// `expected` is the table at `position`; the version that holds it is the newest whose position is not later.
async fn compare_at(
    lake: &LakeReader,
    database: &str,
    table: &str,
    commits: Option<&Vec<Commit>>,
    position: &str,
    expected: &Content,
) {
    let newest = commits.and_then(|commits| {
        commits.iter().rev().find(|c| c.position.as_deref().is_some_and(|p| order(p) <= order(position)))
    });
    let Some(commit) = newest else {
        assert!(expected.rows.is_empty(), "{table} has no version at {position}, and {} rows", expected.rows.len());
        return;
    };
    let found = lake.content(database, table, &expected.key, Some(commit.version)).await;
    assert_same(&format!("{table} at {position}, version {}", commit.version), &found, expected);
}

/// `binlog.000007:1234` as numbers that compare.
fn order(position: &str) -> (u64, u64) {
    let (file, offset) = position.rsplit_once(':').unwrap_or_else(|| panic!("{position} is not file:offset"));
    let number = file.rsplit_once('.').unwrap_or_else(|| panic!("{file} has no number")).1;
    (number.parse().unwrap(), offset.parse().unwrap())
}
