//! ALTER TABLE: its clauses. What they make of the table's columns is in [`super::columns`].

use super::column::{self, ColumnDefinition};
use super::columns::Alteration;
use super::create::{default_charset, is_constraint, primary_key};
use super::data_type;
use super::default::{self, Default};
use super::token::Cursor;
use super::{Context, Effect};
use crate::change::TableId;

/// What one clause does.
pub(super) enum Change {
    /// Nothing to columns or rows.
    Nothing,
    Add(ColumnDefinition),
    /// MODIFY or CHANGE of the column of this name.
    Redefine {
        old: String,
        if_exists: bool,
        definition: ColumnDefinition,
    },
    DropColumn(String),
    /// RENAME COLUMN.
    RenameColumn {
        from: String,
        to: String,
        if_exists: bool,
    },
    /// ALTER COLUMN SET DEFAULT or DROP DEFAULT.
    Default(String, Default),
    /// CONVERT TO CHARACTER SET; `None` for the database's default.
    Convert(Option<String>),
    /// The columns of its new primary key; none where it is dropped.
    PrimaryKey(Vec<String>),
    RenameTable(TableId),
    /// A unique key was added.
    Unique,
    /// A change to report, and another table that it touches.
    Other(String, Option<TableId>),
}

/// Reads the clauses behind the table's name. `ignores` rows that a new unique key would refuse, as ALTER IGNORE does.
pub(super) fn alter_table(
    cursor: &mut Cursor<'_, '_>,
    table: TableId,
    ignores: bool,
    context: &Context<'_>,
) -> Vec<Effect> {
    let mut changes = Vec::new();
    let mut charset = None;
    while let Some(mut item) = cursor.item() {
        // In these clauses a character set is a column's own.
        if !["add", "modify", "change", "convert"].iter().any(|verb| item.sees(&[verb])) {
            charset = default_charset(&mut item.clone()).or(charset);
        }
        match read_clause(&mut item, context) {
            Ok(found) => changes.extend(found),
            Err(reason) => return vec![Effect::Unparsed { tables_mentioned: vec![table], reason }],
        }
    }
    let known = (context.known)(&table);
    Alteration { table, known, charset, ignores, context }.effects(changes)
}

/// Reads one clause; ADD (a ..., b ...) gives several changes.
fn read_clause(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Result<Vec<Change>, String> {
    let other = |what: &str| Ok(vec![Change::Other(what.to_string(), None)]);
    if item.skip(&["add"]) {
        return read_add(item, context);
    }
    if item.skip(&["modify"]) {
        item.skip(&["column"]);
        let if_exists = item.skip(&["if", "exists"]);
        let definition = column::read(item, context.dialect())?;
        return Ok(vec![Change::Redefine { old: definition.name.clone(), if_exists, definition }]);
    }
    if item.skip(&["change"]) {
        item.skip(&["column"]);
        let if_exists = item.skip(&["if", "exists"]);
        let old = item.name().ok_or("a column without a name")?;
        let definition = column::read(item, context.dialect())?;
        return Ok(vec![Change::Redefine { old, if_exists, definition }]);
    }
    if item.skip(&["drop"]) {
        return Ok(vec![read_drop(item)]);
    }
    if item.skip(&["alter"]) {
        return Ok(read_default(item).into_iter().collect());
    }
    if item.skip(&["rename"]) {
        return Ok(vec![read_rename(item, context)]);
    }
    if item.skip(&["convert"]) {
        if item.skip(&["to"]) {
            return Ok(vec![Change::Convert(convert_charset(item))]);
        }
        let table = behind_table(item, context);
        return Ok(vec![Change::Other("rows moved between it and a partition".to_string(), table)]);
    }
    if item.skip(&["exchange", "partition"]) {
        let what = "its rows were exchanged with those of a partition".to_string();
        return Ok(vec![Change::Other(what, behind_table(item, context))]);
    }
    if item.sees(&["truncate", "partition"]) {
        return other("a partition was emptied");
    }
    if item.sees(&["discard"]) || item.sees(&["import"]) {
        return other("its tablespace was discarded or imported");
    }
    Ok(Vec::new())
}

/// The name behind the word TABLE.
fn behind_table(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Option<TableId> {
    while !item.is_end() && !item.skip(&["table"]) {
        item.skip_one();
    }
    context.table(item)
}

/// What follows CONVERT TO; `None` for CHARACTER SET DEFAULT, the table's own.
fn convert_charset(item: &mut Cursor<'_, '_>) -> Option<String> {
    let named = default_charset(item)?;
    (named != "default").then(|| data_type::charset_name(&named))
}

fn read_add(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Result<Vec<Change>, String> {
    if let Some(names) = primary_key(&mut item.clone()) {
        return Ok(vec![Change::PrimaryKey(names)]);
    }
    if item.sees(&["unique"]) {
        return Ok(vec![Change::Unique]);
    }
    if item.sees(&["system", "versioning"]) || item.sees(&["period", "for", "system_time"]) {
        return Ok(vec![Change::Other("it became system-versioned".to_string(), None)]);
    }
    if item.sees(&["partition"]) || is_constraint(item) {
        return Ok(Vec::new());
    }
    item.skip(&["column"]);
    item.skip(&["if", "not", "exists"]);
    let Some(mut definitions) = item.parenthesized() else {
        return Ok(vec![Change::Add(column::read(item, context.dialect())?)]);
    };
    let mut added = Vec::new();
    while let Some(mut definition) = definitions.item() {
        if let Some(names) = primary_key(&mut definition.clone()) {
            added.push(Change::PrimaryKey(names));
        } else if !is_constraint(&definition) {
            added.push(Change::Add(column::read(&mut definition, context.dialect())?));
        }
    }
    Ok(added)
}

/// ALTER of a column; that of an index or a constraint changes nothing.
fn read_default(item: &mut Cursor<'_, '_>) -> Option<Change> {
    if ["index", "key", "check", "constraint"].iter().any(|word| item.sees(&[word])) {
        return None;
    }
    item.skip(&["column"]);
    item.skip(&["if", "exists"]);
    let name = item.name()?;
    if item.skip(&["drop", "default"]) {
        return Some(Change::Default(name, Default::Missing));
    }
    item.skip(&["set", "default"]).then(|| Change::Default(name, default::read(item)))
}

fn read_drop(item: &mut Cursor<'_, '_>) -> Change {
    const KEEPS_COLUMNS: [&str; 5] = ["index", "key", "foreign", "constraint", "check"];
    if item.sees(&["primary"]) {
        return Change::PrimaryKey(Vec::new());
    }
    if item.sees(&["partition"]) {
        return Change::Other("a partition was dropped with its rows".to_string(), None);
    }
    if item.sees(&["system", "versioning"]) || item.sees(&["period", "for"]) {
        return Change::Other("its system versioning was changed".to_string(), None);
    }
    if KEEPS_COLUMNS.iter().any(|word| item.sees(&[word])) {
        return Change::Nothing;
    }
    item.skip(&["column"]);
    item.skip(&["if", "exists"]);
    item.name().map_or(Change::Nothing, Change::DropColumn)
}

fn read_rename(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Change {
    if item.sees(&["index"]) || item.sees(&["key"]) {
        return Change::Nothing;
    }
    if item.skip(&["column"]) {
        let if_exists = item.skip(&["if", "exists"]);
        let from = item.name();
        item.skip(&["to"]);
        return match (from, item.name()) {
            (Some(from), Some(to)) => Change::RenameColumn { from, to, if_exists },
            _ => Change::Other("a column was renamed".to_string(), None),
        };
    }
    let _ = item.skip_any(&["to", "as"]) || item.skip_symbol('=');
    match context.table(item) {
        Some(table) => Change::RenameTable(table),
        None => Change::Other("it was renamed".to_string(), None),
    }
}
