//! The rows of first loads: parallel scans by segments, within a budget of read units.
//!
//! A key of this source's splits is `SEGMENT/TOTAL` for the end of a segment, or `SEGMENT/TOTAL KEY` for an item in it. Scans are
//! strongly consistent: every change that the stream has shown before a page was asked for is in the page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::Mutex;

use super::attribute::Item;
use super::catalogue::parse;
use super::client::{Client, Operation};
use super::rows::RowsBuilder;
use super::shape::Inference;
use super::unreadable;
use crate::change::{ChangeBatch, Operation as Change, SourcePosition};
use crate::schema::TableSchema;
use crate::source::{KeyRange, SourceError, SourceErrorKind, SplitKey, SplitLimits};

/// Most segments of a table that the service allows.
const SEGMENTS_MAX: u64 = 1_000_000;

/// What a segment is to hold at most, so that one read brings all of it whatever the memory: a read that is cut short makes those of
/// the segments behind it useless.
const SEGMENT_BYTES: u64 = 4 << 20;

/// Longest time that one page waits for its budget: a page of 1 MB takes 256 read units.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// A place in a table: behind all items of the segments before `segment`, and behind `key` within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    segment: u64,
    total: u64,
    /// `None` for the segment's end.
    key: Option<String>,
}

impl Place {
    fn parse(key: &SplitKey) -> Result<Self, SourceError> {
        let wrong = || {
            let message = format!("{:?} is no place in a table of DynamoDB; load the table again", key.0);
            SourceError::new(SourceErrorKind::Misconfigured, message)
        };
        let (numbers, item) = match key.0.split_once(' ') {
            Some((numbers, item)) => (numbers, Some(item.to_string())),
            None => (key.0.as_str(), None),
        };
        let (segment, total) = numbers.split_once('/').ok_or_else(wrong)?;
        let place = Self {
            segment: segment.parse().map_err(|_| wrong())?,
            total: total.parse().map_err(|_| wrong())?,
            key: item,
        };
        if place.segment < place.total { Ok(place) } else { Err(wrong()) }
    }

    fn to_key(&self) -> SplitKey {
        let (segment, total) = (self.segment, self.total);
        SplitKey(match &self.key {
            Some(key) => format!("{segment}/{total} {key}"),
            None => format!("{segment}/{total}"),
        })
    }

    fn end_of(segment: u64, total: u64) -> Self {
        Self { segment, total, key: None }
    }
}

/// How large a table is, about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// 0 where it is not known: the service counts a few times a day.
    pub items: u64,
    pub bytes: u64,
}

impl Size {
    /// The segments for splits of so many rows, of which so many are read at once. One where the size is not known: it is read in
    /// order then, as far as each read comes.
    fn segments(self, rows: usize, readers: usize) -> u64 {
        if self.items == 0 {
            return 1;
        }
        let by_rows = self.items.div_ceil(rows.max(1) as u64);
        by_rows.max(self.bytes.div_ceil(SEGMENT_BYTES)).clamp(readers as u64, SEGMENTS_MAX)
    }
}

/// Where a split of about `rows` rows that begins after `range.after` should end: with the next segment.
pub(super) fn next_cut(
    range: &KeyRange,
    rows: usize,
    size: Size,
    readers: usize,
) -> Result<Option<SplitKey>, SourceError> {
    let next = match &range.after {
        None => Place::end_of(0, size.segments(rows, readers)),
        Some(after) => {
            let after = Place::parse(after)?;
            let segment = if after.key.is_some() { after.segment } else { after.segment + 1 };
            Place::end_of(segment, after.total)
        }
    };
    Ok((next.segment + 1 < next.total).then(|| next.to_key()))
}

/// What one read of a range brought.
pub(super) struct Scanned {
    pub rows: ChangeBatch,
    /// As [`crate::source::Split::last_key`].
    pub last_key: Option<SplitKey>,
}

/// What came of it.
pub(super) enum Outcome {
    Rows(Scanned),
    /// The items need this schema; nothing of them is kept.
    Grown(TableSchema),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScanAnswer<'a> {
    #[serde(borrow, default)]
    items: Vec<Item<'a>>,
    #[serde(default)]
    last_evaluated_key: Option<Json>,
    #[serde(default)]
    consumed_capacity: Option<Consumed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Consumed {
    #[serde(default)]
    capacity_units: f64,
}

/// One read of a range.
pub(super) struct Scan<'a> {
    pub client: &'a Client,
    pub budget: &'a Budget,
    pub schema: &'a Arc<TableSchema>,
    pub limits: SplitLimits,
    /// Where the rows stand in the log,
    pub position: &'a SourcePosition,
    /// and when, in microseconds since 1970-01-01 UTC.
    pub now_us: i64,
}

impl Scan<'_> {
    /// Reads `range`, or as much of it as the limits allow.
    pub async fn read(&self, range: &KeyRange) -> Result<Outcome, SourceError> {
        let upto = range.upto.as_ref().map(Place::parse).transpose()?;
        let after = range.after.as_ref().map(Place::parse).transpose()?;
        let total = after.as_ref().or(upto.as_ref()).map_or(1, |place| place.total);
        let last_segment = upto.as_ref().map_or(total - 1, |place| place.segment);
        let (mut segment, mut key) = match after {
            None => (0, None),
            Some(Place { segment, key: Some(key), .. }) => (segment, Some(key)),
            Some(Place { segment, .. }) => (segment + 1, None),
        };
        let (mut inference, mut bytes) = (Inference::new(self.schema), 0);
        let mut rows = RowsBuilder::new(self.schema).map_err(unreadable)?;
        rows.begin(self.now_us, self.position);
        let mut last_key = range.upto.clone();
        while segment <= last_segment {
            let answer = self.page(segment, total, key.as_deref(), rows.len()).await?;
            bytes += answer.len();
            let page: ScanAnswer<'_> = parse(Operation::Scan, &answer)?;
            for item in &page.items {
                inference.see(item);
                rows.push(Change::Read, item);
            }
            let units = page.consumed_capacity.map_or(0.0, |consumed| consumed.capacity_units);
            self.client.note_read_units(units);
            self.budget.spend(units).await;
            key = page.last_evaluated_key.map(|key| key.to_string());
            let place = Place { segment, total, key: key.clone() };
            if key.is_none() {
                segment += 1;
            }
            if segment <= last_segment && (rows.len() >= self.limits.rows_max || bytes >= self.limits.bytes_max) {
                last_key = Some(place.to_key());
                break;
            }
        }
        match inference.grown() {
            Some(schema) => Ok(Outcome::Grown(schema)),
            None => Ok(Outcome::Rows(Scanned { rows: rows.finish().map_err(unreadable)?, last_key })),
        }
    }

    async fn page(
        &self,
        segment: u64,
        total: u64,
        key: Option<&str>,
        rows: usize,
    ) -> Result<bytes::Bytes, SourceError> {
        self.budget.wait().await;
        let mut body = json!({
            "TableName": self.schema.table.table,
            "Segment": segment,
            "TotalSegments": total,
            "ConsistentRead": true,
            "ReturnConsumedCapacity": "TOTAL",
            "Limit": self.limits.rows_max.saturating_sub(rows).clamp(1, i32::MAX as usize),
        });
        if let Some(key) = key {
            let key: Json = parse(Operation::Scan, key.as_bytes())?;
            body["ExclusiveStartKey"] = key;
        }
        self.client.require(Operation::Scan, &body).await
    }
}

/// Read units that may be used in a second. What a request uses is known when it has been answered, so the ones that follow
/// wait for it.
pub(super) struct Budget {
    /// `None` for as many as there are.
    units_per_second: Option<f64>,
    /// When all units that were used so far will have been earned.
    earned_at: Mutex<Instant>,
}

impl Budget {
    pub fn new(units_per_second: Option<f64>) -> Self {
        Self { units_per_second, earned_at: Mutex::new(Instant::now()) }
    }

    async fn wait(&self) {
        let earned_at = *self.earned_at.lock().await;
        let until = earned_at.min(Instant::now() + WAIT_MAX);
        tokio::time::sleep_until(until.into()).await;
    }

    async fn spend(&self, units: f64) {
        let Some(rate) = self.units_per_second else { return };
        let mut earned_at = self.earned_at.lock().await;
        let cost = Duration::try_from_secs_f64(units / rate.max(0.001)).unwrap_or(WAIT_MAX);
        *earned_at = (*earned_at).max(Instant::now()) + cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<SplitKey> {
        Some(SplitKey(text.into()))
    }

    #[test]
    fn cuts_go_from_segment_to_segment_and_none_is_left_out() {
        let cut = |after: Option<SplitKey>, items| {
            let range = KeyRange { after, ..KeyRange::default() };
            next_cut(&range, 100, Size { items, bytes: 9 << 20 }, 3).unwrap()
        };
        assert_eq!(cut(None, 1_000), key("0/10"));
        assert_eq!(cut(None, 10), key("0/3"), "each reader has one");
        assert_eq!(cut(key("0/10"), 0), key("1/10"));
        assert_eq!(cut(key("7/10"), 0), key("8/10"));
        assert_eq!(cut(key("8/10"), 0), None, "the last segment ends the table");
        assert_eq!(cut(key("3/10 {\"id\":{\"S\":\"a b\"}}"), 0), key("3/10"), "first the rest of the segment");
        assert_eq!(cut(key("9/10 {}"), 0), None);
        for wrong in ["", "a/b", "3", "10/10", "1/0"] {
            let range = KeyRange { after: key(wrong), ..KeyRange::default() };
            assert!(next_cut(&range, 1, Size { items: 1, bytes: 1 }, 1).is_err(), "{wrong}");
        }
        assert_eq!(cut(None, 0), None, "a table whose size is not known is read in order");
        assert_eq!(Size { items: 10, bytes: 400 << 20 }.segments(100, 3), 100, "large items make small splits");
    }

    #[test]
    fn a_place_is_its_text() {
        for text in ["0/1", "3/10 {\"id\":{\"S\":\"a b\"}}"] {
            assert_eq!(Place::parse(&SplitKey(text.into())).unwrap().to_key().0, text);
        }
    }

    #[tokio::test]
    async fn requests_wait_until_what_was_used_is_earned() {
        let budget = Budget::new(Some(100.0));
        budget.spend(1_000.0).await;
        budget.spend(500.0).await;
        let earned_at = *budget.earned_at.lock().await;
        let left = earned_at - Instant::now();
        assert!(left > Duration::from_secs(14) && left <= Duration::from_secs(15), "{left:?}");
        let free = Budget::new(None);
        free.spend(1e9).await;
        assert!(*free.earned_at.lock().await <= Instant::now());
    }
}
