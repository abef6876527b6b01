//! Tables of different shapes, and the statements that fill a server's log with their rows. The second column of each is an INT.

use crate::server::Server;

/// Rows of one statement where many go in at once.
const STATEMENT_ROWS: u64 = 1_000;
/// Row events of one order: its head, ten lines, ten stocks, the district and the customer.
const ORDER_ROWS: u64 = 23;

/// One shape.
pub struct Shape {
    pub name: &'static str,
    fill: fn(&Server, u64),
}

pub const ALL: [Shape; 3] =
    [Shape { name: "tpcc", fill: tpcc }, Shape { name: "bulk", fill: bulk }, Shape { name: "wide", fill: wide }];

impl Shape {
    /// Changes about so many rows.
    pub fn write(&self, server: &Server, rows: u64) {
        (self.fill)(server, rows);
    }
}

/// The tables, and what the log need not have.
pub fn prepare(server: &Server) {
    server.run(
        "CREATE DATABASE bench CHARACTER SET utf8mb4;
         CREATE TABLE bench.thousand (n INT PRIMARY KEY);
         SET SESSION cte_max_recursion_depth = 1000;
         INSERT INTO bench.thousand WITH RECURSIVE t (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < 999) SELECT n FROM t;
         CREATE TABLE bench.bulk (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL);
         CREATE TABLE bench.orders (id INT PRIMARY KEY, district INT NOT NULL, customer INT NOT NULL, entered DATETIME NOT NULL,
           carrier TINYINT, lines_count TINYINT NOT NULL, all_local BIT(1) NOT NULL);
         CREATE TABLE bench.order_line (order_id INT, number INT, item INT NOT NULL, quantity TINYINT NOT NULL,
           amount DECIMAL(8,2) NOT NULL, dist_info CHAR(24) NOT NULL, PRIMARY KEY (order_id, number));
         CREATE TABLE bench.stock (item INT PRIMARY KEY, quantity INT NOT NULL, ytd DECIMAL(12,2) NOT NULL, data VARCHAR(50) NOT NULL);
         CREATE TABLE bench.district (id INT PRIMARY KEY, next_order INT NOT NULL, ytd DECIMAL(12,2) NOT NULL);
         CREATE TABLE bench.customer (id INT PRIMARY KEY, payments INT NOT NULL, balance DECIMAL(12,2) NOT NULL, data VARCHAR(500) NOT NULL);
         INSERT INTO bench.stock SELECT a.n * 10 + b.n, 100, 0, REPEAT('s', 40) FROM bench.thousand a, bench.thousand b WHERE b.n < 10;
         INSERT INTO bench.district SELECT n, 1, 0 FROM bench.thousand WHERE n < 10;
         INSERT INTO bench.customer SELECT n, 0, 0, REPEAT('c', 300) FROM bench.thousand;",
    );
    server.run(
        "DELIMITER //
         CREATE PROCEDURE bench.orders(first INT, last INT)
         BEGIN
           DECLARE o INT DEFAULT first;
           WHILE o < last DO
             START TRANSACTION;
             UPDATE bench.district SET next_order = next_order + 1, ytd = ytd + 7.25 WHERE id = o % 10;
             INSERT INTO bench.orders VALUES (o, o % 10, o % 1000, '2026-01-31 10:00:00', NULL, 10, 1);
             INSERT INTO bench.order_line SELECT o, n, o * 7 + n, 1 + n, 9.99 * n, REPEAT('d', 24) FROM bench.thousand WHERE n < 10;
             UPDATE bench.stock SET quantity = quantity - 1, ytd = ytd + 1.5 WHERE item BETWEEN o * 13 % 9000 AND o * 13 % 9000 + 9;
             UPDATE bench.customer SET payments = payments + 1, balance = balance - 70.5 WHERE id = o % 1000;
             COMMIT;
             SET o = o + 1;
           END WHILE;
         END //",
    );
    let plain: Vec<String> = (0..8).map(|index| format!("n{index} BIGINT, d{index} DECIMAL(20,6)")).collect();
    server.run(&format!(
        "CREATE TABLE bench.wide (id INT PRIMARY KEY, version INT NOT NULL, {}, doc JSON, made DATETIME(6), seen TIMESTAMP(3) NULL,
           name VARCHAR(100), note TEXT, share DOUBLE)",
        plain.join(", ")
    ));
}

fn tpcc(server: &Server, rows: u64) {
    server.run(&format!("CALL bench.orders(0, {})", rows / ORDER_ROWS));
}

fn bulk(server: &Server, rows: u64) {
    for first in (0..rows).step_by(usize::try_from(STATEMENT_ROWS).unwrap()) {
        server.run(&format!(
            "INSERT INTO bench.bulk SELECT {first} + n, n, REPEAT(LEFT(SHA2({first} + n, 256), 40), 3),
               LEFT(REPEAT(LEFT(SHA2({first} + n, 256), 32), 2), 59)
             FROM bench.thousand"
        ));
    }
}

/// As many updates as inserts.
fn wide(server: &Server, rows: u64) {
    let numbers: Vec<String> =
        (0..8).map(|index| format!("n * 1000003 * {}, n * 12345.678901 + {index}", index + 1)).collect();
    for first in (0..rows / 2).step_by(usize::try_from(STATEMENT_ROWS).unwrap()) {
        server.run(&format!(
            "INSERT INTO bench.wide SELECT {first} + n, 1, {}, JSON_OBJECT('id', n, 'name', LEFT(SHA2(n, 256), 40), 'tags', JSON_ARRAY('a', 'b', n),
               'address', JSON_OBJECT('street', LEFT(SHA2(n, 256), 32), 'number', n % 100, 'geo', JSON_ARRAY(n / 7, n / 11)), 'active', n % 2 = 0),
               NOW(6), NOW(3), LEFT(SHA2({first} + n, 256), 40), REPEAT(LEFT(SHA2(n, 256), 32), 3), n / 3
             FROM bench.thousand;
             UPDATE bench.wide SET version = 2, d1 = d1 + 1, doc = JSON_SET(doc, '$.name', 'changed') WHERE id BETWEEN {first} AND {first} + 999",
            numbers.join(", ")
        ));
    }
}
