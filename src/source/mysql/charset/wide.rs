//! The Unicode encodings of two and four bytes.

use super::UNMAPPED;

#[derive(Debug, Clone, Copy)]
pub(super) enum Wide {
    Ucs2,
    Utf16,
    Utf16Le,
    Utf32,
}

pub(super) const ALL: [Wide; 4] = [Wide::Ucs2, Wide::Utf16, Wide::Utf16Le, Wide::Utf32];

impl Wide {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ucs2 => "ucs2",
            Self::Utf16 => "utf16",
            Self::Utf16Le => "utf16le",
            Self::Utf32 => "utf32",
        }
    }

    pub(super) fn bytes_max(self) -> u8 {
        match self {
            Self::Ucs2 => 2,
            Self::Utf16 | Self::Utf16Le | Self::Utf32 => 4,
        }
    }

    /// A unit that is cut off at the end becomes one [`UNMAPPED`].
    pub(super) fn decode_into(self, bytes: &[u8], out: &mut String) -> usize {
        let (unmapped, rest) = match self {
            Self::Ucs2 => {
                let (units, rest) = bytes.as_chunks::<2>();
                (push_all(units.iter().map(|unit| char::from_u32(u16::from_be_bytes(*unit).into())), out), rest)
            }
            Self::Utf16 => {
                let (units, rest) = bytes.as_chunks::<2>();
                (push_utf16(units.iter().map(|unit| u16::from_be_bytes(*unit)), out), rest)
            }
            Self::Utf16Le => {
                let (units, rest) = bytes.as_chunks::<2>();
                (push_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)), out), rest)
            }
            Self::Utf32 => {
                let (units, rest) = bytes.as_chunks::<4>();
                (push_all(units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit))), out), rest)
            }
        };
        unmapped + push_all((!rest.is_empty()).then_some(None).into_iter(), out)
    }
}

fn push_utf16(units: impl Iterator<Item = u16>, out: &mut String) -> usize {
    push_all(char::decode_utf16(units).map(Result::ok), out)
}

fn push_all(characters: impl Iterator<Item = Option<char>>, out: &mut String) -> usize {
    let mut unmapped = 0;
    for character in characters {
        unmapped += usize::from(character.is_none());
        out.push(character.unwrap_or(UNMAPPED));
    }
    unmapped
}
