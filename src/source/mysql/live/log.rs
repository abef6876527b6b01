//! The server's log: who it is, where it ends, and whether it still holds a position.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;

use super::connection::{Session, failure, text_literal};
use crate::change::{ResumePoint, SourceIdentity};
use crate::source::mysql::binlog::{Flavor, Place};
use crate::source::{SourceError, SourceErrorKind};

/// How long transactions that are in the log may take to become visible. Semi-synchronous replication holds
/// them back until a replica has answered (10 s by default).
pub(super) const COMMIT_WAIT: Duration = Duration::from_secs(30);
/// Between two looks at the transactions that are about to commit.
pub(super) const COMMIT_POLL: Duration = Duration::from_millis(2);
/// Tries to find the log quiet, or unrotated, before the exact but dearer way is taken.
const QUIET_TRIES: usize = 5;
/// What MySQL answers for an offset at which no event begins.
const ER_ERROR_WHEN_EXECUTING_COMMAND: u16 = 1220;
/// Offset of the first event of a binlog file: the magic number is 4 bytes long.
const FIRST_OFFSET: u64 = 4;

/// Who the server is. MySQL has a uuid of its own, made with its data folder. MariaDB has none: its server id
/// and GTID domain survive restarts and differ where servers replicate to each other; two unrelated servers
/// that share both are told apart by [`check_held`], which compares the GTIDs at the position.
pub(super) async fn identity(session: &mut Session) -> Result<SourceIdentity, SourceError> {
    match session.flavor {
        Flavor::MySql => {
            let uuid = session.value("SELECT @@global.server_uuid").await?.unwrap_or_default();
            Ok(SourceIdentity(format!("mysql:{uuid}")))
        }
        Flavor::MariaDb => {
            let rows = session.rows("SELECT @@global.server_id, @@global.gtid_domain_id").await?;
            let part = |index: usize| rows.first().and_then(|row| row.get(index)?.clone()).unwrap_or_default();
            Ok(SourceIdentity(format!("mariadb:server-{}-domain-{}", part(0), part(1))))
        }
    }
}

/// The present end of the log: every transaction up to it is visible to a statement that starts now, and its
/// GTID set holds exactly the transactions before its offset.
///
/// The second half matters: a set that lacks a transaction before the offset would have it sent again one
/// day, over newer changes; a set with one too many would lose it.
pub(super) async fn head(session: &mut Session) -> Result<ResumePoint, SourceError> {
    match session.flavor {
        Flavor::MySql => mysql_head(session).await,
        Flavor::MariaDb => {
            session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
            let coordinates = snapshot_coordinates(session).await;
            session.run("ROLLBACK").await?;
            mariadb_point(session, coordinates?).await
        }
    }
}

/// Whether MySQL gives every transaction a GTID.
pub(super) async fn gtid_mode_is_on(session: &mut Session) -> Result<bool, SourceError> {
    Ok(session.value("SELECT @@global.gtid_mode").await?.is_some_and(|mode| mode.eq_ignore_ascii_case("ON")))
}

async fn mysql_head(session: &mut Session) -> Result<ResumePoint, SourceError> {
    for _ in 0..QUIET_TRIES {
        let before = written(session).await?;
        if !gtid_mode_is_on(session).await? {
            return Ok(ResumePoint { position: before.position(), gtid_set: None });
        }
        await_commits(session).await?;
        let executed = executed_set(session).await?;
        let after = written(session).await?;
        let later = if after == before { Some(Vec::new()) } else { gtids_from(session, &before, &after).await? };
        if let Some(later) = later {
            let gtid_set = subtract(session, &executed, &later).await?;
            return Ok(ResumePoint { position: before.position(), gtid_set: Some(gtid_set) });
        }
    }
    let message = format!("the binlog of {} rotates faster than its end can be noted", session.endpoint);
    Err(SourceError::new(SourceErrorKind::Unavailable, message))
}

/// Where the next event will be written. Transactions before that place may not be visible yet: they are written
/// first and committed by the engine after.
async fn written(session: &mut Session) -> Result<Place, SourceError> {
    // MySQL renamed the statement in 8.2 and dropped the old name in 8.4; MariaDB keeps the old one.
    let renamed = session.flavor == Flavor::MySql && session.version >= (8, 2, 0);
    let statement = if renamed { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let row = session.rows(statement).await?.into_iter().next().ok_or_else(|| no_log(session))?;
    let mut values = row.into_iter();
    let file = values.next().flatten().ok_or_else(|| no_log(session))?;
    let offset = values.next().flatten().and_then(|text| text.parse().ok()).ok_or_else(|| no_log(session))?;
    Ok(Place { file, offset, era: session.era })
}

fn no_log(session: &Session) -> SourceError {
    let message = format!("{} writes no binary log: start the server with log_bin", session.endpoint);
    SourceError::new(SourceErrorKind::Misconfigured, message)
}

/// Waits until the transactions that MySQL has given a GTID, and maybe logged, have committed: a transaction
/// owns its GTID from before it is written to the log until after the engine has committed it.
async fn await_commits(session: &mut Session) -> Result<(), SourceError> {
    let deadline = Instant::now() + COMMIT_WAIT;
    let mut waiting = owned_gtids(session).await?;
    while !waiting.is_empty() {
        if Instant::now() > deadline {
            return Err(commits_hang(session));
        }
        tokio::time::sleep(COMMIT_POLL).await;
        let owned = owned_gtids(session).await?;
        waiting.retain(|gtid| owned.contains(gtid));
    }
    Ok(())
}

/// Transactions are in the log for [`COMMIT_WAIT`] and not visible yet.
pub(super) fn commits_hang(session: &Session) -> SourceError {
    let message = format!(
        "{} has had transactions in its log for {} s that do not commit; does it wait for a replica?",
        session.endpoint,
        COMMIT_WAIT.as_secs()
    );
    SourceError::new(SourceErrorKind::Unavailable, message)
}

/// `uuid:gno#thread` each, as `gtid_owned` lists them (`uuid:3#12:4#13,...`).
async fn owned_gtids(session: &mut Session) -> Result<HashSet<String>, SourceError> {
    let owned = session.value("SELECT @@global.gtid_owned").await?.unwrap_or_default();
    Ok(split_owned(&owned))
}

fn split_owned(owned: &str) -> HashSet<String> {
    let mut gtids = HashSet::new();
    for of_server in compact(owned).split(',').filter(|part| !part.is_empty()) {
        let mut parts = of_server.split(':');
        let mut owner = parts.next().unwrap_or_default().to_string();
        for part in parts {
            match part.contains('#') {
                true => _ = gtids.insert(format!("{owner}:{part}")),
                // A tag comes between the uuid and its transactions.
                false => owner = format!("{owner}:{part}"),
            }
        }
    }
    gtids
}

async fn executed_set(session: &mut Session) -> Result<String, SourceError> {
    Ok(compact(&session.value("SELECT @@global.gtid_executed").await?.unwrap_or_default()))
}

/// MySQL breaks long sets into lines.
fn compact(set: &str) -> String {
    set.chars().filter(|c| !c.is_ascii_whitespace()).collect()
}

/// GTIDs of the transactions from `from` on, in the log's text form; `None` when the log has gone on to
/// another file since.
async fn gtids_from(session: &mut Session, from: &Place, to: &Place) -> Result<Option<Vec<String>>, SourceError> {
    if from.file != to.file {
        return Ok(None);
    }
    let sql = format!("SHOW BINLOG EVENTS IN {} FROM {}", quoted(&from.file), from.offset);
    let rows = session.rows(&sql).await?;
    let rotated = rows.iter().any(|row| matches!(event_type(row), Some("Rotate" | "Stop")));
    let gtids = rows.iter().filter_map(|row| gtid_next(row.get(5)?.as_deref()?)).map(str::to_string);
    Ok((!rotated).then(|| gtids.collect()))
}

fn event_type(row: &[Option<String>]) -> Option<&str> {
    row.get(2)?.as_deref()
}

/// The GTID in `SET @@SESSION.GTID_NEXT= 'uuid:5'`.
fn gtid_next(info: &str) -> Option<&str> {
    let gtid = info.strip_prefix("SET @@SESSION.GTID_NEXT= '")?.strip_suffix('\'')?;
    (gtid != "ANONYMOUS").then_some(gtid)
}

/// SHOW BINLOG EVENTS takes a quoted name only. Names come from the server's own list.
fn quoted(file: &str) -> String {
    format!("'{}'", file.replace('\\', "\\\\").replace('\'', "''"))
}

async fn subtract(session: &mut Session, set: &str, gtids: &[String]) -> Result<String, SourceError> {
    if gtids.is_empty() {
        return Ok(set.to_string());
    }
    let sql = format!("SELECT GTID_SUBTRACT({}, {})", text_literal(set), text_literal(&gtids.join(",")));
    Ok(compact(&session.value(&sql).await?.unwrap_or_default()))
}

/// The end of the log at the moment of the session's open consistent snapshot: MariaDB notes both together,
/// so the snapshot holds exactly the transactions before it.
pub(super) async fn snapshot_coordinates(session: &mut Session) -> Result<Place, SourceError> {
    let rows = session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'").await?;
    let value = |name: &str| {
        let row = rows.iter().find(|row| {
            row.first().is_some_and(|found| found.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(name)))
        })?;
        row.get(1)?.clone().filter(|value| !value.is_empty())
    };
    let file = value("binlog_snapshot_file").ok_or_else(|| no_log(session))?;
    let offset = value("binlog_snapshot_position").and_then(|text| text.parse().ok()).ok_or_else(|| no_log(session))?;
    Ok(Place { file, offset, era: session.era })
}

/// MariaDB's point for a place in the log, with the GTIDs before it.
pub(super) async fn mariadb_point(session: &mut Session, at: Place) -> Result<ResumePoint, SourceError> {
    for _ in 0..QUIET_TRIES {
        // The log's lock is taken by both looks, so an unmoved end means that the set between them is its own.
        if written(session).await? != at {
            break;
        }
        let set = session.value("SELECT @@global.gtid_binlog_pos").await?.unwrap_or_default();
        if written(session).await? == at {
            return Ok(ResumePoint { position: at.position(), gtid_set: Some(ordered(&set)) });
        }
    }
    // No set at all is not the empty set, from which a server would send its whole log again.
    let Some(set) = gtids_at(session, &at).await? else {
        let message = format!("{} has no event that begins at {}", session.endpoint, at.position());
        return Err(SourceError::new(SourceErrorKind::Unavailable, message));
    };
    Ok(ResumePoint { position: at.position(), gtid_set: Some(ordered(&set)) })
}

/// `None` where the server has no event that begins there. Reads the file up to there: a second per GiB.
async fn gtids_at(session: &mut Session, at: &Place) -> Result<Option<String>, SourceError> {
    session.value(&format!("SELECT BINLOG_GTID_POS({}, {})", quoted(&at.file), at.offset)).await
}

/// MariaDB lists the domains of a GTID position in no order.
fn ordered(set: &str) -> String {
    let mut gtids: Vec<&str> = set.split(',').map(str::trim).filter(|gtid| !gtid.is_empty()).collect();
    gtids.sort_by_key(|gtid| gtid.split('-').next().and_then(|domain| domain.parse::<u32>().ok()));
    gtids.join(",")
}

/// The log files that the server still has, oldest first, with their sizes in bytes.
pub(super) async fn files(session: &mut Session) -> Result<Vec<(String, u64)>, SourceError> {
    let rows = session.rows("SHOW BINARY LOGS").await?;
    let file = |row: Vec<Option<String>>| {
        let mut values = row.into_iter();
        Some((values.next()??, values.next()??.parse().ok()?))
    };
    Ok(rows.into_iter().filter_map(file).collect())
}

/// Checks that the server's log still holds all that follows `from`, and that it is the log which `from` is
/// about. `by_gtid` tells how reading will resume.
///
/// # Errors
/// `Lost`, with what is left.
pub(super) async fn check_held(session: &mut Session, from: &ResumePoint, by_gtid: bool) -> Result<(), SourceError> {
    let set = from.gtid_set.as_deref();
    if is_of_another(session, from) {
        return check_history(session, from).await;
    }
    if let (Flavor::MySql, Some(set)) = (session.flavor, set)
        && gtid_mode_is_on(session).await?
    {
        check_mysql_set(session, set).await?;
        if by_gtid {
            // MySQL finds the place by the set alone; the file that it was in may be gone by then.
            check_order(session, from).await?;
            let at = Place::parse(&from.position.text);
            let files = files(session).await?;
            if !at.is_some_and(|at| files.iter().any(|(name, _)| *name == at.file)) {
                return Ok(());
            }
        }
    }
    check_file(session, from).await?;
    match (session.flavor, set, Place::parse(&from.position.text)) {
        (Flavor::MariaDb, Some(set), Some(at)) => check_mariadb_set(session, set, &at).await,
        (Flavor::MySql, _, Some(at)) => check_event(session, &at).await,
        _ => Ok(()),
    }
}

/// An event begins, or the log ends, where the last one that was read has ended: a server that lost its last transactions gives their GTIDs to
/// others, which seldom have the same size.
async fn check_event(session: &mut Session, at: &Place) -> Result<(), SourceError> {
    let sql = format!("SHOW BINLOG EVENTS IN {} FROM {} LIMIT 1", quoted(&at.file), at.offset);
    match session.conn.query_drop(sql).await {
        Ok(()) => Ok(()),
        Err(mysql_async::Error::Server(error)) if error.code == ER_ERROR_WHEN_EXECUTING_COMMAND => {
            let what = format!(
                "no event of {} begins at {}, where one ended that was read before: the server lost its last transactions, or was restored from a backup",
                session.endpoint,
                at.position()
            );
            Err(lost(&what))
        }
        Err(error) => Err(failure(&session.endpoint, "look at the binlog", error)),
    }
}

/// Whether the point stands in the log of a server that this one has taken the place of: then only its transactions count.
pub(super) fn is_of_another(session: &Session, from: &ResumePoint) -> bool {
    Place::parse(&from.position.text).is_some_and(|at| at.is_takeover() || at.era != session.era)
}

/// Checks that the server has all transactions up to `from`, and all that come after them.
///
/// # Errors
/// `Lost`, with what is missing.
pub(super) async fn check_history(session: &mut Session, from: &ResumePoint) -> Result<(), SourceError> {
    let Some(set) = &from.gtid_set else {
        return Err(lost(&format!("{} has no GTIDs, by which alone it can be found on another server", from.position)));
    };
    if session.flavor == Flavor::MariaDb {
        return check_mariadb_history(session, set).await;
    }
    if !gtid_mode_is_on(session).await? {
        return Err(lost(&format!("gtid_mode of {} is not ON", session.endpoint)));
    }
    check_mysql_set(session, set).await
}

/// MariaDB lists the last transaction of each server and domain in its log. It has those before it too; whether it still has those
/// after it in its files, it says when they are asked for.
async fn check_mariadb_history(session: &mut Session, set: &str) -> Result<(), SourceError> {
    let state = session.value("SELECT @@global.gtid_binlog_state").await?.unwrap_or_default();
    let parts = |gtid: &str| {
        let mut numbers = gtid.split('-').map(|number| number.trim().parse::<u64>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    };
    let known: Vec<_> = state.split(',').filter_map(parts).collect();
    let has = |gtid: &&str| {
        let Some((domain, server, sequence)) = parts(gtid) else { return false };
        known.iter().any(|(d, s, n)| (*d, *s) == (domain, server) && *n >= sequence)
    };
    let missing: Vec<&str> = set.split(',').filter(|gtid| !gtid.trim().is_empty() && !has(gtid)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!(
        "the binlog of {} has no transactions that were read before ({}): it was reset, restored from a backup, is another server, or \
         a replica without log_slave_updates",
        session.endpoint,
        missing.join(",")
    );
    Err(lost(&what))
}

/// Positions of a log whose files were numbered anew do not come after those of before.
async fn check_order(session: &mut Session, from: &ResumePoint) -> Result<(), SourceError> {
    let end = written(session).await?.position();
    if end >= from.position {
        return Ok(());
    }
    let what = format!(
        "the binlog of {} ends at {end}, before {}, where the job stands: its files were numbered anew",
        session.endpoint, from.position
    );
    Err(lost(&what))
}

async fn check_file(session: &mut Session, from: &ResumePoint) -> Result<(), SourceError> {
    let at = Place::parse(&from.position.text);
    let at = at.ok_or_else(|| lost(&format!("{} is no binlog position", from.position)))?;
    let files = files(session).await?;
    let oldest = files.first().map_or("none is left", |(name, _)| name.as_str());
    let size = files.iter().find(|(name, _)| *name == at.file).map(|(_, size)| *size);
    match size {
        Some(size) if (FIRST_OFFSET..=size).contains(&at.offset) => Ok(()),
        Some(size) => {
            let what = format!(
                "binlog {} of {} ends at {size}, before {}: the server was reset or restored",
                at.file, session.endpoint, from.position
            );
            Err(lost(&what))
        }
        None => Err(lost(&format!("binlog {} is gone from {} (oldest: {oldest})", at.file, session.endpoint))),
    }
}

async fn check_mysql_set(session: &mut Session, set: &str) -> Result<(), SourceError> {
    let set_literal = text_literal(set);
    let executed = format!("SELECT GTID_SUBSET({set_literal}, @@global.gtid_executed)");
    // The server may send a transaction to a replica before it counts as executed.
    let deadline = Instant::now() + Duration::from_secs(2);
    while session.value(&executed).await?.as_deref() != Some("1") {
        if Instant::now() > deadline {
            let sql = format!("SELECT GTID_SUBTRACT({set_literal}, @@global.gtid_executed)");
            let missing = compact(&session.value(&sql).await?.unwrap_or_default());
            let what = format!(
                "{} never executed transactions that were read before ({missing}): it was reset, restored from a backup, or is another server",
                session.endpoint
            );
            return Err(lost(&what));
        }
        tokio::time::sleep(COMMIT_POLL * 50).await;
    }
    let sql = format!("SELECT GTID_SUBTRACT(@@global.gtid_purged, {set_literal})");
    let purged = compact(&session.value(&sql).await?.unwrap_or_default());
    if purged.is_empty() {
        return Ok(());
    }
    let what = format!("{} has purged transactions that were not read yet ({purged})", session.endpoint);
    Err(lost(&what))
}

async fn check_mariadb_set(session: &mut Session, set: &str, at: &Place) -> Result<(), SourceError> {
    let found = gtids_at(session, at).await?.map(|found| ordered(&found));
    if found.as_deref() == Some(ordered(set).as_str()) {
        return Ok(());
    }
    let what = format!(
        "{} has {} at {}:{}, where {} was read before: it was reset, restored from a backup, or is another server",
        session.endpoint,
        found.filter(|set| !set.is_empty()).map_or("no transaction".to_string(), |set| format!("GTID position {set}")),
        at.file,
        at.offset,
        if set.is_empty() { "none" } else { set },
    );
    Err(lost(&what))
}

fn lost(what: &str) -> SourceError {
    let message = format!("{what}; start again from a snapshot with: alluvium run --resnapshot");
    SourceError::new(SourceErrorKind::Lost, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_gtids_are_told_apart_by_server_tag_and_thread() {
        let owned = split_owned("aaa:3#12:4#13,\nbbb:app:7#1");
        let expected = ["aaa:3#12", "aaa:4#13", "bbb:app:7#1"].map(String::from);
        assert_eq!(owned, HashSet::from(expected));
        assert!(split_owned("").is_empty());
    }

    #[test]
    fn the_gtid_of_a_log_line_is_read_unless_it_is_anonymous() {
        assert_eq!(gtid_next("SET @@SESSION.GTID_NEXT= 'aaa:5'"), Some("aaa:5"));
        assert_eq!(gtid_next("SET @@SESSION.GTID_NEXT= 'ANONYMOUS'"), None);
        assert_eq!(gtid_next("BEGIN"), None);
    }

    #[test]
    fn gtid_positions_of_mariadb_are_compared_in_the_order_of_their_domains() {
        assert_eq!(ordered("10-1-5, 2-1-9"), "2-1-9,10-1-5");
    }
}
