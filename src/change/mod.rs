//! What a change is, where it stands, and from where reading may restart.

mod batch;
mod position;
mod table;

pub use batch::{ChangeBatch, InvalidBatch, Operation, TransactionSpan};
pub use position::{Boundary, ResumePoint, SourceIdentity, SourcePosition};
pub use table::TableId;
