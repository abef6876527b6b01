//! Row images that do not have every column whole: `binlog_row_image=MINIMAL` and `NOBLOB`, MariaDB's `FULL_NODUP`,
//! and partial JSON.
//!
//! A column that the new image lacks is as the old image has it, and where that lacks it too, as it was before: a gap. In
//! an inserted row it has its default. WL#2955 of MySQL and `Rows_log_event` describe partial JSON: before the new image
//! stand the options, and with them a bit for each JSON column of the table.

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options, interleave};

use super::RowBuffer;
use crate::change::{Gap, Gaps, Moved, Operation, json_patch};
use crate::source::mysql::binlog::reader::{Malformed, Reader};
use crate::source::mysql::binlog::rows::{RowsColumns, RowsFormat, RowsKind};
use crate::source::mysql::binlog::table_map::bit;
use crate::source::mysql::binlog::wire::code;
use crate::source::mysql::column_type::{LeftOut, split_left_out};
use crate::source::mysql::json;

/// Of the options before a new image: bits follow that say which JSON columns are changes of the old documents.
const PARTIAL_JSON: u64 = 1;

/// One value of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell<'a> {
    Absent,
    Null,
    Value(&'a [u8]),
    /// What changes in a JSON document.
    Patch(&'a [u8]),
}

/// What rows get in the columns that their inserts leave out.
#[derive(Default)]
pub(super) struct Defaults {
    /// By column; empty until images lack some.
    columns: Vec<Default>,
    /// Rows and columns whose value is still to be set.
    due: Vec<(usize, usize)>,
}

enum Default {
    Unknown,
    Null,
    Computed,
    /// An array of one value.
    Value(ArrayRef),
}

impl Defaults {
    pub fn truncate(&mut self, rows: usize) {
        self.due.retain(|(row, _)| *row < rows);
    }

    /// Sets what is due, and forgets it.
    pub fn set(&mut self, arrays: &mut [ArrayRef]) -> Result<(), Malformed> {
        let due = std::mem::take(&mut self.due);
        for (column, array) in arrays.iter_mut().enumerate() {
            let Some(Default::Value(value)) = self.columns.get(column) else { continue };
            let rows: Vec<usize> = due.iter().filter(|(_, wanted)| *wanted == column).map(|(row, _)| *row).collect();
            if rows.is_empty() {
                continue;
            }
            let mut picks: Vec<(usize, usize)> = (0..array.len()).map(|row| (0, row)).collect();
            for row in rows {
                if let Some(pick) = picks.get_mut(row) {
                    *pick = (1, 0);
                }
            }
            *array = interleave(&[array.as_ref(), value.as_ref()], &picks)
                .map_err(|error| Malformed::value(format!("a default does not fit its column: {error}")))?;
        }
        Ok(())
    }
}

impl RowBuffer {
    /// Why images of these columns say too little, in words for the table's owner; `None` if they say enough.
    pub fn image_fault(&mut self, kind: RowsKind, columns: &RowsColumns) -> Option<String> {
        self.learn_defaults();
        let name = |index: usize| self.schema.columns.get(index).map_or("", |column| column.name.as_str());
        let lacks = |present: &[bool], index: usize| present.get(index) == Some(&false);
        if let Some(index) = self.schema.key.iter().find(|index| lacks(&columns.before, **index)) {
            let name = name(*index);
            return Some(format!(
                "the log of its changes lacks key column {name}, for it is no part of the table's own primary key: \
                 {FULL_ADVICE}"
            ));
        }
        for (index, default) in self.defaults.columns.iter().enumerate().filter(|(i, _)| lacks(&columns.after, *i)) {
            let name = name(index);
            match default {
                Default::Computed => {
                    return Some(format!("the log lacks the values of the virtual column {name}: {FULL_ADVICE}"));
                }
                Default::Unknown if kind == RowsKind::Write => {
                    return Some(format!(
                        "the log of its inserts lacks column {name}, and what its default was is not known: {FULL_ADVICE}"
                    ));
                }
                _ => {}
            }
        }
        None
    }

    fn learn_defaults(&mut self) {
        if !self.defaults.columns.is_empty() {
            return;
        }
        let default = |column: &crate::schema::Column| match split_left_out(&column.source_type).1 {
            LeftOut::Unknown => Default::Unknown,
            LeftOut::Null => Default::Null,
            LeftOut::Computed => Default::Computed,
            LeftOut::Value(text) => {
                let strict = CastOptions { safe: false, ..CastOptions::default() };
                let value = cast_with_options(&StringArray::from(vec![text]), &column.data_type, &strict);
                value.map_or(Default::Unknown, Default::Value)
            }
        };
        self.defaults.columns = self.schema.columns.iter().map(default).collect();
    }

    /// As [`RowBuffer::append`], for images that [`RowBuffer::image_fault`] finds enough.
    ///
    /// # Errors
    /// As there.
    pub fn append_partial(
        &mut self,
        format: RowsFormat,
        columns: &RowsColumns,
        rows: &mut Reader<'_>,
        budget_bytes: usize,
    ) -> Result<usize, Malformed> {
        let mut used = 0;
        let row_bytes = self.bytes_per_row + Gaps::row_bytes(self.columns.len());
        while !rows.is_empty() && used < budget_bytes {
            let left = rows.rest().len();
            match format.kind {
                RowsKind::Write => self.insert_partial(columns, rows)?,
                RowsKind::Update => self.update_partial(format, columns, rows)?,
                RowsKind::Delete => {
                    let before = self.image(rows, &columns.before, &[])?;
                    self.append_key_cells(&before)?;
                    self.operations.push(Operation::Delete);
                }
            }
            used += row_bytes + left - rows.rest().len();
        }
        Ok(used)
    }

    fn insert_partial(&mut self, columns: &RowsColumns, rows: &mut Reader<'_>) -> Result<(), Malformed> {
        let image = self.image(rows, &columns.after, &[])?;
        let row = self.operations.len();
        for (index, cell) in image.iter().enumerate() {
            if *cell == Cell::Absent && matches!(self.defaults.columns.get(index), Some(Default::Value(_))) {
                self.defaults.due.push((row, index));
            }
            self.append_cell(index, *cell, Cell::Null)?;
        }
        self.operations.push(Operation::Insert);
        Ok(())
    }

    fn update_partial(
        &mut self,
        format: RowsFormat,
        columns: &RowsColumns,
        rows: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let before = self.image(rows, &columns.before, &[])?;
        let options = if format.partial_json { rows.lenenc()? } else { 0 };
        let documents = self.columns.iter().filter(|column| column.code == code::JSON).count();
        let patches = if options & PARTIAL_JSON == 0 { &[][..] } else { rows.take(documents.div_ceil(8))? };
        let after = self.image(rows, &columns.after, patches)?;
        let mut gap = Gap::none(self.columns.len());
        for (index, (old, new)) in before.iter().zip(&after).enumerate() {
            match (old, new) {
                (Cell::Absent, Cell::Absent) => gap.set_absent(index, true),
                (Cell::Absent, Cell::Patch(_)) => gap.set_patched(index, true),
                _ => {}
            }
        }
        let changes = |index: &usize| match (before.get(*index), after.get(*index)) {
            (_, Some(Cell::Absent)) => false,
            (old, new) => old != new,
        };
        let is_moved = self.schema.key.iter().any(changes);
        if is_moved {
            self.append_key_cells(&before)?;
            self.operations.push(Operation::Delete);
            if gap.is_open() {
                let mut away = Gap::none(self.columns.len());
                away.set_moved(Moved::Away);
                self.push_gap(&away);
                gap.set_moved(Moved::Here);
            }
        }
        for (index, (old, new)) in before.iter().zip(&after).enumerate() {
            self.append_cell(index, *new, *old)?;
        }
        self.operations.push(if is_moved { Operation::Insert } else { Operation::Update });
        if gap.is_open() {
            self.push_gap(&gap);
        }
        Ok(())
    }

    /// The gaps of the row whose operation has just been added.
    fn push_gap(&mut self, gap: &Gap) {
        let gaps = self.gaps.get_or_insert_with(|| Gaps::new(self.columns.len()));
        gaps.pad_to(self.operations.len().saturating_sub(1));
        gaps.push(gap);
    }

    /// Reads one image that has the columns `present`, of which `patches` says which JSON columns are patches.
    fn image<'a>(&self, rows: &mut Reader<'a>, present: &[bool], patches: &[u8]) -> Result<Vec<Cell<'a>>, Malformed> {
        let count = present.iter().filter(|present| **present).count();
        let nulls = rows.take(count.div_ceil(8))?;
        let (mut place, mut document) = (0, 0);
        let mut cells = Vec::with_capacity(present.len());
        for (column, is_present) in self.columns.iter().zip(present) {
            let is_patch = column.code == code::JSON && bit(patches, document);
            document += usize::from(column.code == code::JSON);
            if !is_present {
                cells.push(Cell::Absent);
                continue;
            }
            cells.push(match bit(nulls, place) {
                true => Cell::Null,
                false if is_patch => Cell::Patch(column.take(rows)?),
                false => Cell::Value(column.take(rows)?),
            });
            place += 1;
        }
        Ok(cells)
    }

    /// Appends a value; one that is absent is `old`, or null if that is absent too.
    fn append_cell(&mut self, index: usize, cell: Cell<'_>, old: Cell<'_>) -> Result<(), Malformed> {
        let Some(builder) = self.builders.get_mut(index) else { return Ok(()) };
        match (cell, old) {
            (Cell::Value(value), _) | (Cell::Absent, Cell::Value(value)) => builder.append(value),
            (Cell::Patch(patch), old) => {
                let text = document(patch, old)?;
                builder.append_text(&text)
            }
            (Cell::Null | Cell::Absent, _) => {
                builder.append_null();
                Ok(())
            }
        }
    }

    fn append_key_cells(&mut self, image: &[Cell<'_>]) -> Result<(), Malformed> {
        for (index, cell) in image.iter().enumerate() {
            let is_key = self.is_key.get(index) == Some(&true);
            self.append_cell(index, if is_key { *cell } else { Cell::Null }, Cell::Null)?;
        }
        Ok(())
    }
}

/// The new document, or the patch itself where the old one is not at hand.
fn document(patch: &[u8], old: Cell<'_>) -> Result<String, Malformed> {
    let (mut steps, mut text) = (String::new(), String::new());
    json::write_patch(patch, &mut steps).map_err(|error| Malformed::value(error.to_string()))?;
    let old = match old {
        Cell::Absent => return Ok(steps),
        Cell::Value(old) => old,
        Cell::Null | Cell::Patch(_) => return Err(Malformed::value("a JSON document changes that is not there")),
    };
    json::write_text(old, &mut text).map_err(|error| Malformed::value(error.to_string()))?;
    json_patch::apply(&text, &steps).map_err(|error| Malformed::value(error.to_string()))
}

const FULL_ADVICE: &str = "SET GLOBAL binlog_row_image = FULL (sessions may have a setting of their own), then load the \
                           table again";
