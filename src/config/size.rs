//! Sizes as people write them.

use std::fmt;

use serde_json::{Value as Json, json};

use super::problem::Report;
use super::read::{FromNode, wrong_type};
use super::yaml::{Node, Value};

/// A number of bytes, written as a whole number with KiB, MiB or GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByteCount(pub usize);

const UNITS: [(&str, u32); 3] = [("KiB", 10), ("MiB", 20), ("GiB", 30)];

impl ByteCount {
    /// `256MiB` or `256 MiB`; `None` for anything else, also for what does not fit into memory's numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, shift) =
            UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.trim_end(), *shift)))?;
        let number: usize = number.parse().ok()?;
        number.checked_mul(1 << shift).map(Self)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().rev().find(|(_, shift)| self.0 > 0 && self.0.is_multiple_of(1 << shift));
        match whole {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl FromNode for ByteCount {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let Value::Scalar(text) = &node.value else { return wrong_type(node, path, "a size such as 1GiB", report) };
        let size = Self::parse(&text.text());
        if size.is_none() {
            let typed = text.typed();
            report.add(node.at, path, format!("must be a whole number with KiB, MiB or GiB (256MiB), found `{typed}`"));
        }
        size
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(KiB|MiB|GiB)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<usize>) {
        assert_eq!(ByteCount::parse(text).map(|size| size.0), expected, "{text}");
    }

    #[test]
    fn a_size_is_a_number_with_its_unit() {
        check("1GiB", Some(1 << 30));
        check("256 MiB", Some(256 << 20));
        check("64KiB", Some(64 << 10));
        for text in ["1", "1GB", "GiB", "-1GiB", "1.5GiB", "99999999999999999999GiB", "18446744073709551615GiB"] {
            check(text, None);
        }
    }

    #[test]
    fn a_size_is_shown_in_its_largest_whole_unit() {
        assert_eq!(ByteCount(1 << 30).to_string(), "1GiB");
        assert_eq!(ByteCount(1536 << 20).to_string(), "1536MiB");
        assert_eq!(ByteCount(1000).to_string(), "1000 bytes");
    }
}
