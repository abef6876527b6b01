//! The checks of `tables`: keys given by hand, and how single tables are written.

use std::collections::BTreeMap;

use super::Checker;
use crate::change::TableId;
use crate::config::raw::{
    EvolutionWord, IncompatibleWord, MergeWord, MetadataWord, OnOff, RawColumns, RawPassword, RawSchema, RawTable,
};
use crate::config::read::{At, Field};
use crate::config::substitute::Text;
use crate::config::table::TableRule;
use crate::config::{MergeMode, PartitionBy, Setting, TableFilter, TableRules};
use crate::schema::{Added, ColumnRules, Evolution, HashKey, Policy, WhenIncompatible};

/// With more columns than this, rows are close in none of them.
const CLUSTER_COLUMNS_MAX: usize = 4;

/// Shorter keys can be guessed from the hash of a known value.
const HASH_KEY_BYTES_MIN: usize = 16;
const HASH_KEY_ADVICE: &str =
    "is a key in clear: put it into an environment variable and write its name, as `hash_key: { env: SHOP_HASH_KEY }`";

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
        hash_key: Option<&HashKey>,
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
            rules.push(self.rule(&table.value, filter, hash_key, &format!("{} ({pattern})", table.path)));
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

    fn rule(&mut self, raw: &RawTable, tables: TableFilter, hash_key: Option<&HashKey>, shown: &str) -> TableRule {
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
        let columns =
            raw.columns.set().map(|columns| self.column_rules(columns, hash_key, &format!("{shown}.columns")));
        TableRule { tables, partition_by, cluster_by, merge, change_feed, evolution, incompatible, columns }
    }

    /// The key of hashes.
    pub(super) fn hash_key(&mut self, field: &Field<RawPassword>) -> Option<HashKey> {
        let key = self.secret_from(field.set()?, HASH_KEY_ADVICE)?;
        match HashKey::new(key.reveal().as_bytes()) {
            Ok(found) if key.reveal().len() >= HASH_KEY_BYTES_MIN => Some(found),
            _ => {
                self.refuse(
                    field,
                    format!("must be at least {HASH_KEY_BYTES_MIN} bytes, for example of: openssl rand -hex 32"),
                );
                None
            }
        }
    }

    fn column_rules(&mut self, raw: &At<RawColumns>, hash_key: Option<&HashKey>, shown: &str) -> ColumnRules {
        let columns = &raw.value;
        let mut rules = ColumnRules {
            include: self.shown_columns(&columns.include, &format!("{shown}.include")),
            exclude: self.shown_columns(&columns.exclude, &format!("{shown}.exclude")).unwrap_or_default(),
            hash: self.shown_columns(&columns.hash, &format!("{shown}.hash")).unwrap_or_default(),
            mask: self.shown_columns(&columns.mask, &format!("{shown}.mask")).unwrap_or_default(),
            ..ColumnRules::default()
        };
        for (name, new) in columns.rename.set().into_iter().flat_map(|rename| &rename.value) {
            self.given(&format!("{shown}.rename.{name}"), &new.value.text());
            rules.rename.insert(name.clone(), self.lake_name(new, &new.value.text()));
        }
        for (name, text) in columns.add.set().into_iter().flat_map(|add| &add.value) {
            self.given(&format!("{shown}.add.{name}"), &text.value.text());
            rules.add.insert(self.lake_name(text, name), Added::Text(text.value.text()));
        }
        for (name, word) in columns.metadata.set().into_iter().flat_map(|metadata| &metadata.value) {
            self.given(&format!("{shown}.metadata.{name}"), word.value.word());
            if rules.add.insert(name.clone(), added_of(word.value)).is_some() {
                self.refuse(&columns.metadata, format!("{name} is a column under add too"));
            }
        }
        let named = rules.exclude.iter().chain(&rules.hash).chain(&rules.mask);
        let mut seen: Vec<&String> = Vec::new();
        for name in named {
            if seen.iter().any(|seen| seen.eq_ignore_ascii_case(name)) {
                self.report.add(raw.at, &raw.path, format!("{name} is under two of exclude, hash and mask"));
            }
            seen.push(name);
        }
        if !rules.hash.is_empty() {
            rules.hash_key_id = hash_key.map(HashKey::id);
            if hash_key.is_none() {
                self.refuse(
                    &columns.hash,
                    "needs a hash_key at the top of the job file: { env: NAME } or { file: path }",
                );
            }
        }
        rules
    }

    fn shown_columns(&mut self, field: &Field<Vec<At<Text>>>, shown: &str) -> Option<Vec<String>> {
        let columns = self.columns(field)?;
        self.given(shown, &columns.join(", "));
        Some(columns)
    }

    fn lake_name(&mut self, named: &At<Text>, name: &str) -> String {
        if name.is_empty() {
            self.report.add(named.at, &named.path, "must not be empty");
        }
        name.to_string()
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

fn added_of(word: MetadataWord) -> Added {
    match word {
        MetadataWord::Database => Added::Database,
        MetadataWord::Table => Added::Table,
        MetadataWord::Operation => Added::Operation,
        MetadataWord::CommitTime => Added::CommitTime,
        MetadataWord::Position => Added::Position,
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
