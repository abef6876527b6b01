//! Puts the changes of one key together where the log left columns out: a column that a change does not have is that
//! of the change before, down to one that has the whole row.
//!
//! A patch of a document of a row that was read for a first load leaves the row unsettled: it may have been read with the patch in it.
//!
//! A key whose row moved to another key keeps, besides its last change, what it was before it moved: the row under
//! the other key may need it ([`super::moved`]).

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::interleave;
use arrow::datatypes::DataType;

use super::BatchError;
use super::held::gather;
use super::sorted::Block;
use crate::change::{Gap, Gaps, Moved, Operation, json_patch};
use crate::schema::TableSchema;

/// A row, by the number of its part and its own in there.
pub(super) type At = (usize, usize);

/// By the number of a picked row the older rows that fill its gaps, the newer first.
pub(super) type Older = BTreeMap<usize, Vec<At>>;

/// What becomes of a row of a sorted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A row of its own.
    Head,
    /// It fills gaps of the head before it.
    Fill,
    /// A newer row of its key says all.
    Drop,
}

/// Walks over rows by key, the newest of each key first.
#[derive(Debug, Default)]
pub(super) struct Walk {
    is_open: bool,
    is_head_next: bool,
}

impl Walk {
    /// `starts` says that the row has another key than the one before, or must not be mixed with it.
    pub fn step(&mut self, starts: bool, operation: Operation, gap: Option<&Gap>) -> Place {
        let is_away = gap.is_some_and(|gap| gap.moved() == Moved::Away);
        let is_partial = gap.is_some_and(|gap| gap.is_open() && gap.moved() == Moved::No);
        let is_open = operation == Operation::Update && is_partial;
        if starts || is_away || self.is_head_next {
            (self.is_open, self.is_head_next) = (is_open, is_away);
            return Place::Head;
        }
        if !self.is_open {
            return Place::Drop;
        }
        self.is_open = is_open;
        Place::Fill
    }
}

/// Rows that blocks are made of.
pub(super) struct Part<'a> {
    pub rows: &'a RecordBatch,
    pub operations: &'a [Operation],
    pub gaps: Option<&'a Gaps>,
    pub sequences: Sequences<'a>,
}

/// The sequence numbers of a part's rows.
pub(super) enum Sequences<'a> {
    From(u64),
    Each(&'a [u64]),
}

impl<'a> Part<'a> {
    pub fn of(block: &'a Block) -> Self {
        Self {
            rows: &block.rows,
            operations: &block.operations,
            gaps: block.gaps.as_ref(),
            sequences: Sequences::Each(&block.sequences),
        }
    }

    fn sequence(&self, row: usize) -> u64 {
        match self.sequences {
            Sequences::From(first) => first + row as u64,
            Sequences::Each(all) => all[row],
        }
    }

    /// The row's gaps; a row that just moved here gets its own number as its origin.
    fn gap(&self, row: usize, columns: usize) -> Gap {
        let mut gap = self.gaps.map_or_else(|| Gap::none(columns), |gaps| gaps.get(row));
        if gap.moved() == Moved::Here && gap.origin() == 0 {
            gap.set_origin(self.sequence(row));
        }
        gap
    }
}

/// The rows `picks` of `parts` as a block, their gaps filled from `older`.
pub(super) fn block(
    schema: &TableSchema,
    parts: &[Part<'_>],
    picks: &[At],
    older: &Older,
) -> Result<Block, BatchError> {
    let batches: Vec<&RecordBatch> = parts.iter().map(|part| part.rows).collect();
    let mut block = Block {
        rows: gather(schema, &batches, picks)?,
        operations: picks.iter().map(|(part, row)| parts[*part].operations[*row]).collect(),
        sequences: picks.iter().map(|(part, row)| parts[*part].sequence(*row)).collect(),
        gaps: None,
    };
    if parts.iter().all(|part| part.gaps.is_none()) {
        return Ok(block);
    }
    let mut fills = Fills { columns: schema.columns.iter().map(|_| Vec::new()).collect() };
    let mut gaps = Gaps::new(schema.columns.len());
    for (index, at) in picks.iter().enumerate() {
        let mut gap = parts[at.0].gap(at.1, schema.columns.len());
        if let Some(older) = older.get(&index) {
            block.operations[index] = fills.fill(parts, (index, *at), older, &mut gap);
        }
        gaps.push(&gap);
    }
    block.rows = fills.apply(schema, &batches, picks, block.rows)?;
    block.gaps = gaps.slice(0, picks.len());
    Ok(block)
}

/// Where the value of a column comes from, if not from its own row.
enum Source {
    Row(At),
    /// Patches, the newest first, of the value of a row; of a value that is not here where there is none.
    Patches(Vec<At>, Option<At>),
}

/// By column, the picked rows whose value comes from elsewhere.
struct Fills {
    columns: Vec<Vec<(usize, Source)>>,
}

impl Fills {
    /// Closes what gaps the older rows can close; gives what the row comes to.
    fn fill(&mut self, parts: &[Part<'_>], (index, at): (usize, At), older: &[At], gap: &mut Gap) -> Operation {
        let mut patches: BTreeMap<usize, Vec<At>> = BTreeMap::new();
        let columns = self.columns.len();
        patches.extend((0..columns).filter(|column| gap.is_patched(*column)).map(|column| (column, vec![at])));
        let mut operation = Operation::Update;
        for from in older {
            let base = parts[from.0].operations[from.1];
            if base == Operation::Delete {
                gap.set_moved(Moved::Lost);
                break;
            }
            let old = parts[from.0].gap(from.1, columns);
            // A row that was read for a first load may have the patch already.
            let is_unsettled = |gap: &Gap, column| base == Operation::Read && gap.is_patched(column);
            let mut is_settled = true;
            for column in 0..columns {
                match is_unsettled(gap, column) {
                    true => is_settled = false,
                    false => self.fill_column(index, column, (*from, &old), gap, &mut patches),
                }
            }
            if base != Operation::Update {
                operation = Operation::Insert;
                gap.set_moved(if is_settled { old.moved() } else { Moved::Unsettled });
                gap.set_origin(old.origin());
            }
        }
        for (column, patches) in patches.into_iter().filter(|(_, patches)| *patches != [at]) {
            self.columns[column].push((index, Source::Patches(patches, None)));
        }
        operation
    }

    fn fill_column(
        &mut self,
        index: usize,
        column: usize,
        (from, old): (At, &Gap),
        gap: &mut Gap,
        patches: &mut BTreeMap<usize, Vec<At>>,
    ) {
        let is_wanted = gap.is_absent(column) || gap.is_patched(column);
        if !is_wanted || old.is_absent(column) {
            return;
        }
        gap.set_absent(column, false);
        if old.is_patched(column) {
            gap.set_patched(column, true);
            patches.entry(column).or_default().push(from);
            return;
        }
        gap.set_patched(column, false);
        let source = match patches.remove(&column) {
            Some(patches) => Source::Patches(patches, Some(from)),
            None => Source::Row(from),
        };
        self.columns[column].push((index, source));
    }

    /// The picked rows with their values from elsewhere.
    fn apply(
        &self,
        schema: &TableSchema,
        batches: &[&RecordBatch],
        picks: &[At],
        rows: RecordBatch,
    ) -> Result<RecordBatch, BatchError> {
        let mut columns = rows.columns().to_vec();
        for (column, sources) in self.columns.iter().enumerate().filter(|(_, sources)| !sources.is_empty()) {
            let mut moved = picks.to_vec();
            for (index, source) in sources {
                if let Source::Row(at) = source {
                    moved[*index] = *at;
                }
            }
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            let array = interleave(&arrays, &moved);
            let array = array.map_err(|source| BatchError::Columns { table: schema.table.clone(), source })?;
            columns[column] = patched(schema, &arrays, array, sources)?;
        }
        RecordBatch::try_new(schema.arrow_schema(), columns)
            .map_err(|source| BatchError::Columns { table: schema.table.clone(), source })
    }
}

/// A column with the documents that patches make.
fn patched(
    schema: &TableSchema,
    arrays: &[&dyn Array],
    array: ArrayRef,
    sources: &[(usize, Source)],
) -> Result<ArrayRef, BatchError> {
    if !sources.iter().any(|(_, source)| matches!(source, Source::Patches(..))) {
        return Ok(array);
    }
    let fail = |what: String| BatchError::Patch { table: schema.table.clone(), what };
    if *array.data_type() != DataType::Utf8 {
        return Err(fail(format!("a column of type {} was patched", array.data_type())));
    }
    let text = |at: &At| {
        let array = arrays[at.0].as_string::<i32>();
        array.is_valid(at.1).then(|| array.value(at.1)).ok_or_else(|| fail("a patch of a null".into()))
    };
    let own = array.as_string::<i32>();
    let mut values: Vec<Option<String>> = own.iter().map(|value| value.map(str::to_string)).collect();
    for (index, source) in sources {
        let Source::Patches(patches, base) = source else { continue };
        let patch = patches.iter().rev().map(text).collect::<Result<String, _>>()?;
        values[*index] = Some(match base {
            Some(base) => json_patch::apply(text(base)?, &patch).map_err(|error| fail(error.to_string()))?,
            None => patch,
        });
    }
    Ok(std::sync::Arc::new(StringArray::from(values)))
}
