//! Binlog files on a local folder as a source.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::binlog::{self, CHUNK_BYTES, Decoder, DecoderOptions};
use crate::change::{Losses, ResumePoint, SourceIdentity, SourcePosition, TableId};
use crate::config::{BinlogFilesConfig, TableFilter};
use crate::schema::TableSchema;
use crate::source::{
    ChangeStream, DiscoveredTable, KeyRange, Source, SourceError, SourceErrorKind, SourceEvent, Split, SplitKey,
    SplitLimits,
};

mod log;

use log::{FIRST_OFFSET, Log};

/// How many events are read ahead of their use: enough that reading and applying overlap, each of about
/// [`CHUNK_BYTES`].
const EVENTS_AHEAD_MAX: usize = 3;

/// A log in files: what a server wrote to `mysql-bin.000001` and so on, copied to this machine.
#[derive(Debug, Clone)]
pub struct BinlogFiles {
    paths: Vec<PathBuf>,
    tables: TableFilter,
    keys: BTreeMap<String, Vec<String>>,
    chunk_rows: usize,
}

/// One file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogFile {
    path: PathBuf,
    name: String,
    /// Its rank: the number at the end of its name, or where there are names without one, its place in the list.
    number: u64,
}

impl BinlogFiles {
    /// The files may be given in any order if their names end with numbers. `keys` are the keys that the job
    /// gives: `database.table` to column names.
    pub fn new(config: BinlogFilesConfig, keys: BTreeMap<String, Vec<String>>) -> Self {
        Self { paths: config.files, tables: config.tables, keys, chunk_rows: usize::MAX }
    }

    /// Has a boundary come at the first end of a transaction after so many rows, or before.
    #[must_use]
    pub fn with_chunk_rows(self, chunk_rows: usize) -> Self {
        Self { chunk_rows, ..self }
    }

    /// The files in log order.
    fn files(&self) -> Result<Vec<LogFile>, SourceError> {
        let misconfigured = |message: String| SourceError::new(SourceErrorKind::Misconfigured, message);
        let mut files = Vec::with_capacity(self.paths.len());
        for (index, path) in self.paths.iter().enumerate() {
            let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
                return Err(misconfigured(format!("{} is no file", path.display())));
            };
            files.push(LogFile { path: path.clone(), name, number: index as u64 + 1 });
        }
        let numbers: Option<Vec<u64>> = files.iter().map(|file| binlog::file_number(&file.name)).collect();
        if let Some(numbers) = numbers {
            for (file, number) in files.iter_mut().zip(numbers) {
                file.number = number;
            }
            files.sort_by_key(|file| file.number);
        }
        for pair in files.windows(2) {
            if let [a, b] = pair
                && a.number == b.number
            {
                let (a, b) = (a.path.display(), b.path.display());
                return Err(misconfigured(format!("{a} and {b} have the same number; give each log file once")));
            }
        }
        Ok(files)
    }

    fn first(&self) -> Result<LogFile, SourceError> {
        let none = || SourceError::new(SourceErrorKind::Misconfigured, "the job names no binlog file");
        self.files()?.into_iter().next().ok_or_else(none)
    }
}

impl LogFile {
    fn at(&self, offset: u64) -> ResumePoint {
        let text = format!("{}:{offset}", self.name);
        ResumePoint { position: SourcePosition { order: (self.number, offset), text }, gtid_set: None }
    }
}

#[async_trait]
impl Source for BinlogFiles {
    /// The digest of the first file's format description: server, version and time of the file.
    async fn identity(&self) -> Result<SourceIdentity, SourceError> {
        let digest = log::first_event_digest(&self.first()?)?;
        Ok(SourceIdentity(format!("binlog-files:{digest:016x}")))
    }

    async fn start(&self) -> Result<ResumePoint, SourceError> {
        Ok(self.first()?.at(FIRST_OFFSET))
    }

    async fn head(&self) -> Result<ResumePoint, SourceError> {
        match self.files()?.last() {
            Some(file) => Ok(file.at(log::length(file)?)),
            None => self.start().await,
        }
    }

    async fn check_held(&self, from: &ResumePoint) -> Result<(), SourceError> {
        let files = self.files()?;
        let (number, offset) = from.position.order;
        if let Some(file) = files.iter().find(|file| file.number == number) {
            let length = log::length(file)?;
            if offset <= length.max(FIRST_OFFSET) {
                return Ok(());
            }
            let message = format!(
                "{} ends at {length}, but was read up to {} before: it is another file",
                file.path.display(),
                from.position
            );
            return Err(SourceError::new(SourceErrorKind::Lost, message));
        }
        if files.last().is_none_or(|last| last.number < number) {
            return Ok(());
        }
        let oldest = files.first().map_or("none", |file| file.name.as_str());
        let message = format!(
            "the file of position {} is not among the job's binlog files (oldest: {oldest}); add it, or begin anew \
             with another job name",
            from.position
        );
        Err(SourceError::new(SourceErrorKind::Lost, message))
    }

    /// Log files have no catalogue.
    async fn tables(&self) -> Result<Vec<DiscoveredTable>, SourceError> {
        Ok(Vec::new())
    }

    async fn stream(
        &self,
        from: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        self.check_held(from).await?;
        let decoder = Decoder::new(DecoderOptions {
            filter: self.tables.clone(),
            schemas,
            skip,
            keys: self.keys.clone(),
            start: from.clone(),
            chunk_bytes: CHUNK_BYTES,
            chunk_rows: self.chunk_rows,
        });
        let mut log = Log::new(self.files()?, from, decoder);
        let (sender, receiver) = mpsc::channel(EVENTS_AHEAD_MAX);
        let losses = Arc::new(Mutex::new(Vec::new()));
        let counted = Arc::clone(&losses);
        // The task ends when the log does, or when the stream is dropped.
        tokio::task::spawn_blocking(move || {
            while let Some(next) = log.next().transpose() {
                let failed = next.is_err();
                *counted.lock().unwrap_or_else(PoisonError::into_inner) = log.losses();
                if sender.blocking_send(next.map(Some)).is_err() || failed {
                    return;
                }
            }
            let _ = sender.blocking_send(Ok(None));
        });
        Ok(Box::new(FileStream { receiver, losses, ended: false }))
    }

    async fn read_split(
        &self,
        schema: &Arc<TableSchema>,
        _range: &KeyRange,
        _limits: SplitLimits,
    ) -> Result<Split, SourceError> {
        Err(no_rows(schema))
    }

    async fn check_condition(&self, schema: &TableSchema, _condition: &str) -> Result<(), SourceError> {
        Err(no_rows(schema))
    }

    async fn busy(&self) -> Result<Option<String>, SourceError> {
        Ok(None)
    }

    async fn next_cut(
        &self,
        schema: &Arc<TableSchema>,
        _range: &KeyRange,
        _rows: usize,
    ) -> Result<Option<SplitKey>, SourceError> {
        Err(no_rows(schema))
    }
}

fn no_rows(schema: &TableSchema) -> SourceError {
    let message = format!(
        "binlog files hold changes, not the rows of {} from before them; set snapshot.mode: never",
        schema.table
    );
    SourceError::new(SourceErrorKind::Misconfigured, message)
}

/// Events as the reading task sends them; `Ok(None)` is the end.
struct FileStream {
    receiver: mpsc::Receiver<Result<Option<SourceEvent>, SourceError>>,
    /// As of the last event that the reading task has sent.
    losses: Arc<Mutex<Vec<(TableId, Losses)>>>,
    ended: bool,
}

#[async_trait]
impl ChangeStream for FileStream {
    fn losses(&self) -> Vec<(TableId, Losses)> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn next(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        match self.receiver.recv().await {
            Some(Ok(Some(event))) => Ok(Some(event)),
            Some(Ok(None)) => {
                self.ended = true;
                Ok(None)
            }
            Some(Err(error)) => Err(error),
            // A task that ends without a word must never pass for the end of the log.
            None => Err(SourceError::new(SourceErrorKind::Unavailable, "reading the binlog files was broken off")),
        }
    }
}

#[cfg(test)]
mod tests;
