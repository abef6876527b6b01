//! How far the shards of streams have been read: what a resume point of this source holds.
//!
//! ```json
//! {"orders": {"stream": "arn:aws:dynamodb:...", "since_ms": 1767225600000,
//!             "shards": {"shardId-1": "end", "shardId-2": "49590338271490256608", "shardId-3": ""}}}
//! ```
//! A shard that has been read to its end stays in the map for as long as the stream lists it: a listed shard that is not in the
//! map is new, and is read from its beginning.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::change::{ResumePoint, SourcePosition};
use crate::source::{SourceError, SourceErrorKind};

/// What a finished shard has in place of a sequence number.
const END: &str = "end";

/// The number of a record in its shard: a decimal number of any length. It grows along a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SequenceNumber(pub String);

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (self.0.trim_start_matches('0'), other.0.trim_start_matches('0'));
        one.len().cmp(&other.len()).then_with(|| one.cmp(other))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How far one shard has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShardProgress {
    /// Nothing of it.
    Start,
    /// Up to this record, it included.
    After(SequenceNumber),
    /// All of it, and nothing more will come.
    End,
}

impl ShardProgress {
    fn text(&self) -> &str {
        match self {
            Self::Start => "",
            Self::After(number) => &number.0,
            Self::End => END,
        }
    }

    /// How much of the shard that is, for comparing two moments of it.
    fn rank(&self) -> (u8, Option<&SequenceNumber>) {
        match self {
            Self::Start => (0, None),
            Self::After(number) => (1, Some(number)),
            Self::End => (2, None),
        }
    }

    /// Whether a record with this number lies within.
    pub fn covers(&self, number: &SequenceNumber) -> bool {
        match self {
            Self::Start => false,
            Self::After(last) => number <= last,
            Self::End => true,
        }
    }
}

impl PartialOrd for ShardProgress {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.rank().cmp(&other.rank()))
    }
}

impl Serialize for ShardProgress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de> Deserialize<'de> for ShardProgress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "" => Ok(Self::Start),
            END => Ok(Self::End),
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Self::After(SequenceNumber(text))),
            _ => Err(serde::de::Error::custom(format!("{text:?} is no sequence number"))),
        }
    }
}

/// How far one table's stream has been read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamProgress {
    /// The stream's ARN: a table that is made anew, or whose stream is switched off and on, has another one.
    pub stream: String,
    /// Records that were made before are left out: what they did is in the rows of the first load. Milliseconds since
    /// 1970-01-01 UTC.
    pub since_ms: i64,
    pub shards: BTreeMap<String, ShardProgress>,
}

/// How far all streams of a job have been read, by table name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Progress(pub BTreeMap<String, StreamProgress>);

impl Progress {
    /// What a resume point of this source holds; nothing for one that has none.
    ///
    /// # Errors
    /// A resume point of another source.
    pub fn of(point: &ResumePoint) -> Result<Self, SourceError> {
        let Some(text) = &point.gtid_set else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(|error| {
            let message = format!("the job's position {} is none of DynamoDB's streams", point.position);
            SourceError::new(SourceErrorKind::Lost, message).caused_by(error)
        })
    }

    /// A resume point at `position`.
    pub fn at(&self, position: SourcePosition) -> ResumePoint {
        // Maps of texts always have a JSON form.
        ResumePoint { position, gtid_set: serde_json::to_string(self).ok() }
    }
}

/// A position: up to this time (milliseconds since 1970-01-01 UTC, by the clock of the machine that reads) all streams were known to have been
/// read, and so many records have been read over the life of the job.
pub(super) fn position(read_until_ms: u64, records: u64) -> SourcePosition {
    let time = i64::try_from(read_until_ms).ok().and_then(chrono::DateTime::from_timestamp_millis);
    let time = time.unwrap_or_default().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    SourcePosition { order: (read_until_ms, records), text: format!("{time}+{records}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber(text.into())
    }

    #[test]
    fn sequence_numbers_are_compared_as_numbers_of_any_length() {
        let ascending =
            ["0", "9", "10", "99999999999999999999999999999999999999999", "100000000000000000000000000000000000000000"];
        for pair in ascending.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        }
        assert_eq!(number("007").cmp(&number("7")), Ordering::Equal);
        let at_ten = ShardProgress::After(number("10"));
        assert!(at_ten.covers(&number("9")) && at_ten.covers(&number("10")) && !at_ten.covers(&number("11")));
        assert!(ShardProgress::Start < at_ten && at_ten < ShardProgress::End);
    }

    #[test]
    fn a_resume_point_holds_every_shard_and_no_other_text_is_one() {
        let shards = BTreeMap::from([
            ("a".to_string(), ShardProgress::Start),
            ("b".to_string(), ShardProgress::After(number("12345678901234567890123"))),
            ("c".to_string(), ShardProgress::End),
        ]);
        let stream = StreamProgress { stream: "arn".into(), since_ms: 7, shards };
        let progress = Progress(BTreeMap::from([("orders".to_string(), stream)]));
        let point = progress.at(position(1_767_225_600_123, 42));
        assert_eq!(point.position.text, "2026-01-01T00:00:00.123Z+42");
        assert_eq!(Progress::of(&point).unwrap(), progress);
        let other = ResumePoint { gtid_set: Some("uuid:1-7".into()), ..point };
        assert_eq!(Progress::of(&other).unwrap_err().kind, SourceErrorKind::Lost);
    }
}
