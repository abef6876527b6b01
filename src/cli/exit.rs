//! What a run of the program tells its caller.

use std::process::ExitCode;

use crate::source::SourceErrorKind;

/// The exit codes, a contract with cron, Airflow and Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// An error that may be gone the next time.
    Retry = 1,
    /// Wrong usage, a wrong job file, or settings of the source that its owner must mend.
    Usage = 2,
    /// The run went through, but a table was taken out.
    TableStopped = 3,
    /// The source lost the position, or it is another source.
    PositionLost = 4,
}

impl Exit {
    /// The exit of an error with this code; an unknown code is one to retry.
    pub fn from_code(code: u8) -> Self {
        let all = [Self::Done, Self::Retry, Self::Usage, Self::TableStopped, Self::PositionLost];
        all.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Self::Retry)
    }
}

impl From<SourceErrorKind> for Exit {
    fn from(kind: SourceErrorKind) -> Self {
        match kind {
            SourceErrorKind::Unavailable | SourceErrorKind::Changed | SourceErrorKind::Corrupt => Self::Retry,
            SourceErrorKind::Misconfigured | SourceErrorKind::Unloadable => Self::Usage,
            SourceErrorKind::Lost => Self::PositionLost,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_means_what_the_manual_says() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|code| Exit::from_code(code) as u8), [0, 1, 2, 3, 4, 1]);
    }
}
