//! Names that need quoting, accounts of every kind, connections that may not be plain, files that a server asks for, and
//! secrets, which no output may hold.

use std::collections::{BTreeMap, HashSet};

use alluvium::config::{MysqlConfig, ResumeBy, Secret, SnapshotConfig, TableFilter, TlsMode};
use alluvium::source::mysql::live::MysqlSource;
use alluvium::source::{KeyRange, Source, SourceErrorKind, SourceEvent, SplitLimits};
use mysql_async::prelude::Queryable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Flavor, PASSWORD, Server, TempJob};

fn config(port: u16, user: &str, password: &str, pattern: &str) -> MysqlConfig {
    MysqlConfig {
        host: "127.0.0.1".into(),
        port,
        user: user.into(),
        password: Secret::new(password),
        tls: TlsMode::Disabled,
        ca: None,
        tables: TableFilter::new([pattern]).unwrap(),
        snapshot: SnapshotConfig::DEFAULT,
        resume: ResumeBy::Auto,
        server_id: 700_000 + rand::random_range(0..10_000_000),
    }
}

fn source(port: u16, user: &str, password: &str, pattern: &str) -> MysqlSource {
    MysqlSource::new(config(port, user, password, pattern), BTreeMap::new())
}

/// What is odd in a name: quotes, escapes, comments, the end of a line, letters of more than two bytes.
const PIECES: [&str; 18] =
    ["`", "'", "\"", "\\", "``", "\\'", "--", "/*", "*/", "#", ";", "\n", "\t", " x", "é", "語", "?", "%s"];

/// A name of up to eight pieces that ends in no space; MySQL's own names hold no letter beyond the basic plane.
fn name(random: &mut StdRng, flavor: Flavor) -> String {
    let mut name: String =
        (0..random.random_range(1..8)).map(|_| PIECES[random.random_range(0..PIECES.len())]).collect();
    if flavor == Flavor::Mysql {
        // Control characters are not allowed in the names of its data dictionary's files.
        name = name.replace(['\n', '\t'], "_");
    }
    name.push_str(&random.random_range(0..1_000_000).to_string());
    name
}

/// Quoted here by another way than the program's.
fn quoted(name: &str) -> String {
    let mut quoted = String::from("`");
    for letter in name.chars() {
        quoted.extend(std::iter::repeat_n(letter, if letter == '`' { 2 } else { 1 }));
    }
    quoted + "`"
}

#[tokio::test]
async fn names_of_any_letters_are_found_loaded_and_followed() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        for _ in 0..12 {
            let (database, table) = (name(&mut random, flavor), name(&mut random, flavor));
            let columns = [name(&mut random, flavor), name(&mut random, flavor), name(&mut random, flavor)];
            let [id, text, value] = columns.each_ref().map(|name| quoted(name));
            let whole = format!("{}.{}", quoted(&database), quoted(&table));
            let statements = [
                "SET NAMES utf8mb4, sql_mode = ''".to_string(),
                format!("CREATE DATABASE {} CHARACTER SET utf8mb4", quoted(&database)),
                format!("CREATE TABLE {whole} ({id} INT, {text} VARCHAR(50), {value} INT, PRIMARY KEY ({text}, {id}))"),
            ];
            let keys = ["a'b", "a\\\\b", "``", "🍯", "%_", "\\n", "--", ""];
            let rows: Vec<String> = keys.iter().map(|key| format!("(1, '{}', 7)", key.replace('\'', "''"))).collect();
            let insert = format!("INSERT INTO {whole} VALUES {}", rows.join(", "));
            let all: Vec<&str> = statements.iter().chain([&insert]).map(String::as_str).collect();
            server.exec_all(&all).await;
            check_names(server, &database, &whole, &text, keys.len()).await;
            server.exec_all(&["SET NAMES utf8mb4", &format!("DROP DATABASE {}", quoted(&database))]).await;
        }
    }
}

async fn check_names(server: &Server, database: &str, whole: &str, text: &str, rows: usize) {
    let source = source(server.port, "root", PASSWORD, "*.*");
    let tables = source.tables().await.unwrap();
    let found = tables
        .into_iter()
        .find(|found| found.table.database == database)
        .unwrap_or_else(|| panic!("{database:?} is not found"));
    let schema = std::sync::Arc::new(found.schema.unwrap_or_else(|reason| panic!("{reason}")));
    let start = source.start().await.unwrap();
    let mut range = KeyRange::default();
    let mut seen = 0;
    loop {
        range.upto = source.next_cut(&schema, &range, 2).await.unwrap();
        let limits = SplitLimits { rows_max: 1, bytes_max: usize::MAX };
        let split = source.read_split(&schema, &range, limits).await.unwrap();
        seen += split.rows.iter().map(|rows| rows.operations.len()).sum::<usize>();
        range.after = match split.last_key {
            Some(key) => Some(key),
            None => break,
        };
    }
    assert_eq!(seen, rows, "rows of {whole} by splits");
    let schemas = [(schema.table.clone(), schema.clone())].into();
    let mut stream = source.stream(&start, schemas, HashSet::new()).await.unwrap();
    server.exec_all(&["SET NAMES utf8mb4", &format!("DELETE FROM {whole} WHERE {text} = '🍯'")]).await;
    loop {
        match stream.next().await.unwrap().expect("a live stream has no end") {
            SourceEvent::Rows(rows) if rows.schema.table == schema.table => break,
            _ => {}
        }
    }
}

#[tokio::test]
async fn accounts_of_every_kind_are_let_in_and_a_wrong_password_is_not() {
    let mysql = ["caching_sha2_password", "sha256_password"]
        .map(|plugin| (Flavor::Mysql, plugin, format!("IDENTIFIED WITH {plugin} BY 'secret'")));
    let mariadb = [
        (
            Flavor::Mariadb,
            "mysql_native_password",
            "IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')".into(),
        ),
        (Flavor::Mariadb, "ed25519", "IDENTIFIED VIA ed25519 USING PASSWORD('secret')".to_string()),
        (Flavor::Mariadb, "parsec", "IDENTIFIED VIA parsec USING PASSWORD('secret')".to_string()),
    ];
    for (flavor, plugin, identified) in mysql.into_iter().chain(mariadb) {
        let server = Server::shared(flavor);
        let mut connection = server.connect().await;
        if flavor == Flavor::Mariadb && plugin != "mysql_native_password" {
            // Older MariaDB has no parsec; what a server lacks cannot be asked of it.
            let installed = connection.query_drop(format!("INSTALL SONAME 'auth_{plugin}'")).await;
            if installed.is_err() && plugin == "parsec" {
                println!("this MariaDB has no parsec");
                continue;
            }
        }
        let user = format!("u_{plugin}");
        let created = connection.query_drop(format!("CREATE USER '{user}'@'%' {identified}")).await;
        if let Err(error) = created {
            assert!(plugin == "sha256_password", "{plugin}: {error}");
            println!("this MySQL has no {plugin}");
            continue;
        }
        connection
            .query_drop(format!("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'"))
            .await
            .unwrap();
        for tls in [TlsMode::Required, TlsMode::Disabled] {
            let with = |password| {
                MysqlSource::new(MysqlConfig { tls, ..config(server.port, &user, password, "a.*") }, BTreeMap::new())
            };
            if flavor == Flavor::Mariadb && tls == TlsMode::Required {
                continue; // The test server of MariaDB has no certificate.
            }
            if plugin == "sha256_password" {
                let error = with("secret").start().await.unwrap_err();
                assert!(error.message.contains("caching_sha2_password"), "it says what to use instead: {error}");
                continue;
            }
            // Without TLS the password goes encrypted with the server's own key.
            with("secret").start().await.unwrap_or_else(|error| panic!("{plugin} {tls:?}: {error}"));
            let error = with("wrong").start().await.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Misconfigured, "{plugin} {tls:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_in_clear_instead() {
    let server = Server::own(Flavor::Mariadb, &["--skip-ssl"]);
    for tls in [TlsMode::Required, TlsMode::Verified] {
        let config = MysqlConfig { tls, ..config(server.port, "root", PASSWORD, "a.*") };
        let error = MysqlSource::new(config, BTreeMap::new()).start().await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Misconfigured, "{error}");
        assert!(error.message.contains("offers no TLS"), "{error}");
    }
}

/// Stands between a client and a server, and answers the client's first statement with the request for a file, as
/// a server that was taken over would. Gives what the client sends after it.
async fn ask_for_a_file(port: u16, listener: TcpListener) -> Vec<u8> {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let read = read.unwrap();
                // A command begins a new count of packets; 3 is COM_QUERY.
                if read > 4 && up[3] == 0 && up[4] == 3 {
                    break;
                }
                server.write_all(&up[..read]).await.unwrap();
            }
            read = server.read(&mut down) => {
                let read = read.unwrap();
                client.write_all(&down[..read]).await.unwrap();
            }
        }
    }
    let mut request = vec![12, 0, 0, 1, 0xfb];
    request.extend(b"/etc/passwd");
    client.write_all(&request).await.unwrap();
    let mut sent = Vec::new();
    let patience = std::time::Duration::from_secs(3);
    let _ = tokio::time::timeout(patience, client.read_to_end(&mut sent)).await;
    sent
}

#[tokio::test]
async fn a_server_that_asks_for_a_file_of_this_machine_gets_none() {
    let server = Server::shared(Flavor::Mariadb);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = tokio::spawn(ask_for_a_file(server.port, listener));
    let asked = source(port, "root", PASSWORD, "a.*");
    let start = tokio::time::timeout(std::time::Duration::from_secs(20), asked.start()).await;
    assert!(start.expect("an answer").is_err());
    let sent = proxy.await.unwrap();
    assert!(!sent.windows(5).any(|part| part == b"root:"), "the file was sent");
    assert!(sent.len() <= 16, "{} bytes were sent", sent.len());
}

/// Looked for in everything that the program prints.
const CANARY: &str = "c4naryQZ7";

#[tokio::test]
async fn no_output_holds_a_secret_whatever_goes_wrong() {
    let server = Server::shared(Flavor::Mysql);
    let database = &server.new_database("canary").await;
    server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
    let good = TempJob::live_source(server, "canary", &[&format!("{database}.*")]);
    server.exec(format!("CREATE USER 'canary'@'%' IDENTIFIED BY '{CANARY}'")).await;
    server.exec(format!("GRANT SELECT ON {database}.* TO 'canary'@'%'")).await;
    let port = server.port;
    let with = |source: &str, lake: &str| {
        let mut job = TempJob::new(source, "");
        job.set_env("ALLUVIUM_TEST_PASSWORD", CANARY);
        job.set_env("CANARY", CANARY);
        job.set_env("RUST_LOG", "trace");
        job.write_with_lake(source, lake, "");
        job
    };
    let local = "lake:\n  path: ./lake\n";
    let replaced = |from: &str, to: &str| good.replace(from, to);
    let url = server.url_of("canary");
    let in_url = good
        .replace(&url, &format!("\"mysql://canary:${{CANARY}}@127.0.0.1:{port}\""))
        .replace("  password: { env: ALLUVIUM_TEST_PASSWORD }\n", "");
    let s3 = "lake:\n  path: s3://bucket/x\n  options: { aws_access_key_id: k, aws_secret_access_key: \"${CANARY}\", \
         aws_endpoint: \"http://127.0.0.1:1\", aws_allow_http: \"true\", aws_region: x }\n";
    let jobs = [
        with(&good, local),
        with(&in_url, local),
        with(&replaced("//canary@", "//root@"), local),
        with(&replaced("//canary@", "//nobody@"), local),
        with(&replaced(&format!(":{port}"), ":1"), local),
        with(&replaced("127.0.0.1", "no-such-host.invalid"), local),
        with(&(good.clone() + "  tls: verified\n"), local),
        with(&(good.clone() + "  tls: required\n"), local),
        with(&replaced(&url, &format!("mysql://canary:{CANARY}@127.0.0.1:{port}")), local),
        with(&replaced("{ env: ALLUVIUM_TEST_PASSWORD }", CANARY), local),
        with(&replaced(&url, &format!("\"mysql://canary:${{CANARY}}@127.0.0.1:{port}?x=1\"")), local),
        with(&good, s3),
    ];
    let init = format!("mysql://canary:{CANARY}@127.0.0.1:{port}");
    let verbs: [&[&str]; 8] = [
        &["check"],
        &["check", "--json"],
        &["check", "--explain"],
        &["run"],
        &["run", "--json"],
        &["status"],
        &["maintain", "--dry-run"],
        &["sql", "select 1"],
    ];
    let mut outputs = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        for verb in verbs.iter().take(if number == 0 { 8 } else { 5 }) {
            // A scheduled run tries for a minute to reach what is not there; half a second shows all messages.
            let environment = [("RUST_LOG", "trace")];
            let mut running = job.spawn(verb, &environment);
            let started = std::time::Instant::now();
            while running.is_running() && started.elapsed() < std::time::Duration::from_millis(2500) {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let outcome = if running.is_running() { running.kill9() } else { running.wait() };
            outputs.push((format!("job {number} {verb:?}"), outcome));
        }
    }
    for url in [init.clone(), init.replace("127.0.0.1", "no-such-host.invalid"), init.replace("mysql:", "mysql")] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_alluvium"))
            .args(["init", "--url", &url, "--output", "/dev/null", "--force"])
            .env("RUST_LOG", "trace")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains(CANARY), "init --url: {text}");
    }
    let mut failures = 0;
    for (what, outcome) in outputs {
        failures += usize::from(!outcome.status.success());
        for text in [&outcome.stdout, &outcome.stderr] {
            let at = text.find(CANARY).map(|at| &text[at.saturating_sub(200)..(at + 60).min(text.len())]);
            assert!(at.is_none(), "{what} prints a secret: {at:?}");
        }
    }
    assert!(failures >= 20, "{failures} of the outputs come from failures");
}
