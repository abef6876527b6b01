//! Micro-batches: whole transactions of many tables, brought down to the last change of each key.
//!
//! [`MicroBatch`] takes the changes as a source gives them, [`ClosedBatch`] is what is committed to the lake
//! at once, and [`KeyedChanges`] hands out one table's unique keys in key order, slice by slice. Rows beyond
//! the memory limit go to a temporary file. Pure: no sockets, no object store, no clock but the age of a batch.

mod combine;
mod error;
mod held;
mod key;
mod keyed;
mod merge;
mod micro;
mod moved;
mod project;
mod sorted;
mod spill;
mod table;

#[cfg(test)]
mod tests;

pub use error::BatchError;
pub use key::{NullKey, key_converter, null_key};
pub use keyed::{AbsentRows, KeyedChanges, KeyedSlice};
pub use micro::{BatchLimits, ClosedBatch, MicroBatch};
pub use moved::MovedFrom;
pub use spill::SpillDir;
pub use table::TableChanges;
