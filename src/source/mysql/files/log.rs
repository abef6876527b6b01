//! Reading the files of a log one after the other.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Take};

use super::LogFile;
use crate::change::{Losses, ResumePoint, TableId};
use crate::source::mysql::binlog::{self, Decoder, EventReadError, EventReader, MAGIC, MAGIC_ENCRYPTED};
use crate::source::{SourceError, SourceErrorKind, SourceEvent};

/// Where the first event of a file begins: after the magic bytes.
pub(super) const FIRST_OFFSET: u64 = 4;

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
    events: EventReader<Take<File>>,
    /// Of the next event.
    offset: u64,
    /// The file's, when it was opened: what the server adds later is for a later run.
    length: u64,
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
        let Some((event, end)) = current.next_event()? else { return self.end_file() };
        self.decoder.feed_at(event, Some(end))?;
        if let Some(offset) = self.resume_offset.take() {
            current.seek(offset.max(end))?;
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
        let mut opened = File::open(&file.path).map_err(|error| unreadable(&file, error))?;
        let length = opened.metadata().map_err(|error| unreadable(&file, error))?.len();
        check_magic(&file, &mut opened)?;
        let events = EventReader::new(opened.take(length.saturating_sub(FIRST_OFFSET)));
        Ok(Self { file, events, offset: FIRST_OFFSET, length })
    }

    /// The next event and the offset of its end; `None` at the end of the file.
    fn next_event(&mut self) -> Result<Option<(&[u8], u64)>, SourceError> {
        let begin = self.offset;
        let path = self.file.path.display();
        let message = match self.events.next_event() {
            Ok(None) => return Ok(None),
            Ok(Some(event)) => {
                self.offset += event.len() as u64;
                return Ok(Some((event, self.offset)));
            }
            Err(EventReadError::Io(error)) => return Err(unreadable(&self.file, error)),
            Err(EventReadError::Cut { wanted, left }) => format!(
                "{path} is cut off: its event at {begin} has {wanted} bytes or more, {left} are left; copy the file again"
            ),
            Err(EventReadError::Malformed(error)) => format!("{path}: event at {begin}: {error}"),
        };
        Err(SourceError::new(SourceErrorKind::Corrupt, message))
    }

    /// Goes on at another event of the file.
    fn seek(&mut self, offset: u64) -> Result<(), SourceError> {
        let failed = |error| unreadable(&self.file, error);
        let mut opened = File::open(&self.file.path).map_err(failed)?;
        opened.seek(SeekFrom::Start(offset)).map_err(failed)?;
        self.events = EventReader::new(opened.take(self.length.saturating_sub(offset)));
        self.offset = offset;
        Ok(())
    }
}

fn check_magic(file: &LogFile, opened: &mut File) -> Result<(), SourceError> {
    let mut magic = [0; 4];
    let read = opened.read_exact(&mut magic);
    let path = file.path.display();
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

/// The length of a file in bytes.
pub(super) fn length(file: &LogFile) -> Result<u64, SourceError> {
    Ok(std::fs::metadata(&file.path).map_err(|error| unreadable(file, error))?.len())
}

/// A digest of the first event, its format description, that stays the same when the server closes the file.
pub(super) fn first_event_digest(file: &LogFile) -> Result<u64, SourceError> {
    /// Low byte of the flags: the server clears a bit in it when it closes the file.
    const FLAGS_AT: usize = 17;
    let mut open = OpenFile::open(file.clone())?;
    let event = open.next_event()?.map_or(&[][..], |(event, _)| event);
    let bytes = event.iter().enumerate().filter(|(index, _)| *index != FLAGS_AT);
    // FNV-1a: a digest that every version of this program gives alike.
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, (_, byte)| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}

fn unreadable(file: &LogFile, error: std::io::Error) -> SourceError {
    let message = format!("{} cannot be read: {error}", file.path.display());
    SourceError::new(SourceErrorKind::Misconfigured, message).caused_by(error)
}
