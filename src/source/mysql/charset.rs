//! Character sets of MySQL and MariaDB, turned into UTF-8 as the server's own conversion to `utf8mb4` does it
//! (manual, "Character Sets, Collations, Unicode"): what `SELECT` gives after `SET NAMES utf8mb4`.
//!
//! The tables come from the servers themselves (`tests/scripts/charset_tables.py`). MySQL and MariaDB agree on
//! every code that a column can hold, with these exceptions, which all become `?` here:
//! - bytes from 0x80 on in `ascii`: MySQL gives `?`, MariaDB passes the byte on, which is not UTF-8;
//! - halves of surrogate pairs in `ucs2`: MySQL refuses them, MariaDB writes three bytes that are not UTF-8;
//! - single bytes from 0x80 on in `eucjpms` and `8E A0` in `ujis`, which only MySQL takes for characters, and
//!   which it writes as `?` or as a control character.

mod collation;
mod multi_byte;
mod single_byte;
mod wide;

use multi_byte::MultiByte;
use single_byte::SingleByte;
use wide::Wide;

/// What stands for a byte sequence that has no character, as the server itself writes it.
pub const UNMAPPED: char = '?';

/// A character set of either server. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Charset(Kind);

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// `utf8mb3` and `utf8mb4`; `binary` for ENUM and SET, whose members the servers pass on as they are.
    Utf8 {
        name: &'static str,
        bytes_max: u8,
    },
    Ascii,
    SingleByte(&'static SingleByte),
    MultiByte(&'static MultiByte),
    Wide(Wide),
}

const UTF8: [Kind; 3] = [
    Kind::Utf8 { name: "utf8mb4", bytes_max: 4 },
    Kind::Utf8 { name: "utf8mb3", bytes_max: 3 },
    Kind::Utf8 { name: "binary", bytes_max: 1 },
];

impl Charset {
    /// By the server's name of it (`latin1`, `utf8mb4`, ...; `utf8` is `utf8mb3`), in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("utf8") { "utf8mb3" } else { name };
        all().find(|charset| charset.name().eq_ignore_ascii_case(name))
    }

    /// By the id of one of its collations, as row metadata carries it. The ids of the two servers never contradict
    /// each other.
    pub fn by_collation_id(id: u16) -> Option<Self> {
        collation::charset_name(id).and_then(Self::by_name)
    }

    /// The server's name of it, in lower case.
    pub fn name(&self) -> &'static str {
        match self.0 {
            Kind::Utf8 { name, .. } => name,
            Kind::Ascii => "ascii",
            Kind::SingleByte(charset) => charset.name,
            Kind::MultiByte(charset) => charset.name,
            Kind::Wide(charset) => charset.name(),
        }
    }

    /// The most bytes that one character takes.
    pub fn max_bytes_per_char(&self) -> u8 {
        match self.0 {
            Kind::Utf8 { bytes_max, .. } => bytes_max,
            Kind::Ascii | Kind::SingleByte(_) => 1,
            Kind::MultiByte(charset) => charset.bytes_max,
            Kind::Wide(charset) => charset.bytes_max(),
        }
    }

    /// Whether every valid value is UTF-8 as it stands, so that `str::from_utf8` may replace
    /// [`Self::decode_into`] for values that pass it. Not so for `ascii`: see the module.
    pub fn is_utf8_compatible(&self) -> bool {
        matches!(self.0, Kind::Utf8 { .. })
    }

    /// Appends the text to `out` and returns how many characters or stray bytes of it had no equal. They become
    /// [`UNMAPPED`], or U+FFFD where the server's table says so.
    pub fn decode_into(&self, bytes: &[u8], out: &mut String) -> usize {
        match self.0 {
            Kind::Utf8 { .. } => decode_utf8(bytes, out),
            Kind::Ascii => decode_ascii(bytes, out),
            Kind::SingleByte(charset) => charset.decode_into(bytes, out),
            Kind::MultiByte(charset) => charset.decode_into(bytes, out),
            Kind::Wide(charset) => charset.decode_into(bytes, out),
        }
    }
}

impl PartialEq for Charset {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Charset {}

fn all() -> impl Iterator<Item = Charset> {
    let utf8 = UTF8.into_iter().chain([Kind::Ascii]);
    let single = single_byte::ALL.iter().map(Kind::SingleByte);
    let multi = multi_byte::ALL.iter().map(Kind::MultiByte);
    utf8.chain(single).chain(multi).chain(wide::ALL.map(Kind::Wide)).map(Charset)
}

fn decode_utf8(bytes: &[u8], out: &mut String) -> usize {
    let mut unmapped = 0;
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for _ in chunk.invalid() {
            out.push(UNMAPPED);
            unmapped += 1;
        }
    }
    unmapped
}

fn decode_ascii(bytes: &[u8], out: &mut String) -> usize {
    let mut unmapped = 0;
    let mut rest = bytes;
    while let Some((_, after)) = push_ascii(rest, out).split_first() {
        out.push(UNMAPPED);
        unmapped += 1;
        rest = after;
    }
    unmapped
}

/// Appends the ASCII characters at the start of `bytes` and returns what follows them.
fn push_ascii<'a>(bytes: &'a [u8], out: &mut String) -> &'a [u8] {
    let (plain, rest) = bytes.split_at(encoding_rs::Encoding::ascii_valid_up_to(bytes));
    out.push_str(std::str::from_utf8(plain).unwrap_or_default());
    rest
}

/// Appends what a table says of a code and returns 1 if that is no character of its own.
fn push_mapped(mapped: char, out: &mut String) -> usize {
    out.push(mapped);
    usize::from(matches!(mapped, UNMAPPED | char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests;
