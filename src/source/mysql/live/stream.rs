//! The log as the server writes it: a replica's connection, fed event by event into the decoder.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use mysql_async::binlog::EventType;
use mysql_async::binlog::events::{Event, TransactionPayloadEvent};
use mysql_async::{BinlogStream, BinlogStreamRequest, Sid};

use super::connection::{Endpoint, Session, failure, text_literal};
use crate::change::{Losses, ResumePoint, SourcePosition, TableId};
use crate::source::mysql::binlog::{Decoder, Flavor, Place};
use crate::source::{ChangeStream, SourceError, SourceErrorKind, SourceEvent};

/// What has been read is handed out at least this often, so that a quiet table's rows do not wait.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The same while someone waits for a boundary.
const FLUSH_HURRIED: Duration = Duration::from_millis(10);
/// With nothing more to read, rows are handed out after this long.
const FLUSH_IDLE: Duration = Duration::from_millis(50);
/// The server sends a heartbeat every second, in nanoseconds, when it has nothing else.
const HEARTBEAT_NS: u64 = 1_000_000_000;
/// Silence after which the server or the network is taken for dead: many missed heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Room for an event that is kept for the next one.
const RAW_BYTES_KEPT: usize = 8 << 20;
/// Bytes of an event's header.
const HEADER_BYTES: usize = 19;
const CHECKSUM_BYTES: usize = 4;

/// The last boundary that any stream of a source has given out. The server sends transactions from its log before
/// they are visible to a SELECT; rows for a first load are read only when all up to here are.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenOut(Arc<Mutex<Option<SourcePosition>>>);

impl GivenOut {
    pub fn pass(&self, position: &SourcePosition) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|last| last < position) {
            *last = Some(position.clone());
        }
    }

    /// Whether `position` is at or past it.
    pub fn is_reached_by(&self, position: &SourcePosition) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_none_or(|last| position >= last)
    }
}

/// A replica's connection and what its events become.
pub(super) struct LiveStream {
    endpoint: Endpoint,
    /// `None` once it has failed: nothing after a gap may be read.
    events: Option<BinlogStream>,
    /// To be told once all that was read before it is handed out.
    failed: Option<SourceError>,
    decoder: Decoder,
    given_out: GivenOut,
    /// The event as it stands in the log; kept for its capacity.
    raw: Vec<u8>,
    frames: Frames,
    flush_at: Instant,
    last_event: Instant,
    /// Something was fed since the last flush.
    fed: bool,
    is_hurried: bool,
    /// A boundary is to come after each transaction.
    is_step_by_step: bool,
}

/// Turns the connection into a stream of the events after `from`.
///
/// # Errors
/// `Misconfigured` for a resume point that is none of this server's. A lost position comes with the first event.
pub(super) async fn open(
    mut session: Session,
    server_id: u32,
    from: &ResumePoint,
    by_gtid: bool,
    decoder: Decoder,
    given_out: GivenOut,
) -> Result<LiveStream, SourceError> {
    // MySQL renamed "master" to "source" in 8.0.26 and still reads the old name; MariaDB knows the old one only.
    session
        .run(&format!("SET @master_heartbeat_period = {HEARTBEAT_NS}, @source_heartbeat_period = {HEARTBEAT_NS}"))
        .await?;
    if session.flavor == Flavor::MariaDb {
        prepare_mariadb(&mut session, from, by_gtid).await?;
    }
    let at = Place::parse(&from.position.text).ok_or_else(|| not_a_position(&session.endpoint, from))?;
    let mut request = BinlogStreamRequest::new(server_id);
    match (session.flavor, by_gtid) {
        (Flavor::MySql, true) => request = request.with_gtid().with_gtid_set(sids(&session.endpoint, from)?),
        // The server finds the place by @slave_connect_state.
        (Flavor::MariaDb, true) => {}
        (_, false) => request = request.with_filename(at.file.as_bytes()).with_pos(at.offset),
    }
    let Session { conn, endpoint, .. } = session;
    let events = conn.get_binlog_stream(request).await;
    let events = events.map_err(|error| failure(&endpoint, "read the binlog", error))?;
    let now = Instant::now();
    Ok(LiveStream {
        endpoint,
        events: Some(events),
        failed: None,
        decoder,
        given_out,
        raw: Vec::new(),
        frames: Frames::default(),
        flush_at: now + FLUSH_EVERY,
        last_event: now,
        fed: false,
        is_hurried: false,
        is_step_by_step: false,
    })
}

/// Without the capability MariaDB would turn its own events into MySQL's older ones, and leave out GTIDs.
async fn prepare_mariadb(session: &mut Session, from: &ResumePoint, by_gtid: bool) -> Result<(), SourceError> {
    session.run("SET @mariadb_slave_capability = 4").await?;
    if let (true, Some(set)) = (by_gtid, &from.gtid_set) {
        let state = text_literal(set);
        session.run(&format!("SET @slave_connect_state = {state}, @slave_gtid_strict_mode = 0")).await?;
    }
    Ok(())
}

fn not_a_position(endpoint: &Endpoint, from: &ResumePoint) -> SourceError {
    let message = format!("{} is no position of {endpoint}; start again from a snapshot", from.position);
    SourceError::new(SourceErrorKind::Misconfigured, message)
}

/// MySQL's set in the protocol's form, one entry per server uuid and tag.
fn sids(endpoint: &Endpoint, from: &ResumePoint) -> Result<Vec<Sid<'static>>, SourceError> {
    let set = from.gtid_set.as_deref().unwrap_or_default();
    let parts = set.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .flat_map(untagged)
        .map(|part| {
            part.parse::<Sid<'static>>().map_err(|error| {
                let message = format!("{part:?} is no GTID set of {endpoint}: {error}; start again from a snapshot");
                SourceError::new(SourceErrorKind::Misconfigured, message)
            })
        })
        .collect()
}

/// `uuid:1-3:tag:5` has transactions without a tag and with one; the protocol wants them apart.
fn untagged(part: &str) -> Vec<String> {
    let mut pieces = part.split(':');
    let uuid = pieces.next().unwrap_or_default();
    let mut sets: VecDeque<String> = VecDeque::new();
    for piece in pieces {
        let is_tag = !piece.starts_with(|c: char| c.is_ascii_digit());
        match sets.back_mut() {
            Some(last) if !is_tag => *last = format!("{last}:{piece}"),
            _ => sets.push_back(format!("{uuid}:{piece}")),
        }
    }
    sets.into()
}

#[async_trait]
impl ChangeStream for LiveStream {
    fn hurry(&mut self, is_hurried: bool) {
        self.is_hurried = is_hurried;
        self.flush_at = self.flush_at.min(Instant::now() + self.flush_every());
    }

    fn losses(&self) -> Vec<(TableId, Losses)> {
        self.decoder.losses().map(|(table, losses)| (table.clone(), losses)).collect()
    }

    async fn next(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        loop {
            // What was committed before a failure is still good.
            if let Some(event) = self.decoder.next_event()? {
                if let SourceEvent::Boundary(boundary) = &event {
                    self.given_out.pass(&boundary.resume.position);
                }
                return Ok(Some(event));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if let Err(error) = self.advance().await {
                self.events = None;
                self.failed = Some(error);
            }
        }
    }
}

impl LiveStream {
    /// The same with a boundary after each transaction, also after those that no captured table had a part in.
    pub fn step_by_step(self) -> Self {
        Self { is_step_by_step: true, ..self }
    }

    fn flush_every(&self) -> Duration {
        if self.is_hurried { FLUSH_HURRIED } else { FLUSH_EVERY }
    }

    /// Feeds the next event, or flushes when none comes in time.
    async fn advance(&mut self) -> Result<(), SourceError> {
        let until = if self.fed { self.flush_at.min(Instant::now() + FLUSH_IDLE) } else { self.flush_at };
        let event = match next_event(&self.endpoint, self.events.as_mut()).now_or_never() {
            Some(event) => Some(event?),
            None => {
                let waiting = next_event(&self.endpoint, self.events.as_mut());
                tokio::time::timeout_at(until.into(), waiting).await.ok().transpose()?
            }
        };
        let now = Instant::now();
        let idle = event.is_none();
        if let Some(event) = event {
            self.last_event = now;
            self.feed(&event)?;
        } else if now - self.last_event > SILENCE_MAX {
            let seconds = SILENCE_MAX.as_secs();
            let message = format!("{} has sent nothing for {seconds} s, not even a heartbeat", self.endpoint);
            return Err(SourceError::new(SourceErrorKind::Unavailable, message));
        }
        // Rows of an open transaction are no use to anyone yet.
        let is_due = idle || now >= self.flush_at || self.is_step_by_step;
        if is_due && self.decoder.is_between_transactions() {
            self.decoder.flush()?;
            self.flush_at = now + self.flush_every();
            self.fed = false;
        }
        Ok(())
    }

    fn feed(&mut self, event: &Event) -> Result<(), SourceError> {
        if self.frames.is_inner(event) {
            return Ok(());
        }
        self.frames.write(event, &mut self.raw);
        self.fed = true;
        let fed = self.decoder.feed(&self.raw);
        if self.raw.len() > RAW_BYTES_KEPT {
            self.raw = Vec::new();
        }
        fed
    }
}

/// The next event of the connection. Dropping the call loses nothing: bytes read so far stay in the connection.
async fn next_event(endpoint: &Endpoint, events: Option<&mut BinlogStream>) -> Result<Event, SourceError> {
    let Some(events) = events else {
        let message = format!("the connection to {endpoint} has failed before");
        return Err(SourceError::new(SourceErrorKind::Unavailable, message));
    };
    // The library parses some events itself, before the decoder's checks, and panics on sizes that lie.
    match AssertUnwindSafe(events.next()).catch_unwind().await {
        Ok(Some(Ok(event))) => Ok(event),
        Ok(Some(Err(error))) => Err(failure(endpoint, "read the binlog", error)),
        Ok(None) => {
            let message = format!("{endpoint} ended the stream of its binlog");
            Err(SourceError::new(SourceErrorKind::Unavailable, message))
        }
        Err(_) => {
            let message = format!("{endpoint} sent an event that makes no sense");
            Err(SourceError::new(SourceErrorKind::Corrupt, message))
        }
    }
}

/// Puts events back into the form that they have in the log.
#[derive(Default)]
struct Frames {
    /// The library unpacks a compressed transaction and gives its events after it. They have no checksum and
    /// no place in the file; the decoder unpacks the transaction itself, so they are left out: so many bytes.
    inner_bytes: u64,
    format_seen: bool,
}

impl Frames {
    fn is_inner(&mut self, event: &Event) -> bool {
        let header = event.header();
        if self.inner_bytes > 0 {
            self.inner_bytes = self.inner_bytes.saturating_sub(u64::from(header.event_size()));
            return true;
        }
        if header.event_type_raw() == EventType::TRANSACTION_PAYLOAD_EVENT as u8
            && let Ok(payload) = event.read_event::<TransactionPayloadEvent<'_>>()
        {
            self.inner_bytes = payload.uncompressed_size();
        }
        false
    }

    fn write(&mut self, event: &Event, raw: &mut Vec<u8>) {
        let header = event.header();
        raw.clear();
        // One event may be large: no more room is taken than it needs.
        raw.reserve_exact(HEADER_BYTES + event.data().len() + CHECKSUM_BYTES + 1);
        raw.extend_from_slice(&header.timestamp().to_le_bytes());
        raw.push(header.event_type_raw());
        raw.extend_from_slice(&header.server_id().to_le_bytes());
        raw.extend_from_slice(&header.event_size().to_le_bytes());
        raw.extend_from_slice(&header.log_pos().to_le_bytes());
        raw.extend_from_slice(&header.flags_raw().to_le_bytes());
        raw.extend_from_slice(event.data());
        let format = header.event_type_raw() == EventType::FORMAT_DESCRIPTION_EVENT as u8;
        if format && let Ok(Some(algorithm)) = event.footer().get_checksum_alg() {
            raw.push(algorithm as u8);
        }
        if let Some(checksum) = event.checksum() {
            raw.extend_from_slice(&checksum);
        }
        if !self.format_seen {
            cut_early_checksum(raw);
        }
        self.format_seen |= format;
    }
}

/// The first event, a rotation that the server makes up to tell the file's name, may have a checksum; the
/// format description that would tell comes after it. It is cut off where it is one.
fn cut_early_checksum(raw: &mut Vec<u8>) {
    let is_rotate = raw.get(4) == Some(&(EventType::ROTATE_EVENT as u8));
    let Some((covered, checksum)) = raw.split_last_chunk::<CHECKSUM_BYTES>() else { return };
    if !is_rotate || covered.len() < HEADER_BYTES || crc32fast::hash(covered) != u32::from_le_bytes(*checksum) {
        return;
    }
    let length = covered.len();
    raw.truncate(length);
    if let (Some(size), Ok(length)) = (raw.get_mut(9..13), u32::try_from(length)) {
        size.copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &str, expected: &[&str]) {
        let endpoint = Endpoint { user: "cdc".into(), host: "db".into(), port: 3306 };
        let position = SourcePosition { order: (1, 4), text: "binlog.000001:4".into() };
        let from = ResumePoint { position, gtid_set: Some(set.into()) };
        let sids: Vec<String> = sids(&endpoint, &from).unwrap().iter().map(Sid::to_string).collect();
        assert_eq!(sids, expected);
    }

    #[test]
    fn a_gtid_set_is_cut_by_server_and_tag() {
        let a = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let b = "3e11fa47-71ca-11e1-9e33-c80aa9429563";
        check("", &[]);
        check(&format!("{a}:1-3:5,{b}:7"), &[&format!("{a}:1-3:5"), &format!("{b}:7")]);
        check(&format!("{a}:1-3:app:5-6"), &[&format!("{a}:1-3"), &format!("{a}:app:5-6")]);
    }

    #[test]
    fn the_checksum_of_the_first_rotation_is_cut_off_only_where_it_is_one() {
        let mut event = vec![0; HEADER_BYTES + 10];
        event[4] = EventType::ROTATE_EVENT as u8;
        event[9] = HEADER_BYTES as u8 + 14;
        let without = event.clone();
        event.extend_from_slice(&crc32fast::hash(&event).to_le_bytes());
        cut_early_checksum(&mut event);
        assert_eq!((event.len(), event[9]), (without.len(), without.len() as u8));
        let mut untouched = without.clone();
        cut_early_checksum(&mut untouched);
        assert_eq!(untouched, without);
    }
}
