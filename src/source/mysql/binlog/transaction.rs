//! The transaction that is being read, and the events that begin one.
//!
//! MySQL: `libs/mysql/binlog/event/control_events.h` for the GTID events; MariaDB manual, "GTID_EVENT".

use super::reader::{Malformed, Reader};
use super::xa::Kept;

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
    /// MariaDB: the event takes the place of XA START.
    pub is_xa: bool,
}

impl GtidEvent {
    /// GTID and ANONYMOUS_GTID of MySQL.
    pub fn read_mysql(body: &[u8], anonymous: bool) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        reader.u8()?;
        let uuid = reader.array()?;
        let number = reader.u64()?;
        let gtid = (!anonymous).then_some(Gtid::MySql { uuid, tag: String::new(), number });
        Ok(Self { gtid, commit_time_us: commit_time(&mut reader).unwrap_or(None), begins: false, is_xa: false })
    }

    /// GTID_TAGGED of MySQL 8.3 and later. What cannot be read makes the id unknown, no more.
    pub fn read_tagged(body: &[u8]) -> Self {
        let unknown = Self { gtid: Some(Gtid::Unknown), commit_time_us: None, begins: false, is_xa: false };
        Tagged::read(body).map_or(unknown, |tagged| Self {
            gtid: Some(Gtid::MySql { uuid: tagged.uuid, tag: tagged.tag, number: tagged.number }),
            commit_time_us: tagged.original_us.or(tagged.immediate_us),
            begins: false,
            is_xa: false,
        })
    }

    /// MariaDB's.
    pub fn read_mariadb(body: &[u8], server_id: u32) -> Result<Self, Malformed> {
        const STANDALONE: u8 = 1;
        const PREPARED_XA: u8 = 0x40;
        let mut reader = Reader::new(body);
        let (sequence, domain, flags) = (reader.u64()?, reader.u32()?, reader.u8()?);
        let gtid = Some(Gtid::MariaDb { domain, server_id, sequence });
        Ok(Self { gtid, commit_time_us: None, begins: flags & STANDALONE == 0, is_xa: flags & PREPARED_XA != 0 })
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

/// The fields of a GTID_TAGGED event that are read.
#[derive(Debug, Default)]
struct Tagged {
    uuid: [u8; 16],
    tag: String,
    number: u64,
    immediate_us: Option<i64>,
    original_us: Option<i64>,
}

impl Tagged {
    /// The format is MySQL's serialization library's (`libs/mysql/serialization/readme.md`): version, size, the last
    /// field that must be understood, then each field's number and value.
    fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        variable(&mut reader)?;
        if variable(&mut reader)? > body.len() as u64 {
            return Err(Malformed::value("shorter than it tells"));
        }
        variable(&mut reader)?;
        let mut tagged = Self::default();
        while !reader.is_empty() {
            match variable(&mut reader)? {
                0 => drop(variable(&mut reader)?),
                1 => {
                    for byte in &mut tagged.uuid {
                        *byte = variable(&mut reader)? as u8;
                    }
                }
                2 => tagged.number = signed(variable(&mut reader)?) as u64,
                3 => tagged.tag = tag(&mut reader)?,
                4 | 5 => drop(variable(&mut reader)?),
                6 => tagged.immediate_us = i64::try_from(variable(&mut reader)?).ok(),
                7 => tagged.original_us = i64::try_from(variable(&mut reader)?).ok(),
                // The transaction's length, versions of servers: not needed.
                _ => break,
            }
        }
        if tagged.number == 0 { Err(Malformed::value("a tagged id without a number")) } else { Ok(tagged) }
    }
}

/// An integer of variable length: as many more bytes as the first has ones at its low end, little-endian, the value
/// above the first zero.
fn variable(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let first = reader.u8()?;
    let more = first.trailing_ones();
    if more == 8 {
        return reader.u64();
    }
    let rest = reader.take(more as usize)?.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    Ok(rest << (7 - more) | u64::from(first) >> (more + 1))
}

/// The sign is in the lowest bit.
fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A tag with its length before it.
pub(super) fn tag(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let length = usize::try_from(variable(reader)?).unwrap_or(usize::MAX);
    Ok(String::from_utf8_lossy(reader.take(length)?).into_owned())
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
    /// An event that belongs to it has been read, whether or not it is open yet: its GTID, say.
    pub announced: bool,
    /// It began without a statement, and ends with the last row event of its own.
    pub ends_with_statement: bool,
    pub gtid: Option<Gtid>,
    pub commit_time_us: Option<i64>,
    /// `Rows` events of it that have been handed out.
    pub handed: usize,
    pub savepoints: Vec<Savepoint>,
    /// It is an XA transaction: its rows are kept until it is known what becomes of it.
    pub xa: Option<Kept>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    // The two bodies are of a log of MySQL 9.7.
    #[test]
    fn a_tagged_id_is_read_with_its_commit_time() {
        let uuid = *uuid::Uuid::parse_str("37d79d68-ecd0-11f1-b49b-02fc00000001").unwrap().as_bytes();
        let body = hex("0278000000026e5d037502d0b103410322c503d1026d0204f10300000002\
             0404060c72656c6f6164080c0a100c7fa29768e37f61061089041283120b");
        let gtid = Some(Gtid::MySql { uuid, tag: "reload".into(), number: 1 });
        let expected = GtidEvent { gtid, commit_time_us: Some(1_796_051_764_287_394), begins: false, is_xa: false };
        assert_eq!(GtidEvent::read_tagged(&body), expected);
        for length in 0..body.len() {
            assert_eq!(GtidEvent::read_tagged(&body[..length]).gtid, Some(Gtid::Unknown), "{length}");
        }
    }

    #[test]
    fn the_origin_of_a_replicated_transaction_tells_its_commit_time() {
        let head = "0137d79d68ecd011f1b49b02fc000000010100000000000000";
        let logical = "0200000000000000000100000000000000";
        let check = |times: &str, expected: Option<i64>| {
            let event = GtidEvent::read_mysql(&hex(&format!("{head}{times}")), false).unwrap();
            assert_eq!(event.commit_time_us, expected, "{times}");
        };
        check(&format!("{logical}287266e37f6106b950620100"), Some(0x0006_617f_e366_7228));
        check(&format!("{logical}287266e37f6186010000000000 00b950").replace(' ', ""), Some(1));
        check(logical, None);
        check("", None);
    }
}
