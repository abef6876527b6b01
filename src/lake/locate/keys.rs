//! Keys of a batch in order, and which of them lie in a range or among the rows of a file.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Int64Array, RecordBatch, StringArray,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::row::{RowConverter, SortField};
use deltalake::kernel::Add;

use crate::batch::{KeyedSlice, key_converter};
use crate::change::TableId;
use crate::lake::LakeError;
use crate::lake::partition::{PartitionColumn, Partitioning};
use crate::schema::{Column, TableSchema};

/// The key columns of one table and how their values are compared.
pub(in crate::lake) struct KeySpace {
    pub table: TableId,
    pub columns: Vec<Column>,
    /// How the table is divided.
    pub partitioning: Arc<Partitioning>,
    order: Order,
}

/// Serialized values of the partition columns that follow from the key.
pub(in crate::lake) type KeyPartition = Box<[Option<String>]>;

enum Order {
    /// One column whose values are whole numbers at heart: compared as `i64`.
    Integer,
    /// One column of texts or bytes: compared as they are.
    Bytes,
    /// Everything else: compared by the bytes of the batch's own key encoding, in which the first column's
    /// bytes come first.
    Encoded { all: RowConverter, first: RowConverter },
}

/// Bounds of the first key column, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lake) enum KeyRange {
    Integer(i64, i64),
    Encoded(Box<[u8]>, Box<[u8]>),
}

/// Unique keys in ascending order, with a mark for those whose row is deleted in the source.
pub(in crate::lake) struct KeySet {
    keys: Keys,
    pub deleted: BooleanBuffer,
    /// Encoded keys are the values of the only key column as they are.
    is_text: bool,
    /// The partitions in which the keys are, if the key says so.
    partitions: Option<HashSet<KeyPartition>>,
}

enum Keys {
    Integer(Vec<i64>),
    Encoded(EncodedKeys),
}

#[derive(Default)]
struct EncodedKeys {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
}

/// A row of a batch that has a key of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lake) struct Match {
    pub row: usize,
    pub key: usize,
}

impl KeySpace {
    pub fn new(table: TableId, columns: Vec<Column>) -> Result<Self, LakeError> {
        let order = match columns.as_slice() {
            [only] if is_integer(&only.data_type) => Order::Integer,
            [only] if matches!(only.data_type, DataType::Utf8 | DataType::Binary) => Order::Bytes,
            [] => return Err(LakeError::Changes { table, what: "the table has no key columns".into() }),
            [first, ..] => Order::Encoded {
                first: RowConverter::new(vec![SortField::new(first.data_type.clone())])
                    .map_err(LakeError::arrow(&table, "encode keys"))?,
                all: all_columns_converter(&table, &columns)?,
            },
        };
        let partitioning = Arc::new(Partitioning::none(&table));
        Ok(Self { table, columns, partitioning, order })
    }

    /// The same for a table that is divided so.
    #[must_use]
    pub fn partitioned(self, partitioning: Partitioning) -> Self {
        Self { partitioning: Arc::new(partitioning), ..self }
    }

    /// The partition columns whose values follow from the key.
    fn key_partitions(&self) -> impl Iterator<Item = &PartitionColumn> {
        self.partitioning.columns.iter().filter(|column| self.names().any(|name| name == column.by.column))
    }

    /// The bounds of the first key column, if it is a partition column and `add` has a value of it.
    pub fn partition_range(&self, add: &Add) -> Option<KeyRange> {
        let value = self.partitioning.column(self.names().next()?)?.key_of_file(add)?;
        self.ranges(&value, &value).ok()?.pop()?
    }

    /// In which partition the file is, as far as it follows from the key.
    pub fn partition_of_file(&self, add: &Add) -> Option<KeyPartition> {
        self.key_partitions().map(|column| column.text_of_file(add)).collect()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// The key columns that data files hold: those that the table is divided by are in the log alone.
    pub fn stored_names(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| self.partitioning.column(name).is_none())
    }

    /// Whether statistics can say anything about the first key column. Floats have values that statistics
    /// leave out (NaN) or mix up (-0.0).
    pub fn has_ranges(&self) -> bool {
        !self.columns.first().is_some_and(|first| first.data_type.is_floating())
    }

    /// The ranges between `mins[i]` and `maxs[i]` of the first key column; `None` where a bound is null.
    pub fn ranges(&self, mins: &ArrayRef, maxs: &ArrayRef) -> Result<Vec<Option<KeyRange>>, LakeError> {
        let wanted = if self.has_ranges() { self.columns.first() } else { None };
        let Some(first) = wanted else { return Ok(vec![None; mins.len()]) };
        let failed = LakeError::arrow(&self.table, "compare statistics of the key");
        let (mins, maxs) =
            (cast(mins, &first.data_type).map_err(&failed)?, cast(maxs, &first.data_type).map_err(&failed)?);
        let known = |index: usize| mins.is_valid(index) && maxs.is_valid(index);
        match &self.order {
            Order::Integer => {
                let (low, high) = (self.integers(&mins)?, self.integers(&maxs)?);
                let range = |index| known(index).then(|| KeyRange::Integer(low.value(index), high.value(index)));
                Ok((0..mins.len()).map(range).collect())
            }
            Order::Bytes => {
                let (low, high) = (self.bytes(&mins)?, self.bytes(&maxs)?);
                let range =
                    |index| known(index).then(|| KeyRange::Encoded(low.value(index).into(), high.value(index).into()));
                Ok((0..mins.len()).map(range).collect())
            }
            Order::Encoded { first, .. } => {
                let low = first.convert_columns(std::slice::from_ref(&mins)).map_err(&failed)?;
                let high = first.convert_columns(std::slice::from_ref(&maxs)).map_err(&failed)?;
                let range = |index| {
                    known(index)
                        .then(|| KeyRange::Encoded(low.row(index).as_ref().into(), high.row(index).as_ref().into()))
                };
                Ok((0..mins.len()).map(range).collect())
            }
        }
    }

    /// The rows among `columns` (the key columns, in key order) whose key is in `keys`.
    pub fn matches(&self, keys: &KeySet, columns: &[ArrayRef]) -> Result<Vec<Match>, LakeError> {
        let failed = LakeError::arrow(&self.table, "compare keys");
        let typed = columns.iter().zip(&self.columns).map(|(array, column)| cast(array, &column.data_type));
        let columns = typed.collect::<Result<Vec<_>, _>>().map_err(&failed)?;
        let mut found = Vec::new();
        match (&self.order, &keys.keys, columns.as_slice()) {
            (Order::Integer, Keys::Integer(keys), [column]) => {
                let values = self.integers(column)?;
                intersect(keys.len(), |i| keys[i], values.len(), |i| values.value(i), &mut found);
                // A null's slot holds an arbitrary number.
                found.retain(|hit: &Match| values.is_valid(hit.row));
            }
            (Order::Bytes, Keys::Encoded(keys), [column]) => {
                let values = self.bytes(column)?;
                intersect(keys.ends.len(), |i| keys.get(i), values.len(), |i| values.value(i), &mut found);
                found.retain(|hit: &Match| values.is_valid(hit.row));
            }
            (Order::Encoded { all, .. }, Keys::Encoded(keys), columns) => {
                let rows = all.convert_columns(columns).map_err(&failed)?;
                intersect(keys.ends.len(), |i| keys.get(i), rows.num_rows(), |i| rows.row(i).data(), &mut found);
            }
            _ => return Err(self.broken("keys of one order were compared in another")),
        }
        Ok(found)
    }

    fn integers(&self, array: &ArrayRef) -> Result<Int64Array, LakeError> {
        use arrow::array::AsArray;
        let numbers = cast(array, &DataType::Int64).map_err(LakeError::arrow(&self.table, "read keys"))?;
        Ok(numbers.as_primitive::<Int64Type>().clone())
    }

    fn bytes(&self, array: &ArrayRef) -> Result<BinaryArray, LakeError> {
        use arrow::array::AsArray;
        let bytes = cast(array, &DataType::Binary).map_err(LakeError::arrow(&self.table, "read keys"))?;
        Ok(bytes.as_binary::<i32>().clone())
    }

    fn broken(&self, what: &str) -> LakeError {
        LakeError::Changes { table: self.table.clone(), what: what.to_string() }
    }
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, _)
    )
}

fn all_columns_converter(table: &TableId, columns: &[Column]) -> Result<RowConverter, LakeError> {
    let schema = TableSchema::new(table.clone(), columns.to_vec(), (0..columns.len()).collect());
    key_converter(&schema).map_err(LakeError::batch(table))
}

/// Collects the keys of slices.
pub(in crate::lake) struct KeySetBuilder {
    space: Arc<KeySpace>,
    keys: Keys,
    deleted: BooleanBufferBuilder,
    partitions: Option<HashSet<KeyPartition>>,
    partitions_bytes: usize,
}

impl KeySetBuilder {
    pub fn new(space: Arc<KeySpace>) -> Self {
        let keys = match &space.order {
            Order::Integer => Keys::Integer(Vec::new()),
            Order::Bytes | Order::Encoded { .. } => Keys::Encoded(EncodedKeys::default()),
        };
        let partitions = space.key_partitions().next().map(|_| HashSet::new());
        Self { space, keys, deleted: BooleanBufferBuilder::new(0), partitions, partitions_bytes: 0 }
    }

    /// Adds the keys of the next slice; `key` are the positions of the key columns in its rows.
    ///
    /// # Errors
    /// [`LakeError::Changes`] if a key is null, or does not come after the key before it.
    pub fn push(&mut self, slice: &KeyedSlice, key: &[usize]) -> Result<(), LakeError> {
        if slice.deleted.len() != slice.rows.num_rows() || slice.deleted.null_count() > 0 {
            return Err(self.space.broken("a slice does not say of each row whether it is deleted"));
        }
        if key.iter().any(|index| slice.rows.column(*index).null_count() > 0) {
            return Err(self.space.broken("a key column is null"));
        }
        let ascending = match (&self.space.order, &mut self.keys, key) {
            (_, Keys::Integer(keys), [only]) => {
                let before = keys.len();
                keys.extend_from_slice(self.space.integers(slice.rows.column(*only))?.values());
                keys[before.saturating_sub(1)..].is_sorted_by(|a, b| a < b)
            }
            (order, Keys::Encoded(keys), [first, ..]) => {
                let before = keys.ends.len();
                if matches!(order, Order::Bytes) {
                    self.space.bytes(slice.rows.column(*first))?.iter().flatten().for_each(|key| keys.push(key));
                } else {
                    slice.keys.iter().for_each(|row| keys.push(row.as_ref()));
                }
                (before.max(1)..keys.ends.len()).all(|index| keys.get(index - 1) < keys.get(index))
            }
            _ => return Err(self.space.broken("a key has more columns than the table's key")),
        };
        self.push_deleted(&slice.deleted);
        self.push_partitions(&slice.rows)?;
        if ascending && self.deleted.len() == self.len() {
            return Ok(());
        }
        Err(self.space.broken("keys are not unique and ascending"))
    }

    fn push_deleted(&mut self, deleted: &BooleanArray) {
        deleted.values().iter().for_each(|flag| self.deleted.append(flag));
    }

    fn push_partitions(&mut self, rows: &RecordBatch) -> Result<(), LakeError> {
        let Some(partitions) = &mut self.partitions else { return Ok(()) };
        let values = self.space.partitioning.values(self.space.key_partitions(), rows)?;
        for row in 0..rows.num_rows() {
            let value = |column: &StringArray| column.is_valid(row).then(|| column.value(row).to_string());
            let partition: KeyPartition = values.iter().map(value).collect();
            let bytes = partition.iter().flatten().map(String::len).sum::<usize>() + size_of_val(&*partition);
            if partitions.insert(partition) {
                self.partitions_bytes += bytes;
            }
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// What the keys hold in memory.
    pub fn bytes(&self) -> usize {
        let keys = match &self.keys {
            Keys::Integer(keys) => keys.capacity() * size_of::<i64>(),
            Keys::Encoded(keys) => keys.bytes.capacity() + keys.ends.capacity() * size_of::<usize>(),
        };
        keys + self.partitions_bytes
    }

    pub fn finish(mut self) -> KeySet {
        let is_text = matches!(self.space.order, Order::Bytes);
        KeySet { keys: self.keys, deleted: self.deleted.finish(), is_text, partitions: self.partitions }
    }
}

impl Keys {
    fn len(&self) -> usize {
        match self {
            Self::Integer(keys) => keys.len(),
            Self::Encoded(keys) => keys.ends.len(),
        }
    }
}

impl EncodedKeys {
    /// Keys in any order, each once.
    fn sorted<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let sorted: BTreeSet<&[u8]> = keys.collect();
        let mut all = Self::default();
        sorted.into_iter().for_each(|key| all.push(key));
        all
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// The first index whose key is not below `bound`.
    fn lower_bound(&self, bound: &[u8]) -> usize {
        partition_point(self.ends.len(), |index| self.get(index) < bound)
    }
}

impl KeySet {
    /// The keys that `columns` hold, row by row, in any order: the columns of the key, with no null.
    pub fn of_values(space: &KeySpace, columns: &[ArrayRef]) -> Result<Self, LakeError> {
        let failed = LakeError::arrow(&space.table, "encode keys");
        let typed = columns.iter().zip(&space.columns).map(|(array, column)| cast(array, &column.data_type));
        let columns = typed.collect::<Result<Vec<_>, _>>().map_err(&failed)?;
        let keys = match (&space.order, columns.as_slice()) {
            (Order::Integer, [only]) => {
                let mut keys = space.integers(only)?.values().to_vec();
                keys.sort_unstable();
                keys.dedup();
                Keys::Integer(keys)
            }
            (Order::Bytes, [only]) => Keys::Encoded(EncodedKeys::sorted(space.bytes(only)?.iter().flatten())),
            (Order::Encoded { all, .. }, columns) => {
                let rows = all.convert_columns(columns).map_err(&failed)?;
                Keys::Encoded(EncodedKeys::sorted(rows.iter().map(|row| row.data())))
            }
            _ => return Err(space.broken("a key has more columns than the table's key")),
        };
        let deleted = BooleanBuffer::new_unset(keys.len());
        Ok(Self { keys, deleted, is_text: matches!(space.order, Order::Bytes), partitions: None })
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// A key that is a whole number.
    pub fn integer(&self, key: usize) -> Option<i64> {
        match &self.keys {
            Keys::Integer(keys) => keys.get(key).copied(),
            Keys::Encoded(_) => None,
        }
    }

    /// A key that is one text, or bytes.
    pub fn text(&self, key: usize) -> Option<&[u8]> {
        match &self.keys {
            Keys::Encoded(keys) if self.is_text && key < keys.ends.len() => Some(keys.get(key)),
            _ => None,
        }
    }

    /// The keys that lie in the range, by number.
    pub fn within(&self, range: Option<&KeyRange>) -> Range<usize> {
        match (&self.keys, range) {
            (Keys::Integer(keys), Some(KeyRange::Integer(min, max))) => {
                let first = keys.partition_point(|key| key < min);
                first..first.max(keys.partition_point(|key| key <= max))
            }
            (Keys::Encoded(keys), Some(KeyRange::Encoded(min, max))) => {
                let first = keys.lower_bound(min);
                // A key starts with the first column's bytes; only those are compared with the upper bound.
                let is_in = |key: usize| keys.get(key).iter().take(max.len()).le(max.iter());
                first..first.max(partition_point(keys.ends.len(), is_in))
            }
            _ => 0..self.len(),
        }
    }

    /// Whether any key lies in the partition.
    pub fn touches_partition(&self, partition: &KeyPartition) -> bool {
        self.partitions.as_ref().is_none_or(|partitions| partitions.contains(partition))
    }

    /// Whether any key lies in the range.
    pub fn touches(&self, range: &KeyRange) -> bool {
        match (&self.keys, range) {
            (Keys::Integer(keys), KeyRange::Integer(min, max)) => {
                let first = keys.partition_point(|key| key < min);
                keys.get(first).is_some_and(|key| key <= max)
            }
            (Keys::Encoded(keys), KeyRange::Encoded(min, max)) => {
                let first = keys.lower_bound(min);
                // A key starts with the first column's bytes; only those are compared with the upper bound.
                first < keys.ends.len() && keys.get(first).iter().take(max.len()).le(max.iter())
            }
            _ => true,
        }
    }
}

/// Finds the pairs of equal values: `key` ascending and unique, `value` in any order, fastest when ascending.
fn intersect<T: Ord>(
    keys: usize,
    key: impl Fn(usize) -> T,
    values: usize,
    value: impl Fn(usize) -> T,
    found: &mut Vec<Match>,
) {
    if keys == 0 || values == 0 {
        return;
    }
    if (1..values).all(|index| value(index - 1) <= value(index)) {
        return intersect_sorted(keys, key, values, value, found);
    }
    for row in 0..values {
        let wanted = value(row);
        let index = partition_point(keys, |index| key(index) < wanted);
        if index < keys && key(index) == wanted {
            found.push(Match { row, key: index });
        }
    }
}

/// Walks both sides, galloping over what the other side does not have.
fn intersect_sorted<T: Ord>(
    keys: usize,
    key: impl Fn(usize) -> T,
    values: usize,
    value: impl Fn(usize) -> T,
    found: &mut Vec<Match>,
) {
    let (mut k, mut v) = (0, 0);
    while k < keys && v < values {
        match key(k).cmp(&value(v)) {
            std::cmp::Ordering::Less => k = gallop(k, keys, |index| key(index) < value(v)),
            std::cmp::Ordering::Greater => v = gallop(v, values, |index| value(index) < key(k)),
            std::cmp::Ordering::Equal => {
                found.push(Match { row: v, key: k });
                v += 1;
            }
        }
    }
}

/// The first index from `start` on for which `below` no longer holds, at most `end`; `below` holds at `start`.
pub(super) fn gallop(start: usize, end: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (start, 1);
    while low + step < end && below(low + step) {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(end);
    low + 1 + partition_point(high - low - 1, |offset| below(low + 1 + offset))
}

fn partition_point(length: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, length);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
