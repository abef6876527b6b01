//! Settings of single tables, by rules.

use std::fmt;

use crate::change::TableId;
use crate::schema::{ColumnRules, Evolution, Policy, WhenIncompatible};

use super::TableFilter;

/// How one table is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableSettings {
    pub partition_by: Vec<PartitionBy>,
    /// Columns whose values lie together in the files after maintenance; empty: the key.
    pub cluster_by: Vec<String>,
    pub merge: MergeMode,
    /// Whether commits carry a change data feed.
    pub change_feed: bool,
    /// Which changes of the source's columns are followed, and how.
    pub schema: Policy,
    /// Which of the source's columns come into the lake, and how.
    pub columns: ColumnRules,
}

/// How the old versions of changed rows leave a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMode {
    /// Deletion vectors hide them.
    #[default]
    OnRead,
    /// Their files are written again without them.
    CopyOnWrite,
}

/// A column whose values, or a part of whose dates, divide a table into folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionBy {
    pub column: String,
    /// `None`: the value itself.
    pub part: Option<DatePart>,
}

/// A part of a date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatePart {
    Year,
    Month,
    Day,
}

/// The settings of all tables: of the rules that match a table, the last one that has a setting decides it.
#[derive(Debug, Clone, Default)]
pub struct TableRules {
    rules: Vec<TableRule>,
    /// What holds for changes of columns where no rule says anything.
    schema: Policy,
}

/// What one entry of the job file says of the tables that it matches; `None` where it says nothing.
#[derive(Debug, Clone)]
pub(super) struct TableRule {
    pub tables: TableFilter,
    pub partition_by: Option<Vec<PartitionBy>>,
    pub cluster_by: Option<Vec<String>>,
    pub merge: Option<MergeMode>,
    pub change_feed: Option<bool>,
    pub evolution: Option<Evolution>,
    pub incompatible: Option<WhenIncompatible>,
    pub columns: Option<ColumnRules>,
}

impl TableRules {
    pub(super) fn new(rules: Vec<TableRule>, schema: Policy) -> Self {
        Self { rules, schema }
    }

    /// The same settings for all tables.
    #[cfg(test)]
    pub fn uniform(settings: TableSettings) -> Self {
        let tables = TableFilter::new(["*.*"]).unwrap();
        let TableSettings { partition_by, cluster_by, merge, change_feed, schema, columns } = settings;
        let rule = TableRule {
            tables,
            partition_by: Some(partition_by),
            cluster_by: Some(cluster_by),
            merge: Some(merge),
            change_feed: Some(change_feed),
            evolution: None,
            incompatible: None,
            columns: Some(columns),
        };
        Self::new(vec![rule], schema)
    }

    pub fn settings(&self, table: &TableId) -> TableSettings {
        let mut settings = TableSettings { schema: self.schema, ..TableSettings::default() };
        for rule in self.rules.iter().filter(|rule| rule.tables.matches(table)) {
            rule.apply(&mut settings);
        }
        settings
    }
}

impl TableRule {
    fn apply(&self, settings: &mut TableSettings) {
        if let Some(partition_by) = &self.partition_by {
            settings.partition_by.clone_from(partition_by);
        }
        if let Some(cluster_by) = &self.cluster_by {
            settings.cluster_by.clone_from(cluster_by);
        }
        settings.merge = self.merge.unwrap_or(settings.merge);
        settings.change_feed = self.change_feed.unwrap_or(settings.change_feed);
        settings.schema.evolution = self.evolution.unwrap_or(settings.schema.evolution);
        if let Some(columns) = &self.columns {
            settings.columns.clone_from(columns);
        }
        settings.schema.incompatible = self.incompatible.unwrap_or(settings.schema.incompatible);
    }
}

impl PartitionBy {
    /// `column`, or `year(column)`, `month(column)`, `day(column)`.
    pub fn parse(text: &str) -> Option<Self> {
        let part = |word: &str, part| {
            let column = text.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')')?;
            Some(Self { column: column.trim().to_string(), part: Some(part) })
        };
        let parsed = part("year", DatePart::Year)
            .or_else(|| part("month", DatePart::Month))
            .or_else(|| part("day", DatePart::Day))
            .unwrap_or_else(|| Self { column: text.to_string(), part: None });
        (!parsed.column.is_empty()).then_some(parsed)
    }
}

impl fmt::Display for PartitionBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            None => write!(f, "{}", self.column),
            Some(part) => write!(f, "{}({})", part.word(), self.column),
        }
    }
}

impl DatePart {
    /// As the job file writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Year => "year",
            Self::Month => "month",
            Self::Day => "day",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str) -> TableRule {
        let tables = TableFilter::new([pattern]).unwrap();
        TableRule {
            tables,
            partition_by: None,
            cluster_by: None,
            merge: None,
            change_feed: None,
            evolution: None,
            incompatible: None,
            columns: None,
        }
    }

    #[test]
    fn the_last_rule_that_has_a_setting_decides_it() {
        let rules = TableRules::new(
            vec![
                TableRule { merge: Some(MergeMode::CopyOnWrite), change_feed: Some(true), ..rule("shop.*") },
                TableRule { change_feed: Some(false), evolution: Some(Evolution::Off), ..rule("shop.orders") },
            ],
            Policy { incompatible: WhenIncompatible::Stop, ..Policy::default() },
        );
        let settings = rules.settings(&TableId::new("shop", "orders"));
        assert_eq!((settings.merge, settings.change_feed), (MergeMode::CopyOnWrite, false));
        let stop = WhenIncompatible::Stop;
        assert_eq!(settings.schema, Policy { evolution: Evolution::Off, incompatible: stop });
        let other = rules.settings(&TableId::new("other", "orders"));
        let schema = Policy { evolution: Evolution::On, incompatible: stop };
        assert_eq!(other, TableSettings { schema, ..TableSettings::default() });
    }

    #[test]
    fn a_partition_is_a_column_or_a_part_of_its_date() {
        let parsed = |text| PartitionBy::parse(text).map(|by| (by.column, by.part));
        assert_eq!(parsed("region"), Some(("region".into(), None)));
        assert_eq!(parsed("month(created at)"), Some(("created at".into(), Some(DatePart::Month))));
        assert_eq!(parsed("year()"), None);
        for text in ["region", "year(a)", "month(a b)", "day(c)"] {
            assert_eq!(PartitionBy::parse(text).map(|by| by.to_string()), Some(text.to_string()));
        }
        assert_eq!(parsed(""), None);
    }
}
