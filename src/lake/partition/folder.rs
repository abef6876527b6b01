//! The folder of a partition, `column=value/` for each of its columns, as Hive names it. The log decides what a file's values
//! are; some readers look at the path all the same, polars among them.

use super::PartitionValues;

/// What stands for null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// Bytes of a part of a path at most: file systems take 255.
const PART_BYTES_MAX: usize = 200;

/// Ends with a slash, or is empty: for a table that is not partitioned, and where a value or a name is not made of letters of
/// ASCII, digits, `-`, `_` and `.` alone. Engines escape all other characters in different ways, and a `remove` has to name a
/// path as its `add` did.
pub(in crate::lake) fn folder(values: &PartitionValues) -> String {
    let parts = values.iter().map(|(name, value)| {
        let value = value.as_deref().filter(|value| !value.is_empty()).unwrap_or(NULL);
        let part = format!("{name}={value}/");
        (is_plain(name) && is_plain(value) && part.len() <= PART_BYTES_MAX).then_some(part)
    });
    let parts: Option<Vec<String>> = parts.collect();
    let mut parts = parts.unwrap_or_default();
    parts.sort_unstable();
    parts.concat()
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[(&str, Option<&str>)], expected: &str) {
        let values = values.iter().map(|(name, value)| (name.to_string(), value.map(str::to_string))).collect();
        assert_eq!(folder(&values), expected);
    }

    #[test]
    fn folders_are_named_as_hive_names_them() {
        check(&[], "");
        check(&[("region", Some("north")), ("day", Some("2026-01-31"))], "day=2026-01-31/region=north/");
        check(&[("r", None), ("s", Some(""))], "r=__HIVE_DEFAULT_PARTITION__/s=__HIVE_DEFAULT_PARTITION__/");
        check(&[("r", Some("..")), ("s", Some("-1.50"))], "r=../s=-1.50/");
    }

    #[test]
    fn what_engines_escape_in_different_ways_is_in_no_folder() {
        for value in ["a b", "a/b", "a%2Fb", "x=y", "s\u{fc}d", "'", "2026-01-31 00:00:00", &"x".repeat(300)] {
            check(&[("r", Some("north")), ("s", Some(value))], "");
        }
        check(&[("a b", Some("north"))], "");
    }
}
