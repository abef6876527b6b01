//! What a statement in the log does to tables.

use std::sync::Arc;

use crate::change::TableId;
use crate::schema::TableSchema;

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
}

impl SqlMode {
    /// From the status variable of a QUERY event (Q_SQL_MODE_CODE).
    pub fn from_bits(bits: u64) -> Self {
        Self {
            ansi_quotes: bits & (1 << 2) != 0,
            no_backslash_escapes: bits & (1 << 20) != 0,
            real_as_float: bits & 1 != 0,
        }
    }
}

/// One thing that a statement does to a table (or database), in the statement's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A new table, version 1.
    CreateTable(TableSchema),
    /// A new table (or one that is remade) that cannot be captured from the statement alone.
    CreateTableUnreadable { table: TableId, reason: String },
    /// Columns were added and nothing else changed. `schema` is the whole new one, its version counted up. `defaults`
    /// has the new columns' names and what old rows hold in them: the text of the literal, `None` for null.
    AddColumns { table: TableId, schema: TableSchema, defaults: Vec<(String, Option<String>)> },
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
    let _ = (statement, context);
    Vec::new()
}
