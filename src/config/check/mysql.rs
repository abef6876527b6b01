//! The checks of a live MySQL or MariaDB source.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::Checker;
use crate::config::period::Period;
use crate::config::raw::{
    PasswordFrom, RawMysql, RawPassword, RawSnapshot, ResumeWord, RowsOrAuto, SnapshotWord, TlsWord, ValueOrOff,
};
use crate::config::read::{At, Field};
use crate::config::substitute::{Text, percent_decoded};
use crate::config::{MysqlConfig, ResumeBy, Secret, Setting, SnapshotConfig, SnapshotMode, SourceConfig, TlsMode};

const PORT_DEFAULT: u16 = 3306;

/// A split's rows are held in memory until they are written.
const SPLIT_ROWS_MAX: u64 = 10_000_000;

/// More connections than this only take turns on the server's disks and cores.
pub(super) const READERS_MAX: u64 = 64;
/// Within a second hardly a row comes, and a query of a day holds old versions of rows for all that time.
const QUERY_TIME: (Period, Period) = (Period::seconds(1), Period::hours(24));
/// The server's own limit of connections.
const THREADS_MAX: u64 = 100_000;

/// No server takes a longer password; a larger file is not one.
const PASSWORD_BYTES_MAX: usize = 4096;

/// What the URL says.
struct Address {
    host: String,
    port: u16,
    user: String,
    /// `None` where the URL has none.
    password: Option<Secret>,
}

impl Checker<'_> {
    pub(super) fn mysql(&mut self, raw: &RawMysql, job: Option<&str>) -> Option<SourceConfig> {
        if let Some(kind) = raw.r#type.set() {
            self.given("source.type", kind.value.word());
        }
        let address = raw.url.set().and_then(|url| self.address(url));
        let password = self.password(&raw.password, address.as_ref(), job);
        let tls = self.tls(&raw.tls, address.as_ref().map(|address| address.host.as_str()));
        let ca = self.authority(&raw.ca, tls);
        let tables = self.patterns(&raw.tables);
        let snapshot = self.snapshot(&raw.snapshot);
        let resume = self.value("source.resume", &raw.resume, ResumeWord::Auto, |word| word.word().into());
        let server_id = self.server_id(&raw.server_id, job);
        let address = address?;
        Some(SourceConfig::Mysql(MysqlConfig {
            host: address.host,
            port: address.port,
            user: address.user,
            password: password?,
            tls,
            ca,
            tables: tables?,
            snapshot,
            resume: match resume {
                ResumeWord::Auto => ResumeBy::Auto,
                ResumeWord::Gtid => ResumeBy::Gtid,
                ResumeWord::Position => ResumeBy::Position,
            },
            server_id,
        }))
    }

    fn address(&mut self, url: &At<Text>) -> Option<Address> {
        if password_in_clear(url.value.typed()) {
            self.report.add(url.at, &url.path, PASSWORD_ADVICE);
            return None;
        }
        match parse_address(&url.value.url_text()) {
            Ok(address) => {
                let shown = format!("mysql://{}@{}:{}", address.user, address.host, address.port);
                self.given("source.url", &shown);
                Some(address)
            }
            Err(problem) => {
                self.report.add(url.at, &url.path, problem);
                None
            }
        }
    }

    fn password(&mut self, field: &Field<RawPassword>, address: Option<&Address>, job: Option<&str>) -> Option<Secret> {
        const KEY: &str = "source.password";
        let in_url = address.and_then(|address| address.password.clone());
        match field {
            Field::Invalid => None,
            Field::Set(password) if in_url.is_some() => {
                let message = "the URL has a password too: leave one of them out";
                self.report.add(password.at, &password.path, message);
                None
            }
            Field::Set(password) => self.secret_from(password, PASSWORD_ADVICE),
            Field::Missing if in_url.is_some() => {
                self.given(KEY, "(in the URL)");
                in_url
            }
            Field::Missing => {
                let name = format!("{}_DB_PASSWORD", job?.to_uppercase().replace('-', "_"));
                let value = (self.around.environment)(&name);
                let shown = if value.is_some() { "" } else { ", which is not set: no password" };
                self.settings.push(Setting::default(KEY, format!("(the environment variable {name}{shown})")));
                Some(Secret::new(value.unwrap_or_default()))
            }
        }
    }

    /// A password or key, which must not stand in the job file.
    pub(super) fn secret_from(&mut self, password: &At<RawPassword>, advice: &str) -> Option<Secret> {
        let found = match &password.value {
            RawPassword::Text(text) if text.has_variable() => Ok((text.text(), format!("(from {})", text.typed()))),
            RawPassword::Text(_) => Err((password.at, password.path.clone(), advice.to_string())),
            RawPassword::From(PasswordFrom::Environment(name)) => {
                let variable = name.value.text();
                let missing = || format!("the environment variable {variable} is not set");
                (self.around.environment)(&variable)
                    .map(|value| (value, format!("(the environment variable {variable})")))
                    .ok_or_else(|| (name.at, name.path.clone(), missing()))
            }
            RawPassword::From(PasswordFrom::File(file)) => {
                let path = self.around.folder.join(file.value.text());
                read_secret(&path)
                    .map(|value| (value, format!("(the file {})", path.display())))
                    .map_err(|problem| (file.at, file.path.clone(), problem))
            }
        };
        match found {
            Ok((value, shown)) => {
                self.given(&password.path, &shown);
                Some(Secret::new(value))
            }
            Err((at, path, message)) => {
                self.report.add(at, &path, message);
                None
            }
        }
    }

    fn tls(&mut self, field: &Field<TlsWord>, host: Option<&str>) -> TlsMode {
        let default = if host.is_some_and(is_loopback) { TlsWord::Disabled } else { TlsWord::Verified };
        match self.value("source.tls", field, default, |word| word.word().into()) {
            TlsWord::Disabled => TlsMode::Disabled,
            TlsWord::Required => TlsMode::Required,
            TlsWord::Verified => TlsMode::Verified,
        }
    }

    fn authority(&mut self, field: &Field<Text>, tls: TlsMode) -> Option<PathBuf> {
        let Some(file) = field.set() else {
            self.settings.push(Setting::default("source.ca", "the public authorities"));
            return None;
        };
        let path = self.around.folder.join(file.value.text());
        self.given("source.ca", &path.display().to_string());
        match std::fs::read_to_string(&path) {
            _ if tls != TlsMode::Verified => self.refuse(field, "has a meaning with `tls: verified` only"),
            Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => {}
            Ok(_) => self.refuse(field, format!("{} is not a certificate in PEM form", path.display())),
            Err(error) => self.refuse(field, format!("{} cannot be read: {error}", path.display())),
        }
        Some(path)
    }

    fn snapshot(&mut self, field: &Field<RawSnapshot>) -> SnapshotConfig {
        let none = RawSnapshot::default();
        let raw = field.set().map_or(&none, |snapshot| &snapshot.value);
        let mode = self.value("source.snapshot.mode", &raw.mode, SnapshotWord::Initial, |word| word.word().into());
        let split_rows = self.split_rows(&raw.split_rows);
        let default = SnapshotConfig::DEFAULT;
        let readers = self.number("source.snapshot.readers", &raw.readers, default.readers as u64, 1, READERS_MAX);
        let query_time_max = self.query_time(&raw.query_time, Period(default.query_time_max));
        let (threads_running_max, replica_lag_max) = self.governor(raw);
        SnapshotConfig {
            mode: match mode {
                SnapshotWord::Initial => SnapshotMode::Initial,
                SnapshotWord::Never => SnapshotMode::Never,
            },
            split_rows,
            readers: usize::try_from(readers).unwrap_or(usize::MAX),
            query_time_max,
            threads_running_max,
            replica_lag_max,
        }
    }

    pub(super) fn split_rows(&mut self, field: &Field<RowsOrAuto>) -> Option<usize> {
        let rows = self.value("source.snapshot.split_rows", field, RowsOrAuto::Auto, |rows| match rows {
            RowsOrAuto::Auto => "auto".to_string(),
            RowsOrAuto::Rows(rows) => rows.to_string(),
        });
        let RowsOrAuto::Rows(rows) = rows else { return None };
        if rows == 0 || rows > SPLIT_ROWS_MAX {
            self.refuse(field, format!("must be auto or 1 to {SPLIT_ROWS_MAX}, found {rows}"));
        }
        usize::try_from(rows).ok()
    }

    fn query_time(&mut self, field: &Field<Period>, default: Period) -> Duration {
        let time = self.period("source.snapshot.query_time", field, default);
        let (min, max) = QUERY_TIME;
        if time < min || time > max {
            self.refuse(field, format!("must be {min} to {max}, found {time}"));
        }
        time.0
    }

    /// At which load of the server, and which lag of it as a replica, no query is begun.
    fn governor(&mut self, raw: &RawSnapshot) -> (Option<u32>, Option<Duration>) {
        let default = SnapshotConfig::DEFAULT;
        let threads = match raw.threads_running.set().map(|set| &set.value) {
            Some(ValueOrOff::Off) => None,
            Some(ValueOrOff::On(number)) => Some(*number),
            None => default.threads_running_max.map(u64::from),
        };
        if threads.is_some_and(|number| number == 0 || number > THREADS_MAX) {
            self.refuse(&raw.threads_running, format!("must be 1 to {THREADS_MAX}, or off"));
        }
        let lag = match raw.replica_lag.set().map(|set| &set.value) {
            Some(ValueOrOff::On(period)) => Some(*period),
            Some(ValueOrOff::Off) | None => default.replica_lag_max.map(Period),
        };
        let shown = threads.map_or("off".to_string(), |number| number.to_string());
        self.note("source.snapshot.threads_running", &raw.threads_running, shown);
        self.note(
            "source.snapshot.replica_lag",
            &raw.replica_lag,
            lag.map_or("off".to_string(), |lag| lag.to_string()),
        );
        (threads.and_then(|number| u32::try_from(number).ok()), lag.map(|lag| lag.0))
    }

    /// Notes a setting that is read by hand.
    fn note<T>(&mut self, key: &str, field: &Field<T>, shown: String) {
        match field.set() {
            Some(_) => self.given(key, &shown),
            None => self.settings.push(Setting::default(key, shown)),
        }
    }

    fn server_id(&mut self, field: &Field<u64>, job: Option<&str>) -> u32 {
        // The upper half of the numbers: people number their own servers from 1.
        let default = crc32fast::hash(job.unwrap_or_default().as_bytes()) | 1 << 31;
        let id = self.number("source.server_id", field, default.into(), 1, u32::MAX.into());
        u32::try_from(id).unwrap_or(default)
    }
}

const PASSWORD_ADVICE: &str = "has a password in clear: put it into an environment variable and write its name, \
    as `mysql://user:${SHOP_DB_PASSWORD}@host` or as `password: { env: SHOP_DB_PASSWORD }`";

/// Whether a URL, as it was typed, has a password between `:` and `@` with no variable in it.
fn password_in_clear(typed: &str) -> bool {
    let Some((_, rest)) = typed.split_once("://") else { return false };
    let Some((user, _)) = rest.rsplit_once('@') else { return false };
    // The braces of variables hold no colon that would count.
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty() && !password.contains("${"))
}

/// The parts of `mysql://user:password@host:port`. Messages never repeat the URL: it may hold a password.
fn parse_address(text: &str) -> Result<Address, String> {
    let wanted = "write mysql://user@host:port";
    let url = Url::parse(text).map_err(|error| format!("is not a URL ({error}): {wanted}"))?;
    if !matches!(url.scheme(), "mysql" | "mariadb") {
        return Err(format!("must start with mysql://, found {}: {wanted}", url.scheme()));
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| format!("has no host: {wanted}"))?;
    if url.username().is_empty() {
        return Err(format!("has no user: {wanted}"));
    }
    if !matches!(url.path(), "" | "/") {
        return Err(format!("names a database: leave it out, `tables` says which tables to capture; {wanted}"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("has options after a ? or #: write them as keys of the source; {wanted}"));
    }
    Ok(Address {
        host: percent_decoded(host.trim_start_matches('[').trim_end_matches(']')),
        port: url.port().unwrap_or(PORT_DEFAULT),
        user: percent_decoded(url.username()),
        password: url.password().map(|password| Secret::new(percent_decoded(password))),
    })
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn read_secret(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if text.len() > PASSWORD_BYTES_MAX {
        return Err(format!("{} is {} bytes long: a password or key was expected", path.display(), text.len()));
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: Result<(&str, &str, u16, Option<&str>), &str>) {
        let found = parse_address(url);
        let found = found.as_ref().map(|address| {
            let password = address.password.as_ref().map(Secret::reveal);
            (address.user.as_str(), address.host.as_str(), address.port, password)
        });
        match (found, expected) {
            (Err(message), Err(part)) => assert!(message.contains(part), "{url}: {message}"),
            (found, expected) => assert_eq!(found.ok(), expected.ok(), "{url}"),
        }
    }

    #[test]
    fn an_address_is_taken_apart() {
        check("mysql://cdc@db.internal", Ok(("cdc", "db.internal", 3306, None)));
        check("mariadb://cdc:p%40ss@[::1]:3307/", Ok(("cdc", "::1", 3307, Some("p@ss"))));
        check("postgres://cdc@h", Err("must start with mysql://, found postgres"));
        check("mysql://h", Err("has no user"));
        check("mysql://u@", Err("host"));
        check("mysql://u@h/shop", Err("names a database"));
        check("mysql://u@h?ssl=1", Err("has options"));
        check("db.internal:3306", Err(""));
        check("mysql://u:secret@h:99999", Err("invalid port"));
    }

    #[test]
    fn a_password_in_clear_is_seen_and_a_variable_is_not_one() {
        for (url, expected) in [
            ("mysql://u:secret@h", true),
            ("mysql://u:se@cret@h", true),
            ("mysql://u:${P}@h", false),
            ("mysql://u@h:3306", false),
            ("mysql://u:@h", false),
            ("${URL}", false),
            ("mysql://${USER}@h", false),
        ] {
            assert_eq!(password_in_clear(url), expected, "{url}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.1.2.3", true),
            ("::1", true),
            ("db", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}
