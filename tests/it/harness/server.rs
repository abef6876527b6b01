//! Real database servers, started by the scripts in `tests/servers`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row, Value};

/// The password of `root` on every test server, as `tests/servers/env.sh` has it.
pub const PASSWORD: &str = "alluvium";

/// The account of all jobs that tests run. It has the grants that the README names, for every database.
pub const READER: &str = "cdc";

/// A server that was told to stop is given this long before the test fails.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    Mysql,
    Mariadb,
}

impl Flavor {
    pub const ALL: [Flavor; 2] = [Flavor::Mysql, Flavor::Mariadb];

    fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }

    /// The statement that tells the end of the log.
    pub fn log_status(self) -> &'static str {
        match self {
            Self::Mysql => "SHOW BINARY LOG STATUS",
            Self::Mariadb => "SHOW MASTER STATUS",
        }
    }
}

/// A running server. It ends when this is dropped, and when the test process ends in whatever way: its keeper
/// (`tests/servers/env.sh`) holds it only as long as a pipe from this process is open.
pub struct Server {
    pub flavor: Flavor,
    pub port: u16,
    folder: PathBuf,
    options: Vec<String>,
    keeper: Mutex<Option<Child>>,
}

impl Server {
    /// The server of this flavor that all tests of this process share. Give each test a database of its own with
    /// [`Server::new_database`].
    pub fn shared(flavor: Flavor) -> &'static Server {
        static MYSQL: OnceLock<Server> = OnceLock::new();
        static MARIADB: OnceLock<Server> = OnceLock::new();
        let cell = match flavor {
            Flavor::Mysql => &MYSQL,
            Flavor::Mariadb => &MARIADB,
        };
        cell.get_or_init(|| Server::own(flavor, &[]))
    }

    /// A server of a test's own, with more options for its command line.
    pub fn own(flavor: Flavor, options: &[&str]) -> Server {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("alluvium-{}-{}-{number}", flavor.name(), std::process::id()));
        let server = Server {
            flavor,
            port: free_port(),
            folder,
            options: options.iter().map(|option| option.to_string()).collect(),
            keeper: Mutex::new(None),
        };
        server.start();
        server
    }

    async fn create_reader_account(&self) {
        let create = format!("CREATE USER IF NOT EXISTS '{READER}'@'%' IDENTIFIED BY '{PASSWORD}'");
        let grants = readme_grants();
        let statements = ["SET sql_log_bin = 0".to_string(), create].into_iter().chain(grants).collect::<Vec<_>>();
        self.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }

    /// Starts it again on its data and port. Returns once it answers.
    pub fn start(&self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/servers/{}.sh", self.flavor.name()));
        let keeper = start_keeper(&script, &self.folder, self.port, &self.options);
        *self.keeper.lock().unwrap() = Some(keeper);
        // Tests call this from within a runtime and from without.
        std::thread::scope(|scope| scope.spawn(|| block_on(self.create_reader_account())).join()).unwrap();
    }

    /// Asks it to stop and waits until it has.
    pub fn stop(&self) {
        self.signal("-TERM");
        self.wait_until_ended();
    }

    /// Kills it as a power cut would.
    pub fn kill9(&self) {
        self.signal("-KILL");
        self.wait_until_ended();
    }

    fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.folder.join("server.pid")).expect("the server runs");
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    }

    fn wait_until_ended(&self) {
        let Some(mut keeper) = self.keeper.lock().unwrap().take() else { return };
        let started = Instant::now();
        // The pipe must stay open until the keeper has seen the end, or it would remove the data.
        while keeper.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < STOP_TIME_MAX, "the server did not stop within {STOP_TIME_MAX:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where the binlog files lie, `binlog.000001` or `mariadb-bin.000001`.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A URL without a password, as job files have it.
    pub fn url_of(&self, user: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}", self.port)
    }

    /// A connection of `root`, with UTF-8 and UTC.
    pub async fn connect(&self) -> Conn {
        self.connect_as("root", PASSWORD).await.expect("the server accepts connections")
    }

    pub async fn connect_as(&self, user: &str, password: &str) -> mysql_async::Result<Conn> {
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some(user))
            .pass(Some(password))
            .prefer_socket(false)
            .setup(vec!["SET NAMES utf8mb4", "SET time_zone = '+00:00'", "SET sql_mode = 'STRICT_ALL_TABLES'"]);
        Conn::new(options).await
    }

    /// Runs statements one by one on a connection of their own.
    pub async fn exec_all(&self, statements: &[&str]) {
        let mut connection = self.connect().await;
        for statement in statements {
            connection.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        connection.disconnect().await.unwrap();
    }

    pub async fn exec(&self, statement: impl AsRef<str>) {
        self.exec_all(&[statement.as_ref()]).await;
    }

    /// All rows as text, null as `None`.
    pub async fn query(&self, query: impl AsRef<str>) -> Vec<Vec<Option<String>>> {
        let mut connection = self.connect().await;
        let rows = query_text(&mut connection, query.as_ref()).await;
        connection.disconnect().await.unwrap();
        rows
    }

    /// Makes an empty database with a name that no other test has.
    pub async fn new_database(&self, prefix: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}_{}", COUNT.fetch_add(1, Ordering::SeqCst));
        self.exec(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await;
        name
    }

    /// A user with exactly these grants, such as `REPLICATION SLAVE ON *.*`; its password is [`PASSWORD`].
    pub async fn create_user(&self, user: &str, grants: &[&str]) {
        self.exec(format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'")).await;
        for grant in grants {
            self.exec(format!("GRANT {grant} TO '{user}'@'%'")).await;
        }
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

/// The statements of the README's example, for all databases instead of its one.
fn readme_grants() -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let grants = readme.lines().filter(|line| line.starts_with("GRANT ") && line.ends_with(" TO cdc;"));
    let grants: Vec<String> = grants
        .map(|line| line.replace("shop.*", "`%`.*").replace(" TO cdc;", &format!(" TO '{READER}'@'%'")))
        .collect();
    assert_eq!(grants.len(), 2, "the README's grants: {grants:?}");
    grants
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// All rows of a query in the text protocol, where every value comes as the server prints it.
pub async fn query_text(connection: &mut Conn, query: &str) -> Vec<Vec<Option<String>>> {
    let rows: Vec<Row> = connection.query(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
    rows.into_iter().map(|row| row.unwrap().into_iter().map(value_text).collect()).collect()
}

fn value_text(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8(bytes).unwrap_or_else(|error| {
            panic!("the query must give binary columns as HEX(): {:?}", error.into_bytes());
        })),
        other => Some(other.as_sql(true).trim_matches('\'').to_string()),
    }
}

/// Runs a script of `tests/servers` that starts a server and holds it as long as the pipe to the script is open.
/// Returns once the server is ready.
pub(super) fn start_keeper(script: &Path, folder: &Path, port: u16, options: &[String]) -> Child {
    let mut keeper = Command::new(script)
        .arg(folder)
        .arg(port.to_string())
        .args(options)
        .env("HELD", "1")
        .env("REMOVE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Out of reach of a Ctrl-C in the terminal: the keeper must outlive this process to clean up.
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let mut line = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(
        line.starts_with("ready"),
        "{} started nothing: run make test (or tests/servers/install.sh); its own words are above",
        script.display()
    );
    keeper
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
