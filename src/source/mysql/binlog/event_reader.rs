//! Cuts a stream of bytes into events.

use std::io::{ErrorKind, Read};

use super::event::{EventHeader, HEADER_BYTES};
use super::reader::Malformed;

/// Bytes read at once: large enough that system calls do not count.
const READ_BYTES: usize = 1 << 20;

/// Hands out the events of a binlog file one after the other, each where it stands in one buffer.
#[derive(Debug)]
pub struct EventReader<R> {
    input: R,
    buffer: Vec<u8>,
    /// Of the bytes that have been read and not passed yet.
    begin: usize,
    end: usize,
}

/// Why there is no next event.
#[derive(Debug, thiserror::Error)]
pub enum EventReadError {
    #[error("cannot be read")]
    Io(#[from] std::io::Error),
    /// The input ends within an event.
    #[error("an event has {wanted} bytes or more, {left} are left")]
    Cut { wanted: usize, left: usize },
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl<R: Read> EventReader<R> {
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), begin: 0, end: 0 }
    }

    /// The next event, whole, header included; `None` at the end of the input. An event takes memory as its bytes
    /// come in, whatever its header claims.
    ///
    /// # Errors
    /// As [`EventReadError`] says; the reader then stands where it stood.
    pub fn next_event(&mut self) -> Result<Option<&[u8]>, EventReadError> {
        let left = self.fill(HEADER_BYTES)?;
        if left == 0 {
            return Ok(None);
        }
        if left < HEADER_BYTES {
            return Err(EventReadError::Cut { wanted: HEADER_BYTES, left });
        }
        let header = EventHeader::read(&self.buffer[self.begin..self.end])?;
        let wanted = header.event_bytes as usize;
        let left = self.fill(wanted)?;
        if left < wanted {
            return Err(EventReadError::Cut { wanted, left });
        }
        let begin = self.begin;
        self.begin += wanted;
        Ok(Some(&self.buffer[begin..self.begin]))
    }

    /// Reads until `wanted` bytes are there, or the input ends. How many there are.
    fn fill(&mut self, wanted: usize) -> Result<usize, std::io::Error> {
        while self.end - self.begin < wanted {
            self.make_room(wanted);
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end - self.begin)
    }

    /// Moves what is left to the front where the end of the buffer is near, and grows the buffer where that is not
    /// enough: at most to twice what it holds.
    fn make_room(&mut self, wanted: usize) {
        if self.begin + wanted > self.buffer.len() && self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.end == self.buffer.len() {
            let length = wanted.min(self.buffer.len() * 2).max(READ_BYTES).max(self.end + 1);
            self.buffer.resize(length, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input that gives a few bytes at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(into.len()).min(1000);
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn event(bytes: usize, fill: u8) -> Vec<u8> {
        let mut event = vec![fill; bytes];
        event[9..13].copy_from_slice(&u32::try_from(bytes).unwrap().to_le_bytes());
        event
    }

    #[test]
    fn events_come_out_whole_whatever_their_size_and_the_inputs_pace() {
        let sizes = [HEADER_BYTES, 5_000, READ_BYTES - 3, 40, 3 * READ_BYTES, 100, READ_BYTES];
        let events: Vec<Vec<u8>> = sizes.iter().zip(1..).map(|(size, fill)| event(*size, fill)).collect();
        let log = events.concat();
        let mut reader = EventReader::new(Slow(&log));
        for event in &events {
            assert!(reader.next_event().unwrap() == Some(event.as_slice()), "{} bytes", event.len());
        }
        assert!(reader.next_event().unwrap().is_none());
    }

    #[test]
    fn an_event_that_is_cut_off_is_told_and_costs_no_memory() {
        let mut log = event(100, 7);
        log.extend(&event(1 << 20, 8)[..60]);
        log[100 + 9..100 + 13].copy_from_slice(&(1_u32 << 30).to_le_bytes());
        let mut reader = EventReader::new(log.as_slice());
        assert_eq!(reader.next_event().unwrap().map(<[u8]>::len), Some(100));
        let error = reader.next_event().unwrap_err();
        assert!(matches!(error, EventReadError::Cut { wanted: 0x4000_0000, left: 60 }), "{error:?}");
        assert!(reader.buffer.len() <= 2 * READ_BYTES);
        let error = EventReader::new(&log[..10]).next_event().unwrap_err();
        assert!(matches!(error, EventReadError::Cut { wanted: HEADER_BYTES, left: 10 }), "{error:?}");
    }
}
