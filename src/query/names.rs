//! From the name in a query to a table of the lake.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::QueryError;
use super::travel::AsOf;
use crate::change::TableId;

/// The tables that a query can name.
#[derive(Debug, Clone)]
pub(super) struct LakeNames {
    tables: BTreeSet<TableId>,
}

/// A table at a version; `None` is the newest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableAt {
    pub table: TableId,
    pub as_of: Option<AsOf>,
}

impl LakeNames {
    pub fn new(tables: impl IntoIterator<Item = TableId>) -> Self {
        Self { tables: tables.into_iter().collect() }
    }

    pub fn tables(&self) -> impl Iterator<Item = &TableId> {
        self.tables.iter()
    }

    /// Resolves `table` or `database.table`, each with an optional `@v12` at its end. A name that fits exactly wins over
    /// one that fits but for its case.
    pub fn resolve(&self, parts: &[String]) -> Result<TableAt, QueryError> {
        let (database, name) = match parts {
            [table] => (None, table),
            [database, table] => (Some(database.as_str()), table),
            _ => return Err(self.unknown(&parts.join("."), parts.last().map_or("", String::as_str))),
        };
        if let Some(table) = self.find(database, name)? {
            return Ok(TableAt { table: table.clone(), as_of: None });
        }
        if let Some((base, as_of)) = AsOf::split(name)?
            && let Some(table) = self.find(database, base)?
        {
            return Ok(TableAt { table: table.clone(), as_of: Some(as_of) });
        }
        let base = name.split('@').next().unwrap_or(name);
        let written = database.map_or_else(|| base.to_string(), |database| format!("{database}.{base}"));
        Err(self.unknown(&written, base))
    }

    fn find(&self, database: Option<&str>, table: &str) -> Result<Option<&TableId>, QueryError> {
        let fits = |same: fn(&str, &str) -> bool| -> Vec<&TableId> {
            let in_database = |id: &TableId| database.is_none_or(|database| same(&id.database, database));
            self.tables.iter().filter(|id| same(&id.table, table) && in_database(id)).collect()
        };
        let exact = fits(|a, b| a == b);
        let candidates = if exact.is_empty() { fits(same_but_case) } else { exact };
        match candidates.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            many => Err(QueryError::AmbiguousTable {
                name: table.to_string(),
                candidates: many.iter().map(|id| id.to_string()).collect(),
            }),
        }
    }

    fn unknown(&self, written: &str, table: &str) -> QueryError {
        let tables: Vec<String> = self.tables.iter().map(|id| id.table.clone()).collect();
        let of_name = |name: String| self.tables.iter().filter(move |id| id.table == name).map(TableId::to_string);
        let similar = similar(table, &tables).into_iter().flat_map(of_name).collect();
        QueryError::UnknownTable { name: written.to_string(), similar }
    }

    /// The names of databases and tables (in lower case) that the lake has in more than one spelling: their case counts.
    pub fn case_counts(&self) -> HashSet<String> {
        let databases: BTreeSet<&str> = self.tables.iter().map(|id| id.database.as_str()).collect();
        let tables: BTreeSet<&str> = self.tables.iter().map(|id| id.table.as_str()).collect();
        let mut both = several_spellings(databases);
        both.extend(several_spellings(tables));
        both
    }
}

/// Those of the distinct names (in lower case) that differ from another one only by case.
pub(super) fn several_spellings<'a>(names: impl IntoIterator<Item = &'a str>) -> HashSet<String> {
    let mut spellings: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *spellings.entry(name.to_lowercase()).or_default() += 1;
    }
    spellings.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
}

fn same_but_case(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// At most this many names are proposed: more is a list, not a proposal.
const PROPOSALS_MAX: usize = 3;

/// The names closest to `name`: those that contain it or differ by up to a third of their letters, closest first.
pub(super) fn similar(name: &str, candidates: &[String]) -> Vec<String> {
    let name = name.to_lowercase();
    let mut scored: Vec<(usize, &String)> = candidates
        .iter()
        .map(|candidate| (distance(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| {
            let contained = name.len() > 2 && candidate.to_lowercase().contains(&name);
            contained || *distance <= candidate.chars().count().max(3) / 3
        })
        .collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(PROPOSALS_MAX).map(|(_, candidate)| candidate.clone()).collect()
}

/// How many letters must be put in, taken out or changed to make one name of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (row, left) in a.chars().enumerate() {
        let mut corner = row;
        let mut left_cell = row + 1;
        let mut current = vec![left_cell];
        for (right, above) in b.iter().zip(previous.iter().skip(1)) {
            left_cell = (corner + usize::from(left != *right)).min(above + 1).min(left_cell + 1);
            corner = *above;
            current.push(left_cell);
        }
        previous = current;
    }
    previous.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lake() -> LakeNames {
        LakeNames::new([
            TableId::new("shop", "orders"),
            TableId::new("shop", "Customers"),
            TableId::new("crm", "orders_old"),
            TableId::new("crm", "Log"),
            TableId::new("crm", "log"),
        ])
    }

    fn check(name: &str, expected: &str) {
        let parts: Vec<String> = name.split('.').map(str::to_string).collect();
        let found = match lake().resolve(&parts) {
            Ok(TableAt { table, as_of: None }) => table.to_string(),
            Ok(TableAt { table, as_of: Some(as_of) }) => format!("{table} {as_of:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn a_name_is_found_with_and_without_its_database_in_any_case() {
        check("orders", "shop.orders");
        check("SHOP.Orders", "shop.orders");
        check("customers", "shop.Customers");
        check("orders@v12", "shop.orders Version(12)");
        check("Shop.ORDERS@V12", "shop.orders Version(12)");
    }

    #[test]
    fn the_exact_case_decides_between_names_that_differ_by_case_only() {
        check("log", "crm.log");
        check("Log", "crm.Log");
        check("LOG", "LOG may be any of crm.Log, crm.log; write the database and the exact case too");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_similar_ones() {
        check("order", "no table order in this lake; did you mean shop.orders or crm.orders_old?");
        check("shop.ordres@v3", "no table shop.ordres in this lake; did you mean shop.orders?");
        check("xyz", "no table xyz in this lake");
        check("a.b.orders", "no table a.b.orders in this lake; did you mean shop.orders or crm.orders_old?");
    }

    #[test]
    fn the_distance_counts_single_changes() {
        for (a, b, expected) in [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("orders", "ordres", 2)] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
