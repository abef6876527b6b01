//! Integers, floats, BIT and YEAR.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, BooleanBufferBuilder, NullBufferBuilder, PrimitiveArray,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type};

use super::{ColumnBuilder, Losses};
use crate::source::mysql::binlog::reader::Malformed;
use crate::source::mysql::binlog::wire::{WireColumn, code};
use crate::source::mysql::column_type::ColumnType;

/// Values of one fixed-width Arrow type. `decode` gives `None` for a date that is none.
pub(super) struct Primitive<T: ArrowPrimitiveType, F> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
    data_type: DataType,
    decode: F,
    zero_dates: u64,
}

impl<T, F> Primitive<T, F>
where
    T: ArrowPrimitiveType,
    F: Fn(&[u8]) -> Result<Option<T::Native>, Malformed> + Send + 'static,
{
    pub(super) fn boxed(data_type: DataType, decode: F) -> Box<dyn ColumnBuilder> {
        Box::new(Self { values: Vec::new(), nulls: NullBufferBuilder::new(0), data_type, decode, zero_dates: 0 })
    }
}

impl<T, F> ColumnBuilder for Primitive<T, F>
where
    T: ArrowPrimitiveType,
    F: Fn(&[u8]) -> Result<Option<T::Native>, Malformed> + Send + 'static,
{
    fn append(&mut self, cell: &[u8]) -> Result<(), Malformed> {
        match (self.decode)(cell)? {
            Some(value) => {
                self.values.push(value);
                self.nulls.append_non_null();
            }
            None => {
                self.zero_dates += 1;
                self.append_null();
            }
        }
        Ok(())
    }

    fn append_null(&mut self) {
        self.values.push(T::default_value());
        self.nulls.append_null();
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.nulls.truncate(rows);
    }

    fn finish(&mut self) -> ArrayRef {
        let values = std::mem::take(&mut self.values);
        self.values.reserve(values.len());
        let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), self.nulls.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }

    fn take_losses(&mut self) -> Losses {
        Losses { zero_dates: std::mem::take(&mut self.zero_dates), invalid_text: 0 }
    }

    fn bytes_per_value(&self) -> usize {
        size_of::<T::Native>()
    }
}

/// BIT(1).
struct Booleans {
    values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder for Booleans {
    fn append(&mut self, cell: &[u8]) -> Result<(), Malformed> {
        self.values.append(cell.iter().any(|byte| *byte != 0));
        self.nulls.append_non_null();
        Ok(())
    }

    fn append_null(&mut self) {
        self.values.append(false);
        self.nulls.append_null();
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.nulls.truncate(rows);
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(self.values.finish(), self.nulls.finish()))
    }

    fn take_losses(&mut self) -> Losses {
        Losses::default()
    }

    fn bytes_per_value(&self) -> usize {
        1
    }
}

pub(super) fn builder(wire: &WireColumn, column_type: &ColumnType) -> Option<Box<dyn ColumnBuilder>> {
    use ColumnType as C;
    let data_type = column_type.data_type();
    Some(match (wire.code, column_type) {
        (code::TINY, C::TinyInt { unsigned: false }) => {
            Primitive::<Int8Type, _>::boxed(data_type, |cell| Ok(Some(i8::from_le_bytes(fixed(cell)?))))
        }
        (code::TINY, C::TinyInt { unsigned: true }) => {
            Primitive::<Int16Type, _>::boxed(data_type, |cell| Ok(Some(u8::from_le_bytes(fixed(cell)?).into())))
        }
        (code::SHORT, C::SmallInt { unsigned: false }) => {
            Primitive::<Int16Type, _>::boxed(data_type, |cell| Ok(Some(i16::from_le_bytes(fixed(cell)?))))
        }
        (code::SHORT, C::SmallInt { unsigned: true }) => {
            Primitive::<Int32Type, _>::boxed(data_type, |cell| Ok(Some(u16::from_le_bytes(fixed(cell)?).into())))
        }
        (code::INT24, C::MediumInt { unsigned }) => medium(data_type, *unsigned),
        (code::LONG, C::Int { unsigned: false }) => {
            Primitive::<Int32Type, _>::boxed(data_type, |cell| Ok(Some(i32::from_le_bytes(fixed(cell)?))))
        }
        (code::LONG, C::Int { unsigned: true }) => {
            Primitive::<Int64Type, _>::boxed(data_type, |cell| Ok(Some(u32::from_le_bytes(fixed(cell)?).into())))
        }
        (code::LONGLONG, C::BigInt { unsigned: false }) => {
            Primitive::<Int64Type, _>::boxed(data_type, |cell| Ok(Some(i64::from_le_bytes(fixed(cell)?))))
        }
        (code::LONGLONG, C::BigInt { unsigned: true }) => {
            Primitive::<Decimal128Type, _>::boxed(data_type, |cell| Ok(Some(u64::from_le_bytes(fixed(cell)?).into())))
        }
        (code::FLOAT, C::Float) => {
            Primitive::<Float32Type, _>::boxed(data_type, |cell| Ok(Some(f32::from_le_bytes(fixed(cell)?))))
        }
        (code::DOUBLE, C::Double) => {
            Primitive::<Float64Type, _>::boxed(data_type, |cell| Ok(Some(f64::from_le_bytes(fixed(cell)?))))
        }
        (code::YEAR, C::Year) => Primitive::<Int16Type, _>::boxed(data_type, |cell| Ok(Some(year(fixed(cell)?)))),
        (code::BIT, C::Bit { bits }) if u16::from(*bits) == wire.meta => bit(data_type, *bits),
        _ => return None,
    })
}

/// MEDIUMINT: three bytes, the sign in the highest bit of the last.
fn medium(data_type: DataType, unsigned: bool) -> Box<dyn ColumnBuilder> {
    if unsigned {
        return Primitive::<Int32Type, _>::boxed(data_type, |cell| {
            let [a, b, c] = fixed(cell)?;
            Ok(Some(i32::from_le_bytes([a, b, c, 0])))
        });
    }
    Primitive::<Int32Type, _>::boxed(data_type, |cell| {
        let [a, b, c] = fixed(cell)?;
        Ok(Some(i32::from_le_bytes([0, a, b, c]) >> 8))
    })
}

/// The log holds years since 1900, and 0 for the year 0000.
fn year([byte]: [u8; 1]) -> i16 {
    if byte == 0 { 0 } else { 1900 + i16::from(byte) }
}

/// Big-endian, in as many bytes as the bits need.
fn bit(data_type: DataType, bits: u8) -> Box<dyn ColumnBuilder> {
    match bits {
        1 => Box::new(Booleans { values: BooleanBufferBuilder::new(0), nulls: NullBufferBuilder::new(0) }),
        64 => Primitive::<Decimal128Type, _>::boxed(data_type, |cell| Ok(Some(big_endian(cell).into()))),
        _ => Primitive::<Int64Type, _>::boxed(data_type, |cell| Ok(Some(big_endian(cell) as i64))),
    }
}

/// An unsigned number of at most 8 bytes.
pub(super) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The cell as an array of its fixed length.
pub(super) fn fixed<const N: usize>(cell: &[u8]) -> Result<[u8; N], Malformed> {
    cell.try_into().map_err(|_| Malformed::value(format!("{} bytes where a value has {N}", cell.len())))
}
