//! The ledger: what a job has done and is about to do, in the lake beside the tables.
//!
//! An entry is written before the work that it names is applied, with put-if-absent: the entry with the next
//! sequence number is the right to apply that work, and a second writer of the same number loses. Each
//! table's Delta commit then carries the number as its `txn`, so that the newest entry and the tables
//! together tell what is still to be done. Only the newest entry can be unfinished.
//!
//! ```text
//! _alluvium/<job>/ledger/00000000000000000041.state.json   the job's state after entry 41
//! _alluvium/<job>/ledger/00000000000000000042.json         entry 42
//! ```

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::JobState;
use crate::change::{Ending, ResumePoint, SourceIdentity, SourcePosition, TableId};
use crate::schema::TableSchema;

/// The format of entries and states. A reader refuses a newer one; of the older, format 1 had one split per batch at most,
/// format 2 no changes of columns but added ones, format 3 no loads that settle and one server only, and format 4 no rules of columns.
const FORMAT: u32 = 5;

/// After how many entries the folded state is stored: it bounds what a start has to read.
const ENTRIES_PER_STATE: u64 = 50;

/// How many entries stay readable before the newest stored state, for people who look into a fault.
const ENTRIES_KEPT: u64 = 200;

/// Largest entry or state that is read: 2,000 tables of 1,000 columns take about 200 MB.
const OBJECT_BYTES_MAX: u64 = 512 << 20;

/// One step of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    pub format: u32,
    pub sequence: u64,
    /// The process that wrote it: tells its own entry from another's after a lost reply.
    pub run: Uuid,
    pub created_at_us: i64,
    pub identity: SourceIdentity,
    /// Where the job stood before this step,
    pub start: ResumePoint,
    /// and stands after it.
    pub end: ResumePoint,
    /// Commit time of the last source transaction of the step, in microseconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_time_us: Option<i64>,
    pub work: Work,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// The job begins.
    Begin,
    /// Changes are applied to `tables`; the position moves to the entry's end.
    Batch {
        tables: Vec<TableId>,
        /// The key ranges of first loads that are part of the batch, one for a table.
        #[serde(
            default,
            alias = "split",
            deserialize_with = "super::state::one_or_many",
            skip_serializing_if = "Vec::is_empty"
        )]
        splits: Vec<SplitRecord>,
    },
    /// Tables get a schema: new tables, or other columns.
    Schema { tables: Vec<SchemaRecord> },
    /// Another server takes the place of the source, with the same transactions: the entry has its identity, and a position in
    /// its log.
    TakeOver { identity: SourceIdentity },
    /// Tables are taken out: all that are at fault in one step, so that a crash in between forgets none.
    Stop { tables: Vec<StopRecord> },
}

/// A table that is taken out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    pub table: TableId,
    /// Up to where the table follows its source.
    pub position: SourcePosition,
    /// What was found, and what to do.
    pub reason: String,
    #[serde(default)]
    pub ending: Ending,
    /// The source's statement after which it cannot be followed, where one did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
}

/// A table's new schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaRecord {
    pub schema: TableSchema,
    /// From here on the source's table has this schema: the end of the statement that made it.
    pub position: SourcePosition,
    /// Added columns whose old rows get a value: the source's name and the value as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<(String, String)>,
    /// Columns of the lake that get the values of another one: the new one's name and the old one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<(String, String)>,
    /// The table is another one than that which had its name before: it begins without rows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
    /// The table is not captured; its columns are kept for the day on which it takes a captured table's name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// What made it so, as the source has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// Whether the rows that the source has now are to be loaded; all rows that the table has go first, unless there is a condition.
    pub load: bool,
    /// Only the rows of which this is true are loaded, over those that the table has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

impl StopRecord {
    /// A table that cannot be followed, through no statement.
    pub fn fault(table: TableId, position: SourcePosition, reason: String) -> Self {
        Self { table, position, reason, ending: Ending::Fault, statement: None }
    }
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

impl SplitRecord {
    /// Whether the table loses all rows that it has before these come.
    pub fn empties(&self) -> bool {
        self.after.is_none() && self.condition.is_none() && !self.settling
    }
}

impl SchemaRecord {
    /// A schema without anything else: a table that is there as it is, or a new one without rows.
    pub fn new(schema: TableSchema, position: SourcePosition) -> Self {
        Self {
            schema,
            position,
            defaults: Vec::new(),
            copies: Vec::new(),
            replaces: false,
            shadow: false,
            statement: None,
            load: false,
            condition: None,
        }
    }
}

/// A key range of a first load. Keys are in the source's own notation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitRecord {
    pub table: TableId,
    /// 0 for the table's first split; counted on when the table is loaded again.
    pub index: u64,
    /// The split begins after this key, or with the table.
    pub after: Option<String>,
    /// The split ends with this key, or has no end.
    pub last: Option<String>,
    pub rows: u64,
    /// Of a load of some rows only: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// All key ranges had been read before: these are rows that batches had to leave out meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settling: bool,
    /// Of a split without an end: rows may have been left out, so the load is not over with it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unsettled: bool,
}

/// Why the ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("cannot {action} {path} in the lake")]
    Store {
        action: &'static str,
        path: Path,
        #[source]
        source: object_store::Error,
    },
    #[error("{path} in the lake is not readable: {reason}; restore it from a backup of the lake")]
    Unreadable { path: Path, reason: String },
    #[error(
        "another run of job {job} is at work: it wrote step {sequence} first; let one run finish, or give the second job another name"
    )]
    OtherWriter { job: String, sequence: u64 },
}

/// The ledger of one job.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Arc<dyn ObjectStore>,
    job: String,
    folder: Path,
    run: Uuid,
}

impl Ledger {
    /// `store` is rooted at the lake. `run` is unique for the process.
    pub fn new(store: Arc<dyn ObjectStore>, job: &str, run: Uuid) -> Self {
        let folder = Path::from_iter(["_alluvium", job, "ledger"]);
        Self { store, job: job.to_string(), folder, run }
    }

    pub fn run(&self) -> Uuid {
        self.run
    }

    /// The job's state after its newest entry, or `None` for a job that has never run.
    ///
    /// # Errors
    /// A store that fails, or an entry that cannot be read.
    pub async fn load(&self) -> Result<Option<JobState>, LedgerError> {
        let files = self.list().await?;
        let mut state: Option<JobState> = match files.states.last() {
            Some(sequence) => Some(self.get_state(*sequence).await?),
            None => None,
        };
        let from = state.as_ref().map_or(0, |state| state.newest.sequence);
        for sequence in files.entries.into_iter().filter(|sequence| *sequence > from) {
            let path = self.entry_path(sequence);
            let entry: LedgerEntry = self.get(&path).await?;
            let gap = || LedgerError::Unreadable { path: path.clone(), reason: "the step before it is missing".into() };
            match &mut state {
                None => state = Some(JobState::begin(entry).ok_or_else(gap)?),
                Some(state) => state.advance(entry).ok_or_else(gap)?,
            }
        }
        Ok(state)
    }

    /// Writes the next entry: the right to do its work.
    ///
    /// # Errors
    /// [`LedgerError::OtherWriter`] if the number is taken by another run. A lost reply is recognised by reading back.
    pub async fn put(&self, entry: &LedgerEntry) -> Result<(), LedgerError> {
        let path = self.entry_path(entry.sequence);
        let body = encode(entry, &path)?;
        let options = PutOptions { mode: PutMode::Create, ..Default::default() };
        match self.store.put_opts(&path, body.into(), options).await {
            Ok(_) => Ok(()),
            Err(error) => self.settle(entry, path, error).await,
        }
    }

    /// Whether an entry that was put is the newest. Its place is free for a process that slept while others wrote so many
    /// steps that its number has been dropped again.
    ///
    /// # Errors
    /// [`LedgerError::OtherWriter`] if there is a newer step.
    pub async fn check_newest(&self, entry: &LedgerEntry) -> Result<(), LedgerError> {
        let files = self.list().await?;
        let newest = files.states.last().max(files.entries.last());
        match newest {
            Some(sequence) if *sequence > entry.sequence => {
                Err(LedgerError::OtherWriter { job: self.job.clone(), sequence: *sequence })
            }
            _ => Ok(()),
        }
    }

    /// After a failed put: whose entry is there, if any?
    async fn settle(&self, entry: &LedgerEntry, path: Path, error: object_store::Error) -> Result<(), LedgerError> {
        match self.get::<LedgerEntry>(&path).await {
            Ok(found) if found.run == entry.run => Ok(()),
            Ok(_) => Err(LedgerError::OtherWriter { job: self.job.clone(), sequence: entry.sequence }),
            Err(_) => Err(LedgerError::Store { action: "write", path, source: error }),
        }
    }

    /// Stores the folded state when it is due, and drops entries that nobody needs any more. The work of
    /// `state.newest` must be finished.
    ///
    /// # Errors
    /// A store that fails; the ledger stays as right as it was.
    pub async fn fold(&self, state: &JobState, now: bool) -> Result<(), LedgerError> {
        let sequence = state.newest.sequence;
        if !now && !sequence.is_multiple_of(ENTRIES_PER_STATE) {
            return Ok(());
        }
        let path = self.state_path(sequence);
        let body = encode(state, &path)?;
        let stored = self.store.put(&path, body.into()).await;
        stored.map_err(|source| LedgerError::Store { action: "write", path, source })?;
        self.prune(sequence).await
    }

    async fn prune(&self, state_sequence: u64) -> Result<(), LedgerError> {
        let files = self.list().await?;
        let old_states =
            files.states.iter().filter(|sequence| **sequence < state_sequence).map(|s| self.state_path(*s));
        let oldest_kept = state_sequence.saturating_sub(ENTRIES_KEPT);
        let old_entries = files.entries.iter().filter(|sequence| **sequence < oldest_kept).map(|s| self.entry_path(*s));
        for path in old_states.chain(old_entries) {
            match self.store.delete(&path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(LedgerError::Store { action: "delete", path, source }),
            }
        }
        Ok(())
    }

    async fn list(&self) -> Result<Files, LedgerError> {
        let listed: Result<Vec<_>, _> = self.store.list(Some(&self.folder)).try_collect().await;
        let objects =
            listed.map_err(|source| LedgerError::Store { action: "list", path: self.folder.clone(), source })?;
        let mut files = Files::default();
        for name in objects.iter().filter_map(|object| object.location.filename()) {
            if let Some(sequence) = name.strip_suffix(".state.json").and_then(|digits| digits.parse().ok()) {
                files.states.push(sequence);
            } else if let Some(sequence) = name.strip_suffix(".json").and_then(|digits| digits.parse().ok()) {
                files.entries.push(sequence);
            }
        }
        files.states.sort_unstable();
        files.entries.sort_unstable();
        Ok(files)
    }

    async fn get_state(&self, sequence: u64) -> Result<JobState, LedgerError> {
        let path = self.state_path(sequence);
        let state: JobState = self.get(&path).await?;
        if state.newest.sequence != sequence {
            let reason = format!("it is the state after step {}", state.newest.sequence);
            return Err(LedgerError::Unreadable { path, reason });
        }
        Ok(state)
    }

    async fn get<T: DeserializeOwned + Formatted>(&self, path: &Path) -> Result<T, LedgerError> {
        let store_error = |source| LedgerError::Store { action: "read", path: path.clone(), source };
        let unreadable = |reason: String| LedgerError::Unreadable { path: path.clone(), reason };
        let object = self.store.get(path).await.map_err(store_error)?;
        if object.meta.size > OBJECT_BYTES_MAX {
            return Err(unreadable(format!("it has {} bytes, more than {OBJECT_BYTES_MAX}", object.meta.size)));
        }
        let body: Bytes = object.bytes().await.map_err(store_error)?;
        let value: T = serde_json::from_slice(&body).map_err(|error| unreadable(error.to_string()))?;
        if value.format() > FORMAT {
            return Err(unreadable(format!("format {} was written by a newer Alluvium", value.format())));
        }
        if let Some(schema) = value.schemas().into_iter().find(|schema| !has_key(schema)) {
            return Err(unreadable(format!("the key of {} is none of its columns", schema.table)));
        }
        Ok(value)
    }

    fn entry_path(&self, sequence: u64) -> Path {
        self.folder.clone().join(format!("{sequence:020}.json"))
    }

    fn state_path(&self, sequence: u64) -> Path {
        self.folder.clone().join(format!("{sequence:020}.state.json"))
    }
}

#[derive(Default)]
struct Files {
    states: Vec<u64>,
    entries: Vec<u64>,
}

/// What is stored with its format's number.
trait Formatted {
    fn format(&self) -> u32;
    /// All schemas in it.
    fn schemas(&self) -> Vec<&TableSchema>;
}

impl Formatted for LedgerEntry {
    fn format(&self) -> u32 {
        self.format
    }

    fn schemas(&self) -> Vec<&TableSchema> {
        match &self.work {
            Work::Schema { tables } => {
                tables.iter().filter(|record| !record.shadow).map(|record| &record.schema).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Formatted for JobState {
    fn format(&self) -> u32 {
        self.newest.format
    }

    fn schemas(&self) -> Vec<&TableSchema> {
        let of_tables = self.tables.values().filter_map(|table| table.schema.as_ref());
        of_tables.chain(self.newest.schemas()).collect()
    }
}

/// Whether the schema's key is what the rest of the program relies on.
fn has_key(schema: &TableSchema) -> bool {
    !schema.key.is_empty() && schema.key.iter().all(|index| *index < schema.columns.len())
}

impl LedgerEntry {
    /// The first entry of a job.
    pub fn begin(run: Uuid, now_us: i64, identity: SourceIdentity, start: ResumePoint) -> Self {
        let end = start.clone();
        let work = Work::Begin;
        Self {
            format: FORMAT,
            sequence: 1,
            run,
            created_at_us: now_us,
            identity,
            start,
            end,
            commit_time_us: None,
            work,
        }
    }

    /// The entry after `state`'s newest, ending where the job stands now.
    pub fn next(state: &JobState, run: Uuid, now_us: i64, work: Work) -> Self {
        Self {
            format: FORMAT,
            sequence: state.newest.sequence + 1,
            run,
            created_at_us: now_us,
            identity: state.newest.identity.clone(),
            start: state.newest.end.clone(),
            end: state.newest.end.clone(),
            commit_time_us: state.newest.commit_time_us,
            work,
        }
    }
}

fn encode<T: Serialize>(value: &T, path: &Path) -> Result<Vec<u8>, LedgerError> {
    serde_json::to_vec(value).map_err(|error| LedgerError::Unreadable { path: path.clone(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::state::LoadState;
    use object_store::memory::InMemory;

    fn at(offset: u64) -> ResumePoint {
        let position = SourcePosition { order: (1, offset), text: format!("binlog.000001:{offset}") };
        ResumePoint { position, gtid_set: None }
    }

    fn table(name: &str) -> TableSchema {
        let data_type = arrow::datatypes::DataType::Int32;
        let column = crate::schema::Column { nullable: false, ..crate::schema::Column::new("id", data_type, "int") };
        TableSchema::new(TableId::new("shop", name), vec![column], vec![0])
    }

    fn ledger(store: &Arc<InMemory>) -> Ledger {
        Ledger::new(store.clone(), "shop", Uuid::new_v4())
    }

    async fn begun(ledger: &Ledger) -> JobState {
        let entry = LedgerEntry::begin(ledger.run(), 0, SourceIdentity("mysql:1".into()), at(4));
        ledger.put(&entry).await.unwrap();
        JobState::begin(entry).unwrap()
    }

    async fn step(ledger: &Ledger, state: &mut JobState, work: Work, end: u64) {
        let mut entry = LedgerEntry::next(state, ledger.run(), 0, work);
        entry.end = at(end);
        ledger.put(&entry).await.unwrap();
        state.advance(entry).unwrap();
        ledger.fold(state, false).await.unwrap();
    }

    fn batch(name: &str, split: Option<SplitRecord>) -> Work {
        Work::Batch { tables: vec![TableId::new("shop", name)], splits: split.into_iter().collect() }
    }

    fn record(schema: TableSchema, load: bool) -> SchemaRecord {
        SchemaRecord { load, ..SchemaRecord::new(schema, at(4).position) }
    }

    fn load_of(state: &JobState) -> LoadState {
        state.tables[&TableId::new("shop", "orders")].load.clone()
    }

    fn new_table(name: &str, load: bool) -> Work {
        Work::Schema { tables: vec![record(table(name), load)] }
    }

    fn split(index: u64, after: Option<&str>, last: Option<&str>) -> Option<SplitRecord> {
        let table = TableId::new("shop", "orders");
        let (after, last) = (after.map(Into::into), last.map(Into::into));
        Some(SplitRecord { table, index, after, last, rows: 10, condition: None, settling: false, unsettled: false })
    }

    fn stop(table: &str, reason: &str) -> Work {
        let table = TableId::new("shop", table);
        Work::Stop { tables: vec![StopRecord::fault(table, at(10).position, reason.into())] }
    }

    #[tokio::test]
    async fn a_ledger_gives_back_the_state_that_was_written_to_it() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        assert_eq!(ledger.load().await.unwrap(), None);
        let mut state = begun(&ledger).await;
        step(&ledger, &mut state, new_table("orders", true), 4).await;
        step(&ledger, &mut state, batch("orders", split(0, None, Some("7"))), 10).await;
        let stop = stop("logs", "no key");
        step(&ledger, &mut state, stop, 10).await;
        for offset in 11..200 {
            step(&ledger, &mut state, batch("orders", None), offset).await;
        }
        assert_eq!(ledger.load().await.unwrap().as_ref(), Some(&state));
        assert_eq!(
            load_of(&state),
            LoadState::Loading { index: 1, after: Some("7".into()), rows: 10, condition: None, settling: false }
        );
        ledger.fold(&state, true).await.unwrap();
        assert_eq!(ledger.load().await.unwrap(), Some(state));
    }

    #[tokio::test]
    async fn old_entries_and_states_go() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let mut state = begun(&ledger).await;
        step(&ledger, &mut state, new_table("orders", false), 4).await;
        for offset in 5..605 {
            step(&ledger, &mut state, batch("orders", None), offset).await;
        }
        let files = ledger.list().await.unwrap();
        assert_eq!(files.states, [600]);
        assert_eq!((files.entries.first(), files.entries.last()), (Some(&400), Some(&602)));
        assert_eq!(ledger.load().await.unwrap(), Some(state));
    }

    #[tokio::test]
    async fn of_two_runs_that_write_one_step_the_second_loses() {
        let store = Arc::new(InMemory::new());
        let (one, other) = (ledger(&store), ledger(&store));
        let state = begun(&one).await;
        let entry = LedgerEntry::next(&state, one.run(), 0, new_table("orders", false));
        one.put(&entry).await.unwrap();
        let late = LedgerEntry::next(&state, other.run(), 0, new_table("orders", false));
        assert!(matches!(other.put(&late).await, Err(LedgerError::OtherWriter { sequence: 2, .. })));
    }

    #[tokio::test]
    async fn a_run_whose_reply_was_lost_finds_its_own_entry() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let state = begun(&ledger).await;
        let entry = LedgerEntry::next(&state, ledger.run(), 0, new_table("orders", false));
        ledger.put(&entry).await.unwrap();
        ledger.put(&entry).await.unwrap();
    }

    #[tokio::test]
    async fn a_missing_step_and_a_damaged_one_are_told() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let mut state = begun(&ledger).await;
        step(&ledger, &mut state, new_table("orders", false), 4).await;
        step(&ledger, &mut state, batch("orders", None), 9).await;
        store.put(&ledger.entry_path(3), "{".into()).await.unwrap();
        assert!(matches!(ledger.load().await, Err(LedgerError::Unreadable { .. })));
        store.delete(&ledger.entry_path(2)).await.unwrap();
        assert!(matches!(ledger.load().await, Err(LedgerError::Unreadable { .. })));
    }

    #[tokio::test]
    async fn an_entry_whose_key_is_none_of_its_columns_and_a_state_of_another_step_are_told() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let mut state = begun(&ledger).await;
        let schema = TableSchema { key: vec![1], ..table("orders") };
        let work = Work::Schema { tables: vec![record(schema, false)] };
        let entry = LedgerEntry::next(&state, ledger.run(), 0, work);
        ledger.put(&entry).await.unwrap();
        assert!(matches!(ledger.load().await, Err(LedgerError::Unreadable { .. })));
        state.advance(entry).unwrap();
        ledger.fold(&state, true).await.unwrap();
        assert!(matches!(ledger.load().await, Err(LedgerError::Unreadable { .. })));
        let body = serde_json::to_vec(&begun(&Ledger::new(store.clone(), "other", Uuid::new_v4())).await).unwrap();
        store.put(&ledger.state_path(2), body.into()).await.unwrap();
        assert!(matches!(ledger.load().await, Err(LedgerError::Unreadable { .. })));
    }

    #[tokio::test]
    async fn a_split_that_its_table_lacks_is_taken_back() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let mut state = begun(&ledger).await;
        step(&ledger, &mut state, new_table("orders", true), 4).await;
        step(&ledger, &mut state, batch("orders", split(0, None, Some("7"))), 10).await;
        step(&ledger, &mut state, batch("orders", split(1, Some("7"), None)), 20).await;
        assert_eq!(load_of(&state), LoadState::Done);
        let last = state.last_splits.clone();
        state.revert_splits(&last);
        let load = &state.tables[&TableId::new("shop", "orders")].load;
        assert_eq!(
            *load,
            LoadState::Loading { index: 1, after: Some("7".into()), rows: 0, condition: None, settling: false }
        );
    }

    #[tokio::test]
    async fn a_load_that_left_rows_out_settles_before_it_is_over() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let mut state = begun(&ledger).await;
        step(&ledger, &mut state, new_table("orders", true), 4).await;
        let last = split(0, None, None).map(|split| SplitRecord { unsettled: true, ..split });
        step(&ledger, &mut state, batch("orders", last), 10).await;
        let settling = LoadState::Loading { index: 1, after: None, rows: 10, condition: None, settling: true };
        assert_eq!(load_of(&state), settling);
        let settled = split(1, None, None).map(|split| SplitRecord { settling: true, ..split });
        step(&ledger, &mut state, batch("orders", settled), 20).await;
        assert_eq!(load_of(&state), LoadState::Done);
        state.revert_splits(&state.last_splits.clone());
        assert_eq!(
            load_of(&state),
            LoadState::Loading { index: 1, after: None, rows: 0, condition: None, settling: true }
        );
    }

    #[test]
    fn an_entry_of_format_one_keeps_its_split() {
        let old = r#"{"kind":"batch","tables":[],"split":{"table":{"database":"shop","table":"orders"},"index":3,"after":null,
            "last":"[\"7\"]","rows":10}}"#;
        let Ok(Work::Batch { splits, .. }) = serde_json::from_str(old) else { panic!("unreadable") };
        assert_eq!((splits[0].index, splits[0].last.as_deref()), (3, Some("[\"7\"]")));
        let Ok(Work::Batch { splits, .. }) = serde_json::from_str(r#"{"kind":"batch","tables":[]}"#) else { panic!() };
        assert!(splits.is_empty());
    }

    #[tokio::test]
    async fn a_process_that_slept_finds_its_number_free_and_is_told_of_the_newer_steps() {
        let store = Arc::new(InMemory::new());
        let (sleeper, other) = (ledger(&store), ledger(&store));
        let mut state = begun(&sleeper).await;
        step(&sleeper, &mut state, new_table("orders", false), 4).await;
        let late = LedgerEntry::next(&state, sleeper.run(), 0, batch("orders", None));
        for offset in 5..5 + ENTRIES_KEPT + 2 * ENTRIES_PER_STATE {
            step(&other, &mut state, batch("orders", None), offset).await;
        }
        sleeper.put(&late).await.expect("its number has been dropped");
        let error = sleeper.check_newest(&late).await.unwrap_err();
        assert!(matches!(error, LedgerError::OtherWriter { .. }), "{error}");
        // And what it wrote does no harm.
        assert_eq!(other.load().await.unwrap(), Some(state));
    }

    #[tokio::test]
    async fn a_table_that_is_loaded_again_counts_its_splits_on() {
        let store = Arc::new(InMemory::new());
        let ledger = ledger(&store);
        let mut state = begun(&ledger).await;
        step(&ledger, &mut state, new_table("orders", true), 4).await;
        step(&ledger, &mut state, batch("orders", split(0, None, None)), 10).await;
        let stop = stop("orders", "DDL");
        step(&ledger, &mut state, stop, 10).await;
        assert_eq!(state.followed().count(), 0);
        step(&ledger, &mut state, new_table("orders", true), 20).await;
        assert_eq!(
            load_of(&state),
            LoadState::Loading { index: 1, after: None, rows: 0, condition: None, settling: false }
        );
    }
}
