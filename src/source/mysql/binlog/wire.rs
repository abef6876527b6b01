//! How the value of a column lies in a row image: its type code, its two bytes of metadata, its length.
//!
//! MySQL internals manual, "TABLE_MAP_EVENT" and "Rows_event: row image"; `enum enum_field_types`.

use super::reader::{Malformed, Reader};

/// Type codes (`enum enum_field_types`; 140 and 141 are MariaDB's).
pub mod code {
    pub const TINY: u8 = 1;
    pub const SHORT: u8 = 2;
    pub const LONG: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const DOUBLE: u8 = 5;
    pub const TIMESTAMP: u8 = 7;
    pub const LONGLONG: u8 = 8;
    pub const INT24: u8 = 9;
    pub const DATE: u8 = 10;
    pub const TIME: u8 = 11;
    pub const DATETIME: u8 = 12;
    pub const YEAR: u8 = 13;
    pub const NEWDATE: u8 = 14;
    pub const VARCHAR: u8 = 15;
    pub const BIT: u8 = 16;
    pub const TIMESTAMP2: u8 = 17;
    pub const DATETIME2: u8 = 18;
    pub const TIME2: u8 = 19;
    pub const BLOB_COMPRESSED: u8 = 140;
    pub const VARCHAR_COMPRESSED: u8 = 141;
    pub const VECTOR: u8 = 242;
    pub const JSON: u8 = 245;
    pub const NEWDECIMAL: u8 = 246;
    pub const ENUM: u8 = 247;
    pub const SET: u8 = 248;
    pub const BLOB: u8 = 252;
    pub const VAR_STRING: u8 = 253;
    pub const STRING: u8 = 254;
    pub const GEOMETRY: u8 = 255;
}

/// How many bytes a value takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireLength {
    Fixed(usize),
    /// The length stands before the value, in so many bytes.
    Prefix1,
    Prefix2,
    Prefix3,
    Prefix4,
}

/// One column of a TABLE_MAP event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireColumn {
    /// See [`code`]; ENUM and SET stand under their own codes, though the log gives them as STRING.
    pub code: u8,
    /// DECIMAL: precision, then scale in the low byte. BIT: bits. ENUM and SET: bytes. STRING, VARCHAR: most
    /// bytes. BLOB and its kin: bytes of the length prefix. Times: fractional digits. Else 0.
    pub meta: u16,
    pub length: WireLength,
}

impl WireColumn {
    /// Reads the metadata of a column of type `raw` from the metadata block.
    pub fn read(raw: u8, meta: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (code, meta) = match raw {
            code::FLOAT | code::DOUBLE | code::TIMESTAMP2 | code::DATETIME2 | code::TIME2 => {
                (raw, u16::from(meta.u8()?))
            }
            code::BLOB | code::JSON | code::GEOMETRY | code::VECTOR | code::BLOB_COMPRESSED => {
                (raw, u16::from(meta.u8()?))
            }
            code::VARCHAR | code::VAR_STRING | code::VARCHAR_COMPRESSED => (raw, meta.u16()?),
            code::NEWDECIMAL => (raw, u16::from_be_bytes(meta.array()?)),
            code::BIT => {
                let [bits, bytes] = meta.array()?;
                (raw, u16::from(bytes) * 8 + u16::from(bits))
            }
            code::STRING | code::ENUM | code::SET => string_meta(meta.array()?),
            _ => (raw, 0),
        };
        Ok(Self { code, meta, length: wire_length(code, meta)? })
    }

    /// The bytes of the column's next value, without their length.
    #[inline]
    pub fn take<'a>(&self, row: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
        let length = match self.length {
            WireLength::Fixed(length) => length,
            WireLength::Prefix1 => usize::from(row.u8()?),
            WireLength::Prefix2 => usize::from(row.u16()?),
            WireLength::Prefix3 => row.u24()? as usize,
            WireLength::Prefix4 => row.u32()? as usize,
        };
        row.take(length)
    }
}

/// The first byte of a STRING's metadata is its real type. Lengths over 255 have their upper bits, inverted,
/// in two bits of it (MySQL bug 37426).
fn string_meta([real_type, length]: [u8; 2]) -> (u8, u16) {
    if real_type & 0x30 == 0x30 {
        (real_type, u16::from(length))
    } else {
        (real_type | 0x30, u16::from(length) | (u16::from(real_type & 0x30) ^ 0x30) << 4)
    }
}

fn wire_length(code: u8, meta: u16) -> Result<WireLength, Malformed> {
    let fraction = usize::from(meta).div_ceil(2);
    let fixed = match code {
        code::TINY | code::YEAR => 1,
        code::SHORT => 2,
        code::INT24 | code::DATE | code::NEWDATE | code::TIME => 3,
        code::LONG | code::FLOAT | code::TIMESTAMP => 4,
        code::LONGLONG | code::DOUBLE | code::DATETIME => 8,
        code::TIMESTAMP2 | code::DATETIME2 | code::TIME2 if meta > 6 => {
            return Err(Malformed::value(format!("{meta} fractional digits of a second, at most 6 are possible")));
        }
        code::TIMESTAMP2 => 4 + fraction,
        code::DATETIME2 => 5 + fraction,
        code::TIME2 => 3 + fraction,
        code::BIT => usize::from(meta.div_ceil(8)),
        code::NEWDECIMAL => super::column::decimal_bytes((meta >> 8) as u8, meta as u8)?,
        code::ENUM | code::SET => usize::from(meta),
        code::STRING | code::VARCHAR | code::VAR_STRING | code::VARCHAR_COMPRESSED => {
            return Ok(if meta > 255 { WireLength::Prefix2 } else { WireLength::Prefix1 });
        }
        code::BLOB | code::JSON | code::GEOMETRY | code::VECTOR | code::BLOB_COMPRESSED => return prefix(meta),
        other => return Err(Malformed::value(format!("column type {other} is unknown"))),
    };
    Ok(WireLength::Fixed(fixed))
}

fn prefix(bytes: u16) -> Result<WireLength, Malformed> {
    match bytes {
        1 => Ok(WireLength::Prefix1),
        2 => Ok(WireLength::Prefix2),
        3 => Ok(WireLength::Prefix3),
        4 => Ok(WireLength::Prefix4),
        other => Err(Malformed::value(format!("a length of {other} bytes before a value, 1 to 4 are possible"))),
    }
}
