//! MySQL and MariaDB: live servers through the replication protocol, and binlog files on disk.

pub mod binlog;
pub mod charset;
pub mod column_type;
pub mod ddl;
pub mod files;
pub mod gtid;
pub mod json;
pub mod live;
