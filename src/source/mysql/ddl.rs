//! What a statement in the log does to tables.
//!
//! The statements are read here by hand: the servers' grammars are larger than any one parser's, and what matters
//! is only which tables a statement changes and which columns it defines. Clauses that say nothing about
//! either are stepped over, so that a new one does no harm.

use std::sync::Arc;

use data_type::Dialect;
pub(in crate::source::mysql) use data_type::charset_of_collation;
use token::{Cursor, Token};

use crate::change::TableId;
use crate::schema::{Column, ColumnChange, TableSchema, Treatment};
use crate::source::mysql::column_type::{ColumnType, LeftOut};

mod alter;
mod column;
mod columns;
mod create;
mod data_type;
mod default;
mod dml;
mod retype;
mod token;

#[cfg(test)]
mod tests;

/// What has to be known beside the statement.
pub struct Context<'a> {
    /// The database that names without one belong to (the QUERY event's).
    pub default_database: &'a str,
    /// Whether the log is MariaDB's: JSON is a LONGTEXT there, and `/*M! */` comments count.
    pub mariadb: bool,
    pub sql_mode: SqlMode,
    /// The schema of a captured table as it stands before the statement.
    pub known: &'a dyn Fn(&TableId) -> Option<Arc<TableSchema>>,
    /// The default character set of a database, for new tables that name none; `None` takes the server's
    /// built-in default.
    pub database_charset: &'a dyn Fn(&str) -> Option<String>,
}

/// The modes that change how a statement reads (manual, "Server SQL Modes").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SqlMode {
    /// `"x"` is a name.
    pub ansi_quotes: bool,
    /// A backslash in a string is a backslash.
    pub no_backslash_escapes: bool,
    /// REAL is FLOAT.
    pub real_as_float: bool,
    /// A value that does not fit is refused (STRICT_TRANS_TABLES or STRICT_ALL_TABLES).
    pub strict: bool,
}

impl SqlMode {
    /// From the status variable of a QUERY event (Q_SQL_MODE_CODE).
    pub fn from_bits(bits: u64) -> Self {
        Self {
            ansi_quotes: bits & (1 << 2) != 0,
            no_backslash_escapes: bits & (1 << 20) != 0,
            real_as_float: bits & 1 != 0,
            strict: bits & (1 << 21 | 1 << 22) != 0,
        }
    }
}

/// One thing that a statement does to a table (or database), in the statement's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A new table, version 1. Its key is the primary key, and empty where the table has none: the caller finds
    /// another or refuses the table.
    CreateTable(TableSchema),
    /// A new table (or one that is remade) that cannot be captured from the statement alone.
    CreateTableUnreadable { table: TableId, reason: String },
    /// The columns of a table, or what is known of them, changed. `schema` is the whole new one, its version counted up, and
    /// `changes` says of each of its columns where it comes from. `defaults` has the added columns' names and what old rows
    /// hold in them: text that Arrow casts to the column's type (a TIME in microseconds, a BIT as a number), `None` for null.
    /// `primary_key` has the columns of a new primary key, none where it was dropped; the schema's key is the old one.
    Alter {
        table: TableId,
        schema: TableSchema,
        changes: Vec<ColumnChange>,
        defaults: Vec<(String, Option<String>)>,
        primary_key: Option<Vec<String>>,
    },
    /// The table has another name from here on.
    Rename { from: TableId, to: TableId },
    /// The table is gone.
    DropTable(TableId),
    /// All rows are gone, the table stays.
    Truncate(TableId),
    /// Any other change of the table, in words for its owner.
    Other { table: TableId, what: String },
    /// Rows changed by a statement that the log carries as text.
    Dml { table: TableId },
    /// The database and all its tables are gone.
    DropDatabase(String),
    /// The default character set of new tables of this database.
    DatabaseCharset { database: String, charset: String },
    /// A statement that changes tables in a way that could not be read. The tables are those that it seems to name.
    Unparsed { tables_mentioned: Vec<TableId>, reason: String },
}

/// What the statement does, in its order; empty if it touches no table's rows or columns.
///
/// Never fails: what cannot be read is [`Effect::Unparsed`].
pub fn effects(statement: &str, context: &Context<'_>) -> Vec<Effect> {
    match token::tokens(statement, context) {
        Ok(tokens) => statement_effects(&mut Cursor::new(&tokens), context),
        Err(error) => vec![Effect::Unparsed {
            tables_mentioned: Vec::new(),
            reason: format!("a statement could not be read: {error}"),
        }],
    }
}

/// How the values of a column may have been changed by another definition of it; `None` if all are as they were.
pub fn altered(old: &Column, new: &Column, strict: bool) -> Option<String> {
    retype::altered(old, new, strict)
}

/// The same columns without what the lake has made of them: those of another table.
pub fn columns_of_source(columns: &[Column]) -> Vec<Column> {
    columns.iter().map(|column| Column { lake: None, treatment: Treatment::Kept, ..column.clone() }).collect()
}

/// What a row gets whose insert leaves a column out, by the catalogue's text of its default: on MariaDB as SQL writes it, on
/// MySQL the value itself.
pub fn default_of_catalogue(text: Option<&str>, mariadb: bool, nullable: bool, column_type: &ColumnType) -> LeftOut {
    let is_literal = |text: &str| {
        let lower = text.to_ascii_lowercase();
        mariadb || lower.starts_with("b'") || lower.starts_with("0x") || lower.starts_with("x'")
    };
    let default = match text {
        None => default::Default::Missing,
        Some(text) if is_literal(text) => {
            let context = Context {
                default_database: "",
                mariadb,
                sql_mode: SqlMode::default(),
                known: &|_| None,
                database_charset: &|_| None,
            };
            match token::tokens(text, &context) {
                Ok(tokens) => {
                    let mut cursor = Cursor::new(&tokens);
                    let default = default::read(&mut cursor);
                    if cursor.is_end() { default } else { default::Default::Expression }
                }
                Err(_) => default::Default::Expression,
            }
        }
        Some(text) => default::Default::Text(text.to_string()),
    };
    default::of_default(&default, nullable, column_type)
}

fn statement_effects(cursor: &mut Cursor<'_, '_>, context: &Context<'_>) -> Vec<Effect> {
    let Some(Token::Word(verb)) = cursor.peek() else { return Vec::new() };
    match verb.to_ascii_lowercase().as_str() {
        "set" if cursor.skip(&["set", "statement"]) => {
            // MariaDB: SET STATEMENT x=1 FOR ALTER TABLE ...
            while !cursor.is_end() && !cursor.skip(&["for"]) {
                cursor.skip_one();
            }
            statement_effects(cursor, context)
        }
        "create" => {
            cursor.next();
            let replaces = cursor.skip(&["or", "replace"]);
            create::create(cursor, replaces, context)
        }
        "alter" => alter(cursor, context),
        "drop" => drop(cursor, context),
        "rename" => rename(cursor, context),
        "truncate" => {
            cursor.next();
            cursor.skip(&["table"]);
            match context.table(cursor) {
                Some(table) => vec![Effect::Truncate(table)],
                None => context.unparsed(Vec::new()),
            }
        }
        "insert" | "replace" | "update" | "delete" | "load" | "with" | "merge" => dml::effects(cursor, context),
        "import" => context.unparsed(Vec::new()),
        _ => Vec::new(),
    }
}

fn alter(cursor: &mut Cursor<'_, '_>, context: &Context<'_>) -> Vec<Effect> {
    cursor.next();
    let mut ignores = false;
    while cursor.sees(&["ignore"]) || cursor.sees(&["online"]) || cursor.sees(&["offline"]) {
        ignores |= cursor.sees(&["ignore"]);
        cursor.skip_one();
    }
    if cursor.skip_any(&["database", "schema"]) {
        // The name may be left out.
        let options =
            ["default", "character", "char", "charset", "collate", "encryption", "read", "comment", "upgrade"];
        let unnamed = options.iter().any(|word| cursor.sees(&[word]));
        let name = if unnamed { None } else { cursor.name() };
        let database = name.unwrap_or_else(|| context.default_database.to_string());
        return create::database_charset(database, cursor).into_iter().collect();
    }
    if !cursor.skip(&["table"]) {
        return Vec::new();
    }
    cursor.skip(&["if", "exists"]);
    let Some(table) = context.table(cursor) else { return context.unparsed(Vec::new()) };
    if cursor.skip(&["wait"]) {
        cursor.next();
    }
    cursor.skip(&["nowait"]);
    alter::alter_table(cursor, table, ignores, context)
}

fn drop(cursor: &mut Cursor<'_, '_>, context: &Context<'_>) -> Vec<Effect> {
    cursor.next();
    if cursor.skip_any(&["database", "schema"]) {
        cursor.skip(&["if", "exists"]);
        return cursor.name().map(Effect::DropDatabase).into_iter().collect();
    }
    if !cursor.skip_any(&["table", "tables"]) {
        return Vec::new();
    }
    cursor.skip(&["if", "exists"]);
    let mut effects = Vec::new();
    while let Some(mut item) = cursor.item() {
        let Some(table) = context.table(&mut item) else { return context.unparsed(Vec::new()) };
        effects.push(Effect::DropTable(table));
    }
    effects
}

fn rename(cursor: &mut Cursor<'_, '_>, context: &Context<'_>) -> Vec<Effect> {
    cursor.next();
    if !cursor.skip_any(&["table", "tables"]) {
        return Vec::new();
    }
    cursor.skip(&["if", "exists"]);
    let mut effects = Vec::new();
    while let Some(mut item) = cursor.item() {
        let from = context.table(&mut item);
        if item.skip(&["wait"]) {
            item.next();
        }
        item.skip(&["nowait"]);
        item.skip(&["to"]);
        let (Some(from), Some(to)) = (from, context.table(&mut item)) else { return context.unparsed(Vec::new()) };
        effects.push(Effect::Rename { from, to });
    }
    effects
}

/// The built-in default of MySQL 8 and later and of MariaDB 11.6 and later.
const CHARSET_DEFAULT: &str = "utf8mb4";

impl Context<'_> {
    /// Reads a table's name, of the default database where it names none.
    fn table(&self, cursor: &mut Cursor<'_, '_>) -> Option<TableId> {
        // `.t` is a table of the default database.
        if cursor.skip_symbol('.') {
            return cursor.name().map(|table| TableId::new(self.default_database, table));
        }
        let first = cursor.name()?;
        if !cursor.skip_symbol('.') {
            return Some(TableId::new(self.default_database, first));
        }
        cursor.name().map(|table| TableId::new(first, table))
    }

    fn charset_of_database(&self, database: &str) -> String {
        let charset = (self.database_charset)(database);
        charset.map_or_else(|| CHARSET_DEFAULT.to_string(), |charset| data_type::charset_name(&charset))
    }

    fn dialect(&self) -> Dialect {
        Dialect { mariadb: self.mariadb, real_as_float: self.sql_mode.real_as_float }
    }

    fn unparsed(&self, tables_mentioned: Vec<TableId>) -> Vec<Effect> {
        vec![Effect::Unparsed { tables_mentioned, reason: "a statement could not be read".to_string() }]
    }
}
