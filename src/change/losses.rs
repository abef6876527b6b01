//! What of the source's values could not be kept.

/// How many values were not taken over as they stood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Dates that are none (`0000-00-00`, `2024-00-10`, `2024-02-31`) and became null.
    pub zero_dates: u64,
    /// Text values that are not valid in their character set and hold replacement characters now.
    pub invalid_text: u64,
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.zero_dates += other.zero_dates;
        self.invalid_text += other.invalid_text;
    }
}

impl Losses {
    /// What has come since `earlier`, both counted from the same beginning.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            zero_dates: self.zero_dates.saturating_sub(earlier.zero_dates),
            invalid_text: self.invalid_text.saturating_sub(earlier.invalid_text),
        }
    }
}
