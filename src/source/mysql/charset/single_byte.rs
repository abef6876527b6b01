//! Character sets of one byte a character.

use std::sync::OnceLock;

use super::{push_ascii, push_mapped};

mod tables;

pub(super) use tables::ALL;

/// Half of the bytes, 0x80 to 0xFF, in rows of 16.
type High = [&'static str; 8];

#[derive(Debug)]
pub(super) struct SingleByte {
    pub(super) name: &'static str,
    high: High,
    /// Bytes below 0x80 that are not ASCII (`swe7` only).
    low: &'static [(u8, char)],
    table: OnceLock<[char; 256]>,
}

impl SingleByte {
    const fn new(name: &'static str, high: High, low: &'static [(u8, char)]) -> Self {
        Self { name, high, low, table: OnceLock::new() }
    }

    pub(super) fn decode_into(&self, bytes: &[u8], out: &mut String) -> usize {
        let table = self.table.get_or_init(|| self.make_table());
        let mut unmapped = 0;
        let mut rest = if self.low.is_empty() { push_ascii(bytes, out) } else { bytes };
        while let Some((byte, after)) = rest.split_first() {
            let mapped = table[usize::from(*byte)];
            // A question mark is itself in every one of these sets.
            unmapped += if *byte == b'?' { push_mapped(mapped, out) - 1 } else { push_mapped(mapped, out) };
            rest = if self.low.is_empty() { push_ascii(after, out) } else { after };
        }
        unmapped
    }

    fn make_table(&self) -> [char; 256] {
        let mut table: [char; 256] = std::array::from_fn(|byte| char::from(byte as u8));
        for (entry, mapped) in table.iter_mut().skip(0x80).zip(self.high.iter().flat_map(|row| row.chars())) {
            *entry = mapped;
        }
        for (byte, mapped) in self.low {
            table[usize::from(*byte)] = *mapped;
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_256_entries() {
        for charset in &ALL {
            assert_eq!(charset.high.map(|row| row.chars().count()), [16; 8], "{}", charset.name);
        }
    }
}
