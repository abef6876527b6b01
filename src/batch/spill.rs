//! Rows on disk: runs of blocks in a temporary file without a name.
//!
//! A block is a self-contained Arrow IPC stream of one record batch: the table's columns, then the sequence
//! numbers, then the operations, then the gaps where rows have some. Where blocks stand, their lengths and checksums stay in memory, so nothing
//! that the disk gives back is believed before it has been compared. The file has no name: it vanishes with
//! its last reader, also when the process is killed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, UInt8Array, UInt64Array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, UInt8Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;

use super::BatchError;
use super::sorted::Block;
use crate::change::{Gaps, Operation};
use crate::schema::TableSchema;

/// The folder in which spill files are made, when there is something to spill.
#[derive(Debug, Clone)]
pub struct SpillDir {
    parent: PathBuf,
}

impl SpillDir {
    /// `parent` is created when first needed, and never emptied. It should be on a local disk with room for a
    /// few times the largest transaction.
    pub fn new(parent: impl Into<PathBuf>) -> Self {
        Self { parent: parent.into() }
    }

    pub(super) fn file(&self) -> Result<Arc<SpillFile>, BatchError> {
        let open = || {
            std::fs::create_dir_all(&self.parent)?;
            tempfile::tempfile_in(&self.parent)
        };
        let file = open().map_err(|source| io_error("create", &self.parent, source))?;
        Ok(Arc::new(SpillFile { inner: Mutex::new(Inner { file, end: 0 }), directory: self.parent.clone() }))
    }
}

fn io_error(action: &'static str, directory: &Path, source: std::io::Error) -> BatchError {
    BatchError::Spill { action, directory: directory.to_path_buf(), source }
}

/// A file that blocks are appended to.
#[derive(Debug)]
pub(super) struct SpillFile {
    inner: Mutex<Inner>,
    directory: PathBuf,
}

#[derive(Debug)]
struct Inner {
    file: File,
    end: u64,
}

impl SpillFile {
    fn append(&self, bytes: &[u8]) -> Result<u64, BatchError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = inner.end;
        let write = inner.file.seek(SeekFrom::Start(offset)).and_then(|_| inner.file.write_all(bytes));
        write.map_err(|source| io_error("write", &self.directory, source))?;
        inner.end += bytes.len() as u64;
        Ok(offset)
    }

    fn read(&self, place: &BlockPlace) -> Result<Vec<u8>, BatchError> {
        let mut bytes = vec![0; place.length];
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let read = inner.file.seek(SeekFrom::Start(place.offset)).and_then(|_| inner.file.read_exact(&mut bytes));
        match read {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.corrupt(format!("it ends before byte {}", place.offset + place.length as u64)))
            }
            Err(error) => Err(io_error("read", &self.directory, error)),
        }
    }

    fn corrupt(&self, what: String) -> BatchError {
        BatchError::Corrupt { directory: self.directory.clone(), what }
    }

    #[cfg(test)]
    pub fn damage(&self, change: impl FnOnce(&mut File)) {
        change(&mut self.inner.lock().unwrap().file);
    }
}

/// Room for what stands in a block beside its columns.
const MESSAGE_BYTES: usize = 16 << 10;

/// Where a block stands, and what it must be.
#[derive(Debug, Clone)]
struct BlockPlace {
    offset: u64,
    length: usize,
    checksum: u32,
    rows: usize,
}

/// Rows of one table by ascending key and, within a key, descending sequence number.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub file: Arc<SpillFile>,
    blocks: Vec<BlockPlace>,
    pub bytes: u64,
    /// Holds the sequence numbers of all rows of the run.
    pub sequences: Range<u64>,
    /// Rows with lower sequence numbers were truncated after they had been written.
    pub alive_from: u64,
    /// Rows with these sequence numbers were discarded after they had been written. Ascending, disjoint.
    discarded: Vec<Range<u64>>,
}

impl Run {
    pub fn new(file: Arc<SpillFile>, sequences: Range<u64>) -> Self {
        Self { file, blocks: Vec::new(), bytes: 0, sequences, alive_from: 0, discarded: Vec::new() }
    }

    /// What a reader of the run holds in memory at once.
    pub fn block_bytes_max(&self) -> usize {
        self.blocks.iter().map(|block| block.length).max().unwrap_or(0)
    }

    pub fn is_dead(&self, sequence: u64) -> bool {
        let after = self.discarded.partition_point(|range| range.start <= sequence);
        let before = after.checked_sub(1).and_then(|index| self.discarded.get(index));
        sequence < self.alive_from || before.is_some_and(|range| range.contains(&sequence))
    }

    /// Discards all rows from `from` on, which are below `to`; rows that may come later are at or above it.
    pub fn discard(&mut self, from: u64, to: u64) {
        self.discarded.retain(|range| range.start < from);
        self.discarded.push(from..to);
    }

    /// Appends a block, whose rows come after those of the blocks before it.
    pub fn write(&mut self, schema: &TableSchema, block: &Block) -> Result<(), BatchError> {
        let bytes = encode(block).map_err(|source| BatchError::Columns { table: schema.table.clone(), source })?;
        let offset = self.file.append(&bytes)?;
        let (length, checksum) = (bytes.len(), crc32fast::hash(&bytes));
        self.blocks.push(BlockPlace { offset, length, checksum, rows: block.rows.num_rows() });
        self.bytes += length as u64;
        Ok(())
    }

    /// The block with this number, or `None` after the last.
    pub fn read(&self, schema: &TableSchema, number: usize) -> Result<Option<Block>, BatchError> {
        let Some(place) = self.blocks.get(number) else { return Ok(None) };
        let bytes = self.file.read(place)?;
        if crc32fast::hash(&bytes) != place.checksum {
            return Err(self.file.corrupt(format!("the checksum at byte {} is another", place.offset)));
        }
        let block = decode(schema, bytes).map_err(|error| self.file.corrupt(error.to_string()))?;
        if block.rows.num_rows() != place.rows {
            return Err(self.file.corrupt(format!("{} rows instead of {}", block.rows.num_rows(), place.rows)));
        }
        Ok(Some(block))
    }
}

fn encode(block: &Block) -> Result<Vec<u8>, ArrowError> {
    let mut fields = block.rows.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("sequence", DataType::UInt64, false)));
    fields.push(Arc::new(Field::new("operation", DataType::UInt8, false)));
    let gaps = block.gaps.as_ref().map(|gaps| gaps_column(block.rows.num_columns(), gaps)).transpose()?;
    fields.extend(gaps.iter().map(|gaps| Arc::new(Field::new("gaps", gaps.data_type().clone(), false))));
    let schema = Arc::new(Schema::new(fields));
    let mut columns: Vec<ArrayRef> = block.rows.columns().to_vec();
    columns.push(Arc::new(UInt64Array::from_iter_values(block.sequences.iter().copied())));
    columns.push(Arc::new(UInt8Array::from_iter_values(block.operations.iter().map(|operation| *operation as u8))));
    columns.extend(gaps);
    // A row may be large: no more room is taken than it needs.
    let bytes = columns.iter().map(|column| column.get_buffer_memory_size()).sum::<usize>() + MESSAGE_BYTES;
    let mut writer = StreamWriter::try_new(Vec::with_capacity(bytes), &schema)?;
    writer.write(&RecordBatch::try_new(schema, columns)?)?;
    writer.into_inner()
}

fn gaps_column(columns: usize, gaps: &Gaps) -> Result<ArrayRef, ArrowError> {
    let width = i32::try_from(Gaps::row_bytes(columns)).map_err(|error| ArrowError::IpcError(error.to_string()))?;
    let bytes = Buffer::from_slice_ref(gaps.bytes());
    Ok(Arc::new(FixedSizeBinaryArray::try_new(width, bytes, None)?))
}

/// The bytes have passed their checksum: they are what [`encode`] made.
fn decode(schema: &TableSchema, bytes: Vec<u8>) -> Result<Block, ArrowError> {
    let wrong = |what: &str| ArrowError::IpcError(what.to_string());
    let mut buffer = Buffer::from_vec(bytes);
    let batch = StreamDecoder::new().decode(&mut buffer)?.ok_or_else(|| wrong("no rows"))?;
    let columns = schema.columns.len();
    if !(columns + 2..=columns + 3).contains(&batch.num_columns()) {
        return Err(wrong("another number of columns"));
    }
    let sequences = batch.column(columns).as_primitive_opt::<UInt64Type>().ok_or_else(|| wrong("no sequence"))?;
    let operations = batch.column(columns + 1).as_primitive_opt::<UInt8Type>().ok_or_else(|| wrong("no operation"))?;
    let operations = operations.values().iter().map(|number| Operation::from_u8(*number));
    let gaps = match batch.columns().get(columns + 2).map(|array| array.as_fixed_size_binary_opt()) {
        None => None,
        Some(array) => {
            let bytes = array.ok_or_else(|| wrong("no gaps"))?.value_data().to_vec();
            Some(Gaps::from_bytes(columns, bytes).ok_or_else(|| wrong("gaps of other columns"))?)
        }
    };
    Ok(Block {
        gaps,
        operations: operations.collect::<Option<_>>().ok_or_else(|| wrong("an unknown operation"))?,
        sequences: sequences.values().to_vec(),
        rows: RecordBatch::try_new(schema.arrow_schema(), batch.columns()[..columns].to_vec())?,
    })
}
