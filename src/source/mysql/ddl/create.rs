//! CREATE TABLE and CREATE DATABASE.

use super::column::{self, ColumnDefinition, Generated};
use super::data_type::{self, charset_of_collation};
use super::default;
use super::token::Cursor;
use super::{Context, Effect};
use crate::change::TableId;
use crate::schema::TableSchema;

/// Statements behind CREATE [OR REPLACE]; the cursor stands behind those words.
pub(super) fn create(cursor: &mut Cursor<'_, '_>, replaces: bool, context: &Context<'_>) -> Vec<Effect> {
    if cursor.skip_any(&["database", "schema"]) {
        cursor.skip(&["if", "not", "exists"]);
        let Some(name) = cursor.name() else { return Vec::new() };
        let dropped = replaces.then(|| Effect::DropDatabase(name.clone()));
        return dropped.into_iter().chain(database_charset(name, cursor)).collect();
    }
    // Temporary tables are never in the log's rows; all else that is created is no table.
    if cursor.skip(&["table"]) { create_table(cursor, replaces, context) } else { Vec::new() }
}

/// The default character set that CREATE or ALTER DATABASE gives.
pub(super) fn database_charset(database: String, cursor: &mut Cursor<'_, '_>) -> Option<Effect> {
    let charset = default_charset(cursor)?;
    Some(Effect::DatabaseCharset { database, charset })
}

/// The last default character set in the options of a table or database.
pub(super) fn default_charset(options: &mut Cursor<'_, '_>) -> Option<String> {
    let mut explicit = None;
    let mut collated = None;
    while !options.is_end() {
        if let Some(charset) = data_type::charset(options) {
            explicit = Some(data_type::charset_name(&charset));
        } else if options.skip(&["collate"]) {
            options.skip_symbol('=');
            collated = options.name_or_text().and_then(|name| charset_of_collation(&name));
        } else {
            options.skip_one();
        }
    }
    explicit.or(collated)
}

fn create_table(cursor: &mut Cursor<'_, '_>, replaces: bool, context: &Context<'_>) -> Vec<Effect> {
    let if_not_exists = cursor.skip(&["if", "not", "exists"]);
    let Some(table) = context.table(cursor) else { return context.unparsed(Vec::new()) };
    let known = (context.known)(&table);
    if if_not_exists && known.is_some() {
        return Vec::new();
    }
    let made = read_table(cursor, &table, context);
    let made = match made {
        Ok(schema) => Effect::CreateTable(schema),
        Err(reason) => Effect::CreateTableUnreadable { table: table.clone(), reason },
    };
    let dropped = (replaces && known.is_some()).then_some(Effect::DropTable(table));
    dropped.into_iter().chain([made]).collect()
}

fn read_table(cursor: &mut Cursor<'_, '_>, table: &TableId, context: &Context<'_>) -> Result<TableSchema, String> {
    if cursor.skip(&["like"]) {
        return like(cursor, table, context);
    }
    let mut items = cursor.parenthesized().ok_or("it was made from the result of a query")?;
    if items.skip(&["like"]) {
        return like(&mut items, table, context);
    }
    if items.sees(&["select"]) || items.sees(&["with"]) || items.sees(&["values"]) {
        return Err("it was made from the result of a query".to_string());
    }
    check_options(*cursor)?;
    let charset = default_charset(cursor).unwrap_or_else(|| context.charset_of_database(&table.database));
    let mut columns = Vec::new();
    let mut key = Vec::new();
    while let Some(mut item) = items.item() {
        if let Some(names) = primary_key(&mut item) {
            key = names;
        } else if item.sees(&["period", "for", "system_time"]) {
            return Err(SYSTEM_VERSIONED.to_string());
        } else if !is_constraint(&item) {
            columns.push(column::read(&mut item, context.dialect())?);
        }
    }
    build(table, &columns, key, &charset, context.mariadb)
}

const SYSTEM_VERSIONED: &str = "it is system-versioned, and such tables are not followed";

/// Looks through what follows the columns for what changes them.
fn check_options(mut options: Cursor<'_, '_>) -> Result<(), String> {
    while !options.is_end() {
        if options.skip(&["with", "system", "versioning"]) {
            return Err(SYSTEM_VERSIONED.to_string());
        }
        if options.skip_any(&["select", "as", "values"]) {
            return Err("it was made from the result of a query".to_string());
        }
        options.skip_one();
    }
    Ok(())
}

fn like(cursor: &mut Cursor<'_, '_>, table: &TableId, context: &Context<'_>) -> Result<TableSchema, String> {
    let model = context.table(cursor).ok_or("the table that it is made like could not be read")?;
    let known = (context.known)(&model);
    let known = known.ok_or_else(|| format!("it was made like {model}, whose columns are not known"))?;
    // What the lake has of the model is not the new table's.
    let columns = super::columns_of_source(&known.columns);
    let (since, retired) = (None, Vec::new());
    Ok(TableSchema { table: table.clone(), columns, version: 1, since, retired, ..TableSchema::clone(&known) })
}

/// The columns of a PRIMARY KEY clause; the lengths of prefixes are left out, for a key of prefixes is one of whole
/// columns too.
pub(super) fn primary_key(item: &mut Cursor<'_, '_>) -> Option<Vec<String>> {
    let mut ahead = *item;
    if ahead.skip(&["constraint"]) && !ahead.sees(&["primary", "key"]) {
        ahead.name();
    }
    if !ahead.skip(&["primary", "key"]) {
        return None;
    }
    while !ahead.is_end() && !ahead.sees_symbol('(') {
        ahead.skip_one();
    }
    *item = ahead;
    let mut parts = item.parenthesized()?;
    let mut names = Vec::new();
    while let Some(mut part) = parts.item() {
        names.push(part.name()?);
    }
    Some(names)
}

/// Whether a clause of a table defines an index or a constraint, not a column. These words are reserved, except
/// for PERIOD and VECTOR, which may name a column.
pub(super) fn is_constraint(item: &Cursor<'_, '_>) -> bool {
    const RESERVED: [&str; 9] =
        ["constraint", "index", "key", "unique", "fulltext", "spatial", "foreign", "check", "primary"];
    let unreserved = [["vector", "index"], ["vector", "key"], ["period", "for"]];
    RESERVED.iter().any(|word| item.sees(&[word])) || unreserved.iter().any(|words| item.sees(words))
}

fn build(
    table: &TableId,
    definitions: &[ColumnDefinition],
    key: Vec<String>,
    charset: &str,
    mariadb: bool,
) -> Result<TableSchema, String> {
    if definitions.iter().any(|column| column.generated == Generated::Row) {
        return Err(SYSTEM_VERSIONED.to_string());
    }
    let inline = definitions.iter().filter(|column| column.primary_key).map(|column| column.name.clone());
    let key = if key.is_empty() { inline.collect() } else { key };
    let in_key = |name: &str| key.iter().any(|part| part.eq_ignore_ascii_case(name));
    let column = |column: &ColumnDefinition| {
        let column_type = column.data_type.resolve(charset);
        let left_out = default::left_out(column, &column_type, mariadb);
        column_type.column_left_out(&column.name, column.nullable && !in_key(&column.name), &left_out)
    };
    let columns = definitions.iter().map(column).collect();
    let mut schema = TableSchema::new(table.clone(), columns, Vec::new());
    schema.default_charset = Some(charset.to_string());
    let index = |name: &String| schema.column_index(name).ok_or_else(|| format!("its primary key names {name}"));
    schema.key = key.iter().map(index).collect::<Result<_, _>>()?;
    if schema.columns.is_empty() {
        return Err("it has no columns".to_string());
    }
    Ok(schema)
}
