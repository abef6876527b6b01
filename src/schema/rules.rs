//! What the job wants of a table's columns: which of them come into the lake, under which names, and whose values are not to be
//! read there. The rules are kept with the table's schema, so that its whole life is under the same ones.

use std::collections::{BTreeMap, HashSet};

use arrow::datatypes::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

use super::{Column, LakeColumn, TableSchema};

/// What comes into the lake of a column's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    #[default]
    Kept,
    /// Nothing: the lake has no such column.
    LeftOut,
    /// A keyed hash of each value, as text: equal values stay equal.
    Hashed,
    /// That there is one.
    Masked,
}

impl Treatment {
    pub(super) fn is_kept(&self) -> bool {
        *self == Self::Kept
    }

    /// As the schema history writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::LeftOut => "left out",
            Self::Hashed => "hashed",
            Self::Masked => "masked",
        }
    }
}

/// What a column tells that the source's table does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Added {
    /// The same text in each row.
    Text(String),
    /// The source's database.
    Database,
    /// The source's table.
    Table,
    /// The last change of the row: `read` (by a first load), `insert` or `update`.
    Operation,
    /// When that was committed; for rows of a first load, when they were read.
    CommitTime,
    /// Where it stands in the source's log.
    Position,
}

impl Added {
    pub fn data_type(&self) -> DataType {
        match self {
            Self::CommitTime => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            _ => DataType::Utf8,
        }
    }
}

/// The rules of one table. Names of columns are compared without regard to case, as the source does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnRules {
    /// Only these and the key; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The lake's name of a source's column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rename: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hash: Vec<String>,
    /// Tells whether hashes are made with the same key, and nothing else of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_key_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
    /// By the name in the lake.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add: BTreeMap<String, Added>,
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

impl ColumnRules {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What becomes of a column of this name that is not part of the key.
    pub fn treatment(&self, name: &str) -> Treatment {
        if has(&self.exclude, name) {
            Treatment::LeftOut
        } else if has(&self.hash, name) {
            Treatment::Hashed
        } else if has(&self.mask, name) {
            Treatment::Masked
        } else if self.include.as_ref().is_some_and(|include| !has(include, name)) {
            Treatment::LeftOut
        } else {
            Treatment::Kept
        }
    }

    /// The lake's name for a source's column.
    pub fn lake_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.rename.iter().find(|(from, _)| from.eq_ignore_ascii_case(name)).map_or(name, |(_, to)| to)
    }

    /// The rules for a table whose columns the lake does not have yet.
    ///
    /// # Errors
    /// Why they do not fit the table: a key column whose values would not come into the lake, documents that would be hashed, a name twice.
    pub fn apply(&self, mut schema: TableSchema) -> Result<TableSchema, String> {
        if self.is_empty() {
            return Ok(schema);
        }
        for (index, column) in schema.columns.iter_mut().enumerate() {
            let treatment = self.treatment(&column.name);
            let in_key = schema.key.contains(&index);
            let named = has(&self.exclude, &column.name) || !matches!(treatment, Treatment::Kept | Treatment::LeftOut);
            if in_key && named {
                return Err(format!(
                    "column {} is part of the key, so its values cannot be {}",
                    column.name,
                    treatment.name()
                ));
            }
            column.treatment = if in_key { Treatment::Kept } else { treatment };
            check_hashed(column)?;
            column.place(self.lake_name(&column.name).to_string(), None);
        }
        schema.rules = Box::new(self.clone());
        let mut names = HashSet::new();
        let twice = schema.lake_names().into_iter().find(|name| !names.insert(name.to_lowercase()));
        if let Some(name) = twice {
            return Err(format!("two columns would have the name {name} in the lake"));
        }
        Ok(schema)
    }
}

/// A part of a document, which a log may have in its place, has no hash that the whole one's could be made of; a list has no text.
pub(super) fn check_hashed(column: &Column) -> Result<(), String> {
    let is_document = column.source_type.to_ascii_lowercase().starts_with("json");
    let what = match column.treatment {
        Treatment::Hashed if is_document => "a document",
        Treatment::Hashed if column.data_type.is_nested() => "a list",
        _ => return Ok(()),
    };
    Err(format!("column {} is {what}, which cannot be hashed: mask it or leave it out", column.name))
}

impl Column {
    /// Notes the lake's column, where it is another than the source's. `None` for the type that its values have there by themselves.
    pub(super) fn place(&mut self, name: String, data_type: Option<DataType>) {
        let data_type = match self.treatment {
            Treatment::Kept => data_type.unwrap_or_else(|| self.data_type.clone()),
            Treatment::LeftOut => return self.lake = None,
            Treatment::Hashed | Treatment::Masked => DataType::Utf8,
        };
        let same = name == self.name && data_type == self.data_type;
        self.lake = (!same).then_some(LakeColumn { name, data_type });
    }
}

impl TableSchema {
    /// The names of the lake's columns that are filled.
    pub fn lake_names(&self) -> Vec<&str> {
        let kept = self.columns.iter().filter(|column| column.treatment != Treatment::LeftOut);
        kept.map(Column::lake_name).chain(self.rules.add.keys().map(String::as_str)).collect()
    }

    /// Whether the rows that come into the lake are those of the source.
    pub fn is_plain(&self) -> bool {
        self.rules.is_empty()
    }

    /// The schema of the rows that come into the lake: those columns that do, in the types that they come in, and those that are added.
    #[must_use]
    pub fn lake_side(&self) -> Self {
        if self.is_plain() {
            return self.clone();
        }
        let (mut columns, mut key) = (Vec::new(), vec![0; self.key.len()]);
        for (index, column) in self.columns.iter().enumerate() {
            let mut column = column.clone();
            match std::mem::take(&mut column.treatment) {
                Treatment::Kept => {}
                Treatment::LeftOut => continue,
                Treatment::Hashed | Treatment::Masked => {
                    let name = column.lake_name().to_string();
                    column.data_type = DataType::Utf8;
                    column.place(name, None);
                }
            }
            if let Some(position) = self.key.iter().position(|known| *known == index) {
                key[position] = columns.len();
            }
            columns.push(column);
        }
        columns.extend(self.rules.add.iter().map(|(name, added)| Column::new(name, added.data_type(), "")));
        Self { columns, key, rules: Box::default(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::TableId;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    fn table() -> TableSchema {
        let column = |name: &str, data_type, source_type: &str| Column::new(name, data_type, source_type);
        let columns = vec![
            column("note", DataType::Utf8, "text"),
            column("id", DataType::Int32, "int"),
            column("mail", DataType::Utf8, "varchar(40)"),
            column("card", DataType::Int64, "bigint"),
            column("doc", DataType::Utf8, "json"),
        ];
        TableSchema::new(TableId::new("shop", "t"), columns, vec![1])
    }

    fn check(rules: ColumnRules, expected: &str) {
        let text = match rules.apply(table()) {
            Err(reason) => reason,
            Ok(schema) => {
                let lake = schema.lake_side();
                let key = lake.key_names().join(",");
                let column = |column: &Column| format!("{} {}", column.lake_name(), column.lake_type());
                let columns: Vec<String> = lake.columns.iter().map(column).collect();
                assert_eq!(lake.columns.iter().map(Column::lake_name).collect::<Vec<_>>(), schema.lake_names());
                format!("{} ({key})", columns.join(", "))
            }
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn the_lake_has_the_columns_that_the_rules_leave() {
        check(ColumnRules::default(), "note Utf8, id Int32, mail Utf8, card Int64, doc Utf8 (id)");
        let exclude = ColumnRules { exclude: names(&["NOTE", "doc"]), ..ColumnRules::default() };
        check(exclude, "id Int32, mail Utf8, card Int64 (id)");
        let include =
            ColumnRules { include: Some(names(&["card", "mail"])), hash: names(&["mail"]), ..ColumnRules::default() };
        check(include, "id Int32, mail Utf8, card Int64 (id)");
        let all = ColumnRules {
            rename: [("id".to_string(), "number".to_string()), ("card".to_string(), "card_hash".to_string())].into(),
            hash: names(&["card"]),
            mask: names(&["doc"]),
            add: [("_at".to_string(), Added::CommitTime), ("tenant".to_string(), Added::Text("acme".into()))].into(),
            ..ColumnRules::default()
        };
        check(
            all,
            "note Utf8, number Int32, mail Utf8, card_hash Utf8, doc Utf8, _at Timestamp(µs, \"UTC\"), tenant Utf8 (number)",
        );
    }

    #[test]
    fn rules_that_do_not_fit_the_table_are_refused() {
        let of = |hash: &[&str], exclude: &[&str]| ColumnRules {
            hash: names(hash),
            exclude: names(exclude),
            ..ColumnRules::default()
        };
        check(of(&["id"], &[]), "column id is part of the key, so its values cannot be hashed");
        check(of(&[], &["ID"]), "column id is part of the key, so its values cannot be left out");
        check(of(&["doc"], &[]), "column doc is a document, which cannot be hashed: mask it or leave it out");
        let rename =
            ColumnRules { rename: [("note".to_string(), "Mail".to_string())].into(), ..ColumnRules::default() };
        check(rename, "two columns would have the name mail in the lake");
        let added = ColumnRules { add: [("note".to_string(), Added::Table)].into(), ..ColumnRules::default() };
        check(added, "two columns would have the name note in the lake");
    }
}
