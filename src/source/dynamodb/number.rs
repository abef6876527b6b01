//! DynamoDB's numbers: decimal text of up to 38 significant digits, exponents from -130 to 125.
//! They never pass through a float.

/// More digits or a larger exponent than this is no number of DynamoDB; it bounds what canonical text can take.
const DIGITS_MAX: usize = 38;
const EXPONENT_MAX: i32 = 200;

/// Numbers with more zeros than this at either end are written with an exponent.
const ZEROS_MAX: i32 = 40;

/// A number: `digits` × 10^`exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    is_negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: String,
    exponent: i32,
}

impl Number {
    /// Reads `-12.50`, `1E+3` and the like; `None` for text that is no number of DynamoDB.
    pub fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let is_negative = mantissa.starts_with('-');
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), exponent: 0 });
        }
        let zeros = i32::try_from(significant.len() - digits.len()).ok()?;
        let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(zeros)?;
        if digits.len() > DIGITS_MAX || exponent.abs() > EXPONENT_MAX {
            return None;
        }
        Some(Self { is_negative, digits: digits.to_string(), exponent })
    }

    /// The number × 10^`scale`, if that is whole and has at most 38 digits.
    pub fn scaled(&self, scale: u8) -> Option<i128> {
        let zeros = usize::try_from(self.exponent + i32::from(scale)).ok()?;
        if self.digits.is_empty() {
            return Some(0);
        }
        if self.digits.len() + zeros > DIGITS_MAX {
            return None;
        }
        let magnitude: i128 = format!("{}{}", self.digits, "0".repeat(zeros)).parse().ok()?;
        Some(if self.is_negative { -magnitude } else { magnitude })
    }

    pub fn as_i64(&self) -> Option<i64> {
        i64::try_from(self.scaled(0)?).ok()
    }

    /// One text for each value, whatever it was written like: `12.5`, and with an exponent where there would be many zeros.
    pub fn canonical(&self) -> String {
        if self.digits.is_empty() {
            return "0".to_string();
        }
        let sign = if self.is_negative { "-" } else { "" };
        let length = i32::try_from(self.digits.len()).unwrap_or(i32::MAX);
        let point = length + self.exponent;
        if self.exponent > ZEROS_MAX || point < -ZEROS_MAX {
            return format!("{sign}{}E{}", self.digits, self.exponent);
        }
        if self.exponent >= 0 {
            return format!("{sign}{}{}", self.digits, zeros(self.exponent));
        }
        if point <= 0 {
            return format!("{sign}0.{}{}", zeros(-point), self.digits);
        }
        let (whole, fraction) = self.digits.split_at(usize::try_from(point).unwrap_or(0));
        format!("{sign}{whole}.{fraction}")
    }
}

fn zeros(count: i32) -> String {
    "0".repeat(usize::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, canonical: Option<&str>) {
        assert_eq!(Number::parse(text).map(|number| number.canonical()).as_deref(), canonical, "{text}");
    }

    #[test]
    fn a_number_has_one_text() {
        for (text, canonical) in [
            ("12.50", "12.5"),
            ("-0.0", "0"),
            ("007", "7"),
            ("1E+3", "1000"),
            ("1.5e-3", "0.0015"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("1E100", "1E100"),
            ("12E-130", "12E-130"),
            ("99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
            ("0.00000000000000000000000000000000000001", "0.00000000000000000000000000000000000001"),
        ] {
            check(text, Some(canonical));
        }
        for text in ["", ".", "-", "1e", "e5", "1.2.3", "NaN", "Infinity", "1 ", "1e99999999999", "1e500", "0x1"] {
            check(text, None);
        }
        check(&"1".repeat(39), None);
    }

    #[test]
    fn a_number_is_scaled_exactly_or_not_at_all() {
        let scaled = |text: &str, scale| Number::parse(text).unwrap().scaled(scale);
        assert_eq!(scaled("1.5", 0), None);
        assert_eq!(scaled("1.5", 1), Some(15));
        assert_eq!(scaled("-1.5", 18), Some(-1_500_000_000_000_000_000));
        assert_eq!(scaled("1E37", 0), Some(10_i128.pow(37)));
        assert_eq!(scaled("1E38", 0), None);
        assert_eq!(scaled("0", 18), Some(0));
        assert_eq!(Number::parse("9223372036854775807").unwrap().as_i64(), Some(i64::MAX));
        assert_eq!(Number::parse("9223372036854775808").unwrap().as_i64(), None);
        assert_eq!(Number::parse("-9223372036854775808").unwrap().as_i64(), Some(i64::MIN));
    }
}
