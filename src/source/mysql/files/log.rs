//! Reading the files of a log one after the other.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use super::LogFile;
use crate::change::{Losses, ResumePoint, TableId};
use crate::source::mysql::binlog::{self, Decoder, EVENT_BYTES_MAX, EventHeader, HEADER_BYTES, MAGIC, MAGIC_ENCRYPTED};
use crate::source::{SourceError, SourceErrorKind, SourceEvent};

/// Where the first event of a file begins: after the magic bytes.
pub(super) const FIRST_OFFSET: u64 = 4;

/// Bytes read from a file at once: large enough that system calls do not count.
const READ_BYTES: usize = 1 << 20;

/// The files of a log, from a resume point to their end.
pub(super) struct Log {
    files: std::vec::IntoIter<LogFile>,
    current: Option<OpenFile>,
    /// Where to go on in the first file, after its format description.
    resume_offset: Option<u64>,
    decoder: Decoder,
    failed: Option<SourceError>,
    ended: bool,
}

struct OpenFile {
    file: LogFile,
    reader: BufReader<File>,
    /// Of the next event.
    offset: u64,
    length: u64,
    event: Vec<u8>,
}

impl Log {
    pub(super) fn new(files: Vec<LogFile>, from: &ResumePoint, decoder: Decoder) -> Self {
        let (number, offset) = from.position.order;
        let files: Vec<_> = files.into_iter().filter(|file| file.number >= number).collect();
        let resume_offset = files.first().filter(|file| file.number == number).map(|_| offset);
        Self { files: files.into_iter(), current: None, resume_offset, decoder, failed: None, ended: false }
    }

    /// The next event. What was committed before an error comes before the error.
    pub(super) fn next(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        loop {
            match self.decoder.next_event() {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) if self.failed.is_some() => return self.failed.take().map_or(Ok(None), Err),
                Ok(None) if self.ended => return Ok(None),
                Ok(None) => {
                    if let Err(error) = self.advance() {
                        self.fail(error);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// What could not be kept so far, by table.
    pub(super) fn losses(&self) -> Vec<(TableId, Losses)> {
        self.decoder.losses().map(|(table, losses)| (table.clone(), losses)).collect()
    }

    fn fail(&mut self, error: SourceError) {
        self.decoder.abandon();
        self.failed = Some(error);
        self.ended = true;
    }

    /// Feeds one event, or opens the next file.
    fn advance(&mut self) -> Result<(), SourceError> {
        let Some(current) = &mut self.current else { return self.open_next() };
        if !current.read_event()? {
            return self.end_file();
        }
        self.decoder.feed_at(&current.event, Some(current.offset))?;
        if let Some(offset) = self.resume_offset.take() {
            current.seek(offset.max(current.offset))?;
        }
        Ok(())
    }

    fn open_next(&mut self) -> Result<(), SourceError> {
        match self.files.next() {
            Some(file) => {
                let current = OpenFile::open(file)?;
                self.decoder.open_file(&current.file.name, current.file.number);
                self.current = Some(current);
            }
            None => {
                self.ended = true;
                self.decoder.end_log()?;
            }
        }
        Ok(())
    }

    /// Checks that the next file is the one that the log goes on in.
    fn end_file(&mut self) -> Result<(), SourceError> {
        let Some(ended) = self.current.take() else { return Ok(()) };
        let Some(next) = self.files.as_slice().first() else { return Ok(()) };
        let after_rotation = self.decoder.file();
        let expected = if after_rotation == ended.file.name {
            // A server that crashed wrote no ROTATE; it goes on with the next number.
            let number = binlog::file_number(&ended.file.name);
            if number.is_none() || binlog::file_number(&next.name) == number.map(|number| number + 1) {
                return Ok(());
            }
            format!("number {}", ended.file.number + 1)
        } else if after_rotation == next.name {
            return Ok(());
        } else {
            after_rotation.to_string()
        };
        let message = format!(
            "after {} the log goes on in {expected}, but the next file given is {}: add what is missing",
            ended.file.path.display(),
            next.path.display()
        );
        Err(SourceError::new(SourceErrorKind::Misconfigured, message))
    }
}

impl OpenFile {
    fn open(file: LogFile) -> Result<Self, SourceError> {
        let opened = File::open(&file.path).map_err(|error| unreadable(&file, error))?;
        let length = opened.metadata().map_err(|error| unreadable(&file, error))?.len();
        let reader = BufReader::with_capacity(READ_BYTES, opened);
        let mut open = Self { file, reader, offset: FIRST_OFFSET, length, event: Vec::new() };
        open.check_magic()?;
        Ok(open)
    }

    fn check_magic(&mut self) -> Result<(), SourceError> {
        let mut magic = [0; 4];
        let read = self.reader.read_exact(&mut magic);
        let path = self.file.path.display();
        let (kind, problem) = match magic {
            MAGIC if read.is_ok() => return Ok(()),
            MAGIC_ENCRYPTED => (
                SourceErrorKind::Misconfigured,
                "is encrypted: read it through a live server, or SET GLOBAL binlog_encryption = OFF",
            ),
            _ => (SourceErrorKind::Corrupt, "is no binlog file: it does not begin with the bytes fe 62 69 6e"),
        };
        Err(SourceError::new(kind, format!("{path} {problem}")))
    }

    /// Reads the next event into `event` and moves `offset` to its end; false at the end of the file.
    fn read_event(&mut self) -> Result<bool, SourceError> {
        self.event.clear();
        let begin = self.offset;
        let left = self.length.saturating_sub(begin);
        if left == 0 {
            return Ok(false);
        }
        let cut_off = |file: &LogFile, wanted: u64| {
            let path = file.path.display();
            let message = format!(
                "{path} is cut off: its event at {begin} has {wanted} bytes or more, {left} are left; copy the file again"
            );
            SourceError::new(SourceErrorKind::Corrupt, message)
        };
        if left < HEADER_BYTES as u64 {
            return Err(cut_off(&self.file, HEADER_BYTES as u64));
        }
        self.fill(HEADER_BYTES)?;
        let header = EventHeader::read(&self.event).map_err(|error| {
            let message = format!("{}: event at {begin}: {error}", self.file.path.display());
            SourceError::new(SourceErrorKind::Corrupt, message)
        })?;
        if u64::from(header.event_bytes) > left {
            return Err(cut_off(&self.file, u64::from(header.event_bytes)));
        }
        self.fill((header.event_bytes as usize).min(EVENT_BYTES_MAX))?;
        self.offset += u64::from(header.event_bytes);
        Ok(true)
    }

    /// Reads on until the event has `length` bytes.
    fn fill(&mut self, length: usize) -> Result<(), SourceError> {
        let missing = length.saturating_sub(self.event.len());
        let read = self.reader.by_ref().take(missing as u64).read_to_end(&mut self.event);
        if read.map_err(|error| unreadable(&self.file, error))? == missing {
            return Ok(());
        }
        let message = format!("{} became shorter while it was read", self.file.path.display());
        Err(SourceError::new(SourceErrorKind::Corrupt, message))
    }

    fn seek(&mut self, offset: u64) -> Result<(), SourceError> {
        self.reader.seek(SeekFrom::Start(offset)).map_err(|error| unreadable(&self.file, error))?;
        self.offset = offset;
        Ok(())
    }
}

/// The length of a file in bytes.
pub(super) fn length(file: &LogFile) -> Result<u64, SourceError> {
    Ok(std::fs::metadata(&file.path).map_err(|error| unreadable(file, error))?.len())
}

/// A digest of the first event, its format description, that stays the same when the server closes the file.
pub(super) fn first_event_digest(file: &LogFile) -> Result<u64, SourceError> {
    /// Low byte of the flags: the server clears a bit in it when it closes the file.
    const FLAGS_AT: usize = 17;
    let mut open = OpenFile::open(file.clone())?;
    open.read_event()?;
    let bytes = open.event.iter().enumerate().filter(|(index, _)| *index != FLAGS_AT);
    // FNV-1a: a digest that every version of this program gives alike.
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, (_, byte)| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}

fn unreadable(file: &LogFile, error: std::io::Error) -> SourceError {
    let message = format!("{} cannot be read: {error}", file.path.display());
    SourceError::new(SourceErrorKind::Misconfigured, message).caused_by(error)
}
