//! From a deletion vector to the rows of a file that are read.

use std::ops::Range;
use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::RowGroupMetaData;
use roaring::RoaringTreemap;
use roaring::treemap::Iter;

use super::keys::NamedKeys;
use super::pruning::PagePruner;
use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::FileAccess;

/// From this many deleted rows on, a file's footer is asked first which rows a query may need at all: a selection over
/// all of the file is made, copied and cut to pages for every part of it that is read. Small tables reach it in tests.
const LARGE_VECTOR_ROWS: u64 = if cfg!(test) { 6 } else { 10_000 };

/// The rows of a file that are read.
pub(super) enum LiveRows {
    None,
    All,
    /// Over all row groups.
    Of(RowSelection),
    /// Row group by row group, without those that cannot match.
    ByGroup(ParquetAccessPlan),
}

/// The live rows of a file, as far as `pages` cannot tell that they do not match.
///
/// # Errors
/// [`LakeError::Damaged`] if the vector cannot be what the log says, or deletes rows that the file does not have.
pub(super) async fn live_rows(
    access: &FileAccess,
    file: &FileEntry,
    pages: Option<&PagePruner>,
) -> Result<LiveRows, LakeError> {
    let Some(vector) = access.vector(file).await? else { return Ok(LiveRows::All) };
    let pages = pages.filter(|_| vector.len() >= LARGE_VECTOR_ROWS);
    let footer = match (pages, file.rows) {
        (None, Some(_)) => None,
        _ => Some(access.footers.get(file).await?),
    };
    let rows = match &footer {
        Some(footer) => access.check_rows(file, footer)?,
        None => file.rows.unwrap_or(0),
    };
    if vector.max().is_some_and(|last| last >= rows) {
        let reason = format!("its deletion vector names row {}, it has {rows} rows", vector.max().unwrap_or(0));
        let (table, file) = (access.footers.table.clone(), file.add.path.clone());
        return Err(LakeError::Damaged { table, file, reason });
    }
    let parts = pages.zip(footer.as_ref()).and_then(|(pages, footer)| Some((pages.parts(footer)?, footer.metadata())));
    Ok(match parts {
        Some((parts, metadata)) => LiveRows::ByGroup(live_parts(&vector, parts, metadata.row_groups())),
        None => LiveRows::Of(live(&vector, rows)),
    })
}

/// The live rows of a file that have one of `keys`.
pub(super) async fn rows_of_keys(keys: &NamedKeys, file: &Arc<FileEntry>) -> Result<LiveRows, LakeError> {
    let (rows, total) = keys.rows(file).await?;
    if rows.is_empty() {
        return Ok(LiveRows::None);
    }
    let each = rows.iter().map(|row| count(*row)..count(*row) + 1);
    Ok(LiveRows::Of(RowSelection::from_consecutive_ranges(each, count(total))))
}

/// The rows of these numbers.
///
/// # Errors
/// [`LakeError::Damaged`] if the file does not have them.
pub(super) async fn these_rows(
    access: &FileAccess,
    file: &FileEntry,
    rows: &RoaringTreemap,
) -> Result<LiveRows, LakeError> {
    let footer = access.footers.get(file).await?;
    let total = access.check_rows(file, &footer)?;
    if let Some(last) = rows.max().filter(|last| *last >= total) {
        let reason = format!("a deletion vector names row {last}, it has {total} rows");
        return Err(LakeError::Damaged { table: access.footers.table.clone(), file: file.add.path.clone(), reason });
    }
    let mut runs = Runs::default();
    let mut next = 0;
    for row in rows {
        runs.push(RowSelector::skip(count(row - next)));
        runs.push(RowSelector::select(1));
        next = row + 1;
    }
    runs.push(RowSelector::skip(count(total - next)));
    Ok(LiveRows::Of(runs.selectors.into()))
}

/// All of `rows` rows but the deleted ones.
fn live(vector: &RoaringTreemap, rows: u64) -> RowSelection {
    let mut runs = Runs::default();
    Deleted::new(vector).select(0..rows, &mut runs);
    runs.selectors.into()
}

/// The same within the parts of a file.
fn live_parts(vector: &RoaringTreemap, parts: ParquetAccessPlan, groups: &[RowGroupMetaData]) -> ParquetAccessPlan {
    let mut deleted = Deleted::new(vector);
    let mut first = 0;
    let live_in = |(part, group): (RowGroupAccess, &RowGroupMetaData)| {
        let start = first;
        first += u64::try_from(group.num_rows()).unwrap_or(0);
        deleted.within(part, start..first)
    };
    ParquetAccessPlan::new(parts.into_inner().into_iter().zip(groups).map(live_in).collect())
}

/// The deleted rows of a file, walked through once.
pub(super) struct Deleted<'a> {
    rows: Iter<'a>,
    /// The next of them.
    next: Option<u64>,
}

impl<'a> Deleted<'a> {
    pub fn new(vector: &'a RoaringTreemap) -> Self {
        let mut rows = vector.iter();
        let next = rows.next();
        Self { rows, next }
    }

    /// Selects the live rows of `range`, which must not begin before the end of an earlier one.
    fn select(&mut self, range: Range<u64>, runs: &mut Runs) {
        if self.next.is_some_and(|next| next < range.start) {
            self.rows.advance_to(range.start);
            self.next = self.rows.next();
        }
        let mut row = range.start;
        while let Some(deleted) = self.next.filter(|next| *next < range.end) {
            runs.push(RowSelector::select(count(deleted - row)));
            runs.push(RowSelector::skip(1));
            row = deleted + 1;
            self.next = self.rows.next();
        }
        runs.push(RowSelector::select(count(range.end - row)));
    }

    /// The live ones of `rows` of a row group with `group_rows` rows, the first of which is row `first` of the file, as a
    /// selection over that group; `None` if there are none. What is asked for later must come behind.
    pub fn live_of(&mut self, first: u64, rows: &Range<usize>, group_rows: usize) -> Option<RowSelection> {
        let mut runs = Runs::default();
        runs.push(RowSelector::skip(rows.start));
        self.select(first + rows.start as u64..first + rows.end as u64, &mut runs);
        runs.push(RowSelector::skip(group_rows - rows.end));
        let is_some = runs.selectors.iter().any(|run| !run.skip);
        is_some.then(|| runs.selectors.into())
    }

    /// The live rows of a row group, the rows of which are `range`, as far as `part` has them.
    fn within(&mut self, part: RowGroupAccess, range: Range<u64>) -> RowGroupAccess {
        let mut runs = Runs::default();
        match part {
            RowGroupAccess::Skip => return RowGroupAccess::Skip,
            RowGroupAccess::Scan => self.select(range, &mut runs),
            RowGroupAccess::Selection(selection) => {
                let mut row = range.start;
                for selector in selection.iter() {
                    let end = row + selector.row_count as u64;
                    if selector.skip {
                        runs.push(*selector);
                    } else {
                        self.select(row..end, &mut runs);
                    }
                    row = end;
                }
            }
        }
        runs.access()
    }
}

/// Selectors, of which no two neighbours are alike.
#[derive(Default)]
struct Runs {
    selectors: Vec<RowSelector>,
}

impl Runs {
    fn push(&mut self, selector: RowSelector) {
        match self.selectors.last_mut() {
            _ if selector.row_count == 0 => {}
            Some(last) if last.skip == selector.skip => last.row_count += selector.row_count,
            _ => self.selectors.push(selector),
        }
    }

    fn access(self) -> RowGroupAccess {
        match self.selectors.as_slice() {
            [] | [RowSelector { skip: true, .. }] => RowGroupAccess::Skip,
            [RowSelector { skip: false, .. }] => RowGroupAccess::Scan,
            _ => RowGroupAccess::Selection(self.selectors.into()),
        }
    }
}

fn count(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn text(selection: &RowSelection) -> String {
        let text = |part: &RowSelector| format!("{}{}", if part.skip { '-' } else { '+' }, part.row_count);
        selection.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    fn check(deleted: &[u64], rows: u64, expected: &str) {
        let found = text(&live(&deleted.iter().copied().collect(), rows));
        assert_eq!(found, expected, "{deleted:?} of {rows}");
    }

    #[test]
    fn runs_of_deleted_rows_are_skipped() {
        check(&[], 3, "+3");
        check(&[0], 3, "-1 +2");
        check(&[1, 2], 4, "+1 -2 +1");
        check(&[0, 2, 3], 4, "-1 +1 -2");
        check(&[0, 1], 2, "-2");
    }

    #[test]
    fn each_row_is_selected_or_deleted() {
        const SEED: u64 = 5;
        let mut random = StdRng::seed_from_u64(SEED);
        for round in 0..200 {
            let rows = random.random_range(1..400_u64);
            let share = random.random_range(0..=100);
            let deleted: RoaringTreemap = (0..rows).filter(|_| random.random_range(0..100) < share).collect();
            let selection = live(&deleted, rows);
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

    /// Parts of row groups, each with its first row, and what is live of them.
    fn check_part(deleted: &[u64], parts: &[(u64, u64, RowGroupAccess)], expected: &[&str]) {
        let vector = deleted.iter().copied().collect();
        let mut walk = Deleted::new(&vector);
        let found = parts.iter().map(|(first, end, part)| match walk.within(part.clone(), *first..*end) {
            RowGroupAccess::Skip => "skip".to_string(),
            RowGroupAccess::Scan => "scan".to_string(),
            RowGroupAccess::Selection(selection) => text(&selection),
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{deleted:?} in {parts:?}");
    }

    #[test]
    fn parts_of_row_groups_are_read_one_after_the_other() {
        let vector = [0, 3, 10, 11, 12, 13, 19].into_iter().collect();
        let mut walk = Deleted::new(&vector);
        let mut part = |first, rows, all| walk.live_of(first, &rows, all).as_ref().map(text);
        assert_eq!(part(0, 0..4, 10).as_deref(), Some("-1 +2 -7"));
        assert_eq!(part(0, 4..10, 10).as_deref(), Some("-4 +6"));
        assert_eq!(part(10, 0..4, 12), None);
        assert_eq!(part(10, 4..12, 12).as_deref(), Some("-4 +5 -1 +2"));
    }

    #[test]
    fn live_rows_are_selected_within_the_parts_that_may_match() {
        use RowGroupAccess::{Scan, Selection, Skip};
        let middle = || Selection(vec![RowSelector::skip(2), RowSelector::select(3), RowSelector::skip(5)].into());
        check_part(&[3, 12], &[(0, 10, Scan), (10, 20, Scan), (20, 30, Scan)], &["+3 -1 +6", "+2 -1 +7", "scan"]);
        check_part(&[3, 12, 25], &[(0, 10, Skip), (10, 20, middle()), (20, 30, Skip)], &["skip", "-3 +2 -5", "skip"]);
        check_part(&[0, 1, 9, 12, 13, 14], &[(0, 10, middle()), (10, 20, middle())], &["-2 +3 -5", "skip"]);
        check_part(&[10, 11], &[(0, 10, Skip), (10, 12, Scan), (12, 13, Scan)], &["skip", "skip", "scan"]);
    }
}
