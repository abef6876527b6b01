//! The decoder of binlog events: bytes in, Arrow columns out.
//!
//! [`Decoder`] takes one event after the other, from a file or a replication connection, and gives
//! [`crate::source::SourceEvent`]s. Of a table, each TABLE_MAP event is turned once into a row of column builders;
//! row images then go through them value by value, straight into Arrow buffers. Tables that nobody asked for are
//! skipped before their rows are looked at, and old images are walked by their lengths, not decoded.

mod buffer;
mod column;
mod decoder;
mod derive;
mod effects;
mod event;
mod event_reader;
mod follow;
mod hand_out;
mod inflate;
mod payload;
mod previous_gtids;
mod reader;
mod renames;
mod rows;
mod statement;
mod table_map;
mod tables;
mod transaction;
mod wire;
mod xa;

pub use decoder::{CHUNK_BYTES, Decoder, DecoderOptions};
pub use event::{EVENT_BYTES_MAX, EventHeader, Flavor, FormatDescription, HEADER_BYTES, MAGIC, MAGIC_ENCRYPTED};
pub use event_reader::{EventReadError, EventReader};
pub use reader::{Malformed, Reader};

mod place;

pub use place::{ERA, Place};

/// The rank of a log file: the number at the end of its name (`mysql-bin.000007`).
pub fn file_number(name: &str) -> Option<u64> {
    name.rsplit_once('.')?.1.parse().ok()
}

#[cfg(test)]
mod tests;
