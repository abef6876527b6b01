//! What the first events of a file say was logged before it.

use super::reader::{Malformed, Reader};
use crate::source::mysql::gtid::{GtidSet, MariaDbGtidSet, MySqlGtidSet};

/// PREVIOUS_GTIDS of MySQL (`Gtid_set::add_gtid_encoding`); `None` for a form that is not known.
pub fn mysql(body: &[u8]) -> Option<GtidSet> {
    read_mysql(body).ok().map(GtidSet::MySql)
}

fn read_mysql(body: &[u8]) -> Result<MySqlGtidSet, Malformed> {
    let mut reader = Reader::new(body);
    let mut set = MySqlGtidSet::default();
    let count = reader.u64()?;
    for _ in 0..count {
        let uuid = reader.array()?;
        let intervals = reader.u64()?;
        for _ in 0..intervals {
            // The second number is one more than the last.
            let (first, end) = (reader.u64()?, reader.u64()?);
            set.add_interval(uuid, "", first, end.saturating_sub(1));
        }
    }
    Ok(set)
}

/// GTID_LIST of MariaDB: the newest of each domain comes last among the domain's.
pub fn mariadb(body: &[u8]) -> Result<GtidSet, Malformed> {
    const COUNT_MASK: u32 = 0x0fff_ffff;
    let mut reader = Reader::new(body);
    let mut set = MariaDbGtidSet::default();
    for _ in 0..reader.u32()? & COUNT_MASK {
        let (domain, server_id, sequence) = (reader.u32()?, reader.u32()?, reader.u64()?);
        set.add(domain, server_id, sequence);
    }
    Ok(GtidSet::MariaDb(set))
}
