//! Columns that do not come into the lake as they are, from live servers.

use crate::harness::{Flavor, READER, Server, TempJob};

const HASH_KEY: &str = "a key of sixteen bytes or more";
const RULES: &str = "    columns:
      exclude: [card, nickname]
      hash: [mail, amount]
      mask: [phone]
      rename: { note: remark }
      add: { tenant: acme }
      metadata: { _op: op, _table: table, _position: position }
";

fn job(server: &Server, database: &str, rules: &str) -> TempJob {
    let source = TempJob::live_source(server, READER, &[&format!("{database}.*")]);
    let mut job = TempJob::new(&source, &settings(database, rules));
    job.set_env("TEST_HASH_KEY", HASH_KEY);
    job
}

fn settings(database: &str, rules: &str) -> String {
    format!("hash_key: {{ env: TEST_HASH_KEY }}\ntables:\n  - match: {database}.*\n{rules}")
}

fn ask(job: &TempJob, query: &str) -> Vec<String> {
    let answer = job.verb(&["sql", "--format", "csv", query]).expect_code(0).stdout;
    answer.lines().map(str::to_string).collect()
}

async fn create(server: &Server, database: &str) {
    server
        .exec_all(&[
            &format!(
                "CREATE TABLE {database}.t (card VARCHAR(20), id INT PRIMARY KEY, mail VARCHAR(40), phone INT, amount DECIMAL(8,2), note TEXT)"
            ),
            &format!("INSERT INTO {database}.t VALUES ('4111', 1, 'a@b.c', 555, 1.50, 'x'), ('4222', 2, NULL, NULL, NULL, NULL)"),
        ])
        .await;
}

/// A table under the rules, after its first load.
async fn loaded(flavor: Flavor) -> (&'static Server, String, TempJob) {
    let server = Server::shared(flavor);
    let database = server.new_database("columns").await;
    create(server, &database).await;
    let job = job(server, &database, RULES);
    job.run().expect_code(0);
    (server, database, job)
}

#[tokio::test]
async fn the_lake_has_what_the_rules_leave() {
    for flavor in Flavor::ALL {
        let (server, database, job) = loaded(flavor).await;
        server
            .exec_all(&[
                &format!("INSERT INTO {database}.t VALUES ('4333', 3, 'a@b.c', 5, 2, 'y')"),
                "SET SESSION binlog_row_image = MINIMAL",
                &format!("UPDATE {database}.t SET note = 'z', card = 'secret' WHERE id = 1"),
                &format!("UPDATE {database}.t SET phone = 7 WHERE id = 2"),
            ])
            .await;
        job.run().expect_code(0);
        let rows = ask(&job, "SELECT * EXCLUDE (_position) FROM t ORDER BY id");
        let amount = |text: &str| hmac(text);
        assert_eq!(
            rows,
            [
                "id,mail,phone,amount,remark,_op,_table,tenant".to_string(),
                format!("1,{},***,{},z,update,t,acme", hmac("a@b.c"), amount("1.50")),
                "2,,***,,,update,t,acme".to_string(),
                format!("3,{},***,{},y,insert,t,acme", hmac("a@b.c"), amount("2.00")),
            ],
            "{flavor:?}"
        );
        let places = ask(&job, "SELECT count(DISTINCT _position), count(*) FROM t WHERE _position LIKE '%:%'");
        assert_eq!(places[1], "3,3");
        assert_nowhere(&job, &["4111", "4333", "secret", "a@b.c", "555"]);
    }
}

#[tokio::test]
async fn treatments_are_kept_while_the_sources_columns_change() {
    for flavor in Flavor::ALL {
        let (server, database, job) = loaded(flavor).await;
        server
            .exec_all(&[
                &format!("ALTER TABLE {database}.t CHANGE mail address VARCHAR(90), CHANGE card card_no VARCHAR(30)"),
                &format!("ALTER TABLE {database}.t ADD COLUMN nickname TEXT, ADD COLUMN age INT DEFAULT 3, MODIFY phone BIGINT"),
                &format!("INSERT INTO {database}.t (card_no, id, address, nickname, phone) VALUES ('4444', 4, 'a@b.c', 'hidden', 99)"),
                &format!("ALTER TABLE {database}.t DROP COLUMN nickname"),
                &format!("UPDATE {database}.t SET card_no = '4555' WHERE id = 1"),
            ])
            .await;
        job.run().expect_code(0);
        let rows = ask(&job, "SELECT id, address, phone, age, remark FROM t ORDER BY id");
        let mail = hmac("a@b.c");
        let expected = [
            "id,address,phone,age,remark".to_string(),
            format!("1,{mail},***,3,x"),
            "2,,,3,".to_string(),
            format!("4,{mail},***,3,"),
        ];
        assert_eq!(rows, expected, "{flavor:?}");
        assert_nowhere(&job, &["4444", "4555", "hidden", "a@b.c"]);
        let history = ask(&job, "SELECT count(*) FROM alluvium.schema_history WHERE columns LIKE '%left out%'");
        assert_ne!(history[1], "0");
    }
}

#[tokio::test]
async fn rules_that_do_not_fit_or_that_change_take_the_table_out() {
    let server = Server::shared(Flavor::Mariadb);
    let database = &server.new_database("columns").await;
    create(server, database).await;
    let unfit = job(server, database, "    columns: { hash: [id] }\n");
    let outcome = unfit.run();
    assert!(outcome.stderr.contains("column id is part of the key"), "{outcome:?}");

    let job = job(server, database, RULES);
    job.run().expect_code(0);
    let source = TempJob::live_source(server, READER, &[&format!("{database}.*")]);
    job.write(&source, &settings(database, "    columns: { exclude: [mail] }\n"));
    server.exec(format!("UPDATE {database}.t SET note = 'later' WHERE id = 1")).await;
    let outcome = job.run();
    assert!(outcome.stderr.contains("wants its columns otherwise"), "{outcome:?}");
    assert_eq!(ask(&job, "SELECT remark FROM t WHERE id = 1")[1], "x", "nothing is written under other rules");
    job.verb(&["run", "--resnapshot", &format!("{database}.t")]).expect_code(0);
    let rows = ask(&job, "SELECT card, phone, amount, note FROM t WHERE id = 1");
    assert_eq!(rows[1], "4111,555,1.50,later");
    assert_eq!(ask(&job, "SELECT count(mail) FROM t")[1], "0", "the old column stays, and nothing is in it");
}

/// No file of the lake has one of the texts in clear.
fn assert_nowhere(job: &TempJob, texts: &[&str]) {
    let tables = ask(job, "SELECT * FROM t");
    for text in texts {
        assert!(!tables.iter().any(|row| row.contains(text)), "{text} in {tables:?}");
    }
    let mut folders = vec![job.lake_folder()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                let content = std::fs::read_to_string(&path).unwrap();
                for text in texts.iter().filter(|text| text.contains(['@']) || text.len() > 4) {
                    assert!(!content.contains(text), "{text} in {}", path.display());
                }
            }
        }
    }
}

/// By another program than the one under test.
fn hmac(value: &str) -> String {
    let script = format!("printf '%s' '{value}' | openssl dgst -sha256 -hmac '{HASH_KEY}' -r");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_string()
}
