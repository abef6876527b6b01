//! Sessions with a MySQL or MariaDB server, and what its errors mean to a job.

use std::fmt;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, IoError, OptsBuilder, SslOpts, Value};

use super::log;
use super::takeover::Incumbent;
use crate::config::{MysqlConfig, TlsMode};
use crate::source::mysql::binlog::Flavor;
use crate::source::{SourceError, SourceErrorKind};

/// Longest wait for a TCP connection and the handshake; a server that is up answers within a second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle time after which the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Largest packet that is accepted: the largest that either server's `max_allowed_packet` allows.
const PACKET_BYTES_MAX: usize = 1 << 30;
/// Seconds that the server waits for a reader that writes to the lake in the meantime, before it hangs up.
const NET_TIMEOUT_SECONDS: u32 = 3600;

/// Whom Alluvium is talking to, for messages: `cdc@db.internal:3306`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub user: String,
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.user, self.host, self.port)
    }
}

/// A row of a statement's result in text form; `None` is NULL.
pub(super) type TextRow = Vec<Option<String>>;

/// An open connection with the session settings that every statement here relies on: UTF-8 both ways, UTC,
/// an empty `sql_mode` (backquotes quote names, CHAR comes without padding), no statement time limit.
pub(super) struct Session {
    pub conn: Conn,
    pub flavor: Flavor,
    pub version: (u16, u16, u16),
    pub endpoint: Endpoint,
    /// The server that it is, where that matters.
    pub incumbent: Option<Incumbent>,
    /// Of the positions of the server's log.
    pub era: u64,
}

impl Session {
    /// # Errors
    /// `Unavailable` when the server cannot be reached, or is not the `incumbent`; `Misconfigured` when it refuses the user, the host
    /// name does not exist, or TLS cannot be had as asked for.
    pub async fn open(config: &MysqlConfig, incumbent: Option<Incumbent>) -> Result<Self, SourceError> {
        let endpoint = Endpoint { user: config.user.clone(), host: config.host.clone(), port: config.port };
        install_crypto();
        let connecting = Conn::new(options(config));
        let conn = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(conn)) => conn,
            Ok(Err(error)) => return Err(failure(&endpoint, "connect", error)),
            Err(_) => {
                let message = format!("{endpoint} did not answer within {} s", CONNECT_TIMEOUT.as_secs());
                return Err(SourceError::new(SourceErrorKind::Unavailable, message));
            }
        };
        let version = conn.server_version();
        let era = incumbent.as_ref().map_or(0, |incumbent| incumbent.era);
        let mut session = Self { conn, flavor: Flavor::MySql, version, endpoint, incumbent, era };
        session.prepare().await?;
        session.check_incumbent().await?;
        Ok(session)
    }

    /// An address may lead to several servers: what they say must not be mixed.
    async fn check_incumbent(&mut self) -> Result<(), SourceError> {
        let Some(incumbent) = self.incumbent.clone() else { return Ok(()) };
        let found = log::identity(self).await?;
        if found == incumbent.identity {
            return Ok(());
        }
        let message = format!("{} is {found} now, and was {} before", self.endpoint, incumbent.identity);
        Err(SourceError::new(SourceErrorKind::Unavailable, message))
    }

    /// A session for rows of first loads, whose queries end after the job's limit of time.
    pub async fn open_reader(config: &MysqlConfig, incumbent: Option<Incumbent>) -> Result<Self, SourceError> {
        let mut session = Self::open(config, incumbent).await?;
        let limit = config.snapshot.query_time_max;
        let sql = match session.flavor {
            Flavor::MySql => format!("SET max_execution_time = {}", limit.as_millis()),
            Flavor::MariaDb => format!("SET max_statement_time = {}", limit.as_secs()),
        };
        session.run(&sql).await?;
        Ok(session)
    }

    async fn prepare(&mut self) -> Result<(), SourceError> {
        let version = self.value("SELECT VERSION()").await?.unwrap_or_default();
        if version.contains("MariaDB") {
            self.flavor = Flavor::MariaDb;
        }
        // A server may be set to READ UNCOMMITTED, where a SELECT sees what is rolled back later.
        let own_names = match self.flavor {
            Flavor::MySql => "max_execution_time = 0, transaction_isolation = 'REPEATABLE-READ'",
            Flavor::MariaDb => "max_statement_time = 0, tx_isolation = 'REPEATABLE-READ'",
        };
        self.run(&format!(
            "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', autocommit = 1, sql_select_limit = DEFAULT, \
             net_read_timeout = {NET_TIMEOUT_SECONDS}, net_write_timeout = {NET_TIMEOUT_SECONDS}, {own_names}"
        ))
        .await
    }

    /// Runs a statement that gives no rows.
    pub async fn run(&mut self, sql: &str) -> Result<(), SourceError> {
        self.conn.query_drop(sql).await.map_err(|error| failure(&self.endpoint, sql, error))
    }

    /// All rows of a statement, through the text protocol. For the server's own catalogue only, never for
    /// rows of tables: all is held in memory.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, SourceError> {
        let rows: Vec<mysql_async::Row> =
            self.conn.query(sql).await.map_err(|error| failure(&self.endpoint, sql, error))?;
        Ok(rows.into_iter().map(|row| row.unwrap_raw().into_iter().map(text_of).collect()).collect())
    }

    /// The first value of the first row; `None` for NULL and for no row.
    pub async fn value(&mut self, sql: &str) -> Result<Option<String>, SourceError> {
        Ok(self.rows(sql).await?.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
    }
}

fn text_of(value: Option<Value>) -> Option<String> {
    match value? {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true).trim_matches('\'').to_string()),
    }
}

/// TLS needs one process-wide provider of cryptography; the crates in the tree enable two, so one is named.
fn install_crypto() {
    // An error says that one is installed already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn options(config: &MysqlConfig) -> OptsBuilder {
    let tls = match config.tls {
        TlsMode::Disabled => None,
        TlsMode::Required => {
            Some(SslOpts::default().with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true))
        }
        TlsMode::Verified => Some(match &config.ca {
            Some(file) => {
                SslOpts::default().with_root_certs(vec![file.clone().into()]).with_disable_built_in_roots(true)
            }
            None => SslOpts::default(),
        }),
    };
    // No handler for LOCAL INFILE is set: a server that asks for a file of this machine gets an error.
    OptsBuilder::default()
        .ip_or_hostname(&config.host)
        .tcp_port(config.port)
        .user(Some(&config.user))
        .pass(Some(config.password.reveal()))
        .prefer_socket(Some(false))
        .tcp_keepalive(Some(KEEPALIVE))
        .max_allowed_packet(Some(PACKET_BYTES_MAX))
        .wait_timeout(Some(NET_TIMEOUT_SECONDS as usize))
        .ssl_opts(tls)
}

/// Quotes a name for both servers.
pub(super) fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text as a literal that no `sql_mode` and no character set can read otherwise.
pub(super) fn text_literal(text: &str) -> String {
    format!("_utf8mb4 {}", bytes_literal(text.as_bytes()))
}

/// Bytes as a literal: a binary string.
pub(super) fn bytes_literal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut literal = String::with_capacity(bytes.len() * 2 + 3);
    literal.push_str("X'");
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(literal, "{byte:02X}");
    }
    literal.push('\'');
    literal
}

/// What an error of the driver means to the job. `doing` is the statement or step that failed.
pub(super) fn failure(endpoint: &Endpoint, doing: &str, error: mysql_async::Error) -> SourceError {
    use mysql_async::Error;
    match error {
        Error::Server(error) => server_failure(endpoint, doing, error),
        Error::Io(IoError::Io(error)) => io_failure(endpoint, error),
        Error::Io(IoError::Tls(error)) => tls_failure(endpoint, error),
        Error::Driver(error) => driver_failure(endpoint, doing, &error),
        other => SourceError::new(SourceErrorKind::Misconfigured, format!("{endpoint}: {doing}: {other}")),
    }
}

fn io_failure(endpoint: &Endpoint, error: std::io::Error) -> SourceError {
    let text = error.to_string();
    // The resolver's errors have no kind of their own; one of them says itself that it will pass.
    let unknown_host = text.contains("failed to lookup address") && !text.contains("emporary");
    if unknown_host {
        let message = format!(
            "unknown host {} (port {}, user {}): {text}; check the host in the job file's source.url",
            endpoint.host, endpoint.port, endpoint.user
        );
        return SourceError::new(SourceErrorKind::Misconfigured, message).caused_by(error);
    }
    if text.contains("certificate") {
        return tls_failure(endpoint, error);
    }
    let message = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("{endpoint} refused the connection; is the server running and listening on that port?")
        }
        _ => format!("connection to {endpoint} broke: {text}"),
    };
    SourceError::new(SourceErrorKind::Unavailable, message).caused_by(error)
}

fn tls_failure(endpoint: &Endpoint, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    let message = format!(
        "TLS with {endpoint} failed: {error}; `tls: verified` needs a certificate for that host name of a public \
         authority, or of the one whose certificate `ca` names; `tls: required` encrypts without checking it"
    );
    SourceError::new(SourceErrorKind::Misconfigured, message).caused_by(error)
}

/// Driver errors are not kept as causes: some carry rows and packets, which must not reach a log.
fn driver_failure(endpoint: &Endpoint, doing: &str, error: &DriverError) -> SourceError {
    let (kind, advice) = match error {
        DriverError::ConnectionClosed => (SourceErrorKind::Unavailable, ""),
        DriverError::NoClientSslFlagFromServer => {
            (SourceErrorKind::Misconfigured, "; the server offers no TLS: set it up there, or write `tls: disabled`")
        }
        DriverError::UnknownAuthPlugin { .. } | DriverError::MysqlOldPasswordDisabled => (
            SourceErrorKind::Misconfigured,
            "; give the user a password of caching_sha2_password, mysql_native_password, ed25519 or parsec",
        ),
        DriverError::CleartextPluginDisabled => {
            (SourceErrorKind::Misconfigured, "; the server wants the password in clear text, which is never sent")
        }
        DriverError::PacketOutOfOrder
        | DriverError::UnexpectedPacket { .. }
        | DriverError::PacketTooLarge
        | DriverError::CantParseServerVersion { .. } => (SourceErrorKind::Unavailable, "; is this a MySQL server?"),
        _ => (SourceErrorKind::Unavailable, ""),
    };
    SourceError::new(kind, format!("{endpoint}: {doing}: {error}{advice}"))
}

fn server_failure(endpoint: &Endpoint, doing: &str, error: mysql_async::ServerError) -> SourceError {
    let text = format!("{} (error {})", error.message.trim(), error.code);
    let (kind, message) = match error.code {
        // ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR
        1045 | 1698 => (
            SourceErrorKind::Misconfigured,
            format!(
                "{endpoint}: access denied: {text}; check user and password in the job file's source, and from which hosts the server lets that user in"
            ),
        ),
        // ER_HOST_NOT_PRIVILEGED, ER_HOST_IS_BLOCKED, ER_MUST_CHANGE_PASSWORD, ER_ACCOUNT_HAS_BEEN_LOCKED
        1130 | 1129 | 1820 | 1862 | 3118 | 4151 => {
            (SourceErrorKind::Misconfigured, format!("{endpoint} may not connect: {text}"))
        }
        // ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR, ER_SPECIFIC_ACCESS_DENIED_ERROR
        1044 | 1142 | 1143 | 1227 => (
            SourceErrorKind::Misconfigured,
            format!(
                "{endpoint} lacks a grant: {text}; run as an administrator: GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user"
            ),
        ),
        // ER_NO_BINARY_LOGGING
        1381 => {
            (SourceErrorKind::Misconfigured, format!("{endpoint} writes no binary log: start the server with log_bin"))
        }
        // ER_MASTER_FATAL_ERROR_READING_BINLOG; MariaDB: ER_SLAVE_SAME_ID
        1236 | 4052 => log_failure(endpoint, &text),
        // ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE, ER_BAD_TABLE_ERROR
        // ER_XAER_RMERR: to those who lack XA_RECOVER_ADMIN.
        1401 => (SourceErrorKind::Misconfigured, format!("{endpoint}: {doing}: {text}")),
        1054 | 1146 | 1051 => (SourceErrorKind::Changed, format!("{endpoint}: {doing}: {text}")),
        // ER_PARSE_ERROR, ER_UNKNOWN_SYSTEM_VARIABLE: a statement that this server does not know.
        1064 | 1193 => (SourceErrorKind::Misconfigured, format!("{endpoint} does not understand {doing}: {text}")),
        _ => (SourceErrorKind::Unavailable, format!("{endpoint}: {doing}: {text}")),
    };
    SourceError::new(kind, message).caused_by(error)
}

/// One error code stands for all that can go wrong with a replica's read; only the text tells which.
fn log_failure(endpoint: &Endpoint, text: &str) -> (SourceErrorKind, String) {
    let lower = text.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if any(&["same server_uuid", "same server_id", "same server-id", "server_uuid/server_id"]) {
        let message = format!(
            "{endpoint} hung up: another replica (or a second copy of this job) reads with the same server id: {text}; give each its own `server_id` in the job file"
        );
        // The copy that connected last goes on; the other may come back when it has ended.
        return (SourceErrorKind::Unavailable, message);
    }
    if any(&["max_allowed_packet", "bogus data", "corrupt", "event read from binlog did not pass", "checksum"]) {
        return (SourceErrorKind::Corrupt, format!("{endpoint} cannot read its own binlog: {text}"));
    }
    let message = format!(
        "the binlog of {endpoint} no longer holds the position: {text}; start again from a snapshot with: alluvium run --resnapshot"
    );
    (SourceErrorKind::Lost, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: u16, message: &str, kind: SourceErrorKind, words: &str) {
        let endpoint = Endpoint { user: "cdc".into(), host: "db".into(), port: 3306 };
        let error = mysql_async::ServerError { code, message: message.into(), state: "HY000".into() };
        let failure = failure(&endpoint, "SELECT 1", mysql_async::Error::Server(error));
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains("cdc@db:3306") && failure.message.contains(words), "{failure}");
    }

    #[test]
    fn the_kind_of_a_server_error_follows_from_who_can_mend_it() {
        check(1045, "Access denied for user", SourceErrorKind::Misconfigured, "check user and password");
        check(1227, "you need (at least one of) the SUPER", SourceErrorKind::Misconfigured, "GRANT");
        check(1040, "Too many connections", SourceErrorKind::Unavailable, "Too many");
        check(1236, "Could not find first log file name in binary log index file", SourceErrorKind::Lost, "resnapshot");
        check(
            1236,
            "A replica with the same server_uuid/server_id as this replica",
            SourceErrorKind::Unavailable,
            "server_id",
        );
        check(1236, "bogus data in log event", SourceErrorKind::Corrupt, "own binlog");
    }

    #[test]
    fn names_and_texts_are_quoted_so_that_nothing_in_them_ends_the_quote() {
        assert_eq!(identifier("a`b"), "`a``b`");
        assert_eq!(text_literal("ä'"), "_utf8mb4 X'C3A427'");
        assert_eq!(text_literal(""), "_utf8mb4 X''");
    }
}
