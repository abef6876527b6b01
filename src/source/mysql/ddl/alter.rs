//! ALTER TABLE: columns that are added, what changes no column, and all else.

use std::sync::Arc;

use super::column::{self, ColumnDefinition, Generated, Place};
use super::create::{default_charset, is_constraint, primary_key};
use super::default::{self, Default};
use super::token::Cursor;
use super::{Context, Effect};
use crate::change::TableId;
use crate::schema::{Column, TableSchema};
use crate::source::mysql::column_type::{ColumnType, split_left_out};

/// What one clause does.
enum Change {
    /// Nothing to columns or rows.
    Nothing,
    Add(ColumnDefinition),
    /// MODIFY or CHANGE of the column of this name.
    Redefine(String, ColumnDefinition),
    /// ALTER COLUMN SET DEFAULT or DROP DEFAULT.
    Default(String, Default),
    /// A change to report, and another table that it touches.
    Other(String, Option<TableId>),
}

/// Reads the clauses behind the table's name.
pub(super) fn alter_table(cursor: &mut Cursor<'_, '_>, table: TableId, context: &Context<'_>) -> Vec<Effect> {
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
    let alteration = Alteration { table, known, charset, context };
    alteration.effects(changes)
}

/// Reads one clause; ADD (a ..., b ...) gives several changes.
fn read_clause(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Result<Vec<Change>, String> {
    let other = |what: &str| Ok(vec![Change::Other(what.to_string(), None)]);
    if item.skip(&["add"]) {
        return read_add(item, context);
    }
    if item.skip(&["modify"]) {
        item.skip(&["column"]);
        item.skip(&["if", "exists"]);
        let definition = column::read(item, context.dialect())?;
        return Ok(vec![Change::Redefine(definition.name.clone(), definition)]);
    }
    if item.skip(&["change"]) {
        item.skip(&["column"]);
        item.skip(&["if", "exists"]);
        let old = item.name().ok_or("a column without a name")?;
        return Ok(vec![Change::Redefine(old, column::read(item, context.dialect())?)]);
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
            return other("the character set of its columns was converted");
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

fn read_add(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Result<Vec<Change>, String> {
    if primary_key(&mut item.clone()).is_some() {
        return Ok(vec![Change::Other("a primary key was added".to_string(), None)]);
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
        if primary_key(&mut definition.clone()).is_some() {
            added.push(Change::Other("a primary key was added".to_string(), None));
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
        return Change::Other("its primary key was dropped".to_string(), None);
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
    Change::Other(format!("column {} was dropped", item.name().unwrap_or_default()), None)
}

fn read_rename(item: &mut Cursor<'_, '_>, context: &Context<'_>) -> Change {
    if item.sees(&["index"]) || item.sees(&["key"]) {
        return Change::Nothing;
    }
    if item.skip(&["column"]) {
        item.skip(&["if", "exists"]);
        return Change::Other(format!("column {} was renamed", item.name().unwrap_or_default()), None);
    }
    let _ = item.skip_any(&["to", "as"]) || item.skip_symbol('=');
    match context.table(item) {
        Some(table) => Change::Other(format!("it was renamed to {table}"), Some(table)),
        None => Change::Other("it was renamed".to_string(), None),
    }
}

struct Alteration<'c> {
    table: TableId,
    known: Option<Arc<TableSchema>>,
    /// A default character set that the statement itself gives.
    charset: Option<String>,
    context: &'c Context<'c>,
}

impl Alteration<'_> {
    fn effects(self, changes: Vec<Change>) -> Vec<Effect> {
        let Some(known) = &self.known else { return self.of_unknown_table(changes) };
        let mut schema = TableSchema::clone(known);
        let mut defaults = Vec::new();
        let mut others = Vec::new();
        let mut touched = Vec::new();
        for change in changes {
            let refused = match change {
                Change::Nothing => Ok(()),
                Change::Add(column) => self.add(&column, &mut schema, &mut defaults),
                Change::Redefine(old, column) => self.redefine(&old, &column, &mut schema),
                Change::Default(name, default) => {
                    self.set_default(&name, &default, &mut schema);
                    Ok(())
                }
                Change::Other(what, table) => {
                    touched.extend(table);
                    Err(what)
                }
            };
            others.extend(refused.err());
        }
        if !others.is_empty() {
            return self.others(&others, touched);
        }
        // Columns that are added later take it.
        if let Some(charset) = &self.charset {
            schema.default_charset = Some(charset.clone());
        }
        if defaults.is_empty() && schema == **known {
            return Vec::new();
        }
        schema.version += 1;
        vec![Effect::AddColumns { table: self.table, schema, defaults }]
    }

    fn others(&self, whats: &[String], touched: Vec<TableId>) -> Vec<Effect> {
        let first = Effect::Other { table: self.table.clone(), what: whats.join("; ") };
        let what = format!("an ALTER TABLE of {} changed it too", self.table);
        let touched = touched.into_iter().map(|table| Effect::Other { table, what: what.clone() });
        [first].into_iter().chain(touched).collect()
    }

    /// Without its columns no change can be told from none.
    fn of_unknown_table(&self, changes: Vec<Change>) -> Vec<Effect> {
        let mut touched = Vec::new();
        let mut whats = Vec::new();
        for change in changes {
            match change {
                Change::Nothing | Change::Default(..) => {}
                Change::Add(column) => whats.push(format!("column {} was added", column.name)),
                Change::Redefine(old, _) => whats.push(format!("column {old} was redefined")),
                Change::Other(what, table) => {
                    touched.extend(table);
                    whats.push(what);
                }
            }
        }
        if whats.is_empty() { Vec::new() } else { self.others(&whats, touched) }
    }

    /// The default character set of the table: of this statement, else the one it has; where that is
    /// not known, of all its text columns, else the database's.
    fn table_charset(&self) -> String {
        if let Some(charset) = &self.charset {
            return charset.clone();
        }
        if let Some(charset) = self.known.as_ref().and_then(|known| known.default_charset.as_ref()) {
            return charset.clone();
        }
        let columns = self.known.iter().flat_map(|known| &known.columns);
        let types = columns.filter_map(|column| column.source_type.parse::<ColumnType>().ok());
        let mut charsets: Vec<String> = types.filter_map(|made| made.charset().map(str::to_string)).collect();
        charsets.dedup();
        match (charsets.pop(), charsets.is_empty()) {
            (Some(only), true) => only,
            _ => self.context.charset_of_database(&self.table.database),
        }
    }

    fn add(
        &self,
        definition: &ColumnDefinition,
        schema: &mut TableSchema,
        defaults: &mut Vec<(String, Option<String>)>,
    ) -> Result<(), String> {
        let name = &definition.name;
        if schema.column_index(name).is_some() {
            // ADD COLUMN IF NOT EXISTS, or the log is read again: the source would have refused anything else.
            return Ok(());
        }
        if definition.primary_key || definition.auto_increment {
            return Err(format!("column {name} was added as a key or with numbers for old rows"));
        }
        if definition.generated != Generated::No {
            return Err(format!("column {name} was added, which the server computes"));
        }
        let column_type = definition.data_type.resolve(&self.table_charset());
        let value = default::of_old_rows(definition, &column_type)?;
        let at = place(definition, schema).ok_or_else(|| format!("column {name} was added after an unknown one"))?;
        let left_out = default::left_out(definition, &column_type, self.context.mariadb);
        schema.columns.insert(at, column_type.column_left_out(name, definition.nullable, &left_out));
        for index in schema.key.iter_mut().filter(|index| **index >= at) {
            *index += 1;
        }
        defaults.push((name.clone(), value));
        Ok(())
    }

    /// Nothing but another default, if name, type and place stay.
    fn redefine(&self, old: &str, definition: &ColumnDefinition, schema: &mut TableSchema) -> Result<(), String> {
        let changed = || format!("column {old} was redefined");
        let column: &mut Column =
            schema.columns.iter_mut().find(|column| column.name.eq_ignore_ascii_case(old)).ok_or_else(changed)?;
        let column_type = definition.data_type.resolve(&self.table_charset());
        let same = column.name == definition.name
            && split_left_out(&column.source_type).0 == column_type.to_string()
            && definition.place.is_none()
            && definition.generated == Generated::No;
        if same {
            let left_out = default::left_out(definition, &column_type, self.context.mariadb);
            column.source_type = format!("{column_type}{}", left_out.suffix());
            Ok(())
        } else {
            Err(changed())
        }
    }

    /// A default that cannot be read makes it unknown; so does one of a type that cannot.
    fn set_default(&self, name: &str, default: &Default, schema: &mut TableSchema) {
        let Some(index) = schema.column_index(name) else { return };
        let column = &mut schema.columns[index];
        let plain = split_left_out(&column.source_type).0.to_string();
        let left_out = plain.parse::<ColumnType>().map(|kind| default::of_default(default, column.nullable, &kind));
        column.source_type = plain + &left_out.map(|left_out| left_out.suffix()).unwrap_or_default();
    }
}

fn place(definition: &ColumnDefinition, schema: &TableSchema) -> Option<usize> {
    match &definition.place {
        None => Some(schema.columns.len()),
        Some(Place::First) => Some(0),
        Some(Place::After(name)) => schema.column_index(name).map(|index| index + 1),
    }
}
