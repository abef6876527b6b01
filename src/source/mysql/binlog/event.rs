//! The frame of an event: its header, its checksum, and the format description that says how to read both.
//!
//! MySQL internals manual, "Binary Log Event Header" and "FORMAT_DESCRIPTION_EVENT".

use super::reader::{Malformed, Reader};

/// Bytes of an event's header in version 4 of the format.
pub const HEADER_BYTES: usize = 19;

/// Bytes of the checksum at the end of an event.
const CHECKSUM_BYTES: usize = 4;

/// The first bytes of a binlog file.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];

/// The first bytes of an encrypted binlog file of MySQL.
pub const MAGIC_ENCRYPTED: [u8; 4] = [0xfd, b'b', b'i', b'n'];

/// Event types of the last servers that knew no checksums (MySQL 5.5). Newer ones, MariaDB's included, have more, and
/// say after them how events are checksummed. (The version, which says the same, is one bit away from an old one.)
const TYPES_WITHOUT_CHECKSUMS: usize = 27;

/// Largest event: the servers' own limit for one packet, `slave_max_allowed_packet`, is 1 GiB.
pub const EVENT_BYTES_MAX: usize = 1 << 30;

/// Set on events that a reader which doesn't know them may skip.
pub const FLAG_IGNORABLE: u16 = 0x80;

/// Set on events that the server made up for this connection; they stand nowhere in the file.
pub const FLAG_ARTIFICIAL: u16 = 0x20;

/// Set in a file's format description while the server writes the file; left out of its checksum.
const FLAG_IN_USE: u16 = 0x1;

/// Numbers of the event types (MySQL `enum Log_event_type`, MariaDB's own from 160 on).
pub mod kind {
    pub const START_V3: u8 = 1;
    pub const QUERY: u8 = 2;
    pub const STOP: u8 = 3;
    pub const ROTATE: u8 = 4;
    pub const INTVAR: u8 = 5;
    pub const LOAD: u8 = 6;
    pub const CREATE_FILE: u8 = 8;
    pub const APPEND_BLOCK: u8 = 9;
    pub const EXEC_LOAD: u8 = 10;
    pub const DELETE_FILE: u8 = 11;
    pub const NEW_LOAD: u8 = 12;
    pub const RAND: u8 = 13;
    pub const USER_VAR: u8 = 14;
    pub const FORMAT_DESCRIPTION: u8 = 15;
    pub const XID: u8 = 16;
    pub const BEGIN_LOAD_QUERY: u8 = 17;
    pub const EXECUTE_LOAD_QUERY: u8 = 18;
    pub const TABLE_MAP: u8 = 19;
    pub const WRITE_ROWS_V1: u8 = 23;
    pub const UPDATE_ROWS_V1: u8 = 24;
    pub const DELETE_ROWS_V1: u8 = 25;
    pub const INCIDENT: u8 = 26;
    pub const HEARTBEAT: u8 = 27;
    pub const IGNORABLE: u8 = 28;
    pub const ROWS_QUERY: u8 = 29;
    pub const WRITE_ROWS: u8 = 30;
    pub const UPDATE_ROWS: u8 = 31;
    pub const DELETE_ROWS: u8 = 32;
    pub const GTID: u8 = 33;
    pub const ANONYMOUS_GTID: u8 = 34;
    pub const PREVIOUS_GTIDS: u8 = 35;
    pub const TRANSACTION_CONTEXT: u8 = 36;
    pub const VIEW_CHANGE: u8 = 37;
    pub const XA_PREPARE: u8 = 38;
    pub const PARTIAL_UPDATE_ROWS: u8 = 39;
    pub const TRANSACTION_PAYLOAD: u8 = 40;
    pub const HEARTBEAT_V2: u8 = 41;
    pub const GTID_TAGGED: u8 = 42;
    pub const MARIADB_ANNOTATE_ROWS: u8 = 160;
    pub const MARIADB_BINLOG_CHECKPOINT: u8 = 161;
    pub const MARIADB_GTID: u8 = 162;
    pub const MARIADB_GTID_LIST: u8 = 163;
    pub const MARIADB_START_ENCRYPTION: u8 = 164;
    pub const MARIADB_QUERY_COMPRESSED: u8 = 165;
    pub const MARIADB_WRITE_ROWS_COMPRESSED_V1: u8 = 166;
    pub const MARIADB_UPDATE_ROWS_COMPRESSED_V1: u8 = 167;
    pub const MARIADB_DELETE_ROWS_COMPRESSED_V1: u8 = 168;
    pub const MARIADB_WRITE_ROWS_COMPRESSED: u8 = 169;
    pub const MARIADB_UPDATE_ROWS_COMPRESSED: u8 = 170;
    pub const MARIADB_DELETE_ROWS_COMPRESSED: u8 = 171;
}

/// The fixed part in front of every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// Seconds since 1970-01-01 UTC.
    pub timestamp_s: u32,
    pub kind: u8,
    pub server_id: u32,
    /// Bytes of the whole event, header and checksum included.
    pub event_bytes: u32,
    /// Low 32 bits of the offset of the event's end in its file; 0 where it stands in none.
    pub end_offset: u32,
    pub flags: u16,
}

impl EventHeader {
    /// # Errors
    /// If there are fewer than [`HEADER_BYTES`] bytes, or the size that they tell is no event's.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let header = Self {
            timestamp_s: reader.u32()?,
            kind: reader.u8()?,
            server_id: reader.u32()?,
            event_bytes: reader.u32()?,
            end_offset: reader.u32()?,
            flags: reader.u16()?,
        };
        let size = header.event_bytes as usize;
        if !(HEADER_BYTES..=EVENT_BYTES_MAX).contains(&size) {
            return Err(Malformed::value(format!(
                "the header tells a size of {size} bytes, an event has {HEADER_BYTES} to {EVENT_BYTES_MAX}"
            )));
        }
        Ok(header)
    }
}

/// Which server wrote a log: they differ in events, GTIDs and a few types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    MySql,
    MariaDb,
}

/// What the first event of a file says about all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatDescription {
    pub server_version: String,
    pub flavor: Flavor,
    /// Whether every event ends with a CRC-32 of its bytes.
    pub checksums: bool,
    /// When the server was started, in seconds since 1970-01-01 UTC; 0 in files begun by a rotation.
    pub started_s: u32,
    /// Bytes of the fixed part of each event type's body, from type 1 on.
    post_header_bytes: Vec<u8>,
}

impl FormatDescription {
    /// Reads the body (all after the header) of a format description.
    ///
    /// # Errors
    /// If it is not of version 4 of the format, or its checksum algorithm is unknown.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let version = reader.u16()?;
        if version != 4 {
            return Err(Malformed::value(format!("binlog version {version} instead of 4 (MySQL 5.0 and later)")));
        }
        let name = reader.take(50)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let server_version = String::from_utf8_lossy(name).into_owned();
        let started_s = reader.u32()?;
        let header_bytes = reader.u8()?;
        if usize::from(header_bytes) != HEADER_BYTES {
            return Err(Malformed::value(format!("event headers of {header_bytes} bytes instead of {HEADER_BYTES}")));
        }
        let flavor = if server_version.contains("MariaDB") { Flavor::MariaDb } else { Flavor::MySql };
        let mut post_header_bytes = reader.rest();
        let mut checksums = false;
        if post_header_bytes.len() > TYPES_WITHOUT_CHECKSUMS {
            let end = post_header_bytes.len().checked_sub(CHECKSUM_BYTES + 1);
            let Some((lengths, footer)) = end.and_then(|end| post_header_bytes.split_at_checked(end)) else {
                return Err(Malformed::value("no checksum algorithm at the end"));
            };
            post_header_bytes = lengths;
            checksums = match footer.first() {
                Some(0) => false,
                Some(1) => true,
                other => return Err(Malformed::value(format!("checksum algorithm {other:?} instead of 0 or 1"))),
            };
        }
        Ok(Self { server_version, flavor, checksums, started_s, post_header_bytes: post_header_bytes.to_vec() })
    }

    /// Bytes of a table id in events of this type: 4 in files of early 5.1 releases, else 6.
    pub fn table_id_bytes(&self, kind: u8) -> usize {
        let length = usize::from(kind).checked_sub(1).and_then(|index| self.post_header_bytes.get(index));
        if length == Some(&6) { 4 } else { 6 }
    }
}

/// The event without header and checksum, after the checksum has been compared where there is one.
///
/// # Errors
/// If the event is not as long as its header says, or its bytes do not have its checksum.
pub fn body<'a>(event: &'a [u8], header: &EventHeader, checksums: bool) -> Result<&'a [u8], Malformed> {
    if event.len() != header.event_bytes as usize {
        return Err(Malformed::value(format!("{} bytes where its header says {}", event.len(), header.event_bytes)));
    }
    let mut reader = Reader::new(event);
    reader.take(HEADER_BYTES)?;
    if !checksums {
        return Ok(reader.rest());
    }
    let Some((covered, footer)) = event.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Malformed::value("too short for a checksum"));
    };
    let expected = u32::from_le_bytes(*footer);
    let found = checksum(covered, header);
    if found != expected {
        return Err(Malformed::value(format!("its bytes have the checksum {found:08x} instead of {expected:08x}")));
    }
    let length = reader.rest().len().saturating_sub(CHECKSUM_BYTES);
    reader.take(length)
}

fn checksum(covered: &[u8], header: &EventHeader) -> u32 {
    if header.kind != kind::FORMAT_DESCRIPTION || header.flags & FLAG_IN_USE == 0 {
        return crc32fast::hash(covered);
    }
    let (frame, rest) = covered.split_at(HEADER_BYTES.min(covered.len()));
    let mut frame = frame.to_vec();
    if let Some(low) = frame.get_mut(17) {
        *low &= !(FLAG_IN_USE as u8);
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame);
    hasher.update(rest);
    hasher.finalize()
}
