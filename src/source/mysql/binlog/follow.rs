//! What each event does: one method for each kind.

use super::buffer::Mark;
use super::decoder::{Decoder, Failure};
use super::event::{self, EventHeader, FLAG_ARTIFICIAL, FLAG_IGNORABLE, Flavor, FormatDescription, kind};
use super::payload::Payload;
use super::reader::{Malformed, Reader};
use super::rows::{RowsColumns, RowsFormat, RowsHead, TABLE_ID_NONE};
use super::statement::{Control, Query};
use super::table_map::TableMap;
use super::tables::Target;
use super::transaction::{Gtid, GtidEvent, Savepoint};
use super::xa::Kept;
use super::{inflate, previous_gtids};
use crate::source::mysql::gtid::{GtidSet, MariaDbGtidSet};

impl Decoder {
    pub(super) fn event(&mut self, event: &[u8], header: &EventHeader, checksums: bool) -> Result<(), Failure> {
        if header.kind == kind::FORMAT_DESCRIPTION {
            return self.format_description(event, header);
        }
        let body = event::body(event, header, checksums)?;
        self.transaction.announced |= !belongs_to_no_transaction(header.kind);
        match header.kind {
            kind::TABLE_MAP => self.table_map(body, header),
            kind::QUERY => self.query(Query::read(body, false, false)?, header),
            kind::EXECUTE_LOAD_QUERY => self.query(Query::read(body, true, false)?, header),
            kind::MARIADB_QUERY_COMPRESSED => self.query(Query::read(body, false, true)?, header),
            kind::XID => self.end_transaction(header),
            kind::GTID => self.begin_gtid(GtidEvent::read_mysql(body, false)?),
            kind::ANONYMOUS_GTID => self.begin_gtid(GtidEvent::read_mysql(body, true)?),
            kind::GTID_TAGGED => self.begin_gtid(GtidEvent::read_tagged(body)),
            kind::MARIADB_GTID => self.begin_gtid(GtidEvent::read_mariadb(body, header.server_id)?),
            kind::PREVIOUS_GTIDS => self.adopt_gtids(previous_gtids::mysql(body)),
            kind::MARIADB_GTID_LIST => self.adopt_gtids(Some(previous_gtids::mariadb(body)?)),
            kind::ROTATE => self.rotate(body, header),
            kind::XA_PREPARE => self.xa_prepare(body, header),
            kind::TRANSACTION_PAYLOAD => {
                self.payload = Some(Payload::read(body)?);
                Ok(())
            }
            // A live server sends this event too, but everything after it is as if it were not encrypted.
            kind::MARIADB_START_ENCRYPTION if self.in_files => Err(Failure::Refused(
                "the file is encrypted: read it through a live server, or SET GLOBAL encrypt_binlog = OFF".into(),
            )),
            kind::MARIADB_START_ENCRYPTION => Ok(()),
            other => match RowsFormat::of(other) {
                Some(format) => self.rows(body, header, format),
                None => other_event(header),
            },
        }
    }

    fn format_description(&mut self, event: &[u8], header: &EventHeader) -> Result<(), Failure> {
        let format = FormatDescription::read(event::body(event, header, false)?)?;
        event::body(event, header, format.checksums)?;
        if self.transaction.open {
            if format.started_s == 0 {
                return Err(
                    Malformed::value("a log file begins within a transaction: part of the log is missing").into()
                );
            }
            // The server was started anew: what it had not finished writing has been rolled back.
            self.roll_back()?;
        }
        self.transaction.announced = false;
        self.tables.forget_maps();
        self.format = Some(format);
        let is_ahead = (self.here.number, 4) > (self.boundary.number, self.boundary.offset);
        if is_ahead && self.prepared.is_empty() {
            self.boundary = Mark { offset: 4, ..self.here.clone() };
            self.boundary_due = true;
        }
        Ok(())
    }

    pub(super) fn flavor(&self) -> Flavor {
        self.format.as_ref().map_or(Flavor::MySql, |format| format.flavor)
    }

    /// MySQL internals manual, "ROTATE_EVENT": the offset in the next file, and its name.
    fn rotate(&mut self, body: &[u8], header: &EventHeader) -> Result<(), Failure> {
        let mut reader = Reader::new(body);
        let offset = reader.u64()?;
        let name = String::from_utf8_lossy(reader.rest());
        let is_made_up = header.end_offset == 0 || header.flags & FLAG_ARTIFICIAL != 0;
        if is_made_up && self.in_files {
            return Ok(());
        }
        if self.transaction.open && !is_made_up {
            return Err(Malformed::value("a log file ends within a transaction").into());
        }
        let before = self.here.number / super::ERA * super::ERA;
        let number = before + super::file_number(&name).unwrap_or(0);
        let next = Mark { file: (*name).into(), number, offset };
        let is_ahead = (next.number, next.offset) > (self.boundary.number, self.boundary.offset);
        if is_ahead && !self.transaction.open && self.prepared.is_empty() {
            self.boundary = next.clone();
            self.boundary_due = true;
        }
        self.here = next;
        Ok(())
    }

    fn begin_gtid(&mut self, event: GtidEvent) -> Result<(), Failure> {
        if self.transaction.open {
            return Err(Malformed::value("a transaction begins within another").into());
        }
        self.transaction.gtid = event.gtid;
        self.transaction.commit_time_us = event.commit_time_us;
        self.transaction.open = event.begins;
        self.transaction.xa = event.is_xa.then(Kept::default);
        Ok(())
    }

    /// What stands at the beginning of a file tells what came before it.
    fn adopt_gtids(&mut self, before: Option<GtidSet>) -> Result<(), Failure> {
        if self.gtids.is_none() && !self.transaction.open {
            self.gtids = before;
        }
        Ok(())
    }

    fn query(&mut self, query: Query, header: &EventHeader) -> Result<(), Failure> {
        match Control::of(&query.statement) {
            Control::Begin => self.transaction.open = true,
            Control::XaStart => {
                self.transaction.open = true;
                self.transaction.xa = Some(Kept::default());
            }
            Control::XaCommit(id) => return self.xa_commit(&id, header),
            Control::XaRollback(id) => return self.xa_roll_back(&id, header),
            Control::Commit => return self.end_transaction(header),
            Control::Rollback => {
                self.roll_back()?;
                return self.end_transaction(header);
            }
            Control::Savepoint(name) => self.set_savepoint(name),
            Control::RollbackTo(name) => self.roll_back_to(&name)?,
            Control::Release(name) => self.transaction.savepoints.retain(|known| known.name != name),
            Control::XaEnd => {}
            Control::Other => return self.statement(&query, header),
        }
        Ok(())
    }

    fn set_savepoint(&mut self, name: String) {
        let tables = &mut self.tables;
        let rows = self.transaction.touched.iter();
        let rows = rows.filter_map(|index| Some((*index, tables.buffer(*index)?.rows()))).collect();
        self.transaction.set_savepoint(Savepoint { name, handed: self.transaction.handed, rows });
    }

    fn table_map(&mut self, body: &[u8], header: &EventHeader) -> Result<(), Failure> {
        let mut reader = Reader::new(body);
        let table_id_bytes = self.format.as_ref().map_or(6, |format| format.table_id_bytes(header.kind));
        let table_id = if table_id_bytes == 4 { u64::from(reader.u32()?) } else { reader.u48()? };
        let description = reader.rest();
        if self.tables.mapped(table_id, description).is_some() {
            return Ok(());
        }
        let target = self.target(description)?;
        self.tables.map(table_id, description, target);
        Ok(())
    }

    fn target(&mut self, description: &[u8]) -> Result<Target, Failure> {
        let table = TableMap::read_name(&mut Reader::new(description))?;
        if !self.tables.wants(&table) {
            return Ok(Target::Skip);
        }
        let map = TableMap::read(&mut Reader::new(description), self.flavor())?;
        match self.prepare(&map)? {
            Ok(index) => Ok(Target::Table(index)),
            Err(reason) => {
                self.stop(&table, reason)?;
                Ok(Target::Skip)
            }
        }
    }

    fn rows(&mut self, body: &[u8], header: &EventHeader, format: RowsFormat) -> Result<(), Failure> {
        let mut reader = Reader::new(body);
        let table_id_bytes = self.format.as_ref().map_or(6, |format| format.table_id_bytes(header.kind));
        let head = RowsHead::read(&mut reader, table_id_bytes)?;
        let target = match self.tables.target(head.table_id) {
            Some(target) => target,
            None if head.table_id == TABLE_ID_NONE => Target::Skip,
            None => {
                let what = format!("rows of table id {}, which no TABLE_MAP event describes", head.table_id);
                return Err(Malformed::value(what).into());
            }
        };
        if !self.transaction.open {
            // Early servers log changes to tables without transactions outside of any.
            self.transaction.open = true;
            self.transaction.ends_with_statement = true;
        }
        if let Target::Table(index) = target {
            let columns = RowsColumns::read(&mut reader, format)?;
            let inflated;
            if format.compressed {
                inflated = inflate::event(reader.rest())?;
                reader = Reader::new(&inflated);
            }
            self.append_rows(index, &columns, format, &mut reader, header)?;
        }
        if head.ends_statement && self.transaction.ends_with_statement {
            return self.end_transaction(header);
        }
        Ok(())
    }

    fn append_rows(
        &mut self,
        index: usize,
        columns: &RowsColumns,
        format: RowsFormat,
        rows: &mut Reader<'_>,
        header: &EventHeader,
    ) -> Result<(), Failure> {
        let time_us = self.transaction.commit_time_us.unwrap_or_else(|| header_time_us(header));
        if !columns.all_present
            && let Some(buffer) = self.tables.buffer(index).filter(|buffer| buffer.width() == columns.count)
            && let Some(reason) = buffer.image_fault(format.kind, columns)
        {
            return self.stop_index(index, reason);
        }
        while !rows.is_empty() {
            let budget = self.chunk_bytes.saturating_sub(self.held_bytes).max(1);
            let Some(buffer) = self.tables.buffer(index) else { return Ok(()) };
            if buffer.width() != columns.count {
                let what = format!("rows of {} columns for a table that has {}", columns.count, buffer.width());
                return Err(Malformed::value(what).into());
            }
            buffer.begin(time_us, &self.here);
            // Noted first: a row that fails half-way must be forgotten with the others.
            if !self.transaction.touched.contains(&index) {
                self.transaction.touched.push(index);
            }
            let rows_before = buffer.rows();
            self.held_bytes += if columns.all_present {
                buffer.append(format.kind, rows, budget)?
            } else {
                buffer.append_partial(format, columns, rows, budget)?
            };
            self.held_rows += buffer.rows() - rows_before;
            if self.held_bytes >= self.chunk_bytes {
                self.hand_out(Vec::new())?;
            }
        }
        Ok(())
    }

    pub(super) fn end_transaction(&mut self, header: &EventHeader) -> Result<(), Failure> {
        let time_us = self.transaction.commit_time_us.unwrap_or_else(|| header_time_us(header));
        let ended = std::mem::take(&mut self.transaction);
        for index in &ended.touched {
            if let Some(buffer) = self.tables.buffer(*index) {
                buffer.commit(time_us, &self.here);
            }
        }
        self.note_gtid(ended.gtid);
        // The list is used again, so that a transaction costs no allocation.
        self.transaction.touched = ended.touched;
        self.transaction.touched.clear();
        self.tables.trim_maps();
        let is_chunk = self.held_bytes >= self.chunk_bytes || self.held_rows >= self.chunk_rows;
        self.prepared.handed += ended.handed;
        if !self.prepared.is_empty() {
            return if is_chunk { Ok(self.hand_out(Vec::new())?) } else { Ok(()) };
        }
        self.boundary.clone_from(&self.here);
        self.boundary_time_us = Some(time_us);
        self.boundary_due = true;
        if is_chunk {
            self.hand_out(Vec::new())?;
        }
        Ok(())
    }

    fn note_gtid(&mut self, gtid: Option<Gtid>) {
        // An empty text is the empty set of either server.
        if matches!(gtid, Some(Gtid::MariaDb { .. }))
            && matches!(&self.gtids, Some(GtidSet::MySql(set)) if set.is_empty())
        {
            self.gtids = Some(GtidSet::MariaDb(MariaDbGtidSet::default()));
        }
        match (&mut self.gtids, gtid) {
            (Some(GtidSet::MySql(set)), Some(Gtid::MySql { uuid, tag, number })) => set.add(uuid, &tag, number),
            (Some(GtidSet::MariaDb(set)), Some(Gtid::MariaDb { domain, server_id, sequence })) => {
                set.add(domain, server_id, sequence);
            }
            (_, None) => {}
            // Another server's ids, or a form that is not known: better none than a wrong set.
            (gtids, Some(_)) => *gtids = None,
        }
    }
}

pub(super) fn header_time_us(header: &EventHeader) -> i64 {
    i64::from(header.timestamp_s) * 1_000_000
}

/// Events of the log itself: reading may restart after one of them. All others are part of a transaction, or tell
/// something of the one that follows.
fn belongs_to_no_transaction(event_kind: u8) -> bool {
    matches!(
        event_kind,
        kind::PREVIOUS_GTIDS
            | kind::MARIADB_GTID_LIST
            | kind::MARIADB_BINLOG_CHECKPOINT
            | kind::MARIADB_START_ENCRYPTION
            | kind::ROTATE
            | kind::STOP
            | kind::HEARTBEAT
            | kind::HEARTBEAT_V2
            | kind::IGNORABLE
            | kind::VIEW_CHANGE
    )
}

/// Events that change nothing, and those that mean trouble.
fn other_event(header: &EventHeader) -> Result<(), Failure> {
    match header.kind {
        kind::STOP
        | kind::INTVAR
        | kind::RAND
        | kind::USER_VAR
        | kind::BEGIN_LOAD_QUERY
        | kind::APPEND_BLOCK
        | kind::DELETE_FILE
        | kind::HEARTBEAT
        | kind::HEARTBEAT_V2
        | kind::IGNORABLE
        | kind::ROWS_QUERY
        | kind::TRANSACTION_CONTEXT
        | kind::VIEW_CHANGE
        | kind::MARIADB_ANNOTATE_ROWS
        | kind::MARIADB_BINLOG_CHECKPOINT => Ok(()),
        kind::LOAD | kind::NEW_LOAD | kind::CREATE_FILE | kind::EXEC_LOAD => Err(Failure::Refused(
            "LOAD DATA logged as a statement: SET GLOBAL binlog_format = ROW, then start again from a snapshot".into(),
        )),
        kind::INCIDENT => Err(Failure::Refused(
            "the server reports an incident: events were lost on it; start again from a snapshot".into(),
        )),
        kind::START_V3 => Err(Failure::Refused("the log is of a server before MySQL 5.0".into())),
        _ if header.flags & FLAG_IGNORABLE != 0 => Ok(()),
        other => Err(Malformed::value(format!("event type {other} is unknown")).into()),
    }
}
