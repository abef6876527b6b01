//! TODO later
