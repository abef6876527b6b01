//! Text, binary, ENUM, SET, JSON, geometry, vectors, and MariaDB's addresses and uuids.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Float32Array, ListArray, NullBufferBuilder, StringArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use uuid::Uuid;

use super::{ColumnBuilder, Losses};
use crate::source::mysql::binlog::inflate;
use crate::source::mysql::binlog::reader::{Malformed, Reader};
use crate::source::mysql::binlog::wire::{WireColumn, code};
use crate::source::mysql::charset::Charset;
use crate::source::mysql::column_type::ColumnType;
use crate::source::mysql::json;

/// Most bytes of one column in one array: Arrow's offsets are signed 32-bit numbers.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;

/// Values of any length, one after the other.
struct Values {
    offsets: Vec<i32>,
    data: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl Values {
    fn new() -> Self {
        Self { offsets: vec![0], data: Vec::new(), nulls: NullBufferBuilder::new(0) }
    }

    /// Ends the value whose bytes have been added to `data`.
    fn end(&mut self) -> Result<(), Malformed> {
        if self.data.len() > COLUMN_BYTES_MAX {
            return Err(Malformed::value(format!("over {COLUMN_BYTES_MAX} bytes of one column at once")));
        }
        self.offsets.push(self.data.len() as i32);
        self.nulls.append_non_null();
        Ok(())
    }

    fn append_null(&mut self) {
        self.offsets.push(self.last_offset());
        self.nulls.append_null();
    }

    fn last_offset(&self) -> i32 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.nulls.truncate(rows);
        self.data.truncate(self.last_offset() as usize);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        let mut fresh = Self::new();
        fresh.offsets.reserve(self.offsets.len());
        fresh.data.reserve(self.data.len());
        let full = std::mem::replace(self, fresh);
        let mut nulls = full.nulls;
        (OffsetBuffer::new(ScalarBuffer::from(full.offsets)), Buffer::from_vec(full.data), nulls.finish())
    }
}

/// Text. `decode` appends a value's text to the bytes and returns how many characters had no equal.
pub(super) struct Strings<F> {
    values: Values,
    decode: F,
    invalid_text: u64,
}

impl<F> Strings<F>
where
    F: FnMut(&[u8], &mut Vec<u8>) -> Result<usize, Malformed> + Send + 'static,
{
    pub(super) fn boxed(decode: F) -> Box<dyn ColumnBuilder> {
        Box::new(Self { values: Values::new(), decode, invalid_text: 0 })
    }
}

impl<F> ColumnBuilder for Strings<F>
where
    F: FnMut(&[u8], &mut Vec<u8>) -> Result<usize, Malformed> + Send + 'static,
{
    #[inline]
    fn append(&mut self, cell: &[u8]) -> Result<(), Malformed> {
        if (self.decode)(cell, &mut self.values.data)? > 0 {
            self.invalid_text += 1;
        }
        self.values.end()
    }

    fn append_null(&mut self) {
        self.values.append_null();
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
    }

    fn append_text(&mut self, text: &str) -> Result<(), Malformed> {
        self.values.data.extend_from_slice(text.as_bytes());
        self.values.end()
    }

    /// Whether the bytes are UTF-8 is checked here, for all values in one pass.
    fn finish(&mut self) -> ArrayRef {
        let (offsets, data, nulls) = self.values.finish();
        match StringArray::try_new(offsets.clone(), data.clone(), nulls.clone()) {
            Ok(array) => Arc::new(array),
            Err(_) => {
                let (array, replaced) = with_replacements(&offsets, &data, nulls.as_ref());
                self.invalid_text += replaced;
                Arc::new(array)
            }
        }
    }

    fn take_losses(&mut self) -> Losses {
        Losses { zero_dates: 0, invalid_text: std::mem::take(&mut self.invalid_text) }
    }

    fn bytes_per_value(&self) -> usize {
        size_of::<i32>()
    }
}

/// The values with U+FFFD in place of what is not UTF-8, and how many values have one.
fn with_replacements(offsets: &OffsetBuffer<i32>, data: &[u8], nulls: Option<&NullBuffer>) -> (StringArray, u64) {
    let mut replaced = 0;
    let values = offsets.windows(2).enumerate().map(|(row, range)| {
        let &[from, to] = range else { return None };
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let text = String::from_utf8_lossy(data.get(from as usize..to as usize).unwrap_or_default());
        if matches!(text, std::borrow::Cow::Owned(_)) {
            replaced += 1;
        }
        Some(text)
    });
    let array = StringArray::from_iter(values);
    (array, replaced)
}

/// Bytes. `decode` appends a value's bytes.
struct Binary<F> {
    values: Values,
    decode: F,
}

impl<F> Binary<F>
where
    F: FnMut(&[u8], &mut Vec<u8>) -> Result<(), Malformed> + Send + 'static,
{
    fn boxed(decode: F) -> Box<dyn ColumnBuilder> {
        Box::new(Self { values: Values::new(), decode })
    }
}

impl<F> ColumnBuilder for Binary<F>
where
    F: FnMut(&[u8], &mut Vec<u8>) -> Result<(), Malformed> + Send + 'static,
{
    fn append(&mut self, cell: &[u8]) -> Result<(), Malformed> {
        (self.decode)(cell, &mut self.values.data)?;
        self.values.end()
    }

    fn append_null(&mut self) {
        self.values.append_null();
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
    }

    fn finish(&mut self) -> ArrayRef {
        let (offsets, data, nulls) = self.values.finish();
        Arc::new(BinaryArray::new(offsets, data, nulls))
    }

    fn take_losses(&mut self) -> Losses {
        Losses::default()
    }

    fn bytes_per_value(&self) -> usize {
        size_of::<i32>()
    }
}

/// VECTOR: 32-bit floats, one after the other.
struct Vectors {
    field: FieldRef,
    offsets: Vec<i32>,
    elements: Vec<f32>,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder for Vectors {
    fn append(&mut self, cell: &[u8]) -> Result<(), Malformed> {
        if !cell.len().is_multiple_of(4) || self.elements.len() + cell.len() / 4 > COLUMN_BYTES_MAX / 4 {
            return Err(Malformed::value(format!("{} bytes where a vector has 4 for each element", cell.len())));
        }
        let mut reader = Reader::new(cell);
        while !reader.is_empty() {
            self.elements.push(f32::from_le_bytes(reader.array()?));
        }
        self.offsets.push(self.elements.len() as i32);
        self.nulls.append_non_null();
        Ok(())
    }

    fn append_null(&mut self) {
        self.offsets.push(self.elements.len() as i32);
        self.nulls.append_null();
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.nulls.truncate(rows);
        self.elements.truncate(self.offsets.last().map_or(0, |last| *last as usize));
    }

    fn finish(&mut self) -> ArrayRef {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let elements = Arc::new(Float32Array::from(std::mem::take(&mut self.elements)));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Arc::new(ListArray::new(Arc::clone(&self.field), offsets, elements, self.nulls.finish()))
    }

    fn take_losses(&mut self) -> Losses {
        Losses::default()
    }

    fn bytes_per_value(&self) -> usize {
        size_of::<i32>()
    }
}

pub(super) fn builder(wire: &WireColumn, column_type: &ColumnType) -> Option<Box<dyn ColumnBuilder>> {
    use ColumnType as C;
    Some(match (wire.code, column_type) {
        (code::VARCHAR | code::VAR_STRING | code::STRING | code::BLOB, C::Text { charset, .. }) => {
            text(Charset::by_name(charset)?, false)
        }
        (code::VARCHAR_COMPRESSED | code::BLOB_COMPRESSED, C::Text { charset, .. }) => {
            text(Charset::by_name(charset)?, true)
        }
        (code::STRING, C::Binary { length }) if u32::from(wire.meta) == *length => padded(*length as usize),
        (code::VARCHAR | code::VAR_STRING | code::BLOB, C::Blob { .. }) => Binary::boxed(|cell, out| {
            out.extend_from_slice(cell);
            Ok(())
        }),
        (code::VARCHAR_COMPRESSED | code::BLOB_COMPRESSED, C::Blob { .. }) => Binary::boxed(inflate::column),
        (code::ENUM, C::Enum { members, .. }) => enumeration(members.clone()),
        (code::SET, C::Set { members, .. }) => set(members.clone()),
        (code::JSON, C::Json) => json_text(),
        (code::GEOMETRY, C::Geometry { .. }) => Binary::boxed(geometry),
        (code::VECTOR | code::VARCHAR | code::BLOB, C::Vector { .. }) => vectors(column_type)?,
        (code::STRING, C::Inet4) => address(|bytes| Ipv4Addr::from(bytes).to_string()),
        (code::STRING, C::Inet6) => address(|bytes| Ipv6Addr::from(bytes).to_string()),
        (code::STRING, C::Uuid) => address(|bytes| Uuid::from_bytes(bytes).to_string()),
        _ => return None,
    })
}

fn text(charset: Charset, compressed: bool) -> Box<dyn ColumnBuilder> {
    let mut text = String::new();
    let mut decode = move |cell: &[u8], out: &mut Vec<u8>| {
        text.clear();
        let replaced = charset.decode_into(cell, &mut text);
        out.extend_from_slice(text.as_bytes());
        replaced
    };
    match (compressed, charset.is_utf8_compatible()) {
        (false, true) => Strings::boxed(|cell, out| {
            out.extend_from_slice(cell);
            Ok(0)
        }),
        (false, false) => Strings::boxed(move |cell, out| Ok(decode(cell, out))),
        (true, true) => Strings::boxed(|cell, out| inflate::column(cell, out).map(|()| 0)),
        (true, false) => {
            let mut plain = Vec::new();
            Strings::boxed(move |cell, out| {
                plain.clear();
                inflate::column(cell, &mut plain)?;
                Ok(decode(&plain, out))
            })
        }
    }
}

/// BINARY(n): the log leaves trailing zero bytes out.
fn padded(length: usize) -> Box<dyn ColumnBuilder> {
    Binary::boxed(move |cell, out| {
        let missing = length
            .checked_sub(cell.len())
            .ok_or_else(|| Malformed::value(format!("{} bytes in a BINARY({length})", cell.len())))?;
        out.extend_from_slice(cell);
        out.resize(out.len() + missing, 0);
        Ok(())
    })
}

/// The member's number, little-endian; 0 is the empty text that stands for an invalid value.
fn enumeration(members: Vec<String>) -> Box<dyn ColumnBuilder> {
    Strings::boxed(move |cell, out| {
        let number = little_endian(cell);
        let Some(index) = number.checked_sub(1) else { return Ok(0) };
        let member = members
            .get(index as usize)
            .ok_or_else(|| Malformed::value(format!("member {number} of an ENUM that has {}", members.len())))?;
        out.extend_from_slice(member.as_bytes());
        Ok(0)
    })
}

/// A bit for each member, in the order of the column's definition.
fn set(members: Vec<String>) -> Box<dyn ColumnBuilder> {
    Strings::boxed(move |cell, out| {
        let bits = little_endian(cell);
        if members.len() < 64 && bits >> members.len() != 0 {
            return Err(Malformed::value(format!("members {bits:#x} of a SET that has {}", members.len())));
        }
        let mut comma = false;
        for member in members.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, member)| member) {
            if std::mem::replace(&mut comma, true) {
                out.push(b',');
            }
            out.extend_from_slice(member.as_bytes());
        }
        Ok(0)
    })
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn json_text() -> Box<dyn ColumnBuilder> {
    let mut text = String::new();
    Strings::boxed(move |cell, out| {
        text.clear();
        json::write_text(cell, &mut text).map_err(|error| Malformed::value(error.to_string()))?;
        out.extend_from_slice(text.as_bytes());
        Ok(0)
    })
}

/// The server stores the SRID, four bytes, before the well-known binary.
fn geometry(cell: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut reader = Reader::new(cell);
    reader.u32()?;
    out.extend_from_slice(reader.rest());
    Ok(())
}

fn vectors(column_type: &ColumnType) -> Option<Box<dyn ColumnBuilder>> {
    let DataType::List(field) = column_type.data_type() else { return None };
    let field: Arc<Field> = field;
    Some(Box::new(Vectors { field, offsets: vec![0], elements: Vec::new(), nulls: NullBufferBuilder::new(0) }))
}

/// MariaDB's fixed types, which the log gives as BINARY of their length, most significant byte first, trailing
/// zero bytes left out. (A uuid's groups are not turned round there, as they are in the tables.)
fn address<const N: usize>(print: impl Fn([u8; N]) -> String + Send + 'static) -> Box<dyn ColumnBuilder> {
    Strings::boxed(move |cell, out| {
        let mut bytes = [0; N];
        let known = bytes.get_mut(..cell.len());
        known
            .ok_or_else(|| Malformed::value(format!("{} bytes where a value has {N}", cell.len())))?
            .copy_from_slice(cell);
        out.extend_from_slice(print(bytes).as_bytes());
        Ok(0)
    })
}
