//! Which tables a job asks for.

use globset::{GlobBuilder, GlobMatcher};

use crate::change::TableId;

/// Patterns over `database.table`, in order: `shop.*` selects, `!shop.tmp_*` takes away; the last pattern
/// that matches decides.
#[derive(Debug, Clone)]
pub struct TableFilter {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    selects: bool,
    database: GlobMatcher,
    table: GlobMatcher,
}

/// A pattern that is not `database.table`, each a glob.
#[derive(Debug, thiserror::Error)]
#[error("\"{pattern}\" is not a table pattern: write database.table, with * for any name (shop.*, !shop.tmp_*)")]
pub struct InvalidPattern {
    pub pattern: String,
}

/// Schemas of the servers themselves, never captured by a pattern with a `*` in place of the database.
const SYSTEM_DATABASES: [&str; 4] = ["mysql", "information_schema", "performance_schema", "sys"];

impl TableFilter {
    /// # Errors
    /// The first pattern that is not one.
    pub fn new<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, InvalidPattern> {
        let patterns = patterns.into_iter().map(|text| Pattern::new(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// A helper of an online schema change ([`Self::shadowed`]) is selected by its own name only, not by a pattern.
    pub fn matches(&self, table: &TableId) -> bool {
        self.deciding(table).is_some_and(|pattern| {
            let by_name = !pattern.text.contains(['*', '?', '[', '{']);
            pattern.selects && (by_name || self.shadowed(table).is_none())
        })
    }

    /// The pattern that decides about a table.
    fn deciding(&self, table: &TableId) -> Option<&Pattern> {
        if SYSTEM_DATABASES.contains(&table.database.to_ascii_lowercase().as_str()) {
            return None;
        }
        let matches =
            |pattern: &&Pattern| pattern.database.is_match(&table.database) && pattern.table.is_match(&table.table);
        self.patterns.iter().rev().find(matches)
    }

    /// The selected table that `table` helps to change, by the names that gh-ost (`_t_gho`, `_t_ghc`, `_t_del`),
    /// pt-online-schema-change and spirit (`_t_new`, `_t_old`, with more underscores before if there is one already,
    /// and `_t_chkpnt`) give the tables that they make beside `t`.
    pub fn shadowed(&self, table: &TableId) -> Option<TableId> {
        const ENDS: [&str; 6] = ["_gho", "_ghc", "_del", "_new", "_old", "_chkpnt"];
        let name = table.table.strip_prefix('_')?;
        let name = ENDS.iter().find_map(|end| name.strip_suffix(end))?;
        let starts = (0..=name.len()).take_while(|start| name.bytes().take(*start).all(|byte| byte == b'_'));
        let originals = starts.filter_map(|start| name.get(start..)).filter(|name| !name.is_empty());
        let mut originals = originals.map(|name| TableId::new(table.database.clone(), name));
        originals.find(|original| self.deciding(original).is_some_and(|pattern| pattern.selects))
    }

    /// The patterns as they were typed.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = || InvalidPattern { pattern: text.to_string() };
        let glob = text.strip_prefix('!').unwrap_or(text);
        let (database, table) = glob.split_once('.').ok_or_else(invalid)?;
        if database.is_empty() || table.is_empty() {
            return Err(invalid());
        }
        // Each name has a glob of its own, so that dots and slashes in a name are letters like others.
        let matcher = |glob: &str| {
            let glob = GlobBuilder::new(glob).literal_separator(false).build();
            glob.map(|glob| glob.compile_matcher()).map_err(|_| invalid())
        };
        let (database, table) = (matcher(database)?, matcher(table)?);
        Ok(Self { text: text.to_string(), selects: !text.starts_with('!'), database, table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patterns: &[&str], table: (&str, &str), expected: bool) {
        let filter = TableFilter::new(patterns).expect("patterns are valid");
        assert_eq!(filter.matches(&TableId::new(table.0, table.1)), expected, "{patterns:?} {table:?}");
    }

    #[test]
    fn the_last_pattern_that_matches_decides() {
        check(&["shop.*"], ("shop", "orders"), true);
        check(&["shop.*", "!shop.tmp_*"], ("shop", "tmp_1"), false);
        check(&["!shop.tmp_*", "shop.*"], ("shop", "tmp_1"), true);
        check(&["shop.*"], ("shop2", "orders"), false);
        check(&["*.*"], ("mysql", "user"), false);
        check(&["s*.*"], ("shop", "a.b"), true);
        check(&["s*.*"], ("s/hop", "a/b"), true);
        check(&[], ("shop", "orders"), false);
    }

    #[test]
    fn helpers_of_online_schema_changes_are_selected_by_name_only() {
        for name in ["_orders_gho", "_orders_ghc", "_orders_del", "_orders_new", "__orders_old"] {
            check(&["shop.*"], ("shop", name), false);
            check(&["shop.*", &format!("shop.{name}")], ("shop", name), true);
            check(&["shop.*", "!shop.orders"], ("shop", name), !name.starts_with("__"));
        }
        check(&["shop.*"], ("shop", "orders_new"), true);
        check(&["shop.*"], ("shop", "__new"), true);
        let filter = TableFilter::new(["shop.orders"]).expect("patterns are valid");
        let shadowed = |name: &str| filter.shadowed(&TableId::new("shop", name)).map(|table| table.table);
        assert_eq!(shadowed("_orders_gho").as_deref(), Some("orders"));
        assert_eq!(shadowed("___orders_new").as_deref(), Some("orders"));
        assert_eq!(shadowed("_customers_gho"), None);
    }

    #[test]
    fn a_pattern_without_two_names_is_refused() {
        for text in ["orders", ".orders", "shop.", "!", "shop.[a"] {
            assert!(TableFilter::new([text]).is_err(), "{text}");
        }
    }
}
