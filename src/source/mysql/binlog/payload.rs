//! TRANSACTION_PAYLOAD: a whole transaction of MySQL, compressed (`binlog_transaction_compression`).
//!
//! `libs/mysql/binlog/event/codecs/binary.cpp` for the fields.

use std::io::{Cursor, Read};

use super::event::{EventHeader, HEADER_BYTES};
use super::reader::{Malformed, Reader};

/// Largest window that the inflater may ask memory for: zstd's own default limit, 128 MiB. The servers use far
/// smaller ones at the levels that they allow.
const WINDOW_LOG_MAX: u32 = 27;

/// The events inside, read one after the other: no more than one of them is in memory.
pub struct Payload {
    inflated: Box<dyn Read + Send>,
    event: Vec<u8>,
}

impl Payload {
    /// Reads the fields of the event's body; the compressed bytes are copied.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        const ZSTD: u64 = 0;
        const NONE: u64 = 255;
        let mut reader = Reader::new(body);
        let (mut size, mut compression) = (None, None);
        loop {
            let field = reader.lenenc()?;
            if field == 0 {
                break;
            }
            let mut value = Reader::new(reader.lenenc_bytes()?);
            match field {
                1 => size = Some(value.length()?),
                2 => compression = Some(value.lenenc()?),
                _ => {}
            }
        }
        let size = size.unwrap_or(reader.rest().len());
        let bytes = Cursor::new(reader.take(size)?.to_vec());
        let inflated: Box<dyn Read + Send> = match compression {
            Some(ZSTD) => {
                let open = zstd::stream::read::Decoder::new(bytes);
                let mut decoder = open.map_err(|error| Malformed::value(format!("does not inflate: {error}")))?;
                let limited = decoder.window_log_max(WINDOW_LOG_MAX);
                limited.map_err(|error| Malformed::value(format!("does not inflate: {error}")))?;
                Box::new(decoder)
            }
            Some(NONE) => Box::new(bytes),
            other => return Err(Malformed::value(format!("compression {other:?} instead of zstd (0) or none (255)"))),
        };
        Ok(Self { inflated, event: Vec::new() })
    }

    /// The next event, header included; it has no checksum. `None` after the last.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        self.event.clear();
        self.fill(HEADER_BYTES)?;
        if self.event.is_empty() {
            return Ok(None);
        }
        let header = EventHeader::read(&self.event)?;
        self.fill(header.event_bytes as usize)?;
        if self.event.len() != header.event_bytes as usize {
            return Err(Malformed::value("ends within an event"));
        }
        Ok(Some(&self.event))
    }

    /// Reads on until the event has `length` bytes, or the payload ends. Memory grows with what really comes.
    fn fill(&mut self, length: usize) -> Result<(), Malformed> {
        let missing = length.saturating_sub(self.event.len()) as u64;
        let read = self.inflated.by_ref().take(missing).read_to_end(&mut self.event);
        read.map_err(|error| Malformed::value(format!("does not inflate: {error}")))?;
        Ok(())
    }
}
