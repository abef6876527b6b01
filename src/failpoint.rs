//! Named steps at which a test can kill the process, to prove that a crash there loses nothing.
//!
//! `ALLUVIUM_FAILPOINT=commit.before:3` ends the process at the third time that the step `commit.before` is
//! reached, at once and without any clean-up, as SIGKILL does. Unset, a step costs one atomic load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The steps, in the order in which a batch passes them.
pub const CHECKPOINT_BEFORE: &str = "checkpoint.before";
pub const CHECKPOINT_AFTER: &str = "checkpoint.after";
pub const DATA_FILE_BEFORE: &str = "data_file.before";
pub const DATA_FILE_AFTER: &str = "data_file.after";
pub const DELETION_VECTOR_BEFORE: &str = "deletion_vector.before";
pub const DELETION_VECTOR_AFTER: &str = "deletion_vector.after";
pub const COMMIT_BEFORE: &str = "commit.before";
pub const COMMIT_AFTER: &str = "commit.after";
pub const POINT_BEFORE: &str = "point.before";
pub const POINT_AFTER: &str = "point.after";
pub const SCHEMA_BEFORE: &str = "schema.before";
pub const SCHEMA_AFTER: &str = "schema.after";
pub const READ_BEFORE: &str = "read.before";

/// All of the above, for tests that go through them.
pub const ALL: [&str; 13] = [
    CHECKPOINT_BEFORE,
    CHECKPOINT_AFTER,
    DATA_FILE_BEFORE,
    DATA_FILE_AFTER,
    DELETION_VECTOR_BEFORE,
    DELETION_VECTOR_AFTER,
    COMMIT_BEFORE,
    COMMIT_AFTER,
    POINT_BEFORE,
    POINT_AFTER,
    SCHEMA_BEFORE,
    SCHEMA_AFTER,
    READ_BEFORE,
];

/// The environment variable that arms one step.
pub const VARIABLE: &str = "ALLUVIUM_FAILPOINT";

struct Armed {
    step: String,
    remaining: AtomicU32,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// Passes the step `name`: ends the process if a test asked for that.
pub fn hit(name: &'static str) {
    if let Some(armed) = ARMED.get_or_init(armed_by_environment)
        && armed.step == name
        && armed.remaining.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

fn armed_by_environment() -> Option<Armed> {
    let value = std::env::var(VARIABLE).ok()?;
    let (step, times) = value.split_once(':').unwrap_or((&value, "1"));
    Some(Armed { step: step.to_string(), remaining: AtomicU32::new(times.parse().unwrap_or(1)) })
}
