//! What a change does not say of its row.
//!
//! A log need not carry whole rows (MySQL's `binlog_row_image=MINIMAL` and `NOBLOB`, partial JSON): then some columns
//! of an updated row are as they were before, or are told as a change of their old value. Changes that say everything
//! have no gaps, and a batch of them has no [`Gaps`] at all.

/// Where a row with gaps was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Moved {
    /// Under its own key.
    No = 0,
    /// Under another key: that of the row before this one, which is marked [`Moved::Away`].
    Here = 1,
    /// A delete of a key whose row goes on under another.
    Away = 2,
    /// Nowhere: the row was deleted before it was updated, which no sound log says.
    Lost = 3,
    /// Under its own key, but a patch may be in the row already: that was read for a first load after the patch was made, or before.
    Unsettled = 4,
}

impl Moved {
    fn from_u8(value: u8) -> Self {
        [Self::No, Self::Here, Self::Away, Self::Unsettled]
            .into_iter()
            .find(|moved| *moved as u8 == value)
            .unwrap_or(Self::Lost)
    }
}

/// The gaps of one row: for each column whether it is absent or patched, and where the row was.
///
/// Bytes: a bit for each absent column, a bit for each patched column, [`Moved`], the sequence number of the
/// change that moved the row (0 until it is known).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    bytes: Vec<u8>,
}

/// The gaps of the rows of a batch, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gaps {
    columns: usize,
    bytes: Vec<u8>,
}

/// Of a row's gaps, the bytes behind the bits.
const TAIL_BYTES: usize = 9;

fn width(columns: usize) -> usize {
    2 * columns.div_ceil(8) + TAIL_BYTES
}

impl Gap {
    /// No gaps.
    pub fn none(columns: usize) -> Self {
        Self { bytes: vec![0; width(columns)] }
    }

    fn half(&self) -> usize {
        self.bytes.len().saturating_sub(TAIL_BYTES) / 2
    }

    fn bit(&self, from: usize, column: usize) -> bool {
        self.bytes.get(from + column / 8).is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    }

    fn set(&mut self, from: usize, column: usize, value: bool) {
        if let Some(byte) = self.bytes.get_mut(from + column / 8) {
            *byte = if value { *byte | 1 << (column % 8) } else { *byte & !(1 << (column % 8)) };
        }
    }

    /// The column is as it was before; its value here is null.
    pub fn is_absent(&self, column: usize) -> bool {
        self.bit(0, column)
    }

    pub fn set_absent(&mut self, column: usize, value: bool) {
        self.set(0, column, value);
    }

    /// The column's value is a [`patch`](super::json_patch) of the value that it had before.
    pub fn is_patched(&self, column: usize) -> bool {
        self.bit(self.half(), column)
    }

    pub fn set_patched(&mut self, column: usize, value: bool) {
        self.set(self.half(), column, value);
    }

    /// Whether some column's value has to be found elsewhere.
    pub fn is_open(&self) -> bool {
        self.bytes.iter().take(2 * self.half()).any(|byte| *byte != 0)
    }

    pub fn moved(&self) -> Moved {
        Moved::from_u8(self.bytes.get(2 * self.half()).copied().unwrap_or(0))
    }

    pub fn set_moved(&mut self, moved: Moved) {
        let at = 2 * self.half();
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte = moved as u8;
        }
    }

    /// The sequence number of the change that moved the row here.
    pub fn origin(&self) -> u64 {
        self.bytes.last_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub fn set_origin(&mut self, sequence: u64) {
        if let Some(bytes) = self.bytes.last_chunk_mut::<8>() {
            *bytes = sequence.to_le_bytes();
        }
    }

    /// The gap's bytes, as [`Gaps::from_bytes`] takes them row by row.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Gaps {
    /// No rows.
    pub fn new(columns: usize) -> Self {
        Self { columns, bytes: Vec::new() }
    }

    /// Rows as [`Self::bytes`] gave them; `None` if these are no whole rows.
    pub fn from_bytes(columns: usize, bytes: Vec<u8>) -> Option<Self> {
        bytes.len().is_multiple_of(width(columns)).then_some(Self { columns, bytes })
    }

    /// Bytes of one row.
    pub fn row_bytes(columns: usize) -> usize {
        width(columns)
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / width(self.columns)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The gaps of a row.
    pub fn get(&self, row: usize) -> Gap {
        let width = width(self.columns);
        let bytes = self.bytes.get(row * width..(row + 1) * width);
        bytes.map_or_else(|| Gap::none(self.columns), |bytes| Gap { bytes: bytes.to_vec() })
    }

    /// Whether some row was under another key before.
    pub fn has_moved(&self) -> bool {
        let at = width(self.columns) - TAIL_BYTES;
        self.rows().any(|row| row.get(at) == Some(&(Moved::Here as u8)))
    }

    /// Whether some column of some row is a patch.
    pub fn has_patches(&self) -> bool {
        let half = self.columns.div_ceil(8);
        self.rows().any(|row| row.iter().skip(half).take(half).any(|byte| *byte != 0))
    }

    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(width(self.columns))
    }

    pub fn push(&mut self, gap: &Gap) {
        self.bytes.extend_from_slice(&gap.bytes);
    }

    /// Adds rows without gaps until there are `rows`.
    pub fn pad_to(&mut self, rows: usize) {
        let bytes = rows * width(self.columns);
        if bytes > self.bytes.len() {
            self.bytes.resize(bytes, 0);
        }
    }

    /// Forgets all rows from `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        self.bytes.truncate(rows * width(self.columns));
    }

    /// `None` if none of the rows has a gap.
    #[must_use]
    pub fn slice(&self, first_row: usize, rows: usize) -> Option<Self> {
        let width = width(self.columns);
        let bytes = self.bytes.get(first_row * width..(first_row + rows) * width)?;
        let sliced = || Self { columns: self.columns, bytes: bytes.to_vec() };
        bytes.iter().any(|byte| *byte != 0).then(sliced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_columns_and_places_stay_apart() {
        let mut gap = Gap::none(9);
        gap.set_absent(8, true);
        gap.set_patched(0, true);
        gap.set_moved(Moved::Here);
        gap.set_origin(u64::MAX);
        let absent: Vec<bool> = (0..9).map(|column| gap.is_absent(column)).collect();
        let patched: Vec<bool> = (0..9).map(|column| gap.is_patched(column)).collect();
        assert_eq!((absent.iter().filter(|is| **is).count(), absent[8]), (1, true));
        assert_eq!((patched.iter().filter(|is| **is).count(), patched[0]), (1, true));
        assert_eq!((gap.moved(), gap.origin(), gap.is_open()), (Moved::Here, u64::MAX, true));
        gap.set_absent(8, false);
        gap.set_patched(0, false);
        assert!(!gap.is_open());
    }

    #[test]
    fn patches_and_moves_are_found_among_other_rows() {
        let mut gaps = Gaps::new(9);
        let (mut absent, mut away) = (Gap::none(9), Gap::none(9));
        absent.set_absent(8, true);
        away.set_moved(Moved::Away);
        gaps.push(&absent);
        gaps.push(&away);
        assert!(!gaps.has_moved() && !gaps.has_patches());
        let (mut patched, mut here) = (gaps.clone(), gaps.clone());
        absent.set_patched(8, true);
        patched.push(&absent);
        assert!(patched.has_patches() && !patched.has_moved());
        away.set_moved(Moved::Here);
        here.push(&away);
        assert!(here.has_moved() && !here.has_patches());
    }

    #[test]
    fn rows_without_gaps_are_filled_in() {
        let mut gaps = Gaps::new(3);
        gaps.pad_to(2);
        let mut gap = Gap::none(3);
        gap.set_absent(1, true);
        gaps.push(&gap);
        gaps.pad_to(5);
        assert_eq!((gaps.len(), gaps.get(2), gaps.get(4)), (5, gap.clone(), Gap::none(3)));
        assert_eq!(gaps.slice(3, 2), None);
        assert_eq!(gaps.slice(1, 2).map(|part| (part.len(), part.get(1))), Some((2, gap)));
        gaps.truncate(2);
        assert_eq!(gaps.len(), 2);
    }
}
