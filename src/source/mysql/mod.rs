//! MySQL and MariaDB: live servers through the replication protocol, and binlog files on disk.

pub mod column_type;
