//! What a change is, where it stands, and from where reading may restart.

mod batch;
mod gaps;
pub mod json_patch;
mod losses;
mod position;
mod row_key;
mod table;

pub use batch::{ChangeBatch, InvalidBatch, Operation, TransactionSpan};
pub use gaps::{Gap, Gaps, Moved};
pub use losses::Losses;
pub use position::{Boundary, ResumePoint, SourceIdentity, SourcePosition};
pub use row_key::RowKey;
pub use table::{Ending, TableId};
