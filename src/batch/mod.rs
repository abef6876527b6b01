//! Micro-batches.
