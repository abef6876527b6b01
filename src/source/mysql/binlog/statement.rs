//! QUERY events: their frame, and the statements that begin and end transactions.
//!
//! MySQL internals manual, "QUERY_EVENT"; `Query_log_event::write` for the status variables.

use super::inflate;
use super::reader::{Malformed, Reader};
use crate::source::mysql::charset::Charset;
use crate::source::mysql::ddl::SqlMode;

/// A statement in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub database: String,
    pub statement: String,
    pub sql_mode: SqlMode,
    /// The character set that a new database, or a table in one that says nothing else, has.
    pub default_charset: Option<&'static str>,
}

/// Status variables that are read; one that is unknown ends the reading, for its length is unknown too.
mod variable {
    pub const FLAGS2: u8 = 0;
    pub const SQL_MODE: u8 = 1;
    pub const CATALOG: u8 = 2;
    pub const AUTO_INCREMENT: u8 = 3;
    pub const CHARSET: u8 = 4;
    pub const TIME_ZONE: u8 = 5;
    pub const CATALOG_NZ: u8 = 6;
    pub const LC_TIME_NAMES: u8 = 7;
    pub const CHARSET_DATABASE: u8 = 8;
}

#[derive(Default)]
struct Status {
    sql_mode: SqlMode,
    client: Option<Charset>,
    server: Option<Charset>,
    database: Option<Charset>,
}

impl Query {
    /// Reads a body. `load_data` events have more fields before the status variables; the statement of a compressed
    /// one is inflated.
    pub fn read(body: &[u8], load_data: bool, compressed: bool) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        reader.take(8)?;
        let database_bytes = usize::from(reader.u8()?);
        reader.u16()?;
        let status_bytes = usize::from(reader.u16()?);
        if load_data {
            reader.take(13)?;
        }
        let status = Status::read(reader.take(status_bytes)?);
        let database = String::from_utf8_lossy(reader.take(database_bytes)?).into_owned();
        reader.u8()?;
        let inflated = if compressed { Some(inflate::event(reader.rest())?) } else { None };
        let raw = inflated.as_deref().unwrap_or(reader.rest());
        let statement = match (std::str::from_utf8(raw), status.client) {
            (Err(_), Some(charset)) => {
                let mut text = String::new();
                charset.decode_into(raw, &mut text);
                text
            }
            _ => String::from_utf8_lossy(raw).into_owned(),
        };
        let default_charset = status.database.or(status.server).map(|charset| charset.name());
        Ok(Self { database, statement, sql_mode: status.sql_mode, default_charset })
    }
}

impl Status {
    fn read(bytes: &[u8]) -> Self {
        let mut status = Self::default();
        let mut reader = Reader::new(bytes);
        // What cannot be read is left at its default: none of it is needed for row events.
        while let Ok(code) = reader.u8() {
            if status.read_variable(code, &mut reader).is_err() {
                break;
            }
        }
        status
    }

    fn read_variable(&mut self, code: u8, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        match code {
            variable::FLAGS2 | variable::AUTO_INCREMENT => drop(reader.u32()?),
            variable::SQL_MODE => self.sql_mode = SqlMode::from_bits(reader.u64()?),
            variable::CATALOG => {
                let length = usize::from(reader.u8()?);
                reader.take(length + 1)?;
            }
            variable::TIME_ZONE | variable::CATALOG_NZ => {
                let length = usize::from(reader.u8()?);
                reader.take(length)?;
            }
            variable::CHARSET => {
                self.client = Charset::by_collation_id(reader.u16()?);
                reader.u16()?;
                self.server = Charset::by_collation_id(reader.u16()?);
            }
            variable::LC_TIME_NAMES => drop(reader.u16()?),
            variable::CHARSET_DATABASE => self.database = Charset::by_collation_id(reader.u16()?),
            other => return Err(Malformed::value(format!("status variable {other} is not read"))),
        }
        Ok(())
    }
}

/// What a statement does to the transaction that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    XaStart,
    XaEnd,
    /// Of the transaction that was prepared earlier under this id.
    XaCommit(String),
    XaRollback(String),
    /// A statement that changes data or definitions.
    Other,
}

impl Control {
    /// The servers write these statements themselves, in capitals and without comments; a client's own spelling
    /// is met for savepoints.
    pub fn of(statement: &str) -> Self {
        let text = statement.trim().trim_end_matches(';').trim_end();
        let mut words = text.split_ascii_whitespace();
        let mut word = || words.next().unwrap_or_default().to_ascii_uppercase();
        let (first, second) = (word(), word());
        let name = |skip: usize| savepoint_name(text, skip);
        match (first.as_str(), second.as_str()) {
            ("BEGIN", "" | "WORK") | ("START", "TRANSACTION") => Self::Begin,
            ("COMMIT", "" | "WORK") => Self::Commit,
            ("ROLLBACK", "" | "WORK") => Self::Rollback,
            ("ROLLBACK", "TO") => match word().as_str() {
                "SAVEPOINT" => Self::RollbackTo(name(3)),
                _ => Self::RollbackTo(name(2)),
            },
            ("SAVEPOINT", _) => Self::Savepoint(name(1)),
            ("RELEASE", "SAVEPOINT") => Self::Release(name(2)),
            ("XA", "START" | "BEGIN") => Self::XaStart,
            ("XA", "END" | "PREPARE") => Self::XaEnd,
            ("XA", "COMMIT") => Self::XaCommit(xa_id(text)),
            ("XA", "ROLLBACK") => Self::XaRollback(xa_id(text)),
            _ => Self::Other,
        }
    }
}

/// The id behind two words, as [`super::xa`] writes it.
fn xa_id(text: &str) -> String {
    text.split_ascii_whitespace().nth(2).unwrap_or_default().to_ascii_uppercase()
}

/// The name after so many words, without quotes, in lower case: names of savepoints are case-insensitive.
fn savepoint_name(text: &str, skip: usize) -> String {
    let mut rest = text;
    for _ in 0..skip {
        rest = rest.trim_start();
        rest = rest.find(|c: char| c.is_ascii_whitespace()).and_then(|end| rest.get(end..)).unwrap_or_default();
    }
    let name = rest.trim();
    let bare = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
    bare.map_or_else(|| name.to_lowercase(), |name| name.replace("``", "`").to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(statement: &str, expected: Control) {
        assert_eq!(Control::of(statement), expected, "{statement}");
    }

    #[test]
    fn transaction_statements_are_told_from_all_others() {
        check("BEGIN", Control::Begin);
        check("commit", Control::Commit);
        check("ROLLBACK", Control::Rollback);
        check("SAVEPOINT `A b``c`", Control::Savepoint("a b`c".into()));
        check("ROLLBACK TO `x`", Control::RollbackTo("x".into()));
        check("rollback to savepoint X", Control::RollbackTo("x".into()));
        check("XA START X'61',X'',1", Control::XaStart);
        check("XA COMMIT X'6a',X'',1", Control::XaCommit("X'6A',X'',1".into()));
        check("XA ROLLBACK X'61',X'71',7", Control::XaRollback("X'61',X'71',7".into()));
        check("BEGIN_SOMETHING", Control::Other);
        check("CREATE TABLE t (a int)", Control::Other);
        check("", Control::Other);
    }
}
