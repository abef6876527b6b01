//! Servers, jobs and tables to compare, for all integration tests.
//!
//! - [`Server`]: a real MySQL or MariaDB; one shared by all tests of the process, or one of a test's own.
//! - [`Service`]: a real S3 store, or Spark; one for all tests of the process.
//! - [`TempJob`]: a job file in a temporary folder, run by the real binary.
//! - [`Content`]: all rows of one table in a form that is equal exactly when the values are; read from a server
//!   by [`source_content`] and from a lake by [`LakeReader`].

mod content;
mod job;
mod lake;
mod proxy;
mod server;
mod service;
mod source;

pub use content::{Content, assert_same};
pub use job::{BUSY_UPKEEP, Outcome, Running, SMALL_BATCHES, TempJob};
pub use lake::{Commit, LakeReader, canonical_rows, content_of};
pub use proxy::Proxy;
pub use server::{Flavor, PASSWORD, READER, Server};
pub use service::Service;
pub use source::{server_position, source_content};
