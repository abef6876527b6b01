//! What the first events of a file say was logged before it.

use super::reader::{Malformed, Reader};
use super::transaction;
use crate::source::mysql::gtid::{GtidSet, MariaDbGtidSet, MySqlGtidSet};

/// PREVIOUS_GTIDS of MySQL (`Gtid_set::add_gtid_encoding`); `None` for a form that is not known.
pub fn mysql(body: &[u8]) -> Option<GtidSet> {
    read_mysql(body).ok().map(GtidSet::MySql)
}

fn read_mysql(body: &[u8]) -> Result<MySqlGtidSet, Malformed> {
    let mut reader = Reader::new(body);
    let mut set = MySqlGtidSet::default();
    let head = reader.u64()?;
    // Since MySQL 8.3 the highest byte is the form: 1 has a tag after each uuid, and the form in the lowest byte too.
    let (count, tagged) = match head >> 56 {
        0 => (head, false),
        1 => ((head >> 8) & 0xffff_ffff_ffff, true),
        form => return Err(Malformed::value(format!("form {form} of a GTID set"))),
    };
    for _ in 0..count {
        let uuid = reader.array()?;
        let tag = if tagged { transaction::tag(&mut reader)? } else { String::new() };
        let intervals = reader.u64()?;
        for _ in 0..intervals {
            // The second number is one more than the last.
            let (first, end) = (reader.u64()?, reader.u64()?);
            set.add_interval(uuid, &tag, first, end.saturating_sub(1));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let digits = body.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        assert_eq!(mysql(&bytes).unwrap().to_string(), expected);
        for length in 0..bytes.len() {
            assert_eq!(mysql(&bytes[..length]), None, "cut at {length}");
        }
    }

    // Of logs of MySQL 9.7, before and after a first tagged id.
    #[test]
    fn both_forms_of_a_set_are_read() {
        check(
            "010000000000000037d79d68ecd011f1b49b02fc00000001010000000000000001000000000000000500000000000000",
            "37d79d68-ecd0-11f1-b49b-02fc00000001:1-4",
        );
        check(
            "010300000000000137d79d68ecd011f1b49b02fc0000000100010000000000000001000000000000000500000000000000\
             37d79d68ecd011f1b49b02fc00000001166f746865725f7461675f300100000000000000010000000000000002000000\
             0000000037d79d68ecd011f1b49b02fc000000010c72656c6f6164010000000000000001000000000000000200000000\
             000000",
            "37d79d68-ecd0-11f1-b49b-02fc00000001:1-4:other_tag_0:1:reload:1",
        );
    }
}
