//! The shards of one table's stream: which there are, which may be read, and how far each has been read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::catalogue::parse;
use super::client::{Client, Operation, Refusal};
use super::progress::{ShardProgress, StreamProgress};
use crate::change::TableId;
use crate::schema::TableSchema;
use crate::source::SourceError;

/// How often a stream is asked for new shards while none of the known ones ends.
const LIST_EVERY: Duration = Duration::from_secs(60);

/// How often, and for how long, it is asked for the children of one that has ended.
const CHILDREN_EVERY: Duration = Duration::from_secs(1);
const CHILDREN_WAIT: Duration = Duration::from_secs(30);

/// Empty answers in a row after which a shard counts as read to its end: the service may give an empty one where it has only
/// not looked far enough.
const EMPTIES_AT_TIP: usize = 3;

/// Pauses between two requests for a shard that gave nothing: while its end is looked for, and after so many, when it is idle. The
/// service allows five requests a second.
const PAUSE_LOOKING: Duration = Duration::from_millis(200);
const PAUSE_IDLE: Duration = Duration::from_millis(500);
const EMPTIES_IDLE: u32 = 20;

/// A shard that is being followed.
#[derive(Debug)]
pub(super) struct Shard {
    pub progress: ShardProgress,
    parent: Option<String>,
    /// From where the next page is read; `None` where one is to be asked for.
    pub iterator: Option<String>,
    empties: u32,
    /// When the last of them were asked for, the oldest first.
    empties_asked_ms: VecDeque<u64>,
    /// Up to this time all of its records have been read, in milliseconds.
    tip_ms: Option<u64>,
    poll_at: Instant,
    /// Read up to here and no further, where a batch is read again.
    pub upto: Option<ShardProgress>,
}

impl Shard {
    fn new(progress: ShardProgress) -> Self {
        Self {
            progress,
            parent: None,
            iterator: None,
            empties: 0,
            empties_asked_ms: VecDeque::new(),
            tip_ms: None,
            poll_at: Instant::now(),
            upto: None,
        }
    }

    pub fn is_done(&self) -> bool {
        self.progress == ShardProgress::End || self.upto.as_ref().is_some_and(|upto| self.progress >= *upto)
    }

    /// Notes what a page brought. It was asked for at `asked_ms`.
    pub fn note_page(&mut self, records: usize, next_iterator: Option<String>, asked_ms: u64) {
        if next_iterator.is_none() {
            self.progress = ShardProgress::End;
        }
        self.iterator = next_iterator;
        if records == 0 {
            self.empties = self.empties.saturating_add(1);
            self.empties_asked_ms.push_back(asked_ms);
        } else {
            self.empties = 0;
            self.empties_asked_ms.clear();
        }
        // One of so many in a row tells the truth, but it may be the first: records that came after it may have been kept back.
        if self.empties_asked_ms.len() >= EMPTIES_AT_TIP {
            self.tip_ms = self.empties_asked_ms.pop_front();
        }
        let pause = match self.empties {
            0 => Duration::ZERO,
            1..EMPTIES_IDLE => PAUSE_LOOKING,
            _ => PAUSE_IDLE,
        };
        self.poll_at = Instant::now() + pause;
    }
}

/// One table's stream.
pub(super) struct TableStream {
    pub table: TableId,
    pub schema: Arc<TableSchema>,
    pub stream: String,
    pub since_ms: i64,
    pub shards: BTreeMap<String, Shard>,
    /// Whether the shards were known before this read began.
    is_resumed: bool,
    listed_at: Option<Instant>,
    /// Since when children of an ended shard are looked for.
    awaits_children: Option<Instant>,
    is_enabled: bool,
}

/// What is wrong with a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// Records that were not read are not there any more.
    Trimmed(String),
    /// The stream is there no longer.
    Gone,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeAnswer {
    stream_description: Description,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Description {
    #[serde(default)]
    stream_status: String,
    #[serde(default)]
    shards: Vec<ListedShard>,
    #[serde(default)]
    last_evaluated_shard_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedShard {
    shard_id: String,
    #[serde(default)]
    parent_shard_id: Option<String>,
}

/// A stream's shards as it lists them.
struct Listing {
    is_enabled: bool,
    shards: Vec<ListedShard>,
}

impl TableStream {
    /// A stream that is read from its oldest record on, without what was made before `since_ms`.
    pub fn new(schema: Arc<TableSchema>, stream: String, since_ms: i64) -> Self {
        Self {
            table: schema.table.clone(),
            schema,
            stream,
            since_ms,
            shards: BTreeMap::new(),
            is_resumed: false,
            listed_at: None,
            awaits_children: None,
            is_enabled: true,
        }
    }

    /// A stream that has been read before.
    pub fn resumed(schema: Arc<TableSchema>, progress: StreamProgress) -> Self {
        let shards = progress.shards.into_iter().map(|(id, progress)| (id, Shard::new(progress))).collect();
        Self { shards, is_resumed: true, ..Self::new(schema, progress.stream, progress.since_ms) }
    }

    /// Has every shard read up to where `end` says, and no further.
    pub fn stop_at(&mut self, end: &StreamProgress) {
        for (id, upto) in &end.shards {
            let shard = self.shards.entry(id.clone()).or_insert_with(|| Shard::new(ShardProgress::Start));
            shard.upto = Some(upto.clone());
        }
        // The end names all shards that had records for it: those that have gone from it had been read before.
        self.shards.retain(|_, shard| shard.upto.is_some());
    }

    pub fn progress(&self) -> StreamProgress {
        let shards = self.shards.iter().map(|(id, shard)| (id.clone(), shard.progress.clone())).collect();
        StreamProgress { stream: self.stream.clone(), since_ms: self.since_ms, shards }
    }

    /// Whether the stream has been switched off and all of it has been read.
    pub fn is_over(&self) -> bool {
        !self.is_enabled && self.listed_at.is_some() && self.shards.values().all(Shard::is_done)
    }

    /// Up to when all of the stream has been read, in milliseconds; `None` where that is not known.
    pub fn tip_ms(&self) -> Option<u64> {
        if self.listed_at.is_none() || self.awaits_children.is_some() {
            return None;
        }
        let mut open = self.shards.values().filter(|shard| !shard.is_done());
        open.try_fold(u64::MAX, |tip, shard| Some(tip.min(shard.tip_ms?)))
    }

    /// The shards that a page is to be read of now: their parents have been read whole.
    pub fn ready(&self, now: Instant) -> Vec<String> {
        let is_ready = |shard: &Shard| !shard.is_done() && shard.poll_at <= now && self.has_no_open_parent(shard);
        self.shards.iter().filter(|(_, shard)| is_ready(shard)).map(|(id, _)| id.clone()).collect()
    }

    fn has_no_open_parent(&self, shard: &Shard) -> bool {
        let parent = shard.parent.as_ref().and_then(|parent| self.shards.get(parent));
        parent.is_none_or(|parent| parent.progress == ShardProgress::End)
    }

    /// When the next page is due.
    pub fn due_at(&self) -> Option<Instant> {
        let open = self.shards.values().filter(|shard| !shard.is_done() && self.has_no_open_parent(shard));
        open.map(|shard| shard.poll_at).min()
    }

    /// A shard has ended: its children are to be looked for.
    pub fn look_for_children(&mut self) {
        self.awaits_children = Some(Instant::now());
    }

    /// Whether the stream should be asked for its shards now.
    pub fn is_listing_due(&self) -> bool {
        let Some(listed_at) = self.listed_at else { return true };
        let every = if self.awaits_children.is_some() { CHILDREN_EVERY } else { LIST_EVERY };
        // At once after a shard's end.
        listed_at.elapsed() >= every || self.awaits_children.is_some_and(|since| since > listed_at)
    }

    /// Asks the stream for its shards. `is_late` says that records which nobody has read may be gone.
    pub async fn list(&mut self, client: &Client, is_late: bool) -> Result<Result<(), Gap>, SourceError> {
        Ok(match describe(client, &self.stream).await? {
            None => Err(Gap::Gone),
            Some(listing) => self.take(listing, is_late),
        })
    }

    fn take(&mut self, listing: Listing, is_late: bool) -> Result<(), Gap> {
        let listed: BTreeSet<String> = listing.shards.iter().map(|shard| shard.shard_id.clone()).collect();
        if is_late && self.is_resumed {
            self.check_nothing_lost(&listing, &listed)?;
        }
        let is_missed = |id: &String, shard: &Shard| shard.upto.is_some() && !shard.is_done() && !listed.contains(id);
        if let Some((id, _)) = self.shards.iter().find(|(id, shard)| is_missed(id, shard)) {
            return Err(Gap::Trimmed(format!("shard {id}, which is to be read again, is not listed any more")));
        }
        // What has vanished had been read, or nothing of it was left to read.
        self.shards.retain(|id, _| listed.contains(id));
        for shard in listing.shards {
            let is_redone = self.shards.values().any(|shard| shard.upto.is_some());
            match self.shards.get_mut(&shard.shard_id) {
                Some(known) => known.parent = shard.parent_shard_id,
                None if is_redone => {}
                None => {
                    let new = Shard { parent: shard.parent_shard_id, ..Shard::new(ShardProgress::Start) };
                    self.shards.insert(shard.shard_id, new);
                }
            }
        }
        let is_over = self.awaits_children.is_some_and(|since| since.elapsed() > CHILDREN_WAIT);
        if is_over || !listing.is_enabled || self.ended_have_children() {
            self.awaits_children = None;
        }
        self.is_enabled = listing.is_enabled;
        self.listed_at = Some(Instant::now());
        Ok(())
    }

    /// Whether each shard that has ended has one that follows it.
    fn ended_have_children(&self) -> bool {
        let parents: BTreeSet<&str> = self.shards.values().filter_map(|shard| shard.parent.as_deref()).collect();
        let mut ended = self.shards.iter().filter(|(_, shard)| shard.progress == ShardProgress::End);
        ended.all(|(id, _)| parents.contains(id.as_str()))
    }

    /// After a long pause: every shard that was known and not finished must still be there, none may begin in the dark, and each
    /// new one must follow another.
    fn check_nothing_lost(&self, listing: &Listing, listed: &BTreeSet<String>) -> Result<(), Gap> {
        let unfinished = self.shards.iter().filter(|(_, shard)| shard.progress != ShardProgress::End);
        for (id, shard) in unfinished {
            if !listed.contains(id) {
                return Err(Gap::Trimmed(format!("shard {id} is not listed any more and was not read to its end")));
            }
            if shard.progress == ShardProgress::Start {
                return Err(Gap::Trimmed(format!("the oldest records of shard {id} may be gone, none of it was read")));
            }
        }
        for shard in &listing.shards {
            let parent = shard.parent_shard_id.as_ref();
            let is_followed = parent.is_some_and(|parent| self.shards.contains_key(parent) || listed.contains(parent));
            if !self.shards.contains_key(&shard.shard_id) && !is_followed {
                return Err(Gap::Trimmed(format!("shards between those read and {} are gone", shard.shard_id)));
            }
        }
        Ok(())
    }
}

/// The shards of a stream; `None` where there is no such stream.
async fn describe(client: &Client, stream: &str) -> Result<Option<Listing>, SourceError> {
    let mut listing = Listing { is_enabled: true, shards: Vec::new() };
    let mut after = None::<String>;
    loop {
        let mut body = json!({ "StreamArn": stream });
        if let Some(shard) = &after {
            body["ExclusiveStartShardId"] = json!(shard);
        }
        let answer = match client.ask(Operation::DescribeStream, &body).await? {
            Ok(answer) => answer,
            Err(error) if error.refusal == Refusal::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let page: DescribeAnswer = parse(Operation::DescribeStream, &answer)?;
        let page = page.stream_description;
        listing.is_enabled = !page.stream_status.starts_with("DISABL");
        listing.shards.extend(page.shards);
        after = page.last_evaluated_shard_id;
        if after.is_none() {
            return Ok(Some(listing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::dynamodb::progress::SequenceNumber;
    use crate::source::dynamodb::shape::Shape;

    fn stream(shards: &[(&str, &str)]) -> TableStream {
        let progress = |text: &str| match text {
            "" => ShardProgress::Start,
            "end" => ShardProgress::End,
            number => ShardProgress::After(SequenceNumber(number.into())),
        };
        let shards = shards.iter().map(|(id, text)| (id.to_string(), progress(text))).collect();
        let schema = TableSchema::new(TableId::new("dynamodb", "t"), vec![Shape::Text.column("id")], vec![0]);
        TableStream::resumed(Arc::new(schema), StreamProgress { stream: "arn".into(), since_ms: 0, shards })
    }

    /// Shards as `id` or `id<parent`.
    fn listing(shards: &[&str]) -> Listing {
        let shards = shards.iter().map(|text| match text.split_once('<') {
            Some((id, parent)) => ListedShard { shard_id: id.into(), parent_shard_id: Some(parent.into()) },
            None => ListedShard { shard_id: text.to_string(), parent_shard_id: None },
        });
        Listing { is_enabled: true, shards: shards.collect() }
    }

    /// What may be read at once, after the shards were listed.
    fn check(known: &[(&str, &str)], listed: &[&str], ready: &[&str]) {
        let mut stream = stream(known);
        stream.take(listing(listed), false).unwrap();
        assert_eq!(stream.ready(Instant::now()), ready, "{known:?} {listed:?}");
    }

    #[test]
    fn a_shard_is_read_after_its_parent() {
        check(&[], &["a"], &["a"]);
        check(&[("a", "5")], &["a", "b<a", "c<a"], &["a"]);
        check(&[("a", "end")], &["a", "b<a", "c<a"], &["b", "c"]);
        check(&[("a", "end"), ("b", "7")], &["a", "b<a", "c<b"], &["b"]);
        // A parent that is not listed any more has nothing left to be read.
        check(&[], &["b<a", "c<b"], &["b"]);
        check(&[("a", "5")], &["b<a"], &["b"]);
    }

    #[test]
    fn finished_shards_are_forgotten_once_they_are_not_listed() {
        let mut stream = stream(&[("a", "end"), ("b", "end"), ("c", "3")]);
        stream.take(listing(&["b<a", "c<b"]), false).unwrap();
        assert_eq!(stream.progress().shards.into_keys().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn after_a_long_pause_it_is_told_whether_records_may_be_gone() {
        let check = |known: &[(&str, &str)], listed: &[&str], is_lost: bool| {
            let found = stream(known).take(listing(listed), true);
            assert_eq!(found.is_err(), is_lost, "{known:?} {listed:?}: {found:?}");
        };
        check(&[("a", "5")], &["a"], false);
        check(&[("a", "end")], &["a", "b<a"], false);
        check(&[("a", "5")], &["a", "b<a", "c<b"], false);
        check(&[("a", "5")], &["b<a"], true);
        check(&[("a", "")], &["a"], true);
        check(&[("a", "end")], &["c<b"], true);
        check(&[("a", "end")], &["a", "c<b"], true);
        // Soon after, the same is no loss.
        assert!(stream(&[("a", "5")]).take(listing(&["b<a"]), false).is_ok());
    }

    #[test]
    fn a_batch_is_read_again_to_its_end_and_no_further() {
        let mut again = stream(&[("a", "5")]);
        let end = stream(&[("a", "end"), ("b", "9")]).progress();
        again.stop_at(&end);
        again.take(listing(&["a", "b<a", "c<b"]), false).unwrap();
        assert_eq!(again.ready(Instant::now()), ["a"]);
        let shard = |stream: &mut TableStream, id: &str, progress| {
            stream.shards.get_mut(id).unwrap().progress = progress;
        };
        shard(&mut again, "a", ShardProgress::End);
        assert_eq!(again.ready(Instant::now()), ["b"]);
        shard(&mut again, "b", ShardProgress::After(SequenceNumber("9".into())));
        assert!(again.ready(Instant::now()).is_empty() && again.shards.values().all(Shard::is_done));
        // What cannot be read again is not left out in silence.
        let mut gone = stream(&[("a", "5")]);
        gone.stop_at(&end);
        assert!(matches!(gone.take(listing(&["b<a"]), false), Err(Gap::Trimmed(_))));
    }

    #[test]
    fn all_is_read_once_every_open_shard_has_given_nothing_for_a_while() {
        let mut stream = stream(&[("a", "end"), ("b", "5"), ("c", "")]);
        assert_eq!(stream.tip_ms(), None, "nothing is known before the shards are listed");
        stream.take(listing(&["a", "b<a", "c<a"]), false).unwrap();
        let mut page = |id: &str, records, asked_ms| {
            let shard = stream.shards.get_mut(id).unwrap();
            shard.note_page(records, Some("next".into()), asked_ms);
            stream.tip_ms()
        };
        for asked_ms in 1..=3 {
            assert_eq!(page("b", 0, asked_ms), None);
        }
        assert_eq!((page("c", 0, 10), page("c", 1, 11), page("c", 0, 12), page("c", 0, 13)), (None, None, None, None));
        assert_eq!(
            page("c", 0, 14),
            Some(1),
            "the shard that was read first decides, and the first of its empty pages"
        );
        assert_eq!(page("b", 0, 15), Some(2));
        assert_eq!(page("b", 4, 20), Some(2), "new records take nothing back");
        stream.look_for_children();
        assert_eq!(stream.tip_ms(), None);
    }
}
