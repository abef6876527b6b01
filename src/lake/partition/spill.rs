//! Rows of many partitions on the local disk, until each partition's file is written. The file has no name: it
//! vanishes with the process.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use crate::change::TableId;
use crate::lake::LakeError;

/// A file that batches of rows are appended to. Its work blocks: not for an async worker thread.
#[derive(Debug)]
pub(super) struct RowSpill {
    table: TableId,
    file: File,
    end: u64,
}

/// Where a batch stands, and what it must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    offset: u64,
    length: usize,
    checksum: u32,
}

impl RowSpill {
    pub fn new(table: &TableId) -> Result<Self, LakeError> {
        let failed = |source| LakeError::Spill { table: table.clone(), what: "create".to_string(), source };
        Ok(Self { table: table.clone(), file: tempfile::tempfile().map_err(failed)?, end: 0 })
    }

    pub fn write(&mut self, rows: &RecordBatch) -> Result<Place, LakeError> {
        let encode = || {
            let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
            writer.write(rows)?;
            writer.into_inner()
        };
        let bytes = encode().map_err(LakeError::arrow(&self.table, "encode rows for the disk"))?;
        let place = Place { offset: self.end, length: bytes.len(), checksum: crc32fast::hash(&bytes) };
        let written = self.file.seek(SeekFrom::Start(self.end)).and_then(|_| self.file.write_all(&bytes));
        written.map_err(|source| self.failed("write", source))?;
        self.end += bytes.len() as u64;
        Ok(place)
    }

    pub fn read(&mut self, place: Place) -> Result<RecordBatch, LakeError> {
        let mut bytes = vec![0; place.length];
        let read = self.file.seek(SeekFrom::Start(place.offset)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|source| self.failed("read", source))?;
        if crc32fast::hash(&bytes) != place.checksum {
            let reason = format!("the checksum at byte {} is another", place.offset);
            return Err(LakeError::Damaged { table: self.table.clone(), file: "a temporary file".to_string(), reason });
        }
        let failed = LakeError::arrow(&self.table, "decode rows from the disk");
        let mut batches = StreamReader::try_new(Cursor::new(bytes), None).map_err(&failed)?;
        let batch = batches.next().transpose().map_err(&failed)?;
        batch.ok_or_else(|| failed(arrow::error::ArrowError::IpcError("no rows".to_string())))
    }

    fn failed(&self, what: &str, source: std::io::Error) -> LakeError {
        LakeError::Spill { table: self.table.clone(), what: what.to_string(), source }
    }
}
