//! Every way in which a server is not as it must be ends in its own kind and message.

use futures::StreamExt;

use super::*;
use crate::harness::Proxy;

/// Transactions of the log whose connection is cut, of a row each.
const ROWS_CUT: usize = 3;
const CUTS_AT_ONCE: usize = 8;

type Schemas = HashMap<TableId, Arc<TableSchema>>;

/// What a source was refused for: all the words must be in the message.
fn check<T: std::fmt::Debug>(result: Result<T, SourceError>, kind: SourceErrorKind, words: &[&str]) {
    let error = result.expect_err("it must be refused");
    assert_eq!(error.kind, kind, "{error}");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in: {error}");
    }
    assert!(!error.message.contains("hunter2"), "{error}");
}

fn source_of(server: &Server, user: &str, password: &str, pattern: &str) -> MysqlSource {
    let config = MysqlConfig { user: user.into(), password: Secret::new(password), ..config(server, pattern) };
    MysqlSource::new(config, BTreeMap::new())
}

/// The first error of a stream.
async fn stream_failure(source: &MysqlSource, from: &ResumePoint) -> Result<(), SourceError> {
    let mut stream = source.stream(from, HashMap::new(), HashSet::new()).await?;
    loop {
        tokio::time::timeout(PATIENCE, stream.next()).await.expect("the stream goes on")?;
    }
}

#[tokio::test]
async fn a_wrong_password_names_the_user_and_never_the_password() {
    for flavor in Flavor::ALL {
        let source = source_of(Server::shared(flavor), "root", "hunter2", "a.*");
        check(source.identity().await, SourceErrorKind::Misconfigured, &["root@127.0.0.1", "user and password"]);
    }
}

#[tokio::test]
async fn a_server_that_is_down_may_come_back_and_a_host_that_does_not_exist_does_not() {
    let server = Server::shared(Flavor::Mysql);
    let down = MysqlConfig { port: 1, ..config(server, "a.*") };
    let down = MysqlSource::new(down, BTreeMap::new());
    check(down.identity().await, SourceErrorKind::Unavailable, &["refused", "127.0.0.1:1"]);
    let nowhere = MysqlConfig { host: "no-such-host.invalid".into(), ..config(server, "a.*") };
    let nowhere = MysqlSource::new(nowhere, BTreeMap::new());
    check(nowhere.identity().await, SourceErrorKind::Misconfigured, &["unknown host", "no-such-host.invalid"]);
}

#[tokio::test]
async fn tls_is_used_and_checked_as_the_job_says() {
    let server = Server::shared(Flavor::Mysql);
    let with = |tls| MysqlSource::new(MysqlConfig { tls, ..config(server, "a.*") }, BTreeMap::new());
    assert!(with(TlsMode::Required).identity().await.is_ok());
    // The test server made its certificate itself.
    check(with(TlsMode::Verified).identity().await, SourceErrorKind::Misconfigured, &["TLS", "certificate"]);
}

#[tokio::test]
async fn a_certificate_of_an_authority_of_ones_own_is_checked_against_it() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let options = [format!("--ssl-cert={}", file("server.pem")), format!("--ssl-key={}", file("server.key"))];
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &options.each_ref().map(String::as_str));
        let with = |ca: &str| {
            let ca = Some(file(ca).into());
            MysqlSource::new(MysqlConfig { tls: TlsMode::Verified, ca, ..config(&server, "a.*") }, BTreeMap::new())
        };
        with("ca.pem").identity().await.unwrap();
        check(with("other.pem").identity().await, SourceErrorKind::Misconfigured, &["TLS", "certificate", "`ca`"]);
    }
}

/// Two authorities, and a server's certificate for 127.0.0.1 that the first has signed.
fn make_certificates(folder: &std::path::Path) {
    let openssl = |arguments: &str| {
        let output = std::process::Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
        let output = output.expect("openssl is installed");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for name in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ));
    }
    openssl("req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr");
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl("x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out server.pem");
    // The servers run as another user.
    for path in [folder.to_path_buf(), folder.join("server.key")] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

#[tokio::test]
async fn three_grants_are_enough_and_each_missing_one_is_named_with_its_statement() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("grants").await;
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
        server.exec(format!("INSERT INTO {database}.t VALUES (1), (2)")).await;
        let select = format!("SELECT ON {database}.*");
        let user = |name: &str| format!("{name}_{database}");
        let all = ["REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*", &select];
        server.create_user(&user("all"), &all).await;
        server.create_user(&user("none"), &[&select]).await;
        let pattern = format!("{database}.*");

        let source = source_of(server, &user("all"), PASSWORD, &pattern);
        assert!(source.check().await.unwrap().is_empty(), "{:?}", source.check().await.unwrap());
        source.identity().await.unwrap();
        let start = source.start().await.unwrap();
        source.check_held(&start).await.unwrap();
        let schemas = schemas(&source).await;
        let schema = &schemas[&TableId::new(&database, "t")];
        assert_eq!(read_splits(&source, schema, 1).await.num_rows(), 2);
        let mut stream = open(&source, &start).await;
        server.exec(format!("INSERT INTO {database}.t VALUES (3)")).await;
        let (batches, _) = read_to(stream.as_mut(), &source.head().await.unwrap()).await;
        assert_eq!(rows_of(schema, &batches).num_rows(), 1);

        let source = source_of(server, &user("none"), PASSWORD, &pattern);
        let words = ["GRANT REPLICATION SLAVE ON *.*", "GRANT REPLICATION CLIENT ON *.*", &user("none")];
        check(source.start().await, SourceErrorKind::Misconfigured, &words);
        check(stream_failure(&source, &start).await, SourceErrorKind::Misconfigured, &words);
    }
}

#[tokio::test]
async fn statement_format_is_refused_with_the_statement_that_mends_it() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &["--binlog-format=STATEMENT", "--binlog-row-image=MINIMAL"]);
        let source = source(&server, "a.*");
        let words = ["binlog_format is STATEMENT", "SET GLOBAL binlog_format = 'ROW'"];
        check(source.start().await, SourceErrorKind::Misconfigured, &words);
        let findings = source.check().await.unwrap();
        let subjects: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(subjects, ["binlog_format", "binlog_row_image", "tables"], "{findings:?}");
    }
}

#[tokio::test]
async fn a_server_without_a_binlog_is_refused() {
    for (flavor, option) in [(Flavor::Mysql, "--skip-log-bin"), (Flavor::Mariadb, "--skip-log-bin")] {
        let server = Server::own(flavor, &[option]);
        check(source(&server, "a.*").start().await, SourceErrorKind::Misconfigured, &["log_bin"]);
    }
}

#[tokio::test]
async fn a_table_without_a_key_is_found_with_what_to_do_and_the_others_go_on() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("keys").await;
        server.exec(format!("CREATE TABLE {database}.bare (a INT NOT NULL, b INT)")).await;
        server.exec(format!("CREATE TABLE {database}.good (b INT, a VARCHAR(9), PRIMARY KEY (a, b))")).await;
        server.exec(format!("CREATE VIEW {database}.seen AS SELECT * FROM {database}.good")).await;
        let tables = source(server, &format!("{database}.*")).tables().await.unwrap();
        assert_eq!(tables.len(), 2, "{tables:?}");
        let reason = tables[0].schema.as_ref().unwrap_err();
        assert!(reason.contains("no primary key") && reason.contains("`key:`"), "{reason}");
        assert_eq!(tables[1].schema.as_ref().unwrap().key, [1, 0]);
        let keys = BTreeMap::from([(format!("{database}.bare"), vec!["a".to_string()])]);
        let tables = MysqlSource::new(config(server, &format!("{database}.*")), keys).tables().await.unwrap();
        assert_eq!(tables[0].schema.as_ref().unwrap().key, [0]);
    }
}

#[tokio::test]
async fn a_purged_log_is_lost_whether_it_is_asked_for_first_or_not() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        server.exec("CREATE DATABASE d").await;
        let source = source(&server, "d.*");
        let start = source.start().await.unwrap();
        server.exec("CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        server.exec("FLUSH BINARY LOGS").await;
        let now = source.head().await.unwrap();
        let (file, _) = now.position.text.split_once(':').unwrap();
        // MariaDB keeps a log until all of it is known to be durable, which comes a moment later.
        for _ in 0..100 {
            server.exec(format!("PURGE BINARY LOGS TO '{file}'")).await;
            if server.query("SHOW BINARY LOGS").await[0][0].as_deref() == Some(file) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }

        let words = ["start again from a snapshot"];
        check(source.check_held(&start).await, SourceErrorKind::Lost, &words);
        check(stream_failure(&source, &start).await, SourceErrorKind::Lost, &words);
        let position = MysqlConfig { resume: ResumeBy::Position, ..config(&server, "d.*") };
        let by_position = MysqlSource::new(position, BTreeMap::new());
        check(stream_failure(&by_position, &start).await, SourceErrorKind::Lost, &words);
        source.check_held(&now).await.unwrap();
    }
}

#[tokio::test]
async fn another_server_at_the_same_address_is_not_taken_for_the_first() {
    for flavor in Flavor::ALL {
        let (first, second) = (Server::own(flavor, &[]), Server::own(flavor, &[]));
        // Statements of other lengths: the first log's end lies inside an event of the second.
        for (server, name) in [(&first, "d"), (&second, "a_longer_name")] {
            for number in 0..9 {
                server.exec(format!("CREATE DATABASE {name}{number}")).await;
            }
        }
        let point = source(&first, "d.*").start().await.unwrap();
        check(source(&second, "d.*").check_held(&point).await, SourceErrorKind::Lost, &["another server"]);
        if flavor == Flavor::Mysql {
            let identity = |server| async move { source(server, "d.*").identity().await.unwrap() };
            assert_ne!(identity(&first).await, identity(&second).await);
        }
    }
}

#[tokio::test]
async fn a_killed_server_is_unavailable_and_the_same_when_it_is_back() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &["--sync-binlog=1"]);
        server.exec_all(&["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)"]).await;
        let source = source(&server, "d.*");
        let identity = source.identity().await.unwrap();
        let mut stream = open(&source, &source.start().await.unwrap()).await;
        server.exec("INSERT INTO d.t VALUES (1)").await;
        let (batches, boundary) = read_to(stream.as_mut(), &source.head().await.unwrap()).await;
        assert_eq!(batches.len(), 1);
        server.kill9();
        let failure = loop {
            match tokio::time::timeout(PATIENCE, stream.next()).await.unwrap() {
                Ok(event) => assert!(matches!(event, Some(SourceEvent::Boundary(_))), "{event:?}"),
                Err(error) => break error,
            }
        };
        check::<()>(Err(failure), SourceErrorKind::Unavailable, &["127.0.0.1"]);
        check(source.identity().await, SourceErrorKind::Unavailable, &["127.0.0.1"]);

        server.start();
        assert_eq!(source.identity().await.unwrap(), identity);
        source.check_held(&boundary).await.unwrap();
        let mut stream = open(&source, &boundary).await;
        server.exec("INSERT INTO d.t VALUES (2)").await;
        let (batches, _) = read_to(stream.as_mut(), &source.head().await.unwrap()).await;
        assert_eq!(batches.iter().map(|batch| batch.rows.num_rows()).sum::<usize>(), 1);
    }
}

/// Rows of transactions of one row each that a stream reads until it breaks, with the rows that are whole by then and where they end.
async fn read_until_cut(cut: &MysqlSource, start: &ResumePoint, schemas: Schemas) -> (usize, ResumePoint, SourceError) {
    let (mut rows, mut open_rows, mut last) = (0, 0, start.clone());
    let mut stream = match cut.stream(start, schemas, HashSet::new()).await {
        Ok(stream) => stream,
        Err(error) => return (0, last, error),
    };
    loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("the cut is seen") {
            Ok(Some(SourceEvent::Rows(batch))) => open_rows += batch.rows.num_rows(),
            Ok(Some(SourceEvent::Boundary(boundary))) => {
                rows += std::mem::take(&mut open_rows);
                last = boundary.resume;
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (rows, last, error),
        }
    }
}

/// At every byte that the server sends: from its greeting on, through what is asked of it, to the end of the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_at_any_byte_loses_and_doubles_nothing() {
    for flavor in Flavor::ALL {
        // It sees that a connection is dead when it next has something to send.
        let server = Server::own(flavor, &["--max-connections=5000"]);
        let database = server.new_database("cut").await;
        let pattern = format!("{database}.*");
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(99))")).await;
        let direct = source(&server, &pattern);
        let (start, schemas) = (direct.start().await.unwrap(), schemas(&direct).await);
        for id in 0..ROWS_CUT {
            server.exec(format!("INSERT INTO {database}.t VALUES ({id}, REPEAT('x', 20 * {id}))")).await;
        }
        let head = direct.head().await.unwrap();
        let whole = Proxy::start(server.port, || None).await;
        let numbers = std::sync::atomic::AtomicU32::new(2_000_000);
        let through = |port| {
            let server_id = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            MysqlSource::new(MysqlConfig { port, server_id, ..config(&server, &pattern) }, BTreeMap::new())
        };
        let mut stream = through(whole.port).stream(&start, schemas.clone(), HashSet::new()).await.unwrap();
        read_to(stream.as_mut(), &head).await;
        drop(stream);
        while whole.passed() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("{flavor:?}: {} bytes", whole.passed());

        let check_cut = async |limit| {
            let proxy = Proxy::start(server.port, move || Some(limit)).await;
            let (rows, last, failure) = read_until_cut(&through(proxy.port), &start, schemas.clone()).await;
            check::<()>(Err(failure), SourceErrorKind::Unavailable, &["127.0.0.1"]);
            let mut again = through(server.port).stream(&last, schemas.clone(), HashSet::new()).await.unwrap();
            let (rest, _) = read_to(again.as_mut(), &head).await;
            let rest: usize = rest.iter().map(|batch| batch.rows.num_rows()).sum();
            assert_eq!(rows + rest, ROWS_CUT, "{flavor:?} cut after {limit} bytes, resumed from {}", last.position);
        };
        futures::stream::iter((0..whole.passed()).map(check_cut)).buffer_unordered(CUTS_AT_ONCE).count().await;
    }
}

#[tokio::test]
async fn a_copy_that_takes_over_the_server_id_may_leave_again() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let one_config = config(server, "a.*");
        let (one, other) = [(); 2].map(|()| MysqlSource::new(one_config.clone(), BTreeMap::new())).into();
        let start = one.head().await.unwrap();
        let mut first = one.stream(&start, HashMap::new(), HashSet::new()).await.unwrap();
        first.next().await.unwrap();
        let mut second = other.stream(&start, HashMap::new(), HashSet::new()).await.unwrap();
        second.next().await.unwrap();
        let failure = loop {
            match tokio::time::timeout(PATIENCE, first.next()).await.expect("the first copy goes on") {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        check(Err::<(), _>(failure), SourceErrorKind::Unavailable, &["second copy of this job", "server_id"]);
        tokio::time::timeout(PATIENCE, second.next()).await.expect("the second copy goes on").unwrap();
    }
}

#[tokio::test]
async fn a_log_that_ends_before_the_position_is_another_log_whatever_its_gtids() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let source = source(server, "a.*");
        let mut later = source.head().await.unwrap();
        later.position.order.0 = 999_999;
        later.position.text = "binlog.999999:4".into();
        check(source.check_held(&later).await, SourceErrorKind::Lost, &["binlog.999999"]);
    }
}

#[tokio::test]
async fn dates_that_are_none_are_counted_by_the_stream_and_by_the_split() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("losses").await;
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY, d DATE)")).await;
        let source = source(server, &format!("{database}.*"));
        let start = source.start().await.unwrap();
        let values = "(1, '0000-00-00'), (2, '2024-01-01'), (3, '0000-00-00')";
        run(server, vec![format!("INSERT INTO {database}.t VALUES {values}")]).await;
        let mut stream = open(&source, &start).await;
        read_to(stream.as_mut(), &source.head().await.unwrap()).await;
        let table = TableId::new(&database, "t");
        let losses = stream.losses().into_iter().find(|(found, _)| *found == table).expect("losses");
        assert_eq!((losses.1.zero_dates, losses.1.invalid_text), (2, 0), "{flavor:?}");
        let schema = &schemas(&source).await[&table];
        let split = read_some(&source, schema, 10).await;
        assert_eq!((split.losses.zero_dates, split.losses.invalid_text), (2, 0), "{flavor:?}");
    }
}
