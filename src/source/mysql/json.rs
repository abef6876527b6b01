//! MySQL's binary JSON, written as the text that the server prints for it.
//!
//! The format is the one that MySQL's source documents in `sql-common/json_binary.h`: a type byte, then the value.
//! Objects and arrays begin with the number of their elements and their size, followed by the places of keys and
//! values, counted from their own first byte; small numbers stand in place of an offset.

mod number;
mod opaque;
mod patch;

#[cfg(test)]
mod tests;

pub use patch::write_patch;

/// The server's own limit of nesting (JSON_DOCUMENT_MAX_DEPTH); deeper documents cannot be stored.
const DEPTH_MAX: usize = 100;

/// Why bytes are not a JSON document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("JSON document of {length} bytes: {problem} at byte {at}")]
    Corrupt { length: usize, at: usize, problem: &'static str },
}

/// Appends the document's text to `out`: exactly what `CAST(j AS CHAR)` gives on the server. `bytes` is the value as
/// the log holds it, after its length. No bytes at all are the JSON `null`, as the server itself takes them.
///
/// # Errors
/// If the bytes are no JSON document. `out` may then hold part of it.
pub fn write_text(bytes: &[u8], out: &mut String) -> Result<(), JsonError> {
    let Some((kind, value)) = bytes.split_first() else {
        out.push_str("null");
        return Ok(());
    };
    let mut writer = Writer { bytes, out, unclaimed: value.len() };
    writer.value(*kind, Region { start: 1, end: bytes.len() }, 0)
}

/// A part of the document, by offsets from its first byte.
#[derive(Clone, Copy)]
struct Region {
    start: usize,
    end: usize,
}

/// Type bytes.
const SMALL_OBJECT: u8 = 0x00;
const LARGE_OBJECT: u8 = 0x01;
const SMALL_ARRAY: u8 = 0x02;
const LARGE_ARRAY: u8 = 0x03;
const LITERAL: u8 = 0x04;
const INT16: u8 = 0x05;
const UINT16: u8 = 0x06;
const INT32: u8 = 0x07;
const UINT32: u8 = 0x08;
const INT64: u8 = 0x09;
const UINT64: u8 = 0x0A;
const DOUBLE: u8 = 0x0B;
const STRING: u8 = 0x0C;
const OPAQUE: u8 = 0x0F;

struct Writer<'a> {
    bytes: &'a [u8],
    out: &'a mut String,
    /// The bytes that no value has taken yet. The parts of a document never overlap, so this never runs out, unless
    /// the document lies to make its text grow without end.
    unclaimed: usize,
}

type Outcome<T = ()> = Result<T, JsonError>;

impl<'a> Writer<'a> {
    fn corrupt(&self, at: usize, problem: &'static str) -> JsonError {
        JsonError::Corrupt { length: self.bytes.len(), at, problem }
    }

    /// The `length` bytes at `at`, which must lie inside `region`.
    fn peek(&self, region: Region, at: usize, length: usize) -> Outcome<&'a [u8]> {
        let end = at.checked_add(length).filter(|end| region.start <= at && *end <= region.end);
        let bytes = end.and_then(|end| self.bytes.get(at..end));
        bytes.ok_or_else(|| self.corrupt(at, "a value reaches beyond its end"))
    }

    /// The same; the bytes belong to one value.
    fn take(&mut self, region: Region, at: usize, length: usize) -> Outcome<&'a [u8]> {
        let bytes = self.peek(region, at, length)?;
        let left = self.unclaimed.checked_sub(length);
        self.unclaimed = left.ok_or_else(|| self.corrupt(at, "values overlap"))?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, region: Region, at: usize) -> Outcome<[u8; N]> {
        let bytes = self.take(region, at, N)?;
        bytes.try_into().map_err(|_| self.corrupt(at, "a number is cut off"))
    }

    /// Writes the value at the start of `region`.
    fn value(&mut self, kind: u8, region: Region, depth: usize) -> Outcome {
        let at = region.start;
        match kind {
            SMALL_OBJECT => self.container(Shape { large: false, object: true }, region, depth),
            LARGE_OBJECT => self.container(Shape { large: true, object: true }, region, depth),
            SMALL_ARRAY => self.container(Shape { large: false, object: false }, region, depth),
            LARGE_ARRAY => self.container(Shape { large: true, object: false }, region, depth),
            LITERAL => {
                let [literal] = self.array(region, at)?;
                self.literal(literal, at)
            }
            INT16 => self.array(region, at).map(|bytes| self.number(i16::from_le_bytes(bytes))),
            UINT16 => self.array(region, at).map(|bytes| self.number(u16::from_le_bytes(bytes))),
            INT32 => self.array(region, at).map(|bytes| self.number(i32::from_le_bytes(bytes))),
            UINT32 => self.array(region, at).map(|bytes| self.number(u32::from_le_bytes(bytes))),
            INT64 => self.array(region, at).map(|bytes| self.number(i64::from_le_bytes(bytes))),
            UINT64 => self.array(region, at).map(|bytes| self.number(u64::from_le_bytes(bytes))),
            DOUBLE => {
                let number = f64::from_le_bytes(self.array(region, at)?);
                number::write_double(number, self.out).ok_or_else(|| self.corrupt(at, "a double is no number"))
            }
            STRING => self.string(region),
            OPAQUE => self.opaque(region),
            _ => Err(self.corrupt(at, "unknown type of a value")),
        }
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        number::push(self.out, number);
    }

    fn literal(&mut self, literal: u8, at: usize) -> Outcome {
        self.out.push_str(match literal {
            0 => "null",
            1 => "true",
            2 => "false",
            _ => return Err(self.corrupt(at, "unknown literal")),
        });
        Ok(())
    }

    fn string(&mut self, region: Region) -> Outcome {
        let text = self.sized(region)?;
        self.quoted(text, region.start)
    }

    fn quoted(&mut self, text: &[u8], at: usize) -> Outcome {
        let text = std::str::from_utf8(text).map_err(|_| self.corrupt(at, "a string is not UTF-8"))?;
        write_quoted(text, self.out);
        Ok(())
    }

    /// The bytes after a length at the start of `region`. The length has 7 bits a byte, the lowest first; all bytes
    /// but the last have the highest bit set.
    fn sized(&mut self, region: Region) -> Outcome<&'a [u8]> {
        /// Of the length: 32 bits need no more.
        const BYTES_MAX: usize = 5;
        let mut length = 0_u64;
        for index in 0..BYTES_MAX {
            let at = region.start + index;
            let [byte] = self.array(region, at)?;
            length |= u64::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                let length = usize::try_from(length).map_err(|_| self.corrupt(at, "a length is too large"))?;
                return self.take(region, at + 1, length);
            }
        }
        Err(self.corrupt(region.start, "a length has no end"))
    }

    fn opaque(&mut self, region: Region) -> Outcome {
        let [field_type] = self.array(region, region.start)?;
        let value = self.sized(Region { start: region.start + 1, ..region })?;
        opaque::write(field_type, value, self.out)
            .ok_or_else(|| self.corrupt(region.start, "a decimal or a time has another form"))
    }
}

/// The four forms of objects and arrays.
#[derive(Clone, Copy)]
struct Shape {
    /// Offsets and counts have four bytes, not two.
    large: bool,
    object: bool,
}

impl Shape {
    fn offset_size(self) -> usize {
        if self.large { 4 } else { 2 }
    }

    /// The offset of a key and its length, which always has two bytes.
    fn key_entry_size(self) -> usize {
        if self.object { self.offset_size() + 2 } else { 0 }
    }

    fn value_entry_size(self) -> usize {
        1 + self.offset_size()
    }

    fn is_inlined(self, kind: u8) -> bool {
        matches!(kind, LITERAL | INT16 | UINT16) || (self.large && matches!(kind, INT32 | UINT32))
    }
}

impl Writer<'_> {
    fn container(&mut self, shape: Shape, region: Region, depth: usize) -> Outcome {
        let start = region.start;
        if depth == DEPTH_MAX {
            return Err(self.corrupt(start, "nested deeper than 100 levels"));
        }
        let count = self.offset(shape, region, start)?;
        let size = self.offset(shape, region, start + shape.offset_size())?;
        let end = start.checked_add(size).filter(|end| *end <= region.end);
        let end = end.ok_or_else(|| self.corrupt(start, "an object or array is larger than its place"))?;
        let region = Region { start, end };
        let entries = count.checked_mul(shape.key_entry_size() + shape.value_entry_size());
        let entries = entries.ok_or_else(|| self.corrupt(start, "too many elements"))?;
        let first = start + 2 * shape.offset_size();
        self.peek(region, first, entries)?;

        let (open, close) = if shape.object { ('{', '}') } else { ('[', ']') };
        self.out.push(open);
        for index in 0..count {
            if index > 0 {
                self.out.push_str(", ");
            }
            if shape.object {
                self.key(shape, region, first + index * shape.key_entry_size())?;
            }
            let values = first + count * shape.key_entry_size();
            self.element(shape, region, values + index * shape.value_entry_size(), depth)?;
        }
        self.out.push(close);
        Ok(())
    }

    /// Reads a count, a size or an offset.
    fn offset(&mut self, shape: Shape, region: Region, at: usize) -> Outcome<usize> {
        let offset = match shape.large {
            true => u32::from_le_bytes(self.array(region, at)?),
            false => u16::from_le_bytes(self.array(region, at)?).into(),
        };
        usize::try_from(offset).map_err(|_| self.corrupt(at, "an offset is too large"))
    }

    fn key(&mut self, shape: Shape, region: Region, entry: usize) -> Outcome {
        let offset = self.offset(shape, region, entry)?;
        let length = u16::from_le_bytes(self.array(region, entry + shape.offset_size())?);
        let at = region.start + offset;
        let key = self.take(region, at, length.into())?;
        self.quoted(key, at)?;
        self.out.push_str(": ");
        Ok(())
    }

    fn element(&mut self, shape: Shape, region: Region, entry: usize, depth: usize) -> Outcome {
        let [kind] = self.array(region, entry)?;
        if shape.is_inlined(kind) {
            let inlined = Region { start: entry + 1, end: entry + shape.value_entry_size() };
            return self.value(kind, inlined, depth + 1);
        }
        let offset = self.offset(shape, region, entry + 1)?;
        self.value(kind, Region { start: region.start + offset, end: region.end }, depth + 1)
    }
}

/// Writes a string with the escapes that the server uses.
fn write_quoted(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // What is escaped is ASCII, so that everything between is text again.
    while let Some(at) = rest.bytes().position(is_escaped) {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        match from.bytes().next().unwrap_or_default() {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            control => number::push(out, format_args!("\\u{control:04x}")),
        }
        rest = from.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
    out.push('"');
}
