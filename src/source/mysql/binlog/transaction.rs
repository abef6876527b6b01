//! The transaction that is being read, and the events that begin one.
//!
//! MySQL: `libs/mysql/binlog/event/control_events.h` for the GTID events; MariaDB manual, "GTID_EVENT".

use super::reader::{Malformed, Reader};

/// Most savepoints of one transaction that are kept, the newest: far more than a program goes back over.
const SAVEPOINTS_MAX: usize = 10_000;

/// The id of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gtid {
    MySql {
        uuid: [u8; 16],
        tag: String,
        number: u64,
    },
    MariaDb {
        domain: u32,
        server_id: u32,
        sequence: u64,
    },
    /// Of a form that is not known: the set of what has been read is not known from here on.
    Unknown,
}

/// What a GTID event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtidEvent {
    pub gtid: Option<Gtid>,
    /// When the transaction was committed where it came from, in microseconds since 1970-01-01 UTC.
    pub commit_time_us: Option<i64>,
    /// MariaDB: the event takes the place of BEGIN.
    pub begins: bool,
}

impl GtidEvent {
    /// GTID and ANONYMOUS_GTID of MySQL.
    pub fn read_mysql(body: &[u8], anonymous: bool) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        reader.u8()?;
        let uuid = reader.array()?;
        let number = reader.u64()?;
        let gtid = (!anonymous).then_some(Gtid::MySql { uuid, tag: String::new(), number });
        Ok(Self { gtid, commit_time_us: commit_time(&mut reader).unwrap_or(None), begins: false })
    }

    /// GTID_TAGGED of MySQL 8.3 and later. Its id is not read.
    pub fn read_tagged(_body: &[u8]) -> Self {
        Self { gtid: Some(Gtid::Unknown), commit_time_us: None, begins: false }
    }

    /// MariaDB's.
    pub fn read_mariadb(body: &[u8], server_id: u32) -> Result<Self, Malformed> {
        const STANDALONE: u8 = 1;
        let mut reader = Reader::new(body);
        let (sequence, domain, flags) = (reader.u64()?, reader.u32()?, reader.u8()?);
        let gtid = Some(Gtid::MariaDb { domain, server_id, sequence });
        Ok(Self { gtid, commit_time_us: None, begins: flags & STANDALONE == 0 })
    }
}

/// The times in a GTID event of MySQL 8: seven bytes each, the second only where the highest bit of the first is
/// set. Older events end before them.
fn commit_time(reader: &mut Reader<'_>) -> Result<Option<i64>, Malformed> {
    const LOGICAL_TIMESTAMPS: u8 = 2;
    const HAS_ORIGINAL: u64 = 1 << 55;
    if reader.u8()? != LOGICAL_TIMESTAMPS {
        return Ok(None);
    }
    reader.take(16)?;
    let immediate = reader.u56()?;
    let original = if immediate & HAS_ORIGINAL != 0 { reader.u56()? } else { immediate };
    Ok((original != 0).then_some((original & !HAS_ORIGINAL) as i64))
}

/// A point within a transaction that it may be rolled back to.
#[derive(Debug)]
pub struct Savepoint {
    pub name: String,
    /// How many `Rows` events of the transaction had been handed out.
    pub handed: usize,
    /// How many rows were held of each table besides; a table that is not here had no row of the transaction.
    pub rows: Vec<(usize, usize)>,
}

/// The transaction that is being read, if one is open, and what its GTID event said.
#[derive(Debug, Default)]
pub struct Transaction {
    pub open: bool,
    /// It began without a statement, and ends with the last row event of its own.
    pub ends_with_statement: bool,
    pub gtid: Option<Gtid>,
    pub commit_time_us: Option<i64>,
    /// `Rows` events of it that have been handed out.
    pub handed: usize,
    pub savepoints: Vec<Savepoint>,
    /// Tables with rows of it in their buffers.
    pub touched: Vec<usize>,
}

impl Transaction {
    /// Sets a savepoint; one of the same name goes.
    pub fn set_savepoint(&mut self, savepoint: Savepoint) {
        self.savepoints.retain(|known| known.name != savepoint.name);
        if self.savepoints.len() >= SAVEPOINTS_MAX {
            self.savepoints.remove(0);
        }
        self.savepoints.push(savepoint);
    }

    /// Drops the savepoints after the one of this name; returns its place.
    pub fn return_to(&mut self, name: &str) -> Option<&Savepoint> {
        let index = self.savepoints.iter().position(|known| known.name == name)?;
        self.savepoints.truncate(index + 1);
        self.savepoints.last()
    }
}
