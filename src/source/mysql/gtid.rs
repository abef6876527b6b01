//! Sets of global transaction ids, in the notations of MySQL and MariaDB.
//!
//! MySQL manual, "GTID Format and Storage": `uuid:1-5:7,uuid:1-3` and, with tags, `uuid:1-5:tag:1-3`.
//! MariaDB manual, "Global Transaction ID": `0-1-100,1-2-7`, the newest of each domain.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Which server's ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidSet {
    MySql(MySqlGtidSet),
    MariaDb(MariaDbGtidSet),
}

/// A text that is not a GTID set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a GTID set: {problem} (MySQL: <uuid>:1-5, MariaDB: <domain>-<server>-<sequence>)")]
pub struct InvalidGtidSet {
    text: String,
    problem: &'static str,
}

/// Who made a transaction: the server's uuid, and a tag (empty for none).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    uuid: [u8; 16],
    tag: String,
}

/// All transactions of a MySQL log that have been read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MySqlGtidSet {
    /// First and last number, both included; in order, with gaps between them.
    intervals: BTreeMap<Origin, Vec<(u64, u64)>>,
}

/// The newest transaction of each domain of a MariaDB log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MariaDbGtidSet {
    /// Domain to server id and sequence number.
    newest: BTreeMap<u32, (u32, u64)>,
}

impl GtidSet {
    /// Whether every transaction of this set is in `other`. Sets of different servers are never comparable.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MySql(own), Self::MySql(other)) => own.is_subset_of(other),
            (Self::MariaDb(own), Self::MariaDb(other)) => own.is_subset_of(other),
            _ => false,
        }
    }
}

impl FromStr for GtidSet {
    type Err = InvalidGtidSet;

    /// An empty text is MySQL's empty set.
    fn from_str(text: &str) -> Result<Self, InvalidGtidSet> {
        if text.trim().is_empty() || text.contains(':') {
            text.parse().map(Self::MySql)
        } else {
            text.parse().map(Self::MariaDb)
        }
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MySql(set) => set.fmt(f),
            Self::MariaDb(set) => set.fmt(f),
        }
    }
}

impl MySqlGtidSet {
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Adds transaction `number` (from 1 on) of the server `uuid`; `tag` is empty for none.
    pub fn add(&mut self, uuid: [u8; 16], tag: &str, number: u64) {
        self.add_interval(uuid, tag, number, number);
    }

    /// Adds the transactions from `first` to `last`, both included. An interval that ends before it begins, or
    /// begins at 0, adds nothing.
    pub fn add_interval(&mut self, uuid: [u8; 16], tag: &str, first: u64, last: u64) {
        if first == 0 || last < first {
            return;
        }
        let intervals = self.intervals.entry(Origin { uuid, tag: tag.to_string() }).or_default();
        // The usual case: the next transaction of the server.
        if let Some((_, end)) = intervals.last_mut()
            && first == end.saturating_add(1)
        {
            *end = last;
            return;
        }
        // All intervals that overlap the new one or touch it become one with it.
        let from = intervals.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = intervals.partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        let joined = intervals.get(from..to.max(from)).unwrap_or_default().iter();
        let merged = joined.fold((first, last), |(a, b), (begin, end)| (a.min(*begin), b.max(*end)));
        intervals.splice(from..to.max(from), [merged]);
    }

    pub fn contains(&self, uuid: [u8; 16], tag: &str, number: u64) -> bool {
        self.covers(&Origin { uuid, tag: tag.to_string() }, number, number)
    }

    pub fn is_subset_of(&self, other: &Self) -> bool {
        let mut all = self.intervals.iter().flat_map(|(origin, list)| list.iter().map(move |range| (origin, range)));
        all.all(|(origin, (first, last))| other.covers(origin, *first, *last))
    }

    fn covers(&self, origin: &Origin, first: u64, last: u64) -> bool {
        let intervals = self.intervals.get(origin).map(Vec::as_slice).unwrap_or_default();
        let index = intervals.partition_point(|(_, end)| *end < first);
        intervals.get(index).is_some_and(|(begin, end)| *begin <= first && last <= *end)
    }

    /// The ids of one server without a tag, as the replication protocol asks for them: uuid, then first and last
    /// number of each interval, both included.
    pub fn untagged(&self) -> impl Iterator<Item = ([u8; 16], &[(u64, u64)])> {
        let untagged = self.intervals.iter().filter(|(origin, _)| origin.tag.is_empty());
        untagged.map(|(origin, list)| (origin.uuid, list.as_slice()))
    }

    /// Whether any id has a tag (MySQL 8.3 and later).
    pub fn has_tags(&self) -> bool {
        self.intervals.keys().any(|origin| !origin.tag.is_empty())
    }
}

impl FromStr for MySqlGtidSet {
    type Err = InvalidGtidSet;

    fn from_str(text: &str) -> Result<Self, InvalidGtidSet> {
        let fail = |problem| InvalidGtidSet { text: text.to_string(), problem };
        let mut set = Self::default();
        for group in text.split(',').map(str::trim).filter(|group| !group.is_empty()) {
            let mut parts = group.split(':').map(str::trim);
            let uuid = parse_uuid(parts.next().unwrap_or_default()).ok_or_else(|| fail("no uuid at its beginning"))?;
            let mut tag = "";
            let mut intervals = 0;
            for part in parts {
                if part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                    tag = part;
                    continue;
                }
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let first: u64 = first.trim().parse().map_err(|_| fail("an interval is no number"))?;
                let last: u64 = last.trim().parse().map_err(|_| fail("an interval is no number"))?;
                if first == 0 || last < first || last > i64::MAX as u64 {
                    return Err(fail("an interval that is none"));
                }
                set.add_interval(uuid, &tag.to_ascii_lowercase(), first, last);
                intervals += 1;
            }
            if intervals == 0 {
                return Err(fail("a uuid without an interval"));
            }
        }
        Ok(set)
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    uuid::Uuid::try_parse(text).ok().map(uuid::Uuid::into_bytes)
}

impl fmt::Display for MySqlGtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last_uuid = None;
        for (origin, intervals) in &self.intervals {
            if last_uuid != Some(origin.uuid) {
                let comma = if last_uuid.is_some() { "," } else { "" };
                write!(f, "{comma}{}", uuid::Uuid::from_bytes(origin.uuid))?;
                last_uuid = Some(origin.uuid);
            }
            if !origin.tag.is_empty() {
                write!(f, ":{}", origin.tag)?;
            }
            for (first, last) in intervals {
                if first == last {
                    write!(f, ":{first}")?;
                } else {
                    write!(f, ":{first}-{last}")?;
                }
            }
        }
        Ok(())
    }
}

impl MariaDbGtidSet {
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    /// Notes a transaction as the newest of its domain: the log's order counts, not the number.
    pub fn add(&mut self, domain: u32, server_id: u32, sequence: u64) {
        self.newest.insert(domain, (server_id, sequence));
    }

    /// Whether a transaction of the domain with at least this number has been read.
    pub fn contains(&self, domain: u32, sequence: u64) -> bool {
        self.newest.get(&domain).is_some_and(|(_, newest)| *newest >= sequence)
    }

    /// Whether `other` is as far as this or further, in every domain.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.newest.iter().all(|(domain, (_, sequence))| other.contains(*domain, *sequence))
    }
}

impl FromStr for MariaDbGtidSet {
    type Err = InvalidGtidSet;

    fn from_str(text: &str) -> Result<Self, InvalidGtidSet> {
        let fail = |problem| InvalidGtidSet { text: text.to_string(), problem };
        let mut set = Self::default();
        for id in text.split(',').map(str::trim).filter(|id| !id.is_empty()) {
            let mut parts = id.split('-');
            let (Some(domain), Some(server), Some(sequence), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(fail("an id has three numbers"));
            };
            let domain = domain.parse().map_err(|_| fail("a domain is no number"))?;
            let server = server.parse().map_err(|_| fail("a server id is no number"))?;
            let sequence = sequence.parse().map_err(|_| fail("a sequence is no number"))?;
            set.add(domain, server, sequence);
        }
        Ok(set)
    }
}

impl fmt::Display for MariaDbGtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (domain, (server, sequence))) in self.newest.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{domain}-{server}-{sequence}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "ffffffff-71ca-11e1-9e33-c80aa9429562";

    fn check(text: &str, expected: &str) {
        let set: GtidSet = text.parse().unwrap();
        assert_eq!(set.to_string(), expected, "{text}");
        assert_eq!(expected.parse(), Ok(set), "{expected}");
    }

    #[test]
    fn a_set_is_written_as_the_server_writes_it() {
        check("", "");
        check(&format!("{A}:1-5:7"), &format!("{A}:1-5:7"));
        check(&format!("{A}:7:1-5:6"), &format!("{A}:1-7"));
        check(&format!("{B}:1,\n{A}:3"), &format!("{A}:3,{B}:1"));
        check(&format!("{}:1", A.to_uppercase()), &format!("{A}:1"));
        check(&format!("{A}:1-3:tag_a:1:5:b:2"), &format!("{A}:1-3:b:2:tag_a:1:5"));
        check("0-1-100,2-7-9", "0-1-100,2-7-9");
        check("0-1-100, 0-2-50", "0-2-50");
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in ["x", "0-1", "0-1-2-3", "a-1-2", A, &format!("{A}:"), &format!("{A}:0"), &format!("{A}:5-3"), "z:1"]
        {
            assert!(text.parse::<GtidSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn intervals_behave_as_a_set_of_numbers() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let uuid = parse_uuid(A).unwrap();
        for _ in 0..200 {
            let (mut set, mut model) = (MySqlGtidSet::default(), BTreeSet::new());
            for _ in 0..next(30) {
                let first = 1 + next(60);
                let last = first + next(6);
                set.add_interval(uuid, "", first, last);
                model.extend(first..=last);
                let parsed: MySqlGtidSet = set.to_string().parse().unwrap();
                assert_eq!(parsed, set);
                for number in 0..70 {
                    assert_eq!(set.contains(uuid, "", number), model.contains(&number), "{number} in {set}");
                }
                let mut larger = set.clone();
                larger.add(uuid, "", 100);
                assert!(set.is_subset_of(&larger) && !larger.is_subset_of(&set));
            }
        }
    }

    #[test]
    fn a_domain_that_is_further_contains_the_other() {
        let set = |text: &str| text.parse::<GtidSet>().unwrap();
        assert!(set("0-1-5").is_subset_of(&set("0-2-6,1-1-1")));
        assert!(!set("0-1-5,1-1-2").is_subset_of(&set("0-2-6,1-1-1")));
        assert!(!set("0-1-5").is_subset_of(&set(&format!("{A}:1-9"))));
    }
}
