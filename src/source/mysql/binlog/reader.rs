//! Bounds-checked reading of bytes from outside.

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("{wanted} bytes expected at byte {at}, {left} are left")]
    Short { at: usize, wanted: usize, left: usize },
    #[error("{0}")]
    Value(String),
}

impl Malformed {
    pub(super) fn value(what: impl Into<String>) -> Self {
        Self::Value(what.into())
    }
}

/// A cursor over bytes that never reads past their end. Integers are little-endian unless named otherwise.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// How many bytes have been read.
    pub fn at(&self) -> usize {
        self.length - self.rest.len()
    }

    /// The bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        match self.rest.split_at_checked(count) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(self.short(count)),
        }
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(self.short(N)),
        }
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u24(&mut self) -> Result<u32, Malformed> {
        let [a, b, c] = self.array()?;
        Ok(u32::from_le_bytes([a, b, c, 0]))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u48(&mut self) -> Result<u64, Malformed> {
        let [a, b, c, d, e, f] = self.array()?;
        Ok(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    pub fn u56(&mut self) -> Result<u64, Malformed> {
        let [a, b, c, d, e, f, g] = self.array()?;
        Ok(u64::from_le_bytes([a, b, c, d, e, f, g, 0]))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length-encoded integer (MySQL protocol, "Protocol::LengthEncodedInteger").
    pub fn lenenc(&mut self) -> Result<u64, Malformed> {
        match self.u8()? {
            small @ 0..=250 => Ok(u64::from(small)),
            252 => Ok(u64::from(self.u16()?)),
            253 => Ok(u64::from(self.u24()?)),
            254 => self.u64(),
            other => Err(Malformed::value(format!("{other} does not begin a length"))),
        }
    }

    /// A length-encoded integer that counts bytes or items in memory.
    pub fn length(&mut self) -> Result<usize, Malformed> {
        let length = self.lenenc()?;
        usize::try_from(length).map_err(|_| self.short(usize::MAX))
    }

    /// Bytes after their length-encoded length.
    pub fn lenenc_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    fn short(&self, wanted: usize) -> Malformed {
        Malformed::Short { at: self.at(), wanted, left: self.rest.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Option<u64>) {
        assert_eq!(Reader::new(bytes).lenenc().ok(), expected, "{bytes:?}");
    }

    #[test]
    fn a_length_takes_one_to_nine_bytes() {
        check(&[250], Some(250));
        check(&[252, 1, 2], Some(0x201));
        check(&[253, 1, 2, 3], Some(0x30201));
        check(&[254, 1, 0, 0, 0, 0, 0, 0, 0], Some(1));
        check(&[251], None);
        check(&[253, 1, 2], None);
        check(&[], None);
    }

    #[test]
    fn nothing_is_read_past_the_end() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.take(4), Err(Malformed::Short { at: 0, wanted: 4, left: 3 }));
        assert_eq!(reader.u16(), Ok(0x201));
        assert_eq!(reader.u16(), Err(Malformed::Short { at: 2, wanted: 2, left: 1 }));
        assert_eq!(reader.rest(), [3]);
    }
}
