//! Reading goes on exactly where it stopped, by GTID set and by position.

use super::*;
use arrow::array::cast::AsArray;
use arrow::datatypes::Int32Type;

fn ids(batches: &[ChangeBatch]) -> Vec<i32> {
    let values = batches.iter().map(|batch| batch.rows.column(0).as_primitive::<Int32Type>().values().to_vec());
    values.flatten().collect()
}

fn resuming(server: &Server, pattern: &str, resume: ResumeBy) -> MysqlSource {
    MysqlSource::new(MysqlConfig { resume, ..config(server, pattern) }, BTreeMap::new())
}

#[tokio::test]
async fn a_stream_goes_on_after_its_last_boundary_by_gtid_and_by_position() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("resume").await;
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
        let pattern = format!("{database}.*");
        let start = source(server, &pattern).start().await.unwrap();
        assert!(start.gtid_set.is_some(), "{start:?}");
        server.exec(format!("INSERT INTO {database}.t VALUES (1), (2)")).await;
        let middle = source(server, &pattern).head().await.unwrap();
        server.exec("FLUSH BINARY LOGS").await;
        server.exec(format!("INSERT INTO {database}.t VALUES (3)")).await;
        for resume in [ResumeBy::Gtid, ResumeBy::Position, ResumeBy::Auto] {
            let source = resuming(server, &pattern, resume);
            let (batches, first) = read_to(open(&source, &start).await.as_mut(), &middle).await;
            assert!(ids(&batches).starts_with(&[1, 2]), "{flavor:?} {resume:?} {batches:?}");
            source.check_held(&first).await.unwrap();

            let head = source.head().await.unwrap();
            let (batches, end) = read_to(open(&source, &middle).await.as_mut(), &head).await;
            assert_eq!(ids(&batches), [3], "{flavor:?} {resume:?}");
            source.check_held(&end).await.unwrap();
            if end.position == head.position {
                assert_eq!(
                    end.gtid_set, head.gtid_set,
                    "{flavor:?} {resume:?}: the set that was read and the server's"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_quiet_log_gives_boundaries_and_a_dropped_call_loses_nothing() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("quiet").await;
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
        let source = source(server, &format!("{database}.*"));
        let mut stream = open(&source, &source.start().await.unwrap()).await;
        let mut found = Vec::new();
        for id in 0..40 {
            server.exec(format!("INSERT INTO {database}.t VALUES ({id})")).await;
            // Dropped in the middle of whatever it does.
            if let Ok(event) = tokio::time::timeout(Duration::from_millis(id % 7), stream.next()).await
                && let Some(SourceEvent::Rows(batch)) = event.unwrap()
            {
                found.push(batch);
            }
        }
        let (rest, _) = read_to(stream.as_mut(), &source.head().await.unwrap()).await;
        found.extend(rest);
        assert_eq!(ids(&found), (0..40).collect::<Vec<_>>());
        for _ in 0..2 {
            let event = tokio::time::timeout(Duration::from_secs(3), stream.next()).await.expect("a boundary a second");
            assert!(matches!(event.unwrap(), Some(SourceEvent::Boundary(_))));
        }
    }
}

#[tokio::test]
async fn a_dropped_stream_leaves_no_thread_on_the_server() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let config = config(server, "none.*");
        let source = MysqlSource::new(config.clone(), BTreeMap::new());
        let start = source.start().await.unwrap();
        drop(open(&source, &start).await);
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
        let mut threads = String::new();
        for _ in 0..50 {
            threads = server.query(count).await[0][0].clone().unwrap();
            if threads == "0" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Other tests of this process may stream from the shared server; none of them takes ten seconds.
        assert_eq!(threads, "0", "{flavor:?}");
    }
}

/// Writers commit all the time while points of the log are noted: each must hold exactly what is before it.
#[tokio::test]
async fn points_noted_under_load_agree_with_what_the_log_gives() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("load").await;
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
        let source = source(server, &format!("{database}.*"));
        let start = source.start().await.unwrap();
        let writers = (0..4).map(|writer| {
            let table = format!("{database}.t");
            async move {
                let mut connection = server.connect().await;
                for number in 0..150 {
                    let sql = format!("INSERT INTO {table} VALUES ({})", writer * 1000 + number);
                    mysql_async::prelude::Queryable::query_drop(&mut connection, sql).await.unwrap();
                }
            }
        });
        let noting = async {
            let mut points = Vec::new();
            for _ in 0..12 {
                points.push(source.head().await.unwrap());
            }
            points
        };
        let (_, points) = futures::join!(futures::future::join_all(writers), noting);
        for point in &points {
            source.check_held(point).await.unwrap();
        }
        let head = source.head().await.unwrap();
        let (whole, _) = read_to(open(&source, &start).await.as_mut(), &head).await;
        for point in points {
            for resume in [ResumeBy::Gtid, ResumeBy::Position] {
                let source = resuming(server, &format!("{database}.*"), resume);
                let (rest, _) = read_to(open(&source, &point).await.as_mut(), &head).await;
                let before: usize = whole
                    .iter()
                    .filter_map(|batch| batch.clone().cut_at(&point.position).0)
                    .map(|batch| batch.rows.num_rows())
                    .sum();
                assert_eq!(ids(&rest), ids(&whole)[before..], "{flavor:?} {resume:?} from {point:?}");
            }
        }
    }
}

/// A split read while writers commit, with the log from its low point replayed over it, is the table.
#[tokio::test]
async fn a_split_and_the_log_from_its_low_point_miss_no_row() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("split").await;
        server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
        let source = source(server, &format!("{database}.*"));
        let schema = schemas(&source).await.into_values().next().unwrap();
        let writers = (0..4).map(|writer| {
            let table = format!("{database}.t");
            async move {
                let mut connection = server.connect().await;
                for number in 0..200 {
                    let sql = format!("INSERT INTO {table} VALUES ({})", writer * 1000 + number);
                    mysql_async::prelude::Queryable::query_drop(&mut connection, sql).await.unwrap();
                }
            }
        });
        let reading = async {
            let mut splits = Vec::new();
            for _ in 0..10 {
                splits.push(read_some(&source, &schema, 1_000_000).await);
            }
            splits
        };
        let (_, splits) = futures::join!(futures::future::join_all(writers), reading);
        for split in splits {
            let (logged, _) = read_to(open(&source, &split.low).await.as_mut(), &split.high).await;
            let logged = logged.into_iter().filter_map(|batch| batch.cut_at(&split.high.position).0);
            let logged: Vec<ChangeBatch> = logged.collect();
            let mut found = ids(&split.rows);
            found.extend(ids(&logged));
            found.sort_unstable();
            found.dedup();
            let (from_start, _) =
                read_to(open(&source, &split.high).await.as_mut(), &source.head().await.unwrap()).await;
            let later = ids(&from_start);
            assert_eq!(found.len() + later.len(), 800, "{flavor:?} {} {}", split.low.position, split.high.position);
            assert!(later.iter().all(|id| !found.contains(id)));
        }
    }
}
