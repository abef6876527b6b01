//! A server that takes the place of another: a replica that became the primary, at the address that the job knows.
//!
//! Its log has the same transactions under the same GTIDs, but in files of its own. So it is known by the set of transactions that
//! were read, reading goes on behind that set, and its positions begin a new era ([`ERA`](crate::source::mysql::binlog::ERA)).

use std::collections::VecDeque;

use async_trait::async_trait;

use super::connection::Session;
use super::log;
use super::stream::LiveStream;
use crate::change::{Boundary, ChangeBatch, Losses, ResumePoint, SourceIdentity, TableId};
use crate::config::ResumeBy;
use crate::source::mysql::binlog::{ERA, Flavor, Place};
use crate::source::mysql::gtid::GtidSet;
use crate::source::{ChangeStream, SourceError, SourceErrorKind, SourceEvent, Standing};

/// The server that a job reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Incumbent {
    pub identity: SourceIdentity,
    pub era: u64,
}

/// How the server stands to a job that has read the log of `known` up to `from`.
pub(super) async fn standing(
    session: &mut Session,
    known: &SourceIdentity,
    from: &ResumePoint,
    resume: ResumeBy,
) -> Result<Standing, SourceError> {
    let found = log::identity(session).await?;
    if found == *known {
        return Ok(Standing::Same);
    }
    if let Some(why_not) = refusal(session.flavor, known, from, resume) {
        return Ok(Standing::Other { found, why_not });
    }
    match log::check_history(session, from).await {
        Ok(()) => {
            let position = Place::takeover(era_of(from) + 1).position();
            let at = ResumePoint { position, gtid_set: from.gtid_set.clone() };
            Ok(Standing::Successor { identity: found, at })
        }
        Err(error) if error.kind == SourceErrorKind::Lost => Ok(Standing::Other { found, why_not: error.message }),
        Err(error) => Err(error),
    }
}

/// Why no server can take over, whatever it has.
fn refusal(flavor: Flavor, known: &SourceIdentity, from: &ResumePoint, resume: ResumeBy) -> Option<String> {
    let is_same_kind = match flavor {
        Flavor::MySql => known.0.starts_with("mysql:"),
        Flavor::MariaDb => known.0.starts_with("mariadb:"),
    };
    let has_read = from.gtid_set.as_deref().is_some_and(|set| !set.trim().is_empty());
    let reason = match (is_same_kind, has_read, flavor, resume) {
        (false, ..) => "it is a server of another kind",
        (_, false, ..) => {
            "the job has read no transactions with GTIDs, by which a server that takes over could be known"
        }
        (.., ResumeBy::Position) => "source.resume is `position`, which is good for one server only",
        // A MariaDB GTID has the server id, which two unrelated servers may share.
        (.., Flavor::MariaDb, ResumeBy::Auto) => {
            "if it is a replica that took the place of that server, say `resume: gtid` under source"
        }
        _ => return None,
    };
    Some(reason.to_string())
}

/// How many servers were the source before the one that the point is about.
pub(super) fn era_of(point: &ResumePoint) -> u64 {
    point.position.order.0 / ERA
}

/// A batch that was read from the server before, read again from its successor: the same transactions, told with the positions of then.
pub(super) struct Retold {
    stream: LiveStream,
    from: ResumePoint,
    upto: ResumePoint,
    wanted: GtidSet,
    /// Rows since the last boundary: they are wanted if the transactions of the next one are.
    open: Vec<SourceEvent>,
    ready: VecDeque<SourceEvent>,
    is_over: bool,
}

impl Retold {
    /// `stream` goes on behind the set of `from`.
    pub fn new(stream: LiveStream, from: ResumePoint, upto: ResumePoint) -> Result<Self, SourceError> {
        let wanted = upto.gtid_set.as_deref().and_then(|set| set.parse().ok());
        let wanted = wanted.ok_or_else(|| {
            let message = format!("{} has no GTIDs, by which alone it can be found on another server", upto.position);
            SourceError::new(SourceErrorKind::Lost, message)
        })?;
        let is_over = from.gtid_set == upto.gtid_set;
        let stream = stream.step_by_step();
        let mut ready = VecDeque::new();
        if is_over {
            ready.push_back(boundary(upto.clone(), None));
        }
        Ok(Self { stream, from, upto, wanted, open: Vec::new(), ready, is_over })
    }

    fn take(&mut self, event: SourceEvent) -> Result<(), SourceError> {
        match event {
            SourceEvent::Rows(rows) => self.open.push(SourceEvent::Rows(self.moved(rows))),
            SourceEvent::Boundary(Boundary { resume, commit_time_us }) => {
                let read: Option<GtidSet> = resume.gtid_set.as_deref().and_then(|set| set.parse().ok());
                let is_wanted = read.as_ref().is_some_and(|read| read.is_subset_of(&self.wanted));
                if !is_wanted {
                    return Err(self.out_of_order(resume.gtid_set.as_deref().unwrap_or_default()));
                }
                self.is_over = read.is_some_and(|read| self.wanted.is_subset_of(&read));
                let at = if self.is_over { &self.upto } else { &self.from };
                self.ready.extend(self.open.drain(..));
                self.ready.push_back(boundary(at.clone(), commit_time_us));
            }
            other => self.open.push(other),
        }
        Ok(())
    }

    /// The batch was applied as a whole by its end's position, so each of its transactions may have that.
    fn moved(&self, mut rows: ChangeBatch) -> ChangeBatch {
        rows.transactions.iter_mut().for_each(|span| span.position = self.upto.position.clone());
        rows
    }

    fn out_of_order(&self, read: &str) -> SourceError {
        let message = format!(
            "a batch was left unfinished at {}, and the server that has taken over has its transactions in another order ({read}): \
             let the server before come back for one run, or start again from a snapshot with: alluvium run --resnapshot",
            self.upto.position
        );
        SourceError::new(SourceErrorKind::Lost, message)
    }
}

fn boundary(resume: ResumePoint, commit_time_us: Option<i64>) -> SourceEvent {
    SourceEvent::Boundary(Boundary { resume, commit_time_us })
}

#[async_trait]
impl ChangeStream for Retold {
    async fn next(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            if let Some(event) = self.stream.next().await? {
                self.take(event)?;
            }
        }
    }

    fn losses(&self) -> Vec<(TableId, Losses)> {
        self.stream.losses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::SourcePosition;

    fn point(gtid_set: Option<&str>) -> ResumePoint {
        let position = SourcePosition { order: (3 + ERA, 7), text: "binlog.000003:7@1".into() };
        ResumePoint { position, gtid_set: gtid_set.map(Into::into) }
    }

    #[test]
    fn only_transactions_make_a_server_known_as_the_successor_of_another() {
        let (mysql, mariadb) = (SourceIdentity("mysql:u".into()), SourceIdentity("mariadb:server-1-domain-0".into()));
        let refused = |flavor, known, set, resume| refusal(flavor, known, &point(set), resume).is_some();
        let (set, position) = (Some("0-1-5"), ResumeBy::Position);
        assert!(!refused(Flavor::MySql, &mysql, set, ResumeBy::Auto));
        assert!(!refused(Flavor::MariaDb, &mariadb, set, ResumeBy::Gtid));
        assert!(refused(Flavor::MariaDb, &mariadb, set, ResumeBy::Auto));
        assert!(refused(Flavor::MariaDb, &mysql, set, ResumeBy::Gtid));
        for none in [None, Some("")] {
            assert!(refused(Flavor::MySql, &mysql, none, ResumeBy::Gtid));
        }
        assert!(refused(Flavor::MySql, &mysql, set, position));
        assert_eq!(era_of(&point(None)), 1);
    }
}
