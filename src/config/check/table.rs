//! The checks of `tables`: keys given by hand, and how single tables are written.

use std::collections::BTreeMap;

use super::Checker;
use crate::change::TableId;
use crate::config::raw::{EvolutionWord, IncompatibleWord, MergeWord, OnOff, RawSchema, RawTable};
use crate::config::read::{At, Field};
use crate::config::substitute::Text;
use crate::config::table::TableRule;
use crate::config::{MergeMode, PartitionBy, Setting, TableFilter, TableRules};
use crate::schema::{Evolution, Policy, WhenIncompatible};

/// With more columns than this, rows are close in none of them.
const CLUSTER_COLUMNS_MAX: usize = 4;

impl Checker<'_> {
    /// What holds for changes of columns of all tables for which no rule says anything else.
    pub(super) fn schema(&mut self, field: &Field<RawSchema>) -> Policy {
        let none = RawSchema::default();
        let raw = field.set().map_or(&none, |schema| &schema.value);
        let evolution =
            self.value("schema.evolution", &raw.evolution, EvolutionWord::On, |word| word.word().to_string());
        let incompatible = self.value("schema.incompatible", &raw.incompatible, IncompatibleWord::NewColumn, |word| {
            word.word().to_string()
        });
        Policy { evolution: evolution_of(evolution), incompatible: incompatible_of(incompatible) }
    }

    /// The keys given by hand, and the rules over the job's own `schema`.
    pub(super) fn tables(
        &mut self,
        field: &Field<Vec<At<RawTable>>>,
        schema: Policy,
    ) -> (BTreeMap<String, Vec<String>>, TableRules) {
        let (mut keys, mut rules) = (BTreeMap::new(), Vec::new());
        let tables = field.set().map_or(&[][..], |tables| &tables.value);
        for table in tables {
            let Some((pattern, filter)) = self.table_pattern(&table.value.r#match) else {
                self.columns(&table.value.key);
                continue;
            };
            if let Some(key) = self.columns(&table.value.key) {
                self.table_key(table, &pattern, key, &mut keys);
            }
            rules.push(self.rule(&table.value, filter, &format!("{} ({pattern})", table.path)));
        }
        if tables.is_empty() {
            self.settings.push(Setting::default("tables", "none"));
        }
        (keys, TableRules::new(rules, schema))
    }

    fn table_pattern(&mut self, field: &Field<Text>) -> Option<(String, TableFilter)> {
        let name = field.set()?;
        let text = name.value.text();
        let refusal = match TableFilter::new([&text]) {
            Ok(_) if text.starts_with('!') => "must say which tables it is for, not which it is not for",
            Ok(_) if text.starts_with("re:") => "regular expressions are not supported yet: write a pattern with *",
            Ok(filter) => return Some((text, filter)),
            Err(_) => "must be a table as database.table, with * for any name",
        };
        self.report.add(name.at, &name.path, refusal);
        None
    }

    fn table_key(
        &mut self,
        table: &At<RawTable>,
        pattern: &str,
        key: Vec<String>,
        keys: &mut BTreeMap<String, Vec<String>>,
    ) {
        if pattern.contains(['*', '?', '[', '{']) {
            let message = "is for one table: give the table's name as `match`, not a pattern";
            self.refuse(&table.value.key, message);
            return;
        }
        let name = pattern.split_once('.').map(|(database, table)| TableId::new(database, table).to_string());
        let name = name.unwrap_or_default();
        self.given(&format!("{}.key", table.path), &format!("{name}: {}", key.join(", ")));
        if keys.insert(name.clone(), key).is_some() {
            self.report.add(table.at, &table.path, format!("{name} has a key above: leave one of them out"));
        }
    }

    fn rule(&mut self, raw: &RawTable, tables: TableFilter, shown: &str) -> TableRule {
        let partition_by = self.columns(&raw.partition_by);
        let partition_by = partition_by.map(|columns| self.partitions(raw, &columns, shown));
        let cluster_by = self.columns(&raw.cluster_by);
        if let Some(columns) = &cluster_by {
            self.given(&format!("{shown}.cluster_by"), &columns.join(", "));
            if columns.len() > CLUSTER_COLUMNS_MAX {
                self.refuse(&raw.cluster_by, format!("must be at most {CLUSTER_COLUMNS_MAX} columns"));
            }
        }
        let merge = raw.merge.set().map(|merge| {
            self.given(&format!("{shown}.merge"), merge.value.word());
            match merge.value {
                MergeWord::OnRead => MergeMode::OnRead,
                MergeWord::CopyOnWrite => MergeMode::CopyOnWrite,
            }
        });
        let change_feed = raw.change_feed.set().map(|switch| {
            self.given(&format!("{shown}.change_feed"), switch.value.word());
            switch.value == OnOff::On
        });
        let schema = raw.schema.set().map(|schema| &schema.value);
        let evolution = schema.and_then(|schema| schema.evolution.set()).map(|word| {
            self.given(&format!("{shown}.schema.evolution"), word.value.word());
            evolution_of(word.value)
        });
        let incompatible = schema.and_then(|schema| schema.incompatible.set()).map(|word| {
            self.given(&format!("{shown}.schema.incompatible"), word.value.word());
            incompatible_of(word.value)
        });
        TableRule { tables, partition_by, cluster_by, merge, change_feed, evolution, incompatible }
    }

    fn partitions(&mut self, raw: &RawTable, columns: &[String], shown: &str) -> Vec<PartitionBy> {
        self.given(&format!("{shown}.partition_by"), &columns.join(", "));
        let parsed: Option<Vec<_>> = columns.iter().map(|column| PartitionBy::parse(column)).collect();
        if parsed.is_none() {
            self.refuse(&raw.partition_by, "must be columns, or year(column), month(column), day(column)");
        }
        parsed.unwrap_or_default()
    }

    /// A list of columns, each once.
    fn columns(&mut self, field: &Field<Vec<At<Text>>>) -> Option<Vec<String>> {
        let list = field.set()?;
        if list.value.is_empty() {
            self.report.add(list.at, &list.path, "must name at least one column");
            return None;
        }
        let mut columns: Vec<String> = Vec::new();
        for column in &list.value {
            let name = column.value.text();
            if name.is_empty() || columns.contains(&name) {
                self.report.add(column.at, &column.path, "must be a column that is not named before");
            }
            columns.push(name);
        }
        Some(columns)
    }
}

fn evolution_of(word: EvolutionWord) -> Evolution {
    match word {
        EvolutionWord::On => Evolution::On,
        EvolutionWord::Compatible => Evolution::Compatible,
        EvolutionWord::Off => Evolution::Off,
    }
}

fn incompatible_of(word: IncompatibleWord) -> WhenIncompatible {
    match word {
        IncompatibleWord::NewColumn => WhenIncompatible::NewColumn,
        IncompatibleWord::String => WhenIncompatible::String,
        IncompatibleWord::Stop => WhenIncompatible::Stop,
    }
}
