//! The changes of a document that partial JSON logs: MySQL's `Json_diff_vector` (`sql-common/json_diff.h`), one after the
//! other an operation, a path and, unless something is removed, a value; path and value with their length before them.

use super::{JsonError, write_text};
use crate::change::json_patch::{self, Step};

/// Appends the changes to a patch.
///
/// # Errors
/// If the bytes are no such changes. `patch` may then hold part of them.
pub fn write_patch(bytes: &[u8], patch: &mut String) -> Result<(), JsonError> {
    let corrupt =
        |rest: &[u8], problem| JsonError::Corrupt { length: bytes.len(), at: bytes.len() - rest.len(), problem };
    let mut rest = bytes;
    while let Some((operation, after)) = rest.split_first() {
        let step = match operation {
            0 => Step::Replace,
            1 => Step::Insert,
            2 => Step::Remove,
            _ => return Err(corrupt(rest, "unknown operation of a change")),
        };
        rest = after;
        let path = take(&mut rest).ok_or_else(|| corrupt(rest, "a path reaches beyond its end"))?;
        let path = std::str::from_utf8(path).map_err(|_| corrupt(rest, "a path is not UTF-8"))?;
        let mut value = String::new();
        if step != Step::Remove {
            let document = take(&mut rest).ok_or_else(|| corrupt(rest, "a value reaches beyond its end"))?;
            write_text(document, &mut value)?;
        }
        json_patch::push(patch, step, path, &value).map_err(|_| corrupt(rest, "a path holds a control character"))?;
    }
    Ok(())
}

/// The bytes after a length-encoded length ("Protocol::LengthEncodedInteger").
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (first, after) = rest.split_first()?;
    let (bytes, first_byte) = match first {
        0..=250 => (0, usize::from(*first)),
        252 => (2, 0),
        253 => (3, 0),
        254 => (8, 0),
        _ => return None,
    };
    let (digits, after) = after.split_at_checked(bytes)?;
    let length = if bytes == 0 {
        first_byte
    } else {
        let number = digits.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).ok()?
    };
    let (value, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(value)
}
