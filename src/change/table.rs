//! The name of a source table.

use serde::{Deserialize, Serialize};

/// A table of the source, by the names that the source itself uses (unquoted, case as the source stores it).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableId {
    pub database: String,
    pub table: String,
}

impl TableId {
    pub fn new(database: impl Into<String>, table: impl Into<String>) -> Self {
        Self { database: database.into(), table: table.into() }
    }
}

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.database, self.table)
    }
}

/// How a table ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It cannot be followed; its owner has to do something.
    #[default]
    Fault,
    /// The source has it no more. A table that is made under its name is a new one.
    Gone,
    /// Another table has its name now, whose rows the log does not have: it has to be loaded.
    Replaced,
}
