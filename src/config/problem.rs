//! What is wrong with a job file, and where: all of it at once.

use std::fmt;
use std::path::PathBuf;

/// A place in the job file; both count from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub line: usize,
    pub column: usize,
}

/// One thing that is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `None` where the file as a whole is meant (it cannot be read).
    pub at: Option<Mark>,
    /// The key's path, lists counted from 0: `tables[2].key`; empty for the whole file.
    pub key: String,
    pub message: String,
}

/// All problems of one job file, in the file's order. Displays as one line each:
/// `jobs/shop.yaml:14:7 tables[2].key: must name at least one column`.
#[derive(Debug, Clone, thiserror::Error)]
pub struct Problems {
    pub file: PathBuf,
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file.display())?;
            if let Some(at) = problem.at {
                write!(f, ":{}:{}", at.line, at.column)?;
            }
            match problem.key.as_str() {
                "" => write!(f, ": {}", problem.message)?,
                key => write!(f, " {key}: {}", problem.message)?,
            }
        }
        Ok(())
    }
}

/// Collects problems while a job file is read and checked.
#[derive(Debug, Default)]
pub(super) struct Report {
    problems: Vec<Problem>,
}

impl Report {
    pub fn add(&mut self, at: Mark, key: &str, message: impl Into<String>) {
        self.problems.push(Problem { at: Some(at), key: key.to_string(), message: message.into() });
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn into_problems(mut self, file: PathBuf) -> Problems {
        self.problems.sort_by_key(|problem| problem.at);
        Problems { file, list: self.problems }
    }
}

/// The name among `known` that is closest to `typed`, if it is close enough to be what was meant.
pub(super) fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    let near = known.into_iter().map(|name| (distance(&lower, name), name)).min()?;
    // A third of the letters may differ; one in a short word.
    (near.0 <= (near.1.chars().count() / 3).max(1)).then_some(near.1)
}

/// Names longer than this are not compared: the comparison takes time by the product of the lengths.
const COMPARED_CHARS_MAX: usize = 64;

/// How many letters must be put in, left out, or replaced to make one word of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    if a.len() > COMPARED_CHARS_MAX || b.len() > COMPARED_CHARS_MAX {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for ((j, right), pair) in b.iter().enumerate().zip(row.windows(2)) {
            let (replaced, dropped) = (pair.first().copied().unwrap_or(i), pair.last().copied().unwrap_or(i));
            let added = next.get(j).copied().unwrap_or(i);
            next.push((replaced + usize::from(left != right)).min(dropped + 1).min(added + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_finds_its_name_and_a_far_one_does_not() {
        let known = ["match", "key", "tables", "split_rows"];
        assert_eq!(closest("keys", known), Some("key"));
        assert_eq!(closest("split-rows", known), Some("split_rows"));
        assert_eq!(closest("Tables", known), Some("tables"));
        assert_eq!(closest("colour", known), None);
        assert_eq!(closest(&"x".repeat(1000), known), None);
        assert_eq!(closest("x", []), None);
    }

    #[test]
    fn problems_print_one_line_each_in_the_order_of_the_file() {
        let mut report = Report::default();
        report.add(Mark { line: 14, column: 7 }, "tables[2].key", "must name at least one column");
        report.add(Mark { line: 2, column: 1 }, "", "is not YAML");
        let text = report.into_problems(PathBuf::from("jobs/shop.yaml")).to_string();
        assert_eq!(
            text,
            "jobs/shop.yaml:2:1: is not YAML\njobs/shop.yaml:14:7 tables[2].key: must name at least one column"
        );
    }
}
