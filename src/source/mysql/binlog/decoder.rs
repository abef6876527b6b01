//! Events in, [`SourceEvent`]s out.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::buffer::Mark;
use super::event::{EventHeader, FLAG_ARTIFICIAL, FormatDescription, kind};
use super::payload::Payload;
use super::place::Place;
use super::reader::Malformed;
use super::tables::Tables;
use super::transaction::Transaction;
use super::xa::Prepared;
use crate::change::{Losses, ResumePoint, TableId};
use crate::config::TableFilter;
use crate::schema::TableSchema;
use crate::source::mysql::gtid::GtidSet;
use crate::source::{SourceError, SourceErrorKind, SourceEvent};

/// Rows are handed out when about so much memory holds them: large enough for wide Arrow batches, small beside
/// the smallest `run.memory`.
pub const CHUNK_BYTES: usize = 8 << 20;

/// What a decoder starts with.
pub struct DecoderOptions {
    pub filter: TableFilter,
    /// Captured tables as they were at `start`.
    pub schemas: HashMap<TableId, Arc<TableSchema>>,
    /// Tables that were taken out before.
    pub skip: HashSet<TableId>,
    /// Keys that the job gives: `database.table` to column names.
    pub keys: BTreeMap<String, Vec<String>>,
    /// The boundary that the first event follows.
    pub start: ResumePoint,
    /// See [`CHUNK_BYTES`].
    pub chunk_bytes: usize,
    /// Rows are also handed out at the first end of a transaction at which there are so many: whoever wants
    /// batches of few rows cannot cut finer than this.
    pub chunk_rows: usize,
}

/// What is not a sequence of events that can be followed.
#[derive(Debug)]
pub(super) enum Failure {
    Malformed(Malformed),
    /// The log is whole, but holds what its server must be told not to write.
    Refused(String),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Turns the events of a log, fed one after the other, into changes.
///
/// Rows of many small transactions are handed out together, one batch for each table and then one boundary:
/// when [`DecoderOptions::chunk_bytes`] or [`DecoderOptions::chunk_rows`] are held, when something must come
/// straight after a boundary, or on [`Self::flush`]. A transaction larger than that comes in several batches before
/// its boundary.
pub struct Decoder {
    pub(super) tables: Tables,
    pub(super) keys: BTreeMap<String, Vec<String>>,
    pub(super) chunk_bytes: usize,
    pub(super) chunk_rows: usize,
    pub(super) format: Option<FormatDescription>,
    /// The end of the event that is being read.
    pub(super) here: Mark,
    pub(super) transaction: Transaction,
    /// Everything up to the last boundary; `None` where that is not known.
    pub(super) gtids: Option<GtidSet>,
    pub(super) boundary: Mark,
    pub(super) boundary_time_us: Option<i64>,
    /// Whether `boundary` has moved since it was last handed out.
    pub(super) boundary_due: bool,
    pub(super) held_bytes: usize,
    pub(super) held_rows: usize,
    pub(super) ready: VecDeque<SourceEvent>,
    pub(super) database_charsets: HashMap<String, String>,
    /// The statement that is being followed.
    pub(super) statement_read: Option<String>,
    pub(super) payload: Option<Payload>,
    pub(super) prepared: Prepared,
    /// The events stand in files: what a relay log holds of its master's rotations means nothing for them.
    pub(super) in_files: bool,
    failed: Option<(SourceErrorKind, String)>,
}

impl Decoder {
    pub fn new(options: DecoderOptions) -> Self {
        let (number, offset) = options.start.position.order;
        let text = &options.start.position.text;
        let file = Place::parse(text).map_or_else(|| text.clone(), |place| place.file);
        let start = Mark { file: file.into(), number, offset };
        Self {
            tables: Tables::new(options.filter, options.skip, options.schemas),
            keys: options.keys,
            chunk_bytes: options.chunk_bytes.max(1),
            chunk_rows: options.chunk_rows.max(1),
            format: None,
            here: start.clone(),
            transaction: Transaction::default(),
            gtids: options.start.gtid_set.as_deref().and_then(|text| text.parse().ok()),
            boundary: start,
            boundary_time_us: None,
            boundary_due: false,
            held_bytes: 0,
            held_rows: 0,
            ready: VecDeque::new(),
            database_charsets: HashMap::new(),
            statement_read: None,
            payload: None,
            prepared: Prepared::default(),
            in_files: false,
            failed: None,
        }
    }

    /// The default character sets of databases, by their names in lower case, where the log's beginning does not tell them.
    pub(crate) fn know_charsets(&mut self, charsets: HashMap<String, String>) {
        self.database_charsets = charsets;
    }

    /// Reads one event: header, body and, where the log has one, checksum. Events that are ready should be taken
    /// with [`Self::next_event`] until there is none before the next is fed: until then they take memory.
    ///
    /// The event's position is what its header tells, except that offsets past 4 GiB, which the header cuts off,
    /// are counted on.
    ///
    /// # Errors
    /// [`SourceErrorKind::Corrupt`] for bytes that make no sense, [`SourceErrorKind::Misconfigured`] for events
    /// that the server must be told not to write. After an error nothing more can be fed; what was committed
    /// before the event is still handed out.
    pub fn feed(&mut self, event: &[u8]) -> Result<(), SourceError> {
        self.feed_at(event, None)
    }

    /// The same for an event that is known to end at `end_offset`.
    pub(crate) fn feed_at(&mut self, event: &[u8], end_offset: Option<u64>) -> Result<(), SourceError> {
        self.drain_payload(usize::MAX)?;
        let header = EventHeader::read(event);
        let result = match &header {
            Ok(header) => {
                self.advance(header, end_offset);
                let checksums = self.format.as_ref().is_some_and(|format| format.checksums);
                self.event(event, header, checksums)
            }
            Err(malformed) => Err(malformed.clone().into()),
        };
        self.settle(result, header.ok())
    }

    /// The next of what has been read. `None` if more must be fed first.
    ///
    /// # Errors
    /// As [`Self::feed`]: the events of a compressed transaction are read here, so that only some are in memory.
    pub fn next_event(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        if self.ready.is_empty() && self.failed.is_none() {
            self.drain_payload(1)?;
        }
        Ok(self.ready.pop_front())
    }

    /// Hands out what is held. Between transactions a boundary always comes last; within one, the rows that it
    /// has so far come last.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub fn flush(&mut self) -> Result<(), SourceError> {
        self.drain_payload(usize::MAX)?;
        self.pass_headers();
        self.prepared.tell();
        self.boundary_due |= !self.transaction.open && self.prepared.is_empty();
        let result = self.hand_out(Vec::new());
        self.settle(result.map_err(Failure::from), None)
    }

    /// Between transactions, what has been read since the last one moves the boundary too: a new file begins
    /// with events that belong to none.
    fn pass_headers(&mut self) {
        let is_between = self.is_between_transactions() && !self.transaction.announced && self.prepared.is_empty();
        let is_ahead = (self.here.number, self.here.offset) > (self.boundary.number, self.boundary.offset);
        if is_between && is_ahead && self.format.is_some() {
            self.boundary.clone_from(&self.here);
        }
    }

    /// Values that were not taken over as they stand, for each table that has some, since the beginning. Rows
    /// that have not been handed out are not counted yet.
    pub fn losses(&self) -> impl Iterator<Item = (&TableId, Losses)> {
        self.tables.losses()
    }

    /// Whether the log is between two transactions.
    pub fn is_between_transactions(&self) -> bool {
        !self.transaction.open && self.payload.is_none()
    }

    /// What the log's format description said, once it has been read.
    pub fn format(&self) -> Option<&FormatDescription> {
        self.format.as_ref()
    }

    /// Goes on with another file of the log, where no ROTATE event says so. `number` is its rank.
    pub(crate) fn open_file(&mut self, name: &str, number: u64) {
        self.format = None;
        self.here = Mark { file: name.into(), number, offset: 4 };
    }

    /// Ends the reading at the end of the last file: everything up to here has been read.
    pub(crate) fn end_log(&mut self) -> Result<(), SourceError> {
        self.drain_payload(usize::MAX)?;
        if self.transaction.open {
            // The rest is still to be written, or never will be.
            let result = self.roll_back().and_then(|()| Ok(self.hand_out(Vec::new())?));
            return self.settle(result, None);
        }
        self.flush()
    }

    /// Gives up within the log: what was committed is handed out, the rest forgotten.
    pub(crate) fn abandon(&mut self) {
        self.payload = None;
        self.roll_back_held();
        // What cannot be handed out is read again after a restart.
        let _ = self.hand_out(Vec::new());
    }

    /// The file that the next event stands in.
    pub(crate) fn file(&self) -> &str {
        &self.here.file
    }

    /// Reads events of a compressed transaction until so many events are ready, or there are no more.
    fn drain_payload(&mut self, ready: usize) -> Result<(), SourceError> {
        if let Some((kind, message)) = &self.failed {
            return Err(SourceError::new(*kind, message.clone()));
        }
        while self.ready.len() < ready
            && let Some(mut payload) = self.payload.take()
        {
            let mut inner = None;
            let result = match payload.next() {
                Ok(None) => return Ok(()),
                Ok(Some(event)) => EventHeader::read(event).map_err(Failure::from).and_then(|header| {
                    inner = Some(header);
                    match header.kind {
                        kind::TRANSACTION_PAYLOAD | kind::FORMAT_DESCRIPTION | kind::ROTATE => {
                            Err(Malformed::value("stands within a compressed transaction").into())
                        }
                        _ => self.event(event, &header, false),
                    }
                }),
                Err(malformed) => Err(malformed.into()),
            };
            self.payload = Some(payload);
            self.settle(result, inner)?;
        }
        Ok(())
    }

    /// Turns a failure into the error that is told, once the rows before it have been handed out.
    fn settle(&mut self, result: Result<(), Failure>, header: Option<EventHeader>) -> Result<(), SourceError> {
        let Err(failure) = result else { return Ok(()) };
        self.abandon();
        let kind = header.map_or("event".to_string(), |header| format!("event of type {}", header.kind));
        let place = format!("{}: {kind} that ends at {}", self.here.file, self.here.offset);
        let (kind, message) = match failure {
            Failure::Malformed(malformed) => {
                (SourceErrorKind::Corrupt, format!("{place}: {malformed}; check the file with: mysqlbinlog -c"))
            }
            Failure::Refused(reason) => (SourceErrorKind::Misconfigured, format!("{place}: {reason}")),
        };
        self.failed = Some((kind, message.clone()));
        Err(SourceError::new(kind, message))
    }

    fn advance(&mut self, header: &EventHeader, end_offset: Option<u64>) {
        let is_made_up = header.end_offset == 0 || header.flags & FLAG_ARTIFICIAL != 0;
        if let Some(end) = end_offset {
            self.in_files = true;
            self.here.offset = end;
        } else if !is_made_up && !matches!(header.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2) {
            let next = self.here.offset + u64::from(header.event_bytes);
            let low = u64::from(header.end_offset);
            let high = next & !u64::from(u32::MAX);
            self.here.offset = if next & u64::from(u32::MAX) == low { next } else { high | low };
        }
    }
}
