//! The log as it is written.
