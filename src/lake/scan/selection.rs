//! From a deletion vector to the rows of a file that are read.

use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use roaring::RoaringTreemap;

use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::FileAccess;

/// The live rows of a file, over all of its row groups; `None` if no row is deleted.
///
/// # Errors
/// [`LakeError::Damaged`] if the vector cannot be what the log says, or deletes rows that the file does not have.
pub(super) async fn live_rows(access: &FileAccess, file: &FileEntry) -> Result<Option<RowSelection>, LakeError> {
    let Some(deleted) = access.vector(file).await? else { return Ok(None) };
    let rows = match file.rows {
        Some(rows) => rows,
        None => access.check_rows(file, &access.footers.get(file).await?)?,
    };
    selected(&deleted, rows).map(Some).ok_or_else(|| LakeError::Damaged {
        table: access.footers.table.clone(),
        file: file.add.path.clone(),
        reason: format!("its deletion vector names row {}, it has {rows} rows", deleted.max().unwrap_or(0)),
    })
}

/// All of `rows` rows but the deleted ones; `None` if there are fewer rows.
fn selected(deleted: &RoaringTreemap, rows: u64) -> Option<RowSelection> {
    if deleted.max().is_some_and(|last| last >= rows) {
        return None;
    }
    let count = |rows: u64| usize::try_from(rows).ok();
    let mut selectors: Vec<RowSelector> = Vec::new();
    let mut next = 0;
    for row in deleted {
        match selectors.last_mut().filter(|last| last.skip && next == row) {
            Some(run) => run.row_count += 1,
            None => {
                if row > next {
                    selectors.push(RowSelector::select(count(row - next)?));
                }
                selectors.push(RowSelector::skip(1));
            }
        }
        next = row + 1;
    }
    if rows > next {
        selectors.push(RowSelector::select(count(rows - next)?));
    }
    Some(selectors.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn check(deleted: &[u64], rows: u64, expected: Option<&str>) {
        let found = selected(&deleted.iter().copied().collect(), rows).map(|selection| {
            let text = |part: &RowSelector| format!("{}{}", if part.skip { '-' } else { '+' }, part.row_count);
            selection.iter().map(text).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(found.as_deref(), expected, "{deleted:?} of {rows}");
    }

    #[test]
    fn runs_of_deleted_rows_are_skipped() {
        check(&[], 3, Some("+3"));
        check(&[0], 3, Some("-1 +2"));
        check(&[1, 2], 4, Some("+1 -2 +1"));
        check(&[0, 2, 3], 4, Some("-1 +1 -2"));
        check(&[0, 1], 2, Some("-2"));
        check(&[2], 2, None);
    }

    #[test]
    fn each_row_is_selected_or_deleted() {
        const SEED: u64 = 5;
        let mut random = StdRng::seed_from_u64(SEED);
        for round in 0..200 {
            let rows = random.random_range(1..400_u64);
            let share = random.random_range(0..=100);
            let deleted: RoaringTreemap = (0..rows).filter(|_| random.random_range(0..100) < share).collect();
            let selection = selected(&deleted, rows).unwrap();
            let mut row = 0;
            for part in selection.iter() {
                for _ in 0..part.row_count {
                    assert_eq!(deleted.contains(row), part.skip, "row {row}, round {round}, seed {SEED}");
                    row += 1;
                }
            }
            assert_eq!(row, rows, "round {round}, seed {SEED}");
        }
    }
}
