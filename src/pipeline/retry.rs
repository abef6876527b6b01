//! When to start over, and after which pause.

use std::time::Duration;

use super::PipelineError;

/// Pause after the first failure; doubled with each failure in a row.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// Longest pause: short enough to be back soon after a server's restart.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Failures in a row after which a scheduled run gives up: about a minute. A run that follows goes on.
const FAILURES_MAX: u32 = 7;

/// The one place that decides whether an error is met by trying again.
pub(super) struct Retry {
    follow: bool,
    failures: u32,
}

impl Retry {
    pub fn new(follow: bool) -> Self {
        Self { follow, failures: 0 }
    }

    /// A batch was applied: the next failure is a first one.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The pause before the next try, or `None` if there is to be none.
    pub fn pause_after(&mut self, error: &PipelineError) -> Option<Duration> {
        self.failures += 1;
        if !error.is_transient() || (!self.follow && self.failures >= FAILURES_MAX) {
            return None;
        }
        let doublings = self.failures.saturating_sub(1).min(10);
        Some((PAUSE_FIRST * 2u32.pow(doublings)).min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SourceError, SourceErrorKind};

    fn error(kind: SourceErrorKind) -> PipelineError {
        PipelineError::Source(SourceError::new(kind, "test"))
    }

    #[test]
    fn a_scheduled_run_gives_up_and_one_that_follows_does_not() {
        let lost_connection = error(SourceErrorKind::Unavailable);
        let (mut scheduled, mut following) = (Retry::new(false), Retry::new(true));
        let pauses: Vec<_> = (0..FAILURES_MAX).map(|_| scheduled.pause_after(&lost_connection)).collect();
        assert!(pauses[..6].iter().all(Option::is_some) && pauses[6].is_none(), "{pauses:?}");
        assert!((0..100).all(|_| following.pause_after(&lost_connection).is_some_and(|pause| pause <= PAUSE_MAX)));
    }

    #[test]
    fn what_its_owner_must_mend_is_not_tried_again() {
        for kind in [SourceErrorKind::Misconfigured, SourceErrorKind::Lost, SourceErrorKind::Corrupt] {
            assert!(Retry::new(true).pause_after(&error(kind)).is_none(), "{kind:?}");
        }
    }
}
