//! Row events: their frame, and the walk over their row images.
//!
//! MySQL internals manual, "ROWS_EVENT".

use super::event::kind;
use super::reader::{Malformed, Reader};
use super::table_map::bit;

/// Set on the last row event of a statement.
const FLAG_STATEMENT_END: u16 = 1;

/// The table id of a row event without rows that only ends a statement.
pub const TABLE_ID_NONE: u64 = 0x00ff_ffff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsKind {
    Write,
    Update,
    Delete,
}

/// How an event of some type gives rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsFormat {
    pub kind: RowsKind,
    /// New JSON documents may stand as changes of the old ones (`binlog_row_value_options=PARTIAL_JSON`).
    pub partial_json: bool,
    /// Version 2 has extra data after the flags.
    pub extra_data: bool,
    /// MariaDB's `log_bin_compress`.
    pub compressed: bool,
}

impl RowsFormat {
    /// `None` for a type that is no row event.
    pub fn of(event_kind: u8) -> Option<Self> {
        let partial_json = event_kind == kind::PARTIAL_UPDATE_ROWS;
        let (kind, extra_data, compressed) = match event_kind {
            kind::WRITE_ROWS_V1 => (RowsKind::Write, false, false),
            kind::UPDATE_ROWS_V1 => (RowsKind::Update, false, false),
            kind::DELETE_ROWS_V1 => (RowsKind::Delete, false, false),
            kind::WRITE_ROWS => (RowsKind::Write, true, false),
            kind::UPDATE_ROWS | kind::PARTIAL_UPDATE_ROWS => (RowsKind::Update, true, false),
            kind::DELETE_ROWS => (RowsKind::Delete, true, false),
            kind::MARIADB_WRITE_ROWS_COMPRESSED_V1 => (RowsKind::Write, false, true),
            kind::MARIADB_UPDATE_ROWS_COMPRESSED_V1 => (RowsKind::Update, false, true),
            kind::MARIADB_DELETE_ROWS_COMPRESSED_V1 => (RowsKind::Delete, false, true),
            kind::MARIADB_WRITE_ROWS_COMPRESSED => (RowsKind::Write, true, true),
            kind::MARIADB_UPDATE_ROWS_COMPRESSED => (RowsKind::Update, true, true),
            kind::MARIADB_DELETE_ROWS_COMPRESSED => (RowsKind::Delete, true, true),
            _ => return None,
        };
        Some(Self { kind, partial_json, extra_data, compressed })
    }
}

/// The part of a row event in front of its rows.
#[derive(Debug, Clone)]
pub struct RowsHead {
    pub table_id: u64,
    pub ends_statement: bool,
}

impl RowsHead {
    /// Reads the table id and the flags; the rest of the body follows.
    pub fn read(body: &mut Reader<'_>, table_id_bytes: usize) -> Result<Self, Malformed> {
        let table_id = if table_id_bytes == 4 { u64::from(body.u32()?) } else { body.u48()? };
        let flags = body.u16()?;
        Ok(Self { table_id, ends_statement: flags & FLAG_STATEMENT_END != 0 })
    }
}

/// Which columns the images of a row event have.
#[derive(Debug, Clone)]
pub struct RowsColumns {
    pub count: usize,
    /// Whether every image has every column, whole.
    pub all_present: bool,
    /// Whether each column is in the old images; empty for [`RowsKind::Write`].
    pub before: Vec<bool>,
    /// Whether each column is in the new images; empty for [`RowsKind::Delete`].
    pub after: Vec<bool>,
}

impl RowsColumns {
    /// Reads what stands between the flags and the rows.
    pub fn read(body: &mut Reader<'_>, format: RowsFormat) -> Result<Self, Malformed> {
        if format.extra_data {
            let length = body.u16()?;
            let length = length.checked_sub(2).ok_or_else(|| Malformed::value("extra data shorter than its length"))?;
            body.take(usize::from(length))?;
        }
        let count = body.length()?;
        let first = body.take(count.div_ceil(8))?;
        let second = if format.kind == RowsKind::Update { body.take(count.div_ceil(8))? } else { &[] };
        let second_full = second.is_empty() || all_set(second, count);
        if !format.partial_json && second_full && all_set(first, count) {
            return Ok(Self { count, all_present: true, before: Vec::new(), after: Vec::new() });
        }
        let bits = |bitmap: &[u8]| (0..count).map(|index| bit(bitmap, index)).collect();
        let (before, after) = match format.kind {
            RowsKind::Write => (Vec::new(), bits(first)),
            RowsKind::Update => (bits(first), bits(second)),
            RowsKind::Delete => (bits(first), Vec::new()),
        };
        Ok(Self { count, all_present: false, before, after })
    }
}

fn all_set(bitmap: &[u8], count: usize) -> bool {
    (0..count).all(|index| bit(bitmap, index))
}
