//! Places in binlogs as text and as rank, over all the servers that one after the other were a job's source.
//!
//! A server that has taken another's place, with the same transactions, has a log of its own, whose files are numbered on their own. Each such server is an
//! era: places of a later era come after all of an earlier one.

use super::file_number;
use crate::change::SourcePosition;

/// What an era adds to the rank of its files. Servers number files below 2^31.
pub const ERA: u64 = 10_000_000_000;

/// The file of a place that is known by its transactions alone.
const NO_FILE: &str = "takeover";

/// A place in the log of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    /// In bytes.
    pub offset: u64,
    /// How many servers were the source before this one.
    pub era: u64,
}

impl Place {
    /// Where a server takes over; its log has not been looked at.
    pub fn takeover(era: u64) -> Self {
        Self { file: NO_FILE.to_string(), offset: 0, era }
    }

    /// Reads `mysql-bin.000007:1234`, or with the era behind it `mysql-bin.000007:1234@1`.
    pub fn parse(text: &str) -> Option<Self> {
        let with_era = text.rsplit_once('@').and_then(|(place, era)| Some((place, era.parse().ok()?)));
        let (place, era) = with_era.unwrap_or((text, 0));
        let (file, offset) = place.rsplit_once(':')?;
        Some(Self { file: file.to_string(), offset: offset.parse().ok()?, era })
    }

    /// Whether only the transactions before it are known.
    pub fn is_takeover(&self) -> bool {
        self.file == NO_FILE
    }

    /// The rank of its file among those of all eras.
    pub fn number(&self) -> u64 {
        self.era * ERA + file_number(&self.file).unwrap_or(0)
    }

    pub fn position(&self) -> SourcePosition {
        SourcePosition { order: (self.number(), self.offset), text: text(&self.file, self.offset, self.era) }
    }
}

/// What [`Place::parse`] reads.
pub(super) fn text(file: &str, offset: u64, era: u64) -> String {
    match era {
        0 => format!("{file}:{offset}"),
        era => format!("{file}:{offset}@{era}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_back_from_their_text_and_later_eras_come_later() {
        let place = |file: &str, offset, era| Place { file: file.to_string(), offset, era };
        let places = [
            (place("mysql-bin.000007", 1234, 0), "mysql-bin.000007:1234", (7, 1234)),
            (place("b@x.2147483647", 4, 0), "b@x.2147483647:4", (2_147_483_647, 4)),
            (Place::takeover(1), "takeover:0@1", (10_000_000_000, 0)),
            (place("binlog.000001", 4, 1), "binlog.000001:4@1", (10_000_000_001, 4)),
            (Place::takeover(2), "takeover:0@2", (20_000_000_000, 0)),
        ];
        for (place, text, order) in &places {
            let position = place.position();
            assert_eq!((position.text.as_str(), position.order), (*text, *order));
            assert_eq!(place.is_takeover(), text.starts_with("takeover"));
        }
        assert!(places.windows(2).all(|pair| pair[0].0.position() < pair[1].0.position()));
        for (place, text, _) in &places {
            assert_eq!(Place::parse(text).as_ref(), Some(place));
        }
        assert_eq!(Place::parse("mysql-bin.000007"), None);
        assert_eq!(Place::parse("mysql-bin.000007:x@1"), None);
    }
}
