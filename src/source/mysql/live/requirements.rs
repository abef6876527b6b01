//! What a server must be set to so that its log carries every change whole, and what its user must be
//! allowed to do.

use std::collections::HashMap;
use std::time::Duration;

use super::catalogue::NO_PRIMARY_KEY;
use super::connection::{Session, identifier};
use super::log;
use crate::change::{ResumePoint, SourceIdentity};
use crate::source::mysql::binlog::{Flavor, Place};
use crate::source::{DiscoveredTable, SourceError, SourceErrorKind};

/// Shortest retention of the log that a job can rely on over a weekend's outage is days; below this even a
/// nightly job loses its place.
const RETENTION_SECONDS_MIN: f64 = 86_400.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something works less well than it could.
    Warning,
    /// Changes would be missed, or cannot be read.
    Error,
}

/// One thing about the server that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A setting, a grant or a table.
    pub subject: String,
    pub found: String,
    pub wanted: String,
    /// The SQL statement that mends it, where there is one.
    pub fix: Option<String>,
    pub severity: Severity,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {}, wanted: {}", self.subject, self.found, self.wanted)?;
        match &self.fix {
            Some(fix) => write!(f, "; mend it with: {fix}"),
            None => Ok(()),
        }
    }
}

impl Finding {
    fn new(severity: Severity, subject: &str, found: impl Into<String>, wanted: &str) -> Self {
        Self { subject: subject.into(), found: found.into(), wanted: wanted.into(), fix: None, severity }
    }

    fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// The global settings that matter here, by name in lower case.
struct Settings(HashMap<String, String>);

impl Settings {
    async fn read(session: &mut Session) -> Result<Self, SourceError> {
        let rows = session
            .rows(
                "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image', \
                 'binlog_row_metadata', 'server_id', 'binlog_expire_logs_seconds', \
                 'expire_logs_days', 'gtid_mode')",
            )
            .await?;
        let pair = |row: Vec<Option<String>>| {
            let mut values = row.into_iter();
            Some((values.next()??.to_ascii_lowercase(), values.next()?.unwrap_or_default()))
        };
        Ok(Self(rows.into_iter().filter_map(pair).collect()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A finding if the setting is there and is another.
    fn expect(&self, name: &str, wanted: &str, severity: Severity) -> Option<Finding> {
        let found = self.get(name).filter(|found| !found.eq_ignore_ascii_case(wanted))?;
        Some(Finding::new(severity, name, found, wanted).with_fix(format!("SET GLOBAL {name} = '{wanted}'")))
    }
}

/// All that is wrong with the server's settings and the user's grants, errors first.
pub(super) async fn check(session: &mut Session) -> Result<Vec<Finding>, SourceError> {
    let settings = Settings::read(session).await?;
    let mut findings = vital_settings(&settings);
    findings.extend(image_settings(&settings, session.flavor));
    findings.extend(advisable_settings(&settings, session.flavor));
    findings.extend(grants(session).await?);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(findings)
}

/// What `check` would say about the tables.
pub(super) fn check_tables(tables: &[DiscoveredTable], patterns: &str) -> Vec<Finding> {
    if tables.is_empty() {
        let wanted = "at least one table that the user may SELECT from";
        return vec![Finding::new(Severity::Warning, "tables", format!("none for {patterns}"), wanted)];
    }
    tables.iter().filter_map(check_table).collect()
}

fn check_table(found: &DiscoveredTable) -> Option<Finding> {
    let reason = found.schema.as_ref().err()?;
    let wanted = "a primary key of whole, exact columns";
    let finding = Finding::new(Severity::Warning, &found.table.to_string(), reason.as_str(), wanted);
    if !reason.contains(NO_PRIMARY_KEY) {
        return Some(finding);
    }
    let table = format!("{}.{}", identifier(&found.table.database), identifier(&found.table.table));
    let columns: Vec<String> = found.key_advised.iter().map(|name| identifier(name)).collect();
    let clause = match columns.as_slice() {
        [] => "ADD COLUMN row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY".to_string(),
        columns => format!("ADD PRIMARY KEY ({})", columns.join(", ")),
    };
    Some(finding.with_fix(format!("ALTER TABLE {table} {clause}")))
}

/// The server is not the one that the job has read.
pub(super) fn other_server(known: &SourceIdentity, found: &SourceIdentity, why_not: &str) -> Finding {
    let wanted = format!("{known}, which the job has read; a new server needs a new job ({why_not})");
    Finding::new(Severity::Error, "the source", found.to_string(), &wanted)
}

/// The server's log does not hold the job's position.
pub(super) fn lost(position: &ResumePoint, error: &SourceError) -> Finding {
    let subject = format!("position {}", position.position);
    Finding::new(Severity::Error, &subject, error.message.as_str(), "held by the server's log")
}

/// The server is another one, with which the job goes on.
pub(super) fn successor(known: &SourceIdentity, found: &SourceIdentity) -> Finding {
    let wanted = format!(
        "{known}, which the job has read; this server has the same transactions, and the next run goes on with it"
    );
    Finding::new(Severity::Warning, "the source", found.to_string(), &wanted)
}

/// Warns when more than half of the time has passed for which the server keeps what the job is to read next.
pub(super) async fn check_lag(
    session: &mut Session,
    position: &ResumePoint,
    behind: Option<Duration>,
) -> Result<Vec<Finding>, SourceError> {
    let files = log::files(session).await?;
    // The file that is being written is never purged.
    let at = Place::parse(&position.position.text);
    let is_newest = files.last().zip(at).is_some_and(|((newest, _), at)| *newest == at.file);
    let settings = Settings::read(session).await?;
    Ok(match (retention_seconds(&settings), behind) {
        (Some((name, kept)), Some(behind)) if !is_newest => lag_finding(name, kept, behind).into_iter().collect(),
        _ => Vec::new(),
    })
}

fn lag_finding(setting: &str, kept_seconds: f64, behind: Duration) -> Option<Finding> {
    if behind.as_secs_f64() * 2.0 < kept_seconds {
        return None;
    }
    let hours = |seconds: f64| format!("{:.1} h", seconds / 3_600.0);
    let left = (kept_seconds - behind.as_secs_f64()).max(0.0);
    let found = format!(
        "{} behind, while the server purges its log after {}: {} are left",
        hours(behind.as_secs_f64()),
        hours(kept_seconds),
        hours(left)
    );
    let longer = match setting {
        "expire_logs_days" => (kept_seconds / 43_200.0).ceil(),
        _ => kept_seconds * 2.0,
    };
    let finding = Finding::new(Severity::Warning, "the job", found, "run soon, or the log kept for longer");
    Some(finding.with_fix(format!("SET GLOBAL {setting} = {longer}")))
}

/// Refuses a server whose log cannot be followed at all.
///
/// # Errors
/// `Misconfigured`, with every reason and the statements that mend them.
pub(super) async fn require(session: &mut Session) -> Result<(), SourceError> {
    let settings = Settings::read(session).await?;
    let mut findings = vital_settings(&settings);
    findings.extend(grants(session).await?.into_iter().filter(|finding| finding.severity == Severity::Error));
    if findings.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = findings.iter().map(Finding::to_string).collect();
    let message = format!("{} cannot be followed: {}", session.endpoint, reasons.join(". "));
    Err(SourceError::new(SourceErrorKind::Misconfigured, message))
}

fn vital_settings(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if settings.get("log_bin").is_some_and(|found| !matches!(found, "ON" | "1")) {
        let wanted = "ON (start the server with log_bin; on a managed server turn on backups)";
        findings.push(Finding::new(Severity::Error, "log_bin", "OFF", wanted));
    }
    // Some day the variable will be gone, when ROW is all there is.
    findings.extend(settings.expect("binlog_format", "ROW", Severity::Error));
    if settings.get("server_id") == Some("0") {
        let finding = Finding::new(Severity::Error, "server_id", "0", "any other number, unique among its replicas");
        findings.push(finding.with_fix("SET GLOBAL server_id = 1"));
    }
    findings
}

/// Settings with which the log leaves out columns. Their old values are read from the lake: that costs time. Sessions
/// may have settings of their own, which no one else sees.
fn image_settings(settings: &Settings, flavor: Flavor) -> Vec<Finding> {
    let found = settings.expect("binlog_row_image", "FULL", Severity::Warning);
    let is_minimal = settings.get("binlog_row_image").is_some_and(|image| image.eq_ignore_ascii_case("MINIMAL"));
    let wanted = match flavor {
        Flavor::MariaDb if is_minimal => {
            "FULL: else REPLACE of a row that is there does not log the columns that it sets to their defaults, nor are \
             virtual columns logged"
        }
        _ => "FULL: else each batch reads the columns that the log leaves out from the lake",
    };
    found.into_iter().map(|finding| Finding { wanted: wanted.into(), ..finding }).collect()
}

fn advisable_settings(settings: &Settings, flavor: Flavor) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(settings.expect("binlog_row_metadata", "FULL", Severity::Warning));
    findings.extend(retention(settings));
    if flavor == Flavor::MySql {
        findings.extend(settings.expect("gtid_mode", "ON", Severity::Warning).map(|finding| Finding {
            wanted: "ON: positions then survive a change of the server's binlog files".into(),
            fix: None,
            ..finding
        }));
    }
    findings
}

fn retention(settings: &Settings) -> Option<Finding> {
    let (name, seconds) = retention_seconds(settings)?;
    let week = if name == "expire_logs_days" { 7 } else { 604_800 };
    (seconds < RETENTION_SECONDS_MIN).then(|| {
        Finding::new(Severity::Warning, name, settings.get(name).unwrap_or_default(), "at least a day, better a week")
            .with_fix(format!("SET GLOBAL {name} = {week}"))
    })
}

/// The setting that has logs purged by age, and that age; `None` where they are not.
fn retention_seconds(settings: &Settings) -> Option<(&'static str, f64)> {
    let number = |name: &str| settings.get(name).and_then(|text| text.parse::<f64>().ok());
    match (number("binlog_expire_logs_seconds"), number("expire_logs_days")) {
        (Some(seconds), _) if seconds > 0.0 => Some(("binlog_expire_logs_seconds", seconds)),
        (_, Some(days)) if days > 0.0 => Some(("expire_logs_days", days * 86_400.0)),
        _ => None,
    }
}

/// Reading the log takes two global privileges. MariaDB calls the second BINLOG MONITOR since 10.5.2 and takes
/// the old name as well; before, and on MySQL, it is REPLICATION CLIENT.
async fn grants(session: &mut Session) -> Result<Vec<Finding>, SourceError> {
    let grants: Vec<String> =
        session.rows("SHOW GRANTS").await?.into_iter().filter_map(|row| row.into_iter().next()?).collect();
    let user = session.value("SELECT CURRENT_USER()").await?.unwrap_or_default();
    Ok(missing_grants(&grants, &account(&user)))
}

/// The privilege to see how far a MariaDB is behind its own source, for a job that has a limit for it.
pub(super) async fn lag_grant(session: &mut Session) -> Result<Option<Finding>, SourceError> {
    if session.flavor != Flavor::MariaDb || session.version < (10, 5, 2) {
        return Ok(None);
    }
    let rows = session.rows("SHOW GRANTS").await?;
    let names = ["SLAVE MONITOR", "REPLICA MONITOR"];
    if rows.iter().flatten().flatten().any(|grant| grants_globally(grant, &names)) {
        return Ok(None);
    }
    let user = session.value("SELECT CURRENT_USER()").await?.unwrap_or_default();
    let wanted = "granted, for the limit source.snapshot.replica_lag";
    let finding = Finding::new(Severity::Error, "privilege SLAVE MONITOR", "missing", wanted);
    Ok(Some(finding.with_fix(format!("GRANT SLAVE MONITOR ON *.* TO {}", account(&user)))))
}

/// `cdc@10.%` as a quoted account name.
fn account(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    format!("'{}'@'{}'", name.replace('\'', "''"), host.replace('\'', "''"))
}

fn missing_grants(grants: &[String], account: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (privilege, names) in [
        ("REPLICATION SLAVE", ["REPLICATION SLAVE", "REPLICATION SLAVE"]),
        ("REPLICATION CLIENT", ["REPLICATION CLIENT", "BINLOG MONITOR"]),
    ] {
        if !grants.iter().any(|grant| grants_globally(grant, &names)) {
            let finding = Finding::new(Severity::Error, &format!("privilege {privilege}"), "missing", "granted");
            findings.push(finding.with_fix(format!("GRANT {privilege} ON *.* TO {account}")));
        }
    }
    findings
}

fn grants_globally(grant: &str, names: &[&str]) -> bool {
    let Some((privileges, rest)) = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON ")) else {
        return false;
    };
    let global = rest.starts_with("*.* ");
    let has = |name: &str| privileges.split(',').any(|privilege| privilege.trim().eq_ignore_ascii_case(name));
    global && (has("ALL PRIVILEGES") || has("ALL") || names.iter().any(|name| has(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &[(&str, &str)], flavor: Flavor, expected: &[&str]) {
        let pairs = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let settings = Settings(pairs.collect());
        let mut findings = vital_settings(&settings);
        findings.extend(image_settings(&settings, flavor));
        findings.extend(advisable_settings(&settings, flavor));
        let subjects: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(subjects, expected);
    }

    #[test]
    fn settings_that_lose_changes_are_found() {
        let good = [("log_bin", "ON"), ("binlog_format", "ROW"), ("server_id", "1"), ("binlog_row_image", "FULL")];
        check(&good, Flavor::MariaDb, &[]);
        check(&[("log_bin", "OFF"), ("binlog_format", "MIXED")], Flavor::MySql, &["log_bin", "binlog_format"]);
        check(&[("binlog_row_image", "MINIMAL")], Flavor::MySql, &["binlog_row_image"]);
        check(&[("binlog_row_value_options", "PARTIAL_JSON")], Flavor::MySql, &[]);
        check(&[("gtid_mode", "OFF"), ("server_id", "0")], Flavor::MySql, &["server_id", "gtid_mode"]);
    }

    #[test]
    fn a_short_retention_is_found_in_either_spelling() {
        check(&[("binlog_expire_logs_seconds", "3600")], Flavor::MySql, &["binlog_expire_logs_seconds"]);
        check(
            &[("binlog_expire_logs_seconds", "0"), ("expire_logs_days", "0.5")],
            Flavor::MariaDb,
            &["expire_logs_days"],
        );
        check(&[("binlog_expire_logs_seconds", "0"), ("expire_logs_days", "0")], Flavor::MariaDb, &[]);
    }

    #[test]
    fn a_purge_is_told_before_it_happens() {
        let found =
            |hours: u64| lag_finding("binlog_expire_logs_seconds", 86_400.0, Duration::from_secs(hours * 3_600));
        assert_eq!(found(11), None);
        let late = found(13).unwrap();
        assert!(late.found.contains("13.0 h behind") && late.found.contains("11.0 h are left"), "{late}");
        assert_eq!(late.fix.as_deref(), Some("SET GLOBAL binlog_expire_logs_seconds = 172800"));
    }

    #[test]
    fn grants_count_only_where_they_are_global() {
        let missing = |grants: &[&str]| {
            let grants: Vec<String> = grants.iter().map(|grant| grant.to_string()).collect();
            missing_grants(&grants, "'cdc'@'%'").into_iter().filter_map(|finding| finding.fix).collect::<Vec<_>>()
        };
        assert!(missing(&["GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `cdc`@`%`"]).is_empty());
        assert!(missing(&["GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION"]).is_empty());
        let both = ["GRANT REPLICATION SLAVE ON *.* TO 'cdc'@'%'", "GRANT REPLICATION CLIENT ON *.* TO 'cdc'@'%'"];
        assert_eq!(
            missing(&["GRANT ALL PRIVILEGES ON `shop`.* TO `cdc`@`%`", "GRANT USAGE ON *.* TO `cdc`@`%`"]),
            both
        );
    }

    #[test]
    fn an_account_is_quoted_as_a_grant_takes_it() {
        assert_eq!(account("o'neil@10.%"), "'o''neil'@'10.%'");
    }
}
