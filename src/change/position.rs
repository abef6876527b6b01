//! Positions in a source's log. A position says where a change stands; a resume point is a position that
//! reading may restart from. They are different types so that one is never taken for the other.

use serde::{Deserialize, Serialize};

/// Where a change stands in its source's log. Positions of one [`SourceIdentity`] are totally ordered by
/// `order`; `text` is the source's own notation, for people (`mysql-bin.000007:1234`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourcePosition {
    /// The rank in the log. MySQL and MariaDB: the number of the binlog file, then the offset in bytes
    /// of the end of the event. DynamoDB: the time up to which its streams were read, in milliseconds, then the number of records.
    pub order: (u64, u64),
    pub text: String,
}

impl PartialEq for SourcePosition {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for SourcePosition {}

impl PartialOrd for SourcePosition {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SourcePosition {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl std::fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A position at a transaction boundary, with all that the source needs to go on from it. Only a source
/// builds one; everyone else stores it and hands it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    pub position: SourcePosition,
    /// The GTID set that has been read up to here, in the server's own notation, where the source has one. Of a source
    /// whose log is in parts: how far each part has been read, in the source's own notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid_set: Option<String>,
}

/// A point between two transactions.
#[derive(Debug, Clone)]
pub struct Boundary {
    pub resume: ResumePoint,
    /// Commit time of the transaction that ends here, in microseconds since 1970-01-01 UTC; `None` where
    /// no transaction ends (a new log file, a heartbeat).
    pub commit_time_us: Option<i64>,
}

/// Which log this is: the server's uuid, a stream's ARN, the digest of a first binlog file. Positions of
/// different identities are never compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceIdentity(pub String);

impl std::fmt::Display for SourceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
