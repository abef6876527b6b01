//! A table's rows in a form that can be compared by value.

use std::collections::BTreeMap;

/// All rows of one table. Values are canonical text, the same for a value that a server prints and for the value
/// that a Delta table holds: see the two readers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    pub columns: Vec<String>,
    pub key: Vec<String>,
    /// By the key's values.
    pub rows: BTreeMap<Vec<String>, Vec<Option<String>>>,
}

/// More differences than these are only counted.
const DIFFERENCES_SHOWN_MAX: usize = 8;

impl Content {
    /// Columns are put into the order of their names: where a column stands is not part of a table's content.
    ///
    /// # Panics
    /// When a key occurs twice, or is null.
    pub fn new(what: &str, columns: Vec<String>, key: &[String], rows: Vec<Vec<Option<String>>>) -> Self {
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|index| &columns[*index]);
        let rows = rows.into_iter().map(|row| order.iter().map(|index| row[*index].clone()).collect::<Vec<_>>());
        let columns: Vec<String> = order.iter().map(|index| columns[*index].clone()).collect();
        let indexes: Vec<usize> = key
            .iter()
            .map(|name| columns.iter().position(|column| column == name).unwrap_or_else(|| panic!("{what}: no {name}")))
            .collect();
        let mut content = Content { columns, key: key.to_vec(), rows: BTreeMap::new() };
        for row in rows {
            let values = indexes.iter().map(|index| row[*index].clone());
            let key: Vec<String> =
                values.collect::<Option<_>>().unwrap_or_else(|| panic!("{what}: a key column is null: {row:?}"));
            let before = content.rows.insert(key.clone(), row);
            assert!(before.is_none(), "{what}: the key {key:?} occurs twice");
        }
        content
    }

    /// What differs, in words; empty when the two are equal.
    pub fn differences(&self, expected: &Content) -> Vec<String> {
        let mut found = Vec::new();
        if self.columns != expected.columns {
            found.push(format!("columns {:?}, expected {:?}", self.columns, expected.columns));
            return found;
        }
        for (key, row) in &expected.rows {
            match self.rows.get(key) {
                None => found.push(format!("{key:?} is missing: {row:?}")),
                Some(other) if other != row => found.push(self.row_difference(key, other, row)),
                Some(_) => {}
            }
        }
        let extra = self.rows.iter().filter(|(key, _)| !expected.rows.contains_key(*key));
        found.extend(extra.map(|(key, row)| format!("{key:?} should not be there: {row:?}")));
        found
    }

    fn row_difference(&self, key: &[String], found: &[Option<String>], expected: &[Option<String>]) -> String {
        let columns = self.columns.iter().zip(found.iter().zip(expected));
        let differing: Vec<String> = columns
            .filter(|(_, (found, expected))| found != expected)
            .map(|(column, (found, expected))| format!("{column} is {found:?}, expected {expected:?}"))
            .collect();
        format!("{key:?}: {}", differing.join("; "))
    }
}

/// # Panics
/// When the two differ, with the first differences.
pub fn assert_same(what: &str, found: &Content, expected: &Content) {
    let differences = found.differences(expected);
    if differences.is_empty() {
        return;
    }
    let shown: Vec<&str> = differences.iter().take(DIFFERENCES_SHOWN_MAX).map(String::as_str).collect();
    panic!("{what}: {} differences\n  {}", differences.len(), shown.join("\n  "));
}
