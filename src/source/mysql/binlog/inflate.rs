//! Compressed parts of a log: MariaDB's row and query events and COMPRESSED columns (zlib).

use std::io::Read;

use flate2::read::{DeflateDecoder, ZlibDecoder};

use super::event::EVENT_BYTES_MAX;
use super::reader::{Malformed, Reader};

/// Largest inflated part of an event: what an event that was never compressed may have.
const INFLATED_BYTES_MAX: u64 = EVENT_BYTES_MAX as u64;

/// Inflates the compressed part of an event of MariaDB (`log_bin_compress`): a byte with the algorithm (0, zlib)
/// in bits 4 to 6 and the bytes of the length in bits 0 to 2, the inflated length big-endian, the zlib stream.
pub fn event(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(bytes);
    let head = reader.u8()?;
    if head & 0xf0 != 0x80 {
        return Err(Malformed::value(format!("compression {head:#x} is unknown")));
    }
    let length = big_endian(reader.take(usize::from(head & 7))?);
    let mut out = Vec::new();
    read_all(ZlibDecoder::new(reader.rest()), length, &mut out)?;
    Ok(out)
}

/// Appends the value of a COMPRESSED column of MariaDB: a byte 0 and the value as it is, or a byte with the
/// method (8) in bits 4 to 7, "no zlib wrapper" in bit 3, bytes of the length in bits 0 to 2, then as above.
pub fn column(cell: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut reader = Reader::new(cell);
    let head = match reader.u8() {
        Err(_) => return Ok(()),
        Ok(0) => {
            out.extend_from_slice(reader.rest());
            return Ok(());
        }
        Ok(head) => head,
    };
    if head & 0xf0 != 0x80 {
        return Err(Malformed::value(format!("compression {head:#x} of a COMPRESSED column is unknown")));
    }
    let length = big_endian(reader.take(usize::from(head & 7))?);
    match head & 8 {
        0 => read_all(ZlibDecoder::new(reader.rest()), length, out),
        _ => read_all(DeflateDecoder::new(reader.rest()), length, out),
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Grows `out` only as far as bytes really come.
fn read_all(inflater: impl Read, length: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
    if length > INFLATED_BYTES_MAX {
        return Err(Malformed::value(format!("inflates to {length} bytes, at most {INFLATED_BYTES_MAX} are read")));
    }
    let before = out.len();
    let read = inflater.take(length + 1).read_to_end(out);
    match read {
        Ok(_) if (out.len() - before) as u64 == length => Ok(()),
        Ok(_) => Err(Malformed::value(format!("inflates to another length than the {length} bytes it tells"))),
        Err(error) => Err(Malformed::value(format!("does not inflate: {error}"))),
    }
}
