//! A job's state: all entries of its ledger folded into one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ledger::{LedgerEntry, SchemaRecord, SplitRecord, StopRecord, Work};
use crate::change::{Ending, SourcePosition, TableId};
use crate::schema::TableSchema;

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// The newest entry; its end is where reading goes on.
    pub newest: LedgerEntry,
    #[serde(with = "by_table")]
    pub tables: BTreeMap<TableId, TableState>,
    /// Tables that are not captured and may take the name of one that is: how they are made.
    #[serde(default, with = "by_table", skip_serializing_if = "BTreeMap::is_empty")]
    pub shadows: BTreeMap<TableId, TableSchema>,
    /// The key ranges of the last batch that was to load some: the only ones that may have been left out of their tables.
    #[serde(default, alias = "last_split", deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub last_splits: Vec<SplitRecord>,
}

/// One captured table, or one that was taken out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableState {
    /// `None` for a table that was taken out before its schema was known.
    pub schema: Option<TableSchema>,
    pub load: LoadState,
    /// How many splits of the table have been loaded so far, over all of its loads: the index of the next one.
    #[serde(default)]
    pub splits: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The newest entry that touched the table's Delta table.
    pub sequence: u64,
}

/// How far a table's first load has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LoadState {
    /// The next split has this index and begins after this key. A load begins by emptying the table, unless it is one
    /// of some rows only.
    Loading {
        index: u64,
        after: Option<String>,
        rows: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        condition: Option<String>,
        /// All key ranges are read; what is left are rows that batches had to leave out meanwhile.
        #[serde(default, skip_serializing_if = "super::ledger::is_false")]
        settling: bool,
    },
    Done,
}

/// A table that is not followed any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    pub position: SourcePosition,
    pub reason: String,
    #[serde(default)]
    pub ending: Ending,
}

impl JobState {
    /// The state after the first entry, or `None` if `entry` is not a first entry.
    pub fn begin(entry: LedgerEntry) -> Option<Self> {
        (entry.sequence == 1 && entry.work == Work::Begin).then(|| Self {
            newest: entry,
            tables: BTreeMap::new(),
            shadows: BTreeMap::new(),
            last_splits: Vec::new(),
        })
    }

    /// Takes in the next entry. `None`, and no change, if it does not follow.
    #[must_use]
    pub fn advance(&mut self, entry: LedgerEntry) -> Option<()> {
        if entry.sequence != self.newest.sequence + 1 || entry.start != self.newest.end {
            return None;
        }
        match &entry.work {
            Work::Begin => return None,
            Work::TakeOver { .. } => {}
            Work::Batch { tables, splits } => self.fold_batch(entry.sequence, tables, splits)?,
            Work::Schema { tables } => tables.iter().for_each(|record| self.fold_schema(entry.sequence, record)),
            Work::Stop { tables } => tables.iter().for_each(|record| self.fold_stop(record)),
        }
        self.newest = entry;
        Some(())
    }

    fn fold_batch(&mut self, sequence: u64, tables: &[TableId], splits: &[SplitRecord]) -> Option<()> {
        let named = tables.iter().chain(splits.iter().map(|split| &split.table));
        if named.into_iter().any(|table| !self.tables.contains_key(table)) {
            return None;
        }
        for table in tables {
            self.tables.get_mut(table)?.sequence = sequence;
        }
        for split in splits {
            let table = self.tables.get_mut(&split.table)?;
            table.load = table.load.after(split);
            table.splits = split.index.saturating_add(1);
        }
        if !splits.is_empty() {
            self.last_splits = splits.to_vec();
        }
        Some(())
    }

    fn fold_schema(&mut self, sequence: u64, record: &SchemaRecord) {
        if record.shadow {
            self.shadows.insert(record.schema.table.clone(), record.schema.clone());
            return;
        }
        let known = self.tables.get(&record.schema.table);
        let splits = known.map_or(0, |known| known.splits);
        let load = match known {
            _ if record.load => {
                let condition = record.condition.clone();
                LoadState::Loading { index: splits, after: None, rows: 0, condition, settling: false }
            }
            Some(known) if !record.replaces => known.load.clone(),
            _ => LoadState::Done,
        };
        let state = TableState { schema: Some(record.schema.clone()), load, splits, stopped: None, sequence };
        self.tables.insert(record.schema.table.clone(), state);
    }

    fn fold_stop(&mut self, record: &StopRecord) {
        if self.shadows.remove(&record.table).is_some() && !self.tables.contains_key(&record.table) {
            return;
        }
        let (position, reason) = (record.position.clone(), record.reason.clone());
        let stopped = Stopped { position, reason, ending: record.ending };
        let fresh = TableState { schema: None, load: LoadState::Done, splits: 0, stopped: None, sequence: 0 };
        self.tables.entry(record.table.clone()).or_insert(fresh).stopped = Some(stopped);
    }

    /// Takes splits of the last batch that had some back: it was applied to their tables without their rows. The others
    /// are there.
    pub fn revert_splits(&mut self, splits: &[SplitRecord]) {
        for split in splits {
            let Some(table) = self.tables.get_mut(&split.table) else { continue };
            let rows = match &table.load {
                LoadState::Loading { rows, .. } => rows.saturating_sub(split.rows),
                LoadState::Done => 0,
            };
            let (index, after, condition) = (split.index, split.after.clone(), split.condition.clone());
            table.load = LoadState::Loading { index, after, rows, condition, settling: split.settling };
            table.splits = split.index;
        }
        self.last_splits.clear();
    }

    /// Whether the table was taken out, and its name is no other table's yet.
    pub fn is_gone(&self, table: &TableId) -> bool {
        let stopped = self.tables.get(table).and_then(|known| known.stopped.as_ref());
        stopped.is_some_and(|stopped| stopped.ending == Ending::Gone)
    }

    /// Tables that are followed, with their schema and state.
    pub fn followed(&self) -> impl Iterator<Item = (&TableId, &TableSchema, &TableState)> {
        let running = self.tables.iter().filter(|(_, state)| state.stopped.is_none());
        running.filter_map(|(table, state)| Some((table, state.schema.as_ref()?, state)))
    }
}

impl LoadState {
    /// The state once `split` is loaded.
    #[must_use]
    pub fn after(&self, split: &SplitRecord) -> Self {
        let before = match self {
            Self::Loading { rows, .. } => *rows,
            Self::Done => 0,
        };
        if split.last.is_none() && !split.unsettled {
            return Self::Done;
        }
        Self::Loading {
            index: split.index.saturating_add(1),
            after: split.last.clone(),
            rows: before + split.rows,
            condition: split.condition.clone(),
            settling: split.last.is_none(),
        }
    }
}

/// A list, or the single value or null that format 1 had in its place.
pub(super) fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<SplitRecord>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        Many(Vec<SplitRecord>),
        One(Option<Box<SplitRecord>>),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::Many(splits) => splits,
        OneOrMany::One(split) => split.into_iter().map(|split| *split).collect(),
    })
}

/// A map with a struct as its key, as a list in JSON.
mod by_table {
    use super::{BTreeMap, TableId};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(tables: &BTreeMap<TableId, T>, to: S) -> Result<S::Ok, S::Error> {
        tables.iter().collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<TableId, T>, D::Error> {
        Ok(Vec::<(TableId, T)>::deserialize(from)?.into_iter().collect())
    }
}
