//! The East Asian character sets: the WHATWG tables of `encoding_rs`, changed where the servers' differ.

use std::sync::OnceLock;

use encoding_rs::{BIG5_INIT, EUC_JP_INIT, EUC_KR_INIT, Encoding, GB18030_INIT, GBK_INIT, SHIFT_JIS_INIT};

use super::{UNMAPPED, push_ascii, push_mapped};

mod changes;

#[derive(Debug)]
pub(super) struct MultiByte {
    pub(super) name: &'static str,
    pub(super) bytes_max: u8,
    shape: Shape,
    encoding: &'static Encoding,
    changes: &'static [Change],
    table: OnceLock<Table>,
}

/// How the codes of a character set are cut out of a text. Sets of one shape differ in what the codes mean.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Big5,
    EucJp,
    EucKr,
    Gb18030,
    Gb2312,
    Gbk,
    ShiftJis,
}

/// A difference from the WHATWG table, for well-formed codes in ascending order.
#[derive(Debug)]
enum Change {
    /// The characters of this code and the ones after it.
    Text(u32, &'static str),
    /// The same, for so many characters in their own order from this one on.
    Counted(u32, char, u32),
    /// From the first to the last of these codes there is no character.
    Unmapped(u32, u32),
}

pub(super) static ALL: [MultiByte; 9] = [
    MultiByte::new("big5", 2, Shape::Big5, &BIG5_INIT, changes::BIG5),
    MultiByte::new("cp932", 2, Shape::ShiftJis, &SHIFT_JIS_INIT, &[]),
    MultiByte::new("eucjpms", 3, Shape::EucJp, &EUC_JP_INIT, changes::EUCJPMS),
    MultiByte::new("euckr", 2, Shape::EucKr, &EUC_KR_INIT, &[]),
    MultiByte::new("gb18030", 4, Shape::Gb18030, &GB18030_INIT, changes::GB18030),
    MultiByte::new("gb2312", 2, Shape::Gb2312, &GBK_INIT, changes::GB2312),
    MultiByte::new("gbk", 2, Shape::Gbk, &GBK_INIT, changes::GBK),
    MultiByte::new("sjis", 2, Shape::ShiftJis, &SHIFT_JIS_INIT, changes::SJIS),
    MultiByte::new("ujis", 3, Shape::EucJp, &EUC_JP_INIT, changes::UJIS),
];

impl MultiByte {
    const fn new(
        name: &'static str,
        bytes_max: u8,
        shape: Shape,
        encoding: &'static Encoding,
        changes: &'static [Change],
    ) -> Self {
        Self { name, bytes_max, shape, encoding, changes, table: OnceLock::new() }
    }

    /// A byte that belongs to no code becomes one [`UNMAPPED`].
    pub(super) fn decode_into(&self, bytes: &[u8], out: &mut String) -> usize {
        let table = self.table.get_or_init(|| Table::make(self));
        let mut unmapped = 0;
        let mut rest = push_ascii(bytes, out);
        while !rest.is_empty() {
            let length = self.shape.code_length(rest);
            let (code, after) = rest.split_at(length.unwrap_or(1));
            let mapped = match code {
                _ if length.is_none() => UNMAPPED,
                [_, _, _, _] => self.whatwg(code),
                code => table.get(code),
            };
            unmapped += push_mapped(mapped, out);
            rest = push_ascii(after, out);
        }
        unmapped
    }

    #[cfg(test)]
    pub(super) fn is_well_formed(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(length) = self.shape.code_length(rest) {
            rest = &rest[length..];
        }
        rest.is_empty()
    }

    /// The character of one code by the WHATWG table.
    fn whatwg(&self, code: &[u8]) -> char {
        let text = self.encoding.decode_without_bom_handling_and_without_replacement(code);
        let mut characters = text.as_deref().unwrap_or_default().chars();
        characters.next().filter(|_| characters.next().is_none()).unwrap_or(UNMAPPED)
    }
}

impl Shape {
    /// The length of the code at the start of `bytes`, `None` if none starts there. It is at most the length of `bytes`.
    fn code_length(self, bytes: &[u8]) -> Option<usize> {
        match (self, bytes) {
            (_, [0x00..=0x7F, ..]) => Some(1),
            (Self::ShiftJis, [0xA1..=0xDF, ..]) => Some(1),
            (Self::ShiftJis, [0x81..=0x9F | 0xE0..=0xFC, 0x40..=0x7E | 0x80..=0xFC, ..]) => Some(2),
            (Self::Big5, [0xA1..=0xF9, 0x40..=0x7E | 0xA1..=0xFE, ..]) => Some(2),
            (Self::EucJp, [0xA1..=0xFE, 0xA1..=0xFE, ..] | [0x8E, 0xA1..=0xDF, ..]) => Some(2),
            (Self::EucJp, [0x8F, 0xA1..=0xFE, 0xA1..=0xFE, ..]) => Some(3),
            (Self::EucKr, [0x81..=0xFE, 0x41..=0x5A | 0x61..=0x7A | 0x81..=0xFE, ..]) => Some(2),
            (Self::Gb2312, [0xA1..=0xF7, 0xA1..=0xFE, ..]) => Some(2),
            (Self::Gbk | Self::Gb18030, [0x81..=0xFE, 0x40..=0x7E | 0x80..=0xFE, ..]) => Some(2),
            (Self::Gb18030, [0x81..=0xFE, 0x30..=0x39, 0x81..=0xFE, 0x30..=0x39, ..]) => Some(4),
            _ => None,
        }
    }
}

/// The characters of all codes of up to three bytes. Made at the first use, in some milliseconds.
#[derive(Debug)]
struct Table {
    /// By the byte, from 0x80 on.
    one: Vec<char>,
    /// By both bytes, from 0x8000 on.
    two: Vec<char>,
    /// By the second and third byte; the first is 0x8F. Empty where no such codes are.
    three: Vec<char>,
}

const ONE_FIRST: u32 = 0x80;
const TWO_FIRST: u32 = 0x8000;
const THREE_FIRST: u32 = 0x8F_0000;

impl Table {
    fn make(charset: &MultiByte) -> Self {
        let column = |first: u32, last: u32, length: usize| {
            let mut pending: Box<dyn Iterator<Item = char>> = Box::new(std::iter::empty());
            (first..=last).map(|code| charset.mapped(code, length, &mut pending)).collect::<Vec<_>>()
        };
        Self {
            one: column(ONE_FIRST, 0xFF, 1),
            two: column(TWO_FIRST, 0xFFFF, 2),
            three: if charset.bytes_max == 3 { column(THREE_FIRST, 0x8F_FFFF, 3) } else { Vec::new() },
        }
    }

    fn get(&self, code: &[u8]) -> char {
        let number = code.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let (column, first) = match code.len() {
            1 => (&self.one, ONE_FIRST),
            2 => (&self.two, TWO_FIRST),
            _ => (&self.three, THREE_FIRST),
        };
        let at = number.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| column.get(at)).copied().unwrap_or(UNMAPPED)
    }
}

impl MultiByte {
    /// The character of a code; to be asked in ascending order with one `pending`, which holds what is left of the
    /// change that began before.
    fn mapped(&self, code: u32, length: usize, pending: &mut Box<dyn Iterator<Item = char>>) -> char {
        let bytes = code.to_be_bytes();
        let (_, bytes) = bytes.split_at(bytes.len() - length);
        if self.shape.code_length(bytes) != Some(length) {
            return UNMAPPED;
        }
        for change in self.changes {
            match *change {
                Change::Text(first, text) if first == code => *pending = Box::new(text.chars()),
                Change::Counted(first, character, count) if first == code => {
                    *pending = Box::new((character..).take(count as usize));
                }
                Change::Unmapped(first, last) if (first..=last).contains(&code) => return UNMAPPED,
                _ => {}
            }
        }
        pending.next().unwrap_or_else(|| self.whatwg(bytes))
    }
}
