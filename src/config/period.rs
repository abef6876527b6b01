//! Lengths of time as people write them.

use std::fmt;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::problem::Report;
use super::read::{FromNode, wrong_type};
use super::yaml::{Node, Value};

/// A length of time, written as a whole number with s, m, h or d.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Period(pub Duration);

const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];

/// Ten years: a longer period is a slip of the pen, and shorter ones keep all sums of times far from overflow.
const SECONDS_MAX: u64 = 3_650 * 86_400;

impl Period {
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub const fn hours(hours: u64) -> Self {
        Self(Duration::from_secs(hours * 3_600))
    }

    pub const fn days(days: u64) -> Self {
        Self::hours(days * 24)
    }

    /// `90s`, `15m`, `6h` or `7d`; `None` for anything else, also for nothing and for more than ten years.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, factor) =
            UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(*unit)?.trim_end(), *factor)))?;
        let number: u64 = number.parse().ok()?;
        let seconds = number.checked_mul(factor)?;
        (1..=SECONDS_MAX).contains(&seconds).then(|| Self(Duration::from_secs(seconds)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let whole = UNITS.iter().rev().find(|(_, factor)| seconds > 0 && seconds.is_multiple_of(*factor));
        let (unit, factor) = whole.copied().unwrap_or(('s', 1));
        write!(f, "{}{unit}", seconds / factor)
    }
}

impl FromNode for Period {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let Value::Scalar(text) = &node.value else { return wrong_type(node, path, "a time such as 6h", report) };
        let period = Self::parse(&text.text());
        if period.is_none() {
            let typed = text.typed();
            report.add(node.at, path, format!("must be a whole number with s, m, h or d (6h), found `{typed}`"));
        }
        period
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^[0-9]+ ?[smhd]$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, seconds: Option<u64>) {
        assert_eq!(Period::parse(text).map(|period| period.0.as_secs()), seconds, "{text}");
    }

    #[test]
    fn a_period_is_a_number_with_its_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("6 h", 21_600), ("7d", 604_800), ("3650d", SECONDS_MAX)] {
            check(text, Some(seconds));
        }
        for text in ["", "7", "d", "0s", "-1d", "1.5h", "1w", "3651d", "99999999999999999999d", "é"] {
            check(text, None);
        }
    }

    #[test]
    fn a_period_is_shown_in_its_largest_whole_unit() {
        for text in ["90s", "15m", "25h", "7d"] {
            assert_eq!(Period::parse(text).map(|period| period.to_string()), Some(text.to_string()));
        }
    }
}
