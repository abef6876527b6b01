//! Keeps first loads from being a burden: no rows are asked for while the server has other things to do.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};

use super::connection::{Session, failure};
use crate::config::SnapshotConfig;
use crate::source::mysql::binlog::Flavor;
use crate::source::{SourceError, SourceErrorKind};

/// Why no query should be begun now: which limit of the job file the server is above.
pub(super) async fn busy(session: &mut Session, config: &SnapshotConfig) -> Result<Option<String>, SourceError> {
    if let Some(max) = config.threads_running_max {
        let rows = session.rows("SHOW GLOBAL STATUS LIKE 'Threads_running'").await?;
        let running = rows.first().and_then(|row| row.get(1)?.as_deref()?.parse::<u32>().ok());
        if let Some(running) = running.filter(|running| *running > max) {
            return Ok(Some(format!("Threads_running is {running}, above {max}")));
        }
    }
    let Some(max) = config.replica_lag_max else { return Ok(None) };
    let lag = replica_lag(session).await?;
    Ok(lag.filter(|lag| *lag > max).map(|lag| format!("it is {} s behind its own source", lag.as_secs())))
}

/// How far the server is behind its own source, the farthest of several; `None` for one that is no replica, or whose
/// replication stands still.
async fn replica_lag(session: &mut Session) -> Result<Option<Duration>, SourceError> {
    let statement = match session.flavor {
        Flavor::MySql => "SHOW REPLICA STATUS",
        Flavor::MariaDb => "SHOW ALL SLAVES STATUS",
    };
    let rows: Vec<Row> = session.conn.query(statement).await.map_err(|error| match error {
        // ER_SPECIFIC_ACCESS_DENIED_ERROR
        mysql_async::Error::Server(server) if server.code == 1227 => may_not_see_lag(session, &server.message),
        error => failure(&session.endpoint, statement, error),
    })?;
    Ok(rows.iter().filter_map(seconds_behind).max().map(Duration::from_secs))
}

/// MySQL shows the lag to whoever may read the log; MariaDB has a privilege of its own for it.
fn may_not_see_lag(session: &Session, reason: &str) -> SourceError {
    let privilege = match session.flavor {
        Flavor::MySql => "REPLICATION CLIENT",
        Flavor::MariaDb => "SLAVE MONITOR",
    };
    let message = format!(
        "{} may not see the server's lag, for which source.snapshot.replica_lag has a limit: {reason}; run as an \
         administrator: GRANT {privilege} ON *.* TO the user, or write replica_lag: off",
        session.endpoint
    );
    SourceError::new(SourceErrorKind::Misconfigured, message)
}

fn seconds_behind(row: &Row) -> Option<u64> {
    let names = ["Seconds_Behind_Source", "Seconds_Behind_Master"];
    let index = row.columns_ref().iter().position(|column| names.contains(&&*column.name_str()))?;
    match row.as_ref(index)? {
        Value::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}
