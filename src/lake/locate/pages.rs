//! Looks keys up in the page index of a column that is in order ("ColumnIndex" of the Parquet format), as it stands in
//! memory: the cost follows the keys, not the pages.

use parquet::basic::BoundaryOrder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;

use super::keys::{KeySet, gallop};

/// The pages that may hold one of `wanted`, keys of the set by ascending number; ascending. `None` where the index
/// cannot be searched so: it is not in order, has pages without bounds, or its values are not the keys' own.
pub(super) fn touched(
    index: &ColumnIndexMetaData,
    keys: &KeySet,
    wanted: impl Iterator<Item = usize>,
) -> Option<Vec<usize>> {
    let pages = usize::try_from(index.num_pages()).ok()?;
    if index.get_boundary_order() != Some(BoundaryOrder::ASCENDING) || (0..pages).any(|page| index.is_null_page(page)) {
        return None;
    }
    match index {
        ColumnIndexMetaData::INT32(index) => {
            let (min, max) = (index.min_values(), index.max_values());
            let keys = wanted.map(|key| keys.integer(key)).collect::<Option<Vec<_>>>()?;
            Some(walk(keys.into_iter(), pages, |page| min[page].into(), |page| max[page].into()))
        }
        ColumnIndexMetaData::INT64(index) => {
            let (min, max) = (index.min_values(), index.max_values());
            let keys = wanted.map(|key| keys.integer(key)).collect::<Option<Vec<_>>>()?;
            Some(walk(keys.into_iter(), pages, |page| min[page], |page| max[page]))
        }
        ColumnIndexMetaData::BYTE_ARRAY(index) => {
            let (min, max) = (|page| index.min_value(page).unwrap_or(&[]), |page| index.max_value(page).unwrap_or(&[]));
            let keys = wanted.map(|key| keys.text(key)).collect::<Option<Vec<_>>>()?;
            Some(walk(keys.into_iter(), pages, min, max))
        }
        _ => None,
    }
}

/// Keys ascend, and so do the minima and the maxima of the pages; pages may overlap.
fn walk<T: Ord + Copy>(
    keys: impl Iterator<Item = T>,
    pages: usize,
    min: impl Fn(usize) -> T,
    max: impl Fn(usize) -> T,
) -> Vec<usize> {
    let (mut touched, mut page) = (Vec::new(), 0);
    for key in keys {
        if page < pages && max(page) < key {
            page = gallop(page, pages, |page| max(page) < key);
        }
        if page == pages {
            break;
        }
        let mut next = touched.last().map_or(page, |last: &usize| page.max(last + 1));
        while next < pages && min(next) <= key {
            touched.push(next);
            next += 1;
        }
    }
    touched
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn exactly_the_pages_around_a_key_are_touched() {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..500 {
            let mut values: Vec<i64> = (0..random.random_range(1..60)).map(|_| random.random_range(0..80)).collect();
            values.sort_unstable();
            let pages: Vec<&[i64]> = values.chunks(random.random_range(1..6)).collect();
            let mut keys: Vec<i64> = (0..random.random_range(0..20)).map(|_| random.random_range(-5..85)).collect();
            keys.sort_unstable();
            keys.dedup();
            let (min, max) = (|page: usize| pages[page][0], |page: usize| *pages[page].last().unwrap());
            let holds = |page: &usize| keys.iter().any(|key| (min(*page)..=max(*page)).contains(key));
            let expected: Vec<usize> = (0..pages.len()).filter(holds).collect();
            assert_eq!(walk(keys.iter().copied(), pages.len(), min, max), expected, "{pages:?} {keys:?}");
        }
    }
}
