//! Values that come into the lake as something else than they are.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Treatment;
use super::convert::convert;

/// What a masked value is.
const MASK: &str = "***";
/// Bytes of the hash that tells whether two keys are the same.
const ID_BYTES: usize = 8;
const ID_TEXT: &[u8] = b"alluvium: which key is it?";

/// The key of a job's hashes (HMAC with SHA-256, RFC 2104).
#[derive(Clone)]
pub struct HashKey(Hmac<Sha256>);

impl HashKey {
    /// A key of any length; of one that is longer than 64 bytes, its hash.
    ///
    /// # Errors
    /// The hash takes no such key.
    pub fn new(key: &[u8]) -> Result<Self, ArrowError> {
        let hmac = Hmac::new_from_slice(key).map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
        Ok(Self(hmac))
    }

    /// Tells keys apart; says nothing else of this one.
    pub fn id(&self) -> String {
        hexadecimal(&self.digest(ID_TEXT)[..ID_BYTES])
    }

    fn digest(&self, value: &[u8]) -> [u8; 32] {
        let mut hmac = self.0.clone();
        hmac.update(value);
        hmac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(***)")
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Values as they come into the lake. Null stays null. The hash of a value is that of its bytes, or of its text as SQL writes it.
///
/// # Errors
/// There is no key to hash with, or a value has no text.
pub fn treated(treatment: Treatment, values: &ArrayRef, key: Option<&HashKey>) -> Result<ArrayRef, ArrowError> {
    match treatment {
        Treatment::Kept | Treatment::LeftOut => Ok(Arc::clone(values)),
        Treatment::Masked => {
            let masked = (0..values.len()).map(|row| values.is_valid(row).then_some(MASK));
            Ok(Arc::new(masked.collect::<StringArray>()))
        }
        Treatment::Hashed => {
            let no_key = || ArrowError::InvalidArgumentError("there is no key to hash values with".into());
            hashed(values, key.ok_or_else(no_key)?)
        }
    }
}

fn hashed(values: &ArrayRef, key: &HashKey) -> Result<ArrayRef, ArrowError> {
    let mut hashes = StringBuilder::with_capacity(values.len(), values.len() * 64);
    let mut push = |bytes: Option<&[u8]>| hashes.append_option(bytes.map(|bytes| hexadecimal(&key.digest(bytes))));
    if *values.data_type() == DataType::Binary {
        values.as_binary::<i32>().iter().for_each(&mut push);
    } else {
        let texts = convert(values, &DataType::Utf8)?;
        texts.as_string::<i32>().iter().map(|text| text.map(str::as_bytes)).for_each(&mut push);
    }
    Ok(Arc::new(hashes.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BinaryArray, Int32Array};

    fn texts(array: &ArrayRef) -> Vec<Option<&str>> {
        array.as_string::<i32>().iter().collect()
    }

    #[test]
    fn values_are_hashed_as_rfc_4231_says() {
        // Test case 2.
        let key = HashKey::new(b"Jefe").unwrap();
        let values: ArrayRef = Arc::new(StringArray::from(vec![Some("what do ya want for nothing?"), None]));
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let hashed = treated(Treatment::Hashed, &values, Some(&key)).unwrap();
        assert_eq!(texts(&hashed), [Some(expected), None]);
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![b"what do ya want for nothing?".as_slice()]));
        assert_eq!(texts(&treated(Treatment::Hashed, &bytes, Some(&key)).unwrap()), [Some(expected)]);
        assert!(treated(Treatment::Hashed, &values, None).is_err());
        assert_ne!(key.id(), HashKey::new(b"jefe").unwrap().id());
        assert_eq!(format!("{key:?}"), "HashKey(***)");
    }

    #[test]
    fn numbers_are_hashed_as_their_text_and_masks_tell_nothing() {
        let key = HashKey::new(b"k").unwrap();
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(-7), None]));
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("-7"), None]));
        let hashed = |values| treated(Treatment::Hashed, values, Some(&key)).unwrap();
        assert_eq!(texts(&hashed(&numbers)), texts(&hashed(&text)));
        assert_eq!(texts(&treated(Treatment::Masked, &numbers, None).unwrap()), [Some("***"), None]);
    }
}
